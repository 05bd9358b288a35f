//! Fast Open for all connections (RFC 7413): the cookies that peers are given and how many of them
//! may use one at a time, and what is known of peers for connections of this side.

use crate::connection::{Connection, Report};
use crate::isn::Secrets;
use crate::options::Cookie;
use crate::pending::PendingKey;
use crate::session::TcpSession;
use crate::state::State;
use crate::table::ports;
use alloc::collections::{BTreeMap, VecDeque};
use core::cell::{Cell, RefCell};
use core::time::Duration;
use xk_core::map::MapStats;
use xk_core::{Kernel, Secret, Time};
use xk_kit::Cache;

/// The length of a period. A cookie is good in its own and the next (RFC 7413, section 4.1.2).
const PERIOD_MS: u64 = 12 * 3600 * 1000;
/// The time that a request counts as pending which a reset has ended: a peer whose address another
/// has forged ends them as fast as they come (RFC 7413, section 5.1).
const RESET_COUNTS: Duration = Duration::from_secs(60);
/// Bounds the peers' ports of which something is known.
const PEERS_MAX: usize = 4096;
/// The time without Fast Opens for a peer's port that took no notice of one, or where what carries
/// it got lost; doubled each time in a row.
const AVOIDED: Duration = Duration::from_secs(60);
/// The time without any, once nothing more passed on a connection that began with one: that is
/// what stands in front of this host; doubled each time in a row.
const OFF: Duration = Duration::from_secs(3600);
/// Bounds the doublings of both.
const DOUBLED_MAX: u32 = 6;

/// A path that no Fast Open goes through for a while.
#[derive(Clone, Copy, Default)]
struct Avoided {
    times: u32,
    until: Time,
}

impl Avoided {
    /// One more time, which is the first again if the last is over for as long as it took.
    fn again(self, base: Duration, now: Time) -> Self {
        let time = |times: u32| base * (1 << times.min(DOUBLED_MAX));
        let is_long_ago = now.since(self.until) > time(self.times);
        let times = if is_long_ago { 0 } else { self.times };
        Self { times: times + 1, until: now + time(times) }
    }
}

/// The facts known of a port of a peer.
#[derive(Clone, Copy, Default)]
struct Peer {
    cookie: Option<Cookie>,
    /// Octets of data that it takes in a segment.
    segment: u16,
    avoided: Avoided,
}

/// Fast Opens of peers at one port.
#[derive(Default)]
struct Queue {
    /// Handshakes that are not done.
    pending: usize,
    /// Times until which the connections count that a reset has ended.
    resets: VecDeque<Time>,
}

/// Returned by [`FastOpens::judge`].
pub(crate) struct Judged {
    /// The cookie that the peer has shown is good.
    pub(crate) is_good: bool,
    /// The one that it is given: it has none, or one that is old.
    pub(crate) given: Option<Cookie>,
}

/// All of it.
pub(crate) struct FastOpens {
    /// Bounds those pending at a port of which the protocol above says nothing.
    pub(crate) pending_max: Cell<u32>,
    queues: RefCell<BTreeMap<u16, Queue>>,
    peers: Cache<PendingKey, Peer>,
    off: Cell<Avoided>,
}

fn cookie(secrets: &Secrets, hosts: u64, period: u64) -> Option<Cookie> {
    Cookie::of(&secrets.fast_open(hosts, period).to_be_bytes())
}

impl FastOpens {
    pub(crate) fn new(secret: Secret, pending_max: u32) -> Self {
        Self {
            pending_max: Cell::new(pending_max),
            queues: RefCell::default(),
            peers: Cache::new(secret, PEERS_MAX),
            off: Cell::default(),
        }
    }

    /// Whether a SYN from these hosts shows a cookie of theirs, and which it is to get.
    pub(crate) fn judge(secrets: &Secrets, hosts: u64, shown: &Cookie, now: Time) -> Judged {
        let period = now.as_ms() / PERIOD_MS;
        let current = cookie(secrets, hosts, period);
        let is_current = Some(*shown) == current;
        let before = period.checked_sub(1).and_then(|before| cookie(secrets, hosts, before));
        let is_good = is_current || Some(*shown) == before;
        Judged { is_good, given: current.filter(|_| !is_current) }
    }

    /// One more is pending at a port where so many may be; false if there is no room.
    pub(crate) fn enter(&self, port: u16, most: u32, now: Time) -> bool {
        let mut queues = self.queues.borrow_mut();
        let queue = queues.entry(port).or_default();
        queue.forget(now);
        let has_room = queue.pending + queue.resets.len() < most as usize;
        queue.pending += usize::from(has_room);
        if queue.is_empty() {
            queues.remove(&port);
        }
        has_room
    }

    /// One is no longer pending, perhaps because of a reset.
    pub(crate) fn leave(&self, port: u16, is_reset: bool, now: Time) {
        let mut queues = self.queues.borrow_mut();
        let Some(queue) = queues.get_mut(&port) else {
            return;
        };
        queue.pending = queue.pending.saturating_sub(1);
        queue.forget(now);
        if is_reset {
            queue.resets.push_back(now + RESET_COUNTS);
        }
        if queue.is_empty() {
            queues.remove(&port);
        }
    }

    /// The cookie for a peer's port, with the octets of data that it takes in a segment; the inner
    /// `None` if it has given none yet, the outer one if no Fast Open is to go there now.
    pub(crate) fn known(&self, key: &PendingKey, now: Time) -> Option<Option<(Cookie, u16)>> {
        let peer = self.peers.touch(key).unwrap_or_default();
        let is_avoided = peer.avoided.until > now || self.off.get().until > now;
        (!is_avoided).then(|| peer.cookie.map(|cookie| (cookie, peer.segment)))
    }

    /// Learns from a connection of this side.
    pub(crate) fn learn(&self, key: PendingKey, report: Report, now: Time) {
        let mut peer = self.peers.touch(&key).unwrap_or_default();
        match report {
            Report::Given(cookie, segment) => {
                peer = Peer { cookie: Some(cookie), segment, avoided: Avoided::default() };
            }
            Report::Taken(segment) => {
                (peer.segment, peer.avoided) = (segment, Avoided::default());
            }
            Report::Refused | Report::Lost => peer.avoided = peer.avoided.again(AVOIDED, now),
            Report::Hole => {
                peer.avoided = peer.avoided.again(AVOIDED, now);
                self.off.set(self.off.get().again(OFF, now));
            }
        }
        let _ = self.peers.put(key, peer);
    }

    pub(crate) fn stats(&self) -> MapStats {
        self.peers.stats()
    }

    pub(crate) fn clear(&self) {
        self.peers.clear();
        self.queues.take();
    }
}

impl Queue {
    fn forget(&mut self, now: Time) {
        while self.resets.pop_front_if(|until| *until <= now).is_some() {}
    }

    fn is_empty(&self) -> bool {
        self.pending == 0 && self.resets.is_empty()
    }
}

impl TcpSession {
    /// Passes on what the connection has found out of the peer, and counts it no longer among those
    /// whose handshake is not done once that is; `is_reset` if a reset came last.
    #[inline]
    pub(crate) fn settle_fast(&self, cx: &Kernel, connection: &mut Connection, is_reset: bool) {
        if !connection.has_fast() {
            return;
        }
        if let Some(report) = connection.fast_report() {
            self.table.fast.learn(self.peer(), report, cx.now());
        }
        match connection.state() {
            State::SynReceived => {}
            state => self.leave_fast(cx, is_reset && state == State::Closed),
        }
    }

    /// Counts it no longer as pending, perhaps because of a reset.
    pub(crate) fn leave_fast(&self, cx: &Kernel, is_reset: bool) {
        if self.is_fast_pending.take() {
            self.table.fast.leave(self.key.1 as u16, is_reset, cx.now());
        }
    }

    /// Returns the key of the peer's port.
    fn peer(&self) -> PendingKey {
        (self.link.hosts, ports(0, self.peer_port()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fast_opens() -> FastOpens {
        FastOpens::new(Secret::known([1, 2]), 10)
    }

    #[test]
    fn each_pair_of_hosts_has_its_cookie_and_cookies_age() {
        let secrets = Secrets::known();
        let at = |hours: u64| Time::from_s((1000 * 12 + hours) * 3600);
        let judge = |hosts, shown: &Cookie, now| FastOpens::judge(&secrets, hosts, shown, now);
        let first = judge(7, &Cookie::REQUEST, at(0)).given.unwrap();
        assert!(!judge(7, &Cookie::REQUEST, at(0)).is_good);
        assert_eq!(first.as_slice().len(), 8);
        let stands = |hosts, hours| {
            let judged = judge(hosts, &first, at(hours));
            (judged.is_good, judged.given.is_some())
        };
        assert_eq!(stands(7, 11), (true, false));
        assert_eq!(stands(7, 12), (true, true));
        assert_eq!(stands(7, 23), (true, true));
        assert_eq!(stands(7, 24), (false, true));
        assert_eq!(stands(8, 0), (false, true));
    }

    #[test]
    fn no_more_are_pending_than_may_be() {
        let (fast, now) = (fast_opens(), Time::from_s(100));
        assert!(!fast.enter(80, 0, now));
        assert!(fast.enter(80, 2, now) && fast.enter(80, 2, now));
        assert!(!fast.enter(80, 2, now));
        assert!(fast.enter(81, 2, now), "another port");
        fast.leave(80, false, now);
        assert!(fast.enter(80, 2, now));
        fast.leave(80, true, now);
        assert!(!fast.enter(80, 2, now + RESET_COUNTS - Duration::from_secs(1)));
        assert!(fast.enter(80, 2, now + RESET_COUNTS));
        for port in [80, 80, 81] {
            fast.leave(port, false, now + RESET_COUNTS);
        }
        assert!(fast.queues.borrow().is_empty(), "nothing is left of a port that is at rest");
    }

    #[test]
    fn what_gets_lost_is_avoided_for_longer_each_time() {
        let (fast, key, cookie) = (fast_opens(), (1, 2), Cookie::of(&[5; 8]).unwrap());
        let mut now = Time::from_s(1000);
        fast.learn(key, Report::Given(cookie, 1400), now);
        assert_eq!(fast.known(&key, now), Some(Some((cookie, 1400))));
        for minutes in [1, 2, 4, 8, 16, 32, 64, 64] {
            fast.learn(key, Report::Lost, now);
            now += Duration::from_secs(60 * minutes);
            assert_eq!(fast.known(&key, now.before(Duration::from_secs(1))), None, "{minutes}");
            assert_eq!(fast.known(&key, now), Some(Some((cookie, 1400))), "{minutes}");
            assert_eq!(fast.known(&(1, 3), now), Some(None), "another port is asked");
        }
        // What passes begins again at the beginning.
        fast.learn(key, Report::Taken(1200), now);
        fast.learn(key, Report::Refused, now);
        assert_eq!(fast.known(&key, now + AVOIDED), Some(Some((cookie, 1200))));
        // And so does a long time.
        fast.learn(key, Report::Lost, now + Duration::from_secs(24 * 3600));
        assert!(fast.known(&key, now + Duration::from_secs(24 * 3600) + AVOIDED).is_some());
    }

    #[test]
    fn a_black_hole_lets_none_go_for_an_hour() {
        let (fast, now) = (fast_opens(), Time::from_s(1000));
        fast.learn((1, 2), Report::Hole, now);
        assert_eq!(fast.known(&(9, 9), now + OFF.mul_f32(0.9)), None);
        assert_eq!(fast.known(&(9, 9), now + OFF), Some(None));
    }

    #[test]
    fn a_peer_more_takes_the_place_of_another() {
        let (fast, now) = (fast_opens(), Time::from_s(1000));
        for peer in 0..2 * PEERS_MAX as u64 {
            fast.learn((peer, 1), Report::Refused, now);
        }
        assert_eq!(fast.stats().entries, PEERS_MAX);
    }
}
