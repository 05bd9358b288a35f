//! The receive side: what has arrived, in order and out of it, and the window (RFC 9293, sections
//! 3.8.6 and 3.10.7.4).

use super::settings::BUFFER_MAX;
use super::value::{put_octets, take_octets};
use crate::options::{BLOCKS_MAX, Block, Blocks, SHIFT_MAX};
use crate::seq::Seq;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;
use xk_core::control::{Field, Reader, Writer};
use xk_core::reason::{Class, Reason};
use xk_core::{Message, Time};

/// Out of order, in more pieces than are kept.
pub(crate) static TOO_MANY_PIECES: Reason = Reason::new("too many pieces", Class::Exhausted);
/// All of it had arrived before.
pub(crate) static DUPLICATE: Reason = Reason::new("duplicate", Class::Bad);

/// Runs of octets that are kept out of order: more cost a flood of pieces nothing but its sender's
/// time.
const RUNS_MAX: usize = 128;
/// Least average length, in octets, of segments that are kept out of order: an honest sender's are
/// not shorter.
const SEGMENT_OCTETS_MIN: u32 = 256;
/// Small segments that are kept out of order all the same.
const SMALL_SEGMENTS: u32 = 64;

/// Octets that lie together, out of order.
struct Run {
    start: Seq,
    octets: Message,
    /// Number of segments that brought them.
    segments: u32,
}

impl Run {
    fn end(&self) -> Seq {
        self.start + self.octets.len() as u32
    }
}

/// The receive side of a connection.
#[derive(Default)]
pub(crate) struct Receive {
    /// The peer's initial sequence number.
    pub(crate) irs: Seq,
    /// The next octet expected.
    pub(crate) rcv_nxt: Seq,
    /// The end of the window as it was announced last: it never moves back.
    pub(crate) rcv_adv: Seq,
    /// The shift of the windows that we announce.
    pub(crate) shift: u8,
    /// Octets of the buffer now, and at most.
    pub(crate) buffer: u32,
    pub(crate) buffer_max: u32,
    /// In order, not delivered yet.
    ready: VecDeque<Message>,
    ready_octets: u32,
    /// Delivered, but not consumed; only if the receiver says what it has consumed.
    unconsumed: u32,
    /// Out of order, by start, neither touching nor overlapping.
    runs: Vec<Run>,
    /// The sum over them.
    run_segments: u32,
    /// The runs that segments came to last, the latest first (RFC 2018, section 4).
    recent: [Option<Seq>; BLOCKS_MAX],
    /// Octets that came twice, for the next acknowledgement (RFC 2883).
    pub(crate) duplicate: Option<Block>,
    /// End of the peer's stream.
    pub(crate) fin: Option<Seq>,
    /// The peer's end was taken.
    pub(crate) fin_taken: bool,
    /// The receiver says what it has consumed.
    pub(crate) manual: bool,
    /// Segments that have come out of order.
    pub(crate) out_of_order: u32,
    /// Octets that arrived in order since `tuned_at`.
    tuned_octets: u32,
    tuned_at: Time,
}

/// Result of taking a segment's data.
pub(crate) enum Taken {
    /// The data are the next ones; with them, runs behind may have come in order.
    InOrder {
        /// A gap was filled, or is left: the sender wants to know at once (RFC 5681, section 4.2).
        at_gap: bool,
    },
    /// The data are kept until those before them come.
    OutOfOrder,
    /// The data were dropped.
    Dropped(&'static Reason),
}

impl Field for Run {
    fn put(&self, out: &mut Writer<'_>) {
        (self.start, self.segments).put(out);
        put_octets(core::iter::once(&self.octets), 0, out);
    }

    fn take(from: &mut Reader<'_>) -> Option<Self> {
        let (start, segments) = Field::take(from)?;
        let octets = take_octets(from)?.into_iter().reduce(|mut all, next| {
            all.join(next);
            all
        });
        Some(Self { start, octets: octets?, segments })
    }
}

/// With the octets that were not delivered, in order and out of it.
impl Field for Receive {
    fn put(&self, out: &mut Writer<'_>) {
        (self.irs, self.rcv_nxt, self.rcv_adv).put(out);
        (self.shift, self.buffer, self.buffer_max).put(out);
        (self.unconsumed, self.duplicate, self.manual).put(out);
        (self.fin, self.fin_taken, self.out_of_order).put(out);
        (self.tuned_octets, self.tuned_at).put(out);
        self.recent.iter().for_each(|start| start.put(out));
        put_octets(self.ready.iter(), 0, out);
        self.runs.put(out);
    }

    fn take(from: &mut Reader<'_>) -> Option<Self> {
        let (irs, rcv_nxt, rcv_adv) = Field::take(from)?;
        let (shift, buffer, buffer_max) = Field::take(from)?;
        let (unconsumed, duplicate, manual) = Field::take(from)?;
        let (fin, fin_taken, out_of_order) = Field::take(from)?;
        let (tuned_octets, tuned_at) = Field::take(from)?;
        let mut recent = [None; BLOCKS_MAX];
        for start in &mut recent {
            *start = Field::take(from)?;
        }
        let ready = VecDeque::from(take_octets(from)?);
        let ready_octets = ready.iter().map(|octets| octets.len() as u32).sum();
        let runs = Vec::<Run>::take(from)?;
        let run_segments = runs.iter().map(|run| run.segments).fold(0, u32::saturating_add);
        let receive = Self {
            irs,
            rcv_nxt,
            rcv_adv,
            shift,
            buffer,
            buffer_max,
            ready,
            ready_octets,
            unconsumed,
            runs,
            run_segments,
            recent,
            duplicate,
            fin,
            fin_taken,
            manual,
            out_of_order,
            tuned_octets,
            tuned_at,
        };
        receive.is_sound().then_some(receive)
    }
}

impl Receive {
    /// Octets that came and were not delivered.
    pub(crate) fn waiting(&self) -> u32 {
        self.ready_octets + self.runs.iter().map(|run| run.octets.len() as u32).sum::<u32>()
    }

    /// Whether its numbers fit each other, and runs lie apart in their order.
    fn is_sound(&self) -> bool {
        let off = |at: Seq| at.since(self.rcv_nxt);
        let mut last = 0;
        let runs_lie_apart = self.runs.iter().all(|run| {
            let (start, end) =
                (off(run.start), u64::from(off(run.start)) + run.octets.len() as u64);
            let is_behind = start > last && end <= BUFFER_MAX.into();
            last = end as u32;
            is_behind && run.segments < 1 << 20
        });
        runs_lie_apart
            && self.runs.len() <= RUNS_MAX
            && self.shift <= SHIFT_MAX
            && self.buffer <= self.buffer_max
            && self.buffer_max <= BUFFER_MAX
            && self.window() <= BUFFER_MAX
            && self.unconsumed <= BUFFER_MAX
            && self.ready_octets <= BUFFER_MAX
    }

    /// The largest window that can be announced, in octets, once the shift is agreed on.
    pub(crate) fn window_max(&self) -> u32 {
        u32::from(u16::MAX) << self.shift
    }

    /// Whether all of the buffer can be announced, but for what rounding down leaves.
    pub(super) fn is_announceable(&self) -> bool {
        self.buffer_max < self.window_max() + (1 << self.shift)
    }

    pub(crate) fn new(irs: Seq, buffer: u32, buffer_max: u32, shift: u8, now: Time) -> Self {
        Self {
            irs,
            rcv_nxt: irs + 1,
            rcv_adv: irs + 1,
            shift,
            buffer: buffer.min(buffer_max),
            buffer_max,
            tuned_at: now,
            ..Self::default()
        }
    }

    /// Octets that may still arrive within the window announced.
    #[inline]
    pub(crate) fn window(&self) -> u32 {
        self.rcv_adv.since(self.rcv_nxt)
    }

    /// Octets that there is room for.
    pub(super) fn room(&self) -> u32 {
        self.buffer.saturating_sub(self.ready_octets).saturating_sub(self.unconsumed)
    }

    /// The window to announce now, in octets: what there is room for, unless that is hardly more
    /// than what was announced before (RFC 9293, section 3.8.6.2.2), and never less than that.
    pub(crate) fn window_next(&self, segment: u32) -> u32 {
        let (room, announced) = (self.room(), self.window());
        if room >= announced.saturating_add(segment.min(self.buffer / 2).max(1)) {
            room
        } else {
            announced
        }
    }

    /// Announces the window; answers what the field of the header holds.
    pub(crate) fn announce(&mut self, segment: u32) -> u16 {
        // Rounding down must not take back what was announced.
        let granule = (1_u32 << self.shift) - 1;
        let window = self.window_next(segment);
        let announced = self.window();
        let mut field = window >> self.shift;
        if (field << self.shift) < announced {
            field = (announced + granule) >> self.shift;
        }
        let field = field.min(u32::from(u16::MAX)) as u16;
        self.rcv_adv = self.rcv_adv.max(self.rcv_nxt + (u32::from(field) << self.shift));
        field
    }

    /// Whether the window has opened so far that the peer should hear of it without being asked.
    pub(crate) fn is_opened(&self, segment: u32) -> bool {
        let announced = self.window();
        let next = self.window_next(segment);
        next > announced
            && (next - announced >= self.buffer / 2
                || announced < segment && next >= segment.min(self.buffer / 2))
    }

    /// Takes the data of a segment, cut to the window already; `octets` is not empty.
    pub(crate) fn take(&mut self, seq: Seq, mut octets: Message) -> Taken {
        let (mut start, end) = (seq, seq + octets.len() as u32);
        if end.at_or_before(self.rcv_nxt) {
            self.duplicate = Some((start, end));
            return Taken::Dropped(&DUPLICATE);
        }
        let mut twice = None;
        if start.before(self.rcv_nxt) {
            twice = Some((start, self.rcv_nxt));
            self.duplicate = twice;
            let old = self.rcv_nxt.since(start);
            if !octets.strip(old as usize) {
                return Taken::Dropped(&DUPLICATE);
            }
            start = self.rcv_nxt;
        }
        if start != self.rcv_nxt {
            self.out_of_order = self.out_of_order.wrapping_add(1);
            return self.keep(start, octets);
        }
        if self.runs.is_empty() {
            self.append(octets);
            return Taken::InOrder { at_gap: false };
        }
        self.fill(octets, twice);
        Taken::InOrder { at_gap: true }
    }

    /// Puts octets behind those that are ready.
    #[inline]
    pub(super) fn append(&mut self, octets: Message) {
        let len = octets.len() as u32;
        self.rcv_nxt += len;
        self.ready_octets += len;
        self.tuned_octets = self.tuned_octets.saturating_add(len);
        self.ready.push_back(octets);
    }

    /// The octets fill (a part of) the first gap: runs that follow come in order with them. It is
    /// one run nearly always, for runs do not touch each other. Of several parts that came twice
    /// the first is told, be it `twice` (RFC 2883, section 4.2.2).
    fn fill(&mut self, octets: Message, mut twice: Option<Block>) {
        self.append(octets);
        let end = self.rcv_nxt;
        while let Some(first) = self.runs.first()
            && first.start.at_or_before(end)
        {
            let mut run = self.runs.remove(0);
            self.run_segments -= run.segments;
            let (start, run_end) = (run.start, run.end());
            if start.before(self.rcv_nxt) {
                self.duplicate = Some(*twice.get_or_insert((start, self.rcv_nxt.min(run_end))));
                let known = self.rcv_nxt.since(start).min(run_end.since(start));
                if !run.octets.strip(known as usize) || run.octets.is_empty() {
                    continue;
                }
            }
            self.append(run.octets);
        }
        let rcv_nxt = self.rcv_nxt;
        for place in &mut self.recent {
            *place = place.filter(|start| start.after(rcv_nxt));
        }
    }

    /// Keeps octets that are out of order.
    fn keep(&mut self, start: Seq, octets: Message) -> Taken {
        if !self.make_room(start) {
            return Taken::Dropped(&TOO_MANY_PIECES);
        }
        let end = start + octets.len() as u32;
        // The first run that begins behind the start: usually none.
        let at = self.runs.iter().rposition(|run| run.start.at_or_before(start));
        let at = at.map_or(0, |before| before + 1);
        let before = at.checked_sub(1);
        if let Some(run) = before.and_then(|before| self.runs.get(before))
            && end.at_or_before(run.end())
        {
            self.duplicate = Some((start, end));
            self.note(run.start);
            return Taken::Dropped(&DUPLICATE);
        }
        match self.insert(at, start, octets) {
            Ok(()) => Taken::OutOfOrder,
            Err(why) => Taken::Dropped(why),
        }
    }

    /// Sees to it that one more segment can be kept; false if it is not to be. What lies farther
    /// off makes room for what is nearer (RFC 2018, section 8): or else a full place would be no
    /// use to what is needed first.
    fn make_room(&mut self, start: Seq) -> bool {
        let segments_max = SMALL_SEGMENTS + self.buffer / SEGMENT_OCTETS_MIN;
        while self.run_segments >= segments_max || self.runs.len() >= RUNS_MAX {
            match self.runs.pop_if(|last| last.start.after(start)) {
                Some(last) => self.run_segments -= last.segments,
                None => return self.run_segments < segments_max,
            }
        }
        true
    }

    /// Puts octets in front of the run `at`, joined with those that it touches.
    fn insert(
        &mut self,
        at: usize,
        start: Seq,
        mut octets: Message,
    ) -> Result<(), &'static Reason> {
        let (mut start, end) = (start, start + octets.len() as u32);
        let (mut at, mut segments, mut twice) = (at, 1, None);
        let before = at.checked_sub(1).and_then(|before| self.runs.get(before));
        let touches = before.is_some_and(|run| run.end().at_or_after(start));
        if !touches && self.runs.len() >= RUNS_MAX {
            return Err(&TOO_MANY_PIECES);
        }
        if touches && let Some(before) = at.checked_sub(1) {
            let mut run = self.runs.remove(before);
            at = before;
            segments += run.segments;
            let known = run.end().since(start);
            if known > 0 {
                twice = Some((start, run.end()));
            }
            if octets.strip(known as usize) {
                run.octets.join(octets);
            }
            (start, octets) = (run.start, run.octets);
        }
        while let Some(next) = self.runs.get(at)
            && next.start.at_or_before(end)
        {
            let next = self.runs.remove(at);
            segments += next.segments;
            let known = end.since(next.start);
            if known > 0 {
                twice.get_or_insert((next.start, end.min(next.end())));
            }
            let mut behind = next.octets;
            if behind.strip(known as usize) {
                octets.join(behind);
            }
            if next.start + known != end {
                break;
            }
        }
        // Of several the first is told (RFC 2883, section 4.2.2).
        self.duplicate = twice.or(self.duplicate);
        self.note(start);
        self.run_segments += 1;
        let run = Run { start, octets, segments };
        self.runs.insert(at, run);
        Ok(())
    }

    /// Notes the run that a segment came to last.
    fn note(&mut self, start: Seq) {
        let mut moved = Some(start);
        for place in &mut self.recent {
            let old = core::mem::replace(place, moved);
            moved = old;
            if old.is_none() || old == Some(start) {
                break;
            }
        }
    }

    /// Octets in order that are kept, here or above, and in how many pieces.
    pub(crate) fn held(&self) -> (u64, usize) {
        (u64::from(self.ready_octets) + u64::from(self.unconsumed), self.ready.len())
    }

    /// Releases what is kept out of order, though the sender may have been told of it (RFC 2018,
    /// section 8); answers how many segments brought it.
    pub(crate) fn drop_runs(&mut self) -> u32 {
        self.runs = Vec::new();
        self.recent = [None; BLOCKS_MAX];
        core::mem::take(&mut self.run_segments)
    }

    /// Whether anything is kept out of order.
    #[inline]
    pub(crate) fn has_gap(&self) -> bool {
        !self.runs.is_empty()
    }

    /// The blocks to tell the sender: what came twice, then the runs that segments came to last
    /// (RFC 2018, section 4).
    pub(crate) fn blocks(&mut self, max: usize) -> Blocks {
        let mut blocks = Blocks::NONE;
        if let Some(duplicate) = self.duplicate.take() {
            blocks.push(duplicate);
        }
        if self.runs.is_empty() {
            blocks.truncate(max);
            return blocks;
        }
        for start in self.recent.iter().flatten() {
            let after = self.runs.partition_point(|run| run.start.at_or_before(*start));
            let run = after.checked_sub(1).and_then(|at| self.runs.get(at));
            if let Some(run) = run
                && start.before(run.end())
                && !blocks.as_slice().iter().skip(1).any(|b| b.0 == run.start)
                && blocks.as_slice().first() != Some(&(run.start, run.end()))
            {
                blocks.push((run.start, run.end()));
            }
        }
        blocks.truncate(max);
        blocks
    }

    /// Octets that wait to be delivered.
    #[inline]
    pub(crate) fn ready_octets(&self) -> u32 {
        self.ready_octets
    }

    /// Octets of the message that is delivered next.
    #[inline]
    pub(crate) fn next_len(&self) -> Option<usize> {
        self.ready.front().map(Message::len)
    }

    /// The next message to deliver, or at most `octets` of its octets; all of it if it cannot be
    /// split for want of memory.
    pub(crate) fn deliver_at_most(&mut self, octets: usize) -> Option<Message> {
        let next = self.ready.front_mut()?;
        if octets < next.len()
            && let Ok(front) = next.split_front(octets)
        {
            self.ready.push_front(front);
        }
        self.deliver()
    }

    /// The next message to deliver.
    #[inline]
    pub(crate) fn deliver(&mut self) -> Option<Message> {
        let message = self.ready.pop_front()?;
        let octets = message.len() as u32;
        self.ready_octets -= octets;
        if self.manual {
            self.unconsumed += octets;
        }
        Some(message)
    }

    /// Puts back what was delivered last.
    pub(crate) fn deliver_again(&mut self, message: Message) {
        let octets = message.len() as u32;
        self.ready_octets += octets;
        if self.manual {
            self.unconsumed = self.unconsumed.saturating_sub(octets);
        }
        self.ready.push_front(message);
    }

    /// Whether [`rest`](Self::rest) has something to give back.
    pub(crate) fn has_slack(&self) -> bool {
        self.ready.is_empty() && self.ready.capacity() > 0
            || self.runs.is_empty() && self.runs.capacity() > 0
    }

    /// Gives back memory that an idle connection does not need.
    pub(crate) fn rest(&mut self) {
        if self.ready.is_empty() {
            self.ready = VecDeque::new();
        }
        if self.runs.is_empty() {
            self.runs = Vec::new();
        }
    }

    /// The receiver has consumed so many octets more.
    pub(crate) fn consumed(&mut self, octets: u32) {
        self.unconsumed = self.unconsumed.saturating_sub(octets);
    }

    /// Whether the peer's end has come, with everything before it.
    pub(crate) fn is_at_end(&self) -> bool {
        !self.fin_taken && self.fin == Some(self.rcv_nxt)
    }

    /// Takes the peer's end.
    pub(crate) fn take_end(&mut self) {
        self.fin_taken = true;
        self.rcv_nxt += 1;
        self.rcv_adv = self.rcv_adv.max(self.rcv_nxt);
        self.runs.clear();
        self.run_segments = 0;
    }

    /// Whether so much has arrived that [`tune`](Self::tune) has something to do.
    #[inline]
    pub(crate) fn is_to_tune(&self) -> bool {
        self.tuned_octets >= self.buffer / 2 && self.buffer < self.buffer_max
    }

    /// Lets the buffer grow with what arrives: if more than half of it came within a round trip,
    /// the window is what limits the sender (dynamic right-sizing). A sender's pauses are no reason
    /// to shrink.
    pub(crate) fn tune(&mut self, now: Time, round_trip: Option<Duration>) {
        if !self.is_to_tune() {
            return;
        }
        let elapsed = now.since(self.tuned_at);
        // Without a round trip time, a window's worth is taken for one.
        if elapsed <= round_trip.unwrap_or(elapsed) * 2 {
            self.buffer = self.buffer.saturating_mul(2).min(self.buffer_max);
        }
        (self.tuned_octets, self.tuned_at) = (0, now);
    }

    /// Releases everything that was not delivered.
    pub(crate) fn clear(&mut self) {
        self.ready = VecDeque::new();
        self.runs = Vec::new();
        self.ready_octets = 0;
        self.run_segments = 0;
    }
}
