//! Control messages of datagrams (cmsg(3)): what a program asks of a header with one, and what it
//! is told of one that has arrived. The relay gives the latter in a file that comes along.

use crate::socket_unsafe::{borrow, ours};
use libc::{c_int, cmsghdr, msghdr};
use rustix::io::Errno;
use std::mem::size_of;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use xk_request::{Kind, Manner};

/// Octets of a control message's own header, and what the next one lies at a multiple of.
const HEADER: usize = size_of::<cmsghdr>();
const STEP: usize = size_of::<usize>();
/// Octets of what the relay tells at most.
const NOTE_OCTETS_MAX: usize = 256;

/// The wishes of a datagram's control messages.
#[derive(Clone, Copy)]
pub(crate) struct Asked {
    pub(crate) manner: Manner,
    /// Octets of the pieces that it is sent in; zero for one.
    pub(crate) segment: usize,
}

/// The control messages in these octets: level, kind, data, and the octets of each whole.
fn each(mut rest: &[u8]) -> impl Iterator<Item = (c_int, c_int, &[u8], &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from_ne_bytes(*rest.first_chunk()?);
        let one = rest.get(..length).filter(|one| one.len() >= HEADER)?;
        let level = c_int::from_ne_bytes(*one.get(STEP..)?.first_chunk()?);
        let kind = c_int::from_ne_bytes(*one.get(STEP + 4..)?.first_chunk()?);
        rest = rest.get(length.next_multiple_of(STEP)..).unwrap_or_default();
        Some((level, kind, one.get(HEADER..)?, one))
    })
}

/// Reads a program's wishes from a message.
///
/// # Errors
/// `EINVAL` for what Linux does not take.
///
/// # Safety
/// The message's control messages are readable.
pub(crate) unsafe fn asked(message: &msghdr) -> Result<Asked, Errno> {
    let mut asked = Asked { manner: Manner::USUAL, segment: 0 };
    if message.msg_control.is_null() {
        return Ok(asked);
    }
    let (start, length) = (message.msg_control.cast::<u8>(), message.msg_controllen);
    // SAFETY: the caller says so.
    let octets = unsafe { std::slice::from_raw_parts(start, length) };
    for (level, kind, data, _) in each(octets) {
        let number = data.first_chunk().map(|octets| c_int::from_ne_bytes(*octets));
        match (level, kind) {
            (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                let host: [u8; 4] =
                    *data.get(4..).and_then(<[u8]>::first_chunk).ok_or(Errno::INVAL)?;
                asked.manner.from = Ipv4Addr::from(host);
            }
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                let host: [u8; 16] = *data.first_chunk().ok_or(Errno::INVAL)?;
                let host = Ipv6Addr::from(host).to_ipv4_mapped();
                asked.manner.from = host.unwrap_or(Ipv4Addr::UNSPECIFIED);
            }
            (libc::IPPROTO_IP, libc::IP_TTL) => {
                let hops = number.and_then(|number| u8::try_from(number).ok());
                asked.manner.hops = hops.filter(|hops| *hops > 0).ok_or(Errno::INVAL)?;
            }
            (libc::IPPROTO_IP, libc::IP_TOS) => {
                let class = number.unwrap_or_else(|| data.first().copied().unwrap_or(0).into());
                asked.manner.class = Some(u8::try_from(class).map_err(|_| Errno::INVAL)?);
            }
            (libc::IPPROTO_UDP, libc::UDP_SEGMENT) => {
                let octets = *data.first_chunk().ok_or(Errno::INVAL)?;
                asked.segment = u16::from_ne_bytes(octets).into();
            }
            // Those of version 6 are for its packets.
            (libc::IPPROTO_IPV6 | libc::SOL_SOCKET, _) => {}
            _ => return Err(Errno::INVAL),
        }
    }
    Ok(asked)
}

/// Puts what the relay tells of a datagram in the place of the file that it comes in.
///
/// # Safety
/// The message is as recvmsg(2) has left it, and had `room` octets for control messages before.
pub(crate) unsafe fn tell(fd: c_int, message: &mut msghdr, room: usize) {
    let (start, length) = (message.msg_control.cast::<u8>(), message.msg_controllen);
    if start.is_null() || length < HEADER || length > room {
        return;
    }
    // SAFETY: the system has written so many octets.
    let octets = unsafe { std::slice::from_raw_parts(start, length) };
    let is_file = |level, kind| (level, kind) == (libc::SOL_SOCKET, libc::SCM_RIGHTS);
    if !each(octets).any(|(level, kind, _, _)| is_file(level, kind))
        || ours(fd).is_none_or(|name| name.kind != Kind::Datagrams)
    {
        return;
    }
    let mut told = Vec::with_capacity(length + NOTE_OCTETS_MAX);
    for (level, kind, data, whole) in each(octets) {
        if !is_file(level, kind) {
            put(&mut told, whole);
            continue;
        }
        for number in data.chunks_exact(4) {
            let number = number.first_chunk().map_or(-1, |octets| c_int::from_ne_bytes(*octets));
            if borrow(number).is_none() {
                continue;
            }
            // SAFETY: the system has just made it for this message, and the program has not seen
            // it.
            let file = unsafe { OwnedFd::from_raw_fd(number) };
            let mut note = [0; NOTE_OCTETS_MAX];
            let count = rustix::io::pread(file.as_fd(), &mut note, 0).unwrap_or(0);
            for (_, _, _, whole) in each(&note[..count]) {
                put(&mut told, whole);
            }
        }
    }
    let mut fits = 0;
    for (_, _, _, whole) in each(&told) {
        if fits + whole.len() > room {
            message.msg_flags |= libc::MSG_CTRUNC;
            break;
        }
        fits = (fits + whole.len().next_multiple_of(STEP)).min(room);
    }
    let fits = fits.min(told.len());
    // SAFETY: there is room for so many octets, and they lie elsewhere.
    unsafe { std::ptr::copy_nonoverlapping(told.as_ptr(), start, fits) };
    message.msg_controllen = fits;
}

/// Adds a control message.
fn put(told: &mut Vec<u8>, whole: &[u8]) {
    told.extend_from_slice(whole);
    told.resize(told.len().next_multiple_of(STEP), 0);
}
