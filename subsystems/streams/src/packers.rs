//! Modules that queue: `queue`, which passes all on by its service procedures, and `squeeze` and
//! `crunch`, which pack what goes down and unpack what comes up.

use crate::block::{Kind, Mblk};
use crate::errno::Errno;
use crate::module::{Module, ModuleInfo, Opening, Services, Streamtab};
use crate::pack::{Form, pack, unpack};
use crate::queue::{Q, Side, What};
use crate::tpi::Primitive;
use alloc::format;
use alloc::rc::Rc;
use alloc::string::String;
use core::cell::Cell;
use xk_core::Kernel;

/// Room that headers below find in front of packed octets.
const HEADROOM: usize = 64;
const BOTH: Services = Services { read: true, write: true };

/// A module that anything can push.
pub(crate) enum Tab {
    /// The module `queue`.
    Queue,
    /// The module `squeeze` or `crunch`.
    Pack(Form),
}

impl Streamtab for Tab {
    fn info(&self) -> ModuleInfo {
        match self {
            Self::Queue => QUEUE,
            Self::Pack(form) => info(*form),
        }
    }

    fn open(&self, _: &Kernel, _: &Q, opening: Opening) -> Result<Rc<dyn Module>, Errno> {
        match self {
            _ if !opening.is_module => Err(Errno::ENXIO),
            Self::Queue => Ok(Rc::new(Queue)),
            Self::Pack(form) => Ok(Rc::new(Packer::new(*form))),
        }
    }
}

/// Flushes the pair, and passes the message on.
fn flush(cx: &Kernel, q: &Q, mp: Mblk) {
    q.flush_pair(cx, &mp, What::Data);
    q.putnext(cx, mp);
}

/// The module `queue`: every ordinary message waits for the service procedure.
struct Queue;

const QUEUE: ModuleInfo = ModuleInfo::new(0x7175, "queue");

impl Queue {
    fn take(cx: &Kernel, q: &Q, mp: Mblk) {
        match mp.kind() {
            Kind::Flush => flush(cx, q, mp),
            kind if kind.is_high() => q.putnext(cx, mp),
            _ => q.putq(cx, mp),
        }
    }
}

impl Module for Queue {
    fn info(&self) -> ModuleInfo {
        QUEUE
    }

    fn services(&self) -> Services {
        BOTH
    }

    fn rput(&self, cx: &Kernel, q: &Q, mp: Mblk) {
        Self::take(cx, q, mp);
    }

    fn wput(&self, cx: &Kernel, q: &Q, mp: Mblk) {
        Self::take(cx, q, mp);
    }
}

const fn info(form: Form) -> ModuleInfo {
    match form {
        Form::Runs => ModuleInfo::new(0x7371, "squeeze"),
        Form::Repeats => ModuleInfo::new(0x6372, "crunch"),
    }
}

/// One way through a packer: messages, octets as users have them, octets packed.
#[derive(Clone, Copy, Default)]
struct PackerCounts {
    messages: u64,
    octets: u64,
    packed: u64,
}

impl PackerCounts {
    fn count(way: &Cell<Self>, octets: usize, packed: usize) {
        let Self { messages, octets: plain_before, packed: before } = way.get();
        way.set(Self {
            messages: messages + 1,
            octets: plain_before + octets as u64,
            packed: before + packed as u64,
        });
    }
}

/// The module `squeeze` or `crunch` of one stream.
struct Packer {
    form: Form,
    down: Cell<PackerCounts>,
    up: Cell<PackerCounts>,
    /// Messages that came up and were not packed in this form.
    refused: Cell<u64>,
}

impl Packer {
    fn new(form: Form) -> Self {
        Self { form, down: Cell::default(), up: Cell::default(), refused: Cell::new(0) }
    }

    fn take(&self, cx: &Kernel, q: &Q, mp: Mblk) {
        if mp.kind() == Kind::Flush {
            return flush(cx, q, mp);
        }
        if !q.may_pass(&mp) {
            return q.putq(cx, mp);
        }
        if let Err(mp) = self.pass(cx, q, mp) {
            self.wait(cx, q, mp);
        }
    }

    /// Passes messages on while there is room ahead, and blocks.
    fn serve(&self, cx: &Kernel, q: &Q) {
        while let Some(mp) = q.getq(cx) {
            if !mp.kind().is_high() && !q.bcanputnext(mp.band) {
                return q.putbq(cx, mp);
            }
            if let Err(mp) = self.pass(cx, q, mp) {
                return self.wait(cx, q, mp);
            }
        }
    }

    /// Keeps a message until there are blocks for it.
    fn wait(&self, cx: &Kernel, q: &Q, mp: Mblk) {
        let octets = mp.size() + HEADROOM + 1;
        q.putbq(cx, mp);
        q.bufcall(cx, (1, octets));
    }

    /// Changes a message and passes it on; the message again if there are no blocks.
    fn pass(&self, cx: &Kernel, q: &Q, mut mp: Mblk) -> Result<(), Mblk> {
        let is_bare = mp.kind() == Kind::Data;
        if !is_bare && !carries_datagram(&mp) {
            q.putnext(cx, mp);
            return Ok(());
        }
        let octets = match is_bare {
            true => mp.to_vec(),
            false => mp.cont().map(Mblk::to_vec).unwrap_or_default(),
        };
        let changed = match q.side() {
            Side::Write => Ok(pack(self.form, &octets)),
            Side::Read => unpack(self.form, &octets),
        };
        let Ok(changed) = changed else {
            self.refused.set(self.refused.get() + 1);
            q.core().count_loss(mp);
            return Ok(());
        };
        let Some(mut data) = q.blocks().copy(Kind::Data, HEADROOM, &changed) else {
            return Err(mp);
        };
        match q.side() {
            Side::Write => PackerCounts::count(&self.down, octets.len(), changed.len()),
            Side::Read => PackerCounts::count(&self.up, changed.len(), octets.len()),
        }
        if is_bare {
            data.band = mp.band;
            mp = data;
        } else {
            drop(mp.unlinkb());
            mp.linkb(data);
        }
        q.putnext(cx, mp);
        Ok(())
    }
}

/// Whether a message is a datagram of the transport interface.
fn carries_datagram(mp: &Mblk) -> bool {
    mp.kind() == Kind::Proto
        && matches!(
            Primitive::of(mp),
            Ok(Primitive::UnitdataReq { .. } | Primitive::UnitdataInd { .. })
        )
}

impl Module for Packer {
    fn info(&self) -> ModuleInfo {
        info(self.form)
    }

    fn services(&self) -> Services {
        BOTH
    }

    fn rput(&self, cx: &Kernel, q: &Q, mp: Mblk) {
        self.take(cx, q, mp);
    }

    fn wput(&self, cx: &Kernel, q: &Q, mp: Mblk) {
        self.take(cx, q, mp);
    }

    fn rsrv(&self, cx: &Kernel, q: &Q) {
        self.serve(cx, q);
    }

    fn wsrv(&self, cx: &Kernel, q: &Q) {
        self.serve(cx, q);
    }

    fn counted(&self) -> Option<String> {
        let (down, up) = (self.down.get(), self.up.get());
        Some(format!(
            "{} down, {} octets as {}; {} up, {} octets as {}; {} refused",
            down.messages,
            down.octets,
            down.packed,
            up.messages,
            up.octets,
            up.packed,
            self.refused.get()
        ))
    }
}
