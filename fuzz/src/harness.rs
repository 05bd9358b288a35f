//! The rig that targets of one layer share: the layer between a lower and an upper of the test kit,
//! on a kernel with few resources, and the octets of an input as a script.

use core::cell::Cell;
use xk_core::graph::{Params, Value};
use xk_core::numbers::Number;
use xk_core::{Entry, Message, Part, ProtocolRef, SessionRef};
use xk_kit::control::{NetworkError, NetworkErrorKind, Start};
use xk_testkit::kernel::{Bottom, HEADROOM, Lower, TestKernel};

/// Octets of all messages of one layer's kernel.
const POOL_OCTETS: usize = 1 << 20;

/// An input, read from its front on.
#[derive(Default)]
pub(crate) struct Script {
    data: Vec<u8>,
    at: Cell<usize>,
}

impl Script {
    pub(crate) fn new(data: &[u8]) -> Self {
        Self { data: data.to_vec(), at: Cell::new(0) }
    }

    /// The next octet.
    pub(crate) fn octet(&self) -> Option<u8> {
        self.take(1).first().copied()
    }

    /// The next octet; 0 behind the end.
    pub(crate) fn octet_or_zero(&self) -> u8 {
        self.octet().unwrap_or(0)
    }

    /// As many octets, or those that are left.
    pub(crate) fn take(&self, len: usize) -> &[u8] {
        let rest = &self.data[self.at.get()..];
        let taken = &rest[..len.min(rest.len())];
        self.at.set(self.at.get() + taken.len());
        taken
    }

    /// The octets behind an octet of their length.
    pub(crate) fn counted(&self) -> Option<&[u8]> {
        self.octet().map(|len| self.take(len.into()))
    }

    /// The next operation, and its argument behind an octet of its length.
    pub(crate) fn step(&self) -> Option<(u8, &[u8])> {
        Some((self.octet()?, self.counted()?))
    }
}

/// Parameters that are whole numbers.
pub(crate) fn integers(values: &[(&'static str, i64)]) -> Params {
    let mut params = Params::default();
    for (name, value) in values {
        params.set(name, Value::Integer(*value));
    }
    params
}

/// Builds a layer by its catalog entry, under the name of its kind.
pub(crate) fn build(
    cx: &TestKernel,
    entry: &'static Entry,
    lowers: &[ProtocolRef],
    params: &Params,
) -> ProtocolRef {
    let built = entry.add(cx, entry.kind, lowers, params);
    built.unwrap_or_else(|error| panic!("{} is not built: {error:?}", entry.kind))
}

/// Gives the layers of kind `upper` a type number on those of kind `lower`.
pub(crate) fn number(cx: &TestKernel, upper: &'static str, lower: &'static str, number: u32) {
    let added = cx.numbers_mut().add(Number { upper, lower, number });
    assert!(added.is_ok(), "one number of `{upper}` on `{lower}`");
}

/// The layer under test upon a lower that captures what is sent.
pub(crate) struct Rig {
    pub(crate) cx: TestKernel,
    pub(crate) bottom: Bottom,
    pub(crate) layer: ProtocolRef,
}

impl Rig {
    /// A kernel with little room, on which `timers_max` timers may be pending.
    pub(crate) fn kernel(timers_max: usize) -> TestKernel {
        TestKernel::small(1, POOL_OCTETS, timers_max)
    }

    /// The layer of this entry, on such a kernel.
    pub(crate) fn new(
        lower: Lower,
        timers_max: usize,
        entry: &'static Entry,
        params: &Params,
    ) -> Self {
        let cx = Self::kernel(timers_max);
        let bottom = Bottom::add(&cx, "below", lower);
        let layer = build(&cx, entry, &[bottom.protocol().clone()], params);
        Self { cx, bottom, layer }
    }

    pub(crate) fn start(&self) {
        assert!(self.cx.start().is_ok(), "the graph starts");
    }

    /// A message of these octets, in two slices if `cut` lies within them; `None` if there is no
    /// room for it.
    pub(crate) fn message(&self, octets: &[u8], cut: usize) -> Option<Message> {
        let (front, back) = octets.split_at(cut.min(octets.len()));
        let mut message = self.cx.pool().copy_from(HEADROOM, front).ok()?;
        if !back.is_empty() {
            message.join(self.cx.pool().copy_from(0, back).ok()?);
        }
        Some(message)
    }

    /// The session below with `peer`, made if there is none; the layer has enabled the lower one.
    pub(crate) fn below(&self, peer: Option<Part>) -> SessionRef {
        let session = self.bottom.session(&self.cx, peer, None);
        session.unwrap_or_else(|why| panic!("no session below: {why:?}"))
    }

    /// Lets octets arrive from `peer`, through the session there is or a new one; what is refused
    /// has been counted.
    pub(crate) fn arrive(&self, peer: Option<Part>, octets: &[u8]) {
        if let Some(message) = self.message(octets, usize::MAX) {
            self.bottom.inject(&self.cx, peer, message);
        }
    }

    /// Reports to the layer that a packet with these first octets, sent to `peer`, found no port.
    pub(crate) fn report(&self, peer: Option<Part>, packet: &[u8]) {
        let (session, start) = (Some(self.below(peer)), Start::new(packet));
        let error = NetworkError::new(NetworkErrorKind::PortUnreachable);
        let error = NetworkError { session, start, ..error };
        let _ = self.layer.ask(&self.cx, error);
    }

    /// Number of messages that the layer has dropped for reasons other than these.
    pub(crate) fn dropped_but(&self, names: &[&str]) -> u64 {
        let drops = self.layer.head().drops().list().into_iter();
        drops.filter(|(why, _)| !names.contains(&why.name)).map(|(_, count)| count).sum()
    }

    /// Takes everything down: no message may be left. Sessions that the target held are gone.
    pub(crate) fn stop(self) {
        self.cx.stop();
        drop(self.bottom.take_sent());
        assert_eq!(self.cx.live(), (0, 0), "messages are left");
    }
}
