//! The peers on the other side, and which station lives where.

use core::cell::{Cell, RefCell};
use core::time::Duration;
use std::net::SocketAddr;

use xk_core::{Kernel, Time};
use xk_kit::Cache;

/// Largest number of peers, configured and met.
pub(crate) const PEERS_MAX: usize = 256;
/// Time for which a station is believed to be where it was last heard, and a stranger to be there
/// (as bridges have it: IEEE 802.1Q, section 8.8.3).
const AGE_MAX: Duration = Duration::from_secs(300);
/// Age of an entry from which hearing the station again renews it.
const AGE_RENEWED: Duration = Duration::from_secs(10);

/// A station's hardware address.
pub(crate) type Station = [u8; 6];

#[derive(Clone, Copy)]
struct Peer {
    /// Address to which frames for it go.
    address: SocketAddr,
    /// Time at which it was last heard, for one that is not configured.
    met: Option<Time>,
}

#[derive(Clone, Copy)]
struct Home {
    peer: SocketAddr,
    heard: Time,
}

/// Destination of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Destination {
    One(SocketAddr),
    /// To every peer.
    All,
}

/// The peers, and the stations behind them.
pub(crate) struct Peers {
    peers: RefCell<Vec<Peer>>,
    /// True if a sender becomes a peer.
    learn: bool,
    /// Port of all peers, whatever port they send from; `None` for the one they send from.
    port: Option<u16>,
    stations: Cache<Station, Home>,
    evicted: Cell<u64>,
}

impl Peers {
    pub(crate) fn new(
        cx: &Kernel,
        peers: &[SocketAddr],
        (learn, port): (bool, Option<u16>),
        stations_max: usize,
    ) -> Self {
        let configured = |address: &SocketAddr| Peer { address: *address, met: None };
        Self {
            peers: RefCell::new(peers.iter().map(configured).collect()),
            learn,
            port,
            stations: Cache::new(cx.secret(), stations_max),
            evicted: Cell::new(0),
        }
    }

    /// Number of peers, and of stations known behind them.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.peers.borrow().len(), self.stations.len())
    }

    /// The address of the peer with this number.
    pub(crate) fn get(&self, at: usize) -> Option<SocketAddr> {
        self.peers.borrow().get(at).map(|peer| peer.address)
    }

    /// The address of the peer that sends from `from`; `None` for a stranger, unless they are
    /// welcome.
    pub(crate) fn who(&self, now: Time, from: SocketAddr) -> Option<SocketAddr> {
        let mut peers = self.peers.borrow_mut();
        let is_from = |peer: &&mut Peer| match self.port {
            Some(_) => peer.address.ip() == from.ip(),
            None => peer.address == from,
        };
        if let Some(peer) = peers.iter_mut().find(is_from) {
            peer.met = peer.met.map(|_| now);
            return Some(peer.address);
        }
        if !self.learn {
            return None;
        }
        let stranger = Peer {
            address: SocketAddr::new(from.ip(), self.port.unwrap_or(from.port())),
            met: Some(now),
        };
        if peers.len() < PEERS_MAX {
            peers.push(stranger);
            return Some(stranger.address);
        }
        // The one that has been silent longest gives way.
        let silent = peers.iter_mut().filter(|peer| peer.met.is_some());
        *silent.min_by_key(|peer| peer.met)? = stranger;
        Some(stranger.address)
    }

    /// Forgets the peers that are not configured and have not been heard for long.
    pub(crate) fn forget_silent(&self, now: Time) {
        let mut peers = self.peers.borrow_mut();
        peers.retain(|peer| peer.met.is_none_or(|met| now.since(met) < AGE_MAX));
    }

    /// Notes that `station` was heard through this peer.
    pub(crate) fn heard(&self, now: Time, station: Station, peer: SocketAddr) {
        // With one peer there is nothing to know, and a group sends nothing.
        if (!self.learn && self.peers.borrow().len() == 1) || station[0] & 1 != 0 {
            return;
        }
        let known = self.stations.get(&station);
        if known.is_some_and(|home| home.peer == peer && now.since(home.heard) < AGE_RENEWED) {
            return;
        }
        let gone = self.stations.put(station, Home { peer, heard: now });
        if gone.is_some_and(|(other, _)| other != station) {
            self.evicted.set(self.evicted.get() + 1);
        }
    }

    /// Destination of frames for `station`.
    pub(crate) fn towards(&self, now: Time, station: Station) -> Destination {
        if let [only] = **self.peers.borrow() {
            return Destination::One(only.address);
        }
        if station[0] & 1 != 0 {
            return Destination::All;
        }
        let home = self.stations.get(&station);
        home.filter(|home| now.since(home.heard) < AGE_MAX)
            .map_or(Destination::All, |home| Destination::One(home.peer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use xk_testkit::kernel::TestKernel;

    fn address(last: u8, port: u16) -> SocketAddr {
        ([192, 0, 2, last], port).into()
    }

    const A: Station = [2, 0, 0, 0, 0, 1];
    const B: Station = [2, 0, 0, 0, 0, 2];
    const ALL: Station = [0xff; 6];

    #[test]
    fn stations_are_learned_move_and_are_forgotten() {
        let cx = TestKernel::new(1);
        let (one, two) = (address(1, 7), address(2, 7));
        let peers = Peers::new(&cx, &[one, two], (false, None), 1);
        let at = Time::ZERO;
        assert_eq!(peers.towards(at, A), Destination::All);
        peers.heard(at, A, two);
        peers.heard(at, ALL, two);
        assert_eq!(peers.towards(at, A), Destination::One(two));
        assert_eq!(peers.towards(at, ALL), Destination::All);
        peers.heard(at, A, one);
        assert_eq!(peers.towards(at, A), Destination::One(one));
        peers.heard(at, B, one);
        assert_eq!((peers.counts(), peers.evicted.get()), ((2, 1), 1));
        assert_eq!(peers.towards(at, A), Destination::All);
        assert_eq!(peers.towards(at.after(AGE_MAX), B), Destination::All);
    }

    #[test]
    fn only_peers_are_heard_unless_strangers_are_welcome() {
        let cx = TestKernel::new(1);
        let (one, at) = (address(1, 7), Time::ZERO);
        let of = |settings| Peers::new(&cx, &[one], settings, 8);
        let exact = of((false, None));
        assert_eq!(exact.who(at, one), Some(one));
        assert_eq!(exact.who(at, address(1, 8)), None);
        let hosts = of((false, Some(4789)));
        assert_eq!(hosts.who(at, address(1, 50_000)), Some(one));
        assert_eq!(hosts.who(at, address(2, 4789)), None);
    }

    #[test]
    fn strangers_are_bounded_and_go_again() {
        let cx = TestKernel::new(1);
        let (one, at) = (address(1, 7), Time::ZERO);
        let peers = Peers::new(&cx, &[one], (true, Some(4789)), 8);
        let first = address(2, 50_000);
        assert_eq!(peers.who(at, first), Some(address(2, 4789)));
        let later = at.after(Duration::from_secs(1));
        for n in 0..=255 {
            assert!(peers.who(later, ([198, 51, 100, n], 1).into()).is_some());
        }
        assert_eq!(peers.counts().0, PEERS_MAX);
        let kept: Vec<_> = (0..PEERS_MAX).filter_map(|at| peers.get(at)).collect();
        assert!(kept.contains(&one), "who is configured stays");
        assert!(!kept.contains(&address(2, 4789)), "the most silent one went");
        peers.forget_silent(later.after(AGE_MAX));
        assert_eq!(peers.counts().0, 1);
    }
}
