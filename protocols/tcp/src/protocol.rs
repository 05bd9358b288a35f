//! The protocol object: opens, enables, demultiplexes.

use crate::connection::{Connection, Ends, Settings};
use crate::firsts::Begun;
use crate::origin::{hosts, hosts_and_ports, is_intact, path, received};
use crate::passive::Stray;
use crate::seq::Seq;
use crate::session::{Link, TcpSession, can_be_replaced, end_silently, start};
use crate::table::{Key, Limits, Table, key, ports, settings};
use crate::wire::{HEADER_LEN, Header};
use alloc::rc::Rc;
use core::cell::Cell;
use xk_core::control::Tables;
use xk_core::graph::{Build, BuildError};
use xk_core::message::PullUpError;
use xk_core::object::{Burst, Enable, Glance, OpenError, Refused};
use xk_core::participant::AddressError;
use xk_core::{
    Answer, Ask, Kernel, Message, Part, Participant, Participants, Protocol, ProtocolRef,
    SessionRef, Upper, reason,
};
use xk_kit::control::{IsOutstanding, NetworkError, TellArrivals};
use xk_kit::net::moving::{HalfOpen, KeepEnds, TakeState};
use xk_kit::net::ports::{
    ANY_HOST, Origin, ephemeral, is_anothers, is_free, is_of_port, less_header, offer, pop_offer,
    pop_ports,
};
use xk_kit::net::stream::{StreamCredit, StreamNotice, StreamSet, StreamSetNext};
use xk_kit::rpc::call::NeedsPseudoHeader;

/// Number of ports that are looked at for one that was not used lately.
const UNUSED_TRIES: u32 = 64;

/// One instance of the layer.
pub struct Tcp {
    pub(crate) lower: ProtocolRef,
    /// Participant that it enables below.
    enables: Participant,
    pub(crate) table: Rc<Table>,
}

/// Builds it from its place in a graph.
pub fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let limits = Limits::read(build)?;
    let settings = settings(build.params);
    let lower = build.lower(0)?;
    let given = build.params.participant("local")?;
    let enables = given.unwrap_or_else(|| Participant::of(Part::Any));
    let (cx, name) = (build.cx, build.name);
    Ok(add_limited(cx, name, lower, enables, &limits, settings))
}

/// Adds one to a kernel, for programs that compose without a graph file.
pub fn add(
    cx: &Kernel,
    name: &str,
    lower: ProtocolRef,
    sessions_max: usize,
    settings: Settings,
) -> ProtocolRef {
    let limits = Limits { sessions_max, ..Limits::default() };
    let enables = Participant::of(Part::Any);
    add_limited(cx, name, lower, enables, &limits, settings)
}

fn add_limited(
    cx: &Kernel,
    name: &str,
    lower: ProtocolRef,
    enables: Participant,
    limits: &Limits,
    settings: Settings,
) -> ProtocolRef {
    let table = Rc::new(Table::new(cx, limits, settings));
    let tcp = Tcp { lower, enables, table };
    cx.add_protocol(crate::ENTRY.kind, name, tcp)
}

/// Both ports as they lie in an arriving header.
#[inline]
fn ports_of(octets: &[u8; HEADER_LEN]) -> u32 {
    let [a, b, c, d, ..] = *octets;
    u32::from_be_bytes([a, b, c, d])
}

impl Protocol for Tcp {
    fn start(&self, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        let local = Participants::local(self.enables.clone());
        let enabled = self.lower.open_enable(cx, Upper::new(this), local);
        if self.table.settings.borrow().accurate_ecn
            && let Ok(number) = Upper::new(this).number_on(cx, &self.lower)
        {
            // A layer that lies elsewhere may not know; then marked octets alone are counted.
            let _ = self.lower.ask(cx, TellArrivals { number });
        }
        enabled.map(drop)
    }

    fn open(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        mut participants: Participants,
    ) -> Result<SessionRef, OpenError> {
        let settings = self.table.take_next(cx);
        let (local, peer) = pop_ports(&mut participants)?;
        if peer == 0 {
            return Err(AddressError::Wildcard.into());
        }
        let lower = self.lower.open(cx, Upper::new(this), participants)?;
        let opened = self.open_on(cx, this, upper, &lower, (local, peer), settings);
        if opened.is_err() {
            lower.close(cx);
        }
        opened
    }

    fn open_enable(
        &self,
        _: &Kernel,
        _: &ProtocolRef,
        upper: Upper<'_>,
        mut participants: Participants,
    ) -> Result<Enable, OpenError> {
        let (port, host) = pop_offer(&mut participants)?;
        let offer = offer(port, host);
        self.table.offers.enable(offer, upper.receiver.clone(), is_of_port(port))?;
        Ok(Enable(offer))
    }

    fn open_disable(&self, _: &Kernel, _: &ProtocolRef, Enable(offer): Enable) {
        self.table.offers.unbind(&offer);
    }

    #[inline]
    fn demux(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        message: Message,
    ) -> Result<(), Refused> {
        if let Some(octets) = message.peek_in_place::<HEADER_LEN>()
            && let Some(session) = self.table.sessions.get(&key(lower, ports_of(octets)))
            && !session.head().is_closed()
        {
            return session.pop(cx, message);
        }
        self.demux_other(cx, this, lower, message)
    }

    fn demux_burst(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        burst: Burst<'_>,
    ) -> Result<(), Refused> {
        let ports_at = |glance: &Glance<HEADER_LEN>| ports_of(&glance.octets);
        while burst.goes_on(lower) {
            if let Some(ports) = burst.peek(0).map(|first| ports_at(&first))
                && let Some(session) = self.table.sessions.get(&key(lower, ports))
                && !session.head().is_closed()
            {
                let run = burst.count_while(|_, glance| ports_at(&glance) == ports);
                session.pop_burst(cx, burst.first(run))?;
            } else if let Some(message) = burst.next() {
                self.demux_other(cx, this, lower, message)?;
            }
        }
        Ok(())
    }

    fn control(&self, cx: &Kernel, this: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        if let Some(question) = ask.get::<StreamSet>() {
            question.taken = self.table.set(question.setting);
        } else if let Some(StreamSetNext { set: question }) = ask.get::<StreamSetNext>() {
            question.taken = self.table.set_next(cx, question.setting);
        } else if let Some(question) = ask.get::<TakeState>() {
            // What cannot be opened below is not taken.
            let _ = self.take_state(cx, this, question);
        } else if let Some(question) = ask.get::<KeepEnds>() {
            let _ = self.keep_ends(cx, this, question);
        } else if let Some(question) = ask.get::<HalfOpen>() {
            question.left = self.found_all(cx, this);
        } else if let Some(question) = ask.get::<IsOutstanding>() {
            return self.is_outstanding(cx, question);
        } else if ask.get::<NetworkError>().is_some() {
            return self.network_error(cx, this, ask);
        } else if ask.get::<StreamNotice>().is_some() || ask.get::<StreamCredit>().is_some() {
            // One that comes back from above, where nothing understood it, ends here.
            return Answer::Unknown;
        } else if !self.table.drop_sources.answer(this, ask)
            && ask.get::<NeedsPseudoHeader>().is_none()
        {
            let answer = self.lower.control(cx, ask);
            if answer.is_answered() {
                less_header(ask, HEADER_LEN);
            }
            return answer;
        }
        Answer::Answered
    }

    fn tables(&self, tables: &mut Tables<'_>) {
        tables.sessions("active", &self.table.sessions);
        tables.map("passive", self.table.offers.stats());
        tables.map("pending", self.table.pending.stats());
        tables.map("origins", self.table.origins.stats());
        tables.map("fast-open", self.table.fast.stats());
        tables.map("holds", self.table.holds.stats());
    }

    fn lower(&self) -> Option<&ProtocolRef> {
        Some(&self.lower)
    }

    fn timeout(&self, cx: &Kernel, this: &ProtocolRef, _: u64) {
        self.tick(cx, this);
    }

    fn relieve(&self, cx: &Kernel, this: &ProtocolRef) {
        self.give_back(cx, this);
    }

    fn stop(&self, _: &Kernel, _: &ProtocolRef) {
        self.table.clear();
    }
}

impl Tcp {
    /// Number that stands for both hosts, and for both ports below where there are such.
    pub(crate) fn hosts(&self, cx: &Kernel, origin: &Origin, lower: &SessionRef) -> u64 {
        if self.enables.top() == Some(&Part::Any) {
            hosts(&self.table.secrets.hosts, origin, lower)
        } else {
            hosts_and_ports(cx, &self.table.secrets.hosts, origin, lower)
        }
    }

    /// An active open on a lower session, whose hold it takes over.
    fn open_on(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        lower: &SessionRef,
        (local, peer): (u16, u16),
        settings: Rc<Settings>,
    ) -> Result<SessionRef, OpenError> {
        let sessions = &self.table.sessions;
        let origin = self.table.origins.of(cx, lower);
        let hosts = self.hosts(cx, &origin, lower);
        if self.table.holds.is_expected(&(hosts, ports(local, peer))) {
            return self.go_on(cx, this, upper, lower, origin, (hosts, ports(local, peer)));
        }
        let path = path(cx, lower);
        let link = Link::new(cx, lower, origin, hosts);
        // All questions are asked: nothing blocks between the choice of the ports and their use.
        let is_held = |port| self.table.holds.has(&(hosts, ports(port, peer)), cx.now());
        let local = match local {
            port @ 1..
                if is_held(port) || is_anothers(&self.table.offers, port, upper.receiver) =>
            {
                return Err(OpenError::InUse);
            }
            port @ 1.. => port,
            0 => {
                let host = origin.local.unwrap_or(ANY_HOST);
                let old = |port| sessions.get(&key(lower, ports(port, peer)));
                let may_open = |port| is_free(&self.table.offers, (port, host), |_| false);
                let is_over = |old| can_be_replaced(&old).is_some();
                let tries = Cell::new(0);
                // Where nearly all are in use, some only wait for late segments.
                let may_take = |port| {
                    tries.set(tries.get() + 1);
                    may_open(port)
                        && !is_held(port)
                        && old(port).is_none_or(|old| tries.get() > UNUSED_TRIES && is_over(old))
                };
                ephemeral(cx, may_take).or_else(|_| ephemeral(cx, may_take))?
            }
        };
        let pair = ports(local, peer);
        let key = key(lower, pair);
        let mut iss = self.table.secrets.sequence(hosts, pair, cx.now());
        if let Some(old) = sessions.get(&key) {
            iss = iss.max(self.make_way(cx, &key, &old).ok_or(OpenError::InUse)?);
        }
        let ends = self.ends(path, hosts, local, peer);
        let mut connection = Connection::open(settings, ends, iss, cx.now());
        if connection.wants_fast()
            && let Some(known) = self.table.fast.known(&(hosts, ports(0, peer)), cx.now())
        {
            connection.open_fast(known, cx.now());
        }
        let body = TcpSession::new(cx, &self.table, link, key, upper.receiver, connection);
        let session = cx.new_session(this, upper.receiver, body);
        if sessions.bind(cx, key, session.clone()).is_err() {
            // Marked closed without closing the lower one: that is the caller's again.
            session.retire(cx);
            return Err(OpenError::Full);
        }
        start(cx, &session);
        Ok(session)
    }

    /// A connection that only waits for late segments makes room for a new one (RFC 9293, section
    /// 3.4.1, and RFC 6191): where the numbers of that may begin. `None` if it does not wait.
    pub(crate) fn make_way(&self, cx: &Kernel, key: &Key, old: &SessionRef) -> Option<Seq> {
        let after = can_be_replaced(old)?;
        end_silently(cx, old);
        self.table.sessions.unbind(key);
        Some(after)
    }

    pub(crate) fn ends(&self, path: u32, hosts: u64, local: u16, peer: u16) -> Ends {
        let clock_offset = self.table.secrets.clock_offset(hosts, ports(local, peer));
        Ends { local, peer, path, clock_offset }
    }

    /// A segment whose header lies in pieces, or of no session.
    #[inline(never)]
    fn demux_other(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        mut message: Message,
    ) -> Result<(), Refused> {
        let fixed = match message.header() {
            Ok(fixed) => fixed,
            Err(PullUpError::NoBuffers) => return Err(this.refuse(message, &reason::NO_BUFFERS)),
            Err(_) => {
                self.table.drop_sources.record(cx, lower, 0, &reason::TRUNCATED);
                this.discard(message, &reason::TRUNCATED);
                return Ok(());
            }
        };
        let key = key(lower, ports_of(&fixed));
        if let Some(session) = self.table.sessions.get(&key) {
            if !session.head().is_closed() {
                return session.pop(cx, message);
            }
            self.table.sessions.unbind(&key);
        }
        let first = match self.table.firsts.begin(key, message) {
            Begun::First(first) => first,
            Begun::Waits => return Ok(()),
            Begun::Full(segment) => return Err(this.refuse(segment, &reason::QUEUE_FULL)),
        };
        let taken = self.demux_stray(cx, this, lower, key, first);
        while let Some(next) = self.table.firsts.next_or_end(key) {
            let session = self.table.sessions.get(&key).filter(|s| !s.head().is_closed());
            let taken = match session {
                Some(session) => session.pop(cx, next),
                None => self.demux_stray(cx, this, lower, key, next),
            };
            if let Err(refused) = taken {
                lower.refused(cx, refused);
            }
        }
        taken
    }

    /// A segment of no session, its header in one piece.
    fn demux_stray(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        key: Key,
        mut message: Message,
    ) -> Result<(), Refused> {
        // Drops it in silence, counted.
        let drop_bad = |port, message, why| {
            self.table.drop_sources.record(cx, lower, port, why);
            this.discard(message, why);
            Ok(())
        };
        let port = (key.1 >> 16) as u16;
        let Ok(fixed) = message.header() else {
            return Err(this.refuse(message, &reason::NO_BUFFERS));
        };
        let length = Header::length(&fixed).unwrap_or(usize::MAX);
        if length > message.len() {
            return drop_bad(port, message, &reason::BAD_LENGTH);
        }
        if message.pull_up(length).is_err() {
            return Err(this.refuse(message, &reason::NO_BUFFERS));
        }
        let origin = match self.table.origins.learned(cx, lower) {
            Ok(origin) => origin,
            Err(why) => return Err(this.refuse(message, why)),
        };
        if !is_intact(received(&origin), &message) {
            return drop_bad(port, message, &reason::BAD_CHECKSUM);
        }
        let parsed = message.peek_slice(length).map(Header::parse);
        let Some(Ok((header, _))) = parsed else {
            return drop_bad(port, message, &reason::MALFORMED);
        };
        if origin.is_for_many(&message) {
            // RFC 9293, section 3.9.2.3: connections are between two hosts.
            return drop_bad(port, message, &reason::NOT_MINE);
        }
        let stray = Stray { cx, this, lower, origin: &origin, header: &header };
        // What holds it may release it while the protocol above is asked.
        lower.hold();
        let taken = self.demux_first(stray, message, length);
        lower.ease(cx);
        taken
    }
}
