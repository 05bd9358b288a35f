//! The Internet's protocols in the BSD network subsystem: `ether` (interface, and ARP), `ip` (with
//! ICMP), `udp`. Each module's documentation is the line's manual.
//!
//! Written as in 4.3BSD and 4.4BSD: `if_ether.c`, `ip_input.c` (`ip_forward`), `ip_output.c`,
//! `ip_icmp.c`, `in_pcb.c`, `udp_usrreq.c`.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod arp;
pub mod ether;
#[cfg(test)]
mod forward_tests;
mod icmp;
pub mod in_pcb;
mod in_var;
pub mod ip;
mod ip_forward;
mod ip_output;
mod reass;
#[cfg(test)]
mod tests;
pub mod udp;

pub use ether::ENTRY as ETHER;
pub use ip::ENTRY as IP;
pub use udp::ENTRY as UDP;
