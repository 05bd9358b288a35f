//! A wire of the x-kernel as a driver of frames: M_DATA down is sent, what arrives comes up as
//! M_DATA, both without a copy.

use alloc::rc::{Rc, Weak};
use core::cell::RefCell;
use xk_core::object::{OpenError, Refused, SessionSlot};
use xk_core::reason;
use xk_core::{
    Answer, Ask, Kernel, Message, Participants, Protocol, ProtocolRef, SessionRef, Upper,
};
use xk_kit::wire::segments;
use xk_streams::head;
use xk_streams::{Errno, Kind, Mblk, Module, ModuleInfo, Opening, Q, Streams, Streamtab, WeakQ};

const INFO: ModuleInfo = ModuleInfo::new(0x5769, "wire");

/// One wire: the driver, and the state of its node.
struct Wire {
    this: Weak<Wire>,
    lower: ProtocolRef,
    session: SessionSlot,
    /// The read queue of the stream that has the frames.
    up: RefCell<Option<WeakQ>>,
}

struct Node(Rc<Wire>);

/// Adds a driver of frames over a wire, to put below an `ether`.
///
/// # Errors
/// [`OpenError::NoLower`] in a kernel without the subsystem.
pub fn add(cx: &Kernel, name: &str, lower: ProtocolRef) -> Result<ProtocolRef, OpenError> {
    let streams = Streams::of(cx).ok_or(OpenError::NoLower)?;
    let wire = Rc::new_cyclic(|this| Wire {
        this: this.clone(),
        lower,
        session: SessionSlot::default(),
        up: RefCell::default(),
    });
    let node = cx.add_protocol(INFO.name, name, Node(Rc::clone(&wire)));
    streams.register(node.id(), name, wire);
    Ok(node)
}

impl Protocol for Node {
    fn start(&self, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        let session = self.0.lower.open(cx, Upper::new(this), Participants::default())?;
        self.0.session.replace(Some(session));
        Ok(())
    }

    fn demux(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        _: &SessionRef,
        message: Message,
    ) -> Result<(), Refused> {
        let up = self.0.up.borrow().as_ref().and_then(WeakQ::upgrade);
        let Some(q) = up else { return Err(this.refuse(message, &reason::NO_PROTOCOL)) };
        let taken = segments::each_whole(cx.pool(), message, |frame| {
            if !q.canputnext() {
                return Err(&reason::QUEUE_FULL);
            }
            let lent = q.blocks().lend_message(frame);
            q.putnext(cx, lent.map_err(|_| &reason::NO_BUFFERS)?);
            Ok(())
        });
        if let Err(why) = taken {
            this.head().drops().count(why);
        }
        Ok(())
    }

    fn control(&self, cx: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        self.0.lower.control(cx, ask)
    }

    fn lower(&self) -> Option<&ProtocolRef> {
        Some(&self.0.lower)
    }

    fn stop(&self, cx: &Kernel, _: &ProtocolRef) {
        self.0.session.close(cx);
    }
}

impl Streamtab for Wire {
    fn info(&self) -> ModuleInfo {
        INFO
    }

    fn open(&self, _: &Kernel, q: &Q, _: Opening) -> Result<Rc<dyn Module>, Errno> {
        if self.up.borrow().as_ref().and_then(WeakQ::upgrade).is_some() {
            return Err(Errno::EBUSY);
        }
        self.up.replace(Some(q.downgrade()));
        Ok(Rc::new(WireStream(self.this.upgrade().ok_or(Errno::ENXIO)?)))
    }
}

/// The one stream of a wire.
struct WireStream(Rc<Wire>);

impl WireStream {
    fn send(&self, cx: &Kernel, mp: Mblk) {
        // The session and the pool have counted what does not go.
        if let (Some(session), Ok(message)) = (self.0.session.get(), mp.into_message()) {
            let _ = session.push(cx, message);
        }
    }
}

impl Module for WireStream {
    fn info(&self) -> ModuleInfo {
        INFO
    }

    fn wput(&self, cx: &Kernel, q: &Q, mp: Mblk) {
        match mp.kind() {
            Kind::Data => self.send(cx, mp),
            Kind::Flush => q.flush_at_driver(cx, mp),
            Kind::Ioctl => q.qreply(cx, head::naked(mp, Errno::EINVAL)),
            _ => drop(mp),
        }
    }
}
