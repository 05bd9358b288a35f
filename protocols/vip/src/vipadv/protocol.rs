//! The protocol object: passes everything through, says that we run virtual protocols, and hears
//! which hosts do.

use super::table::{Table, VipHost};
use alloc::vec::Vec;
use core::cell::Cell;
use core::time::Duration;
use xk_core::control::Tables;
use xk_core::graph::{Build, BuildError, word};
use xk_core::object::{Enable, OpenError};
use xk_core::reason::Class;
use xk_core::{
    Answer, Ask, HostAddr, Kernel, Participants, Protocol, ProtocolRef, Reason, SessionRef, Time,
    Upper, question,
};
use xk_kit::net::neighbour::{
    ArpExchange, ArpReply, HostAt, HostChanged, RunsVirtual, SendArpReply, SubscribeType,
    WatchHosts, Watchers,
};

/// Timer: it is time to tell all.
const TOKEN_SAY: u64 = 1;
/// Timer: the host heard longest ago is to be forgotten.
const TOKEN_AGE: u64 = 2;
/// Time after which the broadcast is tried again while no host is ours yet.
const RETRY: Duration = Duration::from_secs(1);
/// A host that was spoken to gave way to another one in a full table.
pub(super) static EVICTED: Reason = Reason::new("host evicted", Class::Exhausted);

xk_core::settings! {
    /// Parameters of the graph.
    pub(super) struct Settings {
        interval: Duration = duration(Duration::from_secs(60),
            "time between two broadcasts, a second at least"),
        lifetime: Duration = duration(Duration::from_secs(180),
            "how long a host is remembered that says nothing more, a second at least"),
        protocol_type: u16 = int(0x0801..=0xffff, 0x3900, "the protocol type of its packets"),
        entries_max: usize = int(1..=65_536, 1024, "how many hosts it remembers"),
    }
    [
        word("assume", &["table", "all", "none"], "table",
            "which hosts are taken to run virtual protocols: those of the table that it keeps, all \
             or none"),
    ]
}

/// The hosts that run virtual protocols (at most `max`, by host), for `xk dump`.
#[derive(Clone, Debug, Default)]
pub struct VipTable {
    /// In: how many the asker wants at most.
    pub max: usize,
    /// Out: the hosts.
    pub hosts: Vec<VipHost>,
    /// Out: how many there are in all.
    pub total: usize,
}

question!(VipTable { max, hosts, total }, "vip-table", Ask);

/// One instance, for one link.
struct VipAdv {
    lower: ProtocolRef,
    settings: Settings,
    /// Whether all hosts are taken to run virtual protocols, or none; otherwise the table says.
    assumed: Option<bool>,
    table: Table,
    watchers: Watchers,
    /// Whether the timer for the next host to be forgotten is set.
    ages: Cell<bool>,
}

/// Builds it from its place in a graph.
pub(super) fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let settings = Settings::read(build)?;
    for (name, time) in [("interval", settings.interval), ("lifetime", settings.lifetime)] {
        if !(RETRY..=Duration::from_secs(86_400)).contains(&time) {
            return Err(BuildError::param(name, "a time from 1s to 1 day"));
        }
    }
    build.add(VipAdv {
        lower: build.lower(0)?,
        assumed: match build.params.text("assume") {
            Some("all") => Some(true),
            Some("none") => Some(false),
            _ => None,
        },
        table: Table::new(build.cx.secret(), settings.entries_max, settings.lifetime),
        settings,
        watchers: Watchers::default(),
        ages: Cell::new(false),
    })
}

impl VipAdv {
    /// Says that we run virtual protocols, to one or to all. Answers in how many packets.
    fn say(&self, cx: &Kernel, to: Option<(HostAddr, [u8; 6], HostAddr)>) -> usize {
        let say = SendArpReply { protocol_type: self.settings.protocol_type, to, sent: 0 };
        self.lower.ask(cx, say).map_or(0, |say| say.sent)
    }

    /// Tells all, and sees to the next time.
    fn say_to_all(&self, cx: &Kernel, this: &ProtocolRef) {
        let interval = self.settings.interval;
        let mut next = RETRY.min(interval);
        if self.say(cx, None) > 0 {
            // A tenth more or less, so that stations that started together do not speak together
            // without end.
            let (tenth, span) = (interval / 10, (interval / 5).as_micros() as u64 + 1);
            next = interval - tenth + Duration::from_micros(cx.random().below(span));
        }
        // Without a timer no host hears of us unless by an exchange.
        let _ = cx.schedule_protocol(this, next, TOKEN_SAY);
    }

    fn hear(&self, cx: &Kernel, this: &ProtocolRef, heard: &ArpReply) -> Answer {
        if heard.protocol_type != self.settings.protocol_type {
            return Answer::Unknown;
        }
        let (news, gone) =
            self.table.hear(VipHost { host: heard.host, address: heard.address, heard: cx.now() });
        self.age_later(cx, this);
        if news {
            self.watchers.tell(cx, heard.host);
        }
        if let Some((gone, was_needed)) = gone {
            if was_needed {
                this.head().drops().count(&EVICTED);
            }
            self.watchers.tell(cx, gone);
        }
        Answer::Answered
    }

    /// Sets the timer for the host that is to be forgotten next.
    fn age_later(&self, cx: &Kernel, this: &ProtocolRef) {
        if !self.ages.get()
            && let Some(delay) = self.table.next(cx.now())
        {
            // Without a timer it is forgotten when the next one is heard and a timer can be had.
            self.ages.set(cx.schedule_protocol(this, delay, TOKEN_AGE).is_ok());
        }
    }

    fn age(&self, cx: &Kernel, this: &ProtocolRef) {
        self.ages.set(false);
        for host in self.table.expire(cx.now()) {
            self.watchers.tell(cx, host);
        }
        self.age_later(cx, this);
    }

    fn runs(&self, now: Time, asked: &RunsVirtual) -> bool {
        self.assumed.unwrap_or_else(|| {
            let known = self.table.need(asked.host);
            known.is_some_and(|known| {
                known.address == asked.address && now < known.heard.after(self.settings.lifetime)
            })
        })
    }
}

impl Protocol for VipAdv {
    fn start(&self, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        let (protocol_type, receiver) = (self.settings.protocol_type, this.clone());
        let taken = self.lower.ask(cx, SubscribeType { protocol_type, receiver });
        taken.ok_or(OpenError::NotSupported)?;
        // One that does not tell knows of no changes.
        let _ = self.lower.ask(cx, WatchHosts { watcher: this.clone() });
        // Our hosts are claimed by protocols that start later.
        let _ = cx.schedule_protocol(this, Duration::ZERO, TOKEN_SAY);
        Ok(())
    }

    fn open(
        &self,
        cx: &Kernel,
        _: &ProtocolRef,
        upper: Upper<'_>,
        participants: Participants,
    ) -> Result<SessionRef, OpenError> {
        self.lower.open(cx, upper, participants)
    }

    fn open_enable(
        &self,
        cx: &Kernel,
        _: &ProtocolRef,
        upper: Upper<'_>,
        participants: Participants,
    ) -> Result<Enable, OpenError> {
        self.lower.open_enable(cx, upper, participants)
    }

    fn open_disable(&self, cx: &Kernel, _: &ProtocolRef, enable: Enable) {
        self.lower.open_disable(cx, enable);
    }

    fn control(&self, cx: &Kernel, this: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        if let Some(question) = ask.get::<RunsVirtual>() {
            question.runs = self.runs(cx.now(), question);
        } else if let Some(heard) = ask.get::<ArpReply>() {
            return self.hear(cx, this, heard);
        } else if let Some(exchanged) = ask.get::<ArpExchange>() {
            let to = (exchanged.own, exchanged.address, exchanged.host);
            self.say(cx, Some(to));
        } else if let Some(changed) = ask.get::<HostChanged>() {
            self.watchers.tell(cx, changed.host);
        } else if let Some(question) = ask.get::<WatchHosts>() {
            return self.watchers.add(&question.watcher);
        } else if let Some(question) = ask.get::<HostAt>()
            && let Some(host) = self.table.find_by_address(question.address)
        {
            question.host = host;
        } else if let Some(question) = ask.get::<VipTable>() {
            let list = self.table.list();
            question.total = list.len();
            question.hosts = list.into_iter().take(question.max).collect();
        } else {
            return self.lower.control(cx, ask);
        }
        Answer::Answered
    }

    fn tables(&self, tables: &mut Tables<'_>) {
        tables.map("hosts", self.table.hosts.stats());
    }

    fn lower(&self) -> Option<&ProtocolRef> {
        Some(&self.lower)
    }

    fn timeout(&self, cx: &Kernel, this: &ProtocolRef, token: u64) {
        match token {
            TOKEN_SAY => self.say_to_all(cx, this),
            _ => self.age(cx, this),
        }
    }

    fn stop(&self, _: &Kernel, _: &ProtocolRef) {
        self.table.clear();
        self.watchers.clear();
    }
}
