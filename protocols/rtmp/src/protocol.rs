//! The protocol object: the stub of a node, or the table of a router.

use crate::wire::{Data, Error, Request};
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::time::Duration;
use xk_appletalk::addr::{BROADCAST, NetRange, Node};
use xk_appletalk::ddp::{SOCKET_RTMP, TYPE_RTMP_REQUEST};
use xk_appletalk::rtmp::{DISTANCE_BAD, Heard, Port, Stub, Table, UPDATE_INTERVAL};
use xk_core::graph::{Build, BuildError};
use xk_core::object::OpenError;
use xk_core::participant::Participant;
use xk_core::reason::Class;
use xk_core::{Answer, Ask, Kernel, Part, ProtocolRef, Reason, SessionRef, question, reason};
use xk_kit::answers::{Allowance, RATE_LIMITED};
use xk_kit::machine::{self, At, Machine, Running};
use xk_kit::net::appletalk::{
    CableChanged, DdpCable, DdpEnds, NetRoute, SetCable, SetRouter, SetRoutes, TYPE, cables,
    local_socket, socket,
};

/// Data about networks that its sender or this cable cannot have.
pub static IMPLAUSIBLE: Reason = Reason::new("not plausible", Class::Bad);
/// A network overlaps another one; of no message.
pub static CONFLICT: Reason = Reason::new("network conflict", Class::Bad);

/// The networks behind other routers, for `xk dump`.
#[derive(Clone, Debug, Default)]
pub struct RtmpTable {
    /// First and last network, and how many routers away they are; 31: not reached any more.
    pub networks: Vec<(u16, u16, u8)>,
    /// The router that was heard last, of a node.
    pub router: Option<(u16, u8)>,
}

question!(RtmpTable { networks, router }, "rtmp-table", Ask);

/// Packets of answers that may go to a node at once.
const BURST: u64 = 100;

/// One instance.
pub struct Rtmp {
    stub: RefCell<Stub>,
    /// Table of a router, once all its ports have addresses.
    table: RefCell<Option<Table>>,
    networks_max: usize,
    /// Number of updates so far, and the time of the next one.
    updates: Cell<u64>,
    update_at: Cell<Option<Duration>>,
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
    let rtmp = Rtmp {
        stub: RefCell::default(),
        table: RefCell::default(),
        networks_max: build.int("networks_max")?,
        updates: Cell::new(0),
        update_at: Cell::new(None),
        is_asked: Cell::new(false),
        is_router: Cell::new(false),
        allowance: Allowance::new(build.int("answers_per_second")?, BURST),
    };
    machine::add(build, rtmp)
}

/// Socket 1 of a network's port, or of whichever.
fn local(net: u16) -> Participant {
    local_socket(net, SOCKET_RTMP)
}

/// The socket that requests go to and come from.
fn requests() -> Participant {
    local(0).with(Part::Number(TYPE, TYPE_RTMP_REQUEST.into()))
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
    fn changed(&self, at: At<'_>) {
        let cables = cables(at.cx, at.lower);
        self.is_router.set(cables.len() > 1);
        if let [cable] = &cables[..] {
            let range = NetRange::new(cable.first, cable.last).filter(|_| cable.is_known);
            if range.is_some() && self.stub.borrow().range() != range {
                *self.stub.borrow_mut() = Stub::new(range);
            }
            if cable.is_ready && !self.is_asked.replace(true) {
                let all = socket(0, BROADCAST, SOCKET_RTMP);
                at.send(requests(), all, &[Request::Networks as u8]);
            }
            return;
        }
        let port = |cable: &DdpCable| {
            let range = NetRange::new(cable.first, cable.last)?;
            Some(Port { me: Node::new(cable.net, cable.node), range, is_extended: true })
        };
        let ready = cables.iter().filter(|cable| cable.is_ready && cable.is_known);
        let ports: Vec<Port> = ready.filter_map(port).collect();
        if ports.len() != cables.len() {
            return;
        }
        if let Some(table) = &mut *self.table.borrow_mut() {
            ports.into_iter().enumerate().for_each(|(at, port)| table.set_port(at, port));
            return;
        }
        *self.table.borrow_mut() = Some(Table::new(ports, self.networks_max));
        self.update(at);
    }

    /// Tells over each port what is known, and once in two times has that grow older.
    fn update(&self, at: At<'_>) {
        self.update_at.set(Some(at.now() + UPDATE_INTERVAL));
        // Before what is sent takes timers.
        at.wake(self.next());
        let count = self.updates.replace(self.updates.get() + 1);
        if count % 2 == 1 {
            if let Some(table) = &mut *self.table.borrow_mut() {
                table.age();
            }
            self.tell_routes(at);
        }
        let ports = self.table.borrow().as_ref().map_or(0, |table| table.ports().len());
        for (net, packets) in (0..ports).filter_map(|at| self.packets(at, Request::RoutesBeyond)) {
            let all = socket(0, BROADCAST, SOCKET_RTMP);
            packets.iter().for_each(|packet| at.send(local(net), all.clone(), packet));
        }
    }

    /// The first network of a port's cable, and the packets that answer a request there.
    fn packets(&self, port: usize, request: Request) -> Option<(u16, Vec<Vec<u8>>)> {
        let table = self.table.borrow();
        let table = table.as_ref()?;
        let packets = match request {
            Request::Networks => [table.response(port)?.response()].into(),
            Request::RoutesBeyond => table.update(port, true)?.packets(),
            Request::Routes => table.update(port, false)?.packets(),
        };
        Some((table.ports().get(port)?.range.first(), packets))
    }

    /// Tells the layer below which ways there are.
    fn tell_routes(&self, at: At<'_>) {
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
        at.tell(SetRoutes { routes });
    }

    /// Answers a node or router that asks.
    fn reply(&self, at: At<'_>, ends: &DdpEnds, request: Request) -> Result<(), &'static Reason> {
        let answer = self.packets(ends.port.into(), request);
        let (net, packets) = answer.ok_or(&reason::NOT_MINE)?;
        let (peer_net, node, to) = ends.peer;
        let source = Node::new(peer_net, node).source();
        if !self.allowance.take(at.cx, source, packets.len().min(BURST as usize)) {
            return Err(&RATE_LIMITED);
        }
        let peer = socket(peer_net, node, to);
        packets.iter().for_each(|packet| at.send(local(net), peer.clone(), packet));
        Ok(())
    }
}

impl Machine for Rtmp {
    fn start(&self, at: At<'_>) -> Result<(), OpenError> {
        at.enable(local(0))?;
        at.enable(requests())?;
        // What has its address by now tells of no change any more.
        let _ = at.schedule(Duration::ZERO, 0);
        Ok(())
    }

    fn hear(&self, at: At<'_>, lower: &SessionRef, octets: &[u8]) -> Result<(), &'static Reason> {
        let ends = lower.ask(at.cx, DdpEnds::default()).unwrap_or_default();
        if ends.kind == TYPE_RTMP_REQUEST {
            return self.reply(at, &ends, Request::parse(octets).map_err(reason_of)?);
        }
        let data = Data::parse(octets).map_err(reason_of)?;
        let merged = self.table.borrow_mut().as_mut().map(|t| t.heard(ends.port.into(), &data));
        if let Some(merged) = merged {
            let merged = merged.ok_or(&IMPLAUSIBLE)?;
            (0..merged.conflicts).for_each(|_| at.count(&CONFLICT));
            (0..merged.full).for_each(|_| at.count(&reason::TABLE_FULL));
            self.tell_routes(at);
            return Ok(());
        }
        if self.is_router.get() {
            return Err(&reason::NOT_MINE);
        }
        let heard = self.stub.borrow_mut().heard(&data, at.now());
        let router = SetRouter { port: 0, net: data.sender.net, node: data.sender.node };
        match heard {
            Heard::Refused => return Err(&IMPLAUSIBLE),
            Heard::Known => {}
            Heard::Router(_) => at.tell(router),
            Heard::Networks(range, _) => {
                at.tell(router);
                let (first, last) = (range.first(), range.last());
                at.tell(SetCable { first, last, ..SetCable::default() });
            }
        }
        Ok(())
    }

    fn next(&self) -> Option<Duration> {
        self.update_at.get().or_else(|| self.stub.borrow().next())
    }

    /// An update is due, or a router was silent for long and is forgotten.
    fn due(&self, at: At<'_>) {
        if self.update_at.get().is_some_and(|time| time <= at.now()) {
            self.update(at);
        } else if self.stub.borrow_mut().tick(at.now()).is_some() {
            at.tell(SetRouter::default());
        }
    }

    fn timeout(all: &Rc<Running<Self>>, at: At<'_>, _: u64) {
        all.changed(at);
    }

    fn answer(&self, at: At<'_>, ask: &mut Ask<'_>) -> Option<Answer> {
        if ask.get::<CableChanged>().is_some() {
            self.changed(at);
        } else {
            let question = ask.get::<RtmpTable>()?;
            question.router = self.stub.borrow().router().map(|router| (router.net, router.node));
            let table = self.table.borrow();
            let entries = table.iter().flat_map(|table| table.entries());
            let distances = entries.map(|e| {
                let distance = if e.state.is_used() { e.distance } else { DISTANCE_BAD };
                (e.range.first(), e.range.last(), distance)
            });
            question.networks = distances.collect();
        }
        Some(Answer::Answered)
    }

    fn describe(&self) -> Option<String> {
        let networks = self.table.borrow().as_ref().map_or(0, |table| table.entries().len());
        Some(alloc::format!("{networks} networks behind others"))
    }

    fn stop(&self, _: &Kernel) {
        self.table.take();
    }
}
