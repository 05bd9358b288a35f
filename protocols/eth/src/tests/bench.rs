//! A station between a wire that keeps what it gets and uppers that note what they see: for the
//! tests and the fuzz target.

use crate::protocol::Eth;
use crate::protocol::GROUPS_MAX;
use crate::wire::EthAddr;
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use xk_core::kernel::Config;
use xk_core::message::PoolConfig;
use xk_core::numbers::Number;
use xk_core::object::{OpenError, Popped, PushError};
use xk_core::random::Random;
use xk_core::shepherd::{Limits, NoSwitch, Shepherds};
use xk_core::{
    Kernel, Message, Part, Participants, Pool, Protocol, ProtocolRef, Reason, SessionRef, Upper,
    reason,
};
use xk_kit::layer::{Bounds, Layered};
use xk_kit::net::attribute::LinkCast;
use xk_kit::wire::device::{Anchored, Capabilities, Device, DeviceWire, Unsent};

/// The station's own address.
pub(crate) const MINE: EthAddr = EthAddr([2, 0, 0, 0, 0, 1]);
/// Another station's.
pub(crate) const PEER: EthAddr = EthAddr([2, 0, 0, 0, 0, 2]);
/// Octets of the longest frame of the wire.
pub(crate) const FRAME_MAX: u32 = 1514;
/// The uppers and their numbers: Ethernet II, LLC, SNAP.
pub(crate) const UPPERS: [(&str, u32); 3] = [("typed", 0x0800), ("sap", 0x42), ("snap", 0x2_809b)];

/// Frames that were sent.
type Sent = Rc<RefCell<Vec<Vec<u8>>>>;

struct Tray {
    sent: Sent,
    joined: Rc<Cell<u32>>,
}

impl Device for Tray {
    fn send(&self, _: &Kernel, _: &SessionRef, message: Message) -> Result<(), Unsent> {
        self.sent.borrow_mut().push(message.octets().collect());
        Ok(())
    }

    fn set_group(&self, _: EthAddr, is_joined: bool) -> bool {
        let joined = self.joined.get();
        self.joined.set(if is_joined { joined + 1 } else { joined - 1 });
        true
    }
}

/// A message as an upper saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) upper: &'static str,
    pub(crate) octets: Vec<u8>,
    pub(crate) cast: Option<LinkCast>,
}

#[derive(Default)]
pub(crate) struct Notes {
    pub(crate) seen: RefCell<Vec<Seen>>,
    /// Sessions made for the uppers, with their participants.
    pub(crate) done: RefCell<Vec<(SessionRef, Participants)>>,
    /// True to refuse sessions.
    pub(crate) unwilling: Cell<bool>,
}

struct TestUpper {
    name: &'static str,
    notes: Rc<Notes>,
}

impl Protocol for TestUpper {
    fn open_done(
        &self,
        _: &Kernel,
        _: &ProtocolRef,
        lower: &SessionRef,
        participants: Participants,
    ) -> Result<(), &'static Reason> {
        if self.notes.unwilling.get() {
            return Err(&reason::PROHIBITED);
        }
        let mut done = self.notes.done.borrow_mut();
        done.push((lower.clone(), participants));
        Ok(())
    }

    fn demux(&self, _: &Kernel, _: &ProtocolRef, _: &SessionRef, message: Message) -> Popped {
        self.notes.seen.borrow_mut().push(Seen {
            upper: self.name,
            octets: message.octets().collect(),
            cast: message.attribute(),
        });
        Ok(())
    }

    fn stop(&self, _: &Kernel, _: &ProtocolRef) {
        self.notes.done.borrow_mut().clear();
    }
}

/// The station and its surroundings.
pub(crate) struct Bench {
    pub(crate) cx: Kernel,
    wire: Rc<DeviceWire<Tray>>,
    tray: ProtocolRef,
    pub(crate) eth: ProtocolRef,
    pub(crate) uppers: Vec<ProtocolRef>,
    pub(crate) sent: Sent,
    pub(crate) notes: Rc<Notes>,
    /// Number of groups that the wire was told of.
    pub(crate) joined: Rc<Cell<u32>>,
}

impl Bench {
    /// A started station with `sessions_max` sessions at most, enabled by all [`UPPERS`].
    pub(crate) fn new(sessions_max: usize) -> Option<Self> {
        let cx = Kernel::new(Config {
            random: Random::new(1),
            pool: Pool::new(&PoolConfig::with_octets_max(4 << 20)).ok()?,
            shepherds: Shepherds::new(Box::new(NoSwitch), Limits::default()),
            timers_max: 16,
        });
        let (sent, joined) = (Sent::default(), Rc::<Cell<u32>>::default());
        let all = Capabilities::ethernet(FRAME_MAX as usize, MINE).offloads(true, 0);
        let capabilities = Capabilities { takes_groups: false, ..all };
        let tray = Tray { sent: sent.clone(), joined: joined.clone() };
        let tray = Anchored::new(tray, capabilities);
        let wire = Rc::clone(tray.wire());
        let tray = cx.add_protocol("tray", "tray", tray);
        let bounds = Bounds { sources: Some(32), ..Bounds::sessions(sessions_max) };
        let eth = Eth::new(cx.secret(), None, GROUPS_MAX);
        let eth = Layered::new(cx.secret(), tray.clone(), bounds, eth);
        let eth = cx.add_protocol("eth", "eth", eth);
        let notes = Rc::<Notes>::default();
        let mut uppers = Vec::new();
        for (upper, number) in UPPERS {
            let lower = "eth";
            let entry = Number { upper, lower, number };
            cx.numbers_mut().add(entry).ok()?;
            let notes = Rc::clone(&notes);
            uppers.push(cx.add_protocol(upper, upper, TestUpper { name: upper, notes }));
        }
        cx.start().ok()?;
        for upper in &uppers {
            let any = Participants::local(Part::Any);
            let _ = eth.open_enable(&cx, Upper::new(upper), any).ok()?;
        }
        Some(Self { cx, wire, tray, eth, uppers, sent, notes, joined })
    }

    /// Lets a frame arrive, cut in two slices at `cut`.
    pub(crate) fn arrive_cut(&self, frame: &[u8], cut: usize) {
        let (front, back) = frame.split_at(cut.min(frame.len()));
        let Ok(mut message) = self.cx.pool().copy_from(0, front) else {
            return;
        };
        if let Ok(back) = self.cx.pool().copy_from(0, back) {
            message.join(back);
        }
        self.arrive_message(message);
    }

    /// Lets a frame arrive.
    pub(crate) fn arrive(&self, frame: &[u8]) {
        if let Ok(message) = self.cx.pool().copy_from(0, frame) {
            self.arrive_message(message);
        }
    }

    pub(crate) fn arrive_message(&self, message: Message) {
        self.wire.deliver(&self.cx, &self.tray, message);
    }

    /// Opens a session to `peer` for the upper at this place of [`UPPERS`].
    pub(crate) fn open(&self, upper: usize, peer: EthAddr) -> Result<SessionRef, OpenError> {
        let upper = self.uppers.get(upper).ok_or(OpenError::NoLower)?;
        let both = Participants::pair(Part::Any, Part::Ether(peer.0));
        self.eth.open(&self.cx, Upper::new(upper), both)
    }

    /// Sends `octets` through a session.
    pub(crate) fn push(&self, session: &SessionRef, octets: &[u8]) -> Result<(), PushError> {
        let message = self.cx.pool().copy_from(128, octets);
        session.push(&self.cx, message.map_err(|_| PushError::NoBuffers)?)
    }

    /// Number of frames that it dropped, for any reason.
    pub(crate) fn dropped(&self) -> u64 {
        self.eth.head().drops().total()
    }
}
