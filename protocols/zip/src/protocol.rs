//! The protocol object: a node that asks about its cable, or the zones of a router.

use crate::lists::{Fetch, ZoneList};
use crate::wire::{Error, NetInfo, Notify, Packet, Reply};
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::time::Duration;
use xk_appletalk::addr::{BROADCAST, NetRange, Node};
use xk_appletalk::ddp::SOCKET_ZONE;
use xk_appletalk::name::Name;
use xk_appletalk::zip::{NetInfoStep, NetInfoWait, ZoneError, Zones, multicast};
use xk_core::graph::{Build, BuildError};
use xk_core::object::{OpenError, Refused};
use xk_core::participant::Participant;
use xk_core::reason::Class;
use xk_core::{Answer, Ask, Kernel, Message, ProtocolRef, Reason, SessionRef, question, reason};
use xk_kit::answers::{Allowance, RATE_LIMITED};
use xk_kit::control::JoinGroup;
use xk_kit::machine::{self, At, Machine, Running};
use xk_kit::net::appletalk::{
    CableChanged, DdpCable, DdpEnds, DdpRoutes, SetCable, ZoneNets, cables, local_socket, socket,
};

/// The packet was not asked for.
pub static UNSOLICITED: Reason = Reason::new("unsolicited", Class::NotMine);

/// Interval at which a router looks for networks without zones.
const QUERY_INTERVAL: Duration = Duration::from_secs(10);
/// Time until the first look: by then the ways to others are known.
const QUERY_FIRST: Duration = Duration::from_secs(1);
/// The timer tokens.
const TOKEN_BEGUN: u64 = 0;
pub(crate) const TOKEN_LIST: u64 = 1;
/// Networks in one query at most.
const QUERY_NETS_MAX: usize = 64;

/// The zones that it knows, for `xk dump`.
#[derive(Clone, Debug, Default)]
pub struct ZipZones {
    /// The zones, each once.
    pub zones: Vec<String>,
    /// Number of cables whose zones are not known.
    pub missing: u32,
}

question!(ZipZones { zones, missing }, "zip-zones", Ask);

/// Gives the zone of a router's cable another name, and tells the nodes there.
#[derive(Clone, Debug, Default)]
pub struct ZoneRename {
    /// The port.
    pub port: u8,
    /// The name.
    pub zone: String,
}

question!(ZoneRename { port, zone }, "rename-zone", Ask);

/// Packets of answers that may go to a node at once.
const BURST: u64 = 100;

/// One instance.
pub struct Zip {
    /// The protocol by which lists of zones go.
    pub(crate) atp: Option<ProtocolRef>,
    pub(crate) zones: RefCell<Zones>,
    pub(crate) is_router: Cell<bool>,
    /// A node that asks about its cable.
    wait: RefCell<Option<NetInfoWait>>,
    /// Whether the node was told about its cable, or has asked with a router there.
    is_told: Cell<bool>,
    had_router: Cell<bool>,
    /// Time at which a router looks for networks without zones.
    query_at: Cell<Option<Duration>>,
    pub(crate) fetches: RefCell<Vec<Rc<Fetch>>>,
    allowance: Allowance,
}

/// Builds it from its place in a graph.
///
/// # Errors
/// [`BuildError`] if the graph gives it nothing to stand on.
pub fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let zip = Zip {
        atp: build.lower(1).ok(),
        zones: RefCell::new(Zones::new(build.int("networks_max")?)),
        is_router: Cell::new(false),
        wait: RefCell::default(),
        is_told: Cell::new(false),
        had_router: Cell::new(false),
        query_at: Cell::new(None),
        fetches: RefCell::default(),
        allowance: Allowance::new(build.int("answers_per_second")?, BURST),
    };
    machine::add(build, zip)
}

/// Socket 6 of a network's port, or of whichever.
fn local(net: u16) -> Participant {
    local_socket(net, SOCKET_ZONE)
}

/// Sends a packet to all nodes of the cable of a network's port.
fn send_all(at: At<'_>, net: u16, packet: &Packet) {
    at.send(local(net), socket(0, BROADCAST, SOCKET_ZONE), &packet.octets());
}

/// Tells the layer below the networks and the zone of a port's cable.
fn set_cable(at: At<'_>, port: u8, range: NetRange, zone: &Name, group: Option<[u8; 6]>) {
    let (first, last) = (range.first(), range.last());
    at.tell(SetCable { port, first, last, zone: zone.octets().to_vec(), group });
}

/// The reason that corresponds to what is wrong with a packet.
fn reason_of(error: Error) -> &'static Reason {
    match error {
        Error::Truncated => &reason::TRUNCATED,
        Error::Function(_) => &reason::NOT_SUPPORTED,
        Error::Range | Error::Address(_) => &reason::MALFORMED,
    }
}

impl Zip {
    /// Takes so many packets from the allowance of a node that has asked.
    pub(crate) fn allow(
        &self,
        at: At<'_>,
        ends: &DdpEnds,
        packets: usize,
    ) -> Result<(), &'static Reason> {
        let source = Node::new(ends.peer.0, ends.peer.1).source();
        let is_allowed = self.allowance.take(at.cx, source, packets.min(BURST as usize));
        is_allowed.then_some(()).ok_or(&RATE_LIMITED)
    }

    /// A cable has changed.
    fn changed(&self, at: At<'_>) {
        let cables = cables(at.cx, at.lower);
        self.is_router.set(cables.len() > 1);
        if let [cable] = &cables[..] {
            let has_router = cable.router.1 != 0;
            let is_news = has_router && !self.had_router.replace(has_router);
            let asks = self.wait.borrow().is_some();
            let is_first = !self.is_told.get() && !asks && (is_news || !has_router);
            if cable.is_ready && is_first {
                self.is_told.set(true);
                let zone = Name::new(&cable.zone).unwrap_or_default();
                if !zone.is_empty() {
                    at.tell(JoinGroup { address: multicast(&zone) });
                }
                self.ask(at, zone);
            } else if is_news && !asks && cable.zone.is_empty() {
                self.ask(at, Name::EMPTY);
            }
            return;
        }
        for cable in &cables {
            let range = NetRange::new(cable.first, cable.last).filter(|_| cable.is_known);
            let zone = Name::new(&cable.zone).ok().filter(|zone| !zone.is_empty());
            if let Some((range, zone)) = range.zip(zone) {
                if self.zones.borrow_mut().set_own(range, &[zone]).is_err() {
                    at.count(&reason::TABLE_FULL);
                }
                at.tell(JoinGroup { address: multicast(&zone) });
            }
        }
        if !cables.is_empty() && self.query_at.get().is_none() {
            self.query_at.set(Some(at.now() + QUERY_FIRST));
        }
    }

    /// Begins to ask about the node's cable.
    fn ask(&self, at: At<'_>, zone: Name) {
        *self.wait.borrow_mut() = Some(NetInfoWait::new(zone, at.now()));
        self.ask_again(at);
    }

    /// Asks about the node's cable, or gives up.
    fn ask_again(&self, at: At<'_>) {
        let step = self.wait.borrow_mut().as_mut().and_then(|wait| wait.tick(at.now()));
        match step {
            Some(NetInfoStep::Ask(request)) => send_all(at, 0, &Packet::NetInfoRequest(request)),
            Some(NetInfoStep::NoRouter) => drop(self.wait.take()),
            None => {}
        }
    }

    /// Asks other routers for the zones of networks that lack them.
    fn query(&self, at: At<'_>) {
        self.query_at.set(Some(at.now() + QUERY_INTERVAL));
        // Before what is sent takes timers.
        at.wake(self.next());
        let routes = at.ask(DdpRoutes::default()).unwrap_or_default().routes;
        let ranges = routes.iter().filter_map(|route| NetRange::new(route.first, route.last));
        let kept = self.zones.borrow_mut().keep(ranges);
        if kept.is_err() {
            at.count(&reason::TABLE_FULL);
        }
        let missing: Vec<u16> = self.zones.borrow().missing().map(NetRange::first).collect();
        let mut asked: Vec<((u16, u8), Vec<u16>)> = Vec::new();
        for route in routes.iter().filter(|route| missing.contains(&route.first)) {
            let router = (route.net, route.node);
            let has_room = |(other, nets): &&mut ((u16, u8), Vec<u16>)| {
                *other == router && nets.len() < QUERY_NETS_MAX
            };
            match asked.iter_mut().find(has_room) {
                Some((_, nets)) => nets.push(route.first),
                None => asked.push((router, [route.first].into())),
            }
        }
        for ((net, node), nets) in asked {
            at.send(local(net), socket(net, node, SOCKET_ZONE), &Packet::Query(nets).octets());
        }
    }

    /// The router of the cable says that a zone has another name: that of the node, if it was in
    /// it.
    fn renamed(&self, at: At<'_>, ends: &DdpEnds, notify: &Notify) -> Result<(), &'static Reason> {
        let cable = at.ask(DdpCable::default()).ok_or(&reason::NOT_MINE)?;
        let zone = Name::new(&cable.zone).unwrap_or_default();
        let is_its_router = cable.router == (ends.peer.0, ends.peer.1);
        let range = NetRange::new(cable.first, cable.last);
        if !is_its_router || range != Some(notify.range) || zone != notify.old {
            return Err(&reason::NOT_MINE);
        }
        set_cable(at, 0, notify.range, &notify.new, notify.multicast);
        Ok(())
    }

    /// Gives the zone of a router's cable another name, and tells the nodes there.
    fn rename(&self, at: At<'_>, question: &ZoneRename) -> Option<()> {
        let cable = cables(at.cx, at.lower).into_iter().nth(question.port.into())?;
        let range = NetRange::new(cable.first, cable.last).filter(|_| self.is_router.get())?;
        let old = Name::new(&cable.zone).ok().filter(|zone| !zone.is_empty())?;
        let new = Name::from_text(&question.zone).ok().filter(|zone| !zone.is_empty())?;
        let multicast = Some(multicast(&new));
        set_cable(at, question.port, range, &new, multicast);
        self.zones.borrow_mut().set_own(range, &[new]).ok()?;
        // All nodes of the cable, of whichever of its networks.
        send_all(at, cable.first, &Packet::Notify(Notify { range, old, new, multicast }));
        Some(())
    }

    fn heard(&self, reply: &Reply) -> Result<(), &'static Reason> {
        self.zones.borrow_mut().heard(reply).map(drop).map_err(|why| match why {
            ZoneError::Unsolicited => &UNSOLICITED,
            ZoneError::Full => &reason::TABLE_FULL,
        })
    }

    /// A router has told about the cable.
    fn told(&self, at: At<'_>, info: &NetInfo) -> Result<(), &'static Reason> {
        if !self.wait.borrow().as_ref().is_some_and(|wait| wait.heard(info)) {
            return Err(&UNSOLICITED);
        }
        self.wait.take();
        set_cable(at, 0, info.range, &info.zone(), info.multicast);
        Ok(())
    }
}

impl Machine for Zip {
    fn start(&self, at: At<'_>) -> Result<(), OpenError> {
        at.enable(local(0))?;
        self.serve(at)?;
        // What has its address by now tells of no change any more.
        let _ = at.schedule(Duration::ZERO, TOKEN_BEGUN);
        Ok(())
    }

    fn hear(&self, at: At<'_>, lower: &SessionRef, octets: &[u8]) -> Result<(), &'static Reason> {
        let ends = lower.ask(at.cx, DdpEnds::default()).unwrap_or_default();
        let (net, node, from) = ends.peer;
        let answer = |own, packet: &Packet| {
            at.send(local(own), socket(net, node, from), &packet.octets());
        };
        match Packet::parse(octets).map_err(reason_of)? {
            Packet::Query(nets) if self.is_router.get() => {
                let replies = self.zones.borrow().answer(&nets);
                self.allow(at, &ends, replies.len())?;
                replies.into_iter().for_each(|reply| answer(0, &Packet::Reply(reply)));
                Ok(())
            }
            Packet::Reply(reply) if self.is_router.get() => self.heard(&reply),
            Packet::NetInfoRequest(request) if self.is_router.get() => {
                let cable = cables(at.cx, at.lower).into_iter().nth(ends.port.into());
                let first = cable.ok_or(&reason::NOT_MINE)?.first;
                let info = self.zones.borrow().net_info(first, &request);
                let info = info.ok_or(&reason::NOT_MINE)?;
                self.allow(at, &ends, 1)?;
                // The node has an address of the cable, or of nodes that know no router.
                answer(first, &Packet::NetInfo(info));
                Ok(())
            }
            Packet::NetInfo(info) if !self.is_router.get() => self.told(at, &info),
            Packet::Notify(notify) if !self.is_router.get() => self.renamed(at, &ends, &notify),
            _ => Err(&reason::NOT_MINE),
        }
    }

    fn call(
        all: &Rc<Running<Self>>,
        at: At<'_>,
        lower: &SessionRef,
        request: Message,
    ) -> Result<Message, Refused> {
        all.list(at, lower, &request).map_err(|why| at.this.refuse(request, why))
    }

    fn next(&self) -> Option<Duration> {
        self.wait.borrow().as_ref().map(NetInfoWait::next).or(self.query_at.get())
    }

    fn due(&self, at: At<'_>) {
        match self.query_at.get().is_some_and(|time| time <= at.now()) {
            true => self.query(at),
            false => self.ask_again(at),
        }
    }

    fn timeout(all: &Rc<Running<Self>>, at: At<'_>, token: u64) {
        match token {
            TOKEN_LIST => all.fetch(at),
            _ => all.changed(at),
        }
    }

    fn answer(&self, at: At<'_>, ask: &mut Ask<'_>) -> Option<Answer> {
        let answered = if ask.get::<CableChanged>().is_some() {
            self.changed(at);
            Some(())
        } else if let Some(question) = ask.get::<ZoneNets>() {
            Name::new(&question.zone).ok().map(|zone| {
                let zones = self.zones.borrow();
                question.nets = zones.cables_of(&zone).map(NetRange::first).collect();
            })
        } else if let Some(question) = ask.get::<ZipZones>() {
            let zones = self.zones.borrow();
            question.zones = zones.all().iter().map(Name::text).collect();
            question.missing = zones.missing().count() as u32;
            Some(())
        } else if let Some(question) = ask.get::<ZoneList>() {
            self.fill(at, question)
        } else {
            self.rename(at, ask.get::<ZoneRename>()?)
        };
        Some(answered.map_or(Answer::Unknown, |()| Answer::Answered))
    }

    fn describe(&self) -> Option<String> {
        Some(alloc::format!("{} zones", self.zones.borrow().all().len()))
    }

    fn stop(&self, _: &Kernel) {
        drop(self.fetches.take());
    }
}
