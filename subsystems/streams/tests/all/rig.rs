//! A driver that does as it is told, and modules.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use xk_core::Kernel;
use xk_streams::head::{self, Command, Info};
use xk_streams::{
    Bounds, Errno, Kind, Linkblk, Mblk, Module, ModuleInfo, Opening, Q, Services, Stream, Streams,
    Streamtab, WeakQ,
};
use xk_testkit::kernel::TestKernel;

/// The command that the driver answers with its data turned round.
pub(crate) const TURN: Command = Command(0x5401);
/// The command that it refuses with EPERM.
pub(crate) const FORBIDDEN: Command = Command(0x5402);
/// The command that it never answers.
pub(crate) const SILENT: Command = Command(0x5403);

/// Messages that the driver has got, and its behaviour.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) got: RefCell<Vec<Mblk>>,
    pub(crate) opens: Cell<u32>,
    pub(crate) reopens: Cell<u32>,
    pub(crate) closes: Cell<u32>,
    pub(crate) links: RefCell<Vec<Linkblk>>,
    /// Number of messages that came up from streams below.
    pub(crate) from_below: Cell<u32>,
    /// Messages stay in its write queue.
    pub(crate) is_stopped: Cell<bool>,
    /// The open fails.
    pub(crate) refuses: Cell<bool>,
    pub(crate) flushes: RefCell<Vec<u8>>,
    pub(crate) up: RefCell<Option<WeakQ>>,
}

/// A driver; as a multiplexor it takes streams below.
pub(crate) struct Driver {
    pub(crate) name: &'static str,
    pub(crate) seen: Rc<Seen>,
    pub(crate) is_multiplexor: bool,
    pub(crate) packets: (u32, u32),
}

struct Open(&'static str, Rc<Seen>, (u32, u32));

impl Streamtab for Driver {
    fn info(&self) -> ModuleInfo {
        ModuleInfo::new(1, self.name)
    }

    fn open(&self, _: &Kernel, q: &Q, _: Opening) -> Result<Rc<dyn Module>, Errno> {
        if self.seen.refuses.get() {
            return Err(Errno::EBUSY);
        }
        self.seen.opens.set(self.seen.opens.get() + 1);
        self.seen.up.replace(Some(q.downgrade()));
        Ok(Rc::new(Open(self.name, Rc::clone(&self.seen), self.packets)))
    }

    fn lower(&self) -> Option<Rc<dyn Module>> {
        self.is_multiplexor.then(|| Rc::new(Lower(Rc::clone(&self.seen))) as Rc<dyn Module>)
    }
}

impl Module for Open {
    fn info(&self) -> ModuleInfo {
        let (min_packet, max_packet) = self.2;
        ModuleInfo { min_packet, max_packet, ..ModuleInfo::new(1, self.0).marks(1024, 256) }
    }

    fn services(&self) -> Services {
        Services { read: true, write: true }
    }

    fn wput(&self, cx: &Kernel, q: &Q, mp: Mblk) {
        match mp.kind() {
            Kind::Flush => {
                self.1.flushes.borrow_mut().push(mp.octets()[0]);
                q.flush_at_driver(cx, mp);
            }
            Kind::Ioctl => self.ioctl(cx, q, mp),
            _ => q.putq(cx, mp),
        }
    }

    fn wsrv(&self, cx: &Kernel, q: &Q) {
        while !self.1.is_stopped.get()
            && let Some(mp) = q.getq(cx)
        {
            self.1.got.borrow_mut().push(mp);
        }
    }

    fn reopen(&self, _: &Kernel, _: &Q) -> Result<(), Errno> {
        self.1.reopens.set(self.1.reopens.get() + 1);
        Ok(())
    }

    fn close(&self, _: &Kernel, _: &Q) {
        self.1.closes.set(self.1.closes.get() + 1);
    }
}

impl Open {
    fn ioctl(&self, cx: &Kernel, q: &Q, mut mp: Mblk) {
        let command = Info::of(&mp).unwrap().command;
        match command {
            Command::LINK | Command::PLINK => {
                self.1.links.borrow_mut().push(Linkblk::of(cx, &mp).unwrap());
                q.qreply(cx, head::acked(mp, 0));
            }
            Command::UNLINK | Command::PUNLINK => {
                let index = Linkblk::of(cx, &mp).unwrap().index;
                self.1.links.borrow_mut().retain(|link| link.index != index);
                q.qreply(cx, head::acked(mp, 0));
            }
            TURN => {
                let mut data = mp.unlinkb().map(|data| data.to_vec()).unwrap_or_default();
                data.reverse();
                let data = q.blocks().copy(Kind::Data, 0, &data).unwrap();
                q.qreply(cx, head::acked(mp.linked(data), 7));
            }
            FORBIDDEN => q.qreply(cx, head::naked(mp, Errno::EPERM)),
            SILENT => {}
            _ => q.qreply(cx, head::naked(mp, Errno(0))),
        }
    }
}

struct Lower(Rc<Seen>);

impl Module for Lower {
    fn info(&self) -> ModuleInfo {
        ModuleInfo::new(2, "lower")
    }

    fn rput(&self, _: &Kernel, _: &Q, mp: Mblk) {
        let _ = mp;
        self.0.from_below.set(self.0.from_below.get() + 1);
    }
}

/// A module that queues both ways and passes on in its service procedures.
pub(crate) struct Pass(pub(crate) &'static str);

impl Module for Pass {
    fn info(&self) -> ModuleInfo {
        ModuleInfo::new(3, self.0).marks(1024, 256)
    }

    fn services(&self) -> Services {
        Services { read: true, write: true }
    }

    fn rput(&self, cx: &Kernel, q: &Q, mp: Mblk) {
        self.put(cx, q, mp);
    }

    fn wput(&self, cx: &Kernel, q: &Q, mp: Mblk) {
        self.put(cx, q, mp);
    }
}

impl Pass {
    fn put(&self, cx: &Kernel, q: &Q, mp: Mblk) {
        match mp.kind() {
            Kind::Flush => {
                q.flush_pair(cx, &mp, xk_streams::What::Data);
                q.putnext(cx, mp);
            }
            kind if kind.is_high() => q.putnext(cx, mp),
            _ => q.putq(cx, mp),
        }
    }
}

impl Streamtab for Pass {
    fn info(&self) -> ModuleInfo {
        Module::info(self)
    }

    fn open(&self, _: &Kernel, _: &Q, opening: Opening) -> Result<Rc<dyn Module>, Errno> {
        assert!(opening.is_module);
        if self.0 == "bad" { Err(Errno::EPERM) } else { Ok(Rc::new(Pass(self.0))) }
    }
}

pub(crate) struct Rig {
    pub(crate) cx: TestKernel,
    pub(crate) streams: Rc<Streams>,
    pub(crate) seen: Rc<Seen>,
    pub(crate) stream: Rc<Stream>,
}

impl Rig {
    /// A stream, not to wait, on a driver of packets of these sizes.
    pub(crate) fn with_packets(packets: (u32, u32)) -> Self {
        let cx = TestKernel::new(1);
        let (streams, _) = xk_streams::add(&cx, "streams", Bounds::default());
        let seen = Rc::<Seen>::default();
        let driver = Driver { name: "dev", seen: Rc::clone(&seen), is_multiplexor: false, packets };
        streams.add_driver("dev", Rc::new(driver));
        for name in ["pass", "other", "bad"] {
            streams.add_module(name, Rc::new(Pass(name)));
        }
        let stream = streams.open(&cx, "dev").unwrap();
        stream.set_nonblocking(true);
        Self { cx, streams, seen, stream }
    }

    pub(crate) fn new() -> Self {
        Self::with_packets((0, xk_streams::module::INFINITE))
    }

    /// A message of this type comes up from the driver.
    pub(crate) fn up(&self, kind: Kind, octets: &[u8]) {
        self.up_in(kind, 0, octets);
    }

    pub(crate) fn up_in(&self, kind: Kind, band: u8, octets: &[u8]) {
        let mut mp = self.streams.blocks().copy(kind, 0, octets).unwrap();
        mp.band = band;
        self.up_message(mp);
    }

    pub(crate) fn up_message(&self, mp: Mblk) {
        let q = self.seen.up.borrow().as_ref().and_then(WeakQ::upgrade).unwrap();
        q.putnext(&self.cx, mp);
    }

    /// Messages that the driver has got: types and octets.
    pub(crate) fn got(&self) -> Vec<(Kind, Vec<u8>)> {
        self.cx.run_due();
        self.seen.got.borrow_mut().drain(..).map(|mp| (mp.kind(), mp.to_vec())).collect()
    }

    pub(crate) fn read(&self, max: usize) -> Result<Vec<u8>, Errno> {
        let mut room = vec![0; max];
        let n = self.stream.read(&self.cx, &mut room)?;
        room.truncate(n);
        Ok(room)
    }
}
