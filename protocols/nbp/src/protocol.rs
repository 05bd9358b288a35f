//! The protocol object: names, searches, answers.

use crate::control::Search;
use crate::wire::{Entity, Error, Function, Packet, Tuple};
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::time::Duration;
use xk_appletalk::addr::{BROADCAST, Node};
use xk_appletalk::ddp::SOCKET_NAMES;
use xk_appletalk::name::Name;
use xk_appletalk::nbp::{Due, LookupConfig, Lookups, Names, ZONE_HERE};
use xk_core::graph::{Build, BuildError, Params};
use xk_core::object::{OpenError, Refused};
use xk_core::participant::Participant;
use xk_core::reason::Class;
use xk_core::{
    Answer, Ask, Kernel, Message, Participants, Protocol, ProtocolRef, Reason, SessionRef, Upper,
    reason,
};
use xk_kit::answers::Allowance;
use xk_kit::net::appletalk::{DdpCable, DdpEnds, Outlet, local_socket, now, octets_of, socket};
use xk_kit::net::waiting::Alarm;

/// A name that another node has; of no message.
pub static EXISTS: Reason = Reason::new("name exists", Class::Prohibited);
/// More requests of a node than are answered.
pub static RATE_LIMITED: Reason = Reason::new("rate limited", Class::Exhausted);

/// The timer tokens: searches, and the searches of the graph from this number on.
const TOKEN_TICK: u64 = 1;
const TOKEN_START: u64 = 2;
/// Found names that are remembered for `nbp-table`.
const FOUND_MAX: usize = 256;
/// Requests that may come at once after a quiet time.
const BURST: u64 = 50;

/// One instance.
pub struct Nbp {
    pub(crate) lower: ProtocolRef,
    /// Of a router.
    pub(crate) zip: Option<ProtocolRef>,
    outlet: Outlet,
    pub(crate) names: RefCell<Names>,
    pub(crate) lookups: RefCell<Lookups<Rc<Search>>>,
    /// Those that go on, and those that have ended and were not asked about.
    pub(crate) searches: RefCell<Vec<Rc<Search>>>,
    /// Those that begin when there is an address.
    waiting: RefCell<Vec<Rc<Search>>>,
    pub(crate) found: RefCell<Vec<Tuple>>,
    /// What the graph wants looked up, and when.
    wanted: Vec<(Entity, Duration)>,
    config: LookupConfig,
    lookups_max: usize,
    allowance: Allowance,
    alarm: Alarm,
}

/// Builds it from its place in a graph.
///
/// # Errors
/// [`BuildError`] if the graph gives it nothing to stand on, or what is no name.
pub fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let name = |params: &Params| -> Result<Entity, BuildError> {
        let name = params.parse::<Entity>("name", crate::NAME)?;
        name.ok_or(BuildError::param("name", crate::NAME))
    };
    let mut waiting = Vec::new();
    for params in build.params.blocks("register") {
        let entity = name(params)?;
        if !entity.is_one() {
            return Err(BuildError::param("name", "a name without wildcards"));
        }
        waiting.push(Search::new(entity, Some(params.number("socket", 254u8))));
    }
    let mut wanted = Vec::new();
    for params in build.params.blocks("lookup") {
        wanted.push((name(params)?, params.duration("start", Duration::ZERO)));
    }
    let config = LookupConfig {
        tries: build.int("tries")?,
        interval: build.duration("interval")?,
        answers_max: build.int("answers_max")?,
    };
    let lookups_max = build.int("lookups_max")?;
    build.add(Nbp {
        lower: build.lower(0)?,
        zip: build.lower(1).ok(),
        outlet: Outlet::default(),
        names: RefCell::new(Names::new(build.int("names_max")?)),
        lookups: RefCell::new(Lookups::new(lookups_max)),
        searches: RefCell::default(),
        waiting: RefCell::new(waiting),
        found: RefCell::default(),
        wanted,
        config,
        lookups_max,
        allowance: Allowance::new(build.int("answers_per_second")?, BURST),
        alarm: Alarm::default(),
    })
}

/// Socket 2 of a network's port, or of whichever.
pub(crate) fn local(net: u16) -> Participant {
    local_socket(net, SOCKET_NAMES)
}

/// The reason that corresponds to what is wrong with a packet.
fn reason_of(error: Error) -> &'static Reason {
    match error {
        Error::Truncated => &reason::TRUNCATED,
        Error::Function(_) => &reason::NOT_SUPPORTED,
        Error::Count(_) => &reason::MALFORMED,
    }
}

impl Nbp {
    /// The first cable.
    pub(crate) fn cable(&self, cx: &Kernel) -> DdpCable {
        self.lower.ask(cx, DdpCable::default()).unwrap_or_default()
    }

    pub(crate) fn send(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        (local, peer): (Participant, Participant),
        packet: &Packet,
    ) {
        self.outlet.send(cx, (this, &self.lower), (local, peer), &packet.octets());
    }

    // ---- searches ----

    /// Begins a search, at once or when there is an address; false, counted, if there is no room.
    pub(crate) fn begin(&self, cx: &Kernel, this: &ProtocolRef, search: &Rc<Search>) -> bool {
        let cable = self.cable(cx);
        if self.searches.borrow().len() >= 2 * self.lookups_max {
            // Those that have ended and that nothing asks about give way first.
            let mut searches = self.searches.borrow_mut();
            let ended = searches.iter().position(|search| search.result.borrow().is_some());
            let Some(ended) = ended else {
                this.head().drops().count(&reason::TABLE_FULL);
                return false;
            };
            searches.remove(ended);
        }
        if !cable.is_ready {
            self.searches.borrow_mut().push(Rc::clone(search));
            self.waiting.borrow_mut().push(Rc::clone(search));
            return true;
        }
        // A name of this node is one that exists, without a question.
        let own = search.socket.is_some() && self.names.borrow().holds(&search.entity);
        if own {
            self.searches.borrow_mut().push(Rc::clone(search));
            self.end(cx, this, search, Vec::new());
            return true;
        }
        if !self.launch(cx, this, search, &cable) {
            return false;
        }
        self.searches.borrow_mut().push(Rc::clone(search));
        true
    }

    fn launch(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        search: &Rc<Search>,
        cable: &DdpCable,
    ) -> bool {
        let from = Node::new(cable.net, cable.node).socket(SOCKET_NAMES);
        let mut entity = search.entity;
        // Routers cannot tell in which of a cable's zones a node is.
        if (entity.zone.is_empty() || entity.zone.is_only(ZONE_HERE)) && !cable.zone.is_empty() {
            entity.zone = Name::new(&cable.zone).unwrap_or(entity.zone);
        }
        // One answer is enough to know that a name exists.
        let answers_max = if search.socket.is_some() { 1 } else { self.config.answers_max };
        let config = LookupConfig { answers_max, ..self.config };
        let wanted = (entity, from);
        let started = self.lookups.borrow_mut().start(wanted, config, now(cx), Rc::clone(search));
        if started.is_err() {
            this.head().drops().count(&reason::TABLE_FULL);
            return false;
        }
        self.tick(cx, this);
        true
    }

    /// Does what is due.
    fn tick(&self, cx: &Kernel, this: &ProtocolRef) {
        let cable = self.cable(cx);
        let has_router = cable.router.1 != 0 || cable.ports > 1;
        loop {
            let due = self.lookups.borrow_mut().tick(now(cx), has_router);
            match due {
                None => break,
                Some(Due::Done(search, found)) => self.end(cx, this, &search, found),
                Some(Due::Send(packet)) => self.ask(cx, this, &cable, &packet),
            }
        }
        self.arm(cx, this);
    }

    fn ask(&self, cx: &Kernel, this: &ProtocolRef, cable: &DdpCable, packet: &Packet) {
        if cable.ports > 1 && self.zip.is_some() {
            // This node is the router.
            if let Err(why) = self.broadcast(cx, this, 0, packet) {
                this.head().drops().count(why);
            }
            return;
        }
        let (net, node) = match cable.router {
            (net, node) if node != 0 && packet.function == Function::BrRq => (net, node),
            _ => (0, BROADCAST),
        };
        self.send(cx, this, (local(0), socket(net, node, SOCKET_NAMES)), packet);
        // A request of a router's comes back to this node, too; one to all nodes does not.
        if node == BROADCAST {
            let zone = Name::new(&cable.zone).unwrap_or_default();
            self.answer_names(cx, this, packet, Node::new(cable.net, cable.node), &zone);
        }
    }

    /// A search has ended.
    fn end(&self, cx: &Kernel, this: &ProtocolRef, search: &Rc<Search>, found: Vec<Tuple>) {
        match search.socket {
            Some(socket) => {
                let added = match found.is_empty() {
                    true => self.names.borrow_mut().add(search.entity, socket).is_ok(),
                    false => false,
                };
                if !added {
                    this.head().drops().count(&EXISTS);
                }
            }
            None => {
                let mut all = self.found.borrow_mut();
                for tuple in &found {
                    if all.len() < FOUND_MAX && !all.contains(tuple) {
                        all.push(*tuple);
                    }
                }
            }
        }
        *search.result.borrow_mut() = Some(found);
        cx.signal(&search.ended);
    }

    fn arm(&self, cx: &Kernel, this: &ProtocolRef) {
        let next = self.lookups.borrow().next();
        next.into_iter().for_each(|next| self.alarm.set(cx, this, next, TOKEN_TICK));
    }

    /// A cable has changed: what waited for an address begins.
    pub(crate) fn changed(&self, cx: &Kernel, this: &ProtocolRef) {
        let cable = self.cable(cx);
        if !cable.is_ready {
            return;
        }
        self.lookups.borrow_mut().moved(Node::new(cable.net, cable.node), now(cx));
        self.tick(cx, this);
        for search in self.waiting.take() {
            let is_listed = self.searches.borrow().iter().any(|other| Rc::ptr_eq(other, &search));
            if !is_listed {
                self.searches.borrow_mut().push(Rc::clone(&search));
            }
            if !self.launch(cx, this, &search, &cable) {
                self.searches.borrow_mut().retain(|other| !Rc::ptr_eq(other, &search));
            }
        }
    }

    // ---- what arrives ----

    /// Answers a request with the names of this node, at one of its addresses.
    pub(crate) fn answer_names(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        request: &Packet,
        me: Node,
        zone: &Name,
    ) {
        let replies = self.names.borrow().answer(request, me, zone);
        let Some(wanted) = request.wanted() else { return };
        let to = wanted.at;
        for reply in replies {
            self.send(cx, this, (local(0), socket(to.net, to.node, to.socket)), &reply);
        }
    }

    fn take(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        octets: &[u8],
    ) -> Result<(), &'static Reason> {
        let packet = Packet::parse(octets).map_err(reason_of)?;
        if packet.function == Function::Reply {
            let is_ours = self.lookups.borrow_mut().heard(&packet, now(cx));
            self.tick(cx, this);
            return if is_ours { Ok(()) } else { Err(&reason::NOT_MINE) };
        }
        let to = packet.wanted().map(|tuple| tuple.at).ok_or(&reason::MALFORMED)?;
        // The answer goes to one socket; it would be a flood at all.
        if to.node == BROADCAST || to.node == 0 || !xk_appletalk::ddp::is_socket(to.socket) {
            return Err(&reason::BAD_SOURCE);
        }
        let ends = lower.ask(cx, DdpEnds::default()).unwrap_or_default();
        let source = u64::from(ends.peer.0) << 8 | u64::from(ends.peer.1);
        if !self.allowance.take(cx, source, 1) {
            return Err(&RATE_LIMITED);
        }
        let port = usize::from(ends.port);
        match packet.function {
            Function::LkUp => {
                let question = DdpCable { port: ends.port, ..DdpCable::default() };
                let cable = self.lower.ask(cx, question).unwrap_or_else(|| self.cable(cx));
                let zone = Name::new(&cable.zone).unwrap_or_default();
                self.answer_names(cx, this, &packet, Node::new(cable.net, cable.node), &zone);
                Ok(())
            }
            Function::BrRq => self.broadcast(cx, this, port, &packet),
            _ if self.zip.is_some() => self.forwarded(cx, this, port, &packet),
            _ => Err(&reason::NOT_MINE),
        }
    }
}

impl Protocol for Nbp {
    fn start(&self, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        let socket = Participants::local(local(0));
        let _ = self.lower.open_enable(cx, Upper::new(this), socket)?;
        for (at, (_, start)) in self.wanted.iter().enumerate() {
            let _ = cx.schedule_protocol(this, *start, TOKEN_START + at as u64)?;
        }
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
        self.take(cx, this, lower, &octets).map_err(|why| this.refuse(message, why))
    }

    fn control(&self, cx: &Kernel, this: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        self.answer(cx, this, ask)
    }

    fn describe(&self) -> Option<String> {
        let (names, lookups) = (self.names.borrow().len(), self.lookups.borrow().len());
        Some(alloc::format!("{names} names, {lookups} looked up"))
    }

    fn lower(&self) -> Option<&ProtocolRef> {
        Some(&self.lower)
    }

    fn timeout(&self, cx: &Kernel, this: &ProtocolRef, token: u64) {
        match token {
            0 => self.changed(cx, this),
            TOKEN_TICK => {
                self.alarm.went_off();
                self.tick(cx, this);
            }
            at => {
                let wanted = usize::try_from(at - TOKEN_START).ok();
                if let Some((entity, _)) = wanted.and_then(|at| self.wanted.get(at)) {
                    self.begin(cx, this, &Search::new(*entity, None));
                }
            }
        }
    }

    fn stop(&self, cx: &Kernel, _: &ProtocolRef) {
        self.outlet.clear(cx);
        self.waiting.take();
        for search in self.searches.take() {
            search.result.borrow_mut().get_or_insert_default();
            cx.signal(&search.ended);
        }
    }
}
