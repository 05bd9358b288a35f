//! Segments on their way up: what is checked before the connection sees them.

use crate::connection::{Connection, Predicted, Verdict};
use crate::origin::{is_intact, is_intact_behind, received};
use crate::session::{TcpSession, cx_count};
use crate::state::State;
use crate::wire::{HEADER_LEN, Header, PLAIN_LEN, Plain};
use xk_core::{Kernel, Message, Reason, SessionRef, reason};
use xk_kit::attribute::{Ecn, LinkCast};
use xk_kit::offload::TransportChecksum;
use xk_kit::segments::Segments;

/// How many segments an acknowledgement may be for that stands for those before it: more would open the window less than each of them
/// (RFC 3465, section 2.3).
const SEGMENTS_MAX: u32 = 8;

/// An acknowledgement that was checked and waits: one that comes right behind it says all that it says, and more.
#[derive(Default)]
pub(crate) struct Held(Option<Plain>);

impl Held {
    #[inline]
    pub(crate) fn is_some(&self) -> bool {
        self.0.is_some()
    }

    /// Whether a segment without data, if it is plain, acknowledges more than what is held: one that says the same again, or less, is to
    /// be seen as such.
    #[inline]
    fn gives_way_to(&self, newer: Option<&Plain>) -> bool {
        self.0
            .zip(newer)
            .is_some_and(|(held, newer)| newer.ack.after(held.ack))
    }
}

impl TcpSession {
    /// Takes a segment in, its header in front. An acknowledgement may be held until the next, or until it is
    /// [settled](Self::settle).
    #[inline(always)]
    pub(crate) fn take(&self, cx: &Kernel, this: &SessionRef, message: Message, held: &mut Held) {
        let plain = message.peek_in_place().and_then(Plain::parse);
        let newer = plain.as_ref().filter(|_| message.len() == PLAIN_LEN);
        if held.is_some() && !held.gives_way_to(newer) {
            self.settle(cx, this, held);
        }
        let taken = match plain {
            Some(plain) => self.take_plain(cx, this, (message, &plain), held),
            None => self.take_any(cx, message),
        };
        self.account(cx, this, taken);
    }

    /// Has the connection take in what is held.
    #[inline(never)]
    pub(crate) fn settle(&self, cx: &Kernel, this: &SessionRef, held: &mut Held) {
        if let Some(plain) = held.0.take() {
            let connection = &mut *self.connection.borrow_mut();
            let taken = connection.predicted(cx.now(), &plain, None);
            self.account(cx, this, taken);
        }
    }

    #[inline]
    fn account(&self, cx: &Kernel, this: &SessionRef, taken: Verdict) {
        if let Err(why) = taken {
            cx_count(cx, this, why);
            self.table
                .talkers
                .blame(cx, &self.link.lower, self.peer_port(), why);
        }
    }

    /// Takes in what nearly all segments are.
    #[inline(always)]
    fn take_plain(
        &self,
        cx: &Kernel,
        this: &SessionRef,
        (mut message, plain): (Message, &Plain),
        held: &mut Held,
    ) -> Verdict {
        let connection = &mut *self.connection.borrow_mut();
        let octets = message.len() - PLAIN_LEN;
        let is_usual = !message.has_attributes() || is_unmarked(&message);
        let Some(what) = connection.predict(plain, octets).filter(|_| is_usual) else {
            return self.take_unpredicted(cx, this, (message, connection), held);
        };
        if !is_intact_behind::<PLAIN_LEN>(received(&self.link.origin), &message) {
            return Err(&reason::BAD_CHECKSUM);
        }
        if what == Predicted::Acknowledgement {
            held.0 = Some(*plain);
            let acked = plain.ack.since(connection.snd_una());
            if acked >= SEGMENTS_MAX * u32::from(connection.segment_octets()) {
                held.0 = None;
                return connection.predicted(cx.now(), plain, None);
            }
            return Ok(());
        }
        if message.has_attributes() {
            note_run(connection, &mut message);
        }
        if !message.strip_in_place(PLAIN_LEN) {
            return Err(&reason::BAD_LENGTH);
        }
        connection.predicted(cx.now(), plain, Some(message))
    }

    #[cold]
    #[inline(never)]
    fn take_unpredicted(
        &self,
        cx: &Kernel,
        this: &SessionRef,
        (message, connection): (Message, &mut Connection),
        held: &mut Held,
    ) -> Verdict {
        if let Some(plain) = held.0.take() {
            let taken = connection.predicted(cx.now(), &plain, None);
            self.account(cx, this, taken);
        }
        self.take_any_by(cx, message, connection)
    }

    /// Takes any segment in.
    #[inline(never)]
    fn take_any(&self, cx: &Kernel, message: Message) -> Verdict {
        self.take_any_by(cx, message, &mut self.connection.borrow_mut())
    }

    fn take_any_by(
        &self,
        cx: &Kernel,
        mut message: Message,
        connection: &mut Connection,
    ) -> Verdict {
        let header = self.read(&mut message)?;
        let congested =
            message.has_attributes() && message.remove_attribute::<Ecn>() == Some(Ecn::Experienced);
        note_run(connection, &mut message);
        let payload = (!message.is_empty()).then_some(message);
        connection.segment(cx.now(), &header, payload, congested)
    }

    /// Checks a segment and takes its header off.
    fn read(&self, message: &mut Message) -> Result<Header, &'static Reason> {
        if message.pull_up(HEADER_LEN).is_err() {
            return Err(&reason::TRUNCATED);
        }
        let length = message.peek::<HEADER_LEN>().map_or(usize::MAX, |fixed| {
            Header::length(fixed).unwrap_or(usize::MAX)
        });
        if length > message.len() {
            return Err(&reason::BAD_LENGTH);
        }
        if message.pull_up(length).is_err() {
            return Err(&reason::NO_BUFFERS);
        }
        if !is_intact(received(&self.link.origin), message) {
            return Err(&reason::BAD_CHECKSUM);
        }
        if message.has_attributes() && message.attribute::<LinkCast>().is_some() {
            return Err(&reason::NOT_MINE);
        }
        let parsed = message.peek_slice(length).map(Header::parse);
        let Some(Ok((header, _))) = parsed else {
            return Err(&reason::MALFORMED);
        };
        if !message.strip(length) {
            return Err(&reason::BAD_LENGTH);
        }
        Ok(header)
    }

    /// Whether a segment begins a new connection in this one's place.
    pub(crate) fn gives_way(&self, message: &mut Message) -> bool {
        if self.connection.borrow().state() != State::TimeWait {
            return false;
        }
        let Ok(mut copy) = message.try_clone() else {
            return false;
        };
        self.read(&mut copy)
            .is_ok_and(|header| self.connection.borrow().gives_way_to(&header))
    }
}

/// Takes off what a segment bears; the connection hears if it stands for a run of segments.
fn note_run(connection: &mut Connection, message: &mut Message) {
    if let Some(run) = message.remove_attribute::<Segments>() {
        connection.expect_run(run.size);
    }
    message.remove_attribute::<TransportChecksum>();
}

/// Whether a message with attributes was for us alone, and no router marked it.
fn is_unmarked(message: &Message) -> bool {
    message.attribute::<LinkCast>().is_none()
        && message.attribute::<Ecn>() != Some(Ecn::Experienced)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Timestamps;
    use crate::seq::Seq;

    #[test]
    fn only_what_acknowledges_more_stands_for_both() {
        let plain = |ack| Plain {
            seq: Seq(1),
            ack: Seq(ack),
            window: 100,
            timestamps: Timestamps::default(),
        };
        let held = Held(Some(plain(10)));
        assert!(held.is_some() && held.gives_way_to(Some(&plain(11))));
        assert!(!held.gives_way_to(Some(&plain(10))), "a duplicate");
        assert!(!held.gives_way_to(Some(&plain(9))), "a late one");
        assert!(!held.gives_way_to(None), "data, or something unusual");
        assert!(!Held::default().gives_way_to(Some(&plain(10))));
    }
}
