//! Questions of a program to the registry, each put to the session that it has there.

use alloc::string::String;
use xk_core::control::QuestionType;
use xk_core::{HostAddr, Message, Reason, SessionRef, question};
use xk_netio::Ticket;

use crate::library::NOT_MOVED;

/// Asked once a program begins: what its frames go out by.
#[derive(Clone, Debug, Default)]
pub struct OpenChannel {
    /// Out: what fetches its channel from the network I/O module; `None` if that has no room. A
    /// channel of before is no more.
    pub ticket: Option<Ticket>,
    /// Out: the path of the module's door, where the ticket is shown; empty if there is none.
    pub door: String,
    /// Out: the hardware address of this host.
    pub address: [u8; 6],
    /// Out: octets of the longest frame.
    pub frame_octets_max: u32,
}
question!(OpenChannel { ticket, door, address, frame_octets_max }, "open-channel", Ask);

/// The program is to carry on a conversation that it has: its channel takes and brings the frames
/// of this session from now on. One with a peer stops, its ends are kept for it, and its state
/// goes to the program, as by [`GiveState`](xk_kit::net::moving::GiveState); one that receives from
/// everybody stays, and keeps its port until the right ends. One that is being connected goes once
/// its peer has answered, if that is soon.
#[derive(Debug, Default)]
pub struct TakeOver {
    /// In: the session, of a protocol beside the registry. Out: none, so that the answer reaches a
    /// program that has closed it meanwhile.
    pub session: Option<SessionRef>,
    /// In: it may be being connected.
    pub waits: bool,
    /// Out: it still is: the program asks again once it has heard that it is connected.
    pub later: bool,
    /// Out: the right's number; `None` if the session is not this program's, does not say what its
    /// headers are, or there is no room.
    pub right: Option<u32>,
    /// Out: the station that leads to the peer.
    pub station: [u8; 6],
    /// Out: octets of the whole state; 0 if there is none to be had.
    pub total: u32,
    /// Out: the first part of the state. If it is all of it the session there is over; otherwise
    /// the program asks that for the rest.
    pub part: Option<Message>,
}
question!(TakeOver { session, waits, later, right, station, total, part }, "take-over", Transfer);

/// Asked on behalf of a session of the program: how its messages reach a host.
#[derive(Clone, Debug)]
pub struct FindStation {
    /// In: the session, of a protocol beside the registry. Out: none.
    pub session: Option<SessionRef>,
    /// In: the host.
    pub host: HostAddr,
    /// Out: the host of ours that they are from, and the station that they go to now; `None` if the
    /// session is not this program's, the host is several or this one, or no station is known.
    pub station: Option<(HostAddr, [u8; 6])>,
}
question!(FindStation { session, host, station }, "find-station", Ask);

/// A part of the state of a conversation that the registry is to take back.
#[derive(Debug, Default)]
pub struct GiveBack {
    /// In: the right's number.
    pub right: u32,
    /// In: where the part begins, in octets. With 0 a state begins.
    pub at: u32,
    /// In: the part.
    pub part: Option<Message>,
    /// Out: it was taken.
    pub taken: bool,
}
question!(GiveBack { right, at, part, taken }, "give-back", Ask);

/// The right is no more. With a state that was given back the registry goes on with the
/// conversation to its end, as if its program had closed it; without one it is over.
#[derive(Clone, Copy, Debug, Default)]
pub struct EndRight {
    /// In: the right's number.
    pub right: u32,
    /// In: a state of so many octets was given back; 0 for none.
    pub state_octets: u32,
    /// Out: false if it was not as said: the conversation is over then.
    pub done: bool,
}
question!(EndRight { right, state_octets, done }, "end-right", Ask);

/// The conversation of a right goes to another program, with its state, which the asker has: the
/// right is no more, and what comes meanwhile is answered by nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct PassOn {
    /// In: the right's number.
    pub right: u32,
    /// Out: what the other program shows, within [`PASS_FOR`](crate::PASS_FOR); its peer is reset
    /// then. `None` if there is no such right, or no room.
    pub ticket: Option<Ticket>,
}
question!(PassOn { right, ticket }, "pass-on", Transfer);

/// A part of the state of a conversation that another program has passed on. With the last one the
/// transport expects an open between its ends.
#[derive(Debug, Default)]
pub struct TakeOn {
    /// In: what [`PassOn`] has answered.
    pub ticket: Ticket,
    /// In: where the part begins, in octets. With 0 a state begins.
    pub at: u32,
    /// In: octets of the whole state.
    pub total: u32,
    /// In: the part.
    pub part: Option<Message>,
    /// Out: it was taken.
    pub taken: bool,
}
question!(TakeOn { ticket, at, total, part, taken }, "take-on", Ask);

/// Told upwards to a program: the peer of this right is reached by another station from now on, to
/// which the right extends.
#[derive(Clone, Copy, Debug)]
pub struct StationChanged {
    /// The right's number.
    pub right: u32,
    /// The station.
    pub address: [u8; 6],
}
question!(StationChanged { right, address }, "station-changed", Tell, upward);

/// The questions, for what a cut knows.
pub static QUESTIONS: [QuestionType; 8] = [
    QuestionType::of::<StationChanged>(),
    QuestionType::of::<OpenChannel>(),
    QuestionType::of::<TakeOver>(),
    QuestionType::of::<FindStation>(),
    QuestionType::of::<GiveBack>(),
    QuestionType::of::<EndRight>(),
    QuestionType::of::<PassOn>(),
    QuestionType::of::<TakeOn>(),
];

/// The library's reasons, for what a cut knows.
pub static REASONS: &[&Reason] = &[&NOT_MOVED];
