//! Datagrams.

use super::{Answer, Endpoint, Event, T_MORE, UserEvent, system};
use crate::block::Mblk;
use crate::errno::Errno;
use crate::tpi::{Primitive, Service, TliError, UNLIMITED};
use alloc::vec::Vec;
use xk_core::Kernel;

/// Octets that a call takes of each part (`maxlen`).
#[derive(Clone, Copy, Debug)]
pub struct Maxima {
    /// Octets of an address.
    pub addr: usize,
    /// Octets of options.
    pub opt: usize,
    /// Octets of data.
    pub data: usize,
}

impl Maxima {
    /// As much as there is.
    pub const ALL: Self = Self { addr: usize::MAX, opt: usize::MAX, data: usize::MAX };
}

/// A unit of data that has come, or a part of one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unit {
    /// Source; of no octets in a later part.
    pub addr: Vec<u8>,
    /// Options; of no octets in a later part.
    pub opt: Vec<u8>,
    /// The data.
    pub data: Vec<u8>,
    /// [`T_MORE`] if more of the unit is left.
    pub flags: u32,
}

/// Why a unit of data could not be delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// Destination.
    pub addr: Vec<u8>,
    /// Options of the datagram.
    pub opt: Vec<u8>,
    /// The provider's number.
    pub error: u32,
}

impl Endpoint {
    /// Sends a unit of data.
    ///
    /// # Errors
    /// TOUTSTATE; TNOTSUPPORT; TBADDATA for more data than the provider takes, or none where it
    /// takes no such; TFLOW; TLOOK if an error of an earlier unit waits.
    pub fn sndudata(&self, cx: &Kernel, to: &[u8], opt: &[u8], data: &[u8]) -> Answer<()> {
        let info = self.info.get();
        if info.tsdu != UNLIMITED && data.len() > info.tsdu as usize {
            return Err(TliError::TBADDATA.into());
        }
        let data = self.block(data)?;
        self.send_unit(cx, to, opt, data)
    }

    /// Sends a unit of data whose blocks are there already.
    ///
    /// # Errors
    /// As of [`sndudata`](Self::sndudata).
    pub fn send_unit(&self, cx: &Kernel, to: &[u8], opt: &[u8], data: Mblk) -> Answer<()> {
        self.is_of(&[Service::Clts])?;
        self.may(UserEvent::Sndudata)?;
        if self.look() == Some(Event::Uderr) {
            return Err(TliError::TLOOK.into());
        }
        self.send(cx, Primitive::UnitdataReq { dest: to, opt }, Some(data))
    }

    /// Takes a unit of data, or as much as is asked for: the next call gives what is left.
    ///
    /// # Errors
    /// TOUTSTATE; TNOTSUPPORT; TNODATA on a stream that is not to wait; TBUFOVFLW for a longer
    /// address or options, which drops the unit; TLOOK if an error waits.
    pub fn rcvudata(&self, cx: &Kernel, max: Maxima) -> Answer<Unit> {
        self.is_of(&[Service::Clts])?;
        self.may(UserEvent::Rcvudata)?;
        let rest = self.rest.take();
        let (mut unit, data) = match rest {
            Some((rest, _)) => (Unit::default(), Some(rest)),
            None => {
                let mut mp = self.next(cx, &[Event::Data], TliError::TNODATA)?;
                let data = mp.unlinkb();
                let Ok(Primitive::UnitdataInd { src, opt }) = Primitive::of(&mp) else {
                    return Err(system(Errno::EPROTO));
                };
                if src.len() > max.addr || opt.len() > max.opt {
                    return Err(TliError::TBUFOVFLW.into());
                }
                (Unit { addr: src.into(), opt: opt.into(), ..Unit::default() }, data)
            }
        };
        let rest = data.and_then(|data| take(data, max.data, &mut unit.data));
        if let Some(rest) = rest {
            unit.flags = T_MORE;
            self.rest.replace(Some((rest, 0)));
        }
        Ok(unit)
    }

    /// Takes the error of a unit of data that could not be delivered.
    ///
    /// # Errors
    /// TOUTSTATE; TNOTSUPPORT; TNOUDERR if none waits.
    pub fn rcvuderr(&self, cx: &Kernel) -> Answer<Error> {
        self.is_of(&[Service::Clts])?;
        self.may(UserEvent::Rcvuderr)?;
        if self.look() != Some(Event::Uderr) {
            return Err(TliError::TNOUDERR.into());
        }
        let mp = self.stream.head_q().getq(cx).ok_or(TliError::TNOUDERR)?;
        match Primitive::of(&mp) {
            Ok(Primitive::UderrorInd { dest, opt, error }) => {
                Ok(Error { addr: dest.into(), opt: opt.into(), error })
            }
            _ => Err(TliError::TNOUDERR.into()),
        }
    }
}

/// Takes at most `max` octets of a chain into `to`; answers what is left of it.
pub(super) fn take(mut block: Mblk, max: usize, to: &mut Vec<u8>) -> Option<Mblk> {
    loop {
        let n = block.len().min(max - to.len());
        to.extend_from_slice(&block.octets()[..n]);
        let skipped = block.skip(n);
        debug_assert!(skipped, "it has as many");
        if !block.is_empty() {
            return Some(block);
        }
        block = block.unlinkb()?;
    }
}
