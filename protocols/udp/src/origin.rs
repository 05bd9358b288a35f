//! What a lower session says of itself, asked once.

use crate::wire::{HEADER_LEN, has_checksum};
use core::net::Ipv4Addr;
use xk_core::{Kernel, Message, SessionRef};
use xk_kit::Checksum;
use xk_kit::control::{MyHost, PeerHost, PseudoHeader};
use xk_kit::offload::TransportChecksum;

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

/// Whether a datagram with its header in front has the right checksum, or none, or one that is known to be right.
pub(crate) fn is_intact(origin: Origin, header: &[u8; HEADER_LEN], message: &Message) -> bool {
    let is_known = message.attribute::<TransportChecksum>().is_some();
    let wanted = has_checksum(header) && !is_known;
    let Some(mut sum) = origin.pseudo.map(|p| p.received).filter(|_| wanted) else {
        return true;
    };
    sum.add_u16(message.len() as u16);
    for slice in message.slices() {
        sum.add(slice.octets);
    }
    sum.is_valid()
}
