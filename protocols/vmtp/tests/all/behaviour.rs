//! A client and a server, packet by packet.

use crate::net::*;
use core::time::Duration;
use std::rc::Rc;
use xk_core::object::{CallCause, Rejection};
use xk_core::shepherd::Semaphore;
use xk_core::{Kernel, Part, Participant, Participants, ProtocolRef, Time, Upper, reason};
use xk_kit::rpc::call::{BUSY, CallOptions, Gather, NO_PROCEDURE, PROCEDURE};
use xk_testkit::kernel::{Addressing, Bottom, Losses, Lower, Sent, octets as octets_in};
use xk_vmtp::wire::{
    APG, BARE_OCTETS, CRE, DGM, EPG, Entity, HEADER_OCTETS, Header, NER, PIC, RESPONSE, SDA, STI,
    Sums, code, operation,
};
use xk_vmtp::{
    ENTRY, FORGED_DELIVERY, NO_ENTITY, NO_STREAM, NO_TRANSACTION, REPLAYED, SECURE, Settings,
    UNVERIFIED,
};

fn octets_of(sent: &Sent) -> Vec<u8> {
    octets_in(&sent.message)
}

/// A packet with its checksum.
fn packet(header: &Header, data: &[u8]) -> Vec<u8> {
    let mut octets = header.emit().to_vec();
    let mut sums = Sums::of(octets.first_chunk().unwrap());
    sums.add(data);
    octets.extend_from_slice(data);
    octets.extend_from_slice(&sums.finish());
    octets
}

/// A packet as a line: the direction, and what it is.
fn line(frame: &Frame) -> String {
    let header = frame.header();
    let way = if frame.from == 0 { "->" } else { "<-" };
    let what = match (header.server == Entity::MANAGERS, header.is_response()) {
        (true, true) => "probe answered".into(),
        (true, false) => match header.plain_code() {
            operation::PROBE_ENTITY => "probe".into(),
            operation::NOTIFY_CLIENT => {
                format!("notify client {} held {:x}", header.user[6], header.user[5])
            }
            operation::NOTIFY_SERVER => {
                format!("notify server {} held {:x}", header.user[6], header.user[5])
            }
            other => format!("operation {other:x}"),
        },
        (false, is_response) => {
            let kind = if is_response { "response" } else { "request" };
            let apg = if header.wants_answer() { " APG" } else { "" };
            format!("{kind} blocks {:x} round {}{apg}", header.delivery, header.round())
        }
    };
    format!("{way} {what}")
}

/// Lines of the packets since the last look.
fn lines(net: &mut Net) -> Vec<String> {
    net.log.drain(..).map(|frame| line(&frame)).collect()
}

/// A client and a server that know each other.
fn acquainted(settings: Settings) -> (Net, Rc<core::cell::Cell<u32>>, xk_core::SessionRef) {
    let count = Rc::default();
    let client = boot(1, ethernet(CLIENT), settings, nothing());
    let server = boot(2, ethernet(SERVER), settings, echo(&count));
    let mut net = Net::new(vec![client, server]);
    let session = net.hosts[0].open(3, SERVER);
    let outcome = net.hosts[0].call(&session, b"hello");
    assert_eq!(net.done(&outcome).as_deref(), Ok(&b"hello"[..]));
    net.log.clear();
    count.set(0);
    (net, count, session)
}

fn one() -> Settings {
    Settings { entities: 1, ..config() }
}

#[test]
fn every_length_comes_back() {
    let (mut net, count) = pair();
    let session = net.hosts[0].open(3, SERVER);
    let lengths =
        [0, 1, 7, 8, 19, 20, 21, 511, 512, 513, 1024, 1025, 16_383, 16_384, 16_385, 70_000];
    for (calls, len) in lengths.into_iter().enumerate() {
        let request = pattern(len, 3);
        let outcome = net.hosts[0].call(&session, &request);
        assert_eq!(net.done(&outcome).as_deref(), Ok(&request[..]), "{len} octets");
        assert_eq!(count.get() as usize, calls + 1);
    }
    drop(session);
    net.stop();
}

#[test]
fn the_first_call_costs_one_question() {
    let (mut net, count) = pair();
    let session = net.hosts[0].open(3, SERVER);
    for _ in 0..2 {
        let outcome = net.hosts[0].call(&session, b"abc");
        assert!(net.done(&outcome).is_ok());
    }
    let expected = [
        "-> request blocks 1 round 0",
        "<- probe",
        "-> probe answered",
        "<- response blocks 1 round 0",
        "-> request blocks 1 round 0",
        "<- response blocks 1 round 0",
    ];
    assert_eq!(lines(&mut net), expected);
    assert_eq!(count.get(), 2);
    drop(session);
    net.stop();
}

#[test]
fn a_lost_request_and_a_lost_response_are_asked_for() {
    let (mut net, count, session) = acquainted(one());
    for lost in ["-> request blocks 1 round 0", "<- response blocks 1 round 0"] {
        let outcome = net.hosts[0].call(&session, b"abc");
        net.finish(&outcome, &mut |frame| if line(frame) == lost { vec![] } else { vec![PASS] });
        assert!(outcome.get().is_ok());
        let mut seen = lines(&mut net);
        seen.retain(|line| line != lost);
        let first = "-> request blocks 1 round 0";
        let again = "-> request blocks 1 round 1 APG";
        let rest: Vec<&str> = seen.iter().map(String::as_str).filter(|l| *l != first).collect();
        match lost == first {
            // The answer to APG, then the response.
            true => assert_eq!(rest[0], again),
            false => assert_eq!(rest, [again, "<- response blocks 1 round 1"]),
        }
    }
    assert_eq!(count.get(), 2, "each is executed once");
    drop(session);
    net.stop();
}

#[test]
fn only_missing_blocks_go_again() {
    let (mut net, count, session) = acquainted(one());
    let request = pattern(8_000, 1);
    let outcome = net.hosts[0].call(&session, &request);
    let mut lost = vec!["-> request blocks c round 0", "<- response blocks 300 round 1"];
    net.finish(&outcome, &mut |frame| match lost.iter().position(|l| *l == line(frame)) {
        Some(at) => {
            lost.remove(at);
            vec![]
        }
        None => vec![PASS],
    });
    assert_eq!(outcome.get().as_deref(), Ok(&request[..]));
    assert!(lost.is_empty());
    let seen = lines(&mut net);
    let at = |text: &str| {
        seen.iter().position(|l| l == text).unwrap_or_else(|| panic!("{text}: {seen:?}"))
    };
    assert!(at("<- notify client 1 held fff3") < at("-> request blocks c round 1"));
    assert!(at("-> notify server 1 held fcff") < at("<- response blocks 300 round 1 APG"));
    let requests = seen.iter().filter(|l| l.starts_with("-> request")).count();
    let responses = seen.iter().filter(|l| l.starts_with("<- response")).count();
    assert_eq!((requests, responses, count.get()), (9, 9, 1));
    drop(session);
    net.stop();
}

#[test]
fn a_run_of_groups_goes_group_by_group() {
    let (mut net, _, session) = acquainted(one());
    let request = pattern(40_000, 1);
    let outcome = net.hosts[0].call(&session, &request);
    assert_eq!(net.done(&outcome).as_deref(), Ok(&request[..]));
    let transactions: Vec<u32> = net
        .log
        .iter()
        .map(Frame::header)
        .filter(|h| h.server != Entity::MANAGERS && !h.is_response())
        .map(|h| h.transaction)
        .collect();
    let first = transactions[0];
    assert!(transactions.is_sorted() && transactions.last() == Some(&(first + 2)));
    let notices = lines(&mut net).iter().filter(|l| l.starts_with("<- notify client 0")).count();
    assert!((2..=3).contains(&notices), "each group is acknowledged: {notices}");
    drop(session);
    net.stop();
}

#[test]
fn a_server_that_works_says_so_and_its_client_waits() {
    let slow: Procedure = Rc::new(|cx, _, request| {
        let _ = cx.wait(&Semaphore::new(0), Some(Duration::from_secs(20)));
        Ok(request)
    });
    let client = boot(1, ethernet(CLIENT), one(), nothing());
    let server = boot(2, ethernet(SERVER), one(), slow);
    let mut net = Net::new(vec![client, server]);
    let session = net.hosts[0].open(3, SERVER);
    let outcome = net.hosts[0].call(&session, b"abc");
    assert_eq!(net.done(&outcome).as_deref(), Ok(&b"abc"[..]));
    let seen = lines(&mut net);
    let asked = seen.iter().filter(|l| l.starts_with("-> request")).count();
    assert!((5..=16).contains(&asked), "asked {asked} times in 20 s");
    drop(session);
    net.stop();
}

#[test]
fn silence_ends_a_call_and_a_refusal_does_at_once() {
    let (mut net, _, session) = acquainted(one());
    let outcome = net.hosts[0].call(&session, b"abc");
    net.finish(&outcome, &mut |_| vec![]);
    assert_eq!(outcome.get().unwrap_err().cause, CallCause::TimedOut { tries: 8 });
    assert!(outcome.at.get() < Time::ZERO.after(Duration::from_secs(8)));
    drop(session);
    net.stop();
    // A server that serves nothing.
    let hosts = [CLIENT, SERVER].map(|host| boot(1, ethernet(host), config(), nothing()));
    let mut net = Net::new(hosts.into());
    let session = net.hosts[0].open(3, SERVER);
    let outcome = net.hosts[0].call(&session, b"abc");
    let error = net.done(&outcome).unwrap_err();
    assert_eq!(error.cause, CallCause::Rejected(Rejection::new(&NO_PROCEDURE)));
    drop(session);
    net.stop();
}

#[test]
fn a_datagram_is_executed_and_not_answered() {
    let (mut net, count, session) = acquainted(one());
    for len in [3, 5_000] {
        let message = net.hosts[0].cx.message(&pattern(len, 1));
        let to = session.clone();
        net.hosts[0].spawn(move |cx| assert_eq!(to.push(cx, message), Ok(())));
        let until = net.now.after(Duration::from_secs(3));
        net.run_until(until, &mut |_| vec![PASS, PASS]);
        assert!(net.log.iter().all(|frame| frame.from == 0 && frame.header().has(DGM)));
    }
    assert_eq!(count.get(), 2);
    drop(session);
    net.stop();
}

#[test]
fn an_unknown_client_s_datagram_is_asked_about() {
    let (mut net, count) = pair();
    let session = net.hosts[0].open(3, SERVER);
    let message = net.hosts[0].cx.message(b"abc");
    let to = session.clone();
    net.hosts[0].spawn(move |cx| assert_eq!(to.push(cx, message), Ok(())));
    let until = net.now.after(Duration::from_secs(3));
    net.run_until(until, &mut |_| vec![PASS]);
    let expected = ["-> request blocks 1 round 0", "<- probe", "-> probe answered"];
    assert_eq!(lines(&mut net), expected);
    assert_eq!(count.get(), 1);
    drop(session);
    net.stop();
}

#[test]
fn idempotent_requests_are_executed_again() {
    let (mut net, count, session) = acquainted(Settings { idempotent: true, ..one() });
    let outcome = net.hosts[0].call(&session, b"abc");
    let mut responses = 0;
    net.finish(&outcome, &mut |frame| {
        let is_response = frame.header().is_response();
        responses += u32::from(is_response);
        if is_response && responses == 1 { vec![] } else { vec![PASS] }
    });
    assert!(outcome.get().is_ok());
    assert_eq!(count.get(), 2, "the response was not kept");
    drop(session);
    net.stop();
}

/// A request of a client entity that no host has.
fn forged(transaction: u32) -> Header {
    Header {
        client: Entity::new(0x0800_0007, CLIENT.to_bits()),
        domain: 1 << 16,
        control: STI,
        transaction,
        server: Entity::new(1, SERVER.to_bits()),
        code: SDA | 3,
        user: [0, 0, 0, 0, 0, 0, 8],
        ..Header::default()
    }
    .with_data(1, 8)
}

fn pass_for(net: &mut Net, time: Duration) {
    let until = net.now.after(time);
    net.run_until(until, &mut |_| vec![PASS]);
}

#[test]
fn a_forged_source_executes_nothing() {
    let (mut net, count) = pair();
    for transaction in 0..100 {
        net.inject(0, 1, packet(&forged(transaction), b"12345678"));
    }
    pass_for(&mut net, Duration::from_secs(10));
    assert_eq!(count.get(), 0);
    assert!(net.hosts[1].dropped(&UNVERIFIED) > 0);
    // No more octets than came, for each of them.
    let sent: usize = net.log.iter().filter(|f| f.from == 1).map(|f| f.octets.len()).sum();
    assert!(sent <= 2 * 100 * packet(&forged(0), b"12345678").len(), "{sent}");
    net.stop();
}

#[test]
fn secure_transactions_are_refused() {
    let (mut net, count) = pair();
    let header = Header { domain: 1 << 16 | EPG, control: APG, ..forged(1) }.with_data(1, 8);
    net.inject(0, 1, packet(&header, b"12345678"));
    pass_for(&mut net, Duration::from_secs(1));
    assert_eq!((count.get(), net.hosts[1].dropped(&SECURE)), (0, 1));
    let notice = net.log[0].header();
    assert_eq!(notice.code, DGM | CRE | PIC | operation::NOTIFY_CLIENT);
    assert_eq!(notice.user[6], code::SECURITY_NOT_SUPPORTED);
    net.stop();
}

#[test]
fn packets_cut_at_any_length_are_dropped() {
    let (mut net, count, session) = acquainted(one());
    let whole = packet(&forged(1), b"12345678");
    for len in 0..whole.len() {
        net.inject(0, 1, whole[..len].to_vec());
        net.inject(1, 0, whole[..len].to_vec());
    }
    pass_for(&mut net, Duration::from_secs(1));
    assert!(net.log.is_empty() && count.get() == 0);
    let dropped =
        |host: &Host| host.dropped(&reason::TRUNCATED) + host.dropped(&reason::BAD_LENGTH);
    assert_eq!([0, 1].map(|at| dropped(&net.hosts[at])), [whole.len() as u64; 2]);
    drop(session);
    net.stop();
}

#[test]
fn storms_of_one_packet_are_answered_once_a_round() {
    let (mut net, count, session) = acquainted(one());
    let outcome = net.hosts[0].call(&session, &pattern(5_000, 2));
    assert!(net.done(&outcome).is_ok());
    let request = net.log.iter().find(|f| f.from == 0).unwrap().header();
    net.log.clear();
    let probe = Header { control: request.control | APG, ..request }.with_data(0, 0).with_round(1);
    for _ in 0..1_000 {
        net.inject(0, 1, packet(&probe, &[]));
    }
    pass_for(&mut net, Duration::from_millis(5));
    let packets = net.log.iter().filter(|f| f.from == 1).count();
    assert!(packets <= 5, "one response of five packets: {packets}");
    assert_eq!((count.get(), net.hosts[1].dropped(&REPLAYED) > 900), (1, true));
    // Questions for a response.
    net.log.clear();
    let [c, s] = [request.client.0, request.server.0];
    let user = [
        (s >> 32) as u32,
        s as u32,
        (c >> 32) as u32,
        c as u32,
        request.transaction,
        0,
        code::RETRY,
    ];
    let notice = Header {
        client: request.client,
        domain: 1 << 16,
        server: Entity::MANAGERS,
        code: DGM | CRE | PIC | operation::NOTIFY_SERVER,
        user,
        ..Header::default()
    };
    for _ in 0..1_000 {
        net.inject(0, 1, packet(&notice, &[]));
    }
    pass_for(&mut net, Duration::from_millis(5));
    let packets = net.log.iter().filter(|f| f.from == 1).count();
    assert!(packets <= 10, "two responses at most: {packets}");
    drop(session);
    net.stop();
}

#[test]
fn a_server_that_asks_for_blocks_for_ever_ends_the_call() {
    let (mut net, _, session) = acquainted(one());
    let outcome = net.hosts[0].call(&session, &pattern(5_000, 2));
    net.run_until(net.now, &mut |_| vec![]);
    let request = net.log.iter().find(|f| f.from == 0).unwrap().header();
    let [id, host] = [(request.client.0 >> 32) as u32, request.client.0 as u32];
    for round in 0..1_000 {
        // Masks that change tell nothing new.
        let (control, held) = (request.with_round(round).control, 1 << (round & 1));
        let notice = Header {
            client: Entity::new(9, SERVER.to_bits()),
            domain: 1 << 16,
            server: Entity::MANAGERS,
            code: DGM | CRE | PIC | operation::NOTIFY_CLIENT,
            user: [id, host, control, 0, request.transaction, held, code::RETRY],
            ..Header::default()
        };
        net.inject(1, 0, packet(&notice, &[]));
        net.run_until(net.now, &mut |frame| if frame.from == 0 { vec![] } else { vec![PASS] });
    }
    let error = outcome.get().unwrap_err();
    assert!(matches!(error.cause, CallCause::TimedOut { .. }), "{error}");
    let packets = net.log.iter().filter(|f| f.from == 0).count();
    assert!(packets <= 60, "{packets} packets");
    drop(session);
    net.stop();
}

#[test]
fn masks_that_lie_cost_their_packet_alone() {
    let (mut net, count, session) = acquainted(one());
    let outcome = net.hosts[0].call(&session, b"abc");
    assert!(net.done(&outcome).is_ok());
    let last = net.log.iter().find(|f| f.from == 0).unwrap().header();
    let size = 5_000;
    let base =
        Header { transaction: last.transaction + 256, user: [0, 0, 0, 0, 0, 0, size], ..last };
    let lies: [(u32, usize); 5] =
        [(0x8000_0000, 512), (3, 512), (1, 1024), (0xffff_ffff, 5_000), (0x400, 512)];
    for (mask, octets) in lies {
        net.inject(0, 1, packet(&base.with_data(mask, octets), &vec![7; octets]));
    }
    pass_for(&mut net, Duration::from_millis(5));
    assert_eq!(net.hosts[1].dropped(&FORGED_DELIVERY), 5);
    assert_eq!(count.get(), 1);
    // The next call goes as before.
    let outcome = net.hosts[0].call(&session, b"abc");
    assert!(net.done(&outcome).is_ok());
    drop(session);
    net.stop();
}

#[test]
fn strays_of_every_kind_are_counted() {
    let (mut net, _) = pair();
    let response = Header { control: RESPONSE, ..forged(1) };
    let other = Header { server: Entity::new(1, 0x0a00_0009), ..forged(1) };
    let user = [0x0800_0007, CLIENT.to_bits(), 0, 0, 5, 0, code::OK];
    let notice = |operation| Header {
        server: Entity::MANAGERS,
        code: DGM | CRE | PIC | operation,
        user,
        ..forged(1)
    };
    net.inject(0, 1, packet(&response, b"12345678"));
    net.inject(0, 1, packet(&other, b"12345678"));
    for operation in [operation::NOTIFY_CLIENT, operation::NOTIFY_SERVER] {
        net.inject(0, 1, packet(&notice(operation).with_data(0, 0), &[]));
    }
    net.inject(0, 1, packet(&notice(0x105).with_data(0, 0), &[]));
    pass_for(&mut net, Duration::from_secs(1));
    let server = &net.hosts[1];
    assert_eq!(server.dropped(&NO_ENTITY), 2);
    assert_eq!(server.dropped(&NO_TRANSACTION), 2);
    assert_eq!(server.dropped(&xk_vmtp::UNKNOWN_OPERATION), 1);
    assert!(net.log.is_empty(), "nothing is answered");
    assert_eq!(BARE_OCTETS, HEADER_OCTETS + 4);
    net.stop();
}

#[test]
fn a_full_table_takes_no_new_clients() {
    let settings = Settings { records_max: 1, entities: 2, ..config() };
    let (mut net, count, session) = acquainted(settings);
    // The record of the first client may not go: its response is not acknowledged.
    let other = net.hosts[0].open(4, SERVER);
    let blocked = net.hosts[0].call(&session, b"abc");
    let second = net.hosts[0].call(&other, b"abc");
    net.finish(&blocked, &mut |_| vec![PASS]);
    net.finish(&second, &mut |_| vec![PASS]);
    let error = second.get().unwrap_err();
    assert_eq!(error.cause, CallCause::Rejected(Rejection::new(&BUSY)));
    assert_eq!(count.get(), 1);
    drop((session, other));
    net.stop();
}

#[test]
fn gaps_keep_packets_apart() {
    let settings = Settings { gap: 32, ..one() };
    let (mut net, _, session) = acquainted(settings);
    let began = net.now;
    let outcome = net.hosts[0].call(&session, &pattern(8_000, 1));
    assert!(net.done(&outcome).is_ok());
    // Eight packets each way, 1.2 ms apart.
    let took = outcome.at.get().since(began);
    assert!(took >= Duration::from_micros(14 * 1_200), "{took:?}");
    drop(session);
    net.stop();
}

#[test]
fn losses_of_many_packets_make_the_gap_longer_and_those_of_one_do_not() {
    for (every, is_longer) in [(16, false), (3, true)] {
        let (mut net, _, session) = acquainted(one());
        let mut gap = 0;
        for _ in 0..10 {
            net.log.clear();
            let (outcome, mut sent) = (net.hosts[0].call(&session, &pattern(16_384, 1)), 0);
            net.finish(&outcome, &mut |frame| {
                let is_first = frame.from == 0 && frame.header().round() == 0;
                sent += u32::from(is_first);
                if is_first && sent % every == 1 { vec![] } else { vec![PASS] }
            });
            assert!(outcome.get().is_ok());
            gap = net.log.iter().filter(|f| f.from == 0).map(|f| f.header().gap()).max().unwrap();
        }
        assert_eq!(gap > 0, is_longer, "{gap}");
        drop(session);
        net.stop();
    }
}

const THIRD: core::net::Ipv4Addr = core::net::Ipv4Addr::new(10, 0, 0, 3);

#[test]
fn a_request_passed_on_is_answered_by_the_other_server() {
    for seed in 0..40 {
        let count = Rc::default();
        let client = boot(1, ethernet(CLIENT), one(), nothing());
        let front = forwarding(2, ethernet(SERVER), THIRD);
        let back = boot(3, ethernet(THIRD), one(), echo(&count));
        let mut net = Net::new(vec![client, front, back]);
        let session = net.hosts[0].open(3, SERVER);
        let random = xk_core::random::Random::new(seed);
        for (calls, len) in [3, 20, 5_000, 40_000, 0].into_iter().enumerate() {
            let request = pattern(len, 5);
            let outcome = net.hosts[0].call(&session, &request);
            let loss = if seed == 0 { 0.0 } else { 0.1 };
            net.finish(&outcome, &mut |_| match random.chance(loss) {
                true => vec![],
                false if random.chance(loss) => vec![PASS, Duration::from_millis(1)],
                false => vec![PASS],
            });
            assert_eq!(outcome.get().as_deref(), Ok(&request[..]), "seed {seed}, {len} octets");
            assert_eq!(count.get() as usize, calls + 1, "each is executed once");
        }
        let answered = |f: &&Frame| f.header().is_response() && f.header().has(SDA);
        assert!(net.log.iter().filter(answered).all(|f| (f.from, f.to) == (2, 0)));
        drop(session);
        net.stop();
    }
}

#[test]
fn requests_that_go_round_are_refused() {
    let client = boot(1, ethernet(CLIENT), one(), nothing());
    let one_way = forwarding(2, ethernet(SERVER), THIRD);
    let other_way = forwarding(3, ethernet(THIRD), SERVER);
    let mut net = Net::new(vec![client, one_way, other_way]);
    let session = net.hosts[0].open(3, SERVER);
    let outcome = net.hosts[0].call(&session, b"abc");
    let error = net.done(&outcome).unwrap_err();
    assert_eq!(error.cause, CallCause::Rejected(Rejection::new(&xk_vmtp::LOOPED)));
    let passed = net.log.iter().map(Frame::header).map(|h| h.forwards()).max();
    assert_eq!(passed, Some(15));
    drop(session);
    net.stop();
}

#[test]
fn a_group_s_responses_are_gathered() {
    let counts: [Rc<core::cell::Cell<u32>>; 2] = Default::default();
    let client = boot(1, ethernet(CLIENT), one(), nothing());
    let servers = [(2, SERVER, &counts[0]), (3, THIRD, &counts[1])];
    let mut hosts = vec![client];
    hosts.extend(servers.map(|(seed, host, count)| boot(seed, ethernet(host), one(), echo(count))));
    let mut net = Net::new(hosts);
    let session = net.hosts[0].open(3, core::net::Ipv4Addr::new(224, 1, 2, 3));
    let ask = |net: &mut Net, what: Gather| {
        let mut request = net.hosts[0].cx.message(&pattern(3_000, 1));
        let deadline = Time::ZERO.after(Duration::from_secs(5));
        request.set_attribute(CallOptions { deadline, tag: 7 }).unwrap();
        request.set_attribute(what).unwrap();
        let outcome = net.hosts[0].call_with(&session, request);
        // The first packet to the third host is lost.
        let mut is_first = what == Gather::First;
        net.finish(&outcome, &mut |frame| {
            let lost = frame.to == 2 && core::mem::take(&mut is_first);
            if lost { vec![] } else { vec![PASS] }
        });
        outcome.get()
    };
    for what in [Gather::First, Gather::Next] {
        assert_eq!(ask(&mut net, what).as_deref(), Ok(&pattern(3_000, 1)[..]));
    }
    let error = ask(&mut net, Gather::Next).unwrap_err();
    assert!(matches!(error.cause, CallCause::TimedOut { .. }), "{error}");
    assert_eq!(counts.map(|count| count.get()), [1, 1]);
    // A plain call ends with the first response.
    let outcome = net.hosts[0].call(&session, b"abc");
    assert_eq!(net.done(&outcome).as_deref(), Ok(&b"abc"[..]));
    drop(session);
    net.stop();
}

#[test]
fn a_question_that_is_lost_executes_nothing_twice_and_leaves_nothing_wrong() {
    for len in [3, 5_000] {
        let mut put = usize::MAX;
        let mut nth = 0;
        while nth < put {
            let (mut net, count) = pair();
            let losses = Losses::among(&net.hosts[1].cx, Some(nth));
            losses.count(true);
            let session = net.hosts[0].open(3, SERVER);
            for calls in 1..=2 {
                let request = pattern(len, 3);
                let outcome = net.hosts[0].call(&session, &request);
                // The first response is lost, so that its request comes again.
                let mut is_first = true;
                net.finish(&outcome, &mut |frame| match frame.header() {
                    header if header.is_response() && header.server != Entity::MANAGERS => {
                        if core::mem::take(&mut is_first) {
                            vec![]
                        } else {
                            vec![PASS]
                        }
                    }
                    _ => vec![PASS],
                });
                let lost = losses.lost();
                assert_eq!(outcome.get().as_deref(), Ok(&request[..]), "lost: {lost:?}");
                assert_eq!(count.get(), calls, "each is executed once; lost: {lost:?}");
            }
            put = losses.put();
            nth += 1;
            drop(session);
            net.stop();
        }
        assert!(put > 2, "{put} questions");
    }
}

#[test]
fn a_client_of_one_station_is_not_that_of_another() {
    let [a, b, own] = [1, 3, 2].map(|last| [2, 0, 0, 0, 0, last]);
    let count = Rc::default();
    let host = boot(1, Lower::ether(own), config(), echo(&count));
    // Both stations claim the same entity: the last octets of their addresses may be the same.
    let request = |transaction| Header {
        client: Entity::new(0x0800_0007, 1),
        server: Entity::new(1, 2),
        ..forged(transaction)
    };
    let arrive = |from: [u8; 6], octets: Vec<u8>| {
        let bottom = host.bottom.clone();
        host.spawn(move |cx| {
            let message = cx.pool().copy_from(128, &octets).unwrap();
            bottom.inject(cx, Some(Part::Ether(from)), message);
        });
        let header =
            |sent: Sent| (sent.peer, Header::parse(octets_of(&sent).first_chunk().unwrap()));
        host.bottom.take_sent().into_iter().map(header).collect::<Vec<_>>()
    };
    let sent = arrive(a, packet(&request(5), b"12345678"));
    let (to, probe) = sent[0];
    assert_eq!((to, probe.plain_code()), (Some(Part::Ether(a)), operation::PROBE_ENTITY));
    let answer = Header { control: RESPONSE, code: code::OK, user: [5, 0, 0, 0, 0, 0, 0], ..probe };
    let sent = arrive(a, packet(&answer, &[]));
    assert_eq!((count.get(), sent.len()), (1, 1), "executed and answered");
    // A newer one of the other station is asked about there, and not executed.
    let sent = arrive(b, packet(&request(500), b"12345678"));
    let (to, probe) = sent[0];
    assert_eq!((to, probe.plain_code()), (Some(Part::Ether(b)), operation::PROBE_ENTITY));
    assert_eq!(count.get(), 1);
    host.stop();
}

#[test]
fn two_layers_of_a_host_have_clients_of_other_names() {
    let lower = || Lower { addressing: Addressing::Link, ..ethernet(CLIENT) };
    let mut other = None;
    let add = |cx: &Kernel, bottom: ProtocolRef| {
        let second = Bottom::add(cx, "second", lower());
        let layer = xk_vmtp::add(cx, "other", second.protocol().clone(), config());
        other = Some((second, layer));
        xk_vmtp::add(cx, "vmtp", bottom, config())
    };
    let host = Host::boot(1, lower(), &ENTRY, add, nothing());
    let (second, layer) = other.unwrap();
    let named = |layer: &ProtocolRef, bottom: &Bottom| {
        let both =
            Participants::pair(Participant::new(), Participant::of(Part::Number(PROCEDURE, 3)));
        let session = layer.open(&host.cx, Upper::new(&host.app), both).unwrap();
        host.spawn(move |cx| session.push(cx, cx.pool().copy_from(128, b"abc").unwrap()).unwrap());
        let sent = bottom.take_sent();
        Header::parse(octets_of(&sent[0]).first_chunk().unwrap()).client
    };
    let names = [named(&host.layer, &host.bottom), named(&layer, &second)];
    assert_ne!(names[0], names[1]);
    drop((second, layer));
    host.stop();
}

#[test]
fn a_stream_of_transactions_is_refused() {
    let (mut net, count, session) = acquainted(one());
    let outcome = net.hosts[0].call(&session, b"abc");
    assert!(net.done(&outcome).is_ok());
    let last = net.log.iter().find(|f| f.from == 0).unwrap().header();
    net.log.clear();
    let user = [0, 0, 0, 0, 0, 0, 8];
    let first = Header { transaction: last.transaction + 256, control: NER, user, ..last };
    net.inject(0, 1, packet(&first.with_data(1, 8), b"12345678"));
    pass_for(&mut net, Duration::from_secs(1));
    assert_eq!((count.get(), net.hosts[1].dropped(&NO_STREAM)), (1, 1));
    assert_eq!(net.log[0].header().user[6], code::STREAMING_NOT_SUPPORTED);
    drop(session);
    net.stop();
}

/// Duration of a call whose first packet is lost, and requests that it sends; packets take `delay`
/// each way, and the call is the last of `calls`.
fn recovery(delay: Duration, calls: u32) -> (Duration, usize) {
    let settings = Settings { entities: 1, timers: Some(xk_vmtp::FAR), ..Settings::default() };
    let (mut net, _, session) = acquainted(settings);
    let mut took = Duration::ZERO;
    for call in 0..calls {
        net.log.clear();
        let began = net.now;
        let outcome = net.hosts[0].call(&session, b"abc");
        let mut is_lost = call + 1 == calls;
        net.finish(&outcome, &mut |_| match core::mem::take(&mut is_lost) {
            true => vec![],
            false => vec![delay],
        });
        took = outcome.at.get().since(began);
    }
    let requests = net.log.iter().filter(|f| f.from == 0 && !f.header().is_response());
    let requests = requests.filter(|f| f.header().server != Entity::MANAGERS).count();
    drop(session);
    net.stop();
    (took, requests)
}

#[test]
fn waits_follow_the_round_trips_that_are_measured() {
    // Of a peer of which nothing is known half a second is waited.
    let ms = Duration::from_millis;
    let (unknown, _) = recovery(ms(20), 1);
    let (known, requests) = recovery(ms(20), 40);
    assert!(unknown >= ms(500) && known < ms(250) && known >= ms(140), "{unknown:?}, {known:?}");
    assert_eq!(requests, 2);
    // A way that takes longer than the first wait: in the end nothing goes in vain.
    let (known, requests) = recovery(ms(400), 40);
    assert!(known > ms(1_600) && requests <= 2, "{known:?}, {requests} requests");
}
