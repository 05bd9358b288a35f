//! The registry: which programs carry on which conversations, and what becomes of those whose
//! program is gone.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::rc::Rc;
use alloc::string::ToString;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::time::Duration;
use xk_core::control::{Describe, Report};
use xk_core::graph::{Build, BuildError};
use xk_core::object::{Closing, OpenError, Payer, ProtocolId};
use xk_core::shepherd::Semaphore;
use xk_core::{
    Answer, Ask, HostAddr, Kernel, Message, Part, Participants, Protocol, ProtocolRef, Session,
    SessionRef, Time, Upper,
};
use xk_kit::control::{IsGroup, MaxPacket, MyEther, MyHost, PeerEther, PeerHost};
use xk_kit::net::attribute::Peer;
use xk_kit::net::moving::{EndsFailed, GiveState, ends_of, release};
use xk_kit::net::neighbour::{HostChanged, HostRoute, WatchHosts};
use xk_kit::net::stream::{StreamConnected, StreamNotice};
use xk_kit::net::template::{Headers, Template};
use xk_netio::{
    GrantChannel, GrantRight, ListRights, ModuleIs, Rate, RevokeChannel, RevokeRight, Ticket,
    WatchModule,
};

mod right;

use right::{Right, port_of, station};

use crate::questions::{
    EndRight, FindStation, GiveBack, OpenChannel, PassOn, StationChanged, TakeOn, TakeOver,
};

/// Programs at one time at most.
pub const PROGRAMS_MAX: usize = 64;
/// Conversations of one program at most.
pub const RIGHTS_MAX: usize = 8192;
/// Octets of all states at most that a program gives back or takes on at one time: more than waits
/// in a stream with buffers as they are by default.
pub const STATE_OCTETS_MAX: usize = 12 << 20;

/// Purposes of timers: to clear away what programs left, to learn the rights at the module, to look
/// for rights of an earlier registry, for changed stations and for conversations that were passed
/// on and not taken, and to watch the module.
const CLEAR: u64 = 0;
const LEARN: u64 = 1;
const LOOK: u64 = 2;
const STATIONS: u64 = 3;
const PASSED: u64 = 4;
const WATCH: u64 = 5;
/// A port that takes what comes and answers nothing (RFC 863).
const DISCARD: u16 = 9;
/// The time that a conversation which was passed on waits for the program that takes it.
pub const PASS_FOR: Duration = Duration::from_secs(10);
/// Conversations that wait for that at most.
const PASSED_MAX: usize = 1024;
/// Conversations of one program whose peers' answers are awaited at once, and for how long.
const AWAITED_MAX: usize = 16;
const ANSWER_WITHIN: Duration = Duration::from_secs(1);
/// Interval at which rights of an earlier registry are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Changes of stations are looked at together.
const STATIONS_WITHIN: Duration = Duration::from_millis(100);

/// A thing that a program leaves behind.
enum Left {
    Channel(u32),
    Right(Rc<Right>),
}

struct Shared {
    /// The network I/O module.
    netio: ProtocolRef,
    /// A transport above the station whose address programs have: the device's may be another one
    /// once the module has come back.
    station: ProtocolRef,
    /// Identity of the module, once it is known.
    life: Cell<Option<u64>>,
    /// Rate at which a program may send.
    rate: Rate,
    /// The sessions of programs.
    programs: RefCell<Vec<SessionRef>>,
    /// Rights of a registry before this one, by number.
    before: RefCell<BTreeMap<u32, Rc<Right>>>,
    /// Conversations that programs have passed on, by ticket, and until when each waits.
    passed: RefCell<BTreeMap<Ticket, (Rc<Right>, Time)>>,
    /// Take-overs that wait for a peer: for which program, and for which session.
    awaited: RefCell<Vec<(ProtocolId, SessionRef, Rc<Semaphore>)>>,
    /// Protocols that tell of changed stations.
    watched: RefCell<Vec<ProtocolId>>,
    /// Stations are looked at soon.
    is_looking: Cell<bool>,
    left: RefCell<VecDeque<Left>>,
    /// A shepherd clears away what is left, or will.
    is_clearing: Cell<bool>,
    /// Conversations that went on here, or were reset, for programs that ended.
    taken_back: Cell<u64>,
    reset: Cell<u64>,
}

/// The protocol object.
pub struct Registry(Rc<Shared>);

/// Adds one to a kernel, for programs that compose without a graph file: above a network I/O
/// module, of which each program gets a channel with this rate.
pub fn add(cx: &Kernel, name: &str, netio: ProtocolRef, rate: Rate) -> ProtocolRef {
    add_beside(cx, name, (netio.clone(), netio), rate)
}

/// One whose programs have the station's address that is known to this protocol.
fn add_beside(
    cx: &Kernel,
    name: &str,
    (netio, station): (ProtocolRef, ProtocolRef),
    rate: Rate,
) -> ProtocolRef {
    let shared = Shared {
        netio,
        station,
        life: Cell::new(None),
        rate,
        programs: RefCell::default(),
        before: RefCell::default(),
        passed: RefCell::default(),
        awaited: RefCell::default(),
        watched: RefCell::default(),
        is_looking: Cell::new(false),
        left: RefCell::default(),
        is_clearing: Cell::new(false),
        taken_back: Cell::new(0),
        reset: Cell::new(0),
    };
    cx.add_protocol(crate::ENTRY.kind, name, Registry(Rc::new(shared)))
}

/// Builds it from its place in a graph.
pub(crate) fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let netio = build.lower(0)?;
    let rate = match build.params.rate("rate") {
        Some(bits) => Rate { octets_per_second: bits / 8, burst_octets: build.octets("burst")? },
        None => Rate { octets_per_second: u64::MAX, burst_octets: u64::MAX },
    };
    Ok(add_beside(build.cx, build.name, (netio, build.lower(1)?), rate))
}

impl Shared {
    /// Has a shepherd that may wait clear away what is left.
    fn clear(&self, cx: &Kernel, this: &ProtocolRef) {
        let is_due = !self.is_clearing.replace(true);
        if is_due && cx.schedule_protocol(this, Duration::ZERO, CLEAR).is_err() {
            self.is_clearing.set(false);
        }
    }

    fn clear_left(&self, cx: &Kernel, this: &ProtocolRef) {
        loop {
            let next = self.left.borrow_mut().pop_front();
            match next {
                Some(Left::Channel(number)) => {
                    let _ = self.netio.ask(cx, RevokeChannel { number, was_there: false });
                }
                Some(Left::Right(right)) => {
                    self.reset.set(self.reset.get() + 1);
                    right.reset(cx, this);
                }
                None => break,
            }
        }
        self.is_clearing.set(false);
    }

    /// Has the module say which one it is, and the next one in its place.
    fn watch_module(&self, cx: &Kernel, this: &ProtocolRef) {
        if self.netio.ask(cx, WatchModule { watcher: this.clone() }).is_none() {
            // It is not there yet.
            let _ = cx.schedule_protocol(this, LOOK_EVERY, WATCH);
        }
    }

    /// The module says which one it is. With the one before it have gone all channels and rights:
    /// programs have none until they attach again, and their peers are told.
    fn module_is(&self, cx: &Kernel, this: &ProtocolRef, life: u64) {
        match self.life.replace(Some(life)) {
            Some(before) if before == life => return,
            Some(_) => {}
            None => {
                let _ = cx.schedule_protocol(this, Duration::ZERO, LEARN);
                return;
            }
        }
        let mut rights: Vec<Rc<Right>> = self.before.take().into_values().collect();
        for session in &*self.programs.borrow() {
            if let Some(program) = session.body::<Program>() {
                program.channel.set(None);
                rights.extend(program.rights.take().into_values());
            }
        }
        self.left.borrow_mut().extend(rights.into_iter().map(Left::Right));
        self.clear(cx, this);
    }

    /// The rights at the module, page by page.
    fn listed(&self, cx: &Kernel, mut see: impl FnMut(xk_netio::Right)) -> Option<()> {
        let mut after = 0;
        loop {
            let listed = self.netio.ask(cx, ListRights { after, rights: Vec::new() })?;
            let Some(last) = listed.rights.last() else {
                return Some(());
            };
            after = last.number;
            listed.rights.into_iter().for_each(&mut see);
        }
    }

    /// Keeps the ends of rights that a registry before this one has granted.
    fn learn(&self, cx: &Kernel, this: &ProtocolRef) {
        let mut found = Vec::new();
        if self.listed(cx, |right| found.push(right)).is_none() {
            // The module is not there at present.
            let _ = cx.schedule_protocol(this, LOOK_EVERY, LEARN);
            return;
        }
        for known in found {
            let xk_netio::Right { number, channel, headers, of: (transport, ends) } = known;
            let is_extension = headers.received.octets_max() == 0;
            let Some(transport) = cx.protocol(transport).filter(|_| !is_extension) else {
                continue;
            };
            let right = Rc::new(Right::new((transport, ends), channel, &headers));
            let is_known = self.program_with(number).is_some();
            if !is_known && right.keep(cx, (this, number), false).is_some() {
                self.before.borrow_mut().insert(number, right);
            }
        }
        self.look_again(cx, this);
    }

    /// Rights of before whose program has gone are over: their peers are told.
    fn look(&self, cx: &Kernel, this: &ProtocolRef) {
        let mut there = BTreeSet::new();
        if self.listed(cx, |right| there.extend([right.number])).is_some() {
            let mut before = self.before.borrow_mut();
            let gone = before.extract_if(.., |number, _| !there.contains(number));
            self.left.borrow_mut().extend(gone.map(|(_, right)| Left::Right(right)));
            drop(before);
            self.clear(cx, this);
        }
        self.look_again(cx, this);
    }

    /// The peers of what was passed on and not taken in time are told.
    fn look_at_passed(&self, cx: &Kernel, this: &ProtocolRef) {
        let now = cx.now();
        let mut passed = self.passed.borrow_mut();
        let late = passed.extract_if(.., |_, (_, until)| *until <= now);
        self.left.borrow_mut().extend(late.map(|(_, (right, _))| Left::Right(right)));
        drop(passed);
        self.clear(cx, this);
    }

    fn look_again(&self, cx: &Kernel, this: &ProtocolRef) {
        if !self.before.borrow().is_empty() {
            let _ = cx.schedule_protocol(this, LOOK_EVERY, LOOK);
        }
    }

    /// The session of the program that has a right.
    fn program_with(&self, number: u32) -> Option<SessionRef> {
        let programs = self.programs.borrow();
        let has = |session: &&SessionRef| {
            session.body::<Program>().is_some_and(|own| own.rights.borrow().contains_key(&number))
        };
        programs.iter().find(has).cloned()
    }

    /// Has the protocol that resolves this host's addresses tell of changes from now on.
    fn watch(&self, cx: &Kernel, this: &ProtocolRef, (transport, host): (&ProtocolRef, HostAddr)) {
        let route = transport.ask(cx, HostRoute { host, over: None, direct: false });
        let over = route.and_then(|route| route.over);
        if let Some(over) = over.filter(|over| !self.watched.borrow().contains(&over.id())) {
            self.watched.borrow_mut().push(over.id());
            let _ = over.ask(cx, WatchHosts { watcher: this.clone() });
        }
    }

    /// Rights whose peer is reached by another station extend to that, and their programs are told.
    fn look_at_stations(&self, cx: &Kernel, this: &ProtocolRef) {
        self.is_looking.set(false);
        let programs = self.programs.borrow().clone();
        for session in &programs {
            let Some(program) = session.body::<Program>() else {
                continue;
            };
            let numbers: Vec<u32> = program.rights.borrow().keys().copied().collect();
            for number in numbers {
                self.look_at_station(cx, this, (session, program), number);
            }
        }
    }

    fn look_at_station(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        (session, program): (&SessionRef, &Program),
        number: u32,
    ) -> Option<()> {
        let right = program.rights.borrow().get(&number).cloned()?;
        let headers = right.keep(cx, (this, number), true)??;
        let address = station(&headers);
        if right.station.get() == address {
            return None;
        }
        if let Some(number) = right.extended.take() {
            let _ = self.netio.ask(cx, RevokeRight { number, was_there: false });
        }
        let (sent, received) = (self.unbounded(cx, headers.sent)?, Template::default());
        let (channel, headers) = (right.channel, Headers { sent, received });
        let of = (right.transport.id(), right.ends.clone());
        let asked = GrantRight { channel, headers, of, number: None };
        // Without a right to it the program goes on by the old one; later looks ask again.
        right.extended.set(Some(self.netio.ask(cx, asked)?.number?));
        right.station.set(address);
        let upper = cx.protocol(session.head().upper())?;
        upper.ask(cx, StationChanged { right: number, address }).map(drop)
    }

    /// A program finds out by itself what the path takes.
    fn unbounded(&self, cx: &Kernel, sent: Template) -> Option<Template> {
        let octets_max = self.netio.ask(cx, MaxPacket::default())?.octets;
        Some(sent.of_up_to(octets_max as usize))
    }
}

impl Protocol for Registry {
    /// A program's place; one for each receiver.
    fn open(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        ends: Participants,
    ) -> Result<SessionRef, OpenError> {
        ends.check_one_peer()?;
        let shared = &self.0;
        let is_in = |program: &SessionRef| program.head().upper() == upper.receiver.id();
        if shared.programs.borrow().iter().any(is_in) {
            return Err(OpenError::InUse);
        }
        if shared.programs.borrow().len() >= PROGRAMS_MAX {
            return Err(OpenError::Full);
        }
        let program = Program {
            shared: Rc::clone(shared),
            of: upper.receiver.id(),
            channel: Cell::new(None),
            is_opening: Cell::new(false),
            rights: RefCell::default(),
            coming: RefCell::default(),
        };
        let session = cx.new_session(this, upper.receiver, program);
        shared.programs.borrow_mut().push(session.clone());
        Ok(session)
    }

    fn start(&self, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        // The module is asked once all is started.
        cx.schedule_protocol(this, Duration::ZERO, WATCH).map_err(|_| OpenError::Full).map(drop)
    }

    fn control(&self, cx: &Kernel, this: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        let shared = &self.0;
        if let Some(question) = ask.get::<EndsFailed>() {
            let program = shared.program_with(question.number);
            let upper = program.and_then(|program| cx.protocol(program.head().upper()));
            return upper.map_or(Answer::Unknown, |upper| upper.control(cx, ask));
        }
        if let Some(question) = ask.get::<StreamNotice>() {
            // Of a session of the registry's own there is nothing to be done.
            let awaited = shared.awaited.borrow();
            let of = awaited.iter().filter(|(_, session, _)| *session == question.session);
            of.for_each(|(.., signal)| cx.signal(signal));
            return Answer::Unknown;
        }
        if ask.get::<HostChanged>().is_some() {
            let is_due = !shared.is_looking.replace(true);
            if is_due && cx.schedule_protocol(this, STATIONS_WITHIN, STATIONS).is_err() {
                shared.is_looking.set(false);
            }
            return Answer::Answered;
        }
        if let Some(question) = ask.get::<ModuleIs>() {
            shared.module_is(cx, this, question.life);
            return Answer::Answered;
        }
        ask.answer::<Report>(|report| {
            let figures = [
                ("programs", shared.programs.borrow().len() as u64),
                ("rights-of-before", shared.before.borrow().len() as u64),
                ("taken-back", shared.taken_back.get()),
                ("reset", shared.reset.get()),
            ];
            report.lines = figures.map(|(name, count)| (name.into(), count.to_string())).into();
            report.finished = true;
        })
    }

    fn timeout(&self, cx: &Kernel, this: &ProtocolRef, token: u64) {
        match token {
            CLEAR => self.0.clear_left(cx, this),
            LEARN => self.0.learn(cx, this),
            LOOK => self.0.look(cx, this),
            PASSED => self.0.look_at_passed(cx, this),
            WATCH => self.0.watch_module(cx, this),
            _ => self.0.look_at_stations(cx, this),
        }
    }

    fn stop(&self, _: &Kernel, _: &ProtocolRef) {
        drop((self.0.left.take(), self.0.before.take(), self.0.programs.take()));
        drop((self.0.passed.take(), self.0.awaited.take()));
    }
}

/// Origin of a state.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Coming {
    Right(u32),
    Ticket(Ticket),
}

/// A program's session.
struct Program {
    shared: Rc<Shared>,
    /// Proxy of the program: the receiver of its sessions.
    of: ProtocolId,
    /// The program's channel at the module.
    channel: Cell<Option<u32>>,
    /// Another one is on its way.
    is_opening: Cell<bool>,
    /// The rights by number.
    rights: RefCell<BTreeMap<u32, Rc<Right>>>,
    /// States that are being given back, or taken on.
    coming: RefCell<BTreeMap<Coming, Vec<u8>>>,
}

impl Program {
    fn open_channel(
        &self,
        cx: &Kernel,
        this: &SessionRef,
        question: &mut OpenChannel,
    ) -> Option<()> {
        // One at a time: what comes meanwhile is answered by none.
        if self.is_opening.replace(true) {
            return None;
        }
        let opened = self.grant_channel(cx, this, question);
        self.is_opening.set(false);
        if this.head().is_closed() {
            // The program has gone meanwhile.
            self.leave(cx, this, self.channel.take().map(Left::Channel));
        }
        opened
    }

    fn grant_channel(
        &self,
        cx: &Kernel,
        this: &SessionRef,
        question: &mut OpenChannel,
    ) -> Option<()> {
        let netio = &self.shared.netio;
        if let Some(number) = self.channel.take() {
            let _ = netio.ask(cx, RevokeChannel { number, was_there: false });
        }
        question.address = self.shared.station.ask(cx, MyEther::default())?.address;
        question.frame_octets_max = netio.ask(cx, MaxPacket::default())?.octets;
        let station = Some(question.address);
        let user = this.head().payer().map(Payer::uid);
        let asked = GrantChannel { station, user, ..GrantChannel::new(self.shared.rate) };
        let granted = netio.ask(cx, asked)?;
        self.shared.module_is(cx, &this.protocol(cx)?, granted.life);
        self.channel.set(granted.ticket.map(|_| granted.number));
        (question.ticket, question.door) = (granted.ticket, granted.door);
        Some(())
    }

    fn is_own(&self, session: &SessionRef) -> bool {
        session.head().upper() == self.of && !session.head().is_closed()
    }

    /// Waits until the peer of a session that is being connected has answered: false if it does not
    /// soon, or many wait. The program asks again then, once it hears of it.
    fn is_connected(&self, cx: &Kernel, this: &SessionRef, session: &SessionRef) -> bool {
        let connecting = |watcher| {
            let asked = session.ask(cx, StreamConnected { watcher, connecting: false });
            asked.is_some_and(|asked| asked.connecting)
        };
        let (awaited, registry) = (&self.shared.awaited, this.protocol(cx));
        let own = awaited.borrow().iter().filter(|(of, ..)| *of == self.of).count();
        if !connecting(registry.filter(|_| own < AWAITED_MAX)) {
            return true;
        }
        if own >= AWAITED_MAX {
            return false;
        }
        let signal = Rc::new(Semaphore::new(0));
        awaited.borrow_mut().push((self.of, session.clone(), Rc::clone(&signal)));
        // Whatever ends the wait, what has become of the connection is looked at.
        let _ = cx.wait(&signal, Some(ANSWER_WITHIN));
        awaited.borrow_mut().retain(|(.., other)| !Rc::ptr_eq(other, &signal));
        !connecting(None)
    }

    /// The right to carry a session on, and the first part of its state. What the program says is
    /// no more than which one; all else the session is asked.
    fn take_over(
        &self,
        cx: &Kernel,
        this: &SessionRef,
        (session, question): (&SessionRef, &mut TakeOver),
    ) -> Option<u32> {
        if question.waits && self.is_own(session) && !self.is_connected(cx, this, session) {
            question.later = true;
            return None;
        }
        if !self.is_own(session) || self.rights.borrow().len() >= RIGHTS_MAX {
            return None;
        }
        let (registry, channel) = (this.protocol(cx)?, self.channel.get()?);
        let transport = session.protocol(cx)?;
        let peer = session.ask(cx, PeerHost::default());
        let ends = match &peer {
            Some(_) => ends_of(cx, session)?,
            None => port_of(cx, session)?,
        };
        let headers = Headers::of(cx, session)?;
        if let Some(peer) = &peer {
            self.shared.watch(cx, &registry, (&transport, peer.host));
        }
        let of = (transport.id(), ends.clone());
        let right = Rc::new(Right::new((transport, ends), channel, &headers));
        // It keeps the ends, unless it is to move.
        session.hold();
        drop(right.held.replace(Some(session.clone())));
        let headers = Headers { sent: self.shared.unbounded(cx, headers.sent)?, ..headers };
        let asked = GrantRight { channel, headers, of, number: None };
        let Some(number) = self.shared.netio.ask(cx, asked).and_then(|granted| granted.number)
        else {
            right.held.take().inspect(|held| held.ease(cx));
            return None;
        };
        if right.keep(cx, (&registry, number), false).is_none() {
            right.held.take().inspect(|held| held.ease(cx));
            let _ = self.shared.netio.ask(cx, RevokeRight { number, was_there: false });
            return None;
        }
        if session.head().is_closed() {
            // It has ended meanwhile.
            let _ = self.shared.netio.ask(cx, RevokeRight { number, was_there: false });
            right.free(cx);
            return None;
        }
        if this.head().is_closed() || self.channel.get() != Some(channel) {
            // The program or the module has gone meanwhile, and the channel with it.
            self.leave(cx, this, [Left::Right(right)]);
            return Some(number);
        }
        question.station = right.station.get();
        self.rights.borrow_mut().insert(number, right);
        if peer.is_some()
            && let Some(given) = session.ask(cx, GiveState::default())
        {
            let octets = given.part.as_ref().map_or(0, Message::len);
            (question.total, question.part) = (given.total, given.part);
            if octets > 0 && octets == question.total as usize {
                release(cx, session, octets);
            }
        }
        Some(number)
    }

    /// Finds the station by which messages of a session reach a host.
    fn find_station(
        &self,
        cx: &Kernel,
        this: &SessionRef,
        question: &mut FindStation,
    ) -> Option<(HostAddr, [u8; 6])> {
        let session = question.session.take().filter(|session| self.is_own(session))?;
        let (registry, transport) = (this.protocol(cx)?, session.protocol(cx)?);
        if IsGroup::ask(cx, &transport, Some(question.host)) {
            return None;
        }
        // Of a session there nothing is sent: any port of the peer's will do.
        let ends = Participants::pair(Part::Any, Peer { host: question.host, port: DISCARD });
        let way = transport.open(cx, Upper::new(&registry), ends).ok()?;
        let (from, to) = (way.ask(cx, MyHost::default()), way.ask(cx, PeerEther::default()));
        way.close(cx);
        from.zip(to).map(|(from, to)| (from.host, to.address))
    }

    /// Takes a part of a state; false if it is not the next of one of its rights, or too long.
    fn give_back(&self, question: &mut GiveBack) -> bool {
        self.rights.borrow().contains_key(&question.right)
            && self.collect(Coming::Right(question.right), question.at, question.part.take())
    }

    /// Takes a part of a state; false if it is not the next, or too long.
    fn collect(&self, from: Coming, at: u32, part: Option<Message>) -> bool {
        let Some(part) = part.filter(|part| !part.is_empty()) else {
            return false;
        };
        let coming = &mut *self.coming.borrow_mut();
        if at == 0 {
            coming.remove(&from);
            // Of what has ended meanwhile nothing more comes.
            coming.retain(|of, _| match of {
                Coming::Right(number) => self.rights.borrow().contains_key(number),
                Coming::Ticket(ticket) => self.shared.passed.borrow().contains_key(ticket),
            });
        }
        let octets: usize = coming.values().map(Vec::len).sum();
        let is_next = coming.get(&from).map_or(0, Vec::len) == at as usize;
        if !is_next || octets + part.len() > STATE_OCTETS_MAX {
            return false;
        }
        coming.entry(from).or_default().extend(part.octets());
        true
    }

    /// The state that has come, if it is all of so many octets.
    fn take_coming(&self, of: Coming, octets: u32) -> Option<Vec<u8>> {
        let mut coming = self.coming.borrow_mut();
        let is_whole = coming.get(&of).is_some_and(|state| state.len() == octets as usize);
        if is_whole { coming.remove(&of) } else { None }
    }

    /// The ticket of a conversation that goes to another program.
    fn pass_on(&self, cx: &Kernel, this: &SessionRef, number: u32) -> Option<Ticket> {
        let shared = &self.shared;
        let moves = |right: &Rc<Right>| right.held.borrow().is_none();
        let is_one = self.rights.borrow().get(&number).is_some_and(moves);
        if !is_one || shared.passed.borrow().len() >= PASSED_MAX {
            return None;
        }
        let protocol = this.protocol(cx)?;
        cx.schedule_protocol(&protocol, PASS_FOR, PASSED).ok()?;
        let right = self.rights.borrow_mut().remove(&number)?;
        let mut ticket = Ticket::default();
        cx.random().fill(&mut ticket);
        let until = cx.now() + PASS_FOR;
        shared.passed.borrow_mut().insert(ticket, (Rc::clone(&right), until));
        for number in [Some(number), right.extended.get()].into_iter().flatten() {
            let _ = shared.netio.ask(cx, RevokeRight { number, was_there: false });
        }
        Some(ticket)
    }

    /// Takes a part of what another program has passed on: with the last one the transport has it.
    fn take_on(&self, cx: &Kernel, question: &mut TakeOn) -> bool {
        let TakeOn { ticket, at, total, .. } = *question;
        if !self.shared.passed.borrow().contains_key(&ticket)
            || !self.collect(Coming::Ticket(ticket), at, question.part.take())
        {
            return false;
        }
        let Some(state) = self.take_coming(Coming::Ticket(ticket), total) else {
            return true;
        };
        let of_ticket = |(right, _): &(Rc<Right>, Time)| Rc::clone(right);
        let right = self.shared.passed.borrow().get(&ticket).map(of_ticket);
        // What finds no room is there to be shown again.
        let Some(right) = right.filter(|right| right.bring(cx, &state)) else {
            return false;
        };
        self.shared.passed.borrow_mut().remove(&ticket);
        // There is no moment between in which what comes is answered.
        right.free(cx);
        true
    }

    fn end_right(&self, cx: &Kernel, this: &SessionRef, question: &EndRight) -> bool {
        let right = self.rights.borrow_mut().remove(&question.right);
        let Some(right) = right else {
            return false;
        };
        let octets = question.state_octets;
        let state = self.take_coming(Coming::Right(question.right), octets);
        // From then on what comes for it here waits for it.
        let is_brought = state.is_some_and(|state| right.bring(cx, &state));
        for number in [Some(question.right), right.extended.get()].into_iter().flatten() {
            let _ = self.shared.netio.ask(cx, RevokeRight { number, was_there: false });
        }
        if octets == 0 {
            right.free(cx);
            return true;
        }
        let protocol = this.protocol(cx).filter(|_| is_brought);
        let goes_on = protocol.is_some_and(|protocol| right.go_on(cx, &protocol));
        let count = &self.shared.taken_back;
        count.set(count.get() + u64::from(goes_on));
        if !goes_on {
            self.leave(cx, this, [Left::Right(right)]);
        }
        goes_on
    }

    fn leave(&self, cx: &Kernel, this: &SessionRef, all: impl IntoIterator<Item = Left>) {
        self.shared.left.borrow_mut().extend(all);
        if let Some(protocol) = this.protocol(cx) {
            self.shared.clear(cx, &protocol);
        }
    }
}

impl Session for Program {
    fn control(&self, cx: &Kernel, this: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        if let Some(question) = ask.get::<OpenChannel>() {
            let _ = self.open_channel(cx, this, question);
        } else if let Some(question) = ask.get::<TakeOver>() {
            let session = question.session.take();
            question.right =
                session.and_then(|session| self.take_over(cx, this, (&session, question)));
        } else if let Some(question) = ask.get::<FindStation>() {
            question.station = self.find_station(cx, this, question);
        } else if let Some(question) = ask.get::<GiveBack>() {
            question.taken = self.give_back(question);
        } else if let Some(question) = ask.get::<PassOn>() {
            question.ticket = self.pass_on(cx, this, question.right);
        } else if let Some(question) = ask.get::<TakeOn>() {
            question.taken = self.take_on(cx, question);
        } else if let Some(question) = ask.get::<EndRight>() {
            question.done = self.end_right(cx, this, question);
        } else if let Some(question) = ask.get::<Describe>() {
            question.text = alloc::format!("{} conversations", self.rights.borrow().len());
        } else {
            return Answer::Unknown;
        }
        Answer::Answered
    }

    /// The program has gone: what it had is no more, and its peers are told.
    fn close(&self, cx: &Kernel, this: &SessionRef) -> Closing {
        let shared = &self.shared;
        shared.programs.borrow_mut().retain(|other| other != this);
        let channel = self.channel.take().map(Left::Channel);
        let rights = self.rights.take().into_values().map(Left::Right);
        drop(self.coming.take());
        self.leave(cx, this, channel.into_iter().chain(rights));
        Closing::Done
    }
}
