//! Facts that a lower session tells about itself, as TCP wants them.

use xk_core::{Kernel, Message, Secret, SessionRef};
use xk_kit::Checksum;
use xk_kit::control::{MyPort, PeerPort, max_packet, opt_packet};
use xk_kit::net::ports::Origin;
use xk_kit::wire::offload::TransportChecksum;

/// Octets of the largest packet where no layer below knows.
const PATH_UNKNOWN: u32 = 576;

/// The sum over addresses and protocol number for segments that are sent; where the layer below has
/// none they count as zero.
pub(crate) fn sent(origin: &Origin) -> Checksum {
    origin.pseudo.map_or(Checksum::new(), |p| p.sent)
}

/// The sum over addresses and protocol number for segments that arrive.
pub(crate) fn received(origin: &Origin) -> Checksum {
    origin.pseudo.map_or(Checksum::new(), |p| p.received)
}

/// Both hosts as one number; that of the session where it has none. Hosts that do not fit are
/// hashed with `secret`, so that strangers cannot find others with the same number.
pub(crate) fn hosts(secret: &Secret, origin: &Origin, lower: &SessionRef) -> u64 {
    match (origin.local, origin.peer) {
        (Some(local), Some(peer)) => match (local.to_v4(), peer.to_v4()) {
            (Some(local), Some(peer)) => {
                u64::from(peer.to_bits()) << 32 | u64::from(local.to_bits())
            }
            _ => {
                let ([a, b, c], [d, e, f]) = (local.words(), peer.words());
                secret.hash(&[a, b, c, d, e, f])
            }
        },
        _ => lower.id().0,
    }
}

/// Both hosts and, where the layer below has ports as well, those, as one number.
pub(crate) fn hosts_and_ports(
    cx: &Kernel,
    secret: &Secret,
    origin: &Origin,
    lower: &SessionRef,
) -> u64 {
    // An odd factor keeps different ports apart.
    let of_port = |port: u16, factor: u64| u64::from(port).wrapping_mul(factor);
    let mine = lower.ask(cx, MyPort::default());
    let others = lower.ask(cx, PeerPort::default());
    hosts(secret, origin, lower)
        ^ mine.map_or(0, |q| of_port(q.port, 0x9e37_79b9_7f4a_7c15))
        ^ others.map_or(0, |q| of_port(q.port, 0xc2b2_ae3d_27d4_eb4f))
}

/// Whether the checksum of a segment is right or known to be, `pseudo` being the sum over addresses
/// and protocol number.
#[inline]
pub(crate) fn is_intact(pseudo: Checksum, message: &Message) -> bool {
    if message.attribute::<TransportChecksum>().is_some() {
        return true;
    }
    let mut sum = pseudo;
    sum.add_u32(message.len() as u32);
    add_octets(&mut sum, message);
    sum.is_valid()
}

/// Adds all octets of a message.
#[inline]
pub(crate) fn add_octets(sum: &mut Checksum, message: &Message) {
    for octets in message.octet_slices() {
        sum.add(octets);
    }
}

/// Octets of the largest message that goes through `lower` whole.
pub(crate) fn path(cx: &Kernel, lower: &SessionRef) -> u32 {
    opt_packet(cx, lower, max_packet(cx, lower, PATH_UNKNOWN))
}
