//! What a lower session says of itself, asked once.

use core::net::Ipv4Addr;
use xk_core::{Kernel, Message, SessionRef};
use xk_kit::Checksum;
use xk_kit::control::{MyHost, PeerHost, PseudoHeader, max_packet, opt_packet};
use xk_kit::offload::{Offloads, TransportChecksum};

/// Octets of the largest packet where nobody below knows.
const PATH_UNKNOWN: u32 = 576;

/// The sums over a pseudo-header without its length, folded.
#[derive(Clone, Copy)]
pub(crate) struct Pseudo {
    pub(crate) sent: u16,
    pub(crate) received: u16,
}

/// What a lower session says of itself.
#[derive(Clone, Copy)]
pub(crate) struct Origin {
    /// The sums over addresses and protocol number; `None` if the lower layer has none: then they count as zero.
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
            begun.folded()
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

    /// Both hosts as one number; `otherwise` where the layer below has no hosts.
    pub(crate) fn hosts(&self, otherwise: u64) -> u64 {
        match (self.local, self.peer) {
            (Some(local), Some(peer)) => {
                u64::from(u32::from(peer)) << 32 | u64::from(u32::from(local))
            }
            _ => otherwise,
        }
    }

    /// Whether the checksum of a segment, its header in front, is right or known to be.
    pub(crate) fn is_intact(&self, message: &Message) -> bool {
        let sum = self.pseudo.map_or(0, |p| p.received);
        is_intact(sum, message)
    }
}

/// Whether the checksum of a segment is right or known to be, `pseudo` being the sum over addresses and protocol number.
#[inline]
pub(crate) fn is_intact(pseudo: u16, message: &Message) -> bool {
    if message.has_attributes() && message.attribute::<TransportChecksum>().is_some() {
        return true;
    }
    let mut sum = Checksum::resume(pseudo);
    sum.add_u32(message.len() as u32);
    for slice in message.slices() {
        sum.add(slice.octets);
    }
    sum.is_valid()
}

/// Octets of the largest message that goes through `lower` whole.
pub(crate) fn path(cx: &Kernel, lower: &SessionRef) -> u32 {
    opt_packet(cx, lower, max_packet(cx, lower, PATH_UNKNOWN))
}

/// Whether somebody below `lower` completes checksums.
pub(crate) fn leaves_sums(cx: &Kernel, lower: &SessionRef) -> bool {
    Offloads::of_session(cx, lower).tx_checksum
}
