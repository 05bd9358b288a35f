//! Hosts of xk joined by a cable within one process, composed from a graph file as a user's would
//! be.

use crate::stack::{Bottom, BottomWire, config, pool};
use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use xk_catalog::PROTOCOLS;
use xk_core::graph::Catalog;
use xk_core::graph::{Build, BuildError};
use xk_core::kernel::Config;
use xk_core::object::{Arrivals, OpenError};
use xk_core::{
    Entry, Kernel, Part, Participant, Participants, Pool, Protocol, ProtocolRef, SessionRef, Time,
    Upper,
};

/// The cable's end in a host, as an entry of the catalog.
static CABLE: Entry = Entry::wire("cable", "", build_cable)
    .summary("keeps what is sent for the benchmark to carry over");

/// One host's end of the cable: the frames that it has to carry, and the protocol that receives
/// them.
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
    cable: ProtocolRef,
    wire: OnceCell<SessionRef>,
    /// The protocol at the top.
    pub(crate) top: ProtocolRef,
}

fn opened(cx: &Kernel, cable: &ProtocolRef, upper: &ProtocolRef) -> SessionRef {
    cable.open(cx, Upper::new(upper), Participants::default()).expect("a cable opens")
}

/// Room for the headers of UDP, IP and ETH, in octets.
pub(crate) const HEADROOM: usize = 128;

impl Host {
    /// A host with `top` on IP, a line of a graph file, such as `udp ip`, and room for so many
    /// timers.
    fn new(pool: &Pool, number: u8, top: &str, timers_max: usize) -> Self {
        let lines =
            format!("eth cable\n arp eth\n ip arp {{ address \"10.0.0.{number}/24\"; }}\n {top}");
        let name = top.split(' ').next().unwrap_or_default();
        Self::composed(config(pool, number, timers_max), number, &lines, name, &[])
    }

    /// A host of the lines of a graph file above a `cable`, some of the benchmark's `own` entries;
    /// what is called `top` is to be found.
    pub(crate) fn composed(
        config: Config,
        number: u8,
        lines: &str,
        top: &str,
        own: &[&'static Entry],
    ) -> Self {
        let cx = Rc::new(Kernel::new(config));
        let end = Rc::new(CableEnd { number, kept: RefCell::default() });
        cx.surround(Rc::clone(&end));
        let text = format!("host h {{\n cable\n {lines}\n}}\n");
        let known = PROTOCOLS.iter().copied().chain([&CABLE]);
        let entries: Vec<&'static Entry> = known.chain(own.iter().copied()).collect();
        let catalog = Catalog::new(&entries).expect("the cable is new to the catalog");
        let graph =
            xk_compose::check(&text, "bench", &catalog).map_err(|d| d.to_text()).expect("checked");
        let host = graph.host("h").expect("the graph's only host");
        let built = xk_compose::build(&graph, &host, &cx).map_err(|d| d.to_text()).expect("built");
        let find = |name: &str| built.find(name).cloned();
        let top = find(top).expect("the graph has it");
        let cable = find("cable").expect("the graph has a cable");
        // The layer on the cable opens it; if there is ETH it is ETH.
        let eth = find("eth");
        let started = xk_compose::started(&graph, &host, cx.start());
        started.map_err(|d| d.to_text()).expect("started");
        let kept = end.kept.borrow().clone().expect("the cable was built");
        let wire = OnceCell::new();
        if let Some(eth) = &eth {
            let _ = wire.set(opened(&cx, &cable, eth));
        }
        Self { cx, kept, cable, wire, top }
    }

    /// The cable's session.
    #[inline]
    fn wire(&self) -> &SessionRef {
        // The cable has one session, whose receiver is the first layer that opened it.
        self.wire.get_or_init(|| opened(&self.cx, &self.cable, &self.cable))
    }

    /// Number of frames that it has sent.
    pub(crate) fn sent(&self) -> u64 {
        self.wire().head().sent()
    }

    /// Carries what the other host has sent in here.
    #[inline]
    pub(crate) fn take_from(&self, other: &Host) -> usize {
        self.take_all(&other.kept)
    }

    /// Carries what was kept in here.
    #[inline]
    pub(crate) fn take_all(&self, kept: &Arrivals) -> usize {
        let mut carried = 0;
        while !kept.is_empty() {
            carried += kept.deliver(&self.cx, self.wire(), usize::MAX);
        }
        carried
    }

    /// The place in which sent frames are kept.
    pub(crate) fn kept(&self) -> Rc<Arrivals> {
        Rc::clone(&self.kept)
    }
}

/// A port of one of the two hosts.
pub(crate) fn at(port: u16, host: u8) -> Participant {
    Participant::of(Part::Host([10, 0, 0, host].into())).with(Part::port(port))
}

/// Two hosts on one cable: the first with a client, the second with a server.
pub(crate) struct Hosts {
    pub(crate) a: Host,
    pub(crate) b: Host,
    client: ProtocolRef,
    server: ProtocolRef,
    now: Cell<Time>,
}

impl Hosts {
    /// Both with `top` on IP, a line of a graph file, and room for so many timers.
    pub(crate) fn new(
        top: &str,
        timers_max: usize,
        client: impl Protocol + 'static,
        server: impl Protocol + 'static,
    ) -> Self {
        let pool = pool();
        Self::of([1, 2].map(|number| Host::new(&pool, number, top, timers_max)), client, server)
    }

    /// Both, with these users.
    pub(crate) fn of(
        [a, b]: [Host; 2],
        client: impl Protocol + 'static,
        server: impl Protocol + 'static,
    ) -> Self {
        let client = a.cx.add_protocol("client", "client", client);
        let server = b.cx.add_protocol("server", "server", server);
        Self { a, b, client, server, now: Cell::new(Time::ZERO) }
    }

    /// Has the server serve a port.
    pub(crate) fn serve(&self, port: u16) {
        self.enable(Participants::local(Part::port(port)));
    }

    /// Has the server open a session on a port, with everybody.
    pub(crate) fn receive_from_all(&self, port: u16) {
        let ends = Participants::pair(at(port, 2), Part::Any);
        let opened = self.b.top.open(&self.b.cx, Upper::new(&self.server), ends);
        let _stands = opened.expect("the port is free");
    }

    /// Enables these participants for the server.
    pub(crate) fn enable(&self, local: Participants) {
        let b = &self.b;
        let enabled = b.top.open_enable(&b.cx, Upper::new(&self.server), local);
        let _stands = enabled.expect("nobody else serves it");
    }

    /// A session of the client on a port, to one of the server's.
    pub(crate) fn open(&self, port: u16, to: u16) -> Result<SessionRef, OpenError> {
        self.open_with(Participants::pair(at(port, 1), at(to, 2)))
    }

    /// A session of the client.
    pub(crate) fn open_with(&self, ends: Participants) -> Result<SessionRef, OpenError> {
        self.a.top.open(&self.a.cx, Upper::new(&self.client), ends)
    }

    /// Lets so much time pass for both.
    pub(crate) fn pass(&self, time: Duration) -> Time {
        let now = self.now.get() + time;
        self.now.set(now);
        for host in [&self.a, &self.b] {
            host.cx.set_now(now);
            host.cx.run_due();
        }
        now
    }

    /// Carries frames until there are no more.
    #[inline]
    pub(crate) fn carry(&self) {
        while self.b.take_from(&self.a) + self.a.take_from(&self.b) > 0 {}
    }
}
