//! Options of a socket, in the numbers of Linux (tcp(7), ip(7), socket(7)): kept here, so that they
//! can be asked back and are inherited by accepted streams, and passed on to the stack where it has
//! the like.

use rustix::io::Errno;
use std::collections::HashMap;
use std::io;
use std::time::Duration;
use xk_net::{KeepAlive, Sharing, StreamInfo, StreamSetting, TcpStream, Thread};
use xk_request::Setting;

/// The congestion controls by the names that both sides know.
const CONGESTION: [(&str, &str); 3] = [("cubic", "cubic"), ("reno", "newreno"), ("bbr", "bbr")];
/// Octets of `TCP_CA_NAME_MAX`.
const CONGESTION_NAME_OCTETS: usize = 16;

/// What is set on one socket.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    nodelay: bool,
    cork: bool,
    keepalive: bool,
    times: KeepAlive,
    user_timeout_ms: u32,
    /// Seconds, if it is on.
    linger: Option<i32>,
    congestion: Option<usize>,
    segment_max: Option<u16>,
    /// Octets, as the program has set them.
    send_buffer: Option<i32>,
    receive_buffer: Option<i32>,
    /// With which others the socket has its port, if it is bound.
    pub(crate) sharing: Sharing,
    /// What only advises, or is only asked back.
    others: HashMap<(i32, i32), i32>,
}

impl Default for Options {
    /// Those of Linux.
    fn default() -> Self {
        Self {
            nodelay: false,
            cork: false,
            keepalive: false,
            times: KeepAlive {
                idle: Duration::from_secs(7200),
                interval: Duration::from_secs(75),
                probes_max: 9,
            },
            user_timeout_ms: 0,
            linger: None,
            congestion: None,
            segment_max: None,
            send_buffer: None,
            receive_buffer: None,
            sharing: Sharing::default(),
            others: HashMap::new(),
        }
    }
}

/// The number that an option of IP is set to: those may have one octet (ip(7)).
fn octet_or_number(value: &[u8]) -> Result<i32, Errno> {
    match *value {
        [octet] | [octet, _] | [octet, _, _] => Ok(octet.into()),
        _ => number_at(value, 0),
    }
}

fn number_at(value: &[u8], at: usize) -> Result<i32, Errno> {
    let octets = value.get(at..at + 4).ok_or(Errno::INVAL)?;
    octets.try_into().map(i32::from_ne_bytes).map_err(|_| Errno::INVAL)
}

/// A number within bounds.
fn within(number: i32, least: i32, most: i32) -> Result<u32, Errno> {
    if (least..=most).contains(&number) {
        return u32::try_from(number).map_err(|_| Errno::INVAL);
    }
    Err(Errno::INVAL)
}

/// Options that only advise: a stack that does not follow them still does what is asked.
fn only_advises(level: i32, option: i32) -> bool {
    match level {
        libc::IPPROTO_TCP => matches!(
            option,
            libc::TCP_QUICKACK
                | libc::TCP_DEFER_ACCEPT
                | libc::TCP_NOTSENT_LOWAT
                | libc::TCP_THIN_LINEAR_TIMEOUTS
                | libc::TCP_THIN_DUPACK
        ),
        libc::IPPROTO_IP => {
            matches!(option, libc::IP_TOS | libc::IP_MTU_DISCOVER | libc::IP_BIND_ADDRESS_NO_PORT)
        }
        libc::IPPROTO_IPV6 => {
            matches!(option, libc::IPV6_V6ONLY | libc::IPV6_TCLASS | libc::IPV6_MTU_DISCOVER)
        }
        _ => false,
    }
}

/// What the error of a layer below is called.
pub(crate) fn errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::INVAL)
}

impl Options {
    /// Those of a socket that was bound so.
    pub(crate) fn of(sharing: Sharing) -> Self {
        Self { sharing, ..Self::default() }
    }

    /// Sets one, on the stream, too, if there is one.
    ///
    /// # Errors
    /// `EINVAL` for a value out of bounds, `ENOPROTOOPT` for what is not known.
    pub(crate) fn set(
        &mut self,
        stream: Option<&TcpStream<Thread>>,
        setting: &Setting,
    ) -> Result<(), Errno> {
        let (level, option, value) = (setting.level, setting.option, &setting.value[..]);
        if (level, option) == (libc::IPPROTO_TCP, libc::TCP_CONGESTION) {
            return self.set_congestion(stream, value);
        }
        let number = match level {
            libc::IPPROTO_IP => octet_or_number(value)?,
            _ => number_at(value, 0)?,
        };
        match (level, option) {
            (libc::SOL_SOCKET, libc::SO_KEEPALIVE) => {
                self.keepalive = number != 0;
                self.apply_keepalive(stream)
            }
            (libc::SOL_SOCKET, libc::SO_LINGER) => {
                let seconds = number_at(value, 4)?;
                self.linger = (number != 0).then_some(seconds);
                self.apply_linger(stream)
            }
            (libc::SOL_SOCKET, libc::SO_RCVBUF) => {
                self.receive_buffer = Some(number);
                set_buffer(stream, option, number)
            }
            (libc::SOL_SOCKET, libc::SO_SNDBUF) => {
                self.send_buffer = Some(number);
                set_buffer(stream, option, number)
            }
            (libc::SOL_SOCKET, libc::SO_REUSEADDR) => {
                self.sharing.address = number != 0;
                Ok(())
            }
            (libc::SOL_SOCKET, libc::SO_REUSEPORT) => {
                self.sharing.port = number != 0;
                Ok(())
            }
            // Datagrams' affair.
            (libc::SOL_SOCKET, libc::SO_BROADCAST) => Ok(()),
            (libc::IPPROTO_TCP, libc::TCP_NODELAY) => {
                self.nodelay = number != 0;
                apply(stream, |stream| stream.set_nodelay(number != 0))
            }
            (libc::IPPROTO_TCP, libc::TCP_CORK) => {
                self.cork = number != 0;
                let setting = StreamSetting::Cork(number != 0);
                apply(stream, |stream| stream.set(setting))
            }
            (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE) => {
                self.times.idle = Duration::from_secs(within(number, 1, 32_767)?.into());
                self.apply_keepalive(stream)
            }
            (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL) => {
                self.times.interval = Duration::from_secs(within(number, 1, 32_767)?.into());
                self.apply_keepalive(stream)
            }
            (libc::IPPROTO_TCP, libc::TCP_KEEPCNT) => {
                self.times.probes_max = within(number, 1, 127)?;
                self.apply_keepalive(stream)
            }
            (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT) => {
                self.user_timeout_ms = within(number, 0, i32::MAX)?;
                self.apply_user_timeout(stream)
            }
            // Zero takes it back.
            (libc::IPPROTO_TCP, libc::TCP_MAXSEG) if number == 0 => {
                self.segment_max = None;
                let setting = StreamSetting::SegmentMax(u16::MAX);
                apply(stream, |stream| stream.set(setting))
            }
            (libc::IPPROTO_TCP, libc::TCP_MAXSEG) => {
                let octets = within(number, 88, 32_767)?;
                let octets = u16::try_from(octets).map_err(|_| Errno::INVAL)?;
                self.segment_max = Some(octets);
                let setting = StreamSetting::SegmentMax(octets);
                apply(stream, |stream| stream.set(setting))
            }
            _ if only_advises(level, option) => {
                self.others.insert((level, option), number);
                Ok(())
            }
            _ => Err(Errno::NOPROTOOPT),
        }
    }

    /// What the first segment of a stream announces.
    pub(crate) fn before(&self) -> Vec<StreamSetting> {
        let buffer = self.receive_buffer.map(doubled);
        let segment = self.segment_max.map(StreamSetting::SegmentMax);
        let buffer = buffer.map(StreamSetting::ReceiveBuffer);
        segment.into_iter().chain(buffer).collect()
    }

    /// The largest segment that peers of a listener are told of, in octets of data.
    pub(crate) fn segment_max(&self) -> u16 {
        self.segment_max.unwrap_or(u16::MAX)
    }

    /// Sets all that differs from what a stream has by itself.
    pub(crate) fn apply_all(&self, stream: &TcpStream<Thread>) {
        let stream = Some(stream);
        // What the stack has not the like of was answered when it was set.
        if self.nodelay {
            let _ = apply(stream, |stream| stream.set_nodelay(true));
        }
        if self.cork {
            let _ = apply(stream, |stream| stream.set(StreamSetting::Cork(true)));
        }
        if self.keepalive {
            let _ = self.apply_keepalive(stream);
        }
        if self.user_timeout_ms != 0 {
            let _ = self.apply_user_timeout(stream);
        }
        if self.linger.is_some() {
            let _ = self.apply_linger(stream);
        }
        if let Some(octets) = self.segment_max {
            let setting = StreamSetting::SegmentMax(octets);
            let _ = apply(stream, |stream| stream.set(setting));
        }
        for (option, octets) in
            [(libc::SO_RCVBUF, self.receive_buffer), (libc::SO_SNDBUF, self.send_buffer)]
        {
            if let Some(octets) = octets {
                let _ = set_buffer(stream, option, octets);
            }
        }
        if let Some(at) = self.congestion {
            let setting = StreamSetting::Congestion(CONGESTION[at].1.into());
            let _ = apply(stream, |stream| stream.set(setting));
        }
    }

    fn apply_keepalive(&self, stream: Option<&TcpStream<Thread>>) -> Result<(), Errno> {
        let times = self.keepalive.then_some(self.times);
        apply(stream, |stream| stream.set_keepalive(times))
    }

    fn apply_user_timeout(&self, stream: Option<&TcpStream<Thread>>) -> Result<(), Errno> {
        let ms = self.user_timeout_ms;
        let limit = (ms != 0).then(|| Duration::from_millis(ms.into()));
        apply(stream, |stream| stream.set(StreamSetting::UserTimeout(limit)))
    }

    fn apply_linger(&self, stream: Option<&TcpStream<Thread>>) -> Result<(), Errno> {
        // A close never waits here; what is not sent goes in the background, unless there is no
        // time at all.
        apply(stream, |stream| stream.set_linger(self.breaks_off().then_some(Duration::ZERO)))
    }

    /// Whether a close breaks the stream off.
    pub(crate) fn breaks_off(&self) -> bool {
        self.linger == Some(0)
    }

    fn set_congestion(
        &mut self,
        stream: Option<&TcpStream<Thread>>,
        value: &[u8],
    ) -> Result<(), Errno> {
        let end = value.iter().position(|octet| *octet == 0);
        let name = &value[..end.unwrap_or(value.len())];
        let known =
            |(linux, ours): &(&str, &str)| [linux.as_bytes(), ours.as_bytes()].contains(&name);
        let at = CONGESTION.iter().position(known).ok_or(Errno::NOENT)?;
        self.congestion = Some(at);
        let setting = StreamSetting::Congestion(CONGESTION[at].1.into());
        apply(stream, |stream| stream.set(setting))
    }

    /// The octets of an option's value.
    ///
    /// # Errors
    /// `ENOPROTOOPT` for what is not known.
    pub(crate) fn get(
        &self,
        stream: Option<&TcpStream<Thread>>,
        level: i32,
        option: i32,
    ) -> Result<Vec<u8>, Errno> {
        let seconds = |time: Duration| time.as_secs() as i32;
        let number = match (level, option) {
            (libc::IPPROTO_TCP, libc::TCP_INFO) => {
                let info = stream.map(TcpStream::info).and_then(Result::ok);
                return Ok(tcp_info(&info.unwrap_or_default()));
            }
            (libc::IPPROTO_TCP, libc::TCP_CONGESTION) => {
                let info = stream.map(TcpStream::info).and_then(Result::ok);
                let ours = info.unwrap_or_default().congestion;
                let runs = CONGESTION.iter().position(|(_, name)| ours == *name);
                let at = runs.or(self.congestion).unwrap_or(0);
                let mut name = CONGESTION[at].0.as_bytes().to_vec();
                name.resize(CONGESTION_NAME_OCTETS, 0);
                return Ok(name);
            }
            (libc::SOL_SOCKET, libc::SO_REUSEPORT) => i32::from(self.sharing.port),
            (libc::IPPROTO_TCP, libc::TCP_NODELAY) => i32::from(self.nodelay),
            (libc::IPPROTO_TCP, libc::TCP_CORK) => i32::from(self.cork),
            (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE) => seconds(self.times.idle),
            (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL) => seconds(self.times.interval),
            (libc::IPPROTO_TCP, libc::TCP_KEEPCNT) => self.times.probes_max as i32,
            (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT) => self.user_timeout_ms as i32,
            (libc::IPPROTO_TCP, libc::TCP_MAXSEG) => {
                let info = stream.map(TcpStream::info).and_then(Result::ok);
                // Without a connection what is set, else what every host takes (RFC 9293, section
                // 3.7.1).
                let before = self.segment_max.map_or(536, i32::from);
                info.map_or(before, |info| info.segment as i32)
            }
            (libc::IPPROTO_IP, libc::IP_TTL) | (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS) => 64,
            (libc::IPPROTO_TCP, libc::TCP_QUICKACK) => 1,
            _ if only_advises(level, option) => {
                let usual = match (level, option) {
                    (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER) => libc::IP_PMTUDISC_WANT,
                    (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER) => libc::IPV6_PMTUDISC_WANT,
                    _ => 0,
                };
                let set = self.others.get(&(level, option));
                set.copied().unwrap_or(usual)
            }
            _ => return Err(Errno::NOPROTOOPT),
        };
        Ok(number.to_ne_bytes().into())
    }
}

fn apply(
    stream: Option<&TcpStream<Thread>>,
    set: impl FnOnce(&TcpStream<Thread>) -> io::Result<()>,
) -> Result<(), Errno> {
    stream.map_or(Ok(()), set).map_err(|error| errno(&error))
}

/// How large a buffer is that was set to so many octets: Linux doubles the number for its own
/// bookkeeping (socket(7)).
pub(crate) fn doubled(octets: i32) -> u32 {
    u32::try_from(octets).unwrap_or(0).saturating_mul(2)
}

/// Linux takes any size, and what it can of it.
fn set_buffer(stream: Option<&TcpStream<Thread>>, option: i32, octets: i32) -> Result<(), Errno> {
    let octets = doubled(octets);
    let setting = match option {
        libc::SO_RCVBUF => StreamSetting::ReceiveBuffer(octets),
        _ => StreamSetting::SendBuffer(octets),
    };
    let _ = apply(stream, |stream| stream.set(setting));
    Ok(())
}

/// The octets of `struct tcp_info` (tcp(7)) as far as the stack knows its members; the others are
/// zero.
fn tcp_info(info: &StreamInfo) -> Vec<u8> {
    /// Up to and with `tcpi_notsent_bytes`.
    const OCTETS: usize = 148;
    let mut octets = vec![0; OCTETS];
    octets[0] = state_number(&info.state);
    let us = |time: Duration| u32::try_from(time.as_micros()).unwrap_or(u32::MAX);
    let segment = info.segment.max(1);
    let (rtt, variation) = info.round_trip.unwrap_or_default();
    for (at, number) in [
        (8, us(info.timeout)),
        (16, info.segment),
        (20, info.segment),
        (24, info.in_flight.div_ceil(segment)),
        // The headers of IPv4 and TCP with the timestamps option.
        (60, info.segment + 52),
        (68, us(rtt)),
        (72, us(variation)),
        (76, info.threshold / segment),
        (80, info.congestion_window / segment),
        (84, info.segment),
        (88, 3),
        (100, u32::try_from(info.retransmissions).unwrap_or(u32::MAX)),
        (144, info.unsent),
    ] {
        octets[at..at + 4].copy_from_slice(&number.to_ne_bytes());
    }
    for (at, number) in [(120, info.acknowledged), (128, info.delivered)] {
        octets[at..at + 8].copy_from_slice(&number.to_ne_bytes());
    }
    octets
}

/// Linux's number of a state.
fn state_number(state: &str) -> u8 {
    const STATES: [&str; 11] = [
        "ESTABLISHED",
        "SYN-SENT",
        "SYN-RECEIVED",
        "FIN-WAIT-1",
        "FIN-WAIT-2",
        "TIME-WAIT",
        "CLOSED",
        "CLOSE-WAIT",
        "LAST-ACK",
        "LISTEN",
        "CLOSING",
    ];
    let at = STATES.iter().position(|name| *name == state);
    at.map_or(7, |at| at as u8 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting(level: i32, option: i32, value: &[u8]) -> Setting {
        Setting { level, option, value: value.into() }
    }

    #[test]
    fn what_is_set_is_asked_back() {
        let mut options = Options::default();
        let tcp = libc::IPPROTO_TCP;
        for (option, usual, number) in [
            (libc::TCP_NODELAY, 0, 1),
            (libc::TCP_CORK, 0, 1),
            (libc::TCP_KEEPIDLE, 7200, 10),
            (libc::TCP_KEEPINTVL, 75, 11),
            (libc::TCP_KEEPCNT, 9, 12),
            (libc::TCP_USER_TIMEOUT, 0, 1500),
            (libc::TCP_DEFER_ACCEPT, 0, 1),
            (libc::TCP_MAXSEG, 536, 400),
        ] {
            let get = |options: &Options| number_at(&options.get(None, tcp, option).unwrap(), 0);
            assert_eq!(get(&options), Ok(usual), "{option}");
            let wanted = setting(tcp, option, &i32::to_ne_bytes(number));
            assert_eq!(options.set(None, &wanted), Ok(()));
            assert_eq!(get(&options), Ok(number), "{option}");
        }
        let name = |options: &Options| options.get(None, tcp, libc::TCP_CONGESTION).unwrap();
        assert!(name(&options).starts_with(b"cubic\0"));
        let reno = setting(tcp, libc::TCP_CONGESTION, b"reno");
        assert_eq!(options.set(None, &reno), Ok(()));
        assert!(name(&options).starts_with(b"reno\0"));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let mut options = Options::default();
        let tcp = libc::IPPROTO_TCP;
        let zero = 0i32.to_ne_bytes();
        for (option, value, why) in [
            (libc::TCP_KEEPIDLE, &zero[..], Errno::INVAL),
            (libc::TCP_KEEPCNT, &200i32.to_ne_bytes(), Errno::INVAL),
            (libc::TCP_NODELAY, &[1], Errno::INVAL),
            (libc::TCP_CONGESTION, b"none", Errno::NOENT),
            (libc::TCP_ULP, b"tls\0", Errno::NOPROTOOPT),
        ] {
            assert_eq!(options.set(None, &setting(tcp, option, value)), Err(why));
        }
        assert_eq!(options.get(None, tcp, libc::TCP_ULP), Err(Errno::NOPROTOOPT));
    }
}
