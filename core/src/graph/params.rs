//! Parameters: what an entry allows, and what a graph gives.

use super::BuildError;
use alloc::string::String;
use alloc::vec::Vec;
use core::str::FromStr;
use core::time::Duration;

/// The type of a parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ParamKind {
    /// A whole number within these bounds.
    Integer {
        /// The least value.
        min: i64,
        /// The greatest value.
        max: i64,
    },
    /// A length of time: `"1ms"`.
    Duration,
    /// A rate in bits per second: `"100Mbit"`.
    Rate,
    /// A share from 0 to 1: `"5%"`.
    Fraction,
    /// A number of octets: `1500` or `"64KiB"`.
    Octets,
    /// `#true` or `#false`.
    Bool,
    /// Text of the protocol's own form; the string says which, for messages: "an IPv4 address and prefix, such as 10.0.0.1/24".
    Text(&'static str),
    /// One of these words.
    Word(&'static [&'static str]),
}

/// One parameter that an entry allows.
#[derive(Clone, Copy, Debug)]
pub struct ParamSpec {
    /// Its name.
    pub name: &'static str,
    /// Its type.
    pub kind: ParamKind,
    /// What it is if the graph does not say, in the graph's notation; `None` if there is no default.
    pub default: Option<&'static str>,
    /// True if the graph must say.
    pub required: bool,
    /// What it means, with its unit.
    pub doc: &'static str,
}

impl ParamSpec {
    /// A parameter with a default.
    pub const fn new(
        name: &'static str,
        kind: ParamKind,
        default: &'static str,
        doc: &'static str,
    ) -> Self {
        Self {
            name,
            kind,
            default: Some(default),
            required: false,
            doc,
        }
    }

    /// A parameter that may be left out.
    pub const fn optional(name: &'static str, kind: ParamKind, doc: &'static str) -> Self {
        Self {
            name,
            kind,
            default: None,
            required: false,
            doc,
        }
    }

    /// A parameter that the graph must give.
    pub const fn required(name: &'static str, kind: ParamKind, doc: &'static str) -> Self {
        Self {
            name,
            kind,
            default: None,
            required: true,
            doc,
        }
    }
}

/// A structured parameter that an entry allows: `route "10.0.0.0/8" via="10.0.0.1"`.
#[derive(Clone, Copy, Debug)]
pub struct BlockSpec {
    /// Its name.
    pub name: &'static str,
    /// Its positional arguments, in order.
    pub arguments: &'static [ParamSpec],
    /// Its named properties.
    pub properties: &'static [ParamSpec],
    /// How many may stand in one node.
    pub max: usize,
    /// How many must stand in one node.
    pub min: usize,
    /// What it means.
    pub doc: &'static str,
}

/// A parameter's value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A whole number.
    Integer(i64),
    /// A length of time.
    Duration(Duration),
    /// Bits per second.
    Rate(u64),
    /// A share from 0 to 1.
    Fraction(f64),
    /// Octets.
    Octets(u64),
    /// True or false.
    Bool(bool),
    /// Text.
    Text(String),
}

/// The parameters of one node or block, checked against the entry.
#[derive(Clone, Debug, Default)]
pub struct Params {
    values: Vec<(&'static str, Value)>,
    blocks: Vec<(&'static str, Params)>,
}

impl Params {
    /// Sets a value; the composer has checked name and type.
    pub fn set(&mut self, name: &'static str, value: Value) {
        self.values.retain(|(n, _)| *n != name);
        self.values.push((name, value));
    }

    /// Adds a block.
    pub fn add_block(&mut self, name: &'static str, block: Params) {
        self.blocks.push((name, block));
    }

    /// The blocks of this name, in the graph's order.
    pub fn blocks<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Params> {
        self.blocks
            .iter()
            .filter(move |(n, _)| *n == name)
            .map(|(_, b)| b)
    }

    /// The value, if given or defaulted.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.values.iter().find(|(n, _)| *n == name).map(|(_, v)| v)
    }

    /// A whole number, or `otherwise`.
    pub fn integer(&self, name: &str, otherwise: i64) -> i64 {
        match self.get(name) {
            Some(Value::Integer(n)) => *n,
            _ => otherwise,
        }
    }

    /// A whole number as another type of integer, or `otherwise` if it is missing or does not fit.
    pub fn number<T: TryFrom<i64>>(&self, name: &str, otherwise: T) -> T {
        match self.get(name) {
            Some(Value::Integer(n)) => T::try_from(*n).unwrap_or(otherwise),
            _ => otherwise,
        }
    }

    /// A length of time, or `otherwise`.
    pub fn duration(&self, name: &str, otherwise: Duration) -> Duration {
        match self.get(name) {
            Some(Value::Duration(d)) => *d,
            _ => otherwise,
        }
    }

    /// Bits per second.
    pub fn rate(&self, name: &str) -> Option<u64> {
        match self.get(name) {
            Some(Value::Rate(r)) => Some(*r),
            _ => None,
        }
    }

    /// A share from 0 to 1, or 0.
    pub fn fraction(&self, name: &str) -> f64 {
        match self.get(name) {
            Some(Value::Fraction(f)) => *f,
            _ => 0.0,
        }
    }

    /// Octets, or `otherwise`.
    pub fn octets(&self, name: &str, otherwise: usize) -> usize {
        match self.get(name) {
            Some(Value::Octets(n)) => usize::try_from(*n).unwrap_or(otherwise),
            _ => otherwise,
        }
    }

    /// True or false, or false.
    pub fn flag(&self, name: &str) -> bool {
        matches!(self.get(name), Some(Value::Bool(true)))
    }

    /// Text.
    pub fn text(&self, name: &str) -> Option<&str> {
        match self.get(name) {
            Some(Value::Text(t)) => Some(t),
            _ => None,
        }
    }

    /// Text parsed into a type; `None` if it is not given.
    ///
    /// # Errors
    /// [`BuildError::Param`] if it does not parse.
    pub fn parse<T: FromStr>(
        &self,
        name: &'static str,
        expected: &str,
    ) -> Result<Option<T>, BuildError> {
        let Some(text) = self.text(name) else {
            return Ok(None);
        };
        text.parse().map(Some).map_err(|_| BuildError::Param {
            name,
            index: 0,
            expected: expected.into(),
        })
    }
}
