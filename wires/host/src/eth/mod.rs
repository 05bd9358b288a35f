//! Whole Ethernet frames in UDP datagrams.

mod config;
mod peers;
pub(crate) mod protocol;
pub mod vxlan;

pub(crate) use config::probe;
pub(crate) use protocol::build;
