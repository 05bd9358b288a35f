//! Writes octets as JSON. It is written as it is read: no value is built.

use super::{JSON_OCTETS_MAX, Path, SAFE_INTEGER, Step, octets};
use crate::json::JsonError;
use crate::model::{Field, Kind, Model, Type, Union};
use std::fmt::{Display, Write as _};
use xk_xdr::{DecodeError, Decoder, Xdr};

type Result<T = ()> = std::result::Result<T, JsonError>;

/// Octets, the place in them, and the JSON of what lies before it.
pub(super) struct Reader<'a, 'o> {
    pub(super) model: &'a Model,
    pub(super) from: Decoder<'o>,
    pub(super) path: Path<'a>,
    pub(super) to: String,
}

impl<'a> Reader<'a, '_> {
    fn told<T>(&self, read: std::result::Result<T, DecodeError>) -> Result<T> {
        read.map_err(|error| self.path.error(error.to_string()))
    }

    fn read<T: Xdr>(&mut self) -> Result<T> {
        let read = T::decode(&mut self.from);
        self.told(read)
    }

    fn write(&mut self, value: impl Display) {
        // Writing to a string does not fail.
        let _ = write!(self.to, "{value}");
    }

    /// A string of JSON.
    fn quoted(&mut self, text: &str) {
        self.write(serde_json::Value::from(text));
    }

    /// Runs `inside` one step further on.
    fn enter(&mut self, step: Step<'a>, inside: impl FnOnce(&mut Self) -> Result) -> Result {
        self.path.push(step)?;
        inside(self)?;
        self.path.pop();
        Ok(())
    }

    pub(super) fn value(&mut self, ty: &'a Type) -> Result {
        if self.to.len() > JSON_OCTETS_MAX {
            let what = format!("more than {JSON_OCTETS_MAX} octets of JSON");
            return Err(self.path.error(what));
        }
        let ty = self.model.resolve(ty);
        match ty {
            Type::Void => self.to.push_str("null"),
            Type::Int => {
                let number: i32 = self.read()?;
                self.write(number);
            }
            Type::Unsigned => {
                let number: u32 = self.read()?;
                self.write(number);
            }
            Type::Hyper => {
                let number: i64 = self.read()?;
                self.whole(number, number.unsigned_abs());
            }
            Type::UnsignedHyper => {
                let number: u64 = self.read()?;
                self.whole(number, number);
            }
            Type::Float => {
                let number: f32 = self.read()?;
                // With the digits that it needs as one of 32 bits.
                match number.is_finite() {
                    true => self.write(format_args!("{number:?}")),
                    false => self.floating(number.into()),
                }
            }
            Type::Double => {
                let number = self.read()?;
                self.floating(number);
            }
            Type::Bool => {
                let value: bool = self.read()?;
                self.write(value);
            }
            Type::Quadruple => self.opaque(16)?,
            Type::FixedOpaque(len) => self.opaque(*len as usize)?,
            Type::Opaque(max) => {
                let len = self.length(*max, 1)?;
                let octets = self.taken(len)?;
                match octets::as_text(&octets) {
                    Some(text) => {
                        self.to.push_str(r#"{"text": "#);
                        self.quoted(text);
                        self.to.push('}');
                    }
                    None => self.hexadecimal(&octets),
                }
            }
            Type::Text(max) => self.text(*max)?,
            Type::Fixed(element, count) => {
                // Before anything is written for what is not there.
                if self.model.octets_min(ty) > self.from.left() as u64 {
                    return self.told(Err(DecodeError::Truncated));
                }
                self.elements(element, *count as usize)?;
            }
            Type::Array(element, max) => {
                let each = usize::try_from(self.model.octets_min(element)).unwrap_or(usize::MAX);
                let len = self.length(*max, each)?;
                self.elements(element, len)?;
            }
            Type::List(at) => {
                self.to.push('[');
                let mut place = 0;
                while self.read()? {
                    self.comma(place);
                    self.enter(Step::Element(place), |reader| reader.named(*at))?;
                    place += 1;
                }
                self.to.push(']');
            }
            Type::Optional(inner) => self.optional(inner)?,
            Type::Named(at) => self.named(*at)?,
        }
        Ok(())
    }

    fn comma(&mut self, place: usize) {
        if place > 0 {
            self.to.push_str(", ");
        }
    }

    fn length(&mut self, max: u32, each: usize) -> Result<usize> {
        let len = self.from.take_len(max, each);
        self.told(len)
    }

    /// Beyond what every reader of JSON holds exactly, in digits.
    fn whole(&mut self, number: impl Display, size: u64) {
        match size <= SAFE_INTEGER {
            true => self.write(number),
            false => self.write(format_args!("\"{number}\"")),
        }
    }

    fn floating(&mut self, number: f64) {
        match serde_json::Number::from_f64(number) {
            Some(number) => self.write(number),
            None if number.is_nan() => self.to.push_str(r#""NaN""#),
            None if number > 0.0 => self.to.push_str(r#""Infinity""#),
            None => self.to.push_str(r#""-Infinity""#),
        }
    }

    fn taken(&mut self, len: usize) -> Result<Vec<u8>> {
        let mut octets = Vec::new();
        let read = self.from.append_padded(len, &mut octets);
        self.told(read)?;
        Ok(octets)
    }

    fn opaque(&mut self, len: usize) -> Result {
        let octets = self.taken(len)?;
        self.hexadecimal(&octets);
        Ok(())
    }

    fn hexadecimal(&mut self, octets: &[u8]) {
        self.to.push('"');
        octets::write(octets, &mut self.to);
        self.to.push('"');
    }

    fn text(&mut self, max: u32) -> Result {
        let len = self.length(max, 1)?;
        let octets = self.taken(len)?;
        match std::str::from_utf8(&octets) {
            Ok(text) => self.quoted(text),
            Err(_) => {
                self.to.push_str(r#"{"hex": ""#);
                octets::write(&octets, &mut self.to);
                self.to.push_str("\"}");
            }
        }
        Ok(())
    }

    fn elements(&mut self, element: &'a Type, len: usize) -> Result {
        self.to.push('[');
        for at in 0..len {
            self.comma(at);
            self.enter(Step::Element(at), |reader| reader.value(element))?;
        }
        self.to.push(']');
        Ok(())
    }

    fn optional(&mut self, inner: &'a Type) -> Result {
        if !self.read::<bool>()? {
            self.to.push_str("null");
            return Ok(());
        }
        let [open, close] = if self.model.may_be_null(inner) { ["[", "]"] } else { [""; 2] };
        self.to.push_str(open);
        self.enter(Step::Field("*"), |reader| reader.value(inner))?;
        self.to.push_str(close);
        Ok(())
    }

    fn named(&mut self, at: usize) -> Result {
        match self.model.types.get(at).map(|def| &def.kind) {
            Some(Kind::Enum(values)) => {
                let number: i32 = self.read()?;
                match values.iter().find(|(_, value)| *value == number) {
                    Some((name, _)) => self.quoted(name),
                    None => return self.told(Err(DecodeError::BadEnum(number))),
                }
            }
            Some(Kind::Struct { fields, .. }) => {
                self.to.push('{');
                for (place, field) in fields.iter().enumerate() {
                    self.comma(place);
                    self.component(field)?;
                }
                self.to.push('}');
            }
            Some(Kind::Union(union)) => self.chosen(union)?,
            Some(Kind::Alias(_)) | None => return Err(self.path.error("the type has no meaning")),
        }
        Ok(())
    }

    fn component(&mut self, field: &'a Field) -> Result {
        self.quoted(&field.name);
        self.to.push_str(": ");
        self.enter(Step::Field(&field.name), |reader| reader.value(&field.ty))
    }

    fn chosen(&mut self, union: &'a Union) -> Result {
        let mut ahead = self.from.clone();
        let number = match self.model.resolve(&union.discriminant.ty) {
            Type::Unsigned => u32::decode(&mut ahead).map(i64::from),
            _ => i32::decode(&mut ahead).map(i64::from),
        };
        let number = self.told(number)?;
        self.to.push_str(r#"{"case": "#);
        self.enter(Step::Field("case"), |reader| reader.value(&union.discriminant.ty))?;
        let Some(field) = union.field(number) else {
            return Err(self.path.error(format!("the union has no arm for {number}")));
        };
        if let Some(field) = field {
            self.to.push_str(", ");
            self.component(field)?;
        }
        self.to.push('}');
        Ok(())
    }
}
