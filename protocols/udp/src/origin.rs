//! Whether a datagram is intact, as far as the session below tells.

use crate::wire::{HEADER_LEN, has_checksum};
use xk_core::Message;
use xk_kit::offload::TransportChecksum;
use xk_kit::ports::Origin;

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
