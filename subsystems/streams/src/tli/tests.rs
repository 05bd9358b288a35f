//! The interface over the loopback providers, and its table.

use super::state::{STATES, TABLE};
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

/// The public tables of users' states: Oracle, "Programming Interfaces Guide", chapter of XTI and
/// TLI, "State Tables": connection establishment, connection mode parts 1 and 2, connectionless
/// mode. For each event `state>next` by the numbers of `T_UNINIT` (0) to `T_INREL` (7).
const PUBLIC: &[(UserEvent, &str, &str)] = &[
    (UserEvent::Opened, "establishment", "0>1"),
    (UserEvent::Bind, "establishment", "1>2"),
    (UserEvent::Unbind, "establishment", "2>1"),
    (UserEvent::Closed, "establishment", "1>0"),
    (UserEvent::Connect1, "connection mode 1", "2>5"),
    (UserEvent::Connect2, "connection mode 1", "2>3"),
    (UserEvent::Rcvconnect, "connection mode 1", "3>5"),
    (UserEvent::Listen, "connection mode 1", "2>4 4>4"),
    (UserEvent::Accept1, "connection mode 1", "4>5"),
    (UserEvent::Accept2, "connection mode 1", "4>2"),
    (UserEvent::Accept3, "connection mode 1", "4>4"),
    (UserEvent::Snd, "connection mode 1", "5>5"),
    (UserEvent::Rcv, "connection mode 1", "5>5"),
    (UserEvent::Snddis1, "connection mode 1", "3>2 4>2 5>2"),
    (UserEvent::Snddis2, "connection mode 1", "4>4"),
    (UserEvent::Rcvdis1, "connection mode 1", "3>2 5>2"),
    (UserEvent::Rcvdis2, "connection mode 1", "4>2"),
    (UserEvent::Rcvdis3, "connection mode 1", "4>4"),
    (UserEvent::Sndrel, "connection mode 1", "5>6"),
    (UserEvent::Rcvrel, "connection mode 1", "5>7"),
    (UserEvent::PassConn, "connection mode 1", "2>5"),
    (UserEvent::Optmgmt, "connection mode 1", "2>2 3>3 4>4 5>5"),
    (UserEvent::Closed, "connection mode 1", "2>0 3>0 4>0 5>0"),
    (UserEvent::Snd, "connection mode 2", "7>7"),
    (UserEvent::Rcv, "connection mode 2", "6>6"),
    (UserEvent::Snddis1, "connection mode 2", "6>2 7>2"),
    (UserEvent::Rcvdis1, "connection mode 2", "6>2 7>2"),
    (UserEvent::Sndrel, "connection mode 2", "7>2"),
    (UserEvent::Rcvrel, "connection mode 2", "6>2"),
    (UserEvent::PassConn, "connection mode 2", "1>5"),
    (UserEvent::Optmgmt, "connection mode 2", "1>1 6>6 7>7"),
    (UserEvent::Closed, "connection mode 2", "6>0 7>0"),
    (UserEvent::Sndudata, "connectionless mode", "2>2"),
    (UserEvent::Rcvudata, "connectionless mode", "2>2"),
    (UserEvent::Rcvuderr, "connectionless mode", "2>2"),
];

#[test]
fn each_cell_is_that_of_the_public_tables() {
    let mut public = alloc::collections::BTreeMap::new();
    for (event, section, cells) in PUBLIC {
        for cell in cells.split(' ') {
            let (from, to) = cell.split_once('>').unwrap();
            let (from, to): (u32, u32) = (from.parse().unwrap(), to.parse().unwrap());
            let before = public.insert((*event as u8, from), (to, *section));
            assert_eq!(before, None, "{event:?} in {from} stands in two tables");
        }
    }
    assert_eq!(TABLE.len() * STATES.len(), 25 * 8);
    for (event, _) in TABLE {
        for state in STATES {
            let ours = state.after(*event).map(|next| next as u32);
            let theirs = public.remove(&(*event as u8, state as u32));
            assert_eq!(ours, theirs.map(|(to, _)| to), "{event:?} in {state:?}: {theirs:?}");
        }
    }
    assert!(public.is_empty(), "{public:?}");
}

/// An endpoint in each state that lasts, and what must live as long.
fn in_states(cx: &TestKernel, streams: &Rc<Streams>) -> Vec<(UserState, Endpoint, Vec<Endpoint>)> {
    let mut all = Vec::new();
    let (unbound, _) = Endpoint::open(cx, streams, "ticotsord").unwrap();
    unbound.stream().set_nonblocking(true);
    all.push((UserState::Unbnd, unbound, vec![]));
    all.push((UserState::Idle, bound(cx, streams, "ticotsord", b"idle", 0), vec![]));
    for (state, name) in [(UserState::OutCon, b"o"), (UserState::InCon, b"i")] {
        let listener = bound(cx, streams, "ticotsord", name, 1);
        let client = bound(cx, streams, "ticotsord", &[name[0], 1], 0);
        assert_eq!(error(client.connect(cx, name, &[], &[])), TliError::TNODATA);
        if state == UserState::OutCon {
            all.push((state, client, vec![listener]));
        } else {
            listener.listen(cx).unwrap();
            all.push((state, listener, vec![client]));
        }
    }
    for (state, name) in
        [(UserState::DataXfer, b"d"), (UserState::OutRel, b"r"), (UserState::InRel, b"n")]
    {
        let listener = bound(cx, streams, "ticotsord", name, 1);
        let client = bound(cx, streams, "ticotsord", &[name[0], 1], 0);
        assert_eq!(error(client.connect(cx, name, &[], &[])), TliError::TNODATA);
        let call = listener.listen(cx).unwrap();
        listener.accept(cx, &listener, &call).unwrap();
        client.rcvconnect(cx).unwrap();
        match state {
            UserState::OutRel => client.sndrel(cx).unwrap(),
            UserState::InRel => {
                listener.sndrel(cx).unwrap();
                client.rcvrel(cx).unwrap();
            }
            _ => {}
        }
        all.push((state, client, vec![listener]));
    }
    all
}

/// A call of the interface, and the events by which it may end.
type Call1 = (&'static [UserEvent], fn(&TestKernel, &Endpoint) -> Option<TliError>);

fn told<T>(answer: Answer<T>) -> Option<TliError> {
    answer.err().map(|refusal| refusal.tli)
}

#[test]
fn each_call_in_each_state_does_what_the_table_says() {
    use UserEvent as E;
    let calls: &[Call1] = &[
        (&[E::Bind], |cx, e| told(e.bind(cx, Some(b"new"), 0))),
        (&[E::Unbind], |cx, e| told(e.unbind(cx))),
        (&[E::Optmgmt], |cx, e| told(e.optmgmt(cx, b"opt", 4))),
        (&[E::Connect1, E::Connect2], |cx, e| told(e.connect(cx, b"idle", &[], &[]))),
        (&[E::Rcvconnect], |cx, e| told(e.rcvconnect(cx))),
        (&[E::Listen], |cx, e| told(e.listen(cx))),
        (&[E::Accept1], |cx, e| told(e.accept(cx, e, &Call::default()))),
        (&[E::Snd], |cx, e| told(e.snd(cx, b"x", 0))),
        (&[E::Rcv], |cx, e| told(e.rcv(cx, 9))),
        (&[E::Snddis1], |cx, e| told(e.snddis(cx, None, &[]))),
        (&[E::Rcvdis1, E::Rcvdis2], |cx, e| told(e.rcvdis(cx))),
        (&[E::Sndrel], |cx, e| told(e.sndrel(cx))),
        (&[E::Rcvrel], |cx, e| told(e.rcvrel(cx))),
        (&[E::Closed], |cx, e| told(e.close(cx))),
    ];
    let mut cells = 0;
    for (events, call) in calls {
        let (cx, streams) = rig();
        for (state, endpoint, _others) in in_states(&cx, &streams) {
            assert_eq!((endpoint.getstate(), endpoint.sync(&cx)), (state, Ok(state)));
            let may = events.iter().any(|event| state.after(*event).is_some());
            let told = call(&cx, &endpoint);
            assert_eq!(told != Some(TliError::TOUTSTATE), may, "{events:?} in {state:?}: {told:?}");
            // A call that is refused leaves the state alone; one that is not leaves both ends one.
            if told == Some(TliError::TOUTSTATE) {
                assert_eq!(endpoint.getstate(), state, "{events:?}");
            }
            if endpoint.getstate() != UserState::Uninit && endpoint.look().is_none() {
                let ours = endpoint.getstate();
                assert_eq!(endpoint.sync(&cx), Ok(ours), "{events:?} in {state:?}");
            }
            cells += 1;
        }
        cx.stop();
        assert_eq!(streams.blocks().stats().messages, 0, "{events:?}");
    }
    assert_eq!(cells, 14 * 7);
}

#[test]
fn each_request_in_each_state_is_answered_as_the_table_says() {
    use crate::head::{POLLERR, Want};
    use crate::tpi::{Event as T, Primitive as P, State};
    let requests: [(T, P<'_>); 9] = [
        (T::BindReq, P::BindReq { addr: b"new", conind: 0 }),
        (T::UnbindReq, P::UnbindReq),
        (T::OptmgmtReq, P::OptmgmtReq { opt: b"opt", flags: 4 }),
        (T::ConnReq, P::ConnReq { dest: b"idle", opt: &[] }),
        (T::ConnRes, P::ConnRes { acceptor: 0, opt: &[], seq: 9 }),
        (T::DisconReq, P::DisconReq { seq: 9 }),
        (T::DataReq, P::DataReq { more: false }),
        (T::ExdataReq, P::ExdataReq { more: false }),
        (T::OrdrelReq, P::OrdrelReq),
    ];
    let mut cells = 0;
    for (event, request) in requests {
        let (cx, streams) = rig();
        for (at, endpoint, _others) in in_states(&cx, &streams) {
            let state = endpoint.getinfo(&cx).unwrap().state;
            let stream = endpoint.stream();
            let data = streams.blocks().copy(Kind::Data, 0, b"x").unwrap();
            let mp = request.emit(streams.blocks()).unwrap().linked(data);
            stream.putp(&cx, mp).unwrap();
            let is_data = matches!(event, T::DataReq | T::ExdataReq | T::OrdrelReq);
            let may = state.after(event).is_some();
            let failed = stream.poll_now(&cx, 0) & POLLERR != 0;
            if is_data {
                // Data in the idle state is dropped: the connection may just have ended.
                let is_dropped = state == State::Idle && event != T::OrdrelReq;
                assert_eq!(failed, !may && !is_dropped, "{event:?} in {at:?}");
            } else {
                let answer = stream.getp(&cx, Want::High).unwrap();
                let refused = match P::of(&answer).unwrap() {
                    P::ErrorAck { refusal, .. } => Some(refusal.tli),
                    _ => None,
                };
                assert_eq!(refused != Some(TliError::TOUTSTATE), may, "{event:?} in {at:?}");
                let now = endpoint.getinfo(&cx).unwrap().state;
                // What is refused leaves the state as it was.
                if refused.is_some() {
                    assert_eq!(now, state, "{event:?} in {at:?}: {refused:?}");
                }
            }
            cells += 1;
        }
        cx.stop();
        assert_eq!(streams.blocks().stats().messages, 0, "{event:?}");
    }
    assert_eq!(cells, 9 * 7);
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
fn what_is_sent_with_the_last_blocks_arrives_in_order() {
    for held in 0..6 {
        let cx = TestKernel::new(1);
        let bounds = Bounds { blocks_max: 16, ..Bounds::default() };
        let (streams, _) = crate::add(&cx, "streams", bounds);
        tic::add(&streams);
        let (client, server, _listener) = connected(&cx, &streams);
        let _held: Vec<_> = (0..held).map(|_| client.block(b"held").unwrap()).collect();
        let mut sent = Vec::new();
        for n in 0..40 {
            // The rest goes as data alone.
            let is_sent = match n % 2 {
                0 => client.snd(&cx, &[n], 0).is_ok(),
                _ => client.stream().write(&cx, &[n]).is_ok(),
            };
            sent.extend(is_sent.then_some(n));
        }
        client.sndrel(&cx).unwrap_or_default();
        let mut got = Vec::new();
        while let Ok((octets, _)) = server.rcv(&cx, 9) {
            got.extend(octets);
            cx.advance(Duration::from_millis(20));
        }
        assert_eq!(got, sent, "{held} held");
    }
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
