//! Declarations, enumerations, structures and unions.

use super::cycles::UnionPlace;
use super::{C_TYPES, Checker, Meaning};
use crate::ast::{Declaration, EnumItem, Name, Shape, Spec, UnionBody, Value};
use crate::model::{Arm, Field, Kind, Type, Union};
use std::collections::HashMap;
use xk_lang::{Span, Spanned};

impl Checker<'_> {
    /// The type that a declaration has; `within` names what it is declared in.
    pub(super) fn type_of(&mut self, declaration: &Declaration, within: &str) -> Type {
        let Declaration { spec, shape, span, .. } = declaration;
        let span = *span;
        let max = |this: &mut Self, max: &Option<Value>| match max {
            Some(value) => this.unsigned(value, "length").unwrap_or(0),
            None => u32::MAX,
        };
        match (spec, shape) {
            (Spec::Opaque, Shape::Fixed(octets)) => {
                Type::FixedOpaque(self.unsigned(octets, "length").unwrap_or(0))
            }
            (Spec::Opaque, Shape::Variable(octets)) => Type::Opaque(max(self, octets)),
            (Spec::Text, Shape::Variable(octets)) => Type::Text(max(self, octets)),
            // As rpcgen has it for arguments and results, and for names alone.
            (Spec::Text, Shape::Plain) => Type::Text(u32::MAX),
            (Spec::Opaque, _) => self.misshaped(span, "opaque", "`opaque x[N]` or `opaque x<MAX>`"),
            (Spec::Text, _) => self.misshaped(span, "string", "`string x<MAX>` or `string x<>`"),
            (Spec::Void, Shape::Plain) => Type::Void,
            (Spec::Void, _) => self.misshaped(span, "void", "`void` and nothing else"),
            (spec, Shape::Plain) => self.plain(spec, within),
            (spec, Shape::Fixed(count)) => {
                let element = self.plain(spec, within);
                let count = self.unsigned(count, "number of elements").unwrap_or(0);
                Type::Fixed(Box::new(element), count)
            }
            (spec, Shape::Variable(count)) => {
                let element = self.plain(spec, within);
                Type::Array(Box::new(element), max(self, count))
            }
            (spec, Shape::Optional) => Type::Optional(Box::new(self.plain(spec, within))),
        }
    }

    fn misshaped(&mut self, span: Span, what: &str, expected: &str) -> Type {
        self.found.error(span, format!("no `{what}` is declared so")).expected(expected);
        Type::Void
    }

    fn plain(&mut self, spec: &Spec, within: &str) -> Type {
        let inner = |span: Span| Spanned::new(within.to_owned(), span);
        match spec {
            Spec::Int => Type::Int,
            Spec::Unsigned => Type::Unsigned,
            Spec::Hyper => Type::Hyper,
            Spec::UnsignedHyper => Type::UnsignedHyper,
            Spec::Float => Type::Float,
            Spec::Double => Type::Double,
            Spec::Quadruple => Type::Quadruple,
            Spec::Bool => Type::Bool,
            Spec::Void | Spec::Opaque | Spec::Text => Type::Void,
            Spec::Named(name) => self.named(name),
            Spec::Enum(items) => {
                let name = inner(items.first().map_or(Span::default(), |i| i.name.span));
                let kind = Kind::Enum(self.enumeration(items));
                self.nested(&name, kind)
            }
            Spec::Struct(fields) => {
                let name = inner(fields.first().map_or(Span::default(), |f| f.span));
                let fields = self.fields(fields, &name);
                let is_node = false;
                self.nested(&name, Kind::Struct { fields, is_node })
            }
            Spec::Union(body) => {
                let name = inner(body.discriminant.span);
                match self.union(body, &name) {
                    Some(union) => self.nested(&name, Kind::Union(union)),
                    None => Type::Void,
                }
            }
        }
    }

    /// A type that is declared within another: its name is that of the way to it, made different if
    /// it is taken.
    fn nested(&mut self, name: &Name, kind: Kind) -> Type {
        let free = |names: &HashMap<String, _>, name: &str| !names.contains_key(name);
        let mut own = name.value.clone();
        // A typedef of a structure without a name has that name itself.
        while !free(&self.names, &own) {
            own.push_str("_body");
        }
        let own = Spanned::new(own, name.span);
        let at = self.model.types.len();
        if self.mean(&own, Meaning::Type(at)) {
            self.add_type(&own, kind);
        }
        Type::Named(at)
    }

    fn named(&mut self, name: &Name) -> Type {
        match self.names.get(name.as_str()) {
            Some((Meaning::Type(at), _)) => return Type::Named(*at),
            Some((Meaning::Constant(_), place)) => {
                let place = *place;
                self.found
                    .error(name.span, format!("`{name}` is a constant, no type"))
                    .also(place, "defined here");
                return Type::Void;
            }
            None => {}
        }
        if let Some((_, ty)) = C_TYPES.iter().find(|(c, _)| *c == name.as_str()) {
            return ty.clone();
        }
        if self.is_elsewhere(name) {
            return Type::Void;
        }
        let mut types: Vec<&str> = self.model.types.iter().map(|t| t.name.as_str()).collect();
        types.extend(["int", "unsigned", "hyper", "float", "double", "bool", "opaque", "string"]);
        self.found
            .error(name.span, format!("no type `{name}` is defined"))
            .help("define it by `typedef`, `struct`, `union` or `enum`")
            .suggest(name, types);
        Type::Void
    }

    pub(super) fn enumeration(&mut self, items: &[EnumItem]) -> Vec<(String, i32)> {
        let mut values = Vec::new();
        let mut seen: HashMap<i32, Span> = HashMap::new();
        let mut next = 0i128;
        for item in items {
            let value = match &item.value {
                Some(value) => self.value(value).unwrap_or(next),
                None => next,
            };
            next = value + 1;
            let Ok(number) = i32::try_from(value) else {
                self.found
                    .error(item.name.span, format!("{value} does not fit an enumeration"))
                    .expected("a number of 32 bits with a sign");
                continue;
            };
            let first = seen.get(&number).copied();
            if let Some(first) = first {
                self.found
                    .warning(item.name.span, format!("a second name for {number}"))
                    .also(first, "the first name, which values have")
                    .help("use `const` for another name of a value");
            }
            seen.entry(number).or_insert(item.name.span);
            if self.mean(&item.name, Meaning::Constant(value)) && first.is_none() {
                values.push((item.name.value.clone(), number));
            }
        }
        values
    }

    pub(super) fn fields(&mut self, declarations: &[Declaration], within: &Name) -> Vec<Field> {
        let mut fields = Vec::new();
        let mut seen: HashMap<&str, Span> = HashMap::new();
        for declaration in declarations {
            let name = &declaration.name;
            if name.is_empty() {
                self.found
                    .error(declaration.span, "`void` is no component of a structure")
                    .help("take it out");
                continue;
            }
            self.unique(name, seen.insert(name.as_str(), name.span));
            let ty = self.type_of(declaration, &format!("{within}_{name}"));
            fields.push(Field { name: name.value.clone(), ty });
        }
        fields
    }

    fn unique(&mut self, name: &Name, first: Option<Span>) {
        if let Some(first) = first {
            self.found
                .error(name.span, format!("a second component `{name}`"))
                .also(first, "the first one")
                .help("give one of them another name");
        }
    }

    fn component(&mut self, declaration: &Declaration, within: &Name) -> Option<Field> {
        let name = &declaration.name;
        if name.is_empty() {
            return None;
        }
        let ty = self.type_of(declaration, &format!("{within}_{name}"));
        Some(Field { name: name.value.clone(), ty })
    }

    pub(super) fn union(&mut self, body: &UnionBody, within: &Name) -> Option<Union> {
        let declared = &body.discriminant;
        let discriminant = self.component(declared, within)?;
        let mut arms = Vec::new();
        let mut seen: HashMap<i128, Span> = HashMap::new();
        let mut names: HashMap<&str, Span> = HashMap::new();
        for case in &body.cases {
            let field = self.component(&case.body, within);
            let name = &case.body.name;
            if !name.is_empty() {
                self.unique(name, names.insert(name.as_str(), name.span));
            }
            for value in &case.values {
                let Some(number) = self.value(value) else {
                    continue;
                };
                if let Some(first) = seen.insert(number, value.span()) {
                    self.found
                        .error(value.span(), format!("a second case {number}"))
                        .also(first, "the first one")
                        .help("take one of them out");
                    continue;
                }
                let Ok(short) = i64::try_from(number) else {
                    continue;
                };
                let label = match value {
                    Value::Number(_) => number.to_string(),
                    Value::Name(name) => name.value.clone(),
                };
                arms.push((value.span(), Arm { value: short, label, field: field.clone() }));
            }
        }
        let default = body.default.as_ref().map(|declared| {
            let name = &declared.name;
            if !name.is_empty() {
                self.unique(name, names.insert(name.as_str(), name.span));
            }
            self.component(declared, within)
        });
        self.unions.push(UnionPlace {
            name: within.value.clone(),
            discriminant: declared.span,
            cases: arms.iter().map(|(span, _)| *span).collect(),
        });
        Some(Union { discriminant, arms: arms.into_iter().map(|(_, arm)| arm).collect(), default })
    }
}
