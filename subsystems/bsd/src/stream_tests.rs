//! Stream sockets and the rest of the socket layer, over the local domain and over a protocol of
//! the test's that has out-of-band data, connections to confirm, and ends that take their time.

use super::*;
use crate::errno::Result;
use crate::sockaddr::AF_UNIX;
use alloc::rc::Rc;
use core::cell::{Cell, RefCell};
use core::time::Duration;
use proptest::prelude::*;
use std::boxed::Box;
use std::vec;
use std::vec::Vec;
use xk_core::Kernel;
use xk_core::graph::{Params, Value};
use xk_core::object::ProtocolRef;
use xk_testkit::kernel::{Task, TestKernel};

struct Rig {
    cx: TestKernel,
    bsd: Rc<Bsd>,
    block: ProtocolRef,
}

impl Rig {
    fn with(params: &Params) -> Self {
        let cx = TestKernel::with_stacks(1);
        let block = ENTRY.add(&cx, "bsd", &[], params).unwrap();
        block.start(&cx).unwrap();
        let bsd = Bsd::of(&cx).unwrap();
        Self { cx, bsd, block }
    }

    fn new() -> Self {
        Self::with(&Params::default())
    }

    fn name(&self, name: &str) -> Sockaddr {
        Sockaddr::unix(self.bsd.mbufs().release(), name.as_bytes()).unwrap()
    }

    fn nam(&self, name: &str) -> Mbuf {
        self.name(name).to_mbuf(self.bsd.mbufs()).unwrap()
    }

    /// A socket of the local domain that does not wait.
    fn socket(&self, kind: Sock) -> Rc<Socket> {
        let so = socreate(&self.cx, &self.bsd, AF_UNIX, kind, 0).unwrap();
        so.set_state(SS_NBIO, 0);
        so
    }

    fn bound(&self, kind: Sock, name: &str) -> Rc<Socket> {
        let so = self.socket(kind);
        sobind(&self.cx, &so, &mut self.nam(name)).unwrap();
        so
    }

    fn listener(&self, name: &str, backlog: u16) -> Rc<Socket> {
        let so = self.bound(Sock::Stream, name);
        solisten(&self.cx, &so, backlog).unwrap();
        so
    }

    fn connect(&self, so: &Rc<Socket>, to: &str) -> Result {
        soconnect(&self.cx, so, &mut self.nam(to))
    }

    fn accept(&self, so: &Rc<Socket>) -> Result<(Rc<Socket>, Sockaddr)> {
        let mut nam = self.bsd.mbufs().m_get(Mt::Soname)?;
        let accepted = soaccept(&self.cx, so, &mut nam)?;
        Ok((accepted, Sockaddr::of(&nam)?))
    }

    fn pair(&self) -> (Rc<Socket>, Rc<Socket>) {
        let (a, b) = socketpair(&self.cx, &self.bsd, Sock::Stream).unwrap();
        a.set_state(SS_NBIO, 0);
        b.set_state(SS_NBIO, 0);
        (a, b)
    }

    fn send(&self, so: &Rc<Socket>, octets: &[u8]) -> Result<usize> {
        sendto(&self.cx, so, octets, None)
    }

    fn receive(&self, so: &Rc<Socket>, max: usize) -> Result<Vec<u8>> {
        let mut room = vec![0; max];
        let n = recvfrom(&self.cx, so, &mut room)?.0;
        room.truncate(n);
        Ok(room)
    }

    fn set(&self, so: &Rc<Socket>, name: u16, value: &[u8]) -> Result {
        let m = self.bsd.mbufs().m_copyin(Mt::Soopts, value).unwrap();
        sosetopt(&self.cx, so, (SOL_SOCKET, name), Some(m))
    }

    /// All is closed: nothing is left.
    fn is_clean(&self) {
        assert_eq!((self.bsd.mbufs().mbstat().in_use, self.bsd.sockets.get()), (0, 0));
    }
}

#[test]
fn octets_go_both_ways_and_each_half_is_closed_by_itself() {
    let rig = Rig::new();
    let (a, b) = rig.pair();
    assert_eq!(rig.receive(&b, 9), Err(Errno::EWOULDBLOCK));
    assert_eq!((rig.send(&a, b"one "), rig.send(&a, b"two")), (Ok(4), Ok(3)));
    assert_eq!(rig.send(&b, b"back"), Ok(4));
    // A stream has no borders, and what is not taken stays.
    assert_eq!(rig.receive(&b, 5).unwrap(), b"one t");
    assert_eq!(rig.receive(&b, 5).unwrap(), b"wo");
    let mut peeked = [0; 2];
    let got = soreceive(&rig.cx, &a, Sink::Octets(&mut peeked), MSG_PEEK).unwrap();
    assert_eq!((got.len, &peeked), (2, b"ba"));
    let chain = soreceive(&rig.cx, &a, Sink::Chain(3), 0).unwrap();
    assert_eq!(chain.m.map(|m| m.octets().collect::<Vec<_>>()), Some(b"bac".to_vec()));
    assert_eq!(rig.receive(&a, 5).unwrap(), b"k");
    rig.send(&a, b"last").unwrap();
    soshutdown(&rig.cx, &a, How::Write).unwrap();
    assert_eq!(rig.send(&a, b"x"), Err(Errno::EPIPE));
    assert_eq!(rig.receive(&b, 9).unwrap(), b"last");
    assert_eq!(rig.receive(&b, 9).unwrap(), b"", "the end");
    // The other half goes on.
    assert!(a.is(SS_ISCONNECTED) && b.is(SS_ISCONNECTED));
    assert_eq!(rig.send(&b, b"still"), Ok(5));
    assert_eq!(rig.receive(&a, 9).unwrap(), b"still");
    soclose(&rig.cx, &b).unwrap();
    assert_eq!(rig.receive(&a, 9).unwrap(), b"");
    assert_eq!(rig.send(&b, b"x"), Err(Errno::EPIPE));
    assert_eq!(sodisconnect(&rig.cx, &a), Err(Errno::ENOTCONN));
    soclose(&rig.cx, &a).unwrap();
    drop((a, b));
    rig.is_clean();
}

#[test]
fn what_the_peer_has_not_taken_holds_the_sender_back() {
    let rig = Rig::new();
    let (a, b) = rig.pair();
    assert_eq!(rig.send(&a, &[7; 10_000]), Ok(4096), "as much as there is room for");
    assert_eq!(rig.send(&a, b"x"), Err(Errno::EWOULDBLOCK));
    assert!(!a.sowriteable() && b.soreadable());
    assert_eq!(rig.receive(&b, 96).unwrap().len(), 96);
    assert!(a.sowriteable());
    assert_eq!(rig.send(&a, &[8; 1000]), Ok(96));
    assert_eq!(rig.receive(&b, 9000).unwrap().len(), 4096);
    assert_eq!((b.so_rcv.cc(), b.so_rcv.mbcnt()), (0, 0));
    // Small pieces are brought together, or count for the mbufs that they take.
    let mut sent = 0;
    while rig.send(&a, b"y") == Ok(1) {
        sent += 1;
        assert!(sent <= 4096);
    }
    assert!(b.so_rcv.mbcnt() <= 2 * 4096 + 256 && sent > 32, "{sent}");
    rig.set(&a, SO_SNDBUF, &9000_u32.to_ne_bytes()).unwrap();
    assert!(rig.send(&a, b"more").is_ok(), "its own room is larger now");
    for so in [&a, &b] {
        soclose(&rig.cx, so).unwrap();
    }
    drop((a, b));
    rig.is_clean();
}

#[test]
fn callers_wait_for_room_and_for_data() {
    for release in ["4.3", "4.4"] {
        let rig = Rig::with(&Params::from([("release", Value::Text(release.into()))]));
        let (a, b) = socketpair(&rig.cx, &rig.bsd, Sock::Stream).unwrap();
        const TOTAL: usize = 300_000;
        let sum = Rc::new(Cell::new(0_u64));
        let writer = Rc::clone(&a);
        let write: Task = Box::new(move |cx| {
            let octets: Vec<u8> = (0..TOTAL).map(|i| (i % 251) as u8).collect();
            assert_eq!(sendto(cx, &writer, &octets, None), Ok(TOTAL));
            soshutdown(cx, &writer, How::Write).unwrap();
        });
        let (reader, total) = (Rc::clone(&b), Rc::clone(&sum));
        let read: Task = Box::new(move |cx| {
            let (mut room, mut at) = ([0; 3000], 0_usize);
            loop {
                let (n, _) = recvfrom(cx, &reader, &mut room).unwrap();
                if n == 0 {
                    break;
                }
                assert!(room[..n].iter().enumerate().all(|(i, o)| *o == ((at + i) % 251) as u8));
                at += n;
            }
            total.set(at as u64);
        });
        assert!(rig.cx.run_tasks(Duration::from_secs(1), vec![write, read], |_| 0));
        assert_eq!(sum.get(), TOTAL as u64, "{release}");
        // As many as are asked for, and no fewer, with MSG_WAITALL; a time to wait that ends.
        let (waiter, sender) = (Rc::clone(&a), Rc::clone(&b));
        let limit = rig.bsd.mbufs().m_copyin(Mt::Soopts, &250_u32.to_ne_bytes()).unwrap();
        sosetopt(&rig.cx, &a, (SOL_SOCKET, SO_RCVTIMEO), Some(limit)).unwrap();
        let wait: Task = Box::new(move |cx| {
            let mut room = [0; 10];
            let got = soreceive(cx, &waiter, Sink::Octets(&mut room), MSG_WAITALL).unwrap();
            assert_eq!((got.len, &room), (10, b"0123456789"));
            let before = cx.now();
            assert_eq!(recvfrom(cx, &waiter, &mut room).err(), Some(Errno::EWOULDBLOCK));
            assert_eq!(cx.now().since(before), Duration::from_millis(250));
        });
        let send: Task = Box::new(move |cx| {
            for part in [&b"012"[..], b"345", b"6789"] {
                sendto(cx, &sender, part, None).unwrap();
            }
        });
        assert!(rig.cx.run_tasks(Duration::from_secs(1), vec![wait, send], |_| 0));
    }
}

#[test]
fn names_are_listened_at_connected_to_and_accepted() {
    let rig = Rig::new();
    let server = rig.listener("/dev/log", 5);
    assert_eq!(rig.accept(&server).err(), Some(Errno::EWOULDBLOCK));
    let (named, nameless) = (rig.bound(Sock::Stream, "client"), rig.socket(Sock::Stream));
    rig.connect(&named, "/dev/log").unwrap();
    rig.connect(&nameless, "/dev/log").unwrap();
    assert!(named.is(SS_ISCONNECTED) && server.soreadable());
    assert_eq!(getpeername(&rig.cx, &named), Ok(rig.name("/dev/log")));
    // What is sent before it is accepted waits with the connection.
    assert_eq!(rig.send(&named, b"early"), Ok(5));
    let (one, from) = rig.accept(&server).unwrap();
    assert_eq!((from.path(), rig.receive(&one, 9).unwrap()), (&b"client"[..], b"early".to_vec()));
    assert_eq!(getsockname(&rig.cx, &one), Ok(rig.name("/dev/log")));
    assert_eq!(getpeername(&rig.cx, &one), Ok(rig.name("client")));
    let (two, from) = rig.accept(&server).unwrap();
    assert_eq!(from.path(), b"");
    assert_eq!(rig.send(&two, b"hello"), Ok(5));
    assert_eq!(rig.receive(&nameless, 9).unwrap(), b"hello");
    // One that is closed before it is accepted has said what it said.
    let hasty = rig.socket(Sock::Stream);
    rig.connect(&hasty, "/dev/log").unwrap();
    rig.send(&hasty, b"bye").unwrap();
    soclose(&rig.cx, &hasty).unwrap();
    let (late, from) = rig.accept(&server).unwrap();
    assert_eq!((from.path(), rig.receive(&late, 9).unwrap()), (&b""[..], b"bye".to_vec()));
    assert_eq!(rig.receive(&late, 9).unwrap(), b"");
    // The listener's end is that of those that wait, not of those accepted.
    let waiting = rig.socket(Sock::Stream);
    rig.connect(&waiting, "/dev/log").unwrap();
    soclose(&rig.cx, &server).unwrap();
    assert_eq!(rig.receive(&waiting, 9).unwrap(), b"");
    assert_eq!(rig.send(&waiting, b"x"), Err(Errno::EPIPE));
    assert_eq!(rig.send(&one, b"on"), Ok(2));
    assert_eq!(rig.connect(&rig.socket(Sock::Stream), "/dev/log"), Err(Errno::ECONNREFUSED));
    // Its name is free again, though an accepted end has it still.
    let again = rig.listener("/dev/log", 1);
    for so in [&named, &nameless, &one, &two, &late, &waiting, &again] {
        soclose(&rig.cx, so).unwrap();
    }
    drop((named, nameless, one, two, hasty, late, waiting, again, server));
    rig.is_clean();
}

#[test]
fn a_backlog_is_bounded() {
    for (backlog, room) in [(0, 1), (1, 2), (2, 4), (5, 8), (500, 8)] {
        let rig = Rig::new();
        let server = rig.listener("s", backlog);
        let clients: Vec<_> = (0..12).map(|_| rig.socket(Sock::Stream)).collect();
        let taken = clients.iter().filter(|so| rig.connect(so, "s").is_ok()).count();
        assert_eq!(taken, room, "{backlog}");
        assert_eq!(rig.connect(&clients[11], "s"), Err(Errno::ECONNREFUSED));
        // With one accepted there is room for another.
        rig.accept(&server).unwrap();
        assert_eq!(rig.connect(&clients[11], "s"), Ok(()));
    }
    // And by the sockets of the subsystem.
    let rig = Rig::with(&Params::from([("sockets", Value::Integer(3))]));
    let _server = rig.listener("s", 5);
    let (one, two) = (rig.socket(Sock::Stream), rig.socket(Sock::Stream));
    assert_eq!(rig.connect(&one, "s"), Err(Errno::ECONNREFUSED));
    drop(two);
    assert_eq!(rig.connect(&one, "s"), Ok(()));
}

#[test]
fn errors_of_connections_are_bsds() {
    let rig = Rig::new();
    let server = rig.listener("s", 2);
    let dgram = rig.bound(Sock::Dgram, "d");
    let so = rig.socket(Sock::Stream);
    assert_eq!(rig.connect(&so, "nowhere"), Err(Errno::ECONNREFUSED));
    assert_eq!(rig.connect(&so, "d"), Err(Errno::EPROTOTYPE));
    assert_eq!(rig.connect(&so, ""), Err(Errno::EINVAL));
    let mut inet = Sockaddr::inet(Release::Bsd43, core::net::Ipv4Addr::LOCALHOST, 7);
    inet.0[0] = 0;
    let mut nam = inet.to_mbuf(rig.bsd.mbufs()).unwrap();
    assert_eq!(soconnect(&rig.cx, &so, &mut nam), Err(Errno::EAFNOSUPPORT));
    assert_eq!(rig.send(&so, b"x"), Err(Errno::ENOTCONN));
    assert_eq!(rig.receive(&so, 9), Err(Errno::ENOTCONN));
    assert_eq!(solisten(&rig.cx, &so, 1), Err(Errno::EINVAL), "without a name");
    assert_eq!(solisten(&rig.cx, &dgram, 1), Err(Errno::EOPNOTSUPP));
    assert_eq!(rig.accept(&so).err(), Some(Errno::EINVAL));
    assert_eq!(sobind(&rig.cx, &so, &mut rig.nam("s")), Err(Errno::EADDRINUSE));
    assert_eq!(sobind(&rig.cx, &so, &mut rig.nam("")), Err(Errno::EINVAL));
    sobind(&rig.cx, &so, &mut rig.nam("c")).unwrap();
    assert_eq!(sobind(&rig.cx, &so, &mut rig.nam("c2")), Err(Errno::EINVAL), "once");
    assert_eq!(rig.connect(&so, "c"), Err(Errno::ECONNREFUSED), "it does not listen");
    assert_eq!(rig.connect(&server, "s"), Err(Errno::EOPNOTSUPP));
    rig.connect(&so, "s").unwrap();
    assert_eq!(rig.connect(&so, "s"), Err(Errno::EISCONN));
    assert_eq!(sodisconnect(&rig.cx, &so), Ok(()));
    let oob = sosend(&rig.cx, &rig.pair().0, None, Uio::Octets(b"x"), None, MSG_OOB);
    assert_eq!(oob, Err(Errno::EOPNOTSUPP), "the local domain has none");
    assert_eq!(Sockaddr::unix(Release::Bsd43, &[1; 15]), None);
    assert_eq!(std::format!("{:?}", rig.name("a b")), "local a b");
}

#[test]
fn datagrams_of_the_domain_have_names_and_lose_their_peers() {
    let rig = Rig::new();
    let (a, b) = (rig.bound(Sock::Dgram, "a"), rig.bound(Sock::Dgram, "b"));
    let to = |name: &str| Some(rig.name(name));
    assert_eq!(sendto(&rig.cx, &a, b"hello", to("b")), Ok(5));
    let mut room = [0; 9];
    assert_eq!(recvfrom(&rig.cx, &b, &mut room), Ok((5, to("a"))));
    assert_eq!(sendto(&rig.cx, &a, b"x", to("none")), Err(Errno::ECONNREFUSED));
    assert_eq!(sendto(&rig.cx, &a, b"x", None), Err(Errno::EDESTADDRREQ));
    assert_eq!(sendto(&rig.cx, &a, &[0; 2049], to("b")), Err(Errno::EMSGSIZE));
    rig.connect(&a, "b").unwrap();
    assert_eq!(sendto(&rig.cx, &a, b"x", to("b")), Err(Errno::EISCONN));
    assert_eq!((rig.send(&a, b"1"), rig.receive(&b, 9)), (Ok(1), Ok(b"1".to_vec())));
    // Connected again to another; then that one goes.
    let c = rig.bound(Sock::Dgram, "c");
    rig.connect(&a, "c").unwrap();
    assert_eq!((rig.send(&a, b"2"), rig.receive(&c, 9)), (Ok(1), Ok(b"2".to_vec())));
    soclose(&rig.cx, &c).unwrap();
    assert_eq!(rig.send(&a, b"3"), Err(Errno::ECONNRESET));
    assert_eq!(rig.send(&a, b"3"), Err(Errno::EDESTADDRREQ));
    // A full receiver refuses; nothing waits.
    let mut sent = 0;
    while sendto(&rig.cx, &a, &[0; 500], to("b")) == Ok(500) {
        sent += 1;
    }
    assert_eq!((sent, sendto(&rig.cx, &a, &[0; 500], to("b"))), (7, Err(Errno::ENOBUFS)));
    for so in [&a, &b] {
        soclose(&rig.cx, so).unwrap();
    }
    drop((a, b, c));
    rig.is_clean();
}

#[test]
fn exhausted_mbufs_are_enobufs_or_waited_for() {
    let rig = Rig::with(&Params::from([("mbufs", Value::Integer(40))]));
    let (a, b) = rig.pair();
    let mbufs = rig.bsd.mbufs();
    let hold = || core::iter::from_fn(|| mbufs.m_get(Mt::Data).ok()).collect::<Vec<_>>();
    let held = hold();
    assert_eq!(rig.send(&a, b"x"), Err(Errno::ENOBUFS));
    assert_eq!(getsockname(&rig.cx, &a), Err(Errno::ENOBUFS));
    assert_eq!(rig.receive(&b, 9), Err(Errno::EWOULDBLOCK));
    drop(held);
    assert_eq!(rig.send(&a, b"x"), Ok(1));
    // A sender that waits goes on when another frees some, and else gives up after a while.
    a.set_state(0, SS_NBIO);
    let held = Rc::new(RefCell::new(hold()));
    let (sender, done) = (Rc::clone(&a), Rc::new(Cell::new(None)));
    let told = Rc::clone(&done);
    let waits: Task = Box::new(move |cx| {
        let before = cx.now();
        let sent = sendto(cx, &sender, b"waits", None);
        told.set(Some((sent, cx.now().since(before))));
    });
    let (sleeper, freed) = (rig.socket(Sock::Dgram), Rc::clone(&held));
    sleeper.set_state(0, SS_NBIO);
    sleeper.so_rcv.set_timeo(Some(Duration::from_millis(300)));
    let frees: Task = Box::new(move |cx| {
        assert_eq!(recvfrom(cx, &sleeper, &mut [0; 9]).err(), Some(Errno::EWOULDBLOCK));
        freed.borrow_mut().truncate(20);
    });
    assert!(rig.cx.run_tasks(Duration::from_secs(9), vec![waits, frees], |_| 0));
    let (sent, took) = done.take().unwrap();
    assert_eq!(sent, Ok(5));
    assert!((300..=320).contains(&took.as_millis()), "{took:?}");
    held.borrow_mut().extend(hold());
    let (sender, told) = (Rc::clone(&a), Rc::clone(&done));
    let gives_up: Task = Box::new(move |cx| {
        let before = cx.now();
        let sent = sendto(cx, &sender, b"gives up", None);
        told.set(Some((sent, cx.now().since(before))));
    });
    assert!(rig.cx.run_tasks(Duration::from_secs(9), vec![gives_up], |_| 0));
    assert_eq!(done.take(), Some((Err(Errno::ENOBUFS), MBWAIT)));
    held.take();
    assert_eq!(rig.receive(&b, 9).unwrap(), b"xwaits");
}

/// A stream with out-of-band data, to the socket that the test names; its connections are to be
/// confirmed, and end when the test says so.
#[derive(Default)]
struct Urgent {
    peer: RefCell<Option<Rc<Socket>>>,
    octet: Cell<Option<u8>>,
    requests: RefCell<Vec<Pru>>,
}

impl ProtoFns for Urgent {
    fn pr_usrreq(
        &self,
        cx: &Kernel,
        _: &Rc<Protosw>,
        so: Option<&Rc<Socket>>,
        req: Pru,
        args: &mut PruArgs<'_>,
    ) -> Result {
        let so = so.ok_or(Errno::EINVAL)?;
        self.requests.borrow_mut().push(req);
        let peer = self.peer.borrow().clone();
        match req {
            Pru::Attach => {
                so.soreserve(4096, 4096)?;
                so.set_pcb(Some(Rc::new(())));
            }
            Pru::Connect => so.soisconfirming(cx),
            Pru::Rcvd if so.is(SS_ISCONFIRMING) => so.soisconnected(cx),
            Pru::Rcvd => {}
            Pru::Send => {
                if so.is(SS_ISCONFIRMING) {
                    so.soisconnected(cx);
                }
                let peer = peer.ok_or(Errno::ENOTCONN)?;
                peer.so_rcv.sbappend(args.need_m()?);
                peer.sorwakeup(cx);
            }
            Pru::SendOob => {
                self.octet.set(args.need_m()?.octets().last());
                let peer = peer.ok_or(Errno::ENOTCONN)?;
                peer.sohasoutofband(cx, peer.so_rcv.cc());
            }
            Pru::RcvOob => {
                let octet = self.octet.take().ok_or(Errno::EINVAL)?;
                let _ = args.m.as_mut().ok_or(Errno::EINVAL)?.put(&[octet]);
            }
            // It ends later.
            Pru::Disconnect => so.soisdisconnecting(cx),
            Pru::Detach => so.set_pcb(None),
            _ => return Err(Errno::EOPNOTSUPP),
        }
        Ok(())
    }
}

/// Two sockets of [`Urgent`], connected to confirm; what one sends comes to the other.
fn urgent(rig: &Rig) -> (Rc<Urgent>, Rc<Socket>, Rc<Socket>) {
    let urgent = Rc::new(Urgent::default());
    let pr_flags = PR_CONNREQUIRED | PR_WANTRCVD;
    let sw = Switch { pr_type: Sock::Stream, pr_domain: 99, pr_protocol: 0, pr_flags };
    let functions = Rc::clone(&urgent) as Rc<dyn ProtoFns>;
    let pr = rig.bsd.register(&rig.cx, rig.block.id(), sw, functions).unwrap();
    let create = || {
        let so = socreate_on(&rig.cx, &rig.bsd, &pr).unwrap();
        soconnect(&rig.cx, &so, &mut rig.nam("any")).unwrap();
        so.set_state(SS_NBIO, 0);
        so
    };
    let (a, b) = (create(), create());
    *urgent.peer.borrow_mut() = Some(Rc::clone(&b));
    (urgent, a, b)
}

#[test]
fn out_of_band_data_stops_what_is_received_at_its_mark() {
    let rig = Rig::new();
    let (_, a, b) = urgent(&rig);
    let oob = |octets: &[u8]| sosend(&rig.cx, &a, None, Uio::Octets(octets), None, MSG_OOB);
    let urgent = || {
        let mut octet = [0; 4];
        let got = soreceive(&rig.cx, &b, Sink::Octets(&mut octet), MSG_OOB);
        got.map(|got| octet[..got.len].to_vec())
    };
    assert_eq!(urgent(), Err(Errno::EINVAL), "there is none");
    rig.send(&a, b"before").unwrap();
    assert_eq!(oob(b"!"), Ok(1));
    rig.send(&a, b"after").unwrap();
    assert!(!b.is(SS_RCVATMARK));
    let peek = |n: usize| {
        let mut room = vec![0; n];
        let got = soreceive(&rig.cx, &b, Sink::Octets(&mut room), MSG_PEEK).unwrap();
        room[..got.len].to_vec()
    };
    assert_eq!(peek(20), b"before", "a look stops there, too, and moves nothing");
    assert_eq!(rig.receive(&b, 4).unwrap(), b"befo");
    assert!(!b.is(SS_RCVATMARK));
    assert_eq!(urgent().unwrap(), b"!");
    assert_eq!(rig.receive(&b, 20).unwrap(), b"re", "up to the mark and no further");
    assert!(b.is(SS_RCVATMARK));
    assert_eq!(rig.receive(&b, 20).unwrap(), b"after");
    assert!(!b.is(SS_RCVATMARK));
    // With nothing in front the receiver is at the mark at once; a later mark moves it.
    oob(b"1").unwrap();
    assert!(b.is(SS_RCVATMARK));
    rig.send(&a, b"ab").unwrap();
    oob(b"2").unwrap();
    assert!(!b.is(SS_RCVATMARK));
    let chain = soreceive(&rig.cx, &b, Sink::Chain(20), 0).unwrap();
    assert_eq!((chain.len, b.is(SS_RCVATMARK), urgent().unwrap()), (2, true, b"2".to_vec()));
    // A full buffer takes out-of-band data all the same (1024 octets more).
    while rig.send(&b, &[0; 512]).is_ok() && b.so_snd.cc() < 1 {
        if a.so_rcv.cc() + b.so_rcv.cc() > 4096 {
            break;
        }
    }
    assert_eq!(oob(b"3"), Ok(1));
}

#[test]
fn a_connection_is_confirmed_by_sending_or_receiving() {
    let rig = Rig::new();
    let (urgent, a, b) = urgent(&rig);
    assert!(a.is(SS_ISCONFIRMING) && !a.is(SS_ISCONNECTED));
    assert_eq!(getpeername(&rig.cx, &a), Err(Errno::ENOTCONN));
    assert_eq!(rig.send(&a, b"yes"), Ok(3));
    assert!(a.is(SS_ISCONNECTED) && !a.is(SS_ISCONFIRMING));
    assert!(b.is(SS_ISCONFIRMING));
    assert_eq!(rig.receive(&b, 9).unwrap(), b"yes");
    assert!(b.is(SS_ISCONNECTED) && !b.is(SS_ISCONFIRMING));
    assert!(urgent.requests.borrow().contains(&Pru::Rcvd));
}

#[test]
fn a_close_lingers_until_the_connection_has_ended() {
    let rig = Rig::new();
    let value = |on: u32, seconds: u32| [on.to_ne_bytes(), seconds.to_ne_bytes()].concat();
    for (on, seconds, ends_after, takes) in
        [(0, 0, 2, 0), (1, 5, 2, 2000), (1, 1, 2, 1000), (1, 0, 2, 0)]
    {
        let (_, a, _b) = urgent(&rig);
        rig.send(&a, b"x").unwrap();
        a.set_state(0, SS_NBIO);
        rig.set(&a, SO_LINGER, &value(on, seconds)).unwrap();
        let (closing, took) = (Rc::clone(&a), Rc::new(Cell::new(None)));
        let told = Rc::clone(&took);
        let close: Task = Box::new(move |cx| {
            let before = cx.now();
            soclose(cx, &closing).unwrap();
            told.set(Some(cx.now().since(before)));
        });
        let timer = rig.socket(Sock::Dgram);
        timer.set_state(0, SS_NBIO);
        timer.so_rcv.set_timeo(Some(Duration::from_secs(ends_after)));
        let end: Task = Box::new(move |cx| {
            assert!(recvfrom(cx, &timer, &mut [0; 1]).is_err());
            a.soisdisconnected(cx);
        });
        assert!(rig.cx.run_tasks(Duration::from_secs(30), vec![close, end], |_| 0));
        assert_eq!(took.take(), Some(Duration::from_millis(takes)), "{on} {seconds}");
    }
    let (_, a, _) = urgent(&rig);
    assert_eq!(rig.set(&a, SO_LINGER, &[1, 0, 0, 0]), Ok(()), "four octets do, too");
    assert_eq!(rig.set(&a, SO_LINGER, &[1, 0, 0]), Err(Errno::EINVAL));
}

#[test]
fn a_send_of_no_octets_is_no_end() {
    let rig = Rig::new();
    let (a, b) = rig.pair();
    assert_eq!(rig.send(&a, b""), Ok(0));
    assert_eq!(rig.receive(&b, 1), Err(Errno::EWOULDBLOCK));
    assert_eq!(rig.send(&a, b"x"), Ok(1));
    assert_eq!(rig.receive(&b, 1).unwrap(), b"x");
}

/// An act of a test on a pair.
#[derive(Clone, Debug)]
enum Act {
    Send(bool, usize),
    Receive(bool, usize),
    Peek(bool, usize),
    Shut(bool),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        6 => (any::<bool>(), 0..3000_usize).prop_map(|(end, n)| Act::Send(end, n)),
        6 => (any::<bool>(), 1..3000_usize).prop_map(|(end, n)| Act::Receive(end, n)),
        1 => (any::<bool>(), 1..100_usize).prop_map(|(end, n)| Act::Peek(end, n)),
        1 => any::<bool>().prop_map(Act::Shut),
    ]
}

proptest! {
    #[test]
    fn a_stream_agrees_with_a_queue_of_octets(acts in prop::collection::vec(act(), 1..60)) {
        let rig = Rig::new();
        let (a, b) = rig.pair();
        let ends = [a, b];
        // What waits at each end, and whether its peer sends no more; the next octet of each.
        let mut waiting = [Vec::<u8>::new(), Vec::new()];
        let (mut shut, mut next) = ([false; 2], [0_u8; 2]);
        for act in acts {
            match act {
                Act::Send(end, n) => {
                    let (me, peer) = (usize::from(end), usize::from(!end));
                    let octets: Vec<u8> = (0..n).map(|i| next[me].wrapping_add(i as u8)).collect();
                    match rig.send(&ends[me], &octets) {
                        Ok(sent) => {
                            prop_assert!(!shut[me] && sent <= n);
                            next[me] = next[me].wrapping_add(sent as u8);
                            waiting[peer].extend(&octets[..sent]);
                        }
                        Err(Errno::EPIPE) => prop_assert!(shut[me]),
                        Err(Errno::EWOULDBLOCK) => prop_assert!(waiting[peer].len() > 1000),
                        Err(error) => prop_assert!(false, "{error}"),
                    }
                }
                Act::Receive(end, n) => {
                    let (me, peer) = (usize::from(end), usize::from(!end));
                    match rig.receive(&ends[me], n) {
                        Ok(octets) => {
                            let all = octets.len();
                            prop_assert!(all > 0 || waiting[me].is_empty() && shut[peer]);
                            prop_assert_eq!(octets, waiting[me].drain(..all).collect::<Vec<_>>());
                        }
                        Err(error) => {
                            prop_assert_eq!(error, Errno::EWOULDBLOCK);
                            prop_assert!(waiting[me].is_empty() && !shut[peer]);
                        }
                    }
                }
                Act::Peek(end, n) => {
                    let me = usize::from(end);
                    let mut room = vec![0; n];
                    let got = soreceive(&rig.cx, &ends[me], Sink::Octets(&mut room), MSG_PEEK);
                    if let Ok(got) = got {
                        prop_assert_eq!(&room[..got.len], &waiting[me][..got.len]);
                    }
                }
                Act::Shut(end) => {
                    let me = usize::from(end);
                    soshutdown(&rig.cx, &ends[me], How::Write).unwrap();
                    shut[me] = true;
                }
            }
            for end in 0..2 {
                prop_assert_eq!(ends[end].so_rcv.cc(), waiting[end].len());
            }
        }
        for so in &ends {
            soclose(&rig.cx, so).unwrap();
        }
        drop(ends);
        rig.is_clean();
    }
}

/// Any call on any of some sockets.
fn call_on(rig: &Rig, all: &mut Vec<Rc<Socket>>, (what, one, other, n): (u8, usize, usize, usize)) {
    const NAMES: [&str; 4] = ["a", "b", "c", ""];
    if all.is_empty() || what == 0 {
        let kind = if other.is_multiple_of(3) { Sock::Dgram } else { Sock::Stream };
        let created = socreate(&rig.cx, &rig.bsd, AF_UNIX, kind, 0);
        created.iter().for_each(|so| so.set_state(SS_NBIO, 0));
        return all.extend(created);
    }
    let so = Rc::clone(&all[one % all.len()]);
    let second = Rc::clone(&all[other % all.len()]);
    let name = rig.name(NAMES[other % 4]);
    let Ok(mut nam) = name.to_mbuf(rig.bsd.mbufs()) else { return };
    let octets = vec![n as u8; n];
    let _: Result<()> = match what {
        1 => sobind(&rig.cx, &so, &mut nam),
        2 => solisten(&rig.cx, &so, other as u16 % 7),
        3 | 4 => soconnect(&rig.cx, &so, &mut nam),
        5 | 6 => soaccept(&rig.cx, &so, &mut nam).map(|so| {
            so.set_state(SS_NBIO, 0);
            all.push(so);
        }),
        7 => soconnect2(&rig.cx, &so, &second),
        8 | 9 => rig.send(&so, &octets).map(drop),
        10 => sendto(&rig.cx, &so, &octets, Some(name)).map(drop),
        11 | 12 => rig.receive(&so, n).map(drop),
        13 => soreceive(&rig.cx, &so, Sink::Octets(&mut vec![0; n]), MSG_PEEK).map(drop),
        14 => soreceive(&rig.cx, &so, Sink::Chain(n), MSG_OOB).map(drop),
        15 => soshutdown(&rig.cx, &so, [How::Read, How::Write, How::Both][other % 3]),
        16 => sodisconnect(&rig.cx, &so),
        17 => so.usrreq(&rig.cx, Pru::Abort, &mut PruArgs::default()),
        18 => getpeername(&rig.cx, &so).and(getsockname(&rig.cx, &so)).map(drop),
        19 => rig.set(&so, SO_RCVBUF, &(n as u32).to_ne_bytes()),
        20 => {
            // Dropped without a close.
            all.remove(one % all.len());
            Ok(())
        }
        _ => {
            all.remove(one % all.len());
            soclose(&rig.cx, &so)
        }
    };
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]
    #[test]
    fn any_calls_leave_nothing_behind(
        calls in prop::collection::vec((0..22_u8, 0..16_usize, 0..16_usize, 0..3000_usize), 1..120),
        mbufs in prop::sample::select(&[24_i64, 4096][..]),
    ) {
        let rig = Rig::with(&Params::from([
            ("mbufs", Value::Integer(mbufs)),
            ("sockets", Value::Integer(24)),
        ]));
        let mut all = Vec::new();
        for call in calls {
            call_on(&rig, &mut all, call);
            prop_assert!(rig.bsd.sockets.get() <= 24);
            prop_assert!(!rig.bsd.is_splnet());
        }
        for so in &all {
            let _ = soclose(&rig.cx, so);
        }
        drop(all);
        rig.is_clean();
    }
}
