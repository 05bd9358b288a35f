//! Parameters: what an entry allows, and what a graph gives.

use super::BuildError;
use crate::participant::{PEERS_MAX, Participant, Participants};
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::ops::RangeInclusive;
use core::str::FromStr;
use core::time::Duration;

/// The longest time that a graph may say, a hundred years: sums of a few are no overflow.
pub const DURATION_MAX: Duration = Duration::from_secs(100 * 365 * 86_400);

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
    /// A length of time, at most [`DURATION_MAX`]: `"1ms"`.
    Duration {
        /// The least value.
        min: Duration,
    },
    /// A rate in bits per second: `"100Mbit"`.
    Rate,
    /// A share from 0 to 1: `"5%"`.
    Fraction,
    /// A number of octets: `1500` or `"64KiB"`.
    Octets,
    /// `#true` or `#false`.
    Bool,
    /// Text of the protocol's own form; the string says which, for messages: "an IPv4 address and
    /// prefix, such as 10.0.0.1/24".
    Text(&'static str),
    /// One of these words.
    Word(&'static [&'static str]),
    /// A participant, such as this one.
    Participant(&'static str),
    /// The peers of a conversation with the protocol below: a participant such as this one, or
    /// several with commas between. Several fit where [`Entry::takes_peers`] of that one says so.
    ///
    /// [`Entry::takes_peers`]: super::Entry::takes_peers
    Peers(&'static str),
}

impl ParamKind {
    /// A whole number within `bounds`.
    pub const fn integer(bounds: RangeInclusive<i64>) -> Self {
        Self::Integer { min: *bounds.start(), max: *bounds.end() }
    }
}

/// One parameter that an entry allows. [`int`], [`flag`] and the functions beside them make it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ParamSpec {
    /// Name of the parameter.
    pub name: &'static str,
    /// Type of the value.
    pub kind: ParamKind,
    /// Value if the graph gives none; `None` if there is no default.
    pub default: Option<Value<&'static str>>,
    /// True if the graph must say.
    pub required: bool,
    /// Parameters that it stands for: none of them is given or has its default beside it.
    pub instead_of: &'static [&'static str],
    /// Meaning, with the unit.
    pub doc: &'static str,
}

impl ParamSpec {
    const fn new(
        name: &'static str,
        kind: ParamKind,
        default: Option<Value<&'static str>>,
        doc: &'static str,
    ) -> Self {
        Self { name, kind, default, required: false, instead_of: &[], doc }
    }

    /// Stands for the parameters with these names.
    #[must_use]
    pub const fn instead_of(self, instead_of: &'static [&'static str]) -> Self {
        Self { instead_of, ..self }
    }

    /// A length of time that may be 0, of which the text says what it means.
    #[must_use]
    pub const fn or_zero(self) -> Self {
        Self { kind: ParamKind::Duration { min: Duration::ZERO }, ..self }
    }
}

/// A whole number within `bounds`; a default outside of them does not compile.
pub const fn int(
    name: &'static str,
    bounds: RangeInclusive<i64>,
    default: i64,
    doc: &'static str,
) -> ParamSpec {
    assert!(*bounds.start() <= default && default <= *bounds.end());
    let kind = ParamKind::integer(bounds);
    ParamSpec::new(name, kind, Some(Value::Integer(default)), doc)
}

/// `#true` or `#false`.
pub const fn flag(name: &'static str, default: bool, doc: &'static str) -> ParamSpec {
    ParamSpec::new(name, ParamKind::Bool, Some(Value::Bool(default)), doc)
}

/// A length of time. One of 0 fits only if that is the default, or by [`ParamSpec::or_zero`].
pub const fn duration(name: &'static str, default: Duration, doc: &'static str) -> ParamSpec {
    let min = if default.is_zero() { Duration::ZERO } else { Duration::from_nanos(1) };
    ParamSpec::new(name, ParamKind::Duration { min }, Some(Value::Duration(default)), doc)
}

/// A number of octets.
pub const fn octets(name: &'static str, default: u64, doc: &'static str) -> ParamSpec {
    ParamSpec::new(name, ParamKind::Octets, Some(Value::Octets(default)), doc)
}

/// A share from 0 to 1.
pub const fn fraction(name: &'static str, default: f64, doc: &'static str) -> ParamSpec {
    let default = Some(Value::Fraction(default));
    ParamSpec::new(name, ParamKind::Fraction, default, doc)
}

/// Text of the `form` that [`ParamKind::Text`] has.
pub const fn text(
    name: &'static str,
    form: &'static str,
    default: &'static str,
    doc: &'static str,
) -> ParamSpec {
    let default = Some(Value::Text(default));
    ParamSpec::new(name, ParamKind::Text(form), default, doc)
}

/// One of `words`.
pub const fn word(
    name: &'static str,
    words: &'static [&'static str],
    default: &'static str,
    doc: &'static str,
) -> ParamSpec {
    let default = Some(Value::Text(default));
    ParamSpec::new(name, ParamKind::Word(words), default, doc)
}

/// A parameter that may be left out, and has no default.
pub const fn optional(name: &'static str, kind: ParamKind, doc: &'static str) -> ParamSpec {
    ParamSpec::new(name, kind, None, doc)
}

/// A parameter that the graph must give.
pub const fn required(name: &'static str, kind: ParamKind, doc: &'static str) -> ParamSpec {
    ParamSpec { required: true, ..ParamSpec::new(name, kind, None, doc) }
}

/// A structured parameter that an entry allows: `route "10.0.0.0/8" via="10.0.0.1"`. [`block`]
/// makes it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct BlockSpec {
    /// Name of the node.
    pub name: &'static str,
    /// Positional arguments, in order.
    pub arguments: &'static [ParamSpec],
    /// Named properties.
    pub properties: &'static [ParamSpec],
    /// Largest number of them in one node.
    pub max: usize,
    /// Least number of them in one node.
    pub min: usize,
    /// Meaning.
    pub doc: &'static str,
}

/// A structured parameter, of which `count` may stand in one node.
pub const fn block(
    name: &'static str,
    count: RangeInclusive<usize>,
    arguments: &'static [ParamSpec],
    properties: &'static [ParamSpec],
    doc: &'static str,
) -> BlockSpec {
    BlockSpec { name, arguments, properties, max: *count.end(), min: *count.start(), doc }
}

/// A parameter's value: as a graph gives it, or, of static text, as an entry has it by default.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<T = String> {
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
    Text(T),
}

impl From<Value<&'static str>> for Value {
    fn from(value: Value<&'static str>) -> Self {
        match value {
            Value::Integer(n) => Self::Integer(n),
            Value::Duration(d) => Self::Duration(d),
            Value::Rate(r) => Self::Rate(r),
            Value::Fraction(f) => Self::Fraction(f),
            Value::Octets(n) => Self::Octets(n),
            Value::Bool(b) => Self::Bool(b),
            Value::Text(t) => Self::Text(t.into()),
        }
    }
}

/// The units of time of graphs, in nanoseconds.
const TIMES: &[(u128, &str)] =
    &[(3_600_000_000_000, "h"), (1_000_000_000, "s"), (1_000_000, "ms"), (1000, "us"), (1, "ns")];
/// The units of sizes of graphs, in octets.
const SIZES: &[(u128, &str)] = &[(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "")];
/// The units of rates of graphs, in bits per second.
const RATES: &[(u128, &str)] =
    &[(1_000_000_000, "Gbit"), (1_000_000, "Mbit"), (1000, "kbit"), (1, "bit")];

/// Writes `value` in the largest unit of which it is a multiple, `zero` if it is 0.
fn in_units(
    f: &mut fmt::Formatter<'_>,
    value: u128,
    units: &[(u128, &str)],
    zero: &str,
) -> fmt::Result {
    match units.iter().find(|(unit, _)| value.is_multiple_of(*unit)) {
        Some((unit, name)) if value > 0 => write!(f, "{}{name}", value / unit),
        _ => f.write_str(zero),
    }
}

/// As a graph has it, without the quotation marks of text.
impl<T: fmt::Display> fmt::Display for Value<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(n) => n.fmt(f),
            Self::Duration(d) => in_units(f, d.as_nanos(), TIMES, "0s"),
            Self::Rate(r) => in_units(f, (*r).into(), RATES, "0bit"),
            Self::Fraction(part) => write!(f, "{}%", part * 100.0),
            Self::Octets(n) => in_units(f, (*n).into(), SIZES, "0"),
            Self::Bool(b) => write!(f, "#{b}"),
            Self::Text(t) => t.fmt(f),
        }
    }
}

/// The parameters of one node or block, checked against the entry.
#[derive(Clone, Debug, Default)]
pub struct Params {
    pub(super) values: Vec<(&'static str, Value)>,
    blocks: Vec<(&'static str, Params)>,
}

impl<const N: usize> From<[(&'static str, Value); N]> for Params {
    fn from(values: [(&'static str, Value); N]) -> Self {
        Self { values: values.into(), blocks: Vec::new() }
    }
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
        self.blocks.iter().filter(move |(n, _)| *n == name).map(|(_, b)| b)
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

    /// The participant that a parameter of kind [`ParamKind::Participant`] names; `None` if it is
    /// not given.
    ///
    /// # Errors
    /// [`BuildError::Param`] if it is none.
    pub fn participant(&self, name: &'static str) -> Result<Option<Participant>, BuildError> {
        self.parse(name, "a participant")
    }

    /// The peers that a parameter of kind [`ParamKind::Peers`] names; none if it is not given.
    ///
    /// # Errors
    /// [`BuildError::Param`] if they are no participants, or more than [`PEERS_MAX`].
    pub fn peers(&self, name: &'static str) -> Result<Vec<Participant>, BuildError> {
        let peers: Option<Participants> = self.parse(name, "participants")?;
        let peers = peers.unwrap_or_default();
        match peers.len() <= PEERS_MAX {
            true => Ok(peers.iter().cloned().collect()),
            false => Err(BuildError::param(name, alloc::format!("at most {PEERS_MAX} peers"))),
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
        text.parse().map(Some).map_err(|_| BuildError::param(name, expected))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn values_are_written_in_the_largest_unit_that_is_exact() {
        let written = |value: Value<&str>| value.to_string();
        let time = |n| written(Value::Duration(Duration::from_nanos(n)));
        assert_eq!([0, 1_500_000, 60_000_000_000].map(time), ["0s", "1500us", "60s"]);
        assert_eq!(time(7_200_000_000_000), "2h");
        let size = |n| written(Value::Octets(n));
        assert_eq!([0, 1500, 65_536, 4 << 20].map(size), ["0", "1500", "64KiB", "4MiB"]);
        assert_eq!(written(Value::Rate(100_000_000)), "100Mbit");
        assert_eq!(written(Value::Fraction(0.05)), "5%");
        assert_eq!(written(Value::Bool(true)), "#true");
        assert_eq!(written(Value::Integer(-3)), "-3");
    }
}
