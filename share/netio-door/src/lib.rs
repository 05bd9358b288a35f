//! The way to a channel of the network I/O module ([`xk_netio`]) between processes.
//!
//! A [`Door`] is a socket where a program shows the ticket that it was given, and has the channel
//! that was granted under it from then on: [`connect`] gives its end, rings in shared memory, for
//! [`xk_netio::channel`]. A program that is gone, by `kill -9` too, loses its channel at once.
//!
//! # What a stranger cannot do
//! Have a channel without its ticket, which is random, of 16 octets, and good once; keep others
//! from theirs: of those that have come and shown no ticket there are [`COMERS_MAX`],
//! [`COMERS_OF_A_USER_MAX`] of one user, each for [`TICKET_WITHIN`]. Of more, the one that came
//! first is sent away.

mod door;

pub use door::{COMERS_MAX, COMERS_OF_A_USER_MAX, Door, TICKET_WITHIN, connect};
