//! The switch, the software interrupt, the timeouts and the socket layer, with protocols of the
//! test's.

use super::*;
use crate::errno::Result;
use alloc::rc::Rc;
use core::cell::{Cell, RefCell};
use core::net::Ipv4Addr;
use core::time::Duration;
use std::boxed::Box;
use std::vec;
use std::vec::Vec;
use xk_core::graph::{Build, Params, Value};
use xk_core::object::ProtocolRef;
use xk_core::{Kernel, ProtocolRef as Node};
use xk_testkit::kernel::{Task, TestKernel};

/// Datagrams that come back to the socket that sent them, and counters of what was called.
#[derive(Default)]
struct Mirror {
    fast: Cell<u32>,
    slow: Cell<u32>,
    drained: Cell<u32>,
    inits: Cell<u32>,
    told: RefCell<Vec<Prc>>,
    /// Keeps what is sent, until it is told to take it.
    holds: Cell<bool>,
}

impl ProtoFns for Mirror {
    fn pr_init(&self, _: &Kernel, _: &Rc<Protosw>) -> Result {
        self.inits.set(self.inits.get() + 1);
        Ok(())
    }

    fn pr_usrreq(
        &self,
        cx: &Kernel,
        _: &Rc<Protosw>,
        so: Option<&Rc<Socket>>,
        req: Pru,
        args: &mut PruArgs<'_>,
    ) -> Result {
        let so = so.ok_or(Errno::EINVAL)?;
        match req {
            Pru::Attach => {
                so.soreserve(2000, 2000)?;
                so.set_pcb(Some(Rc::new(())));
            }
            Pru::Connect => so.soisconnected(cx),
            Pru::Disconnect => so.soisdisconnected(cx),
            Pru::Detach => so.set_pcb(None),
            Pru::Shutdown => so.socantsendmore(cx),
            Pru::Sockaddr => name().store(args.need_nam()?),
            Pru::Send => {
                let m = args.need_m()?;
                if self.holds.get() {
                    so.so_snd.sbappendrecord(m);
                    return Ok(());
                }
                let from = name().to_mbuf(so.bsd().mbufs())?;
                let control = args.control.take();
                so.so_rcv.sbappendaddr(from, Some(m), control)?;
                so.sorwakeup(cx);
            }
            _ => return Err(Errno::EOPNOTSUPP),
        }
        Ok(())
    }

    fn pr_ctlinput(&self, _: &Kernel, _: &Rc<Protosw>, cmd: Prc, _: &Sockaddr, _: Option<&[u8]>) {
        self.told.borrow_mut().push(cmd);
    }

    fn has_fasttimo(&self) -> bool {
        true
    }

    fn has_slowtimo(&self) -> bool {
        true
    }

    fn pr_fasttimo(&self, _: &Kernel, _: &Rc<Protosw>) {
        self.fast.set(self.fast.get() + 1);
    }

    fn pr_slowtimo(&self, _: &Kernel, _: &Rc<Protosw>) {
        self.slow.set(self.slow.get() + 1);
    }

    fn pr_drain(&self, _: &Kernel, _: &Rc<Protosw>) {
        self.drained.set(self.drained.get() + 1);
    }
}

fn name() -> Sockaddr {
    Sockaddr::inet(Release::Bsd43, Ipv4Addr::new(10, 0, 0, 2), 2005)
}

static MIRROR: xk_core::Entry = xk_core::Entry::layer("mirror", "//! ...", no_build);

fn no_build(_: &mut Build<'_>) -> core::result::Result<Node, xk_core::graph::BuildError> {
    Err(environment(Errno::EINVAL))
}

/// A kernel with the subsystem and lines of the test's.
struct Rig {
    cx: TestKernel,
    bsd: Rc<Bsd>,
    block: ProtocolRef,
}

impl Rig {
    fn with(params: &Params) -> Self {
        let cx = TestKernel::with_stacks(1);
        let block = ENTRY.add(&cx, "bsd", &[], params).unwrap();
        let bsd = Bsd::of(&cx).unwrap();
        Self { cx, bsd, block }
    }

    fn new() -> Self {
        Self::with(&Params::default())
    }

    fn line(&self, name: &str, sw: Switch, functions: Rc<dyn ProtoFns>) -> Rc<Protosw> {
        let (cx, params) = (&*self.cx, Params::default());
        let build = Build { cx, entry: &MIRROR, name, lowers: &[], params: &params };
        add_line(&build, sw, functions).unwrap().1
    }

    fn mirror(&self, name: &str, pr_type: Sock, pr_protocol: u8) -> (Rc<Protosw>, Rc<Mirror>) {
        let mirror = Rc::new(Mirror::default());
        let pr_flags = PR_ATOMIC | PR_ADDR;
        let sw = Switch { pr_type, pr_domain: 2, pr_protocol, pr_flags };
        (self.line(name, sw, Rc::clone(&mirror) as Rc<dyn ProtoFns>), mirror)
    }

    fn start(&self) {
        self.block.start(&self.cx).unwrap();
    }

    fn socket(&self) -> Rc<Socket> {
        socreate(&self.cx, &self.bsd, 2, Sock::Dgram, 0).unwrap()
    }
}

#[test]
fn addresses_have_the_octets_of_their_release() {
    let at = |release| Sockaddr::inet(release, Ipv4Addr::new(10, 0, 0, 2), 2005);
    let tail = [0x07, 0xd5, 10, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0];
    let with = |front: [u8; 2]| [&front[..], &tail].concat();
    assert_eq!(at(Release::Bsd43).0[..], with([0x00, 0x02]));
    assert_eq!(at(Release::Bsd44).0[..], with([0x10, 0x02]));
    assert_eq!(at(Release::Bsd43), at(Release::Bsd44), "the same end");
    let apple = Sockaddr::appletalk(Release::Bsd44, 0x0102, 3, 4);
    assert_eq!(apple.0, [16, 16, 4, 0, 1, 2, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!((apple.net(), apple.node(), apple.socket()), (0x0102, 3, 4));
}

/// An interface that counts.
#[derive(Default)]
struct Dog {
    barks: Cell<u32>,
    sent: RefCell<Vec<usize>>,
}

impl Driver for Dog {
    fn if_output(&self, _: &Kernel, _: &Rc<Ifnet>, m: Mbuf, _: &Sockaddr) -> Result {
        self.sent.borrow_mut().push(m.m_length());
        Ok(())
    }

    fn if_watchdog(&self, _: &Kernel, ifp: &Rc<Ifnet>) {
        self.barks.set(self.barks.get() + 1);
        ifp.if_timer.set(1);
    }
}

#[test]
fn in_two_seconds_fast_comes_ten_times_slow_four_and_the_watchdog_twice() {
    let rig = Rig::new();
    let (_, mirror) = rig.mirror("one", Sock::Dgram, 1);
    let dog = Rc::new(Dog::default());
    let ifp = rig.bsd.if_attach("le", Rc::clone(&dog) as Rc<dyn Driver>).unwrap();
    ifp.if_timer.set(1);
    rig.start();
    assert_eq!(mirror.inits.get(), 1);
    rig.cx.advance(Duration::from_secs(2));
    assert_eq!((mirror.fast.get(), mirror.slow.get(), dog.barks.get()), (10, 4, 2));
    rig.cx.stop();
    assert_eq!(rig.cx.timers(), 0);
}

#[derive(Default)]
struct Late(RefCell<Vec<u64>>);

impl Callout for Late {
    fn expire(&self, _: &Kernel, arg: u64) {
        self.0.borrow_mut().push(arg);
    }
}

#[test]
fn timeouts_are_called_once_and_can_be_taken_back() {
    let rig = Rig::new();
    let late = Rc::new(Late::default());
    let callee = || Rc::clone(&late) as Rc<dyn Callout>;
    assert_eq!(rig.bsd.timeout(&rig.cx, callee(), 0, 1), Err(Errno::ENOBUFS), "not started");
    rig.start();
    rig.bsd.timeout(&rig.cx, callee(), 7, 30).unwrap();
    let second = rig.bsd.timeout(&rig.cx, callee(), 8, 20).unwrap();
    rig.bsd.timeout(&rig.cx, callee(), 9, 10).unwrap();
    rig.bsd.untimeout(&rig.cx, second);
    rig.cx.advance(Duration::from_millis(299));
    assert_eq!(*late.0.borrow(), [9]);
    rig.cx.advance(Duration::from_secs(1));
    assert_eq!(*late.0.borrow(), [9, 7]);
    for n in 0..CALLOUTS_MAX as u64 {
        rig.bsd.timeout(&rig.cx, callee(), n, 100).unwrap();
    }
    assert_eq!(rig.bsd.timeout(&rig.cx, callee(), 0, 1), Err(Errno::ENOBUFS));
}

#[test]
fn the_switch_is_searched_as_bsd_does() {
    let rig = Rig::new();
    let (ip, _) = rig.mirror("ip", Sock::None, 0);
    let (udp, _) = rig.mirror("udp", Sock::Dgram, 17);
    let (other, _) = rig.mirror("other", Sock::Dgram, 99);
    let (raw, _) = rig.mirror("raw", Sock::Raw, 0);
    let is =
        |found: Option<Rc<Protosw>>, pr: &Rc<Protosw>| found.is_some_and(|f| Rc::ptr_eq(&f, pr));
    assert!(is(rig.bsd.pffindtype(2, Sock::Dgram), &udp), "the first of its type");
    assert!(is(rig.bsd.pffindproto(2, 99, Sock::Dgram), &other));
    assert!(is(rig.bsd.pffindproto(2, 50, Sock::Raw), &raw), "raw is for all numbers");
    assert!(rig.bsd.pffindproto(2, 50, Sock::Dgram).is_none());
    assert!(rig.bsd.pffindtype(16, Sock::Dgram).is_none());
    assert!(rig.bsd.pffindtype(2, Sock::None).is_none(), "IP itself is for no socket");
    assert!(rig.bsd.protocol(ip.id()).is_some());
    let none = socreate(&rig.cx, &rig.bsd, 2, Sock::Stream, 0);
    assert_eq!(none.err(), Some(Errno::EPROTONOSUPPORT));
}

#[test]
fn every_protocol_is_told_what_happened_below() {
    let rig = Rig::new();
    let all = [rig.mirror("a", Sock::Dgram, 1).1, rig.mirror("b", Sock::Raw, 2).1];
    rig.bsd.pfctlinput(&rig.cx, Prc::IfDown, &name());
    assert!(all.iter().all(|mirror| *mirror.told.borrow() == [Prc::IfDown]));
    assert_eq!(inetctlerr(Prc::UnreachPort), Some(Errno::ECONNREFUSED));
    assert_eq!(inetctlerr(Prc::Quench), None);
}

#[test]
fn numbers_of_the_graph_say_what_stands_on_a_protocol() {
    let rig = Rig::new();
    let (lower, _) = rig.mirror("lower", Sock::None, 0);
    let (upper, _) = rig.mirror("upper", Sock::Dgram, 1);
    assert_eq!(
        rig.bsd.stack(&rig.cx, &lower, &upper, upper.id()),
        Err(Errno::EPROTONOSUPPORT),
        "there is no number"
    );
    rig.cx.numbers_mut().override_pair(upper.id(), lower.id(), 17);
    assert_eq!(rig.bsd.stack(&rig.cx, &lower, &upper, upper.id()), Ok(17));
    assert!(Rc::ptr_eq(&lower.upper(17).unwrap(), &upper) && lower.upper(18).is_none());
}

/// Takes packets, and sends each on to another bit.
struct Relay {
    bsd: Rc<Bsd>,
    ifp: Rc<Ifnet>,
    next: Option<u32>,
    depth: Rc<Cell<u32>>,
    seen: Rc<RefCell<Vec<usize>>>,
}

impl Netisr for Relay {
    fn intr(&self, cx: &Kernel, m: Mbuf) {
        assert_eq!(self.depth.replace(1), 0, "never within itself");
        assert!(self.bsd.is_splnet());
        self.seen.borrow_mut().push(m.m_length());
        if let Some(next) = self.next {
            self.bsd.netisr_input(cx, next, &self.ifp, m);
        }
        self.depth.set(0);
    }
}

#[test]
fn software_interrupts_come_when_the_lock_is_free_and_never_nested() {
    let rig = Rig::new();
    let ifp = rig.bsd.if_attach("le", Rc::new(Dog::default())).unwrap();
    let (depth, seen) = (Rc::default(), Rc::default());
    let relay = |next| Relay {
        bsd: Rc::clone(&rig.bsd),
        ifp: Rc::clone(&ifp),
        next,
        depth: Rc::clone(&depth),
        seen: Rc::clone(&seen),
    };
    rig.bsd.set_netisr(NETISR_IP, 3, Rc::new(relay(Some(NETISR_ARP))));
    rig.bsd.set_netisr(NETISR_ARP, 50, Rc::new(relay(None)));
    let packet = |n: usize| rig.bsd.mbufs().m_copyin(Mt::Data, &vec![0; n]).unwrap();
    rig.bsd.splnet(&rig.cx, || {
        for n in 1..=5 {
            rig.bsd.netisr_input(&rig.cx, NETISR_IP, &ifp, packet(n));
        }
        assert!(seen.borrow().is_empty(), "at splnet it waits");
    });
    assert_eq!(*seen.borrow(), [1, 2, 3, 1, 2, 3], "the queue holds three");
    assert_eq!(ifp.if_data.iqdrops.get(), 2);
    assert_eq!(rig.bsd.netisrs(), [(NETISR_IP, 0, 2), (NETISR_ARP, 0, 0)]);
    assert_eq!(rig.bsd.softints(), 1);
    rig.bsd.netisr_input(&rig.cx, NETISR_RAW, &ifp, packet(1));
    assert_eq!(ifp.if_data.noproto.get(), 1);
    rig.bsd.netisr_input(&rig.cx, NETISR_ARP, &ifp, packet(9));
    assert_eq!(seen.borrow().last(), Some(&9), "off splnet it comes at once");
    assert_eq!(rig.bsd.mbufs().mbstat().in_use, 0);
}

#[test]
fn an_interfaces_queue_drops_the_newest() {
    let rig = Rig::new();
    let queue = IfQueue::default();
    let packet = |n: usize| rig.bsd.mbufs().m_copyin(Mt::Data, &vec![0; n]).unwrap();
    for n in 0..50 {
        queue.enqueue(packet(n)).unwrap();
    }
    assert_eq!(queue.enqueue(packet(99)), Err(Errno::ENOBUFS));
    queue.prepend(packet(77));
    assert_eq!((queue.len(), queue.drops()), (51, 1));
    assert_eq!(queue.dequeue().map(|m| m.m_length()), Some(77));
    assert_eq!(queue.dequeue().map(|m| m.m_length()), Some(0));
    queue.flush();
    assert_eq!(rig.bsd.mbufs().mbstat().in_use, 0);
}

#[test]
fn a_datagram_comes_with_its_senders_address() {
    let rig = Rig::new();
    rig.mirror("udp", Sock::Dgram, 17);
    let so = rig.socket();
    assert_eq!(sendto(&rig.cx, &so, b"hello", Some(name())), Ok(5));
    let control = rig.bsd.mbufs().m_copyin(Mt::Control, b"options").unwrap();
    let nam = name().to_mbuf(rig.bsd.mbufs()).ok();
    let sent = sosend(&rig.cx, &so, nam, Uio::Octets(b"again, longer"), Some(control), 0);
    assert_eq!((sent, so.so_rcv.len()), (Ok(13), 2));
    assert_eq!(so.so_rcv.cc(), 16 + 5 + 16 + 7 + 13);

    let mut room = [0; 100];
    let got = soreceive(&rig.cx, &so, Sink::Octets(&mut room), MSG_PEEK).unwrap();
    assert_eq!((got.len, got.from(), so.so_rcv.len()), (5, Some(name()), 2));
    drop(got);
    assert_eq!(recvfrom(&rig.cx, &so, &mut room), Ok((5, Some(name()))));
    assert_eq!(&room[..5], b"hello");
    let got = soreceive(&rig.cx, &so, Sink::Octets(&mut room[..5]), 0).unwrap();
    assert_eq!((got.len, got.flags), (5, MSG_TRUNC), "the rest of a datagram is gone");
    drop(got.nam);
    assert_eq!(got.control.map(|m| m.octets().collect::<Vec<_>>()), Some(b"options".to_vec()));
    assert_eq!((so.so_rcv.cc(), so.so_rcv.mbcnt()), (0, 0));
    assert_eq!(soclose(&rig.cx, &so), Ok(()));
    drop(so);
    let stat = rig.bsd.mbufs().mbstat();
    assert_eq!((stat.in_use, rig.bsd.sockets.get()), (0, 0));
}

#[test]
fn errors_of_sending_are_bsds() {
    let rig = Rig::new();
    rig.mirror("udp", Sock::Dgram, 17);
    let so = rig.socket();
    let send = |octets: &[u8], to| sendto(&rig.cx, &so, octets, to);
    assert_eq!(send(b"x", None), Err(Errno::EDESTADDRREQ));
    assert_eq!(send(&[0; 2001], Some(name())), Err(Errno::EMSGSIZE), "more than sb_hiwat");
    so.set_error(Some(Errno::ECONNREFUSED));
    assert_eq!(send(b"x", Some(name())), Err(Errno::ECONNREFUSED));
    assert_eq!(send(b"x", Some(name())), Ok(1), "an error is told once");
    soshutdown(&rig.cx, &so, How::Write).unwrap();
    assert_eq!(send(b"x", Some(name())), Err(Errno::EPIPE));
    assert_eq!(getpeername(&rig.cx, &so), Err(Errno::ENOTCONN));
    assert_eq!(getsockname(&rig.cx, &so), Ok(name()));
    soshutdown(&rig.cx, &so, How::Read).unwrap();
    assert_eq!(recvfrom(&rig.cx, &so, &mut [0; 9]), Ok((0, None)), "the end");
}

#[test]
fn calls_that_may_not_wait_say_so() {
    let rig = Rig::new();
    let (_, mirror) = rig.mirror("udp", Sock::Dgram, 17);
    let so = rig.socket();
    so.set_state(SS_NBIO, 0);
    assert_eq!(recvfrom(&rig.cx, &so, &mut [0; 9]), Err(Errno::EWOULDBLOCK));
    mirror.holds.set(true);
    assert_eq!(sendto(&rig.cx, &so, &[0; 1500], Some(name())), Ok(1500));
    assert_eq!(sendto(&rig.cx, &so, &[0; 1500], Some(name())), Err(Errno::EWOULDBLOCK));
    assert!(!so.soreadable());
    // What is on no shepherd cannot wait either.
    so.set_state(0, SS_NBIO);
    assert_eq!(recvfrom(&rig.cx, &so, &mut [0; 9]), Err(Errno::EWOULDBLOCK));
}

#[test]
fn a_receiver_waits_and_is_woken_and_the_lock_is_free_meanwhile() {
    let rig = Rig::new();
    rig.mirror("udp", Sock::Dgram, 17);
    let so = rig.socket();
    let got = Rc::new(RefCell::new(None));
    let (receiver, kept) = (Rc::clone(&so), Rc::clone(&got));
    let wait: Task = Box::new(move |cx| {
        let mut room = [0; 20];
        let answer = recvfrom(cx, &receiver, &mut room);
        *kept.borrow_mut() = Some(answer.map(|(n, _)| room[..n].to_vec()));
    });
    let (sender, bsd) = (Rc::clone(&so), Rc::clone(&rig.bsd));
    let send: Task = Box::new(move |cx| {
        assert!(!bsd.is_splnet(), "the one that waits has given the lock up");
        sendto(cx, &sender, b"late", Some(name())).unwrap();
    });
    assert!(rig.cx.run_tasks(Duration::from_secs(1), vec![wait, send], |_| 0));
    assert_eq!(got.take(), Some(Ok(b"late".to_vec())));
    assert!(!rig.bsd.is_splnet());
}

#[test]
fn options_have_their_values_and_limits() {
    let rig = Rig::new();
    rig.mirror("udp", Sock::Dgram, 17);
    let so = rig.socket();
    let set = |name, value: u32| {
        let m = rig.bsd.mbufs().m_copyin(Mt::Soopts, &value.to_ne_bytes()).unwrap();
        sosetopt(&rig.cx, &so, (SOL_SOCKET, name), Some(m))
    };
    let get = |name| {
        sogetopt(&rig.cx, &so, SOL_SOCKET, name)
            .map(|m| u32::from_ne_bytes(m.mtod().try_into().unwrap()))
    };
    assert_eq!((set(SO_BROADCAST, 1), get(SO_BROADCAST)), (Ok(()), Ok(u32::from(SO_BROADCAST))));
    assert_eq!((set(SO_BROADCAST, 0), get(SO_BROADCAST)), (Ok(()), Ok(0)));
    assert_eq!((set(SO_RCVBUF, 9000), get(SO_RCVBUF)), (Ok(()), Ok(9000)));
    assert_eq!(set(SO_RCVBUF, 1 << 20), Err(Errno::ENOBUFS), "more than sb_max");
    assert_eq!((set(SO_RCVTIMEO, 250), get(SO_RCVTIMEO)), (Ok(()), Ok(250)));
    assert_eq!(get(SO_TYPE), Ok(2));
    so.set_error(Some(Errno::ENETDOWN));
    assert_eq!((get(SO_ERROR), get(SO_ERROR)), (Ok(50), Ok(0)));
    assert_eq!(set(0x7777, 1), Err(Errno::ENOPROTOOPT));
    assert_eq!(sosetopt(&rig.cx, &so, (SOL_SOCKET, SO_BROADCAST), None), Err(Errno::EINVAL));
    assert_eq!(sogetopt(&rig.cx, &so, 17, 1).err(), Some(Errno::ENOPROTOOPT));
}

#[test]
fn sockets_are_bounded() {
    let params = Params::from([("sockets", Value::Integer(2))]);
    let rig = Rig::with(&params);
    rig.mirror("udp", Sock::Dgram, 17);
    let one = rig.socket();
    let _two = rig.socket();
    let more = || socreate(&rig.cx, &rig.bsd, 2, Sock::Dgram, 0);
    assert_eq!(more().err(), Some(Errno::ENOBUFS));
    soclose(&rig.cx, &one).unwrap();
    drop(one);
    assert!(more().is_ok());
}

#[test]
fn a_datagram_that_finds_no_room_is_refused() {
    let rig = Rig::new();
    rig.mirror("udp", Sock::Dgram, 17);
    let so = rig.socket();
    for _ in 0..3 {
        sendto(&rig.cx, &so, &[0; 600], Some(name())).unwrap();
    }
    let sent = sendto(&rig.cx, &so, &[0; 600], Some(name()));
    assert_eq!((sent, so.so_rcv.len()), (Err(Errno::ENOBUFS), 3));
}

#[test]
fn a_denied_request_has_the_protocols_drained() {
    let params = Params::from([("mbufs", Value::Integer(16))]);
    let rig = Rig::with(&params);
    let (_, mirror) = rig.mirror("udp", Sock::Dgram, 17);
    rig.start();
    let held: Vec<_> = (0..16).map(|_| rig.bsd.mbufs().m_get(Mt::Data).unwrap()).collect();
    assert!(rig.bsd.mbufs().m_get(Mt::Data).is_err());
    rig.cx.advance(Duration::from_millis(200));
    assert_eq!((mirror.drained.get(), rig.bsd.mbufs().mbstat().drains), (1, 1));
    drop(held);
}

#[test]
fn the_block_reports_as_netstat_does() {
    let rig = Rig::new();
    rig.mirror("udp", Sock::Dgram, 17);
    rig.bsd.if_attach("le", Rc::new(Dog::default())).unwrap();
    let so = rig.socket();
    sendto(&rig.cx, &so, b"x", Some(name())).unwrap();
    let report = rig.block.ask(&rig.cx, xk_core::control::Report::default()).unwrap();
    let of = |name: &str| report.lines.iter().find(|(n, _)| n == name).map(|(_, v)| &**v);
    assert_eq!(of("mbufs in use"), Some("2 of 3"));
    assert_eq!(of("mbufs of socket names"), Some("1"));
    assert!(of("le0").is_some_and(|text| text.starts_with("mtu 0 in 0")));
    assert!(ENTRY.add(&rig.cx, "second", &[], &Params::default()).is_err(), "one of a host");
}
