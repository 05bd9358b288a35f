//! Conversations that programs leave behind: their ends in order, their deaths as resets.

use std::time::Duration;
use xk_core::random::Random;
use xk_kit::net::stream::StreamError;
use xk_sim::LinkConfig;
use xk_testkit::seeds;

use crate::app::Plan;
use crate::moves::{COST, lossy};
use crate::world::{Hosts, Member};

/// More than goes before the program dies.
const PLAN: Plan = Plan { octets: 20_000_000, ends_first: false };

/// A stream between a program and the peer, that either has begun.
fn between(hosts: &mut Hosts, program: &Member, is_active: bool) {
    let (id, _, peer) = hosts.peer.clone();
    let app = program.app.clone();
    if is_active {
        hosts.world.spawn(id, move |cx| peer.listen(cx, "port7"));
        hosts.world.spawn(program.id, move |cx| app.open(cx, "*, port7@10.0.0.2"));
    } else {
        hosts.world.spawn(program.id, move |cx| app.listen(cx, "port7"));
        hosts.run(Duration::from_millis(1));
        hosts.world.spawn(id, move |cx| peer.open(cx, "*, port7@10.0.0.1"));
    }
}

fn dies(seed: u64, is_active: bool) {
    let what = format!("XK_SEED={seed} active={is_active}");
    let mut hosts = Hosts::new(seed, lossy(seed), PLAN);
    let program = hosts.program(PLAN);
    between(&mut hosts, &program, is_active);
    // Every other one while the connection is being set up.
    let most = if seed.is_multiple_of(2) { 10_000 } else { 1_000_000 };
    let moment = Random::new(seed).fork(11).below(most);
    hosts.run(Duration::from_micros(moment));
    assert!(hosts.world.crash(program.id), "{what}");
    drop(program);

    hosts.run(Duration::from_secs(120));
    let (_, _, peer) = hosts.peer.clone();
    peer.see(|streams| {
        for stream in streams {
            assert!(!stream.is_wrong, "{what}: {stream:#?}");
            // One that had not begun finds that nothing listens.
            let expected = match stream.sent + stream.received {
                0 => [StreamError::Reset, StreamError::Refused],
                _ => [StreamError::Reset; 2],
            };
            let failed = stream.failed.is_some_and(|why| expected.contains(&why));
            assert!(failed, "{what}: at {moment}: {stream:#?}; {}", hosts.told());
        }
    });
    assert_eq!(hosts.connections(hosts.trusted.id, "tcp"), 0, "{what}: at the registry");
    let module = &hosts.device.module;
    assert_eq!((module.counts(), module.rights()), ((0, 0), 0), "{what}: no channel is left");

    // Its port is another program's now, and its peer is served.
    let plan = Plan { octets: 100_000, ends_first: false };
    let next = hosts.program(plan);
    let app = next.app.clone();
    hosts.world.spawn(next.id, move |cx| app.listen(cx, "port7"));
    hosts.run(Duration::from_millis(1));
    let before = peer.see(<[_]>::len);
    let (id, ..) = hosts.peer;
    hosts.world.spawn(id, move |cx| peer.open(cx, "*, port7@10.0.0.1"));
    hosts.run(Duration::from_secs(30));
    next.app.see(|streams| {
        let served = streams.len() == 1 && streams.iter().all(|s| s.received >= 100_000);
        assert!(served, "{what}: after {before} streams: {streams:#?}");
    });
    drop(next);
    hosts.finish(&what);
}

#[test]
fn the_peers_of_a_program_that_dies_are_reset() {
    seeds::of(COST).run(|seed| {
        dies(seed, true);
        dies(seed, false);
    });
}

/// Octets of a stream that outlives the registry.
const LONG: Plan = Plan { octets: 3_000_000, ends_first: false };

/// The registry dies while a stream is carried on, and comes back.
fn registry_dies(seed: u64, is_active: bool) {
    let what = format!("XK_SEED={seed} active={is_active}");
    let link = LinkConfig { rate_bit_s: Some(10_000_000), ..lossy(seed) };
    let mut hosts = Hosts::new(seed, link, Plan { ends_first: true, ..LONG });
    let program = hosts.program(LONG);
    between(&mut hosts, &program, is_active);
    let (id, _, peer) = hosts.peer.clone();
    let received = |app: &crate::app::App| app.see(|all| all.first().map_or(0, |s| s.received));
    while received(&peer) < 10_000 {
        hosts.run(Duration::from_millis(1));
    }
    let chance = Random::new(seed).fork(13);
    hosts.run(Duration::from_micros(chance.below(500_000)));
    hosts.kill_registry();
    let before = received(&peer);
    // What was lost is sent again after a timeout, which may have doubled.
    for _ in 0..10 {
        hosts.run(Duration::from_millis(300));
        if received(&peer) > before {
            break;
        }
    }
    assert!(received(&peer) > before, "{what}: it goes on without a registry");
    hosts.start_registry();
    hosts.run(Duration::from_millis(100));
    let says = hosts.registry_says();
    assert!(says.contains("rights-of-before 1"), "{what}: {says}");

    if chance.below(2) == 0 {
        // Then its program dies: the new registry tells the peer.
        assert!(hosts.world.crash(program.id), "{what}");
        drop(program);
        hosts.run(Duration::from_secs(60));
        let failed = peer.see(|all| all.iter().all(|s| s.failed == Some(StreamError::Reset)));
        assert!(failed, "{what}: {} {}", peer.see(|all| format!("{all:?}")), hosts.told());
    } else {
        for _ in 0..600 {
            hosts.run(Duration::from_millis(100));
            if program.app.is_done(LONG.octets) && peer.is_done(LONG.octets) {
                break;
            }
        }
        let is_done = program.app.is_done(LONG.octets) && peer.is_done(LONG.octets);
        assert!(is_done, "{what}: {}", hosts.told());
        assert!(hosts.world.crash(program.id), "{what}");
        drop(program);
        hosts.run(Duration::from_secs(60));
    }
    let says = hosts.registry_says();
    assert!(says.contains("rights-of-before 0"), "{what}: {says}");
    assert_eq!(hosts.connections(hosts.trusted.id, "tcp"), 0, "{what}: at the registry");
    let module = &hosts.device.module;
    assert_eq!((module.counts(), module.rights()), ((0, 0), 0), "{what}: no channel is left");

    // What comes to it now is served as ever.
    let plan = Plan { octets: 100_000, ends_first: false };
    let next = hosts.program(plan);
    let app = next.app.clone();
    hosts.world.spawn(next.id, move |cx| app.listen(cx, "port8"));
    hosts.run(Duration::from_millis(1));
    hosts.world.spawn(id, move |cx| peer.open(cx, "*, port8@10.0.0.1"));
    hosts.run(Duration::from_secs(30));
    let served = next.app.see(|all| all.iter().all(|s| s.received >= 100_000) && all.len() == 1);
    assert!(served, "{what}: {}", hosts.told());
    drop(next);
    hosts.finish(&what);
}

#[test]
fn conversations_outlive_the_registry_and_the_next_one_ends_them() {
    seeds::of(COST).run(|seed| {
        registry_dies(seed, true);
        registry_dies(seed, false);
    });
}

/// The module dies while a stream is carried on, and comes back below the registry.
fn module_dies(seed: u64, is_active: bool) {
    let what = format!("XK_SEED={seed} active={is_active}");
    let link = LinkConfig { rate_bit_s: Some(10_000_000), ..lossy(seed) };
    let mut hosts = Hosts::new(seed, link, PLAN);
    let program = hosts.program(PLAN);
    between(&mut hosts, &program, is_active);
    let (_, _, peer) = hosts.peer.clone();
    while peer.see(|all| all.first().map_or(0, |stream| stream.received)) < 10_000 {
        hosts.run(Duration::from_millis(1));
    }
    let chance = Random::new(seed).fork(17);
    hosts.run(Duration::from_micros(chance.below(500_000)));
    hosts.kill_module();
    hosts.run(Duration::from_micros(chance.below(500_000)));
    hosts.start_module();
    hosts.run(Duration::from_secs(120));
    let failed = peer.see(|all| all.iter().all(|s| s.failed == Some(StreamError::Reset)));
    assert!(failed, "{what}: {} {}", peer.see(|all| format!("{all:?}")), hosts.told());
    assert_eq!(hosts.connections(hosts.trusted.id, "tcp"), 0, "{what}: at the registry");
    assert_eq!(hosts.device.module.counts(), (0, 0), "{what}: it knows of no channel");

    // A program that attaches now has its channel at the next one.
    let plan = Plan { octets: 100_000, ends_first: false };
    let next = hosts.program(plan);
    assert_eq!(hosts.device.module.counts().0, 1, "{what}: it goes by the module");
    let before = hosts.registry_says();
    assert!(hosts.world.crash(program.id), "{what}");
    hosts.run(Duration::from_secs(1));
    let reset =
        |says: &str| says.split(", ").find(|line| line.starts_with("reset")).map(str::to_owned);
    let says = hosts.registry_says();
    assert_eq!(reset(&says), reset(&before), "{what}: what it had had is forgotten");
    drop((program, next, peer));
    hosts.finish(&what);
}

#[test]
fn a_registry_forgets_what_a_module_before_had_granted() {
    seeds::of(COST).run(|seed| {
        module_dies(seed, true);
        module_dies(seed, false);
    });
}

#[test]
fn a_program_does_not_wait_for_late_segments_but_the_registry_does() {
    seeds::of(COST).run(|seed| {
        let what = format!("XK_SEED={seed}");
        let plan = |ends_first| Plan { octets: 10_000, ends_first };
        // A segment that comes late has a peer that is done reset what waits (RFC 1337, section 3).
        let link = LinkConfig { loss: 0.0, duplicate: 0.0, ..lossy(seed) };
        let mut hosts = Hosts::new(seed, link, plan(false));
        let program = hosts.program(plan(true));
        between(&mut hosts, &program, true);
        let (_, _, peer) = hosts.peer.clone();
        for _ in 0..6000 {
            hosts.run(Duration::from_millis(10));
            // While it goes on it is the program's.
            let went = program.app.see(|all| all.first().map_or(0, |stream| stream.received));
            if (1..10_000).contains(&went) {
                assert_eq!(hosts.connections(hosts.trusted.id, "tcp"), 0, "{what}");
            }
            if program.app.is_done(10_000) && peer.is_done(10_000) {
                break;
            }
        }
        let is_done = program.app.is_done(10_000) && peer.is_done(10_000);
        assert!(is_done, "{what}: {}", hosts.told());
        hosts.run(Duration::from_secs(5));
        assert_eq!(hosts.connections(program.id, "tcp"), 0, "{what}: the program's own");
        let told = hosts.told();
        assert!(told.contains("taken-back 1"), "{what}: {told}");
        hosts.run(Duration::from_secs(60));
        assert_eq!(hosts.connections(hosts.trusted.id, "tcp"), 0, "{what}: the registry's");
        drop((program, peer));
        hosts.finish(&what);
    });
}
