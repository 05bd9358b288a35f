//! The functions of the C library that programs call in place of its own: names.
//!
//! Each is as safe as the C library's: the program keeps to the manual page that is named.

use crate::ask::is_under_exec;
use crate::next_unsafe;
use libc::{addrinfo, c_char, c_int};
use std::ffi::CStr;
use std::net::IpAddr;

/// getaddrinfo(3). A number needs no address of Linux's: the graph has one.
#[unsafe(no_mangle)]
unsafe extern "C" fn getaddrinfo(
    node: *const c_char,
    service: *const c_char,
    hints: *const addrinfo,
    found: *mut *mut addrinfo,
) -> c_int {
    // SAFETY: the program says that each is null or what the manual page has it be.
    unsafe {
        let is_number = !node.is_null()
            && CStr::from_ptr(node).to_str().is_ok_and(|text| text.parse::<IpAddr>().is_ok());
        if hints.is_null() || !is_number || !is_under_exec() {
            return next_unsafe::getaddrinfo(node, service, hints, found);
        }
        let mut ours = hints.read();
        ours.ai_flags &= !libc::AI_ADDRCONFIG;
        next_unsafe::getaddrinfo(node, service, &raw const ours, found)
    }
}
