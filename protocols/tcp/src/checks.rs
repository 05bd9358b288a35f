//! Checks of arriving segments, before the connection sees them.

use crate::connection::{Connection, Predicted, Verdict};
use crate::origin::{is_intact, received};
use crate::session::TcpSession;
use crate::state::State;
use crate::wire::{Flags, Header, PLAIN_LEN, Plain};
use xk_core::{Kernel, Message, Reason, SessionRef, Time, reason};
use xk_kit::net::attribute::{Arrived, Ecn, LinkCast};
use xk_kit::wire::offload::TransportChecksum;
use xk_kit::wire::segments::Segments;

/// Largest number of segments that one held acknowledgement may cover. For more, the window would
/// grow less than by the separate acknowledgements (RFC 3465, section 2.3).
const SEGMENTS_MAX: u32 = 8;

/// A checked acknowledgement that waits. If the next segment acknowledges more, the connection
/// never sees this one.
#[derive(Default)]
pub(crate) struct Held(Option<Plain>);

impl Held {
    /// Whether `newer`, a plain segment without data, acknowledges more than the one that is held.
    /// If it acknowledges as much or less, the connection must see both.
    #[inline]
    fn gives_way_to(&self, newer: Option<&Plain>) -> bool {
        self.0.zip(newer).is_some_and(|(held, newer)| newer.ack.after(held.ack))
    }

    /// Passes the held acknowledgement to the connection.
    #[inline]
    fn take_in(&mut self, connection: &mut Connection, now: Time) {
        if let Some(plain) = self.0.take() {
            acknowledge(connection, now, &plain);
        }
    }
}

/// Passes an acknowledgement to the connection. Out of line: the code is long, and called from
/// several places.
#[inline(never)]
fn acknowledge(connection: &mut Connection, now: Time, plain: &Plain) {
    connection.predicted(now, plain, None);
}

impl TcpSession {
    /// Takes a segment in, with its header in front. An acknowledgement may be held, without any
    /// effect, until the next segment or [`take_in`](Self::take_in). Returns whether the connection
    /// may have something to send now.
    #[inline(always)]
    pub(crate) fn take(
        &self,
        cx: &Kernel,
        this: &SessionRef,
        message: Message,
        held: &mut Held,
    ) -> bool {
        let (taken, may_send) = {
            let connection = &mut *self.connection.borrow_mut();
            let plain = message.peek_in_place().and_then(Plain::parse);
            let newer = plain.as_ref().filter(|_| message.len() == PLAIN_LEN);
            if !held.gives_way_to(newer) {
                held.take_in(connection, cx.now());
            }
            let taken = match plain {
                Some(plain) => self.take_plain(cx, connection, message, &plain, held),
                None => self.take_any(cx, connection, message),
            };
            (taken, held.0.is_none() && !connection.is_quiet_so_far())
        };
        if let Err(why) = taken {
            this.count_drop(cx, why);
            self.table.drop_sources.record(cx, &self.link.lower, self.peer_port(), why);
        }
        may_send
    }

    /// Passes the held acknowledgement to the connection.
    pub(crate) fn take_in(&self, cx: &Kernel, held: &mut Held) {
        held.take_in(&mut self.connection.borrow_mut(), cx.now());
    }

    /// Takes in a plain segment, as nearly all are.
    #[inline(always)]
    fn take_plain(
        &self,
        cx: &Kernel,
        connection: &mut Connection,
        mut message: Message,
        plain: &Plain,
        held: &mut Held,
    ) -> Verdict {
        let octets = message.len() - PLAIN_LEN;
        let predicted = connection.predict(plain, octets);
        let Some(what) = predicted.filter(|_| is_unmarked(&message)) else {
            held.take_in(connection, cx.now());
            return self.take_any(cx, connection, message);
        };
        if !is_intact(received(&self.link.origin), &message) {
            return Err(&reason::BAD_CHECKSUM);
        }
        if what == Predicted::Acknowledgement {
            held.0 = Some(*plain);
            let acked = plain.ack.since(connection.snd_una());
            let most = SEGMENTS_MAX * u32::from(connection.segment_octets());
            if acked >= most || !connection.takes_few() {
                held.take_in(connection, cx.now());
            }
            return Ok(());
        }
        note_run(connection, &mut message);
        if !message.strip_in_place(PLAIN_LEN) {
            return Err(&reason::BAD_LENGTH);
        }
        connection.predicted(cx.now(), plain, Some(message));
        Ok(())
    }

    /// Takes any segment in.
    #[inline(never)]
    fn take_any(&self, cx: &Kernel, connection: &mut Connection, mut message: Message) -> Verdict {
        let header = self.read(&mut message)?;
        let mark = mark_of(&message);
        message.remove_attribute::<Ecn>();
        note_run(connection, &mut message);
        let payload = (!message.is_empty()).then_some(message);
        let verdict = connection.segment(cx.now(), &header, payload, mark);
        connection.expect_run(0);
        self.settle_fast(cx, connection, header.flags.has(Flags::RST));
        verdict
    }

    /// Checks a segment and takes its header off.
    fn read(&self, message: &mut Message) -> Result<Header, &'static Reason> {
        let fixed = message.header()?;
        let length = Header::length(&fixed).unwrap_or(usize::MAX);
        if length > message.len() {
            return Err(&reason::BAD_LENGTH);
        }
        if message.pull_up(length).is_err() {
            return Err(&reason::NO_BUFFERS);
        }
        if !is_intact(received(&self.link.origin), message) {
            return Err(&reason::BAD_CHECKSUM);
        }
        if message.attribute::<LinkCast>().is_some() {
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
        self.read(&mut copy).is_ok_and(|header| self.connection.borrow().gives_way_to(&header))
    }
}

/// Removes a segment's attributes, and tells the connection if it stands for a run of segments.
#[inline]
fn note_run(connection: &mut Connection, message: &mut Message) {
    if message.has_attributes() {
        if let Some(run) = message.remove_attribute::<Segments>() {
            connection.expect_run(run.size);
        }
        message.remove_attribute::<TransportChecksum>();
        message.remove_attribute::<Arrived>();
    }
}

/// Returns the ECN mark of the packet that brought a segment. The layer below reports marks by
/// routers, and other values only if it was asked to (RFC 3168, section 5).
pub(crate) fn mark_of(message: &Message) -> Option<Ecn> {
    match message.attribute::<Arrived>() {
        Some(arrived) => Ecn::from_bits(arrived.class),
        None => message.attribute::<Ecn>().filter(|mark| *mark == Ecn::Experienced),
    }
}

/// Whether a message was sent to this host alone, and no router marked it.
#[inline]
fn is_unmarked(message: &Message) -> bool {
    !message.has_attributes()
        || message.attribute::<LinkCast>().is_none()
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
        assert!(held.gives_way_to(Some(&plain(11))));
        assert!(!held.gives_way_to(Some(&plain(10))), "a duplicate");
        assert!(!held.gives_way_to(Some(&plain(9))), "a late one");
        assert!(!held.gives_way_to(None), "data, or something unusual");
        assert!(!Held::default().gives_way_to(Some(&plain(10))));
    }
}
