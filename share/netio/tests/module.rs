//! The module with a program behind a channel that sends what it likes, and a tap in place of the
//! wire.

use core::time::Duration;
use std::rc::Rc;
use xk_core::graph::{Build, Params};
use xk_core::{Entry, Part, Participants, ProtocolRef, SessionRef};
use xk_kit::net::template::{HeaderField, Headers, Template};
use xk_netio::{
    FORGED, GRANT_LASTS, GRANTS_MAX, GrantChannel, Module, REVOKED, Rate, RevokeChannel, Ticket,
    VIOLATIONS_MAX,
};
use xk_share::{Arrival, Carrier, Queue, SendError};
use xk_testkit::conformance::messages::pattern;
use xk_testkit::kernel::{Bottom, Family, Lower, TestKernel, Top, octets};

const OURS: [u8; 6] = [2, 0, 0, 0, 0, 1];
const PEER: [u8; 6] = [2, 0, 0, 0, 0, 2];
const FREELY: Rate = Rate { octets_per_second: 1 << 40, burst_octets: 1 << 40 };

/// A host whose wire is a tap, the module on it, a protocol on that, and a session.
struct Host {
    cx: TestKernel,
    tap: Bottom,
    netio: ProtocolRef,
    module: Rc<Module>,
    top: Top,
    session: SessionRef,
    peer: Option<Part>,
}

fn build(cx: &TestKernel, entry: &'static Entry, lower: &ProtocolRef) -> ProtocolRef {
    for number in entry.type_numbers() {
        let _ = cx.numbers_mut().add(number);
    }
    let (lowers, params) = ([lower.clone()], Params::default());
    let mut build = Build { cx, entry, name: entry.kind, lowers: &lowers, params: &params };
    (entry.build)(&mut build).expect("it is built")
}

impl Host {
    fn new(entry: &'static Entry, lower: Lower, ends: Participants, peer: Option<Part>) -> Self {
        let cx = TestKernel::new(6);
        let tap = Bottom::add(&cx, "tap", lower);
        let (netio, module) = xk_netio::add(&cx, "netio", tap.protocol().clone());
        let protocol = build(&cx, entry, &netio);
        let top = Top::add(&cx, "top");
        cx.numbers_mut().override_pair(top.id(), protocol.id(), 0x88b5);
        cx.start().expect("it starts");
        let session = top.open(&cx, &protocol, ends).expect("a session");
        Self { cx, tap, netio, module, top, session, peer }
    }

    fn ethernet() -> Self {
        let ends = Participants::pair(Part::Any, Part::Ether(PEER));
        Self::new(&xk_eth::ENTRY, Lower::wire(OURS), ends, None)
    }

    fn datagrams() -> Self {
        let [own, peer] = [1, 2].map(|n| Part::Host(Family::V4.host(n)));
        let lower = Lower::host(Family::V4.host(1), 17);
        let local = xk_core::Participant::of(own).with(Part::port(5000));
        let remote = xk_core::Participant::of(peer).with(Part::port(7));
        Self::new(&xk_udp::ENTRY, lower, Participants::pair(local, remote), Some(peer))
    }

    fn headers(&self) -> Headers {
        Headers::of(&self.cx, &self.session).expect("every layer tells")
    }

    /// A frame as the session sends it.
    fn frame(&self) -> Vec<u8> {
        let message = self.cx.message(&pattern(100, 1));
        self.session.push(&self.cx, message).expect("it goes");
        octets(&self.tap.take_sent().pop().expect("it is on the wire").message)
    }

    fn grant(&self, headers: Headers, rate: Rate) -> Option<(Ticket, u32)> {
        let question = GrantChannel { headers, rate, ticket: None, number: 0 };
        let granted = self.netio.ask(&self.cx, question).expect("the module knows it");
        granted.ticket.map(|ticket| (ticket, granted.number))
    }

    /// The program's end of a new channel, and its number.
    fn channel(&self, rate: Rate) -> (Queue, u32) {
        let (ticket, number) = self.grant(self.headers(), rate).expect("there is room");
        let (own, program) = Queue::pair(64);
        assert!(self.module.attach(&self.cx, &ticket, Box::new(own)), "the ticket fetches it");
        (program, number)
    }

    fn send(&self, program: &Queue, frame: &[u8]) -> Result<(), SendError> {
        program.send(&self.cx, frame, &self.cx.message(&[]))
    }

    /// What the tap saw once the module has looked at its channels.
    fn carried(&self) -> Vec<Vec<u8>> {
        while self.module.poll(&self.cx, 64) > 0 {}
        self.tap.take_sent().iter().map(|sent| octets(&sent.message)).collect()
    }

    fn drops(&self, why: &'static xk_core::Reason) -> u64 {
        self.netio.head().drops().of(why)
    }
}

/// Every bit turned that is alike, every length too long, and cut at each octet of the headers.
fn forged(template: &Template, frame: &[u8]) -> Vec<Vec<u8>> {
    let mask = template.mask();
    let bits = (0..8 * mask.len()).filter(|bit| mask[bit / 8] >> (bit % 8) & 1 == 1);
    let turned = bits.map(|bit| {
        let mut forged = frame.to_vec();
        forged[bit / 8] ^= 1 << (bit % 8);
        forged
    });
    let lengths = template.fields().iter();
    let long = lengths.filter(|(_, field)| matches!(field, HeaderField::Length { .. }));
    let long = long.map(|(at, _)| {
        let mut forged = frame.to_vec();
        forged[usize::from(*at)] = 0xff;
        forged
    });
    let cut = (0..mask.len()).map(|end| frame[..end].to_vec());
    let much = frame.iter().copied().cycle().take(template.octets_max() + 1).collect();
    turned.chain(long).chain(cut).chain([much]).collect()
}

#[test]
fn what_fits_goes_out_and_nothing_else() {
    for host in [Host::ethernet(), Host::datagrams()] {
        let (frame, template) = (host.frame(), host.headers().sent);
        let forged = forged(&template, &frame);
        let (mut program, mut number) = host.channel(FREELY);
        for (count, bad) in forged.iter().enumerate() {
            if (count + 1).is_multiple_of(VIOLATIONS_MAX as usize) {
                assert!(host.module.revoke(number));
                (program, number) = host.channel(FREELY);
            }
            for frame in [bad, &frame] {
                host.send(&program, frame).expect("the ring has room");
            }
            assert_eq!(host.carried(), [frame.as_slice()], "but not {bad:02x?}, of {template}");
        }
        assert_eq!(host.drops(&FORGED), forged.len() as u64, "what does not fit is counted");
        assert_eq!(host.drops(&REVOKED), 0);
    }
}

#[test]
fn one_that_goes_on_is_revoked_and_others_are_served() {
    let host = Host::datagrams();
    let frame = host.frame();
    let (bad, _) = host.channel(FREELY);
    let other = Headers::of_wire(1500).with((&[9; 2], &[]), (&[9; 2], &[]));
    let (ticket, _) = host.grant(other.expect("a template"), FREELY).expect("another rule");
    let (own, good) = Queue::pair(64);
    assert!(host.module.attach(&host.cx, &ticket, Box::new(own)));
    for count in 0..VIOLATIONS_MAX {
        assert_eq!(host.send(&bad, &[1, 2, 3]), Ok(()), "frame {count}");
        host.send(&good, &[9, 9, 9]).expect("there is room");
        assert_eq!(host.carried(), [[9, 9, 9]]);
    }
    assert_eq!(host.send(&bad, &frame), Err(SendError::Lost), "its channel is no more");
    assert_eq!((host.drops(&REVOKED), host.module.counts()), (1, (1, 0)));
    host.send(&good, &[9, 9]).expect("the other one goes on");
    assert_eq!(host.carried(), [[9, 9]]);
    // What it would have received goes up again, and the right can be granted once more.
    assert!(host.grant(host.headers(), FREELY).is_some());
}

#[test]
fn a_rate_is_kept() {
    let host = Host::datagrams();
    let frame = host.frame();
    let octets = frame.len() as u64;
    let (program, _) = host.channel(Rate { octets_per_second: octets, burst_octets: 3 * octets });
    for _ in 0..10 {
        host.send(&program, &frame).expect("there is room");
    }
    assert_eq!(host.carried().len(), 3, "as many as may go at once");
    for _ in 0..3 {
        host.cx.advance(Duration::from_secs(1));
        assert_eq!(host.carried().len(), 1, "one in a second");
    }
    host.cx.advance(Duration::from_secs(60));
    assert_eq!(host.carried().len(), 3, "a pause saves no more than a burst");
}

#[test]
fn what_arrives_is_its_programs_or_goes_up() {
    let host = Host::datagrams();
    let datagram = |from: u16, to: u16| {
        let ports = [from.to_be_bytes(), to.to_be_bytes()].concat();
        [&ports[..], &[0, 12, 0, 0], b"data"].concat()
    };
    let arrive = |octets: &[u8]| {
        let _ = host.tap.inject(&host.cx, host.peer, host.cx.message(octets));
    };
    let (program, number) = host.channel(FREELY);
    arrive(&datagram(7, 5000));
    let Arrival::Frame(frame) = program.receive(&host.cx) else {
        panic!("the datagram is the program's");
    };
    assert!(frame.eq_octets(&datagram(7, 5000)) && host.top.take_received().is_empty());
    // Of another peer, to another port, or shorter than it says: not the program's.
    for octets in [datagram(8, 5000), datagram(7, 5001), datagram(7, 5000)[..9].to_vec()] {
        arrive(&octets);
        assert!(matches!(program.receive(&host.cx), Arrival::Nothing), "{octets:02x?}");
    }
    // Revoked, what it would have got goes up.
    let revoked = host.netio.ask(&host.cx, RevokeChannel { number, was_there: false });
    assert!(revoked.is_some_and(|revoked| revoked.was_there));
    arrive(&datagram(7, 5000));
    assert_eq!(host.top.take_received().len(), 1);
}

#[test]
fn channels_that_nothing_fetches_lapse() {
    let host = Host::datagrams();
    let other = |n: u32| {
        let octets = n.to_be_bytes();
        Headers::of_wire(1500).with((&octets, &[]), (&octets, &[])).expect("a template")
    };
    let granted = (0..5000).filter(|n| host.grant(other(*n), FREELY).is_some()).count();
    assert_eq!((granted, host.module.counts()), (GRANTS_MAX, (0, GRANTS_MAX)));
    host.cx.advance(GRANT_LASTS);
    let (ticket, _) = host.grant(other(0), FREELY).expect("all have lapsed, with their rules");
    assert_eq!(host.module.counts(), (0, 1));
    assert_eq!(host.grant(other(0), FREELY), None, "what one channel receives no other does");
    let attach = |ticket: &Ticket| {
        let (own, program) = Queue::pair(8);
        (host.module.attach(&host.cx, ticket, Box::new(own)), program)
    };
    let (taken, stranger) = attach(&[0; 16]);
    assert!(!taken, "a ticket that is none");
    assert_eq!(host.send(&stranger, &[0; 4]), Err(SendError::Lost));
    assert!(attach(&ticket).0 && !attach(&ticket).0, "a ticket is shown once");
}

#[test]
fn nothing_is_granted_through_other_layers() {
    let host = Host::datagrams();
    let headers = host.headers();
    let question =
        || GrantChannel { headers: headers.clone(), rate: FREELY, ticket: None, number: 0 };
    assert!(host.session.ask(&host.cx, question()).is_none());
    assert_eq!(host.module.counts(), (0, 0));
}
