//! JSON to octets and back, by what a file says: see the crate's documentation for the forms.

mod decode;
mod encode;
mod octets;

use crate::model::{Model, Procedure, Type};
use decode::Reader;
use encode::Writer;
use serde_json::Value;
use xk_xdr::Decoder;

/// The greatest whole number up to which every one is a number of JavaScript, too.
const SAFE_INTEGER: u64 = (1 << 53) - 1;
/// Largest depth of values within values, each a few frames of the stack.
const DEPTH_MAX: usize = 128;
/// Octets of JSON for a result at most: a few octets may stand for many characters.
const JSON_OCTETS_MAX: usize = 256 << 20;

/// A value that does not fit, and its place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {what}{}", .expected.as_ref().map(|e| format!("; expected {e}")).unwrap_or_default())]
pub struct JsonError {
    /// The way to it: `argument 2.name[3]`.
    pub path: String,
    /// The mistake.
    pub what: String,
    /// The right form.
    pub expected: Option<String>,
}

/// One step on the way to a value.
#[derive(Clone, Copy)]
enum Step<'a> {
    Root(&'a str),
    Field(&'a str),
    Element(usize),
}

/// Path to the value in hand.
struct Path<'a>(Vec<Step<'a>>);

impl<'a> Path<'a> {
    fn new(root: &'a str) -> Self {
        Self(vec![Step::Root(root)])
    }

    fn error(&self, what: impl Into<String>) -> JsonError {
        let mut path = String::new();
        for step in &self.0 {
            match step {
                Step::Root(root) => path.push_str(root),
                Step::Field(name) => path = format!("{path}.{name}"),
                Step::Element(at) => path = format!("{path}[{at}]"),
            }
        }
        JsonError { path, what: what.into(), expected: None }
    }

    fn wrong(&self, what: impl Into<String>, expected: impl Into<String>) -> JsonError {
        JsonError { expected: Some(expected.into()), ..self.error(what) }
    }

    /// Goes one step further, unless it is too deep.
    fn push(&mut self, step: Step<'a>) -> Result<(), JsonError> {
        if self.0.len() >= DEPTH_MAX {
            return Err(self.error("values within values are too deep"));
        }
        self.0.push(step);
        Ok(())
    }

    fn pop(&mut self) {
        self.0.pop();
    }
}

impl Model {
    /// The octets of a value of this type; `root` is what mistakes call it.
    ///
    /// # Errors
    /// What does not fit the type.
    pub fn encode(&self, ty: &Type, value: &Value, root: &str) -> Result<Vec<u8>, JsonError> {
        let mut writer = Writer { model: self, path: Path::new(root), to: Vec::new() };
        writer.value(ty, value)?;
        Ok(writer.to)
    }

    /// The octets of a procedure's arguments: nothing or `null` for none, the value itself for a
    /// single one, an array for several.
    ///
    /// # Errors
    /// What does not fit their types.
    pub fn encode_arguments(
        &self,
        procedure: &Procedure,
        arguments: Option<&Value>,
    ) -> Result<Vec<u8>, JsonError> {
        let count = procedure.arguments.len();
        let expected = || match count {
            0 => "none".into(),
            1 => format!("one of the type `{}`", self.describe(&procedure.arguments[0])),
            _ => format!("an array of {count}"),
        };
        let wrong = |what: &str| Err(Path::new("arguments").wrong(what, expected()));
        match (procedure.arguments.as_slice(), arguments) {
            ([], None | Some(Value::Null)) => Ok(Vec::new()),
            ([], Some(Value::Array(empty))) if empty.is_empty() => Ok(Vec::new()),
            ([], Some(_)) => wrong("the procedure takes no arguments"),
            (_, None) => wrong("the arguments are missing"),
            ([only], Some(value)) => self.encode(only, value, "argument"),
            (types, Some(Value::Array(values))) if values.len() == types.len() => {
                let mut octets = Vec::new();
                for (at, (ty, value)) in types.iter().zip(values).enumerate() {
                    let root = format!("argument {}", at + 1);
                    octets.extend(self.encode(ty, value, &root)?);
                }
                Ok(octets)
            }
            _ => wrong("they are not as many as the procedure takes"),
        }
    }

    /// The JSON of a value of this type, which takes all of the octets.
    ///
    /// # Errors
    /// What is wrong with the octets.
    pub fn decode(&self, ty: &Type, octets: &[u8], root: &str) -> Result<String, JsonError> {
        let (from, path) = (Decoder::new(octets), Path::new(root));
        let mut reader = Reader { model: self, from, path, to: String::new() };
        reader.value(ty)?;
        match reader.from.left() {
            0 => Ok(reader.to),
            left => Err(reader.path.error(format!("{left} octets follow the value"))),
        }
    }

    /// The JSON of a procedure's result.
    ///
    /// # Errors
    /// What is wrong with the octets.
    pub fn decode_result(&self, procedure: &Procedure, octets: &[u8]) -> Result<String, JsonError> {
        self.decode(&procedure.result, octets, "result")
    }

    /// Whether what stands for a value of the type may be `null`, so that "none of these" needs
    /// another form.
    fn may_be_null(&self, ty: &Type) -> bool {
        matches!(self.resolve(ty), Type::Optional(_) | Type::Void)
    }
}
