//! Protocol and session objects: the uniform interface.
//!
//! A [`Protocol`] is static, one per node of the graph: it creates sessions and demultiplexes. A
//! [`Session`] is dynamic: one end of a conversation. Both have defaults for everything, so that a
//! trivial protocol writes one or two operations. Callers never call the traits: they call the
//! counted handles [`ProtocolRef`] and [`SessionRef`], which count, trace, and refuse for closed
//! sessions.
//!
//! Every operation is handed `cx`, the running [`Kernel`], and `this`, the object's own handle.

mod burst;
mod burst_slots_unsafe;
#[cfg(test)]
mod burst_tests;
#[cfg(test)]
mod call_tests;
mod clock;
mod crowd;
mod errors;
mod opening;
mod payer;
mod protocol;
mod session;
mod slot_unsafe;
mod table;
#[cfg(test)]
mod table_tests;
#[cfg(test)]
mod tests;

pub use burst::{Arrivals, BURST_MAX, Burst, Outgoing};
pub use burst_slots_unsafe::Glance;
pub(crate) use burst_slots_unsafe::Slots;
pub use errors::{CallCause, CallError, OpenError, Popped, PushError, Refused, Rejection, Served};
pub(crate) use opening::Opening;
pub use opening::WAITING_MAX;
pub use payer::{Payer, USER_SHARE};
pub use protocol::{ProtocolHead, ProtocolId, ProtocolRef, Upper};
pub use session::{Closing, SessionHead, SessionId, SessionRef, WeakSession};
pub use slot_unsafe::SessionSlot;
pub use table::{Rank, SessionTable};

/// Returns where a value lies in memory: an address, and octets. For hints to the processor alone.
pub fn span<T: ?Sized>(value: &T) -> (usize, usize) {
    (core::ptr::from_ref(value).addr(), size_of_val(value))
}

use crate::control::{Answer, Ask, Tables};
use crate::kernel::Kernel;
use crate::message::Message;
use crate::participant::Participants;
use crate::reason::{self, Reason};
use crate::wire::Wire;
use alloc::string::String;
use core::any::Any;

/// A standing offer made by `open_enable`; give it to [`ProtocolRef::open_disable`] to withdraw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub struct Enable(pub u64);

/// A protocol object: creates sessions, demultiplexes messages.
///
/// # What may block
/// [`start`](Self::start), [`open`](Self::open), [`open_enable`](Self::open_enable),
/// [`open_done`](Self::open_done), [`control`](Self::control), and a session's
/// [`push`](Session::push), [`call`](Session::call) and [`control`](Session::control) may suspend
/// the shepherd; other messages are carried meanwhile.
/// So no borrow is held over one of them on another object, and what was looked up before is looked
/// up again after it: [`SessionTable::open`] and [`SessionTable::accept`] do that for sessions.
pub trait Protocol {
    /// Called once, bottom-up, when the whole graph is built: the place to `open_enable` below. It
    /// runs on a shepherd of the loop, and messages may come before it has returned.
    ///
    /// # Errors
    /// Whatever prevents the graph from running.
    fn start(&self, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        let _ = (cx, this);
        Ok(())
    }

    /// Makes a session for `upper` with these participants (an active open). A protocol that has a
    /// session with the same participants for the same upper returns that one, opened once more.
    ///
    /// # Errors
    /// [`OpenError`]; the default offers no sessions.
    fn open(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        participants: Participants,
    ) -> Result<SessionRef, OpenError> {
        let _ = (cx, this, upper, participants);
        Err(OpenError::NotSupported)
    }

    /// Notes that `upper` takes messages of this kind; at the first one the protocol makes a
    /// session and tells `upper` by `open_done` (a passive open).
    ///
    /// # Errors
    /// [`OpenError`]; the default takes no offers.
    fn open_enable(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        participants: Participants,
    ) -> Result<Enable, OpenError> {
        let _ = (cx, this, upper, participants);
        Err(OpenError::NotSupported)
    }

    /// Withdraws an offer. Sessions already made live on.
    fn open_disable(&self, cx: &Kernel, this: &ProtocolRef, enable: Enable) {
        let _ = (cx, this, enable);
    }

    /// A lower protocol made a session on this protocol's behalf; its first message follows by
    /// `demux`. To keep the session it takes a hold on it ([`SessionRef::hold`]). What else comes
    /// through the session waits until the answer ([`SessionRef::announce`]), so this is no place
    /// to wait for it.
    ///
    /// # Errors
    /// A reason not to want it; the lower protocol then refuses the message for it.
    fn open_done(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        participants: Participants,
    ) -> Result<(), &'static Reason> {
        let _ = (cx, this, lower, participants);
        Ok(())
    }

    /// The session `lower`, which this protocol watches ([`SessionRef::watch`]), has ended:
    /// closed, evicted, reset, or taken down with what it stood on. It answers nothing any more.
    fn gone(&self, cx: &Kernel, this: &ProtocolRef, lower: &SessionRef) {
        let _ = (cx, this, lower);
    }

    /// Takes a message coming up through the session `lower`, finds the session it belongs to and
    /// pops it there.
    ///
    /// # Errors
    /// The message, with the reason why it is refused. Refuse by [`ProtocolRef::refuse`], which
    /// counts.
    fn demux(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        message: Message,
    ) -> Result<(), Refused> {
        let _ = (cx, lower);
        Err(this.refuse(message, &reason::NOT_SUPPORTED))
    }

    /// Takes several messages that came up through the session `lower` one after the other. What is
    /// to be seen from outside is the same as if each came alone, in this order; the default passes
    /// them to `demux` one by one.
    ///
    /// # Errors
    /// The first message that is refused, as `demux` gives it back. Those behind it are still in
    /// the burst, for the caller to hand over again.
    fn demux_burst(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        burst: Burst<'_>,
    ) -> Result<(), Refused> {
        while let Some(message) = burst.next_through(lower) {
            self.demux(cx, this, lower, message)?;
        }
        Ok(())
    }

    /// Takes a request of the rpc realm and answers with the reply. May block the shepherd.
    ///
    /// # Errors
    /// As for [`Protocol::demux`].
    fn call_demux(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        message: Message,
    ) -> Result<Message, Refused> {
        let _ = (cx, lower);
        Err(this.refuse(message, &reason::NOT_SUPPORTED))
    }

    /// Answers a question, or forwards it. The default forwards to [`Protocol::lower`].
    fn control(&self, cx: &Kernel, this: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        let _ = this;
        self.lower().map_or(Answer::Unknown, |lower| lower.control(cx, ask))
    }

    /// A line about its state, for `describe`; `None` leaves the question to
    /// [`control`](Self::control).
    fn describe(&self) -> Option<String> {
        None
    }

    /// Shows its sessions and maps, for `list-sessions` and `list-maps`; what shows none of these
    /// leaves the question to [`control`](Self::control).
    fn tables(&self, tables: &mut Tables<'_>) {
        let _ = tables;
    }

    /// True for a layer on which those above have the type numbers that they have on its
    /// [`lower`](Self::lower).
    fn passes_numbers(&self) -> bool {
        false
    }

    /// The protocol below that unknown questions are forwarded to.
    fn lower(&self) -> Option<&ProtocolRef> {
        None
    }

    /// A timer set by [`Kernel::schedule`] for this protocol went off.
    fn timeout(&self, cx: &Kernel, this: &ProtocolRef, token: u64) {
        let _ = (cx, this, token);
    }

    /// The pool has refused messages: release what peers will send again, and if that has gone on
    /// for a while of what is kept for those that use it least. Otherwise what strangers have this
    /// host keep leaves no room for arrivals, and it hears nothing.
    fn relieve(&self, cx: &Kernel, this: &ProtocolRef) {
        let _ = (cx, this);
    }

    /// The graph is being taken down: release sessions and protocols, so that nothing keeps
    /// itself alive.
    fn stop(&self, cx: &Kernel, this: &ProtocolRef) {
        let _ = (cx, this);
    }

    /// True for what stands for a protocol of another kernel. What looks at a graph leaves it out,
    /// and asks it nothing: the other kernel answers for the protocol itself.
    fn is_proxy(&self) -> bool {
        false
    }

    /// The outside world's side of a bottom anchor; `None` for everything that is no wire.
    fn wire(&self) -> Option<&dyn Wire> {
        None
    }
}

/// A session object: one end of a conversation, with its state.
pub trait Session: Any {
    /// Takes a message down towards the peer; `Ok` says that it was taken
    /// ([`SessionRef::push`]).
    ///
    /// # Errors
    /// [`PushError`]; the default sends nothing.
    fn push(&self, cx: &Kernel, this: &SessionRef, message: Message) -> Result<(), PushError> {
        let _ = (cx, this, message);
        Err(PushError::NotSupported)
    }

    /// Takes several messages down towards the peer, all of them, in this order. What is to be seen
    /// from outside is the same as if each came alone; the default pushes them one by one.
    ///
    /// # Errors
    /// The first error. The messages behind it have been sent all the same, or dropped for a reason
    /// of their own.
    fn push_burst(
        &self,
        cx: &Kernel,
        this: &SessionRef,
        burst: &mut Outgoing,
    ) -> Result<(), PushError> {
        let mut result = Ok(());
        for message in burst.drain(..) {
            result = result.and(self.push(cx, this, message));
        }
        result
    }

    /// Takes a request down and waits for the reply; blocks this shepherd.
    ///
    /// # Errors
    /// [`CallError`]; the default takes no calls.
    fn call(&self, cx: &Kernel, this: &SessionRef, message: Message) -> Result<Message, CallError> {
        let _ = (cx, this, message);
        Err(CallCause::NotSupported.into())
    }

    /// Takes a message up that the protocol's `demux` found to belong here.
    ///
    /// # Errors
    /// The message, with the reason why it is refused above.
    fn pop(&self, cx: &Kernel, this: &SessionRef, message: Message) -> Result<(), Refused> {
        let _ = cx;
        Err(this.refuse(cx, message, &reason::NOT_SUPPORTED))
    }

    /// Takes a request up that the protocol's `call_demux` found to belong here, and answers with
    /// the reply. May block the shepherd.
    ///
    /// # Errors
    /// The request, with the reason why it is refused above.
    fn call_pop(
        &self,
        cx: &Kernel,
        this: &SessionRef,
        message: Message,
    ) -> Result<Message, Refused> {
        Err(this.refuse(cx, message, &reason::NOT_SUPPORTED))
    }

    /// Takes several messages up that the protocol's `demux_burst` found to belong here. As for
    /// [`Protocol::demux_burst`]; the default pops them one by one.
    ///
    /// # Errors
    /// The first message that is refused above; those behind it are still in the burst.
    fn pop_burst(&self, cx: &Kernel, this: &SessionRef, burst: Burst<'_>) -> Result<(), Refused> {
        while let Some(message) = burst.next_through(this) {
            self.pop(cx, this, message)?;
        }
        Ok(())
    }

    /// The protocol above refuses a message late, which its `demux` has taken. The layer does what
    /// it does with one that is refused at once: finds its header again ([`Message::uncover`]) and
    /// hands the refusal down ([`SessionRef::refused`]), or tells the sender. By default it ends
    /// here; the refuser has counted it.
    fn refused(&self, cx: &Kernel, this: &SessionRef, refused: Refused) {
        let _ = (cx, this, refused);
    }

    /// Answers a question, or forwards it. The default forwards to [`Session::lower`].
    fn control(&self, cx: &Kernel, this: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        let _ = this;
        self.lower().map_or(Answer::Unknown, |lower| lower.control(cx, ask))
    }

    /// A line about its participants and state, for `describe`; `None` leaves the question to
    /// [`control`](Self::control).
    fn describe(&self, this: &SessionRef) -> Option<String> {
        let _ = this;
        None
    }

    /// The session below that this one stands on, from its beginning to its end; unknown questions
    /// are forwarded to it. One that can go on over another session has none.
    fn lower(&self) -> Option<&SessionRef> {
        None
    }

    /// Calls `see` with each session below that this one stands on from its beginning: by default
    /// [`lower`](Self::lower). [`SessionRef::stand_on`] adds others later.
    fn stands_on(&self, see: &mut dyn FnMut(&SessionRef)) {
        self.lower().into_iter().for_each(see);
    }

    /// The session `way` that this one [stands on](Self::stands_on) has ended, whatever holds it:
    /// closed, evicted, reset, or taken down with what it stood on. By default this one ends with
    /// it.
    fn lower_gone(&self, cx: &Kernel, this: &SessionRef, way: &SessionRef) {
        let _ = way;
        this.abort(cx);
    }

    /// A holder came where there was none: what it stands on is held with it. Only what stands on
    /// something other than [`lower`](Self::lower) has more to do.
    fn held(&self, this: &SessionRef) {
        let _ = this;
        if let Some(lower) = self.lower() {
            lower.hold();
        }
    }

    /// Releases what [`held`](Self::held) has held.
    fn eased(&self, cx: &Kernel, this: &SessionRef) {
        let _ = this;
        if let Some(lower) = self.lower() {
            lower.ease(cx);
        }
    }

    /// The last holder above released it. The session unbinds itself and releases what it holds
    /// below, or says that it stays; one that is aborted ([`SessionHead::is_aborted`]) does not
    /// stay.
    fn close(&self, cx: &Kernel, this: &SessionRef) -> Closing {
        let _ = (cx, this);
        Closing::Done
    }

    /// A timer set by [`Kernel::schedule`] for this session went off.
    fn timeout(&self, cx: &Kernel, this: &SessionRef, token: u64) {
        let _ = (cx, this, token);
    }
}
