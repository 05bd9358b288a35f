//! One connection of a script: translates between relative numbers and those on the wire.

use super::segment::{ACK_OPEN, NO_PSH};
use super::spec::{Number, OptionSpec, OptionsSpec, SegmentSpec};
use super::wire::{ACK, FAST_OPEN, FLAGS, PSH, SYN, Tcp, TcpOption};
use core::fmt::Write as _;
use xk_core::{SessionRef, Time};

/// The peer's port of connection 0; the others count up.
pub(super) const PEER_PORT: u16 = 7000;
/// Our port.
pub(super) const OWN_PORT: u16 = 5000;
/// The kind of the timestamp option.
const TIMES: u8 = 8;

/// The octet at a place of the stream that our side sends.
pub(super) fn own_octet(at: u64) -> u8 {
    (at.wrapping_mul(31) ^ (at >> 8) ^ 0x5a) as u8
}

/// The octet at a place of the stream that the peer sends.
pub(super) fn peer_octet(at: u64) -> u8 {
    (at.wrapping_mul(17) ^ (at >> 7) ^ 0xa5) as u8
}

/// A connection.
pub(super) struct Flow {
    pub(super) port: u16,
    pub(super) session: Option<SessionRef>,
    /// The first sequence numbers.
    pub(super) peer_isn: u32,
    pub(super) own_isn: Option<u32>,
    /// Relative numbers behind the last octet that the script has sent, seen, and expected.
    peer_next: u32,
    own_seen: u32,
    own_next: u32,
    /// Highest relative number that the script has acknowledged.
    acked: u32,
    /// The peer's clock for timestamps: its value and when it had it.
    peer_clock: Option<(u32, Time)>,
    /// The first and the latest timestamp seen.
    own_times: Option<(u32, u32)>,
    /// Numbers of octets pushed, delivered, and looked at.
    pub(super) pushed: u64,
    pub(super) delivered: u64,
    pub(super) read: u64,
    /// Octets of data and options that the peer takes in a segment (RFC 9293, section 3.7.1).
    room: usize,
    /// Whether the application has released the session.
    pub(super) released: bool,
    /// The Fast Open option that was seen last with a cookie in it, on whatever connection.
    pub(super) cookie: Option<TcpOption>,
    /// The session below and the first octets of the last segment sent.
    pub(super) last: Option<(SessionRef, [u8; 16])>,
}

impl Flow {
    pub(super) fn new(number: u16, isn: u32) -> Self {
        Self {
            port: PEER_PORT.wrapping_add(number),
            session: None,
            peer_isn: isn,
            own_isn: None,
            peer_next: 0,
            own_seen: 0,
            own_next: 0,
            acked: 0,
            peer_clock: None,
            own_times: None,
            pushed: 0,
            delivered: 0,
            read: 0,
            room: 536,
            released: false,
            cookie: None,
            last: None,
        }
    }

    /// Begins a new connection, with another first sequence number of the peer.
    pub(super) fn renew(&mut self, further: u32) {
        let number = self.port.wrapping_sub(PEER_PORT);
        let clock = self.peer_clock;
        *self = Self::new(number, self.peer_isn.wrapping_add(further));
        self.peer_clock = clock;
    }

    fn own_base(&self) -> u32 {
        self.own_isn.unwrap_or(0)
    }

    /// The segment on the wire that the script injects at `now`.
    pub(super) fn inject(&mut self, spec: &SegmentSpec, now: Time) -> Tcp {
        let flags = spec.flags.unwrap_or(ACK);
        let seq = match spec.seq {
            Number::Is(seq) => seq,
            Number::Next | Number::Any => self.peer_next,
        };
        let ack = match spec.ack {
            Number::Is(ack) => ack,
            Number::Next | Number::Any => self.own_seen,
        };
        let octets = spec.octets.unwrap_or(0);
        let octet = |n: u32| {
            // Data on a SYN begin behind it.
            let first = seq.wrapping_add(u32::from(flags & SYN != 0)).wrapping_sub(1);
            let at = u64::from(first.wrapping_add(n));
            spec.fill.unwrap_or_else(|| peer_octet(at))
        };
        let with_ack = flags & ACK != 0;
        let tcp = Tcp {
            source: spec.from.unwrap_or(self.port),
            destination: spec.to.unwrap_or(OWN_PORT),
            seq: self.peer_isn.wrapping_add(seq),
            ack: if with_ack { self.own_base().wrapping_add(ack) } else { 0 },
            flags,
            window: match spec.window {
                super::spec::Bound::Is(window) => window as u16,
                _ => u16::MAX,
            },
            urgent: spec.urgent.unwrap_or(0),
            options: self.options(spec, now),
            payload: (0..octets).map(octet).collect(),
        };
        if !spec.corrupt && spec.fill.is_none() {
            let end = seq.wrapping_add(tcp.span());
            if seq <= self.peer_next && end > self.peer_next {
                self.peer_next = end;
            }
            if with_ack && ack > self.acked && ack <= self.own_seen {
                self.acked = ack;
            }
        }
        tcp
    }

    fn options(&mut self, spec: &SegmentSpec, now: Time) -> Vec<TcpOption> {
        let none = OptionsSpec::default();
        let wanted = spec.options.as_ref().unwrap_or(&none);
        let is_syn = spec.flags.is_some_and(|flags| flags & SYN != 0);
        let mut spoken = false;
        let mut options = Vec::new();
        for option in &wanted.list {
            match option {
                OptionSpec::Is(TcpOption::Sack(blocks)) => {
                    let base = self.own_base();
                    let add = |(a, b): &(u32, u32)| (base.wrapping_add(*a), base.wrapping_add(*b));
                    options.push(TcpOption::Sack(blocks.iter().map(add).collect()));
                }
                OptionSpec::Is(option) => {
                    if let (TcpOption::Mss(mss), true) = (option, is_syn) {
                        self.room = usize::from(*mss).max(64);
                    }
                    options.push(option.clone());
                }
                OptionSpec::Times(value, echo) => {
                    spoken = true;
                    let value = value.unwrap_or_else(|| self.peer_time(now));
                    if is_syn {
                        self.peer_clock = Some((value, now));
                    }
                    options.push(TcpOption::Times(value, self.echo(*echo)));
                }
                OptionSpec::LastCookie => options.extend(self.cookie.clone()),
                OptionSpec::Absent(kind) => spoken |= *kind == TIMES,
                OptionSpec::Kind(_) => {}
            }
        }
        // Once both sides have agreed, every segment carries a timestamp, unless the script says
        // otherwise.
        if !spoken && !is_syn && self.peer_clock.is_some() && self.own_times.is_some() {
            options.push(TcpOption::Times(self.peer_time(now), self.echo(None)));
        }
        options
    }

    fn peer_time(&self, now: Time) -> u32 {
        let (value, since) = self.peer_clock.unwrap_or((1000, Time::ZERO));
        value.wrapping_add((now.as_ms() - since.as_ms()) as u32)
    }

    fn echo(&self, wanted: Option<u32>) -> u32 {
        let (first, last) = self.own_times.unwrap_or((0, 0));
        wanted.map_or(last, |echo| first.wrapping_add(echo))
    }

    /// Notes a segment that was sent.
    ///
    /// # Errors
    /// A description of wrong data in it.
    pub(super) fn see(&mut self, tcp: &Tcp) -> Result<(), String> {
        if tcp.flags & SYN != 0 && self.own_isn.is_none() {
            self.own_isn = Some(tcp.seq);
        }
        if tcp.flags & SYN == 0 && tcp.payload.len() + tcp.options_len() > self.room {
            return Err(format!("the peer takes {} octets of options and data", self.room));
        }
        for option in &tcp.options {
            if let TcpOption::Times(value, _) = option {
                let (first, _) = self.own_times.unwrap_or((*value, 0));
                self.own_times = Some((first, *value));
            }
        }
        let seq = tcp.seq.wrapping_sub(self.own_base());
        let end = seq.wrapping_add(tcp.span());
        if self.own_isn.is_some() && end > self.own_seen && end < 1 << 31 {
            self.own_seen = end;
        }
        // Data on a SYN begin behind it.
        let first = seq.wrapping_add(u32::from(tcp.flags & SYN != 0));
        for (place, octet) in tcp.payload.iter().enumerate() {
            let place = first.wrapping_add(place as u32);
            let at = u64::from(place.wrapping_sub(1));
            // What is acknowledged may be sent as a probe, and is no data then (RFC 9293,
            // section 3.8.4).
            if place < self.acked {
                continue;
            }
            if at >= self.pushed {
                return Err(format!(
                    "it carries octet {at}, and only {} were written",
                    self.pushed
                ));
            }
            if *octet != own_octet(at) {
                return Err(format!("its octet {at} is not the one that was written"));
            }
        }
        Ok(())
    }

    /// Compares a segment that was sent with what the script expects; answers what differs.
    pub(super) fn compare(&mut self, spec: &SegmentSpec, tcp: &Tcp, ecn: u8) -> Result<(), String> {
        let mut differences = Vec::new();
        let mut differ = |what: &str, seen: String, expected: String| {
            differences.push(format!("{what} is {seen}, not {expected}"));
        };
        if let Some(flags) = spec.flags {
            let mut mask = !(ACK_OPEN | NO_PSH);
            if flags & (PSH | NO_PSH) == 0 {
                mask &= !PSH;
            }
            if flags & ACK_OPEN != 0 {
                mask &= !ACK;
            }
            if (tcp.flags ^ flags) & mask != 0 {
                differ("the flags", letters(tcp.flags), letters(flags));
            }
        }
        let any = spec.flags.is_none() && spec.seq == Number::Next;
        let seq = tcp.seq.wrapping_sub(self.own_base());
        let expected = match spec.seq {
            Number::Is(seq) => Some(seq),
            Number::Next => (!any).then_some(self.own_next),
            Number::Any => None,
        };
        if expected.is_some_and(|expected| expected != seq) {
            differ("the sequence number", seq.to_string(), expected.unwrap_or(0).to_string());
        }
        let octets = tcp.payload.len() as u32;
        if spec.octets.is_some_and(|expected| expected != octets) {
            differ("the data", octets.to_string(), spec.octets.unwrap_or(0).to_string());
        }
        let ack = tcp.ack.wrapping_sub(self.peer_isn);
        let expected = match spec.ack {
            Number::Is(ack) => Some(ack),
            Number::Next => (!any).then_some(self.peer_next),
            Number::Any => None,
        };
        if tcp.flags & ACK != 0 && expected.is_some_and(|expected| expected != ack) {
            differ("the acknowledgment", ack.to_string(), expected.unwrap_or(0).to_string());
        }
        if !spec.window.allows(u64::from(tcp.window)) {
            differ("the window", tcp.window.to_string(), spec.window.to_string());
        }
        if spec.urgent.is_some_and(|urgent| urgent != tcp.urgent) {
            differ("the urgent pointer", tcp.urgent.to_string(), format!("{:?}", spec.urgent));
        }
        if spec.ecn.is_some_and(|expected| expected != ecn) {
            differ("the ECN field", ecn.to_string(), format!("{:?}", spec.ecn));
        }
        if let Some(options) = &spec.options {
            self.compare_options(options, tcp, &mut differ);
        }
        let end = seq.wrapping_add(tcp.span());
        if end > self.own_next && end < 1 << 31 {
            self.own_next = end;
        }
        if differences.is_empty() { Ok(()) } else { Err(differences.join("; ")) }
    }

    fn compare_options(
        &self,
        wanted: &OptionsSpec,
        tcp: &Tcp,
        differ: &mut impl FnMut(&str, String, String),
    ) {
        let mut left: Vec<TcpOption> =
            tcp.options.iter().map(|option| self.relative(option)).collect();
        left.retain(|option| *option != TcpOption::Nop);
        for option in &wanted.list {
            let found = left.iter().position(|seen| match option {
                OptionSpec::LastCookie => Some(seen) == self.cookie.as_ref(),
                _ => fits(option, seen),
            });
            match (option, found) {
                (OptionSpec::Absent(kind), Some(_)) => {
                    differ("an option", format!("of kind {kind}"), "to be there".to_owned());
                }
                (OptionSpec::Absent(_), None) => {}
                (_, Some(at)) => drop(left.remove(at)),
                (_, None) => {
                    differ("the list of options", show_all(&left), format!("with {option:?}"))
                }
            }
        }
        if !left.is_empty() && !wanted.others {
            differ("an option", show_all(&left), "expected".to_owned());
        }
    }

    fn relative(&self, option: &TcpOption) -> TcpOption {
        match option {
            TcpOption::Sack(blocks) => {
                let base = self.peer_isn;
                let less = |(a, b): &(u32, u32)| (a.wrapping_sub(base), b.wrapping_sub(base));
                TcpOption::Sack(blocks.iter().map(less).collect())
            }
            TcpOption::Times(value, echo) => {
                let first = self.own_times.map_or(0, |(first, _)| first);
                TcpOption::Times(value.wrapping_sub(first), *echo)
            }
            _ => option.clone(),
        }
    }

    /// A segment as a script would write it.
    pub(super) fn show(&self, tcp: &Tcp, is_ours: bool, ecn: u8) -> String {
        let (mine, other) = if is_ours {
            (self.own_base(), self.peer_isn)
        } else {
            (self.peer_isn, self.own_base())
        };
        let seq = tcp.seq.wrapping_sub(mine);
        let mut text = format!("{} {seq}", letters(tcp.flags));
        if !tcp.payload.is_empty() {
            let _ = write!(text, ":{}", seq.wrapping_add(tcp.payload.len() as u32));
        }
        if tcp.flags & ACK != 0 {
            let _ = write!(text, " ack {}", tcp.ack.wrapping_sub(other));
        }
        let _ = write!(text, " win {}", tcp.window);
        let options: Vec<TcpOption> = if is_ours {
            tcp.options.iter().map(|option| self.relative(option)).collect()
        } else {
            tcp.options.clone()
        };
        if !options.is_empty() {
            let _ = write!(text, " <{}>", show_all(&options));
        }
        if ecn != 0 {
            let _ = write!(text, " ecn {}", ["no", "ect1", "ect0", "ce"][usize::from(ecn & 3)]);
        }
        text
    }
}

/// The Fast Open option of a segment, if there is a cookie in it.
pub(super) fn cookie_of(tcp: &Tcp) -> Option<&TcpOption> {
    let is_cookie = |option: &&TcpOption| matches!(option, TcpOption::Raw(raw) if raw[0] == FAST_OPEN && raw.len() > 2);
    tcp.options.iter().find(is_cookie)
}

fn letters(flags: u16) -> String {
    let set = FLAGS.iter().filter(|(bit, _)| flags & bit != 0);
    let text: String = set.map(|(_, letter)| *letter).collect();
    if text.is_empty() { "-".to_owned() } else { text }
}

fn fits(wanted: &OptionSpec, seen: &TcpOption) -> bool {
    let kind = match seen {
        TcpOption::End => 0,
        TcpOption::Nop => 1,
        TcpOption::Mss(_) => 2,
        TcpOption::Scale(_) => 3,
        TcpOption::SackOk => 4,
        TcpOption::Sack(_) => 5,
        TcpOption::Times(..) => TIMES,
        TcpOption::UserTimeout(_) => 28,
        TcpOption::Raw(octets) => octets.first().copied().unwrap_or(0),
    };
    match (wanted, seen) {
        (OptionSpec::Is(option), _) => option == seen,
        (OptionSpec::Times(value, echo), TcpOption::Times(v, e)) => {
            value.is_none_or(|value| value == *v) && echo.is_none_or(|echo| echo == *e)
        }
        (OptionSpec::Times(..) | OptionSpec::LastCookie, _) => false,
        (OptionSpec::Kind(wanted) | OptionSpec::Absent(wanted), _) => *wanted == kind,
    }
}

fn show_all(options: &[TcpOption]) -> String {
    let show = |option: &TcpOption| match option {
        TcpOption::Mss(mss) => format!("mss {mss}"),
        TcpOption::Scale(shift) => format!("ws {shift}"),
        TcpOption::SackOk => "sack_ok".to_owned(),
        TcpOption::Sack(blocks) => {
            blocks.iter().fold("sack".to_owned(), |text, (a, b)| format!("{text} {a}:{b}"))
        }
        TcpOption::Times(value, echo) => format!("ts {value} {echo}"),
        TcpOption::UserTimeout(time) => format!("uto {time}"),
        TcpOption::Nop => "nop".to_owned(),
        TcpOption::End => "eol".to_owned(),
        TcpOption::Raw(octets) => {
            octets.iter().fold("raw ".to_owned(), |text, octet| format!("{text}{octet:02x}"))
        }
    };
    options.iter().map(show).collect::<Vec<_>>().join(", ")
}
