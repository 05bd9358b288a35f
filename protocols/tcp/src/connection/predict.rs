//! The segments that nearly all are: the next data in order, or an acknowledgement of new data, on
//! a connection where nothing is amiss. What they change is little, and found without the steps
//! that the others take (V. Jacobson's header prediction).

use super::Connection;
use crate::loss::Ack;
use crate::seq::Seq;
use crate::state::State;
use crate::wire::Plain;
use xk_core::{Message, Time};

/// Kind of a segment that was predicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Predicted {
    /// The next data; they may acknowledge some of ours.
    Data,
    /// No data, but an acknowledgement of some of ours.
    Acknowledgement,
}

impl Connection {
    /// Whether a segment of `octets` octets of data is one that [`predicted`](Self::predicted) may
    /// take; if not, it is for [`segment`](Self::segment).
    #[inline]
    #[must_use]
    pub fn predict(&self, plain: &Plain, octets: usize) -> Option<Predicted> {
        let is_usual = self.state == State::Established
            && self.timestamps
            && !self.is_odd
            && plain.seq == self.receive.rcv_nxt
            && plain.timestamps.value.wrapping_sub(self.ts_recent) < 1 << 31
            && !self.receive.has_gap()
            && self.receive.fin.is_none()
            && self.persist_at.is_none()
            && self.window_probe.is_none();
        if !is_usual {
            return None;
        }
        let una = self.snd_una();
        let is_new = plain.ack.after(una) && plain.ack.at_or_before(self.snd_nxt());
        if octets > 0 {
            let fits = octets <= self.receive.window() as usize;
            (fits && (is_new || plain.ack == una)).then_some(Predicted::Data)
        } else {
            is_new.then_some(Predicted::Acknowledgement)
        }
    }

    /// Whether one acknowledgement does the work of several that came with it.
    #[inline]
    pub fn takes_few(&self) -> bool {
        self.recovery.takes_few()
    }

    /// Takes in what [`predict`](Self::predict) has told to be so: data if there are some, and what
    /// it acknowledges.
    #[inline(always)]
    pub fn predicted(&mut self, now: Time, plain: &Plain, data: Option<Message>) {
        let una = self.snd_una();
        self.heard_at = now;
        self.keep_alive_count = 0;
        if plain.seq.at_or_before(self.last_ack_sent) {
            (self.ts_recent, self.ts_recent_at) = (plain.timestamps.value, now);
        }
        let window = u32::from(plain.window) << self.send.shift;
        self.take_window(plain.seq, plain.ack, window);
        if plain.ack != una {
            self.take_new_ack(now, plain, una);
        }
        if let Some(data) = data {
            self.take_next(now, data);
        }
    }

    #[inline]
    fn take_new_ack(&mut self, now: Time, plain: &Plain, una: Seq) {
        let told = Ack {
            echoed: self.echo(now, plain.timestamps),
            waiting: self.is_waiting(),
            ..Ack::plain(plain.ack)
        };
        let acked = self.recovery.acknowledge(&told, now);
        self.take_acked(now, una, &acked);
    }
}
