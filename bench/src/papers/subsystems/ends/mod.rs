//! Ends that stand around one protocol, in each subsystem: what sends and receives above it, and
//! what takes and brings below it. They do nothing else, so that what is between them can be
//! watched ([`crate::stopwatch`]).
//!
//! The ends hand over messages that are ready, in the forms of their subsystem, and free what they
//! get; both is outside of what counts.

mod bsd;
mod streams;
mod xk;

use super::Subsystem;
use crate::cable::HEADROOM;
use crate::stack::{pool, waiting_config};
use crate::stopwatch::{Way, enter};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use xk_adapters::Addr;
use xk_appletalk::addr::AtAddr;
use xk_appletalk::{atp, ddp};
use xk_bsd::{Mbuf, Mbufs, Mt, Release};
use xk_catalog::PROTOCOLS;
use xk_core::graph::{Builder, Catalog, Family, Guarantees, Service};
use xk_core::{Entry, Kernel, Message, Pool};
use xk_streams::{Blocks, Kind, Mblk, Priority};

/// Octets of a datagram of users, and of a request.
pub(super) const DATAGRAM: usize = 30;
pub(super) const REQUEST: usize = 45;
/// Octets of a response's packet.
pub(super) const RESPONSE: usize = 578;
/// Sockets of this end and of the peer.
const OWN: u8 = 140;
const PEER: u8 = 130;
/// The type of the ends' datagrams.
const TYPE: u8 = 9;
/// Octets of one buffer of a message that is made of several.
const BUFFER: usize = 1024;
/// Octets that those below take at most.
const MAX: usize = 8192;
/// Buffers of bare copies at most.
const BARE_MAX: u32 = 1024;
/// Operations after which everything is found and opened.
const WARM: u64 = 8;
/// Time in which nodes claim their addresses.
const STEPS: u32 = 50;
const STEP: Duration = Duration::from_millis(100);

/// The kind of the end above.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Above {
    /// Sends and receives datagrams.
    #[default]
    Datagrams,
    /// Calls, and gets replies.
    Caller,
    /// Serves requests.
    Server,
    /// A program with a socket, or an endpoint of TLI.
    Program,
}

/// The protocol between the ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Between {
    /// DDP, on links.
    Ddp,
    /// ATP, on datagrams.
    Atp,
    /// An adapter at datagrams, or nothing but a subsystem's own way for users.
    #[default]
    Edge,
}

/// In which buffers a message lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Form {
    /// In those that other subsystems can hold: clusters, blocks, messages of the kernel's pool.
    #[default]
    Own,
    /// In mbufs of their own octets, or in blocks over storage that another has lent.
    Foreign,
}

type Act = Rc<dyn Fn(&Kernel, usize, Form)>;
type Step = Rc<dyn Fn(&Kernel)>;

/// Beside the kernel: what the ends know of one another.
#[derive(Default)]
pub(super) struct Desk {
    above: Cell<Above>,
    between: Cell<Between>,
    /// Sends from above, and brings from below.
    down: RefCell<Option<Act>>,
    up: RefCell<Option<Act>>,
    /// Messages that went out below, and that came in above.
    went: Cell<u64>,
    came: Cell<u64>,
    /// The transaction of the last request.
    tid: Cell<u16>,
    /// Makes the end above ready, once the graph has started.
    ready: RefCell<Option<Step>>,
    /// Has a program take what has come.
    taken: RefCell<Option<Step>>,
}

/// The end below, in the place of a protocol of this kind.
const fn end_below(kind: &'static str, build: Builder, above: Family) -> Entry {
    Entry::layer(kind, "", build)
        .above(above)
        .lowers(0..=0)
        .service(Service { adds: Guarantees::ALL, keeps: Guarantees::NONE })
        .numbers(&[])
}

/// The desk of a kernel; a new one where a graph is only looked at.
fn desk(cx: &Kernel) -> Rc<Desk> {
    cx.surroundings::<Desk>().unwrap_or_default()
}

fn count(counter: &Cell<u64>) {
    counter.set(counter.get() + 1);
}

const fn own() -> AtAddr {
    AtAddr::new(10, 17, OWN)
}

const fn peer() -> AtAddr {
    AtAddr::new(10, 18, PEER)
}

/// As adapters and STREAMS have it.
fn addr(at: AtAddr) -> Addr {
    Addr::parse(&at.to_sockaddr()).expect("sixteen octets")
}

impl Desk {
    /// A message has gone out: if it is a request there is a response, to be brought at once.
    fn went(&self, octets: &[u8]) -> Option<Vec<u8>> {
        count(&self.went);
        if (self.between.get(), self.above.get()) != (Between::Atp, Above::Caller) {
            return None;
        }
        let request = atp::Header::parse(octets).expect("ATP's header");
        let mut header = atp::Header::new(atp::Kind::Response, 0, request.tid, [0; 4]);
        header.end_of_message = true;
        Some([&header.emit()[..], &[0; RESPONSE]].concat())
    }

    /// The octets that come in from below.
    fn coming(&self, octets: usize) -> Vec<u8> {
        let data = vec![0; octets];
        match self.between.get() {
            Between::Ddp => ddp::join(own(), peer(), TYPE, &data, true).expect("a datagram"),
            Between::Atp => {
                let tid = self.tid.get().wrapping_add(1);
                self.tid.set(tid);
                let header = atp::Header::request(None, 1, tid, [0; 4]);
                [&header.emit()[..], &data].concat()
            }
            Between::Edge => data,
        }
    }
}

// ---- messages ----

fn message(pool: &Pool, octets: usize) -> Message {
    pool.alloc(HEADROOM, octets).expect("messages are left")
}

fn mbufs(mbufs: &Mbufs, octets: usize, form: Form) -> Mbuf {
    let mut packet: Option<Mbuf> = None;
    let mut rest = octets;
    while rest > 0 {
        let part = if packet.is_none() { mbufs.m_gethdr(Mt::Data) } else { mbufs.m_get(Mt::Data) };
        let mut part = part.expect("mbufs are left");
        match form {
            Form::Own => {
                part.mclget().expect("clusters are left");
                // Room in front for protocols below.
                part.set_offset(if packet.is_none() { HEADROOM } else { 0 });
            }
            Form::Foreign => part.align(rest.min(part.size())),
        }
        let here = rest.min(part.trailing_space());
        part.extend(here).expect("there is room");
        rest -= here;
        match &mut packet {
            Some(packet) => drop(packet.last_mut().set_next(Some(part))),
            None => packet = Some(part),
        }
    }
    let mut packet = packet.expect("it has octets");
    packet.make_packet(0);
    packet
}

/// Storage of another's.
struct Storage([u8; BUFFER], usize);

impl xk_streams::block::Lent for Storage {
    fn octets(&self) -> &[u8] {
        &self.0[..self.1]
    }
}

fn blocks(blocks: &Blocks, octets: usize, form: Form) -> Mblk {
    if form == Form::Own {
        // One block, with room in front for protocols below.
        return blocks.copy(Kind::Data, HEADROOM, &vec![0; octets]).expect("blocks are left");
    }
    let mut whole: Option<Mblk> = None;
    let mut rest = octets;
    while rest > 0 {
        let here = rest.min(BUFFER);
        let lent = Box::new(Storage([0; BUFFER], here));
        let part = blocks.esballoc(lent, Priority::Low).ok().expect("blocks are left");
        rest -= here;
        match &mut whole {
            Some(whole) => whole.linkb(part),
            None => whole = Some(part),
        }
    }
    whole.expect("it has octets")
}

/// Copies of messages that nothing else is done with.
pub(super) struct Bare {
    pool: Pool,
    mbufs: Option<Mbufs>,
    blocks: Blocks,
}

impl Bare {
    /// Makes buffers: mbufs with octets of their own, or blocks over lent storage.
    pub(super) fn new(is_mbufs: bool) -> Self {
        let pool = pool();
        let mbufs = is_mbufs.then(|| Mbufs::new(Release::Bsd43, pool.clone(), BARE_MAX, BARE_MAX));
        let blocks = Blocks::of_pool(&pool, BARE_MAX as usize, 1 << 20);
        Self { pool, mbufs, blocks }
    }

    /// Copies so many messages of so many octets into buffers of the x-kernel's, and frees them.
    pub(super) fn copies(&self, count: u64, octets: usize) {
        for _ in 0..count {
            let copied = match &self.mbufs {
                Some(all) => {
                    let m = mbufs(all, octets, Form::Foreign);
                    enter(Way::Down, || {
                        let copied = self.copied(octets, m.mbufs().map(Mbuf::mtod));
                        m.m_freem();
                        copied
                    })
                }
                None => {
                    let data = blocks(&self.blocks, octets, Form::Foreign);
                    enter(Way::Down, || {
                        let copied = self.copied(octets, data.blocks().map(Mblk::octets));
                        drop(data);
                        copied
                    })
                }
            };
            assert_eq!(copied.len(), octets, "all of it");
        }
    }

    fn copied<'a>(&self, octets: usize, parts: impl Iterator<Item = &'a [u8]>) -> Message {
        let mut copied = self.pool.alloc(HEADROOM, octets).expect("messages are left");
        let mut at = 0;
        parts.for_each(|part| at += copied.copy_in(at, part));
        copied
    }
}

// ---- the kernel ----

/// One protocol with its ends.
pub(super) struct Rig {
    cx: Rc<Kernel>,
    desk: Rc<Desk>,
    name: String,
}

/// Entries of the real ones' kinds that are taken from the catalog.
fn catalog(real: &[&str]) -> Catalog {
    let is_wanted = |entry: &&&'static Entry| {
        let is_framework = matches!(entry.kind, "bsd" | "streams") || entry.kind.contains("-on-");
        is_framework || real.contains(&entry.kind)
    };
    let known = PROTOCOLS.iter().filter(is_wanted).copied();
    let ends = xk::ENTRIES.iter().chain(&bsd::ENTRIES).chain(&streams::ENTRIES).copied();
    let ends = ends.filter(|entry| !real.contains(&entry.kind));
    let entries: Vec<&'static Entry> = known.chain(ends).collect();
    Catalog::new(&entries).expect("entries that agree")
}

impl Rig {
    /// With the end above, what is between, and the end below in these subsystems: the upper's and
    /// the lower's. What is between is of the upper's, if it is no adapter.
    ///
    /// # Panics
    /// If it cannot be made, or nothing arrives.
    pub(super) fn new(
        above: Above,
        between: Between,
        (upper, lower): (Subsystem, Subsystem),
    ) -> Self {
        let (real, lines, top): (&[&str], String, &str) = match between {
            Between::Ddp => {
                let link = if upper == Subsystem::Xk { "eth" } else { "ether" };
                let ddp = format!("{link}\nddp {link} net=\"10-19\" node=17\nuser ddp\n");
                (&["ddp"], upper.block(&ddp), "user")
            }
            Between::Atp => (&["atp"], upper.block("ddp\natp ddp xo=#false\nuser atp\n"), "user"),
            Between::Edge if upper == lower => (&[], upper.block("ddp\nuser ddp\n"), "user"),
            Between::Edge => (&[], lower.block("ddp\n") + &upper.block("user ddp\n"), "user"),
        };
        let name = format!("{above:?} {between:?} {upper:?} {lower:?} {top}");
        let cx = Rc::new(Kernel::new(waiting_config(&pool(), 1)));
        let desk = Rc::new(Desk::default());
        desk.above.set(above);
        desk.between.set(between);
        cx.surround(Rc::clone(&desk));
        let text = format!("host h {{\n{lines}}}\n");
        let graph = xk_compose::check(&text, "bench", &catalog(real));
        let graph = graph.unwrap_or_else(|d| panic!("{name}: {}", d.to_text()));
        let host = graph.host("h").expect("the graph's only host");
        let built = xk_compose::build(&graph, &host, &cx);
        built.unwrap_or_else(|d| panic!("{name}: {}", d.to_text()));
        let started = xk_compose::started(&graph, &host, cx.start());
        started.unwrap_or_else(|d| panic!("{name}: {}", d.to_text()));
        let rig = Self { cx, desk, name };
        for _ in 0..STEPS {
            rig.cx.set_now(rig.cx.now().after(STEP));
            rig.cx.run_due();
        }
        let ready = rig.desk.ready.take();
        if let Some(ready) = ready {
            ready(&rig.cx);
        }
        if above != Above::Server {
            rig.down(WARM, DATAGRAM, Form::Own);
        }
        if above != Above::Caller {
            rig.up(WARM, DATAGRAM, Form::Own);
        }
        rig
    }

    /// Sends so many messages of so many octets; each has gone out below.
    pub(super) fn down(&self, count: u64, octets: usize, form: Form) {
        let act = self.desk.down.borrow().clone().expect("the end above has started");
        (0..count).for_each(|_| act(&self.cx, octets, form));
        let went = self.desk.went.replace(0);
        assert_eq!(went, count, "{}: messages went", self.name);
        if self.desk.above.get() == Above::Caller {
            assert_eq!(self.desk.came.replace(0), count, "{}: replies came", self.name);
        }
    }

    /// Brings so many messages of so many octets; each has come in above.
    pub(super) fn up(&self, count: u64, octets: usize, form: Form) {
        let act = self.desk.up.borrow().clone().expect("the end below has started");
        (0..count).for_each(|_| act(&self.cx, octets, form));
        assert_eq!(self.desk.came.replace(0), count, "{}: messages came", self.name);
        if self.desk.above.get() == Above::Server {
            assert_eq!(self.desk.went.replace(0), count, "{}: responses went", self.name);
        }
    }

    /// Number of runs of a service procedure of STREAMS: no watched message waits for one.
    #[cfg(test)]
    fn services(&self) -> u64 {
        xk_streams::Streams::of(&self.cx).map_or(0, |streams| streams.counts().services)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::papers::subsystems::Subsystem::{Bsd, Streams, Xk};

    const ALL: [Subsystem; 3] = [Xk, Bsd, Streams];

    /// The rig itself asserts that what goes in comes out.
    fn runs(above: Above, between: Between, of: (Subsystem, Subsystem)) {
        let rig = Rig::new(above, between, of);
        let before = rig.services();
        for form in [Form::Own, Form::Foreign] {
            if above != Above::Server {
                rig.down(20, DATAGRAM, form);
            }
            if above != Above::Caller {
                rig.up(20, DATAGRAM, form);
            }
        }
        assert_eq!(rig.services(), before, "{}: nothing waits in a queue", rig.name);
    }

    #[test]
    fn each_protocol_passes_on_what_its_ends_hand_it() {
        for of in ALL {
            runs(Above::Datagrams, Between::Ddp, (of, of));
            runs(Above::Caller, Between::Atp, (of, of));
            runs(Above::Server, Between::Atp, (of, of));
        }
    }

    #[test]
    fn programs_send_and_receive() {
        for of in [Bsd, Streams] {
            runs(Above::Program, Between::Edge, (of, of));
        }
    }

    #[test]
    fn each_adapter_passes_messages_of_all_lengths_and_forms() {
        for upper in ALL {
            for lower in ALL.into_iter().filter(|lower| *lower != upper) {
                let rig = Rig::new(Above::Datagrams, Between::Edge, (upper, lower));
                for octets in [1, 45, 1024, 1025, 4624] {
                    for form in [Form::Own, Form::Foreign] {
                        rig.down(3, octets, form);
                        rig.up(3, octets, form);
                    }
                }
            }
        }
    }
}
