//! Ethernet and UDP of STREAMS against octets of strangers, every cut, and exhaustion.

use crate::Ip;
use proptest::prelude::*;
use std::cell::RefCell;
use std::rc::Rc;
use xk_core::reason;
use xk_streams::tpi::{Link, Primitive, inet, unitdata_ind, unitdata_req};
use xk_streams::{Bounds, Kind, Stream, Streams, tli};
use xk_streams_inet::{ether, udp, wire};
use xk_testkit::kernel::{Bottom, Lower, TestKernel, octets};

const MINE: [u8; 6] = [2, 0, 0, 0, 0, 1];
const PEER: [u8; 6] = [2, 0, 0, 0, 0, 2];

/// An Ethernet on a wire, and a stream bound to two numbers: IP's, and DDP's of SNAP.
fn station(bounds: Bounds) -> (TestKernel, Bottom, Rc<Streams>, Rc<Stream>, xk_core::ProtocolRef) {
    let cx = TestKernel::new(1);
    let bottom = Bottom::add(&cx, "wire", Lower::wire(MINE));
    let (streams, _) = xk_streams::add(&cx, "streams", bounds);
    let device = wire::add(&cx, "device", bottom.protocol().clone()).unwrap();
    let line = ether::add(&cx, "ether", device).unwrap();
    cx.start().unwrap();
    let stream = streams.open(&cx, "ether").unwrap();
    stream.set_nonblocking(true);
    let own = |number| Link { station: MINE, number }.octets();
    let blocks = streams.blocks();
    let requests = [
        Primitive::BindReq { addr: &own(0x0800), conind: 0 }.emit(blocks),
        Primitive::OptmgmtReq { opt: &own(0x2_809b), flags: 0 }.emit(blocks),
    ];
    for request in requests {
        stream.putp(&cx, request.unwrap()).unwrap();
        drop(stream.getp(&cx, xk_streams::head::Want::High).unwrap());
    }
    (cx, bottom, streams, stream, line)
}

fn arrive(cx: &TestKernel, bottom: &Bottom, frame: &[u8]) {
    bottom.inject(cx, None, cx.message(frame));
    cx.run_due();
}

/// A message that has come up: its number and its octets.
fn come(cx: &TestKernel, stream: &Stream) -> Option<(u32, Vec<u8>)> {
    let mut mp = stream.getp(cx, xk_streams::head::Want::Any).ok()?;
    let data = mp.unlinkb().map(|data| data.to_vec()).unwrap_or_default();
    match Primitive::of(&mp) {
        Ok(Primitive::UnitdataInd { src, .. }) => Some((Link::parse(src)?.number, data)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn short_frames_are_padded_and_lose_it_on_arrival() {
    let (cx, bottom, streams, stream, _) = station(Bounds::default());
    for (number, size) in [(0x0800, 1), (0x0800, 46), (0x0800, 47), (0x2_809b, 1), (0x2_809b, 38)] {
        for headroom in [0, 64] {
            let data = streams.blocks().copy(Kind::Data, headroom, &vec![7; size]).unwrap();
            let to = Link { station: PEER, number }.octets();
            let request = unitdata_req(streams.blocks(), &to, &[], data).unwrap();
            stream.putp(&cx, request).unwrap();
            cx.run_due();
            let sent = bottom.take_sent();
            let frame = octets(&sent[0].message);
            let used = if number < 0x1_0000 { 14 } else { 22 };
            assert_eq!(frame.len(), (used + size).max(60), "{number:x} {size} {headroom}");
            assert_eq!(frame[used..used + size], vec![7; size]);
            assert!(frame[used + size..].iter().all(|octet| *octet == 0));
            // The other end: what IEEE 802.3 says is behind the length goes.
            let mut back = frame.clone();
            back[..6].copy_from_slice(&MINE);
            back[6..12].copy_from_slice(&PEER);
            arrive(&cx, &bottom, &back);
            let (of, data) = come(&cx, &stream).unwrap();
            let length = if number < 0x1_0000 { size.max(46) } else { size };
            assert_eq!((of, data.len()), (number, length));
        }
    }
    stream.close(&cx);
    cx.stop();
    assert_eq!(streams.blocks().stats().messages, 0);
}

#[test]
fn frames_cut_at_every_length_are_dropped_or_taken_whole() {
    let (cx, bottom, streams, stream, line) = station(Bounds::default());
    let snap = [&MINE[..], &PEER, &[0, 13], &[0xaa, 0xaa, 3, 8, 0, 7, 0x80, 0x9b], b"hello"];
    let plain = [&MINE[..], &PEER, &[8, 0], b"hello"];
    for (frame, number) in [(snap.concat(), 0x2_809b), (plain.concat(), 0x0800)] {
        for cut in 0..=frame.len() {
            let before = line.head().drops().total();
            arrive(&cx, &bottom, &frame[..cut]);
            let came = come(&cx, &stream);
            let dropped = line.head().drops().total() - before;
            assert_eq!(u64::from(came.is_some()) + dropped, 1, "{cut} of {number:x}");
            if cut == frame.len() {
                assert_eq!(came, Some((number, b"hello".to_vec())));
            }
        }
    }
    // A length that lies, a foreign station, one's own, a group as a sender, a number that is
    // none's.
    for (change, why) in [
        (&[(13, 200)][..], &reason::BAD_LENGTH),
        (&[(5, 9)], &reason::NOT_MINE),
        (&[(11, 1)], &reason::BAD_SOURCE),
        (&[(6, 3)], &reason::BAD_SOURCE),
        (&[(20, 0x81)], &reason::NO_PROTOCOL),
        (&[(14, 0x42)], &reason::NO_PROTOCOL),
    ] {
        let mut frame = snap.concat();
        change.iter().for_each(|(at, octet)| frame[*at] = *octet);
        let before = line.head().drops().of(why);
        arrive(&cx, &bottom, &frame);
        assert_eq!(line.head().drops().of(why), before + 1, "{change:?}");
        assert_eq!(come(&cx, &stream), None);
    }
    stream.close(&cx);
    cx.stop();
    assert_eq!(streams.blocks().stats().messages, 0);
}

#[test]
fn without_blocks_frames_are_dropped_and_counted() {
    let bounds = Bounds { blocks_max: 64, ..Bounds::default() };
    let (cx, bottom, streams, stream, line) = station(bounds);
    let frame = [&MINE[..], &PEER, &[8, 0], &[7; 60]].concat();
    // A user that takes nothing: the head fills, then frames are dropped.
    for _ in 0..500 {
        arrive(&cx, &bottom, &frame);
    }
    let device = cx.find_protocol("device").unwrap();
    let dropped = line.head().drops().total() + device.head().drops().total();
    assert!(dropped > 0, "{dropped}");
    assert!(streams.blocks().stats().blocks <= 64, "{:?}", streams.blocks().stats());
    while come(&cx, &stream).is_some() {}
    let held: Vec<_> =
        core::iter::from_fn(|| streams.blocks().allocb(1, xk_streams::Priority::High)).collect();
    for _ in 0..10 {
        arrive(&cx, &bottom, &frame);
    }
    assert_eq!(come(&cx, &stream), None);
    drop(held);
    arrive(&cx, &bottom, &frame);
    assert_eq!(come(&cx, &stream), Some((0x0800, vec![7; 60])));
    stream.close(&cx);
    cx.stop();
    assert_eq!(streams.blocks().stats().messages, 0);
}

/// UDP on a driver whose read queue the test has.
fn host() -> (TestKernel, Rc<Streams>, Rc<RefCell<Option<xk_streams::WeakQ>>>, xk_core::ProtocolRef)
{
    let cx = TestKernel::new(1);
    let (streams, _) = xk_streams::add(&cx, "streams", Bounds::default());
    let ip = Ip::default();
    let up = Rc::clone(&ip.1);
    let lower = xk_streams::add_line(&cx, "ip", "ip", &[], Rc::new(ip)).unwrap();
    let line = udp::add(&cx, "udp", lower).unwrap();
    cx.start().unwrap();
    (cx, streams, up, line)
}

#[test]
fn packets_cut_at_every_length_are_dropped_or_taken_whole() {
    let (cx, streams, up, line) = host();
    let (end, _) = tli::Endpoint::open(&cx, &streams, "udp").unwrap();
    end.stream().set_nonblocking(true);
    end.bind(&cx, Some(&inet([0; 4], 7)), 0).unwrap();
    // To port 7 from 1234, of 13 octets, without a checksum; padding is behind.
    let packet = [&[0x04, 0xd2, 0, 7, 0, 13, 0, 0][..], b"hello", &[0; 9]].concat();
    let put = |octets: &[u8]| {
        let q = up.borrow().as_ref().and_then(xk_streams::WeakQ::upgrade).unwrap();
        let data = streams.blocks().copy(Kind::Data, 0, octets).unwrap();
        let src = inet([10, 0, 0, 2], 0);
        q.putnext(&cx, unitdata_ind(streams.blocks(), &src, &[], data).unwrap());
    };
    for cut in 0..=packet.len() {
        let before = line.head().drops().total();
        put(&packet[..cut]);
        match end.rcvudata(&cx, tli::Maxima::ALL) {
            Ok(unit) => {
                assert!(cut >= 13);
                assert_eq!(unit.data, b"hello");
                assert_eq!(unit.addr, inet([10, 0, 0, 2], 1234));
            }
            Err(error) => {
                assert!(cut < 13, "{error:?}");
                assert_eq!(line.head().drops().total(), before + 1);
            }
        }
    }
    for (at, octet, why) in [
        (5, 7, &reason::BAD_LENGTH),
        (4, 1, &reason::BAD_LENGTH),
        (3, 8, &reason::NO_PORT),
        (7, 1, &reason::BAD_CHECKSUM),
    ] {
        let mut wrong = packet.clone();
        wrong[at] = octet;
        let before = line.head().drops().of(why);
        put(&wrong);
        assert_eq!(line.head().drops().of(why), before + 1, "{at}");
    }
    assert!(end.rcvudata(&cx, tli::Maxima::ALL).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_octets_are_taken_or_dropped(frames in prop::collection::vec(
        (any::<u8>(), prop::collection::vec(any::<u8>(), 0..120)), 1..20))
    {
        let (cx, bottom, streams, stream, line) = station(Bounds::default());
        let mut came = 0;
        for (how, octets) in &frames {
            let frame = match how % 3 {
                0 => octets.clone(),
                1 => [&MINE[..], &PEER, octets].concat(),
                _ => {
                    let length = (8 + octets.len()) as u16;
                    let llc = [0xaa, 0xaa, 3, 8, 0, 7, 0x80, 0x9b];
                    [&MINE[..], &PEER, &length.to_be_bytes(), &llc, octets].concat()
                }
            };
            arrive(&cx, &bottom, &frame);
            while come(&cx, &stream).is_some() {
                came += 1;
            }
        }
        prop_assert_eq!(came + line.head().drops().total(), frames.len() as u64);
        stream.close(&cx);
        cx.stop();
        prop_assert_eq!(streams.blocks().stats().messages, 0);
    }
}
