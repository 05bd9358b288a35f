//! The user's states, as a table.
//!
//! Source: Oracle, "Programming Interfaces Guide", the state tables of XTI and TLI, which are those
//! of System V.

use core::fmt;

/// The state of an endpoint as its user sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum UserState {
    /// Not open.
    Uninit = 0,
    /// Open, not bound.
    Unbnd = 1,
    /// Bound, without a connection.
    Idle = 2,
    /// A connection that was asked for is to be confirmed.
    OutCon = 3,
    /// A connection that a peer asks for is to be answered.
    InCon = 4,
    /// Data goes both ways.
    DataXfer = 5,
    /// Released; the peer's release is to come.
    OutRel = 6,
    /// The peer has released; this end's is to come.
    InRel = 7,
}

use UserState::{DataXfer, Idle, InCon, InRel, OutCon, OutRel, Unbnd, Uninit};

/// A call that succeeded, told apart by what the table depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[rustfmt::skip]
pub enum UserEvent {
    /// `open`.
    Opened,
    /// `bind`.
    Bind,
    /// `optmgmt`.
    Optmgmt,
    /// `unbind`.
    Unbind,
    /// `close`.
    Closed,
    /// `sndudata`.
    Sndudata,
    /// `rcvudata`.
    Rcvudata,
    /// `rcvuderr`.
    Rcvuderr,
    /// `connect`, which waited for the peer.
    Connect1,
    /// `connect`, which did not wait, or was refused meanwhile.
    Connect2,
    /// `rcvconnect`.
    Rcvconnect,
    /// `listen`.
    Listen,
    /// `accept` of the only indication, on this endpoint.
    Accept1,
    /// `accept` of the only indication, on another endpoint.
    Accept2,
    /// `accept` of one of several indications, on another endpoint.
    Accept3,
    /// `snd`.
    Snd,
    /// `rcv`.
    Rcv,
    /// `snddis` with one indication at most.
    Snddis1,
    /// `snddis` with several indications.
    Snddis2,
    /// `rcvdis` with no indication.
    Rcvdis1,
    /// `rcvdis` with one indication.
    Rcvdis2,
    /// `rcvdis` with several indications.
    Rcvdis3,
    /// `sndrel`.
    Sndrel,
    /// `rcvrel`.
    Rcvrel,
    /// A connection is passed to this endpoint.
    PassConn,
}

/// The table: each event with the states in which it may happen, and the state after it.
#[rustfmt::skip]
pub(super) const TABLE: &[(UserEvent, &[(UserState, UserState)])] = &[
    (UserEvent::Opened, &[(Uninit, Unbnd)]),
    (UserEvent::Bind, &[(Unbnd, Idle)]),
    (UserEvent::Optmgmt, &[
        (Unbnd, Unbnd), (Idle, Idle), (OutCon, OutCon), (InCon, InCon), (DataXfer, DataXfer),
        (OutRel, OutRel), (InRel, InRel),
    ]),
    (UserEvent::Unbind, &[(Idle, Unbnd)]),
    (UserEvent::Closed, &[
        (Unbnd, Uninit), (Idle, Uninit), (OutCon, Uninit), (InCon, Uninit), (DataXfer, Uninit),
        (OutRel, Uninit), (InRel, Uninit),
    ]),
    (UserEvent::Sndudata, &[(Idle, Idle)]),
    (UserEvent::Rcvudata, &[(Idle, Idle)]),
    (UserEvent::Rcvuderr, &[(Idle, Idle)]),
    (UserEvent::Connect1, &[(Idle, DataXfer)]),
    (UserEvent::Connect2, &[(Idle, OutCon)]),
    (UserEvent::Rcvconnect, &[(OutCon, DataXfer)]),
    (UserEvent::Listen, &[(Idle, InCon), (InCon, InCon)]),
    (UserEvent::Accept1, &[(InCon, DataXfer)]),
    (UserEvent::Accept2, &[(InCon, Idle)]),
    (UserEvent::Accept3, &[(InCon, InCon)]),
    (UserEvent::Snd, &[(DataXfer, DataXfer), (InRel, InRel)]),
    (UserEvent::Rcv, &[(DataXfer, DataXfer), (OutRel, OutRel)]),
    (UserEvent::Snddis1, &[
        (OutCon, Idle), (InCon, Idle), (DataXfer, Idle), (OutRel, Idle), (InRel, Idle),
    ]),
    (UserEvent::Snddis2, &[(InCon, InCon)]),
    (UserEvent::Rcvdis1, &[(OutCon, Idle), (DataXfer, Idle), (OutRel, Idle), (InRel, Idle)]),
    (UserEvent::Rcvdis2, &[(InCon, Idle)]),
    (UserEvent::Rcvdis3, &[(InCon, InCon)]),
    (UserEvent::Sndrel, &[(DataXfer, OutRel), (InRel, Idle)]),
    (UserEvent::Rcvrel, &[(DataXfer, InRel), (OutRel, Idle)]),
    (UserEvent::PassConn, &[(Unbnd, DataXfer), (Idle, DataXfer)]),
];

pub(super) const STATES: [UserState; 8] =
    [Uninit, Unbnd, Idle, OutCon, InCon, DataXfer, OutRel, InRel];

impl UserState {
    /// The state after an event; `None` if it may not happen in this one.
    pub fn after(self, event: UserEvent) -> Option<UserState> {
        let (_, moves) = TABLE.iter().find(|(known, _)| *known == event)?;
        moves.iter().find(|(from, _)| *from == self).map(|(_, to)| *to)
    }
}

/// Shows the whole table, a line for each event.
pub struct TableText;

impl fmt::Display for TableText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:11}", "")?;
        STATES.iter().try_for_each(|state| write!(f, "{:>9}", alloc::format!("{state:?}")))?;
        writeln!(f)?;
        for (event, _) in TABLE {
            write!(f, "{:11}", alloc::format!("{event:?}"))?;
            for state in STATES {
                match state.after(*event) {
                    Some(next) => write!(f, "{:>9}", alloc::format!("{next:?}"))?,
                    None => write!(f, "        .")?,
                }
            }
            writeln!(f)?;
        }
        Ok(())
    }
}
