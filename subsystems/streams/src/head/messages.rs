//! `getmsg`, `putmsg`, `I_PEEK` and `I_FDINSERT`.

use super::Stream;
use crate::block::{Kind, Mblk};
use crate::errno::Errno;
use crate::module::INFINITE;
use alloc::vec::Vec;
use xk_core::Kernel;

/// More of the control part is left.
pub const MORECTL: u8 = 1;
/// More of the data part is left.
pub const MOREDATA: u8 = 2;

/// Selects a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Want {
    /// The first, whatever it is (MSG_ANY).
    #[default]
    Any,
    /// One of high priority (RS_HIPRI, MSG_HIPRI).
    High,
    /// The first if it is of high priority or of this band or a higher one (MSG_BAND).
    Band(u8),
}

/// Result of `getmsg`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Got {
    /// The control part; none if the message has none, or it was not asked for.
    pub control: Option<Vec<u8>>,
    /// The data part; none if the message has none, or it was not asked for.
    pub data: Option<Vec<u8>>,
    /// [`MORECTL`] and [`MOREDATA`], if parts of the message are left for the next call.
    pub more: u8,
    /// Whether it was of high priority.
    pub is_high: bool,
    /// Band of the message.
    pub band: u8,
}

impl Stream {
    /// Takes the first message whole, as it is; waits for it.
    ///
    /// # Errors
    /// EAGAIN on a stream that is not to wait; ENXIO hung up and nothing left; EINTR, and the error
    /// of an M_ERROR.
    pub fn getp(&self, cx: &Kernel, want: Want) -> Result<Mblk, Errno> {
        self.tell_read()?;
        self.wait_for(cx, &self.readers, None, || {
            let is_over = self.is_hung_up.get() || self.check_read().is_err();
            (self.is_there(want) || is_over).then_some(())
        })?;
        self.tell_read()?;
        if !self.is_there(want) {
            return Err(Errno::ENXIO);
        }
        self.head.getq(cx).ok_or(Errno::EAGAIN)
    }

    fn is_there(&self, want: Want) -> bool {
        let fits = |mp: &Mblk| match want {
            Want::Any => true,
            Want::High => mp.kind().is_high(),
            Want::Band(band) => mp.kind().is_high() || mp.band >= band,
        };
        self.head.peek(0, fits).unwrap_or(false)
    }

    /// Takes the first message, or the parts of it that are asked for with so many octets at most
    /// (`getmsg`, `getpmsg`); what is left stays in front. A hung-up stream with nothing left gives
    /// parts of no octets.
    ///
    /// # Errors
    /// As of [`getp`](Self::getp); EBADMSG for a passed file.
    pub fn getmsg(
        &self,
        cx: &Kernel,
        control_max: Option<usize>,
        data_max: Option<usize>,
        want: Want,
    ) -> Result<Got, Errno> {
        let mp = match self.getp(cx, want) {
            Err(Errno::ENXIO) if self.is_hung_up.get() => {
                let empty = |max: Option<usize>| max.map(|_| Vec::new());
                let (control, data) = (empty(control_max), empty(data_max));
                return Ok(Got { control, data, ..Got::default() });
            }
            found => found?,
        };
        if mp.kind() == Kind::PassFp {
            self.head.putbq(cx, mp);
            return Err(Errno::EBADMSG);
        }
        let (got, rest) = take_parts(mp, control_max, data_max);
        if let Some(rest) = rest {
            self.head.putbq(cx, rest);
        }
        Ok(got)
    }

    /// Returns what `getmsg` would find, if a message is there; the message stays (`I_PEEK`).
    ///
    /// # Errors
    /// As for all ioctls; ENOSR without blocks to look at it.
    pub fn peek(
        &self,
        control_max: Option<usize>,
        data_max: Option<usize>,
        want: Want,
    ) -> Result<Option<Got>, Errno> {
        self.tell_read()?;
        if !self.is_there(want) {
            return Ok(None);
        }
        let copy = self.head.peek(0, Mblk::dupmsg).flatten().ok_or(Errno::ENOSR)?;
        Ok(Some(take_parts(copy, control_max, data_max).0))
    }

    /// Sends a message as it is; waits for room in its band, unless it is of high priority.
    ///
    /// # Errors
    /// EAGAIN on a stream that is not to wait; ENXIO hung up; EINTR, and the error of an M_ERROR.
    pub fn putp(&self, cx: &Kernel, mp: Mblk) -> Result<(), Errno> {
        self.tell_write()?;
        if !mp.kind().is_high() {
            self.wait_for_room(cx, mp.band)?;
        }
        self.head.write_side().putnext(cx, mp);
        Ok(())
    }

    /// Sends a message of a control part, a data part or both (`putmsg`, `putpmsg`); with neither
    /// it sends nothing.
    ///
    /// # Errors
    /// EINVAL for one of high priority without a control part, or in a band; ERANGE if the module
    /// below does not take so much data; ENOSR without blocks; otherwise as [`putp`](Self::putp).
    pub fn putmsg(
        &self,
        cx: &Kernel,
        control: Option<&[u8]>,
        data: Option<&[u8]>,
        (is_high, band): (bool, u8),
    ) -> Result<(), Errno> {
        self.tell_write()?;
        if is_high && (control.is_none() || band != 0) {
            return Err(Errno::EINVAL);
        }
        if let Some(data) = data {
            let below = self.head.write_side().next().ok_or(Errno::ENXIO)?;
            let (min, max) = (below.min_packet(), below.max_packet());
            let fits = max == INFINITE || data.len() <= max as usize;
            if !fits || data.len() < min as usize {
                return Err(Errno::ERANGE);
            }
        }
        let kind = if is_high { Kind::PcProto } else { Kind::Proto };
        let blocks = self.blocks();
        let front = control.map(|octets| blocks.copy(kind, 0, octets).ok_or(Errno::ENOSR));
        let headroom = usize::from(self.write_offset.get());
        let behind =
            data.map(|octets| blocks.copy(Kind::Data, headroom, octets).ok_or(Errno::ENOSR));
        let mut mp = match (front.transpose()?, behind.transpose()?) {
            (Some(front), Some(behind)) => front.linked(behind),
            (Some(one), None) | (None, Some(one)) => one,
            (None, None) => return Ok(()),
        };
        mp.band = band;
        self.putp(cx, mp)
    }

    /// Sends a message with the number of another stream's read queue in its control part
    /// (`I_FDINSERT`), four octets at `offset`, for a provider to find by
    /// [`stream_of`](crate::Streams::stream_of).
    ///
    /// # Errors
    /// EINVAL if the number does not lie in the control part; otherwise as
    /// [`putmsg`](Self::putmsg).
    pub fn fdinsert(
        &self,
        cx: &Kernel,
        control: &[u8],
        offset: usize,
        data: Option<&[u8]>,
        other: &Stream,
    ) -> Result<(), Errno> {
        let mut control = control.to_vec();
        let room = offset.checked_add(4).and_then(|end| control.get_mut(offset..end));
        let room = room.filter(|_| offset.is_multiple_of(4)).ok_or(Errno::EINVAL)?;
        room.copy_from_slice(&other.token().to_le_bytes());
        self.putmsg(cx, Some(&control), data, (false, 0))
    }

    /// The number of this stream in control parts.
    pub fn token(&self) -> u32 {
        self.token
    }
}

/// Takes so many octets of the parts that are asked for; answers what is left.
fn take_parts(
    mp: Mblk,
    control_max: Option<usize>,
    data_max: Option<usize>,
) -> (Got, Option<Mblk>) {
    let mut got = Got { is_high: mp.kind().is_high(), band: mp.band, ..Got::default() };
    let (kind, band, flag) = (mp.kind(), mp.band, mp.flag);
    let (mut control, mut data) = (None, None);
    let mut rest = Some(mp);
    while let Some(mut block) = rest {
        rest = block.unlinkb();
        let part = if block.kind() == Kind::Data { &mut data } else { &mut control };
        match part {
            None => *part = Some(block),
            Some(part) => Mblk::linkb(part, block),
        }
    }
    got.control = take_part(&mut control, control_max);
    got.data = take_part(&mut data, data_max);
    if control.is_some() {
        got.more |= MORECTL;
    }
    if data.is_some() {
        got.more |= MOREDATA;
    }
    let rest = match (control, data) {
        (Some(control), Some(data)) => Some(control.linked(data)),
        (one, None) => one,
        (None, data) => {
            // What is left is data, of no high priority.
            data
        }
    };
    let rest = rest.map(|mut rest| {
        (rest.band, rest.flag) = (if kind.is_high() { 0 } else { band }, flag);
        rest
    });
    (got, rest)
}

/// Takes at most `max` octets of a part; what is left stays in it. One not asked for stays whole.
fn take_part(part: &mut Option<Mblk>, max: Option<usize>) -> Option<Vec<u8>> {
    let (max, mut block) = (max?, part.take()?);
    let mut taken = Vec::new();
    loop {
        let n = block.len().min(max - taken.len());
        taken.extend_from_slice(&block.octets()[..n]);
        let skipped = block.skip(n);
        debug_assert!(skipped, "it has as many");
        if !block.is_empty() {
            *part = Some(block);
            break;
        }
        let Some(next) = block.unlinkb() else { break };
        block = next;
    }
    Some(taken)
}
