//! Options of a socket, in the numbers of Linux (tcp(7), ip(7), socket(7)): kept here, so that they
//! can be asked back and are inherited by accepted streams, and passed on to the stack where it has
//! the like.

use crate::info::tcp_info;
use crate::model_unsafe;
use rustix::io::Errno;
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;
use xk_net::{Arrived, KeepAlive, Sending, Sharing, StreamSetting, TcpStream, Thread, UdpSocket};
use xk_request::{Family, Kind, LOOPBACK_6, Manner, Setting};

/// The congestion controls by the names that both sides know.
const CONGESTION: [(&str, &str); 3] = [("cubic", "cubic"), ("reno", "newreno"), ("bbr", "bbr")];
/// Octets of `TCP_CA_NAME_MAX`.
const CONGESTION_NAME_OCTETS: usize = 16;

/// Options that are set on one socket.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// The kind of socket whose options of Linux's these are.
    kind: Kind,
    family: Family,
    /// The values that were set, by level and option, as Linux would tell them.
    set: HashMap<(i32, i32), i32>,
    /// Seconds, if it is on.
    linger: Option<i32>,
    congestion: Option<usize>,
    /// The other sockets with which it shares its port, if it is bound.
    pub(crate) sharing: Sharing,
}

impl Default for Options {
    fn default() -> Self {
        Self::new(Kind::Stream, Family::V4, Sharing::default())
    }
}

/// The answer for an option that Linux has and the graph has not, and whose absence would be
/// noticed.
pub(crate) const MISSED: Errno = Errno::NOSYS;

/// The number that an option is told to be at: a name by its first octets.
fn number_of(value: &[u8]) -> i32 {
    match *value {
        [octet] => octet.into(),
        _ => number_at(value, 0).unwrap_or(0),
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
/// The options by which programs ask for the values of headers.
const TOLD: [(i32, i32); 4] = [
    (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO),
    (libc::IPPROTO_IP, libc::IP_PKTINFO),
    (libc::IPPROTO_IP, libc::IP_RECVTTL),
    (libc::IPPROTO_IP, libc::IP_RECVTOS),
];
/// The interface that programs are told of: Linux's first, which there is always. The graph's are
/// none of Linux's.
const INTERFACE: i32 = 1;
const WINDOW_CLAMP: (i32, i32) = (libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP);
const HOPS: (i32, i32) = (libc::IPPROTO_IP, libc::IP_TTL);
const GROUP_HOPS: (i32, i32) = (libc::IPPROTO_IP, libc::IP_MULTICAST_TTL);
const GROUP_LOOP: (i32, i32) = (libc::IPPROTO_IP, libc::IP_MULTICAST_LOOP);
const CLASS: (i32, i32) = (libc::IPPROTO_IP, libc::IP_TOS);
const SEGMENT_MAX: (i32, i32) = (libc::IPPROTO_TCP, libc::TCP_MAXSEG);
const QUICK_ACKS: (i32, i32) = (libc::IPPROTO_TCP, libc::TCP_QUICKACK);
const UNSENT_MAX: (i32, i32) = (libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT);

/// Whether the absence of an option of Linux's would be noticed: what it asks for is not done here.
/// All others are done, or change nothing, or only advise: they are taken, and told as they are.
fn is_missed((level, option): (i32, i32), value: &[u8]) -> bool {
    const IPV6_GROUPS: [i32; 2] = [libc::IPV6_ADD_MEMBERSHIP, libc::IPV6_DROP_MEMBERSHIP];
    // Groups of either version, joined, left or narrowed (ip(7)).
    let is_of_groups = match level {
        libc::IPPROTO_IP => (libc::IP_ADD_MEMBERSHIP..=48).contains(&option),
        libc::IPPROTO_IPV6 => IPV6_GROUPS.contains(&option) || (42..=48).contains(&option),
        _ => false,
    };
    let is_on = value.iter().any(|octet| *octet != 0);
    let is_missed = match level {
        libc::IPPROTO_TCP => matches!(
            option,
            libc::TCP_MD5SIG
                | libc::TCP_REPAIR
                | libc::TCP_REPAIR_QUEUE
                | libc::TCP_QUEUE_SEQ
                | libc::TCP_REPAIR_OPTIONS
                | libc::TCP_SAVE_SYN
                | libc::TCP_ULP
                | libc::TCP_MD5SIG_EXT
                // Keys of Fast Open, and none (`TCP_FASTOPEN_KEY`, `TCP_FASTOPEN_NO_COOKIE`).
                | 33..=34
                | libc::TCP_ZEROCOPY_RECEIVE
                | libc::TCP_INQ
                // A delay (`TCP_TX_DELAY`), and keys of TCP-AO.
                | 37..=43
        ),
        libc::IPPROTO_UDP => matches!(option, libc::UDP_CORK | libc::UDP_ENCAP),
        libc::IPPROTO_IP => matches!(
            option,
            libc::IP_OPTIONS
                | libc::IP_IPSEC_POLICY
                | libc::IP_XFRM_POLICY
                | libc::IP_PASSSEC
                | libc::IP_ORIGDSTADDR
                | libc::IP_MINTTL
                | libc::IP_CHECKSUM
                | libc::IP_RECVFRAGSIZE
        ),
        _ => false,
    };
    is_of_groups || is_missed && is_on
}

/// The number of an error of a layer below.
pub(crate) fn errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::INVAL)
}

impl Options {
    /// Makes the options of a new socket that is bound so.
    pub(crate) fn new(kind: Kind, family: Family, sharing: Sharing) -> Self {
        let set = HashMap::new();
        Self { kind, family, set, linger: None, congestion: None, sharing }
    }

    /// Returns what Linux makes of the value of an option.
    fn taken(&self, setting: &Setting) -> Result<i32, Errno> {
        let model = model_unsafe::fresh(self.kind, self.family)?;
        model_unsafe::set(&model, setting)?;
        Ok(number_of(&model_unsafe::get(&model, setting.level, setting.option)?))
    }

    /// Sets one, on the stream, too, if there is one.
    ///
    /// # Errors
    /// Linux's, for a value out of bounds or what is not known; [`MISSED`] for what Linux has and
    /// the graph has not.
    pub(crate) fn set(
        &mut self,
        stream: Option<&TcpStream<Thread>>,
        setting: &Setting,
    ) -> Result<(), Errno> {
        let (option, value) = ((setting.level, setting.option), &setting.value[..]);
        if option == (libc::IPPROTO_TCP, libc::TCP_CONGESTION) {
            return self.set_congestion(stream, value);
        }
        if is_missed(option, value) {
            return Err(MISSED);
        }
        match option {
            (libc::SOL_SOCKET, libc::SO_LINGER) => {
                let (is_on, seconds) = (number_at(value, 0)? != 0, number_at(value, 4)?);
                self.linger = is_on.then_some(seconds);
                return self.apply_linger(stream);
            }
            (libc::SOL_SOCKET, libc::SO_REUSEADDR) => {
                self.sharing.address = number_at(value, 0)? != 0
            }
            (libc::SOL_SOCKET, libc::SO_REUSEPORT) => self.sharing.port = number_at(value, 0)? != 0,
            // Datagrams' affair.
            (libc::SOL_SOCKET, libc::SO_BROADCAST) => {}
            // All sockets here are bound.
            (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) => return Err(Errno::INVAL),
            // Zero takes it back.
            SEGMENT_MAX if number_at(value, 0)? == 0 => {
                self.set.remove(&SEGMENT_MAX);
                return self.apply(stream, SEGMENT_MAX);
            }
            (libc::SOL_SOCKET, _) => {
                self.set.insert(option, number_at(value, 0)?);
                return self.apply(stream, option);
            }
            _ => {
                let number = self.taken(setting)?;
                self.set.insert(option, number);
                return self.apply(stream, option);
            }
        }
        Ok(())
    }

    /// The number that an option is set to, or that it has by itself.
    fn number(&self, option: (i32, i32)) -> i32 {
        let usual = || {
            let model = model_unsafe::fresh(self.kind, self.family).ok()?;
            let (level, option) = option;
            model_unsafe::get(&model, level, option).ok().map(|value| number_of(&value))
        };
        let set = self.set.get(&option).copied();
        set.or_else(|| usual().filter(|_| option.0 != libc::SOL_SOCKET)).unwrap_or(0)
    }

    /// Setting of the stack for an option, if it has one.
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
            RECEIVE_BUFFER | WINDOW_CLAMP => StreamSetting::ReceiveBuffer(self.receive_buffer()?),
            SEND_BUFFER => StreamSetting::SendBuffer(doubled(number)),
            SEGMENT_MAX => StreamSetting::SegmentMax(self.segment_max()),
            QUICK_ACKS => StreamSetting::QuickAcks(number != 0),
            // The other half waits here, and with the program's socket.
            UNSENT_MAX => StreamSetting::UnsentMax((self.unsent_max() / 2).max(1)),
            FAST_OPEN => StreamSetting::FastOpen(number != 0),
            HOPS => StreamSetting::Hops(u8::try_from(number).unwrap_or(0)),
            CLASS => StreamSetting::Class(u8::try_from(number).ok()),
            // None at all below 0 (tcp(7)).
            (libc::IPPROTO_TCP, libc::TCP_LINGER2) => {
                StreamSetting::OrphanTimeout(seconds(libc::TCP_LINGER2))
            }
            (libc::IPPROTO_TCP, libc::TCP_NODELAY) => StreamSetting::NoDelay(number != 0),
            (libc::IPPROTO_TCP, libc::TCP_CORK) => StreamSetting::Cork(number != 0),
            (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT) => {
                let limit = Duration::from_millis(self.tcp(libc::TCP_USER_TIMEOUT).into());
                StreamSetting::UserTimeout((!limit.is_zero()).then_some(limit))
            }
            _ => return None,
        })
    }

    /// Octets of the receive buffer, if the program bounds it: by its own size or by the window
    /// that may be told at most.
    fn receive_buffer(&self) -> Option<u32> {
        let set = |option| self.set.get(&option).copied();
        let own = set(RECEIVE_BUFFER).map(doubled);
        let window = set(WINDOW_CLAMP).filter(|octets| *octets > 0).map(i32::cast_unsigned);
        own.into_iter().chain(window).min()
    }

    /// Sets the hops of datagrams to groups, or whether they come back, on a socket of the stack;
    /// `None` if that is not what was set.
    pub(crate) fn set_to_groups(
        &self,
        setting: &Setting,
        socket: &UdpSocket<Thread>,
    ) -> Option<io::Result<()>> {
        let option = (setting.level, setting.option);
        match option {
            GROUP_HOPS => Some(socket.set_multicast_ttl_v4(self.number(option).cast_unsigned())),
            GROUP_LOOP => Some(socket.set_multicast_loop_v4(self.number(option) != 0)),
            _ => None,
        }
    }

    /// Returns the fields that a datagram to this host asks for: in its own manner, else as it was
    /// set. Groups have hops of their own.
    pub(crate) fn sending(&self, manner: Manner, to: Ipv4Addr) -> Sending {
        let set = |option| self.set.get(&(libc::IPPROTO_IP, option)).map(|number| *number as u8);
        let usual = || if to.is_multicast() { None } else { set(libc::IP_TTL) };
        let hops = if manner.hops == 0 { usual().unwrap_or(0) } else { manner.hops };
        let class = manner.class.or_else(|| set(libc::IP_TOS));
        let from = (!manner.from.is_unspecified()).then(|| manner.from.into());
        Sending { from: from.unwrap_or_default(), hops, class, ..Sending::default() }
    }

    /// Octets of the pieces that each datagram is sent in, if it is.
    pub(crate) fn segment(&self) -> Option<usize> {
        let set = self.set.get(&(libc::IPPROTO_UDP, libc::UDP_SEGMENT));
        set.and_then(|octets| usize::try_from(*octets).ok()).filter(|octets| *octets > 0)
    }

    /// Whether control messages are to tell what headers said.
    pub(crate) fn tells(&self) -> bool {
        TOLD.iter().any(|option| self.is_on(*option))
    }

    fn is_on(&self, option: (i32, i32)) -> bool {
        self.set.get(&option).is_some_and(|number| *number != 0)
    }

    /// The control messages that tell what a header said, as far as they are asked for, in the form
    /// that Linux gives them (cmsg(3)).
    pub(crate) fn control(&self, said: Arrived, family: Family) -> Vec<u8> {
        let mut all = Vec::new();
        let mut put = |level: i32, kind: i32, data: &[u8]| {
            let length = 2 * size_of::<usize>() + data.len();
            all.extend_from_slice(&length.to_ne_bytes());
            all.extend_from_slice(&level.to_ne_bytes());
            all.extend_from_slice(&kind.to_ne_bytes());
            all.extend_from_slice(data);
            all.resize(all.len().next_multiple_of(size_of::<usize>()), 0);
        };
        let (host, six) = match IpAddr::from(said.to) {
            IpAddr::V4(LOOPBACK_6) => (LOOPBACK_6, Ipv6Addr::LOCALHOST),
            IpAddr::V4(host) => (host, host.to_ipv6_mapped()),
            IpAddr::V6(six) => (Ipv4Addr::UNSPECIFIED, six),
        };
        let [six_info, info, hops, class] = TOLD.map(|option| self.is_on(option));
        if six_info && family == Family::V6 {
            let data = [&six.octets()[..], &INTERFACE.to_ne_bytes()].concat();
            put(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &data);
        }
        if info && host != LOOPBACK_6 {
            let data = [INTERFACE.to_ne_bytes(), host.octets(), host.octets()].concat();
            put(libc::IPPROTO_IP, libc::IP_PKTINFO, &data);
        }
        if hops {
            put(libc::IPPROTO_IP, libc::IP_TTL, &i32::from(said.hops).to_ne_bytes());
        }
        if class {
            put(libc::IPPROTO_IP, libc::IP_TOS, &[said.class]);
        }
        all
    }

    /// Octets of the send buffer as the program has said them, if it has.
    pub(crate) fn send_buffer(&self) -> Option<usize> {
        self.set.get(&SEND_BUFFER).and_then(|octets| usize::try_from(*octets).ok())
    }

    /// Bounds the time that a connection is in the making, if the program says how often its first
    /// segment is repeated (`TCP_SYNCNT`): each time it waits twice as long, from a second on (RFC
    /// 6298).
    pub(crate) fn connect_limit(&self) -> Option<Duration> {
        let repeats = self.set.get(&(libc::IPPROTO_TCP, libc::TCP_SYNCNT))?;
        let waits = u32::try_from(*repeats).ok()?.min(30) + 1;
        Some(Duration::from_secs((1u64 << waits) - 1))
    }

    /// All that was set, as Linux's own sockets take it.
    pub(crate) fn raw(&self) -> Vec<Setting> {
        let setting =
            |(level, option), value: &[u8]| Setting { level, option, value: value.into() };
        let numbers =
            self.set.iter().map(|(option, number)| setting(*option, &number.to_ne_bytes()));
        let mut all: Vec<Setting> = numbers.collect();
        if let Some(seconds) = self.linger {
            let value = [1, seconds].map(i32::to_ne_bytes).concat();
            all.push(setting((libc::SOL_SOCKET, libc::SO_LINGER), &value));
        }
        if let Some(at) = self.congestion {
            let name = CONGESTION[at].0.as_bytes();
            all.push(setting((libc::IPPROTO_TCP, libc::TCP_CONGESTION), name));
        }
        all
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
        if matches!(option, RECEIVE_BUFFER | SEND_BUFFER | WINDOW_CLAMP) { Ok(()) } else { applied }
    }

    /// Settings that the first segment of a stream announces.
    pub(crate) fn before(&self) -> Vec<StreamSetting> {
        let is_set = |option: &(i32, i32)| self.set.contains_key(option);
        let announced = [SEGMENT_MAX, RECEIVE_BUFFER, WINDOW_CLAMP, FAST_OPEN, HOPS, CLASS];
        let announced = announced.into_iter().filter(is_set);
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

    /// Returns the bound of peers that have octets here before their handshake is done, if it was
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
            SEGMENT_MAX => {
                let info = stream.map(TcpStream::info).and_then(Result::ok);
                info.map_or(self.number(SEGMENT_MAX), |info| info.segment as i32)
            }
            QUICK_ACKS => {
                let info = stream.map(TcpStream::info).and_then(Result::ok);
                let set = || self.number(QUICK_ACKS) != 0;
                i32::from(info.map_or_else(set, |info| info.detail.quick_acks))
            }
            option if self.set.contains_key(&option) => self.number(option),
            (libc::SOL_SOCKET, _) => 0,
            option if is_missed(option, &[1]) => return Err(Errno::NOPROTOOPT),
            _ => {
                let model = model_unsafe::fresh(self.kind, self.family)?;
                return model_unsafe::get(&model, level, option);
            }
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

/// Size of a buffer that was set to this many octets: Linux doubles the number for its own
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
    fn wishes_for_headers_and_the_time_of_orphans_reach_the_stream() {
        let mut options = Options::default();
        let told = |options: &Options, option| options.of_stream(option);
        let linger = (libc::IPPROTO_TCP, libc::TCP_LINGER2);
        let orphan = |seconds| Some(StreamSetting::OrphanTimeout(Duration::from_secs(seconds)));
        for (option, number, wanted) in [
            (HOPS, 9, Some(StreamSetting::Hops(9))),
            (HOPS, -1, Some(StreamSetting::Hops(64))),
            (CLASS, 0xb8, Some(StreamSetting::Class(Some(0xb8)))),
            (linger, 7, orphan(7)),
            (linger, -5, orphan(0)),
        ] {
            let wish = setting(option.0, option.1, &i32::to_ne_bytes(number));
            assert_eq!(options.set(None, &wish), Ok(()));
            assert_eq!(told(&options, option), wanted, "{option:?} {number}");
        }
        assert_eq!(options.before().len(), 2, "a SYN has both wishes");
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
            (libc::TCP_ULP, b"tls\0", MISSED),
        ] {
            assert_eq!(options.set(None, &setting(tcp, option, value)), Err(why));
        }
        assert_eq!(options.get(None, tcp, libc::TCP_ULP), Err(Errno::NOPROTOOPT));
    }
}
