//! The send side: octets that were pushed, as references to the buffers that they were pushed in
//! (RFC 9293, section 3.3.1).
//!
//! What was pushed stays as it is until all of it is acknowledged. A segment is a reference to a
//! part of it, whether it goes for the first time or once more.

use super::settings::BUFFER_MAX;
use super::value::{put_octets, take_octets};
use crate::options::SHIFT_MAX;
use crate::seq::Seq;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use xk_core::Message;
use xk_core::control::{Field, Reader, Writer};
use xk_core::message::{NoBuffers, SplitError};

/// Messages of any size that may wait to be sent or acknowledged: each takes a buffer, even for one
/// octet.
const PUSHES_MAX: usize = 16_384;

/// The meaning of the end of a piece for the receiver, and for the segments that carry it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Mark {
    /// Nothing: more was pushed before it went.
    None,
    /// The sender had no more to say ([`Flags::PSH`](crate::wire::Flags::PSH)), so far.
    Push,
    /// As much lies before it as a receiver should not have to wait for.
    Half,
    /// A record ends here: no segment goes beyond.
    Record,
}

impl Mark {
    /// The mark of this number; none has another.
    fn of(number: u8) -> Option<Self> {
        [Self::Push, Self::Half, Self::Record].into_iter().find(|mark| *mark as u8 == number)
    }
}

/// One slice of what was pushed.
struct Piece {
    start: Seq,
    mark: Mark,
    octets: Message,
}

impl Piece {
    fn end(&self) -> Seq {
        self.start + self.octets.len() as u32
    }
}

/// The send side of a connection.
#[derive(Default)]
pub(crate) struct Send {
    /// Our initial sequence number.
    pub(crate) iss: Seq,
    /// The end of the window that the peer announced, in octets from its acknowledgement on.
    pub(crate) snd_wnd: u32,
    /// The largest window that it has announced (RFC 5961, section 5.2).
    pub(crate) max_snd_wnd: u32,
    /// The largest window that the peer's buffer seems good for, less each time that one stays
    /// small: half of it is worth a segment (RFC 9293, section 3.8.6.2.1).
    pub(crate) fair_wnd: u32,
    /// The sequence number of the segment that the window was taken from.
    pub(crate) snd_wl1: Seq,
    /// The shift of the windows that the peer announces.
    pub(crate) shift: u8,
    /// Not acknowledged, by number, each the next of the one before.
    pieces: VecDeque<Piece>,
    /// The piece that the next new segment begins in.
    current: usize,
    /// Ends of the octets pushed, of those sent, and of those acknowledged.
    end: Seq,
    sent: Seq,
    una: Seq,
    /// Position of the last mark that stays.
    marked: Seq,
    /// Counts the records that end in what was not sent.
    records: u32,
    /// Whether the octets cut last end what was pushed, or a part that is not to wait.
    pub(crate) pushes: bool,
    /// The end of the last segment that was less than full.
    pub(crate) small_end: Seq,
    /// The end of what was pushed, once it is known that nothing follows.
    pub(crate) is_shut: bool,
    /// Our FIN's place, once it went.
    pub(crate) fin: Option<Seq>,
    /// The sender was told that there is too little room.
    pub(crate) is_wanted: bool,
    /// Octets of the buffer.
    pub(crate) buffer: u32,
    /// Octets of data acknowledged, ever.
    pub(crate) acknowledged: u64,
}

/// The octets that are not acknowledged, and what counts them.
impl Field for Send {
    fn put(&self, out: &mut Writer<'_>) {
        (self.iss, self.snd_wnd, self.max_snd_wnd).put(out);
        (self.fair_wnd, self.snd_wl1, self.shift).put(out);
        (self.sent, self.una, self.small_end).put(out);
        (self.is_shut, self.fin, self.is_wanted).put(out);
        (self.buffer, self.acknowledged).put(out);
        let skipped = self.pieces.front().map_or(0, |first| self.una.since(first.start));
        self.marked.put(out);
        let marked = self.pieces.iter().filter(|piece| piece.mark != Mark::None);
        let marks = marked.map(|piece| (piece.end().since(self.una), piece.mark as u8));
        // Where the first octets kept are acknowledged already, so may be their end.
        marks.filter(|(at, _)| (1..=BUFFER_MAX).contains(at)).collect::<Vec<_>>().put(out);
        put_octets(self.pieces.iter().map(|piece| &piece.octets), skipped as usize, out);
    }

    fn take(from: &mut Reader<'_>) -> Option<Self> {
        let (iss, snd_wnd, max_snd_wnd) = Field::take(from)?;
        let (fair_wnd, snd_wl1, shift) = Field::take(from)?;
        let (sent, una, small_end) = <(Seq, Seq, Seq)>::take(from)?;
        let (is_shut, fin, is_wanted) = Field::take(from)?;
        let (buffer, acknowledged) = Field::take(from)?;
        let marked = Field::take(from)?;
        let marks = Vec::take(from)?;
        let mut send = Self {
            marked,
            snd_wnd,
            max_snd_wnd,
            fair_wnd,
            snd_wl1,
            shift,
            end: una,
            sent,
            una,
            small_end,
            is_shut,
            fin,
            is_wanted,
            acknowledged,
            ..Self::new(iss, buffer)
        };
        send.put_back(take_octets(from)?, marks)?;
        send.current = send.pieces.partition_point(|piece| piece.end().at_or_before(sent));
        send.is_sound().then_some(send)
    }
}

impl Send {
    /// Whether its numbers fit each other.
    fn is_sound(&self) -> bool {
        let [una, sent, end] = [self.una, self.sent, self.end].map(|at| at.since(self.una));
        una <= sent
            && sent <= end
            && end <= BUFFER_MAX
            && self.fin.is_none_or(|fin| self.is_shut && fin == self.sent && fin == self.end)
            && self.shift <= SHIFT_MAX
            && self.snd_wnd <= BUFFER_MAX
            && self.max_snd_wnd <= BUFFER_MAX
            && self.fair_wnd <= BUFFER_MAX
            && self.buffer <= BUFFER_MAX
            && self.acknowledged < 1 << 62
    }

    /// Whether what is outstanding, from `una` to `nxt`, is what was sent.
    pub(super) fn is_outstanding(&self, una: Seq, nxt: Seq) -> bool {
        let first = self.iss + 1;
        let sent = self.sent + u32::from(self.fin.is_some());
        let is_begun = nxt != self.iss || una == self.iss && self.sent == first;
        is_begun
            && (nxt == sent || nxt == self.iss)
            && self.una == if una == self.iss { first } else { una.min(self.sent) }
    }

    pub(crate) fn new(iss: Seq, buffer: u32) -> Self {
        Self {
            iss,
            end: iss + 1,
            sent: iss + 1,
            una: iss + 1,
            marked: iss + 1,
            small_end: iss,
            buffer,
            ..Self::default()
        }
    }

    /// Octets pushed and not sent.
    #[inline]
    pub(crate) fn unsent(&self) -> u32 {
        self.end.since(self.sent)
    }

    /// Octets pushed and not acknowledged.
    pub(crate) fn waiting(&self) -> u32 {
        self.end.since(self.una)
    }

    /// Octets that a push may have now.
    pub(crate) fn space(&self) -> u32 {
        if self.pieces.len() >= PUSHES_MAX {
            return 0;
        }
        self.buffer.saturating_sub(self.waiting())
    }

    /// Puts octets behind each other, with marks at some distances from their beginning; `None` if
    /// the marks are none of theirs.
    fn put_back(&mut self, all: Vec<Message>, marks: Vec<(u32, u8)>) -> Option<()> {
        let mut marks = marks.into_iter().peekable();
        for mut octets in all {
            loop {
                let left = octets.len() as u32;
                let done = self.end.since(self.una);
                let next = marks.peek().and_then(|(at, _)| at.checked_sub(done)).unwrap_or(left);
                let has_mark = marks.peek().is_some() && next <= left;
                let rest = match next < left {
                    true => Some(octets.split_off(next as usize).ok()?),
                    false => None,
                };
                let mark = marks.next_if(|_| has_mark);
                let mark = mark.map_or(Some(Mark::None), |(_, number)| Mark::of(number))?;
                if octets.is_empty() {
                    return None;
                }
                let start = self.end;
                self.end += octets.len() as u32;
                self.records += u32::from(mark == Mark::Record && self.end.after(self.sent));
                self.pieces.push_back(Piece { start, mark, octets });
                match rest {
                    Some(rest) => octets = rest,
                    None => break,
                }
            }
        }
        marks.next().is_none().then_some(())
    }

    /// Puts a message behind what waits; the caller has looked at the space. Its end is marked, and
    /// that of what waited before is not any more: as Linux does.
    pub(crate) fn push(&mut self, mut message: Message) {
        if self.unsent() > 0
            && let Some(last) = self.pieces.back_mut()
            && last.mark == Mark::Push
        {
            last.mark = Mark::None;
        }
        // By slices, so that no part is far from where its piece begins.
        loop {
            let octets = message.front_slice().len();
            let rest = match octets < message.len() {
                true => message.split_off(octets).ok(),
                false => None,
            };
            let start = self.end;
            self.end += message.len() as u32;
            let mut mark = if rest.is_some() { Mark::None } else { Mark::Push };
            if self.end.since(self.marked) > self.max_snd_wnd / 2 {
                (mark, self.marked) = (Mark::Half, self.end);
            }
            self.pieces.push_back(Piece { start, mark, octets: message });
            match rest {
                Some(rest) => message = rest,
                None => break,
            }
        }
    }

    /// Ends a record behind what was pushed so far: what follows goes in other segments.
    pub(crate) fn end_record(&mut self) {
        if let Some(last) = self.pieces.back_mut()
            && last.mark != Mark::Record
        {
            last.mark = Mark::Record;
            self.records += u32::from(self.end != self.sent);
        }
    }

    /// Octets up to the end of the next record, or of all that waits.
    #[inline]
    pub(crate) fn unsent_of_record(&self) -> u32 {
        if self.records == 0 {
            return self.unsent();
        }
        let mut rest = self.pieces.range(self.current..);
        let end = rest.find(|piece| piece.mark == Mark::Record).map_or(self.end, Piece::end);
        end.since(self.sent)
    }

    /// Whether a segment that goes again, up to `upto`, has a mark.
    pub(crate) fn is_marked(&self, from: Seq, upto: Seq) -> bool {
        let at = self.pieces.partition_point(|p| p.end().at_or_before(from));
        let within = self.pieces.range(at..).take_while(|p| p.end().at_or_before(upto));
        within.into_iter().any(|piece| piece.mark != Mark::None)
    }

    /// Takes the next `octets` octets for their first transmission; the message has the headroom of
    /// what was pushed if it is all of that.
    #[inline]
    pub(crate) fn cut(&mut self, octets: u32) -> Result<Message, NoBuffers> {
        let (from, upto) = (self.sent, self.sent + octets);
        let piece = self.pieces.get_mut(self.current).ok_or(NoBuffers)?;
        let (end, mut mark) = (piece.end(), piece.mark);
        let message = if piece.start == from && end == upto {
            let kept = piece.octets.try_clone()?;
            core::mem::replace(&mut piece.octets, kept)
        } else {
            self.part(self.current, from, octets)?
        };
        self.sent = upto;
        if end.after(upto) {
            // A part of one piece, which goes on.
            self.pushes = false;
            return Ok(message);
        }
        self.current += 1;
        if end != upto {
            mark = mark.max(self.pass(upto));
        }
        self.pushes = mark != Mark::None;
        // No cut goes beyond a record.
        if mark == Mark::Record {
            self.records -= 1;
        }
        Ok(message)
    }

    /// Goes behind the pieces that end at `upto` or before; answers the strongest of their marks.
    fn pass(&mut self, upto: Seq) -> Mark {
        let mut mark = Mark::None;
        while let Some(piece) = self.pieces.get(self.current)
            && piece.end().at_or_before(upto)
        {
            self.current += 1;
            mark = mark.max(piece.mark);
        }
        mark
    }

    /// A reference to `octets` octets from `from` on, which lies in the piece `at`.
    #[inline]
    fn part(&self, at: usize, from: Seq, octets: u32) -> Result<Message, NoBuffers> {
        let mut left = octets as usize;
        let mut take = |piece: &Piece, from: Seq| {
            let skipped = from.since(piece.start) as usize;
            let taken = left.min(piece.octets.len().saturating_sub(skipped));
            left -= taken;
            piece.octets.try_clone_part(skipped, taken)
        };
        let first = self.pieces.get(at).ok_or(NoBuffers)?;
        let mut message = take(first, from).map_err(no_buffers)?;
        if message.len() < octets as usize {
            for piece in self.pieces.range(at + 1..) {
                message.join(take(piece, piece.start).map_err(no_buffers)?);
                if message.len() >= octets as usize {
                    break;
                }
            }
        }
        Ok(message)
    }

    /// A reference to at most `octets` octets from `start` on, which went before.
    pub(crate) fn again(&self, start: Seq, octets: u32) -> Option<Message> {
        let at = self.pieces.partition_point(|p| p.end().at_or_before(start));
        let piece = self.pieces.get(at)?;
        if piece.start.after(start) {
            return None;
        }
        let octets = octets.min(self.sent.since(start));
        self.part(at, start, octets).ok()
    }

    /// A reference to at most `octets` octets that were not sent; `None` if there are none.
    pub(crate) fn peek(&self, octets: u32) -> Option<Message> {
        let octets = octets.min(self.unsent());
        if octets == 0 {
            return None;
        }
        self.part(self.current, self.sent, octets).ok()
    }

    /// The peer took the first octet that was not sent, which came to it as a probe of its window.
    pub(crate) fn skip_octet(&mut self) -> bool {
        self.unsent() > 0 && self.cut(1).is_ok()
    }

    /// Releases what lies before `una`.
    #[inline]
    pub(crate) fn acknowledge(&mut self, una: Seq) {
        // Our end counts for one more than there are octets.
        self.una = una.min(self.sent).max(self.una);
        while let Some(piece) = self.pieces.front()
            && piece.end().at_or_before(una)
            && self.current > 0
        {
            self.pieces.pop_front();
            self.current -= 1;
        }
    }

    /// True if a sender that found too little room is to be told: a third is free, so that it
    /// writes more before the rest has gone, and no more than half of `unsent_max` waits.
    pub(crate) fn is_writable(&self, unsent_max: u32) -> bool {
        self.is_wanted && self.space() >= self.buffer / 3 && self.unsent() <= unsent_max / 2
    }

    /// Lets the buffer grow to two congestion windows: what was sent is kept for a round trip, and
    /// as much waits to follow it.
    pub(crate) fn tune(&mut self, congestion_window: u32, buffer_max: u32) {
        self.buffer = self.buffer.max(congestion_window.saturating_mul(2).min(buffer_max));
    }

    /// Octets that are kept, and in how many pieces.
    pub(crate) fn held(&self) -> (u64, usize) {
        (self.end.since(self.una).into(), self.pieces.len())
    }

    /// Releases everything.
    pub(crate) fn clear(&mut self) {
        self.pieces = VecDeque::new();
        (self.current, self.records) = (0, 0);
        (self.sent, self.una) = (self.end, self.end);
    }

    /// Whether [`rest`](Self::rest) has something to give back.
    pub(crate) fn has_slack(&self) -> bool {
        self.pieces.is_empty() && self.pieces.capacity() > 0
    }

    /// Gives back memory that an idle connection does not need.
    pub(crate) fn rest(&mut self) {
        if self.has_slack() {
            self.pieces = VecDeque::new();
        }
    }
}

/// All that is cut lies in what was pushed.
fn no_buffers(_: SplitError) -> NoBuffers {
    NoBuffers
}
