//! ATP: the codec, and the layer between a server above and whatever comes from below.

use crate::harness::{Rig, Script, integers};
use core::cell::Cell;
use core::time::Duration;
use std::rc::Rc;
use xk_appletalk::atp::{HEADER_OCTETS, Header, Options};
use xk_core::{Part, Participants, reason};
use xk_kit::rpc::call::Transaction;
use xk_testkit::kernel::{Family, Lower, Top};

/// Requests that may be remembered.
const REMEMBERED: i64 = 4;

/// Parses `data` as a header and as options, writes them again and compares.
pub(crate) fn wire(data: &[u8]) {
    if let Ok(header) = Header::parse(data) {
        assert_eq!(header.emit(), data[..HEADER_OCTETS], "the header changed");
    }
    if let Ok(options) = Options::parse(data) {
        assert_eq!(Options::parse(&options.emit()), Ok(options), "the options changed");
    }
}

/// Lets `data` arrive as packets of three hosts, each behind an octet of its length, at a server
/// whose replies are as long as it finds in the request, and at a client whose call has ended; time
/// passes between.
pub(crate) fn stack(data: &[u8]) {
    let params = integers(&[("remembered", REMEMBERED), ("remembered_host", 3)]);
    let lower = Lower::host(Family::V4.host(1), 0);
    let rig = Rig::new(lower, 16, &xk_atp::ENTRY, &params);
    let server = Top::add(&rig.cx, "server");
    server.forget(true);
    let sent = Rc::new(Cell::new(0u64));
    server.on_serve(Some(Rc::new(|cx, _, request| {
        let Some(Transaction(octets)) = request.attribute() else {
            panic!("a request says what it asks for");
        };
        let asked = Options::parse(&octets).unwrap_or_else(|why| panic!("its options: {why}"));
        let len = request.peek::<2>().map_or(0, |octets| u16::from_be_bytes(*octets) % 5000);
        let mut reply = cx.pool().alloc(0, len.into()).map_err(|_| &reason::NO_BUFFERS)?;
        let beside = Options { amount: len % 700, ..asked.response(asked.user) };
        match reply.set_attribute(Transaction(beside.emit())) {
            Ok(()) if len != 1 => Ok(reply),
            _ => Err(&reason::NO_BUFFERS),
        }
    })));
    rig.bottom.keep(false);
    let count = Rc::clone(&sent);
    rig.bottom.on_push(Rc::new(move |_, message| {
        let octets: Vec<u8> = message.octets().collect();
        assert!(Header::parse(&octets).is_ok(), "what is sent has a header");
        assert!(octets.len() <= HEADER_OCTETS + 578, "and fits a packet");
        count.set(count.get() + 1);
    }));
    rig.start();
    let any = Participants::local(Part::Any);
    assert!(server.enable(&rig.cx, &rig.layer, any).is_ok(), "the participant is free");
    let to = Participants::pair(Part::Any, Part::Host(Family::V4.host(2)));
    let client = server.open(&rig.cx, &rig.layer, to).expect("a session");
    if let Some(request) = rig.message(b"request", usize::MAX) {
        assert!(client.call(&rig.cx, request).is_err(), "no shepherd waits");
    }
    let script = Script::new(data);
    while let Some((what, octets)) = script.step() {
        let host = 2 + u32::from(what % 3);
        rig.arrive(Some(Part::Host(Family::V4.host(host))), octets);
        if what & 0x80 != 0 {
            rig.cx.advance(Duration::from_secs(u64::from(what & 0x7c)));
        }
    }
    let arrived = rig.layer.head().received();
    assert!(arrived >= server.served(), "more is served than came");
    assert!(sent.get() <= 1 + 8 * arrived, "more is sent than was asked for");
    // Whatever was remembered is forgotten.
    rig.cx.advance(Duration::from_secs(482));
    client.close(&rig.cx);
    drop(client);
    rig.stop();
}
