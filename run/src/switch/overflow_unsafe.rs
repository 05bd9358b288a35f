//! Tells the overflow of a shepherd's stack from any other bad access.
//!
//! Guard pages are kept in a list that a signal handler may read at any time:
//! its nodes are never freed, only used again, so it is as long as the greatest
//! number of stacks there ever was at one time.

use std::mem::MaybeUninit;
use std::ops::Range;
use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering};

static INSTALLED: Once = Once::new();
static GUARDS: AtomicPtr<Guard> = AtomicPtr::new(ptr::null_mut());
/// The handler found at installation: Rust's own, for the stacks of threads.
/// Written once, before ours can run.
static FORMER: AtomicPtr<libc::sigaction> = AtomicPtr::new(ptr::null_mut());

struct Guard {
    taken: AtomicBool,
    /// Addresses of the guard page; `high` is 0 while the node is not in use.
    low: AtomicUsize,
    high: AtomicUsize,
    slot: AtomicU32,
    stack_octets: AtomicUsize,
    next: *const Guard,
}

/// Has the guard page of one stack watched, until it is dropped.
pub(super) struct Watch(&'static Guard);

impl Watch {
    /// Watches the page of `page_octets` at the low end of `stack`.
    pub(super) fn new(slot: u32, stack: Range<usize>, page_octets: usize) -> Watch {
        let guard = reuse_guard().unwrap_or_else(add_guard);
        let usable = stack.len().saturating_sub(page_octets);
        guard.slot.store(slot, Ordering::Relaxed);
        guard.stack_octets.store(usable, Ordering::Relaxed);
        guard.low.store(stack.start, Ordering::Relaxed);
        guard.high.store(stack.start + page_octets, Ordering::Release);
        Watch(guard)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.high.store(0, Ordering::Release);
        self.0.taken.store(false, Ordering::Release);
    }
}

fn guards() -> impl Iterator<Item = &'static Guard> {
    let mut next: *const Guard = GUARDS.load(Ordering::Acquire);
    std::iter::from_fn(move || {
        // SAFETY: null, or a node that add_guard leaked and published whole.
        let guard: Option<&'static Guard> = unsafe { next.as_ref() };
        next = guard?.next;
        guard
    })
}

fn reuse_guard() -> Option<&'static Guard> {
    guards().find(|guard| !guard.taken.swap(true, Ordering::AcqRel))
}

fn add_guard() -> &'static Guard {
    let node = Box::into_raw(Box::new(Guard {
        taken: AtomicBool::new(true),
        low: AtomicUsize::new(0),
        high: AtomicUsize::new(0),
        slot: AtomicU32::new(0),
        stack_octets: AtomicUsize::new(0),
        next: ptr::null(),
    }));
    let mut first = GUARDS.load(Ordering::Acquire);
    loop {
        // SAFETY: not published yet, so no other thread sees this node.
        unsafe { (*node).next = first };
        match GUARDS.compare_exchange(first, node, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: leaked, and from here on changed only through atomics.
            Ok(_) => return unsafe { &*node },
            Err(other) => first = other,
        }
    }
}

/// Installs the handler once in the process, and sees to it that the calling
/// thread has a stack for it: the one that overflowed is of no use.
pub(super) fn install() {
    INSTALLED.call_once(install_handler);
    have_signal_stack();
}

fn install_handler() {
    let mut former = Box::new(MaybeUninit::<libc::sigaction>::zeroed());
    // SAFETY: both calls get valid pointers to sigaction structures, for which
    // all zeroes is a valid value; the handler has the three-argument form that
    // SA_SIGINFO asks for and calls only what is safe in a signal handler.
    unsafe {
        if libc::sigaction(libc::SIGSEGV, ptr::null(), former.as_mut_ptr()) != 0 {
            return;
        }
        FORMER.store(Box::into_raw(former).cast(), Ordering::Release);
        let mut ours: libc::sigaction = std::mem::zeroed();
        let handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) = on_fault;
        ours.sa_sigaction = handler as *const () as usize;
        ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigemptyset(&mut ours.sa_mask);
        libc::sigaction(libc::SIGSEGV, &ours, ptr::null_mut());
    }
}

/// Rust gives its threads a signal stack; a thread of another language that
/// hosts a kernel may have none, and gets one that stays with it.
fn have_signal_stack() {
    let octets = libc::SIGSTKSZ.max(16 * 1024);
    // SAFETY: the structures are valid and outlive the calls; the memory given
    // to the thread is leaked, so it is there as long as the thread.
    unsafe {
        let mut present: libc::stack_t = std::mem::zeroed();
        if libc::sigaltstack(ptr::null(), &mut present) != 0
            || present.ss_flags & libc::SS_DISABLE == 0
        {
            return;
        }
        let stack = libc::stack_t {
            ss_sp: Box::leak(vec![0_u8; octets].into_boxed_slice()).as_mut_ptr().cast(),
            ss_flags: 0,
            ss_size: octets,
        };
        libc::sigaltstack(&stack, ptr::null_mut());
    }
}

extern "C" fn on_fault(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the system hands a valid siginfo to a SA_SIGINFO handler.
    let address = unsafe { (*info).si_addr() } as usize;
    let hit = guards().find(|guard| {
        address < guard.high.load(Ordering::Acquire) && address >= guard.low.load(Ordering::Relaxed)
    });
    match hit {
        Some(guard) => {
            write_overflow(guard);
            // SAFETY: abort is safe in a signal handler.
            unsafe { libc::abort() }
        }
        None => pass_on(signal, info, context),
    }
}

/// Lets the former handler have the fault. Where it was none, the default
/// action ends the process when the faulting instruction is tried again.
fn pass_on(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: FORMER is null or points to what sigaction returned, and is never
    // freed. Its handler is called in the form its flags say it has.
    unsafe {
        let former = FORMER.load(Ordering::Acquire).as_ref();
        let action = former.map_or(libc::SIG_DFL, |former| former.sa_sigaction);
        if action == libc::SIG_DFL || action == libc::SIG_IGN {
            libc::signal(signal, libc::SIG_DFL);
        } else if former.is_some_and(|former| former.sa_flags & libc::SA_SIGINFO != 0) {
            type Full = extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void);
            let handler: Full = std::mem::transmute(action);
            handler(signal, info, context);
        } else {
            let handler: extern "C" fn(i32) = std::mem::transmute(action);
            handler(signal);
        }
    }
}

/// One line on standard error, without allocation, lock or formatting: none of
/// them is allowed here.
fn write_overflow(guard: &Guard) {
    write_all(b"\nxk: stack overflow of shepherd ");
    write_number(guard.slot.load(Ordering::Relaxed) as usize);
    write_all(b", which has ");
    write_number(guard.stack_octets.load(Ordering::Relaxed));
    write_all(b" octets; raise stack_octets or find the recursion\n");
}

fn write_number(mut number: usize) {
    let mut digits = [0_u8; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 || at == 0 {
            break;
        }
    }
    write_all(&digits[at..]);
}

fn write_all(octets: &[u8]) {
    // SAFETY: the slice is valid; write is safe in a signal handler. A short
    // write loses part of a message about a process that ends anyway.
    unsafe { libc::write(libc::STDERR_FILENO, octets.as_ptr().cast(), octets.len()) };
}
