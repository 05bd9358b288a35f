//! The state of one interface, as an object without kernel (RFC 3376, sections 5 and 7.2; RFC 2236,
//! section 6).

use crate::wire::{
    ALL_ROUTERS, ALL_SYSTEMS, Kind, Packet, Query, REPORTS, Reports, general_query, leave, report,
};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::time::Duration;
use xk_core::HostAddr;
use xk_core::random::Random;
use xk_kit::net::addr::Ipv4;
use xk_kit::net::groups::Filter;

xk_core::settings! {
    /// Parameters of the graph.
    #[derive(Clone, Debug)]
    pub struct Settings {
        version: u8 = int(1..=3, 3,
            "the version that it speaks where no router of an older one is heard"),
        robustness: u8 = int(1..=7, 2,
            "how often a change is told, unless a router says otherwise"),
        query_interval: Duration = duration(Duration::from_secs(125),
            "how often routers ask, unless they say otherwise"),
        unsolicited_interval: Duration = duration(Duration::from_secs(1),
            "the longest time before a change is told again; in versions 1 and 2 ten times as \
             long"),
        router_alert: bool = flag(true,
            "whether queries of versions 2 and 3 without the option Router Alert are dropped"),
        querier: bool = flag(false,
            "whether it asks for all groups, unless another host with a lower address does"),
        response_interval: Duration = duration(Duration::from_secs(10),
            "the time that hosts have for their answers if it asks"),
        groups_max: usize = int(1..=1_048_576, 16_384,
            "how many groups of an interface it tells of"),
    }
}

/// Sources that are asked for, or have changed, of a group at one time; if there are more, the
/// whole group is told of.
pub const SOURCES_MAX: usize = 64;
/// Least response time, and time between two answers about a group: a storm of queries is answered
/// ten times a second.
const RESPONSE_MIN: Duration = Duration::from_millis(100);
/// Least time between two answers about all groups.
const ANSWERS_APART: Duration = Duration::from_secs(1);
/// Packets that go at once, and the time until the next.
const BURST: usize = 64;
const BURSTS_APART: Duration = Duration::from_millis(10);
/// Ratio of the unsolicited report intervals of versions 2 and 3 (RFC 2236, section 8.10; RFC
/// 3376, section 8.11).
const OLD_TIMES: u32 = 10;

/// A message to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Out {
    /// The group that it goes to.
    pub to: Ipv4,
    /// The octets.
    pub octets: Vec<u8>,
}

/// A group that is joined, or of whose end routers are still to be told.
#[derive(Debug, Default)]
struct Group {
    /// The sources that are wanted; none once it has been left.
    filter: Filter,
    /// Number of times that the mode, or in older versions the group, is still to be told.
    mode_left: u8,
    /// The sources that have changed, and how often each is still to be told.
    changed: BTreeMap<Ipv4, u8>,
    /// Time at which the change is told next.
    change_at: Option<Duration>,
    /// Time at which a query is answered, and the sources that it asks for; none for all.
    answer_at: Option<Duration>,
    asked: BTreeSet<Ipv4>,
    /// Earliest time of the next answer about it alone.
    answer_from: Duration,
    /// True if this host was the last to report the group, in older versions.
    is_reporter: bool,
    /// Time by which it stands in the queue.
    queued: Option<Duration>,
}

impl Group {
    fn is_left(&self) -> bool {
        self.filter == Filter::NONE
    }

    fn admits(&self, source: Ipv4) -> bool {
        self.filter.admits(source.into())
    }

    fn sources(&self) -> Vec<Ipv4> {
        self.filter.sources.iter().copied().filter_map(HostAddr::to_v4).collect()
    }

    /// Begins to tell of a change (section 5.1).
    fn begin(&mut self, old: &Filter, robustness: u8, now: Duration) {
        if old.excludes != self.filter.excludes {
            // The record of the mode has all sources.
            self.mode_left = robustness;
            self.changed.clear();
        } else {
            let (one, other) = (&old.sources, &self.filter.sources);
            let only = |of: &[HostAddr], not: &[HostAddr]| {
                let only = of.iter().filter(|source| not.binary_search(source).is_err());
                only.filter_map(|source| source.to_v4()).collect::<Vec<_>>()
            };
            for source in only(one, other).into_iter().chain(only(other, one)) {
                self.changed.insert(source, robustness);
            }
            if self.changed.len() > SOURCES_MAX {
                self.mode_left = robustness;
                self.changed.clear();
            }
        }
        if self.has_news() {
            self.change_at = Some(now);
        }
    }

    fn has_news(&self) -> bool {
        self.mode_left > 0 || !self.changed.is_empty()
    }

    /// Writes what has changed.
    fn put_change(&mut self, group: Ipv4, reports: &mut Reports) {
        if self.mode_left > 0 {
            let kind = if self.filter.excludes { Kind::ToExclude } else { Kind::ToInclude };
            reports.add(kind, group, &self.sources());
            self.mode_left -= 1;
        } else {
            let (allow, block): (Vec<_>, Vec<_>) =
                self.changed.keys().copied().partition(|source| self.admits(*source));
            for (kind, sources) in [(Kind::Allow, allow), (Kind::Block, block)] {
                if !sources.is_empty() {
                    reports.add(kind, group, &sources);
                }
            }
        }
        self.changed.retain(|_, left| {
            *left -= 1;
            *left > 0
        });
    }

    /// Writes the state that a query asks for (section 5.2).
    fn put_state(&self, group: Ipv4, reports: &mut Reports) {
        if self.asked.is_empty() {
            let kind = if self.filter.excludes { Kind::IsExclude } else { Kind::IsInclude };
            return reports.add(kind, group, &self.sources());
        }
        let wanted: Vec<_> = self.asked.iter().copied().filter(|at| self.admits(*at)).collect();
        if !wanted.is_empty() {
            reports.add(Kind::IsInclude, group, &wanted);
        }
    }
}

/// A time after now, at most `most` later.
fn within(now: Duration, most: Duration, random: &Random) -> Duration {
    let most_ns = u64::try_from(most.as_nanos()).unwrap_or(u64::MAX).max(1);
    now + Duration::from_nanos(1 + random.below(most_ns))
}

/// One interface. Times count from any beginning.
#[derive(Debug)]
pub struct Link {
    settings: Settings,
    version: u8,
    robustness: u8,
    query_interval: Duration,
    /// Times until which routers of versions 1 and 2 count as present.
    old: [Option<Duration>; 2],
    groups: BTreeMap<Ipv4, Group>,
    /// The groups by their next time.
    queue: BTreeSet<(Duration, Ipv4)>,
    /// Answer about all groups: its time, and in older versions the time over which the groups'
    /// reports are spread.
    general: Option<(Duration, Duration)>,
    /// Earliest time of the next answer about all groups.
    general_from: Duration,
    /// Time before which nothing is sent.
    hold: Duration,
    /// Time of our next query, if we are to ask, and how many there were, up to the robustness.
    ask_at: Option<Duration>,
    begun: u8,
}

impl Link {
    /// An interface on which no group is joined.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        let (version, robustness) = (settings.version, settings.robustness);
        let query_interval = settings.query_interval;
        Self {
            ask_at: settings.querier.then_some(Duration::ZERO),
            begun: 0,
            settings,
            version,
            robustness,
            query_interval,
            old: [None; 2],
            groups: BTreeMap::new(),
            queue: BTreeSet::new(),
            general: None,
            general_from: Duration::ZERO,
            hold: Duration::ZERO,
        }
    }

    /// Version that is spoken now.
    #[must_use]
    pub fn version(&self) -> u8 {
        self.version
    }

    /// Number of groups that are joined, or whose end is still to be told.
    #[must_use]
    pub fn groups(&self) -> usize {
        self.groups.len()
    }

    /// Follows the routers that are present (section 7.2.1).
    fn follow(&mut self, now: Duration) {
        for until in &mut self.old {
            *until = until.filter(|until| *until > now);
        }
        let oldest = self.old.iter().position(Option::is_some).map_or(3, |at| at as u8 + 1);
        let version = oldest.min(self.settings.version);
        if version == self.version {
            return;
        }
        self.version = version;
        self.general = None;
        self.queue.clear();
        self.groups.retain(|_, group| {
            let filter = core::mem::take(&mut group.filter);
            *group = Group { filter, ..Group::default() };
            !group.is_left()
        });
    }

    /// Brings a group to its place in the queue, and forgets it if there is nothing to tell.
    fn queue(&mut self, at: Ipv4) {
        let Some(group) = self.groups.get_mut(&at) else { return };
        if let Some(queued) = group.queued.take() {
            self.queue.remove(&(queued, at));
        }
        match group.change_at.into_iter().chain(group.answer_at).min() {
            Some(next) => {
                group.queued = Some(next);
                self.queue.insert((next, at));
            }
            None if group.is_left() => drop(self.groups.remove(&at)),
            None => {}
        }
    }

    /// Notes the sources that are wanted of a group from now on; false if there are too many
    /// groups.
    #[must_use]
    pub fn changed(&mut self, at: Ipv4, filter: Filter, now: Duration) -> bool {
        self.follow(now);
        let is_new = !self.groups.contains_key(&at);
        if at == ALL_SYSTEMS || is_new && filter == Filter::NONE {
            return true;
        }
        if is_new && self.groups.len() >= self.settings.groups_max && !self.forget_left() {
            return false;
        }
        let group = self.groups.entry(at).or_default();
        let old = core::mem::replace(&mut group.filter, filter);
        if group.is_left() {
            group.answer_at = None;
            group.asked.clear();
        }
        if self.version == 3 {
            group.begin(&old, self.robustness, now);
        } else if (old == Filter::NONE) != group.is_left() {
            let is_told = self.version == 2 && group.is_reporter;
            group.mode_left = match group.is_left() {
                true => is_told.into(),
                false => self.robustness,
            };
            group.change_at = group.has_news().then_some(now);
        }
        self.queue(at);
        true
    }

    /// Forgets one group of whose end routers are still to be told: they find that by themselves.
    /// False if there is none.
    fn forget_left(&mut self) -> bool {
        let left = self.groups.iter_mut().find(|(_, group)| group.is_left());
        let Some((at, group)) = left else { return false };
        let at = *at;
        (group.change_at, group.answer_at) = (None, None);
        self.queue(at);
        true
    }

    /// Leaves all groups.
    pub fn leave_all(&mut self, now: Duration) {
        let all: Vec<_> = self.groups.keys().copied().collect();
        for group in all {
            // None is new.
            let _ = self.changed(group, Filter::NONE, now);
        }
    }

    /// Takes a query in.
    pub fn query(&mut self, query: &Query<'_>, now: Duration, random: &Random) {
        if query.robustness > 0 {
            self.robustness = query.robustness;
        }
        if !query.interval.is_zero() {
            self.query_interval = query.interval;
        }
        if query.group.is_none()
            && let Some(until) = self.old.get_mut(usize::from(query.version) - 1)
        {
            // Section 8.12.
            *until = Some(now + self.query_interval * self.robustness.into() + query.response);
        }
        self.follow(now);
        let response = query.response.max(RESPONSE_MIN);
        let selected = within(now, response, random);
        match query.group {
            Some(group) => self.asked(group, query, now + response, selected),
            None if self.groups.is_empty() => {}
            None => {
                let (at, spread) = match self.version {
                    3 => (selected, Duration::ZERO),
                    _ => (now, response),
                };
                let at = at.max(self.general_from);
                self.general = match self.general {
                    Some((pending, old)) if pending <= at => Some((pending, old.min(spread))),
                    _ => Some((at, spread)),
                };
            }
        }
    }

    /// Follows the election of the host that asks (section 6.6.2): the lowest address does. One
    /// without an address is a switch, and no router.
    pub fn hear_querier(&mut self, from: Ipv4, own: Ipv4, now: Duration) {
        if self.ask_at.is_some() && !from.is_unspecified() && from < own {
            let interval = self.query_interval * self.robustness.into();
            self.ask_at = Some(now + interval + self.settings.response_interval / 2);
        }
    }

    /// Asks for all groups, those of this host, too (sections 8.6 and 8.7).
    fn ask(&mut self, now: Duration, random: &Random) -> Out {
        let Settings { version, robustness, query_interval, response_interval, .. } = self.settings;
        let octets = general_query(version, response_interval, robustness, query_interval);
        self.begun = self.begun.saturating_add(1);
        let times = if self.begun < robustness { 4 } else { 1 };
        self.ask_at = Some(now + query_interval / times);
        if let Ok(Packet::Query(query)) = Packet::parse(&octets) {
            self.query(&query, now, random);
        }
        Out { to: ALL_SYSTEMS, octets }
    }

    /// Takes a query about one group in, to be answered until a time, at best at the selected one.
    fn asked(&mut self, at: Ipv4, query: &Query<'_>, until: Duration, selected: Duration) {
        let is_old = self.version < 3;
        // Rule 1 of section 5.2.
        let is_answered = self.general.is_some_and(|(pending, _)| pending <= selected) && !is_old;
        let group = self.groups.get_mut(&at).filter(|group| !group.is_left());
        let Some(group) = group.filter(|_| !is_answered) else { return };
        let selected = selected.max(group.answer_from);
        if is_old {
            if group.queued.is_some_and(|pending| pending <= until) {
                return;
            }
            group.answer_at = Some(selected);
        } else {
            // Rules 3 to 5.
            let is_whole = group.answer_at.is_some() && group.asked.is_empty();
            let pending = group.answer_at.unwrap_or(selected);
            group.answer_at = Some(pending.min(selected));
            let mut sources = query.sources().peekable();
            if is_whole || sources.peek().is_none() {
                group.asked.clear();
            } else {
                let mut left = SOURCES_MAX + 1 - group.asked.len();
                for source in sources {
                    left -= usize::from(group.asked.insert(source));
                    if left == 0 {
                        break;
                    }
                }
                if left == 0 {
                    group.asked.clear();
                }
            }
        }
        self.queue(at);
    }

    /// Takes another member's report of version 1 or 2 in; false if it changes nothing.
    pub fn report(&mut self, at: Ipv4, now: Duration) -> bool {
        self.follow(now);
        let is_old = self.version < 3;
        let group = self.groups.get_mut(&at);
        let waits = |group: &&mut Group| is_old && !group.is_left() && group.queued.is_some();
        let Some(group) = group.filter(waits) else { return false };
        (group.change_at, group.answer_at, group.mode_left) = (None, None, 0);
        group.is_reporter = false;
        self.queue(at);
        true
    }

    /// Time at which something is due next.
    #[must_use]
    pub fn next(&self) -> Option<Duration> {
        let queued = self.queue.first().map(|(at, _)| (*at).max(self.hold));
        let general = self.general.map(|(at, _)| at);
        let others = [self.ask_at, self.old[0], self.old[1]];
        queued.into_iter().chain(general).chain(others.into_iter().flatten()).min()
    }

    /// Does what is due, and returns what is to be sent, in messages of at most `room` octets.
    pub fn due(&mut self, now: Duration, room: usize, random: &Random) -> Vec<Out> {
        self.follow(now);
        if let Some((_, spread)) = self.general.filter(|(at, _)| *at <= now) {
            self.general = None;
            self.general_from = now + ANSWERS_APART;
            self.answer_all(now, spread, random);
        }
        let is_to_ask = self.ask_at.is_some_and(|at| at <= now);
        let mut out: Vec<_> = is_to_ask.then(|| self.ask(now, random)).into_iter().collect();
        if now < self.hold {
            return out;
        }
        let mut reports = Reports::new(room);
        // What is told at once is told again at once.
        let again = within(now, self.settings.unsolicited_interval, random);
        while let Some((_, at)) = self.queue.first().copied().filter(|(at, _)| *at <= now) {
            if out.len() + reports.full() >= BURST {
                self.hold = now + BURSTS_APART;
                break;
            }
            let Some(group) = self.groups.get_mut(&at) else { break };
            let is_due = |time: Option<Duration>| time.is_some_and(|time| time <= now);
            let (changes, answers) = (is_due(group.change_at), is_due(group.answer_at));
            let mut again = again;
            if self.version == 3 {
                if changes {
                    group.put_change(at, &mut reports);
                }
                if answers {
                    group.put_state(at, &mut reports);
                }
            } else {
                again = within(now, self.settings.unsolicited_interval * OLD_TIMES, random);
                group.mode_left = group.mode_left.saturating_sub(changes.into());
                group.is_reporter = !group.is_left();
                out.push(match group.is_left() {
                    true => Out { to: ALL_ROUTERS, octets: leave(at) },
                    false => Out { to: at, octets: report(self.version, at) },
                });
            }
            if changes {
                group.change_at = group.has_news().then_some(again);
            }
            if answers || self.version < 3 {
                group.answer_at = None;
                group.answer_from = now + RESPONSE_MIN;
                group.asked.clear();
            }
            self.queue(at);
        }
        let reports = reports.finish().into_iter();
        out.extend(reports.map(|octets| Out { to: REPORTS, octets }));
        out
    }

    /// Has all groups answered: now, or in older versions spread over a time.
    fn answer_all(&mut self, now: Duration, spread: Duration, random: &Random) {
        let joined = self.groups.iter_mut().filter(|(_, group)| !group.is_left());
        let mut all = Vec::new();
        for (at, group) in joined {
            if self.version == 3 {
                group.asked.clear();
                group.answer_at = Some(now);
            } else if group.queued.is_none_or(|pending| pending > now + spread) {
                group.answer_at = Some(within(now, spread, random));
            } else {
                continue;
            }
            all.push(*at);
        }
        all.into_iter().for_each(|at| self.queue(at));
    }
}

#[cfg(test)]
mod tests;
