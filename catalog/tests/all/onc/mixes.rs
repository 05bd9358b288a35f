//! The layers of ONC RPC on others below: records on streams, a bare link, a layer with one call at
//! a time.

use crate::onc::net::{Faults, Net, PORT, PROGRAM, host, over};
use core::cell::RefCell;
use core::time::Duration;
use std::rc::Rc;
use xk_core::object::{CallCause, PushError};
use xk_core::{Kernel, ProtocolRef, Upper};
use xk_kit::net::stream::{StreamAbort, StreamSpace};
use xk_kit::rpc::call::{CallOptions, CancelCall};
use xk_testkit::kernel::Lower;

fn on_tcp(cx: &Kernel, name: &str, below: ProtocolRef) -> ProtocolRef {
    let settings = xk_tcp::Settings::default();
    let tcp = xk_tcp::add(cx, &format!("tcp-{name}"), below, 64, settings);
    let settings = xk_rm::Settings {
        record_max: 200_000,
        queue_max: 400_000,
        held_max: 1_000_000,
        sessions_max: 4,
    };
    let rm = xk_rm::add(cx, &format!("rm-{name}"), tcp, settings);
    over(cx, name, rm, xk_reqrep::Settings::default())
}

fn tcp_net(seed: u64, local: &str) -> Rc<Net> {
    Net::with(seed, &on_tcp, [1, 2].map(|n| Lower::host(host(n), 6)), local)
}

fn local() -> String {
    format!("version1@program{PROGRAM}@port{PORT}")
}

#[test]
fn calls_of_any_size_go_over_a_stream() {
    let net = tcp_net(1, &local());
    let session = net.open(1);
    for size in [0, 1, 4, 1000, 8800, 70_000, 199_900] {
        let arguments: Vec<u8> = (0..size).map(|n| (n * 7) as u8).collect();
        assert_eq!(net.call(&session, &arguments), Ok(arguments), "{size}");
    }
    let error = net.call(&session, &[0; 200_000]).expect_err("too big");
    assert!(matches!(error.cause, CallCause::Push(PushError::TooBig)));
    drop(session);
    net.finish();
}

#[test]
fn a_lossy_network_costs_no_call_and_none_is_executed_twice() {
    let net = tcp_net(2, &local());
    net.faults.set(Faults { loss: 50, duplicate: 20, late: 100 });
    let results = Rc::new(RefCell::new(0));
    let session = net.open(1);
    for n in 0..100u32 {
        let (results, session) = (Rc::clone(&results), session.clone());
        net.then(move |net| {
            let octets = vec![n as u8; 1 + 37 * n as usize];
            let reply = session.call(&net.cx, net.cx.message(&octets)).unwrap();
            assert!(reply.eq_octets(&octets));
            *results.borrow_mut() += 1;
        });
    }
    net.run();
    assert_eq!(*results.borrow(), 100);
    assert_eq!(net.server.executed.get(), 100);
    drop(session);
    net.finish();
}

#[test]
fn after_the_connection_broke_the_call_goes_on_over_a_new_one() {
    let net = tcp_net(3, &local());
    let session = net.open(3);
    assert!(net.call(&session, b"first").is_ok());
    // The server breaks the connection while it executes.
    net.server.act.replace(Some(Rc::new(|cx: &Kernel, _, _: &_| {
        let rm = cx.find_protocol("rm-server").unwrap();
        let list = xk_core::control::ListSessions::first(8);
        for session in rm.ask(cx, list).unwrap().here() {
            let _ = session.ask(cx, StreamAbort);
        }
        None
    })));
    let begun = net.cx.now();
    let other = session.clone();
    net.then(move |net| {
        let reply = other.call(&net.cx, net.cx.message(b"second"));
        assert!(reply.unwrap().eq_octets(b"second"));
    });
    let server = Rc::clone(&net.server);
    net.then(move |net| {
        // Broken once, not again.
        let never = xk_core::shepherd::Semaphore::new(0);
        let _ = net.cx.wait(&never, Some(Duration::from_millis(5)));
        server.act.replace(None);
    });
    net.run();
    assert!(net.server.executed.get() >= 2);
    assert!(net.cx.now().since(begun) < Duration::from_secs(10));
    drop(session);
    net.finish();
}

#[test]
fn where_nobody_listens_the_call_ends_at_once() {
    let net = tcp_net(4, &local());
    let text = format!("*, procedure1@version1@program{PROGRAM}@port9@10.0.0.2");
    let begun = net.cx.now();
    let error = net.call(&net.open_as(&text), b"x").expect_err("refused");
    assert_eq!(error.cause, CallCause::NobodyThere);
    assert!(net.cx.now().since(begun) < Duration::from_secs(1));
    net.finish();
}

#[test]
fn a_bare_link_will_do() {
    let build = |cx: &Kernel, name: &str, below: ProtocolRef| {
        over(cx, name, below, xk_reqrep::Settings::default())
    };
    let link = [Lower::link(9000), Lower::link(9000)];
    let local = format!("version1@program{PROGRAM}");
    let net = Net::with(5, &build, link, &local);
    let text = format!("*, procedure1@version1@program{PROGRAM}@*");
    let session = net.open_as(&text);
    assert_eq!(net.call(&session, b"over a link"), Ok(b"over a link".into()));
    drop(session);
    net.finish();
}

/// One call at a time.
fn on_channel(cx: &Kernel, name: &str, below: ProtocolRef) -> ProtocolRef {
    let limits = xk_channel::Limits::default();
    let channel = xk_channel::add(cx, &format!("channel-{name}"), below, limits);
    let settings = xk_sunselect::Settings { lines_max: 1, ..xk_sunselect::Settings::default() };
    let select = xk_sunselect::add(cx, &format!("sunselect-{name}"), channel.clone(), settings);
    cx.numbers_mut().override_pair(select.id(), channel.id(), 0x67);
    let settings = xk_sunprog::Settings::default();
    let prog = xk_sunprog::add(cx, &format!("sunprog-{name}"), select.clone(), &[], settings);
    cx.numbers_mut().override_pair(prog.id(), select.id(), 0);
    prog
}

#[test]
fn a_call_taken_back_as_its_turn_comes_is_not_made() {
    let below = [1, 2].map(|n| Lower::host(host(n), 102));
    let net = Net::with(7, &on_channel, below, &format!("version1@program{PROGRAM}"));
    let text = format!("*, procedure3@version1@program{PROGRAM}@10.0.0.2");
    let session = net.open_as(&text);
    let end = Rc::new(RefCell::new(None));
    let first = session.clone();
    net.then(move |net| {
        assert!(first.call(&net.cx, net.cx.message(b"first")).is_ok());
        // The line is free, and the second is about to have it.
        assert!(first.ask(&net.cx, CancelCall { tag: 7 }).is_some());
    });
    let (to, second) = (Rc::clone(&end), session.clone());
    net.then(move |net| {
        let mut request = net.cx.message(b"second");
        let deadline = xk_core::Time::MAX;
        request.set_attribute(CallOptions { deadline, tag: 7 }).unwrap();
        let result = second.call(&net.cx, request).map(drop);
        *to.borrow_mut() = Some(result.map_err(|error| error.cause));
    });
    net.run();
    assert_eq!(end.take(), Some(Err(CallCause::Cancelled)));
    assert_eq!(net.server.executed.get(), 1);
    // The line is free for others.
    assert!(net.call(&session, b"third").is_ok());
    drop(session);
    net.finish();
}

/// The server keeps the replies of the latest 64 requests.
fn on_tcp_cached(cx: &Kernel, name: &str, below: ProtocolRef) -> ProtocolRef {
    let settings = xk_tcp::Settings::default();
    let tcp = xk_tcp::add(cx, &format!("tcp-{name}"), below, 64, settings);
    let rm = xk_rm::add(cx, &format!("rm-{name}"), tcp, xk_rm::Settings::default());
    let settings = xk_reqrep::Settings {
        dupcache: 64,
        dupcache_octets: 400_000,
        ..xk_reqrep::Settings::default()
    };
    over(cx, name, rm, settings)
}

#[test]
fn replies_kept_take_no_more_memory_than_they_may() {
    let below = [1, 2].map(|n| Lower::host(host(n), 6));
    let net = Net::with(6, &on_tcp_cached, below, &local());
    let session = net.open(1);
    let in_use = || {
        let stats = net.cx.pool().stats();
        let octets = stats.classes.iter().map(|c| c.live as usize * c.octets);
        octets.sum::<usize>()
    };
    let before = in_use();
    for n in 0..40_u8 {
        assert!(net.call(&session, &[n; 100_000]).is_ok());
    }
    net.wire.take();
    let kept = in_use() - before;
    assert!((300_000..700_000).contains(&kept), "{kept}");
    drop(session);
    net.finish();
}

/// As above, for as many connections as there are peers.
fn on_tcp_of_many(cx: &Kernel, name: &str, below: ProtocolRef) -> ProtocolRef {
    let settings = xk_tcp::Settings::default();
    let tcp = xk_tcp::add(cx, &format!("tcp-{name}"), below, 64, settings);
    let settings = xk_rm::Settings {
        record_max: 200_000,
        queue_max: 200_000,
        held_max: 600_000,
        sessions_max: 64,
    };
    let rm = xk_rm::add(cx, &format!("rm-{name}"), tcp, settings);
    over(cx, name, rm, xk_reqrep::Settings::default())
}

#[test]
fn records_that_never_end_take_no_more_memory_than_they_may_together() {
    let below = [1, 2].map(|n| Lower::host(host(n), 6));
    let net = Net::with(8, &on_tcp_of_many, below, &local());
    let session = net.open(1);
    assert!(net.call(&session, b"before").is_ok());
    let in_use = || {
        let stats = net.cx.pool().stats();
        let octets = stats.classes.iter().map(|c| c.live as usize * c.octets);
        octets.sum::<usize>()
    };
    let before = in_use();
    // Twenty connections, each with most of a record of 150,000 octets: three millions in all.
    let tcp = net.cx.find_protocol("tcp-client").unwrap();
    let mut raw = Vec::new();
    for _ in 0..20 {
        let both = format!("*, port{PORT}@10.0.0.2").parse().unwrap();
        let stream = tcp.open(&net.cx, Upper::new(&net.client), both).unwrap();
        raw.push(stream.clone());
        net.then(move |net| {
            let never = xk_core::shepherd::Semaphore::new(0);
            let mut octets = 0x8002_49f0_u32.to_be_bytes().to_vec();
            octets.resize(149_000, 7);
            let mut rest = &octets[..];
            while !rest.is_empty() && !stream.head().is_closed() {
                let space = stream.ask(&net.cx, StreamSpace::default());
                let space = space.map_or(0, |space| space.octets as usize);
                let (now, later) = rest.split_at(rest.len().min(space).min(8000));
                if !now.is_empty() && stream.push(&net.cx, net.cx.message(now)).is_err() {
                    return;
                }
                rest = later;
                let _ = net.cx.wait(&never, Some(Duration::from_millis(2)));
            }
        });
    }
    net.run();
    net.wire.take();
    let kept = in_use() - before;
    assert!((200_000..1_200_000).contains(&kept), "{kept}");
    assert!(net.drops("rm-server", &xk_rm::HELD_MOST) >= 16);
    // A peer that sends whole records is served all the while.
    let served = net.call(&session, &[7; 150_000]).map(|octets| octets.len());
    assert_eq!(served, Ok(150_000));
    for stream in raw {
        stream.close(&net.cx);
    }
    drop(session);
    net.finish();
}
