//! A host of STREAMS: its Ethernet, AppleTalk and their users, on a wire that gets anything; and
//! UDP on what carries packets.

use crate::harness::{Rig, Script};
use core::time::Duration;
use std::rc::Rc;
use xk_appletalk::addr::AtAddr;
use xk_core::Kernel;
use xk_kit::net::checksum::checksum;
use xk_streams::head::{Command, StrWait, Want};
use xk_streams::tpi::{Primitive, inet, unitdata_req};
use xk_streams::{Bounds, Kind, Stream, Streams};
use xk_streams_appletalk::ddp::{self, Settings};
use xk_streams_appletalk::{aep, atp, nbp, rtmp};
use xk_testkit::kernel::{Bottom, Lower};

/// Data blocks that the host may use.
const BLOCKS: usize = 512;
const MINE: [u8; 6] = [2, 0, 0, 0, 0, 1];
const PEER: [u8; 6] = [2, 0, 0, 0, 0, 2];
/// SNAP's headers of DDP and AARP.
const DDP: [u8; 8] = [0xaa, 0xaa, 3, 8, 0, 7, 0x80, 0x9b];
const AARP: [u8; 8] = [0xaa, 0xaa, 3, 0, 0, 0, 0x80, 0xf3];

fn frame(snap: &[u8], payload: &[u8]) -> Vec<u8> {
    let length = (snap.len() + payload.len()) as u16;
    [&MINE[..], &PEER, &length.to_be_bytes(), snap, payload].concat()
}

/// A datagram of AppleTalk to this node whose length is right, without a checksum.
fn datagram(kind: u8, socket: u8, payload: &[u8]) -> Vec<u8> {
    let payload = payload.get(..payload.len().min(586)).unwrap_or_default();
    let [a, b] = ((13 + payload.len()) as u16).to_be_bytes();
    let header = [a, b, 0, 0, 0, 10, 0, 10, 17, 18, socket, 129, kind];
    [&header[..], payload].concat()
}

/// The socket that a datagram of this type goes to: that of its protocol, or a user's.
fn socket_of(how: u8) -> u8 {
    match (how & 0x80 != 0, how >> 4 & 7) {
        (true, _) => how >> 5,
        (false, 1 | 5) => 1,
        (false, kind @ (2 | 4)) => kind,
        (false, _) => 130,
    }
}

/// A stream of a line, bound, that does not wait.
fn bound(cx: &Kernel, streams: &Rc<Streams>, line: &str, socket: u8) -> Rc<Stream> {
    let stream = streams.open(cx, line).expect("room for a few");
    stream.set_nonblocking(true);
    let addr = AtAddr::new(0, 0, socket).to_sockaddr();
    let bind = Primitive::BindReq { addr: &addr, conind: 0 }.emit(streams.blocks());
    stream.putp(cx, bind.expect("a block")).expect("a bound stream");
    drop(stream.getp(cx, Want::High));
    stream
}

/// Lets `data` arrive as frames, each behind an octet that says what to put in front and one of its
/// length; between them users send, receive, push and pop, and time passes.
pub(crate) fn host(data: &[u8]) {
    let script = Script::new(data);
    let cx = Rig::kernel(1 << 10);
    for entry in [&ddp::ENTRY, &aep::ENTRY, &nbp::ENTRY, &rtmp::ENTRY, &atp::ENTRY] {
        for number in entry.type_numbers() {
            cx.numbers_mut().add(number).expect("numbers do not clash");
        }
    }
    let bottom = Bottom::add(&cx, "wire", Lower::wire(MINE));
    bottom.keep(false);
    let bounds = Bounds { blocks_max: BLOCKS, ..Bounds::default() };
    let (streams, _) = xk_streams::add(&cx, "streams", bounds);
    let device = xk_streams_inet::wire::add(&cx, "device", bottom.protocol().clone());
    let device = device.expect("the subsystem");
    let ether = xk_streams_inet::ether::add(&cx, "ether", device).expect("the subsystem");
    let range = "10-19".parse().expect("a range");
    let settings = Settings { range, node: Some(17), ..Settings::default() };
    let line = ddp::add(&cx, "ddp", ether, settings).expect("the subsystem");
    for (name, add) in
        [("aep", aep::add as fn(&_, &_, _) -> _), ("nbp", nbp::add), ("rtmp", rtmp::add)]
    {
        add(&cx, name, line.clone()).expect("the subsystem");
    }
    atp::add(&cx, "atp", line).expect("the subsystem");
    assert!(cx.start().is_ok(), "the graph starts");
    cx.advance(Duration::from_secs(3));
    let users = [
        bound(&cx, &streams, "ddp", 129),
        bound(&cx, &streams, "atp", 130),
        streams.open(&cx, "nbp").expect("room for a few"),
    ];
    while let Some((how, octets)) = script.step() {
        let octets = match how % 10 {
            0 => octets.to_vec(),
            1 => frame(&AARP, octets),
            2 | 3 => frame(&DDP, octets),
            4 => frame(&DDP, &datagram(how >> 4, 130, octets)),
            5 | 6 => frame(&DDP, &datagram(how >> 4 & 7, socket_of(how), octets)),
            7 | 8 => {
                act(&cx, &users, how >> 4, octets);
                continue;
            }
            _ => {
                cx.advance(Duration::from_millis(u64::from(how) * 40));
                continue;
            }
        };
        if let Ok(message) = cx.pool().copy_from(0, &octets) {
            bottom.inject(&cx, None, message);
        }
        cx.run_due();
        assert!(streams.blocks().stats().blocks <= BLOCKS, "blocks are bounded");
    }
    for stream in &users {
        stream.close(&cx);
    }
    drop(users);
    cx.stop();
    drop(bottom.take_sent());
    assert_eq!(streams.blocks().stats().messages, 0, "blocks are left");
    drop(streams);
    assert_eq!(cx.live(), (0, 0), "messages are left");
}

/// One action of a user: takes messages that have come, sends, asks for names, pushes and pops.
fn act(cx: &Kernel, users: &[Rc<Stream>; 3], which: u8, octets: &[u8]) {
    let stream = &users[usize::from(which) % 2];
    match which {
        0 | 1 => drop(stream.getp(cx, Want::Any)),
        2 | 3 => {
            let to = AtAddr::new(10, 18, 130).to_sockaddr();
            let (opt, data) = octets.split_at(octets.len().min(12));
            let data = stream.blocks().copy(Kind::Data, 0, data);
            let request = data.and_then(|data| unitdata_req(stream.blocks(), &to, opt, data));
            if let Some(request) = request {
                let _ = stream.putp(cx, request);
            }
        }
        4 | 5 => drop(stream.push(cx, "count")),
        6 | 7 => drop(stream.pop(cx)),
        8 | 9 => drop(stream.flush(cx, 1 + which % 3)),
        10 => {
            // A search ends later than this caller waits.
            let command = Command(0x4e01 + u32::from(which % 3));
            let _ = users[2].str_ioctl(cx, command, octets, StrWait::For(Duration::ZERO));
        }
        _ => {
            let kind = if which & 1 == 0 { Kind::Proto } else { Kind::PcProto };
            if let Some(mp) = stream.blocks().copy(kind, 0, octets) {
                let _ = stream.putp(cx, mp);
            }
        }
    }
}

/// UDP of STREAMS on a driver that hands up what `data` says came from a host.
pub(crate) fn udp(data: &[u8]) {
    use xk_streams::tpi::{Datagrams, Endpoint, Info, Refusal, SendError, unitdata_ind};
    use xk_streams::{Errno, Mblk, Module, ModuleInfo, Opening, Q, Streamtab, WeakQ};

    const ME: [u8; 4] = [10, 0, 0, 1];

    #[derive(Default)]
    struct Ip(Rc<core::cell::RefCell<Option<WeakQ>>>);

    impl Datagrams for Ip {
        fn module(&self) -> ModuleInfo {
            ModuleInfo::new(1, "ip")
        }

        fn info(&self) -> Info {
            Info::datagrams(65_515, 16, 16)
        }

        fn bind(&self, _: &Kernel, q: &Q, _: &[u8], _: u32) -> Result<Vec<u8>, Refusal> {
            self.0.replace(Some(q.downgrade()));
            Ok(inet(ME, 0).into())
        }

        fn unbind(&self, _: &Kernel, _: &Q) {}

        fn local(&self, _: &Q) -> Vec<u8> {
            inet(ME, 0).into()
        }

        fn send(
            &self,
            _: &Kernel,
            _: &Q,
            _: (&[u8], &[u8]),
            data: Option<Mblk>,
        ) -> Result<(), SendError> {
            drop(data);
            Ok(())
        }

        fn told(&self, _: &'static xk_core::Reason) {}
    }

    impl Streamtab for Ip {
        fn info(&self) -> ModuleInfo {
            self.module()
        }

        fn open(&self, _: &Kernel, _: &Q, _: Opening) -> Result<Rc<dyn Module>, Errno> {
            Ok(Endpoint::new(Rc::new(Ip(Rc::clone(&self.0)))))
        }
    }

    let script = Script::new(data);
    let cx = Rig::kernel(1 << 10);
    let (streams, _) = xk_streams::add(&cx, "streams", Bounds::default());
    let ip = Ip::default();
    let up = Rc::clone(&ip.0);
    let lower = xk_streams::add_line(&cx, "ip", "ip", &[], Rc::new(ip)).expect("the subsystem");
    xk_streams_inet::udp::add(&cx, "udp", lower).expect("the subsystem");
    assert!(cx.start().is_ok(), "the graph starts");
    let user = streams.open(&cx, "udp").expect("room for one");
    user.set_nonblocking(true);
    let addr = inet([0; 4], 7);
    let bind = Primitive::BindReq { addr: &addr, conind: 0 }.emit(streams.blocks());
    user.putp(&cx, bind.expect("a block")).expect("a bound stream");
    drop(user.getp(&cx, Want::High));
    while let Some((how, octets)) = script.step() {
        let mut packet = octets.to_vec();
        if how & 1 != 0 {
            // A right header for the port that is there, and perhaps a right checksum.
            let length = (8 + packet.len()) as u16;
            let [a, b] = length.to_be_bytes();
            packet = [&[0x04, 0xd2, 0, 7, a, b, 0, 0][..], &packet].concat();
            if how & 2 != 0 {
                let pseudo = [&[10, 0, 0, 2, 10, 0, 0, 1, 0, 17, a, b][..], &packet].concat();
                packet[6..8].copy_from_slice(&checksum(&pseudo).to_be_bytes());
            }
        }
        let q = up.borrow().as_ref().and_then(WeakQ::upgrade);
        let blocks = streams.blocks();
        let mp = blocks.copy(Kind::Data, 0, &packet);
        let src = inet([10, 0, 0, 2], 0);
        let src = src.get(..16 - usize::from(how >> 4) % 16).unwrap_or_default();
        if let (Some(q), Some(mp)) = (q, mp.and_then(|mp| unitdata_ind(blocks, src, &[], mp))) {
            q.putnext(&cx, mp);
        }
        if how & 4 != 0 {
            drop(user.getp(&cx, Want::Any));
        }
        cx.run_due();
    }
    user.close(&cx);
    cx.stop();
    assert_eq!(streams.blocks().stats().messages, 0, "blocks are left");
}
