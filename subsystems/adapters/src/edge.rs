//! Parts of an adapter: a half in each subsystem, and the messages and faults that pass between
//! them.
//!
//! The lower half ([`Below`]) stands in the lower subsystem as what stands on the protocol there;
//! the upper half ([`Above`]) stands in the upper one as the protocol that its own stand on. Each
//! half knows one subsystem, so that six adapters are three of the one and three of the other.

use crate::above::xk::XkAbove;
use crate::circuit::Circuits;
use crate::form::{Addr, Form};
use crate::parcel::Parcel;
use alloc::format;
use alloc::rc::Rc;
use alloc::string::ToString;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::time::Duration;
use xk_bsd::errno::Errno;
use xk_core::control::Report;
use xk_core::object::{OpenError, ProtocolId, PushError};
use xk_core::{Kernel, ProtocolRef, Reason, reason};
use xk_streams::Errno as Number;

/// Octets that go beside a request or a reply: those of `xk_appletalk::atp::Options`.
pub(crate) type Options = [u8; 12];

/// Addresses and options that go with a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ends {
    /// The sender; zeros where the layer below is to choose.
    pub(crate) from: Addr,
    /// The receiver.
    pub(crate) to: Addr,
    /// Role of the message in a transaction.
    pub(crate) options: Option<Options>,
    /// True if it was sent to more than one host.
    pub(crate) is_for_many: bool,
}

impl Ends {
    /// Ends of a message to one host.
    pub(crate) fn new(from: Addr, to: Addr) -> Self {
        Self { from, to, ..Self::default() }
    }
}

/// Why a message did not go, or is not told to have arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The session or endpoint of the message is gone.
    Closed,
    /// The message is longer than the layer below carries.
    TooBig,
    /// A pool is exhausted.
    NoBuffers,
    /// A queue is full.
    QueueFull,
    /// There is no way to the receiver.
    NoRoute,
    /// The receiver does not answer, or refuses.
    Unreachable,
    /// The service is not offered there.
    NotSupported,
    /// An address that the protocol below does not read.
    Address,
    /// The address is another's.
    InUse,
}

/// There is no way to the receiver, or it does not answer.
pub static NO_WAY: Reason = Reason::new("no way to the receiver", reason::Class::NotMine);

/// Names of one fault: a dropped message's reason, what the x-kernel answers to a push and to an
/// open, and the error numbers of BSD and STREAMS, of which the first is what users are told.
type Names = (&'static Reason, PushError, OpenError, &'static [Errno], &'static [Number]);

/// The names of each fault, in their order. A name of two faults reads as the first of them.
#[rustfmt::skip]
static NAMES: [(Fault, Names); 9] = [
    (Fault::Closed, (&reason::CLOSED, PushError::Closed, OpenError::NoLower,
        &[Errno::EPIPE, Errno::ENOTCONN, Errno::ECONNRESET, Errno::ESHUTDOWN],
        &[Number::ENXIO, Number::EIO, Number::EBADF, Number::ENOTCONN])),
    (Fault::TooBig, (&reason::TOO_BIG, PushError::TooBig, OpenError::NotSupported,
        &[Errno::EMSGSIZE], &[Number::EMSGSIZE, Number::ERANGE])),
    (Fault::NoBuffers, (&reason::NO_BUFFERS, PushError::NoBuffers, OpenError::Full,
        &[Errno::ENOBUFS, Errno::ENOMEM], &[Number::ENOSR, Number::ENOBUFS, Number::ENOMEM])),
    (Fault::QueueFull, (&reason::QUEUE_FULL, PushError::QueueFull, OpenError::Full,
        &[Errno::ENOBUFS, Errno::EWOULDBLOCK], &[Number::EAGAIN])),
    (Fault::NoRoute, (&NO_WAY, PushError::NoRoute, OpenError::NoRoute,
        &[Errno::ENETUNREACH, Errno::ENETDOWN], &[Number::ENETUNREACH])),
    (Fault::Unreachable, (&NO_WAY, PushError::Unreachable, OpenError::NoRoute,
        &[Errno::EHOSTUNREACH, Errno::EHOSTDOWN, Errno::ECONNREFUSED, Errno::ETIMEDOUT],
        &[Number::EHOSTUNREACH, Number::ECONNREFUSED, Number::ETIMEDOUT])),
    (Fault::NotSupported, (&reason::NOT_SUPPORTED, PushError::NotSupported, OpenError::NotSupported,
        &[Errno::EOPNOTSUPP], &[Number::EOPNOTSUPP])),
    (Fault::Address, (&reason::MALFORMED, PushError::NoRoute, OpenError::NotSupported,
        &[Errno::EADDRNOTAVAIL, Errno::EAFNOSUPPORT, Errno::EDESTADDRREQ],
        &[Number::EADDRNOTAVAIL, Number::EDESTADDRREQ, Number::EINVAL])),
    (Fault::InUse, (&reason::MALFORMED, PushError::NotSupported, OpenError::InUse,
        &[Errno::EADDRINUSE], &[Number::EADDRINUSE, Number::EBUSY])),
];

impl Fault {
    fn names(self) -> &'static Names {
        &NAMES[self as usize].1
    }

    /// The first fault with such a name; not supported, if none has it.
    fn named(is: impl Fn(&Names) -> bool) -> Self {
        let found = NAMES.iter().find(|(_, names)| is(names));
        found.map_or(Self::NotSupported, |(fault, _)| *fault)
    }

    /// The reason under which a message is counted that is dropped for it.
    pub(crate) fn reason(self) -> &'static Reason {
        self.names().0
    }
}

impl From<PushError> for Fault {
    fn from(error: PushError) -> Self {
        Self::named(|names| names.1 == error)
    }
}

impl From<Fault> for PushError {
    fn from(fault: Fault) -> Self {
        fault.names().1
    }
}

impl From<OpenError> for Fault {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Address(_) => Self::Address,
            OpenError::NoBuffers | OpenError::NoAnswer => Self::NoBuffers,
            OpenError::NotSupported => Self::NotSupported,
            error => Self::named(|names| names.2 == error),
        }
    }
}

impl From<Fault> for OpenError {
    fn from(fault: Fault) -> Self {
        fault.names().2
    }
}

impl From<Errno> for Fault {
    fn from(errno: Errno) -> Self {
        Self::named(|names| names.3.contains(&errno))
    }
}

impl From<Fault> for Errno {
    fn from(fault: Fault) -> Self {
        fault.names().3[0]
    }
}

impl From<Number> for Fault {
    fn from(number: Number) -> Self {
        Self::named(|names| names.4.contains(&number))
    }
}

impl From<Fault> for Number {
    fn from(fault: Fault) -> Self {
        fault.names().4[0]
    }
}

/// A message that is not taken.
#[derive(Debug)]
pub(crate) struct Unwanted {
    /// Why.
    pub(crate) why: &'static Reason,
    /// The message as it arrived, if the protocol above has refused and counted it: what is below
    /// may tell the sender. Without it the message is gone, for the lower half to count.
    pub(crate) parcel: Option<Parcel>,
}

impl From<&'static Reason> for Unwanted {
    fn from(why: &'static Reason) -> Self {
        Self { why, parcel: None }
    }
}

impl From<Errno> for Unwanted {
    fn from(errno: Errno) -> Self {
        Self::from(<&'static Reason>::from(errno))
    }
}

/// The half of an adapter in the lower subsystem.
pub(crate) trait Below {
    /// Opens a door to the protocol below, for what the upper one `selector` sends and receives at
    /// `local`; zeros are all that no other door is for. What arrives goes to `sink`.
    ///
    /// # Errors
    /// [`Fault`].
    fn open(
        &self,
        cx: &Kernel,
        selector: ProtocolId,
        local: Addr,
        sink: Rc<dyn Sink>,
    ) -> Result<Rc<dyn Door>, Fault>;

    /// The largest message that goes, in octets.
    fn max_packet(&self, cx: &Kernel) -> Option<u32>;

    /// Our address from which messages to `to` are sent.
    fn local_to(&self, cx: &Kernel, to: &Addr) -> Option<Addr>;

    /// The streams of the protocol below, if it carries them.
    fn circuits(&self) -> Option<Rc<Circuits>> {
        None
    }

    /// The adapter's node is there.
    ///
    /// # Errors
    /// Why it cannot be put in its place.
    fn placed(&self, cx: &Kernel, node: &ProtocolRef) -> Result<(), Errno> {
        let _ = (cx, node);
        Ok(())
    }

    /// The graph is taken down: it releases all doors.
    fn stop(&self, cx: &Kernel);
}

/// A place at the protocol below from which messages go, and where they arrive.
pub(crate) trait Door {
    /// Sends a message.
    ///
    /// # Errors
    /// [`Fault`]; the message is gone.
    fn send(&self, cx: &Kernel, ends: &Ends, parcel: Parcel) -> Result<(), Fault>;

    /// Time until it takes one more message, where that is known: zero if there is room.
    fn room(&self, cx: &Kernel) -> Duration {
        let _ = cx;
        Duration::ZERO
    }

    /// Our address at this door, as far as it is said.
    fn local(&self, cx: &Kernel) -> Addr;

    /// Releases everything.
    fn close(&self, cx: &Kernel);
}

/// Receiver of the packets of a door: the half of an adapter in the upper subsystem.
pub(crate) trait Sink {
    /// Takes a message.
    ///
    /// # Errors
    /// [`Unwanted`].
    fn arrive(&self, cx: &Kernel, ends: &Ends, parcel: Parcel) -> Result<(), Unwanted>;

    /// A message that went to `to` did not arrive; of transactions with the options that went with
    /// it, if they are known.
    fn fault(&self, cx: &Kernel, to: &Addr, fault: Fault, options: Option<&Options>) {
        let _ = (cx, to, fault, options);
    }

    /// The door is gone, with what it led to.
    fn gone(&self, cx: &Kernel) {
        let _ = cx;
    }
}

/// The half of an adapter in the upper subsystem.
pub(crate) trait Above {
    /// The half as the adapter's node, in the x-kernel.
    fn node(&self) -> Option<XkAbove> {
        None
    }

    /// The adapter's node is there: what stands above finds it in its subsystem.
    ///
    /// # Errors
    /// Why it cannot be put in its place.
    fn placed(&self, cx: &Kernel, node: &ProtocolRef) -> Result<(), Errno> {
        let _ = (cx, node);
        Ok(())
    }

    /// The graph has been built, and this is the protocol above, which opens nothing by itself.
    ///
    /// # Errors
    /// Why it cannot be served.
    fn start(&self, cx: &Kernel, upper: &ProtocolRef) -> Result<(), Fault> {
        let _ = (cx, upper);
        Ok(())
    }

    /// The graph is taken down.
    fn stop(&self, cx: &Kernel) {
        let _ = cx;
    }
}

/// Counts of what has passed an adapter, by form.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    /// Messages whose octets were lent.
    pub(crate) lent: Cell<u64>,
    /// Messages of which octets were copied.
    pub(crate) copied: Cell<u64>,
    /// Octets copied.
    pub(crate) copied_octets: Cell<u64>,
}

impl Traffic {
    /// Counts a message of which so many octets were copied.
    #[inline]
    pub(crate) fn count(&self, copied: usize) {
        let messages = if copied == 0 { &self.lent } else { &self.copied };
        messages.set(messages.get() + 1);
        self.copied_octets.set(self.copied_octets.get() + copied as u64);
    }
}

/// An edge with an adapter: what the two halves have in common.
pub(crate) struct Edge {
    pub(crate) form: &'static Form,
    /// The protocol below.
    pub(crate) lower: ProtocolRef,
    /// The adapter's node, while it is there: the node keeps the edge.
    node: RefCell<Option<ProtocolRef>>,
    /// Messages that have passed downwards.
    pub(crate) down: Traffic,
    /// Messages that have passed upwards.
    pub(crate) up: Traffic,
}

impl Edge {
    pub(crate) fn new(form: &'static Form, lower: ProtocolRef) -> Rc<Self> {
        let (down, up) = (Traffic::default(), Traffic::default());
        Rc::new(Self { form, lower, node: RefCell::default(), down, up })
    }

    /// Tells it the adapter's node.
    pub(crate) fn placed(&self, node: &ProtocolRef) {
        *self.node.borrow_mut() = Some(node.clone());
    }

    /// Forgets the adapter's node, which stops.
    pub(crate) fn stop(&self) {
        drop(self.node.take());
    }

    /// The adapter's node.
    ///
    /// # Errors
    /// [`Fault::Closed`] before it is there, and once it has stopped.
    pub(crate) fn node(&self) -> Result<ProtocolRef, Fault> {
        self.node.borrow().clone().ok_or(Fault::Closed)
    }

    /// Counts a message that is dropped at the adapter.
    pub(crate) fn count(&self, why: &'static Reason) {
        if let Some(node) = &*self.node.borrow() {
            node.head().drops().count(why);
        }
    }

    /// Fills in a report.
    pub(crate) fn report(&self, report: &mut Report) {
        let lines = [("down", &self.down), ("up", &self.up)].map(|(way, traffic)| {
            [
                (format!("{way}, lent"), &traffic.lent),
                (format!("{way}, copied"), &traffic.copied),
                (format!("{way}, octets copied"), &traffic.copied_octets),
            ]
        });
        let lines = lines.into_iter().flatten();
        report.lines = lines.map(|(name, value)| (name, value.get().to_string())).collect();
        report.finished = true;
    }
}

/// Takes a door out of those that are open.
pub(crate) fn remove<D>(doors: &RefCell<Vec<Rc<D>>>, door: &D) {
    let is_it = |one: &mut Rc<D>| core::ptr::eq(&**one, door);
    let gone: Vec<_> = doors.borrow_mut().extract_if(.., is_it).collect();
    drop(gone);
}

/// The node that an adapter is for: the one above it, whose name its own begins with.
pub(crate) fn upper_of(cx: &Kernel, name: &str, lower: &ProtocolRef) -> Option<ProtocolRef> {
    let above = name.strip_suffix(lower.name())?.strip_suffix('/')?;
    cx.find_protocol(above)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_finds_its_names_and_is_found_by_them() {
        for (at, (fault, names)) in NAMES.iter().enumerate() {
            assert!(*fault as usize == at && fault.reason() == names.0);
            let first = NAMES.iter().find(|(_, other)| other.1 == names.1);
            assert_eq!(Some(Fault::from(names.1)), first.map(|(first, _)| *first));
            let numbers = names.3.iter().map(|errno| Fault::from(*errno));
            // What BSD answers for a full queue is what it answers without buffers.
            let expected = if *fault == Fault::QueueFull { Fault::NoBuffers } else { *fault };
            assert_eq!(numbers.clone().next(), Some(expected));
            assert!(numbers.skip(1).all(|read| read == *fault));
            assert!(names.4.iter().all(|number| Fault::from(*number) == *fault));
        }
    }
}
