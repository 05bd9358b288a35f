//! `app` above: records what arrives, and sends what the test says.

use crate::rig::{Send, log};
use std::cell::RefCell;
use std::rc::Rc;
use xk_adapters::{Addr, Form};
use xk_bsd::{
    Bsd, InputArg, Mbuf, Mt, OutputArg, Prc, ProtoFns, Protosw, Sockaddr, Switch, add_line,
};
use xk_core::graph::{Build, BuildError, Builder, Family, Realm, Service};
use xk_core::object::{OpenError, Popped};
use xk_core::reason::Reason;
use xk_core::{
    Answer, Ask, Entry, Kernel, Message, Participants, Protocol, ProtocolRef, SessionRef, Upper,
};
use xk_kit::control::NetworkError;
use xk_streams::tpi::{Primitive, own_end, unitdata_req, with_own_end};
use xk_streams::{
    Errno, Kind, Linkblk, Mblk, Module, ModuleInfo, Opening, Q, Services, Streamtab, head,
};

const fn entry(build: Builder) -> Entry {
    Entry::layer("app", "", build)
        .on(&[Realm::Async], &[Family::Other("sockets")])
        .service(Service::TOP)
        .numbers(&[("ddp", 9)])
}

static XK: Entry = entry(build_xk);
static BSD: Entry = entry(build_bsd).subsystem("bsd");
static STREAMS: Entry = entry(build_streams).subsystem("streams");
pub(crate) static ENTRIES: [&Entry; 3] = [&XK, &BSD, &STREAMS];

fn arrived(cx: &Kernel, from: Addr, to: Addr, octets: Vec<u8>) {
    log(cx).arrived.borrow_mut().push((from, to, octets));
}

// ---- the x-kernel's ----

struct XkApp {
    lower: ProtocolRef,
    /// The ends of sessions, in the order in which they were made.
    ends: Rc<RefCell<Vec<(SessionRef, Addr, Addr)>>>,
}

fn build_xk(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    build.add(XkApp { lower: build.lower(0)?, ends: Rc::default() })
}

fn form() -> &'static Form {
    Form::of("ddp").unwrap()
}

/// A message of several slices.
fn message(cx: &Kernel, parts: &[&[u8]]) -> Result<Message, String> {
    let mut whole = cx.pool().empty(64).map_err(|e| e.to_string())?;
    for part in parts {
        whole.join(cx.pool().copy_from(64, part).map_err(|e| e.to_string())?);
    }
    Ok(whole)
}

impl Protocol for XkApp {
    fn start(&self, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        let any = Participants::local(form().to_local(&form().any()));
        let _ = self.lower.open_enable(cx, Upper::new(this), any)?;
        let (lower, this, ends) = (self.lower.clone(), this.clone(), Rc::clone(&self.ends));
        let send: Send = Rc::new(move |cx, from, to, parts| {
            let pair = Participants::pair(form().to_local(&from), form().to_participant(&to));
            let session = lower.open(cx, Upper::new(&this), pair).map_err(|e| e.to_string())?;
            ends.borrow_mut().push((session.clone(), to, from));
            let pushed = session.push(cx, message(cx, parts)?).map_err(|e| format!("{e:?}"));
            session.close(cx);
            pushed
        });
        *log(cx).send.borrow_mut() = Some(send);
        Ok(())
    }

    fn open_done(
        &self,
        _: &Kernel,
        _: &ProtocolRef,
        lower: &SessionRef,
        mut participants: Participants,
    ) -> Result<(), &'static Reason> {
        let to = form().to_addr(participants.local_mut().unwrap()).unwrap();
        let from = form().to_addr(participants.peer_mut().unwrap()).unwrap();
        self.ends.borrow_mut().push((lower.clone(), from, to));
        Ok(())
    }

    fn demux(&self, cx: &Kernel, _: &ProtocolRef, lower: &SessionRef, message: Message) -> Popped {
        let ends = self.ends.borrow();
        let (_, from, to) = ends.iter().rev().find(|(session, ..)| session == lower).unwrap();
        arrived(cx, *from, *to, message.octets().collect());
        Ok(())
    }

    fn control(&self, cx: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        ask.answer::<NetworkError>(|error| {
            log(cx).faults.borrow_mut().push(format!("{:?}", error.kind));
        })
    }

    fn stop(&self, _: &Kernel, _: &ProtocolRef) {
        self.ends.borrow_mut().clear();
    }
}

// ---- BSD's ----

struct BsdApp;

fn build_bsd(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let (node, pr) = add_line(build, Switch::default(), Rc::new(BsdApp))?;
    let (lower, own) = (build.lower(0)?.id(), pr.id());
    let send: Send = Rc::new(move |cx, from, to, parts| {
        let bsd = Bsd::of(cx).unwrap();
        let release = bsd.mbufs().release();
        let mut m = bsd.mbufs().m_gethdr(Mt::Data).map_err(|e| e.name().to_owned())?;
        let mut at = 0;
        for part in parts {
            // Long parts in clusters, short ones in small mbufs.
            let mut rest = *part;
            while !rest.is_empty() {
                let mut next = bsd.mbufs().m_get(Mt::Data).map_err(|e| e.name().to_owned())?;
                if rest.len() > 112 {
                    next.mclget().map_err(|e| e.name().to_owned())?;
                }
                let n = rest.len().min(next.trailing_space());
                assert!(next.put(&rest[..n]));
                rest = &rest[n..];
                at += n;
                m.last_mut().set_next(Some(next));
            }
        }
        m.m_pkthdr_mut().len = at;
        let number = cx.type_number(own, lower).unwrap() as u8;
        let arg = OutputArg::new(to.to_sockaddr(release), Some(from.to_sockaddr(release)), number);
        let below = bsd.protocol(lower).unwrap();
        bsd.splnet(cx, || below.pr_output(cx, m, &arg)).map_err(|e| e.name().to_owned())
    });
    *log(build.cx).send.borrow_mut() = Some(send);
    Ok(node)
}

impl ProtoFns for BsdApp {
    fn pr_input(&self, cx: &Kernel, _: &Rc<Protosw>, m: Mbuf, arg: InputArg) {
        let InputArg::Addressed { from, to, .. } = arg else { panic!("{arg:?}") };
        arrived(cx, from.into(), to.into(), m.octets().collect());
        m.m_freem();
    }

    fn pr_ctlinput(&self, cx: &Kernel, _: &Rc<Protosw>, cmd: Prc, _: &Sockaddr, _: Option<&[u8]>) {
        log(cx).faults.borrow_mut().push(format!("{cmd:?}"));
    }
}

// ---- that of STREAMS ----

struct StreamsApp;
struct Control;
struct Below;

fn build_streams(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    xk_streams::line(build, Rc::new(StreamsApp))
}

const INFO: ModuleInfo = ModuleInfo::new(8, "app");

impl Streamtab for StreamsApp {
    fn info(&self) -> ModuleInfo {
        INFO
    }

    fn open(&self, _: &Kernel, _: &Q, _: Opening) -> Result<Rc<dyn Module>, Errno> {
        Ok(Rc::new(Control))
    }

    fn lower(&self) -> Option<Rc<dyn Module>> {
        Some(Rc::new(Below))
    }
}

impl Module for Control {
    fn info(&self) -> ModuleInfo {
        INFO
    }

    fn wput(&self, cx: &Kernel, q: &Q, mp: Mblk) {
        assert_eq!(mp.kind(), Kind::Ioctl);
        let link = Linkblk::of(cx, &mp).unwrap();
        let bottom = link.bottom.clone();
        let send: Send = Rc::new(move |cx, from, to, parts| {
            let q = bottom.upgrade().ok_or("closed")?;
            let mut data = q.blocks().copy(Kind::Data, 0, parts.first().copied().unwrap_or(&[]));
            for part in parts.iter().skip(1) {
                let next = q.blocks().copy(Kind::Data, 0, part).ok_or("no blocks")?;
                data.as_mut().ok_or("no blocks")?.linkb(next);
            }
            let mut room = [0; 32];
            let opt = with_own_end(&mut room, &from.to_tpi(), &[]).unwrap();
            let data = data.ok_or("no blocks")?;
            let request = unitdata_req(q.blocks(), &to.to_tpi(), opt, data).ok_or("no blocks")?;
            q.putnext(cx, request);
            Ok(())
        });
        *log(cx).send.borrow_mut() = Some(send);
        let weak = link.bottom.clone();
        *log(cx).enable_above.borrow_mut() = Some(Rc::new(move |cx| {
            if let Some(q) = weak.upgrade() {
                q.read_side().qenable(cx);
            }
        }));
        let bottom = link.bottom.upgrade().unwrap();
        let bind = Primitive::BindReq { addr: &[], conind: 0 }.emit(q.blocks()).unwrap();
        q.qreply(cx, head::acked(mp, 0));
        bottom.putnext(cx, bind);
    }
}

impl Module for Below {
    fn info(&self) -> ModuleInfo {
        INFO
    }

    fn services(&self) -> Services {
        Services { read: true, write: false }
    }

    fn rput(&self, cx: &Kernel, q: &Q, mp: Mblk) {
        match mp.kind() {
            Kind::Proto if log(cx).is_full_above.get() => q.putq(cx, mp),
            Kind::Proto | Kind::PcProto => Self::take(cx, mp),
            _ => {}
        }
    }

    fn rsrv(&self, cx: &Kernel, q: &Q) {
        while !log(cx).is_full_above.get()
            && let Some(mp) = q.getq(cx)
        {
            Self::take(cx, mp);
        }
    }
}

impl Below {
    fn take(cx: &Kernel, mut mp: Mblk) {
        let data = mp.unlinkb();
        match Primitive::of(&mp) {
            Ok(Primitive::UnitdataInd { src, opt }) => {
                let (own, _) = own_end(opt);
                let to = Addr::parse(own.unwrap()).unwrap();
                let octets = data.map_or(Vec::new(), |data| data.to_vec());
                arrived(cx, Addr::parse(src).unwrap(), to, octets);
            }
            Ok(Primitive::UderrorInd { error, .. }) => {
                log(cx).faults.borrow_mut().push(format!("{}", Errno(error)));
            }
            Ok(Primitive::BindAck { .. }) => {}
            other => panic!("{other:?}"),
        }
    }
}
