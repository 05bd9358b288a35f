//! `ddp` below: what is sent to an address arrives there, within the same host.

use crate::rig::log;
use std::cell::RefCell;
use std::rc::{Rc, Weak};
use xk_adapters::{Addr, Form};
use xk_bsd::errno::{Errno as BsdErrno, Result as BsdResult};
use xk_bsd::{
    InputArg, Mbuf, OutputArg, Prc, ProtoFns, Protosw, Pru, PruArgs, SIOCGIFMTU, Socket, Switch,
    add_line,
};
use xk_core::control::Report;
use xk_core::graph::{Build, BuildError, Builder, Family, Guarantees, Service};
use xk_core::object::{Closing, Enable, OpenError, ProtocolId, PushError, Refused};
use xk_core::{
    Answer, Ask, Entry, Kernel, Message, Participants, Protocol, ProtocolRef, Session, SessionRef,
    Upper,
};
use xk_kit::control::{MaxPacket, NetworkError, NetworkErrorKind};
use xk_streams::tpi::{
    Datagrams, Endpoint, Info, Refusal, SendError, own_end, unitdata_ind, with_own_end,
};
use xk_streams::{Errno, Kind, Mblk, Module, ModuleInfo, Opening, Q, Streamtab, WeakQ};

const fn entry(build: Builder) -> Entry {
    Entry::layer("ddp", "", build)
        .above(Family::Other("sockets"))
        .lowers(0..=0)
        .service(Service { adds: Guarantees::ALL, keeps: Guarantees::NONE })
        .numbers(&[])
}

static XK: Entry = entry(build_xk);
static BSD: Entry = entry(build_bsd).subsystem("bsd");
static STREAMS: Entry = entry(build_streams).subsystem("streams");
pub(crate) static ENTRIES: [&Entry; 3] = [&XK, &BSD, &STREAMS];

// ---- the x-kernel's ----

struct XkLoop {
    form: &'static Form,
    /// Receivers, by our address.
    offers: RefCell<Vec<(Addr, ProtocolRef)>>,
}

struct XkEnd {
    form: &'static Form,
    local: Addr,
    peer: Addr,
    upper: ProtocolRef,
}

fn build_xk(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    build.add(XkLoop { form: Form::of("ddp").unwrap(), offers: RefCell::default() })
}

impl Protocol for XkLoop {
    fn open(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        mut ends: Participants,
    ) -> Result<SessionRef, OpenError> {
        upper.number_on(cx, this)?;
        let local = self.form.to_addr(ends.local_mut()?)?;
        let peer = self.form.to_addr(ends.peer_mut()?)?;
        let upper_ref = upper.receiver.clone();
        let end = XkEnd { form: self.form, local, peer, upper: upper_ref };
        Ok(cx.new_session(this, upper.receiver, end))
    }

    fn open_enable(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        mut ends: Participants,
    ) -> Result<Enable, OpenError> {
        upper.number_on(cx, this)?;
        let local = self.form.to_addr(ends.local_mut()?)?;
        self.offers.borrow_mut().push((local, upper.receiver.clone()));
        Ok(Enable(1))
    }

    fn open_disable(&self, _: &Kernel, _: &ProtocolRef, _: Enable) {
        self.offers.borrow_mut().clear();
    }

    fn control(&self, cx: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        if let Some(report) = ask.get::<Report>() {
            report.finished = self.offers.borrow().is_empty();
            return Answer::Answered;
        }
        ask.answer::<MaxPacket>(|q| q.octets = log(cx).mtu.get())
    }

    fn stop(&self, _: &Kernel, _: &ProtocolRef) {
        self.offers.borrow_mut().clear();
    }
}

impl Session for XkEnd {
    fn push(&self, cx: &Kernel, this: &SessionRef, message: Message) -> Result<(), PushError> {
        if log(cx).fails.get() {
            let error = NetworkError::new(NetworkErrorKind::HostUnreachable);
            let _ = error.tell(cx, this, 0);
            return Err(PushError::Unreachable);
        }
        if message.len() > log(cx).mtu.get() as usize {
            return Err(PushError::TooBig);
        }
        let protocol = this.protocol(cx).unwrap();
        let (form, local, peer) = (self.form, self.peer, self.local);
        let end = XkEnd { form, local, peer, upper: self.upper.clone() };
        let there = cx.new_passive_session(&protocol, &self.upper, 0, end);
        let ends = Participants::pair(form.to_participant(&local), form.to_participant(&peer));
        there.announce(cx, &self.upper, ends).map_err(|_| PushError::Unreachable)?;
        drop(there.pop(cx, message));
        there.retire(cx);
        Ok(())
    }

    fn pop(&self, cx: &Kernel, this: &SessionRef, message: Message) -> Result<(), Refused> {
        self.upper.demux(cx, this, message)
    }

    fn close(&self, _: &Kernel, _: &SessionRef) -> Closing {
        Closing::Done
    }

    fn control(&self, cx: &Kernel, _: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        ask.answer::<MaxPacket>(|q| q.octets = log(cx).mtu.get())
    }
}

// ---- BSD's ----

struct BsdLoop;

fn build_bsd(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    Ok(add_line(build, Switch { pr_domain: 16, ..Switch::default() }, Rc::new(BsdLoop))?.0)
}

impl ProtoFns for BsdLoop {
    fn pr_output(&self, cx: &Kernel, pr: &Rc<Protosw>, m: Mbuf, arg: &OutputArg) -> BsdResult {
        let upper = pr.upper(arg.kind);
        if m.m_length() > log(cx).mtu.get() as usize {
            m.m_freem();
            return Err(BsdErrno::EMSGSIZE);
        }
        let Some(upper) = upper.filter(|_| !log(cx).fails.get()) else {
            m.m_freem();
            for (_, upper) in pr.uppers() {
                upper.pr_ctlinput(cx, Prc::UnreachHost, &arg.to, None);
            }
            return Err(BsdErrno::EHOSTUNREACH);
        };
        let from = arg.from.unwrap_or_default();
        upper.pr_input(cx, m, InputArg::Addressed { from, to: arg.to, kind: arg.kind });
        Ok(())
    }

    fn pr_usrreq(
        &self,
        cx: &Kernel,
        _: &Rc<Protosw>,
        _: Option<&Rc<Socket>>,
        req: Pru,
        args: &mut PruArgs<'_>,
    ) -> BsdResult {
        if (req, args.cmd) != (Pru::Control, SIOCGIFMTU) {
            return Err(BsdErrno::EOPNOTSUPP);
        }
        let octets = log(cx).mtu.get().to_be_bytes();
        args.need_nam()?.mtod_mut().unwrap().copy_from_slice(&octets);
        Ok(())
    }
}

// ---- that of STREAMS ----

struct StreamsLoop {
    this: Weak<StreamsLoop>,
    bound: RefCell<Vec<(WeakQ, Addr, Option<ProtocolId>)>>,
}

struct End(Rc<StreamsLoop>, Option<ProtocolId>);

fn build_streams(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let tab = Rc::new_cyclic(|this: &Weak<StreamsLoop>| StreamsLoop {
        this: this.clone(),
        bound: RefCell::default(),
    });
    let all = |tab: &Rc<StreamsLoop>| {
        let tab = Rc::downgrade(tab);
        move || -> Vec<Q> {
            let Some(tab) = tab.upgrade() else { return Vec::new() };
            let bound = tab.bound.borrow();
            bound.iter().filter_map(|(q, ..)| q.upgrade()).collect()
        }
    };
    let (of, log) = (all(&tab), log(build.cx));
    *log.enable_below.borrow_mut() =
        Some(Rc::new(move |cx| of().iter().for_each(|q| q.write_side().qenable(cx))));
    let of = all(&tab);
    *log.hang_up.borrow_mut() = Some(Rc::new(move |cx| {
        for q in of() {
            let hangup = q.blocks().copy(Kind::Hangup, 0, &[]).unwrap();
            q.putnext(cx, hangup);
        }
    }));
    xk_streams::line(build, tab)
}

const INFO: ModuleInfo = ModuleInfo::new(9, "ddp");

impl Streamtab for StreamsLoop {
    fn info(&self) -> ModuleInfo {
        INFO
    }

    fn open(&self, _: &Kernel, _: &Q, opening: Opening) -> Result<Rc<dyn Module>, Errno> {
        let own = self.this.upgrade().unwrap();
        Ok(Endpoint::new(Rc::new(End(own, opening.upper))))
    }
}

impl Datagrams for End {
    fn module(&self) -> ModuleInfo {
        INFO
    }

    fn info(&self) -> Info {
        Info::datagrams(586, 16, 32)
    }

    fn bind(&self, _: &Kernel, q: &Q, addr: &[u8], _: u32) -> Result<Vec<u8>, Refusal> {
        let addr = Addr::parse(addr).unwrap_or(Addr::any(16));
        self.0.bound.borrow_mut().push((q.downgrade(), addr, self.1));
        Ok(addr.to_tpi().to_vec())
    }

    fn has_room(&self, cx: &Kernel) -> bool {
        !log(cx).is_full_below.get()
    }

    fn unbind(&self, _: &Kernel, q: &Q) {
        self.0.bound.borrow_mut().retain(|(other, ..)| other.upgrade().is_some_and(|o| o != *q));
    }

    fn told(&self, _: &'static xk_core::Reason) {}

    fn send(
        &self,
        cx: &Kernel,
        q: &Q,
        (dest, opt): (&[u8], &[u8]),
        data: Option<Mblk>,
    ) -> Result<(), SendError> {
        if log(cx).fails.get() {
            return Err(SendError::Told(Errno::EHOSTUNREACH));
        }
        let data = data.unwrap();
        if data.size() > log(cx).mtu.get() as usize {
            return Err(SendError::Told(Errno::EMSGSIZE));
        }
        let (from, rest) = own_end(opt);
        let from = from.copied().unwrap_or_default();
        let to = dest.first_chunk::<16>().copied().unwrap();
        let bound = self.0.bound.borrow().iter().find(|(_, _, up)| *up == self.1).cloned();
        let there = bound.and_then(|(q, ..)| q.upgrade()).ok_or(SendError::Dropped)?;
        let mut room = [0; 32];
        let opt = with_own_end(&mut room, &to, rest).unwrap();
        let up = unitdata_ind(q.blocks(), &from, opt, data).ok_or(SendError::Dropped)?;
        there.putnext(cx, up);
        Ok(())
    }
}
