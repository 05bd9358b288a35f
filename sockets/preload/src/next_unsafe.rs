//! The C library's own functions, of those that programs call in place of: they are where threads
//! can be cancelled.

use libc::{
    addrinfo, c_char, c_int, c_uint, c_void, epoll_event, iovec, mmsghdr, msghdr, nfds_t, pid_t,
    pollfd, sigset_t, sockaddr, socklen_t, ssize_t, timespec,
};
use std::ffi::CStr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Addresses of the functions that have been found; null until then, and if there is none.
static FOUND: [AtomicPtr<c_void>; NAMES.len()] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; NAMES.len()];

/// The place of a name among all.
const fn place(name: &CStr) -> usize {
    let (mut place, name) = (0, name.to_bytes());
    while place < NAMES.len() {
        let other = NAMES[place].to_bytes();
        let mut at = 0;
        while at < name.len() && at < other.len() && name[at] == other[at] {
            at += 1;
        }
        if at == name.len() && at == other.len() {
            return place;
        }
        place += 1;
    }
    panic!("no such name")
}

/// The function at this place of those behind this library; null if there is none.
fn find(place: usize) -> *mut c_void {
    let found = FOUND[place].load(Ordering::Relaxed);
    if !found.is_null() {
        return found;
    }
    // SAFETY: the name ends with a zero octet.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, NAMES[place].as_ptr()) };
    FOUND[place].store(found, Ordering::Relaxed);
    found
}

/// Finds all of them: later it may be in a signal's handler, where the dynamic linker may not be
/// asked.
pub(crate) fn find_all() {
    for place in 0..NAMES.len() {
        find(place);
    }
}

macro_rules! next {
    ($($rust:ident = $c:literal ($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        const NAMES: &[&CStr] = &[$($c),*];

        $(
            /// # Safety
            /// As for the C library's.
            pub(crate) unsafe fn $rust($($argument: $type),*) -> $result {
                let found = find(const { place($c) });
                // SAFETY: a pointer to a function, or null, is an optional function; the C library
                // has it of this form.
                let function = unsafe {
                    std::mem::transmute::<
                        *mut c_void,
                        Option<unsafe extern "C" fn($($type),*) -> $result>,
                    >(found)
                };
                match function {
                    // SAFETY: the caller keeps to what the C library says.
                    Some(function) => unsafe { function($($argument),*) },
                    None => {
                        crate::socket_unsafe::set_errno(libc::ENOSYS);
                        -1
                    }
                }
            }
        )*
    };
}

next! {
    close = c"close" (fd: c_int) -> c_int;
    read = c"read" (fd: c_int, to: *mut c_void, count: usize) -> ssize_t;
    readv = c"readv" (fd: c_int, to: *const iovec, count: c_int) -> ssize_t;
    recvfrom = c"recvfrom" (
        fd: c_int, to: *mut c_void, count: usize, flags: c_int, from: *mut sockaddr, length: *mut socklen_t
    ) -> ssize_t;
    recvmsg = c"recvmsg" (fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t;
    recvmmsg = c"recvmmsg" (
        fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int, limit: *mut timespec
    ) -> c_int;
    write = c"write" (fd: c_int, from: *const c_void, count: usize) -> ssize_t;
    writev = c"writev" (fd: c_int, from: *const iovec, count: c_int) -> ssize_t;
    sendto = c"sendto" (
        fd: c_int, from: *const c_void, count: usize, flags: c_int, to: *const sockaddr, length: socklen_t
    ) -> ssize_t;
    sendmsg = c"sendmsg" (fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t;
    sendmmsg = c"sendmmsg" (fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int;
    poll = c"poll" (fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int;
    ppoll = c"ppoll" (
        fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t
    ) -> c_int;
    epoll_pwait = c"epoll_pwait" (
        set: c_int, events: *mut epoll_event, most: c_int, timeout: c_int, mask: *const sigset_t
    ) -> c_int;
    getaddrinfo = c"getaddrinfo" (
        node: *const c_char, service: *const c_char, hints: *const addrinfo, found: *mut *mut addrinfo
    ) -> c_int;
    chroot = c"chroot" (path: *const c_char) -> c_int;
    execve = c"execve" (
        path: *const c_char, arguments: *const *const c_char, environment: *const *const c_char
    ) -> c_int;
    execvp = c"execvp" (file: *const c_char, arguments: *const *const c_char) -> c_int;
    posix_spawn = c"posix_spawn" (
        pid: *mut pid_t, path: *const c_char, actions: *const c_void, attributes: *const c_void,
        arguments: *const *mut c_char, environment: *const *mut c_char
    ) -> c_int;
    posix_spawnp = c"posix_spawnp" (
        pid: *mut pid_t, file: *const c_char, actions: *const c_void, attributes: *const c_void,
        arguments: *const *mut c_char, environment: *const *mut c_char
    ) -> c_int;
}
