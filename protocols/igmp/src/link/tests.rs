//! The machine by itself: cases of the RFCs, and random changes, queries and losses beside a router
//! that knows only what it is told.

use super::*;
use crate::wire::Packet;
use crate::wire::tests::records;
use std::string::String;
use std::{format, vec};

const GROUP: Ipv4 = Ipv4::new(239, 1, 2, 3);
const OTHER: Ipv4 = Ipv4::new(239, 4, 5, 6);
const S: fn(u64) -> Duration = Duration::from_secs;
const MS: fn(u64) -> Duration = Duration::from_millis;

fn source(last: u8) -> Ipv4 {
    Ipv4::new(192, 0, 2, last)
}

fn filter(excludes: bool, sources: &[u8]) -> Filter {
    Filter { excludes, sources: sources.iter().map(|last| source(*last).into()).collect() }
}

/// The octets of a query, by version.
fn query_octets(version: u8, response_ds: u8, group: Option<Ipv4>, sources: &[Ipv4]) -> Vec<u8> {
    let [a, b, c, d] = group.unwrap_or(Ipv4::UNSPECIFIED).octets();
    let mut octets = vec![0x11, response_ds, 0, 0, a, b, c, d];
    if version == 3 {
        octets.extend([2, 125, 0, sources.len() as u8]);
        sources.iter().for_each(|source| octets.extend(source.octets()));
    }
    let sum = xk_kit::net::checksum::checksum(&octets);
    octets[2..4].copy_from_slice(&sum.to_be_bytes());
    octets
}

/// A link, and the time.
struct Rig {
    link: Link,
    random: Random,
    now: Duration,
    room: usize,
}

impl Rig {
    fn with(settings: Settings, seed: u64) -> Self {
        Self { link: Link::new(settings), random: Random::new(seed), now: S(100), room: 1476 }
    }

    fn new() -> Self {
        Self::with(Settings::default(), 1)
    }

    fn set(&mut self, group: Ipv4, filter: Filter) {
        assert!(self.link.changed(group, filter, self.now));
    }

    fn ask(&mut self, version: u8, response_ds: u8, group: Option<Ipv4>, sources: &[Ipv4]) {
        let octets = query_octets(version, response_ds, group, sources);
        let Ok(Packet::Query(query)) = Packet::parse(&octets) else { panic!("{octets:?}") };
        assert_eq!(query.version, version);
        self.link.query(&query, self.now, &self.random);
    }

    /// Lets time pass, and returns what is sent, each with its time.
    fn run(&mut self, time: Duration) -> Vec<(Duration, Out)> {
        let until = self.now + time;
        let mut all = Vec::new();
        while let Some(next) = self.link.next().filter(|next| *next <= until) {
            self.now = self.now.max(next);
            let out = self.link.due(self.now, self.room, &self.random);
            all.extend(out.into_iter().map(|out| (self.now, out)));
        }
        self.now = until;
        all
    }

    /// As [`run`](Self::run), as lines.
    fn lines(&mut self, time: Duration) -> Vec<String> {
        self.run(time).into_iter().flat_map(|(_, out)| lines(&out)).collect()
    }
}

/// The records of a message, or the message.
fn lines(out: &Out) -> Vec<String> {
    match Packet::parse(&out.octets) {
        Ok(Packet::Records(_)) => {
            assert_eq!(out.to, REPORTS);
            records(&out.octets)
        }
        Ok(Packet::Report { version, group }) => {
            assert_eq!(out.to, group);
            vec![format!("v{version} {group}")]
        }
        Ok(Packet::Query(_)) => vec!["asks".into()],
        Ok(Packet::Leave(group)) => {
            assert_eq!(out.to, ALL_ROUTERS);
            vec![format!("leave {group}")]
        }
        other => panic!("{other:?}"),
    }
}

const NOTHING: [&str; 0] = [];

#[test]
fn changes_are_told_as_the_table_of_section_5_1_has_them() {
    let table: [(Filter, Filter, &[&str]); 9] = [
        (filter(false, &[]), filter(false, &[1]), &["ALLOW 239.1.2.3 [192.0.2.1]"]),
        (filter(false, &[]), filter(true, &[]), &["TO_EX 239.1.2.3 []"]),
        (filter(false, &[1, 2]), filter(false, &[]), &["BLOCK 239.1.2.3 [192.0.2.1, 192.0.2.2]"]),
        (filter(true, &[]), filter(false, &[]), &["TO_IN 239.1.2.3 []"]),
        (
            filter(false, &[1, 2]),
            filter(false, &[2, 3]),
            &["ALLOW 239.1.2.3 [192.0.2.3]", "BLOCK 239.1.2.3 [192.0.2.1]"],
        ),
        (
            filter(true, &[1, 2]),
            filter(true, &[2, 3]),
            &["ALLOW 239.1.2.3 [192.0.2.1]", "BLOCK 239.1.2.3 [192.0.2.3]"],
        ),
        (filter(false, &[1]), filter(true, &[2]), &["TO_EX 239.1.2.3 [192.0.2.2]"]),
        (filter(true, &[1]), filter(false, &[2]), &["TO_IN 239.1.2.3 [192.0.2.2]"]),
        (filter(true, &[1]), filter(true, &[]), &["ALLOW 239.1.2.3 [192.0.2.1]"]),
    ];
    for (old, new, records) in table {
        let mut rig = Rig::new();
        rig.set(GROUP, old.clone());
        rig.lines(S(5));
        rig.set(GROUP, new.clone());
        assert_eq!(rig.lines(MS(0)), records, "{old:?} to {new:?}: at once");
        assert_eq!(rig.lines(S(1)), records, "{old:?} to {new:?}: again within a second");
        assert_eq!(rig.lines(S(100)), NOTHING);
        assert_eq!(rig.link.groups(), usize::from(new != Filter::NONE));
    }
}

#[test]
fn all_systems_are_never_told_of_and_groups_are_bounded() {
    let settings = Settings { groups_max: 2, ..Settings::default() };
    let mut rig = Rig::with(settings, 1);
    rig.set(ALL_SYSTEMS, Filter::ALL);
    assert_eq!((rig.link.groups(), rig.lines(S(9))), (0, vec![]));
    rig.set(GROUP, Filter::ALL);
    rig.set(OTHER, Filter::ALL);
    assert!(!rig.link.changed(source(9), Filter::ALL, rig.now));
    assert!(rig.link.changed(source(9), Filter::NONE, rig.now));
    rig.set(GROUP, Filter::NONE);
    // One that has been left gives way, though routers have not heard of its end.
    assert!(rig.link.changed(source(9), Filter::ALL, rig.now));
    assert_eq!(rig.link.groups(), 2);
    assert!(!rig.link.changed(GROUP, Filter::ALL, rig.now));
}

#[test]
fn a_change_meanwhile_is_merged() {
    let mut rig = Rig::new();
    rig.set(GROUP, filter(false, &[1]));
    assert_eq!(rig.lines(MS(0)), ["ALLOW 239.1.2.3 [192.0.2.1]"]);
    rig.set(GROUP, filter(false, &[2]));
    let both = ["ALLOW 239.1.2.3 [192.0.2.2]", "BLOCK 239.1.2.3 [192.0.2.1]"];
    assert_eq!(rig.lines(MS(0)), both);
    assert_eq!(rig.lines(S(9)), both);
    rig.set(GROUP, filter(true, &[3]));
    assert_eq!(rig.lines(MS(0)), ["TO_EX 239.1.2.3 [192.0.2.3]"]);
    rig.set(GROUP, filter(true, &[3, 4]));
    // The mode is still to be told; then the source.
    assert_eq!(rig.lines(MS(0)), ["TO_EX 239.1.2.3 [192.0.2.3, 192.0.2.4]"]);
    assert_eq!(rig.lines(S(9)), ["BLOCK 239.1.2.3 [192.0.2.4]"]);
    // More sources than are remembered: the whole state.
    let many: Vec<u8> = (0..=SOURCES_MAX as u8 + 2).collect();
    rig.set(GROUP, filter(true, &many));
    assert!(rig.lines(MS(0))[0].starts_with("TO_EX 239.1.2.3 [192.0.2.0, 192.0.2.1"));
}

#[test]
fn changes_at_one_time_share_reports_then_and_later() {
    let mut rig = Rig::with(Settings { robustness: 3, ..Settings::default() }, 5);
    for n in 0..1000_u32 {
        rig.set(Ipv4::from_bits(0xe100_0000 + n), Filter::ALL);
    }
    let sent = rig.run(S(9));
    let times: BTreeSet<_> = sent.iter().map(|(time, _)| *time).collect();
    assert_eq!((sent.len(), times.len()), (3 * 6, 3));
    assert!(sent.iter().all(|(_, out)| out.octets.len() <= rig.room));
}

#[test]
fn queries_are_answered_within_their_time() {
    let mut rig = Rig::new();
    rig.set(GROUP, filter(true, &[1]));
    rig.set(OTHER, filter(false, &[2]));
    rig.run(S(5));
    let both = ["IS_EX 239.1.2.3 [192.0.2.1]", "IS_IN 239.4.5.6 [192.0.2.2]"];
    for _ in 0..50 {
        let asked = rig.now;
        rig.ask(3, 20, None, &[]);
        let sent = rig.run(S(2));
        assert_eq!(lines(&sent[0].1), both);
        assert_eq!(sent.len(), 1);
        assert!(sent[0].0 > asked);
    }
    rig.ask(3, 10, Some(OTHER), &[]);
    assert_eq!(rig.lines(S(1)), ["IS_IN 239.4.5.6 [192.0.2.2]"]);
    rig.ask(3, 10, Some(GROUP), &[source(1), source(3), source(4)]);
    assert_eq!(rig.lines(S(1)), ["IS_IN 239.1.2.3 [192.0.2.3, 192.0.2.4]"]);
    rig.ask(3, 10, Some(OTHER), &[source(1)]);
    rig.ask(3, 10, Some(Ipv4::new(239, 9, 9, 9)), &[]);
    assert_eq!(rig.lines(S(1)), NOTHING, "nothing is wanted of these");
    // Rule 5, and rule 4.
    rig.ask(3, 10, Some(OTHER), &[source(1)]);
    rig.ask(3, 10, Some(OTHER), &[source(2)]);
    assert_eq!(rig.lines(S(1)), ["IS_IN 239.4.5.6 [192.0.2.2]"]);
    rig.ask(3, 10, Some(GROUP), &[source(3)]);
    rig.ask(3, 10, Some(GROUP), &[]);
    rig.ask(3, 10, Some(GROUP), &[source(4)]);
    assert_eq!(rig.lines(S(1)), ["IS_EX 239.1.2.3 [192.0.2.1]"]);
    // More sources than are remembered: the whole group.
    let many: Vec<Ipv4> = (100..=164).map(source).collect();
    rig.ask(3, 10, Some(GROUP), &many);
    assert_eq!(rig.lines(S(1)), ["IS_EX 239.1.2.3 [192.0.2.1]"]);
    // Rule 1: an answer about all, sooner than any about one. What is left has no state.
    rig.ask(3, 1, None, &[]);
    rig.ask(3, 127, Some(GROUP), &[]);
    rig.set(OTHER, Filter::NONE);
    let told = rig.lines(S(20));
    assert_eq!(told.iter().filter(|line| line.starts_with("IS_")).count(), 1, "{told:?}");
}

#[test]
fn version_2_is_spoken_while_its_router_is_there() {
    let mut rig = Rig::new();
    rig.set(GROUP, filter(true, &[1]));
    assert_eq!(rig.lines(MS(0)).len(), 1);
    rig.ask(2, 100, None, &[]);
    assert_eq!(rig.link.version(), 2);
    // What was to be told again in version 3 is not.
    assert_eq!(rig.lines(S(10)), ["v2 239.1.2.3"]);
    rig.set(OTHER, filter(false, &[2]));
    assert_eq!(rig.lines(MS(0)), ["v2 239.4.5.6"]);
    assert_eq!(rig.lines(S(10)), ["v2 239.4.5.6"]);
    rig.set(OTHER, filter(false, &[2, 3]));
    assert_eq!(rig.lines(S(10)), NOTHING, "sources are not told");
    rig.set(OTHER, Filter::NONE);
    assert_eq!(rig.lines(S(10)), ["leave 239.4.5.6"]);
    // Another member's report makes ours needless, and the end of the group its matter.
    rig.ask(2, 10, Some(GROUP), &[]);
    assert!(rig.link.report(GROUP, rig.now) && !rig.link.report(OTHER, rig.now));
    assert_eq!(rig.lines(S(10)), NOTHING);
    assert!(!rig.link.report(GROUP, rig.now), "an idle member");
    rig.set(GROUP, Filter::NONE);
    assert_eq!(rig.lines(S(10)), NOTHING);
    assert_eq!(rig.link.groups(), 0);
    // 2 * 125 + 10 s after the last general query.
    rig.set(GROUP, Filter::ALL);
    rig.run(S(20));
    rig.ask(2, 100, None, &[]);
    rig.run(S(259));
    assert_eq!(rig.link.version(), 2);
    rig.run(S(1));
    assert_eq!(rig.link.version(), 3);
    rig.ask(3, 10, None, &[]);
    assert_eq!(rig.lines(S(1)), ["IS_EX 239.1.2.3 []"]);
}

#[test]
fn version_1_is_spoken_while_its_router_is_there() {
    let mut rig = Rig::new();
    rig.set(GROUP, Filter::ALL);
    rig.run(S(5));
    rig.ask(2, 100, None, &[]);
    rig.run(S(100));
    rig.ask(1, 0, None, &[]);
    assert_eq!(rig.lines(S(10)), ["v1 239.1.2.3"]);
    rig.set(GROUP, Filter::NONE);
    assert_eq!(rig.lines(S(10)), NOTHING, "no leaves");
    rig.set(GROUP, Filter::ALL);
    assert_eq!(rig.lines(S(10)), ["v1 239.1.2.3", "v1 239.1.2.3"]);
    // A newer router's query changes nothing; the one of version 2 is heard again meanwhile.
    rig.ask(3, 10, None, &[]);
    assert_eq!(rig.lines(S(1)), ["v1 239.1.2.3"]);
    rig.run(S(200));
    rig.ask(2, 10, None, &[]);
    assert_eq!(rig.lines(S(1)), ["v1 239.1.2.3"]);
    rig.run(S(28));
    assert_eq!(rig.link.version(), 2);
    rig.run(S(250));
    assert_eq!(rig.link.version(), 3);
}

#[test]
fn a_configured_version_is_the_newest() {
    for version in 1..=3 {
        let mut rig = Rig::with(Settings { version, ..Settings::default() }, 1);
        rig.set(GROUP, Filter::ALL);
        let first = rig.lines(MS(0));
        assert_eq!(first.len(), 1);
        assert_eq!(first[0].starts_with(&format!("v{version}")), version < 3, "{first:?}");
        rig.ask(3, 10, None, &[]);
        assert_eq!(rig.link.version(), version);
        rig.ask(1, 0, None, &[]);
        assert_eq!(rig.link.version(), 1);
    }
}

#[test]
fn a_storm_of_queries_is_answered_at_a_bounded_rate() {
    for version in [1, 2, 3] {
        let mut rig = Rig::new();
        for n in 0..10_000_u32 {
            rig.set(Ipv4::from_bits(0xe200_0000 + n), Filter::ALL);
        }
        rig.run(S(5));
        let (mut packets, mut most) = (0, 0);
        for _ in 0..10_000 {
            rig.ask(version, u8::from(version > 1), None, &[]);
            let group = Ipv4::from_bits(0xe200_0000);
            if version > 1 {
                rig.ask(version, 1, Some(group), &[]);
            }
            let sent = rig.run(MS(1));
            packets += sent.len();
            most = most.max(sent.len());
        }
        // Ten seconds. A report of version 3 has 182 groups, an older one one.
        let each = if version == 3 { 55 } else { 10_000 };
        assert!(packets <= 11 * each + 200, "version {version}: {packets}");
        assert!(most <= 300, "version {version}: {most} packets in a millisecond");
        rig.run(S(30));
        assert_eq!(rig.link.groups(), 10_000);
    }
}

#[test]
fn the_host_with_the_lowest_address_asks() {
    let settings = Settings { querier: true, query_interval: S(20), ..Settings::default() };
    let mut rig = Rig::with(settings, 1);
    let asks = |sent: Vec<(Duration, Out)>| {
        let asked = sent.iter().filter(|(_, out)| out.to == ALL_SYSTEMS);
        asked.map(|(time, _)| time.as_secs()).collect::<Vec<_>>()
    };
    rig.set(GROUP, Filter::ALL);
    let sent = rig.run(S(60));
    let told = sent.iter().filter(|(_, out)| out.to == REPORTS).flat_map(|(_, out)| lines(out));
    // The first two may get one answer.
    assert!((3..=4).contains(&told.filter(|line| line.starts_with("IS_")).count()));
    assert_eq!(asks(sent), [100, 105, 125, 145]);
    let [low, own, high] = [1, 2, 3].map(source);
    rig.link.hear_querier(high, own, rig.now);
    rig.link.hear_querier(Ipv4::UNSPECIFIED, own, rig.now);
    assert_eq!(asks(rig.run(S(20))), [165]);
    rig.link.hear_querier(low, own, rig.now);
    // 2 * 20 + 10 / 2 s later.
    assert_eq!(asks(rig.run(S(60))), [225]);
}

/// A router's view: it knows what records have told it, and takes what is not renewed for gone.
#[derive(Default)]
struct Router(BTreeMap<Ipv4, Filter>);

impl Router {
    fn hear(&mut self, line: &str) {
        let (kind, rest) = line.split_once(' ').unwrap();
        let (group, list) = rest.split_once(' ').unwrap();
        let list = list.trim_matches(['[', ']']).split(", ").filter(|text| !text.is_empty());
        let sources: Vec<HostAddr> =
            list.map(|text| HostAddr::from(text.parse::<Ipv4>().unwrap())).collect();
        let view = self.0.entry(group.parse().unwrap()).or_default();
        match (kind, view.excludes) {
            ("TO_IN", _) | ("IS_IN", false) => *view = Filter { excludes: false, sources },
            ("TO_EX" | "IS_EX", _) => *view = Filter { excludes: true, sources },
            ("ALLOW", false) | ("BLOCK", true) => {
                sources.into_iter().for_each(|source| _ = view.insert(source));
            }
            ("ALLOW" | "IS_IN", true) | ("BLOCK", false) => {
                sources.into_iter().for_each(|source| _ = view.remove(source));
            }
            other => panic!("{other:?}"),
        }
        self.0.retain(|_, view| *view != Filter::NONE);
    }
}

/// Whatever changes, whenever: a router that misses fewer than `robustness` reports of a group in
/// a row knows in the end what is wanted of it.
#[test]
fn routers_know_in_the_end_what_is_wanted_though_reports_are_lost() {
    for seed in 0..400_u64 {
        let dice = Random::new(seed ^ 0x1_0000);
        let robustness = 1 + dice.below(4) as u8;
        let mut rig = Rig::with(Settings { robustness, ..Settings::default() }, seed);
        rig.room = [20, 44, 200, 1476][dice.below(4) as usize];
        let (mut router, mut state) = (Router::default(), BTreeMap::new());
        let mut lost = BTreeMap::<String, u8>::new();
        let mut hear = |router: &mut Router, sent: Vec<(Duration, Out)>, dice: &Random| {
            // The records of one time are lost or heard together, as each group's.
            let mut rounds = BTreeMap::<(Duration, String), Vec<String>>::new();
            for (time, line) in
                sent.iter().flat_map(|(t, out)| lines(out).into_iter().map(|l| (*t, l)))
            {
                let group = line.split(' ').nth(1).unwrap().into();
                rounds.entry((time, group)).or_default().push(line);
            }
            for ((_, group), lines) in rounds {
                let count = lost.entry(group).or_default();
                if *count + 1 < robustness && dice.chance(0.4) {
                    *count += 1;
                } else {
                    *count = 0;
                    lines.iter().for_each(|line| router.hear(line));
                }
            }
        };
        for _ in 0..dice.below(60) {
            let group = Ipv4::new(239, 0, 0, dice.below(4) as u8);
            // No list is too long for the smallest report, of which the rest would not be told.
            let most = if rig.room < 200 { 1 } else { 6 };
            let mut wanted = Filter { excludes: dice.chance(0.5), sources: Vec::new() };
            for _ in 0..dice.below(most + 1) {
                let _ = wanted.insert(source(dice.below(8) as u8).into());
            }
            if dice.chance(0.2) {
                wanted = Filter::NONE;
            }
            if state.get(&group).unwrap_or(&Filter::NONE) != &wanted {
                rig.set(group, wanted.clone());
                state.insert(group, wanted);
            }
            let sent = rig.run(MS(dice.below(700) * dice.below(3)));
            hear(&mut router, sent, &dice);
        }
        let sent = rig.run(S(20));
        hear(&mut router, sent, &dice);
        state.retain(|_, filter| *filter != Filter::NONE);
        assert_eq!(router.0, state, "seed {seed}");
        assert_eq!(rig.link.groups(), state.len(), "seed {seed}");
        assert!(rig.link.queue.is_empty(), "seed {seed}");
        // A router that knows nothing learns all by asking.
        let mut router = Router::default();
        rig.ask(3, 10, None, &[]);
        rig.lines(S(1)).iter().for_each(|line| router.hear(line));
        assert_eq!(router.0, state, "seed {seed}");
    }
}

/// In every version each query about a group that stays is answered in time, by us or, in older
/// versions, by another member.
#[test]
fn every_query_is_answered_in_time() {
    for seed in 0..300_u64 {
        let dice = Random::new(seed ^ 0x2_0000);
        let version = 1 + dice.below(3) as u8;
        let mut rig = Rig::with(Settings { version, ..Settings::default() }, seed);
        let group = |dice: &Random| Ipv4::new(239, 0, 0, dice.below(4) as u8);
        let (mut joined, mut owed) = (BTreeSet::new(), Vec::<(Duration, Ipv4)>::new());
        for _ in 0..80 {
            let at = group(&dice);
            match dice.below(8) {
                0 | 1 => {
                    joined.insert(at);
                    rig.set(at, Filter::ALL);
                }
                2 => {
                    joined.remove(&at);
                    owed.retain(|(_, group)| *group != at);
                    rig.set(at, Filter::NONE);
                }
                3 if version < 3 => {
                    rig.link.report(at, rig.now);
                    owed.retain(|(_, group)| *group != at);
                }
                4 | 5 => {
                    let response_ds = dice.below(60) as u8;
                    let asked = if version == 1 { 0 } else { response_ds.max(1) };
                    rig.ask(version, asked, None, &[]);
                    let response = if version == 1 { S(10) } else { MS(100) * u32::from(asked) };
                    // Answers about all groups are a second apart, and then spread.
                    let until = rig.now + S(1) + response;
                    owed.extend(joined.iter().map(|group| (until, *group)));
                }
                _ if version > 1 => {
                    let response_ds = 1 + dice.below(60) as u8;
                    rig.ask(version, response_ds, Some(at), &[]);
                    let until = rig.now + MS(100) * u32::from(response_ds);
                    if joined.contains(&at) {
                        owed.push((until, at));
                    }
                }
                _ => {}
            }
            for (time, out) in rig.run(MS(dice.below(3000))) {
                for line in lines(&out) {
                    let told: Ipv4 = line.split(' ').nth(1).unwrap().parse().unwrap();
                    if line.starts_with("IS_") || line.starts_with('v') {
                        owed.retain(|(until, group)| *group != told || *until < time);
                    }
                }
            }
            let late = owed.iter().find(|(until, _)| *until <= rig.now);
            assert_eq!(late, None, "seed {seed}, version {version}");
        }
    }
}
