//! The two kinds of sessions: those that call, and those that serve.

mod calling;
mod serving;

pub(crate) use calling::{Calling, Key as CallingKey};
pub(crate) use serving::Serving;
