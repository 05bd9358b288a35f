//! Options that go with a socket into its new life as the graph's, and from a listener to the
//! streams that it accepts.

use crate::ask::ask;
use crate::said;
use crate::socket_unsafe::{copy_option, option, option_octets};
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicI64, Ordering};
use xk_request::{Request, Setting};

/// Options that the relay is told of if the program has set them.
const CARRIED: [(i32, i32); 58] = [
    (libc::IPPROTO_TCP, libc::TCP_NODELAY),
    (libc::IPPROTO_TCP, libc::TCP_CORK),
    (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE),
    (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL),
    (libc::IPPROTO_TCP, libc::TCP_KEEPCNT),
    (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT),
    (libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT),
    (libc::IPPROTO_TCP, libc::TCP_MAXSEG),
    // A name, by its first octets.
    (libc::IPPROTO_TCP, libc::TCP_CONGESTION),
    (libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT),
    (libc::IPPROTO_TCP, libc::TCP_THIN_LINEAR_TIMEOUTS),
    (libc::IPPROTO_TCP, libc::TCP_THIN_DUPACK),
    (libc::IPPROTO_TCP, libc::TCP_SYNCNT),
    (libc::IPPROTO_TCP, libc::TCP_LINGER2),
    (libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP),
    (libc::IPPROTO_TCP, libc::TCP_QUICKACK),
    (libc::IPPROTO_TCP, libc::TCP_FASTOPEN),
    (libc::IPPROTO_TCP, libc::TCP_FASTOPEN_CONNECT),
    (libc::IPPROTO_UDP, libc::UDP_SEGMENT),
    (libc::IPPROTO_UDP, libc::UDP_GRO),
    (libc::IPPROTO_UDP, libc::UDP_NO_CHECK6_TX),
    (libc::IPPROTO_UDP, libc::UDP_NO_CHECK6_RX),
    (libc::IPPROTO_IP, libc::IP_TOS),
    (libc::IPPROTO_IP, libc::IP_TTL),
    (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER),
    (libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT),
    (libc::IPPROTO_IP, libc::IP_PKTINFO),
    (libc::IPPROTO_IP, libc::IP_RECVTOS),
    (libc::IPPROTO_IP, libc::IP_RECVTTL),
    (libc::IPPROTO_IP, libc::IP_RECVERR),
    (libc::IPPROTO_IP, libc::IP_RECVOPTS),
    (libc::IPPROTO_IP, libc::IP_RETOPTS),
    (libc::IPPROTO_IP, libc::IP_FREEBIND),
    (libc::IPPROTO_IP, libc::IP_TRANSPARENT),
    (libc::IPPROTO_IP, libc::IP_MULTICAST_TTL),
    (libc::IPPROTO_IP, libc::IP_MULTICAST_LOOP),
    (libc::IPPROTO_IP, libc::IP_MULTICAST_ALL),
    (libc::IPPROTO_IP, libc::IP_UNICAST_IF),
    (libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
    (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER),
    (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS),
    (libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_IF),
    (libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_HOPS),
    (libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_LOOP),
    (libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_ALL),
    (libc::IPPROTO_IPV6, libc::IPV6_RECVERR),
    (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO),
    (libc::IPPROTO_IPV6, libc::IPV6_RECVHOPLIMIT),
    (libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS),
    (libc::IPPROTO_IPV6, libc::IPV6_DONTFRAG),
    (libc::IPPROTO_IPV6, libc::IPV6_AUTOFLOWLABEL),
    (libc::IPPROTO_IPV6, libc::IPV6_FREEBIND),
    (libc::SOL_SOCKET, libc::SO_KEEPALIVE),
    (libc::SOL_SOCKET, libc::SO_LINGER),
    (libc::SOL_SOCKET, libc::SO_BROADCAST),
    (libc::SOL_SOCKET, libc::SO_REUSEPORT),
    // What no socket of the graph has, which is said.
    (libc::SOL_SOCKET, libc::SO_TXTIME),
    (libc::SOL_SOCKET, libc::SO_TIMESTAMPING),
];

/// Options that the system's socket has, too, and that are off from the beginning.
const COPIED: [i32; 14] = [
    libc::SO_KEEPALIVE,
    libc::SO_LINGER,
    libc::SO_BROADCAST,
    libc::SO_REUSEADDR,
    libc::SO_PRIORITY,
    libc::SO_OOBINLINE,
    libc::SO_TIMESTAMP,
    libc::SO_TIMESTAMPNS,
    libc::SO_DONTROUTE,
    libc::SO_RXQ_OVFL,
    libc::SO_NO_CHECK,
    libc::SO_MARK,
    libc::SO_BUSY_POLL,
    libc::SO_DEBUG,
];
/// The options among those that accepted streams have from their listener (tcp(7)).
const INHERITED: [i32; 6] = [
    libc::SO_KEEPALIVE,
    libc::SO_LINGER,
    libc::SO_BROADCAST,
    libc::SO_REUSEADDR,
    libc::SO_OOBINLINE,
    libc::SO_DONTROUTE,
];
/// Numbers that a socket of the system's has from the beginning, and that the program may change.
const NUMBERS: [i32; 2] = [libc::SO_RCVLOWAT, libc::SO_MAX_PACING_RATE];

/// Buffers whose sizes the program has set (Linux 5.14): 1 for sending, 2 for receiving.
const SO_BUF_LOCK: i32 = 72;

/// The first octets of an option's value.
fn number(fd: i32, (level, option): (i32, i32)) -> Option<i32> {
    let octets = option_octets(fd, level, option)?;
    octets.first_chunk().map(|octets| i32::from_ne_bytes(*octets))
}

/// Linux's first values of the options, by kind and family: [`UNASKED`] before it was
/// asked. Two threads, or a signal's handler, may ask at a time, and are told the same.
static USUAL: [[AtomicI64; CARRIED.len()]; 4] =
    [const { [const { AtomicI64::new(UNASKED) }; CARRIED.len()] }; 4];
const UNASKED: i64 = i64::MIN;
/// An option that is not known of the kind.
const UNKNOWN: i64 = i64::MAX;

/// Returns the values that a new socket like this one has. Which congestion control is the usual
/// one, say, is a matter of the system's.
fn usual(fd: BorrowedFd<'_>) -> Option<&'static [AtomicI64]> {
    let domain = option(fd.as_raw_fd(), libc::SOL_SOCKET, libc::SO_DOMAIN)?;
    let kind = sockopt::socket_type(fd).ok()?;
    let (is_6, is_stream) = (domain == libc::AF_INET6, kind == SocketType::STREAM);
    let place = &USUAL[usize::from(is_6) * 2 + usize::from(is_stream)];
    if place.iter().any(|at| at.load(Ordering::Relaxed) == UNASKED) {
        let family = if is_6 { AddressFamily::INET6 } else { AddressFamily::INET };
        let fresh = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None).ok()?;
        for (at, option) in place.iter().zip(CARRIED) {
            let found = number(fresh.as_raw_fd(), option).map_or(UNKNOWN, i64::from);
            at.store(found, Ordering::Relaxed);
        }
    }
    Some(place)
}

/// Returns the options that the program has set on an Internet socket, where they differ from the
/// usual.
pub(crate) fn set_on(fd: BorrowedFd<'_>) -> Vec<Setting> {
    let mut settings = Vec::new();
    for (at, &(level, option)) in usual(fd).into_iter().flatten().zip(&CARRIED) {
        let at = at.load(Ordering::Relaxed);
        let now = || number(fd.as_raw_fd(), (level, option)).map(i64::from);
        // What is not known of the kind is not asked.
        if at == UNKNOWN || now().is_none_or(|now| now == at) {
            continue;
        }
        match (level, option) {
            (libc::SOL_SOCKET, libc::SO_TXTIME | libc::SO_TIMESTAMPING) => {
                not_here(level, option);
            }
            _ => {
                let value = option_octets(fd.as_raw_fd(), level, option).unwrap_or_default();
                settings.push(Setting { level, option, value });
            }
        }
    }
    settings.extend(buffers(fd).map(|(option, octets)| Setting {
        level: libc::SOL_SOCKET,
        option,
        value: octets.to_ne_bytes().into(),
    }));
    settings
}

/// Says that an option has no effect on a socket of the graph.
pub(crate) fn not_here(level: i32, option: i32) {
    let (level_text, option_text) = (level.to_string(), option.to_string());
    let key = (level as u64) << 32 | u64::from(option as u32);
    let parts =
        ["option ", &option_text, " of level ", &level_text, " is not done here (docs/exec.md)"];
    said::once(key, &parts);
}

/// Tells the relay of it.
pub(crate) fn carry(fd: BorrowedFd<'_>, id: u64) {
    let settings = set_on(fd);
    if !settings.is_empty() {
        // Whatever the stack has not the like of, Linux had taken.
        let _ = ask(&Request::Set(id, settings));
    }
}

/// The sizes of buffers that the program has set, as it has set them: Linux doubles the number for
/// its own bookkeeping (socket(7)).
fn buffers(fd: BorrowedFd<'_>) -> impl Iterator<Item = (i32, i32)> {
    let fd = fd.as_raw_fd();
    let set = number(fd, (libc::SOL_SOCKET, SO_BUF_LOCK)).unwrap_or(0);
    let sizes = [(1, libc::SO_SNDBUF), (2, libc::SO_RCVBUF)].map(|(bit, option)| {
        let octets = number(fd, (libc::SOL_SOCKET, option)).filter(|_| set & bit != 0)?;
        Some((option, octets / 2))
    });
    sizes.into_iter().flatten()
}

/// Gives a socket of the system's what another has of its own options.
///
/// # Errors
/// If one of the two is no socket.
pub(crate) fn copy(from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> io::Result<()> {
    copy_those(from, to, &COPIED)?;
    copy_option(from.as_raw_fd(), to.as_raw_fd(), libc::SO_BINDTODEVICE);
    Ok(())
}

/// Gives an accepted stream what it has from its listener.
pub(crate) fn inherit(listener: BorrowedFd<'_>, accepted: BorrowedFd<'_>) {
    // Without one of them it is as good a stream.
    let _ = copy_those(listener, accepted, &INHERITED);
}

fn copy_those(from: BorrowedFd<'_>, to: BorrowedFd<'_>, options: &[i32]) -> io::Result<()> {
    for way in [Timeout::Recv, Timeout::Send] {
        if let Ok(Some(time)) = sockopt::socket_timeout(from, way) {
            sockopt::set_socket_timeout(to, way, Some(time))?;
        }
    }
    let (from_number, to_number) = (from.as_raw_fd(), to.as_raw_fd());
    for &option in options {
        if number(from_number, (libc::SOL_SOCKET, option)).is_some_and(|set| set != 0) {
            copy_option(from_number, to_number, option);
        }
    }
    for option in NUMBERS {
        copy_option(from_number, to_number, option);
    }
    for (option, _) in buffers(from) {
        copy_option(from_number, to_number, option);
    }
    Ok(())
}
