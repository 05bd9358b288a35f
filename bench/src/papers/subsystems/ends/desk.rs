//! The desk of a kernel, by which its ends know of one another, and the messages that they hand
//! over.

use crate::cable::HEADROOM;
use crate::stack::pool;
use crate::stopwatch::{Way, enter};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use xk_adapters::Addr;
use xk_appletalk::addr::AtAddr;
use xk_appletalk::{atp, ddp};
use xk_bsd::{Mbuf, Mbufs, Mt, Release};
use xk_core::graph::{Builder, Family, Guarantees, Service};
use xk_core::{Entry, Kernel, Message, Pool};
use xk_streams::{Blocks, Kind, Mblk, Priority};

/// Octets of a datagram of users, and of a request.
pub(crate) const DATAGRAM: usize = 30;
pub(crate) const REQUEST: usize = 45;
/// Octets of a response's packet.
pub(crate) const RESPONSE: usize = 578;
/// Sockets of this end and of the peer.
pub(super) const OWN: u8 = 140;
pub(super) const PEER: u8 = 130;
/// The type of the ends' datagrams.
pub(super) const TYPE: u8 = 9;
/// Octets of one buffer of a message that is made of several.
pub(super) const BUFFER: usize = 1024;
/// Octets that those below take at most.
pub(super) const MAX: usize = 8192;
/// Buffers of bare copies at most.
pub(super) const BARE_MAX: u32 = 1024;
/// The kind of the end above.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Above {
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
pub(crate) enum Between {
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
pub(crate) enum Form {
    /// In those that other subsystems can hold: clusters, blocks, messages of the kernel's pool.
    #[default]
    Own,
    /// In mbufs of their own octets, or in blocks over storage that another has lent.
    Foreign,
}

pub(super) type Act = Rc<dyn Fn(&Kernel, usize, Form)>;
pub(super) type Step = Rc<dyn Fn(&Kernel)>;

/// Beside the kernel: what the ends know of one another.
#[derive(Default)]
pub(super) struct Desk {
    pub(super) above: Cell<Above>,
    pub(super) between: Cell<Between>,
    /// Sends from above, and brings from below.
    pub(super) down: RefCell<Option<Act>>,
    pub(super) up: RefCell<Option<Act>>,
    /// Messages that went out below, and that came in above.
    pub(super) went: Cell<u64>,
    pub(super) came: Cell<u64>,
    /// The transaction of the last request.
    pub(super) tid: Cell<u16>,
    /// Makes the end above ready, once the graph has started.
    pub(super) ready: RefCell<Option<Step>>,
    /// Has a program take what has come.
    pub(super) taken: RefCell<Option<Step>>,
}

/// The end below, in the place of a protocol of this kind.
pub(super) const fn end_below(kind: &'static str, build: Builder, above: Family) -> Entry {
    Entry::layer(kind, "", build)
        .above(above)
        .lowers(0..=0)
        .service(Service { adds: Guarantees::ALL, keeps: Guarantees::NONE })
        .numbers(&[])
}

/// The desk of a kernel; a new one where a graph is only looked at.
pub(super) fn desk(cx: &Kernel) -> Rc<Desk> {
    cx.surroundings::<Desk>().unwrap_or_default()
}

pub(super) fn count(counter: &Cell<u64>) {
    counter.set(counter.get() + 1);
}

pub(super) const fn own() -> AtAddr {
    AtAddr::new(10, 17, OWN)
}

pub(super) const fn peer() -> AtAddr {
    AtAddr::new(10, 18, PEER)
}

/// As adapters and STREAMS have it.
pub(super) fn addr(at: AtAddr) -> Addr {
    Addr::parse(&at.to_sockaddr()).expect("sixteen octets")
}

impl Desk {
    /// A message has gone out: if it is a request there is a response, to be brought at once.
    pub(super) fn went(&self, octets: &[u8]) -> Option<Vec<u8>> {
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
    pub(super) fn coming(&self, octets: usize) -> Vec<u8> {
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

pub(super) fn message(pool: &Pool, octets: usize) -> Message {
    pool.alloc(HEADROOM, octets).expect("messages are left")
}

pub(super) fn mbufs(mbufs: &Mbufs, octets: usize, form: Form) -> Mbuf {
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

pub(super) fn blocks(blocks: &Blocks, octets: usize, form: Form) -> Mblk {
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
pub(crate) struct Bare {
    pool: Pool,
    mbufs: Option<Mbufs>,
    blocks: Blocks,
}

impl Bare {
    /// Makes buffers: mbufs with octets of their own, or blocks over lent storage.
    pub(crate) fn new(is_mbufs: bool) -> Self {
        let pool = pool();
        let mbufs = is_mbufs.then(|| Mbufs::new(Release::Bsd43, pool.clone(), BARE_MAX, BARE_MAX));
        let blocks = Blocks::of_pool(&pool, BARE_MAX as usize, 1 << 20);
        Self { pool, mbufs, blocks }
    }

    /// Copies so many messages of so many octets into buffers of the x-kernel's, and frees them.
    pub(crate) fn copies(&self, count: u64, octets: usize) {
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
