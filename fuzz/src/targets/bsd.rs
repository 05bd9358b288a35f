//! A host of the BSD subsystem: its Ethernet with ARP, IP, UDP and AppleTalk, and users of them.

use crate::harness::{Rig, Script, build};
use core::net::Ipv4Addr;
use core::time::Duration;
use std::rc::Rc;
use xk_bsd::sockaddr::{AF_APPLETALK, AF_INET};
use xk_bsd::{
    Bsd, Mt, Release, SS_NBIO, Sink, Sock, Sockaddr, Socket, Uio, sobind, soclose, socreate,
    soreceive, sosend,
};
use xk_core::Kernel;
use xk_core::graph::{Params, Value};
use xk_kit::net::checksum::checksum;
use xk_testkit::kernel::{Bottom, Lower};

/// Mbufs that the host may use.
const MBUFS: i64 = 256;
/// The station's address, and that of a peer.
const MINE: [u8; 6] = [2, 0, 0, 0, 0, 1];
const PEER: [u8; 6] = [2, 0, 0, 0, 0, 2];
/// SNAP's headers of DDP and AARP.
const DDP: [u8; 8] = [0xaa, 0xaa, 3, 8, 0, 7, 0x80, 0x9b];
const AARP: [u8; 8] = [0xaa, 0xaa, 3, 0, 0, 0, 0x80, 0xf3];

fn word(params: &mut Params, name: &'static str, value: &str) {
    params.set(name, Value::Text(value.into()));
}

/// A frame to this station: Ethernet II, or SNAP if there is a header of that.
fn frame(number: u16, snap: &[u8], payload: &[u8]) -> Vec<u8> {
    let number = if snap.is_empty() { number } else { (snap.len() + payload.len()) as u16 };
    [&MINE[..], &PEER, &number.to_be_bytes(), snap, payload].concat()
}

/// An IPv4 packet to this host whose length and checksum are right, of the octets behind its
/// header.
fn ip(proto: u8, off: u16, payload: &[u8]) -> Vec<u8> {
    ip_to([10, 0, 0, 1], proto, off, payload)
}

fn ip_to(to: [u8; 4], proto: u8, off: u16, payload: &[u8]) -> Vec<u8> {
    let mut h = [0x45, 0, 0, 0, 0, 7, 0, 0, 64, proto, 0, 0, 10, 0, 0, 2, 0, 0, 0, 0];
    h[16..].copy_from_slice(&to);
    h[2..4].copy_from_slice(&((20 + payload.len()) as u16).to_be_bytes());
    h[6..8].copy_from_slice(&off.to_be_bytes());
    let sum = checksum(&h);
    h[10..12].copy_from_slice(&sum.to_be_bytes());
    [&h[..], payload].concat()
}

/// A datagram of AppleTalk to this node whose length is right, without a checksum.
fn ddp(kind: u8, socket: u8, payload: &[u8]) -> Vec<u8> {
    let [a, b] = ((13 + payload.len().min(586)) as u16).to_be_bytes();
    let header = [a, b, 0, 0, 0, 10, 0, 10, 17, 18, socket, 129, kind];
    [&header[..], payload.get(..payload.len().min(586)).unwrap_or_default()].concat()
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

fn socket(
    cx: &Kernel,
    bsd: &Rc<Bsd>,
    (family, kind, protocol): (u8, Sock, u8),
    local: Option<Sockaddr>,
) -> Rc<Socket> {
    let so = socreate(cx, bsd, family, kind, protocol).expect("a socket");
    so.set_state(SS_NBIO, 0);
    if let Some(local) = local {
        let mut nam = local.to_mbuf(bsd.mbufs()).expect("an mbuf");
        sobind(cx, &so, &mut nam).expect("the address is free");
    }
    so
}

/// Lets `data` arrive as frames, each behind an octet that says what to put in front and one of its
/// length; between them users receive, answer and send, and time passes.
pub(crate) fn host(data: &[u8]) {
    let script = Script::new(data);
    let cx = Rig::kernel(1 << 10);
    let entries = [
        &xk_bsd_inet::IP,
        &xk_bsd_inet::UDP,
        &xk_bsd_appletalk::DDP,
        &xk_bsd_appletalk::AEP,
        &xk_bsd_appletalk::NBP,
        &xk_bsd_appletalk::RTMP,
        &xk_bsd_appletalk::ATP,
    ];
    for number in entries.iter().flat_map(|entry| entry.type_numbers()) {
        cx.numbers_mut().add(number).expect("numbers do not clash");
    }
    let none = Params::default();
    let bottom = Bottom::add(&cx, "wire", Lower::link(1514));
    bottom.keep(false);
    let mut params = Params::from([("mbufs", Value::Integer(MBUFS))]);
    let first = script.octet_or_zero();
    word(&mut params, "release", if first & 1 == 0 { "4.3" } else { "4.4" });
    build(&cx, &xk_bsd::ENTRY, &[], &params);
    let mut params = Params::default();
    word(&mut params, "address", "02:00:00:00:00:01");
    let ether = build(&cx, &xk_bsd_inet::ETHER, &[bottom.protocol().clone()], &params);
    let mut address = Params::default();
    word(&mut address, "address", "10.0.0.1/24");
    // Perhaps a gateway, which sends what is for others on by the link that it came from.
    let mut params = Params::from([("gateway", Value::Bool(first & 2 != 0))]);
    params.add_block("address", address);
    let ip_line = build(&cx, &xk_bsd_inet::IP, core::slice::from_ref(&ether), &params);
    build(&cx, &xk_bsd_inet::UDP, &[ip_line], &none);
    let mut params = Params::from([("node", Value::Integer(17))]);
    word(&mut params, "net", "10-19");
    let ddp_line = build(&cx, &xk_bsd_appletalk::DDP, &[ether], &params);
    for entry in &entries[3..] {
        build(&cx, entry, core::slice::from_ref(&ddp_line), &none);
    }
    assert!(cx.start().is_ok(), "the graph starts");
    cx.advance(Duration::from_secs(3));

    let bsd = Bsd::of(&cx).expect("the subsystem");
    let at = |socket| Some(Sockaddr::appletalk(Release::Bsd43, 0, 0, socket));
    let any = Sockaddr::inet(Release::Bsd43, Ipv4Addr::UNSPECIFIED, 7);
    let users = [
        socket(&cx, &bsd, (AF_INET, Sock::Dgram, 17), Some(any)),
        socket(&cx, &bsd, (AF_APPLETALK, Sock::Dgram, 0), at(129)),
        socket(&cx, &bsd, (AF_APPLETALK, Sock::Dgram, 3), at(130)),
        socket(&cx, &bsd, (AF_APPLETALK, Sock::Raw, 2), None),
    ];
    while let Some((how, octets)) = script.step() {
        let octets = match how % 12 {
            0 => octets.to_vec(),
            1 => frame(0x0800, &[], octets),
            2 => frame(0x0800, &[], &ip(17, 0, octets)),
            3 if how & 0x80 != 0 => {
                let off = u16::from(how) << 9;
                frame(0x0800, &[], &ip_to([10, 0, 0, 3], 17, off, octets))
            }
            3 => frame(0x0800, &[], &ip(1, 0, octets)),
            4 => frame(0x0800, &[], &ip(17, u16::from(how) << 8 | u16::from(how >> 4), octets)),
            5 => frame(0x0806, &[], octets),
            6 => frame(0, &AARP, octets),
            7 => frame(0, &DDP, octets),
            8 => frame(0, &DDP, &ddp(how >> 4, 130, octets)),
            9 => frame(0, &DDP, &ddp(how >> 4 & 7, socket_of(how), octets)),
            10 => {
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
        assert!(!bsd.is_splnet(), "the lock is free between frames");
        assert!(i64::from(bsd.mbufs().mbstat().in_use) <= MBUFS, "mbufs are bounded");
    }
    for so in &users {
        let _ = soclose(&cx, so);
    }
    drop(users);
    cx.stop();
    drop(bottom.take_sent());
    assert_eq!(bsd.mbufs().mbstat().in_use, 0, "mbufs are left");
    drop(bsd);
    assert_eq!(cx.live(), (0, 0), "messages are left");
}

/// One action of a user: receives and answers, or sends.
fn act(cx: &Kernel, users: &[Rc<Socket>; 4], which: u8, octets: &[u8]) {
    let so = &users[usize::from(which) % users.len()];
    let mbufs = so.bsd().mbufs();
    if which & 8 == 0 {
        let Ok(got) = soreceive(cx, so, Sink::Chain(usize::MAX), 0) else { return };
        let mut control = got.control;
        if let Some(kind) = control.as_mut().and_then(|m| m.mtod_mut()?.first_mut()) {
            // A request becomes a reply.
            *kind = kind.wrapping_add(1);
        }
        if let Some(m) = got.m {
            let _ = sosend(cx, so, got.nam, Uio::Top(m), control, 0);
        }
        return;
    }
    let to = match so.so_proto.sw.pr_domain {
        AF_INET => Sockaddr::inet(Release::Bsd43, Ipv4Addr::new(10, 0, 0, 2), 7),
        _ => Sockaddr::appletalk(Release::Bsd43, 10, 18, 130),
    };
    let (front, rest) = octets.split_at(octets.len().min(12));
    let control = mbufs.m_copyin(Mt::Control, front).ok().filter(|_| front.len() == 12);
    let nam = (so.so_proto.sw.pr_type != Sock::Raw).then(|| to.to_mbuf(mbufs)).transpose();
    if let Ok(nam) = nam {
        let _ = sosend(cx, so, nam, Uio::Octets(rest), control, 0);
    }
}
