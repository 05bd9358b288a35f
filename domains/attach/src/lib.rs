//! User processes as protocols: a program attaches to a graph that runs in another process, and
//! puts protocols of its own above the nodes that it is granted.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let here = xk_attach::attach("/run/xk/lab.sock")?;
//! let udp = here.find("udp").ok_or("it grants no udp")?;
//! // Protocols of the program's own, made from the same crates, stand above `udp` now.
//! # let _ = udp;
//! here.join()?;
//! # Ok(())
//! # }
//! ```
//!
//! The other side is a [`Door`]: a domain that the graph's file says is `open`. It names what is
//! granted to whom ([`Grant`]): a node, the ports or type numbers that may be had on it, and the
//! user or group that may. Possession of the link is the right; what the program asks for is held
//! against the grants when it opens or enables, and never again.
//!
//! # What a program cannot do
//! Open or enable anything that is not granted, take a number that is not granted, put questions
//! that change or show what other programs have, hold anything longer than it lives, or have more
//! than its share of places: a door takes [`PROGRAMS_MAX`] programs, [`PROGRAMS_OF_A_USER_MAX`] of
//! one user, each with [`PROTOCOLS_MAX`] protocols. What it sends is read as all that comes over a
//! cut is ([`xk_domains`]).
//!
//! # Source
//! "The x-Kernel" (Hutchinson and Peterson 1991), section II: user processes are protocols too.

mod attach;
mod door;
mod grant;
mod questions;

pub use attach::{AttachError, Attached, attach};
pub use door::{Door, PROGRAMS_MAX, PROGRAMS_OF_A_USER_MAX, Visitors};
pub use grant::Grant;
pub use questions::PROTOCOLS_MAX;
