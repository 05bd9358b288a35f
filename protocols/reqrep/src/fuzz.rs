//! Fuzz targets: of the codec, and of the layer between a server above and whatever comes from below.

use crate::wire::{HEADER_OCTETS, Header};
use crate::{Settings, add};
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::time::Duration;
use xk_core::kernel::Config;
use xk_core::message::PoolConfig;
use xk_core::object::{Enable, OpenError, PushError, Refused};
use xk_core::shepherd::{Limits, NoSwitch, Shepherds};
use xk_core::{
    Kernel, Message, Part, Participants, Pool, Protocol, ProtocolRef, Session, SessionRef, Upper,
};

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

/// A link to one other end, which swallows what is pushed.
struct Below(RefCell<Option<SessionRef>>);

struct BelowSession(ProtocolRef);

impl Protocol for Below {
    fn open_enable(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        _: Participants,
    ) -> Result<Enable, OpenError> {
        let body = BelowSession(upper.receiver.clone());
        *self.0.borrow_mut() = Some(cx.new_passive_session(this, upper.receiver, body));
        Ok(Enable(0))
    }

    /// A timer brings the messages that lie in the surroundings: one octet of length, then as many.
    fn timeout(&self, cx: &Kernel, _: &ProtocolRef, _: u64) {
        let session = self.0.borrow().clone();
        let data = cx.surroundings::<Vec<u8>>().unwrap_or_default();
        let Some(session) = session else { return };
        let mut rest = &data[..];
        while let Some((len, after)) = rest.split_first() {
            let (octets, after) = after.split_at(usize::from(*len).min(after.len()));
            rest = after;
            if let Ok(message) = cx.pool().copy_from(128, octets) {
                drop(session.pop(cx, message));
            }
        }
    }

    fn stop(&self, _: &Kernel, _: &ProtocolRef) {
        drop(self.0.take());
    }
}

impl Session for BelowSession {
    fn push(&self, _: &Kernel, _: &SessionRef, _: Message) -> Result<(), PushError> {
        Ok(())
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

/// Lets `data` arrive as messages, each behind an octet of its length, at a server with a cache of few replies.
///
/// # Panics
/// If a message disappears uncounted, or one is left at the end.
pub fn fuzz_stack(data: &[u8]) {
    let Ok(pool) = Pool::new(&PoolConfig::with_octets_max(1 << 20)) else {
        return;
    };
    let cx = Kernel::new(Config {
        seed: 1,
        pool: pool.clone(),
        shepherds: Shepherds::new(Box::new(NoSwitch), Limits::default()),
        timers_max: 16,
    });
    let below = cx.add_protocol("below", "below", Below(RefCell::default()));
    let settings = Settings {
        dupcache: 4,
        sessions_max: 4,
        ..Settings::default()
    };
    let reqrep = add(&cx, "reqrep", below.clone(), settings);
    let above = cx.add_protocol("above", "above", Above(reqrep.clone()));
    cx.surround(Rc::new(data.to_vec()));
    assert!(cx.start().is_ok(), "the stack starts");
    assert!(cx.schedule_protocol(&below, Duration::ZERO, 0).is_ok());
    cx.run_due();
    let arrived = reqrep.head().received();
    let dropped = reqrep.head().drops().total();
    let executed = above.head().received();
    assert!(
        arrived >= executed + dropped,
        "more came out than went in: {arrived} < {executed} + {dropped}"
    );
    cx.stop();
    assert_eq!(pool.stats().descriptors_live, 0, "nothing is left");
}
