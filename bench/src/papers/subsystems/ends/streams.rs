//! The ends of STREAMS: `user` above; `ddp`, or `ether`, below.

use super::desk::{
    Above, Between, DATAGRAM, Desk, Form, OWN, RESPONSE, addr, blocks, count, desk, end_below, own,
    peer,
};
use crate::cable::HEADROOM;
use crate::stopwatch::{Way, enter, leave};
use std::cell::{OnceCell, RefCell};
use std::rc::{Rc, Weak};
use xk_appletalk::aarp::{Function, Packet};
use xk_appletalk::addr::AtAddr;
use xk_appletalk::atp::{OptionKind, Options, Want};
use xk_core::graph::{Build, BuildError, Family, Realm, Service};
use xk_core::{Answer, Ask, Entry, Kernel, ProtocolRef, Reason};
use xk_kit::control::{MaxPacket, MyEther};
use xk_streams::tli::{self, Maxima};
use xk_streams::tpi::{
    Datagrams, Endpoint, Info, Link, Primitive, Refusal, SendError, unitdata_ind, unitdata_req,
    with_own_end,
};
use xk_streams::{
    Errno, Kind, Linkblk, Mblk, Module, ModuleInfo, Opening, Q, Services, Streams, Streamtab,
    WeakQ, head,
};

static USER: Entry = Entry::layer("user", "", build_user)
    .subsystem("streams")
    .on(&[Realm::Async, Realm::Rpc], &[Family::Any])
    .service(Service::TOP)
    .numbers(&[("ddp", super::desk::TYPE as u32)]);
static DDP: Entry =
    end_below("ddp", build_ddp, Family::Other("AppleTalk sockets")).subsystem("streams");
static ETHER: Entry = end_below("ether", build_ether, Family::Ether).subsystem("streams");
pub(super) static ENTRIES: [&Entry; 3] = [&USER, &DDP, &ETHER];

/// The address of this end, by which a stream sends that is bound to no socket.
fn own_end(room: &mut [u8; 32]) -> &[u8] {
    with_own_end(room, &addr(own()).to_tpi(), &[]).expect("there is room")
}

// ---- above ----

struct User(Rc<Desk>);
struct Control(Rc<Desk>);
struct Bottom(Rc<Desk>);

const USER_INFO: ModuleInfo = ModuleInfo::new(8, "user");

fn build_user(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let desk = desk(build.cx);
    if desk.above.get() == Above::Program {
        program(&desk);
    }
    xk_streams::line(build, Rc::new(User(desk)))
}

/// An endpoint of the transport interface on the line below.
fn program(desk: &Rc<Desk>) {
    let endpoint: Rc<OnceCell<tli::Endpoint>> = Rc::default();
    let mine = Rc::clone(&endpoint);
    let act = move |cx: &Kernel, octets: usize, _| {
        let endpoint = mine.get_or_init(|| {
            let streams = Streams::of(cx).expect("the block");
            let (endpoint, _) = tli::Endpoint::open(cx, &streams, "ddp").expect("an endpoint");
            endpoint.bind(cx, Some(&own().to_sockaddr()), 0).expect("a free address");
            endpoint
        });
        let (to, data) = (peer().to_sockaddr(), [0; DATAGRAM]);
        let sent = enter(Way::Down, || endpoint.sndudata(cx, &to, &[], &data[..octets]));
        sent.expect("it goes");
    };
    *desk.down.borrow_mut() = Some(Rc::new(act));
    let counts = Rc::clone(desk);
    let take = move |cx: &Kernel| {
        let endpoint = endpoint.get().expect("it has sent");
        let max = Maxima { addr: 16, opt: 32, data: DATAGRAM };
        let unit = enter(Way::Up, || endpoint.rcvudata(cx, max)).expect("it has come");
        assert_eq!(unit.data.len(), DATAGRAM, "all of it");
        count(&counts.came);
    };
    *desk.taken.borrow_mut() = Some(Rc::new(take));
}

impl Streamtab for User {
    fn info(&self) -> ModuleInfo {
        USER_INFO
    }

    fn open(&self, _: &Kernel, _: &Q, _: Opening) -> Result<Rc<dyn Module>, Errno> {
        Ok(Rc::new(Control(Rc::clone(&self.0))))
    }

    fn lower(&self) -> Option<Rc<dyn Module>> {
        let is_linked = self.0.above.get() != Above::Program;
        is_linked.then(|| Rc::new(Bottom(Rc::clone(&self.0))) as Rc<dyn Module>)
    }
}

impl Module for Control {
    fn info(&self) -> ModuleInfo {
        USER_INFO
    }

    /// The link.
    fn wput(&self, cx: &Kernel, q: &Q, mp: Mblk) {
        let Some(link) = Linkblk::of(cx, &mp) else {
            return q.qreply(cx, head::naked(mp, Errno::EINVAL));
        };
        let (bottom, above) = (link.bottom.clone(), self.0.above.get());
        q.qreply(cx, head::acked(mp, 0));
        let Some(down) = bottom.upgrade() else { return };
        let at = AtAddr { socket: OWN, ..AtAddr::default() }.to_sockaddr();
        let bound: &[u8] = if above == Above::Datagrams { &[] } else { &at };
        let bind = Primitive::BindReq { addr: bound, conind: 0 }.emit(down.blocks());
        down.putnext(cx, bind.expect("blocks are left"));
        let act = move |cx: &Kernel, octets: usize, form: Form| {
            let q = bottom.upgrade().expect("the stream below");
            let data = blocks(q.blocks(), octets, form);
            let options = Options::request(&Want::DEFAULT, 1).emit();
            let mut room = [0; 32];
            let opt: &[u8] = match above {
                Above::Caller => &options,
                _ => own_end(&mut room),
            };
            let request = unitdata_req(q.blocks(), &peer().to_sockaddr(), opt, data);
            let request = request.expect("blocks are left");
            enter(Way::Down, || q.putnext(cx, request));
        };
        *self.0.down.borrow_mut() = Some(Rc::new(act));
    }
}

impl Module for Bottom {
    fn info(&self) -> ModuleInfo {
        USER_INFO
    }

    fn rput(&self, cx: &Kernel, q: &Q, mp: Mblk) {
        if matches!(mp.kind(), Kind::Proto | Kind::PcProto) {
            leave(|| self.take(cx, q, mp));
        }
    }
}

impl Bottom {
    fn take(&self, cx: &Kernel, q: &Q, mut mp: Mblk) {
        let data = mp.unlinkb();
        match Primitive::of(&mp) {
            Ok(Primitive::UnitdataInd { src, opt }) => {
                count(&self.0.came);
                let options = Options::parse(opt).ok();
                let request = options.filter(|options| options.kind == OptionKind::Request);
                if let Some(options) = request {
                    let data = blocks(q.blocks(), RESPONSE, Form::Own);
                    let options = options.response([0; 4]).emit();
                    let reply = unitdata_req(q.blocks(), src, &options, data);
                    let reply = reply.expect("blocks are left");
                    let q = q.write_side();
                    enter(Way::Down, || q.putnext(cx, reply));
                }
            }
            Ok(Primitive::BindAck { .. }) => {}
            other => panic!("{other:?}"),
        }
        drop(data);
    }
}

// ---- below ----

struct Lower {
    this: Weak<Lower>,
    desk: Rc<Desk>,
    /// In the place of an Ethernet.
    is_link: bool,
    q: RefCell<Option<WeakQ>>,
}

struct End(Rc<Lower>);

const LOWER_INFO: ModuleInfo = ModuleInfo::new(9, "lower");
/// Stations: this one's and the peer's.
const STATION: [u8; 6] = [2, 0, 0, 0, 0, 17];
const PEER_STATION: [u8; 6] = [2, 0, 0, 0, 0, 18];
/// The numbers of DDP and of AARP on Ethernet.
const DDP_NUMBER: u32 = 0x2_809b;
const AARP_NUMBER: u32 = 0x1_80f3;

fn build_ddp(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    xk_streams::line(build, Lower::new(desk(build.cx), false))
}

fn build_ether(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    xk_streams::line(build, Lower::new(desk(build.cx), true))
}

impl Lower {
    fn new(desk: Rc<Desk>, is_link: bool) -> Rc<Self> {
        let own = Rc::clone(&desk);
        let lower = Rc::new_cyclic(|this: &Weak<Self>| Self {
            this: this.clone(),
            desk: own,
            is_link,
            q: RefCell::default(),
        });
        let bring = Rc::downgrade(&lower);
        let act = move |cx: &Kernel, octets: usize, form: Form| {
            let lower = bring.upgrade().expect("the line");
            let q = lower.q();
            let data = match lower.desk.between.get() {
                Between::Edge => blocks(q.blocks(), octets, form),
                _ => filled(&q, &lower.desk.coming(octets)),
            };
            lower.bring(cx, &q, data);
        };
        *desk.up.borrow_mut() = Some(Rc::new(act));
        lower
    }

    fn q(&self) -> Q {
        self.q.borrow().as_ref().and_then(WeakQ::upgrade).expect("a stream is bound")
    }

    fn bring(&self, cx: &Kernel, q: &Q, data: Mblk) {
        let mut room = [0; 32];
        let taken = self.desk.taken.borrow().clone();
        let ind = if self.is_link {
            link_ind(q, DDP_NUMBER, data)
        } else {
            let opt = if taken.is_some() { &[] } else { own_end(&mut room) };
            unitdata_ind(q.blocks(), &peer().to_sockaddr(), opt, data).expect("blocks are left")
        };
        enter(Way::Up, || q.putnext(cx, ind));
        if let Some(take) = taken {
            take(cx);
        }
    }

    /// Takes a message that has gone out.
    fn take(&self, cx: &Kernel, q: &Q, dest: &[u8], data: &Mblk) {
        if self.is_link && Link::parse(dest).is_some_and(|link| link.number == AARP_NUMBER) {
            let packet = Packet::parse(data.octets()).expect("a packet of AARP");
            if packet.function == Function::Request {
                let answer = Packet {
                    function: Function::Response,
                    from_hw: PEER_STATION,
                    from: packet.to,
                    to_hw: packet.from_hw,
                    to: packet.from,
                };
                let answer = filled(q, &answer.octets());
                q.putnext(cx, link_ind(q, AARP_NUMBER, answer));
            }
        } else if let Some(octets) = self.desk.went(data.octets()) {
            let response = filled(q, &octets);
            self.bring(cx, q, response);
        }
    }
}

fn link_ind(q: &Q, number: u32, data: Mblk) -> Mblk {
    let (src, dst) = (Link { station: PEER_STATION, number }, Link { station: STATION, number });
    unitdata_ind(q.blocks(), &src.octets(), &dst.octets(), data).expect("blocks are left")
}

/// A block of these octets.
fn filled(q: &Q, octets: &[u8]) -> Mblk {
    q.blocks().copy(Kind::Data, HEADROOM, octets).expect("blocks are left")
}

impl Streamtab for Lower {
    fn info(&self) -> ModuleInfo {
        LOWER_INFO
    }

    fn open(&self, _: &Kernel, _: &Q, _: Opening) -> Result<Rc<dyn Module>, Errno> {
        let end = End(self.this.upgrade().ok_or(Errno::ENXIO)?);
        Ok(Rc::new(Outside(Endpoint::new(Rc::new(end)))))
    }

    fn control(&self, _: &Kernel, ask: &mut Ask<'_>) -> Option<Answer> {
        let station = ask.answer::<MyEther>(|q| q.address = STATION);
        let max = ask.answer::<MaxPacket>(|q| q.octets = super::desk::MAX as u32);
        [station, max].into_iter().find(|answer| answer.is_answered())
    }
}

/// An end's pair: from its put procedure on nothing counts.
struct Outside(Rc<Endpoint<End>>);

impl Module for Outside {
    fn info(&self) -> ModuleInfo {
        LOWER_INFO
    }

    fn services(&self) -> Services {
        self.0.services()
    }

    fn wput(&self, cx: &Kernel, q: &Q, mp: Mblk) {
        leave(|| self.0.wput(cx, q, mp));
    }

    fn wsrv(&self, cx: &Kernel, q: &Q) {
        self.0.wsrv(cx, q);
    }

    fn close(&self, cx: &Kernel, q: &Q) {
        self.0.close(cx, q);
    }
}

impl Datagrams for End {
    fn module(&self) -> ModuleInfo {
        LOWER_INFO
    }

    fn info(&self) -> Info {
        Info::datagrams(super::desk::MAX as u32, 16, 32)
    }

    fn bind(&self, _: &Kernel, q: &Q, addr: &[u8], _: u32) -> Result<Vec<u8>, Refusal> {
        *self.0.q.borrow_mut() = Some(q.downgrade());
        Ok(if addr.is_empty() { AtAddr::default().to_sockaddr().to_vec() } else { addr.to_vec() })
    }

    fn unbind(&self, _: &Kernel, _: &Q) {}

    fn manage(&self, _: &Kernel, _: &Q, opt: &[u8], _: u32) -> Result<Vec<u8>, Refusal> {
        Ok(opt.to_vec())
    }

    fn send(
        &self,
        cx: &Kernel,
        q: &Q,
        (dest, _): (&[u8], &[u8]),
        data: Option<Mblk>,
    ) -> Result<(), SendError> {
        let data = data.ok_or(SendError::Dropped)?;
        self.0.take(cx, q, dest, &data);
        Ok(())
    }

    fn told(&self, _: &'static Reason) {}
}
