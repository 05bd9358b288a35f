//! Transactions: users of BSD and of STREAMS, whose datagrams have options, on the
//! x-kernel's ATP, where requests are calls.

use super::ends::{Api, BOTH, bsd, sleep, streams};
use super::{Said, assert_nothing_is_kept, pass, run, world};
use std::num::NonZeroU8;
use std::rc::Rc;
use std::time::Duration;
use xk_appletalk::addr::AtAddr;
use xk_appletalk::atp::{OptionKind, Options, ReleaseTimer, Want, bitmap_of};
use xk_bsd::sockaddr::AF_APPLETALK;
use xk_bsd::{Mt, Sink, Sock, Sockaddr, Socket, Uio, sobind, soclose, socreate, soreceive, sosend};
use xk_core::Kernel;
use xk_streams::tli::{Endpoint, Maxima};

const LINES: &str = "eth sim
aarp eth
ddp aarp net=\"10\" node={n}
atp ddp
subsystem bsd { sockets atp; }
subsystem streams { tli atp; }";
const AT: AtAddr = AtAddr::new(10, 2, 200);
const SECOND: Duration = Duration::from_secs(1);

/// A user of transactions.
enum User {
    Socket(Rc<Socket>),
    Tli(Endpoint),
}

impl User {
    fn new(cx: &Kernel, api: Api, socket: u8) -> Self {
        let at = AtAddr::new(0, 0, socket).to_sockaddr();
        match api {
            Api::Sockets => {
                let so = socreate(cx, &bsd(cx), AF_APPLETALK, Sock::Dgram, 3).expect("a socket");
                let mut nam = Sockaddr(at).to_mbuf(bsd(cx).mbufs()).unwrap();
                sobind(cx, &so, &mut nam).expect("the socket is free");
                Self::Socket(so)
            }
            Api::Tli => {
                let (end, _) = Endpoint::open(cx, &streams(cx), "tli/atp").expect("an endpoint");
                end.bind(cx, Some(&at), 0).expect("the socket is free");
                Self::Tli(end)
            }
        }
    }

    fn send(&self, cx: &Kernel, to: AtAddr, options: Options, octets: &[u8]) -> Result<(), String> {
        let to = to.to_sockaddr();
        match self {
            Self::Socket(so) => {
                let mbufs = bsd(cx).mbufs().clone();
                let nam = Sockaddr(to).to_mbuf(&mbufs).unwrap();
                let control = mbufs.m_copyin(Mt::Control, &options.emit()).unwrap();
                let sent = sosend(cx, so, Some(nam), Uio::Octets(octets), Some(control), 0);
                sent.map(drop).map_err(|error| format!("{error:?}"))
            }
            Self::Tli(end) => {
                let sent = end.sndudata(cx, &to, &options.emit(), octets);
                sent.map_err(|refusal| format!("{refusal:?}"))
            }
        }
    }

    fn receive(&self, cx: &Kernel) -> (AtAddr, Options, Vec<u8>) {
        let parse = |from: &[u8], options: &[u8], octets| {
            let from = AtAddr::from_sockaddr(from).expect("a sender");
            (from, Options::parse(options).expect("options"), octets)
        };
        match self {
            Self::Socket(so) => {
                let mut octets = vec![0; 5000];
                let got = soreceive(cx, so, Sink::Octets(&mut octets), 0).expect("a message");
                octets.truncate(got.len);
                let from = got.from().expect("a sender");
                // The release of before has no length in front.
                let from = Sockaddr::appletalk(
                    xk_bsd::Release::Bsd44,
                    from.net(),
                    from.node(),
                    from.socket(),
                );
                parse(&from.0, got.control.expect("options").mtod(), octets)
            }
            Self::Tli(end) => {
                let unit = end.rcvudata(cx, Maxima::ALL).expect("a message");
                parse(&unit.addr, &unit.opt, unit.data)
            }
        }
    }

    fn close(&self, cx: &Kernel) {
        match self {
            Self::Socket(so) => soclose(cx, so).expect("it closes"),
            Self::Tli(end) => end.close(cx).expect("it closes"),
        }
    }
}

fn want(user: u8) -> Want {
    Want {
        once: Some(ReleaseTimer::HalfMinute),
        user: [user; 4],
        bitmap: bitmap_of(8),
        tries: NonZeroU8::new(20),
        interval: Duration::from_millis(500),
    }
}

#[test]
fn requests_and_replies_go_with_their_options() {
    for client in BOTH {
        for server in BOTH {
            let mut world = world(2, LINES, "delay=\"1ms\" loss=\"5%\" duplicate=\"2%\"", 7);
            let said = Said::default();
            let (of_client, of_server) = (said.clone(), said.clone());
            run(&mut world, 2, move |cx| {
                let user = User::new(cx, server, AT.socket);
                for n in 0..20_u8 {
                    let (from, options, octets) = user.receive(cx);
                    assert_eq!((from.at().net, from.at().node), (10, 1));
                    assert_eq!((options.kind, options.user), (OptionKind::Request, [n; 4]));
                    assert_eq!(octets, vec![n; usize::from(n) * 20], "each is executed once");
                    let reply = vec![n; usize::from(n) * 230];
                    let options = options.response([n + 1; 4]);
                    user.send(cx, from, options, &reply).expect("it goes");
                }
                // The last reply is asked for until it has arrived.
                sleep(cx, 30 * SECOND);
                user.close(cx);
                of_server.say("server");
            });
            run(&mut world, 1, move |cx| {
                sleep(cx, 5 * SECOND);
                let user = User::new(cx, client, 150);
                for n in 0..20_u8 {
                    let options = Options::request(&want(n), 700 + u16::from(n));
                    user.send(cx, AT, options, &vec![n; usize::from(n) * 20]).expect("it goes");
                    let (from, options, octets) = user.receive(cx);
                    assert_eq!(from, AT);
                    assert_eq!(options.kind, OptionKind::Response);
                    assert_eq!((options.number, options.user), (700 + u16::from(n), [n + 1; 4]));
                    assert_eq!(octets, vec![n; usize::from(n) * 230]);
                }
                user.close(cx);
                of_client.say("client");
            });
            pass(&mut world, 300 * SECOND);
            assert_eq!(said.sorted(), ["client", "server"], "{client:?} {server:?}");
            assert_nothing_is_kept(&world, 2);
        }
    }
}

#[test]
fn several_are_under_way_at_once_and_what_is_not_answered_fails() {
    for client in BOTH {
        let mut world = world(2, LINES, "delay=\"1ms\"", 8);
        let said = Said::default();
        let of_client = said.clone();
        run(&mut world, 2, move |cx| {
            // It answers the last first, and the first, which it refuses once, at its second
            // coming.
            let user = User::new(cx, Api::Sockets, AT.socket);
            let mut all: Vec<_> = (0..10).map(|_| user.receive(cx)).collect();
            let (from, options, _) = all.remove(0);
            let refused = Options { kind: OptionKind::Refused, ..options.response([0; 4]) };
            user.send(cx, from, refused, &[]).expect("it goes");
            for (from, options, octets) in all.into_iter().rev() {
                user.send(cx, from, options.response([1; 4]), &octets).expect("it goes");
            }
            let (from, options, octets) = user.receive(cx);
            user.send(cx, from, options.response([1; 4]), &octets).expect("it goes");
            // A reply that was not asked for goes nowhere.
            let stray = Options { number: 9, ..options.response([1; 4]) };
            user.send(cx, from, stray, &octets).expect("it is counted");
            sleep(cx, 100 * SECOND);
            user.close(cx);
        });
        run(&mut world, 1, move |cx| {
            sleep(cx, 5 * SECOND);
            let user = User::new(cx, client, 150);
            for n in 0..10_u8 {
                let options = Options::request(&want(n), n.into());
                user.send(cx, AT, options, &[n; 9]).expect("it goes");
            }
            let mut got: Vec<u16> = (0..10)
                .map(|_| {
                    let (_, options, octets) = user.receive(cx);
                    assert_eq!(octets, [options.number as u8; 9]);
                    options.number
                })
                .collect();
            got.sort_unstable();
            assert_eq!(got, (0..10).collect::<Vec<u16>>());
            // Nothing serves there.
            let lost = Options::request(&Want { tries: NonZeroU8::new(3), ..want(0) }, 77);
            user.send(cx, AtAddr::new(10, 2, 201), lost, b"lost").expect("it goes");
            let (_, options, _) = user.receive(cx);
            assert_eq!((options.kind, options.number), (OptionKind::Failed, 77));
            let long = user.send(cx, AT, lost, &[0; 579]);
            match client {
                Api::Sockets => assert_eq!(long, Err("EMSGSIZE".into())),
                // What is wrong is told in the band of messages.
                Api::Tli => assert_eq!(long, Ok(())),
            }
            user.close(cx);
            of_client.say("client");
        });
        pass(&mut world, 200 * SECOND);
        assert_eq!(said.sorted(), ["client"], "{client:?}");
        let kernel = world.kernel(world.find("h2").unwrap()).unwrap().clone();
        let adapter = kernel.find_protocol("sockets/atp").expect("the adapter");
        assert_eq!(adapter.head().drops().of(&xk_core::reason::NOT_MINE), 1);
        assert_nothing_is_kept(&world, 2);
    }
}
