//! The layers of credentials for ONC RPC, a module for each kind. What they share is
//! [`xk_kit::rpc::auth`].
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod authnone;
pub mod authshort;
pub mod authsys;
