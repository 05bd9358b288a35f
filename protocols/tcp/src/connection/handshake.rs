//! The contents of a SYN, and the SYN that answers it (RFC 9293, section 3.10.7; RFC 7323, section
//! 2; RFC 3168, section 6.1.1; RFC 9768, section 3.1).

use super::ecn::EcnOffer;
use super::settings::{SEGMENT_MIN, Settings};
use crate::options::{Cookie, Options, Tallies, Timestamps};
use crate::seq::Seq;
use crate::wire::{Flags, HEADER_LEN, Header};
use xk_core::Time;
use xk_kit::net::attribute::Ecn;

/// Octets of data in a segment for a peer that says nothing (RFC 9293, section 3.7.1).
pub const SEGMENT_DEFAULT: u16 = 536;

/// The two ends of a connection, and what is known of the path when it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    /// Our port.
    pub local: u16,
    /// The peer's port.
    pub peer: u16,
    /// Octets of the largest message that the layer below carries whole.
    pub path: u32,
    /// Offset with which our timestamps begin (RFC 7323, section 5.4).
    pub clock_offset: u32,
}

impl Ends {
    /// Octets of data that a segment without options may carry on this path.
    #[must_use]
    pub fn segment(&self, settings: &Settings) -> u16 {
        let path = self.path.saturating_sub(HEADER_LEN as u32);
        let path = u16::try_from(path).unwrap_or(u16::MAX).max(SEGMENT_MIN);
        path.min(settings.segment_max)
    }

    /// Our timestamp clock: milliseconds.
    #[inline]
    #[must_use]
    pub fn clock(&self, now: Time) -> u32 {
        (now.as_ms() as u32).wrapping_add(self.clock_offset)
    }
}

/// Contents of the peer's SYN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Syn {
    /// The peer's initial sequence number.
    pub irs: Seq,
    /// The window, in octets: that of a SYN is never scaled.
    pub window: u16,
    /// Octets of data that it takes in a segment.
    pub segment_max: u16,
    /// The shift of its later windows, if it offers scaling.
    pub shift: Option<u8>,
    /// The peer's clock, if it offers timestamps.
    pub clock: Option<u32>,
    /// Whether it understands SACK.
    pub sack: bool,
    /// The flags and the mark that tell of ECN.
    pub ecn: EcnOffer,
    /// The counts of octets, where it answers our SYN.
    pub tallies: Option<Tallies>,
    /// The user timeout, as in the option (RFC 5482).
    pub user_timeout: Option<u16>,
    /// The Fast Open option (RFC 7413); where this side answers, the cookie that it gives.
    pub fast_open: Option<Cookie>,
}

impl Syn {
    /// Reads a header with a SYN.
    #[must_use]
    pub fn of(header: &Header) -> Self {
        let options = &header.options;
        Self {
            irs: header.seq,
            window: header.window,
            segment_max: options.segment_max.unwrap_or(SEGMENT_DEFAULT).max(SEGMENT_MIN),
            shift: options.window_scale,
            clock: options.timestamps.map(|t| t.value),
            sack: options.sack_permitted,
            ecn: EcnOffer::of(header),
            tallies: options.tallies,
            user_timeout: options.user_timeout,
            fast_open: options.fast_open,
        }
    }

    /// Returns it as it came in a packet with this mark.
    #[must_use]
    pub fn marked(mut self, mark: Option<Ecn>) -> Self {
        self.ecn.mark = mark.map_or(0, Ecn::bits);
        self
    }
}

/// The SYN of this side; with what `peer` offered if that is known, and then with its
/// acknowledgement.
#[must_use]
pub fn syn(settings: &Settings, ends: &Ends, iss: Seq, peer: Option<&Syn>, now: Time) -> Header {
    let mut header = Header::new(ends.local, ends.peer, iss, Seq(0), Flags::SYN);
    header.window = settings.receive_buffer.min(u32::from(u16::MAX)) as u16;
    let both = |offered: fn(&Syn) -> bool| peer.is_none_or(offered);
    header.options = Options {
        segment_max: Some(ends.segment(settings)),
        window_scale: (settings.window_scale && both(|p| p.shift.is_some()))
            .then(|| settings.shift()),
        sack_permitted: settings.sack && both(|p| p.sack),
        timestamps: (settings.timestamps && both(|p| p.clock.is_some())).then(|| Timestamps {
            value: ends.clock(now),
            echo: peer.and_then(|p| p.clock).unwrap_or(0),
        }),
        user_timeout: settings.announced(),
        fast_open: peer.and_then(|p| p.fast_open),
        ..Options::NONE
    };
    match peer {
        None => header.flags |= EcnOffer::asking(settings),
        Some(peer) => {
            header.flags |= Flags::ACK | peer.ecn.answer(settings);
            header.options.tallies = peer.ecn.first_tallies(settings, header.options.room());
            header.ack = peer.irs + 1;
        }
    }
    header
}
