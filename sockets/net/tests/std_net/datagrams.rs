//! `UdpSocket`.

use crate::{A_MOMENT, STEP_TIME_MAX, everywhere};
use std::io::{ErrorKind, IoSlice, IoSliceMut};
use std::net::{Ipv4Addr, Shutdown, SocketAddr};
use std::time::{Duration, Instant};
use xk_net::{Driver, GroupChange, Sharing, Source, Stack, TcpStream, UdpSocket};

everywhere!(
    a_datagram_arrives_with_its_sender,
    port_zero_is_any_free_one,
    a_bound_port_is_taken,
    a_foreign_address_cannot_be_bound,
    what_does_not_fit_is_lost_and_peeking_takes_nothing,
    a_timeout_ends_a_read,
    without_blocking_a_read_says_so,
    a_connected_socket_hears_its_peer_alone,
    without_a_peer_there_is_nowhere_to_send,
    too_much_for_a_datagram_is_refused,
    the_largest_datagram_arrives,
    a_broadcast_needs_permission,
    a_clone_is_the_same_socket,
    several_buffers_are_one_datagram,
    datagrams_of_no_octets_arrive,
    a_dropped_socket_frees_its_port,
    what_nobody_reads_is_bounded,
    shutdown_ends_a_connected_socket,
    many_sockets_keep_apart,
    a_connected_socket_may_share_its_port,
    the_newest_that_shares_its_address_hears,
    a_hash_says_who_hears_of_those_that_share_peers,
    what_is_sent_to_a_group_goes_to_all_that_want_it,
    groups_have_the_errors_of_linux;
    // Why a push failed is told with the next one, and the message behind it has gone by then.
    not across a cut: version_6_is_not_there, an_unreachable_port_is_reported_once,
    a_datagram_to_a_group_goes_as_its_socket_says,
);

fn bind<D: Driver>(stack: &Stack<D>) -> (UdpSocket<D>, SocketAddr) {
    let socket = UdpSocket::bind(stack, "10.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(STEP_TIME_MAX)).unwrap();
    let address = socket.local_addr().unwrap();
    (socket, address)
}

fn errno<T>(result: std::io::Result<T>) -> Option<i32> {
    result.err().and_then(|error| error.raw_os_error())
}

fn a_datagram_arrives_with_its_sender<D: Driver>(stack: &Stack<D>) {
    let ((one, from), (other, to)) = (bind(stack), bind(stack));
    assert_eq!(one.send_to(b"hello", to).unwrap(), 5);
    let mut buffer = [0; 16];
    assert_eq!(other.recv_from(&mut buffer).unwrap(), (5, from));
    assert_eq!(&buffer[..5], b"hello");
    other.send_to(b"back", from).unwrap();
    assert_eq!(one.recv(&mut buffer).unwrap(), 4);
}

fn port_zero_is_any_free_one<D: Driver>(stack: &Stack<D>) {
    let ((_one, first), (_other, second)) = (bind(stack), bind(stack));
    assert!(first.port() >= 49152 && first != second);
    let any = UdpSocket::bind(stack, "0.0.0.0:0").unwrap();
    assert!(any.local_addr().unwrap().ip().is_unspecified());
}

fn a_bound_port_is_taken<D: Driver>(stack: &Stack<D>) {
    let _first = UdpSocket::bind(stack, "10.0.0.1:53").unwrap();
    for again in ["10.0.0.1:53", "0.0.0.0:53"] {
        let error = UdpSocket::bind(stack, again).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AddrInUse);
        assert_eq!(error.raw_os_error(), Some(98));
    }
    let two: [SocketAddr; 2] = [([10, 0, 0, 1], 53).into(), ([10, 0, 0, 1], 54).into()];
    let second = UdpSocket::bind(stack, &two[..]).unwrap();
    assert_eq!(second.local_addr().unwrap().port(), 54);
}

fn a_foreign_address_cannot_be_bound<D: Driver>(stack: &Stack<D>) {
    let error = UdpSocket::bind(stack, "10.0.0.9:0").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AddrNotAvailable);
}

fn version_6_is_not_there<D: Driver>(stack: &Stack<D>) {
    assert_eq!(errno(UdpSocket::bind(stack, "[::1]:0")), Some(97));
    let mapped = UdpSocket::bind(stack, "[::ffff:10.0.0.1]:0").unwrap();
    assert!(mapped.local_addr().unwrap().is_ipv4());
    for peer in ["[2001:db8::1]:9", "[fe80::1%3]:9", "[ff02::1]:9"] {
        assert_eq!(errno(mapped.connect(peer)), Some(97), "{peer}");
        // Beside a stack with a thread of its own the next call tells.
        let refused = mapped.send_to(b"x", peer).and_then(|_| mapped.recv(&mut [0]));
        assert!(errno(refused).is_some(), "{peer}");
        assert_eq!(errno(TcpStream::connect(stack, peer)), Some(97), "{peer}");
    }
}

fn what_does_not_fit_is_lost_and_peeking_takes_nothing<D: Driver>(stack: &Stack<D>) {
    let ((one, from), (other, to)) = (bind(stack), bind(stack));
    one.send_to(b"hello", to).unwrap();
    one.send_to(b"next", to).unwrap();
    let mut small = [0; 3];
    assert_eq!(other.peek_from(&mut small).unwrap(), (3, from));
    assert_eq!(other.unread(), 5);
    assert_eq!(other.recv_from(&mut small).unwrap(), (3, from));
    assert_eq!(&small, b"hel");
    let mut buffer = [0; 16];
    assert_eq!(other.peek(&mut buffer).unwrap(), 4);
    assert_eq!(other.recv(&mut buffer).unwrap(), 4);
}

fn a_timeout_ends_a_read<D: Driver>(stack: &Stack<D>) {
    let (socket, _) = bind(stack);
    let none = socket.set_read_timeout(Some(Duration::ZERO)).unwrap_err();
    assert_eq!(none.kind(), ErrorKind::InvalidInput);
    socket.set_read_timeout(Some(A_MOMENT)).unwrap();
    assert_eq!(socket.read_timeout().unwrap(), Some(A_MOMENT));
    let begun = Instant::now();
    let error = socket.recv(&mut [0; 8]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    assert!(begun.elapsed() >= A_MOMENT);
}

fn without_blocking_a_read_says_so<D: Driver>(stack: &Stack<D>) {
    let ((one, _), (other, to)) = (bind(stack), bind(stack));
    other.set_nonblocking(true).unwrap();
    let error = other.recv(&mut [0; 8]).unwrap_err();
    assert_eq!((error.kind(), error.raw_os_error()), (ErrorKind::WouldBlock, Some(11)));
    one.send_to(b"x", to).unwrap();
    xk_testkit::await_that!(STEP_TIME_MAX, other.recv(&mut [0; 8]).is_ok(), "it takes too long");
    other.set_nonblocking(false).unwrap();
    other.set_read_timeout(Some(A_MOMENT)).unwrap();
    assert!(other.recv(&mut [0; 8]).is_err());
}

fn a_connected_socket_hears_its_peer_alone<D: Driver>(stack: &Stack<D>) {
    let ((one, from), (peer, to), (stranger, _)) = (bind(stack), bind(stack), bind(stack));
    assert_eq!(errno(one.peer_addr()), Some(107));
    one.connect(to).unwrap();
    assert_eq!(one.peer_addr().unwrap(), to);
    stranger.send_to(b"stranger", from).unwrap();
    one.send(b"ask").unwrap();
    let mut buffer = [0; 16];
    let (octets, asker) = peer.recv_from(&mut buffer).unwrap();
    assert_eq!((octets, asker), (3, from));
    peer.send_to(b"answer", asker).unwrap();
    assert_eq!(one.recv_from(&mut buffer).unwrap(), (6, to));
    // Another peer, and then everybody again.
    one.connect(stranger.local_addr().unwrap()).unwrap();
    stranger.send_to(b"stranger", from).unwrap();
    assert_eq!(one.recv(&mut buffer).unwrap(), 8);
    one.disconnect().unwrap();
    peer.send_to(b"peer", from).unwrap();
    assert_eq!(one.recv_from(&mut buffer).unwrap(), (4, to));
}

fn an_unreachable_port_is_reported_once<D: Driver>(stack: &Stack<D>) {
    let (one, _) = bind(stack);
    let (gone, nowhere) = bind(stack);
    drop(gone);
    one.connect(nowhere).unwrap();
    one.send(b"anybody?").unwrap();
    let error = one.recv(&mut [0; 8]).unwrap_err();
    assert_eq!((error.kind(), error.raw_os_error()), (ErrorKind::ConnectionRefused, Some(111)));
    // It has been told; the next datagram goes out, and no socket hears it again.
    one.send(b"anybody?").unwrap();
    let begun = Instant::now();
    while !one.ready().contains(xk_net::Ready::ERROR) {
        one.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        if let Err(error) = one.peek(&mut [0; 8])
            && error.kind() == ErrorKind::ConnectionRefused
        {
            return;
        }
        assert!(begun.elapsed() < STEP_TIME_MAX);
    }
    assert!(one.take_error().unwrap().is_some() && one.take_error().unwrap().is_none());
}

fn without_a_peer_there_is_nowhere_to_send<D: Driver>(stack: &Stack<D>) {
    let (one, _) = bind(stack);
    assert_eq!(errno(one.send(b"x")), Some(89));
    assert_eq!(errno(one.send_to(b"x", "10.0.0.1:0")), Some(22));
}

fn too_much_for_a_datagram_is_refused<D: Driver>(stack: &Stack<D>) {
    let ((one, _), (_other, to)) = (bind(stack), bind(stack));
    assert_eq!(errno(one.send_to(&vec![0; 65_508], to)), Some(90));
}

fn the_largest_datagram_arrives<D: Driver>(stack: &Stack<D>) {
    let ((one, _), (other, to)) = (bind(stack), bind(stack));
    let sent: Vec<u8> = (0..65_507).map(|n| n as u8).collect();
    assert_eq!(one.send_to(&sent, to).unwrap(), sent.len());
    let mut buffer = vec![0; 1 << 17];
    let octets = other.recv(&mut buffer).unwrap();
    assert!(buffer[..octets] == sent);
}

fn a_broadcast_needs_permission<D: Driver>(stack: &Stack<D>) {
    let (one, _) = bind(stack);
    assert!(!one.broadcast().unwrap());
    one.connect("255.255.255.255:9").unwrap_err();
    one.set_broadcast(true).unwrap();
    assert!(one.broadcast().unwrap());
}

fn a_clone_is_the_same_socket<D: Driver>(stack: &Stack<D>) {
    let ((one, _), (other, to)) = (bind(stack), bind(stack));
    let again = other.try_clone().unwrap();
    assert_eq!(again.local_addr().unwrap(), to);
    drop(other);
    one.send_to(b"x", to).unwrap();
    assert_eq!(again.recv(&mut [0; 8]).unwrap(), 1);
    assert_eq!(again.read_timeout().unwrap(), Some(STEP_TIME_MAX));
}

fn several_buffers_are_one_datagram<D: Driver>(stack: &Stack<D>) {
    let ((one, from), (other, to)) = (bind(stack), bind(stack));
    let pieces = [IoSlice::new(b"ab"), IoSlice::new(b""), IoSlice::new(b"cdefg")];
    assert_eq!(one.send_vectored(&pieces, Some(to)).unwrap(), 7);
    let (mut first, mut second) = ([0; 3], [0; 2]);
    let mut buffers = [IoSliceMut::new(&mut first), IoSliceMut::new(&mut second)];
    let received = other.recv_vectored(&mut buffers, false).unwrap();
    assert_eq!(received, (5, 7, from));
    assert_eq!((&first, &second), (b"abc", b"de"));
}

fn datagrams_of_no_octets_arrive<D: Driver>(stack: &Stack<D>) {
    let ((one, from), (other, to)) = (bind(stack), bind(stack));
    assert_eq!(one.send_to(b"", to).unwrap(), 0);
    assert_eq!(other.recv_from(&mut [0; 8]).unwrap(), (0, from));
}

fn a_dropped_socket_frees_its_port<D: Driver>(stack: &Stack<D>) {
    for _ in 0..100 {
        let socket = UdpSocket::bind(stack, "10.0.0.1:53").unwrap();
        socket.connect("10.0.0.1:54").unwrap();
    }
}

fn what_nobody_reads_is_bounded<D: Driver>(stack: &Stack<D>) {
    let ((one, _), (other, to)) = (bind(stack), bind(stack));
    for n in 0..2_000_u32 {
        let mut datagram = [0; 1000];
        datagram[..4].copy_from_slice(&n.to_ne_bytes());
        one.send_to(&datagram, to).unwrap();
        if n % 64 == 0 {
            let _ = one.ready();
            one.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
            let _ = one.recv(&mut [0; 8]);
        }
    }
    other.set_read_timeout(Some(A_MOMENT)).unwrap();
    let mut count = 0;
    while other.recv(&mut [0; 1000]).is_ok() {
        count += 1;
    }
    assert!((100..1_000).contains(&count), "{count} of 2000 waited");
}

fn shutdown_ends_a_connected_socket<D: Driver>(stack: &Stack<D>) {
    let ((one, _), (_other, to)) = (bind(stack), bind(stack));
    assert_eq!(errno(one.shutdown(Shutdown::Both)), Some(107));
    one.connect(to).unwrap();
    one.shutdown(Shutdown::Both).unwrap();
    assert_eq!(one.recv(&mut [0; 8]).unwrap(), 0);
    assert_eq!(errno(one.send(b"x")), Some(32));
}

fn many_sockets_keep_apart<D: Driver>(stack: &Stack<D>) {
    let sockets: Vec<_> = (0..200).map(|_| bind(stack)).collect();
    for (n, (_, to)) in sockets.iter().enumerate() {
        let (from, _) = &sockets[(n + 1) % sockets.len()];
        from.send_to(&(n as u32).to_ne_bytes(), to).unwrap();
    }
    for (n, (socket, _)) in sockets.iter().enumerate() {
        let mut number = [0; 4];
        let (_, from) = socket.recv_from(&mut number).unwrap();
        assert_eq!(u32::from_ne_bytes(number), n as u32);
        assert_eq!(from, sockets[(n + 1) % sockets.len()].1);
    }
}

/// Sockets at 10.0.0.1:700 that share it.
fn sharing<D: Driver>(
    stack: &Stack<D>,
    address: bool,
    port: bool,
) -> std::io::Result<UdpSocket<D>> {
    let sharing = Sharing { address, port };
    let socket = UdpSocket::bind_shared(stack, "10.0.0.1:700", sharing)?;
    socket.set_read_timeout(Some(STEP_TIME_MAX)).unwrap();
    Ok(socket)
}

fn a_connected_socket_may_share_its_port<D: Driver>(stack: &Stack<D>) {
    let ((peer, to), (other, from)) = (bind(stack), bind(stack));
    let at: SocketAddr = "10.0.0.1:700".parse().unwrap();
    let one = sharing(stack, true, false).unwrap();
    one.connect(to).unwrap();
    let alone = UdpSocket::bind(stack, at).unwrap_err();
    assert_eq!(alone.kind(), ErrorKind::AddrInUse);
    let two = sharing(stack, true, false).unwrap();
    peer.send_to(b"one", at).unwrap();
    other.send_to(b"two", at).unwrap();
    let mut buffer = [0; 16];
    assert_eq!(one.recv_from(&mut buffer).unwrap(), (3, to));
    assert_eq!(&buffer[..3], b"one");
    assert_eq!(two.recv_from(&mut buffer).unwrap(), (3, from));
    assert_eq!(&buffer[..3], b"two");
    // Both have the same peer: the newer hears, and leaves it to the other.
    two.connect(to).unwrap();
    peer.send_to(b"both", at).unwrap();
    assert_eq!(two.recv_from(&mut buffer).unwrap(), (4, to));
    drop(two);
    peer.send_to(b"left", at).unwrap();
    assert_eq!(one.recv_from(&mut buffer).unwrap(), (4, to));
    one.disconnect().unwrap();
    other.send_to(b"again", at).unwrap();
    assert_eq!(one.recv_from(&mut buffer).unwrap(), (5, from));
}

/// Index in `sockets` of the one that gets the next datagram.
fn hearing<D: Driver>(sockets: &[UdpSocket<D>]) -> usize {
    let deadline = Instant::now() + STEP_TIME_MAX;
    for socket in sockets {
        socket.set_nonblocking(true).unwrap();
    }
    while Instant::now() < deadline {
        for (at, socket) in sockets.iter().enumerate() {
            if socket.recv(&mut [0; 16]).is_ok() {
                return at;
            }
        }
        std::thread::yield_now();
    }
    panic!("no socket hears");
}

fn the_newest_that_shares_its_address_hears<D: Driver>(stack: &Stack<D>) {
    let (peer, _) = bind(stack);
    let at = "10.0.0.1:700";
    let mut all: Vec<_> = (0..3).map(|_| sharing(stack, true, false).unwrap()).collect();
    let refused = [(false, false), (false, true)].map(|(address, port)| {
        let refused = sharing(stack, address, port).unwrap_err();
        refused.kind() == ErrorKind::AddrInUse
    });
    assert_eq!(refused, [true; 2]);
    for left in (0..3).rev() {
        peer.send_to(b"newest", at).unwrap();
        assert_eq!(hearing(&all), left);
        all.pop();
    }
    drop(UdpSocket::bind(stack, at).unwrap());
    // Set later it holds as well.
    let alone = UdpSocket::bind(stack, at).unwrap();
    assert!(sharing(stack, true, false).is_err());
    let address = Sharing { address: true, port: false };
    alone.set_sharing(address).unwrap();
    sharing(stack, true, false).unwrap();
}

fn a_hash_says_who_hears_of_those_that_share_peers<D: Driver>(stack: &Stack<D>) {
    let at = "10.0.0.1:700";
    let all: Vec<_> = (0..4).map(|_| sharing(stack, false, true).unwrap()).collect();
    let mut heard = [0; 4];
    for _ in 0..64 {
        let (peer, _) = bind(stack);
        let hears = [0; 3].map(|_| {
            peer.send_to(b"x", at).unwrap();
            hearing(&all)
        });
        // A peer stays with its socket.
        assert!(hears.iter().all(|at| *at == hears[0]), "{hears:?}");
        heard[hears[0]] += 1;
    }
    assert!(heard.iter().all(|count| (4..=40).contains(count)), "{heard:?}");
}

const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);
const OWN: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const ANY: Ipv4Addr = Ipv4Addr::UNSPECIFIED;

fn what_is_sent_to_a_group_goes_to_all_that_want_it<D: Driver>(stack: &Stack<D>) {
    let sharing = Sharing { address: true, port: false };
    let bind = |host: Ipv4Addr| {
        let socket = UdpSocket::bind_shared(stack, (host, 5000), sharing).unwrap();
        socket.set_read_timeout(Some(STEP_TIME_MAX)).unwrap();
        socket
    };
    let [one, other, bound] = [ANY, ANY, GROUP].map(bind);
    let sender = UdpSocket::bind(stack, (OWN, 0)).unwrap();
    let mut last = 0;
    let mut heard = || {
        last += 1;
        sender.send_to(&[last], (GROUP, 5000)).unwrap();
        // Behind it, so that all of it has come.
        let mark = [0xff, last];
        sender.send_to(&mark, (OWN, 5000)).unwrap();
        let all = [&one, &other].map(|socket| {
            let mut buffer = [0; 8];
            socket.set_read_timeout(Some(A_MOMENT)).unwrap();
            let mut came = 0;
            while let Ok((octets, from)) = socket.recv_from(&mut buffer) {
                assert_eq!(from, sender.local_addr().unwrap());
                came += usize::from(buffer[..octets] == [last]);
            }
            came
        });
        let mut buffer = [0; 8];
        bound.set_read_timeout(Some(A_MOMENT)).unwrap();
        let own = bound.recv_from(&mut buffer).is_ok_and(|(octets, _)| buffer[..octets] == [last]);
        [all[0], all[1], usize::from(own)]
    };
    assert_eq!(heard(), [0, 0, 0]);
    one.join_multicast_v4(GROUP, ANY).unwrap();
    // Those that have not joined it hear what their host does, as on Linux.
    assert_eq!(heard(), [1, 1, 1]);
    other.join_ssm_v4(Ipv4Addr::new(10, 0, 0, 9), GROUP, OWN).unwrap();
    assert_eq!(heard(), [1, 0, 1]);
    other.join_ssm_v4(OWN, GROUP, OWN).unwrap();
    bound.join_multicast_v4(GROUP, OWN).unwrap();
    bound.change_group_v4(GROUP, OWN, GroupChange::Block(OWN.into())).unwrap();
    assert_eq!(heard(), [1, 1, 0]);
    one.leave_multicast_v4(GROUP, ANY).unwrap();
    other.leave_ssm_v4(OWN, GROUP, OWN).unwrap();
    assert_eq!(heard(), [0, 0, 0], "they wanted another source");
    other.leave_multicast_v4(GROUP, OWN).unwrap();
    bound.change_group_v4(GROUP, OWN, GroupChange::Unblock(OWN.into())).unwrap();
    assert_eq!(heard(), [1, 1, 1]);
    drop(bound);
    // What is closed leaves; no other wants this source.
    sender.send_to(b"!", (GROUP, 5000)).unwrap();
    one.set_read_timeout(Some(A_MOMENT)).unwrap();
    assert!(one.recv_from(&mut [0; 8]).is_err());
}

fn groups_have_the_errors_of_linux<D: Driver>(stack: &Stack<D>) {
    let (socket, _) = bind(stack);
    socket.join_multicast_v4(GROUP, ANY).unwrap();
    let nodev = Some(19);
    for (result, number) in [
        (socket.join_multicast_v4(GROUP, ANY), Some(98)),
        (socket.join_multicast_v4(OWN, ANY), Some(22)),
        (socket.join_multicast_v4(Ipv4Addr::BROADCAST, ANY), Some(22)),
        (socket.join_multicast_v4(GROUP, Ipv4Addr::new(10, 0, 0, 9)), nodev),
        (socket.leave_multicast_v4(GROUP, OWN), Some(99)),
        (socket.join_ssm_v4(OWN, GROUP, ANY), Some(22)),
        (socket.leave_multicast_v4(GROUP, ANY), None),
        (socket.leave_multicast_v4(GROUP, ANY), Some(99)),
        (socket.set_multicast_if_v4(Ipv4Addr::new(10, 0, 0, 9)), nodev),
        (socket.set_multicast_ttl_v4(256), Some(22)),
    ] {
        assert_eq!(errno(result), number);
    }
    let of = |n: u8| Ipv4Addr::new(239, 0, 0, n);
    (0..64).for_each(|n| socket.join_multicast_v4(of(n), ANY).unwrap());
    assert_eq!(errno(socket.join_multicast_v4(of(64), ANY)), Some(105));
}

fn a_datagram_to_a_group_goes_as_its_socket_says<D: Driver>(stack: &Stack<D>) {
    let receiver = UdpSocket::bind(stack, (GROUP, 5000)).unwrap();
    receiver.set_read_timeout(Some(STEP_TIME_MAX)).unwrap();
    receiver.join_multicast_v4(GROUP, ANY).unwrap();
    let (sender, _) = bind(stack);
    let heard = || {
        sender.send_to(b"all", (GROUP, 5000)).unwrap();
        let (_, _, said) = receiver.recv_told(&mut [0; 8]).unwrap();
        said.map(|said| (said.hops, said.to)).unwrap()
    };
    assert_eq!(heard(), (1, GROUP.into()));
    sender.set_multicast_ttl_v4(9).unwrap();
    sender.set_multicast_if_v4(OWN).unwrap();
    assert_eq!(heard(), (9, GROUP.into()));
    sender.set_multicast_loop_v4(false).unwrap();
    sender.send_to(b"out", (GROUP, 5000)).unwrap();
    receiver.set_read_timeout(Some(A_MOMENT)).unwrap();
    assert!(receiver.recv_from(&mut [0; 8]).is_err());
    sender.set_multicast_loop_v4(true).unwrap();
    receiver.set_read_timeout(Some(STEP_TIME_MAX)).unwrap();
    assert_eq!(heard(), (9, GROUP.into()));
}
