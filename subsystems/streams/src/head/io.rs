//! `read` and `write`.

use super::{ProtoMode, ReadMode, Stream};
use crate::block::{Kind, Mblk, Priority};
use crate::errno::Errno;
use crate::module::INFINITE;
use xk_core::Kernel;

/// Largest packet that `write` makes where the module below sets no limit, in octets (STRMSGSZ's
/// role): a buffer of the kernel's pool holds it.
const PACKET_MAX: usize = 65_536;

impl Stream {
    /// Reads data, as the read options say; waits until there is some, but on a stream that is not
    /// to wait. 0 says that the stream is hung up, or that a message of nothing came.
    ///
    /// # Errors
    /// EAGAIN, EBADMSG if control of a protocol is in front, EINTR, and the error of an M_ERROR.
    pub fn read(&self, cx: &Kernel, to: &mut [u8]) -> Result<usize, Errno> {
        let mut done = 0;
        loop {
            let mp = match self.first_for_read(cx, done)? {
                Some(mp) => mp,
                None => return Ok(done),
            };
            let had = done;
            let rest = self.take_data(mp, to, &mut done);
            let is_whole = rest.is_none();
            if let Some(rest) = rest
                && self.read_mode.get() != ReadMode::Discard
            {
                self.head.putbq(cx, rest);
            }
            let ends = self.read_mode.get() != ReadMode::Stream || had == done || !is_whole;
            if ends || done == to.len() {
                return Ok(done);
            }
        }
    }

    /// The message that a read goes on with: none if it has some, or the stream is hung up.
    fn first_for_read(&self, cx: &Kernel, done: usize) -> Result<Option<Mblk>, Errno> {
        self.tell_read()?;
        if done == 0 {
            self.wait_for(cx, &self.readers, None, || {
                let is_over = self.is_hung_up.get() || self.check_read().is_err();
                (self.head.qsize() > 0 || is_over).then_some(())
            })?;
            self.tell_read()?;
        }
        let may_be = |mp: &Mblk| match mp.kind() {
            // A message of nothing is left for the next read.
            Kind::Data => done == 0 || mp.size() > 0,
            Kind::Proto | Kind::PcProto => self.proto_mode.get() != ProtoMode::Fail,
            _ => false,
        };
        match self.head.peek(0, |mp| (may_be(mp), mp.kind() == Kind::Data)) {
            Some((true, _)) => Ok(self.head.getq(cx)),
            Some((false, false)) if done == 0 => Err(Errno::EBADMSG),
            _ => Ok(None),
        }
    }

    /// Takes the octets of a message that are data; answers the rest of it.
    fn take_data(&self, mut mp: Mblk, to: &mut [u8], done: &mut usize) -> Option<Mblk> {
        if self.proto_mode.get() == ProtoMode::Discard {
            while mp.kind() != Kind::Data {
                mp = mp.unlinkb()?;
            }
        }
        loop {
            let room = to.get_mut(*done..).unwrap_or_default();
            let n = room.len().min(mp.len());
            room[..n].copy_from_slice(&mp.octets()[..n]);
            *done += n;
            let taken = mp.skip(n);
            debug_assert!(taken, "it has as many");
            if !mp.is_empty() {
                mp.set_kind(Kind::Data);
                return Some(mp);
            }
            mp = mp.unlinkb()?;
        }
    }

    /// Writes data, in packets of the size that the module below takes; waits for room, but on a
    /// stream that is not to wait, where it answers how much was sent.
    ///
    /// # Errors
    /// EAGAIN if nothing could be sent; ERANGE if the packets that the module takes have a least
    /// size and the data is of another; ENXIO hung up; ENOSR; the error of an M_ERROR.
    pub fn write(&self, cx: &Kernel, octets: &[u8]) -> Result<usize, Errno> {
        self.tell_write()?;
        let below = self.head.write_side().next().ok_or(Errno::ENXIO)?;
        let (min, max) = (below.min_packet() as usize, below.max_packet());
        let max = if max == INFINITE { PACKET_MAX } else { (max as usize).min(PACKET_MAX) };
        if min > 0 && (octets.len() < min || octets.len() > max) || max == 0 {
            return Err(Errno::ERANGE);
        }
        if octets.is_empty() {
            if self.sends_zero.get() {
                self.send_packet(cx, &[])?;
            }
            return Ok(0);
        }
        let mut done = 0;
        for packet in octets.chunks(max) {
            match self.send_packet(cx, packet) {
                Ok(()) => done += packet.len(),
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(done)
    }

    fn send_packet(&self, cx: &Kernel, packet: &[u8]) -> Result<(), Errno> {
        self.wait_for_room(cx, 0)?;
        let headroom = usize::from(self.write_offset.get());
        let mp = self.blocks().copy(Kind::Data, headroom, packet).ok_or(Errno::ENOSR)?;
        self.head.write_side().putnext(cx, mp);
        Ok(())
    }

    /// Waits until a message of this band may go down.
    pub(super) fn wait_for_room(&self, cx: &Kernel, band: u8) -> Result<(), Errno> {
        let write = self.head.write_side();
        if write.bcanputnext(band) {
            return Ok(());
        }
        self.wait_for(cx, &self.writers, None, || {
            (write.bcanputnext(band) || self.check_write().is_err()).then_some(())
        })?;
        self.tell_write()
    }

    /// A block with room for so many octets for this user to fill and send.
    pub fn allocb(&self, size: usize) -> Result<Mblk, Errno> {
        self.blocks().allocb(size, Priority::Low).ok_or(Errno::ENOSR)
    }
}
