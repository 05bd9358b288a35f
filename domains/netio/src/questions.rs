//! Questions put to the module: channels and rights.

use alloc::string::String;
use alloc::vec::Vec;
use xk_core::control::QuestionType;
use xk_core::object::ProtocolId;
use xk_core::{Participants, ProtocolRef, fields, question};
use xk_kit::net::template::Headers;

use crate::channel::Rate;
#[cfg(doc)]
use crate::module::GRANT_LASTS;

/// The octets that fetch a granted channel, once.
pub type Ticket = [u8; 16];

/// Asked of the module itself: a channel for a program, without rights at first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantChannel {
    /// In: how much may be sent. Out: the same, or what the module allows if that is less.
    pub rate: Rate,
    /// In: the hardware address that programs' frames come from, if it is to stay this host's for
    /// as long as there are channels: the device's may be another one by now.
    pub station: Option<[u8; 6]>,
    /// In: the user that the channel and its rights are charged to, which has an eighth of each at
    /// most; `None` for what is trusted.
    pub user: Option<u32>,
    /// Out: what fetches it, within [`GRANT_LASTS`]; `None` if there is no room.
    pub ticket: Option<Ticket>,
    /// Out: its number.
    pub number: u32,
    /// Out: the path of the socket where the ticket is shown; empty if there is none.
    pub door: String,
    /// Out: which module it is, as [`ModuleIs`] says.
    pub life: u64,
}
question!(
    GrantChannel { rate, station, user, ticket, number, door, life },
    "grant-channel",
    Transfer,
    direct
);

impl GrantChannel {
    /// For a channel that may send so much.
    pub fn new(rate: Rate) -> Self {
        let (ticket, door) = (None, String::new());
        Self { rate, station: None, user: None, ticket, number: 0, door, life: 0 }
    }
}

/// Asked of the module itself: one more right of a channel, fetched or not. Its program may send
/// frames with these headers, and receives those that arrive with them. Templates of empty
/// messages, [`Template::default`](xk_kit::net::template::Template), give a right to receive or to
/// send alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantRight {
    /// In: the channel's number.
    pub channel: u32,
    /// In: the headers, as the session tells them whose frames these are.
    pub headers: Headers,
    /// In: the protocol of that session, and its ends, for [`ListRights`].
    pub of: (ProtocolId, Participants),
    /// Out: the right's number; `None` if there is no such channel or no room, or another right
    /// receives what this one would.
    pub number: Option<u32>,
}
question!(GrantRight { channel, headers, of, number }, "grant-right", Transfer, direct);

/// Asked of the module itself: the right of this number is no more. Its channel remains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RevokeRight {
    /// In: its number.
    pub number: u32,
    /// Out: whether there was one.
    pub was_there: bool,
}
question!(RevokeRight { number, was_there }, "revoke-right", Ask, direct);

/// Asked of the module itself: the channel of this number is no more, fetched or not, and none of
/// its rights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RevokeChannel {
    /// In: its number.
    pub number: u32,
    /// Out: whether there was one.
    pub was_there: bool,
}
question!(RevokeChannel { number, was_there }, "revoke-channel", Ask, direct);

/// A right, as [`ListRights`] tells of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Right {
    /// Number of the right.
    pub number: u32,
    /// The number of its channel.
    pub channel: u32,
    /// Headers of the right's frames.
    pub headers: Headers,
    /// The protocol of the session that it was granted for, and the session's ends.
    pub of: (ProtocolId, Participants),
}
fields!(Right { number, channel, headers, of });

/// Asked of the module itself: rights in the order of their numbers, for a registry that has been
/// started again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListRights {
    /// In: those with higher numbers than this.
    pub after: u32,
    /// Out: the next ones; none after the last.
    pub rights: Vec<Right>,
}
question!(ListRights { after, rights }, "list-rights", Ask, direct);

/// Told to the module: it says by [`ModuleIs`] which one it is, and so does the next one in its
/// place, which knows of no channel and no right that this one has granted.
#[derive(Clone, Debug)]
pub struct WatchModule {
    /// The protocol to be told.
    pub watcher: ProtocolRef,
}
question!(WatchModule { watcher }, "watch-module", Tell, standing);

/// Told upwards to those that watch: which module this is.
#[derive(Clone, Copy, Debug)]
pub struct ModuleIs {
    /// A random number that it keeps as long as it lives.
    pub life: u64,
}
question!(ModuleIs { life }, "module-is", Tell, upward);

/// The module's questions, for what a cut between it and a registry knows.
pub static QUESTIONS: [QuestionType; 7] = [
    QuestionType::of::<WatchModule>(),
    QuestionType::of::<ModuleIs>(),
    QuestionType::of::<GrantChannel>(),
    QuestionType::of::<GrantRight>(),
    QuestionType::of::<RevokeRight>(),
    QuestionType::of::<RevokeChannel>(),
    QuestionType::of::<ListRights>(),
];
