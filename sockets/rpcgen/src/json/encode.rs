//! Makes octets from JSON.

use super::{Path, Step, octets};
use crate::json::JsonError;
use crate::model::{Field, Kind, Model, Type, Union};
use serde_json::{Map, Value};
use xk_xdr::{EncodeError, Sink as _, Xdr};

type Result<T = ()> = std::result::Result<T, JsonError>;

/// Name of a value for people.
fn describe(value: &Value) -> String {
    match value {
        Value::Null => "null".into(),
        Value::Bool(value) => value.to_string(),
        Value::Number(number) => format!("the number {number}"),
        Value::String(text) => {
            let short: String = text.chars().take(40).collect();
            format!("the string {short:?}")
        }
        Value::Array(items) => format!("an array of {}", items.len()),
        Value::Object(_) => "an object".into(),
    }
}

/// The octets of what has been taken, and the place in the value.
pub(super) struct Writer<'a> {
    pub(super) model: &'a Model,
    pub(super) path: Path<'a>,
    pub(super) to: Vec<u8>,
}

impl<'a> Writer<'a> {
    /// A value that there is a representation for, written. A vector takes all.
    fn told(&self, written: std::result::Result<(), EncodeError>) -> Result {
        written.map_err(|error| self.path.error(error.to_string()))
    }

    fn put(&mut self, value: &impl Xdr) -> Result {
        let written = value.encode(&mut self.to);
        self.told(written)
    }

    fn put_len(&mut self, len: usize, max: u32, what: &str) -> Result {
        if len > max as usize {
            return Err(self.path.wrong(format!("{len} {what}"), format!("at most {max}")));
        }
        let written = self.to.put_len(len, max);
        self.told(written)
    }

    fn put_padded(&mut self, octets: &[u8]) -> Result {
        let written = self.to.put_padded(octets);
        self.told(written)
    }

    fn wrong<T>(&self, value: &Value, expected: impl Into<String>) -> Result<T> {
        Err(self.path.wrong(describe(value), expected))
    }

    /// Runs `inside` one step further on.
    fn enter(&mut self, step: Step<'a>, inside: impl FnOnce(&mut Self) -> Result) -> Result {
        self.path.push(step)?;
        inside(self)?;
        self.path.pop();
        Ok(())
    }

    pub(super) fn value(&mut self, ty: &'a Type, value: &'a Value) -> Result {
        match self.model.resolve(ty) {
            Type::Void if value.is_null() => Ok(()),
            Type::Void => self.wrong(value, "null"),
            Type::Int => self.whole::<i32>(value),
            Type::Unsigned => self.whole::<u32>(value),
            Type::Hyper => self.whole::<i64>(value),
            Type::UnsignedHyper => self.whole::<u64>(value),
            Type::Float => {
                let number = self.single(value)?;
                self.put(&number)
            }
            Type::Double => {
                let number = self.floating(value)?;
                self.put(&number)
            }
            Type::Bool => match value {
                Value::Bool(value) => self.put(value),
                other => self.wrong(other, "true or false"),
            },
            Type::Quadruple => self.fixed_octets(value, 16),
            Type::FixedOpaque(len) => self.fixed_octets(value, *len as usize),
            Type::Opaque(max) => {
                let octets = self.opaque(value)?;
                self.put_len(octets.len(), *max, "octets")?;
                self.put_padded(&octets)
            }
            Type::Text(max) => {
                let octets = match value {
                    Value::String(text) => text.as_bytes().to_vec(),
                    Value::Object(_) => self.opaque(value)?,
                    other => return self.wrong(other, "a string"),
                };
                self.put_len(octets.len(), *max, "octets")?;
                self.put_padded(&octets)
            }
            Type::Fixed(element, count) => {
                let items = self.array(value)?;
                if items.len() != *count as usize {
                    return self.wrong(value, format!("an array of {count}"));
                }
                self.elements(element, items)
            }
            Type::Array(element, max) => {
                let items = self.array(value)?;
                self.put_len(items.len(), *max, "elements")?;
                self.elements(element, items)
            }
            Type::List(at) => {
                for (place, item) in self.array(value)?.iter().enumerate() {
                    self.put(&true)?;
                    self.enter(Step::Element(place), |writer| writer.named(*at, item))?;
                }
                self.put(&false)
            }
            Type::Optional(inner) => self.optional(inner, value),
            Type::Named(at) => self.named(*at, value),
        }
    }

    fn optional(&mut self, inner: &'a Type, value: &'a Value) -> Result {
        self.put(&!value.is_null())?;
        if value.is_null() {
            return Ok(());
        }
        if !self.model.may_be_null(inner) {
            return self.enter(Step::Field("*"), |writer| writer.value(inner, value));
        }
        match self.array(value)? {
            [only] => self.enter(Step::Element(0), |writer| writer.value(inner, only)),
            _ => self.wrong(value, "null, or an array of one"),
        }
    }

    fn named(&mut self, at: usize, value: &'a Value) -> Result {
        match self.model.types.get(at).map(|def| &def.kind) {
            Some(Kind::Enum(values)) => {
                let number = self.enumerated(values, value)?;
                self.put(&number)
            }
            Some(Kind::Struct { fields, .. }) => {
                let object = self.object(value)?;
                let names: Vec<_> = fields.iter().map(|f| f.name.as_str()).collect();
                self.only_known(object, &names)?;
                fields.iter().try_for_each(|field| self.component(field, object))
            }
            Some(Kind::Union(union)) => self.chosen(union, value),
            Some(Kind::Alias(_)) | None => Err(self.path.error("the type has no meaning")),
        }
    }

    fn component(&mut self, field: &'a Field, object: &'a Map<String, Value>) -> Result {
        static NULL: Value = Value::Null;
        let given = match object.get(&field.name) {
            Some(given) => given,
            // What may be absent may be left out.
            None if self.model.may_be_null(&field.ty) => &NULL,
            None => {
                let expected = format!("it, of the type `{}`", self.model.describe(&field.ty));
                return Err(self.path.wrong(format!("`{}` is missing", field.name), expected));
            }
        };
        self.enter(Step::Field(&field.name), |writer| writer.value(&field.ty, given))
    }

    fn only_known(&self, object: &Map<String, Value>, known: &[&str]) -> Result {
        let Some(odd) = object.keys().find(|name| !known.contains(&name.as_str())) else {
            return Ok(());
        };
        let what = format!("there is no component `{odd}`");
        Err(match xk_lang::nearest(odd, known.iter().copied()) {
            Some(near) => self.path.wrong(what, format!("`{near}`")),
            None => self.path.wrong(what, known.join(", ")),
        })
    }

    fn chosen(&mut self, union: &'a Union, given: &'a Value) -> Result {
        let object = self.object(given)?;
        let Some(case) = object.get("case") else {
            let expected = r#"{"case": ..., ...}"#;
            return Err(self.path.wrong("`case` is missing, which decides the union", expected));
        };
        let start = self.to.len();
        self.enter(Step::Field("case"), |writer| writer.value(&union.discriminant.ty, case))?;
        let word = self.to.get(start..).and_then(|octets| octets.first_chunk().copied());
        let number = match self.model.resolve(&union.discriminant.ty) {
            Type::Unsigned => i64::from(u32::from_be_bytes(word.unwrap_or_default())),
            _ => i64::from(i32::from_be_bytes(word.unwrap_or_default())),
        };
        let Some(field) = union.field(number) else {
            let labels: Vec<_> = union.arms.iter().map(|arm| arm.label.as_str()).collect();
            let what = format!("the union has nothing for {}", describe(case));
            return Err(self.path.wrong(what, labels.join(", ")));
        };
        let known: Vec<_> =
            std::iter::once("case").chain(field.map(|field| field.name.as_str())).collect();
        self.only_known(object, &known)?;
        field.map_or(Ok(()), |field| self.component(field, object))
    }

    fn enumerated(&self, values: &[(String, i32)], value: &Value) -> Result<i32> {
        let found = match value {
            Value::String(typed) => values.iter().find(|(name, _)| name == typed),
            Value::Number(number) => {
                values.iter().find(|(_, value)| number.as_i64() == Some((*value).into()))
            }
            _ => None,
        };
        if let Some((_, number)) = found {
            return Ok(*number);
        }
        let names: Vec<_> = values.iter().map(|(name, _)| name.as_str()).collect();
        let near = value.as_str().and_then(|typed| xk_lang::nearest(typed, names.iter().copied()));
        match near {
            Some(near) => self.wrong(value, format!("perhaps `{near}`")),
            None => self.wrong(value, format!("one of {}", names.join(", "))),
        }
    }

    /// A whole number that fits, or its digits in a string.
    fn whole<T: TryFrom<i128> + Xdr>(&mut self, value: &Value) -> Result {
        let number = match value {
            Value::Number(number) => {
                number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from))
            }
            Value::String(digits) => digits.parse().ok(),
            _ => None,
        };
        if let Some(number) = number.and_then(|n| T::try_from(n).ok()) {
            return self.put(&number);
        }
        let bits = size_of::<T>() * 8;
        let sign = if T::try_from(-1).is_ok() { " with a sign" } else { ", not negative" };
        self.wrong(value, format!("a whole number of {bits} bits{sign}"))
    }

    fn floating(&self, value: &Value) -> Result<f64> {
        let number = match value {
            Value::Number(number) => number.as_f64(),
            Value::String(text) => match text.as_str() {
                "NaN" => Some(f64::NAN),
                "Infinity" => Some(f64::INFINITY),
                "-Infinity" => Some(f64::NEG_INFINITY),
                _ => None,
            },
            _ => None,
        };
        let expected = r#"a number, "NaN", "Infinity" or "-Infinity""#;
        number.map_or_else(|| self.wrong(value, expected), Ok)
    }

    /// The nearest number of 32 bits, if there is one.
    fn single(&self, value: &Value) -> Result<f32> {
        let number = self.floating(value)?;
        #[allow(clippy::cast_possible_truncation, reason = "the nearest is what is meant")]
        let nearest = number as f32;
        if nearest.is_infinite() && number.is_finite() {
            return self.wrong(value, "a number of 32 bits, at most 3.4028235e38");
        }
        Ok(nearest)
    }

    fn opaque(&self, value: &Value) -> Result<Vec<u8>> {
        let expected = r#"a string of hexadecimal digits, {"base64": "..."} or {"text": "..."}"#;
        octets::read(value).map_or_else(|| self.wrong(value, expected), Ok)
    }

    fn fixed_octets(&mut self, value: &Value, len: usize) -> Result {
        let octets = self.opaque(value)?;
        if octets.len() != len {
            let what = format!("{} octets", octets.len());
            let expected = format!("{len} octets, two hexadecimal digits each");
            return Err(self.path.wrong(what, expected));
        }
        self.put_padded(&octets)
    }

    fn array(&self, value: &'a Value) -> Result<&'a [Value]> {
        let items = value.as_array().map(Vec::as_slice);
        items.map_or_else(|| self.wrong(value, "an array"), Ok)
    }

    fn object(&self, value: &'a Value) -> Result<&'a Map<String, Value>> {
        value.as_object().map_or_else(|| self.wrong(value, "an object"), Ok)
    }

    fn elements(&mut self, element: &'a Type, items: &'a [Value]) -> Result {
        for (at, item) in items.iter().enumerate() {
            self.enter(Step::Element(at), |writer| writer.value(element, item))?;
        }
        Ok(())
    }
}
