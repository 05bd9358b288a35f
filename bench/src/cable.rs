//! Hosts of xk joined by a cable within one process, composed from a graph file as a user's would be.

use crate::stack::{Bottom, BottomWire};
use std::cell::RefCell;
use std::rc::Rc;
use xk_catalog::{Catalog, PROTOCOLS};
use xk_core::graph::{Build, BuildError, Family, NOTHING_BELOW, Realm};
use xk_core::kernel::Config;
use xk_core::object::Arrivals;
use xk_core::shepherd::{Limits, NoSwitch, Shepherds};
use xk_core::{
    Entry, Kernel, Part, Participant, Participants, Pool, ProtocolRef, SessionRef, Upper,
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
    virtual_rules: None,
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
    /// What stands on IP.
    pub(crate) top: ProtocolRef,
}

/// Room for the headers of UDP, IP and ETH, in octets.
pub(crate) const HEADROOM: usize = 128;

impl Host {
    /// A host with `top` on IP: a line of a graph file, such as `udp ip`.
    pub(crate) fn new(pool: &Pool, number: u8, top: &str) -> Self {
        Self::with_timers(pool, number, top, 1 << 12)
    }

    /// The same with room for so many timers.
    pub(crate) fn with_timers(pool: &Pool, number: u8, top: &str, timers_max: usize) -> Self {
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
            timers_max,
        };
        let cx = Rc::new(Kernel::new(config));
        let end = Rc::new(CableEnd {
            number,
            kept: RefCell::default(),
        });
        cx.surround(Rc::clone(&end));
        let text = format!(
            "host h {{\n cable\n eth cable\n arp eth\n ip arp {{ address \"10.0.0.{number}/24\"; }}\n {top}\n}}\n"
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
        let name = top.split(' ').next().unwrap_or_default();
        let top = built.find(name).cloned().expect("the graph has it");
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
            top,
        }
    }

    /// How many frames it has sent.
    pub(crate) fn sent(&self) -> u64 {
        self.wire.head().sent()
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
