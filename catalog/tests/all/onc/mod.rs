//! The whole stack, from the table of programs down to datagrams: against the octets of the
//! standard, and against itself.

mod auth;
mod calls;
mod chance;
mod mixes;
mod net;
mod octets;
mod portmap;
mod unreachable;
