//! Conversations go to their programs, and come back for their end.

use std::time::Duration;
use xk_core::object::Popped;
use xk_core::{Kernel, Message, Participants, Protocol, ProtocolRef, SessionRef, Upper};
use xk_kit::net::stream::StreamError;
use xk_registry::NOT_MOVED;
use xk_sim::{LinkConfig, LinkKind};
use xk_testkit::seeds;

use crate::app::{PROMPT_OCTETS_MAX, Plan, Stream};
use crate::world::{Hosts, Member, requests};

/// The cost of a seed.
pub(crate) const COST: u64 = 30;

/// A link that loses, doubles and delays, and leaves octets alone: ARP has no checksum, and a
/// program stays with the station that the registry has told.
pub(crate) fn lossy(seed: u64) -> LinkConfig {
    let chance = xk_core::random::Random::new(seed).fork(3);
    let share = |most: u64| chance.below(most) as f64 / 1000.0;
    LinkConfig {
        delay: Duration::from_micros(50 + chance.below(2000)),
        jitter: Duration::from_micros(chance.below(500)),
        rate_bit_s: Some(100_000_000),
        loss: share(40),
        duplicate: share(20),
        ..LinkConfig::new("lan", LinkKind::Hub)
    }
}

/// A link on which a peer answers sooner than the registry answers a question, or about then.
fn prompt(seed: u64) -> LinkConfig {
    let chance = xk_core::random::Random::new(seed).fork(4);
    LinkConfig {
        delay: Duration::from_nanos(chance.below(2_000)),
        ..LinkConfig::new("lan", LinkKind::Hub)
    }
}

fn carries(seed: u64, link: LinkConfig, octets: usize, (is_active, ends_first): (bool, bool)) {
    let what = format!(
        "XK_SEED={seed} {octets} octets, {:?}, active={is_active} ends first={ends_first}",
        link.delay
    );
    let plan = |ends_first| Plan { octets, ends_first };
    let mut hosts = Hosts::new(seed, link, plan(!ends_first));
    let program = hosts.program(plan(ends_first));
    let (peer_id, _, peer) = hosts.peer.clone();
    if is_active {
        hosts.world.spawn(peer_id, {
            let peer = peer.clone();
            move |cx| peer.listen(cx, "port7")
        });
        let app = program.app.clone();
        hosts.world.spawn(program.id, move |cx| app.open(cx, "*, port7@10.0.0.2"));
    } else {
        let app = program.app.clone();
        hosts.world.spawn(program.id, move |cx| app.listen(cx, "port7"));
        hosts.run(Duration::from_millis(1));
        let peer = peer.clone();
        hosts.world.spawn(peer_id, move |cx| peer.open(cx, "*, port7@10.0.0.1"));
    }
    for _ in 0..600 {
        hosts.run(Duration::from_millis(100));
        if program.app.is_done(octets) && peer.is_done(octets) {
            break;
        }
    }
    for (side, app) in [("program", &program.app), ("peer", &peer)] {
        app.see(|streams| {
            let fine = streams.iter().all(|s| !s.is_wrong && s.failed.is_none());
            assert!(fine && app.is_done(octets), "{what}: {side}: {streams:#?}; {}", hosts.told());
        });
    }
    assert_eq!(program.library.head().drops().of(&NOT_MOVED), 0, "{what}");
}

#[test]
fn every_octet_comes_once_and_in_order() {
    seeds::of(COST).run(|seed| {
        for is_active in [true, false] {
            for ends_first in [true, false] {
                let who = (is_active, ends_first);
                carries(seed, lossy(seed), 300_000, who);
                // Sent at once, whether or not there is room: while the conversation moves, too.
                carries(seed, lossy(seed), PROMPT_OCTETS_MAX, who);
            }
        }
    });
}

/// Sends back what comes, and holds nothing, as `echo` does.
struct Unheld;

impl Protocol for Unheld {
    fn demux(&self, cx: &Kernel, _: &ProtocolRef, lower: &SessionRef, message: Message) -> Popped {
        lower.push(cx, message).expect("what has just come is room for what goes");
        Ok(())
    }
}

/// A conversation that a peer has begun goes on for as long as it lasts, also without a holder.
#[test]
fn what_nobody_holds_goes_on_in_its_program() {
    seeds::of(COST).run(|seed| {
        for link in [lossy(seed), prompt(seed)] {
            let plan = Plan { octets: PROMPT_OCTETS_MAX, ends_first: true };
            let what = format!("XK_SEED={seed} {:?}", link.delay);
            let mut hosts = Hosts::new(seed, link, plan);
            let program = hosts.program(plan);
            let library = program.library.clone();
            hosts.world.spawn(program.id, move |cx| {
                let echo = cx.add_protocol("app", "echo", Unheld);
                let local: Participants = "port7".parse().expect("participants");
                library.open_enable(cx, Upper::new(&echo), local).map(drop).expect("it is free");
            });
            hosts.run(Duration::from_millis(1));
            let (peer_id, _, peer) = hosts.peer.clone();
            let opener = peer.clone();
            hosts.world.spawn(peer_id, move |cx| opener.open(cx, "*, port7@10.0.0.1"));
            for _ in 0..600 {
                hosts.run(Duration::from_millis(100));
                if peer.is_done(PROMPT_OCTETS_MAX) {
                    break;
                }
            }
            peer.see(|streams| {
                let fine = streams.iter().all(|s| !s.is_wrong && s.failed.is_none());
                let told = || format!("{what}: {streams:#?}; {}", hosts.told());
                assert!(fine && peer.is_done(PROMPT_OCTETS_MAX), "{}", told());
            });
        }
    });
}

/// An opener hears that its connection stands however soon the peer answers.
#[test]
fn a_peer_may_answer_at_once() {
    seeds::of(COST).run(|seed| {
        for who in [(true, true), (true, false), (false, true), (false, false)] {
            carries(seed, prompt(seed), 5000, who);
            // The end of all comes while the conversation moves.
            carries(seed, prompt(seed), PROMPT_OCTETS_MAX, who);
        }
    });
}

/// Whenever a registry begins to take longer for its answers than questions wait for them, a
/// conversation that moves then is at the registry or at its program, and goes on.
#[test]
fn a_registry_may_take_long_to_hand_a_conversation_over() {
    seeds::of(COST).run(|seed| {
        for moment in 0..30 {
            let what = format!("XK_SEED={seed} {moment}");
            let plan = Plan { octets: 500, ends_first: false };
            let mut hosts = Hosts::new(seed, prompt(seed), plan);
            let program = hosts.program(plan);
            let (peer_id, _, peer) = hosts.peer.clone();
            let app = program.app.clone();
            hosts.world.spawn(program.id, move |cx| app.listen(cx, "port7"));
            hosts.run(Duration::from_millis(1));
            let opens = peer.clone();
            hosts.world.spawn(peer_id, move |cx| opens.open(cx, "*, port7@10.0.0.1"));
            while hosts.connections(program.id, "library") == 0 {
                hosts.run(Duration::from_nanos(500));
            }
            hosts.run(Duration::from_micros(2 * moment));
            hosts.stall_registry(Duration::from_secs(7));
            hosts.run(Duration::from_secs(30));
            for app in [&program.app, &peer] {
                app.see(|all| {
                    let fine = all.iter().all(|s| s.received == 500 && s.failed.is_none());
                    assert!(fine, "{what}: {all:?}: {}", hosts.told());
                });
            }
            let breaks = peer.clone();
            hosts.world.spawn(peer_id, move |cx| breaks.reset(cx));
            hosts.run(Duration::from_secs(20));
            let left = hosts.connections(program.id, "library");
            assert_eq!((left, hosts.device.module.rights()), (0, 0), "{what}: {}", hosts.told());
            drop((program, peer));
            hosts.finish(&what);
        }
    });
}

/// However soon a peer breaks off, nothing of the connection is left.
#[test]
fn a_peer_may_break_off_at_any_moment() {
    seeds::of(COST).run(|seed| {
        let plan = Plan { octets: 5000, ends_first: false };
        for turn in 0..20 {
            let what = format!("XK_SEED={seed} {turn}");
            let mut hosts = Hosts::new(seed + turn * 1000, prompt(seed), plan);
            let program = hosts.program(plan);
            let (peer_id, _, peer) = hosts.peer.clone();
            let app = program.app.clone();
            hosts.world.spawn(program.id, move |cx| app.listen(cx, "port7"));
            hosts.run(Duration::from_millis(1));
            let opens = peer.clone();
            hosts.world.spawn(peer_id, move |cx| opens.open(cx, "*, port7@10.0.0.1"));
            hosts.run(Duration::from_micros(turn * 20));
            hosts.world.spawn(peer_id, move |cx| peer.reset(cx));
            hosts.run(Duration::from_secs(20));
            let left = hosts.connections(program.id, "library");
            assert_eq!((left, hosts.device.module.rights()), (0, 0), "{what}: {}", hosts.told());
            drop(program);
            hosts.finish(&what);
        }
    });
}

/// Programs hear what the network says of conversations that have moved: that a packet is too big
/// for the path, and that a router has failed and another station stands for it.
#[test]
fn programs_hear_of_the_path_and_of_other_stations() {
    seeds::of(COST).run(|seed| {
        for is_active in [true, false] {
            let what = format!("XK_SEED={seed} active={is_active}");
            let plan = Plan { octets: 5_000_000, ends_first: false };
            let mut link = LinkConfig { loss: 0.0, duplicate: 0.0, ..lossy(seed) };
            link.rate_bit_s = Some(10_000_000);
            let mut hosts = Hosts::new(seed, link, plan);
            let router = hosts.router("router");
            let (far_id, far) = hosts.far(Plan { ends_first: true, ..plan });
            let program = hosts.program(plan);
            let (app, peer) = (program.app.clone(), far.clone());
            if is_active {
                hosts.world.spawn(far_id, move |cx| peer.listen(cx, "port7"));
                hosts.world.spawn(program.id, move |cx| app.open(cx, "*, port7@10.0.1.2"));
            } else {
                hosts.world.spawn(program.id, move |cx| app.listen(cx, "port7"));
                hosts.run(Duration::from_millis(1));
                hosts.world.spawn(far_id, move |cx| peer.open(cx, "*, port7@10.0.0.1"));
            }
            hosts.run(Duration::from_millis(1500));
            let told = hosts.told();
            assert!(told.contains("10.0.0.1 > 10.0.1.2, protocol 6, path 1000"), "{what}: {told}");
            assert!(hosts.world.crash(router), "{what}");
            hosts.run(Duration::from_millis(200));
            hosts.router("other router");
            let before = far.see(|all| all.first().map_or(0, |s| s.received));
            hosts.run(Duration::from_secs(10));
            let after = far.see(|all| all.first().map_or(0, |s| s.received));
            let streams = |app: &crate::app::App| app.see(|all| format!("{all:?}"));
            let both = format!("{} {}", streams(&program.app), streams(&far));
            assert!(after > before, "{what}: {before} octets, {both}: {}", hosts.told());
            for _ in 0..600 {
                hosts.run(Duration::from_millis(100));
                if program.app.is_done(plan.octets) && far.is_done(plan.octets) {
                    break;
                }
            }
            let is_done = program.app.is_done(plan.octets) && far.is_done(plan.octets);
            assert!(is_done, "{what}: {}", hosts.told());
            drop((program, far));
            hosts.finish(&what);
        }
    });
}

/// Connections that stand, and of which nothing is said.
const SILENT: Plan = Plan { octets: 0, ends_first: false };

/// A program whose connections stand, and a peer that listens.
fn standing(link: LinkConfig) -> (Hosts, Member) {
    let mut hosts = Hosts::new(1, link, SILENT);
    let program = hosts.program(SILENT);
    let (peer_id, _, peer) = hosts.peer.clone();
    hosts.world.spawn(peer_id, move |cx| peer.listen(cx, "port7"));
    hosts.run(Duration::from_millis(1));
    (hosts, program)
}

/// Opens so many connections to a port of the peer's at once.
fn open(hosts: &mut Hosts, program: &Member, count: usize, port: u16) {
    let app = program.app.clone();
    hosts.world.spawn(program.id, move |cx| {
        (0..count).for_each(|_| app.open(cx, &format!("*, port{port}@10.0.0.2")));
    });
}

/// Exchanges with the registry when a connection is set up.
#[test]
fn a_set_up_takes_three_exchanges() {
    let (mut hosts, program) = standing(prompt(1));
    for count in 1..5 {
        hosts.trusted.sent.take();
        program.sent.take();
        open(&mut hosts, &program, 1, 7);
        hosts.run(Duration::from_millis(2));
        assert_eq!(hosts.connections(program.id, "tcp"), count, "{}", hosts.told());
        let asked = [requests(&program.sent), requests(&hosts.trusted.sent)];
        // With the first it is learned what does not change.
        if count > 1 {
            assert_eq!(asked, [vec!["open", "take-over"], vec!["grant-right"]]);
        }
    }
}

/// Peers that answer after a registry has ceased to wait.
#[test]
fn a_peer_may_answer_late() {
    for ms in [400, 499, 500, 501, 700, 1600] {
        let link = LinkConfig { delay: Duration::from_millis(ms), ..prompt(1) };
        carries(ms, link, 5000, (true, true));
    }
}

#[test]
fn more_may_be_opened_at_once_than_are_waited_for() {
    let link = LinkConfig { delay: Duration::from_millis(1), ..prompt(1) };
    let (mut hosts, program) = standing(link);
    open(&mut hosts, &program, 40, 7);
    hosts.run(Duration::from_secs(3));
    assert_eq!(hosts.connections(program.id, "tcp"), 40, "{}", hosts.told());
    assert_eq!(program.library.head().drops().of(&NOT_MOVED), 0);
}

#[test]
fn one_that_is_refused_goes_nowhere() {
    let (mut hosts, program) = standing(prompt(1));
    open(&mut hosts, &program, 3, 8);
    hosts.run(Duration::from_secs(3));
    program.app.see(|streams| {
        let refused = |one: &Stream| one.failed == Some(StreamError::Refused);
        assert!(streams.len() == 3 && streams.iter().all(refused), "{streams:#?}");
    });
    assert_eq!(hosts.connections(program.id, "tcp"), 0, "{}", hosts.told());
    assert_eq!(program.library.head().drops().of(&NOT_MOVED), 0);
}
