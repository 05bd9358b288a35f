//! The ends of BSD: `user` above; `ddp`, or an interface that resolves by itself, below.

use super::desk::{
    Above, Between, DATAGRAM, Desk, Form, OWN, RESPONSE, count, desk, end_below, mbufs, own, peer,
};
use crate::stopwatch::{Way, enter, leave};
use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;
use xk_appletalk::addr::AtAddr;
use xk_appletalk::atp::{OptionKind, Options, Want};
use xk_bsd::errno::{Errno, Result};
use xk_bsd::ifnet::{IFF_RUNNING, IFF_UP};
use xk_bsd::{
    Bsd, Driver, Ifnet, InputArg, MSG_DONTWAIT, Mbuf, Mt, NETISR_AT, OutputArg, PR_ADDR, PR_ATOMIC,
    ProtoFns, Protosw, Pru, PruArgs, SIOCGIFMTU, SS_NBIO, Sink, Sock, Sockaddr, Socket, Switch,
    Upcall, add_line, recvfrom, sendto, sobind, socreate_on, soreceive,
};
use xk_core::graph::{Build, BuildError, Family, Realm, Service};
use xk_core::object::OpenError;
use xk_core::{Entry, Kernel, Protocol, ProtocolRef};

static USER: Entry = Entry::layer("user", "", build_user)
    .subsystem("bsd")
    .on(&[Realm::Async, Realm::Rpc], &[Family::Any])
    .service(Service::TOP)
    .numbers(&[("ddp", super::desk::TYPE as u32), ("atp", super::desk::TYPE as u32)]);
static DDP: Entry =
    end_below("ddp", build_ddp, Family::Other("AppleTalk sockets")).subsystem("bsd");
static ETHER: Entry = end_below("ether", build_ether, Family::Ether).subsystem("bsd");
pub(super) static ENTRIES: [&Entry; 3] = [&USER, &DDP, &ETHER];

fn sockaddr(bsd: &Bsd, at: AtAddr) -> Sockaddr {
    Sockaddr::appletalk(bsd.mbufs().release(), at.net, at.node, at.socket)
}

// ---- above ----

/// As an entry of the switch, for datagrams; by a socket otherwise.
struct User(Rc<Desk>);

fn build_user(build: &mut Build<'_>) -> std::result::Result<ProtocolRef, BuildError> {
    let desk = desk(build.cx);
    let (node, pr) = add_line(build, Switch::default(), Rc::new(User(Rc::clone(&desk))))?;
    let (lower, pr) = (build.lower(0)?.id(), pr.id());
    let number = OnceCell::new();
    let user: Rc<OnceCell<Rc<SocketUser>>> = Rc::default();
    let above = desk.above.get();
    let socket = {
        let desk = Rc::clone(&desk);
        move |cx: &Kernel| -> Rc<SocketUser> {
            let made = || SocketUser::new(cx, lower, &desk);
            Rc::clone(user.get_or_init(made))
        }
    };
    if above == Above::Server {
        // It is there before the first request.
        *desk.ready.borrow_mut() = Some(Rc::new(move |cx: &Kernel| drop(socket(cx))));
        return Ok(node);
    }
    let act = move |cx: &Kernel, octets: usize, form: Form| {
        let bsd = Bsd::of(cx).expect("the block");
        if above != Above::Datagrams {
            return socket(cx).send(cx, octets);
        }
        let number = number.get_or_init(|| {
            let number = cx.type_number(pr, lower).expect("a number");
            (number as u8, bsd.protocol(lower).expect("the line below"))
        });
        let arg = OutputArg::new(sockaddr(&bsd, peer()), Some(sockaddr(&bsd, own())), number.0);
        let m = mbufs(bsd.mbufs(), octets, form);
        let sent = enter(Way::Down, || bsd.splnet(cx, || number.1.pr_output(cx, m, &arg)));
        sent.expect("it goes");
    };
    *desk.down.borrow_mut() = Some(Rc::new(act));
    Ok(node)
}

impl ProtoFns for User {
    fn pr_input(&self, _: &Kernel, _: &Rc<Protosw>, m: Mbuf, _: InputArg) {
        leave(|| {
            m.m_freem();
            count(&self.0.came);
        });
    }
}

/// A socket on the protocol below.
struct SocketUser {
    desk: Rc<Desk>,
    bsd: Rc<Bsd>,
    lower: Rc<Protosw>,
    so: Rc<Socket>,
}

impl SocketUser {
    fn new(cx: &Kernel, lower: xk_core::object::ProtocolId, desk: &Rc<Desk>) -> Rc<Self> {
        let bsd = Bsd::of(cx).expect("the block");
        let lower = bsd.protocol(lower).expect("the line below");
        let so = socreate_on(cx, &bsd, &lower).expect("a socket");
        so.set_state(SS_NBIO, 0);
        let at = AtAddr { socket: OWN, ..AtAddr::default() };
        let mut nam = sockaddr(&bsd, at).to_mbuf(bsd.mbufs()).expect("mbufs are left");
        sobind(cx, &so, &mut nam).expect("a free address");
        nam.m_freem();
        let user = Rc::new(Self { desk: Rc::clone(desk), bsd, lower, so });
        if desk.above.get() != Above::Program {
            user.so.set_upcall(Some(Rc::clone(&user) as Rc<dyn Upcall>));
        }
        user
    }

    fn nam(&self) -> Mbuf {
        sockaddr(&self.bsd, peer()).to_mbuf(self.bsd.mbufs()).expect("mbufs are left")
    }

    /// A request by the protocol's own function; octets by what the socket layer offers.
    fn send(&self, cx: &Kernel, octets: usize) {
        if self.desk.above.get() == Above::Program {
            let data = [0; DATAGRAM];
            let to = sockaddr(&self.bsd, peer());
            let sent = enter(Way::Down, || sendto(cx, &self.so, &data[..octets], Some(to)));
            assert_eq!(sent, Ok(octets), "it goes");
            return;
        }
        let options = Options::request(&Want::DEFAULT, 1);
        self.request(cx, octets, &options);
    }

    fn request(&self, cx: &Kernel, octets: usize, options: &Options) {
        let all = self.bsd.mbufs();
        let form = if octets <= super::desk::REQUEST { Form::Foreign } else { Form::Own };
        let (mut nam, m) = (self.nam(), mbufs(all, octets, form));
        let control = all.m_copyin(Mt::Control, &options.emit()).expect("mbufs are left");
        let mut args = PruArgs {
            m: Some(m),
            nam: Some(&mut nam),
            control: Some(control),
            ..PruArgs::default()
        };
        let ask = || self.lower.pr_usrreq(cx, Some(&self.so), Pru::Send, &mut args);
        enter(Way::Down, || self.bsd.splnet(cx, ask)).expect("it goes");
        nam.m_freem();
    }
}

impl Upcall for SocketUser {
    fn upcall(&self, cx: &Kernel, so: &Rc<Socket>) {
        leave(|| {
            let got = soreceive(cx, so, Sink::Chain(usize::MAX), MSG_DONTWAIT);
            let got = got.expect("it has come");
            let options = got.control.as_ref().map(|control| Options::parse(control.mtod()));
            [got.m, got.nam, got.control].into_iter().flatten().for_each(Mbuf::m_freem);
            count(&self.desk.came);
            if let Some(Ok(options)) = options
                && options.kind == OptionKind::Request
            {
                self.request(cx, RESPONSE, &options.response([0; 4]));
            }
        });
    }
}

/// A program takes what has come.
fn take(cx: &Kernel, desk: &Desk, so: &Rc<Socket>) {
    let mut octets = [0; DATAGRAM];
    let got = enter(Way::Up, || recvfrom(cx, so, &mut octets));
    assert!(matches!(got, Ok((DATAGRAM, Some(_)))), "it has come: {got:?}");
    count(&desk.came);
}

// ---- below, in the place of DDP ----

struct Lower {
    desk: Rc<Desk>,
    /// The user's socket, of a protocol that serves users.
    so: Rc<RefCell<Option<Rc<Socket>>>>,
}

fn build_ddp(build: &mut Build<'_>) -> std::result::Result<ProtocolRef, BuildError> {
    let desk = desk(build.cx);
    let so: Rc<RefCell<Option<Rc<Socket>>>> = Rc::default();
    let switch = Switch {
        pr_type: Sock::Dgram,
        pr_domain: 16,
        pr_flags: PR_ATOMIC | PR_ADDR,
        ..Switch::default()
    };
    let lower = Lower { desk: Rc::clone(&desk), so: Rc::clone(&so) };
    let (node, pr) = add_line(build, switch, Rc::new(lower))?;
    let own_desk = Rc::clone(&desk);
    let upper = Cell::new(None);
    let act = move |cx: &Kernel, octets: usize, form: Form| {
        let desk = &own_desk;
        let bsd = Bsd::of(cx).expect("the block");
        let found: Option<(u8, Rc<Protosw>)> = upper.take();
        let found = found.or_else(|| pr.uppers().into_iter().next());
        let user = so.borrow().clone();
        if let Some(so) = user {
            let from = sockaddr(&bsd, peer()).to_mbuf(bsd.mbufs()).expect("mbufs are left");
            let m = mbufs(bsd.mbufs(), octets, Form::Foreign);
            let append = || {
                so.so_rcv.sbappendaddr(from, Some(m), None).expect("there is room");
                so.sorwakeup(cx);
            };
            enter(Way::Up, || bsd.splnet(cx, append));
            return take(cx, desk, &so);
        }
        let m = match desk.between.get() {
            Between::Edge => mbufs(bsd.mbufs(), octets, form),
            _ => filled(&bsd, &desk.coming(octets)),
        };
        bring(cx, &bsd, found.as_ref().expect("an upper"), m);
        upper.set(found);
    };
    *desk.up.borrow_mut() = Some(Rc::new(act));
    Ok(node)
}

/// A packet of these octets, in clusters.
fn filled(bsd: &Bsd, octets: &[u8]) -> Mbuf {
    let mut m = mbufs(bsd.mbufs(), octets.len(), Form::Own);
    m.m_copyback(0, octets).expect("it has room");
    m
}

fn bring(cx: &Kernel, bsd: &Bsd, (kind, upper): &(u8, Rc<Protosw>), m: Mbuf) {
    let (from, to) = (sockaddr(bsd, peer()), sockaddr(bsd, own()));
    let arg = InputArg::Addressed { from, to, kind: *kind };
    enter(Way::Up, || bsd.splnet(cx, || upper.pr_input(cx, m, arg)));
}

impl ProtoFns for Lower {
    fn pr_output(&self, cx: &Kernel, pr: &Rc<Protosw>, m: Mbuf, arg: &OutputArg) -> Result {
        leave(|| {
            let response = self.desk.went(m.mtod());
            m.m_freem();
            if let Some(octets) = response {
                let bsd = Bsd::of(cx).expect("the block");
                let upper = pr.upper(arg.kind).expect("what has sent it");
                bring(cx, &bsd, &(arg.kind, upper), filled(&bsd, &octets));
            }
        });
        Ok(())
    }

    fn pr_usrreq(
        &self,
        _: &Kernel,
        _: &Rc<Protosw>,
        so: Option<&Rc<Socket>>,
        req: Pru,
        args: &mut PruArgs<'_>,
    ) -> Result {
        match (req, so) {
            (Pru::Send, Some(_)) => leave(|| {
                args.need_m()?.m_freem();
                count(&self.desk.went);
                Ok(())
            }),
            (Pru::Attach, Some(so)) => {
                so.soreserve(1 << 12, 1 << 14)?;
                *self.so.borrow_mut() = Some(Rc::clone(so));
                Ok(())
            }
            (Pru::Bind, Some(_)) => Ok(()),
            (Pru::Control, _) if args.cmd == SIOCGIFMTU => {
                let octets = (super::desk::MAX as u32).to_be_bytes();
                args.need_nam()?.mtod_mut().ok_or(Errno::EINVAL)?.copy_from_slice(&octets);
                Ok(())
            }
            _ => Err(Errno::EOPNOTSUPP),
        }
    }
}

// ---- below, in the place of an Ethernet ----

struct Sent(Rc<Desk>);
struct Node;

impl Protocol for Node {
    fn start(&self, _: &Kernel, _: &ProtocolRef) -> std::result::Result<(), OpenError> {
        Ok(())
    }
}

fn build_ether(build: &mut Build<'_>) -> std::result::Result<ProtocolRef, BuildError> {
    let (bsd, desk) = (xk_bsd::of(build.cx)?, desk(build.cx));
    let ifp = bsd.if_attach("en", Rc::new(Sent(Rc::clone(&desk)))).map_err(xk_bsd::environment)?;
    ifp.if_mtu.set(super::desk::MAX);
    ifp.set_flags(IFF_UP | IFF_RUNNING, 0);
    let node = build.add(Node)?;
    bsd.set_interface(node.id(), Rc::clone(&ifp));
    let up = Rc::clone(&desk);
    let act = move |cx: &Kernel, octets: usize, _| {
        let m = filled(&bsd, &up.coming(octets));
        enter(Way::Up, || bsd.splnet(cx, || bsd.netisr_input(cx, NETISR_AT, &ifp, m)));
    };
    *desk.up.borrow_mut() = Some(Rc::new(act));
    Ok(node)
}

impl Driver for Sent {
    fn if_output(&self, _: &Kernel, _: &Rc<Ifnet>, m: Mbuf, _: &Sockaddr) -> Result {
        leave(|| {
            m.m_freem();
            count(&self.0.went);
        });
        Ok(())
    }
}
