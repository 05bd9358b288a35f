//! Relief of an exhausted pool. Connections keep most of what strangers make a host keep, by
//! leaving holes in what they send and by reading nothing.

use crate::protocol::Tcp;
use crate::session::TcpSession;
use alloc::vec::Vec;
use core::time::Duration;
use xk_core::reason::{Class, Reason};
use xk_core::{Kernel, ProtocolRef, SessionRef};

/// Dropped out of order, or broken off, for the messages that a connection kept.
pub(crate) static HELD: Reason = Reason::new("held too many messages", Class::Exhausted);

/// Time for which the pool is exhausted before connections are broken off: what they keep may be on
/// its way.
const EXHAUSTED_MAX: Duration = Duration::from_millis(250);
/// After how long without a refusal it counts as the first.
const PAUSE: Duration = Duration::from_millis(500);
/// Below which part of the pool, one of so many, what they keep is not why it is exhausted. A
/// size of buffers is at most half of a pool, and a piece, counted as 2 KiB at least, may keep a
/// buffer of 64 KiB. Several kernels of a simulation have one pool.
const GUILTY_PART: u64 = 128;
/// Part of the kept octets that is released at a time: one of so many.
const GIVEN_PART: u64 = 4;
/// Least octets that a connection keeps which is broken off.
const HELD_MIN: u64 = 16 << 10;

fn own(session: &SessionRef) -> Option<&TcpSession> {
    session.body::<TcpSession>()
}

impl Tcp {
    /// Has all connections drop what is out of order, for peers send that again; and breaks off,
    /// once that has not been enough for [`EXHAUSTED_MAX`], those that keep the most for the octets
    /// that their peers have sent and taken.
    pub(crate) fn give_back(&self, cx: &Kernel, this: &ProtocolRef) {
        let (now, pressed) = (cx.now(), &self.table.pressed);
        let since = pressed.get().filter(|(_, last)| now.since(*last) < PAUSE);
        let since = since.map_or(now, |(since, _)| since);
        pressed.set(Some((since, now)));
        let all = self.table.sessions.sessions(usize::MAX);
        for tcp in all.iter().filter_map(own) {
            if tcp.drop_runs() > 0 {
                this.head().drops().count(&HELD);
            }
        }
        if now.since(since) < EXHAUSTED_MAX {
            return;
        }
        let mut total = 0;
        let mut holders = Vec::new();
        for session in all {
            let (octets, passed) = own(&session).map_or((0, 0), TcpSession::held);
            total += octets;
            if octets >= HELD_MIN {
                holders.push((passed / (octets / HELD_MIN), octets, session));
            }
        }
        if total < cx.pool().region().1 as u64 / GUILTY_PART {
            return;
        }
        holders.sort_by_key(|(worth, octets, _)| (*worth, u64::MAX - octets));
        let mut given = 0;
        for (_, octets, session) in holders {
            if given >= total / GIVEN_PART {
                break;
            }
            given += octets;
            // Of one that is held above it is counted there.
            if session.head().opens() == 0 {
                this.head().drops().count(&HELD);
            }
            if let Some(tcp) = own(&session) {
                tcp.give_up(cx, &session, &HELD);
            }
        }
        pressed.set(None);
    }
}
