//! `TcpStream` and `TcpListener`.

use crate::{A_MOMENT, STEP_TIME_MAX, everywhere};
use std::io::{ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::time::{Duration, Instant};
use xk_net::{
    Driver, Mode, Poller, Ready, Sharing, Source, Stack, StreamSetting, StreamState, TcpListener,
    TcpStream,
};

everywhere!(
    octets_arrive_in_order,
    port_zero_is_any_free_one,
    a_port_is_listened_at_once,
    a_listener_frees_its_port,
    listeners_that_share_peers_each_have_some,
    addresses_are_those_of_both_ends,
    nobody_there_is_a_refusal,
    connecting_has_a_timeout,
    peeking_takes_nothing,
    a_timeout_ends_a_read,
    without_blocking_calls_say_so,
    a_full_stream_takes_no_more,
    half_a_close_leaves_the_other_half,
    reading_can_be_ended,
    behind_the_end_there_is_no_writing,
    unread_octets_make_a_reset,
    no_linger_makes_a_reset,
    what_was_written_arrives_after_the_close,
    several_buffers_are_one_stream,
    a_clone_is_the_same_stream,
    many_connections_at_once,
    one_connection_behind_the_other,
    a_poller_tells_who_comes_and_what,
    a_connection_in_the_making_is_watched,
    a_megabyte_each_way,
    options_are_kept,
    a_peer_that_broke_off_is_accepted_with_its_address,
    no_more_waits_unsent_than_is_set,
    records_arrive_as_octets,
    two_thousand_connects_at_once_all_succeed;
    // Whether there is room is asked of one handshake before the stream of another has crossed.
    not across a cut: a_backlog_is_the_programs_number, a_receive_buffer_bounds_a_listeners_streams,
);

const HERE: &str = "10.0.0.1:0";

/// Two ends of a stream.
fn pair<D: Driver>(stack: &Stack<D>) -> (TcpStream<D>, TcpStream<D>) {
    let listener = TcpListener::bind(stack, HERE).unwrap();
    let one = TcpStream::connect(stack, listener.local_addr().unwrap()).unwrap();
    let (other, from) = listener.accept().unwrap();
    assert_eq!(from, one.local_addr().unwrap());
    for end in [&one, &other] {
        end.set_read_timeout(Some(STEP_TIME_MAX)).unwrap();
        end.set_write_timeout(Some(STEP_TIME_MAX)).unwrap();
    }
    (one, other)
}

fn errno<T>(result: std::io::Result<T>) -> Option<i32> {
    result.err().and_then(|error| error.raw_os_error())
}

fn octets_arrive_in_order<D: Driver>(stack: &Stack<D>) {
    let (mut one, mut other) = pair(stack);
    one.write_all(b"hello, ").unwrap();
    one.write_all(b"world").unwrap();
    let mut buffer = [0; 12];
    other.read_exact(&mut buffer).unwrap();
    assert_eq!(&buffer, b"hello, world");
    other.write_all(b"back").unwrap();
    one.read_exact(&mut buffer[..4]).unwrap();
    assert_eq!(&buffer[..4], b"back");
}

fn port_zero_is_any_free_one<D: Driver>(stack: &Stack<D>) {
    let one = TcpListener::bind(stack, HERE).unwrap();
    let other = TcpListener::bind(stack, HERE).unwrap();
    let (one, other) = (one.local_addr().unwrap(), other.local_addr().unwrap());
    assert!(one.port() >= 49152 && one != other);
}

fn a_port_is_listened_at_once<D: Driver>(stack: &Stack<D>) {
    let _first = TcpListener::bind(stack, "10.0.0.1:80").unwrap();
    for again in ["10.0.0.1:80", "0.0.0.0:80"] {
        assert_eq!(errno(TcpListener::bind(stack, again)), Some(98));
    }
    assert_eq!(errno(TcpListener::bind(stack, "10.0.0.9:80")), Some(99));
}

fn a_listener_frees_its_port<D: Driver>(stack: &Stack<D>) {
    for _ in 0..3 {
        let listener = TcpListener::bind(stack, "0.0.0.0:80").unwrap();
        let one = TcpStream::connect(stack, "10.0.0.1:80").unwrap();
        let (other, _) = listener.accept().unwrap();
        drop((one, other, listener));
        assert_eq!(errno(TcpStream::connect(stack, "10.0.0.1:80")), Some(111));
    }
}

fn listeners_that_share_peers_each_have_some<D: Driver>(stack: &Stack<D>) {
    let at: SocketAddr = "10.0.0.1:80".parse().unwrap();
    let port = Sharing { address: false, port: true };
    let listen = || {
        let listener = TcpListener::reserve(stack, at, port)?;
        listener.set_backlog(Some(64))?;
        listener.set_nonblocking(true)?;
        std::io::Result::Ok(listener)
    };
    let mut all = vec![listen().unwrap(), listen().unwrap()];
    assert_eq!(errno(TcpListener::bind(stack, at)), Some(98));
    let mut heard = [0; 2];
    for _ in 0..32 {
        let _one = TcpStream::connect(stack, at).unwrap();
        let begun = Instant::now();
        while begun.elapsed() < STEP_TIME_MAX {
            if let Some(at) = all.iter().position(|listener| listener.accept().is_ok()) {
                heard[at] += 1;
                break;
            }
        }
    }
    assert_eq!(heard.iter().sum::<i32>(), 32);
    assert!(heard.iter().all(|count| *count > 0), "{heard:?}");
    // The first that listened leaves the port to the other.
    drop(all.remove(0));
    let _one = TcpStream::connect(stack, at).unwrap();
    xk_testkit::await_that!(STEP_TIME_MAX, all[0].accept().is_ok(), "nobody is accepted");
    drop(all);
    assert_eq!(errno(TcpStream::connect(stack, at)), Some(111));
}

fn addresses_are_those_of_both_ends<D: Driver>(stack: &Stack<D>) {
    let (one, other) = pair(stack);
    assert_eq!(one.local_addr().unwrap(), other.peer_addr().unwrap());
    assert_eq!(one.peer_addr().unwrap(), other.local_addr().unwrap());
    assert!(one.local_addr().unwrap().port() >= 1024);
}

fn nobody_there_is_a_refusal<D: Driver>(stack: &Stack<D>) {
    let error = TcpStream::connect(stack, "10.0.0.1:9").unwrap_err();
    assert_eq!((error.kind(), error.raw_os_error()), (ErrorKind::ConnectionRefused, Some(111)));
    let two: [SocketAddr; 2] = [([10, 0, 0, 1], 9).into(), ([10, 0, 0, 1], 80).into()];
    let _listener = TcpListener::bind(stack, "10.0.0.1:80").unwrap();
    assert_eq!(TcpStream::connect(stack, &two[..]).unwrap().peer_addr().unwrap(), two[1]);
}

fn connecting_has_a_timeout<D: Driver>(stack: &Stack<D>) {
    let nowhere = "10.0.0.1:9".parse().unwrap();
    let none = TcpStream::connect_timeout(stack, &nowhere, Duration::ZERO).unwrap_err();
    assert_eq!(none.kind(), ErrorKind::InvalidInput);
    let error = TcpStream::connect_timeout(stack, &nowhere, STEP_TIME_MAX).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
}

fn peeking_takes_nothing<D: Driver>(stack: &Stack<D>) {
    let (mut one, mut other) = pair(stack);
    one.write_all(b"hello").unwrap();
    let mut buffer = [0; 8];
    assert_eq!(other.peek(&mut buffer[..2]).unwrap(), 2);
    let begun = Instant::now();
    while other.unread() < 5 {
        assert!(begun.elapsed() < STEP_TIME_MAX);
        let _ = other.peek(&mut buffer);
    }
    assert_eq!(other.peek(&mut buffer).unwrap(), 5);
    assert_eq!(other.read(&mut buffer).unwrap(), 5);
    assert_eq!(&buffer[..5], b"hello");
}

fn a_timeout_ends_a_read<D: Driver>(stack: &Stack<D>) {
    let (mut one, _other) = pair(stack);
    let none = one.set_read_timeout(Some(Duration::ZERO)).unwrap_err();
    assert_eq!(none.kind(), ErrorKind::InvalidInput);
    one.set_read_timeout(Some(A_MOMENT)).unwrap();
    let begun = Instant::now();
    assert_eq!(one.read(&mut [0; 8]).unwrap_err().kind(), ErrorKind::WouldBlock);
    assert!(begun.elapsed() >= A_MOMENT);
}

fn without_blocking_calls_say_so<D: Driver>(stack: &Stack<D>) {
    let listener = TcpListener::bind(stack, HERE).unwrap();
    listener.set_nonblocking(true).unwrap();
    assert_eq!(errno(listener.accept()), Some(11));
    let (mut one, mut other) = pair(stack);
    one.set_nonblocking(true).unwrap();
    assert_eq!(errno(one.read(&mut [0; 8])), Some(11));
    other.write_all(b"x").unwrap();
    let begun = Instant::now();
    while one.read(&mut [0; 8]).is_err() {
        assert!(begun.elapsed() < STEP_TIME_MAX);
    }
}

fn a_full_stream_takes_no_more<D: Driver>(stack: &Stack<D>) {
    let (mut one, mut other) = pair(stack);
    one.set_nonblocking(true).unwrap();
    let mut sent = 0;
    let mut quiet = 0;
    while quiet < 100 {
        match one.write(&[7; 10_000]) {
            Ok(octets) => (sent, quiet) = (sent + octets, 0),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                quiet += 1;
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        assert!(sent < 1 << 30, "it is bounded");
    }
    other.set_nonblocking(true).unwrap();
    let (mut got, mut buffer, begun) = (0, vec![0; 1 << 16], Instant::now());
    while got < sent {
        got += other.read(&mut buffer).unwrap_or(0);
        assert!(begun.elapsed() < STEP_TIME_MAX, "{got} of {sent}");
    }
    // And there is room again.
    while one.write(b"more").is_err() {
        assert!(begun.elapsed() < STEP_TIME_MAX);
    }
}

fn half_a_close_leaves_the_other_half<D: Driver>(stack: &Stack<D>) {
    let (mut one, mut other) = pair(stack);
    one.write_all(b"question").unwrap();
    one.shutdown(Shutdown::Write).unwrap();
    let mut text = String::new();
    other.read_to_string(&mut text).unwrap();
    assert_eq!(text, "question");
    assert_eq!(other.read(&mut [0; 8]).unwrap(), 0, "the end stays the end");
    other.write_all(b"answer").unwrap();
    drop(other);
    let mut text = String::new();
    one.read_to_string(&mut text).unwrap();
    assert_eq!(text, "answer");
}

fn reading_can_be_ended<D: Driver>(stack: &Stack<D>) {
    let (mut one, _other) = pair(stack);
    one.shutdown(Shutdown::Read).unwrap();
    assert_eq!(one.read(&mut [0; 8]).unwrap(), 0);
    one.write_all(b"x").unwrap();
}

fn behind_the_end_there_is_no_writing<D: Driver>(stack: &Stack<D>) {
    let (mut one, _other) = pair(stack);
    one.shutdown(Shutdown::Write).unwrap();
    assert_eq!(errno(one.write(b"x")), Some(32));
}

/// Checks the result of a read once the peer has reset.
fn reset<D: Driver>(one: &mut TcpStream<D>) {
    let begun = Instant::now();
    loop {
        match one.read(&mut [0; 64]) {
            Ok(0) => panic!("an end in order"),
            Ok(_) => assert!(begun.elapsed() < STEP_TIME_MAX),
            Err(error) => {
                assert_eq!(
                    (error.kind(), error.raw_os_error()),
                    (ErrorKind::ConnectionReset, Some(104))
                );
                break;
            }
        }
    }
    assert_eq!(one.read(&mut [0; 8]).unwrap(), 0, "it is told once");
    assert_eq!(errno(one.write(b"x")), Some(32));
}

fn unread_octets_make_a_reset<D: Driver>(stack: &Stack<D>) {
    let (mut one, other) = pair(stack);
    one.write_all(b"nobody reads this").unwrap();
    other.peek(&mut [0; 8]).unwrap();
    drop(other);
    reset(&mut one);
}

fn no_linger_makes_a_reset<D: Driver>(stack: &Stack<D>) {
    let (mut one, other) = pair(stack);
    assert_eq!(other.linger().unwrap(), None);
    other.set_linger(Some(Duration::ZERO)).unwrap();
    assert_eq!(other.linger().unwrap(), Some(Duration::ZERO));
    drop(other);
    reset(&mut one);
}

fn what_was_written_arrives_after_the_close<D: Driver>(stack: &Stack<D>) {
    let (mut one, mut other) = pair(stack);
    let sent: Vec<u8> = (0..200_000).map(|n| (n / 251) as u8).collect();
    other.set_nonblocking(true).unwrap();
    let mut done = 0;
    while let Ok(octets) = other.write(&sent[done..]) {
        done += octets;
        if done == sent.len() {
            break;
        }
    }
    drop(other);
    let mut got = Vec::new();
    one.read_to_end(&mut got).unwrap();
    assert!(got == sent[..done], "{} of {done}", got.len());
}

fn several_buffers_are_one_stream<D: Driver>(stack: &Stack<D>) {
    let (mut one, mut other) = pair(stack);
    let pieces = [IoSlice::new(b"ab"), IoSlice::new(b""), IoSlice::new(b"cdefg")];
    assert_eq!(one.write_vectored(&pieces).unwrap(), 7);
    let begun = Instant::now();
    while other.unread() < 7 {
        other.peek(&mut [0; 8]).unwrap();
        assert!(begun.elapsed() < STEP_TIME_MAX);
    }
    let (mut first, mut second) = ([0; 3], [0; 8]);
    let mut buffers = [IoSliceMut::new(&mut first), IoSliceMut::new(&mut second)];
    assert_eq!(other.read_vectored(&mut buffers).unwrap(), 7);
    assert_eq!((&first, &second[..4]), (b"abc", &b"defg"[..]));
}

fn a_clone_is_the_same_stream<D: Driver>(stack: &Stack<D>) {
    let (mut one, mut other) = pair(stack);
    let mut again = one.try_clone().unwrap();
    again.write_all(b"a").unwrap();
    drop(again);
    one.write_all(b"b").unwrap();
    drop(one);
    let mut text = String::new();
    other.read_to_string(&mut text).unwrap();
    assert_eq!(text, "ab");
}

fn many_connections_at_once<D: Driver>(stack: &Stack<D>) {
    let listener = TcpListener::bind(stack, HERE).unwrap();
    let to = listener.local_addr().unwrap();
    let mut pairs = Vec::new();
    for n in 0..500_u32 {
        let mut one = TcpStream::connect(stack, to).unwrap();
        one.write_all(&n.to_be_bytes()).unwrap();
        pairs.push((one, listener.accept().unwrap().0));
    }
    for (n, (one, other)) in pairs.iter_mut().enumerate() {
        let mut number = [0; 4];
        other.read_exact(&mut number).unwrap();
        assert_eq!(u32::from_be_bytes(number), n as u32);
        other.write_all(&number).unwrap();
        one.read_exact(&mut number).unwrap();
    }
}

fn one_connection_behind_the_other<D: Driver>(stack: &Stack<D>) {
    let listener = TcpListener::bind(stack, "10.0.0.1:80").unwrap();
    for _ in 0..200 {
        let mut one = TcpStream::connect(stack, "10.0.0.1:80").unwrap();
        let (mut other, _) = listener.accept().unwrap();
        one.write_all(b"x").unwrap();
        other.read_exact(&mut [0]).unwrap();
        drop(other);
        assert_eq!(one.read(&mut [0; 8]).unwrap(), 0);
    }
}

fn a_poller_tells_who_comes_and_what<D: Driver>(stack: &Stack<D>) {
    let listener = TcpListener::bind(stack, HERE).unwrap();
    listener.set_nonblocking(true).unwrap();
    let poller = Poller::new(stack);
    poller.register(&listener, 0, Ready::READABLE, Mode::Level).unwrap();
    let mut one = TcpStream::connect(stack, listener.local_addr().unwrap()).unwrap();
    let mut events = Vec::new();
    poller.wait(&mut events, Some(STEP_TIME_MAX)).unwrap();
    assert!(events.iter().all(|event| event.key == 0 && event.ready.is_readable()));
    let (mut other, _) = listener.accept().unwrap();
    poller.register(&other, 1, Ready::READABLE, Mode::Edge).unwrap();
    one.write_all(b"x").unwrap();
    poller.wait(&mut events, Some(STEP_TIME_MAX)).unwrap();
    assert_eq!(events.len(), 1);
    assert_eq!((events[0].key, events[0].ready), (1, Ready::READABLE));
    other.read_exact(&mut [0]).unwrap();
    drop(one);
    poller.wait(&mut events, Some(STEP_TIME_MAX)).unwrap();
    assert!(events[0].ready.contains(Ready::READ_CLOSED));
    assert_eq!(other.read(&mut [0; 8]).unwrap(), 0);
}

fn a_connection_in_the_making_is_watched<D: Driver>(stack: &Stack<D>) {
    let listener = TcpListener::bind(stack, HERE).unwrap();
    let poller = Poller::new(stack);
    let mut events = Vec::new();
    for (to, error) in
        [(listener.local_addr().unwrap(), None), ("10.0.0.1:9".parse().unwrap(), Some(111))]
    {
        let mut one = TcpStream::begin_connect(stack, None, to, &[]).unwrap();
        one.set_nonblocking(true).unwrap();
        poller.register(&one, 1, Ready::WRITABLE, Mode::Level).unwrap();
        assert_eq!(poller.wait(&mut events, Some(STEP_TIME_MAX)).unwrap(), 1);
        assert!(events[0].ready.is_writable());
        let found = one.take_error().unwrap();
        assert_eq!(found.and_then(|found| found.raw_os_error()), error);
        assert_eq!(one.peer_addr().is_ok(), error.is_none());
        if error.is_some() {
            assert_eq!(errno(one.read(&mut [0; 8])), Some(107));
        }
        poller.deregister(1).unwrap();
    }
}

fn a_megabyte_each_way<D: Driver>(stack: &Stack<D>) {
    let (mut one, mut other) = pair(stack);
    one.set_nonblocking(true).unwrap();
    other.set_nonblocking(true).unwrap();
    let sent: Vec<u8> = (0..1_000_000_u32).map(|n| (n ^ (n >> 8)) as u8).collect();
    let mut buffer = vec![0; 1 << 16];
    let (mut out, mut back) = (Vec::new(), Vec::new());
    let (mut first, mut second, begun) = (0, 0, Instant::now());
    while back.len() < sent.len() {
        assert!(begun.elapsed() < STEP_TIME_MAX, "{} out, {} back", out.len(), back.len());
        first += one.write(&sent[first..]).unwrap_or(0);
        let octets = other.read(&mut buffer).unwrap_or(0);
        out.extend_from_slice(&buffer[..octets]);
        second += other.write(&out[second..]).unwrap_or(0);
        let octets = one.read(&mut buffer).unwrap_or(0);
        back.extend_from_slice(&buffer[..octets]);
    }
    assert!(back == sent);
}

fn options_are_kept<D: Driver>(stack: &Stack<D>) {
    let (one, _other) = pair(stack);
    assert!(!one.nodelay().unwrap());
    one.set_nodelay(true).unwrap();
    assert!(one.nodelay().unwrap());
    let info = one.info().unwrap();
    assert_eq!(info.state, StreamState::Established);
    assert!(one.take_error().unwrap().is_none());
    assert!(one.ready().is_writable());
}

/// Peers that begin to connect at once, and the listener.
fn crowd<D: Driver>(
    stack: &Stack<D>,
    backlog: usize,
    count: usize,
) -> (TcpListener<D>, Vec<TcpStream<D>>) {
    let listener = TcpListener::listen(stack, HERE.parse().unwrap(), backlog).unwrap();
    let to = listener.local_addr().unwrap();
    let mut peers = Vec::new();
    for n in 0..count {
        peers.push(TcpStream::begin_connect(stack, None, to, &[]).unwrap());
        if n % 16 == 15 {
            // A turn, or more than the loopback's queue takes would be on its way.
            let _ = peers[n].set_nonblocking(true);
            let _ = peers[n].peek(&mut [0]);
            let _ = peers[n].set_nonblocking(false);
        }
    }
    (listener, peers)
}

fn a_backlog_is_the_programs_number<D: Driver>(stack: &Stack<D>) {
    let (listener, peers) = crowd(stack, 3, 8);
    let (poller, begun) = (Poller::new(stack), Instant::now());
    // The last of their handshakes' segments follows at once.
    while peers.iter().filter(|peer| peer.ready().is_writable()).count() < 3 {
        assert!(begun.elapsed() < STEP_TIME_MAX);
        poller.wait(&mut Vec::new(), Some(Duration::from_millis(1))).unwrap();
    }
    std::thread::sleep(A_MOMENT);
    listener.set_nonblocking(true).unwrap();
    let mut accepted = Vec::new();
    // Those that wait are accepted in one go, with no turn between in which others could come.
    let begun = Instant::now();
    while accepted.is_empty() {
        while let Ok(next) = listener.accept() {
            accepted.push(next);
        }
        assert!(begun.elapsed() < STEP_TIME_MAX);
    }
    assert_eq!(accepted.len(), 3);
    // The others have been told nothing, and try again.
    while accepted.len() < 8 {
        assert!(begun.elapsed() < STEP_TIME_MAX, "{}", accepted.len());
        match listener.accept() {
            Ok(next) => accepted.push(next),
            Err(_) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
    for peer in &peers {
        assert!(peer.take_error().unwrap().is_none());
    }
}

fn two_thousand_connects_at_once_all_succeed<D: Driver>(stack: &Stack<D>) {
    let (listener, peers) = crowd(stack, 2000, 2000);
    let accepted: Vec<_> = (0..2000).map(|_| listener.accept().unwrap()).collect();
    for mut peer in &peers {
        assert!(peer.take_error().unwrap().is_none());
        peer.write_all(b"x").unwrap();
    }
    for (stream, _) in &accepted {
        let mut stream = stream;
        stream.set_read_timeout(Some(STEP_TIME_MAX)).unwrap();
        let mut octet = [0];
        stream.read_exact(&mut octet).unwrap();
        assert_eq!(&octet, b"x");
    }
}

fn a_peer_that_broke_off_is_accepted_with_its_address<D: Driver>(stack: &Stack<D>) {
    let listener = TcpListener::bind(stack, HERE).unwrap();
    let one = TcpStream::connect(stack, listener.local_addr().unwrap()).unwrap();
    let address = one.local_addr().unwrap();
    one.set_linger(Some(Duration::ZERO)).unwrap();
    drop(one);
    std::thread::sleep(A_MOMENT);
    let (mut accepted, from) = listener.accept().unwrap();
    assert_eq!(from, address);
    accepted.set_read_timeout(Some(STEP_TIME_MAX)).unwrap();
    assert_eq!(errno(accepted.read(&mut [0])), Some(104));
}

/// A reader that does not read has no more acknowledged than it has room for, from the first window
/// on.
fn a_receive_buffer_bounds_a_listeners_streams<D: Driver>(stack: &Stack<D>) {
    const KEPT: u32 = 8192;
    let listener = TcpListener::bind(stack, HERE).unwrap();
    listener.set_receive_buffer(KEPT).unwrap();
    let mut one = TcpStream::connect(stack, listener.local_addr().unwrap()).unwrap();
    let (mut other, _) = listener.accept().unwrap();
    one.set_write_timeout(Some(A_MOMENT)).unwrap();
    while one.write(&[7; 10_000]).is_ok() {}
    // A stack on a thread of its own keeps as many for the program as the transport does.
    let acknowledged = one.info().unwrap().acknowledged;
    assert!((1..=2 * u64::from(KEPT)).contains(&acknowledged), "{acknowledged}");
    other.set_read_timeout(Some(STEP_TIME_MAX)).unwrap();
    other.read_exact(&mut [0; 100_000]).unwrap();
}

/// A sender finds no room while so much waits to be sent, and room once half of that has gone.
fn no_more_waits_unsent_than_is_set<D: Driver>(stack: &Stack<D>) {
    const WAITS: u32 = 20_000;
    let (mut one, mut other) = pair(stack);
    one.set(StreamSetting::UnsentMax(WAITS)).unwrap();
    one.set_write_timeout(Some(A_MOMENT)).unwrap();
    let mut written = 0;
    while let Ok(octets) = one.write(&[7; 10_000]) {
        written += octets;
    }
    let unsent = one.info().unwrap().unsent;
    assert!((1..=WAITS).contains(&unsent), "{unsent}");
    one.set_write_timeout(Some(STEP_TIME_MAX)).unwrap();
    let mut rest = vec![0; written];
    other.read_exact(&mut rest).unwrap();
    one.write_all(&[7; 100]).unwrap();
    other.read_exact(&mut rest[..100]).unwrap();
}

/// The ends of records make no difference to the octets.
fn records_arrive_as_octets<D: Driver>(stack: &Stack<D>) {
    let (mut one, mut other) = pair(stack);
    let mut written = Vec::new();
    for length in [1, 5000, 300, 70_000, 1] {
        let record = vec![length as u8; length];
        one.write_all(&record).unwrap();
        one.end_record().unwrap();
        written.extend(record);
    }
    let mut read = vec![0; written.len()];
    other.read_exact(&mut read).unwrap();
    assert_eq!(read, written);
}
