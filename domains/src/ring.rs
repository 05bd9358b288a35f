//! A carrier of frames across a cut between two threads or two processes: rings in shared memory.
//!
//! A [`Ring`] is one end. Both ends are alike, and so are threads and processes: two threads share
//! a [`pair`], two processes each have an end of one socket, of which one side asks and the other
//! grants ([`Ring::ask`], [`Ring::grant`]). The memory, the bells that wake a sleeper and the way
//! in which a peer's death is seen are those of [`xk_shm`].
//!
//! A frame of up to 120 octets lies in a slot of its ring, a longer one in buffers beside, and is
//! copied in and out; across a [`Lending`] long messages stay where they are. It is seen at once by
//! a side that looks, and a side that sleeps is woken at the next
//! [`flush`](crate::Carrier::flush). Frames beyond the ring's room are refused, and what cannot
//! be ends the cut. A peer that goes away, by `kill -9` too, is seen at once by a sleeper that
//! nothing else has woken, and within ten milliseconds otherwise; what it sent before is still
//! taken.
//!
//! An end moves to the thread of its kernel before that side's [`Port`](crate::Port) is made.

mod end;
mod lending;
mod view_unsafe;

pub use end::{Ring, geometry, pair};
pub use lending::{FRONT, Kin, LENT_MIN, Lending, SLICES_MAX, Terms};
