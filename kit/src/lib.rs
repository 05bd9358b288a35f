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
mod handles;
mod header;
mod in_order;
pub mod layer;
pub mod linear;
pub mod machine;
pub mod net;
pub mod passthrough;
mod pending;
pub mod questions;
pub mod reasons;
pub mod rpc;
pub mod times;
pub mod transfer;
mod turns;
pub mod wire;

pub use cache::Cache;
pub use handles::{Handles, Marks};
pub use in_order::InOrder;
pub use net::addr::{Cidr, EthAddr};
pub use net::checksum::Checksum;
pub use pending::Pending;
pub use turns::Turns;
