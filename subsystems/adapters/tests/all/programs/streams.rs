//! Streams: set-up, both directions, flow control, the ways in which they end.

use super::ends::{Api, BOTH, End, bsd, dial, listen, sleep};
use super::{INET, Said, assert_nothing_is_kept, pass, run, world};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use xk_core::Kernel;
use xk_core::control::Report;

const PORT: u16 = 2005;
/// A client on `h1`, a server on `h2`.
const PAIRS: [(Api, Api); 4] = [
    (Api::Sockets, Api::Sockets),
    (Api::Sockets, Api::Tli),
    (Api::Tli, Api::Sockets),
    (Api::Tli, Api::Tli),
];
const LOSSY: &str = "delay=\"1ms\" loss=\"4%\" duplicate=\"2%\"";
const GOOD: &str = "delay=\"1ms\"";

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 251) as u8).collect()
}

/// Serves one stream.
fn serve(cx: &Kernel, api: Api, what: impl FnOnce(&Kernel, &End)) {
    let listens = listen(cx, api, PORT, 5).expect("it listens");
    let end = listens.accept(cx).expect("a stream");
    what(cx, &end);
    listens.close(cx);
}

#[test]
fn octets_go_both_ways_and_streams_end_in_order() {
    for (seed, (client, server)) in (1..).zip(PAIRS) {
        let mut world = world(2, INET, LOSSY, seed);
        let (said, octets) = (Said::default(), pattern(300_000));
        let (of_client, of_server, sent) = (said.clone(), said.clone(), octets.clone());
        run(&mut world, 2, move |cx| {
            serve(cx, server, |cx, end| {
                let all = end.receive_all(cx).expect("all of it");
                end.send(cx, &all).expect("it goes back");
                end.shutdown(cx);
                of_server.say(format!("server {}", all.len()));
                end.close(cx);
            });
        });
        run(&mut world, 1, move |cx| {
            let end = dial(cx, client, 2, PORT).expect("it connects");
            end.send(cx, &sent).expect("it goes");
            end.shutdown(cx);
            let back = end.receive_all(cx).expect("it comes back");
            assert!(back == sent, "{} octets of {}", back.len(), sent.len());
            end.close(cx);
            of_client.say("client");
        });
        pass(&mut world, secs(600));
        let expected = ["client".to_owned(), format!("server {}", octets.len())];
        assert_eq!(said.sorted(), expected, "{client:?} {server:?}");
        assert_nothing_is_kept(&world, 2);
    }
}

#[test]
fn a_slow_reader_stops_the_sender_and_memory_is_bounded() {
    for (seed, (client, server)) in (11..).zip(PAIRS) {
        let mut world = world(2, INET, GOOD, seed);
        let total = 3_000_000;
        let (sent, read, most) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)), Cell::new(0));
        let most = Rc::new(most);
        let (of_server, seen) = (Rc::clone(&read), Rc::clone(&most));
        run(&mut world, 2, move |cx| {
            serve(cx, server, |cx, end| {
                let expected = pattern(total);
                let mut at = 0;
                loop {
                    if at < 300_000 {
                        sleep(cx, Duration::from_millis(100));
                    }
                    seen.set(seen.get().max(end.unread()));
                    let more = end.receive(cx, 4096).expect("octets");
                    if more.is_empty() {
                        break;
                    }
                    assert!(more == expected[at..at + more.len()], "at {at}");
                    at += more.len();
                    of_server.set(at);
                }
                end.shutdown(cx);
                end.close(cx);
            });
        });
        let of_client = Rc::clone(&sent);
        run(&mut world, 1, move |cx| {
            let octets = pattern(total);
            let end = dial(cx, client, 2, PORT).expect("it connects");
            for part in octets.chunks(10_000) {
                end.send(cx, part).expect("it goes");
                of_client.set(of_client.get() + part.len());
            }
            end.shutdown(cx);
            assert_eq!(end.receive(cx, 1), Ok(Vec::new()), "the peer ends");
            end.close(cx);
        });
        let mut between = 0;
        for _ in 0..70 {
            pass(&mut world, Duration::from_millis(100));
            between = between.max(sent.get() - read.get());
        }
        assert!(read.get() > 50_000 && read.get() < 400_000, "it was slow: {}", read.get());
        pass(&mut world, secs(300));
        assert_eq!((sent.get(), read.get()), (total, total), "{client:?} {server:?}");
        // What is under way is never more than the buffers on both sides together.
        assert!(between < 1_500_000, "{client:?} {server:?}: {between} octets under way");
        let unread_max = if server == Api::Sockets { 70_000 } else { 66_000 + 16_384 };
        assert!(most.get() <= unread_max, "{client:?} {server:?}: {} unread", most.get());
        assert_nothing_is_kept(&world, 2);
    }
}

#[test]
fn a_stream_that_is_broken_off_is_seen_at_the_other_end() {
    for (seed, (client, server)) in (21..).zip(PAIRS) {
        // Which end breaks it off.
        for by_server in [false, true] {
            let mut world = world(2, INET, GOOD, seed);
            let said = Said::default();
            let breaks = |cx: &Kernel, end: &End| {
                // What is not read is lost with it.
                sleep(cx, secs(1));
                end.abort(cx);
                if matches!(end, End::Tli(_)) {
                    end.close(cx);
                }
            };
            let hears = |cx: &Kernel, end: &End, said: &Said| {
                end.send(cx, b"unread").expect("it goes");
                said.say(format!("{:?}", end.receive_all(cx)));
                let after = end.send(cx, b"more").expect_err("it is over");
                assert!(!after.is_empty());
                end.close(cx);
            };
            let of_server = said.clone();
            run(&mut world, 2, move |cx| {
                serve(cx, server, |cx, end| match by_server {
                    true => breaks(cx, end),
                    false => hears(cx, end, &of_server),
                });
            });
            let of_client = said.clone();
            run(&mut world, 1, move |cx| {
                let end = dial(cx, client, 2, PORT).expect("it connects");
                match by_server {
                    true => hears(cx, &end, &of_client),
                    false => breaks(cx, &end),
                }
            });
            pass(&mut world, secs(60));
            let told = "Err(\"ECONNRESET\")".to_owned();
            assert_eq!(said.sorted(), [told], "{client:?} {server:?} {by_server}");
            assert_nothing_is_kept(&world, 2);
        }
    }
}

#[test]
fn what_was_sent_before_a_close_arrives() {
    for (seed, (client, server)) in (31..).zip(PAIRS) {
        let mut world = world(2, INET, LOSSY, seed);
        let said = Said::default();
        let of_server = said.clone();
        run(&mut world, 2, move |cx| {
            serve(cx, server, |cx, end| {
                sleep(cx, secs(5));
                let all = end.receive_all(cx).expect("all of it");
                assert!(all == pattern(400_000), "{} octets", all.len());
                of_server.say("all");
                end.close(cx);
            });
        });
        run(&mut world, 1, move |cx| {
            let end = dial(cx, client, 2, PORT).expect("it connects");
            end.send(cx, &pattern(400_000)).expect("it goes");
            // A user of TPI that closes without a release breaks off.
            if client == Api::Tli {
                end.shutdown(cx);
            }
            end.close(cx);
        });
        pass(&mut world, secs(600));
        assert_eq!(said.sorted(), ["all"], "{client:?} {server:?}");
        assert_nothing_is_kept(&world, 2);
    }
}

#[test]
fn nothing_that_listens_refuses_and_a_peer_that_is_gone_times_out() {
    for (seed, (client, server)) in (41..).zip(PAIRS) {
        let mut world = world(2, INET, GOOD, seed);
        let said = Said::default();
        let (refused, gone) = (said.clone(), said.clone());
        run(&mut world, 1, move |cx| {
            let why = dial(cx, client, 2, PORT + 1).err().expect("nothing is there");
            refused.say(format!("1 {why}"));
        });
        run(&mut world, 2, move |cx| serve(cx, server, |cx, _| sleep(cx, secs(100_000))));
        run(&mut world, 1, move |cx| {
            let end = dial(cx, client, 2, PORT).expect("it connects");
            sleep(cx, secs(5));
            end.send(cx, b"to one that is gone").expect("it is taken");
            let why = end.receive(cx, 1).expect_err("nothing comes");
            gone.say(format!("2 {why}"));
            end.close(cx);
        });
        pass(&mut world, secs(2));
        let host = world.find("h2").unwrap();
        assert!(world.crash(host));
        pass(&mut world, secs(3600));
        let said = said.sorted();
        assert_eq!(said.len(), 2, "{client:?}: {said:?}");
        assert_eq!(said[0], "1 ECONNREFUSED", "{client:?}");
        assert!(["2 ETIMEDOUT", "2 EHOSTUNREACH"].contains(&&*said[1]), "{client:?}: {said:?}");
        assert_nothing_is_kept(&world, 1);
    }
}

#[test]
fn more_peers_than_may_wait_try_again_and_are_served() {
    for (seed, server) in (51..).zip(BOTH) {
        let mut world = world(4, INET, GOOD, seed);
        let said = Said::default();
        let of_server = said.clone();
        run(&mut world, 1, move |cx| {
            let listens = listen(cx, server, PORT, 2).expect("it listens");
            sleep(cx, secs(3));
            for _ in 0..12 {
                let end = listens.accept(cx).expect("a stream");
                let all = end.receive_all(cx).expect("all of it");
                of_server.say(String::from_utf8(all).unwrap());
                end.shutdown(cx);
                end.close(cx);
            }
            listens.close(cx);
        });
        let mut expected = Vec::new();
        for (n, client) in (0..12_u8).zip(BOTH.into_iter().cycle()) {
            expected.push(format!("{n:02}"));
            run(&mut world, 2 + n % 3, move |cx| {
                let end = dial(cx, client, 1, PORT).expect("it connects");
                end.send(cx, format!("{n:02}").as_bytes()).expect("it goes");
                end.shutdown(cx);
                assert_eq!(end.receive(cx, 1), Ok(Vec::new()), "the peer ends");
                end.close(cx);
            });
        }
        pass(&mut world, secs(600));
        assert_eq!(said.sorted(), expected, "{server:?}");
        assert_nothing_is_kept(&world, 4);
    }
}

#[test]
fn without_mbufs_a_stream_waits_and_goes_on() {
    let few = INET.replace("subsystem bsd {", "subsystem bsd mbufs=64 {");
    let mut world = world(2, &few, GOOD, 61);
    let said = Said::default();
    let of_server = said.clone();
    run(&mut world, 2, move |cx| {
        serve(cx, Api::Sockets, |cx, end| {
            let mut held = Vec::new();
            while let Ok(m) = bsd(cx).mbufs().m_get(xk_bsd::Mt::Data) {
                held.push(m);
            }
            sleep(cx, secs(3));
            assert_eq!(end.unread(), 0, "there was no mbuf for it");
            drop(held);
            let all = end.receive_all(cx).expect("all of it");
            assert!(all == pattern(100_000), "{} octets", all.len());
            of_server.say("all");
            end.close(cx);
        });
    });
    run(&mut world, 1, move |cx| {
        sleep(cx, Duration::from_millis(500));
        let end = dial(cx, Api::Tli, 2, PORT).expect("it connects");
        end.send(cx, &pattern(100_000)).expect("it goes");
        end.shutdown(cx);
        assert_eq!(end.receive(cx, 1), Ok(Vec::new()), "the peer ends");
        end.close(cx);
    });
    pass(&mut world, secs(120));
    assert_eq!(said.sorted(), ["all"]);
    assert_nothing_is_kept(&world, 2);
}

#[test]
fn what_arrives_at_a_socket_is_counted_once() {
    let mut world = world(2, INET, GOOD, 71);
    let said = Said::default();
    let of_server = said.clone();
    run(&mut world, 2, move |cx| {
        serve(cx, Api::Sockets, |cx, end| {
            assert_eq!(end.receive_all(cx), Ok(b"one".to_vec()));
            let adapter = cx.find_protocol("sockets/tcp").expect("the adapter");
            let report = adapter.ask(cx, Report::default()).expect("a report");
            let up = report.lines.into_iter().find(|(name, _)| name == "up, lent");
            of_server.say(up.expect("a count").1);
            end.close(cx);
        });
    });
    run(&mut world, 1, move |cx| {
        let end = dial(cx, Api::Sockets, 2, PORT).expect("it connects");
        end.send(cx, b"one").expect("it goes");
        end.shutdown(cx);
        end.close(cx);
    });
    pass(&mut world, secs(60));
    assert_eq!(said.sorted(), ["1"]);
    world.stop();
}
