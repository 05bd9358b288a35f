//! The C library's functions for threads, on those of a world: they begin, wait, sleep and end in
//! the order and at the time of the world.

use crate::crew::{Crew, For, LEADER, Woken, role};
use crate::system_unsafe::{
    BEGIN_NS, HOST, behind, enter_thread, getrandom, next_chance, set_errno,
};
use libc::{c_int, c_long, c_void, pthread_attr_t, pthread_t, timespec};
use rustix::thread::futex;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::time::Duration;
use xk_net::Parked;

thread_local! {
    /// This thread is in a function of the crew, whose own locks are the system's.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Does something for this thread's crew; `None` outside of a world.
fn in_crew<R>(work: impl FnOnce(&Arc<Crew>, u32) -> R) -> Option<R> {
    if INSIDE.get() {
        return None;
    }
    INSIDE.set(true);
    let result = role().map(|(crew, place)| work(&crew, place));
    INSIDE.set(false);
    result
}

/// Waits as this thread's crew does, and sets its clock by it.
fn wait(crew: &Arc<Crew>, place: u32, what: For, until_ns: Option<u64>) -> Woken {
    if place == LEADER
        && let Some(program) = Parked::here()
    {
        INSIDE.set(false);
        let woken = wait_parked(crew, &program, what, until_ns);
        INSIDE.set(true);
        if let Some(woken) = woken {
            return woken;
        }
    }
    let woken = crew.wait((place, HOST.get()), what, until_ns);
    enter_thread((woken != Woken::Free).then(|| crew.now_ns()));
    woken
}

thread_local! {
    /// Blocking programs that wait, by their places, with their hosts.
    static PARKED: RefCell<BTreeMap<u32, (Option<usize>, Parked)>> =
        const { RefCell::new(BTreeMap::new()) };
}

/// The words by which the standard library parks a thread: not parked, told, parked.
const EMPTY: u32 = 0;
const NOTIFIED: u32 = 1;
const PARKED_WORD: u32 = u32::MAX;

/// Lets a blocking program wait on its stack; `None` if it cannot.
///
/// All of a world are one thread to the standard library, which has one word to park it by. To each
/// it looks as if none of the others were parked, and what one is told all are.
fn wait_parked(
    crew: &Arc<Crew>,
    program: &Parked,
    what: For,
    until_ns: Option<u64>,
) -> Option<Woken> {
    let time = match what {
        For::Others => Some(Duration::from_micros(1)),
        _ => until_ns.map(|until| Duration::from_nanos(until.saturating_sub(crew.now_ns()))),
    };
    let (what, parks) = match what {
        For::Word { at, expected: PARKED_WORD } => {
            set_word(at, EMPTY);
            (For::Word { at, expected: EMPTY }, Some(at))
        }
        other => (other, None),
    };
    let place = crew.park(what);
    PARKED.with_borrow_mut(|list| list.insert(place, (HOST.get(), program.clone())));
    let woken = program.wait(time);
    PARKED.with_borrow_mut(|list| list.remove(&place));
    crew.unpark(place);
    let is_told = woken.ok()?;
    if let Some(at) = parks.filter(|_| is_told) {
        set_word(at, NOTIFIED);
    }
    Some(if is_told { Woken::Told } else { Woken::Late })
}

/// Sets the word by which the standard library parks this thread.
fn set_word(at: usize, to: u32) {
    // SAFETY: as for `word`: this thread waits at it, or has just done so.
    unsafe { AtomicU32::from_ptr(at as *mut u32) }.store(to, Ordering::SeqCst);
}

/// Ends the waits of blocking programs that are over; their hosts are to have a turn.
pub(crate) fn end_parked(crew: &Crew) -> Vec<usize> {
    let places = crew.take_programs();
    PARKED.with_borrow(|list| {
        let ended = places.iter().filter_map(|place| list.get(place));
        ended.inspect(|(_, program)| program.end()).filter_map(|(host, _)| *host).collect()
    })
}

/// The blocking programs of a host that wait never go on.
pub(crate) fn abandon_parked(crew: &Crew, host: usize) {
    let is_its = |_: &u32, parked: &mut (Option<usize>, Parked)| parked.0 == Some(host);
    let gone: Vec<_> = PARKED.with_borrow_mut(|list| list.extract_if(.., is_its).collect());
    for (place, _) in gone {
        crew.unpark(place);
    }
}

/// Forgets the blocking programs of this thread that wait: their world is over.
pub(crate) fn forget_parked() {
    PARKED.take();
}

/// The word at an address that a thread waits at.
pub(crate) fn word(at: usize) -> u32 {
    // SAFETY: a thread waits at this address, and futex(2) demands that it is that of a word, which
    // stays while it does; only atomic operations touch it.
    unsafe { AtomicU32::from_ptr(at as *mut u32) }.load(Ordering::SeqCst)
}

/// Waits for threads of the system, a moment at most; how long that is.
pub(crate) fn wait_for_word(at: usize, expected: u32) -> Duration {
    let moment = Duration::from_millis(10);
    let limit = futex::Timespec { tv_sec: 0, tv_nsec: moment.as_nanos() as _ };
    // SAFETY: as for `word`.
    let word = unsafe { AtomicU32::from_ptr(at as *mut u32) };
    // However it ends, the word is looked at.
    let _ = futex::wait(word, futex::Flags::PRIVATE, expected, Some(&limit));
    moment
}

/// Whether something has come at a descriptor of epoll(7).
pub(crate) fn has_events(descriptor: i32) -> bool {
    let mut found = libc::pollfd { fd: descriptor, events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry is handed, and it is this one.
    unsafe { libc::poll(&raw mut found, 1, 0) > 0 }
}

type Start = extern "C" fn(*mut c_void) -> *mut c_void;

/// The hand-over to a new thread.
struct Begin {
    start: Start,
    argument: *mut c_void,
    crew: Arc<Crew>,
    place: u32,
    host: Option<usize>,
    chance: u64,
}

extern "C" fn begin(begin: *mut c_void) -> *mut c_void {
    // SAFETY: `pthread_create` below hands a box, and hands it once.
    let begin = unsafe { Box::from_raw(begin.cast::<Begin>()) };
    let Begin { start, argument, crew, place, host, chance } = *begin;
    INSIDE.set(true);
    let woken = Arc::clone(&crew).join(place);
    INSIDE.set(false);
    if woken != Woken::Free {
        HOST.set(host);
        crate::system_unsafe::CHANCE.set(chance);
        enter_thread(Some(crew.now_ns()));
    }
    drop(crew);
    start(argument)
}

type Create =
    unsafe extern "C" fn(*mut pthread_t, *const pthread_attr_t, Start, *mut c_void) -> c_int;

/// pthread_create(3): the new thread belongs to the world, and to the host, that this one belongs
/// to.
// SAFETY: the C library's function of this name has this signature.
#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_create(
    into: *mut pthread_t,
    attributes: *const pthread_attr_t,
    start: Start,
    argument: *mut c_void,
) -> c_int {
    let Some(next) = behind(c"pthread_create") else { return libc::EAGAIN };
    // SAFETY: the C library's function of this name has this type.
    let next = unsafe { std::mem::transmute::<*mut c_void, Create>(next) };
    let added = in_crew(|crew, _| {
        let (host, chance) = (HOST.get(), next_chance());
        let (crew, place) = (Arc::clone(crew), crew.add(host));
        Begin { start, argument, crew, place, host, chance }
    });
    let Some(added) = added else {
        // SAFETY: the arguments are the caller's.
        return unsafe { next(into, attributes, start, argument) };
    };
    let (crew, place) = (Arc::clone(&added.crew), added.place);
    let handed = Box::into_raw(Box::new(added));
    // SAFETY: the first two arguments are the caller's, and `begin` takes the box.
    let result = unsafe { next(into, attributes, begin, handed.cast()) };
    if result == 0 {
        // SAFETY: pthread_create(3) has written it.
        in_crew(|crew, _| crew.set_handle(place, unsafe { into.read() }));
    } else {
        // SAFETY: there is no thread that has taken it.
        drop(unsafe { Box::from_raw(handed) });
        in_crew(|_, _| crew.remove(place));
    }
    result
}

/// pthread_join(3): others run until that thread has ended.
// SAFETY: the C library's function of this name has this signature.
#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_join(thread: pthread_t, into: *mut *mut c_void) -> c_int {
    in_crew(|crew, place| {
        if let Some(other) = crew.place_of(thread) {
            wait(crew, place, For::End(other), None);
        }
    });
    let Some(next) = behind(c"pthread_join") else { return libc::EINVAL };
    type Join = unsafe extern "C" fn(pthread_t, *mut *mut c_void) -> c_int;
    // SAFETY: the C library's function of this name has this type; the arguments are the caller's.
    unsafe { std::mem::transmute::<*mut c_void, Join>(next)(thread, into) }
}

/// sched_yield(2): others run.
// SAFETY: the C library's function of this name has this signature.
#[unsafe(no_mangle)]
unsafe extern "C" fn sched_yield() -> c_int {
    match in_crew(|crew, place| wait(crew, place, For::Others, None)) {
        Some(_) => 0,
        // SAFETY: it takes no arguments.
        None => unsafe { libc::syscall(libc::SYS_sched_yield) as c_int },
    }
}

/// A time in nanoseconds; `None` if it is none.
///
/// # Safety
/// `time` is null, or that of a time.
unsafe fn ns_of(time: *const timespec) -> Option<u64> {
    // SAFETY: as the caller grants.
    let time = unsafe { time.as_ref() }?;
    let s = u64::try_from(time.tv_sec).unwrap_or(0);
    Some(s.saturating_mul(1_000_000_000).saturating_add(u64::try_from(time.tv_nsec).unwrap_or(0)))
}

/// The world's time at a time of its clocks.
fn since_begin(ns: u64) -> u64 {
    ns.saturating_sub(BEGIN_NS)
}

/// Lets this thread sleep; false outside of a world, or if that has ended meanwhile.
fn sleep(until_ns: impl FnOnce(&Crew) -> u64) -> bool {
    let slept = in_crew(|crew, place| {
        let until_ns = until_ns(crew);
        wait(crew, place, For::Time, Some(until_ns))
    });
    matches!(slept, Some(Woken::Told | Woken::Late))
}

/// nanosleep(2), in virtual time.
// SAFETY: the C library's function of this name has this signature.
#[unsafe(no_mangle)]
unsafe extern "C" fn nanosleep(time: *const timespec, rest: *mut timespec) -> c_int {
    // SAFETY: the caller hands a time, as nanosleep(2) demands.
    let ns = unsafe { ns_of(time) }.unwrap_or(0);
    if sleep(|crew| crew.now_ns().saturating_add(ns)) {
        return 0;
    }
    // SAFETY: the arguments are the caller's.
    unsafe { libc::syscall(libc::SYS_nanosleep, time, rest) as c_int }
}

/// clock_nanosleep(2), in virtual time.
// SAFETY: the C library's function of this name has this signature.
#[unsafe(no_mangle)]
unsafe extern "C" fn clock_nanosleep(
    clock: libc::clockid_t,
    flags: c_int,
    time: *const timespec,
    rest: *mut timespec,
) -> c_int {
    // SAFETY: the caller hands a time, as clock_nanosleep(2) demands.
    let ns = unsafe { ns_of(time) }.unwrap_or(0);
    let is_absolute = flags & libc::TIMER_ABSTIME != 0;
    let until = |crew: &Crew| match is_absolute {
        true => since_begin(ns),
        false => crew.now_ns().saturating_add(ns),
    };
    if sleep(until) {
        return 0;
    }
    // SAFETY: the arguments are the caller's.
    match unsafe { libc::syscall(libc::SYS_clock_nanosleep, clock, flags, time, rest) } {
        0 => 0,
        // SAFETY: the place of this thread's error is always there.
        _ => unsafe { *libc::__errno_location() },
    }
}

type Syscall = unsafe extern "C" fn(c_long, usize, usize, usize, usize, usize, usize) -> c_long;

/// Makes a system call as the C library does.
///
/// # Safety
/// As the system call demands.
unsafe fn system(number: c_long, of: [usize; 6]) -> c_long {
    static NEXT: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
    let mut next = NEXT.load(Ordering::Relaxed);
    if next.is_null() {
        next = behind(c"syscall").unwrap_or(ptr::null_mut());
        NEXT.store(next, Ordering::Relaxed);
    }
    if next.is_null() {
        set_errno(libc::ENOSYS);
        return -1;
    }
    let [a, b, c, d, e, f] = of;
    // SAFETY: the C library's function of this name takes this many words at most, and passes them
    // on; the arguments are the caller's.
    unsafe { std::mem::transmute::<*mut c_void, Syscall>(next)(number, a, b, c, d, e, f) }
}

/// syscall(2): those that wait, and those that ask for chance, are the world's; others the
/// system's.
// SAFETY: the C library's function of this name takes its arguments, which are words, in the places
// in which these are, as many of them as the call has: those behind are not looked at.
#[unsafe(no_mangle)]
unsafe extern "C" fn syscall(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    if number == libc::SYS_futex {
        // SAFETY: the arguments are the caller's.
        if let Some(result) = unsafe { futex(a, b as c_int, c as u32, d as *const timespec) } {
            return result;
        }
    } else if number == libc::SYS_getrandom && crate::system_unsafe::now_ns().is_some() {
        // SAFETY: the arguments are the caller's.
        return unsafe { getrandom(a as *mut c_void, b, c as libc::c_uint) as c_long };
    }
    // SAFETY: the arguments are the caller's.
    unsafe { system(number, [a, b, c, d, e, f]) }
}

/// futex(2) between threads of this process; `None` for the system to do it.
///
/// # Safety
/// As futex(2) demands.
unsafe fn futex(at: usize, operation: c_int, value: u32, limit: *const timespec) -> Option<c_long> {
    if operation & libc::FUTEX_PRIVATE_FLAG == 0 {
        return None;
    }
    let command = operation & !(libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME);
    if command == libc::FUTEX_WAKE {
        let woken = in_crew(|crew, _| crew.wake(at, value as usize))? as u32;
        let rest = [at, operation as usize, (value - woken) as usize, 0, 0, 0];
        // SAFETY: the arguments are the caller's: threads outside of the world may wait there.
        let others = unsafe { system(libc::SYS_futex, rest) };
        return Some(c_long::from(woken) + others.max(0));
    }
    // SAFETY: the caller hands a time or none.
    let limit_ns = unsafe { ns_of(limit) };
    let woken = in_crew(|crew, place| {
        let until_ns = match command {
            libc::FUTEX_WAIT => limit_ns.map(|ns| crew.now_ns().saturating_add(ns)),
            libc::FUTEX_WAIT_BITSET => limit_ns.map(since_begin),
            _ => return None,
        };
        if word(at) != value {
            return Some(Err(libc::EAGAIN));
        }
        match wait(crew, place, For::Word { at, expected: value }, until_ns) {
            Woken::Late => Some(Err(libc::ETIMEDOUT)),
            Woken::Told | Woken::Free => Some(Ok(())),
        }
    });
    woken.flatten().map(|woken| match woken {
        Ok(()) => 0,
        Err(number) => {
            set_errno(number);
            -1
        }
    })
}

/// Waits for events as a thread other than the world's; `None` if this is none of those.
///
/// # Safety
/// As epoll_wait(2) demands.
pub(crate) unsafe fn wait_for_events(
    epoll: c_int,
    events: *mut libc::epoll_event,
    events_max: c_int,
    timeout_ms: c_int,
) -> Option<c_int> {
    let (crew, place) = role().filter(|(_, place)| *place != LEADER)?;
    let limit_ns = u64::try_from(timeout_ms).ok().map(|ms| ms * 1_000_000);
    let until_ns = limit_ns.map(|ns| crew.now_ns().saturating_add(ns));
    loop {
        let of = [epoll as usize, events as usize, events_max as usize, 0, 0, 8];
        // SAFETY: the arguments are the caller's; without a mask its size is not looked at.
        let found = unsafe { system(libc::SYS_epoll_pwait, of) } as c_int;
        if found != 0 || timeout_ms == 0 {
            return Some(found);
        }
        INSIDE.set(true);
        let woken = wait(&crew, place, For::Events(epoll), until_ns);
        INSIDE.set(false);
        match woken {
            Woken::Told => {}
            Woken::Late => return Some(0),
            Woken::Free => return None,
        }
    }
}
