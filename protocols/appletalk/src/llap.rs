//! LLAP, the LocalTalk link access protocol (Inside AppleTalk, second edition, chapter 1), as far
//! as it is of use without LocalTalk's hardware: frames, and how a node gets its number. Over UDP
//! multicast (LToUDP) the same frames go without their check sequence.

use core::time::Duration;

/// Octets in front of the data.
pub const HEADER_OCTETS: usize = 3;
/// Octets of data in a frame, at most: a datagram with the long header.
pub const DATA_OCTETS_MAX: usize = 600;
/// The number of all nodes.
pub const BROADCAST: u8 = 0xff;
/// Octets in front of a frame of LToUDP, which name the sender.
pub const SENDER_OCTETS: usize = 4;
/// The group of LToUDP.
pub const LTOUDP_GROUP: [u8; 4] = [239, 192, 76, 84];
/// The port of LToUDP.
pub const LTOUDP_PORT: u16 = 1954;

/// Kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A datagram with the short header.
    ShortDatagram,
    /// A datagram with the long header.
    LongDatagram,
    /// Another type of data, 0 or 3 to 127.
    Data(u8),
    /// `lapENQ`: is a node of this number there?
    Enquiry,
    /// `lapACK`: one is.
    Acknowledgement,
    /// `lapRTS` or `lapCTS`, by which nodes share LocalTalk's cable.
    Access(u8),
    /// Another control frame.
    Control(u8),
}

impl Kind {
    /// By its number.
    #[must_use]
    pub const fn of(number: u8) -> Self {
        match number {
            1 => Self::ShortDatagram,
            2 => Self::LongDatagram,
            0x81 => Self::Enquiry,
            0x82 => Self::Acknowledgement,
            0x84 | 0x85 => Self::Access(number),
            0x80.. => Self::Control(number),
            _ => Self::Data(number),
        }
    }

    /// Number of the kind.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::ShortDatagram => 1,
            Self::LongDatagram => 2,
            Self::Enquiry => 0x81,
            Self::Acknowledgement => 0x82,
            Self::Data(number) | Self::Access(number) | Self::Control(number) => number,
        }
    }
}

/// The header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The node that it is for.
    pub to: u8,
    /// The node that it is from; 0 of none.
    pub from: u8,
    /// Kind of the frame.
    pub kind: Kind,
}

/// Why octets are no frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Fewer octets than a header has.
    #[error("the frame is cut short")]
    Truncated,
    /// From all nodes, or from or to none.
    #[error("no node's frame")]
    Node,
}

impl Header {
    /// Reads the header in front of a frame.
    ///
    /// # Errors
    /// [`FrameError`].
    pub fn parse(octets: &[u8]) -> Result<Self, FrameError> {
        let [to, from, kind] = *octets.first_chunk().ok_or(FrameError::Truncated)?;
        if to == 0 || from == 0 || from == BROADCAST {
            return Err(FrameError::Node);
        }
        Ok(Self { to, from, kind: Kind::of(kind) })
    }

    /// Writes it.
    #[must_use]
    pub const fn emit(&self) -> [u8; HEADER_OCTETS] {
        [self.to, self.from, self.kind.number()]
    }
}

/// Rules by which a node gets its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// The numbers that it may have.
    pub first: u8,
    /// The last of them.
    pub last: u8,
    /// Times that it asks for the number that it would have.
    pub enquiries: u8,
    /// The time between.
    pub interval: Duration,
}

impl Rules {
    /// Any number of a workstation, asked for ten times in a second.
    pub const WORKSTATION: Self =
        Self { first: 1, last: 127, enquiries: 10, interval: Duration::from_millis(100) };

    /// Any number of a server.
    pub const SERVER: Self = Self { first: 128, last: 254, ..Self::WORKSTATION };

    /// One of the numbers, by chance.
    fn choose(&self, chance: u32) -> u8 {
        let (first, last) = (self.first.clamp(1, 254), self.last.clamp(1, 254));
        let count = u32::from(last.saturating_sub(first)) + 1;
        first.saturating_add((chance % count) as u8)
    }
}

/// Verdict of a node on a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// The frame has data for this node, or for all.
    Data,
    /// The frame is for another node, or means nothing to this one.
    NotMine,
    /// To be answered by this.
    Answer(Header),
    /// Another node has the number that this one asked for, so that it asks for another.
    Taken,
    /// Another node uses the number that is this one's.
    Conflict,
}

/// Work when a node's time has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// This is to be sent.
    Send(Header),
    /// The number is the node's own from now on.
    Owned(u8),
}

/// A node that gets and keeps its number.
#[derive(Clone, Copy, Debug)]
pub struct Station {
    rules: Rules,
    number: u8,
    sent: u8,
    due: Duration,
    is_owned: bool,
}

impl Station {
    /// A node that asks for `wanted` first, or, if that is 0, for any; `chance` is random.
    #[must_use]
    pub fn new(now: Duration, rules: Rules, wanted: u8, chance: u32) -> Self {
        let number = match wanted {
            0 | BROADCAST => rules.choose(chance),
            wanted => wanted,
        };
        Self { rules, number, sent: 0, due: now, is_owned: false }
    }

    /// Number of the node, once it has one.
    #[must_use]
    pub fn number(&self) -> Option<u8> {
        self.is_owned.then_some(self.number)
    }

    /// Time of the next [`poll`](Self::poll).
    #[must_use]
    pub fn due(&self) -> Option<Duration> {
        (!self.is_owned).then_some(self.due)
    }

    /// Work to be done now, if any.
    pub fn poll(&mut self, now: Duration) -> Option<Step> {
        if self.is_owned || self.due > now {
            return None;
        }
        if self.sent >= self.rules.enquiries {
            self.is_owned = true;
            return Some(Step::Owned(self.number));
        }
        self.sent += 1;
        self.due = now.saturating_add(self.rules.interval);
        let (to, from) = (self.number, self.number);
        Some(Step::Send(Header { to, from, kind: Kind::Enquiry }))
    }

    /// A frame of another node; `chance` is random.
    pub fn hear(&mut self, now: Duration, header: &Header, chance: u32) -> Heard {
        if !self.is_owned {
            // An enquiry for it is another's that wants it, too; all else comes from its owner.
            if header.from == self.number {
                *self = Self::new(now, self.rules, 0, chance);
                return Heard::Taken;
            }
            return Heard::NotMine;
        }
        match header.kind {
            Kind::Enquiry if header.to == self.number => {
                let (to, from) = (header.from, self.number);
                Heard::Answer(Header { to, from, kind: Kind::Acknowledgement })
            }
            _ if header.from == self.number => Heard::Conflict,
            Kind::ShortDatagram | Kind::LongDatagram | Kind::Data(_)
                if header.to == self.number || header.to == BROADCAST =>
            {
                Heard::Data
            }
            _ => Heard::NotMine,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// The reply of tailtalk's node 157 to 42, behind the four octets of its sender.
    const REPLY: &[u8] =
        &[0x2a, 0x9d, 1, 0, 0x0d, 0x81, 4, 4, 2, 0x70, 0x69, 0x6e, 0x67, 0x2d, 0x6c, 0x74];

    #[test]
    fn a_real_frame_is_read_and_made_again() {
        let header = Header::parse(REPLY).unwrap();
        assert_eq!(header, Header { to: 42, from: 157, kind: Kind::ShortDatagram });
        assert_eq!(header.emit(), REPLY[..3]);
        for len in 0..HEADER_OCTETS {
            assert_eq!(Header::parse(&REPLY[..len]), Err(FrameError::Truncated));
        }
        for bad in [[0, 1, 1], [1, 0, 1], [1, 255, 1]] {
            assert_eq!(Header::parse(&bad), Err(FrameError::Node));
        }
    }

    /// Lets a node ask until it owns its number; how often it asked, and the number.
    fn claim(station: &mut Station) -> (usize, u8) {
        let mut asked = 0;
        loop {
            let now = station.due().unwrap();
            match station.poll(now).unwrap() {
                Step::Send(header) => {
                    assert_eq!((header.kind, header.to), (Kind::Enquiry, header.from));
                    asked += 1;
                }
                Step::Owned(number) => {
                    assert_eq!((station.due(), station.poll(ms(1 << 30))), (None, None));
                    return (asked, number);
                }
            }
            assert_eq!(station.poll(now), None);
        }
    }

    #[test]
    fn a_number_that_no_node_answers_for_is_owned_and_defended() {
        let mut station = Station::new(ms(5), Rules::SERVER, 157, 0);
        assert_eq!(claim(&mut station), (10, 157));
        let enquiry = Header { to: 157, from: 157, kind: Kind::Enquiry };
        let answer = Header { to: 157, from: 157, kind: Kind::Acknowledgement };
        assert_eq!(station.hear(ms(0), &enquiry, 0), Heard::Answer(answer));
        let other = Header { to: 42, ..enquiry };
        assert_eq!(station.hear(ms(0), &other, 0), Heard::Conflict);
        let data = |to, from, kind| Header { to, from, kind };
        for (header, heard) in [
            (data(157, 42, Kind::ShortDatagram), Heard::Data),
            (data(255, 42, Kind::LongDatagram), Heard::Data),
            (data(156, 42, Kind::LongDatagram), Heard::NotMine),
            (data(157, 42, Kind::Access(0x84)), Heard::NotMine),
            (data(157, 42, Kind::Acknowledgement), Heard::NotMine),
            (data(42, 157, Kind::ShortDatagram), Heard::Conflict),
        ] {
            assert_eq!(station.hear(ms(0), &header, 0), heard, "{header:?}");
        }
    }

    #[test]
    fn two_nodes_that_want_one_number_end_with_two() {
        for seed in 0..2000u32 {
            let rules = Rules { first: 7, last: 9, ..Rules::WORKSTATION };
            let mut chance = seed;
            let mut next = || {
                chance = chance.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                chance >> 8
            };
            let mut nodes = [0, 1].map(|n| Station::new(ms(n * u64::from(seed % 50)), rules, 7, 0));
            let mut now = ms(0);
            while nodes.iter().any(|node| node.number().is_none()) {
                for at in [0, 1] {
                    if let Some(Step::Send(header)) = nodes[at].poll(now) {
                        let heard = nodes[1 - at].hear(now, &header, next());
                        if let Heard::Answer(answer) = heard {
                            nodes[at].hear(now, &answer, next());
                        }
                    }
                }
                now += ms(1);
                assert!(now < ms(60_000), "seed {seed}");
            }
            assert_ne!(nodes[0].number(), nodes[1].number(), "seed {seed}");
        }
    }

    proptest! {
        #[test]
        fn what_is_read_is_made_again(octets: [u8; 3]) {
            if let Ok(header) = Header::parse(&octets) {
                prop_assert_eq!(header.emit(), octets);
            }
        }
    }
}
