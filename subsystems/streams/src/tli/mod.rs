//! The transport interface of users, over a stream: `open`, `bind`, `sndudata`, `connect` and the
//! others, each named as in System V less its `t_`. Calls that wait do so at the stream's head, and
//! fail at once on a stream that is not to wait ([`Stream::set_nonblocking`]). `alloc` and `free`
//! are Rust's own; `error` is [`Refusal`]'s text.

mod connect;
mod data;
mod line;
mod state;
#[cfg(test)]
mod tests;

pub use connect::{Call, Disconnect};
pub use data::{Error, Maxima, Unit};
pub use line::ENTRY;
pub use state::{TableText, UserEvent, UserState};

use crate::block::{Kind, Mblk};
use crate::errno::Errno;
use crate::head::{Stream, Want};
use crate::streams::Streams;
use crate::tpi::{Info, Primitive, Refusal, Service, State, TliError};
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use xk_core::Kernel;

/// More of the unit follows.
pub const T_MORE: u32 = 1;
/// The data is expedited.
pub const T_EXPEDITED: u32 = 2;

/// An event that waits (`look`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Event {
    /// A peer asks for a connection (T_LISTEN).
    Listen = 0x01,
    /// A connection is confirmed (T_CONNECT).
    Connect = 0x02,
    /// Data has come (T_DATA).
    Data = 0x04,
    /// Expedited data has come (T_EXDATA).
    Exdata = 0x08,
    /// A connection has ended (T_DISCONNECT).
    Disconnect = 0x10,
    /// A datagram could not be delivered (T_UDERR).
    Uderr = 0x40,
    /// The peer has released (T_ORDREL).
    Ordrel = 0x80,
}

/// An endpoint of a transport user.
pub struct Endpoint {
    stream: Rc<Stream>,
    state: Cell<UserState>,
    info: Cell<Info>,
    /// Connection indications that wait for an answer.
    outcnt: Cell<u32>,
    /// Rest of a unit of data that was read in part.
    rest: RefCell<Option<(Mblk, u32)>>,
}

/// The answer of a call.
pub type Answer<T> = Result<T, Refusal>;

/// A system's error as the interface says it.
fn system(error: Errno) -> Refusal {
    error.into()
}

impl Endpoint {
    /// Opens an endpoint on the driver of this name; answers what the provider says of itself, too.
    ///
    /// # Errors
    /// TSYSERR with the error of the open, or EPROTO from what is no provider.
    pub fn open(cx: &Kernel, streams: &Rc<Streams>, name: &str) -> Answer<(Self, Info)> {
        let stream = streams.open(cx, name).map_err(system)?;
        let info = Cell::new(Info::datagrams(0, 0, 0));
        let state = Cell::new(UserState::Uninit);
        let (outcnt, rest) = (Cell::new(0), RefCell::default());
        let endpoint = Self { stream, state, info, outcnt, rest };
        match endpoint.getinfo(cx) {
            Ok(info) => {
                endpoint.step(UserEvent::Opened)?;
                Ok((endpoint, info))
            }
            Err(error) => {
                endpoint.stream.close(cx);
                Err(error)
            }
        }
    }

    /// The stream that it stands on.
    pub fn stream(&self) -> &Rc<Stream> {
        &self.stream
    }

    /// Takes an event, if the state allows it.
    fn step(&self, event: UserEvent) -> Answer<()> {
        let next = self.state.get().after(event).ok_or(TliError::TOUTSTATE)?;
        self.state.set(next);
        Ok(())
    }

    /// Whether the state allows an event.
    fn may(&self, event: UserEvent) -> Answer<()> {
        self.state.get().after(event).map(drop).ok_or(TliError::TOUTSTATE.into())
    }

    fn is_of(&self, services: &[Service]) -> Answer<()> {
        match services.contains(&self.info.get().service) {
            true => Ok(()),
            false => Err(TliError::TNOTSUPPORT.into()),
        }
    }

    fn is_of_connections(&self) -> Answer<()> {
        self.is_of(&[Service::Cots, Service::CotsOrd])
    }

    /// Sends a request with the data behind it.
    fn send(&self, cx: &Kernel, primitive: Primitive<'_>, data: Option<Mblk>) -> Answer<()> {
        let mp = primitive.emit(self.stream.blocks()).ok_or(system(Errno::ENOSR))?;
        let mp = crate::tpi::with_data(mp, data);
        self.stream.putp(cx, mp).map_err(|error| match error {
            Errno::EAGAIN => TliError::TFLOW.into(),
            error => system(error),
        })
    }

    /// Sends a request and waits for what acknowledges it.
    fn request(&self, cx: &Kernel, primitive: Primitive<'_>, data: Option<Mblk>) -> Answer<Mblk> {
        self.send(cx, primitive, data)?;
        let answer = self.stream.getp(cx, Want::High).map_err(system)?;
        match Primitive::of(&answer) {
            Ok(Primitive::ErrorAck { refusal, .. }) => Err(refusal),
            Ok(_) => Ok(answer),
            Err(_) => Err(system(Errno::EPROTO)),
        }
    }

    /// A block with a copy of a user's data.
    fn block(&self, data: &[u8]) -> Answer<Mblk> {
        let block = self.stream.blocks().copy(Kind::Data, 0, data);
        block.ok_or(system(Errno::ENOSR))
    }

    /// Asks the provider for its properties.
    ///
    /// # Errors
    /// TSYSERR.
    pub fn getinfo(&self, cx: &Kernel) -> Answer<Info> {
        let answer = self.request(cx, Primitive::InfoReq, None)?;
        let Ok(Primitive::InfoAck(info)) = Primitive::of(&answer) else {
            return Err(system(Errno::EPROTO));
        };
        self.info.set(info);
        Ok(info)
    }

    /// The state as this end has it.
    pub fn getstate(&self) -> UserState {
        self.state.get()
    }

    /// Takes the state from the provider, after another user of the stream has changed it.
    ///
    /// # Errors
    /// TSTATECHNG if the provider is within a change; TSYSERR.
    pub fn sync(&self, cx: &Kernel) -> Answer<UserState> {
        let state = match self.getinfo(cx)?.state {
            State::Unbnd => UserState::Unbnd,
            State::Idle => UserState::Idle,
            State::WconCreq => UserState::OutCon,
            State::WresCind => UserState::InCon,
            State::DataXfer => UserState::DataXfer,
            State::WindOrdrel => UserState::OutRel,
            State::WreqOrdrel => UserState::InRel,
            _ => return Err(TliError::TSTATECHNG.into()),
        };
        self.state.set(state);
        Ok(state)
    }

    /// The event that waits, if one does; it stays.
    pub fn look(&self) -> Option<Event> {
        if self.rest.borrow().is_some() {
            return Some(Event::Data);
        }
        let event = |mp: &Mblk| match (mp.kind(), Primitive::of(mp)) {
            (Kind::Data, _) => Some(Event::Data),
            (_, Ok(Primitive::ConnInd { .. })) => Some(Event::Listen),
            (_, Ok(Primitive::ConnCon { .. })) => Some(Event::Connect),
            (_, Ok(Primitive::DataInd { .. } | Primitive::UnitdataInd { .. })) => Some(Event::Data),
            (_, Ok(Primitive::ExdataInd { .. })) => Some(Event::Exdata),
            (_, Ok(Primitive::DisconInd { .. })) => Some(Event::Disconnect),
            (_, Ok(Primitive::UderrorInd { .. })) => Some(Event::Uderr),
            (_, Ok(Primitive::OrdrelInd)) => Some(Event::Ordrel),
            _ => None,
        };
        self.stream.head_q().peek(0, event).flatten()
    }

    /// Binds the endpoint to an address, any if none is given; `qlen` connections may ask at one
    /// time. Answers the address and the number that it has.
    ///
    /// # Errors
    /// TOUTSTATE; what the provider says, such as TBADADDR, TNOADDR, TACCES.
    pub fn bind(&self, cx: &Kernel, addr: Option<&[u8]>, qlen: u32) -> Answer<(Vec<u8>, u32)> {
        self.may(UserEvent::Bind)?;
        let addr = addr.unwrap_or_default();
        let answer = self.request(cx, Primitive::BindReq { addr, conind: qlen }, None)?;
        let Ok(Primitive::BindAck { addr, conind }) = Primitive::of(&answer) else {
            return Err(system(Errno::EPROTO));
        };
        self.step(UserEvent::Bind)?;
        Ok((addr.into(), conind))
    }

    /// Undoes a bind.
    ///
    /// # Errors
    /// TOUTSTATE; TLOOK if an event waits; what the provider says.
    pub fn unbind(&self, cx: &Kernel) -> Answer<()> {
        self.may(UserEvent::Unbind)?;
        if self.look().is_some() {
            return Err(TliError::TLOOK.into());
        }
        self.request(cx, Primitive::UnbindReq, None)?;
        self.rest.replace(None);
        self.step(UserEvent::Unbind)
    }

    /// Asks the provider about options; answers those that hold.
    ///
    /// # Errors
    /// TOUTSTATE; what the provider says, such as TBADOPT, TNOTSUPPORT.
    pub fn optmgmt(&self, cx: &Kernel, opt: &[u8], flags: u32) -> Answer<(Vec<u8>, u32)> {
        self.may(UserEvent::Optmgmt)?;
        let answer = self.request(cx, Primitive::OptmgmtReq { opt, flags }, None)?;
        let Ok(Primitive::OptmgmtAck { opt, flags }) = Primitive::of(&answer) else {
            return Err(system(Errno::EPROTO));
        };
        Ok((opt.into(), flags))
    }

    /// The address that the endpoint has, and its peer's.
    ///
    /// # Errors
    /// TNOTSUPPORT from a provider that does not tell; TSYSERR.
    pub fn getprotaddr(&self, cx: &Kernel) -> Answer<(Vec<u8>, Vec<u8>)> {
        let answer = self.request(cx, Primitive::AddrReq, None)?;
        match Primitive::of(&answer) {
            Ok(Primitive::AddrAck { local, remote }) => Ok((local.into(), remote.into())),
            _ => Err(system(Errno::EPROTO)),
        }
    }

    /// Closes the endpoint; a connection is broken off.
    ///
    /// # Errors
    /// TOUTSTATE if it is closed.
    pub fn close(&self, cx: &Kernel) -> Answer<()> {
        self.step(UserEvent::Closed)?;
        self.rest.replace(None);
        self.stream.close(cx);
        Ok(())
    }

    /// The next message that is no acknowledgement, if it is one that the call is for.
    fn next(&self, cx: &Kernel, events: &[Event], none: TliError) -> Answer<Mblk> {
        let mp = self.stream.getp(cx, Want::Any).map_err(|error| match error {
            Errno::EAGAIN => none.into(),
            error => system(error),
        })?;
        let head = self.stream.head_q();
        head.putbq(cx, mp);
        match self.look() {
            Some(event) if events.contains(&event) => head.getq(cx).ok_or(none.into()),
            Some(_) => Err(TliError::TLOOK.into()),
            None => {
                // None of the interface's.
                drop(head.getq(cx));
                Err(system(Errno::EPROTO))
            }
        }
    }
}
