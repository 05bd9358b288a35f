//! State of a node that routes nothing: the networks of its cable, and the last router heard.

use super::Data;
use crate::addr::{NetRange, Node};
use core::time::Duration;

/// Time for which a router is believed that says nothing more.
pub const ROUTER_VALID: Duration = Duration::from_secs(50);

/// The networks of the cable, and the router heard last.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stub {
    range: Option<NetRange>,
    router: Option<(Node, Duration)>,
}

/// Verdict on data from a router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// All was known.
    Known,
    /// There is a router, or another one.
    Router(Node),
    /// The networks of the cable were not known before.
    Networks(NetRange, Node),
    /// The data are of other networks than this cable's, or from a sender that is of none of them.
    Refused,
}

impl Stub {
    /// A node of a cable with these networks, if they are known.
    #[must_use]
    pub const fn new(range: Option<NetRange>) -> Self {
        Self { range, router: None }
    }

    /// The networks of the cable, if they are known.
    #[must_use]
    pub const fn range(&self) -> Option<NetRange> {
        self.range
    }

    /// The router heard last.
    #[must_use]
    pub fn router(&self) -> Option<Node> {
        self.router.map(|(router, _)| router)
    }

    /// Takes data or a response in.
    pub fn heard(&mut self, data: &Data, now: Duration) -> Heard {
        let Some(range) = data.cable().filter(|_| data.is_plausible()) else {
            return Heard::Refused;
        };
        if self.range.is_some_and(|known| known != range) {
            return Heard::Refused;
        }
        let router = self.router.replace((data.sender, now + ROUTER_VALID));
        match self.range.replace(range) {
            None => Heard::Networks(range, data.sender),
            Some(_) if router.is_none_or(|(known, _)| known != data.sender) => {
                Heard::Router(data.sender)
            }
            Some(_) => Heard::Known,
        }
    }

    /// Time at which [`tick`](Self::tick) has something to do.
    #[must_use]
    pub fn next(&self) -> Option<Duration> {
        self.router.map(|(_, until)| until)
    }

    /// Forgets a router that has been silent for long; answers that one.
    pub fn tick(&mut self, now: Duration) -> Option<Node> {
        let silent = self.router.filter(|(_, until)| *until <= now)?;
        self.router = None;
        Some(silent.0)
    }
}
