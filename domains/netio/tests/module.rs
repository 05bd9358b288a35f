//! The module with a program behind a channel that sends what it likes, and a tap in place of the
//! wire.

use core::time::Duration;
use std::rc::Rc;
use xk_core::graph::{Params, Value};
use xk_core::object::{ProtocolId, USER_SHARE};
use xk_core::{Entry, HostAddr, Part, Participant, Participants, ProtocolRef, SessionRef};
use xk_domains::{Arrival, Carrier, Queue, SendError};
use xk_kit::control::MyEther;
use xk_kit::net::attribute::Peer;
use xk_kit::net::template::{HeaderField, Headers, Template};
use xk_netio::{
    CHANNELS_MAX, FORGED, GRANT_LASTS, GRANTS_MAX, GrantChannel, GrantRight, LATE, ListRights,
    Module, REVOKED, RIGHTS_MAX, RIGHTS_OF_A_CHANNEL_MAX, Rate, RevokeChannel, RevokeRight, Right,
    Ticket, VIOLATIONS_MAX,
};
use xk_testkit::conformance::messages::pattern;
use xk_testkit::kernel::{Bottom, Lower, TestKernel, Top, octets};

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
}

fn build(cx: &TestKernel, entry: &'static Entry, lower: &ProtocolRef) -> ProtocolRef {
    build_with(cx, entry, lower, &Params::default())
}

/// The parameters of an IP with this address.
fn addressed(address: &str) -> Params {
    let (mut params, mut block) = (Params::default(), Params::default());
    block.set("address", Value::Text(address.into()));
    params.add_block("address", block);
    params
}

fn build_with(
    cx: &TestKernel,
    entry: &'static Entry,
    lower: &ProtocolRef,
    params: &Params,
) -> ProtocolRef {
    for number in entry.type_numbers() {
        let _ = cx.numbers_mut().add(number);
    }
    let lowers = [lower.clone()];
    entry.add(cx, entry.kind, &lowers, params).expect("it is built")
}

impl Host {
    fn new(entry: &'static Entry, ends: Participants) -> Self {
        let cx = TestKernel::new(6);
        let tap = Bottom::add(&cx, "tap", Lower::wire(OURS));
        let (netio, module) = xk_netio::add(&cx, "netio", tap.protocol().clone());
        let protocol = build(&cx, entry, &netio);
        let top = Top::add(&cx, "top");
        cx.numbers_mut().override_pair(top.id(), protocol.id(), 0x88b5);
        cx.start().expect("it starts");
        let session = top.open(&cx, &protocol, ends).expect("a session");
        Self { cx, tap, netio, module, top, session }
    }

    fn ethernet() -> Self {
        let ends = Participants::pair(Part::Any, Part::Ether(PEER));
        Self::new(&xk_eth::ENTRY, ends)
    }

    fn datagrams() -> Self {
        let ends = Participants::pair(Part::port(5000), Part::port(7));
        Self::new(&xk_udp::ENTRY, ends)
    }

    /// A whole stack: a session for datagrams to and from any peer on IP on Ethernet.
    fn stack() -> Self {
        let cx = TestKernel::new(6);
        let tap = Bottom::add(&cx, "tap", Lower::wire(OURS));
        let (netio, module) = xk_netio::add(&cx, "netio", tap.protocol().clone());
        let eth = build(&cx, &xk_eth::ENTRY, &netio);
        let arp = build(&cx, &xk_arp::ENTRY, &eth);
        let ip = build_with(&cx, &xk_ip::ENTRY, &arp, &addressed("10.0.0.1/24"));
        let udp = build(&cx, &xk_udp::ENTRY, &ip);
        let top = Top::add(&cx, "top");
        cx.start().expect("it starts");
        // To all hosts, since nothing here tells the link address of one.
        let own = Participant::of(Part::Host(core::net::Ipv4Addr::new(10, 0, 0, 1).into()));
        let (own, peer) = (own.with(Part::port(5000)), Participant::of(Part::Any));
        let session = top.open(&cx, &udp, Participants::pair(own, peer)).expect("a session");
        drop(tap.take_sent());
        Self { cx, tap, netio, module, top, session }
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

    fn grant(&self, rate: Rate) -> Option<(Ticket, u32)> {
        let question = GrantChannel::new(rate);
        let granted = self.netio.ask(&self.cx, question).expect("the module knows it");
        granted.ticket.map(|ticket| (ticket, granted.number))
    }

    /// One more right of a channel, and its number.
    fn right(&self, channel: u32, headers: Headers) -> Option<u32> {
        let of = (ProtocolId(7), "port7".parse().expect("participants"));
        let question = GrantRight { channel, headers, of, number: None };
        self.netio.ask(&self.cx, question).expect("the module knows it").number
    }

    fn revoke_right(&self, number: u32) -> bool {
        let question = RevokeRight { number, was_there: false };
        self.netio.ask(&self.cx, question).expect("the module knows it").was_there
    }

    /// The program's end of a new channel without rights, and its number.
    fn bare_channel(&self, rate: Rate) -> (Queue, u32) {
        let (ticket, number) = self.grant(rate).expect("there is room");
        let (own, program) = Queue::pair(64);
        let attached = self.module.attach(&self.cx, &ticket, Box::new(own));
        assert!(attached.is_ok(), "the ticket fetches it");
        (program, number)
    }

    /// One with a right to the session's frames.
    fn channel(&self, rate: Rate) -> (Queue, u32) {
        let (program, number) = self.bare_channel(rate);
        self.right(number, self.headers()).expect("there is room");
        (program, number)
    }

    fn send(&self, program: &Queue, frame: &[u8]) -> Result<(), SendError> {
        program.send(&self.cx, frame, &self.cx.message(&[]))
    }

    /// Frames at the tap once the module has looked at its channels.
    fn carried(&self) -> Vec<Vec<u8>> {
        while self.module.carry_all(&self.cx, 64) > 0 {}
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
    let (good, number) = host.bare_channel(FREELY);
    host.right(number, plain(0x0909)).expect("another rule");
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
    assert!(host.right(number, host.headers()).is_some());
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
    host.cx.advance(Duration::from_secs(60));
    assert_eq!(host.carried().len(), 1, "all ten have gone");
    let own = Rate { octets_per_second: 2, burst_octets: 2 };
    host.module.limit(own);
    let granted = host.netio.ask(&host.cx, GrantChannel::new(FREELY));
    assert_eq!(granted.expect("the module knows it").rate, own, "it tells what it allows");
    let (program, number) = host.bare_channel(FREELY);
    host.right(number, plain(0x0909)).expect("there is room");
    (0..3).for_each(|_| host.send(&program, &[9, 9]).expect("there is room"));
    for left in [1, 1, 1, 0] {
        assert_eq!(host.carried().len(), left, "no more than the module allows");
        host.cx.advance(Duration::from_secs(1));
    }
}

#[test]
fn a_program_that_ends_in_debt_is_revoked_at_once() {
    let host = Host::datagrams();
    let frame = host.frame();
    let (program, _) = host.channel(Rate { octets_per_second: 1, burst_octets: 1 });
    host.send(&program, &frame).expect("there is room");
    assert_eq!(host.carried().len(), 1);
    program.close();
    assert_eq!((host.carried().len(), host.module.counts()), (0, (0, 0)));
}

#[test]
fn what_arrives_is_its_programs_or_goes_up() {
    let host = Host::datagrams();
    let datagram = |from: u16, to: u16| {
        let ports = [from.to_be_bytes(), to.to_be_bytes()].concat();
        [&ports[..], &[0, 12, 0, 0], b"data"].concat()
    };
    let arrive = |octets: &[u8]| {
        let _ = host.tap.inject(&host.cx, None, host.cx.message(octets));
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
    let granted: Vec<u32> = (0..5000).filter_map(|_| Some(host.grant(FREELY)?.1)).collect();
    assert_eq!((granted.len(), host.module.counts()), (GRANTS_MAX, (0, GRANTS_MAX)));
    let first = host.netio.ask(&host.cx, ListRights::default()).expect("it is known");
    assert_eq!(first.rights, []);
    assert!(
        host.right(granted[0], host.headers()).is_some(),
        "a right does not wait for the program"
    );
    host.cx.advance(GRANT_LASTS);
    let (ticket, number) = host.grant(FREELY).expect("all have lapsed");
    assert_eq!(host.module.counts(), (0, 1));
    assert!(host.right(number, host.headers()).is_some(), "their rights, too");
    let attach = |ticket: &Ticket| {
        let (own, program) = Queue::pair(8);
        (host.module.attach(&host.cx, ticket, Box::new(own)).is_ok(), program)
    };
    assert!(!attach(&[0; 16]).0, "a ticket that is none");
    assert!(attach(&ticket).0 && !attach(&ticket).0, "a ticket is shown once");
}

/// The protocol above the module has the hardware address of the programs: if another device comes
/// with a module that is started again, their peers do not move to it.
#[test]
fn the_station_of_channels_stays() {
    let host = Host::datagrams();
    let is = || host.netio.ask(&host.cx, MyEther::default()).expect("it is known").address;
    let (device, station) = (is(), [2, 0, 0, 0, 9, 9]);
    let question = GrantChannel { station: Some(station), ..GrantChannel::new(FREELY) };
    let granted = host.netio.ask(&host.cx, question).expect("the module knows it");
    assert_eq!(is(), station);
    let question = RevokeChannel { number: granted.number, was_there: false };
    assert!(host.netio.ask(&host.cx, question).expect("the module knows it").was_there);
    assert_eq!(is(), device, "there is no channel");
}

#[test]
fn nothing_is_granted_through_other_layers() {
    let host = Host::datagrams();
    let question = || GrantChannel::new(FREELY);
    assert!(host.session.ask(&host.cx, question()).is_none());
    let (_, number) = host.bare_channel(FREELY);
    let of = (ProtocolId(7), Participants::default());
    let headers = || host.headers();
    let question =
        || GrantRight { channel: number, headers: headers(), of: of.clone(), number: None };
    assert!(host.session.ask(&host.cx, question()).is_none());
    assert_eq!(host.module.counts(), (1, 0));
}

/// Headers of two octets, `number`, that say nothing else.
fn plain(number: u16) -> Headers {
    let octets = number.to_be_bytes();
    Headers::of_wire(1500).with((&octets, &[]), (&octets, &[])).expect("a template")
}

#[test]
fn a_user_has_a_share_of_channels_and_rights() {
    let host = Host::datagrams();
    host.frame();
    let grant = |user| {
        let question = GrantChannel { user, ..GrantChannel::new(FREELY) };
        let granted = host.netio.ask(&host.cx, question).expect("the module knows it");
        granted.ticket.map(|ticket| (ticket, granted.number))
    };
    let fetch = |(ticket, number): (Ticket, u32)| {
        let (own, program) = Queue::pair(64);
        assert!(host.module.attach(&host.cx, &ticket, Box::new(own)).is_ok());
        (program, number)
    };
    let waiting: Vec<_> = std::iter::from_fn(|| grant(Some(1234))).collect();
    assert_eq!(waiting.len(), GRANTS_MAX / USER_SHARE);
    let honest = fetch(grant(Some(2000)).expect("there is room for others"));
    let mut fetched: Vec<_> = waiting.into_iter().map(fetch).collect();
    fetched.extend(std::iter::from_fn(|| grant(Some(1234)).map(fetch)));
    assert_eq!(fetched.len(), CHANNELS_MAX / USER_SHARE);
    assert!(grant(Some(2000)).is_some() && grant(None).is_some());
    // Rights: of all its channels in turn.
    let numbers = fetched.iter().map(|(_, number)| *number).cycle();
    let right = |number, at: u32| host.right(number, plain(at as u16)).is_some();
    let granted = numbers.zip(0..RIGHTS_MAX as u32).filter(|(number, at)| right(*number, *at));
    assert_eq!(granted.count(), RIGHTS_MAX / USER_SHARE);
    assert!(right(honest.1, u32::from(u16::MAX)), "there is room for others");
    // What has gone makes room.
    let question = RevokeChannel { number: fetched[0].1, was_there: false };
    assert!(host.netio.ask(&host.cx, question).is_some_and(|revoked| revoked.was_there));
    assert!(grant(Some(1234)).is_some());
    assert!(right(fetched[1].1, u32::from(u16::MAX) - 1));
}

/// A template of no messages may have the octets of another one.
#[test]
fn a_right_to_nothing_takes_nothing_from_others() {
    let host = Host::datagrams();
    host.frame();
    let (program, number) = host.bare_channel(FREELY);
    host.right(number, plain(0x0909)).expect("the first");
    let receives = || {
        let _ = host.tap.inject(&host.cx, None, host.cx.message(&[9, 9, 9]));
        matches!(program.receive(&host.cx), Arrival::Frame(_))
    };
    assert!(receives());
    let empty = Template::default().header(&[9, 9], &[]).expect("a template");
    let nothing = |number| Headers { received: empty.clone(), ..plain(number) };
    assert_eq!(host.right(number, nothing(0x0909)), None, "it sends that already");
    assert!(receives(), "what was refused took nothing");
    let sends = host.right(number, nothing(0x0808)).expect("a right to send");
    assert!(host.revoke_right(sends) && receives(), "nor does what is revoked");
}

#[test]
fn a_channel_has_the_rights_that_it_was_given_and_no_others() {
    let host = Host::datagrams();
    host.frame();
    let arrive = |octets: &[u8]| {
        let _ = host.tap.inject(&host.cx, None, host.cx.message(octets));
    };
    let is_there = |program: &Queue| matches!(program.receive(&host.cx), Arrival::Frame(_));
    let (one, one_number) = host.bare_channel(FREELY);
    let (other, other_number) = host.bare_channel(FREELY);
    host.send(&one, &[0, 1]).expect("there is room");
    assert_eq!(host.carried(), [[0; 0]; 0], "without a right nothing goes");
    let rights: Vec<u32> = (1..=1000)
        .map(|n| host.right(if n % 2 == 1 { one_number } else { other_number }, plain(n)))
        .map(|number| number.expect("there is room"))
        .collect();
    assert_eq!(host.right(other_number, plain(1)), None, "what one receives no other does");
    // In turn, so that no two are alike.
    for n in 1..=1000_u16 {
        let (good, bad) = if n % 2 == 1 { (&one, &other) } else { (&other, &one) };
        host.send(good, &n.to_be_bytes()).expect("there is room");
        assert_eq!(host.carried(), [n.to_be_bytes()]);
        arrive(&n.to_be_bytes());
        assert!(is_there(good) && !is_there(bad), "what arrives for {n}");
    }
    for channel in [&one, &other] {
        for n in [0, 1001, 1003] {
            host.send(channel, &u16::to_be_bytes(n)).expect("there is room");
        }
        host.send(channel, &[]).expect("there is room");
    }
    host.send(&one, &[0, 2]).expect("there is room");
    host.send(&other, &[0, 1]).expect("there is room");
    assert_eq!(host.carried(), [[0; 0]; 0], "no empty frame, none of another's");
    assert_eq!(host.drops(&FORGED), 11);
    // All are told, page by page.
    let (mut listed, mut after) = (Vec::new(), 0);
    while let Some(rights) = host.netio.ask(&host.cx, ListRights { after, rights: vec![] })
        && let Some(last) = rights.rights.last()
    {
        after = last.number;
        listed.extend(rights.rights);
    }
    let is_right = |right: &Right| {
        let octets = right.headers.sent.octets();
        right.of.0 == ProtocolId(7)
            && right.of.1.to_string().contains("port7")
            && right.channel == if octets[1] % 2 == 1 { one_number } else { other_number }
    };
    assert!(listed.len() == 1000 && listed.iter().all(is_right));
    // One by one they end: the one that was used last, too.
    host.send(&one, &[0, 1]).expect("there is room");
    assert_eq!(host.carried(), [[0, 1]]);
    assert!(host.revoke_right(rights[0]) && !host.revoke_right(rights[0]));
    assert!(!host.revoke_right(one_number), "a channel is no right");
    assert!(!host.module.revoke(rights[2]), "nor a right a channel");
    host.send(&one, &[0, 1]).expect("there is room");
    host.send(&one, &[0, 3]).expect("there is room");
    assert_eq!(host.carried(), [[0, 3]], "the others of the channel are left");
    arrive(&[0, 1]);
    assert!(!is_there(&one), "what arrives for it goes up");
    assert!(host.right(other_number, plain(1)).is_some(), "and another may have it");
    // With its channel the rest.
    assert!(host.module.revoke(one_number));
    assert_eq!(host.send(&one, &[0, 3]), Err(SendError::Lost));
    assert_eq!(host.right(one_number, plain(3)), None, "a channel that is no more has no rights");
    assert!(host.right(other_number, plain(3)).is_some());
}

/// A program that ends a conversation, or whose conversation is ended, has frames of it on their
/// way to the module, and may answer what came before: no reason to take the others from it.
#[test]
fn what_comes_late_for_a_right_that_has_ended_is_dropped_and_no_violation() {
    let host = Host::datagrams();
    let frame = host.frame();
    let (program, number) = host.bare_channel(FREELY);
    let right = host.right(number, host.headers()).expect("there is room");
    host.right(number, plain(0x0909)).expect("another one");
    let after = |right| {
        assert!(host.revoke_right(right));
        let (forged, late) = (host.drops(&FORGED), host.drops(&LATE));
        for count in 1..=3 * u64::from(VIOLATIONS_MAX) {
            host.send(&program, &frame).expect("the channel is there");
            host.send(&program, &[9, 9, 9]).expect("the channel is there");
            assert_eq!(host.carried(), [[9, 9, 9]], "no frame of a right that has ended goes");
            assert_eq!(host.drops(&LATE), late + count);
        }
        assert_eq!(host.drops(&FORGED), forged);
    };
    after(right);
    // Granted again, it goes; ended again, it is late again.
    let right = host.right(number, host.headers()).expect("there is room");
    host.send(&program, &frame).expect("the channel is there");
    assert_eq!(host.carried(), [frame.as_slice()]);
    after(right);
    // What was never granted is a violation still, and so is what was long ago: only so much is
    // remembered.
    for n in 1..=300 {
        let right = host.right(number, plain(n)).expect("there is room");
        assert!(host.revoke_right(right));
    }
    for _ in 0..VIOLATIONS_MAX {
        host.send(&program, &frame).expect("the channel is there");
        assert_eq!(host.carried(), [[0; 0]; 0]);
    }
    assert_eq!(host.drops(&REVOKED), 1);
}

#[test]
fn a_right_may_be_to_receive_alone() {
    let host = Host::datagrams();
    host.frame();
    let (program, number) = host.channel(FREELY);
    let sent = host.headers().sent;
    let other = Headers { sent: Template::default(), ..plain(7) };
    assert!(host.right(number, other).is_some(), "two that receive apart");
    let twin = Headers { sent, ..plain(8) };
    assert_eq!(host.right(number, twin), None, "two that send alike");
    assert!(host.right(number, plain(8)).is_some(), "what is not granted leaves nothing behind");
    host.send(&program, &[0, 7]).expect("there is room");
    host.send(&program, &[]).expect("there is room");
    assert_eq!(host.carried(), [[0; 0]; 0]);
    let _ = host.tap.inject(&host.cx, None, host.cx.message(&[0, 7]));
    assert!(matches!(program.receive(&host.cx), Arrival::Frame(_)));
}

#[test]
fn rights_and_channels_are_bounded() {
    let host = Host::datagrams();
    let (_program, number) = host.bare_channel(FREELY);
    let granted = (0..=u16::MAX).filter(|n| host.right(number, plain(*n)).is_some()).count();
    assert_eq!(granted, RIGHTS_OF_A_CHANNEL_MAX);
    // A hundred shapes of headers are not as many as a hundred rights.
    let shaped = |n: u8| {
        let (octets, free) = ([0; 64], [(0, HeaderField::Free(n))]);
        Headers::of_wire(1500).with((&octets, &free), (&octets, &free)).expect("a template")
    };
    let (_program, number) = host.bare_channel(FREELY);
    let shapes = (1..64).filter(|n| host.right(number, shaped(*n)).is_some()).count();
    assert!(shapes < 20, "{shapes} shapes");
    let channels = (0..2 * CHANNELS_MAX).map_while(|_| {
        let (ticket, _) = host.grant(FREELY)?;
        let (own, program) = Queue::pair(1);
        host.module.attach(&host.cx, &ticket, Box::new(own)).ok().map(|()| program)
    });
    let channels: Vec<Queue> = channels.collect();
    assert_eq!(host.module.counts(), (CHANNELS_MAX, 0));
    channels.iter().for_each(Carrier::close);
    host.module.carry_all(&host.cx, usize::MAX);
    assert_eq!(host.module.counts(), (2, 0), "those whose program is gone are revoked");
}

/// A right for a port of datagrams: any peer, but what is ours stays as it is.
#[test]
fn a_datagram_port_sends_to_all_and_is_no_other_port() {
    let host = Host::stack();
    let any = host.headers();
    let mut message = host.cx.message(&pattern(100, 1));
    message.set_attribute(Peer { host: HostAddr::BROADCAST, port: 7 }).expect("there is room");
    host.session.push(&host.cx, message).expect("it goes");
    let frame = octets(&host.tap.take_sent().pop().expect("it is on the wire").message);
    // Link address, host and port of the peer.
    let is_peers = |at: usize| matches!(at, 0..6 | 30..34 | 36..38);
    // Identification, how far it may go, both sums; marks of congestion, and that there be no
    // fragments.
    let is_free = |bit: usize| {
        matches!(bit / 8, 18..20 | 22 | 24..26 | 40..42)
            || matches!((bit / 8, bit % 8), (15, 0..2) | (20, 6))
    };
    let mut forged = 0;
    for bit in 0..8 * 42 {
        let mut altered = frame.clone();
        altered[bit / 8] ^= 1 << (bit % 8);
        let (program, number) = host.bare_channel(FREELY);
        host.right(number, any.clone()).expect("there is room");
        host.send(&program, &altered).expect("there is room");
        let may_go = is_peers(bit / 8) || is_free(bit);
        let carried = host.carried();
        assert_eq!(carried, if may_go { vec![altered] } else { vec![] }, "bit {bit}");
        forged += u64::from(!may_go);
        assert!(host.module.revoke(number));
    }
    assert_eq!(host.drops(&FORGED), forged);
}

#[test]
fn channels_outlive_what_stands_on_the_module() {
    let host = Host::datagrams();
    let frame = host.frame();
    let (program, _) = host.channel(FREELY);
    host.session.close(&host.cx);
    host.cx.advance(Duration::from_secs(1));
    host.send(&program, &frame).expect("there is room");
    assert_eq!(host.carried(), [frame]);
}
