//! Calls between two hosts: what is lost, doubled, late, too much, and what a person would see of
//! it.

use crate::net::*;
use core::time::Duration;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use xk_core::object::{CallCause, CallError};
use xk_core::shepherd::Semaphore;
use xk_core::{Kernel, Time};
use xk_kit::rpc::call::{self, CallOptions, CancelCall};
use xk_mrpc::Config;
use xk_mrpc::wire::{ACK, CLOSE, ERROR, PLSACK, REPLY, REQUEST, ROUND};

fn is_request(frame: &Frame) -> bool {
    frame.header().flags & REQUEST != 0
}

fn is_reply(frame: &Frame) -> bool {
    frame.header().flags & REPLY != 0
}

/// Loses the frame with this number among those that fit.
fn lose(number: usize, fits: impl Fn(&Frame) -> bool) -> impl FnMut(&Frame) -> Fate {
    let mut seen = 0;
    move |frame| {
        seen += usize::from(fits(frame));
        if fits(frame) && seen == number + 1 { vec![] } else { vec![PASS] }
    }
}

#[test]
fn the_first_call_is_challenged_and_later_ones_take_two_packets() {
    let (mut net, count) = pair();
    let session = net.hosts[0].open(3, SERVER);
    for (number, packets) in [(1, 4), (2, 2), (3, 2)] {
        net.log.clear();
        let outcome = net.hosts[0].call(&session, b"hello");
        assert_eq!(net.done(&outcome).unwrap(), b"hello");
        assert_eq!((count.get(), net.log.len()), (number, packets));
    }
    assert_eq!(net.now, Time::ZERO, "nobody had to wait");
    net.stop();
}

#[test]
fn a_lost_request_or_reply_costs_a_tenth_of_a_second_and_runs_once() {
    for fits in [is_request, is_reply] {
        let (mut net, count) = pair();
        let session = net.hosts[0].open(3, SERVER);
        let outcome = net.hosts[0].call(&session, b"first");
        net.done(&outcome).unwrap();
        let outcome = net.hosts[0].call(&session, b"second");
        net.finish(&outcome, &mut lose(0, fits));
        assert_eq!(outcome.get().unwrap(), b"second");
        assert_eq!((count.get(), outcome.at.get()), (2, Time::from_ms(100)));
        net.stop();
    }
}

#[test]
fn every_packet_of_a_large_call_may_be_lost() {
    // Sixteen fragments each way, and what the loss of each makes necessary.
    for number in 0..40 {
        let (mut net, count) = pair();
        let session = net.hosts[0].open(3, SERVER);
        let outcome = net.hosts[0].call(&session, b"");
        net.done(&outcome).unwrap();
        net.log.clear();
        let octets = pattern(16_384, number as u8);
        let outcome = net.hosts[0].call(&session, &octets);
        net.finish(&outcome, &mut lose(number, |_| true));
        assert!(outcome.get().unwrap() == octets, "frame {number} lost");
        assert_eq!(count.get(), 2, "frame {number} lost");
        let spent = net.log.len();
        assert!(spent <= 36, "frame {number} lost: {spent} packets instead of 32");
        assert!(net.log.iter().all(|frame| frame.octets.len() <= 1500));
        net.stop();
    }
}

#[test]
fn nobody_answers_for_five_and_a_half_seconds() {
    let (mut net, count) = pair();
    let session = net.hosts[0].open(3, SERVER);
    let outcome = net.hosts[0].call(&session, b"hello");
    net.finish(&outcome, &mut |_| vec![]);
    let error = outcome.get().unwrap_err();
    assert_eq!(error.cause, CallCause::TimedOut { tries: 8 });
    assert_eq!(error.describe(&net.hosts[0].cx), "mrpc: timed out after 8 tries");
    assert_eq!(outcome.at.get(), Time::from_ms(5500));
    assert_eq!((net.log.len(), count.get()), (8, 0));
    // The first try, then those that ask for an acknowledgement.
    assert_eq!(net.log[0].header().flags, REQUEST | crate::net::server_flag());
    assert_eq!(net.log[7].header().flags, REQUEST | PLSACK | ROUND | crate::net::server_flag());
    let outcome = net.hosts[0].call(&session, b"again");
    assert_eq!(net.done(&outcome).unwrap(), b"again");
    net.stop();
}

/// A server whose procedure waits until the test lets it go on.
fn slow_server(seed: u64, count: &Rc<Cell<u32>>, gate: &Rc<Semaphore>) -> Host {
    let (count, gate) = (Rc::clone(count), Rc::clone(gate));
    boot(
        seed,
        ethernet(SERVER),
        config(),
        Rc::new(move |cx, _, request| {
            count.set(count.get() + 1);
            cx.wait(&gate, None).map_err(|_| &call::SYSTEM_ERROR)?;
            Ok(request)
        }),
    )
}

fn slow_pair() -> (Net, Rc<Cell<u32>>, Rc<Semaphore>) {
    let (count, gate) = (Rc::default(), Rc::new(Semaphore::new(0)));
    let client = boot(1, ethernet(CLIENT), config(), nothing());
    let server = slow_server(2, &count, &gate);
    (Net::new(vec![client, server]), count, gate)
}

fn release(host: &Host, gate: &Rc<Semaphore>) {
    let gate = Rc::clone(gate);
    host.spawn(move |cx| cx.signal(&gate));
}

#[test]
fn a_busy_server_acknowledges_for_as_long_as_it_takes() {
    let (mut net, count, gate) = slow_pair();
    let session = net.hosts[0].open(3, SERVER);
    let outcome = net.hosts[0].call(&session, b"slow");
    net.run_until(Time::from_s(120), &mut |_| vec![PASS]);
    assert!(!outcome.is_there());
    let acks = net.log.iter().filter(|f| f.header().flags & ACK != 0).count();
    assert!((20..40).contains(&acks), "every five seconds: {acks}");
    let line = session.ask(&net.hosts[0].cx, xk_core::control::Describe::default());
    assert!(line.unwrap().text.ends_with("server hung 2 times"));
    release(&net.hosts[1], &gate);
    assert_eq!(net.done(&outcome).unwrap(), b"slow");
    assert_eq!(count.get(), 1);
    net.stop();
}

#[test]
fn a_server_that_dies_while_it_works_is_given_up() {
    let (mut net, _, _gate) = slow_pair();
    let session = net.hosts[0].open(3, SERVER);
    let outcome = net.hosts[0].call(&session, b"slow");
    net.run_until(Time::from_s(10), &mut |_| vec![PASS]);
    net.finish(&outcome, &mut |_| vec![]);
    assert!(matches!(outcome.get().unwrap_err().cause, CallCause::TimedOut { .. }));
    assert!(outcome.at.get() < Time::from_s(60));
    net.stop();
}

#[test]
fn a_rebooted_server_executes_nothing_again() {
    let (mut net, count) = pair();
    let session = net.hosts[0].open(3, SERVER);
    let outcome = net.hosts[0].call(&session, b"first");
    net.done(&outcome).unwrap();
    // The reply of the second is lost, and the server reboots before the request comes again.
    let outcome = net.hosts[0].call(&session, b"second");
    net.run_until(Time::from_ms(50), &mut lose(0, is_reply));
    assert_eq!(count.get(), 2);
    net.reboot(1, boot(3, ethernet(SERVER), config(), echo(&count)));
    let error = net.done(&outcome).unwrap_err();
    assert_eq!((error.cause, count.get()), (CallCause::Rebooted, 2));
    let outcome = net.hosts[0].call(&session, b"third");
    assert_eq!(net.done(&outcome).unwrap(), b"third");
    assert_eq!(count.get(), 3);
    net.stop();
}

#[test]
fn a_rebooted_client_gets_no_stale_reply() {
    let (mut net, count, gate) = slow_pair();
    let session = net.hosts[0].open(3, SERVER);
    let old = net.hosts[0].call(&session, b"old");
    net.run_until(Time::from_ms(50), &mut |_| vec![PASS]);
    assert_eq!(count.get(), 1);
    drop(session);
    net.reboot(0, boot(4, ethernet(CLIENT), config(), nothing()));
    assert!(old.get().is_err());
    let session = net.hosts[0].open(3, SERVER);
    let outcome = net.hosts[0].call(&session, b"new");
    net.run_until(Time::from_ms(90), &mut |_| vec![PASS]);
    assert_eq!(count.get(), 2, "the new one has a process of its own");
    release(&net.hosts[1], &gate);
    net.run_until(Time::from_ms(95), &mut |_| vec![PASS]);
    assert_eq!(net.hosts[1].dropped(&xk_mrpc::SUPPRESSED), 1, "the old one's reply");
    release(&net.hosts[1], &gate);
    assert_eq!(net.done(&outcome).unwrap(), b"new");
    net.stop();
}

#[test]
fn an_old_duplicate_of_a_dead_incarnation_is_not_executed() {
    let (mut net, count) = pair();
    let session = net.hosts[0].open(3, SERVER);
    for _ in 0..2 {
        let outcome = net.hosts[0].call(&session, b"old");
        net.done(&outcome).unwrap();
    }
    let old: Vec<_> = net.log.iter().filter(|f| is_request(f)).map(|f| f.octets.clone()).collect();
    drop(session);
    net.reboot(0, boot(4, ethernet(CLIENT), config(), nothing()));
    let session = net.hosts[0].open(3, SERVER);
    let outcome = net.hosts[0].call(&session, b"new");
    net.done(&outcome).unwrap();
    for server in [2, 9] {
        if server == 9 {
            net.reboot(1, boot(9, ethernet(SERVER), config(), echo(&count)));
        }
        for mut octets in old.clone() {
            net.inject(0, 1, octets.clone());
            // And as if they were newer than all that the channel has seen.
            octets[14] = octets[14].wrapping_add(0x20);
            net.inject(0, 1, octets);
        }
        net.run_until(net.now.after(Duration::from_secs(1)), &mut |_| vec![PASS]);
        assert_eq!(count.get(), 3, "server {server}");
    }
    net.stop();
}

#[test]
fn replies_are_asked_for_and_given_up() {
    let (mut net, _count) = pair();
    let session = net.hosts[0].open(3, SERVER);
    let outcome = net.hosts[0].call(&session, b"hello");
    net.done(&outcome).unwrap();
    net.log.clear();
    net.run_until(Time::from_s(10), &mut |_| vec![PASS]);
    let [probe, answer] = &net.log[..] else {
        panic!("one question and one answer, not {}", net.log.len());
    };
    assert_eq!(probe.header().flags, ACK | CLOSE);
    assert_eq!(answer.header().flags, ACK | CLOSE | crate::net::server_flag());
    // The next one's client says nothing any more.
    let outcome = net.hosts[0].call(&session, b"hello");
    net.done(&outcome).unwrap();
    net.log.clear();
    net.run_until(Time::from_s(600), &mut |_| vec![]);
    let line = |host: &Host| host.layer.ask(&host.cx, xk_core::control::Describe::default());
    assert!(line(&net.hosts[1]).unwrap().text.contains("0 clients, 0 processes"));
    assert!(net.log.len() < 30, "seldom after the tenth: {}", net.log.len());
    let outcome = net.hosts[0].call(&session, b"challenged");
    assert_eq!(net.done(&outcome).unwrap(), b"challenged");
    net.stop();
}

#[test]
fn sixty_five_callers_share_eight_channels() {
    let (mut net, count, gate) = slow_pair();
    let session = net.hosts[0].open(3, SERVER);
    let all: Vec<_> = (0..65u8).map(|n| net.hosts[0].call(&session, &[n])).collect();
    net.run_until(Time::from_ms(50), &mut |_| vec![PASS]);
    assert_eq!(count.get(), 8);
    for _ in 0..65 {
        release(&net.hosts[1], &gate);
        net.run_until(net.now.after(Duration::from_millis(1)), &mut |_| vec![PASS]);
    }
    for (n, outcome) in all.iter().enumerate() {
        assert_eq!(outcome.get().unwrap(), [n as u8]);
    }
    assert_eq!(count.get(), 65);
    net.stop();
}

#[test]
fn deadlines_and_cancelling_end_calls_and_waits_for_channels() {
    let (mut net, _count, gate) = slow_pair();
    let session = net.hosts[0].open(3, SERVER);
    let with = |net: &Net, deadline, tag| {
        let mut request = net.hosts[0].cx.message(b"slow");
        request.set_attribute(CallOptions { deadline, tag }).unwrap();
        net.hosts[0].call_with(&session, request)
    };
    let held: Vec<_> = (0..7).map(|_| net.hosts[0].call(&session, b"held")).collect();
    let timed = with(&net, Time::from_ms(250), 0);
    let waiting = with(&net, Time::from_ms(200), 0);
    let tagged = with(&net, Time::MAX, 77);
    net.run_until(Time::from_ms(220), &mut |_| vec![PASS]);
    assert_eq!(waiting.get().unwrap_err().cause, CallCause::TimedOut { tries: 0 });
    assert_eq!(waiting.at.get(), Time::from_ms(200));
    assert!(!timed.is_there());
    let cancelled = session.ask(&net.hosts[0].cx, CancelCall { tag: 77 });
    assert!(cancelled.is_some());
    net.run_until(Time::from_ms(260), &mut |_| vec![PASS]);
    assert_eq!(tagged.get().unwrap_err().cause, CallCause::Cancelled);
    assert!(matches!(timed.get().unwrap_err().cause, CallCause::TimedOut { tries: 2 | 3 }));
    assert_eq!(timed.at.get(), Time::from_ms(250));
    net.hosts[0].spawn(move |cx| session.close(cx));
    net.run_until(Time::from_ms(300), &mut |_| vec![PASS]);
    assert!(held.iter().all(|o| o.get().unwrap_err().cause == CallCause::Closed));
    for _ in 0..8 {
        release(&net.hosts[1], &gate);
    }
    net.run_until(Time::from_s(1), &mut |_| vec![PASS]);
    net.stop();
}

#[test]
fn a_call_on_a_channel_whose_last_call_still_runs_waits_for_it() {
    let (count, gate) = (Rc::default(), Rc::new(Semaphore::new(0)));
    let one = xk_mrpc::Config { channels: 1, ..config() };
    let client = boot(1, ethernet(CLIENT), one, nothing());
    let mut net = Net::new(vec![client, slow_server(2, &count, &gate)]);
    let session = net.hosts[0].open(3, SERVER);
    let mut request = net.hosts[0].cx.message(b"given up");
    let deadline = Time::from_ms(50);
    request.set_attribute(CallOptions { deadline, tag: 0 }).unwrap();
    let first = net.hosts[0].call_with(&session, request);
    let second = net.hosts[0].call(&session, b"second");
    net.run_until(Time::from_s(1), &mut |_| vec![PASS]);
    assert!(first.get().is_err() && !second.is_there());
    assert_eq!(count.get(), 1);
    assert!(net.hosts[1].dropped(&xk_mrpc::STUCK) > 0);
    release(&net.hosts[1], &gate);
    net.run_until(Time::from_s(3), &mut |_| vec![PASS]);
    assert_eq!((count.get(), net.hosts[1].dropped(&xk_mrpc::SUPPRESSED)), (2, 1));
    release(&net.hosts[1], &gate);
    assert_eq!(net.done(&second).unwrap(), b"second");
    net.stop();
}

#[test]
fn a_procedure_may_call_back() {
    let session: Rc<RefCell<Option<xk_core::SessionRef>>> = Rc::default();
    let back = Rc::clone(&session);
    let count = Rc::default();
    let client = boot(1, ethernet(CLIENT), config(), echo(&count));
    let nested: Procedure = Rc::new(move |cx: &Kernel, _, request| {
        let session = back.borrow().clone().unwrap();
        session.call(cx, request).map_err(|_| &call::SYSTEM_ERROR)
    });
    let server = boot(2, ethernet(SERVER), config(), nested);
    *session.borrow_mut() = Some(server.open(9, CLIENT));
    let mut net = Net::new(vec![client, server]);
    let session_of_client = net.hosts[0].open(3, SERVER);
    let octets = pattern(5000, 1);
    for round in 1..=20 {
        let all: Vec<_> = (0..8).map(|_| net.hosts[0].call(&session_of_client, &octets)).collect();
        for outcome in all {
            assert!(net.done(&outcome).unwrap() == octets);
        }
        assert_eq!(count.get(), 8 * round);
    }
    session.take();
    net.stop();
}

#[test]
fn refusals_come_back_with_their_reason() {
    let reasons = [
        &call::NO_PROCEDURE,
        &call::BAD_ARGUMENTS,
        &call::SYSTEM_ERROR,
        &call::BUSY,
        &call::BAD_CREDENTIALS,
    ];
    let client = boot(1, ethernet(CLIENT), config(), nothing());
    let refusing: Procedure = Rc::new(move |_, procedure, _| Err(reasons[procedure as usize]));
    let server = boot(2, ethernet(SERVER), config(), refusing);
    let mut net = Net::new(vec![client, server]);
    for (procedure, reason) in reasons.iter().enumerate() {
        let session = net.hosts[0].open(procedure as u32, SERVER);
        let outcome = net.hosts[0].call(&session, b"?");
        // The error is kept like any reply.
        net.finish(&outcome, &mut lose(0, |f| f.header().flags & (REPLY | ERROR) == REPLY | ERROR));
        let error = outcome.get().unwrap_err();
        assert_eq!(error.cause, CallError::rejected(reason).cause);
    }
    net.stop();
}

#[test]
fn sizes_have_limits() {
    let (mut net, count) = pair();
    let session = net.hosts[0].open(3, SERVER);
    for len in [0, 1, 1023, 1024, 1025, 2048, 16_383, 16_384] {
        let octets = pattern(len, 3);
        let outcome = net.hosts[0].call(&session, &octets);
        assert!(net.done(&outcome).unwrap() == octets, "{len}");
    }
    let outcome = net.hosts[0].call(&session, &pattern(16_385, 3));
    let cause = net.done(&outcome).unwrap_err().cause;
    assert_eq!(cause, CallCause::Push(xk_core::object::PushError::TooBig));
    assert_eq!(count.get(), 8);
    net.stop();
}

#[test]
fn both_areas_arrive_as_they_were_sent() {
    let seen: Rc<Cell<Option<u16>>> = Rc::default();
    let note = Rc::clone(&seen);
    let client = boot(1, ethernet(CLIENT), config(), nothing());
    let server = boot(
        2,
        ethernet(SERVER),
        config(),
        Rc::new(move |_, _, mut request| {
            let area1 = request.remove_attribute::<xk_mrpc::Parameters>();
            note.set(area1.map(|p| p.octets));
            if let Some(area1) = area1 {
                request.set_attribute(area1).unwrap();
            }
            Ok(request)
        }),
    );
    let mut net = Net::new(vec![client, server]);
    let session = net.hosts[0].open(3, SERVER);
    for (area1, area2) in [(1, 0), (1024, 0), (100, 100), (1000, 1000), (1024, 16_384)] {
        let octets = pattern(area1 + area2, 9);
        let mut request = net.hosts[0].cx.message(&octets);
        let parameters = xk_mrpc::Parameters { octets: area1 as u16 };
        request.set_attribute(parameters).unwrap();
        let outcome = net.hosts[0].call_with(&session, request);
        assert!(net.done(&outcome).unwrap() == octets);
        assert_eq!(seen.get(), Some(area1 as u16));
        let last = net.log.last().unwrap().header();
        assert_eq!(last.flags & REPLY, REPLY);
    }
    net.stop();
}

#[test]
fn the_dispatcher_answers_echoes() {
    let (mut net, count) = pair();
    let session = net.hosts[0].open(1, SERVER);
    let mut request = net.hosts[0].cx.message(b"are you there?");
    request.set_attribute(xk_mrpc::Echo).unwrap();
    let outcome = net.hosts[0].call_with(&session, request);
    assert_eq!(net.done(&outcome).unwrap(), b"are you there?");
    assert_eq!((count.get(), net.log.len()), (0, 2), "no ticket, no process");
    net.stop();
}

#[test]
fn a_full_server_says_so_until_it_is_not() {
    let (count, gate) = (Rc::default(), Rc::new(Semaphore::new(0)));
    let client = boot(1, ethernet(CLIENT), config(), nothing());
    let two = xk_mrpc::Config { processes_max: 2, ..config() };
    let (c, g) = (Rc::clone(&count), Rc::clone(&gate));
    let count: Rc<Cell<u32>> = count;
    let server = boot(
        2,
        ethernet(SERVER),
        two,
        Rc::new(move |cx, _, request| {
            c.set(c.get() + 1);
            cx.wait(&g, None).map_err(|_| &call::SYSTEM_ERROR)?;
            Ok(request)
        }),
    );
    let mut net = Net::new(vec![client, server]);
    let session = net.hosts[0].open(3, SERVER);
    let all: Vec<_> = (0..3u8).map(|n| net.hosts[0].call(&session, &[n])).collect();
    net.run_until(Time::from_s(1), &mut |_| vec![PASS]);
    assert_eq!((count.get(), net.hosts[1].dropped(&xk_mrpc::NO_PROCESS)), (2, 1));
    release(&net.hosts[1], &gate);
    net.run_until(Time::from_s(10), &mut |_| vec![PASS]);
    assert_eq!(count.get(), 3, "the acknowledged one's process went to the third");
    release(&net.hosts[1], &gate);
    release(&net.hosts[1], &gate);
    for (n, outcome) in all.iter().enumerate() {
        assert_eq!(net.done(outcome).unwrap(), [n as u8]);
    }
    // And one that stays full.
    let held: Vec<_> = (0..2).map(|_| net.hosts[0].call(&session, b"held")).collect();
    net.run_until(net.now.after(Duration::from_secs(20)), &mut |_| vec![PASS]);
    assert_eq!(count.get(), 5);
    let outcome = net.hosts[0].call(&session, b"too many");
    let error = net.done(&outcome).unwrap_err();
    assert_eq!(error.cause, CallError::rejected(&call::BUSY).cause);
    for _ in held {
        release(&net.hosts[1], &gate);
    }
    net.run_until(net.now.after(Duration::from_secs(1)), &mut |_| vec![PASS]);
    net.stop();
}

#[test]
fn a_bare_link_carries_calls() {
    let count = Rc::default();
    let lower = xk_testkit::kernel::Lower::link(1500);
    let client = boot(1, lower, Config::default(), nothing());
    let server = boot(2, lower, Config::default(), echo(&count));
    let mut net = Net::new(vec![client, server]);
    let session = net.hosts[0].open(3, core::net::Ipv4Addr::UNSPECIFIED);
    let octets = pattern(16_384, 5);
    let outcome = net.hosts[0].call(&session, &octets);
    assert!(net.done(&outcome).unwrap() == octets);
    net.stop();
}
