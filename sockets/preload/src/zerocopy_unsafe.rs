//! Sending without a copy (`MSG_ZEROCOPY`), for programs that use it. Octets on streams of ours are
//! copied nevertheless: the completion comes at once and says so (`SO_EE_CODE_ZEROCOPY_COPIED`).
//!
//! Completions wait in the process that has sent, not at the socket: another process that has the
//! socket sees none.

use crate::ask::is_under_exec;
use crate::next_unsafe;
use crate::socket_unsafe::{KeptErrno, option, ours};
use crate::symbols_unsafe::answer;
use libc::{
    c_int, epoll_event, msghdr, nfds_t, pollfd, sigset_t, sock_extended_err, ssize_t, timespec,
};
use std::mem::size_of;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use xk_request::{Family, Kind, Name};

/// An option of all sockets of Linux, which only storage networks use. On a stream of ours it keeps
/// the value of `SO_ZEROCOPY`, for all processes that have the socket.
const MARK: c_int = 43;

/// The origin of completions, and the code for copied octets (`linux/errqueue.h`).
const ORIGIN: u8 = 5;
const COPIED: u8 = 1;

/// Largest number of sockets whose completions wait.
const SOCKETS_MAX: usize = 256;

/// The completions of a socket.
struct Completions {
    /// The socket's number plus one; 0 for none.
    of: AtomicU64,
    /// Number of completions; `told` is the number of those that the program has received.
    sent: AtomicU32,
    told: AtomicU32,
}

static ALL: [Completions; SOCKETS_MAX] = [const {
    Completions { of: AtomicU64::new(0), sent: AtomicU32::new(0), told: AtomicU32::new(0) }
}; SOCKETS_MAX];
/// Whether the program has ever asked for completions. If not, there is nothing to search.
static IS_USED: AtomicBool = AtomicBool::new(false);
/// Streams with `SO_ZEROCOPY` in sets of epoll(7): set, descriptor, and the data of the event.
static REGISTERED: Mutex<Vec<(c_int, c_int, u64)>> = Mutex::new(Vec::new());

impl Completions {
    fn is_of(&self, id: u64) -> bool {
        self.of.load(Ordering::Relaxed) == id + 1
    }

    fn waiting(&self) -> u32 {
        self.sent.load(Ordering::Relaxed).wrapping_sub(self.told.load(Ordering::Relaxed))
    }
}

fn of(id: u64) -> Option<&'static Completions> {
    ALL.iter().find(|completions| completions.is_of(id))
}

/// Name of the stream, if `fd` is one of ours.
fn stream(fd: c_int) -> Option<Name> {
    ours(fd).filter(|name| name.kind == Kind::Stream)
}

/// Whether `SO_ZEROCOPY` is on at `fd`.
pub(crate) fn is_on(fd: c_int) -> bool {
    option(fd, libc::SOL_SOCKET, MARK).is_some_and(|on| on != 0)
}

/// Turns `SO_ZEROCOPY` on or off.
pub(crate) fn set(fd: c_int, on: bool) {
    IS_USED.store(true, Ordering::Relaxed);
    let (_kept, on) = (KeptErrno::new(), c_int::from(on));
    let length = size_of::<c_int>() as libc::socklen_t;
    let call = libc::SYS_setsockopt;
    // SAFETY: the number is on this stack, and `length` is its length. Linux takes this option for
    // every socket.
    unsafe { libc::syscall(call, fd, libc::SOL_SOCKET, MARK, &raw const on, length) };
}

/// Counts a completion for octets that were sent, if the program has asked for completions.
pub(crate) fn sent(fd: c_int, result: ssize_t, flags: c_int) {
    if flags & libc::MSG_ZEROCOPY == 0 || result <= 0 || !is_on(fd) {
        return;
    }
    let Some(Name { id, .. }) = stream(fd) else {
        return;
    };
    let place = of(id).or_else(|| {
        // Any place without waiting completions. If there is none, the program gets no completion.
        let free = ALL.iter().find(|completions| completions.waiting() == 0)?;
        free.sent.store(0, Ordering::Relaxed);
        free.told.store(0, Ordering::Relaxed);
        free.of.store(id + 1, Ordering::Relaxed);
        Some(free)
    });
    if let Some(completions) = place {
        completions.sent.fetch_add(1, Ordering::Relaxed);
    }
}

/// Whether a completion waits at `fd`.
fn waits(fd: c_int) -> bool {
    stream(fd).and_then(|name| of(name.id)).is_some_and(|completions| completions.waiting() > 0)
}

/// Whether a completion may wait at any socket.
fn any_waits() -> bool {
    IS_USED.load(Ordering::Relaxed) && ALL.iter().any(|completions| completions.waiting() > 0)
}

/// Gives the program all completions that wait at a stream of ours, as one message; `None` if `fd`
/// is no such stream.
///
/// # Safety
/// As for recvmsg(2).
pub(crate) unsafe fn receive(fd: c_int, message: *mut msghdr, flags: c_int) -> Option<ssize_t> {
    if flags & libc::MSG_ERRQUEUE == 0 || !is_under_exec() || message.is_null() {
        return None;
    }
    let Name { id, family, .. } = stream(fd)?;
    let Some(completions) = of(id).filter(|completions| completions.waiting() > 0) else {
        return Some(answer(libc::EAGAIN) as ssize_t);
    };
    let (first, next) =
        (completions.told.load(Ordering::Relaxed), completions.sent.load(Ordering::Relaxed));
    let told = sock_extended_err {
        ee_errno: 0,
        ee_origin: ORIGIN,
        ee_type: 0,
        ee_code: COPIED,
        ee_pad: 0,
        ee_info: first,
        ee_data: next.wrapping_sub(1),
    };
    // Behind it lies the address of what has reported it: none.
    let (level, kind, octets) = match family {
        Family::V4 => (libc::SOL_IP, libc::IP_RECVERR, 16 + size_of::<libc::sockaddr_in>()),
        Family::V6 => (libc::SOL_IPV6, libc::IPV6_RECVERR, 16 + size_of::<libc::sockaddr_in6>()),
    };
    // SAFETY: the program says that it is one.
    let message = unsafe { &mut *message };
    // SAFETY: it is but reckoned.
    let (space, length) =
        unsafe { (libc::CMSG_SPACE(octets as u32), libc::CMSG_LEN(octets as u32)) };
    message.msg_flags = libc::MSG_ERRQUEUE;
    message.msg_namelen = 0;
    if message.msg_control.is_null() || message.msg_controllen < space as usize {
        message.msg_flags |= libc::MSG_CTRUNC;
        message.msg_controllen = 0;
    } else {
        message.msg_controllen = space as usize;
        // SAFETY: there is room, as was looked.
        unsafe {
            std::ptr::write_bytes(message.msg_control.cast::<u8>(), 0, space as usize);
            let header = message.msg_control.cast::<libc::cmsghdr>();
            header.write_unaligned(libc::cmsghdr {
                cmsg_len: length as usize,
                cmsg_level: level,
                cmsg_type: kind,
            });
            libc::CMSG_DATA(header).cast::<sock_extended_err>().write_unaligned(told);
        }
    }
    completions.told.store(next, Ordering::Relaxed);
    Some(0)
}

/// Notes what epoll_ctl(2) has done to a stream with it.
pub(crate) fn note(set: c_int, operation: c_int, fd: c_int, event: Option<epoll_event>) {
    if !IS_USED.load(Ordering::Relaxed) {
        return;
    }
    // A lock that another thread had at a fork is left alone.
    let Ok(mut registered) = REGISTERED.try_lock() else {
        return;
    };
    registered.retain(|(other, of, _)| (*other, *of) != (set, fd));
    if let Some(event) = event.filter(|_| operation != libc::EPOLL_CTL_DEL)
        && registered.len() < SOCKETS_MAX
        && stream(fd).is_some()
    {
        registered.push((set, fd, event.u64));
    }
}

/// Adds to what poll(2) has found that completions wait; how many descriptors have something.
fn add(fds: &mut [pollfd], found: c_int) -> c_int {
    let mut found = found;
    for one in fds.iter_mut().filter(|one| waits(one.fd)) {
        found += c_int::from(one.revents == 0);
        one.revents |= libc::POLLERR;
    }
    found
}

/// poll(2).
#[unsafe(no_mangle)]
unsafe extern "C" fn poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    if fds.is_null() || !any_waits() {
        // SAFETY: what the program has handed over is handed on.
        return unsafe { next_unsafe::poll(fds, count, timeout) };
    }
    // SAFETY: the program says that there are so many.
    let list = unsafe { std::slice::from_raw_parts_mut(fds, count as usize) };
    let timeout = if list.iter().any(|one| waits(one.fd)) { 0 } else { timeout };
    // SAFETY: what the program has handed over is handed on.
    match unsafe { next_unsafe::poll(fds, count, timeout) } {
        found @ 0.. => add(list, found),
        failed => failed,
    }
}

/// ppoll(2).
#[unsafe(no_mangle)]
unsafe extern "C" fn ppoll(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    let none = timespec { tv_sec: 0, tv_nsec: 0 };
    if fds.is_null() || !any_waits() {
        // SAFETY: what the program has handed over is handed on.
        return unsafe { next_unsafe::ppoll(fds, count, timeout, mask) };
    }
    // SAFETY: the program says that there are so many.
    let list = unsafe { std::slice::from_raw_parts_mut(fds, count as usize) };
    let timeout = if list.iter().any(|one| waits(one.fd)) { &raw const none } else { timeout };
    // SAFETY: what the program has handed over is handed on.
    match unsafe { next_unsafe::ppoll(fds, count, timeout, mask) } {
        found @ 0.. => add(list, found),
        failed => failed,
    }
}

/// epoll_wait(2).
#[unsafe(no_mangle)]
unsafe extern "C" fn epoll_wait(
    set: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: c_int,
) -> c_int {
    let none = std::ptr::null();
    // SAFETY: as for this function.
    unsafe { epoll_pwait(set, events, most, timeout, none) }
}

/// epoll_pwait(2).
#[unsafe(no_mangle)]
unsafe extern "C" fn epoll_pwait(
    set: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: c_int,
    mask: *const sigset_t,
) -> c_int {
    let told = waiting_in(set);
    let timeout = if told.is_empty() { timeout } else { 0 };
    // SAFETY: what the program has handed over is handed on.
    let found = unsafe { next_unsafe::epoll_pwait(set, events, most, timeout, mask) };
    if found < 0 || events.is_null() || told.is_empty() {
        return found;
    }
    // SAFETY: the program says that there is room for so many, of which some were found.
    let list = unsafe { std::slice::from_raw_parts_mut(events, most.max(0) as usize) };
    let mut count = found as usize;
    for data in told {
        let known = list.iter_mut().take(count).find(|event| { event.u64 } == data);
        if let Some(event) = known {
            event.events |= libc::EPOLLERR as u32;
        } else if let Some(place) = list.get_mut(count) {
            *place = epoll_event { events: libc::EPOLLERR as u32, u64: data };
            count += 1;
        }
    }
    count as c_int
}

/// Lists the marks of the streams in a set of epoll(7) at which completions wait.
fn waiting_in(set: c_int) -> Vec<u64> {
    if !any_waits() {
        return Vec::new();
    }
    let Ok(registered) = REGISTERED.try_lock() else {
        return Vec::new();
    };
    let within = registered.iter().filter(|(other, fd, _)| *other == set && waits(*fd));
    within.map(|(_, _, data)| *data).collect()
}
