//! The protocol object: the stub of a node, or the table of a router.

use crate::wire::{Data, Error, Request};
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::time::Duration;
use xk_appletalk::addr::{BROADCAST, NetRange, Node};
use xk_appletalk::ddp::{SOCKET_RTMP, TYPE_RTMP_REQUEST};
use xk_appletalk::rtmp::{Heard, Port, Stub, Table, UPDATE_INTERVAL};
use xk_core::graph::{Build, BuildError};
use xk_core::object::{OpenError, Refused};
use xk_core::participant::Participant;
use xk_core::reason::Class;
use xk_core::{
    Answer, Ask, Kernel, Message, Part, Participants, Protocol, ProtocolRef, Reason, SessionRef,
    Upper, question, reason,
};
use xk_kit::answers::Allowance;
use xk_kit::net::appletalk::{
    CableChanged, DdpEnds, NetRoute, Outlet, SetCable, SetRouter, SetRoutes, TYPE, cables,
    local_socket, now, octets_of, socket,
};
use xk_kit::net::waiting::Alarm;

/// Data about networks that its sender or this cable cannot have.
pub static IMPLAUSIBLE: Reason = Reason::new("not plausible", Class::Bad);
/// A network overlaps another one; of no message.
pub static CONFLICT: Reason = Reason::new("network conflict", Class::Bad);

/// The token of the timer.
const TOKEN_DUE: u64 = 1;

/// The networks behind other routers, for `xk dump`.
#[derive(Clone, Debug, Default)]
pub struct RtmpTable {
    /// First and last network, and how many routers away they are; 31: not reached any more.
    pub networks: Vec<(u16, u16, u8)>,
    /// The router that was heard last, of a node.
    pub router: Option<(u16, u8)>,
}

question!(RtmpTable { networks, router }, "rtmp-table", Ask);

/// An answer that its node has no allowance left for.
pub static RATE_LIMITED: Reason = Reason::new("rate limited", Class::Exhausted);
/// Packets of answers that may go to a node at once.
const BURST: u64 = 100;

/// One instance.
pub struct Rtmp {
    lower: ProtocolRef,
    outlet: Outlet,
    stub: RefCell<Stub>,
    /// Table of a router, once all its ports have addresses.
    table: RefCell<Option<Table>>,
    networks_max: usize,
    /// Number of updates so far, and the time of the next one.
    updates: Cell<u64>,
    update_at: Cell<Option<Duration>>,
    alarm: Alarm,
    is_asked: Cell<bool>,
    /// Whether the layer below has several ports; until all have addresses there is no table.
    is_router: Cell<bool>,
    allowance: Allowance,
}

/// Builds it from its place in a graph.
///
/// # Errors
/// [`BuildError`] if the graph gives it nothing to stand on.
pub fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    build.add(Rtmp {
        lower: build.lower(0)?,
        outlet: Outlet::default(),
        stub: RefCell::default(),
        table: RefCell::default(),
        networks_max: build.int("networks_max")?,
        updates: Cell::new(0),
        update_at: Cell::new(None),
        alarm: Alarm::default(),
        is_asked: Cell::new(false),
        is_router: Cell::new(false),
        allowance: Allowance::new(build.int("answers_per_second")?, BURST),
    })
}

/// Socket 1 of a network's port, or of whichever.
fn local(net: u16) -> Participant {
    local_socket(net, SOCKET_RTMP)
}

/// The reason that corresponds to what is wrong with a packet.
fn reason_of(error: Error) -> &'static Reason {
    match error {
        Error::Truncated => &reason::TRUNCATED,
        Error::Sender => &reason::BAD_SOURCE,
        Error::NodeLength(_) | Error::Version(_) | Error::Function(_) => &reason::NOT_SUPPORTED,
        Error::Route => &reason::MALFORMED,
    }
}

impl Rtmp {
    /// A cable has changed: the table follows, or the stub asks for a router.
    fn changed(&self, cx: &Kernel, this: &ProtocolRef) {
        let cables = cables(cx, &self.lower);
        self.is_router.set(cables.len() > 1);
        if let [cable] = &cables[..] {
            let range = NetRange::new(cable.first, cable.last).filter(|_| cable.is_known);
            if range.is_some() && self.stub.borrow().range() != range {
                *self.stub.borrow_mut() = Stub::new(range);
            }
            if cable.is_ready && !self.is_asked.replace(true) {
                let local = local(0).with(Part::Number(TYPE, TYPE_RTMP_REQUEST.into()));
                let peer = socket(0, BROADCAST, SOCKET_RTMP);
                let ask = [Request::Networks as u8];
                self.outlet.send(cx, (this, &self.lower), (local, peer), &ask);
            }
            return;
        }
        let port = |cable: &xk_kit::net::appletalk::DdpCable| {
            let range = NetRange::new(cable.first, cable.last)?;
            Some(Port { me: Node::new(cable.net, cable.node), range, is_extended: true })
        };
        let ready = cables.iter().filter(|cable| cable.is_ready && cable.is_known);
        let ports: Vec<Port> = ready.filter_map(port).collect();
        if ports.len() != cables.len() {
            return;
        }
        let is_first = {
            let mut table = self.table.borrow_mut();
            match &mut *table {
                Some(table) => {
                    ports.into_iter().enumerate().for_each(|(at, port)| table.set_port(at, port));
                    false
                }
                None => {
                    *table = Some(Table::new(ports, self.networks_max));
                    true
                }
            }
        };
        if is_first {
            self.update(cx, this);
        }
    }

    /// Tells over each port what is known, and once in two times has that grow older.
    fn update(&self, cx: &Kernel, this: &ProtocolRef) {
        self.update_at.set(Some(now(cx) + UPDATE_INTERVAL));
        // Before what is sent takes timers.
        self.arm(cx, this);
        let count = self.updates.get();
        self.updates.set(count + 1);
        if count % 2 == 1 {
            if let Some(table) = &mut *self.table.borrow_mut() {
                table.age();
            }
            self.tell_routes(cx);
        }
        let updates: Vec<(u16, Data)> = match &*self.table.borrow() {
            None => Vec::new(),
            Some(table) => {
                let ports = table.ports().iter().enumerate();
                ports
                    .filter_map(|(at, p)| Some((p.range.first(), table.update(at, true)?)))
                    .collect()
            }
        };
        for (net, data) in updates {
            for packet in data.packets() {
                let ends = (local(net), socket(0, BROADCAST, SOCKET_RTMP));
                self.outlet.send(cx, (this, &self.lower), ends, &packet);
            }
        }
    }

    fn arm(&self, cx: &Kernel, this: &ProtocolRef) {
        let next = self.update_at.get().or_else(|| self.stub.borrow().next());
        next.into_iter().for_each(|next| self.alarm.set(cx, this, next, TOKEN_DUE));
    }

    /// The timer went off: an update is due, or a router was silent for long and is forgotten.
    fn tick(&self, cx: &Kernel, this: &ProtocolRef) {
        self.alarm.went_off();
        if self.update_at.get().is_some_and(|at| at <= now(cx)) {
            self.update(cx, this);
        } else if self.stub.borrow_mut().tick(now(cx)).is_some() {
            let _ = self.lower.ask(cx, SetRouter::default());
        }
        self.arm(cx, this);
    }

    /// Tells the layer below which ways there are.
    fn tell_routes(&self, cx: &Kernel) {
        let routes = match &*self.table.borrow() {
            None => return,
            Some(table) => {
                let used = table.entries().iter().filter(|entry| entry.state.is_used());
                let route = |entry: &xk_appletalk::rtmp::Entry| NetRoute {
                    first: entry.range.first(),
                    last: entry.range.last(),
                    port: entry.port as u8,
                    net: entry.next.net,
                    node: entry.next.node,
                };
                used.map(route).collect()
            }
        };
        let _ = self.lower.ask(cx, SetRoutes { routes });
    }

    fn take(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        octets: &[u8],
    ) -> Result<(), &'static Reason> {
        let ends = lower.ask(cx, DdpEnds::default()).unwrap_or_default();
        if ends.kind == TYPE_RTMP_REQUEST {
            let request = Request::parse(octets).map_err(reason_of)?;
            return self.answer(cx, this, &ends, request);
        }
        let data = Data::parse(octets).map_err(reason_of)?;
        let merged = self.table.borrow_mut().as_mut().map(|t| t.heard(ends.port.into(), &data));
        if let Some(merged) = merged {
            let merged = merged.ok_or(&IMPLAUSIBLE)?;
            let drops = this.head().drops();
            (0..merged.conflicts).for_each(|_| drops.count(&CONFLICT));
            (0..merged.full).for_each(|_| drops.count(&reason::TABLE_FULL));
            self.tell_routes(cx);
            return Ok(());
        }
        if self.is_router.get() {
            return Err(&reason::NOT_MINE);
        }
        let heard = self.stub.borrow_mut().heard(&data, now(cx));
        let Node { net, node } = data.sender;
        match heard {
            Heard::Refused => return Err(&IMPLAUSIBLE),
            Heard::Known => {}
            Heard::Router(_) => {
                let _ = self.lower.ask(cx, SetRouter { port: 0, net, node });
            }
            Heard::Networks(range, _) => {
                let (first, last) = (range.first(), range.last());
                let _ = self.lower.ask(cx, SetRouter { port: 0, net, node });
                let _ = self.lower.ask(cx, SetCable { first, last, ..SetCable::default() });
            }
        }
        Ok(())
    }

    /// Answers a node or router that asks.
    fn answer(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        ends: &DdpEnds,
        request: Request,
    ) -> Result<(), &'static Reason> {
        let port = usize::from(ends.port);
        let (net, packets) = {
            let table = self.table.borrow();
            let table = table.as_ref().ok_or(&reason::NOT_MINE)?;
            let net = table.ports().get(port).map(|port| port.range.first());
            let packets = match request {
                Request::Networks => table.response(port).map(|data| [data.response()].into()),
                Request::RoutesBeyond => table.update(port, true).map(|data| data.packets()),
                Request::Routes => table.update(port, false).map(|data| data.packets()),
            };
            (net.ok_or(&reason::NOT_MINE)?, packets.ok_or(&reason::NOT_MINE)?)
        };
        let (peer_net, node, to) = ends.peer;
        let source = u64::from(peer_net) << 8 | u64::from(node);
        if !self.allowance.take(cx, source, packets.len().min(BURST as usize)) {
            return Err(&RATE_LIMITED);
        }
        for packet in packets {
            let ends = (local(net), socket(peer_net, node, to));
            self.outlet.send(cx, (this, &self.lower), ends, &packet);
        }
        Ok(())
    }

    fn fill(&self, question: &mut RtmpTable) {
        question.router = self.stub.borrow().router().map(|router| (router.net, router.node));
        if let Some(table) = &*self.table.borrow() {
            question.networks = table
                .entries()
                .iter()
                .map(|e| {
                    let distance = if e.state.is_used() { e.distance } else { 31 };
                    (e.range.first(), e.range.last(), distance)
                })
                .collect();
        }
    }
}

impl Protocol for Rtmp {
    fn start(&self, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        let upper = Upper::new(this);
        let _ = self.lower.open_enable(cx, upper, Participants::local(local(0)))?;
        let requests = local(0).with(Part::Number(TYPE, TYPE_RTMP_REQUEST.into()));
        let _ = self.lower.open_enable(cx, upper, Participants::local(requests))?;
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

    fn control(&self, cx: &Kernel, this: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        if ask.get::<CableChanged>().is_some() {
            self.changed(cx, this);
        } else if let Some(question) = ask.get::<RtmpTable>() {
            self.fill(question);
        } else {
            return self.lower.control(cx, ask);
        }
        Answer::Answered
    }

    fn describe(&self) -> Option<String> {
        let networks = self.table.borrow().as_ref().map_or(0, |table| table.entries().len());
        Some(alloc::format!("{networks} networks behind others"))
    }

    fn lower(&self) -> Option<&ProtocolRef> {
        Some(&self.lower)
    }

    fn timeout(&self, cx: &Kernel, this: &ProtocolRef, token: u64) {
        match token {
            TOKEN_DUE => self.tick(cx, this),
            _ => self.changed(cx, this),
        }
    }

    fn stop(&self, cx: &Kernel, _: &ProtocolRef) {
        self.outlet.clear(cx);
        self.table.take();
    }
}
