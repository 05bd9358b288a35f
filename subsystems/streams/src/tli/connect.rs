//! Connections.

use super::data::take;
use super::{Answer, Endpoint, Event, T_EXPEDITED, T_MORE, UserEvent, system};
use crate::block::{Kind, Mblk};
use crate::errno::Errno;
use crate::tpi::{NO_SIZE, Primitive, Refusal, Service, TliError, UNLIMITED};
use alloc::vec::Vec;
use xk_core::Kernel;

/// A connection that is asked for or confirmed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Call {
    /// The other end.
    pub addr: Vec<u8>,
    /// Options.
    pub opt: Vec<u8>,
    /// Data that came with it.
    pub data: Vec<u8>,
    /// Number among calls that wait for an answer.
    pub sequence: u32,
}

/// End of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disconnect {
    /// Data that came with it.
    pub data: Vec<u8>,
    /// The provider's number.
    pub reason: u32,
    /// Number of the indication that is taken back.
    pub sequence: u32,
}

/// No indication is meant.
const NO_SEQUENCE: u32 = u32::MAX;

impl Endpoint {
    fn data_of(&self, data: &[u8], max: u32) -> Answer<Option<Mblk>> {
        match (data.is_empty(), max) {
            (true, _) => Ok(None),
            (false, NO_SIZE) => Err(TliError::TBADDATA.into()),
            (false, max) if max != UNLIMITED && data.len() > max as usize => {
                Err(TliError::TBADDATA.into())
            }
            _ => self.block(data).map(Some),
        }
    }

    /// Asks for a connection and waits for the peer's answer; on a stream that is not to wait it
    /// fails with TNODATA, and [`rcvconnect`](Self::rcvconnect) takes the answer.
    ///
    /// # Errors
    /// TOUTSTATE; TNOTSUPPORT; TNODATA; TLOOK if the peer refuses; what the provider says.
    pub fn connect(&self, cx: &Kernel, addr: &[u8], opt: &[u8], data: &[u8]) -> Answer<Call> {
        self.is_of_connections()?;
        self.may(UserEvent::Connect2)?;
        let data = self.data_of(data, self.info.get().connect)?;
        self.request(cx, Primitive::ConnReq { dest: addr, opt }, data)?;
        self.step(UserEvent::Connect2)?;
        self.rcvconnect(cx)
    }

    /// Takes the confirmation of a connection.
    ///
    /// # Errors
    /// TOUTSTATE; TNOTSUPPORT; TNODATA; TLOOK if the peer refuses.
    pub fn rcvconnect(&self, cx: &Kernel) -> Answer<Call> {
        self.is_of_connections()?;
        self.may(UserEvent::Rcvconnect)?;
        let mut mp = self.next(cx, &[Event::Connect], TliError::TNODATA)?;
        let data = mp.unlinkb().map(|data| data.to_vec()).unwrap_or_default();
        let Ok(Primitive::ConnCon { res, opt }) = Primitive::of(&mp) else {
            return Err(system(Errno::EPROTO));
        };
        self.step(UserEvent::Rcvconnect)?;
        Ok(Call { addr: res.into(), opt: opt.into(), data, sequence: 0 })
    }

    /// Takes what a peer asks for.
    ///
    /// # Errors
    /// TOUTSTATE; TNOTSUPPORT; TNODATA; TLOOK if another event is first.
    pub fn listen(&self, cx: &Kernel) -> Answer<Call> {
        self.is_of_connections()?;
        self.may(UserEvent::Listen)?;
        let mut mp = self.next(cx, &[Event::Listen], TliError::TNODATA)?;
        let data = mp.unlinkb().map(|data| data.to_vec()).unwrap_or_default();
        let Ok(Primitive::ConnInd { src, opt, seq }) = Primitive::of(&mp) else {
            return Err(system(Errno::EPROTO));
        };
        self.step(UserEvent::Listen)?;
        self.outcnt.set(self.outcnt.get() + 1);
        Ok(Call { addr: src.into(), opt: opt.into(), data, sequence: seq })
    }

    /// Accepts a connection on another endpoint, or on this one if none else waits.
    ///
    /// # Errors
    /// TOUTSTATE; TBADF for this endpoint if others wait; TLOOK if an event waits here; TBADSEQ and
    /// what else the provider says.
    pub fn accept(&self, cx: &Kernel, on: &Endpoint, call: &Call) -> Answer<()> {
        self.is_of_connections()?;
        self.may(UserEvent::Accept3)?;
        let is_here = core::ptr::eq(self, on);
        let event = match (is_here, self.outcnt.get()) {
            (true, 1) => UserEvent::Accept1,
            (true, _) => return Err(TliError::TBADF.into()),
            (false, 1) => UserEvent::Accept2,
            (false, _) => UserEvent::Accept3,
        };
        self.may(event)?;
        if !is_here {
            on.may(UserEvent::PassConn)?;
        }
        if self.look().is_some() {
            return Err(TliError::TLOOK.into());
        }
        let data = self.data_of(&call.data, self.info.get().connect)?;
        let (acceptor, seq) = (on.stream.token(), call.sequence);
        self.request(cx, Primitive::ConnRes { acceptor, opt: &call.opt, seq }, data)?;
        self.outcnt.set(self.outcnt.get() - 1);
        self.step(event)?;
        if is_here { Ok(()) } else { on.step(UserEvent::PassConn) }
    }

    /// Sends data: with [`T_MORE`] the unit goes on in the next call, with [`T_EXPEDITED`] it is
    /// expedited. Answers how much was taken.
    ///
    /// # Errors
    /// TOUTSTATE; TNOTSUPPORT; TBADFLAG; TBADDATA; TFLOW; TLOOK if the connection has ended.
    pub fn snd(&self, cx: &Kernel, data: &[u8], flags: u32) -> Answer<usize> {
        self.is_of_connections()?;
        self.may(UserEvent::Snd)?;
        let info = self.info.get();
        let is_expedited = flags & T_EXPEDITED != 0;
        let max = if is_expedited { info.etsdu } else { info.tsdu };
        if flags & !(T_MORE | T_EXPEDITED) != 0 {
            return Err(TliError::TBADFLAG.into());
        }
        if is_expedited && max == NO_SIZE {
            return Err(TliError::TNOTSUPPORT.into());
        }
        let is_long = max != UNLIMITED && max != NO_SIZE && max != 0 && data.len() > max as usize;
        if is_long || data.is_empty() && info.flags & 1 == 0 {
            return Err(TliError::TBADDATA.into());
        }
        if self.look() == Some(Event::Disconnect) {
            return Err(TliError::TLOOK.into());
        }
        let part = if info.tidu == UNLIMITED { 65_536 } else { (info.tidu as usize).max(1) };
        let mut parts = data.chunks(part).peekable();
        let mut done = 0;
        loop {
            let octets = parts.next().unwrap_or_default();
            let more = flags & T_MORE != 0 || parts.peek().is_some();
            let primitive = match is_expedited {
                true => Primitive::ExdataReq { more },
                false => Primitive::DataReq { more },
            };
            match self.block(octets).and_then(|block| self.send(cx, primitive, Some(block))) {
                Ok(()) => done += octets.len(),
                Err(error) if done == 0 => return Err(error),
                Err(_) => return Ok(done),
            }
            if parts.peek().is_none() {
                return Ok(done);
            }
        }
    }

    /// Takes data of a unit, at most `max` octets, and the flags: [`T_MORE`] if more of the unit
    /// is left or to come, [`T_EXPEDITED`].
    ///
    /// # Errors
    /// TOUTSTATE; TNOTSUPPORT; TNODATA; TLOOK if the connection has ended or the peer released.
    pub fn rcv(&self, cx: &Kernel, max: usize) -> Answer<(Vec<u8>, u32)> {
        self.is_of_connections()?;
        self.may(UserEvent::Rcv)?;
        let rest = self.rest.take();
        let (data, mut flags) = match rest {
            Some((rest, flags)) => (Some(rest), flags),
            None => {
                let mp = self.next(cx, &[Event::Data, Event::Exdata], TliError::TNODATA)?;
                let of = match Primitive::of(&mp) {
                    _ if mp.kind() == Kind::Data => None,
                    Ok(Primitive::DataInd { more }) => Some((more, 0)),
                    Ok(Primitive::ExdataInd { more }) => Some((more, T_EXPEDITED)),
                    _ => return Err(system(Errno::EPROTO)),
                };
                match of {
                    None => (Some(mp), 0),
                    Some((more, flag)) => {
                        let mut mp = mp;
                        (mp.unlinkb(), flag | if more { T_MORE } else { 0 })
                    }
                }
            }
        };
        let mut octets = Vec::new();
        if let Some(rest) = data.and_then(|data| take(data, max, &mut octets)) {
            self.rest.replace(Some((rest, flags)));
            flags |= T_MORE;
        }
        Ok((octets, flags))
    }

    /// Breaks a connection off, or refuses the one that `call` is for.
    ///
    /// # Errors
    /// TOUTSTATE; TNOTSUPPORT; TBADDATA; what the provider says, such as TBADSEQ.
    pub fn snddis(&self, cx: &Kernel, call: Option<&Call>, data: &[u8]) -> Answer<()> {
        self.is_of_connections()?;
        let event = match self.outcnt.get() {
            0 | 1 => UserEvent::Snddis1,
            _ => UserEvent::Snddis2,
        };
        self.may(event)?;
        let data = self.data_of(data, self.info.get().disconnect)?;
        let seq = match (self.outcnt.get(), call) {
            (0, _) => NO_SEQUENCE,
            (_, Some(call)) => call.sequence,
            (_, None) => return Err(TliError::TBADSEQ.into()),
        };
        self.rest.replace(None);
        self.request(cx, Primitive::DisconReq { seq }, data)?;
        self.outcnt.set(self.outcnt.get().saturating_sub(1));
        self.step(event)
    }

    /// Takes the end of a connection.
    ///
    /// # Errors
    /// TOUTSTATE; TNOTSUPPORT; TNODIS if none waits.
    pub fn rcvdis(&self, cx: &Kernel) -> Answer<Disconnect> {
        self.is_of_connections()?;
        let event = match self.outcnt.get() {
            0 => UserEvent::Rcvdis1,
            1 => UserEvent::Rcvdis2,
            _ => UserEvent::Rcvdis3,
        };
        self.may(event)?;
        self.rest.replace(None);
        let none: Refusal = TliError::TNODIS.into();
        if self.look() != Some(Event::Disconnect) {
            return Err(none);
        }
        let mut mp = self.stream.head_q().getq(cx).ok_or(none)?;
        let data = mp.unlinkb().map(|data| data.to_vec()).unwrap_or_default();
        let Ok(Primitive::DisconInd { reason, seq }) = Primitive::of(&mp) else {
            return Err(none);
        };
        self.outcnt.set(self.outcnt.get().saturating_sub(1));
        self.step(event)?;
        Ok(Disconnect { data, reason, sequence: seq })
    }

    /// Says that this end sends no more.
    ///
    /// # Errors
    /// TOUTSTATE; TNOTSUPPORT; TFLOW; TLOOK if the connection has ended.
    pub fn sndrel(&self, cx: &Kernel) -> Answer<()> {
        self.is_of(&[Service::CotsOrd])?;
        self.may(UserEvent::Sndrel)?;
        if self.look() == Some(Event::Disconnect) {
            return Err(TliError::TLOOK.into());
        }
        self.send(cx, Primitive::OrdrelReq, None)?;
        self.step(UserEvent::Sndrel)
    }

    /// Takes that the peer sends no more.
    ///
    /// # Errors
    /// TOUTSTATE; TNOTSUPPORT; TNOREL if it has not said so; TLOOK if the connection has ended.
    pub fn rcvrel(&self, cx: &Kernel) -> Answer<()> {
        self.is_of(&[Service::CotsOrd])?;
        self.may(UserEvent::Rcvrel)?;
        match self.look() {
            Some(Event::Ordrel) => {
                drop(self.stream.head_q().getq(cx));
                self.step(UserEvent::Rcvrel)
            }
            Some(Event::Disconnect) => Err(TliError::TLOOK.into()),
            _ => Err(TliError::TNOREL.into()),
        }
    }
}
