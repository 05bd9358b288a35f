//! The ioctls of the head.

use super::Stream;
use crate::block::{Kind, Mblk};
use crate::errno::Errno;
use crate::module::NAME_MAX;
use crate::queue::{FLUSHR, FLUSHW};
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;
use xk_core::Kernel;

/// Time that `I_STR` waits for its answer, unless told otherwise.
const STR_WAIT: Duration = Duration::from_secs(15);
/// Most octets that go with `I_STR` (STRMSGSZ's role).
const STR_OCTETS_MAX: usize = 65_536;

/// A command of an ioctl: the group in the second octet, the number in the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command(pub u32);

impl Command {
    /// Command `number` of the group `S` of STREAMS itself.
    pub const fn stream(number: u8) -> Self {
        Self((b'S' as u32) << 8 | number as u32)
    }

    /// A stream is linked below this one.
    pub const LINK: Self = Self::stream(0o14);
    /// A stream below comes off.
    pub const UNLINK: Self = Self::stream(0o15);
    /// A stream is linked below this one, to stay when this one is closed.
    pub const PLINK: Self = Self::stream(0o26);
    /// One linked to stay comes off.
    pub const PUNLINK: Self = Self::stream(0o27);
}

/// The head of an M_IOCTL, M_IOCACK or M_IOCNAK (`iocblk`): five words, least octet first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Info {
    /// Command of the request.
    pub command: Command,
    /// The number of the request.
    pub id: u32,
    /// Octets of the data behind it.
    pub count: u32,
    /// Why it is refused.
    pub error: Errno,
    /// Value that the call returns.
    pub value: u32,
}

/// Octets of an `iocblk`.
const INFO_OCTETS: usize = 20;

impl Info {
    /// Reads this M_IOCTL, or an answer to one.
    pub fn of(mp: &Mblk) -> Option<Self> {
        let octets = mp.octets().first_chunk::<INFO_OCTETS>()?;
        let word = |at: usize| {
            u32::from_le_bytes([octets[at], octets[at + 1], octets[at + 2], octets[at + 3]])
        };
        Some(Self {
            command: Command(word(0)),
            id: word(4),
            count: word(8),
            error: Errno(word(12)),
            value: word(16),
        })
    }

    fn octets(&self) -> [u8; INFO_OCTETS] {
        let words = [self.command.0, self.id, self.count, self.error.0, self.value];
        let mut octets = [0; INFO_OCTETS];
        for (to, word) in octets.chunks_exact_mut(4).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        octets
    }

    /// Writes it over that of a message; false if the message has none, or a duplicate sees it.
    #[must_use]
    pub fn write_to(&self, mp: &mut Mblk) -> bool {
        let room = mp.octets_mut().and_then(|octets| octets.first_chunk_mut::<INFO_OCTETS>());
        room.map(|room| *room = self.octets()).is_some()
    }
}

/// Turns an M_IOCTL into the answer that it was done, with what the call answers; data behind it
/// goes to the user.
#[must_use]
pub fn acked(mut mp: Mblk, value: u32) -> Mblk {
    if let Some(info) = Info::of(&mp) {
        let count = mp.cont().map_or(0, Mblk::size) as u32;
        let _ = Info { count, value, error: Errno(0), ..info }.write_to(&mut mp);
    }
    mp.of_kind(Kind::IocAck)
}

/// Turns an M_IOCTL into the answer that it is refused.
#[must_use]
pub fn naked(mut mp: Mblk, error: Errno) -> Mblk {
    if let Some(info) = Info::of(&mp) {
        let _ = Info { error, ..info }.write_to(&mut mp);
    }
    mp.of_kind(Kind::IocNak)
}

/// A request that waits for its answer.
pub(super) struct Pending {
    id: u32,
    is_transparent: bool,
    answer: Option<Mblk>,
}

/// Judges a last answer.
pub(super) fn judge(answer: Mblk) -> Result<Mblk, Errno> {
    let info = Info::of(&answer).ok_or(Errno::EPROTO)?;
    match (answer.kind(), info.error) {
        (Kind::IocAck, Errno(0)) => Ok(answer),
        (_, Errno(0)) => Err(Errno::EINVAL),
        (_, error) => Err(error),
    }
}

impl Stream {
    /// An answer to a request came up, or a question about the memory of one that is transparent.
    pub(super) fn arrive_answer(&self, cx: &Kernel, mp: Mblk) {
        let id = Info::of(&mp).map(|info| info.id);
        let is_question = matches!(mp.kind(), Kind::CopyIn | Kind::CopyOut);
        let mut pending = self.ioctl.borrow_mut();
        match pending.as_mut().filter(|pending| Some(pending.id) == id) {
            Some(pending) if pending.answer.is_none() => {
                // `I_STR` brings all that it has: there is no memory to ask for.
                let is_refused = is_question && !pending.is_transparent;
                pending.answer = Some(if is_refused { naked(mp, Errno::EINVAL) } else { mp });
            }
            // None waits for it any more.
            _ => {
                drop(pending);
                return if is_question {
                    self.respond(cx, mp, Errno::EINTR, None);
                } else {
                    self.core.count_loss(mp);
                };
            }
        }
        drop(pending);
        self.ioctls.wake_all(cx);
    }

    /// Sends a request down and waits for its answer; one at a time.
    fn request(
        &self,
        cx: &Kernel,
        command: Command,
        data: &[u8],
        limit: Duration,
    ) -> Result<Mblk, Errno> {
        self.begin(cx, command, data.len() as u32, data)?;
        let answer = self.answer(cx, limit);
        self.end(cx);
        judge(answer?)
    }

    /// Sends a request down when the one before has ended.
    pub(super) fn begin(
        &self,
        cx: &Kernel,
        command: Command,
        count: u32,
        data: &[u8],
    ) -> Result<(), Errno> {
        // The request before must have ended; for that, one that is not to wait waits, too.
        while self.ioctl.borrow().is_some() {
            if self.core.run_queues(cx) == 0 {
                self.ioctls.wait(cx, None)?;
            }
        }
        let id = self.ioctl_last.get().wrapping_add(1);
        self.ioctl_last.set(id);
        let info = Info { command, id, count, error: Errno(0), value: 0 };
        let blocks = self.blocks();
        let front = blocks.copy(Kind::Ioctl, 0, &info.octets());
        let behind = blocks.copy(Kind::Data, 0, data);
        let (Some(front), Some(behind)) = (front, behind) else { return Err(Errno::ENOSR) };
        let is_transparent = count == super::transparent::TRANSPARENT;
        *self.ioctl.borrow_mut() = Some(Pending { id, is_transparent, answer: None });
        self.head.write_side().putnext(cx, front.linked(behind));
        Ok(())
    }

    /// Waits for what the request is answered with.
    pub(super) fn answer(&self, cx: &Kernel, limit: Duration) -> Result<Mblk, Errno> {
        self.wait_for(cx, &self.ioctls, Some(limit), || self.answer_or_end())?
    }

    /// The request is done with: the next one may go.
    pub(super) fn end(&self, cx: &Kernel) {
        drop(self.ioctl.take());
        self.ioctls.wake_all(cx);
    }

    /// The answer to the request, or why there will be none.
    fn answer_or_end(&self) -> Option<Result<Mblk, Errno>> {
        let answer = self.ioctl.borrow_mut().as_mut().and_then(|pending| pending.answer.take());
        if let Some(answer) = answer {
            return Some(Ok(answer));
        }
        if self.is_hung_up.get() {
            return Some(Err(Errno::ENXIO));
        }
        self.write_error.get().or(self.read_error.get()).map(Err)
    }

    fn check_ioctl(&self) -> Result<(), Errno> {
        self.check_usable()?;
        self.read_error.get().or(self.write_error.get()).map_or(Ok(()), Err)
    }

    pub(super) fn check_sending_ioctl(&self) -> Result<(), Errno> {
        self.check_ioctl()?;
        if self.is_hung_up.get() { Err(Errno::ENXIO) } else { Ok(()) }
    }

    /// Octets of data in the first message, and how many messages wait (`I_NREAD`).
    ///
    /// # Errors
    /// As for all ioctls of the head: EBADF closed, EINVAL linked below a multiplexor, and the
    /// error of an M_ERROR.
    pub fn nread(&self) -> Result<(usize, usize), Errno> {
        self.check_ioctl()?;
        let first = self.head.peek(0, Mblk::data_size).unwrap_or(0);
        Ok((first, self.head.qsize()))
    }

    /// Pushes a module just below the head (`I_PUSH`).
    ///
    /// # Errors
    /// EINVAL without such a module or with too many; ENXIO hung up, or what the module's open
    /// says.
    pub fn push(&self, cx: &Kernel, name: &str) -> Result<(), Errno> {
        self.check_sending_ioctl()?;
        self.streams.upgrade().ok_or(Errno::ENXIO)?.push(cx, &self.head, name)
    }

    /// Pops the topmost module (`I_POP`).
    ///
    /// # Errors
    /// EINVAL if there is none; ENXIO hung up.
    pub fn pop(&self, cx: &Kernel) -> Result<(), Errno> {
        self.check_sending_ioctl()?;
        self.streams.upgrade().ok_or(Errno::ENXIO)?.pop(cx, &self.head)
    }

    /// The name of the topmost module (`I_LOOK`).
    ///
    /// # Errors
    /// EINVAL if there is none.
    pub fn look(&self) -> Result<String, Errno> {
        self.check_ioctl()?;
        let mut names = self.names();
        names.pop_front_if_module().ok_or(Errno::EINVAL)
    }

    /// Whether a module of this name is on the stream (`I_FIND`).
    ///
    /// # Errors
    /// EINVAL for a name that no module has.
    pub fn find(&self, name: &str) -> Result<bool, Errno> {
        self.check_ioctl()?;
        let streams = self.streams.upgrade().ok_or(Errno::ENXIO)?;
        if name.is_empty() || name.len() > NAME_MAX || streams.module(name).is_none() {
            return Err(Errno::EINVAL);
        }
        let names = self.names().0;
        let (_, modules) = names.split_last().ok_or(Errno::ENXIO)?;
        Ok(modules.iter().any(|other| other == name))
    }

    /// The names of the modules, topmost first, and the driver's (`I_LIST`).
    ///
    /// # Errors
    /// As for all.
    pub fn list(&self) -> Result<Vec<String>, Errno> {
        self.check_ioctl()?;
        Ok(self.names().0)
    }

    fn names(&self) -> Names {
        let chain = crate::streams::chain(&self.head);
        Names(chain.iter().map(|q| q.module().info().name.into()).collect())
    }

    /// Flushes queues (`I_FLUSH`): `FLUSHR`, `FLUSHW` or both.
    ///
    /// # Errors
    /// EINVAL for other bits; ENOSR without a block; ENXIO hung up.
    pub fn flush(&self, cx: &Kernel, bits: u8) -> Result<(), Errno> {
        self.flush_any(cx, bits, None)
    }

    /// Flushes one band (`I_FLUSHBAND`).
    ///
    /// # Errors
    /// As of [`flush`](Self::flush).
    pub fn flush_band(&self, cx: &Kernel, bits: u8, band: u8) -> Result<(), Errno> {
        self.flush_any(cx, bits, Some(band))
    }

    fn flush_any(&self, cx: &Kernel, bits: u8, band: Option<u8>) -> Result<(), Errno> {
        self.check_sending_ioctl()?;
        if bits == 0 || bits & !(FLUSHR | FLUSHW) != 0 {
            return Err(Errno::EINVAL);
        }
        if self.send_flush(cx, bits, band) { Ok(()) } else { Err(Errno::ENOSR) }
    }

    /// Sends a command to the modules and the driver and waits for the answer (`I_STR`): for 15 s,
    /// or as long as is said; a wait of none has no end. Answers the value and the data.
    ///
    /// # Errors
    /// ETIME; the error of the refusal, EINVAL if it has none; ENXIO hung up; ENOSR without a
    /// block.
    pub fn str_ioctl(
        &self,
        cx: &Kernel,
        command: Command,
        data: &[u8],
        wait: StrWait,
    ) -> Result<(u32, Vec<u8>), Errno> {
        self.check_sending_ioctl()?;
        if data.len() > STR_OCTETS_MAX {
            return Err(Errno::EINVAL);
        }
        let limit = match wait {
            StrWait::Usual => STR_WAIT,
            StrWait::For(limit) => limit,
            StrWait::Infinite => Duration::MAX,
        };
        let mut answer = self.request(cx, command, data, limit)?;
        let value = Info::of(&answer).map_or(0, |info| info.value);
        Ok((value, answer.unlinkb().map(|data| data.to_vec()).unwrap_or_default()))
    }

    /// The request by which a multiplexor hears of a link.
    pub(crate) fn link_ioctl(
        &self,
        cx: &Kernel,
        command: Command,
        index: u32,
    ) -> Result<(), Errno> {
        self.request(cx, command, &index.to_le_bytes(), STR_WAIT).map(drop)
    }

    /// Links the stream `lower` below the multiplexor that this is a stream of (`I_LINK`): until it
    /// is unlinked, or this one closed. Answers the number of the link.
    ///
    /// # Errors
    /// EINVAL if this is no multiplexor's, `lower` is linked already, or it would be a cycle; ENXIO
    /// hung up; ETIME if the driver does not answer; what it says.
    pub fn link(self: &Rc<Self>, cx: &Kernel, lower: &Stream) -> Result<u32, Errno> {
        self.link_any(cx, lower, false)
    }

    /// Links as [`link`](Self::link) does, to stay when this stream is closed (`I_PLINK`).
    ///
    /// # Errors
    /// As of [`link`](Self::link).
    pub fn plink(self: &Rc<Self>, cx: &Kernel, lower: &Stream) -> Result<u32, Errno> {
        self.link_any(cx, lower, true)
    }

    fn link_any(
        self: &Rc<Self>,
        cx: &Kernel,
        lower: &Stream,
        is_persistent: bool,
    ) -> Result<u32, Errno> {
        self.check_sending_ioctl()?;
        lower.check_sending_ioctl()?;
        let streams = self.streams.upgrade().ok_or(Errno::ENXIO)?;
        streams.link(cx, self, &lower.head, is_persistent)
    }

    /// Undoes a link (`I_UNLINK`), or all of this stream (MUXID_ALL).
    ///
    /// # Errors
    /// EINVAL without such a link; ENXIO hung up; ETIME; what the driver says.
    pub fn unlink(self: &Rc<Self>, cx: &Kernel, index: Option<u32>) -> Result<(), Errno> {
        self.check_sending_ioctl()?;
        let streams = self.streams.upgrade().ok_or(Errno::ENXIO)?;
        streams.unlink(cx, self, index, false)
    }

    /// Undoes a link that was to stay (`I_PUNLINK`), or all of the multiplexor.
    ///
    /// # Errors
    /// As of [`unlink`](Self::unlink).
    pub fn punlink(self: &Rc<Self>, cx: &Kernel, index: Option<u32>) -> Result<(), Errno> {
        self.check_sending_ioctl()?;
        let streams = self.streams.upgrade().ok_or(Errno::ENXIO)?;
        streams.unlink(cx, self, index, true)
    }

    /// Whether the first message is of this band (`I_CKBAND`).
    ///
    /// # Errors
    /// As for all.
    pub fn has_band(&self, band: u8) -> Result<bool, Errno> {
        self.check_ioctl()?;
        let mut found = false;
        self.head.each(|mp| found |= !mp.kind().is_high() && mp.band == band);
        Ok(found)
    }

    /// The band of the first message (`I_GETBAND`).
    ///
    /// # Errors
    /// ENODATA if none waits.
    pub fn first_band(&self) -> Result<u8, Errno> {
        self.check_ioctl()?;
        self.head.peek(0, |mp| mp.band).ok_or(Errno::ENODATA)
    }

    /// Whether a message of this band could be sent now (`I_CANPUT`).
    ///
    /// # Errors
    /// As for all.
    pub fn can_put(&self, band: u8) -> Result<bool, Errno> {
        self.check_ioctl()?;
        Ok(self.head.write_side().bcanputnext(band))
    }

    /// Whether the first message is marked (`I_ATMARK`).
    ///
    /// # Errors
    /// As for all.
    pub fn at_mark(&self) -> Result<bool, Errno> {
        self.check_ioctl()?;
        Ok(self.head.peek(0, |mp| mp.flag & crate::block::MSGMARK != 0).unwrap_or(false))
    }

    /// Whether the first message is marked and none behind it is (`I_ATMARK` with LASTMARK).
    ///
    /// # Errors
    /// As for all.
    pub fn at_last_mark(&self) -> Result<bool, Errno> {
        self.check_ioctl()?;
        let (mut at, mut marked) = (0, None);
        self.head.each(|mp| {
            if mp.flag & crate::block::MSGMARK != 0 {
                marked = Some(at);
            }
            at += 1;
        });
        Ok(marked == Some(0))
    }

    /// Whether a message of some band could be sent now (`I_CANPUT` with ANYBAND).
    ///
    /// # Errors
    /// As for all.
    pub fn can_put_any(&self) -> Result<bool, Errno> {
        self.check_ioctl()?;
        Ok(self.head.write_side().canputnext_any())
    }

    /// Time that a close waits for output (`I_GETCLTIME`).
    ///
    /// # Errors
    /// As for all.
    pub fn close_wait(&self) -> Result<Duration, Errno> {
        self.check_ioctl()?;
        Ok(self.close_wait.get())
    }

    /// Whether the error of an M_ERROR goes when it has been told once, for reading and for writing
    /// (`I_SERROPT` with RERRNONPERSIST and WERRNONPERSIST); otherwise it stays.
    ///
    /// # Errors
    /// EBADF closed, EINVAL linked below a multiplexor.
    pub fn set_errors_pass(&self, read: bool, write: bool) -> Result<(), Errno> {
        self.check_usable()?;
        self.errors_pass.set((read, write));
        Ok(())
    }

    /// Errors that are cleared once they have been reported (`I_GERROPT`).
    ///
    /// # Errors
    /// As of [`set_errors_pass`](Self::set_errors_pass).
    pub fn errors_pass(&self) -> Result<(bool, bool), Errno> {
        self.check_usable()?;
        Ok(self.errors_pass.get())
    }

    /// Sets the time that a close waits for output (`I_SETCLTIME`); returns the former one.
    ///
    /// # Errors
    /// As for all.
    pub fn set_close_wait(&self, wait: Duration) -> Result<Duration, Errno> {
        self.check_ioctl()?;
        Ok(self.close_wait.replace(wait))
    }

    /// Whether a `write` of nothing sends a message of nothing (`I_SWROPT` with SNDZERO).
    ///
    /// # Errors
    /// As for all.
    pub fn set_sends_zero(&self, sends: bool) -> Result<(), Errno> {
        self.check_ioctl()?;
        self.sends_zero.set(sends);
        Ok(())
    }

    /// Whether a message of nothing is sent (`I_GWROPT`).
    ///
    /// # Errors
    /// As for all.
    pub fn sends_zero(&self) -> Result<bool, Errno> {
        self.check_ioctl()?;
        Ok(self.sends_zero.get())
    }
}

/// Time that `I_STR` waits (`ic_timout`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StrWait {
    /// 15 s (0).
    #[default]
    Usual,
    /// So long.
    For(Duration),
    /// Without end (INFTIM, -1).
    Infinite,
}

struct Names(Vec<String>);

impl Names {
    /// The topmost, unless it is the driver's.
    fn pop_front_if_module(&mut self) -> Option<String> {
        (self.0.len() > 1).then(|| self.0.remove(0))
    }
}
