//! Shared state of protocol and sessions: the tables, their bounds, the settings.

use crate::congestion::{self, Name};
use crate::connection::{BUFFER_MIN, SEGMENT_MIN, Settings};
use crate::cookie::Cookies;
use crate::fast::FastOpens;
use crate::firsts::Firsts;
use crate::isn::Secrets;
use crate::moving::Holds;
use crate::pending::{Pending, TICK};
use alloc::collections::VecDeque;
use alloc::rc::Rc;
use core::cell::{Cell, RefCell};
use core::time::Duration;
use xk_core::graph::{ParamKind, Params, duration, flag, int, octets, optional, word};
use xk_core::map::Map;
use xk_core::object::{Payer, SessionTable};
use xk_core::{Kernel, ProtocolRef, SessionRef, Time};
use xk_kit::answers::Allowance;
use xk_kit::net::drop_sources::DropSources;
use xk_kit::net::ports::Origins;
use xk_kit::net::stream::{StreamRoom, StreamSetting, StreamUse};

/// The key that a segment is demultiplexed by: the lower session, and the peer's port (the upper
/// half) with the local port.
pub(crate) type Key = (u64, u32);

#[inline]
pub(crate) fn ports(local: u16, peer: u16) -> u32 {
    u32::from(peer) << 16 | u32::from(local)
}

#[inline]
pub(crate) fn key(lower: &SessionRef, ports: u32) -> Key {
    (lower.id().0, ports)
}

xk_core::settings! {
    /// Bounds.
    pub(crate) struct Limits {
        sessions_max: usize = int(1..=16_777_216, 65_536,
            "how many connections it holds; for a new one the one goes that a peer used least"),
        passive_max: usize = int(0..=16_777_216, 0,
            "how many connections peers may make for one protocol above; 0: as many as it holds"),
        pending_max: usize = int(1..=16_777_216, 4096,
            "how many peers may have sent a SYN and nothing more; others get cookies"),
        enables_max: usize = int(1..=131_072, 16_384, "how many enables it holds"),
        fast_open_max: u32 = int(0..=65_535, 0,
            "how many peers of a port may have data here before their handshake is done (Fast Open)"),
        sources_max: usize = int(0..=64, 32, "for how many sources drops are counted apart"),
    }
    [
        octets("receive_buffer", 4 << 20, "octets of a connection's receive buffer at most"),
        optional("send_buffer", ParamKind::Octets,
            "octets of a connection's send buffer; if not given it grows from 1 MiB to 4 MiB"),
        int("segment_max", 64..=65_535, 65_535, "octets of data in a segment at most"),
        word("congestion", congestion::NAMES, congestion::DEFAULT, "the congestion control"),
        flag("no_delay", false, "whether small segments go at once"),
        flag("window_scale", true, "whether window scaling is offered"),
        flag("timestamps", true, "whether timestamps are offered"),
        flag("sack", true, "whether selective acknowledgements are offered"),
        flag("ecn", false, "whether explicit congestion notification is offered"),
        flag("accurate_ecn", false,
            "whether accurate feedback of congestion is offered, and else the usual one"),
        flag("fast_open", false, "whether what this host opens is to be a Fast Open"),
        duration("time_wait", Duration::from_secs(60),
            "how long an ended connection is remembered"),
        duration("user_timeout", Settings::USER_TIMEOUT,
            "how long octets may stay unacknowledged"),
        flag("announce_user_timeout", false, "whether the peer is told that, and its word heeded"),
        optional("local", ParamKind::Participant("port9000"),
            "what it enables below; needed on a layer with ports"),
        #[cfg(debug_assertions)]
        flag("planted", false, "whether some of what goes again lacks an octet, for tests of tests"),
    ]
}

/// The settings of a graph.
pub(crate) fn settings(params: &Params) -> Settings {
    let usual = Settings::default();
    let flag = |name, usual| match params.get(name) {
        None => usual,
        Some(_) => params.flag(name),
    };
    let octets = |name, usual: u32| {
        let octets = params.octets(name, usual as usize);
        u32::try_from(octets)
            .unwrap_or(u32::MAX)
            .clamp(crate::connection::BUFFER_MIN, crate::connection::BUFFER_MAX)
    };
    let receive_buffer_max = octets("receive_buffer", usual.receive_buffer_max);
    let send_buffer = octets("send_buffer", usual.send_buffer);
    let named = params.text("congestion");
    Settings {
        receive_buffer: usual.receive_buffer.min(receive_buffer_max),
        receive_buffer_max,
        send_buffer,
        send_buffer_max: params.get("send_buffer").map_or(usual.send_buffer_max, |_| send_buffer),
        no_delay: flag("no_delay", usual.no_delay),
        window_scale: flag("window_scale", usual.window_scale),
        timestamps: flag("timestamps", usual.timestamps),
        sack: flag("sack", usual.sack),
        ecn: flag("ecn", usual.ecn),
        accurate_ecn: flag("accurate_ecn", usual.accurate_ecn),
        fast_open: flag("fast_open", usual.fast_open),
        planted: flag("planted", usual.planted),
        segment_max: params.number("segment_max", usual.segment_max),
        congestion: named.and_then(Name::of).unwrap_or(usual.congestion),
        time_wait: params.duration("time_wait", usual.time_wait),
        user_timeout: params
            .get("user_timeout")
            .map(|_| params.duration("user_timeout", Duration::ZERO))
            .filter(|time| !time.is_zero()),
        announce_user_timeout: flag("announce_user_timeout", usual.announce_user_timeout),
        ..usual
    }
}

/// Octets in a second, and at once, of answers to SYNs that are sent to one host more often than
/// three times: the peer may be forged. Twenty handshakes that are lost in a second get them all.
const REPEATED_RATE: u64 = 1 << 10;
const REPEATED_BURST: u64 = 8 << 10;

/// Resets and challenges for segments of no connection that go to one host in a second.
const UNFIT_RATE: u64 = 1000;

/// Number of users for which the behaviour of their next session is kept.
const NEXT_MAX: usize = 64;

/// Shared state of protocol and sessions.
pub(crate) struct Table {
    pub(crate) sessions: SessionTable<Key>,
    /// The protocols that listen, by [`offer`](xk_kit::net::ports::offer).
    pub(crate) offers: Map<u64, ProtocolRef>,
    /// Peers that have sent a SYN and nothing more.
    pub(crate) pending: Pending,
    /// Segments that wait for one of their connection.
    pub(crate) firsts: Firsts,
    /// Cookies, which stand for notes when there is no room for more.
    pub(crate) cookies: Cookies,
    /// Fast Opens of peers, and what is known of peers for ours.
    pub(crate) fast: FastOpens,
    /// Facts about lower sessions.
    pub(crate) origins: Origins,
    /// Allowance of answers to SYNs that are sent again to peers that have proved nothing.
    pub(crate) unproved: Allowance,
    /// The peers whose segments were dropped.
    pub(crate) drop_sources: DropSources,
    /// Settings of sessions to come.
    pub(crate) settings: RefCell<Rc<Settings>>,
    /// Settings of the session that the next open of a user makes, if they differ; of the host
    /// itself without a user.
    next: RefCell<VecDeque<(Option<Payer>, Rc<Settings>)>>,
    pub(crate) secrets: Secrets,
    /// Ends of connections that are on their way from here or to here.
    pub(crate) holds: Holds,
    /// Protocols that want to hear when a connection is there, or over, besides the protocol above.
    pub(crate) watched: RefCell<VecDeque<(SessionRef, ProtocolRef)>>,
    /// Allowance for hosts whose segments belong to no connection: resets, and challenges (RFC
    /// 5961, section 7).
    pub(crate) unfit: Allowance,
    /// Time since which the pool has refused messages, and the time of the last refusal.
    pub(crate) pressed: Cell<Option<(Time, Time)>>,
}

impl Table {
    pub(crate) fn new(cx: &Kernel, limits: &Limits, settings: Settings) -> Self {
        let secret = cx.secret();
        Self {
            sessions: SessionTable::new(secret, limits.sessions_max)
                .with_passive_max(limits.passive_max)
                .with_rank(|cx, session| session.ask(cx, StreamUse::default())?.rank),
            offers: Map::new(secret, limits.enables_max),
            pending: Pending::new(secret, limits.pending_max),
            firsts: Firsts::default(),
            cookies: Cookies::default(),
            fast: FastOpens::new(secret, limits.fast_open_max),
            origins: Origins::new(secret),
            unproved: Allowance::new(REPEATED_RATE, REPEATED_BURST),
            drop_sources: DropSources::new(limits.sources_max),
            settings: RefCell::new(Rc::new(settings)),
            next: RefCell::default(),
            secrets: Secrets::of(cx),
            holds: Holds::new(secret, limits.sessions_max),
            watched: RefCell::default(),
            unfit: Allowance::new(UNFIT_RATE, UNFIT_RATE),
            pressed: Cell::default(),
        }
    }

    /// Has sessions to come differ in this. False if the value is out of bounds.
    pub(crate) fn set(&self, setting: StreamSetting) -> bool {
        if let StreamSetting::FastOpenMax(most) = setting {
            self.fast.pending_max.set(most);
            return true;
        }
        Rc::make_mut(&mut self.settings.borrow_mut()).set(setting)
    }

    /// Has the next open of the user that is charged for it differ in this. False if the value is
    /// out of bounds.
    pub(crate) fn set_next(&self, cx: &Kernel, setting: StreamSetting) -> bool {
        let mut settings = self.take_next(cx);
        let is_taken = Rc::make_mut(&mut settings).set(setting);
        let mut next = self.next.borrow_mut();
        next.push_back((cx.payer(), settings));
        if next.len() > NEXT_MAX
            && let Some(idle) = next.iter().position(|(of, _)| of.is_some())
        {
            next.remove(idle);
        }
        is_taken
    }

    /// Settings of the session that is opened now.
    pub(crate) fn take_next(&self, cx: &Kernel) -> Rc<Settings> {
        let mut next = self.next.borrow_mut();
        let own = next.iter().position(|(of, _)| *of == cx.payer());
        let own = own.and_then(|at| next.remove(at)).map(|(_, settings)| settings);
        own.unwrap_or_else(|| Rc::clone(&self.settings.borrow()))
    }

    /// Returns the settings of a session whose peer finds so much room.
    pub(crate) fn settings_within(&self, room: &StreamRoom) -> Rc<Settings> {
        let mut settings = Rc::clone(&self.settings.borrow());
        let (segment, buffer) = (room.segment_max.max(SEGMENT_MIN), room.receive_buffer);
        if segment < settings.segment_max {
            Rc::make_mut(&mut settings).segment_max = segment;
        }
        if buffer < settings.receive_buffer_max {
            let setting = StreamSetting::ReceiveBuffer(buffer.max(BUFFER_MIN));
            Rc::make_mut(&mut settings).set(setting);
        }
        settings
    }

    /// Sets the timer that looks through the notes and the ends that are held, unless it is set.
    pub(crate) fn keep_ticking(&self, cx: &Kernel, protocol: &ProtocolRef) {
        let ticking = &self.pending.is_ticking;
        if !ticking.get() {
            ticking.set(cx.schedule_protocol(protocol, TICK, 0).is_ok());
        }
    }

    /// Releases everything; for the protocol's `stop`.
    pub(crate) fn clear(&self) {
        self.sessions.clear();
        self.offers.clear();
        self.pending.clear();
        self.firsts.clear();
        self.fast.clear();
        self.holds.clear();
        self.watched.take();
        self.origins.clear();
        self.drop_sources.clear();
    }
}
