//! The interface over the loopback providers, and its table.

use super::*;
use crate::tpi::NO_SIZE;
use crate::{Bounds, tic};
use alloc::string::ToString;
use alloc::vec;
use core::time::Duration;
use xk_testkit::kernel::TestKernel;

fn rig() -> (TestKernel, Rc<Streams>) {
    let cx = TestKernel::new(1);
    let (streams, _) = crate::add(&cx, "streams", Bounds::default());
    tic::add(&streams);
    (cx, streams)
}

/// An endpoint that does not wait, bound.
fn bound(cx: &TestKernel, streams: &Rc<Streams>, name: &str, addr: &[u8], qlen: u32) -> Endpoint {
    let (endpoint, _) = Endpoint::open(cx, streams, name).unwrap();
    endpoint.stream().set_nonblocking(true);
    let bound = endpoint.bind(cx, Some(addr), qlen).unwrap();
    assert_eq!(bound, (addr.to_vec(), qlen));
    endpoint
}

fn error<T: core::fmt::Debug>(result: Answer<T>) -> TliError {
    result.unwrap_err().tli
}

#[test]
fn every_cell_of_the_table_is_as_written_down() {
    assert_eq!(TableText.to_string(), include_str!("states.txt"));
}

#[test]
fn datagrams_go_and_come_in_parts() {
    let (cx, streams) = rig();
    let a = bound(&cx, &streams, "ticlts", b"a", 0);
    let b = bound(&cx, &streams, "ticlts", b"b", 0);
    assert_eq!(error(a.rcvudata(&cx, Maxima::ALL)), TliError::TNODATA);
    a.sndudata(&cx, b"b", b"opt", b"hello world").unwrap();
    assert_eq!(b.look(), Some(Event::Data));
    let unit = b.rcvudata(&cx, Maxima { data: 5, ..Maxima::ALL }).unwrap();
    assert_eq!((unit.addr, unit.opt), (b"a".to_vec(), b"opt".to_vec()));
    assert_eq!((unit.data, unit.flags), (b"hello".to_vec(), T_MORE));
    let unit = b.rcvudata(&cx, Maxima::ALL).unwrap();
    assert_eq!((unit.addr, unit.data, unit.flags), (vec![], b" world".to_vec(), 0));
    // To none: the error is an event, and stands in the way until it is taken.
    a.sndudata(&cx, b"nowhere", &[], b"x").unwrap();
    assert_eq!(a.look(), Some(Event::Uderr));
    assert_eq!(error(a.sndudata(&cx, b"b", &[], b"x")), TliError::TLOOK);
    assert_eq!(error(a.rcvudata(&cx, Maxima::ALL)), TliError::TLOOK);
    assert_eq!(error(a.unbind(&cx)), TliError::TLOOK);
    let told = a.rcvuderr(&cx).unwrap();
    assert_eq!((told.addr, told.error), (b"nowhere".to_vec(), Errno::ECONNREFUSED.0));
    assert_eq!(error(a.rcvuderr(&cx)), TliError::TNOUDERR);
    a.sndudata(&cx, b"b", &[], b"x").unwrap();
    let short = Maxima { addr: 0, ..Maxima::ALL };
    assert_eq!(error(b.rcvudata(&cx, short)), TliError::TBUFOVFLW);
    assert_eq!(error(a.sndudata(&cx, b"b", &[], &[0; 65_537])), TliError::TBADDATA);
    assert_eq!(error(a.snd(&cx, b"x", 0)), TliError::TNOTSUPPORT);
    a.unbind(&cx).unwrap();
    assert_eq!(error(a.sndudata(&cx, b"b", &[], b"x")), TliError::TOUTSTATE);
    a.close(&cx).unwrap();
    assert_eq!(error(a.close(&cx)), TliError::TOUTSTATE);
}

#[test]
fn an_address_in_use_is_replaced_and_states_are_kept() {
    let (cx, streams) = rig();
    let a = bound(&cx, &streams, "ticlts", b"a", 0);
    let (b, info) = Endpoint::open(&cx, &streams, "ticlts").unwrap();
    assert_eq!((info.service, info.state, info.etsdu), (Service::Clts, State::Unbnd, NO_SIZE));
    assert_eq!(error(b.unbind(&cx)), TliError::TOUTSTATE);
    let (other, _) = b.bind(&cx, Some(b"a"), 0).unwrap();
    assert_ne!(other, b"a");
    assert_eq!(error(b.bind(&cx, None, 0)), TliError::TOUTSTATE);
    assert_eq!(b.sync(&cx), Ok(UserState::Idle));
    assert_eq!(b.getprotaddr(&cx).unwrap().0, other);
    assert_eq!(b.optmgmt(&cx, b"options", 4), Ok((b"options".to_vec(), 4)));
    assert_eq!(error(b.bind(&cx, Some(&[0; 17]), 0)), TliError::TOUTSTATE);
    b.unbind(&cx).unwrap();
    assert_eq!(error(b.bind(&cx, Some(&[0; 17]), 0)), TliError::TBADADDR);
    assert_eq!(b.getstate(), UserState::Unbnd);
    drop(a);
    assert_eq!(error(Endpoint::open(&cx, &streams, "none").map(drop)), TliError::TSYSERR);
}

/// A connection between two endpoints, accepted on a third.
fn connected(cx: &TestKernel, streams: &Rc<Streams>) -> (Endpoint, Endpoint, Endpoint) {
    let listener = bound(cx, streams, "ticotsord", b"server", 2);
    let client = bound(cx, streams, "ticotsord", b"client", 0);
    assert_eq!(error(listener.listen(cx)), TliError::TNODATA);
    assert_eq!(error(client.connect(cx, b"server", b"o", b"hello")), TliError::TNODATA);
    assert_eq!((client.getstate(), listener.look()), (UserState::OutCon, Some(Event::Listen)));
    let call = listener.listen(cx).unwrap();
    assert_eq!(
        (&call.addr[..], &call.opt[..], &call.data[..]),
        (&b"client"[..], &b"o"[..], &b"hello"[..])
    );
    let server = bound(cx, streams, "ticotsord", b"worker", 0);
    listener.accept(cx, &server, &Call { data: b"welcome".to_vec(), ..call }).unwrap();
    assert_eq!(client.look(), Some(Event::Connect));
    assert_eq!(client.rcvconnect(cx).unwrap().data, b"welcome");
    for (endpoint, state) in [
        (&client, UserState::DataXfer),
        (&server, UserState::DataXfer),
        (&listener, UserState::Idle),
    ] {
        assert_eq!(endpoint.getstate(), state);
        assert_eq!(endpoint.sync(cx), Ok(state));
    }
    (client, server, listener)
}

#[test]
fn connections_carry_data_and_are_released_in_order() {
    let (cx, streams) = rig();
    let (client, server, _listener) = connected(&cx, &streams);
    assert_eq!(client.snd(&cx, b"one", 0), Ok(3));
    assert_eq!(client.snd(&cx, b"two", T_MORE), Ok(3));
    assert_eq!(client.snd(&cx, b"!", T_EXPEDITED), Ok(1));
    assert_eq!(client.snd(&cx, &[7; 10_000], 0), Ok(10_000));
    assert_eq!(server.rcv(&cx, 2), Ok((b"on".to_vec(), T_MORE)));
    assert_eq!(server.rcv(&cx, 9), Ok((b"e".to_vec(), 0)));
    assert_eq!(server.rcv(&cx, 9), Ok((b"two".to_vec(), T_MORE)));
    assert_eq!(server.look(), Some(Event::Exdata));
    assert_eq!(server.rcv(&cx, 9), Ok((b"!".to_vec(), T_EXPEDITED)));
    let sizes = [(4096, T_MORE), (4096, T_MORE), (1808, 0)];
    for (size, flags) in sizes {
        assert_eq!(server.rcv(&cx, 5000), Ok((vec![7; size], flags)));
    }
    for (data, flags, wrong) in [
        (&b""[..], 0, TliError::TBADDATA),
        (b"x", 8, TliError::TBADFLAG),
        (&[0; 17], T_EXPEDITED, TliError::TBADDATA),
    ] {
        assert_eq!(error(client.snd(&cx, data, flags)), wrong);
    }
    assert_eq!(error(client.rcvrel(&cx)), TliError::TNOREL);
    client.sndrel(&cx).unwrap();
    assert_eq!(error(client.snd(&cx, b"x", 0)), TliError::TOUTSTATE);
    assert_eq!(error(server.rcv(&cx, 1)), TliError::TLOOK);
    server.rcvrel(&cx).unwrap();
    server.snd(&cx, b"last", 0).unwrap();
    assert_eq!(client.rcv(&cx, 9), Ok((b"last".to_vec(), 0)));
    server.sndrel(&cx).unwrap();
    client.rcvrel(&cx).unwrap();
    assert_eq!((client.sync(&cx), server.sync(&cx)), (Ok(UserState::Idle), Ok(UserState::Idle)));
    // And once more.
    client.unbind(&cx).unwrap();
}

#[test]
fn a_sender_waits_for_a_receiver() {
    let (cx, streams) = rig();
    let (client, server, _listener) = connected(&cx, &streams);
    let mut sent = 0_usize;
    loop {
        match client.snd(&cx, &[1; 1000], 0) {
            Ok(n) => sent += n,
            Err(refusal) => break assert_eq!(refusal.tli, TliError::TFLOW),
        }
        assert!(sent < 1_000_000, "flow control holds");
    }
    let mut got = 0;
    while got < sent {
        got += server.rcv(&cx, 10_000).unwrap().0.len();
        cx.run_due();
    }
    assert_eq!(error(server.rcv(&cx, 1)), TliError::TNODATA);
    assert_eq!(client.snd(&cx, b"again", 0), Ok(5));
    cx.run_due();
    assert_eq!(server.rcv(&cx, 9).unwrap().0, b"again");
}

#[test]
fn a_connection_is_broken_off_from_either_end() {
    let (cx, streams) = rig();
    let (client, server, listener) = connected(&cx, &streams);
    client.snd(&cx, b"lost", 0).unwrap();
    client.snddis(&cx, None, b"bye").unwrap();
    assert_eq!(server.look(), Some(Event::Disconnect));
    assert_eq!(error(server.snd(&cx, b"x", 0)), TliError::TLOOK);
    let end = server.rcvdis(&cx).unwrap();
    assert_eq!((end.data, end.reason), (b"bye".to_vec(), 0));
    assert_eq!(error(server.rcvdis(&cx)), TliError::TOUTSTATE);
    // One that closes breaks off, too.
    assert_eq!(error(client.connect(&cx, b"server", &[], &[])), TliError::TNODATA);
    let call = listener.listen(&cx).unwrap();
    listener.accept(&cx, &listener, &call).unwrap();
    client.rcvconnect(&cx).unwrap();
    assert_eq!(listener.getstate(), UserState::DataXfer);
    client.close(&cx).unwrap();
    assert_eq!(listener.look(), Some(Event::Disconnect));
    listener.rcvdis(&cx).unwrap();
    assert_eq!(listener.sync(&cx), Ok(UserState::Idle));
}

#[test]
fn connections_are_refused_taken_back_and_bounded() {
    let (cx, streams) = rig();
    let listener = bound(&cx, &streams, "ticots", b"server", 2);
    let clients: Vec<Endpoint> =
        [b"c1", b"c2", b"c3"].iter().map(|addr| bound(&cx, &streams, "ticots", *addr, 0)).collect();
    let tries = clients.iter().map(|client| error(client.connect(&cx, b"server", &[], &[])));
    let tries: Vec<TliError> = tries.collect();
    assert_eq!(tries, [TliError::TNODATA, TliError::TNODATA, TliError::TLOOK]);
    assert_eq!(clients[2].rcvdis(&cx).unwrap().reason, Errno::ECONNREFUSED.0);
    let calls = [listener.listen(&cx).unwrap(), listener.listen(&cx).unwrap()];
    assert_eq!(error(listener.accept(&cx, &listener, &calls[0])), TliError::TBADF);
    let stray = Call { sequence: 999, ..Call::default() };
    let worker = bound(&cx, &streams, "ticots", b"w", 0);
    assert_eq!(error(listener.accept(&cx, &worker, &stray)), TliError::TBADSEQ);
    assert_eq!(error(listener.snddis(&cx, None, &[])), TliError::TBADSEQ);
    listener.snddis(&cx, Some(&calls[0]), b"no").unwrap();
    assert_eq!(listener.getstate(), UserState::InCon);
    assert_eq!(error(clients[0].rcvconnect(&cx)), TliError::TLOOK);
    assert_eq!(clients[0].rcvdis(&cx).unwrap().data, b"no");
    // The other one takes back what it asked for.
    clients[1].snddis(&cx, None, &[]).unwrap();
    assert_eq!(error(listener.accept(&cx, &worker, &calls[1])), TliError::TLOOK);
    assert_eq!(listener.rcvdis(&cx).unwrap().sequence, calls[1].sequence);
    assert_eq!(listener.sync(&cx), Ok(UserState::Idle));
    assert_eq!(error(clients[1].sndrel(&cx)), TliError::TNOTSUPPORT);
    assert_eq!(error(clients[1].connect(&cx, b"nowhere", &[], &[])), TliError::TLOOK);
}

#[test]
fn calls_that_wait_do_so_on_shepherds() {
    let cx = TestKernel::with_stacks(1);
    let (streams, _) = crate::add(&cx, "streams", Bounds::default());
    tic::add(&streams);
    let (to, from) = (Rc::clone(&streams), Rc::clone(&streams));
    let server = move |cx: &Kernel| {
        let (listener, _) = Endpoint::open(cx, &to, "ticotsord").unwrap();
        listener.bind(cx, Some(b"s"), 1).unwrap();
        let call = listener.listen(cx).unwrap();
        listener.accept(cx, &listener, &call).unwrap();
        let mut got = 0;
        while got < 500_000 {
            got += listener.rcv(cx, 4000).unwrap().0.len();
        }
        assert_eq!(listener.snd(cx, b"thanks", 0), Ok(6));
    };
    let client = move |cx: &Kernel| {
        let (client, _) = Endpoint::open(cx, &from, "ticotsord").unwrap();
        client.bind(cx, None, 0).unwrap();
        client.connect(cx, b"s", &[], &[]).unwrap();
        let mut sent = 0;
        while sent < 500_000 {
            sent += client.snd(cx, &[1; 1000], 0).unwrap();
        }
        assert_eq!(client.rcv(cx, 9).unwrap().0, b"thanks");
        client.close(cx).unwrap();
    };
    let ended = cx.run_tasks(
        Duration::from_secs(60),
        vec![
            alloc::boxed::Box::new(server) as xk_testkit::kernel::Task,
            alloc::boxed::Box::new(client),
        ],
        |_| 0,
    );
    assert!(ended);
    cx.stop();
    assert_eq!(streams.blocks().stats().messages, 0);
}
