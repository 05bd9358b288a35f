//! What a file means: types, constants and programs, with every name resolved.

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
    /// Of 64 bits.
    Double,
    /// Of 128 bits.
    Quadruple,
    /// True or false.
    Bool,
    /// So many octets.
    FixedOpaque(u32),
    /// Octets, at most so many.
    Opaque(u32),
    /// Characters, at most so many octets of them.
    Text(u32),
    /// The type at this place of [`Model::types`].
    Named(usize),
    /// So many elements.
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
    /// What it is.
    pub kind: Kind,
}

/// What a type with a name is.
#[derive(Clone, Debug)]
pub enum Kind {
    /// Another name for a type.
    Alias(Type),
    /// Names for numbers.
    Enum(Vec<(String, i32)>),
    /// Components one behind the other. Of a structure that is the node of a linked list the last one, the next node, is left out:
    /// `is_node`, and it is mentioned by [`Type::List`] alone.
    Struct {
        /// The components.
        fields: Vec<Field>,
        /// It is the node of a linked list.
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
    /// Its type.
    pub ty: Type,
}

/// A union.
#[derive(Clone, Debug)]
pub struct Union {
    /// What decides.
    pub discriminant: Field,
    /// One for each `case`; what is declared for several, once for each.
    pub arms: Vec<Arm>,
    /// What is there for any other value: a component, or nothing; the outer `None` if there can be no other value.
    pub default: Option<Option<Field>>,
}

/// What is there for one value of the discriminant.
#[derive(Clone, Debug)]
pub struct Arm {
    /// The value.
    pub value: i64,
    /// How the file writes it: a number or a name.
    pub label: String,
    /// The component, if there is one.
    pub field: Option<Field>,
}

/// A constant.
#[derive(Clone, Debug)]
pub struct Constant {
    /// As in the file.
    pub name: String,
    /// Its value.
    pub value: i128,
}

/// A program.
#[derive(Clone, Debug)]
pub struct Program {
    /// As in the file.
    pub name: String,
    /// Its number.
    pub number: u32,
    /// Its versions.
    pub versions: Vec<Version>,
}

/// A version of a program.
#[derive(Clone, Debug)]
pub struct Version {
    /// As in the file.
    pub name: String,
    /// Its number.
    pub number: u32,
    /// Its procedures.
    pub procedures: Vec<Procedure>,
}

/// A procedure.
#[derive(Clone, Debug)]
pub struct Procedure {
    /// As in the file.
    pub name: String,
    /// Its number.
    pub number: u32,
    /// What it takes; empty for `void`.
    pub arguments: Vec<Type>,
    /// What it answers.
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
        match ty {
            Type::Void => 0,
            Type::Hyper | Type::UnsignedHyper | Type::Double => 8,
            Type::Quadruple => 16,
            Type::FixedOpaque(octets) => u64::from(*octets).next_multiple_of(4),
            Type::Fixed(element, count) => self.octets_min(element).saturating_mul((*count).into()),
            Type::Named(at) => match self.types.get(*at).map(|def| &def.kind) {
                Some(Kind::Alias(behind)) => self.octets_min(behind),
                Some(Kind::Struct { fields, .. }) => self.octets_of(fields),
                Some(Kind::Union(union)) => 4 + self.octets_of_arm(union),
                Some(Kind::Enum(_)) | None => 4,
            },
            _ => 4,
        }
    }

    fn octets_of(&self, fields: &[Field]) -> u64 {
        let each = fields.iter().map(|field| self.octets_min(&field.ty));
        each.fold(0, u64::saturating_add)
    }

    fn octets_of_arm(&self, union: &Union) -> u64 {
        let arms = union.arms.iter().map(|arm| arm.field.as_ref());
        let default = union.default.iter().map(|field| field.as_ref());
        arms.chain(default)
            .map(|field| field.map_or(0, |field| self.octets_min(&field.ty)))
            .min()
            .unwrap_or(0)
    }

    /// How the language writes this type; a place for its name is `name`, empty for none.
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

    /// How the language writes a procedure.
    pub fn describe_procedure(&self, procedure: &Procedure) -> String {
        let arguments: Vec<_> = procedure
            .arguments
            .iter()
            .map(|ty| self.describe(ty))
            .collect();
        let arguments = match arguments.is_empty() {
            true => "void".into(),
            false => arguments.join(", "),
        };
        let result = self.describe(&procedure.result);
        format!("{result} {}({arguments})", procedure.name)
    }
}
