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
use xk_core::object::{OpenError, USER_SHARE};
use xk_core::participant::Participant;
use xk_core::reason::Class;
use xk_core::{Answer, Ask, Kernel, ProtocolRef, Reason, SessionRef, reason};
use xk_kit::answers::{Allowance, RATE_LIMITED};
use xk_kit::machine::{self, At, Machine, Running};
use xk_kit::net::appletalk::{DdpCable, DdpEnds, local_socket, socket};

/// A name that a socket of this node or another one has; of no message.
pub static EXISTS: Reason = Reason::new("name exists", Class::Prohibited);

/// The timer tokens: the beginning, and the searches of the graph from this number on.
const TOKEN_BEGUN: u64 = 0;
const TOKEN_START: u64 = 1;
/// Found names that are remembered for `nbp-table`.
const FOUND_MAX: usize = 256;
/// Packets that may answer a node at once after a quiet time.
const BURST: u64 = 50;

/// One instance.
pub struct Nbp {
    /// The zone protocol of a router.
    pub(crate) zip: Option<ProtocolRef>,
    pub(crate) names: RefCell<Names>,
    lookups: RefCell<Lookups<Rc<Search>>>,
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
    let zip = build.lower(1).ok();
    if zip.is_none()
        && build.lower(0)?.ask(build.cx, DdpCable::default()).is_some_and(|at| at.ports > 1)
    {
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
    let nbp = Nbp {
        zip,
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
    };
    machine::add(build, nbp)
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

/// A cable's zone, as far as it is known, and the address there.
pub(crate) fn place(cable: &DdpCable) -> (Name, Node) {
    (Name::new(&cable.zone).unwrap_or_default(), Node::new(cable.net, cable.node))
}

/// The first cable.
pub(crate) fn first_cable(at: At<'_>) -> DdpCable {
    at.ask(DdpCable::default()).unwrap_or_default()
}

impl Nbp {
    // ---- searches ----

    /// Begins a search when there are an address and room; false, counted, if too many wait, or as
    /// many of its user as one may have.
    pub(crate) fn begin(&self, at: At<'_>, search: &Rc<Search>) -> bool {
        let mut searches = self.searches.borrow_mut();
        let is_of_user = |other: &Rc<Search>| search.payer.is_none() || other.payer == search.payer;
        let most = match search.payer {
            Some(_) => self.searches_max.div_ceil(USER_SHARE),
            None => self.searches_max,
        };
        if searches.iter().filter(|other| is_of_user(other)).count() >= most {
            // Those that have ended and that nothing asks about give way first.
            let is_over = |other: &Rc<Search>| is_of_user(other) && !other.result.waits();
            let Some(ended) = searches.iter().position(is_over) else {
                at.count(&reason::TABLE_FULL);
                return false;
            };
            searches.remove(ended);
        }
        drop(searches);
        self.add(at, search);
        true
    }

    fn add(&self, at: At<'_>, search: &Rc<Search>) {
        self.searches.borrow_mut().push(Rc::clone(search));
        self.waiting.borrow_mut().push_back(Rc::clone(search));
        self.due(at);
        // Before a user waits for the result.
        at.wake(self.next());
    }

    /// Begins the first search that waits, if there are an address and room. True: another may.
    fn launch(&self, at: At<'_>, cable: &DdpCable) -> bool {
        let waits = || self.waiting.borrow_mut().pop_front();
        let Some(search) = cable.is_ready.then(waits).flatten() else { return false };
        // A name of this node is one that exists, without a question.
        if search.socket.is_some() && self.names.borrow().holds(&search.entity) {
            self.end(at, &search, Vec::new());
            return true;
        }
        let (zone, me) = place(cable);
        let mut entity = search.entity;
        // Routers cannot tell in which of a cable's zones a node is.
        if (entity.zone.is_empty() || entity.zone.is_only(ZONE_HERE)) && !zone.is_empty() {
            entity.zone = zone;
        }
        // One answer is enough to know that a name exists.
        let answers_max = if search.socket.is_some() { 1 } else { self.config.answers_max };
        let config = LookupConfig { answers_max, ..self.config };
        let what = (entity, me.socket(SOCKET_NAMES));
        let started = self.lookups.borrow_mut().start(what, config, at.now(), search);
        started.map_err(|search| self.waiting.borrow_mut().push_front(search)).is_ok()
    }

    fn ask(&self, at: At<'_>, cable: &DdpCable, packet: &Packet) {
        if cable.ports > 1 && self.zip.is_some() {
            // This node is the router.
            if let Err(why) = self.broadcast(at, (0, None), packet) {
                at.count(why);
            }
            return;
        }
        let (net, node) = match cable.router {
            (net, node) if node != 0 && packet.function == Function::BrRq => (net, node),
            _ => (0, BROADCAST),
        };
        at.send(local(0), socket(net, node, SOCKET_NAMES), &packet.octets());
        // A request of a router's comes back to this node, too; one to all nodes does not.
        if node == BROADCAST {
            let _ = self.answer_names(at, (packet, None), place(cable));
        }
    }

    /// A search has ended.
    fn end(&self, at: At<'_>, search: &Rc<Search>, found: Vec<Tuple>) {
        match search.socket {
            Some(socket) => {
                let added = match found.is_empty() {
                    true => self.names.borrow_mut().add(search.entity, socket),
                    false => Err(NamesError::Exists),
                };
                if let Err(why) = added {
                    self.refused.set(self.refused.get() + 1);
                    let is_full = why == NamesError::Full;
                    at.count(if is_full { &reason::TABLE_FULL } else { &EXISTS });
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
        search.result.finish(at.cx, found);
    }

    /// A cable has changed: what waited for an address begins.
    pub(crate) fn changed(&self, at: At<'_>) {
        let cable = first_cable(at);
        if cable.is_ready {
            self.lookups.borrow_mut().moved(place(&cable).1, at.now());
            self.due(at);
        }
    }

    // ---- what arrives ----

    /// Takes a packet from the allowance of the node whose request it answers; `None`: this one.
    pub(crate) fn allow(&self, at: At<'_>, of: Option<u64>) -> Result<(), &'static Reason> {
        let is_allowed = of.is_none_or(|source| self.allowance.take(at.cx, source, 1));
        is_allowed.then_some(()).ok_or(&RATE_LIMITED)
    }

    /// Answers a request with the names of this node, in a zone and at one of its addresses.
    pub(crate) fn answer_names(
        &self,
        at: At<'_>,
        (request, of): (&Packet, Option<u64>),
        (zone, me): (Name, Node),
    ) -> Result<(), &'static Reason> {
        let replies = self.names.borrow().answer(request, me, &zone);
        let to = request.wanted().ok_or(&reason::MALFORMED)?.at;
        for reply in replies {
            self.allow(at, of)?;
            at.send(local(0), socket(to.net, to.node, to.socket), &reply.octets());
        }
        Ok(())
    }
}

impl Machine for Nbp {
    fn start(&self, at: At<'_>) -> Result<(), OpenError> {
        at.enable(local(0))?;
        for (nth, (_, start)) in self.wanted.iter().enumerate() {
            at.schedule(*start, TOKEN_START + nth as u64)?;
        }
        // What has its address by now tells of no change any more.
        let _ = at.schedule(Duration::ZERO, TOKEN_BEGUN);
        Ok(())
    }

    fn hear(&self, at: At<'_>, lower: &SessionRef, octets: &[u8]) -> Result<(), &'static Reason> {
        let packet = Packet::parse(octets).map_err(reason_of)?;
        if packet.function == Function::Reply {
            let is_ours = self.lookups.borrow_mut().heard(&packet, at.now());
            self.due(at);
            return is_ours.then_some(()).ok_or(&reason::NOT_MINE);
        }
        packet.answers_to().ok_or(&reason::BAD_SOURCE)?;
        let ends = lower.ask(at.cx, DdpEnds::default()).unwrap_or_default();
        let of = Some(Node::new(ends.peer.0, ends.peer.1).source());
        let from = (usize::from(ends.port), of);
        match packet.function {
            Function::LkUp => {
                let cable = at.ask(DdpCable { port: ends.port, ..DdpCable::default() });
                let cable = cable.unwrap_or_else(|| first_cable(at));
                self.answer_names(at, (&packet, of), place(&cable))
            }
            Function::BrRq => self.broadcast(at, from, &packet),
            _ if self.zip.is_some() => self.forwarded(at, from, &packet),
            _ => Err(&reason::NOT_MINE),
        }
    }

    fn next(&self) -> Option<Duration> {
        self.lookups.borrow().next()
    }

    fn due(&self, at: At<'_>) {
        let cable = first_cable(at);
        let has_router = cable.router.1 != 0 || cable.ports > 1;
        loop {
            while self.launch(at, &cable) {}
            let due = self.lookups.borrow_mut().tick(at.now(), has_router);
            match due {
                None => break,
                Some(Due::Done(search, found)) => self.end(at, &search, found),
                Some(Due::Send(packet)) => self.ask(at, &cable, &packet),
            }
        }
    }

    fn timeout(all: &Rc<Running<Self>>, at: At<'_>, token: u64) {
        match token.checked_sub(TOKEN_START) {
            None => all.changed(at),
            Some(nth) => {
                let wanted = all.wanted.get(nth as usize);
                wanted.into_iter().for_each(|(search, _)| all.add(at, search));
            }
        }
    }

    fn answer(&self, at: At<'_>, ask: &mut Ask<'_>) -> Option<Answer> {
        self.asked(at, ask)
    }

    fn describe(&self) -> Option<String> {
        let (names, lookups) = (self.names.borrow().len(), self.lookups.borrow().len());
        Some(alloc::format!("{names} names, {lookups} looked up"))
    }

    fn stop(&self, cx: &Kernel) {
        self.waiting.take();
        for search in self.searches.take() {
            search.result.finish(cx, Vec::new());
        }
    }
}
