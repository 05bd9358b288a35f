//! The end of the other side, and its return.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::time::Duration;
use xk_core::control::QuestionType;
use xk_core::object::{Enable, OpenError, ProtocolId};
use xk_core::{Ask, Kernel, Participants, reason};
use xk_kit::net::stream::{StreamAbort, StreamInfo};

use crate::carrier::Carrier;
use crate::exports::Export;
use crate::frame::{ANSWERED, Header, Op};
use crate::port::{Held, LOST, NOT_ENABLED, Names, Port, QUESTION_TIME_MAX};
use crate::serve::Outcome;
use crate::waits::{Answered, unopened};

/// Notices to the other side that are remembered.
const TOLD_MAX: usize = 1024;

/// An enable made on the other side, which is made again once that is back.
pub(crate) struct Standing {
    lower: ProtocolId,
    receiver: ProtocolId,
    selector: ProtocolId,
    participants: Participants,
    /// The enable's number here, and there as long as it stands.
    number: Enable,
    there: Option<Enable>,
}

/// A notice of the other side that another question takes back.
pub(crate) struct Heard {
    of: ProtocolId,
    /// Key of that question, and the fields of both.
    undone_by: u32,
    fields: Vec<u8>,
}

/// Counts of what a port holds; nothing once the other side is gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holdings {
    /// Sessions of this side that the other one knows.
    pub exports: usize,
    /// Sessions of the other side.
    pub imports: usize,
    /// Requests under way to the other side.
    pub waits: usize,
    /// Requests of the other side that are under way here.
    pub serving: usize,
    /// Enables made here for the other side.
    pub enables: usize,
    /// Messages that wait for room, that may still be refused, or whose session is not known yet.
    pub messages: usize,
}

impl Port {
    /// Counts what the port holds at present.
    pub fn holdings(&self) -> Holdings {
        let messages = [
            self.outbox.borrow().len(),
            self.kept.borrow().len(),
            self.early.borrow().len(),
            self.noted.borrow().len(),
        ];
        Holdings {
            exports: self.exports.all().len(),
            imports: self.imports.all().len(),
            waits: self.waits.all().len(),
            serving: self.serving.get(),
            enables: self.enables.borrow().len(),
            messages: messages.iter().sum(),
        }
    }

    /// The other side is gone, or broke the rules: what it had here ends, and what it offered.
    pub fn lose(&self, cx: &Kernel) {
        if self.is_lost.replace(true) {
            return;
        }
        self.losses.set(self.losses.get().wrapping_add(1));
        self.unanswered.set(None);
        self.count(&LOST);
        self.carrier().close();
        for wait in self.waits.all() {
            wait.answer.wake(cx);
        }
        self.standing.borrow_mut().iter_mut().for_each(|standing| standing.there = None);
        // First all of it, for what follows may wait, and the other side come back meanwhile.
        let (enables, exports) = (self.enables.take(), self.exports.take_all());
        let (imports, heard) = (self.imports.take_all(), self.heard.take());
        self.forget_all();
        for (lower, _, enable) in enables {
            if let Some(lower) = self.own(lower) {
                lower.open_disable(cx, enable);
            }
        }
        exports.iter().for_each(|export| self.release(cx, export));
        imports.iter().for_each(|session| session.retire(cx));
        heard.iter().for_each(|heard| self.take_back(cx, heard));
    }

    /// True if one more notice of this kind can be taken back when the other side dies, or need not
    /// be.
    pub(crate) fn may_hear(&self, kind: &QuestionType) -> bool {
        let fits = kind.undone_by.is_none() || self.heard.borrow().len() < TOLD_MAX;
        if !fits {
            self.count(&reason::TABLE_FULL);
        }
        fits
    }

    /// Notes that the other side has told a protocol here something, or has taken it back.
    pub(crate) fn hear(&self, of: ProtocolId, kind: &QuestionType, fields: &[u8]) {
        let mut heard = self.heard.borrow_mut();
        if let Some(undone_by) = kind.undone_by {
            heard.push(Heard { of, undone_by, fields: fields.to_vec() });
            return;
        }
        let is_it = |heard: &Heard| {
            (heard.of, heard.undone_by, &heard.fields[..]) == (of, kind.key, fields)
        };
        if let Some(at) = heard.iter().position(is_it) {
            heard.swap_remove(at);
        }
    }

    /// Takes back what a side that has died meanwhile has told.
    pub(crate) fn disown(&self, cx: &Kernel, of: ProtocolId, kind: &QuestionType, fields: &[u8]) {
        if let Some(undone_by) = kind.undone_by {
            self.take_back(cx, &Heard { of, undone_by, fields: fields.to_vec() });
        }
    }

    /// Takes a notice of the other side back in its place.
    fn take_back(&self, cx: &Kernel, heard: &Heard) {
        let (kind, of) = (self.question(heard.undone_by), self.own(heard.of));
        if let (Some(kind), Some(of)) = (kind, of) {
            let names = Names::of(self, cx);
            let put = |ask: &mut Ask<'_>| of.control(cx, ask);
            // What was told was read before, and so is this.
            let _ = kind.read(&heard.fields, &names, Vec::new(), put);
        }
    }

    /// Drops what is on its way there and back.
    fn forget_all(&self) {
        drop((self.outbox.take(), self.kept.take(), self.early.take(), self.noted.take()));
        self.retry_at.set(None);
    }

    /// Ends a session that the other side knew.
    fn release(&self, cx: &Kernel, export: &Export) {
        let session = &export.session;
        drop(export.waiting.take());
        if export.was_closed.get() && session.ask(cx, StreamInfo::default()).is_some() {
            // A stream that the other side has closed before goes on to its end.
            return;
        }
        // Any other is reset, not ended as if all were sent.
        let _ = session.ask(cx, StreamAbort {});
        if export.is_offered.replace(false) {
            session.ease(cx);
        }
        if export.is_held.replace(false) {
            session.close(cx);
        }
        // One that a message made would go on refusing what comes for it.
        session.abort(cx);
    }

    /// The other side is there again behind this carrier, started again. What was enabled there is
    /// enabled again, and what its protocols were told once is told again; sessions are not
    /// revived.
    pub fn reconnect(&self, cx: &Kernel, carrier: Box<dyn Carrier>) {
        self.lose(cx);
        *self.carrier.borrow_mut() = Held(carrier.into());
        self.understood.take();
        self.is_lost.set(false);
        self.replays.set(!self.standing.borrow().is_empty() || !self.told.borrow().is_empty());
        if self.replays.get()
            && let Some(wire) = &*self.wire.borrow()
        {
            // On a shepherd of the loop, for the answer is waited for.
            let _ = cx.schedule_protocol(wire, Duration::ZERO, self.tag.get());
        }
    }

    /// Releases everything, for the end: of a kernel, or of what was lost.
    pub fn stop(&self) {
        self.is_lost.set(true);
        self.carrier().close();
        // Sessions that go on to their end know this port, and need nothing of the system for it.
        drop(self.carrier.take());
        drop((self.admit.take(), self.guard.take()));
        drop(self.exports.take_all());
        drop(self.imports.take_all());
        self.forget_all();
        drop((self.standing.take(), self.told.take(), self.enables.take()));
        drop(self.heard.take());
        drop(self.wire.take());
        drop((self.granted.take(), self.lowers.take(), self.uppers.take(), self.users.take()));
    }

    // ---- enables made on the other side ----

    /// Makes an enable on a protocol of the other side, and remembers it.
    pub(crate) fn enable_there(
        &self,
        cx: &Kernel,
        (lower, receiver, selector): (ProtocolId, ProtocolId, ProtocolId),
        participants: Participants,
    ) -> Result<Enable, OpenError> {
        let ends = (lower, receiver, selector);
        let there = self.ask_enable(cx, ends, participants.clone())?;
        let number = Enable(self.enable_last.get() + 1);
        self.enable_last.set(number.0);
        let there = Some(there);
        let standing = Standing { lower, receiver, selector, participants, number, there };
        self.standing.borrow_mut().push(standing);
        Ok(number)
    }

    fn ask_enable(
        &self,
        cx: &Kernel,
        (lower, receiver, selector): (ProtocolId, ProtocolId, ProtocolId),
        participants: Participants,
    ) -> Result<Enable, OpenError> {
        let fields = self.write(cx, &(receiver, selector, participants));
        let body = cx.pool().copy_from(0, &fields).map_err(|_| OpenError::NoBuffers)?;
        let header = Header::new(Op::Enable, 0, lower.0);
        let answer = self.request(cx, (header, body), None, QUESTION_TIME_MAX).map_err(unopened)?;
        let Answered::Frame(_, reply) = answer else {
            return Err(OpenError::NoLower);
        };
        let answer: Option<Outcome<Enable, OpenError>> = self.read(cx, &reply);
        answer.map_or(Err(OpenError::NoLower), |Outcome(outcome)| outcome)
    }

    /// Withdraws an enable of this number on a protocol of the other side.
    pub(crate) fn disable_there(&self, cx: &Kernel, lower: ProtocolId, number: Enable) {
        let mut all = self.standing.borrow_mut();
        let is_it = |standing: &Standing| (standing.lower, standing.number) == (lower, number);
        let Some(at) = all.iter().position(is_it) else {
            return;
        };
        let Standing { receiver, there, .. } = all.swap_remove(at);
        drop(all);
        if let Some(there) = there {
            self.tell_disable(cx, lower, (receiver, there));
        }
    }

    fn tell_disable(&self, cx: &Kernel, lower: ProtocolId, known: (ProtocolId, Enable)) {
        let fields = self.write(cx, &known);
        self.tell(cx, Header::new(Op::Disable, lower.0, 0), &fields);
    }

    /// Notes what a protocol of the other side was told, for the next one in its place: the key of
    /// the question, then the rest of it. What this question takes back is forgotten.
    pub(crate) fn remember(&self, protocol: ProtocolId, kind: &QuestionType, fields: Vec<u8>) {
        let mut told = self.told.borrow_mut();
        if !kind.is_standing {
            let undoes = |key: &[u8; 4]| {
                let other = self.question(u32::from_le_bytes(*key));
                other.is_some_and(|other| other.undone_by == Some(kind.key))
            };
            let is_it = |(of, known): &(ProtocolId, Vec<u8>)| {
                *of == protocol
                    && known.get(4..) == fields.get(4..)
                    && known.first_chunk().is_some_and(undoes)
            };
            if let Some(at) = told.iter().position(is_it) {
                told.remove(at);
            }
            return;
        }
        // Those that are taken back one by one count.
        let is_known = kind.undone_by.is_none()
            && told.iter().any(|(of, known)| *of == protocol && *known == fields);
        if !is_known && told.len() < TOLD_MAX {
            told.push((protocol, fields));
        } else if !is_known {
            drop(told);
            self.count(&reason::TABLE_FULL);
        }
    }

    /// Makes all enables once more that stand no longer, in their order, and tells what was told.
    /// What is refused now is counted, and tried when the other side comes back the next time.
    pub(crate) fn replay(&self, cx: &Kernel) {
        let losses = self.losses.get();
        self.enable_again(cx);
        if losses != self.losses.get() {
            return;
        }
        let told = self.told.borrow().clone();
        for (protocol, fields) in told {
            let is_told =
                |known: &(ProtocolId, Vec<u8>)| (known.0, &known.1) == (protocol, &fields);
            if !self.told.borrow().iter().any(is_told) {
                // It was taken back while another was told.
                continue;
            }
            let Ok(body) = cx.pool().copy_from(0, &fields) else {
                self.count(&reason::NO_BUFFERS);
                continue;
            };
            let header = Header::new(Op::AskProtocol, 0, protocol.0);
            let answer = self.request(cx, (header, body), None, QUESTION_TIME_MAX);
            if losses != self.losses.get() {
                return;
            }
            let is_understood = match answer {
                Ok(Answered::Frame(_, mut reply)) => reply.pop_array() == Some(&[ANSWERED]),
                _ => false,
            };
            if !is_understood {
                self.count(&NOT_ENABLED);
            }
        }
    }

    fn enable_again(&self, cx: &Kernel) {
        let lapsed: Vec<Enable> = {
            let all = self.standing.borrow();
            all.iter().filter(|s| s.there.is_none()).map(|s| s.number).collect()
        };
        for number in lapsed {
            let wanted = {
                let all = self.standing.borrow();
                let found = all.iter().find(|s| s.number == number && s.there.is_none());
                found.map(|s| ((s.lower, s.receiver, s.selector), s.participants.clone()))
            };
            let Some((ends @ (lower, receiver, _), participants)) = wanted else {
                continue;
            };
            let losses = self.losses.get();
            let made = self.ask_enable(cx, ends, participants);
            if losses != self.losses.get() {
                return;
            }
            let Ok(there) = made else {
                self.count(&NOT_ENABLED);
                continue;
            };
            let mut all = self.standing.borrow_mut();
            match all.iter_mut().find(|s| s.number == number) {
                Some(standing) => standing.there = Some(there),
                // It was withdrawn meanwhile.
                None => {
                    drop(all);
                    self.tell_disable(cx, lower, (receiver, there));
                }
            }
        }
    }
}
