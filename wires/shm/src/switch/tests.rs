//! Three parties at a switch, and what each of them must not be able to do.

use super::*;
use crate::meet::Meeting;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

const ALL: Address = [0xff; 6];
const ANN: Address = [2, 0, 0, 0, 0, 1];
const BOB: Address = [2, 0, 0, 0, 0, 2];
const CID: Address = [2, 0, 0, 0, 0, 3];

struct Scene {
    switch: Switch,
    path: PathBuf,
    /// Time that was skipped.
    skipped: Duration,
}

impl Scene {
    fn new(ports: usize) -> Self {
        static LAST: AtomicU32 = AtomicU32::new(0);
        let number = LAST.fetch_add(1, Ordering::Relaxed);
        let name = format!("xk-shm-switch-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        Self {
            switch: Switch::new(&path, ports, &Options::default()).unwrap(),
            path,
            skipped: Duration::ZERO,
        }
    }

    fn turn(&mut self) -> usize {
        // Each turn is late enough for a look at comings and goings.
        self.skipped += LOOK_EVERY;
        let now = Instant::now() + self.skipped;
        let mut frames = 0;
        for _ in 0..PORTS_MAX {
            match self.switch.turn(now) {
                0 => break,
                more => frames += more,
            }
        }
        frames
    }

    fn join(&mut self) -> Link {
        let mut meeting = Meeting::new(&self.path, &Options::default()).unwrap();
        for _ in 0..1000 {
            if let Some(link) = meeting.step(Instant::now()) {
                return link;
            }
            self.turn();
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("no port: {:?}", meeting.take_error());
    }

    fn port(&self, number: usize) -> PortCounters {
        self.switch.ports().find(|port| port.0 == number).unwrap().2
    }
}

fn frame(to: Address, from: Address, word: &[u8]) -> Vec<u8> {
    [&to[..], &from, &[0x88, 0xb5], word].concat()
}

fn heard(link: &mut Link) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    let mut room = [0; 1514];
    while let Some(octets) = link.receive(&mut room).unwrap() {
        frames.push(room[..octets].to_vec());
    }
    link.flush();
    frames
}

#[test]
fn frames_go_to_all_until_an_address_is_known() {
    let mut scene = Scene::new(4);
    let (mut ann, mut bob, mut cid) = (scene.join(), scene.join(), scene.join());
    let hello = frame(BOB, ANN, b"anybody?");
    ann.send(&hello).unwrap();
    assert_eq!(scene.turn(), 1);
    assert_eq!(heard(&mut ann), [[0; 0]; 0]);
    let (at_bob, at_cid) = (heard(&mut bob), heard(&mut cid));
    assert_eq!(at_bob, at_cid);
    assert_eq!(at_bob, [hello]);
    let answer = frame(ANN, BOB, &[7; 1500]);
    bob.send(&answer).unwrap();
    scene.turn();
    assert_eq!(heard(&mut ann), [answer]);
    assert_eq!(heard(&mut cid), [[0; 0]; 0], "known by now");
    let all = frame(ALL, CID, b"");
    cid.send(&all).unwrap();
    scene.turn();
    assert_eq!((heard(&mut ann), heard(&mut bob)), (vec![all.clone()], vec![all]));
    assert_eq!(scene.switch.counters().flooded, 2);
    assert_eq!(scene.port(0), PortCounters { received: 1, sent: 2, ..PortCounters::default() });
}

#[test]
fn nobody_takes_anothers_address() {
    let mut scene = Scene::new(4);
    let (mut ann, mut bob, mut cid) = (scene.join(), scene.join(), scene.join());
    ann.send(&frame(ALL, ANN, b"")).unwrap();
    scene.turn();
    for link in [&mut bob, &mut cid] {
        heard(link);
    }
    cid.send(&frame(BOB, ANN, b"I am Ann")).unwrap();
    bob.send(&frame(ANN, BOB, b"for Ann")).unwrap();
    scene.turn();
    assert_eq!(heard(&mut ann), [frame(ANN, BOB, b"for Ann")]);
    assert_eq!((heard(&mut bob), heard(&mut cid)), (vec![], vec![]));
    assert_eq!(scene.port(2).foreign, 1);
    // Once Ann is gone it is free.
    drop(ann);
    scene.turn();
    scene.turn();
    cid.send(&frame(BOB, ANN, b"I am Ann now")).unwrap();
    scene.turn();
    assert_eq!(heard(&mut bob).len(), 1);
    assert_eq!(scene.switch.counters().gone, 1);
    // And once she is silent for long.
    scene.skipped += AGEING;
    let mut dan = scene.join();
    dan.send(&frame(BOB, ANN, b"me too")).unwrap();
    scene.turn();
    assert_eq!(heard(&mut bob).len(), 1);
}

#[test]
fn one_party_cannot_make_it_forget_the_others() {
    let mut scene = Scene::new(4);
    let (mut ann, mut bob, mut cid) = (scene.join(), scene.join(), scene.join());
    ann.send(&frame(ALL, ANN, b"")).unwrap();
    scene.turn();
    heard(&mut cid);
    for number in 0..5000_u32 {
        let [a, b, c, d] = number.to_be_bytes();
        cid.send(&frame(CID, [6, 0, a, b, c, d], b"")).unwrap();
        scene.turn();
        heard(&mut ann);
        heard(&mut bob);
        cid.flush();
    }
    assert_eq!(scene.switch.table.len(), 1 + ADDRESSES_A_PORT);
    bob.send(&frame(ANN, BOB, b"still there")).unwrap();
    scene.turn();
    assert_eq!(heard(&mut cid), [[0; 0]; 0]);
    assert_eq!(heard(&mut ann).len(), 1);
}

#[test]
fn a_party_that_does_not_listen_loses_its_own_frames_only() {
    let mut scene = Scene::new(4);
    let (mut ann, _deaf, mut cid) = (scene.join(), scene.join(), scene.join());
    for _ in 0..600 {
        ann.send(&frame(ALL, ANN, b"")).unwrap();
        scene.turn();
        assert_eq!(heard(&mut cid).len(), 1);
        ann.flush();
    }
    assert_eq!((scene.port(1).sent, scene.port(1).full), (512, 88));
    assert_eq!(scene.port(2).sent, 600);
}

#[test]
fn what_is_no_frame_is_counted() {
    let mut scene = Scene::new(2);
    let (mut ann, mut bob) = (scene.join(), scene.join());
    for frame in [&b""[..], &[0; 13], &frame(BOB, [3, 0, 0, 0, 0, 1], b"")] {
        ann.send(frame).unwrap();
    }
    scene.turn();
    assert_eq!(heard(&mut bob), [[0; 0]; 0]);
    assert_eq!(scene.port(0).malformed, 3);
}

#[test]
fn parties_come_and_go_within_the_number_of_ports() {
    let mut scene = Scene::new(2);
    let (ann, bob) = (scene.join(), scene.join());
    let mut third = Meeting::new(&scene.path, &Options::default()).unwrap();
    for _ in 0..3 {
        assert!(third.step(Instant::now()).is_none());
        scene.turn();
        std::thread::sleep(Duration::from_millis(3));
    }
    assert!(scene.switch.counters().refused > 0);
    drop(third);
    // One breaks the rules, one goes; both places are free again.
    let mut bob = bob;
    bob.end().poke(4096 + 512 * 128, 1 << 32 | 60_000);
    drop(ann);
    scene.turn();
    scene.turn();
    let counters = scene.switch.counters();
    assert_eq!((counters.came, counters.gone, counters.broken), (2, 1, 1));
    assert_eq!(scene.switch.ports().count(), 0);
    let _both = (scene.join(), scene.join());
    assert_eq!(scene.switch.ports().count(), 2);
    let again = Switch::new(&scene.path, 2, &Options::default()).err();
    assert!(matches!(again, Some(ShmError::Taken { .. })), "{again:?}");
    let path = scene.path.clone();
    drop(scene);
    assert!(!path.exists(), "the socket goes with it");
}

#[test]
fn it_sleeps_and_is_woken() {
    let path = std::env::temp_dir().join(format!("xk-shm-asleep-{}", std::process::id()));
    let (made, ready) = std::sync::mpsc::channel();
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let inside = path.clone();
    let thread = std::thread::spawn(move || {
        let mut switch = Switch::new(&inside, 2, &Options::default()).unwrap();
        made.send(()).unwrap();
        switch.run(|_| stopped.try_recv().is_ok());
        switch.counters()
    });
    ready.recv().unwrap();
    let patience = Some(Duration::from_secs(20));
    let mut ann = Link::meet(&path, &Options::default(), patience).unwrap();
    let mut bob = Link::meet(&path, &Options::default(), patience).unwrap();
    for round in 0..50_u8 {
        let sent = frame(ALL, ANN, &[round]);
        ann.send(&sent).unwrap();
        ann.flush();
        let mut room = [0; 1514];
        let begun = Instant::now();
        let octets = loop {
            if let Some(octets) = bob.receive(&mut room).unwrap() {
                break octets;
            }
            assert!(begun.elapsed() < Duration::from_secs(20));
            bob.wait(patience).unwrap();
        };
        assert_eq!(room[..octets], sent);
        bob.flush();
        if round % 10 == 0 {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    stop.send(()).unwrap();
    ann.send(&frame(ALL, ANN, b"wake up")).unwrap();
    ann.flush();
    assert_eq!(thread.join().unwrap().came, 2);
}
