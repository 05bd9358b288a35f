//! Parts that several protocols share: skeletons of layers, checksums, addresses, control
//! questions.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod answers;
pub mod asks;
pub mod attributes;
mod cache;
pub mod control;
pub mod group;
mod header;
pub mod layer;
pub mod machine;
pub mod net;
pub mod passthrough;
pub mod questions;
pub mod reasons;
pub mod rpc;
pub mod times;
mod turns;
pub mod wire;

pub use cache::Cache;
pub use net::addr::{Cidr, EthAddr};
pub use net::checksum::Checksum;
pub use turns::Turns;
