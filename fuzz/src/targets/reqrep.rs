//! REQUEST.REPLY: the codec, and the layer between a server above and whatever comes from below.

use crate::harness::{Rig, Script, integers};
use core::cell::Cell;
use core::net::Ipv4Addr;
use core::time::Duration;
use std::rc::Rc;
use xk_core::{HostAddr, Kernel, Message, Part, Participants, SessionRef, reason};
use xk_kit::net::attribute::Peer;
use xk_kit::rpc::call::{CallOptions, Gather};
use xk_reqrep::wire::{HEADER_OCTETS, Header};
use xk_testkit::kernel::{Lower, Top};

const OWN: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const CLIENT: Part = Part::Host(HostAddr::v4(Ipv4Addr::new(192, 0, 2, 2)));
const MANY: Part = Part::Host(HostAddr::v4(Ipv4Addr::BROADCAST));
/// Number of hosts that may reply.
const REPLIES_MAX: usize = 5;

/// Parses `data` as a header, writes it again and compares.
pub(crate) fn wire(data: &[u8]) {
    let Some(octets) = data.first_chunk::<HEADER_OCTETS>() else {
        return;
    };
    if let Ok(header) = Header::parse(octets) {
        assert_eq!(header.emit(), *octets, "the header changed");
    }
}

/// A request to many, or one for the next reply.
fn gathering(cx: &Kernel, what: Gather) -> Option<Message> {
    let mut request = cx.pool().copy_from(128, b"who is there?").ok()?;
    let deadline = cx.now().after(Duration::from_secs(60));
    request.set_attribute(CallOptions { deadline, tag: 1 }).ok()?;
    request.set_attribute(what).ok()?;
    Some(request)
}

/// Takes the replies that have come and answers how many they are: each host's once.
fn replies(cx: &Kernel, session: &SessionRef) -> u64 {
    let mut hosts: Vec<HostAddr> = Vec::new();
    while let Some(next) = gathering(cx, Gather::Next)
        && let Ok(reply) = session.call(cx, next)
    {
        hosts.extend(reply.attribute::<Peer>().map(|peer| peer.host));
    }
    let count = hosts.len();
    assert!(count <= REPLIES_MAX, "too many hosts");
    hosts.sort_unstable();
    hosts.dedup();
    assert_eq!(hosts.len(), count, "one host has replied twice");
    count as u64
}

/// Lets `data` arrive as messages, each behind an octet of its length: at a server with a cache of
/// few replies; and as replies, each of the host that its last octet names, at a client that has
/// called many.
pub(crate) fn stack(data: &[u8]) {
    let params =
        integers(&[("dupcache", 4), ("sessions_max", 4), ("replies_max", REPLIES_MAX as i64)]);
    let rig = Rig::new(Lower::host(OWN, 103), 16, &xk_reqrep::ENTRY, &params);
    let (server, client) = (Top::add(&rig.cx, "server"), Top::add(&rig.cx, "client"));
    server.forget(true);
    server.on_serve(Some(Rc::new(|_, _, request| match request.is_empty() {
        true => Err(&reason::TRUNCATED),
        false => Ok(request),
    })));
    // The number of the latest request.
    let xid = Rc::new(Cell::new([0; 4]));
    let seen = Rc::clone(&xid);
    rig.bottom.keep(false);
    rig.bottom.on_push(Rc::new(move |_, message| {
        if let Some(number) = message.peek() {
            seen.set(*number);
        }
    }));
    rig.start();
    let any = Participants::local(Part::Any);
    assert!(server.enable(&rig.cx, &rig.layer, any).is_ok(), "the number is free");
    let to_many = client.open(&rig.cx, &rig.layer, Participants::pair(Part::Any, MANY));
    let to_many = to_many.expect("a session to many");
    // No shepherd waits here: the call ends without a reply, and those that come lie there.
    if let Some(first) = gathering(&rig.cx, Gather::First) {
        assert!(to_many.call(&rig.cx, first).is_err(), "no shepherd waits");
    }
    let many = rig.below(Some(MANY));
    let script = Script::new(data);
    while let Some(octets) = script.counted() {
        rig.arrive(Some(CLIENT), octets);
        let mut answer = octets.to_vec();
        for (octet, number) in answer.iter_mut().zip(xid.get()) {
            *octet ^= number;
        }
        let host = HostAddr::from([10, 0, 0, octets.last().copied().unwrap_or_default()]);
        if let Some(mut message) = rig.message(&answer, usize::MAX)
            && message.set_attribute(Peer { host, port: 111 }).is_ok()
        {
            drop(many.pop(&rig.cx, message));
        }
    }
    let outcomes = server.served() + rig.dropped_but(&[]) + replies(&rig.cx, &to_many);
    let arrived = rig.layer.head().received();
    assert!(arrived >= outcomes, "more came out than went in: {arrived} < {outcomes}");
    to_many.close(&rig.cx);
    drop((to_many, many));
    rig.stop();
}
