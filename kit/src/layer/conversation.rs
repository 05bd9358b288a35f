//! The session object of a layer.

use super::ways::{Acting, One, Ways};
use super::{Arrival, Layer, Layered, Unsent, less_header};
use crate::net::template::Headers;
use alloc::string::String;
use core::cell::Cell;
use xk_core::object::{
    BURST_MAX, Burst, CallError, Closing, OpenError, Outgoing, PushError, Refused,
};
use xk_core::{
    Answer, Ask, Kernel, Message, Participants, ProtocolRef, Session, SessionRef, reason,
};

/// The session object of a layer.
pub struct Conversation<L: Layer<N, W>, const N: usize, W: Ways = One> {
    /// The layer that it is of.
    pub all: Layered<L, N, W>,
    /// Key of the conversation; among those on its session below where it has [`One`] way.
    pub key: L::Key,
    /// The sessions below.
    pub ways: W,
    /// The protocol above.
    pub upper: ProtocolRef,
    /// Octets of the largest message from above.
    pub octets_max: usize,
    /// The layer's own state of the conversation.
    pub state: L::State,
    pub(super) place: W::Place<L::Key>,
}

impl<L: Layer<N>, const N: usize> Conversation<L, N> {
    /// The session below.
    #[inline(always)]
    pub fn lower(&self) -> &SessionRef {
        &self.ways.0
    }
}

impl<L: Layer<N, W>, const N: usize, W: Ways> Conversation<L, N, W> {
    /// Answers what every conversation answers: `headers`; what the session below says of sizes,
    /// less the header; the rest as it does.
    pub fn answer(&self, cx: &Kernel, ask: &mut Ask<'_>) -> Answer {
        if let Some(question) = ask.get::<Headers>() {
            let below = self.ways.headers(cx);
            let found = below.and_then(|below| self.all.layer.headers(self, cx, below));
            let sent = |found: &Headers| found.sent.clone().carrying(self.octets_max);
            return question.found(found.map(|f| Headers { sent: sent(&f), ..f }));
        }
        less_header::<L, N, W>(self.ways.ask(cx, &self.all.lower, ask), ask)
    }

    /// Sends a message of the layer's own, its header in front, by the ways.
    ///
    /// # Errors
    /// As of [`push`](xk_core::Session::push).
    pub fn send(&self, cx: &Kernel, this: &SessionRef, message: Message) -> Result<(), PushError> {
        self.ways.send(self.acting(cx, this), message)
    }

    /// Opens ways to what these ends name besides.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn extend(
        &self,
        cx: &Kernel,
        this: &SessionRef,
        ends: &Participants,
    ) -> Result<(), OpenError> {
        self.ways.extend(self.acting(cx, this), ends)
    }

    pub(super) fn acting<'a>(&'a self, cx: &'a Kernel, this: &'a SessionRef) -> Acting<'a> {
        Acting { cx, this, lower: &self.all.lower }
    }

    /// Puts the header in front of a message that has room for it and needs no closer look.
    #[inline(always)]
    fn prepare(&self, message: &mut Message) -> bool {
        // In this order, for the room is then looked at but once.
        if !self.all.layer.fit(self, message) || !message.has_room(N) {
            return false;
        }
        let header = self.all.layer.header(self, message);
        header.is_some_and(|header| message.push_in_place(&header))
    }

    /// Puts the header in front of any message.
    #[inline(never)]
    fn prepare_examined(&self, cx: &Kernel, message: &mut Message) -> Result<(), Unsent> {
        let layer = &self.all.layer;
        // With room in front `prepare` has asked already.
        let header = match !message.has_room(N) && layer.fit(self, message) {
            true => layer.header(self, message),
            false => None,
        };
        let header = match header {
            Some(header) => header,
            None => layer.examine_sent(cx, self, message)?,
        };
        let no_room = |_| (PushError::NoBuffers, &reason::NO_BUFFERS);
        message.push_array(&header).map_err(no_room)
    }

    #[inline(never)]
    fn push_examined(
        &self,
        cx: &Kernel,
        this: &SessionRef,
        mut message: Message,
    ) -> Result<(), PushError> {
        match self.prepare_examined(cx, &mut message) {
            Ok(()) => self.ways.send(self.acting(cx, this), message),
            Err(why) => L::unsent(self, cx, this, message, why),
        }
    }

    /// The header of a message that is plain.
    #[inline(always)]
    fn plain_header(&self, message: &Message, front: usize) -> Option<[u8; N]> {
        let header = message.peek_behind::<N>(front)?;
        let is_plain = self.all.layer.is_plain(self, header, message, front);
        is_plain.then_some(*header)
    }

    #[inline(never)]
    fn pop_examined(
        &self,
        cx: &Kernel,
        this: &SessionRef,
        mut message: Message,
    ) -> Result<(), Refused> {
        let Some(header) = message.pop_array::<N>().copied() else {
            return Err(this.refuse(cx, message, &reason::TRUNCATED));
        };
        if let Err(why) = self.all.layer.examine(self, &header, &mut message) {
            if let Some(protocol) = this.protocol(cx)
                && let Some(lower) = self.ways.way_back(&message)
            {
                let at = Arrival { cx, this: &protocol, lower: &lower };
                self.all.dropped(at, Some(&header), why);
            }
            return Err(this.refuse(cx, message, why));
        }
        let taken = L::deliver(self, cx, this, &header, message);
        taken.or_else(|refused| quote::<L, N, W>(refused, &header))
    }
}

#[cold]
fn quote<L: Layer<N, W>, const N: usize, W: Ways>(
    refused: Refused,
    header: &[u8; N],
) -> Result<(), Refused> {
    Err(if L::QUOTES { refused.quoting(header) } else { refused })
}

impl<L: Layer<N, W>, const N: usize, W: Ways> Session for Conversation<L, N, W> {
    #[inline]
    fn push(&self, cx: &Kernel, this: &SessionRef, mut message: Message) -> Result<(), PushError> {
        if self.prepare(&mut message) {
            return self.ways.send(self.acting(cx, this), message);
        }
        self.push_examined(cx, this, message)
    }

    fn push_burst(
        &self,
        cx: &Kernel,
        this: &SessionRef,
        burst: &mut Outgoing,
    ) -> Result<(), PushError> {
        let Some(ground) = self.ways.ground() else {
            let mut sent = Ok(());
            for message in burst.drain(..) {
                sent = sent.and(self.push(cx, this, message));
            }
            return sent;
        };
        let failed = Cell::new(None);
        let prepare = |message: &mut Message| {
            self.prepare(message)
                || self
                    .prepare_examined(cx, message)
                    .inspect_err(|why| failed.set(Some(*why)))
                    .is_ok()
        };
        let other = |message| match failed.take() {
            Some(why) => L::unsent(self, cx, this, message, why),
            None => self.push_examined(cx, this, message),
        };
        ground.push_prepared(cx, burst, prepare, other)
    }

    #[inline]
    fn call(&self, cx: &Kernel, this: &SessionRef, request: Message) -> Result<Message, CallError> {
        L::call(self, cx, this, request)
    }

    /// Takes a message with its header in front.
    #[inline]
    fn pop(&self, cx: &Kernel, this: &SessionRef, mut message: Message) -> Result<(), Refused> {
        if let Some(header) = self.plain_header(&message, 0)
            && message.strip_in_place(N)
        {
            let taken = L::deliver(self, cx, this, &header, message);
            return match L::QUOTES {
                true => taken.or_else(|refused| quote::<L, N, W>(refused, &header)),
                false => taken,
            };
        }
        self.pop_examined(cx, this, message)
    }

    fn pop_burst(&self, cx: &Kernel, this: &SessionRef, burst: Burst<'_>) -> Result<(), Refused> {
        if L::ONE_BY_ONE || L::CARRIES_CALLS {
            while let Some(message) = burst.next_through(this) {
                self.pop(cx, this, message)?;
            }
            return Ok(());
        }
        while burst.goes_on(this) {
            let mut headers = [[0; N]; BURST_MAX];
            let mut run = 0;
            while run < burst.len()
                && let Some(header) =
                    burst.look(run, |message, front| self.plain_header(message, front)).flatten()
            {
                headers[run % BURST_MAX] = header;
                run += 1;
            }
            if run == 0
                && let Some(message) = burst.next()
            {
                self.pop_examined(cx, this, message)?;
                continue;
            }
            let before = burst.taken();
            if let Err(refused) = self.upper.demux_burst(cx, this, burst.first(run).behind(N)) {
                let at = (burst.taken() - before).wrapping_sub(1);
                return match L::QUOTES {
                    true => quote::<L, N, W>(refused, &headers[at % BURST_MAX]),
                    false => Err(refused),
                };
            }
        }
        Ok(())
    }

    fn refused(&self, cx: &Kernel, _: &SessionRef, mut refused: Refused) {
        if refused.message.uncover(N)
            && let Some(way) = self.ways.way_back(&refused.message)
        {
            way.refused(cx, refused);
        }
    }

    fn timeout(&self, cx: &Kernel, this: &SessionRef, token: u64) {
        L::timeout(self, cx, this, token);
    }

    fn control(&self, cx: &Kernel, this: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        L::session_control(self, cx, this, ask)
    }

    fn describe(&self, _: &SessionRef) -> Option<String> {
        Some(self.all.layer.describe(self))
    }

    fn lower(&self) -> Option<&SessionRef> {
        self.ways.ground()
    }

    fn stands_on(&self, see: &mut dyn FnMut(&SessionRef)) {
        self.ways.each(see);
    }

    fn lower_gone(&self, cx: &Kernel, this: &SessionRef, way: &SessionRef) {
        if self.ways.lost(way) {
            this.abort(cx);
        }
    }

    fn held(&self, _: &SessionRef) {
        self.ways.hold();
    }

    fn eased(&self, cx: &Kernel, _: &SessionRef) {
        self.ways.ease(cx);
    }

    fn close(&self, cx: &Kernel, this: &SessionRef) -> Closing {
        if L::CARRIES_CALLS && self.all.sessions.rests(&self.place, this) {
            return Closing::Idle;
        }
        L::end(self, cx, this);
        L::drain(self);
        // Only if it is bound: one that found the table full is not, and another may have its key.
        self.all.sessions.release(&self.place, this);
        self.ways.close(self.acting(cx, this));
        Closing::Done
    }
}
