//! The protocol object: a node that asks about its cable, or the zones of a router.

use crate::lists::{Fetch, ZoneList};
use crate::wire::{Error, NetInfo, Notify, Packet, Reply};
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::{Cell, Ref, RefCell};
use core::time::Duration;
use xk_appletalk::addr::{BROADCAST, NetRange, Node};
use xk_appletalk::ddp::SOCKET_ZONE;
use xk_appletalk::name::Name;
use xk_appletalk::zip::{NetInfoStep, NetInfoWait, ZoneError, Zones, multicast};
use xk_core::graph::{Build, BuildError};
use xk_core::object::{OpenError, Refused};
use xk_core::participant::Participant;
use xk_core::reason::Class;
use xk_core::{
    Answer, Ask, Kernel, Message, Participants, Protocol, ProtocolRef, Reason, SessionRef, Upper,
    question, reason,
};
use xk_kit::answers::Allowance;
use xk_kit::control::JoinGroup;
use xk_kit::net::appletalk::{
    CableChanged, DdpCable, DdpEnds, DdpRoutes, Outlet, SetCable, ZoneNets, cables, local_socket,
    now, octets_of, socket,
};
use xk_kit::net::waiting::Alarm;

/// The packet was not asked for.
pub static UNSOLICITED: Reason = Reason::new("unsolicited", Class::NotMine);

/// Interval at which a router looks for networks without zones.
const QUERY_INTERVAL: Duration = Duration::from_secs(10);
/// Time until the first look: by then the ways to others are known.
const QUERY_FIRST: Duration = Duration::from_secs(1);
/// The timer tokens.
const TOKEN_DUE: u64 = 1;
pub(crate) const TOKEN_LIST: u64 = 2;
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

/// An answer that its node has no allowance left for.
pub static RATE_LIMITED: Reason = Reason::new("rate limited", Class::Exhausted);
/// Packets of answers that may go to a node at once.
const BURST: u64 = 100;

/// One instance.
pub struct Zip {
    lower: ProtocolRef,
    /// By which lists of zones go.
    pub(crate) atp: Option<ProtocolRef>,
    outlet: Outlet,
    zones: RefCell<Zones>,
    is_router: Cell<bool>,
    /// A node that asks about its cable.
    wait: RefCell<Option<NetInfoWait>>,
    /// Whether the node was told about its cable, or has asked with a router there.
    is_told: Cell<bool>,
    had_router: Cell<bool>,
    /// When a router looks for networks without zones.
    query_at: Cell<Option<Duration>>,
    alarm: Alarm,
    pub(crate) fetches: RefCell<Vec<Rc<Fetch>>>,
    allowance: Allowance,
}

/// Builds it from its place in a graph.
///
/// # Errors
/// [`BuildError`] if the graph gives it nothing to stand on.
pub fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    build.add(Zip {
        lower: build.lower(0)?,
        atp: build.lower(1).ok(),
        outlet: Outlet::default(),
        zones: RefCell::new(Zones::new(build.int("networks_max")?)),
        is_router: Cell::new(false),
        wait: RefCell::default(),
        is_told: Cell::new(false),
        had_router: Cell::new(false),
        query_at: Cell::new(None),
        alarm: Alarm::default(),
        fetches: RefCell::default(),
        allowance: Allowance::new(build.int("answers_per_second")?, BURST),
    })
}

/// Socket 6 of a network's port, or of whichever.
fn local(net: u16) -> Participant {
    local_socket(net, SOCKET_ZONE)
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
    pub(crate) fn ddp(&self) -> &ProtocolRef {
        &self.lower
    }

    pub(crate) fn is_router(&self) -> bool {
        self.is_router.get()
    }

    pub(crate) fn zones(&self) -> Ref<'_, Zones> {
        self.zones.borrow()
    }

    /// Whether so many packets may go to a node that has asked.
    pub(crate) fn may_answer(&self, cx: &Kernel, (net, node): (u16, u8), packets: usize) -> bool {
        self.allowance.take(cx, Node::new(net, node).source(), packets.min(BURST as usize))
    }

    fn send(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        (local, peer): (Participant, Participant),
        packet: &Packet,
    ) {
        self.outlet.send(cx, (this, &self.lower), (local, peer), &packet.octets());
    }

    /// A cable has changed.
    fn changed(&self, cx: &Kernel, this: &ProtocolRef) {
        let cables = cables(cx, &self.lower);
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
                    // A link that takes all has no use for it.
                    let _ = self.lower.ask(cx, JoinGroup { address: multicast(&zone) });
                }
                *self.wait.borrow_mut() = Some(NetInfoWait::new(zone, now(cx)));
                self.tick(cx, this);
            } else if is_news && !asks && cable.zone.is_empty() {
                *self.wait.borrow_mut() = Some(NetInfoWait::new(Name::EMPTY, now(cx)));
                self.tick(cx, this);
            }
            return;
        }
        for cable in &cables {
            let range = NetRange::new(cable.first, cable.last).filter(|_| cable.is_known);
            let zone = Name::new(&cable.zone).ok().filter(|zone| !zone.is_empty());
            if let Some((range, zone)) = range.zip(zone) {
                if self.zones.borrow_mut().set_own(range, &[zone]).is_err() {
                    this.head().drops().count(&reason::TABLE_FULL);
                }
                let _ = self.lower.ask(cx, JoinGroup { address: multicast(&zone) });
            }
        }
        if !cables.is_empty() && self.query_at.get().is_none() {
            self.query_at.set(Some(now(cx) + QUERY_FIRST));
        }
        self.arm(cx, this);
    }

    /// A node asks about its cable, or gives up.
    fn tick(&self, cx: &Kernel, this: &ProtocolRef) {
        let step = self.wait.borrow_mut().as_mut().and_then(|wait| wait.tick(now(cx)));
        match step {
            Some(NetInfoStep::Ask(request)) => {
                let ends = (local(0), socket(0, BROADCAST, SOCKET_ZONE));
                self.send(cx, this, ends, &Packet::NetInfoRequest(request));
            }
            Some(NetInfoStep::NoRouter) => drop(self.wait.take()),
            None => {}
        }
        self.arm(cx, this);
    }

    fn arm(&self, cx: &Kernel, this: &ProtocolRef) {
        let next = self.wait.borrow().as_ref().map(NetInfoWait::next).or(self.query_at.get());
        next.into_iter().for_each(|next| self.alarm.set(cx, this, next, TOKEN_DUE));
    }

    /// The timer went off.
    fn due(&self, cx: &Kernel, this: &ProtocolRef) {
        self.alarm.went_off();
        match self.query_at.get().is_some_and(|at| at <= now(cx)) {
            true => self.query(cx, this),
            false => self.tick(cx, this),
        }
    }

    /// Asks other routers for the zones of networks that lack them.
    fn query(&self, cx: &Kernel, this: &ProtocolRef) {
        self.query_at.set(Some(now(cx) + QUERY_INTERVAL));
        // Before what is sent takes timers.
        self.arm(cx, this);
        let routes = self.lower.ask(cx, DdpRoutes::default()).unwrap_or_default().routes;
        let ranges = routes.iter().filter_map(|route| NetRange::new(route.first, route.last));
        let kept = self.zones.borrow_mut().keep(ranges);
        if kept.is_err() {
            this.head().drops().count(&reason::TABLE_FULL);
        }
        let missing: Vec<u16> = self.zones.borrow().missing().map(NetRange::first).collect();
        let mut asked: Vec<((u16, u8), Vec<u16>)> = Vec::new();
        for route in routes.iter().filter(|route| missing.contains(&route.first)) {
            let router = (route.net, route.node);
            match asked
                .iter_mut()
                .find(|(other, nets)| *other == router && nets.len() < QUERY_NETS_MAX)
            {
                Some((_, nets)) => nets.push(route.first),
                None => asked.push((router, [route.first].into())),
            }
        }
        for ((net, node), nets) in asked {
            let ends = (local(net), socket(net, node, SOCKET_ZONE));
            self.send(cx, this, ends, &Packet::Query(nets));
        }
    }

    fn take(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        octets: &[u8],
    ) -> Result<(), &'static Reason> {
        let ends = lower.ask(cx, DdpEnds::default()).unwrap_or_default();
        let (net, node, from) = ends.peer;
        match Packet::parse(octets).map_err(reason_of)? {
            Packet::Query(nets) if self.is_router.get() => {
                let replies = self.zones.borrow().answer(&nets);
                if !self.may_answer(cx, (net, node), replies.len()) {
                    return Err(&RATE_LIMITED);
                }
                for reply in replies {
                    let ends = (local(0), socket(net, node, from));
                    self.send(cx, this, ends, &Packet::Reply(reply));
                }
                Ok(())
            }
            Packet::Reply(reply) if self.is_router.get() => self.heard(&reply),
            Packet::NetInfoRequest(request) if self.is_router.get() => {
                let cable = cables(cx, &self.lower).into_iter().nth(ends.port.into());
                let first = cable.ok_or(&reason::NOT_MINE)?.first;
                let info = self.zones.borrow().net_info(first, &request);
                let info = Packet::NetInfo(info.ok_or(&reason::NOT_MINE)?);
                if !self.may_answer(cx, (net, node), 1) {
                    return Err(&RATE_LIMITED);
                }
                // The node has an address of the cable, or of nodes that know no router.
                self.send(cx, this, (local(first), socket(net, node, from)), &info);
                Ok(())
            }
            Packet::NetInfo(info) if !self.is_router.get() => self.told(cx, &info),
            Packet::Notify(notify) if !self.is_router.get() => {
                self.renamed(cx, (net, node), &notify)
            }
            _ => Err(&reason::NOT_MINE),
        }
    }

    /// The router of the cable says that a zone has another name: that of the node, if it was in
    /// it.
    fn renamed(
        &self,
        cx: &Kernel,
        from: (u16, u8),
        notify: &Notify,
    ) -> Result<(), &'static Reason> {
        let cable = self.lower.ask(cx, DdpCable::default()).ok_or(&reason::NOT_MINE)?;
        let zone = Name::new(&cable.zone).unwrap_or_default();
        let range = NetRange::new(cable.first, cable.last);
        if cable.router != from || range != Some(notify.range) || zone != notify.old {
            return Err(&reason::NOT_MINE);
        }
        let set = SetCable {
            port: 0,
            first: cable.first,
            last: cable.last,
            zone: notify.new.octets().to_vec(),
            group: notify.multicast,
        };
        let _ = self.lower.ask(cx, set);
        Ok(())
    }

    /// Gives the zone of a router's cable another name, and tells the nodes there.
    fn rename(&self, cx: &Kernel, this: &ProtocolRef, question: &ZoneRename) -> Option<()> {
        let cable = cables(cx, &self.lower).into_iter().nth(question.port.into())?;
        let range = NetRange::new(cable.first, cable.last).filter(|_| self.is_router.get())?;
        let old = Name::new(&cable.zone).ok().filter(|zone| !zone.is_empty())?;
        let new = Name::from_text(&question.zone).ok().filter(|zone| !zone.is_empty())?;
        let group = Some(multicast(&new));
        let set = SetCable {
            port: question.port,
            first: cable.first,
            last: cable.last,
            zone: new.octets().to_vec(),
            group,
        };
        let _ = self.lower.ask(cx, set);
        self.zones.borrow_mut().set_own(range, &[new]).ok()?;
        let notify = Packet::Notify(Notify { range, old, new, multicast: group });
        // All nodes of the cable, of whichever of its networks.
        let ends = (local(cable.first), socket(0, BROADCAST, SOCKET_ZONE));
        self.send(cx, this, ends, &notify);
        Some(())
    }

    fn heard(&self, reply: &Reply) -> Result<(), &'static Reason> {
        match self.zones.borrow_mut().heard(reply) {
            Ok(_) => Ok(()),
            Err(ZoneError::Unsolicited) => Err(&UNSOLICITED),
            Err(ZoneError::Full) => Err(&reason::TABLE_FULL),
        }
    }

    /// A router has told about the cable.
    fn told(&self, cx: &Kernel, info: &NetInfo) -> Result<(), &'static Reason> {
        let is_it = self.wait.borrow().as_ref().is_some_and(|wait| wait.heard(info));
        if !is_it {
            return Err(&UNSOLICITED);
        }
        self.wait.take();
        let set = SetCable {
            port: 0,
            first: info.range.first(),
            last: info.range.last(),
            zone: info.zone().octets().to_vec(),
            group: info.multicast,
        };
        let _ = self.lower.ask(cx, set);
        Ok(())
    }
}

impl Protocol for Zip {
    fn start(&self, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        let socket = Participants::local(local(0));
        let _ = self.lower.open_enable(cx, Upper::new(this), socket)?;
        self.serve(cx, this)?;
        // What has its address by now tells of no change any more.
        let _ = cx.schedule_protocol(this, Duration::ZERO, 0);
        Ok(())
    }

    fn demux(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        message: Message,
    ) -> Result<(), Refused> {
        let octets = octets_of(&message);
        let taken = self.take(cx, this, lower, &octets);
        self.arm(cx, this);
        taken.map_err(|why| this.refuse(message, why))
    }

    fn call_demux(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        message: Message,
    ) -> Result<Message, Refused> {
        self.list(cx, this, lower, message)
    }

    fn control(&self, cx: &Kernel, this: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        if ask.get::<CableChanged>().is_some() {
            self.changed(cx, this);
        } else if let Some(question) = ask.get::<ZoneNets>() {
            let Ok(zone) = Name::new(&question.zone) else { return Answer::Unknown };
            question.nets = self.zones.borrow().cables_of(&zone).map(NetRange::first).collect();
        } else if let Some(question) = ask.get::<ZipZones>() {
            let zones = self.zones.borrow();
            question.zones = zones.all().iter().map(Name::text).collect();
            question.missing = zones.missing().count() as u32;
        } else if let Some(question) = ask.get::<ZoneList>() {
            if !self.fill(cx, this, question) {
                return Answer::Unknown;
            }
        } else if let Some(question) = ask.get::<ZoneRename>() {
            if self.rename(cx, this, question).is_none() {
                return Answer::Unknown;
            }
        } else {
            return self.lower.control(cx, ask);
        }
        Answer::Answered
    }

    fn describe(&self) -> Option<String> {
        Some(alloc::format!("{} zones", self.zones.borrow().all().len()))
    }

    fn lower(&self) -> Option<&ProtocolRef> {
        Some(&self.lower)
    }

    fn timeout(&self, cx: &Kernel, this: &ProtocolRef, token: u64) {
        match token {
            TOKEN_DUE => self.due(cx, this),
            TOKEN_LIST => self.fetch(cx, this),
            _ => self.changed(cx, this),
        }
    }

    fn stop(&self, cx: &Kernel, _: &ProtocolRef) {
        self.outlet.clear(cx);
        drop(self.fetches.take());
    }
}
