//! Registrations of Internet sockets with epoll sets, so that a socket that replaces one is
//! registered as well.

use crate::socket_unsafe::KeptErrno;
use arrayvec::ArrayVec;
use libc::{c_int, epoll_event};
use std::collections::HashMap;
use std::sync::Mutex;

/// More descriptors than this are not remembered; programs that connect before they register do not
/// need it.
const REMEMBERED_MAX: usize = 1 << 16;

/// Nor is it, if a descriptor is in more sets than this.
const SETS_MAX: usize = 4;

type Registrations = HashMap<c_int, ArrayVec<(c_int, epoll_event), SETS_MAX>>;

static REGISTERED: Mutex<Option<Registrations>> = Mutex::new(None);

/// Notes what epoll_ctl(2) has done. A lock that another thread had at a fork is left alone.
pub(crate) fn note(set: c_int, operation: c_int, fd: c_int, event: Option<epoll_event>) {
    let Ok(mut registered) = REGISTERED.try_lock() else {
        return;
    };
    let registered = registered.get_or_insert_default();
    match (operation, event) {
        (libc::EPOLL_CTL_ADD, Some(event)) => {
            if registered.len() >= REMEMBERED_MAX {
                return;
            }
            let list = registered.entry(fd).or_default();
            list.retain(|(other, _)| *other != set);
            let _ = list.try_push((set, event));
        }
        (libc::EPOLL_CTL_MOD, Some(event)) => {
            let list = registered.get_mut(&fd);
            if let Some((_, kept)) = list.and_then(|l| l.iter_mut().find(|(s, _)| *s == set)) {
                *kept = event;
            }
        }
        _ => {
            if let Some(list) = registered.get_mut(&fd) {
                list.retain(|(other, _)| *other != set);
                if list.is_empty() {
                    registered.remove(&fd);
                }
            }
        }
    }
}

/// Registers again what lies in the place of `fd` now.
pub(crate) fn renew(fd: c_int) {
    let list = match REGISTERED.try_lock() {
        Ok(mut registered) => registered.as_mut().and_then(|r| r.remove(&fd)),
        Err(_) => None,
    };
    let _kept = KeptErrno::new();
    for (set, mut event) in list.unwrap_or_default() {
        // SAFETY: the event is on this stack. A set that is gone, or a registration that is still
        // there, is an error without harm.
        unsafe {
            libc::syscall(libc::SYS_epoll_ctl, set, libc::EPOLL_CTL_ADD, fd, &raw mut event);
        }
    }
}
