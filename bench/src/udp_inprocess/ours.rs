//! The stack of xk, composed from a graph file as a user's would be.

use crate::stack::{Bottom, BottomWire, Count};
use std::cell::{Cell, RefCell};
use std::hint::black_box;
use std::rc::Rc;
use xk_catalog::{Catalog, PROTOCOLS};
use xk_core::graph::{Build, BuildError, Family, NOTHING_BELOW, Realm};
use xk_core::kernel::Config;
use xk_core::message::PoolConfig;
use xk_core::object::{Arrivals, Outgoing, PushError};
use xk_core::shepherd::{Limits, NoSwitch, Shepherds};
use xk_core::{
    Entry, Kernel, Message, Part, Participant, Participants, Pool, ProtocolRef, SessionRef, Upper,
};

/// The cable's end in a host, as an entry of the catalog.
static CABLE: Entry = Entry {
    kind: "cable",
    summary: "keeps what is sent for the benchmark to carry over",
    manual: "",
    realm: Realm::Wire,
    above: Family::Link,
    below: NOTHING_BELOW,
    header_octets: 0,
    numbers: &[],
    parameters: &[],
    blocks: &[],
    questions: &[],
    probe: None,
    build: build_cable,
};

/// What a host's cable has to carry, and where it comes in.
struct CableEnd {
    number: u8,
    kept: RefCell<Option<Rc<Arrivals>>>,
}

fn build_cable(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let end = build.cx.surroundings::<CableEnd>();
    let number = end.as_ref().map_or(0, |e| e.number);
    let wire = BottomWire::new(Bottom::Keep, [2, 0, 0, 0, 0, number]);
    if let Some(end) = end {
        *end.kept.borrow_mut() = Some(wire.kept());
    }
    build.add(wire)
}

/// One host of the pair.
pub(crate) struct Host {
    pub(crate) cx: Rc<Kernel>,
    kept: Rc<Arrivals>,
    wire: SessionRef,
    pub(crate) udp: ProtocolRef,
}

/// Room for the headers of UDP, IP and ETH, in octets.
pub(crate) const HEADROOM: usize = 128;

impl Host {
    fn new(pool: &Pool, number: u8) -> Self {
        Self::with_udp(pool, number, "")
    }

    /// A host whose UDP has these parameters.
    pub(crate) fn with_udp(pool: &Pool, number: u8, udp: &str) -> Self {
        let shepherds = Shepherds::new(
            Box::new(NoSwitch),
            Limits {
                shepherds_max: 1,
                ..Limits::default()
            },
        );
        let config = Config {
            seed: u64::from(number),
            pool: pool.clone(),
            shepherds,
            timers_max: 1 << 12,
        };
        let cx = Rc::new(Kernel::new(config));
        let end = Rc::new(CableEnd {
            number,
            kept: RefCell::default(),
        });
        cx.surround(Rc::clone(&end));
        let text = format!(
            "host h {{\n cable\n eth cable\n arp eth\n ip arp {{ address \"10.0.0.{number}/24\"; }}\n udp ip {udp}\n}}\n"
        );
        let entries: Vec<&'static Entry> = PROTOCOLS.iter().copied().chain([&CABLE]).collect();
        let catalog = Catalog::new(&entries).expect("the cable is new to the catalog");
        let graph = xk_compose::check(&text, "bench", &catalog)
            .map_err(|d| d.to_text())
            .expect("checked");
        let host = graph.host("h").expect("the graph's only host");
        let built = xk_compose::build(&graph, &host, &cx)
            .map_err(|d| d.to_text())
            .expect("built");
        let udp = built.find("udp").cloned().expect("the graph has udp");
        let cable = built.find("cable").cloned().expect("the graph has a cable");
        let eth = built.find("eth").cloned().expect("the graph has eth");
        xk_compose::start(&graph, &host, &cx)
            .map_err(|d| d.to_text())
            .expect("started");
        let kept = end.kept.borrow().clone().expect("the cable was built");
        let wire = cable
            .open(&cx, Upper::new(&eth), Participants::default())
            .expect("a cable opens");
        Self {
            cx,
            kept,
            wire,
            udp,
        }
    }

    /// Carries what the other host has sent in here.
    pub(crate) fn take_from(&self, other: &Host) -> usize {
        let mut carried = 0;
        while !other.kept.is_empty() {
            carried += other.kept.deliver(&self.cx, &self.wire, usize::MAX);
        }
        carried
    }
}

/// A port of one of the two hosts.
pub(crate) fn at(port: u16, host: u8) -> Participant {
    Participant::of(Part::Host([10, 0, 0, host].into())).with(Part::port(port))
}

/// Two hosts and a session between them.
pub(crate) struct Pair {
    a: Host,
    b: Host,
    session: SessionRef,
    received: Rc<Cell<u64>>,
}

impl Pair {
    pub(crate) fn new() -> Self {
        let pool = Pool::new(&PoolConfig::default()).expect("memory for a pool");
        let (a, b) = (Host::new(&pool, 1), Host::new(&pool, 2));
        let count = Count::default();
        let received = Rc::clone(&count.messages);
        let server = b.cx.add_protocol("count", "server", count);
        let enabled = b.udp.open_enable(
            &b.cx,
            Upper::new(&server),
            Participants::local(Part::port(7)),
        );
        let _ = enabled.expect("the port is free");
        let client = a.cx.add_protocol("count", "client", Count::default());
        let participants = Participants::pair(at(5000, 1), at(7, 2));
        let session = a
            .udp
            .open(&a.cx, Upper::new(&client), participants)
            .expect("the peer is on the link");
        let pair = Self {
            a,
            b,
            session,
            received,
        };
        // The first message waits for address resolution; then everything is warm.
        let _ = pair.session.push(&pair.a.cx, pair.message(64));
        while pair.b.take_from(&pair.a) + pair.a.take_from(&pair.b) > 0 {}
        assert_eq!(pair.received.get(), 1, "the pair has connected");
        pair
    }

    #[inline]
    fn message(&self, octets: usize) -> Message {
        self.a
            .cx
            .pool()
            .alloc(HEADROOM, octets)
            .expect("the pool has room")
    }

    /// Sends `count` messages: one alone by `push`, several by `push_burst`.
    fn send(&self, octets: usize, count: u64) {
        let sent = if count == 1 {
            let message = self.message(octets);
            self.session.push(&self.a.cx, black_box(message))
        } else {
            self.send_burst(octets, count)
        };
        sent.expect("the cable takes everything");
    }

    #[inline(never)]
    fn send_burst(&self, octets: usize, count: u64) -> Result<(), PushError> {
        let mut burst: Outgoing = (0..count).map(|_| self.message(octets)).collect();
        self.session.push_burst(&self.a.cx, black_box(&mut burst))
    }

    /// Sends and receives messages of this size, in batches.
    pub(crate) fn exchange(self, octets: usize, batch: u64) -> impl FnMut(u64) {
        move |operations| {
            let before = self.received.get();
            let mut left = operations;
            while left > 0 {
                let now = left.min(batch);
                self.send(octets, now);
                self.b.take_from(&self.a);
                left -= now;
            }
            assert_eq!(
                self.received.get() - before,
                operations,
                "everything sent arrived"
            );
        }
    }
}
