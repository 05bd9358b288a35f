//! Fuzz targets: of the codec, and of the layer between a server above and whatever comes from
//! below.

use crate::wire::{HEADER_OCTETS, Header};
use crate::{Settings, add};
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::net::Ipv4Addr;
use core::time::Duration;
use xk_core::kernel::Config;
use xk_core::message::PoolConfig;
use xk_core::object::{Enable, OpenError, PushError, Refused};
use xk_core::random::Random;
use xk_core::shepherd::{Limits, NoSwitch, Shepherds};
use xk_core::{
    Answer, Ask, Kernel, Message, Part, Participants, Pool, Protocol, ProtocolRef, Session,
    SessionRef, Upper,
};
use xk_kit::control::{IsMany, PeerHost};
use xk_kit::net::attribute::Peer;
use xk_kit::rpc::call::{CallOptions, Gather};

/// Parses `data` as a header, writes it again and compares.
///
/// # Panics
/// If the codec does not keep what it reads.
pub fn fuzz_wire(data: &[u8]) {
    let Some(octets) = data.first_chunk::<HEADER_OCTETS>() else {
        return;
    };
    if let Ok(header) = Header::parse(octets) {
        assert_eq!(header.emit(), *octets, "the header changed");
    }
}

/// A link to one other end, which swallows what is pushed; and to many, who all answer.
#[derive(Default)]
struct Below {
    one: RefCell<Option<SessionRef>>,
    many: RefCell<Option<SessionRef>>,
    /// The number of the latest request.
    xid: Rc<Cell<[u8; 4]>>,
}

struct BelowSession(ProtocolRef, Rc<Cell<[u8; 4]>>);

impl Protocol for Below {
    fn open(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        _: Participants,
    ) -> Result<SessionRef, OpenError> {
        let body = BelowSession(upper.receiver.clone(), Rc::clone(&self.xid));
        let session = cx.new_session(this, upper.receiver, body);
        *self.many.borrow_mut() = Some(session.clone());
        Ok(session)
    }

    fn control(&self, _: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        ask.answer::<IsMany>(|q| q.many = true)
    }

    fn open_enable(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        _: Participants,
    ) -> Result<Enable, OpenError> {
        let body = BelowSession(upper.receiver.clone(), Rc::clone(&self.xid));
        *self.one.borrow_mut() = Some(cx.new_passive_session(this, upper.receiver, body));
        Ok(Enable(0))
    }

    /// A timer brings the messages that lie in the surroundings: one octet of length, then as many.
    /// From many they come with the number of the latest request upon their own, and from as many
    /// hosts as an octet can name.
    fn timeout(&self, cx: &Kernel, _: &ProtocolRef, _: u64) {
        let (one, many) = (self.one.borrow().clone(), self.many.borrow().clone());
        let data = cx.surroundings::<Vec<u8>>().unwrap_or_default();
        let (Some(one), Some(many)) = (one, many) else {
            return;
        };
        let mut rest = &data[..];
        while let Some((len, after)) = rest.split_first() {
            let (octets, after) = after.split_at(usize::from(*len).min(after.len()));
            rest = after;
            if let Ok(message) = cx.pool().copy_from(128, octets) {
                drop(one.pop(cx, message));
            }
            let mut answer = octets.to_vec();
            for (octet, number) in answer.iter_mut().zip(self.xid.get()) {
                *octet ^= number;
            }
            let host = Ipv4Addr::new(10, 0, 0, octets.last().copied().unwrap_or_default());
            if let Ok(mut message) = cx.pool().copy_from(128, &answer)
                && message.set_attribute(Peer { host, port: 111 }).is_ok()
            {
                drop(many.pop(cx, message));
            }
        }
    }

    fn stop(&self, _: &Kernel, _: &ProtocolRef) {
        drop((self.one.take(), self.many.take()));
    }
}

impl Session for BelowSession {
    fn push(&self, _: &Kernel, _: &SessionRef, message: Message) -> Result<(), PushError> {
        if let Some(xid) = message.peek::<4>() {
            self.1.set(*xid);
        }
        Ok(())
    }

    fn control(&self, _: &Kernel, _: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        ask.answer::<PeerHost>(|q| q.host = Ipv4Addr::BROADCAST)
    }

    fn pop(&self, cx: &Kernel, this: &SessionRef, message: Message) -> Result<(), Refused> {
        self.0.demux(cx, this, message)
    }
}

/// A server that gives every request back as the reply, and takes no empty ones.
struct Above(ProtocolRef);

impl Protocol for Above {
    fn start(&self, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        let any = Participants::local(Part::Any);
        self.0.open_enable(cx, Upper::new(this), any).map(drop)
    }

    fn call_demux(
        &self,
        _: &Kernel,
        this: &ProtocolRef,
        _: &SessionRef,
        message: Message,
    ) -> Result<Message, Refused> {
        if message.is_empty() {
            return Err(this.refuse(message, &xk_core::reason::TRUNCATED));
        }
        Ok(message)
    }
}

/// How many hosts may reply.
const REPLIES_MAX: usize = 5;

/// Calls, and serves nothing.
struct Caller;

impl Protocol for Caller {}

/// A request to many, or one for the next reply.
fn gathering(cx: &Kernel, what: Gather) -> Option<Message> {
    let mut request = cx.pool().copy_from(128, b"who is there?").ok()?;
    let deadline = cx.now().after(Duration::from_secs(60));
    let options = CallOptions { deadline, tag: 1 };
    request.set_attribute(options).ok()?;
    request.set_attribute(what).ok()?;
    Some(request)
}

/// Takes the replies that have come and answers how many they are.
fn replies(cx: &Kernel, session: &SessionRef) -> u64 {
    let mut hosts: Vec<Ipv4Addr> = Vec::new();
    while let Some(next) = gathering(cx, Gather::Next)
        && let Ok(reply) = session.call(cx, next)
    {
        hosts.extend(reply.attribute::<Peer>().map(|peer| peer.host));
    }
    let count = hosts.len();
    assert!(count <= REPLIES_MAX, "too many hosts");
    hosts.sort_unstable();
    hosts.dedup();
    assert_eq!(hosts.len(), count, "one host has replied twice");
    count as u64
}

/// Lets `data` arrive as messages, each behind an octet of its length, at a server with a cache of
/// few replies; and at a client that has called many.
///
/// # Panics
/// If a message disappears uncounted, one is left at the end, or one host counts as two.
pub fn fuzz_stack(data: &[u8]) {
    let Ok(pool) = Pool::new(&PoolConfig::with_octets_max(1 << 20)) else {
        return;
    };
    let cx = Kernel::new(Config {
        random: Random::new(1),
        pool: pool.clone(),
        shepherds: Shepherds::new(Box::new(NoSwitch), Limits::default()),
        timers_max: 16,
    });
    let below = cx.add_protocol("below", "below", Below::default());
    let settings =
        Settings { dupcache: 4, sessions_max: 4, replies_max: REPLIES_MAX, ..Settings::default() };
    let reqrep = add(&cx, "reqrep", below.clone(), settings);
    let above = cx.add_protocol("above", "above", Above(reqrep.clone()));
    let caller = cx.add_protocol("caller", "caller", Caller);
    cx.surround(Rc::new(data.to_vec()));
    assert!(cx.start().is_ok(), "the stack starts");
    let many = Participants::pair(Part::Any, Part::Any);
    let Ok(many) = reqrep.open(&cx, Upper::new(&caller), many) else {
        panic!("a session to many");
    };
    // Nobody waits here: it ends without a reply, and those that come lie there.
    if let Some(first) = gathering(&cx, Gather::First) {
        assert!(many.call(&cx, first).is_err(), "no shepherd waits");
    }
    assert!(cx.schedule_protocol(&below, Duration::ZERO, 0).is_ok());
    cx.run_due();
    let taken = replies(&cx, &many);
    let arrived = reqrep.head().received();
    let dropped = reqrep.head().drops().total();
    let executed = above.head().received();
    assert!(
        arrived >= executed + dropped + taken,
        "more came out than went in: {arrived} < {executed} + {dropped} + {taken}"
    );
    many.close(&cx);
    drop(many);
    cx.stop();
    assert_eq!(pool.stats().descriptors_live, 0, "nothing is left");
}
