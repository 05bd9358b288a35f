//! The network I/O module ("Implementing Network Protocols at User Level", section 3.2): programs
//! that are not trusted send and receive frames of their own, each through a *channel*.
//!
//! The module is a layer between a wire and the protocol above it ([`add`]). A program has one
//! *channel*: a rate and a carrier. A channel has *rights*, each a pair of templates of frame
//! headers ([`Headers`](xk_kit::net::template::Headers)), which sessions describe. The carrier
//! copies a frame from the program out of its reach. If the frame fits one of the channel's rights,
//! it goes to the wire; otherwise it is dropped and counted, and after [`VIOLATIONS_MAX`] such
//! frames the channel is revoked. An arriving frame that fits a right goes to its program, any
//! other frame up to the protocol above the module, which may send any frame. If a frame fits
//! several rights, the most specific one counts. To the program a channel is a wire ([`channel`]).
//!
//! If both ends agree ([`Noted`]), a frame crosses with a note: that its checksum is unfinished, or
//! that it is a run of TCP segments. A program's note is accepted if the headers of the frame agree
//! with it; a run counts as all its packets, 64 at most. Without that agreement, checksums of
//! arrivals are finished and runs cut for the program.
//!
//! Channels and rights are granted by questions to the module itself ([`GrantChannel`],
//! [`GrantRight`]). No layer passes these on, so only a holder of the module's handle can ask them.
//! The answer to the first is a ticket; the program that shows it first gets the channel
//! ([`Module::attach`]). A channel that is not fetched in time lapses. A frame costs the same with
//! a thousand rights as with one: rights are looked up by the frame's octets under the masks of the
//! templates, one for each shape of headers.
//!
//! A right for a port of datagrams is that of a session to any peer. An unconnected session
//! describes its headers with the peer left open; those of another session can be opened in the
//! same way ([`Headers::for_any_peer`](xk_kit::net::template::Headers::for_any_peer)). The link's
//! and the host's own address, the protocol and the port stay fixed.

#![cfg_attr(not(feature = "xdp"), no_std)]

extern crate alloc;

mod channel;
mod module;
#[cfg(feature = "node")]
pub mod node;
mod noted;
mod questions;
mod rules;
#[cfg(feature = "xdp")]
pub mod xdp;

pub use channel::{Bare, ENDED_MAX, Holder, Rate, channel};
pub use module::index::{INDEX_TYPE, STRAY_OFFER};
pub use module::{
    BARE_OF_A_USER_MAX, CHANNEL_FULL, CHANNELS_MAX, FORGED, GRANT_LASTS, GRANTS_MAX, LATE, Module,
    REASONS, REVOKED, RIGHTS_MAX, RIGHTS_OF_A_CHANNEL_MAX, Steer, UNUSED, VIOLATIONS_MAX, add,
};
pub use noted::Noted;
pub use questions::{
    GrantChannel, GrantRight, ListRights, ModuleIs, QUESTIONS, RevokeChannel, RevokeRight, Right,
    Ticket, WatchModule,
};
