//! Checks definitions and makes a model of them, or says what they cannot mean.

mod cycles;
mod lists;
mod program;
mod sizes;
mod types;

use self::cycles::UnionPlace;
use crate::ast::{Definition, Name, Value};
use crate::lex::Words;
use crate::model::{Constant, Kind, Model, Type, TypeDef};
use std::collections::HashMap;
use xk_lang::{Diagnostics, Span};

/// Names that C programs have without defining them, and what rpcgen's library makes of them.
const C_TYPES: &[(&str, Type)] = &[
    ("u_int", Type::Unsigned),
    ("u_long", Type::Unsigned),
    ("u_short", Type::Unsigned),
    ("u_char", Type::Unsigned),
    ("u_hyper", Type::UnsignedHyper),
    ("quad_t", Type::Hyper),
    ("u_quad_t", Type::UnsignedHyper),
    ("longlong_t", Type::Hyper),
    ("u_longlong_t", Type::UnsignedHyper),
    ("int8_t", Type::Int),
    ("int16_t", Type::Int),
    ("int32_t", Type::Int),
    ("int64_t", Type::Hyper),
    ("uint8_t", Type::Unsigned),
    ("uint16_t", Type::Unsigned),
    ("uint32_t", Type::Unsigned),
    ("uint64_t", Type::UnsignedHyper),
    ("u_int8_t", Type::Unsigned),
    ("u_int16_t", Type::Unsigned),
    ("u_int32_t", Type::Unsigned),
    ("u_int64_t", Type::UnsignedHyper),
    ("bool_t", Type::Bool),
    ("netobj", Type::Opaque(1024)),
];

/// Largest number of types, constants and values of a file together.
const NAMES_MAX: usize = 100_000;

/// Missing names that a mistake lists.
const NAMES_SHOWN: usize = 12;

/// Meaning of a name.
#[derive(Clone, Copy)]
enum Meaning {
    Type(usize),
    Constant(i128),
}

struct Checker<'a> {
    model: Model,
    /// Place of each type of the model.
    places: Vec<Span>,
    /// The types, each behind those that it is made of, once that is known.
    order: Vec<usize>,
    /// Unions to check once all types are known.
    unions: Vec<UnionPlace>,
    names: HashMap<String, (Meaning, Span)>,
    /// Lines were left out that may define what is missing here.
    may_be_elsewhere: bool,
    /// Names that such lines seem to define, each once.
    missing: Vec<Name>,
    found: &'a mut Diagnostics,
}

/// Checks the definitions and returns their meaning. If `found` has errors it is not complete.
pub(crate) fn check(definitions: &[Definition], words: &Words, found: &mut Diagnostics) -> Model {
    let mut checker = Checker {
        model: Model::default(),
        places: Vec::new(),
        order: Vec::new(),
        unions: Vec::new(),
        names: HashMap::new(),
        may_be_elsewhere: words.left_out.is_some(),
        missing: Vec::new(),
        found,
    };
    for define in &words.defines {
        checker.constant(&define.name, define.value.value);
    }
    // Types may be named before they are defined, as C's pointers to structures may be.
    for definition in definitions {
        checker.reserve(definition);
    }
    for definition in definitions {
        checker.define(definition);
    }
    if let Some(left_out) = words.left_out {
        checker.tell_left_out(left_out);
    }
    checker.check_aliases();
    if !checker.found.has_errors() {
        checker.check_by_value();
    }
    if !checker.found.has_errors() {
        checker.find_lists();
        checker.measure();
    }
    checker.model
}

impl Checker<'_> {
    /// True if a name that nothing here defines may be defined by a line that was left out.
    fn is_elsewhere(&mut self, name: &Name) -> bool {
        if self.may_be_elsewhere && !self.missing.iter().any(|known| known.value == name.value) {
            self.missing.push(name.clone());
        }
        self.may_be_elsewhere
    }

    /// One word about all lines that were left out, and what is missing for it.
    fn tell_left_out(&mut self, (first, count): (Span, usize)) {
        let what = match count {
            1 => "this line is left out: `%` is for C, and `#include` is not followed".to_owned(),
            n => format!(
                "this line and {} like it are left out: `%` is for C, and `#include` is not followed",
                n - 1
            ),
        };
        let Some(used) = self.missing.first() else {
            self.found.warning(first, what);
            return;
        };
        let names = self.missing.iter().take(NAMES_SHOWN);
        let names: Vec<String> = names.map(|name| format!("`{}`", name.value)).collect();
        let more = self.missing.len() - names.len();
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        self.found
            .error(first, format!("{what}, and nothing else defines {}{more}", names.join(", ")))
            .also(used.span, "used here")
            .help("put their definitions into this file, by `typedef`, `struct`, `union`, `enum` and `const`");
    }

    /// Gives a name its meaning.
    fn mean(&mut self, name: &Name, meaning: Meaning) -> bool {
        if let Some((_, first)) = self.names.get(name.as_str()) {
            let first = *first;
            self.found
                .error(name.span, format!("`{name}` is defined twice"))
                .label("again here")
                .also(first, "defined here")
                .help("give one of them another name: types and constants share theirs");
            return false;
        }
        if self.names.len() >= NAMES_MAX {
            let what = format!("more than {NAMES_MAX} names");
            self.found.error(name.span, what).help("split the file");
            return false;
        }
        self.names.insert(name.value.clone(), (meaning, name.span));
        true
    }

    fn constant(&mut self, name: &Name, value: i128) {
        if self.mean(name, Meaning::Constant(value)) {
            self.model.constants.push(Constant { name: name.value.clone(), value });
        }
    }

    /// Makes room for a type, which is filled in when its definition is read.
    fn reserve(&mut self, definition: &Definition) {
        let name = match definition {
            Definition::Typedef(declaration) => &declaration.name,
            Definition::Enum(name, _)
            | Definition::Struct(name, _)
            | Definition::Union(name, _) => name,
            Definition::Const(..) | Definition::Ignored | Definition::Program { .. } => return,
        };
        if is_typedef_of_itself(definition) || name.is_empty() {
            return;
        }
        let at = self.model.types.len();
        if self.mean(name, Meaning::Type(at)) {
            self.add_type(name, Kind::Alias(Type::Void));
        }
    }

    fn add_type(&mut self, name: &Name, kind: Kind) -> usize {
        self.model.types.push(TypeDef { name: name.value.clone(), kind });
        self.places.push(name.span);
        self.model.types.len() - 1
    }

    fn define(&mut self, definition: &Definition) {
        match definition {
            Definition::Const(name, value) => {
                if let Some(value) = self.value(value) {
                    self.constant(name, value);
                }
            }
            Definition::Ignored => {}
            Definition::Typedef(_) if is_typedef_of_itself(definition) => {}
            Definition::Typedef(declaration) => {
                if declaration.name.is_empty() {
                    let what = "`void` cannot have another name";
                    self.found.error(declaration.span, what).help("write `void` where it is meant");
                    return;
                }
                let ty = self.type_of(declaration, &declaration.name.value);
                self.fill(&declaration.name, Kind::Alias(ty));
            }
            Definition::Enum(name, items) => {
                let kind = Kind::Enum(self.enumeration(items));
                self.fill(name, kind);
            }
            Definition::Struct(name, fields) => {
                let fields = self.fields(fields, name);
                let is_node = false;
                self.fill(name, Kind::Struct { fields, is_node });
            }
            Definition::Union(name, body) => {
                if let Some(union) = self.union(body, name) {
                    self.fill(name, Kind::Union(union));
                }
            }
            Definition::Program { name, versions, number } => self.program(name, versions, number),
        }
    }

    /// Fills in a type whose room is there; not for a second one of the name.
    fn fill(&mut self, name: &Name, kind: Kind) {
        if let Some((Meaning::Type(at), span)) = self.names.get(name.as_str())
            && *span == name.span
            && let Some(def) = self.model.types.get_mut(*at)
        {
            def.kind = kind;
        }
    }

    /// The number that a value is.
    fn value(&mut self, value: &Value) -> Option<i128> {
        let name = match value {
            Value::Number(number) => return Some(number.value),
            Value::Name(name) => name,
        };
        match self.names.get(name.as_str()) {
            Some((Meaning::Constant(value), _)) => return Some(*value),
            Some((Meaning::Type(_), place)) => {
                let place = *place;
                self.found
                    .error(name.span, format!("`{name}` is a type, no constant"))
                    .also(place, "defined here");
            }
            None => match name.as_str() {
                "TRUE" => return Some(1),
                "FALSE" => return Some(0),
                _ if self.is_elsewhere(name) => {}
                _ => {
                    let constants = self.names.iter();
                    let constants: Vec<&str> = constants
                        .filter(|(_, (meaning, _))| matches!(meaning, Meaning::Constant(_)))
                        .map(|(name, _)| name.as_str())
                        .collect();
                    self.found
                        .error(name.span, format!("no constant `{name}` is defined"))
                        .help("define it above: `const NAME = 1;`")
                        .suggest(name, constants);
                }
            },
        }
        None
    }

    /// A value that is a size or a number of 32 bits.
    fn unsigned(&mut self, value: &Value, what: &str) -> Option<u32> {
        let number = self.value(value)?;
        let fits = u32::try_from(number).ok();
        if fits.is_none() {
            self.found
                .error(value.span(), format!("{number} is no {what}"))
                .expected("a number from 0 to 4294967295");
        }
        fits
    }
}

impl Value {
    fn span(&self) -> Span {
        match self {
            Self::Number(number) => number.span,
            Self::Name(name) => name.span,
        }
    }
}

/// `typedef struct foo foo;`, which C needs and which says nothing.
fn is_typedef_of_itself(definition: &Definition) -> bool {
    use crate::ast::{Shape, Spec};
    match definition {
        Definition::Typedef(declaration) => match (&declaration.spec, &declaration.shape) {
            (Spec::Named(name), Shape::Plain) => name.value == declaration.name.value,
            _ => false,
        },
        _ => false,
    }
}
