//! What a layer that keeps copies of the messages that it sends, to send parts of them again, is
//! told and asked by those above it.
//!
//! It says how a message is called there ([`LastKept`]); a layer that knows that it arrived may
//! release the copy early ([`FreeKept`]), and one that is about to send it all again may ask
//! whether that is needed ([`AskKept`]). A layer that keeps none answers none of these, and
//! forwards them.

use xk_core::{fields, question};

/// How the message that was last pushed into this session is called by the layer below that keeps
/// it. Asked right after the push.
#[derive(Clone, Copy, Debug, Default)]
pub struct LastKept {
    /// Out: its name for [`FreeKept`] and [`AskKept`]; 0 if no copy of it was kept, as of one that
    /// went whole.
    pub ticket: u32,
}

question!(LastKept { ticket }, "last-kept", Ask);

/// The message has arrived: its copy may go.
#[derive(Clone, Copy, Debug)]
pub struct FreeKept {
    /// What [`LastKept`] said.
    pub ticket: u32,
}

question!(FreeKept { ticket }, "free-kept", Tell);

/// How a message that was sent in parts fares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeptState {
    /// The copy is gone: nothing is known.
    #[default]
    Gone,
    /// The peer has asked for missing parts since this was last asked: it is still collecting.
    Collecting,
    /// Nothing was heard of it since this was last asked.
    Silent,
}

fields!(
    enum KeptState {
        Gone = 0,
        Collecting = 1,
        Silent = 2,
    }
);

/// How the message fares.
#[derive(Clone, Copy, Debug)]
pub struct AskKept {
    /// What [`LastKept`] said.
    pub ticket: u32,
    /// Out.
    pub state: KeptState,
}

impl AskKept {
    /// About the message of this name.
    pub fn about(ticket: u32) -> Self {
        Self { ticket, state: KeptState::Gone }
    }
}

question!(AskKept { ticket, state }, "ask-kept", Ask);
