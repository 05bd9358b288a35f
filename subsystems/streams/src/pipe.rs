//! Stream pipes: two streams, each of which has the other at its far end.

use crate::block::{Kind, Mblk};
use crate::errno::Errno;
use crate::head::{self, Stream};
use crate::module::{Module, ModuleInfo, Opening, Services, Streamtab};
use crate::queue::{FLUSHR, FLUSHW, Q, WeakQ, What};
use crate::streams::Streams;
use alloc::rc::Rc;
use core::cell::RefCell;
use xk_core::Kernel;

const INFO: ModuleInfo = ModuleInfo::new(0x7370, "sp").marks(5120, 1024);

/// Opens the two streams of one pipe.
#[derive(Default)]
struct PipeTab {
    first: RefCell<Option<(WeakQ, Rc<Half>)>>,
}

/// The driver of one of the streams.
#[derive(Default)]
struct Half {
    /// The read queue of the other one's driver.
    other: RefCell<Option<WeakQ>>,
}

impl Streams {
    /// Makes a pipe: what is written to one of its streams comes up on the other. Modules can be
    /// pushed on both; when one is closed the other is hung up.
    ///
    /// # Errors
    /// ENOSR beyond the bound on streams.
    pub fn pipe(self: &Rc<Self>, cx: &Kernel) -> Result<(Rc<Stream>, Rc<Stream>), Errno> {
        let tab = Rc::new(PipeTab::default());
        let one = self.open_on(cx, Rc::<PipeTab>::clone(&tab))?;
        match self.open_on(cx, tab) {
            Ok(other) => {
                Stream::pair(&one, &other);
                Ok((one, other))
            }
            Err(error) => {
                one.close(cx);
                Err(error)
            }
        }
    }
}

impl Streamtab for PipeTab {
    fn info(&self) -> ModuleInfo {
        INFO
    }

    fn open(&self, _: &Kernel, q: &Q, _: Opening) -> Result<Rc<dyn Module>, Errno> {
        let half = Rc::new(Half::default());
        let mut first = self.first.borrow_mut();
        match first.take() {
            None => *first = Some((q.downgrade(), Rc::clone(&half))),
            Some((other, one)) => {
                half.other.replace(Some(other));
                one.other.replace(Some(q.downgrade()));
            }
        }
        Ok(half)
    }
}

impl Half {
    /// The read queue at the other end, while that is open.
    fn other(&self) -> Option<Q> {
        self.other.borrow().as_ref().and_then(WeakQ::upgrade)
    }

    /// Flushes one end's write side, and so the other's read side.
    fn flush(&self, cx: &Kernel, q: &Q, mut mp: Mblk) {
        let (reads, writes) = q.flush_pair(cx, &mp, What::Data);
        let turned = if reads { FLUSHW } else { 0 } | if writes { FLUSHR } else { 0 };
        let Some(bits) = mp.octets_mut().and_then(|octets| octets.first_mut()) else { return };
        *bits = *bits & !(FLUSHR | FLUSHW) | turned;
        match self.other() {
            Some(other) => other.putnext(cx, mp),
            None => q.core().count_loss(mp),
        }
    }
}

impl Module for Half {
    fn info(&self) -> ModuleInfo {
        INFO
    }

    fn services(&self) -> Services {
        Services { read: true, write: true }
    }

    fn wput(&self, cx: &Kernel, q: &Q, mp: Mblk) {
        let other = self.other();
        match (mp.kind(), other) {
            (Kind::Flush, _) => self.flush(cx, q, mp),
            // The head at the other end would refuse it.
            (Kind::Ioctl, _) => q.qreply(cx, head::naked(mp, Errno::EINVAL)),
            (Kind::IocData, _) | (_, None) => q.core().count_loss(mp),
            (kind, Some(other)) if kind.is_high() => other.putnext(cx, mp),
            (_, Some(other)) if q.qsize() == 0 && other.bcanputnext(mp.band) => {
                other.putnext(cx, mp);
            }
            _ => q.putq(cx, mp),
        }
    }

    fn wsrv(&self, cx: &Kernel, q: &Q) {
        while let Some(mp) = q.getq(cx) {
            match self.other() {
                None => q.core().count_loss(mp),
                Some(other) if other.bcanputnext(mp.band) => other.putnext(cx, mp),
                Some(_) => return q.putbq(cx, mp),
            }
        }
    }

    /// There is room above again: the other end may go on.
    fn rsrv(&self, cx: &Kernel, _: &Q) {
        if let Some(other) = self.other() {
            other.write_side().qenable(cx);
        }
    }

    fn close(&self, cx: &Kernel, q: &Q) {
        if let Some(other) = self.other()
            && let Some(hangup) = q.blocks().copy(Kind::Hangup, 0, &[])
        {
            other.putnext(cx, hangup);
        }
    }
}
