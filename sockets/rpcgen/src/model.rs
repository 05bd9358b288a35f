//! Meaning of a file: types, constants and programs, with every name resolved.

/// A type.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Type {
    /// Nothing.
    Void,
    /// 32 bits with a sign.
    Int,
    /// 32 bits.
    Unsigned,
    /// 64 bits with a sign.
    Hyper,
    /// 64 bits.
    UnsignedHyper,
    /// A floating-point number of 32 bits.
    Float,
    /// A number of 64 bits.
    Double,
    /// A number of 128 bits.
    Quadruple,
    /// True or false.
    Bool,
    /// This number of octets.
    FixedOpaque(u32),
    /// Octets, at most so many.
    Opaque(u32),
    /// Characters, at most so many octets of them.
    Text(u32),
    /// The type at this place of [`Model::types`].
    Named(usize),
    /// This number of elements.
    Fixed(Box<Type>, u32),
    /// Elements, at most so many.
    Array(Box<Type>, u32),
    /// One or none.
    Optional(Box<Type>),
    /// A linked list of the structures at this place of [`Model::types`].
    List(usize),
}

/// A type with a name.
#[derive(Clone, Debug)]
pub struct TypeDef {
    /// As in the file; for one that is declared within another, their names joined by `_`.
    pub name: String,
    /// Kind of the type.
    pub kind: Kind,
}

/// Kind of a type with a name.
#[derive(Clone, Debug)]
pub enum Kind {
    /// Another name for a type.
    Alias(Type),
    /// Names for numbers.
    Enum(Vec<(String, i32)>),
    /// Components one behind the other. Of a structure that is the node of a linked list the last
    /// one, the next node, is left out: `is_node`, and it is mentioned by [`Type::List`] alone.
    Struct {
        /// The components.
        fields: Vec<Field>,
        /// True for the node of a linked list.
        is_node: bool,
    },
    /// One of several components, by the value of the first.
    Union(Union),
}

/// A component.
#[derive(Clone, Debug)]
pub struct Field {
    /// As in the file.
    pub name: String,
    /// Type of the component.
    pub ty: Type,
}

/// A union.
#[derive(Clone, Debug)]
pub struct Union {
    /// The field that decides.
    pub discriminant: Field,
    /// One for each `case`; what is declared for several, once for each.
    pub arms: Vec<Arm>,
    /// Component for any other value, or nothing; the outer `None` if there can be no other value.
    pub default: Option<Option<Field>>,
}

impl Union {
    /// Component for this value of the discriminant, or nothing; the outer `None` if there can be
    /// no such value.
    pub(crate) fn field(&self, value: i64) -> Option<Option<&Field>> {
        let arm = self.arms.iter().find(|arm| arm.value == value);
        let default = || self.default.as_ref().map(Option::as_ref);
        arm.map(|arm| arm.field.as_ref()).or_else(default)
    }
}

/// Arm for one value of the discriminant.
#[derive(Clone, Debug)]
pub struct Arm {
    /// The value.
    pub value: i64,
    /// Form in the file: a number or a name.
    pub label: String,
    /// The component, if there is one.
    pub field: Option<Field>,
}

/// A constant.
#[derive(Clone, Debug)]
pub struct Constant {
    /// As in the file.
    pub name: String,
    /// Value of the constant.
    pub value: i128,
}

/// A program.
#[derive(Clone, Debug)]
pub struct Program {
    /// As in the file.
    pub name: String,
    /// Number of the program.
    pub number: u32,
    /// Versions of the program.
    pub versions: Vec<Version>,
}

/// A version of a program.
#[derive(Clone, Debug)]
pub struct Version {
    /// As in the file.
    pub name: String,
    /// Number of the version.
    pub number: u32,
    /// Procedures of the version.
    pub procedures: Vec<Procedure>,
}

/// A procedure.
#[derive(Clone, Debug)]
pub struct Procedure {
    /// As in the file.
    pub name: String,
    /// Number of the procedure.
    pub number: u32,
    /// Types of the arguments; empty for `void`.
    pub arguments: Vec<Type>,
    /// Names of the arguments in the file, if there are any.
    pub argument_names: Vec<Option<String>>,
    /// Type of the result.
    pub result: Type,
}

/// All of a file.
#[derive(Clone, Debug, Default)]
pub struct Model {
    /// The constants, in the file's order.
    pub constants: Vec<Constant>,
    /// The types, in the file's order.
    pub types: Vec<TypeDef>,
    /// The programs, in the file's order.
    pub programs: Vec<Program>,
    /// Size of the least value of each type.
    pub(crate) sizes: Vec<Size>,
}

/// Size of the least value of a type.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Size {
    /// Octets.
    pub(crate) octets: u64,
    /// Values without parts in it, which are to be read one by one.
    pub(crate) cells: u64,
}

impl Size {
    fn of(octets: u64) -> Self {
        Self { octets, cells: 1 }
    }

    fn and(self, other: Self) -> Self {
        Self {
            octets: self.octets.saturating_add(other.octets),
            cells: self.cells.saturating_add(other.cells),
        }
    }

    fn times(self, count: u32) -> Self {
        Self {
            octets: self.octets.saturating_mul(count.into()),
            cells: self.cells.saturating_mul(count.into()),
        }
    }
}

impl Model {
    /// The type behind all other names for it.
    pub fn resolve<'a>(&'a self, mut ty: &'a Type) -> &'a Type {
        while let Type::Named(at) = ty {
            match self.types.get(*at).map(|def| &def.kind) {
                Some(Kind::Alias(behind)) => ty = behind,
                _ => break,
            }
        }
        ty
    }

    /// The definition at this place, if it is none that [`Model::resolve`] goes behind.
    pub fn kind(&self, ty: &Type) -> Option<&TypeDef> {
        match self.resolve(ty) {
            Type::Named(at) => self.types.get(*at),
            _ => None,
        }
    }

    /// The least octets that a value of this type takes.
    pub fn octets_min(&self, ty: &Type) -> u64 {
        self.size(ty).octets
    }

    /// Size of the least value of this type, once those of all types that it needs are known.
    pub(crate) fn size(&self, ty: &Type) -> Size {
        match ty {
            Type::Void => Size::of(0),
            Type::Hyper | Type::UnsignedHyper | Type::Double => Size::of(8),
            Type::Quadruple => Size::of(16),
            Type::FixedOpaque(octets) => Size::of(u64::from(*octets).next_multiple_of(4)),
            Type::Fixed(element, count) => self.size(element).times(*count),
            Type::Named(at) => self.sizes.get(*at).copied().unwrap_or(Size::of(4)),
            _ => Size::of(4),
        }
    }

    /// The name of the definition at this place.
    pub(crate) fn size_of_kind(&self, kind: &Kind) -> Size {
        let field = |field: &Field| self.size(&field.ty);
        match kind {
            Kind::Alias(behind) => self.size(behind),
            Kind::Enum(_) => Size::of(4),
            Kind::Struct { fields, .. } => fields.iter().map(field).fold(Size::of(0), Size::and),
            Kind::Union(union) => {
                let arms = union.arms.iter().map(|arm| arm.field.as_ref());
                let default = union.default.iter().map(Option::as_ref);
                let all = arms.chain(default).map(|f| f.map_or(Size::of(0), field));
                // Of the shortest, and of the longest: whichever a sender chooses.
                let ends = all.fold((u64::MAX, 0), |(octets, cells), size| {
                    (size.octets.min(octets), size.cells.max(cells))
                });
                let octets = if ends.0 == u64::MAX { 0 } else { ends.0 };
                Size { octets: octets.saturating_add(4), cells: ends.1.saturating_add(1) }
            }
        }
    }

    /// Writes this type in the language; a place for its name is `name`, empty for none.
    pub fn describe(&self, ty: &Type) -> String {
        let max = |max: &u32| match max {
            &u32::MAX => String::new(),
            max => max.to_string(),
        };
        match ty {
            Type::Void => "void".into(),
            Type::Int => "int".into(),
            Type::Unsigned => "unsigned int".into(),
            Type::Hyper => "hyper".into(),
            Type::UnsignedHyper => "unsigned hyper".into(),
            Type::Float => "float".into(),
            Type::Double => "double".into(),
            Type::Quadruple => "quadruple".into(),
            Type::Bool => "bool".into(),
            Type::FixedOpaque(octets) => format!("opaque[{octets}]"),
            Type::Opaque(octets) => format!("opaque<{}>", max(octets)),
            Type::Text(octets) => format!("string<{}>", max(octets)),
            Type::Named(at) | Type::List(at) => {
                let name = self.types.get(*at).map_or("?", |def| def.name.as_str());
                match ty {
                    Type::List(_) => format!("{name} *"),
                    _ => name.into(),
                }
            }
            Type::Fixed(element, count) => format!("{}[{count}]", self.describe(element)),
            Type::Array(element, count) => format!("{}<{}>", self.describe(element), max(count)),
            Type::Optional(value) => format!("{} *", self.describe(value)),
        }
    }

    /// Writes a procedure in the language.
    pub fn describe_procedure(&self, procedure: &Procedure) -> String {
        let arguments: Vec<_> = procedure
            .arguments
            .iter()
            .zip(&procedure.argument_names)
            .map(|(ty, name)| match name {
                Some(name) => format!("{} {name}", self.describe(ty)),
                None => self.describe(ty),
            })
            .collect();
        let arguments = match arguments.is_empty() {
            true => "void".into(),
            false => arguments.join(", "),
        };
        let result = self.describe(&procedure.result);
        format!("{result} {}({arguments})", procedure.name)
    }
}
