//! A channel whose frames the system checks, fetched at a door by a thread in the program's place.

use std::process::ExitCode;
use std::rc::Rc;
use std::time::{Duration, Instant};

use xk_core::{Kernel, Participants, ProtocolRef};
use xk_domains::{Arrival, Carrier};
use xk_kit::net::template::Headers;
use xk_netio::node::{Door, connect};
use xk_netio::xdp::{Steering, hand_over};
use xk_netio::{FORGED, GrantChannel, GrantRight, Rate, RevokeRight};
use xk_testkit::kernel::{Bottom, Lower, TestKernel};
use xk_testkit::netns::Net;
use xk_testkit::{needs_root, peer};
use xk_xdp::{Fate, Mode, Options, XdpSocket};

const OURS: [u8; 6] = [2, 0, 0, 0, 0, 1];
const FREELY: Rate = Rate { octets_per_second: 1 << 40, burst_octets: 1 << 40 };
/// More than any step needs, even on a busy machine.
const STEP_TIME_MAX: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    peer::main(&[("frames_go_past_the_module", frames_go_past_the_module)])
}

/// A frame of the right with this number.
fn frame(right: u8, behind: usize) -> Vec<u8> {
    let mut frame = vec![right; 16];
    frame.resize(16 + behind, 0);
    frame
}

/// A right to frames that begin with 16 octets of its number.
fn grant_right(cx: &Kernel, netio: &ProtocolRef, channel: u32, right: u8) -> u32 {
    let header = [right; 16];
    let headers = Headers::of_wire(1500).with((&header, &[]), (&header, &[]));
    let of = (netio.id(), Participants::default());
    let headers = headers.expect("a template");
    let granted = netio.ask(cx, GrantRight { channel, headers, of, number: None });
    granted.and_then(|granted| granted.number).expect("there is room")
}

/// Frames that the carrier brings, until it brings nothing for a while.
fn received(cx: &Kernel, carrier: &dyn Carrier) -> Vec<Vec<u8>> {
    let (mut found, mut last) = (Vec::new(), Instant::now());
    while last.elapsed() < Duration::from_millis(200) {
        match carrier.receive(cx) {
            Arrival::Frame(frame) => {
                found.push(frame.octets().collect());
                last = Instant::now();
            }
            _ => std::thread::sleep(Duration::from_millis(1)),
        }
    }
    found
}

fn frames_go_past_the_module() {
    needs_root!("ip");
    let net = Net::new("system channel").unwrap();
    let (left, right) = (net.space().unwrap(), net.space().unwrap());
    net.veth(&left, "v0", &right, "v1").unwrap();
    let far = right.enter(|| XdpSocket::open("v1", &Options::default())).unwrap();
    let mut far = far.unwrap_or_else(|error| panic!("{error}"));
    let begun = left.enter(|| Steering::attach("v0", Mode::Auto)).unwrap();
    let steering = Rc::new(begun.unwrap_or_else(|error| panic!("{error}")));

    let cx = TestKernel::new(7);
    let tap = Bottom::add(&cx, "tap", Lower::wire(OURS));
    let (netio, module) = xk_netio::add(&cx, "netio", tap.protocol().clone());
    module.steer(Rc::<Steering>::clone(&steering));
    let path = std::env::temp_dir().join(format!("xk-netio-peer-{}", std::process::id()));
    let by = Rc::clone(&steering);
    let hand = Box::new(move |ring: &_, wants_notes, (number, rate)| {
        hand_over(ring, by.open(number, rate).ok().as_ref(), wants_notes)
    });
    let door = Door::open_with(&cx, "door", &path, Rc::clone(&module), hand).expect("it opens");
    cx.start().expect("it starts");

    let granted = netio.ask(&cx, GrantChannel::new(FREELY)).expect("the module knows it");
    let (ticket, number) = (granted.ticket.expect("there is room"), granted.number);
    // One right is granted before the channel is fetched, one after.
    grant_right(&cx, &netio, number, 4);
    let program = std::thread::spawn(move || connect(&path, &ticket));
    let since = Instant::now();
    while !program.is_finished() {
        assert!(since.elapsed() < STEP_TIME_MAX);
        std::thread::sleep(Duration::from_millis(1));
        cx.advance(Duration::from_millis(1));
        door.wire().expect("it is one").poll(&cx, &door, 64);
    }
    let carrier = program.join().expect("it ends").expect("it fetches its channel");
    let other = grant_right(&cx, &netio, number, 6);

    let mut arrived = |carrier: &dyn Carrier, frames: &[Vec<u8>]| {
        for frame in frames {
            carrier.send(&cx, &[], &cx.message(frame)).expect("there is room");
        }
        carrier.flush();
        let (mut found, mut last) = (Vec::new(), Instant::now());
        while last.elapsed() < Duration::from_millis(200) {
            let seen = far.receive(64, |frame| {
                found.push(frame.to_vec());
                Fate::Done
            });
            if seen > 0 {
                last = Instant::now();
            }
        }
        found
    };
    let sent = [frame(4, 50), frame(5, 50), frame(6, 1400), frame(7, 3)];
    assert_eq!(arrived(&*carrier, &sent), [frame(4, 50), frame(6, 1400)]);
    assert_eq!(module.carry_all(&cx, 64), 0, "none of them has come to the module");
    for right in [6, 5, 4] {
        assert!(far.transmit(&frame(right, 80)));
    }
    assert!(far.flush().unwrap());
    assert_eq!(received(&cx, &*carrier), [frame(6, 80), frame(4, 80)]);

    // What the wire brings all the same comes by the rings: it was under way before the right.
    let _ = tap.inject(&cx, None, cx.message(&frame(4, 9)));
    netio.wire().expect("it is one").flush(&cx, &netio);
    assert_eq!(received(&cx, &*carrier), [frame(4, 9)]);

    let revoked = netio.ask(&cx, RevokeRight { number: other, was_there: false });
    assert!(revoked.is_some_and(|revoked| revoked.was_there));
    assert!(far.transmit(&frame(6, 80)) && far.flush().unwrap());
    assert!(received(&cx, &*carrier).is_empty());
    assert_eq!(netio.head().drops().of(&FORGED), 0, "the system counts them");
    let counts = steering.counts(number).unwrap().expect("a channel");
    assert_eq!((counts.admitted, counts.forged), (2, 2));

    // A program that is gone has no channel.
    drop(carrier);
    let since = Instant::now();
    while module.counts().0 > 0 {
        assert!(since.elapsed() < STEP_TIME_MAX);
        cx.advance(Duration::from_millis(20));
        module.carry_all(&cx, 64);
    }
    assert_eq!(steering.counts(number).unwrap(), None);
    cx.stop();
}
