//! A host of one upper, one lower and the adapter between them.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use xk_adapters::Addr;
use xk_bsd::Bsd;
use xk_compose::{build, check_text};
use xk_core::control::Report;
use xk_core::graph::Catalog;
use xk_core::{Kernel, ProtocolRef};
use xk_streams::Streams;
use xk_testkit::kernel::TestKernel;

/// Subsystem of a protocol of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Of {
    Xk,
    Bsd,
    Streams,
}

/// All pairs, the upper first.
pub(crate) const PAIRS: [(Of, Of); 6] = [
    (Of::Xk, Of::Bsd),
    (Of::Bsd, Of::Xk),
    (Of::Xk, Of::Streams),
    (Of::Streams, Of::Xk),
    (Of::Bsd, Of::Streams),
    (Of::Streams, Of::Bsd),
];

/// A message that has arrived: from, to, octets.
pub(crate) type Arrived = (Addr, Addr, Vec<u8>);

/// Function by which the recorder of a host sends: our address, the peer's, the octets in parts.
pub(crate) type Send = Rc<dyn Fn(&Kernel, Addr, Addr, &[&[u8]]) -> Result<(), String>>;

/// Beside the kernel: what has arrived at the upper, and how it sends.
#[derive(Default)]
pub(crate) struct Log {
    pub(crate) arrived: RefCell<Vec<Arrived>>,
    pub(crate) faults: RefCell<Vec<String>>,
    pub(crate) send: RefCell<Option<Send>>,
    /// The loop below says so many octets are the most.
    pub(crate) mtu: Cell<u32>,
    /// The loop below fails.
    pub(crate) fails: Cell<bool>,
    /// The loop of STREAMS below has no room.
    pub(crate) is_full_below: Cell<bool>,
    /// The recorder of STREAMS above takes nothing.
    pub(crate) is_full_above: Cell<bool>,
    /// Enables the queues that looked in vain for room below.
    pub(crate) enable_below: RefCell<Option<Act>>,
    /// Enables the recorder's queue.
    pub(crate) enable_above: RefCell<Option<Act>>,
    /// Hangs up all streams of the loop.
    pub(crate) hang_up: RefCell<Option<Act>>,
}

/// An act of a test on a loop or a recorder.
pub(crate) type Act = Rc<dyn Fn(&Kernel)>;

pub(crate) fn log(cx: &Kernel) -> Rc<Log> {
    cx.surroundings::<Log>().expect("the test's log")
}

pub(crate) fn addr(socket: u8, node: u8) -> Addr {
    let mut addr = Addr::any(xk_bsd::sockaddr::AF_APPLETALK);
    (addr.data_mut()[0], addr.data_mut()[3], addr.data_mut()[4]) = (socket, 10, node);
    addr
}

pub(crate) struct Rig {
    pub(crate) cx: TestKernel,
    pub(crate) adapter: ProtocolRef,
    pub(crate) log: Rc<Log>,
}

fn block(of: Of, line: &str, bounds: &str) -> String {
    match of {
        Of::Xk => line.to_owned(),
        Of::Bsd => format!(
            "subsystem bsd {} {{ {line}; }}",
            if bounds.contains("mbufs") { bounds } else { "" }
        ),
        Of::Streams => {
            format!(
                "subsystem streams {} {{ {line}; }}",
                if bounds.contains("blocks") { bounds } else { "" }
            )
        }
    }
}

pub(crate) fn catalog() -> Catalog {
    let mut entries = vec![&xk_bsd::ENTRY, &xk_streams::ENTRY];
    entries.extend(xk_adapters::ENTRIES);
    entries.extend(crate::loops::ENTRIES);
    entries.extend(crate::lines::ENTRIES);
    Catalog::new(&entries).expect("entries that agree")
}

impl Rig {
    pub(crate) fn new(pair: (Of, Of)) -> Self {
        Self::with(pair, "", TestKernel::new(1))
    }

    /// With bounds of a subsystem.
    pub(crate) fn with((upper, lower): (Of, Of), bounds: &str, cx: TestKernel) -> Self {
        let lines = [block(lower, "ddp", bounds), block(upper, "app ddp", bounds)];
        let source = format!("host h {{\n{}\n{}\n}}\n", lines[0], lines[1]);
        let graph =
            check_text(&source, "g", &catalog()).unwrap_or_else(|m| panic!("{}", m.to_text()));
        let log = Rc::new(Log::default());
        log.mtu.set(586);
        cx.surround(Rc::clone(&log));
        let host = graph.host("h").expect("the host");
        let built = build(&graph, &host, &cx).unwrap_or_else(|m| panic!("{}", m.to_text()));
        cx.start().unwrap_or_else(|(protocol, error)| panic!("{protocol:?}: {error}"));
        cx.advance(Duration::ZERO);
        let adapter = built.find("app/ddp").expect("the adapter").clone();
        Self { cx, adapter, log }
    }

    pub(crate) fn send(&self, from: Addr, to: Addr, parts: &[&[u8]]) -> Result<(), String> {
        let send = self.log.send.borrow().clone().expect("the upper has started");
        let sent = send(&self.cx, from, to, parts);
        self.cx.advance(Duration::ZERO);
        sent
    }

    pub(crate) fn take(&self) -> Vec<Arrived> {
        self.log.arrived.take()
    }

    /// Does what a loop or a recorder has left for it, and what follows.
    pub(crate) fn act(&self, act: &RefCell<Option<Act>>) {
        let act = act.borrow().clone().expect("what the test does");
        act(&self.cx);
        self.cx.advance(Duration::ZERO);
    }

    /// Releases all, and takes the graph down.
    pub(crate) fn stop(&self) {
        *self.log.send.borrow_mut() = None;
        for act in [&self.log.enable_below, &self.log.enable_above, &self.log.hang_up] {
            *act.borrow_mut() = None;
        }
        self.cx.stop();
    }

    /// Lines of the adapter's report.
    pub(crate) fn report(&self, name: &str) -> u64 {
        let report = self.adapter.ask(&self.cx, Report::default()).expect("a report");
        let line = report.lines.iter().find(|(of, _)| of == name);
        line.expect(name).1.parse().expect("a number")
    }

    /// Buffers of all kinds that are in use: mbufs, message blocks, descriptors.
    pub(crate) fn in_use(&self) -> (u32, usize, u32) {
        let mbufs = Bsd::of(&self.cx).map_or(0, |bsd| bsd.mbufs().mbstat().in_use);
        let blocks = Streams::of(&self.cx).map_or(0, |streams| streams.blocks().stats().messages);
        (mbufs, blocks, self.cx.live().0)
    }
}
