//! Building a protocol, and the errors of building.

use crate::graph::{Entry, Params, Value};
use crate::kernel::Kernel;
use crate::object::{OpenError, Protocol, ProtocolRef};
use alloc::string::String;
use core::time::Duration;

impl Entry {
    /// Adds a protocol of this kind to a kernel, on these lower protocols, for programs that
    /// compose without a graph file; parameters that are not given have their defaults.
    ///
    /// # Errors
    /// [`BuildError`], as the composer reports it at the node.
    pub fn add(
        &'static self,
        cx: &Kernel,
        name: &str,
        lowers: &[ProtocolRef],
        params: &Params,
    ) -> Result<ProtocolRef, BuildError> {
        let mut params = params.clone();
        for (name, value) in self.defaults().values {
            if params.get(name).is_none() {
                params.set(name, value);
            }
        }
        (self.build)(&mut Build { cx, entry: self, name, lowers, params: &params })
    }
}

/// The surroundings that a protocol is built from.
pub struct Build<'a> {
    /// The kernel it will live in.
    pub cx: &'a Kernel,
    /// The kind and name it has in the graph.
    pub entry: &'static Entry,
    /// The protocol's name in the graph.
    pub name: &'a str,
    /// The protocols it stands on, in the graph's order.
    pub lowers: &'a [ProtocolRef],
    /// Parameters, of the types that the entry states, with defaults filled in.
    pub params: &'a Params,
}

impl Build<'_> {
    /// The lower protocol at this place.
    ///
    /// # Errors
    /// [`BuildError::Lower`] if the graph gives none there; the composer has checked the entry's
    /// count.
    pub fn lower(&self, at: usize) -> Result<ProtocolRef, BuildError> {
        self.lowers.get(at).cloned().ok_or(BuildError::Lower { at })
    }

    /// A whole number: what the graph gives, or else the entry's default.
    ///
    /// # Errors
    /// [`BuildError::Param`] if there is neither, or it does not fit the type.
    pub fn int<T: TryFrom<i64>>(&self, name: &'static str) -> Result<T, BuildError> {
        self.read(name, |value| match value {
            Value::Integer(n) => n.try_into().ok(),
            _ => None,
        })
    }

    /// A number of octets, as of [`int`](Self::int).
    ///
    /// # Errors
    /// As of [`int`](Self::int).
    pub fn octets<T: TryFrom<u64>>(&self, name: &'static str) -> Result<T, BuildError> {
        self.read(name, |value| match value {
            Value::Octets(n) => n.try_into().ok(),
            _ => None,
        })
    }

    /// A length of time, as of [`int`](Self::int).
    ///
    /// # Errors
    /// As of [`int`](Self::int).
    pub fn duration(&self, name: &'static str) -> Result<Duration, BuildError> {
        self.read(name, |value| match value {
            Value::Duration(time) => Some(time),
            _ => None,
        })
    }

    /// A share from 0 to 1, as of [`int`](Self::int).
    ///
    /// # Errors
    /// As of [`int`](Self::int).
    pub fn fraction(&self, name: &'static str) -> Result<f64, BuildError> {
        self.read(name, |value| match value {
            Value::Fraction(share) => Some(share),
            _ => None,
        })
    }

    /// True or false, as of [`int`](Self::int).
    ///
    /// # Errors
    /// As of [`int`](Self::int).
    pub fn flag(&self, name: &'static str) -> Result<bool, BuildError> {
        self.read(name, |value| match value {
            Value::Bool(is_set) => Some(is_set),
            _ => None,
        })
    }

    fn read<T>(
        &self,
        name: &'static str,
        of: impl FnOnce(Value) -> Option<T>,
    ) -> Result<T, BuildError> {
        self.value(name).and_then(of).ok_or_else(|| BuildError::param(name, "a value that fits"))
    }

    fn value(&self, name: &str) -> Option<Value> {
        self.params.get(name).cloned()
    }

    /// Adds the finished protocol to the kernel.
    ///
    /// # Errors
    /// None today; a `Result` so that builders end in one expression.
    pub fn add<P: Protocol + 'static>(&self, body: P) -> Result<ProtocolRef, BuildError> {
        Ok(self.cx.add_protocol(self.entry.kind, self.name, body))
    }
}

/// Why a protocol could not be built. The composer knows the place in the file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// A parameter's value does not do.
    #[error("parameter `{name}`: expected {expected}")]
    Param {
        /// The parameter's or block's name.
        name: &'static str,
        /// Index among several blocks of that name.
        index: usize,
        /// Description of what was expected.
        expected: String,
    },
    /// A lower protocol is missing at this place.
    #[error("lower protocol {} is missing", .at + 1)]
    Lower {
        /// The place, from 0.
        at: usize,
    },
    /// The machine lacks something: a device, a privilege.
    #[error("{what} ({help})")]
    Environment {
        /// The parameter that names it, if one does.
        param: Option<&'static str>,
        /// The missing thing, in words.
        what: String,
        /// Remedy: a command to type, or another thing to use.
        help: String,
    },
    /// A lower protocol would not open.
    #[error("a lower protocol did not open: {0}")]
    Open(#[from] OpenError),
}

impl BuildError {
    /// The value of the parameter `name` does not do; `expected` is what does.
    pub fn param(name: &'static str, expected: impl Into<String>) -> Self {
        Self::Param { name, index: 0, expected: expected.into() }
    }
}
