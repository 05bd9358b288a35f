//! Explicit congestion notification: how it is agreed on (RFC 3168, section 6.1.1; RFC 9768,
//! section 3.1), and the counts that accurate feedback is made of (RFC 9768, section 3.2).

use super::{AckDue, Connection, Settings};
use crate::state::State;
use crate::wire::{Flags, Header};
use alloc::boxed::Box;
use xk_core::control::{Field, Reader, Writer};
use xk_core::fields;
use xk_kit::net::attribute::Ecn;
use xk_kit::net::stream::StreamEcn;

/// Where both counts of marked packets begin (RFC 9768, section 3.2.1).
const MARKS_FIRST: u32 = 5;
/// After so many marked packets the peer is told at once (RFC 9768, section 3.2.2.5.1).
const MARKS_TOLD: u8 = 2;
/// The field counts modulo so many.
const FIELD_VALUES: u32 = 8;

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
    /// The two bits of the network's header.
    pub(crate) mark: u8,
}

fields!(EcnOffer { flags, is_answer, mark });

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
    pub const NONE: EcnOffer = EcnOffer { flags: 0, is_answer: false, mark: 0 };

    pub(super) fn of(header: &Header) -> Self {
        let is_answer = header.flags.has(Flags::ACK);
        Self { flags: number(header.flags), is_answer, mark: 0 }
    }

    /// Returns the flags of a SYN of this side.
    pub(super) fn asking(settings: &Settings) -> Flags {
        match (settings.accurate_ecn, settings.ecn) {
            (true, _) => flags(0b111),
            (_, true) => flags(0b011),
            _ => Flags::NONE,
        }
    }

    /// Agrees with a peer whose SYN asks for this. Combinations that mean nothing yet
    /// ask for accurate feedback (RFC 9768, section 3.1.3).
    pub(super) fn accepted(self, settings: &Settings) -> Mode {
        match self.flags {
            0 => Mode::No,
            0b011 if settings.ecn || settings.accurate_ecn => Mode::Classic,
            0b011 => Mode::No,
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
            Mode::Accurate => flags(told(self.mark)),
        }
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
    /// The mark that the acknowledgement of the peer's SYN,ACK tells, until one went.
    syn_told: Option<u8>,
    /// Nothing was heard since the handshake.
    is_first: bool,
    /// The acknowledgement of our SYN,ACK tells of that.
    awaits_syn_told: bool,
}

fields!(Accurate { received, sent, untold, was_marked, syn_told, is_first, awaits_syn_told });

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
    /// section 3.2.2.5.2).
    fn newly(&mut self, field: u32, segments: u32) -> u32 {
        let least = field.wrapping_sub(self.sent) % FIELD_VALUES;
        let marks = match segments.checked_sub(FIELD_VALUES) {
            Some(_) => segments - segments.wrapping_sub(least) % FIELD_VALUES,
            None => least,
        };
        self.sent = self.sent.wrapping_add(marks);
        marks
    }
}

impl Connection {
    /// The peer's SYN is known: how marks are fed back, both ways.
    pub(super) fn agree_on_ecn(&mut self, offer: EcnOffer) {
        let is_told = offer.is_answer;
        let mode = match is_told {
            true => offer.agreed(&self.settings),
            false => offer.accepted(&self.settings),
        };
        self.offer = offer;
        self.ecn = self.ecn_offered && mode != Mode::No;
        self.accurate = (mode == Mode::Accurate).then(|| {
            if is_told {
                self.ecn &= !offer.is_mangled();
            }
            let is_marked = is_told && offer.mark == Ecn::Experienced.bits();
            let received = MARKS_FIRST + u32::from(is_marked);
            Box::new(Accurate {
                received,
                sent: MARKS_FIRST,
                untold: 0,
                was_marked: false,
                syn_told: is_told.then_some(offer.mark),
                is_first: true,
                awaits_syn_told: !is_told,
            })
        });
        self.echo = self.accurate.as_ref().map_or(Flags::NONE, |accurate| accurate.field());
        self.is_odd |= self.accurate.is_some();
    }

    /// The SYN,ACK was not answered: something on the way may not like its flags.
    pub(super) fn drop_ecn(&mut self) {
        (self.ecn_offered, self.ecn) = (false, false);
        if self.state == State::SynReceived {
            (self.offer, self.accurate) = (EcnOffer::NONE, None);
            self.echo = Flags::NONE;
        }
    }

    /// Takes the mark of the network's header of a segment with so many octets of data.
    pub(super) fn take_mark(&mut self, flags: Flags, is_marked: bool, octets: usize) {
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

    /// Whether an acknowledgement that covers so many octets more tells of congestion. `octets` is
    /// how many of data it has.
    pub(super) fn is_congested(
        &mut self,
        header: &Header,
        (octets, covered): (usize, u32),
    ) -> bool {
        let segments = covered.div_ceil(u32::from(self.segment).max(1));
        let is_alone = octets == 0 && header.options.sack.as_slice().is_empty();
        let Some(accurate) = self.accurate.as_mut() else {
            return self.ecn && header.flags.has(Flags::ECE);
        };
        let field = u32::from(number(header.flags));
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
        accurate.newly(field, segments) > 0 && self.ecn
    }

    /// Puts on the acknowledgement of the peer's SYN,ACK what was on that (RFC 9768, table 3).
    pub(super) fn tell_of_syn(&mut self, header: &mut Header) {
        if let Some(accurate) = self.accurate.as_mut()
            && let Some(mark) = accurate.syn_told
        {
            header.flags = header.flags.without(flags(0b111)) | flags(told(mark));
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
}
