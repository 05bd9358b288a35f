//! A graph cut at an edge: two domains, each with a kernel of its own, and what passes between
//! them.
//!
//! On each side an object stands for the missing neighbour: above the cut a *lower proxy*
//! ([`lower_proxy`]) for the protocol below, below it an *upper proxy* ([`upper_proxy`]) for each
//! protocol above that opens or enables. Both carry the whole uniform interface; no protocol knows.
//! All edges between two domains share one [`Port`] on each side, and one [`Carrier`] that takes
//! frames across in order.
//!
//! | operation | crosses | waits |
//! | --- | --- | --- |
//! | `open`, `open_enable`, `call`, `call_demux`, `control` of a question that is answered | there and back | suspends the shepherd |
//! | `push`, `demux`, `open_disable`, `close`, `control` of a question that only tells | one way | never |
//! | `open_done` | up; whether the session is wanted comes back | never |
//! | a refusal of `demux`, an error of `push` | back, late | never |
//! | `pop`, `timeout`, `stop` | not at all | |
//!
//! What `push` and `demux` find no room for is refused at once (`QueueFull`), and counted; nothing
//! is queued without bound. What does not change while a session lives (its largest message, its
//! hosts) comes along with the session and is answered on this side.
//!
//! # What is believed
//! A session is known across by a handle, which says a place and how often that place was used, and
//! is looked up in a table of what the other side was given. Everything that comes is read once and
//! bounded. What no sound side sends ends the cut ([`LOST`]): what the other side had open here is
//! reset or closed, its enables are withdrawn, what stood for its sessions ends.
//!
//! # Source
//! "The x-Kernel" (Hutchinson and Peterson 1991), section II: user processes as protocol objects, a
//! bounded number of upcalls; user-level libraries as in "Implementing Network Protocols at User
//! Level" (Thekkath, Nguyen, Moy and Lazowska 1993).
#![cfg_attr(not(any(feature = "ring", feature = "messages")), no_std)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod account;
mod carrier;
mod deaths;
mod exports;
mod frame;
mod guests;
mod imports;
mod kept;
#[cfg(feature = "messages")]
pub mod messages;
mod port;
mod prompt;
mod proxies;
mod queue;
#[cfg(feature = "ring")]
pub mod ring;
mod serve;
mod sift;
mod waits;

pub use account::Account;
pub use carrier::{Arrival, Carrier, FRAME_OCTETS_MAX, SendError};
pub use deaths::Holdings;
pub use exports::SESSIONS_MAX;
pub use frame::HEADROOM;
pub use guests::guest_proxy;
pub use port::{Known, LATE, LOST, NOT_ALLOWED, NOT_ENABLED, Port, REASONS, SLOTS_MIN, Wish};
pub use prompt::ports_at_once;
pub use proxies::{add_port, lower_proxy, upper_proxy};
pub use queue::Queue;
pub use waits::WAITS_MAX;
