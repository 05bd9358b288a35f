//! The two kinds of sessions: those that call, and those that serve.

mod calling;
mod serving;

pub(crate) use calling::{Calling, Key as CallingKey, template};
pub(crate) use serving::{Key as ServingKey, Serving, deny};
