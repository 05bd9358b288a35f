//! Explicit congestion notification: how it is agreed on (RFC 3168, section 6.1.1; RFC 9768,
//! section 3.1), and the counts that accurate feedback is made of (RFC 9768, section 3.2).

use super::{AckDue, Connection, Settings};
use crate::options::Tallies;
use crate::seq::Seq;
use crate::state::State;
use crate::wire::{Flags, Header};
use alloc::boxed::Box;
use xk_core::control::{Field, Reader, Writer};
use xk_core::fields;
use xk_kit::net::attribute::Ecn;
use xk_kit::net::stream::{StreamEcn, StreamMarks};

/// Start of both counts of marked packets (RFC 9768, section 3.2.1).
const MARKS_FIRST: u32 = 5;
/// The first values of counts of octets (RFC 9768, section 3.2.1): two of them are never 0 at the
/// beginning, unless something on the way has cleared them.
const OCTETS_FIRST: [u32; 3] = [1, 0, 1];
/// Number of repetitions from which on a SYN,ACK goes without flags (RFC 9768, section 3.2.3.2.2).
const UNMARKED_FROM: u8 = 2;
/// After so many segments in a row that were acknowledged before they came, acknowledgements with
/// counts of octets seem to get lost (RFC 9768, section 3.2.3.2.2).
const REPEATS_MAX: u8 = 2;
/// After so many losses in a row of data with counts of octets these seem to be the cause (RFC
/// 9768, section 3.2.3.2.2).
const LOSSES_MAX: u8 = 2;
/// After so many marked packets the peer is told at once (RFC 9768, section 3.2.2.5.1).
const MARKS_TOLD: u8 = 2;
/// Number of blocks of octets received out of order that go before counts of octets (RFC 9768,
/// section 3.2.3.3).
const BLOCKS_FIRST: usize = 2;
/// The field counts modulo so many.
const FIELD_VALUES: u32 = 8;
/// The flags of a SYN that asks for the usual feedback (RFC 3168, section 6.1.1).
const CLASSIC: u8 = 0b011;

/// The ways in which marks are fed back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) enum Mode {
    /// Not at all.
    #[default]
    No,
    /// By a flag that stands until the sender has heard (RFC 3168).
    Classic,
    /// By a count of marked packets (RFC 9768).
    Accurate,
}

/// The offer of a SYN: its three flags, and the mark on its own packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct EcnOffer {
    /// AE, CWR and ECE as one number.
    flags: u8,
    /// True for a SYN that answers another.
    is_answer: bool,
    /// Counts the times that it was answered again: the option in the answer may be what does not
    /// pass, or the flags (RFC 9768, section 3.2.3.2.2).
    repeats: u8,
    /// The SYN came again without flags: whether the peer will know of what its first one asked for
    /// is not certain.
    is_retracted: bool,
    /// The two bits of the network's header.
    pub(crate) mark: u8,
}

fields!(EcnOffer { flags, is_answer, repeats, is_retracted, mark });

/// The three flags of a header as one number.
fn number(flags: Flags) -> u8 {
    let bit = |flag, value| if flags.has(flag) { value } else { 0 };
    bit(Flags::AE, 4) | bit(Flags::CWR, 2) | bit(Flags::ECE, 1)
}

/// The flags that stand for a number of three bits.
fn flags(number: u32) -> Flags {
    let bit = |value, flag| if number & value != 0 { flag } else { Flags::NONE };
    bit(4, Flags::AE) | bit(2, Flags::CWR) | bit(1, Flags::ECE)
}

/// Encodes, for a SYN,ACK or its acknowledgement, the mark of the packet that they
/// answer (RFC 9768, tables 2 and 3).
fn told(mark: u8) -> u32 {
    [0b010, 0b011, 0b100, 0b110][usize::from(mark & 3)]
}

impl EcnOffer {
    /// None.
    pub const NONE: EcnOffer =
        EcnOffer { flags: 0, is_answer: false, repeats: 0, is_retracted: false, mark: 0 };

    pub(super) fn of(header: &Header) -> Self {
        let is_answer = header.flags.has(Flags::ACK);
        Self { flags: number(header.flags), is_answer, ..Self::NONE }
    }

    /// Returns the flags of a SYN of this side.
    pub(super) fn asking(settings: &Settings) -> Flags {
        match (settings.accurate_ecn, settings.ecn) {
            (true, _) => flags(0b111),
            (_, true) => flags(u32::from(CLASSIC)),
            _ => Flags::NONE,
        }
    }

    /// Agrees with a peer whose SYN asks for this. Combinations that mean nothing yet
    /// ask for accurate feedback (RFC 9768, section 3.1.3).
    pub(super) fn accepted(self, settings: &Settings) -> Mode {
        match self.flags {
            0 => Mode::No,
            CLASSIC if settings.ecn || settings.accurate_ecn => Mode::Classic,
            CLASSIC => Mode::No,
            _ if settings.accurate_ecn => Mode::Accurate,
            0b111 if settings.ecn => Mode::Classic,
            _ => Mode::No,
        }
    }

    /// The flags of the SYN,ACK that answers it.
    pub(super) fn answer(self, settings: &Settings) -> Flags {
        match self.accepted(settings) {
            Mode::No => Flags::NONE,
            Mode::Classic => Flags::ECE,
            Mode::Accurate if self.repeats >= UNMARKED_FROM => Flags::NONE,
            Mode::Accurate => flags(told(self.mark)),
        }
    }

    /// Returns it as it is answered for the `times`-th time again.
    pub(crate) fn repeated(self, times: u8) -> Self {
        Self { repeats: self.repeats.max(times), ..self }
    }

    /// Takes in a SYN that comes again, with this offer: the first one's flags stand, and the
    /// latest one's mark is told (RFC 9768, section 3.1.5). `None` if it asks for another kind of
    /// feedback than the first, so that neither side could know which the other has.
    pub(crate) fn renewed(self, again: Self, settings: &Settings) -> Option<Self> {
        let is_other = self.flags != 0
            && again.flags != 0
            && (self.flags == CLASSIC) != (again.flags == CLASSIC)
            && settings.accurate_ecn;
        let is_retracted = self.is_retracted || again.flags == 0;
        (!is_other).then_some(Self { mark: again.mark, is_retracted, ..self })
    }

    /// The option of the first SYN,ACK that answers it, where other options leave so many octets
    /// (RFC 9768, section 3.2.3.2.1).
    pub(super) fn first_tallies(self, settings: &Settings, room: usize) -> Option<Tallies> {
        let is_told = self.accepted(settings) == Mode::Accurate && self.repeats == 0;
        let count = Tallies::fitting(room).filter(|_| is_told)?;
        Some(Tallies::new(OCTETS_FIRST, count, false))
    }

    /// Agrees with a peer whose SYN,ACK says this.
    fn agreed(self, settings: &Settings) -> Mode {
        match self.flags {
            0 => Mode::No,
            0b001 if settings.ecn || settings.accurate_ecn => Mode::Classic,
            // What was sent, sent back: the peer knows nothing of it.
            0b111 => Mode::No,
            _ if settings.accurate_ecn => Mode::Accurate,
            0b101 if settings.ecn => Mode::Classic,
            _ => Mode::No,
        }
    }

    /// Whether a SYN,ACK that agrees on accurate feedback says that something else was on our SYN
    /// than nothing: what marks what cannot be marked is not to be believed (RFC 9768, section
    /// 3.2.2.3).
    fn is_mangled(self) -> bool {
        !matches!(self.flags, 0b010 | 0b101)
    }
}

/// Octets by ECT(0), CE and ECT(1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Octets([u64; 3]);

impl Field for Octets {
    fn put(&self, out: &mut Writer<'_>) {
        self.0.iter().for_each(|octets| octets.put(out));
    }

    fn take(from: &mut Reader<'_>) -> Option<Self> {
        Some(Self([u64::take(from)?, u64::take(from)?, u64::take(from)?]))
    }
}

impl From<Octets> for StreamMarks {
    fn from(Octets([capable_zero, experienced, capable_one]): Octets) -> Self {
        Self { capable_zero, experienced, capable_one }
    }
}

/// The counts of a connection with accurate feedback.
#[derive(Clone, Debug)]
pub(super) struct Accurate {
    /// Marked packets that came here, from [`MARKS_FIRST`] on.
    received: u32,
    /// Marked packets of ours, as far as the peer has told.
    sent: u32,
    /// Counts the marks that the peer has not been told, of those that came, at least.
    untold: u8,
    /// The last packet that came was marked.
    was_marked: bool,
    /// Octets that came, and those that the peer was told of.
    octets: Octets,
    octets_told: Octets,
    /// Octets of ours that the peer has told of, and how many marked packets were known then.
    octets_sent: Octets,
    sent_then: u32,
    /// Believes the peer's counts of octets.
    is_believed: bool,
    /// Tells our counts of octets.
    tells_octets: bool,
    /// Ours are told though none is new: with the next segment, and with the first data (RFC 9768,
    /// section 3.2.3.2.1).
    first_due: (bool, bool),
    /// Segments in a row that had been acknowledged before they came.
    repeats: u8,
    /// Data that went with counts of octets and are not acknowledged; how many such in a row were
    /// lost.
    carrier: Option<Seq>,
    losses: u8,
    /// The mark that the acknowledgement of the peer's SYN,ACK tells, until one went.
    syn_told: Option<u8>,
    /// Nothing was heard since the handshake.
    is_first: bool,
    /// The acknowledgement of our SYN,ACK tells of that.
    awaits_syn_told: bool,
}

fields!(Accurate {
    received,
    sent,
    untold,
    was_marked,
    octets,
    octets_told,
    octets_sent,
    sent_then,
    is_believed,
    tells_octets,
    first_due,
    repeats,
    carrier,
    losses,
    syn_told,
    is_first,
    awaits_syn_told,
});

impl Field for Box<Accurate> {
    fn put(&self, out: &mut Writer<'_>) {
        (**self).put(out);
    }

    fn take(from: &mut Reader<'_>) -> Option<Self> {
        Accurate::take(from).map(Self::new)
    }
}

impl Accurate {
    /// The field of a segment.
    fn field(&self) -> Flags {
        flags(self.received % FIELD_VALUES)
    }

    /// Counts the newly marked packets of ours, by the field of an acknowledgement of so many
    /// segments: as many as fit it, if acknowledgements between may have been lost (RFC 9768,
    /// section 3.2.2.5.2), unless counts of octets say that there were only so many segments marked
    /// since they were told last.
    fn newly(&mut self, field: u32, segments: u32, told: Option<u32>) -> u32 {
        let least = field.wrapping_sub(self.sent) % FIELD_VALUES;
        let most = match segments.checked_sub(FIELD_VALUES) {
            Some(_) => segments - segments.wrapping_sub(least) % FIELD_VALUES,
            None => least,
        };
        let marks = match told {
            Some(told) => {
                let known = self.sent.wrapping_sub(self.sent_then).saturating_add(least);
                let rounds = told.saturating_sub(known).div_ceil(FIELD_VALUES);
                most.min(least.saturating_add(rounds.saturating_mul(FIELD_VALUES)))
            }
            None => most,
        };
        self.sent = self.sent.wrapping_add(marks);
        marks
    }

    /// Takes the peer's counts of octets in; answers how many more were marked, if they tell.
    fn take_tallies(&mut self, told: &Tallies) -> Option<u64> {
        let told = told.get();
        let Octets(known) = &mut self.octets_sent;
        let before = known[1];
        for ((known, told), first) in known.iter_mut().zip(told).zip(OCTETS_FIRST) {
            let more = told.map(|told| told.wrapping_sub(*known as u32 + first));
            // One that is behind was overtaken.
            let more = more.map(|more| more % Tallies::FIELD_VALUES);
            *known += u64::from(more.filter(|more| *more < Tallies::FIELD_VALUES / 2).unwrap_or(0));
        }
        // A count that is left out has not changed since it was told last; where that got lost is
        // not known.
        (told[1].is_some() || known[1] == 0).then(|| known[1] - before)
    }

    /// Returns true if a segment, with or without data, has counts of octets to tell.
    fn is_to_tell(&self, has_data: bool) -> bool {
        let is_due = self.first_due.0 || has_data && self.first_due.1;
        self.tells_octets && (is_due || self.octets != self.octets_told)
    }

    /// The option for a segment that has room for so many octets more: all counts that ever
    /// changed, but rather those that did since they were told last than none (RFC 9768, section
    /// 3.2.3.3).
    fn tallies(&self, has_data: bool, room: usize) -> Option<Tallies> {
        let room = Tallies::fitting(room).filter(|_| self.is_to_tell(has_data))?;
        let (Octets(octets), Octets(told)) = (self.octets, self.octets_told);
        let is_reversed = octets[0] == 0 && octets[2] > 0;
        let upto = |has: &dyn Fn(usize) -> bool| {
            let at = |place: usize| has(if is_reversed { 2 - place } else { place });
            (0..3).rev().find(|place| at(*place)).map_or(0, |place| place + 1)
        };
        let new = upto(&|at| octets[at] != told[at]);
        let is_due = self.first_due.0 || self.first_due.1;
        let all = if is_due { 3 } else { upto(&|at| octets[at] > 0) };
        let count = room.min(all);
        let mut numbers = OCTETS_FIRST;
        numbers.iter_mut().zip(octets).for_each(|(first, octets)| *first += octets as u32);
        (count >= new).then(|| Tallies::new(numbers, count, is_reversed))
    }

    /// Data from `from` on are believed lost.
    fn note_lost(&mut self, from: Seq) {
        if self.carrier.take_if(|carrier| *carrier == from).is_some() {
            self.losses += 1;
            self.tells_octets &= self.losses < LOSSES_MAX;
        }
    }
}

/// Returns true unless the first counts of octets were cleared on the way (RFC 9768, section
/// 3.2.3.2.4).
fn is_intact(told: Option<Tallies>) -> bool {
    told.is_none_or(|told| {
        told.get().iter().zip(OCTETS_FIRST).all(|(told, first)| first == 0 || *told != Some(0))
    })
}

impl Connection {
    /// The peer's SYN is known: how marks are fed back, both ways.
    pub(super) fn agree_on_ecn(&mut self, offer: EcnOffer, told: Option<Tallies>) {
        let is_told = offer.is_answer;
        let mode = match is_told {
            true => offer.agreed(&self.settings),
            false => offer.accepted(&self.settings),
        };
        self.offer = offer;
        self.ecn = self.ecn_offered && mode != Mode::No;
        self.accurate = (mode == Mode::Accurate).then(|| {
            // RFC 9768, section 3.1.5: whether a peer whose SYN was answered without flags, or came
            // without, knows of this mode is not certain.
            self.ecn &= match is_told {
                true => !offer.is_mangled(),
                false => offer.repeats < UNMARKED_FROM && !offer.is_retracted,
            };
            let is_marked = is_told && offer.mark == Ecn::Experienced.bits();
            let received = MARKS_FIRST + u32::from(is_marked);
            Box::new(Accurate {
                received,
                sent: MARKS_FIRST,
                untold: 0,
                was_marked: false,
                octets: Octets::default(),
                octets_told: Octets::default(),
                octets_sent: Octets::default(),
                sent_then: MARKS_FIRST,
                is_believed: !is_told || is_intact(told),
                tells_octets: true,
                first_due: (is_told, is_told),
                repeats: 0,
                carrier: None,
                losses: 0,
                syn_told: is_told.then_some(offer.mark),
                is_first: true,
                awaits_syn_told: !is_told,
            })
        });
        self.echo = self.accurate.as_ref().map_or(Flags::NONE, |accurate| accurate.field());
        self.is_odd |= self.accurate.is_some();
    }

    /// The SYN or SYN,ACK was not answered: something on the way may not like its flags. What a
    /// SYN of the peer has agreed on stays (RFC 9768, section 3.1.5), but nothing is marked.
    pub(super) fn drop_ecn(&mut self) {
        match self.state {
            State::SynReceived => {
                self.offer = self.offer.repeated(UNMARKED_FROM);
                self.ecn &= self.accurate.is_none();
            }
            _ => (self.ecn_offered, self.ecn) = (false, false),
        }
    }

    /// Takes in the peer's SYN that comes again before the handshake is done; false if it
    /// contradicts the first.
    pub(super) fn take_syn_again(&mut self, again: EcnOffer) -> bool {
        let Some(offer) = self.offer.renewed(again, &self.settings) else {
            return false;
        };
        self.offer = offer;
        self.ecn &= self.accurate.is_none() || !offer.is_retracted;
        true
    }

    /// Takes in a SYN,ACK that comes again, of which the next acknowledgement is to tell: the mark
    /// on the latest, by the encoding for the handshake, where it agrees on accurate feedback (RFC
    /// 9768, section 3.2.2.1). Marked ones count as one (section 3.2.2.2).
    pub(super) fn take_answer_again(&mut self, again: EcnOffer) {
        let is_agreed = again.agreed(&self.settings) == Mode::Accurate;
        let is_known = again.is_answer && self.is_active;
        let Some(accurate) = self.accurate.as_mut().filter(|_| is_known) else {
            return;
        };
        let marked = Ecn::Experienced.bits();
        accurate.syn_told = is_agreed.then_some(again.mark);
        if again.mark == marked && self.offer.mark != marked {
            self.offer.mark = marked;
            accurate.received = accurate.received.wrapping_add(1);
            self.echo = accurate.field();
        }
    }

    /// Takes the mark of the network's header of a segment with so many octets of data.
    pub(super) fn take_mark(&mut self, flags: Flags, mark: Option<Ecn>, octets: usize) {
        let is_marked = mark == Some(Ecn::Experienced);
        self.count_octets(mark, octets as u32);
        let packets = self.runs.packets(octets as u32);
        let Some(accurate) = self.accurate.as_mut() else {
            if self.ecn {
                // RFC 3168, section 6.1.3: told until the sender says that it knows.
                if flags.has(Flags::CWR) {
                    self.echo = Flags::NONE;
                }
                if is_marked {
                    self.echo = Flags::ECE;
                }
            }
            return;
        };
        accurate.syn_told = None;
        accurate.repeats = 0;
        let was_marked = core::mem::replace(&mut accurate.was_marked, is_marked);
        let has_data = octets > 0;
        if !is_marked {
            return;
        }
        if has_data && self.ack_due == AckDue::No {
            accurate.untold = 0;
        }
        accurate.received = accurate.received.wrapping_add(packets);
        accurate.untold = accurate.untold.saturating_add(packets.min(255) as u8);
        // Of marked acknowledgements alone not every second is told, or they would be without end.
        let most = if has_data { MARKS_TOLD } else { 3 * MARKS_TOLD };
        if has_data && !was_marked || accurate.untold >= most {
            (self.ack_due, accurate.untold) = (AckDue::Now, 0);
        }
        self.echo = accurate.field();
    }

    /// Counts octets that came in a packet with this mark (RFC 9768, section 3.2).
    pub(super) fn count_octets(&mut self, mark: Option<Ecn>, octets: u32) {
        if let (Some(accurate), Some(mark)) = (self.accurate.as_mut(), mark) {
            let place = match mark {
                Ecn::CapableZero => 0,
                Ecn::Experienced => 1,
                Ecn::CapableOne => 2,
            };
            accurate.octets.0[place] += u64::from(octets);
        }
    }

    /// Whether an acknowledgement that covers so many octets more tells of congestion. `octets` is
    /// how many of data it has.
    pub(super) fn is_congested(&mut self, header: &Header, octets: usize, covered: u32) -> bool {
        let segments = covered.div_ceil(u32::from(self.segment).max(1));
        let is_alone = octets == 0 && header.options.sack.as_slice().is_empty();
        let Some(accurate) = self.accurate.as_mut() else {
            return self.ecn && header.flags.has(Flags::ECE);
        };
        let field = u32::from(number(header.flags));
        if accurate.is_first {
            accurate.is_believed &= is_intact(header.options.tallies);
        }
        if accurate.carrier.take_if(|carrier| header.ack.after(*carrier)).is_some() {
            accurate.losses = 0;
        }
        let told = header.options.tallies.filter(|_| accurate.is_believed);
        let octets = told.and_then(|told| accurate.take_tallies(&told));
        if core::mem::take(&mut accurate.awaits_syn_told) && is_alone {
            // What was on our SYN,ACK, which nothing may mark (RFC 9768, table 4).
            accurate.is_first = false;
            self.ecn &= !matches!(field, 0 | 0b011 | 0b100 | 0b110);
            accurate.sent += u32::from(field == 0b110);
            return false;
        }
        if core::mem::take(&mut accurate.is_first) && field == 0 {
            // Something clears the flags (RFC 9768, section 3.2.2.4).
            self.ecn = false;
        }
        let told = octets.map(|octets| octets.div_ceil(u64::from(self.segment).max(1)) as u32);
        let marks = accurate.newly(field, segments, told);
        let is_few = self.recovery.board().segments() < FIELD_VALUES;
        if octets.is_some_and(|octets| octets > 0) && accurate.sent == accurate.sent_then {
            // Marked octets without a marked packet, unless the field went round (RFC 9768, section
            // 3.2.3.2.5).
            self.ecn &= !is_few;
        }
        if told.is_some() {
            accurate.sent_then = accurate.sent;
        }
        marks > 0 && self.ecn
    }

    /// Puts on the acknowledgement of the peer's SYN,ACK the mark of that (RFC 9768, table 3), and
    /// on every segment that is no repetition the counts of octets, if they are new.
    pub(super) fn tell_marks(&mut self, header: &mut Header, has_data: bool) {
        let Some(accurate) = self.accurate.as_mut() else {
            return;
        };
        if let Some(mark) = accurate.syn_told.filter(|_| !has_data) {
            header.flags = header.flags.without(flags(0b111)) | flags(told(mark));
        }
        if !accurate.is_to_tell(has_data) {
            return;
        }
        let mut tallies = accurate.tallies(has_data, header.options.room());
        if tallies.is_none() {
            // Two blocks come first, and no more (RFC 9768, section 3.2.3.3).
            let mut fewer = header.options;
            fewer.sack.truncate(BLOCKS_FIRST);
            tallies = accurate.tallies(has_data, fewer.room());
            if tallies.is_some() {
                header.options = fewer;
            }
        }
        if tallies.is_some() {
            accurate.octets_told = accurate.octets;
            accurate.first_due.0 = false;
            accurate.first_due.1 &= !has_data;
            if has_data {
                accurate.carrier.get_or_insert(header.seq);
            }
        }
        header.options.tallies = tallies;
    }

    /// Octets that the next segment with data needs for counts of octets.
    #[inline]
    pub(super) fn tallies_len(&self) -> u32 {
        match self.accurate.as_ref() {
            Some(accurate) if accurate.is_to_tell(true) => Tallies::length(3) as u32,
            _ => 0,
        }
    }

    /// Notes a segment that had been acknowledged before: the acknowledgement may have got lost for
    /// its option (RFC 9768, section 3.2.3.2.2).
    pub(super) fn note_repeat(&mut self) {
        if let Some(accurate) = self.accurate.as_mut() {
            accurate.repeats = accurate.repeats.saturating_add(1);
            accurate.tells_octets &= accurate.repeats < REPEATS_MAX;
        }
    }

    /// Notes that data from `from` on go again.
    pub(super) fn note_carrier_lost(&mut self, from: Seq) {
        if let Some(accurate) = self.accurate.as_mut() {
            accurate.note_lost(from);
        }
    }

    /// The ways in which marks are fed back.
    pub(super) fn ecn_kind(&self) -> StreamEcn {
        match (&self.accurate, self.ecn) {
            (Some(_), _) => StreamEcn::Accurate,
            (None, true) => StreamEcn::Classic,
            (None, false) => StreamEcn::No,
        }
    }

    /// Counts marks fed back until now: packets that came, and ours.
    pub(super) fn marks(&self) -> (u64, u64) {
        let count = |marks: u32| u64::from(marks.wrapping_sub(MARKS_FIRST));
        self.accurate.as_ref().map_or((0, 0), |a| (count(a.received), count(a.sent)))
    }

    /// Octets by marks: those that came, and ours.
    pub(super) fn octets_by_marks(&self) -> [StreamMarks; 2] {
        let accurate = self.accurate.as_ref();
        accurate.map_or_else(Default::default, |a| [a.octets.into(), a.octets_sent.into()])
    }
}
