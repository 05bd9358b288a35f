//! The functions of the C library that programs call in place of its own: other programs, and
//! another root directory. They do what they always do; what the sockets of the graph do not
//! outlive is said.
//!
//! Each is as safe as the C library's: the program keeps to the manual page that is named.

use crate::ask::is_under_exec;
use crate::next_unsafe;
use crate::said;
use crate::socket_unsafe::KeptErrno;
use libc::{c_char, c_int, c_void, pid_t};
use rustix::fs::{Mode, OFlags};
use std::ffi::CStr;

/// Octets at the beginning of a program: its headers, and the note that Go puts behind them.
const START: usize = 4096;
/// A segment that names the dynamic linker, by which this library is loaded (elf(5)).
const PT_INTERP: u32 = 3;
/// The note of programs in Go, by the length of its name, its type, and the name.
const GO: ([u8; 4], [u8; 8]) = ([4, 0, 0, 0], *b"\x04\0\0\0Go\0\0");

/// Why the sockets of a program are going to be Linux's; none if it is no program of the system's
/// own form.
fn stays_linux(path: &CStr) -> Option<&'static str> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = rustix::fs::open(path, flags, Mode::empty()).ok()?;
    let mut start = [0; START];
    let count = rustix::io::read(&file, &mut start).ok()?;
    let start = start.get(..count)?;
    if !start.starts_with(b"\x7fELF\x02") {
        return None;
    }
    let word = |at: usize| Some(u64::from_le_bytes(*start.get(at..)?.first_chunk()?));
    let half = |at: usize| Some(usize::from(u16::from_le_bytes(*start.get(at..)?.first_chunk()?)));
    let (table, each, many) = (word(32)? as usize, half(54)?, half(56)?);
    let kind = |n: usize| {
        let at = table.checked_add(n.checked_mul(each)?)?;
        Some(u32::from_le_bytes(*start.get(at..)?.first_chunk()?))
    };
    if !(0..many).any(|n| kind(n) == Some(PT_INTERP)) {
        return Some("it is linked statically");
    }
    let is_go = |note: &[u8]| note[..4] == GO.0 && note[8..] == GO.1;
    start
        .windows(16)
        .any(is_go)
        .then_some("it is a program in Go, which makes system calls by itself")
}

/// Says so of a program that is about to run in place of this one, or beside it.
fn tell(path: &CStr) {
    let _kept = KeptErrno::new();
    let Some(why) = stays_linux(path).filter(|_| is_under_exec()) else {
        return;
    };
    let name = path.to_str().unwrap_or("a program");
    let key = name.bytes().fold(7u64, |key, octet| key.wrapping_mul(31).wrapping_add(octet.into()));
    said::once(key, &["the sockets of ", name, " are Linux's, not the graph's: ", why]);
}

/// Says so of a program that is looked for as a shell looks for it.
///
/// # Safety
/// `file` ends with a zero octet.
unsafe fn tell_found(file: *const c_char) {
    if file.is_null() || !is_under_exec() {
        return;
    }
    let _kept = KeptErrno::new();
    // SAFETY: the caller says so.
    let file = unsafe { CStr::from_ptr(file) };
    if file.to_bytes().contains(&b'/') {
        return tell(file);
    }
    // SAFETY: a variable's value ends with a zero octet, and stays during this call.
    let folders = unsafe {
        let path = libc::getenv(c"PATH".as_ptr());
        if path.is_null() { c"/bin:/usr/bin" } else { CStr::from_ptr(path) }
    };
    for folder in folders.to_bytes().split(|octet| *octet == b':') {
        let mut path = [0; libc::PATH_MAX as usize];
        let parts = folder.iter().chain(b"/").chain(file.to_bytes());
        if folder.len() + file.count_bytes() + 2 > path.len() {
            continue;
        }
        path.iter_mut().zip(parts).for_each(|(to, from)| *to = *from);
        if let Ok(path) = CStr::from_bytes_until_nul(&path)
            && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
        {
            return tell(path);
        }
    }
}

/// Says so of the program at a path.
///
/// # Safety
/// `path` ends with a zero octet.
unsafe fn tell_at(path: *const c_char) {
    if !path.is_null() && is_under_exec() {
        // SAFETY: the caller says so.
        tell(unsafe { CStr::from_ptr(path) });
    }
}

/// execve(2).
#[unsafe(no_mangle)]
unsafe extern "C" fn execve(
    path: *const c_char,
    arguments: *const *const c_char,
    environment: *const *const c_char,
) -> c_int {
    // SAFETY: the program says that it ends with a zero octet.
    unsafe { tell_at(path) };
    // SAFETY: what the program has handed over is handed on.
    unsafe { next_unsafe::execve(path, arguments, environment) }
}

/// execvp(3).
#[unsafe(no_mangle)]
unsafe extern "C" fn execvp(file: *const c_char, arguments: *const *const c_char) -> c_int {
    // SAFETY: the program says that it ends with a zero octet.
    unsafe { tell_found(file) };
    // SAFETY: what the program has handed over is handed on.
    unsafe { next_unsafe::execvp(file, arguments) }
}

/// posix_spawn(3).
#[unsafe(no_mangle)]
unsafe extern "C" fn posix_spawn(
    pid: *mut pid_t,
    path: *const c_char,
    actions: *const c_void,
    attributes: *const c_void,
    arguments: *const *mut c_char,
    environment: *const *mut c_char,
) -> c_int {
    // SAFETY: the program says that it ends with a zero octet.
    unsafe { tell_at(path) };
    // SAFETY: what the program has handed over is handed on.
    unsafe { next_unsafe::posix_spawn(pid, path, actions, attributes, arguments, environment) }
}

/// posix_spawnp(3).
#[unsafe(no_mangle)]
unsafe extern "C" fn posix_spawnp(
    pid: *mut pid_t,
    file: *const c_char,
    actions: *const c_void,
    attributes: *const c_void,
    arguments: *const *mut c_char,
    environment: *const *mut c_char,
) -> c_int {
    // SAFETY: the program says that it ends with a zero octet.
    unsafe { tell_found(file) };
    // SAFETY: what the program has handed over is handed on.
    unsafe { next_unsafe::posix_spawnp(pid, file, actions, attributes, arguments, environment) }
}

/// chroot(2). The relay is found by a path.
#[unsafe(no_mangle)]
unsafe extern "C" fn chroot(path: *const c_char) -> c_int {
    // SAFETY: what the program has handed over is handed on.
    let result = unsafe { next_unsafe::chroot(path) };
    let is_there = |ticket: &xk_request::Ticket| {
        rustix::fs::access(ticket.door(), rustix::fs::Access::EXISTS).is_ok()
    };
    let kept = KeptErrno::new();
    if result == 0 && crate::ask::ticket().is_some_and(|ticket| !is_there(ticket)) {
        let said =
            "this program has changed its root directory: sockets that it has go on, new ones fail";
        said::once(1, &[said]);
    }
    drop(kept);
    result
}
