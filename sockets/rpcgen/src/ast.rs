//! Syntax of a file, before anything is known of the meaning of names.

use xk_lang::{Span, Spanned};

pub(crate) type Name = Spanned<String>;

/// A number, or the name of one.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Number(Spanned<i128>),
    Name(Name),
}

/// A type, as it stands before a name.
#[derive(Clone, Debug)]
pub(crate) enum Spec {
    Void,
    Int,
    Unsigned,
    Hyper,
    UnsignedHyper,
    Float,
    Double,
    Quadruple,
    Bool,
    Opaque,
    Text,
    Named(Name),
    Enum(Vec<EnumItem>),
    Struct(Vec<Declaration>),
    Union(Box<UnionBody>),
}

/// Form behind a name.
#[derive(Clone, Debug)]
pub(crate) enum Shape {
    Plain,
    Fixed(Value),
    Variable(Option<Value>),
    Optional,
}

#[derive(Clone, Debug)]
pub(crate) struct Declaration {
    /// Empty for `void`, a result, and an argument that has none.
    pub(crate) name: Name,
    pub(crate) spec: Spec,
    pub(crate) shape: Shape,
    pub(crate) span: Span,
}

#[derive(Clone, Debug)]
pub(crate) struct EnumItem {
    pub(crate) name: Name,
    /// rpcgen goes on counting where the standard asks for a value.
    pub(crate) value: Option<Value>,
}

#[derive(Clone, Debug)]
pub(crate) struct UnionBody {
    pub(crate) discriminant: Declaration,
    pub(crate) cases: Vec<Case>,
    pub(crate) default: Option<Declaration>,
}

#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) values: Vec<Value>,
    pub(crate) body: Declaration,
}

#[derive(Clone, Debug)]
pub(crate) struct Procedure {
    pub(crate) name: Name,
    pub(crate) arguments: Vec<Declaration>,
    pub(crate) result: Declaration,
    pub(crate) number: Value,
}

#[derive(Clone, Debug)]
pub(crate) struct Version {
    pub(crate) name: Name,
    pub(crate) procedures: Vec<Procedure>,
    pub(crate) number: Value,
}

#[derive(Clone, Debug)]
pub(crate) enum Definition {
    Const(Name, Value),
    /// A constant that is no number.
    Ignored,
    Typedef(Declaration),
    Enum(Name, Vec<EnumItem>),
    Struct(Name, Vec<Declaration>),
    Union(Name, Box<UnionBody>),
    Program {
        name: Name,
        versions: Vec<Version>,
        number: Value,
    },
}
