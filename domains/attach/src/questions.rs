//! The first words of a program and of the domain that it attaches to.

use xk_core::control::QuestionType;
use xk_core::object::ProtocolId;
use xk_core::{fields, question};

/// The version of these questions.
pub(crate) const VERSION: u32 = 1;
/// The number under which a program finds [`Desk`](crate::door), which answers them.
pub(crate) const DESK: ProtocolId = ProtocolId(u32::MAX);
/// The most protocols of a program.
pub const PROTOCOLS_MAX: usize = 255;
/// Octets of a protocol's name at most.
pub(crate) const NAME_OCTETS_MAX: usize = 64;

/// A node that a program may use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Granted {
    pub(crate) number: u32,
    pub(crate) kind: String,
    pub(crate) name: String,
}

fields!(Granted { number, kind, name });

/// Asks for the nodes that are granted to the asking program.
#[derive(Clone, Debug, Default)]
pub(crate) struct ListGrants {
    /// The version of the domain.
    pub(crate) version: u32,
    /// The number of the program's first protocol.
    pub(crate) first: u32,
    /// The nodes.
    pub(crate) nodes: Vec<Granted>,
}

question!(ListGrants { version, first, nodes }, "list-grants", Ask);

/// A protocol of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Own {
    /// Number of the protocol, one of the program's.
    pub(crate) number: u32,
    /// Name in the program.
    pub(crate) name: String,
    /// The type numbers that it wants on granted nodes: the node's number, and the type number.
    pub(crate) types: Vec<(u32, u32)>,
}

fields!(Own { number, name, types });

/// The protocols of the program that asks are to be known from now on. Asked once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Join {
    /// The protocols.
    pub(crate) protocols: Vec<Own>,
    /// Why they are not; empty if they are.
    pub(crate) refusal: String,
}

question!(Join { protocols, refusal }, "join", Ask);

/// Both.
pub(crate) static QUESTIONS: [QuestionType; 2] =
    [QuestionType::of::<ListGrants>(), QuestionType::of::<Join>()];
