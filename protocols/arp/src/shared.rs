//! Shared state of protocol and sessions, and the events of entries.

use crate::claim::{Claims, Stage, is_station};
use crate::control::{ArpEntry, ArpTable};
use crate::entry::{Action, Entry, Event, Resolution};
use crate::hosts::Hosts;
use crate::others::Others;
use crate::session::{Key, Path};
use crate::waiting::Waiting;
use crate::wire::{EthAddr, Ipv4, PACKET_LEN, PROTOCOL_IPV4, Packet};
use alloc::rc::{Rc, Weak};
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::time::Duration;
use xk_core::Secret;
use xk_core::kernel::Timer;
use xk_core::object::{OpenError, SessionSlot, SessionTable};
use xk_core::reason::{self, Class};
use xk_core::{Answer, Ask, Kernel, Part, Participants, ProtocolRef, Reason, SessionRef, Upper};
use xk_kit::control::{
    ClaimHost, MyHost, NetworkError, NetworkErrorKind, Resolve, SendError, SendErrorCause, Start,
};
use xk_kit::net::drop_sources::DropSources;

/// The host's address could not be found out.
pub static UNRESOLVED: Reason = Reason::new("unresolved", Class::Exhausted);

/// A host that was needed gave way to another one in a full cache.
pub static EVICTED: Reason = Reason::new("host evicted", Class::Exhausted);

/// Room for the lower headers in front of a packet, in octets.
const HEADROOM: usize = 128;
/// Upper protocols that are told of conflicts.
const UPPERS_MAX: usize = 64;

xk_core::settings! {
    /// Parameters of the graph.
    pub(crate) struct Config {
        entries_max: usize = int(1..=1_048_576, 1024, "how many hosts it remembers"),
        sessions_max: usize = int(1..=1_048_576, 4096, "how many sessions it holds"),
        queue_max: usize = int(1..=1_048_576, 48,
            "how many messages wait in one session; a datagram of 64 KiB is 45 fragments on \
             Ethernet"),
        waiting_max: usize = int(1..=1_048_576, 1024,
            "how many messages wait in all sessions together"),
        retries: u32 = int(0..=100, 3, "how often a request is repeated"),
        retry: Duration = duration(Duration::from_secs(1),
            "time between two requests, a second at least"),
        lifetime: Duration = duration(Duration::from_secs(60),
            "how long an address is believed without confirmation, a second at least"),
        negative: Duration = duration(Duration::from_secs(5),
            "how long a host that did not answer is not asked for again, a second at least"),
        probe: bool = flag(false, "whether a host is probed for before it is ours"),
        sources_max: usize = int(0..=64, 32, "for how many sources drops are counted apart"),
    }
}

/// Purpose of a timer.
#[derive(Clone, Copy)]
pub(crate) enum Token {
    Entry(Ipv4),
    Claim(Ipv4),
}

impl Token {
    fn number(self) -> u64 {
        match self {
            Token::Entry(host) => u64::from(host.to_bits()),
            Token::Claim(host) => u64::from(host.to_bits()) | 1 << 32,
        }
    }

    pub(crate) fn read(number: u64) -> Self {
        let host = Ipv4::from_bits(number as u32);
        match number >> 32 {
            0 => Token::Entry(host),
            _ => Token::Claim(host),
        }
    }
}

/// Whether a message for a host can go.
pub(crate) enum Reach {
    /// The host's address is known.
    Open,
    /// The address is being asked for.
    Later,
    /// The host does not answer.
    None,
}

pub(crate) struct Shared {
    pub(crate) eth: ProtocolRef,
    /// The protocol itself, from start to stop.
    pub(crate) me: RefCell<Option<ProtocolRef>>,
    /// This station's address.
    pub(crate) mine: Cell<EthAddr>,
    pub(crate) config: Config,
    pub(crate) hosts: Hosts,
    pub(crate) sessions: SessionTable<Key>,
    pub(crate) claims: Claims,
    /// The hosts whose packets were dropped.
    pub(crate) drop_sources: DropSources,
    /// Messages that wait for an address.
    pub(crate) waiting: Waiting,
    uppers: RefCell<Vec<ProtocolRef>>,
    /// The watchers, and the takers of packets of further types.
    pub(crate) others: Others,
    /// The session for requests to all.
    pub(crate) broadcast: SessionSlot,
    /// Packets that showed a host of ours in use elsewhere.
    pub(crate) conflicts: Cell<u64>,
    /// Hosts whose address changed.
    pub(crate) moved: Cell<u64>,
    /// Packets whose sender is not the station that sent the frame.
    pub(crate) mismatched: Cell<u64>,
}

impl Shared {
    pub(crate) fn new(secret: Secret, eth: ProtocolRef, config: Config) -> Self {
        Self {
            eth,
            me: RefCell::default(),
            mine: Cell::new(EthAddr::ZERO),
            hosts: Hosts::new(secret, config.entries_max),
            sessions: SessionTable::new(secret, config.sessions_max),
            drop_sources: DropSources::new(config.sources_max),
            waiting: Waiting::new(config.waiting_max),
            config,
            claims: Claims::default(),
            uppers: RefCell::default(),
            others: Others::default(),
            broadcast: SessionSlot::default(),
            conflicts: Cell::new(0),
            moved: Cell::new(0),
            mismatched: Cell::new(0),
        }
    }

    /// Notes a protocol that is to be told of conflicts.
    pub(crate) fn note_upper(&self, upper: &ProtocolRef) {
        let mut uppers = self.uppers.borrow_mut();
        if uppers.len() < UPPERS_MAX && !uppers.contains(upper) {
            uppers.push(upper.clone());
        }
    }

    pub(crate) fn uppers(&self) -> Vec<ProtocolRef> {
        self.uppers.borrow().clone()
    }

    /// Forgets everything; for the protocol's `stop`.
    pub(crate) fn stop(&self, cx: &Kernel) {
        for session in self.sessions.sessions(usize::MAX) {
            session.abort(cx);
        }
        self.sessions.clear();
        self.hosts.clear();
        self.claims.clear();
        self.drop_sources.clear();
        drop(self.uppers.take());
        self.others.clear();
        self.broadcast.close(cx);
        drop(self.me.take());
    }

    /// Counts something dropped at the protocol.
    pub(crate) fn count(&self, reason: &'static Reason) {
        if let Some(me) = &*self.me.borrow() {
            me.head().drops().count(reason);
        }
    }

    /// Sets a timer of the protocol; `None` if there are too many.
    pub(crate) fn arm(&self, cx: &Kernel, delay: Duration, token: Token) -> Option<Timer> {
        let me = self.me.borrow().clone()?;
        cx.schedule_protocol(&me, delay, token.number()).ok()
    }

    /// Sends a packet. What keeps it from going is counted.
    pub(crate) fn send(&self, cx: &Kernel, to: EthAddr, packet: &Packet) {
        self.send_as(cx, PROTOCOL_IPV4, to, packet);
    }

    /// Sends a packet of this protocol type.
    pub(crate) fn send_as(&self, cx: &Kernel, number: u16, to: EthAddr, packet: &Packet) {
        let mut octets = [0; PACKET_LEN];
        packet.emit_as(number, &mut octets);
        let Ok(message) = cx.pool().copy_from(HEADROOM, &octets) else {
            return self.count(&reason::NO_BUFFERS);
        };
        let session = if to.is_broadcast() {
            self.broadcast.get()
        } else {
            let me = self.me.borrow().clone();
            let both = Participants::pair(Part::Any, Part::Ether(to.0));
            me.and_then(|me| self.eth.open(cx, Upper::new(&me), both).ok())
        };
        let Some(session) = session else {
            return self.count(&reason::TABLE_FULL);
        };
        // A failure below is counted below; the next request makes up for it.
        let _ = session.push(cx, message);
        if !to.is_broadcast() {
            session.close(cx);
        }
    }

    // ---- entries ----

    /// Asks for a host in the name of `local`, unless it is known or asked for already.
    pub(crate) fn want(&self, cx: &Kernel, entry: &Rc<Entry>, local: Ipv4) -> Reach {
        let (next, action) = entry.state.get().next(Event::Wanted);
        if action == Action::Ask {
            let source =
                if local.is_unspecified() { self.claims.first().unwrap_or(local) } else { local };
            match self.claims.find(source).map(|c| c.stage.get()) {
                // No request may bear the address before it is ours (RFC 5227, section 2.1).
                Some(Stage::Probing) => return Reach::Later,
                Some(Stage::Lost) => return Reach::None,
                Some(Stage::Ours) | None => entry.source.set(source),
            }
            if !self.enter(cx, entry, next, self.config.retry) {
                return Reach::None;
            }
            self.request(cx, entry, EthAddr::BROADCAST);
        }
        match entry.state.get() {
            Resolution::Known | Resolution::Checking => Reach::Open,
            Resolution::Asking => Reach::Later,
            Resolution::Failed | Resolution::Idle => Reach::None,
        }
    }

    /// Enters a state that ends after `delay`; false, and the entry is idle, if no timer is left.
    fn enter(&self, cx: &Kernel, entry: &Entry, state: Resolution, delay: Duration) -> bool {
        if entry.state.replace(state) != state {
            entry.retries.set(0);
            entry.since.set(cx.now());
        }
        self.arm_entry(cx, entry, delay)
    }

    fn arm_entry(&self, cx: &Kernel, entry: &Entry, delay: Duration) -> bool {
        cx.cancel(entry.timer.take());
        let timer = self.arm(cx, delay, Token::Entry(entry.host));
        entry.timer.set(timer);
        if timer.is_none() {
            entry.state.set(Resolution::Idle);
        }
        timer.is_some()
    }

    /// Sends a request, to all or to the station that had the address; at most one a second.
    fn request(&self, cx: &Kernel, entry: &Entry, to: EthAddr) {
        if entry.is_asked_recently(cx.now()) {
            return;
        }
        entry.asked.set(Some(cx.now()));
        let packet = Packet::request(self.mine.get(), entry.source.get(), entry.host);
        self.send(cx, to, &packet);
    }

    /// A host's address was heard.
    pub(crate) fn learn(&self, cx: &Kernel, entry: &Rc<Entry>, eth: EthAddr) {
        let before = entry.state.get();
        let (next, _) = before.next(Event::Heard);
        let changed = entry.eth.replace(eth) != eth;
        if changed && before.is_usable() {
            self.moved.set(self.moved.get() + 1);
        }
        // A timer that runs for a known entry goes on: it looks at the time of the confirmation
        // itself.
        let armed = before == next || self.enter(cx, entry, next, self.config.lifetime);
        entry.since.set(cx.now());
        entry.used.set(false);
        for path in entry.paths() {
            if changed || !path.lower.is_some() {
                self.link(cx, &path, eth);
            }
        }
        if !armed {
            self.unlink(cx, entry);
        } else if changed || !before.is_usable() {
            self.tell_changed(cx, entry.host);
        }
    }

    /// Leads a session to an address and sends what waits there.
    pub(crate) fn link(&self, cx: &Kernel, path: &Rc<Path>, eth: EthAddr) -> Option<SessionRef> {
        let old = path.lower.take();
        let opened = self.open_below(cx, path, eth);
        if let Some(old) = old {
            old.close(cx);
        }
        let Ok(lower) = opened else {
            self.drop_waiting(cx, path);
            return None;
        };
        if path.is_closed.get() {
            // It was closed while the open below waited.
            lower.close(cx);
            return None;
        }
        if let Some(twice) = path.lower.replace(Some(lower.clone())) {
            twice.close(cx);
        }
        for message in self.waiting.take(path) {
            path.entry.used.set(true);
            // Counted below, as if it had gone at once.
            let _ = lower.push(cx, message);
        }
        Some(lower)
    }

    fn open_below(&self, cx: &Kernel, path: &Path, eth: EthAddr) -> Result<SessionRef, OpenError> {
        let upper = Upper { receiver: &path.receiver, selector: path.selector };
        let both = Participants::pair(Part::Any, Part::Ether(eth.0));
        let lower = self.eth.open(cx, upper, both)?;
        let head = lower.head();
        let fresh = head.opens() == 1 && head.sent() == 0 && head.received() == 0;
        if fresh {
            // What arrives there goes to the receiver without passing here, so it must know the
            // session.
            let mine = Part::Ether(self.mine.get().0);
            let both = Participants::pair(mine, Part::Ether(eth.0));
            if lower.announce(cx, &path.receiver, both).is_err() {
                lower.close(cx);
                return Err(OpenError::NotSupported);
            }
        }
        let session = self.sessions.get(&path.key);
        if let Some(session) = session.filter(|_| head.tag() == 0) {
            head.set_tag(session.head().tag());
        }
        Ok(lower)
    }

    /// Takes all sessions of a host off its address; forgets it if there are none.
    fn unlink(&self, cx: &Kernel, entry: &Rc<Entry>) {
        for path in entry.paths() {
            path.lower.close(cx);
        }
        self.hosts.note_unknown(entry.host);
        self.forget_idle(cx, entry);
        self.tell_changed(cx, entry.host);
    }

    /// Forgets a host about which nothing is known and which is not needed.
    pub(crate) fn forget_idle(&self, cx: &Kernel, entry: &Rc<Entry>) {
        let current = self.hosts.get(entry.host);
        let current = current.is_some_and(|found| Rc::ptr_eq(&found, entry));
        if current && entry.state.get() == Resolution::Idle && entry.paths.borrow().is_empty() {
            self.hosts.remove(cx, entry.host);
        }
    }

    /// The entry of a host, made if it is missing. In a full cache where every entry is needed one
    /// of them gives way all the same, with its sessions, which their holders open again: else
    /// a station that fills the cache would keep all others out.
    pub(crate) fn get_or_make(&self, cx: &Kernel, host: Ipv4) -> Option<Rc<Entry>> {
        if let Some(entry) = self.hosts.get_or_make(cx, host) {
            return Some(entry);
        }
        let sent = |entry: &Entry| {
            let sessions = entry.paths.borrow();
            let sessions = sessions.iter().filter_map(Weak::upgrade);
            let sessions = sessions.filter_map(|path| self.sessions.get(&path.key));
            sessions.map(|session| session.head().sent()).sum::<u64>()
        };
        let victim = self.hosts.victim(sent)?;
        self.count(&EVICTED);
        for path in victim.paths() {
            // No protocol is told: one that answered that would need a place here itself.
            self.waiting.take(&path).for_each(|_| self.count(&UNRESOLVED));
        }
        self.forget(cx, &victim);
        for path in victim.paths() {
            if let Some(session) = self.sessions.get(&path.key) {
                session.abort(cx);
            }
        }
        self.hosts.remove(cx, victim.host);
        self.hosts.get_or_make(cx, host)
    }

    /// Forgets what is known of a host, whatever it is.
    pub(crate) fn forget(&self, cx: &Kernel, entry: &Rc<Entry>) {
        cx.cancel(entry.timer.take());
        entry.state.set(Resolution::Idle);
        for path in entry.paths() {
            self.drop_waiting(cx, &path);
        }
        self.unlink(cx, entry);
    }

    /// Drops what waits for a host, and tells above about each message (RFC 1122, section 2.4):
    /// gives it back to a protocol that tells its sender, or shows its beginning to any other.
    pub(crate) fn drop_waiting(&self, cx: &Kernel, path: &Path) {
        for message in self.waiting.take(path) {
            self.count(&UNRESOLVED);
            let start = Start::of(&message);
            let returned = SendError {
                packet: Some(message),
                cause: SendErrorCause::HostUnreachable,
                link_broadcast: false,
            };
            if path.receiver.ask(cx, returned).is_some() {
                continue;
            }
            let session = self.sessions.get(&path.key);
            let error = NetworkError::new(NetworkErrorKind::HostUnreachable);
            let _ = path.receiver.ask(cx, NetworkError { session, start, ..error });
        }
    }

    /// An entry's timer went off.
    pub(crate) fn entry_timeout(&self, cx: &Kernel, host: Ipv4) {
        let Some(entry) = self.hosts.get(host) else {
            return;
        };
        entry.timer.set(None);
        let age = cx.now().since(entry.since.get());
        let left = self.config.lifetime.saturating_sub(age);
        let event = match entry.state.get() {
            Resolution::Asking | Resolution::Checking
                if entry.retries.get() < self.config.retries =>
            {
                entry.retries.set(entry.retries.get() + 1);
                Event::Silent
            }
            Resolution::Asking | Resolution::Checking => Event::Exhausted,
            // Confirmed since the timer was set.
            Resolution::Known if !left.is_zero() => {
                if !self.arm_entry(cx, &entry, left) {
                    self.unlink(cx, &entry);
                }
                return;
            }
            Resolution::Known if entry.used.replace(false) => Event::Aged,
            Resolution::Known => Event::Unused,
            Resolution::Failed => Event::Forgiven,
            Resolution::Idle => return,
        };
        let (next, action) = entry.state.get().next(event);
        self.act(cx, &entry, next, action);
    }

    /// Enters the next state after a timer and does what belongs to it.
    fn act(&self, cx: &Kernel, entry: &Rc<Entry>, next: Resolution, action: Action) {
        match action {
            Action::Ask | Action::Poll => {
                let to = match action {
                    Action::Ask => EthAddr::BROADCAST,
                    _ => entry.eth.get(),
                };
                if self.enter(cx, entry, next, self.config.retry) {
                    self.request(cx, entry, to);
                } else {
                    self.forget(cx, entry);
                }
            }
            Action::Fail => {
                self.enter(cx, entry, next, self.config.negative);
                for path in entry.paths() {
                    self.drop_waiting(cx, &path);
                }
                self.tell_changed(cx, entry.host);
            }
            Action::Unlink => {
                entry.state.set(next);
                self.unlink(cx, entry);
            }
            Action::Nothing | Action::Link => {
                entry.state.set(next);
                self.forget_idle(cx, entry);
            }
        }
    }

    /// The claim of a host has come to an end, one way or the other: asks for whom messages wait,
    /// or drops them.
    pub(crate) fn resume_waiting(&self, cx: &Kernel) {
        for entry in self.hosts.list() {
            if entry.state.get() != Resolution::Idle {
                continue;
            }
            for path in entry.paths() {
                let waits = !path.waiting.is_empty();
                if waits && matches!(self.want(cx, &entry, path.local), Reach::None) {
                    self.drop_waiting(cx, &path);
                }
            }
        }
    }

    // ---- questions ----

    /// The address onto which a host maps without asking.
    pub(crate) fn mapped(host: Ipv4) -> Option<EthAddr> {
        if host == Ipv4::BROADCAST {
            Some(EthAddr::BROADCAST)
        } else if host.is_multicast() {
            Some(EthAddr::from_ipv4_group(host))
        } else {
            None
        }
    }

    fn resolve(&self, cx: &Kernel, host: Ipv4) -> Option<EthAddr> {
        if self.claims.is_ours(host) {
            return Some(self.mine.get());
        }
        if !is_station(host) {
            return Self::mapped(host);
        }
        let entry = self.get_or_make(cx, host)?;
        match self.want(cx, &entry, Ipv4::UNSPECIFIED) {
            Reach::Open => {
                entry.used.set(true);
                entry.address()
            }
            Reach::Later | Reach::None => {
                self.forget_idle(cx, &entry);
                None
            }
        }
    }

    fn fill_table(&self, cx: &Kernel, table: &mut ArpTable) {
        let list = self.hosts.list();
        table.total = list.len();
        let lines = list.iter().take(table.max).map(|entry| ArpEntry {
            host: entry.host,
            address: entry.address().map(|eth| eth.0),
            state: entry.state.get().name().into(),
            age: cx.now().since(entry.since.get()),
            waiting: entry.paths().iter().map(|p| p.waiting.len()).sum(),
        });
        table.entries = lines.collect();
        table.conflicts = self.conflicts.get();
        table.moved = self.moved.get();
        table.mismatched = self.mismatched.get();
    }

    /// Answers the questions that protocol and sessions answer alike; `None` for another question.
    pub(crate) fn control(&self, cx: &Kernel, ask: &mut Ask<'_>) -> Option<Answer> {
        if let Some(question) = ask.get::<Resolve>() {
            question.address =
                question.host.to_v4().and_then(|host| self.resolve(cx, host)).map(|eth| eth.0);
        } else if let Some(question) = ask.get::<ClaimHost>() {
            if !question.host.to_v4().is_some_and(|host| self.claim(cx, host)) {
                return Some(Answer::Unknown);
            }
        } else if let Some(question) = ask.get::<MyHost>() {
            question.host = self.claims.first()?.into();
        } else if let Some(table) = ask.get::<ArpTable>() {
            self.fill_table(cx, table);
        } else {
            return self.control_others(cx, ask);
        }
        Some(Answer::Answered)
    }
}
