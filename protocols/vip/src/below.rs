//! The link and the network below: `vip` and `vipaddr` ask both how a host is reached.

use core::time::Duration;
use xk_core::graph::{Build, BuildError};
use xk_core::{HostAddr, Kernel, Part, Participants, ProtocolRef, SessionRef, Time};
use xk_kit::Cache;
use xk_kit::control::{PeerEther, Resolve};
use xk_kit::net::neighbour::{self, HostAt, RunsVirtual, WatchHosts};
use xk_kit::net::receivers::Openings;

/// Time for which an open does not ask again for a host that did not answer.
const ABSENT: Duration = Duration::from_secs(20);
/// Hosts that are remembered as absent.
const ABSENT_MAX: usize = 1024;

/// The two layers below, and the sessions that are being opened over the link for each `T`.
pub(crate) struct Below<T> {
    /// The layer that reaches hosts on the link.
    pub(crate) link: ProtocolRef,
    /// The layer that reaches all hosts.
    pub(crate) net: ProtocolRef,
    pub(crate) openings: Openings<T>,
    /// Time until which a host is not asked for again.
    pub(crate) absent: Cache<HostAddr, Time>,
}

/// Participants for an offer to the layer at place `at`: on the link peers are stations, not hosts.
pub(crate) fn offered(at: usize, ends: &Participants) -> Participants {
    if at == 0 { Participants::local(Part::Any) } else { ends.clone() }
}

impl<T: Clone> Below<T> {
    pub(crate) fn new(build: &Build<'_>) -> Result<Self, BuildError> {
        let absent = Cache::new(build.cx.secret(), ABSENT_MAX);
        let (link, net) = (build.lower(0)?, build.lower(1)?);
        Ok(Self { link, net, openings: Openings::default(), absent })
    }

    /// Lets the link tell `this` of changes.
    pub(crate) fn watch(&self, cx: &Kernel, this: &ProtocolRef) {
        // If the link does not report changes, the next look is when the time is over.
        let _ = self.link.ask(cx, WatchHosts { watcher: this.clone() });
    }

    /// Whether the host is on the link now, or is a group.
    pub(crate) fn is_on_link(&self, cx: &Kernel, host: HostAddr) -> bool {
        host.is_group() || neighbour::is_on_link(cx, &self.net, &self.link, host)
    }

    /// The host's address on the link, asked for if it is not known.
    pub(crate) fn resolve(&self, cx: &Kernel, host: HostAddr) -> Option<[u8; 6]> {
        self.link.ask(cx, Resolve { host, address: None })?.address
    }

    /// Whether the host runs virtual protocols at this address. Without a table, every host is
    /// taken to run them ("RPC in the x-Kernel", section 3.1).
    pub(crate) fn runs(&self, cx: &Kernel, host: HostAddr, address: [u8; 6]) -> bool {
        let asked = RunsVirtual { host, address, runs: false };
        self.link.ask(cx, asked).is_none_or(|answer| answer.runs)
    }

    /// Whether the station behind `lower` is still `host`, to which `link` leads. A station whose
    /// address was forgotten counts as the host until it is known to be another.
    pub(crate) fn is_still(
        &self,
        cx: &Kernel,
        lower: &SessionRef,
        host: Option<HostAddr>,
        link: Option<&SessionRef>,
    ) -> bool {
        let ether = |session: &SessionRef| session.ask(cx, PeerEther::default());
        let Some(PeerEther { address }) = ether(lower) else {
            return false;
        };
        if let Some(known) = link.and_then(ether) {
            return known.address == address;
        }
        let found = self.link.ask(cx, HostAt { address, host: HostAddr::UNSPECIFIED });
        found.is_none_or(|found| Some(found.host) == host)
    }

    /// Whether the host did not answer a short time ago.
    pub(crate) fn is_absent(&self, now: Time, host: HostAddr) -> bool {
        self.absent.get(&host).is_some_and(|until| now < until)
    }

    /// Notes that the host does not answer.
    pub(crate) fn note_absent(&self, now: Time, host: HostAddr) {
        self.absent.put(host, now.after(ABSENT));
    }
}
