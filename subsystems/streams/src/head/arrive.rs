//! Messages that come up to the head.

use super::{ProtoMode, ReadMode, Stream};
use crate::block::{Kind, Mblk};
use crate::errno::Errno;
use crate::queue::{FLUSHBAND, FLUSHR, FLUSHRW, FLUSHW, What};
use xk_core::Kernel;

/// M_ERROR: this side's error stays as it is.
const NO_ERROR: u8 = 0xff;

/// M_SETOPTS: what is to be set (`so_flags`).
mod so {
    pub(super) const READOPT: u32 = 0x0001;
    pub(super) const WROFF: u32 = 0x0002;
    pub(super) const MINPSZ: u32 = 0x0004;
    pub(super) const MAXPSZ: u32 = 0x0008;
    pub(super) const HIWAT: u32 = 0x0010;
    pub(super) const LOWAT: u32 = 0x0020;
    pub(super) const NDELON: u32 = 0x0100;
    pub(super) const NDELOFF: u32 = 0x0200;
    pub(super) const BAND: u32 = 0x4000;
}

/// Octets of the options in M_SETOPTS: flags 4, read options 2, write offset 2, four sizes of 4,
/// band 1.
const SETOPTS_OCTETS: usize = 25;

impl Stream {
    /// Takes a message from below.
    pub(super) fn arrive(&self, cx: &Kernel, mp: Mblk) {
        match mp.kind() {
            Kind::Data | Kind::Proto | Kind::PassFp => self.arrive_data(cx, mp),
            Kind::PcProto => self.arrive_control(cx, mp),
            Kind::IocAck | Kind::IocNak | Kind::CopyIn | Kind::CopyOut => {
                self.arrive_answer(cx, mp)
            }
            Kind::Flush => self.arrive_flush(cx, mp),
            Kind::Error => self.arrive_error(cx, &mp),
            Kind::Hangup => {
                self.is_hung_up.set(true);
                self.wake_all(cx);
                self.signals.tell_hangup(cx);
            }
            Kind::SetOpts => self.set_options(cx, &mp),
            Kind::Sig | Kind::PcSig => {
                self.signals.tell_signal(cx, mp.octets().first().copied().unwrap_or(0));
            }
            // The others are for drivers alone: a head frees them.
            _ => self.core.count_loss(mp),
        }
    }

    fn wake_all(&self, cx: &Kernel) {
        for sleep in [&self.readers, &self.writers, &self.ioctls] {
            sleep.wake_all(cx);
        }
    }

    fn arrive_data(&self, cx: &Kernel, mp: Mblk) {
        let (band, kind) = (mp.band, mp.kind());
        self.head.putq(cx, mp);
        self.readers.wake_all(cx);
        self.signals.tell_input(cx, band, kind);
    }

    /// A head keeps one message of high priority at a time: a second one is freed.
    fn arrive_control(&self, cx: &Kernel, mp: Mblk) {
        if self.head.peek(0, Mblk::kind).is_some_and(Kind::is_high) {
            return self.core.count_loss(mp);
        }
        self.head.putq(cx, mp);
        self.readers.wake_all(cx);
        self.signals.tell_high(cx);
    }

    fn arrive_flush(&self, cx: &Kernel, mut mp: Mblk) {
        let bits = mp.octets().first().copied().unwrap_or(0);
        if bits & FLUSHR != 0 && (bits & FLUSHBAND == 0 || mp.octets().get(1) == Some(&0)) {
            self.drop_passed(cx);
        }
        let (_, writes) = self.head.flush_pair(cx, &mp, What::All);
        self.writers.wake_all(cx);
        let bits = mp.octets_mut().and_then(|octets| octets.first_mut());
        if writes && let Some(bits) = bits {
            // It goes round once: the read side is flushed already.
            *bits &= !FLUSHR;
            self.head.write_side().putnext(cx, mp);
        }
    }

    fn arrive_error(&self, cx: &Kernel, mp: &Mblk) {
        let octets = mp.octets();
        let Some(first) = octets.first().copied() else { return };
        let second = octets.get(1).copied().unwrap_or(first);
        for (side, code) in [(&self.read_error, first), (&self.write_error, second)] {
            match code {
                NO_ERROR => {}
                0 => side.set(None),
                code => side.set(Some(Errno(u32::from(code)))),
            }
        }
        self.flush_head(cx, true, true, What::All);
        if self.read_error.get().is_some() || self.write_error.get().is_some() {
            self.send_flush(cx, FLUSHRW, None);
        }
        self.wake_all(cx);
        self.signals.tell_error(cx);
    }

    /// Sends M_FLUSH down; false if the pool is exhausted.
    pub(super) fn send_flush(&self, cx: &Kernel, bits: u8, band: Option<u8>) -> bool {
        debug_assert!(bits & (FLUSHR | FLUSHW) != 0);
        let octets: &[u8] = match band {
            Some(band) => &[bits | FLUSHBAND, band],
            None => &[bits],
        };
        let Some(mp) = self.blocks().copy(Kind::Flush, 0, octets) else { return false };
        self.head.write_side().putnext(cx, mp);
        true
    }

    fn set_options(&self, cx: &Kernel, mp: &Mblk) {
        let Some(octets) = mp.octets().first_chunk::<SETOPTS_OCTETS>() else { return };
        let long = |at: usize| {
            let word = octets.get(at..at + 4).and_then(|word| word.first_chunk());
            word.map_or(0, |word| u32::from_le_bytes(*word))
        };
        let flags = long(0);
        let given = |flag: u32, at: usize| (flags & flag != 0).then(|| long(at));
        if flags & so::READOPT != 0 {
            // What does not do is left as it is.
            let _ = self.set_read_options(u32::from(u16::from_le_bytes([octets[4], octets[5]])));
        }
        if flags & so::WROFF != 0 {
            self.write_offset.set(u16::from_le_bytes([octets[6], octets[7]]));
        }
        self.head.set_packets(given(so::MINPSZ, 8), given(so::MAXPSZ, 12));
        let band = if flags & so::BAND != 0 { octets[24] } else { 0 };
        self.head.set_band_marks(band, given(so::HIWAT, 16), given(so::LOWAT, 20));
        if flags & so::NDELON != 0 {
            self.is_nonblocking.set(true);
        }
        if flags & so::NDELOFF != 0 {
            self.is_nonblocking.set(false);
        }
        self.writers.wake_all(cx);
    }

    /// Sets the read options (`I_SRDOPT`): RNORM 0, RMSGD 1, RMSGN 2, and RPROTDAT 4, RPROTDIS 8,
    /// RPROTNORM 16.
    ///
    /// # Errors
    /// EINVAL for other numbers, or two that exclude each other.
    pub fn set_read_options(&self, options: u32) -> Result<(), Errno> {
        let read = match options & 3 {
            0 => ReadMode::Stream,
            1 => ReadMode::Discard,
            2 => ReadMode::Keep,
            _ => return Err(Errno::EINVAL),
        };
        let proto = match options & !3 {
            0 => self.proto_mode.get(),
            4 => ProtoMode::Data,
            8 => ProtoMode::Discard,
            16 => ProtoMode::Fail,
            _ => return Err(Errno::EINVAL),
        };
        self.read_mode.set(read);
        self.proto_mode.set(proto);
        Ok(())
    }

    /// The read options (`I_GRDOPT`), as numbers of [`set_read_options`](Self::set_read_options).
    pub fn read_options(&self) -> u32 {
        let read = match self.read_mode.get() {
            ReadMode::Stream => 0,
            ReadMode::Discard => 1,
            ReadMode::Keep => 2,
        };
        read | match self.proto_mode.get() {
            ProtoMode::Data => 4,
            ProtoMode::Discard => 8,
            ProtoMode::Fail => 16,
        }
    }
}
