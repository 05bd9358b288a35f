//! The network I/O module ("Implementing Network Protocols at User Level", section 3.2): programs
//! that are not trusted send and receive frames of their own, each through a *channel*.
//!
//! The module is a layer between a wire and whatever stands on it ([`add`]). A program has one
//! *channel*: a rate and a carrier. To it belong *rights*, each a pair of templates of the headers
//! that frames bear ([`Headers`](xk_kit::net::template::Headers)), as a session tells them. What
//! the program sends is copied out of its reach by the carrier, and handed to the wire if it fits
//! one of its rights; if not it is dropped and counted, and after [`VIOLATIONS_MAX`] of them the
//! channel is revoked. What arrives and fits a right goes to its program, all else up to the
//! protocol above the module, which may send what it likes. Of rights that a frame fits the one
//! that says most counts. At the program's end a channel is a wire ([`channel`]).
//!
//! Where both ends agree on it ([`Noted`]) a frame crosses with what it says besides its octets:
//! that its checksum is open, and that it stands for a run of TCP segments. What a program says so
//! is believed if the headers of the frame agree; a run counts as all of its packets, of which
//! there may be 64. Otherwise arrivals are finished and cut for the program.
//!
//! Channels and rights are granted by questions put to the module itself ([`GrantChannel`],
//! [`GrantRight`]), which no layer passes on, so by nothing but what has the module's handle. The
//! answer to the first is a ticket; the program that shows it first gets the channel
//! ([`Module::attach`]). What is not fetched in time lapses. A thousand rights cost a frame no more
//! than one: they are found by its octets under the masks of the templates, of which there are as
//! many as shapes of headers.
//!
//! A right for a port of datagrams is that of a session to any peer: an unconnected one tells its
//! headers with the peer left open, and of any other one they can be made so
//! ([`Headers::for_any_peer`](xk_kit::net::template::Headers::for_any_peer)). The link's and the
//! host's own address, the protocol and the port stay as they are.

#![no_std]

extern crate alloc;

mod channel;
mod module;
mod noted;
mod questions;
mod rules;

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
