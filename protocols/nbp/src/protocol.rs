//! The protocol object: names, searches, answers.

use crate::control::Search;
use crate::wire::{Entity, Error, Function, Packet, Tuple};
use alloc::collections::VecDeque;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::time::Duration;
use xk_appletalk::addr::{BROADCAST, Node};
use xk_appletalk::ddp::SOCKET_NAMES;
use xk_appletalk::name::Name;
use xk_appletalk::nbp::{Due, LookupConfig, Lookups, Names, NamesError, ZONE_HERE};
use xk_core::graph::{Build, BuildError, Params};
use xk_core::object::{OpenError, Refused, USER_SHARE};
use xk_core::participant::Participant;
use xk_core::reason::Class;
use xk_core::{
    Answer, Ask, Kernel, Message, Participants, Protocol, ProtocolRef, Reason, SessionRef, Upper,
    reason,
};
use xk_kit::answers::Allowance;
use xk_kit::net::appletalk::{DdpCable, DdpEnds, Outlet, local_socket, now, octets_of, socket};
use xk_kit::net::waiting::Alarm;

/// A name that a socket of this node or another one has; of no message.
pub static EXISTS: Reason = Reason::new("name exists", Class::Prohibited);
/// More of a node's requests than are answered.
pub static RATE_LIMITED: Reason = Reason::new("rate limited", Class::Exhausted);

/// The timer tokens: searches, and the searches of the graph from this number on.
const TOKEN_TICK: u64 = 1;
const TOKEN_START: u64 = 2;
/// Found names that are remembered for `nbp-table`.
const FOUND_MAX: usize = 256;
/// Packets that may answer a node at once after a quiet time.
const BURST: u64 = 50;

/// One instance.
pub struct Nbp {
    pub(crate) lower: ProtocolRef,
    /// The zone protocol of a router.
    pub(crate) zip: Option<ProtocolRef>,
    outlet: Outlet,
    pub(crate) names: RefCell<Names>,
    pub(crate) lookups: RefCell<Lookups<Rc<Search>>>,
    /// Searches that go on, and those that have ended and were not asked about.
    pub(crate) searches: RefCell<Vec<Rc<Search>>>,
    /// As many as there may be besides `wanted`: names of the graph, twice what goes on at once.
    searches_max: usize,
    /// Searches among them that begin when there are an address and room.
    waiting: RefCell<VecDeque<Rc<Search>>>,
    pub(crate) found: RefCell<Vec<Tuple>>,
    /// Names that were looked up and not given.
    pub(crate) refused: Cell<usize>,
    /// Searches of the graph, and when.
    pub(crate) wanted: Vec<(Rc<Search>, Duration)>,
    config: LookupConfig,
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
    let (lower, zip) = (build.lower(0)?, build.lower(1).ok());
    if zip.is_none() && lower.ask(build.cx, DdpCable::default()).is_some_and(|at| at.ports > 1) {
        let expected = "`zip` as the second one, as a router's: `nbp ddp zip`";
        return Err(BuildError::param("layers below", expected));
    }
    let names_max = build.int("names_max")?;
    let (mut waiting, mut names) = (VecDeque::new(), Names::new(names_max));
    for (index, params) in build.params.blocks("register").enumerate() {
        let (entity, socket) = (name(params)?, params.number("socket", 254u8));
        names.add(entity, socket).map_err(|why| match why {
            NamesError::Full => BuildError::param("names_max", "as many as it registers, or more"),
            NamesError::Bad => BuildError::param("name", "a name without wildcards"),
            NamesError::Exists => {
                let expected = "each name once, whether in capitals or not".into();
                BuildError::Param { name: "register", index, expected }
            }
        })?;
        waiting.push_back(Search::new(entity, Some(socket), None));
    }
    let mut wanted = Vec::new();
    for params in build.params.blocks("lookup") {
        wanted.push((
            Search::new(name(params)?, None, None),
            params.duration("start", Duration::ZERO),
        ));
    }
    let config = LookupConfig {
        tries: build.int("tries")?,
        interval: build.duration("interval")?,
        answers_max: build.int("answers_max")?,
    };
    let lookups_max: usize = build.int("lookups_max")?;
    build.add(Nbp {
        lower,
        zip,
        outlet: Outlet::default(),
        names: RefCell::new(Names::new(names_max)),
        lookups: RefCell::new(Lookups::new(lookups_max)),
        searches: RefCell::new(waiting.iter().cloned().collect()),
        searches_max: 2 * lookups_max + waiting.len(),
        waiting: RefCell::new(waiting),
        found: RefCell::default(),
        refused: Cell::new(0),
        wanted,
        config,
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

    /// Begins a search when there are an address and room; false, counted, if too many wait, or as
    /// many of its user as one may have.
    pub(crate) fn begin(&self, cx: &Kernel, this: &ProtocolRef, search: &Rc<Search>) -> bool {
        let mut searches = self.searches.borrow_mut();
        let is_of_user = |other: &Rc<Search>| search.payer.is_none() || other.payer == search.payer;
        let most = match search.payer {
            Some(_) => self.searches_max.div_ceil(USER_SHARE),
            None => self.searches_max,
        };
        if searches.iter().filter(|other| is_of_user(other)).count() >= most {
            // Those that have ended and that nothing asks about give way first.
            let is_over = |search: &Rc<Search>| search.result.borrow().is_some();
            let ended = searches.iter().position(|other| is_of_user(other) && is_over(other));
            let Some(ended) = ended else {
                this.head().drops().count(&reason::TABLE_FULL);
                return false;
            };
            searches.remove(ended);
        }
        drop(searches);
        self.add(cx, this, search);
        true
    }

    fn add(&self, cx: &Kernel, this: &ProtocolRef, search: &Rc<Search>) {
        self.searches.borrow_mut().push(Rc::clone(search));
        self.waiting.borrow_mut().push_back(Rc::clone(search));
        self.tick(cx, this);
    }

    /// Begins the first search that waits, if there are an address and room. True: another may.
    fn launch(&self, cx: &Kernel, this: &ProtocolRef, cable: &DdpCable) -> bool {
        let waits = || self.waiting.borrow_mut().pop_front();
        let Some(search) = cable.is_ready.then(waits).flatten() else { return false };
        // A name of this node is one that exists, without a question.
        if search.socket.is_some() && self.names.borrow().holds(&search.entity) {
            self.end(cx, this, &search, Vec::new());
            return true;
        }
        let from = Node::new(cable.net, cable.node).socket(SOCKET_NAMES);
        let mut entity = search.entity;
        // Routers cannot tell in which of a cable's zones a node is.
        if (entity.zone.is_empty() || entity.zone.is_only(ZONE_HERE)) && !cable.zone.is_empty() {
            entity.zone = Name::new(&cable.zone).unwrap_or(entity.zone);
        }
        // One answer is enough to know that a name exists.
        let answers_max = if search.socket.is_some() { 1 } else { self.config.answers_max };
        let config = LookupConfig { answers_max, ..self.config };
        let started = self.lookups.borrow_mut().start((entity, from), config, now(cx), search);
        started.map_err(|search| self.waiting.borrow_mut().push_front(search)).is_ok()
    }

    /// Does what is due.
    fn tick(&self, cx: &Kernel, this: &ProtocolRef) {
        let cable = self.cable(cx);
        let has_router = cable.router.1 != 0 || cable.ports > 1;
        loop {
            while self.launch(cx, this, &cable) {}
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
            if let Err(why) = self.broadcast(cx, this, (0, None), packet) {
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
            let me = Node::new(cable.net, cable.node);
            let _ = self.answer_names(cx, this, (packet, None), me, &zone);
        }
    }

    /// A search has ended.
    fn end(&self, cx: &Kernel, this: &ProtocolRef, search: &Rc<Search>, found: Vec<Tuple>) {
        match search.socket {
            Some(socket) => {
                let added = match found.is_empty() {
                    true => self.names.borrow_mut().add(search.entity, socket),
                    false => Err(NamesError::Exists),
                };
                if let Err(why) = added {
                    self.refused.set(self.refused.get() + 1);
                    let is_full = why == NamesError::Full;
                    this.head().drops().count(if is_full { &reason::TABLE_FULL } else { &EXISTS });
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
    }

    // ---- what arrives ----

    /// Takes a packet from the allowance of the node whose request it answers; `None`: this one.
    pub(crate) fn allow(&self, cx: &Kernel, of: Option<u64>) -> Result<(), &'static Reason> {
        let is_allowed = of.is_none_or(|source| self.allowance.take(cx, source, 1));
        is_allowed.then_some(()).ok_or(&RATE_LIMITED)
    }

    /// Answers a request with the names of this node, at one of its addresses.
    pub(crate) fn answer_names(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        (request, of): (&Packet, Option<u64>),
        me: Node,
        zone: &Name,
    ) -> Result<(), &'static Reason> {
        let replies = self.names.borrow().answer(request, me, zone);
        let to = request.wanted().ok_or(&reason::MALFORMED)?.at;
        for reply in replies {
            self.allow(cx, of)?;
            self.send(cx, this, (local(0), socket(to.net, to.node, to.socket)), &reply);
        }
        Ok(())
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
        packet.answers_to().ok_or(&reason::BAD_SOURCE)?;
        let ends = lower.ask(cx, DdpEnds::default()).unwrap_or_default();
        let of = Some(u64::from(ends.peer.0) << 8 | u64::from(ends.peer.1));
        let at = (usize::from(ends.port), of);
        match packet.function {
            Function::LkUp => {
                let question = DdpCable { port: ends.port, ..DdpCable::default() };
                let cable = self.lower.ask(cx, question).unwrap_or_else(|| self.cable(cx));
                let zone = Name::new(&cable.zone).unwrap_or_default();
                let me = Node::new(cable.net, cable.node);
                self.answer_names(cx, this, (&packet, of), me, &zone)
            }
            Function::BrRq => self.broadcast(cx, this, at, &packet),
            _ if self.zip.is_some() => self.forwarded(cx, this, at, &packet),
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
                if let Some((search, _)) = wanted.and_then(|at| self.wanted.get(at)) {
                    self.add(cx, this, search);
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
