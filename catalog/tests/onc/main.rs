//! The whole stack, from the table of programs down to datagrams: against the octets of the standard, and against itself.

mod calls;
mod net;
mod octets;
