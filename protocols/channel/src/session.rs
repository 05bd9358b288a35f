//! Sessions: channels of the client's side, which make calls, and of the server's side, which have
//! them executed.

pub(crate) mod client;
pub(crate) mod server;
pub(crate) mod state;

use xk_core::reason::{Class, Reason};

/// A packet of a call that is over.
pub(crate) static LATE: Reason = Reason::new("late packet", Class::Bad);
