//! The cost of single tools of the core.

pub(crate) mod event;
pub(crate) mod layer;
pub(crate) mod map;
pub(crate) mod message;
pub(crate) mod shepherd;
pub(crate) mod template;
