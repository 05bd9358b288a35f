//! Types and their representation.

use super::Rust;
use super::names::{Scope, camel, snake};
use crate::model::{Field, Kind, Type, Union};

/// Form of a union's discriminant in Rust.
struct Decider {
    /// The type.
    ty: String,
    kind: DeciderKind,
}

enum DeciderKind {
    Int,
    Unsigned,
    Bool,
    /// Variant and number of each value.
    Enum(Vec<(String, i64)>),
}

/// The names of an enumeration's variants.
fn variants(values: &[(String, i32)]) -> Vec<(String, i64)> {
    let mut scope = Scope::of("Self");
    let values = values.iter();
    let named = values.map(|(name, value)| (scope.unique_type(&camel(name)), i64::from(*value)));
    named.collect()
}

/// The implementation of `Xdr` by these two bodies.
fn implement(name: &str, octets_min: u64, encode: &str, decode: &str) -> String {
    format!(
        "impl Xdr for {name} {{
            const OCTETS_MIN: usize = {octets_min};
            fn encode<S: xdr::Sink>(&self, sink: &mut S) -> Result<(), xdr::EncodeError> {{
                {encode}
            }}
            fn decode(decoder: &mut xdr::Decoder<'_>) -> Result<Self, xdr::DecodeError> {{
                {decode}
            }}
        }}\n"
    )
}

fn enumeration(name: &str, said: &str, values: &[(String, i32)]) -> String {
    let named = variants(values);
    let mut shown = String::new();
    let mut decode = String::new();
    for ((variant, value), (said, _)) in named.iter().zip(values) {
        shown += &format!("/// `{said}`.\n{variant} = {value},\n");
        decode += &format!("{value} => Ok(Self::{variant}),");
    }
    let decode = format!(
        "match i32::decode(decoder)? {{ {decode}
            other => Err(xdr::DecodeError::BadEnum(other)), }}"
    );
    format!(
        "/// `enum {said}`.
        #[allow(clippy::enum_variant_names, reason = \"they are the file's\")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(i32)]
        pub enum {name} {{ {shown} }}
        {}",
        implement(name, 4, "(*self as i32).encode(sink)", &decode)
    )
}

impl Rust<'_> {
    pub(super) fn type_def(&mut self, at: usize) {
        let model = self.model;
        let Some(def) = model.types.get(at) else {
            return;
        };
        let (name, said) = (self.names.ty(at), &def.name);
        let text = match &def.kind {
            Kind::Alias(ty) => {
                let (described, ty) = (model.describe(ty), self.ty(ty));
                format!("/// `{said}`: `{described}`.\npub type {name} = {ty};\n")
            }
            Kind::Enum(values) => enumeration(name, said, values),
            Kind::Struct { fields, is_node } => {
                let what = if *is_node { ", an item of a list" } else { "" };
                format!("/// `struct {said}`{what}.\n{}", self.structure(at, name, fields))
            }
            Kind::Union(union) => format!("/// `union {said}`.\n{}", self.union(at, name, union)),
        };
        self.out += &text;
    }

    fn derive(&self, at: usize) -> &'static str {
        match self.inexact[at] {
            true => "#[derive(Clone, Debug, PartialEq)]",
            false => "#[derive(Clone, Debug, PartialEq, Eq, Hash)]",
        }
    }

    fn structure(&self, at: usize, name: &str, fields: &[Field]) -> String {
        let model = self.model;
        let mut scope = Scope::default();
        let (mut shown, mut encode, mut decode) = (String::new(), String::new(), String::new());
        for (place, field) in fields.iter().enumerate() {
            let own = scope.unique(&snake(&field.name));
            let (ty, said) = (self.ty(&field.ty), model.describe(&field.ty));
            shown += &format!("/// `{}`: `{said}`.\npub {own}: {ty},\n", field.name);
            let more = if place + 1 < fields.len() { "?;" } else { "" };
            encode += &format!("self.{own}.encode(sink){more}");
            decode += &format!("{own}: Xdr::decode(decoder)?,");
        }
        let mut decode = format!("Ok(Self {{ {decode} }})");
        if fields.is_empty() {
            encode = "let _ = sink; Ok(())".into();
            decode.insert_str(0, "let _ = decoder;");
        }
        let derive = self.derive(at);
        let octets_min = model.octets_min(&Type::Named(at));
        let implementation = implement(name, octets_min, &encode, &decode);
        format!("{derive}\npub struct {name} {{ {shown} }}\n{implementation}")
    }

    fn decider(&self, ty: &Type) -> Decider {
        let kind = match self.model.resolve(ty) {
            Type::Unsigned => DeciderKind::Unsigned,
            Type::Bool => DeciderKind::Bool,
            behind => match self.model.kind(behind).map(|def| &def.kind) {
                Some(Kind::Enum(values)) => DeciderKind::Enum(variants(values)),
                _ => DeciderKind::Int,
            },
        };
        Decider { ty: self.ty(ty), kind }
    }

    fn union(&self, at: usize, name: &str, union: &Union) -> String {
        let model = self.model;
        let decider = self.decider(&union.discriminant.ty);
        let mut scope = Scope::of("Self");
        let (mut shown, mut encode, mut decode) = (String::new(), String::new(), String::new());
        let mut others = Vec::new();
        for arm in &union.arms {
            let own = scope.unique_type(&decider.variant(&arm.label, arm.value));
            let (case, pattern) = (decider.value(arm.value), decider.pattern(arm.value));
            let label = &arm.label;
            match &arm.field {
                Some(field) => {
                    let (ty, said) = (self.ty(&field.ty), model.describe(&field.ty));
                    let component = &field.name;
                    shown +=
                        &format!("/// `case {label}`: `{component}`, `{said}`.\n{own}({ty}),\n");
                    encode += &format!(
                        "Self::{own}(value) => {{ {case}.encode(sink)?; value.encode(sink) }}"
                    );
                    decode += &format!("{pattern} => Ok(Self::{own}(Xdr::decode(decoder)?)),");
                }
                None => {
                    shown += &format!("/// `case {label}`.\n{own},\n");
                    encode += &format!("Self::{own} => {case}.encode(sink),");
                    decode += &format!("{pattern} => Ok(Self::{own}),");
                }
            }
            others.push(pattern);
        }
        let is_covered = decider.is_covered(others.len());
        if let Some(field) = union.default.as_ref().filter(|_| !is_covered) {
            let own = scope.unique_type("Default");
            let bad = format!("xdr::EncodeError::BadDiscriminant({})", decider.number("*case"));
            let is_other = match others.as_slice() {
                // Of a bool, which has no third value.
                [one] if one == "true" => "*case".to_owned(),
                [one] if one == "false" => "!*case".to_owned(),
                several => format!("matches!(case, {})", several.join(" | ")),
            };
            let check = match others.is_empty() {
                true => String::new(),
                false => format!("if {is_other} {{ return Err({bad}); }}"),
            };
            let ty = &decider.ty;
            let (held, value, more, read) = match field {
                Some(field) => (
                    format!("{ty}, {}", self.ty(&field.ty)),
                    "case, value",
                    "?; value.encode(sink)",
                    "other, Xdr::decode(decoder)?",
                ),
                None => (ty.clone(), "case", "", "other"),
            };
            shown += &format!("/// `default`: any other case.\n{own}({held}),\n");
            encode += &format!("Self::{own}({value}) => {{ {check} case.encode(sink){more} }}");
            decode += &format!("other => Ok(Self::{own}({read})),");
        } else if !is_covered {
            let number = decider.number("other");
            decode += &format!("other => Err(xdr::DecodeError::BadDiscriminant({number})),");
        }
        let encode = format!("match self {{ {encode} }}");
        let decode = format!("match {}::decode(decoder)? {{ {decode} }}", decider.ty);
        let implementation = implement(name, model.octets_min(&Type::Named(at)), &encode, &decode);
        let derive = self.derive(at);
        format!(
            "#[allow(clippy::large_enum_variant, reason = \"they are the file's\")]
            {derive}
            pub enum {name} {{ {shown} }}
            {implementation}"
        )
    }
}

impl Decider {
    /// Name of a case.
    fn variant(&self, label: &str, value: i64) -> String {
        match &self.kind {
            DeciderKind::Enum(values) => {
                let named = values.iter().find(|(_, v)| *v == value);
                named.map_or_else(|| camel(label), |(name, _)| name.clone())
            }
            DeciderKind::Bool if value == 0 => "False".into(),
            DeciderKind::Bool => "True".into(),
            _ if label.starts_with('-') => format!("CaseMinus{}", value.unsigned_abs()),
            _ if label.starts_with(|c: char| c.is_ascii_digit()) => format!("Case{value}"),
            _ => camel(label),
        }
    }

    fn named(&self, value: i64) -> Option<String> {
        let DeciderKind::Enum(values) = &self.kind else {
            return None;
        };
        let (name, _) = values.iter().find(|(_, v)| *v == value)?;
        Some(format!("{}::{name}", self.ty))
    }

    /// The value, for a method to be called on it.
    fn value(&self, value: i64) -> String {
        match &self.kind {
            DeciderKind::Bool => (value != 0).to_string(),
            DeciderKind::Unsigned => format!("{value}u32"),
            DeciderKind::Int if value < 0 => format!("({value}i32)"),
            DeciderKind::Int => format!("{value}i32"),
            DeciderKind::Enum(_) => self.named(value).unwrap_or_default(),
        }
    }

    fn pattern(&self, value: i64) -> String {
        match &self.kind {
            DeciderKind::Bool => (value != 0).to_string(),
            DeciderKind::Unsigned | DeciderKind::Int => value.to_string(),
            DeciderKind::Enum(_) => self.named(value).unwrap_or_default(),
        }
    }

    /// The 32 bits of what `name` holds.
    fn number(&self, name: &str) -> String {
        match &self.kind {
            DeciderKind::Int => name.into(),
            DeciderKind::Unsigned if name.starts_with('*') => format!("({name}).cast_signed()"),
            DeciderKind::Unsigned => format!("{name}.cast_signed()"),
            DeciderKind::Bool => format!("i32::from({name})"),
            DeciderKind::Enum(_) => format!("{name} as i32"),
        }
    }

    /// Whether there is an arm for whatever the discriminant may be.
    fn is_covered(&self, arms: usize) -> bool {
        match &self.kind {
            DeciderKind::Bool => arms == 2,
            DeciderKind::Enum(values) => arms == values.len(),
            DeciderKind::Int | DeciderKind::Unsigned => false,
        }
    }
}
