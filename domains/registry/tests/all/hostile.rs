//! A program that asks what it likes of the registry, as fast as it can, beside one that is served.

use std::time::Duration;
use xk_core::random::Random;
use xk_core::{HostAddr, Participant, Participants, Protocol, SessionRef, Upper};
use xk_registry::{EndRight, FindStation, GiveBack, OpenChannel, PassOn, TakeOn, TakeOver};
use xk_testkit::seeds;

use crate::app::Plan;
use crate::moves::{COST, lossy};
use crate::world::{Hosts, Seat};

/// Turns of the stranger.
const TURNS: usize = 3000;

struct Stranger;

impl Protocol for Stranger {}

/// One turn: a question that means nothing, or one too many.
fn turn(seat: &Seat, place: &SessionRef, chance: &Random, own: &mut Vec<SessionRef>) {
    let (cx, this) = (&*seat.cx, seat.cx.find_protocol("stranger").expect("it is there"));
    let number = chance.below(40) as u32;
    match chance.below(11) {
        // Channels that nothing fetches.
        0 => drop(place.ask(cx, OpenChannel::default())),
        // Places without end.
        1 => {
            let opened = seat.registry.open(cx, Upper::new(&this), Participants::default());
            assert!(opened.is_err(), "one place is enough");
        }
        2 => {
            let ends = format!("*, port{}@10.0.0.2", 1000 + number);
            let ends: Participants = ends.parse().expect("participants");
            own.extend(seat.far.open(cx, Upper::new(&this), ends).ok());
        }
        3 => {
            let at = own.get(chance.below(own.len().max(1) as u64) as usize);
            at.inspect(|session| session.close(cx));
        }
        4 => {
            // One that has not begun, that has ended, or the place itself.
            let of = own.get(chance.below(1 + own.len() as u64) as usize).unwrap_or(place);
            drop(place.ask(cx, TakeOver { session: Some(of.clone()), ..TakeOver::default() }));
        }
        5 => {
            let mut octets = vec![0; chance.below(8000) as usize];
            chance.fill(&mut octets);
            let part = cx.pool().copy_from(0, &octets).ok();
            let at = chance.below(2) as u32 * chance.below(9000) as u32;
            drop(place.ask(cx, GiveBack { right: number, at, part, taken: false }));
        }
        6 => {
            let state_octets = chance.below(2) as u32 * chance.below(9000) as u32;
            let asked = EndRight { right: number, state_octets, done: false };
            let _ = place.ask(cx, asked);
        }
        // Conversations that it may not have to give, and states that none has given.
        7 => drop(place.ask(cx, PassOn { right: number, ticket: None })),
        8 => {
            let mut ticket = [0; 16];
            chance.fill(&mut ticket);
            let part = cx.pool().copy_from(0, &ticket).ok();
            let taken = place.ask(cx, TakeOn { ticket, at: 0, total: 16, part, taken: false });
            assert!(taken.is_none_or(|taken| !taken.taken), "no such ticket");
        }
        // Where it has no session, or one of another host's.
        9 => {
            let of = own.get(chance.below(1 + own.len() as u64) as usize).unwrap_or(place);
            let host = HostAddr::from([10, 0, 0, number as u8]);
            drop(place.ask(cx, FindStation { session: Some(of.clone()), host, station: None }));
        }
        _ => {
            let port: Participant = format!("port{}", 2000 + number).parse().expect("a port");
            let _ = seat.far.open_enable(cx, Upper::new(&this), Participants::local(port));
        }
    }
    if own.len() > 200 {
        own.drain(..100).for_each(|session| session.close(cx));
    }
}

fn attacks(seed: u64) {
    let what = format!("XK_SEED={seed}");
    let plan = Plan { octets: 300_000, ends_first: false };
    let mut hosts = Hosts::new(seed, lossy(seed), Plan { ends_first: true, ..plan });
    let program = hosts.program(plan);
    let (id, _, peer) = hosts.peer.clone();
    let seat = hosts.seat();
    seat.cx.add_protocol("stranger", "stranger", Stranger);
    let (stranger, chance) = (seat.id, Random::new(seed).fork(17));
    hosts.world.spawn(stranger, move |cx| {
        let this = cx.find_protocol("stranger").expect("it is there");
        let opened = seat.registry.open(cx, Upper::new(&this), Participants::default());
        let (place, mut own) = (opened.expect("a place"), Vec::new());
        for _ in 0..TURNS {
            turn(&seat, &place, &chance, &mut own);
        }
    });
    let app = program.app.clone();
    hosts.world.spawn(program.id, move |cx| app.listen(cx, "port7"));
    hosts.run(Duration::from_millis(1));
    let (client, mut most) = (peer.clone(), 0);
    hosts.world.spawn(id, move |cx| client.open(cx, "*, port7@10.0.0.1"));
    for _ in 0..1200 {
        hosts.run(Duration::from_millis(100));
        most = most.max(hosts.pool.stats().buffers_live);
        let (fetched, granted) = hosts.device.module.counts();
        assert!(fetched + granted <= 3, "{what}: {fetched} channels, {granted} granted");
    }
    let is_done = program.app.is_done(plan.octets) && peer.is_done(plan.octets);
    assert!(is_done, "{what}: the other is served: {}", hosts.told());
    assert!(most < 4096, "{what}: {most} buffers");
    assert!(hosts.world.crash(stranger), "{what}");
    hosts.run(Duration::from_secs(120));
    let says = hosts.registry_says();
    assert!(says.starts_with("programs 1,"), "{what}: {says}");
    assert_eq!(hosts.connections(hosts.trusted.id, "tcp"), 0, "{what}: {}", hosts.told());
    drop((program, peer));
    hosts.finish(&what);
}

#[test]
fn a_program_that_asks_what_it_likes_harms_none_but_itself() {
    seeds::of(COST).run(attacks);
}
