//! The C library's own functions, of those that programs call in place of: they are where threads can be cancelled.

use libc::{c_int, c_uint, c_void, iovec, mmsghdr, msghdr, sockaddr, socklen_t, ssize_t, timespec};
use std::ffi::CStr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The next function of this name behind this library; null if there is none.
fn find(kept: &AtomicPtr<c_void>, name: &CStr) -> *mut c_void {
    let found = kept.load(Ordering::Relaxed);
    if !found.is_null() {
        return found;
    }
    // SAFETY: the name ends with a zero octet.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    kept.store(found, Ordering::Relaxed);
    found
}

macro_rules! next {
    ($($rust:ident = $c:literal ($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        $(
            /// # Safety
            /// As for the C library's.
            pub(crate) unsafe fn $rust($($argument: $type),*) -> $result {
                static KEPT: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
                let found = find(&KEPT, $c);
                // SAFETY: a pointer to a function, or null, is an optional function; the C library has it of this form.
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
}
