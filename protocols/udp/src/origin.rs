//! What a lower session says of itself, asked once.

use core::net::Ipv4Addr;
use xk_core::{Kernel, SessionRef};
use xk_kit::Checksum;
use xk_kit::control::{MyHost, PeerHost, PseudoHeader};

/// The sums over a pseudo-header without its length.
#[derive(Clone, Copy)]
pub(crate) struct Pseudo {
    pub(crate) sent: Checksum,
    pub(crate) received: Checksum,
}

/// What a lower session says of itself.
#[derive(Clone, Copy)]
pub(crate) struct Origin {
    /// The sums over addresses and protocol number; `None` if the lower layer has none.
    pub(crate) pseudo: Option<Pseudo>,
    pub(crate) local: Option<Ipv4Addr>,
    pub(crate) peer: Option<Ipv4Addr>,
}

impl Origin {
    pub(crate) fn ask(cx: &Kernel, lower: &SessionRef) -> Self {
        let host = Ipv4Addr::UNSPECIFIED;
        let begun = |sum| {
            let mut begun = Checksum::new();
            begun.add_u32(sum);
            begun
        };
        let pseudo = lower.ask(cx, PseudoHeader::default()).map(|q| Pseudo {
            sent: begun(q.sum_sent),
            received: begun(q.sum),
        });
        Self {
            pseudo,
            local: lower.ask(cx, MyHost { host }).map(|q| q.host),
            peer: lower.ask(cx, PeerHost { host }).map(|q| q.host),
        }
    }
}
