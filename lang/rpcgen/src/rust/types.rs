//! Types and their representation.

use super::Rust;
use super::names::{Scope, camel, snake};
use super::write;
use crate::model::{Field, Kind, Type, Union};

/// How a union's discriminant looks in Rust.
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

/// One variant of a union.
struct Variant {
    name: String,
    value: i64,
    label: String,
    field: Option<Field>,
}

const ENCODE: &str =
    "    fn encode<S: xdr::Sink>(&self, sink: &mut S) -> Result<(), xdr::EncodeError> {";
const DECODE: &str =
    "    fn decode(decoder: &mut xdr::Decoder<'_>) -> Result<Self, xdr::DecodeError> {";

/// The names of an enumeration's variants.
fn variants(values: &[(String, i32)]) -> Vec<(String, i64)> {
    let mut scope = Scope::of(&["Self"]);
    let values = values.iter();
    let named = values.map(|(name, value)| (scope.unique_type(&camel(name)), i64::from(*value)));
    named.collect()
}

impl Rust<'_> {
    pub(super) fn type_def(&mut self, at: usize) {
        let model = self.model;
        let Some(def) = model.types.get(at) else {
            return;
        };
        let name = self.names.ty(at).to_owned();
        let said = &def.name;
        match &def.kind {
            Kind::Alias(ty) => {
                self.item(format!("/// `{said}`: `{}`.", model.describe(ty)));
                let front = format!("pub type {name}");
                let line = write::definition(&front, &self.ty(ty));
                self.line(line);
            }
            Kind::Enum(values) => self.enumeration(&name, said, values),
            Kind::Struct { fields, is_node } => {
                let what = if *is_node { ", an item of a list" } else { "" };
                self.item(format!("/// `struct {said}`{what}."));
                self.structure(at, &name, fields);
            }
            Kind::Union(union) => {
                self.item(format!("/// `union {said}`."));
                self.union(at, &name, union);
            }
        }
    }

    fn derive(&mut self, at: usize) {
        let eq = if self.inexact[at] { "" } else { ", Eq, Hash" };
        self.line(format!("#[derive(Clone, Debug, PartialEq{eq})]"));
    }

    /// The head of an implementation.
    fn implement(&mut self, name: &str, octets_min: u64) {
        self.item(format!("impl Xdr for {name} {{"));
        self.line(format!("    const OCTETS_MIN: usize = {octets_min};\n"));
    }

    fn enumeration(&mut self, name: &str, said: &str, values: &[(String, i32)]) {
        let named = variants(values);
        self.item(format!("/// `enum {said}`."));
        self.line("#[allow(clippy::enum_variant_names, reason = \"they are the file's\")]");
        self.line("#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]");
        self.line("#[repr(i32)]");
        self.line(format!("pub enum {name} {{"));
        for ((variant, value), (said, _)) in named.iter().zip(values) {
            self.line(format!("    /// `{said}`."));
            self.line(format!("    {variant} = {value},"));
        }
        self.line("}");
        self.implement(name, 4);
        self.line(ENCODE);
        self.line("        (*self as i32).encode(sink)");
        self.line("    }\n");
        self.line(DECODE);
        self.line("        match i32::decode(decoder)? {");
        for (variant, value) in &named {
            self.line(format!("            {value} => Ok(Self::{variant}),"));
        }
        self.line("            other => Err(xdr::DecodeError::BadEnum(other)),");
        self.line("        }\n    }\n}");
    }

    fn structure(&mut self, at: usize, name: &str, fields: &[Field]) {
        let model = self.model;
        let mut scope = Scope::default();
        let named: Vec<(String, &Field)> =
            fields.iter().map(|field| (scope.unique(&snake(&field.name)), field)).collect();
        self.derive(at);
        if fields.is_empty() {
            self.line(format!("pub struct {name} {{}}"));
        } else {
            self.line(format!("pub struct {name} {{"));
            for (own, field) in &named {
                let (ty, said) = (self.ty(&field.ty), model.describe(&field.ty));
                self.line(format!("    /// `{}`: `{said}`.", field.name));
                self.line(format!("    pub {own}: {ty},"));
            }
            self.line("}");
        }
        self.implement(name, model.octets_min(&Type::Named(at)));
        if fields.is_empty() {
            self.line(ENCODE.replace("sink:", "_:"));
            self.line("        Ok(())\n    }\n");
            self.line(DECODE.replace("decoder:", "_:"));
            self.line("        Ok(Self {})\n    }\n}");
            return;
        }
        self.line(ENCODE);
        for (place, (own, _)) in named.iter().enumerate() {
            let more = if place + 1 < named.len() { "?;" } else { "" };
            self.line(format!("        self.{own}.encode(sink){more}"));
        }
        self.line("    }\n");
        self.line(DECODE);
        self.line("        Ok(Self {");
        for (own, _) in &named {
            self.line(format!("            {own}: Xdr::decode(decoder)?,"));
        }
        self.line("        })\n    }\n}");
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

    fn union(&mut self, at: usize, name: &str, union: &Union) {
        let model = self.model;
        let decider = self.decider(&union.discriminant.ty);
        let mut scope = Scope::of(&["Self"]);
        let arms = union.arms.iter();
        let arms: Vec<Variant> = arms
            .map(|arm| Variant {
                name: scope.unique_type(&decider.variant(&arm.label, arm.value)),
                value: arm.value,
                label: arm.label.clone(),
                field: arm.field.clone(),
            })
            .collect();
        let default = union.default.clone().filter(|_| !decider.is_covered(&arms));
        let default = default.map(|field| (scope.unique_type("Default"), field));
        self.line("#[allow(clippy::large_enum_variant, reason = \"they are the file's\")]");
        self.derive(at);
        self.line(format!("pub enum {name} {{"));
        for arm in &arms {
            let component = match &arm.field {
                Some(field) => format!(": `{}`, `{}`", field.name, model.describe(&field.ty)),
                None => String::new(),
            };
            self.line(format!("    /// `case {}`{component}.", arm.label));
            let held = arm.field.as_ref().map(|field| self.ty(&field.ty));
            let held = held.map_or(String::new(), |ty| format!("({ty})"));
            self.line(format!("    {}{held},", arm.name));
        }
        if let Some((own, field)) = &default {
            self.line("    /// `default`: any other case.");
            let held = field.as_ref().map(|field| self.ty(&field.ty));
            let held = held.map_or(String::new(), |ty| format!(", {ty}"));
            self.line(format!("    {own}({}{held}),", decider.ty));
        }
        self.line("}");
        self.implement(name, model.octets_min(&Type::Named(at)));
        self.encode_union(&decider, &arms, default.as_ref());
        self.decode_union(&decider, &arms, default.as_ref());
    }

    fn encode_union(
        &mut self,
        decider: &Decider,
        arms: &[Variant],
        default: Option<&(String, Option<Field>)>,
    ) {
        self.line(ENCODE);
        self.line("        match self {");
        for arm in arms {
            let case = decider.value(arm.value);
            let name = &arm.name;
            if arm.field.is_none() {
                let pattern = format!("Self::{name}");
                let line = write::arm(12, &pattern, &format!("{case}.encode(sink)"));
                self.line(line);
                continue;
            }
            self.line(format!("            Self::{name}(value) => {{"));
            self.line(format!("                {case}.encode(sink)?;"));
            self.line("                value.encode(sink)\n            }");
        }
        if let Some((own, field)) = default {
            let value = if field.is_some() { ", value" } else { "" };
            self.line(format!("            Self::{own}(case{value}) => {{"));
            if !arms.is_empty() {
                let others = arms.iter().map(|arm| decider.pattern(arm.value));
                let others: Vec<_> = others.collect();
                let is_other = match others.as_slice() {
                    // Of a bool, which has no third value.
                    [one] if one == "true" => "*case".to_owned(),
                    [one] if one == "false" => "!*case".to_owned(),
                    several => format!("matches!(case, {})", several.join(" | ")),
                };
                self.line(format!("                if {is_other} {{"));
                let number = decider.number("*case");
                let error = format!("xdr::EncodeError::BadDiscriminant({number})");
                self.line(format!("                    return Err({error});"));
                self.line("                }");
            }
            if field.is_some() {
                self.line("                case.encode(sink)?;");
                self.line("                value.encode(sink)");
            } else {
                self.line("                case.encode(sink)");
            }
            self.line("            }");
        }
        self.line("        }\n    }\n");
    }

    fn decode_union(
        &mut self,
        decider: &Decider,
        arms: &[Variant],
        default: Option<&(String, Option<Field>)>,
    ) {
        self.line(DECODE);
        self.line(format!("        match {}::decode(decoder)? {{", decider.ty));
        for arm in arms {
            let value = match arm.field {
                Some(_) => format!("Ok(Self::{}(Xdr::decode(decoder)?))", arm.name),
                None => format!("Ok(Self::{})", arm.name),
            };
            let line = write::arm(12, &decider.pattern(arm.value), &value);
            self.line(line);
        }
        match default {
            Some((own, Some(_))) => {
                let value = format!("Ok(Self::{own}(other, Xdr::decode(decoder)?))");
                self.line(write::arm(12, "other", &value));
            }
            Some((own, None)) => {
                self.line(format!("            other => Ok(Self::{own}(other)),"));
            }
            None if decider.is_covered(arms) => {}
            None => {
                let number = decider.number("other");
                let value = format!("Err(xdr::DecodeError::BadDiscriminant({number}))");
                self.line(format!("            other => {value},"));
            }
        }
        self.line("        }\n    }\n}");
    }
}

impl Decider {
    /// What a case is called.
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
    fn is_covered(&self, arms: &[Variant]) -> bool {
        match &self.kind {
            DeciderKind::Bool => arms.len() == 2,
            DeciderKind::Enum(values) => arms.len() == values.len(),
            DeciderKind::Int | DeciderKind::Unsigned => false,
        }
    }
}
