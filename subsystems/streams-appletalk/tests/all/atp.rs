//! Transactions.

use crate::rig::{Host, Lan, receive, send};
use core::num::NonZeroU8;
use core::time::Duration;
use std::rc::Rc;
use xk_appletalk::addr::AtAddr;
use xk_appletalk::atp::{OptionKind, Options, ReleaseTimer, Want};
use xk_streams::{Errno, Stream};

const PATIENT: Want =
    Want { tries: NonZeroU8::new(200), interval: Duration::from_millis(500), ..Want::DEFAULT };

/// Sends a request; answers nothing.
fn ask(host: &Host, stream: &Stream, to: AtAddr, want: &Want, number: u16, data: &[u8]) {
    let options = Options::request(want, number).emit();
    send(&host.cx, stream, &to.to_sockaddr(), &options, data);
}

/// Executes what has come: the reply is the request's octets, so many times.
fn serve(host: &Host, stream: &Stream, times: usize) -> usize {
    let mut served = 0;
    while let Ok((from, opt, data)) = receive(&host.cx, stream) {
        let request = Options::parse(&opt).unwrap();
        assert_eq!(request.kind, OptionKind::Request);
        let reply = request.response(*b"repl").emit();
        send(&host.cx, stream, &from, &reply, &data.repeat(times));
        served += 1;
    }
    served
}

fn pair(lan: &Lan) -> (&Host, &Host, Rc<Stream>, Rc<Stream>) {
    let [a, b] = &lan.hosts[..] else { panic!("two hosts") };
    let client = a.bound("atp", &[]);
    let server = b.bound("atp", &AtAddr::new(0, 0, 200).to_sockaddr());
    (a, b, client, server)
}

fn answer(host: &Host, stream: &Stream) -> Option<(Options, Vec<u8>)> {
    let (_, opt, data) = receive(&host.cx, stream).ok()?;
    Some((Options::parse(&opt).unwrap(), data))
}

#[test]
fn replies_of_one_to_eight_packets_come_whole() {
    let lan = Lan::new(&[17, 18]);
    let (a, b, client, server) = pair(&lan);
    let to = AtAddr::new(10, 18, 200);
    for (number, times) in [(1, 0), (2, 1), (3, 12), (4, 13), (5, 100), (6, 102)] {
        for once in [None, Some(ReleaseTimer::HalfMinute)] {
            ask(a, &client, to, &Want { once, user: *b"want", ..PATIENT }, number, &[7; 45]);
            lan.run(Duration::from_millis(20));
            assert_eq!(serve(b, &server, times), 1);
            lan.run(Duration::from_millis(20));
            let (options, data) = answer(a, &client).unwrap();
            assert_eq!((options.kind, options.number), (OptionKind::Response, number));
            assert_eq!((options.user, options.end_of_message), (*b"repl", true));
            assert_eq!(data, vec![7; 45 * times]);
        }
    }
    assert_eq!(a.atp.head().drops().total() + b.atp.head().drops().total(), 0);
    for host in &lan.hosts {
        host.cx.stop();
        assert_eq!(host.streams.blocks().stats().messages, 0);
    }
}

#[test]
fn a_transaction_with_oneself_goes_round() {
    let lan = Lan::new(&[17]);
    let host = &lan.hosts[0];
    let (client, server) =
        (host.bound("atp", &[]), host.bound("atp", &AtAddr::new(0, 0, 200).to_sockaddr()));
    for number in 0..50 {
        ask(host, &client, AtAddr::new(10, 17, 200), &Want::DEFAULT, number, &[1; 45]);
        lan.run(Duration::from_millis(1));
        assert_eq!(serve(host, &server, 100), 1);
        lan.run(Duration::from_millis(1));
        let (options, data) = answer(host, &client).unwrap();
        assert_eq!((options.number, data.len()), (number, 4500));
    }
}

#[test]
fn exactly_once_is_executed_once_under_loss() {
    for (loses, once) in [(3, true), (4, true), (5, true), (3, false)] {
        let lan = Lan::new(&[17, 18]);
        let (a, b, client, server) = pair(&lan);
        lan.loses.set(loses);
        let once = once.then_some(ReleaseTimer::TwoMinutes);
        let mut executed = 0;
        for number in 0..20_u16 {
            let want = Want { once, ..PATIENT };
            ask(a, &client, AtAddr::new(10, 18, 200), &want, number, &number.to_be_bytes());
            let mut came = None;
            for _ in 0..2000 {
                lan.run(Duration::from_millis(50));
                executed += serve(b, &server, 1000);
                came = answer(a, &client);
                if came.is_some() {
                    break;
                }
            }
            let (options, data) = came.expect("a reply in the end");
            assert_eq!((options.kind, options.number), (OptionKind::Response, number));
            assert_eq!(data, number.to_be_bytes().repeat(1000));
        }
        assert!(executed == 20 || once.is_none() && executed > 20, "{executed} with {loses}");
    }
}

#[test]
fn a_server_that_is_not_there_fails_with_what_came() {
    let lan = Lan::new(&[17, 18]);
    let (a, b, client, server) = pair(&lan);
    let want = Want { tries: NonZeroU8::new(3), interval: Duration::from_secs(1), ..Want::DEFAULT };
    ask(a, &client, AtAddr::new(10, 18, 201), &want, 9, b"x");
    lan.run(Duration::from_millis(2900));
    assert_eq!(receive(&a.cx, &client), Err(Errno::EAGAIN));
    lan.run(Duration::from_millis(200));
    let (options, data) = answer(a, &client).unwrap();
    assert_eq!((options.kind, options.number, data.len()), (OptionKind::Failed, 9, 0));
    assert_eq!(b.atp.head().drops().total(), 3);
    // One that refuses lets the request come again.
    let want = Want { once: Some(ReleaseTimer::HalfMinute), ..PATIENT };
    ask(a, &client, AtAddr::new(10, 18, 200), &want, 10, b"x");
    lan.run(Duration::from_millis(20));
    let (from, opt, _) = receive(&b.cx, &server).unwrap();
    let refused = Options { kind: OptionKind::Refused, ..Options::parse(&opt).unwrap() };
    send(&b.cx, &server, &from, &refused.emit(), &[]);
    lan.run(Duration::from_millis(600));
    assert_eq!(serve(b, &server, 3), 1);
    lan.run(Duration::from_millis(20));
    assert_eq!(answer(a, &client).unwrap().1, b"xxx");
}

#[test]
fn a_closed_user_leaves_nothing_behind() {
    let lan = Lan::new(&[17, 18]);
    let (a, b, client, server) = pair(&lan);
    let want = Want { once: Some(ReleaseTimer::EightMinutes), tries: None, ..PATIENT };
    ask(a, &client, AtAddr::new(10, 18, 200), &want, 1, b"x");
    lan.run(Duration::from_millis(20));
    serve(b, &server, 5);
    client.close(&a.cx);
    server.close(&b.cx);
    lan.run(Duration::from_secs(5));
    assert_eq!(a.streams.blocks().stats().messages, 0);
    assert_eq!(b.streams.blocks().stats().messages, 0);
}

#[test]
fn one_without_options_is_a_request_for_once() {
    let lan = Lan::new(&[17, 18]);
    let (a, b, client, server) = pair(&lan);
    send(&a.cx, &client, &AtAddr::new(10, 18, 200).to_sockaddr(), &[], b"x");
    lan.run(Duration::from_millis(20));
    let (from, opt, data) = receive(&b.cx, &server).unwrap();
    let request = Options::parse(&opt).unwrap();
    assert_eq!((request.once, &data[..]), (Some(ReleaseTimer::HalfMinute), &b"x"[..]));
    send(&b.cx, &server, &from, &request.response([0; 4]).emit(), b"y");
    lan.run(Duration::from_millis(20));
    assert_eq!(answer(a, &client).unwrap().1, b"y");
}

#[test]
fn requests_that_do_not_do_are_told() {
    let lan = Lan::new(&[17, 18]);
    let (a, _, client, _server) = pair(&lan);
    let to = AtAddr::new(10, 18, 200).to_sockaddr();
    let request = Options::request(&Want::DEFAULT, 1).emit();
    let stray = Options { kind: OptionKind::Response, ..Options::parse(&request).unwrap() };
    let stray = Options { once: Some(ReleaseTimer::HalfMinute), ..stray };
    let failed = Options { kind: OptionKind::Failed, ..stray };
    let cases: [(&[u8], usize); 4] =
        [(&request, 579), (&request[..11], 1), (&stray.emit(), 1), (&failed.emit(), 1)];
    for (opt, size) in cases {
        send(&a.cx, &client, &to, opt, &vec![0; size]);
        let told = client.getp(&a.cx, xk_streams::head::Want::Any).unwrap();
        assert!(format!("{:?}", xk_streams::tpi::Primitive::of(&told)).contains("UderrorInd"));
    }
    assert_eq!(receive(&a.cx, &client), Err(Errno::EAGAIN));
}
