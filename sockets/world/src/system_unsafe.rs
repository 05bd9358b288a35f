//! The C library's answers on time, chance, names and events, on the threads of a world.
//!
//! The symbols of a program come before those of the C library. On every other thread they make the
//! system call, or call what they stand before.

use crate::crew::{Crew, LEADER, role};
use crate::threads_unsafe::wait_for_events;
use libc::{EAI_FAIL, EAI_NONAME, addrinfo, c_char, c_int, c_uint, c_void, sockaddr_in, timespec};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::ffi::CStr;
use std::marker::PhantomData;
use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// 2026-01-01 00:00 UTC, in seconds since 1970: when each world begins.
const BEGIN_S: u64 = 1_767_225_600;

thread_local! {
    /// Nanoseconds since the world of this thread began; `None` without a world.
    static NOW_NS: Cell<Option<u64>> = const { Cell::new(None) };
    pub(crate) static CHANCE: Cell<u64> = const { Cell::new(0) };
    /// The host whose program runs on this thread, if that is known.
    pub(crate) static HOST: Cell<Option<usize>> = const { Cell::new(None) };
    /// Time that a program has last wanted to wait for events.
    static WAIT: Cell<Option<Option<u64>>> = const { Cell::new(None) };
}

/// `BEGIN_S` in nanoseconds.
pub(crate) const BEGIN_NS: u64 = BEGIN_S * 1_000_000_000;

/// A socket of the system, or a descriptor that tokio was to watch.
const OUTSIDE: &str = "asked for a socket of the system, or had tokio watch a descriptor of it: in \
    a world nothing ever comes there; the sockets of a program are those of the stack that it is \
    handed";

/// This thread has a world, until this is dropped.
pub(crate) struct Entered {
    crew: Arc<Crew>,
    stays: PhantomData<*const ()>,
}

impl Entered {
    /// `None` if it has one already.
    pub(crate) fn new(seed: u64) -> Option<Self> {
        if now_ns().is_some() {
            return None;
        }
        NOW_NS.set(Some(0));
        CHANCE.set(seed);
        Some(Self { crew: Crew::lead(), stays: PhantomData })
    }

    /// The time from now on, in nanoseconds since the world began.
    pub(crate) fn set_now(&self, ns: u64) {
        NOW_NS.set(Some(ns));
        self.crew.set_now(ns);
    }

    /// The threads of programs.
    pub(crate) fn crew(&self) -> &Crew {
        &self.crew
    }

    /// Does something on a host.
    pub(crate) fn on_host<R>(&self, host: usize, work: impl FnOnce() -> R) -> R {
        let before = HOST.replace(Some(host));
        let result = work();
        HOST.set(before);
        result
    }

    /// Lets the threads of programs run until all wait; the hosts whose threads did.
    pub(crate) fn run_threads(&self) -> BTreeSet<usize> {
        self.crew.run()
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        NOW_NS.set(None);
        self.crew.disband();
    }
}

/// This thread's clock shows this time of its world, or that of the system.
pub(crate) fn enter_thread(ns: Option<u64>) {
    NOW_NS.set(ns);
}

pub(crate) fn set_errno(number: c_int) {
    // SAFETY: the place of this thread's error is always there.
    unsafe { *libc::__errno_location() = number };
}

/// Takes the time that the program wanted to wait for events, in milliseconds, where the inner
/// `None` means without end; `None` if it has not waited since the last call.
pub(crate) fn take_wait() -> Option<Option<u64>> {
    WAIT.take()
}

pub(crate) fn now_ns() -> Option<u64> {
    NOW_NS.try_with(Cell::get).ok().flatten()
}

/// The next 64 bits (splitmix64: Steele, Lea, Flood, "Fast splittable pseudorandom number
/// generators", 2014, figure 17).
pub(crate) fn next_chance() -> u64 {
    let state = CHANCE.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
    CHANCE.set(state);
    let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Some host of some world has a clock of its own.
static HAVE_SKEWS: AtomicBool = AtomicBool::new(false);

/// Notes that clocks of hosts may differ from now on.
pub(crate) fn note_skews() {
    HAVE_SKEWS.store(true, Ordering::Relaxed);
}

/// Returns the time that this thread's host shows, in nanoseconds since 1970.
fn skewed(ns: u64) -> u64 {
    let ns = ns + BEGIN_NS;
    if !HAVE_SKEWS.load(Ordering::Relaxed) {
        return ns;
    }
    let ahead = HOST.get().zip(role()).map_or(0, |(host, (crew, _))| crew.look_at_clock(host));
    ns.saturating_add_signed(ahead)
}

/// clock_gettime(2): virtual time, but for the clocks of a process's or a thread's own work.
// SAFETY: the C library's function of this name has this signature.
#[unsafe(no_mangle)]
unsafe extern "C" fn clock_gettime(clock: libc::clockid_t, into: *mut timespec) -> c_int {
    let is_work = matches!(clock, libc::CLOCK_PROCESS_CPUTIME_ID | libc::CLOCK_THREAD_CPUTIME_ID);
    let Some(ns) = now_ns().filter(|_| !is_work) else {
        // SAFETY: the arguments are the caller's.
        return unsafe { libc::syscall(libc::SYS_clock_gettime, clock, into) as c_int };
    };
    let ns = match clock {
        libc::CLOCK_REALTIME | libc::CLOCK_REALTIME_COARSE => skewed(ns),
        _ => ns + BEGIN_NS,
    };
    let found = timespec {
        tv_sec: (ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (ns % 1_000_000_000) as _,
    };
    // SAFETY: the caller hands a place for one, as clock_gettime(2) demands.
    unsafe { into.write(found) };
    0
}

/// getrandom(2): bits from the world's seed.
// SAFETY: the C library's function of this name has this signature.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn getrandom(
    into: *mut c_void,
    octets: usize,
    flags: c_uint,
) -> isize {
    if now_ns().is_none() {
        // SAFETY: the arguments are the caller's.
        return unsafe { libc::syscall(libc::SYS_getrandom, into, octets, flags) as isize };
    }
    for at in (0..octets).step_by(8) {
        let word = next_chance().to_le_bytes();
        let count = word.len().min(octets - at);
        // SAFETY: the caller hands room for `octets`, as getrandom(2) demands, and `at + count` is
        // no more than that.
        unsafe { ptr::copy_nonoverlapping(word.as_ptr(), into.cast::<u8>().add(at), count) };
    }
    octets as isize
}

/// epoll_wait(2): nothing has come, and how long the caller would have waited is noted.
// SAFETY: the C library's function of this name has this signature.
#[unsafe(no_mangle)]
unsafe extern "C" fn epoll_wait(
    epoll: c_int,
    events: *mut libc::epoll_event,
    events_max: c_int,
    timeout_ms: c_int,
) -> c_int {
    if now_ns().is_none() {
        let no_mask = ptr::null::<c_void>();
        let (call, mask_octets) = (libc::SYS_epoll_pwait, 8_usize);
        // SAFETY: the arguments are the caller's; without a mask its size is not looked at.
        return unsafe {
            libc::syscall(call, epoll, events, events_max, timeout_ms, no_mask, mask_octets)
                as c_int
        };
    }
    // SAFETY: the arguments are the caller's.
    if let Some(found) = unsafe { wait_for_events(epoll, events, events_max, timeout_ms) } {
        return found;
    }
    if timeout_ms != 0 {
        WAIT.set(Some(u64::try_from(timeout_ms).ok()));
    }
    0
}

/// Whether a program of a world does what only the system could answer; the run ends by it then.
fn is_outside(is_refused: impl FnOnce(u32) -> bool) -> bool {
    let Some((crew, place)) = role() else { return false };
    let is_refused = crew.is_running() && is_refused(place);
    if is_refused {
        crew.blame(HOST.get(), OUTSIDE);
        set_errno(libc::ENETDOWN);
    }
    is_refused
}

/// socket(2): refused to programs of a world.
// SAFETY: the C library's function of this name has this signature.
#[unsafe(no_mangle)]
unsafe extern "C" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    if is_outside(|_| true) {
        return -1;
    }
    // SAFETY: the arguments are the caller's.
    unsafe { libc::syscall(libc::SYS_socket, domain, kind, protocol) as c_int }
}

/// epoll_ctl(2): on the thread of a world programs can add nothing, since nothing would come.
// SAFETY: the C library's function of this name has this signature.
#[unsafe(no_mangle)]
unsafe extern "C" fn epoll_ctl(
    epoll: c_int,
    operation: c_int,
    descriptor: c_int,
    event: *mut libc::epoll_event,
) -> c_int {
    if operation == libc::EPOLL_CTL_ADD && is_outside(|place| place == LEADER) {
        return -1;
    }
    // SAFETY: the arguments are the caller's.
    unsafe { libc::syscall(libc::SYS_epoll_ctl, epoll, operation, descriptor, event) as c_int }
}

/// Has a process lay out its memory as each other of this program does, if the system lets it: what
/// depends on addresses is then one in two runs.
pub(crate) fn have_one_layout(command: &mut Command) {
    let fix = || {
        // SAFETY: it takes a number, and may be called between fork(2) and execve(2). Without it
        // addresses differ, which most programs do not notice.
        unsafe { libc::personality(libc::ADDR_NO_RANDOMIZE as libc::c_ulong) };
        Ok(())
    };
    // SAFETY: `fix` makes one system call, and neither allocates nor locks.
    unsafe { command.pre_exec(fix) };
}

/// One answer about a name. Its first field is what the caller sees.
#[repr(C)]
struct Answer {
    info: addrinfo,
    address: sockaddr_in,
}

/// Name that tells our answers from those of the C library.
static OURS: c_char = 0;

/// The next function of this name behind the program's own.
pub(crate) fn behind(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: the name ends with a zero, and RTLD_NEXT needs no handle that was opened.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

type GetAddrInfo = unsafe extern "C" fn(
    *const c_char,
    *const c_char,
    *const addrinfo,
    *mut *mut addrinfo,
) -> c_int;

/// getaddrinfo(3): the world's hosts, and no others.
// SAFETY: the C library's function of this name has this signature.
#[unsafe(no_mangle)]
unsafe extern "C" fn getaddrinfo(
    node: *const c_char,
    service: *const c_char,
    hints: *const addrinfo,
    into: *mut *mut addrinfo,
) -> c_int {
    if now_ns().is_none() {
        let Some(next) = behind(c"getaddrinfo") else {
            return EAI_FAIL;
        };
        // SAFETY: the C library's function of this name has this type; the arguments are the
        // caller's.
        return unsafe {
            std::mem::transmute::<*mut c_void, GetAddrInfo>(next)(node, service, hints, into)
        };
    }
    let text = |from: *const c_char| {
        // SAFETY: a text that is given ends with a zero, as getaddrinfo(3) demands, and outlives
        // this call.
        (!from.is_null()).then(|| unsafe { CStr::from_ptr(from) }.to_str().unwrap_or_default())
    };
    let port = text(service).map_or(Some(0), |port| port.parse::<u16>().ok());
    let known = text(node).and_then(|wanted| match wanted {
        "localhost" => Some(Ipv4Addr::LOCALHOST),
        _ => role().and_then(|(crew, _)| crew.address_of(wanted)),
    });
    let (Some(port), Some(address)) = (port, known) else {
        return EAI_NONAME;
    };
    // SAFETY: both are plain data, for which zero is a value.
    let mut answer: Box<Answer> = Box::new(unsafe { std::mem::zeroed() });
    answer.address.sin_family = libc::AF_INET as libc::sa_family_t;
    answer.address.sin_port = port.to_be();
    answer.address.sin_addr.s_addr = u32::from_ne_bytes(address.octets());
    answer.info.ai_family = libc::AF_INET;
    // SAFETY: hints that are given are an `addrinfo`, as getaddrinfo(3) demands.
    answer.info.ai_socktype = unsafe { hints.as_ref() }.map_or(0, |hints| hints.ai_socktype);
    answer.info.ai_addrlen = size_of::<sockaddr_in>() as libc::socklen_t;
    answer.info.ai_canonname = (&raw const OURS).cast_mut();
    let answer = Box::into_raw(answer);
    // SAFETY: the answer is a box of our own, which nothing else refers to; the caller hands a
    // place for a pointer, as getaddrinfo(3) demands.
    unsafe {
        (*answer).info.ai_addr = (&raw mut (*answer).address).cast();
        into.write(answer.cast());
    }
    0
}

/// freeaddrinfo(3): of answers of either kind.
// SAFETY: the C library's function of this name has this signature.
#[unsafe(no_mangle)]
unsafe extern "C" fn freeaddrinfo(list: *mut addrinfo) {
    // SAFETY: a list that is given is one that getaddrinfo answered, as freeaddrinfo(3) demands.
    let name = unsafe { list.as_ref() }.map(|first| first.ai_canonname.cast_const());
    if name == Some(&raw const OURS) {
        // SAFETY: no other answer has that name, so it is the first field of a box of ours, and
        // its caller gives it up.
        drop(unsafe { Box::from_raw(list.cast::<Answer>()) });
    } else if let Some(next) = behind(c"freeaddrinfo") {
        // SAFETY: the C library's function of this name has this type; the list is its own.
        unsafe {
            std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut addrinfo)>(next)(list)
        };
    }
}
