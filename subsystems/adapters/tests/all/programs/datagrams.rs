//! Datagrams: on `udp`, `ddp` and BSD's own `udp`.

use super::ends::{Api, BOTH, any, bsd, inet, nam, sleep, sockaddr, streams};
use super::{INET, Said, assert_nothing_is_kept, pass, run, world};
use std::time::Duration;
use xk_bsd::sockaddr::{AF_APPLETALK, AF_INET};
use xk_bsd::{
    Errno, Sock, Sockaddr, getsockname, recvfrom, sendto, sobind, soclose, soconnect, socreate,
};
use xk_core::Kernel;
use xk_core::reason;
use xk_streams::tli::{Endpoint, Maxima};

const PORT: u16 = 2005;
const COUNT: u8 = 20;

fn octets(n: u8) -> Vec<u8> {
    vec![n; usize::from(n) * 70]
}

/// Sends back what comes.
fn echo(cx: &Kernel, api: Api, driver: &str) {
    match api {
        Api::Sockets => {
            let so = socreate(cx, &bsd(cx), AF_INET, Sock::Dgram, 0).expect("a socket");
            sobind(cx, &so, &mut any(cx, PORT)).expect("the port is free");
            let other = socreate(cx, &bsd(cx), AF_INET, Sock::Dgram, 17).expect("a socket");
            let again = sobind(cx, &other, &mut any(cx, PORT));
            assert_eq!(again, Err(Errno::EADDRINUSE));
            soclose(cx, &other).expect("it closes");
            let mut room = [0; 2000];
            for _ in 0..COUNT {
                let (len, from) = recvfrom(cx, &so, &mut room).expect("a datagram");
                sendto(cx, &so, &room[..len], from).expect("it goes back");
            }
            soclose(cx, &so).expect("it closes");
        }
        Api::Tli => {
            let (end, _) = Endpoint::open(cx, &streams(cx), driver).expect("an endpoint");
            end.bind(cx, Some(&inet([0; 4], PORT)), 0).expect("the port is free");
            for _ in 0..COUNT {
                let unit = end.rcvudata(cx, Maxima::ALL).expect("a datagram");
                end.sndudata(cx, &unit.addr, &[], &unit.data).expect("it goes back");
            }
            end.close(cx).expect("it closes");
        }
    }
}

fn ask(cx: &Kernel, api: Api, driver: &str) {
    match api {
        Api::Sockets => {
            let so = socreate(cx, &bsd(cx), AF_INET, Sock::Dgram, 0).expect("a socket");
            for n in 0..COUNT / 2 {
                let to = sockaddr(cx, 2, PORT);
                sendto(cx, &so, &octets(n), Some(to)).expect("it goes");
                let mut room = [0; 2000];
                let (len, from) = recvfrom(cx, &so, &mut room).expect("it comes back");
                assert_eq!((&room[..len], from), (&octets(n)[..], Some(to)));
            }
            soconnect(cx, &so, &mut nam(cx, 2, PORT)).expect("it has a peer");
            let name = getsockname(cx, &so).expect("a name");
            // UDP of STREAMS tells no host.
            let host = if driver == "udp" { [0; 4] } else { [10, 0, 0, 1] };
            assert_eq!(name.addr().octets(), host);
            assert!(name.port() >= 1024);
            for n in COUNT / 2..COUNT {
                sendto(cx, &so, &octets(n), None).expect("it goes");
                let mut room = [0; 2000];
                let (len, _) = recvfrom(cx, &so, &mut room).expect("it comes back");
                assert_eq!(room[..len], octets(n));
            }
            soclose(cx, &so).expect("it closes");
        }
        Api::Tli => {
            let (end, _) = Endpoint::open(cx, &streams(cx), driver).expect("an endpoint");
            let (at, _) = end.bind(cx, None, 0).expect("a port is free");
            assert_ne!(at[2..4], [0, 0], "the port that it has");
            for n in 0..COUNT {
                let to = inet([10, 0, 0, 2], PORT);
                end.sndudata(cx, &to, &[], &octets(n)).expect("it goes");
                let unit = end.rcvudata(cx, Maxima::ALL).expect("it comes back");
                assert_eq!((&*unit.addr, unit.data), (&to[..], octets(n)));
            }
            end.close(cx).expect("it closes");
        }
    }
}

#[test]
fn datagrams_on_udp_go_there_and_back() {
    for client in BOTH {
        for server in BOTH {
            let mut world = world(2, INET, "delay=\"1ms\"", 1);
            let said = Said::default();
            let (of_client, of_server) = (said.clone(), said.clone());
            run(&mut world, 2, move |cx| {
                echo(cx, server, "tli/udp");
                of_server.say("server");
            });
            run(&mut world, 1, move |cx| {
                ask(cx, client, "tli/udp");
                of_client.say("client");
            });
            pass(&mut world, Duration::from_secs(60));
            assert_eq!(said.sorted(), ["client", "server"], "{client:?} {server:?}");
            assert_nothing_is_kept(&world, 2);
        }
    }
}

/// BSD's UDP below, on both hosts: sockets natively, the transport interface by an adapter.
const BSD_UDP: &str =
    "subsystem bsd { ether sim; ip ether { address \"10.0.0.{n}/24\"; }; udp ip; }
subsystem streams { tli udp; }";

/// UDP of STREAMS below, on the x-kernel's IP.
const STREAMS_UDP: &str = "eth sim
arp eth
ip arp { address \"10.0.0.{n}/24\"; }
subsystem streams { udp ip; }
subsystem bsd { sockets udp; }";

#[test]
fn each_framework_s_programs_stand_on_udp_of_the_other() {
    for (lines, driver) in [(BSD_UDP, "tli/udp"), (STREAMS_UDP, "udp")] {
        for client in BOTH {
            for server in BOTH {
                let mut world = world(2, lines, "delay=\"1ms\"", 2);
                let said = Said::default();
                let (of_client, of_server) = (said.clone(), said.clone());
                run(&mut world, 2, move |cx| {
                    echo(cx, server, driver);
                    of_server.say("server");
                });
                run(&mut world, 1, move |cx| {
                    ask(cx, client, driver);
                    of_client.say("client");
                });
                pass(&mut world, Duration::from_secs(60));
                assert_eq!(said.sorted(), ["client", "server"], "{client:?} {server:?} {driver}");
                assert_nothing_is_kept(&world, 2);
            }
        }
    }
}

#[test]
fn a_full_socket_drops_and_counts() {
    let mut world = world(2, INET, "delay=\"1ms\"", 3);
    run(&mut world, 2, |cx| {
        let so = socreate(cx, &bsd(cx), AF_INET, Sock::Dgram, 0).expect("a socket");
        sobind(cx, &so, &mut any(cx, PORT)).expect("the port is free");
        sleep(cx, Duration::from_secs(10));
        assert!(so.so_rcv.cc() <= so.so_rcv.hiwat());
        soclose(cx, &so).expect("it closes");
    });
    run(&mut world, 1, |cx| {
        let so = socreate(cx, &bsd(cx), AF_INET, Sock::Dgram, 0).expect("a socket");
        for n in 0..100 {
            sendto(cx, &so, &[n; 1000], Some(sockaddr(cx, 2, PORT))).expect("it goes");
            sleep(cx, Duration::from_millis(10));
        }
        let long = sendto(cx, &so, &[0; 9000], Some(sockaddr(cx, 2, PORT)));
        assert!(long.is_ok() || long == Err(Errno::EMSGSIZE));
        soclose(cx, &so).expect("it closes");
    });
    pass(&mut world, Duration::from_secs(30));
    let kernel = world.kernel(world.find("h2").unwrap()).unwrap().clone();
    let adapter = kernel.find_protocol("sockets/udp").expect("the adapter");
    let dropped = adapter.head().drops().of(&reason::QUEUE_FULL);
    assert!((20..100).contains(&dropped), "{dropped} dropped");
    assert_nothing_is_kept(&world, 2);
}

const APPLE: &str = "eth sim
aarp eth
ddp aarp net=\"10\" node={n}
subsystem bsd { sockets ddp; }";

#[test]
fn sockets_of_appletalk_stand_on_ddp() {
    let mut world = world(2, APPLE, "delay=\"1ms\"", 4);
    let said = Said::default();
    let (of_client, of_server) = (said.clone(), said.clone());
    let at = |cx: &Kernel, net, node, socket| {
        Sockaddr::appletalk(bsd(cx).mbufs().release(), net, node, socket)
    };
    let open =
        |cx: &Kernel| socreate(cx, &bsd(cx), AF_APPLETALK, Sock::Dgram, 0).expect("a socket");
    run(&mut world, 2, move |cx| {
        let so = open(cx);
        let mut nam = at(cx, 0, 0, 200).to_mbuf(bsd(cx).mbufs()).unwrap();
        sobind(cx, &so, &mut nam).expect("the socket is free");
        nam.m_freem();
        let mut room = [0; 700];
        for _ in 0..5 {
            let (len, from) = recvfrom(cx, &so, &mut room).expect("a datagram");
            let from = from.expect("a sender");
            assert_eq!((from.net(), from.node()), (10, 1));
            sendto(cx, &so, &room[..len], Some(from)).expect("it goes back");
        }
        soclose(cx, &so).expect("it closes");
        of_server.say("server");
    });
    run(&mut world, 1, move |cx| {
        sleep(cx, Duration::from_secs(5));
        let so = open(cx);
        for n in [0_usize, 1, 100, 585, 586] {
            // The type of the line `sockets` is in front.
            let mut octets = vec![120];
            octets.extend(vec![n as u8; n]);
            sendto(cx, &so, &octets, Some(at(cx, 10, 2, 200))).expect("it goes");
            let mut room = [0; 700];
            let (len, from) = recvfrom(cx, &so, &mut room).expect("it comes back");
            assert_eq!((&room[..len], from), (&octets[..], Some(at(cx, 10, 2, 200))));
        }
        let other = sendto(cx, &so, &[4, 1], Some(at(cx, 10, 2, 4)));
        assert_eq!(other, Err(Errno::EPROTONOSUPPORT), "of another type");
        let long = sendto(cx, &so, &[120; 588], Some(at(cx, 10, 2, 200)));
        assert_eq!(long, Err(Errno::EMSGSIZE));
        soclose(cx, &so).expect("it closes");
        of_client.say("client");
    });
    pass(&mut world, Duration::from_secs(60));
    assert_eq!(said.sorted(), ["client", "server"]);
    assert_nothing_is_kept(&world, 2);
}
