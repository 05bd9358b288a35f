//! The figures of the fifth paper: protocols of AppleTalk in three subsystems, and what joins them.
//! Its machine was a SPARCstation LX with SunOS 4.1.3C.

mod configuration;
mod ends;
pub(crate) mod figure_3;
pub(crate) mod figure_4;
pub(crate) mod figure_7;
pub(crate) mod figure_8;
mod pair;
pub(crate) mod queues;
