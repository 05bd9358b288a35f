//! The network I/O module ("Implementing Network Protocols at User Level", section 3.2): programs
//! that are not trusted send and receive frames of their own, each through a *channel*.
//!
//! The module is a layer between a wire and whatever stands on it ([`add`]). A channel is a right:
//! the templates of the headers that its frames bear
//! ([`Headers`](xk_kit::net::template::Headers), as a session tells them), a rate, and a carrier to
//! the program. What the program sends is copied out of its reach by the carrier, compared with the
//! template, and handed to the wire if it fits; if not it is dropped and counted, and after
//! [`VIOLATIONS_MAX`] of them the channel is revoked. What arrives and fits a channel's template
//! goes to its program, all else up to the protocol above the module, which may send what it
//! likes. At the program's end a channel is a wire ([`channel`]).
//!
//! A channel is granted by a question put to the module itself ([`GrantChannel`]), which no layer
//! passes on, so by nothing but what has the module's handle. The answer is a ticket; the
//! program that shows it first gets the channel ([`Module::attach`]). What is not fetched in
//! time lapses.

#![no_std]

extern crate alloc;

mod channel;
mod module;
mod rules;

pub use channel::{Rate, channel};
pub use module::{
    CHANNEL_FULL, CHANNELS_MAX, FORGED, GRANT_LASTS, GRANTS_MAX, GrantChannel, Module, QUESTIONS,
    REASONS, REVOKED, RevokeChannel, Ticket, VIOLATIONS_MAX, add,
};
