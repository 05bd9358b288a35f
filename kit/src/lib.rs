//! What several protocols need: checksum, addresses, shared control questions.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod addr;
pub mod anchor;
pub mod answers;
pub mod attribute;
pub mod auth;
pub mod call;
pub mod call_layer;
pub mod checksum;
pub mod control;
pub mod corrupt;
pub mod device_wire;
mod header;
pub mod incarnation;
pub mod kept;
pub mod layer;
pub mod neighbour;
pub mod notice;
pub mod offers;
pub mod offload;
pub mod onc;
pub mod passthrough;
pub mod ports;
pub mod saved;
pub mod segments;
pub mod serve;
pub mod standins;
pub mod stream;
pub mod talkers;
pub mod times;
pub mod wire_end;

pub use addr::{Cidr, EthAddr, Ipv4};
pub use checksum::Checksum;
