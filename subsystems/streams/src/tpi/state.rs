//! The provider's states, as a table.
//!
//! Source: The Open Group, "Transport Provider Interface", chapter 3: the tables of initialization,
//! of datagrams and of connections. Options are managed in every state that lasts and change none
//! of them (version 2); in the idle state the acknowledgement is waited for (revision 1.5).

use core::fmt;

/// The state of an endpoint, as its provider keeps it (`TS_UNBND` and those behind it).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u32)]
pub enum State {
    /// Unbound.
    Unbnd = 0,
    /// A bind is to be acknowledged.
    WackBreq = 1,
    /// An unbind is to be acknowledged.
    WackUreq = 2,
    /// Bound, without a connection.
    Idle = 3,
    /// A request about options is to be acknowledged.
    WackOptreq = 4,
    /// A connection request is to be acknowledged.
    WackCreq = 5,
    /// A connection request is to be confirmed.
    WconCreq = 6,
    /// A connection indication is to be answered.
    WresCind = 7,
    /// The answer to a connection indication is to be acknowledged.
    WackCres = 8,
    /// Data goes both ways.
    DataXfer = 9,
    /// The peer's orderly release is to come.
    WindOrdrel = 10,
    /// The user's orderly release is to come.
    WreqOrdrel = 11,
    /// A disconnect from state 6 is to be acknowledged.
    WackDreq6 = 12,
    /// A disconnect from state 7 is to be acknowledged.
    WackDreq7 = 13,
    /// A disconnect from state 9 is to be acknowledged.
    WackDreq9 = 14,
    /// A disconnect from state 10 is to be acknowledged.
    WackDreq10 = 15,
    /// A disconnect from state 11 is to be acknowledged.
    WackDreq11 = 16,
}

use State::{
    DataXfer, Idle, Unbnd, WackBreq, WackCreq, WackCres, WackDreq6, WackDreq7, WackDreq9,
    WackDreq10, WackDreq11, WackOptreq, WackUreq, WconCreq, WindOrdrel, WreqOrdrel, WresCind,
};

/// Event at the interface. Acknowledgements are told apart by how many connection indications wait
/// for the user's answer, and whether a connection is accepted on the stream that heard of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Event {
    /// T_BIND_REQ.
    BindReq,
    /// T_UNBIND_REQ.
    UnbindReq,
    /// T_OPTMGMT_REQ.
    OptmgmtReq,
    /// T_CONN_REQ.
    ConnReq,
    /// T_CONN_RES.
    ConnRes,
    /// T_DISCON_REQ.
    DisconReq,
    /// T_DATA_REQ.
    DataReq,
    /// T_EXDATA_REQ.
    ExdataReq,
    /// T_ORDREL_REQ.
    OrdrelReq,
    /// T_UNITDATA_REQ.
    UnitdataReq,
    /// T_BIND_ACK.
    BindAck,
    /// T_OPTMGMT_ACK.
    OptmgmtAck,
    /// T_ERROR_ACK.
    ErrorAck,
    /// T_OK_ACK; no indication waits.
    OkAck1,
    /// T_OK_ACK; one indication waits, accepted on this stream.
    OkAck2,
    /// T_OK_ACK; one indication waits, accepted on another stream or refused.
    OkAck3,
    /// T_OK_ACK; more indications wait.
    OkAck4,
    /// T_CONN_IND.
    ConnInd,
    /// T_CONN_CON.
    ConnCon,
    /// T_DATA_IND.
    DataInd,
    /// T_EXDATA_IND.
    ExdataInd,
    /// T_ORDREL_IND.
    OrdrelInd,
    /// T_DISCON_IND; no indication waits.
    DisconInd1,
    /// T_DISCON_IND; one indication waits.
    DisconInd2,
    /// T_DISCON_IND; more indications wait.
    DisconInd3,
    /// A connection is passed to this stream.
    PassConn,
    /// T_UNITDATA_IND.
    UnitdataInd,
    /// T_UDERROR_IND.
    UderrorInd,
}

/// The table: each event with the states in which it may happen, and the state after it.
pub(super) const TABLE: &[(Event, &[(State, State)])] = &[
    (Event::BindReq, &[(Unbnd, WackBreq)]),
    (Event::UnbindReq, &[(Idle, WackUreq)]),
    (
        Event::OptmgmtReq,
        &[
            (Unbnd, Unbnd),
            (Idle, WackOptreq),
            (WconCreq, WconCreq),
            (WresCind, WresCind),
            (DataXfer, DataXfer),
            (WindOrdrel, WindOrdrel),
            (WreqOrdrel, WreqOrdrel),
        ],
    ),
    (Event::ConnReq, &[(Idle, WackCreq)]),
    (Event::ConnRes, &[(WresCind, WackCres)]),
    (
        Event::DisconReq,
        &[
            (WconCreq, WackDreq6),
            (WresCind, WackDreq7),
            (DataXfer, WackDreq9),
            (WindOrdrel, WackDreq10),
            (WreqOrdrel, WackDreq11),
        ],
    ),
    (Event::DataReq, &[(DataXfer, DataXfer), (WreqOrdrel, WreqOrdrel)]),
    (Event::ExdataReq, &[(DataXfer, DataXfer), (WreqOrdrel, WreqOrdrel)]),
    (Event::OrdrelReq, &[(DataXfer, WindOrdrel), (WreqOrdrel, Idle)]),
    (Event::UnitdataReq, &[(Idle, Idle)]),
    (Event::BindAck, &[(WackBreq, Idle)]),
    (
        Event::OptmgmtAck,
        &[
            (Unbnd, Unbnd),
            (WackOptreq, Idle),
            (WconCreq, WconCreq),
            (WresCind, WresCind),
            (DataXfer, DataXfer),
            (WindOrdrel, WindOrdrel),
            (WreqOrdrel, WreqOrdrel),
        ],
    ),
    (
        Event::ErrorAck,
        &[
            (WackBreq, Unbnd),
            (WackUreq, Idle),
            (WackOptreq, Idle),
            (WackCreq, Idle),
            (WackCres, WresCind),
            (WackDreq6, WconCreq),
            (WackDreq7, WresCind),
            (WackDreq9, DataXfer),
            (WackDreq10, WindOrdrel),
            (WackDreq11, WreqOrdrel),
        ],
    ),
    (
        Event::OkAck1,
        &[
            (WackUreq, Unbnd),
            (WackCreq, WconCreq),
            (WackDreq6, Idle),
            (WackDreq9, Idle),
            (WackDreq10, Idle),
            (WackDreq11, Idle),
        ],
    ),
    (Event::OkAck2, &[(WackCres, DataXfer), (WackDreq7, Idle)]),
    (Event::OkAck3, &[(WackCres, Idle), (WackDreq7, Idle)]),
    (Event::OkAck4, &[(WackCres, WresCind), (WackDreq7, WresCind)]),
    (Event::ConnInd, &[(Idle, WresCind), (WresCind, WresCind)]),
    (Event::ConnCon, &[(WconCreq, DataXfer)]),
    (Event::DataInd, &[(DataXfer, DataXfer), (WindOrdrel, WindOrdrel)]),
    (Event::ExdataInd, &[(DataXfer, DataXfer), (WindOrdrel, WindOrdrel)]),
    (Event::OrdrelInd, &[(DataXfer, WreqOrdrel), (WindOrdrel, Idle)]),
    (
        Event::DisconInd1,
        &[(WconCreq, Idle), (DataXfer, Idle), (WindOrdrel, Idle), (WreqOrdrel, Idle)],
    ),
    (Event::DisconInd2, &[(WresCind, Idle)]),
    (Event::DisconInd3, &[(WresCind, WresCind)]),
    (Event::PassConn, &[(Unbnd, DataXfer), (Idle, DataXfer)]),
    (Event::UnitdataInd, &[(Idle, Idle)]),
    (Event::UderrorInd, &[(Idle, Idle)]),
];

/// All states in their order.
pub(super) const STATES: [State; 17] = [
    Unbnd, WackBreq, WackUreq, Idle, WackOptreq, WackCreq, WconCreq, WresCind, WackCres, DataXfer,
    WindOrdrel, WreqOrdrel, WackDreq6, WackDreq7, WackDreq9, WackDreq10, WackDreq11,
];

/// Number of events.
const EVENTS: usize = Event::UderrorInd as usize + 1;

/// The state after each event in each state, by their numbers; none where it may not happen.
static CELLS: [[Option<State>; EVENTS]; STATES.len()] = {
    let mut cells = [[None; EVENTS]; STATES.len()];
    let mut at = 0;
    while at < TABLE.len() {
        let (event, moves) = TABLE[at];
        let mut step = 0;
        while step < moves.len() {
            let (from, to) = moves[step];
            cells[from as usize][event as usize] = Some(to);
            step += 1;
        }
        at += 1;
    }
    cells
};

impl State {
    /// By its number.
    pub fn of(number: u32) -> Option<Self> {
        STATES.get(number as usize).copied()
    }

    /// The state after an event; `None` if it may not happen in this one.
    #[inline]
    pub fn after(self, event: Event) -> Option<State> {
        CELLS[self as usize][event as usize]
    }
}

/// Shows the whole table, a line for each event.
pub struct TableText;

/// The whole table as text.
pub const TABLE_TEXT: TableText = TableText;

impl fmt::Display for TableText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:12}", "")?;
        for state in STATES {
            write!(f, "{:>3}", state as u32)?;
        }
        writeln!(f)?;
        for (event, _) in TABLE {
            write!(f, "{:12}", alloc::format!("{event:?}"))?;
            for state in STATES {
                match state.after(*event) {
                    Some(next) => write!(f, "{:>3}", next as u32)?,
                    None => write!(f, "  .")?,
                }
            }
            writeln!(f)?;
        }
        Ok(())
    }
}
