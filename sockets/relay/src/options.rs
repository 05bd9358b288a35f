//! Options of a socket, in the numbers of Linux (tcp(7), ip(7), socket(7)): kept here, so that they
//! can be asked back and are inherited by accepted streams, and passed on to the stack where it has
//! the like.

use crate::info::tcp_info;
use rustix::io::Errno;
use std::collections::HashMap;
use std::io;
use std::ops::RangeInclusive;
use std::time::Duration;
use xk_net::{KeepAlive, Sharing, StreamSetting, TcpStream, Thread};
use xk_request::Setting;

/// The congestion controls by the names that both sides know.
const CONGESTION: [(&str, &str); 3] = [("cubic", "cubic"), ("reno", "newreno"), ("bbr", "bbr")];
/// Octets of `TCP_CA_NAME_MAX`.
const CONGESTION_NAME_OCTETS: usize = 16;

/// What is set on one socket.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    /// Numbers that were set, by level and option.
    set: HashMap<(i32, i32), i32>,
    /// Seconds, if it is on.
    linger: Option<i32>,
    congestion: Option<usize>,
    /// With which others the socket has its port, if it is bound.
    pub(crate) sharing: Sharing,
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

const KEEPALIVE: (i32, i32) = (libc::SOL_SOCKET, libc::SO_KEEPALIVE);
const RECEIVE_BUFFER: (i32, i32) = (libc::SOL_SOCKET, libc::SO_RCVBUF);
const SEND_BUFFER: (i32, i32) = (libc::SOL_SOCKET, libc::SO_SNDBUF);
const FAST_OPEN: (i32, i32) = (libc::IPPROTO_TCP, libc::TCP_FASTOPEN_CONNECT);
const SEGMENT_MAX: (i32, i32) = (libc::IPPROTO_TCP, libc::TCP_MAXSEG);
const QUICK_ACKS: (i32, i32) = (libc::IPPROTO_TCP, libc::TCP_QUICKACK);
const UNSENT_MAX: (i32, i32) = (libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT);

/// What Linux has an option at from the beginning, and the numbers that it can be set to; `None`
/// for what is no number, or not known.
fn known((level, option): (i32, i32)) -> Option<(i32, RangeInclusive<i32>)> {
    let any = i32::MIN..=i32::MAX;
    Some(match level {
        libc::SOL_SOCKET => match option {
            libc::SO_KEEPALIVE | libc::SO_RCVBUF | libc::SO_SNDBUF => (0, any),
            _ => return None,
        },
        libc::IPPROTO_TCP => match option {
            libc::TCP_NODELAY | libc::TCP_CORK => (0, any),
            libc::TCP_FASTOPEN => (0, 0..=i32::MAX),
            libc::TCP_FASTOPEN_CONNECT => (0, 0..=1),
            libc::TCP_KEEPIDLE => (7200, 1..=32_767),
            libc::TCP_KEEPINTVL => (75, 1..=32_767),
            libc::TCP_KEEPCNT => (9, 1..=127),
            libc::TCP_USER_TIMEOUT => (0, 0..=i32::MAX),
            // Without a connection it is what every host takes (RFC 9293, section 3.7.1).
            libc::TCP_MAXSEG => (536, 88..=32_767),
            // These and those of IP only advise: a stack that does not follow them still does what
            // is asked.
            libc::TCP_QUICKACK => (1, any),
            libc::TCP_DEFER_ACCEPT
            | libc::TCP_NOTSENT_LOWAT
            | libc::TCP_THIN_LINEAR_TIMEOUTS
            | libc::TCP_THIN_DUPACK => (0, any),
            _ => return None,
        },
        libc::IPPROTO_IP => match option {
            libc::IP_TOS | libc::IP_BIND_ADDRESS_NO_PORT => (0, any),
            libc::IP_MTU_DISCOVER => (libc::IP_PMTUDISC_WANT, any),
            _ => return None,
        },
        libc::IPPROTO_IPV6 => match option {
            libc::IPV6_V6ONLY | libc::IPV6_TCLASS => (0, any),
            libc::IPV6_MTU_DISCOVER => (libc::IPV6_PMTUDISC_WANT, any),
            _ => return None,
        },
        _ => return None,
    })
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
        let (option, value) = ((setting.level, setting.option), &setting.value[..]);
        if option == (libc::IPPROTO_TCP, libc::TCP_CONGESTION) {
            return self.set_congestion(stream, value);
        }
        let number = match setting.level {
            libc::IPPROTO_IP => octet_or_number(value)?,
            _ => number_at(value, 0)?,
        };
        match option {
            (libc::SOL_SOCKET, libc::SO_LINGER) => {
                let seconds = number_at(value, 4)?;
                self.linger = (number != 0).then_some(seconds);
                return self.apply_linger(stream);
            }
            (libc::SOL_SOCKET, libc::SO_REUSEADDR) => self.sharing.address = number != 0,
            (libc::SOL_SOCKET, libc::SO_REUSEPORT) => self.sharing.port = number != 0,
            // Datagrams' affair.
            (libc::SOL_SOCKET, libc::SO_BROADCAST) => {}
            // Zero takes it back.
            SEGMENT_MAX if number == 0 => {
                self.set.remove(&SEGMENT_MAX);
                return self.apply(stream, SEGMENT_MAX);
            }
            _ => {
                let (_, range) = known(option).ok_or(Errno::NOPROTOOPT)?;
                if !range.contains(&number) {
                    return Err(Errno::INVAL);
                }
                self.set.insert(option, number);
                return self.apply(stream, option);
            }
        }
        Ok(())
    }

    /// The number that an option is set to, or that it has by itself.
    fn number(&self, option: (i32, i32)) -> i32 {
        let usual = || known(option).map_or(0, |(usual, _)| usual);
        self.set.get(&option).copied().unwrap_or_else(usual)
    }

    /// What the stack is told of an option, if it has the like.
    fn of_stream(&self, option: (i32, i32)) -> Option<StreamSetting> {
        let number = self.number(option);
        let seconds = |option| Duration::from_secs(self.tcp(option).into());
        Some(match option {
            KEEPALIVE
            | (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE | libc::TCP_KEEPINTVL | libc::TCP_KEEPCNT) => {
                let times = KeepAlive {
                    idle: seconds(libc::TCP_KEEPIDLE),
                    interval: seconds(libc::TCP_KEEPINTVL),
                    probes_max: self.tcp(libc::TCP_KEEPCNT),
                };
                StreamSetting::KeepAlive((self.number(KEEPALIVE) != 0).then_some(times))
            }
            RECEIVE_BUFFER => StreamSetting::ReceiveBuffer(doubled(number)),
            SEND_BUFFER => StreamSetting::SendBuffer(doubled(number)),
            SEGMENT_MAX => StreamSetting::SegmentMax(self.segment_max()),
            QUICK_ACKS => StreamSetting::QuickAcks(number != 0),
            // The other half waits here, and with the program's socket.
            UNSENT_MAX => StreamSetting::UnsentMax((self.unsent_max() / 2).max(1)),
            FAST_OPEN => StreamSetting::FastOpen(number != 0),
            (libc::IPPROTO_TCP, libc::TCP_NODELAY) => StreamSetting::NoDelay(number != 0),
            (libc::IPPROTO_TCP, libc::TCP_CORK) => StreamSetting::Cork(number != 0),
            (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT) => {
                let limit = Duration::from_millis(self.tcp(libc::TCP_USER_TIMEOUT).into());
                StreamSetting::UserTimeout((!limit.is_zero()).then_some(limit))
            }
            _ => return None,
        })
    }

    /// The number of an option of TCP, none of which is negative.
    fn tcp(&self, option: i32) -> u32 {
        u32::try_from(self.number((libc::IPPROTO_TCP, option))).unwrap_or(0)
    }

    /// Has an option take effect on the stream, if there is one.
    fn apply(&self, stream: Option<&TcpStream<Thread>>, option: (i32, i32)) -> Result<(), Errno> {
        let Some(setting) = self.of_stream(option) else {
            return Ok(());
        };
        let applied = apply(stream, |stream| stream.set(setting));
        // Linux takes any size of a buffer, and what it can of it.
        if matches!(option, RECEIVE_BUFFER | SEND_BUFFER) { Ok(()) } else { applied }
    }

    /// What the first segment of a stream announces.
    pub(crate) fn before(&self) -> Vec<StreamSetting> {
        let is_set = |option: &(i32, i32)| self.set.contains_key(option);
        let announced = [SEGMENT_MAX, RECEIVE_BUFFER, FAST_OPEN].into_iter().filter(is_set);
        announced.filter_map(|option| self.of_stream(option)).collect()
    }

    /// The largest segment that peers of a listener are told of, in octets of data.
    pub(crate) fn segment_max(&self) -> u16 {
        let set = self.set.get(&SEGMENT_MAX);
        set.and_then(|octets| u16::try_from(*octets).ok()).unwrap_or(u16::MAX)
    }

    /// Octets of the receive buffer that was set, as Linux counts them; as many as there are if
    /// none was.
    pub(crate) fn kept_max(&self) -> u32 {
        self.set.get(&RECEIVE_BUFFER).map_or(u32::MAX, |octets| doubled(*octets))
    }

    /// Octets that may wait to be sent; as many as there are if the program has not said.
    pub(crate) fn unsent_max(&self) -> u32 {
        match self.number(UNSENT_MAX) {
            0 => u32::MAX,
            // A negative number is a large one.
            octets => octets as u32,
        }
    }

    /// How many peers of a listener may have octets here before their handshake is done, if it was
    /// set.
    pub(crate) fn fast_open_max(&self) -> Option<u32> {
        let set = self.set.get(&(libc::IPPROTO_TCP, libc::TCP_FASTOPEN));
        set.and_then(|peers| u32::try_from(*peers).ok())
    }

    /// Sets all that was set here on a stream.
    pub(crate) fn apply_all(&self, stream: &TcpStream<Thread>) {
        let stream = Some(stream);
        // What the stack has not the like of was answered when it was set.
        for option in self.set.keys() {
            let _ = self.apply(stream, *option);
        }
        if self.linger.is_some() {
            let _ = self.apply_linger(stream);
        }
        if let Some(at) = self.congestion {
            let setting = StreamSetting::Congestion(CONGESTION[at].1.into());
            let _ = apply(stream, |stream| stream.set(setting));
        }
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
            (libc::IPPROTO_IP, libc::IP_TTL) | (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS) => 64,
            SEGMENT_MAX => {
                let info = stream.map(TcpStream::info).and_then(Result::ok);
                info.map_or(self.number(SEGMENT_MAX), |info| info.segment as i32)
            }
            QUICK_ACKS => {
                let info = stream.map(TcpStream::info).and_then(Result::ok);
                let set = || self.number(QUICK_ACKS) != 0;
                i32::from(info.map_or_else(set, |info| info.detail.quick_acks))
            }
            (libc::IPPROTO_TCP, libc::TCP_NODELAY | libc::TCP_CORK) => {
                i32::from(self.number((level, option)) != 0)
            }
            option if known(option).is_some() => self.number(option),
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
