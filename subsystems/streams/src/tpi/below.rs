//! The one stream below a multiplexor, as its drivers use it.

use super::{Primitive, uderror_ind, unitdata_req};
use crate::block::{Kind, Mblk};
use crate::errno::Errno;
use crate::head::{Command, Info, acked, naked};
use crate::link::Linkblk;
use crate::queue::{Q, WeakQ};
use core::cell::{Cell, RefCell};
use xk_core::object::ProtocolId;
use xk_core::reason::{self, Reason};
use xk_core::{Kernel, ProtocolRef};

/// The stream that is linked below a multiplexor that has one, once it is.
#[derive(Default)]
pub struct Below {
    bottom: RefCell<Option<WeakQ>>,
    line: Cell<Option<ProtocolId>>,
}

impl Below {
    /// Answers an M_IOCTL: takes the link that it tells of, refuses a second one, gives it up;
    /// refuses all others. Answers true if a stream has been linked by it. `q` is the read queue of
    /// the stream that the request came down.
    pub fn ioctl(&self, cx: &Kernel, q: &Q, mp: Mblk) -> bool {
        let command = Info::of(&mp).map(|info| info.command);
        let (answer, is_linked) = match (command, Linkblk::of(cx, &mp)) {
            (Some(Command::LINK | Command::PLINK), Some(_)) if self.q().is_some() => {
                (naked(mp, Errno::EBUSY), false)
            }
            (Some(Command::LINK | Command::PLINK), Some(link)) => {
                self.line.set(link.line);
                self.bottom.replace(Some(link.bottom));
                (acked(mp, 0), true)
            }
            (Some(Command::UNLINK | Command::PUNLINK), Some(_)) => {
                self.gone();
                (acked(mp, 0), false)
            }
            _ => (naked(mp, Errno::EINVAL), false),
        };
        q.putnext(cx, answer);
        is_linked
    }

    /// The queue from which messages go down by [`Q::putnext`].
    pub fn q(&self) -> Option<Q> {
        self.bottom.borrow().as_ref().and_then(WeakQ::upgrade)
    }

    /// The node of the line below, if it is of the graph.
    pub fn node(&self, cx: &Kernel) -> Option<ProtocolRef> {
        self.line.get().and_then(|line| cx.protocol(line))
    }

    /// Notes that the stream below is no longer there.
    pub fn gone(&self) {
        self.bottom.replace(None);
    }

    /// Whether there is room for one more message; without a stream there is, for it is dropped.
    pub fn has_room(&self) -> bool {
        self.q().is_none_or(|q| q.canputnext())
    }

    /// Sends a request.
    ///
    /// # Errors
    /// [`reason::CLOSED`] without a stream, [`reason::NO_BUFFERS`].
    pub fn request(&self, cx: &Kernel, primitive: Primitive<'_>) -> Result<(), &'static Reason> {
        let q = self.q().ok_or(&reason::CLOSED)?;
        let mp = primitive.emit(q.blocks()).ok_or(&reason::NO_BUFFERS)?;
        q.putnext(cx, mp);
        Ok(())
    }

    /// Sends a datagram; `opt` are its options.
    ///
    /// # Errors
    /// [`reason::CLOSED`] without a stream, [`reason::QUEUE_FULL`], [`reason::NO_BUFFERS`].
    pub fn send(
        &self,
        cx: &Kernel,
        (dest, opt): (&[u8], &[u8]),
        data: Mblk,
    ) -> Result<(), &'static Reason> {
        let q = self.q().ok_or(&reason::CLOSED)?;
        if !q.canputnext() {
            return Err(&reason::QUEUE_FULL);
        }
        let mp = unitdata_req(q.blocks(), dest, opt, data).ok_or(&reason::NO_BUFFERS)?;
        q.putnext(cx, mp);
        Ok(())
    }

    /// Gives a datagram from `src` back that no user wants, counted by the caller: M_CTL, with
    /// T_UDERROR_IND in front of it.
    pub fn give_back(&self, cx: &Kernel, src: &[u8], data: Mblk) {
        let Some(q) = self.q() else { return };
        // Without a block the sender is told nothing.
        if let Some(mut front) = uderror_ind(q.blocks(), src, &[], Errno::ECONNREFUSED.0) {
            front.set_kind(Kind::Ctl);
            q.putnext(cx, front.linked(data));
        }
    }

    /// Puts a message into the read queue of the pair, for its service procedure: what a
    /// multiplexor sends to itself. False if the queue is full.
    pub fn loop_back(&self, cx: &Kernel, mp: Mblk) -> bool {
        let Some(q) = self.q().map(|q| q.read_side()) else { return false };
        let fits = q.canput();
        if fits {
            q.putq(cx, mp);
        }
        fits
    }
}
