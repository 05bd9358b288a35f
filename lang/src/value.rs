//! Values, and what they mean where they are asked: numbers in a range, times, rates, parts, sizes,
//! addresses.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use crate::diagnostics::Diagnostics;
use crate::span::Spanned;
use crate::units::{parse_duration, parse_fraction, parse_octets, parse_rate};

/// A value as it is written.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum Value {
    /// A string, in quotes or bare.
    Text(String),
    /// A whole number.
    Integer(i128),
    /// A number with a point or an exponent.
    Float(f64),
    /// `#true` or `#false`.
    Bool(bool),
    /// `#null`.
    Null,
    /// Unreadable, and already reported. All accessors answer `None` and stay silent.
    #[default]
    Bad,
}

impl Value {
    /// Description for a message: "the string `x`".
    pub fn described(&self) -> String {
        match self {
            Value::Text(text) => {
                let short: String = text.chars().take(60).collect();
                format!("the string `{short}`")
            }
            Value::Integer(number) => format!("the number {number}"),
            Value::Float(number) => format!("the number {number}"),
            Value::Bool(value) => format!("`#{value}`"),
            Value::Null => "`#null`".into(),
            Value::Bad => "unreadable".into(),
        }
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Value::Text(text.into())
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Value::Bool(value)
    }
}

impl From<i128> for Value {
    fn from(number: i128) -> Self {
        Value::Integer(number)
    }
}

/// As it would stand in a file: bare where that is possible, in quotes otherwise.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = match self {
            Value::Text(text) => kdl::KdlValue::String(text.clone()),
            Value::Integer(number) => kdl::KdlValue::Integer(*number),
            Value::Float(number) => kdl::KdlValue::Float(*number),
            Value::Bool(value) => kdl::KdlValue::Bool(*value),
            Value::Null | Value::Bad => kdl::KdlValue::Null,
        };
        value.fmt(f)
    }
}

/// Typed access. Each answers `None` after adding an error at the value's place, except that a
/// value which is [`Value::Bad`] was reported before.
impl Spanned<Value> {
    fn wrong<T>(&self, diagnostics: &mut Diagnostics, expected: &str) -> Option<T> {
        if self.value != Value::Bad {
            let what = format!("{} does not fit here", self.described());
            diagnostics.error(self.span, what).expected(expected);
        }
        None
    }

    /// A string.
    pub fn text(&self, diagnostics: &mut Diagnostics) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(text),
            _ => self.wrong(diagnostics, "a string"),
        }
    }

    /// `#true` or `#false`.
    pub fn boolean(&self, diagnostics: &mut Diagnostics) -> Option<bool> {
        match self.value {
            Value::Bool(value) => Some(value),
            _ => self.wrong(diagnostics, "`#true` or `#false`"),
        }
    }

    /// A whole number in `range`, of any integer type. A string that is a whole number counts, too,
    /// so that placeholders can make numbers.
    pub fn integer<T>(&self, diagnostics: &mut Diagnostics, range: RangeInclusive<T>) -> Option<T>
    where
        T: TryFrom<i128> + PartialOrd + fmt::Display,
    {
        let number = match &self.value {
            Value::Integer(number) => Some(*number),
            Value::Text(text) => text.parse().ok(),
            _ => None,
        };
        let fitting = number
            .and_then(|number| T::try_from(number).ok())
            .filter(|number| range.contains(number));
        if fitting.is_none() {
            let expected = format!("a whole number from {} to {}", range.start(), range.end());
            return self.wrong(diagnostics, &expected);
        }
        fitting
    }

    /// A time in `range`: `"100ns"`, `"2us"`, `"1.5ms"`, `"30s"`, `"5min"`, `"1h"`. Exact to the
    /// nanosecond.
    pub fn duration(
        &self,
        diagnostics: &mut Diagnostics,
        range: RangeInclusive<Duration>,
    ) -> Option<Duration> {
        let expected = format!(
            "a time from {:?} to {:?}, like \"100ns\", \"2us\", \"1.5ms\", \"30s\", \"5min\" or \"1h\"",
            range.start(),
            range.end()
        );
        self.by(diagnostics, &expected, |text| {
            parse_duration(text).filter(|time| range.contains(time))
        })
    }

    /// A rate in bits per second: `"9600bit"`, `"64kbit"`, `"100Mbit"`, `"1Gbit"`.
    pub fn rate(&self, diagnostics: &mut Diagnostics) -> Option<u64> {
        let expected =
            "a rate in bits per second like \"9600bit\", \"64kbit\", \"100Mbit\" or \"1Gbit\"";
        self.by(diagnostics, expected, parse_rate)
    }

    /// A part of the whole, 0 to 1: `"5%"`, `0.05`.
    pub fn fraction(&self, diagnostics: &mut Diagnostics) -> Option<f64> {
        let part = match &self.value {
            Value::Text(text) => parse_fraction(text),
            Value::Integer(0) => Some(0.0),
            Value::Integer(1) => Some(1.0),
            Value::Float(part) if (0.0..=1.0).contains(part) => Some(*part),
            _ => None,
        };
        match part {
            Some(part) => Some(part),
            None => self.wrong(diagnostics, "a part like \"5%\" or 0.05, from \"0%\" to \"100%\""),
        }
    }

    /// A size in octets: `1500`, `"1500"`, `"64KiB"`, `"2MiB"`, `"1kB"`.
    pub fn octets(&self, diagnostics: &mut Diagnostics) -> Option<u64> {
        let size = match &self.value {
            Value::Integer(number) => u64::try_from(*number).ok(),
            Value::Text(text) => parse_octets(text),
            _ => None,
        };
        match size {
            Some(size) => Some(size),
            None => self
                .wrong(diagnostics, "a size in octets like 1500, \"64KiB\", \"2MiB\" or \"1kB\""),
        }
    }

    /// A string that `T` can be made of; `expected` says which strings those are.
    pub fn parse<T: FromStr>(&self, diagnostics: &mut Diagnostics, expected: &str) -> Option<T> {
        self.by(diagnostics, expected, |text| text.parse().ok())
    }

    /// A string that `read` can make something of; `expected` says which strings those are.
    pub fn by<T>(
        &self,
        diagnostics: &mut Diagnostics,
        expected: &str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Option<T> {
        if let Value::Text(text) = &self.value
            && let Some(value) = read(text)
        {
            return Some(value);
        }
        self.wrong(diagnostics, expected)
    }

    /// One of a few words.
    pub fn choice<T: Copy>(
        &self,
        diagnostics: &mut Diagnostics,
        choices: &[(&str, T)],
    ) -> Option<T> {
        let Value::Text(text) = &self.value else {
            let words: Vec<String> = choices.iter().map(|(word, _)| format!("`{word}`")).collect();
            return self.wrong(diagnostics, &words.join(", "));
        };
        if let Some((_, value)) = choices.iter().find(|(word, _)| word == text) {
            return Some(*value);
        }
        let words: Vec<String> = choices.iter().map(|(word, _)| format!("`{word}`")).collect();
        diagnostics
            .error(self.span, format!("{} does not fit here", self.described()))
            .expected(words.join(", "))
            .suggest(text, choices.iter().map(|(word, _)| *word));
        None
    }
}
