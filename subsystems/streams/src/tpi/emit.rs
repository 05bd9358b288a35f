//! Messages of primitives that are made often.

use super::address::ADDRESS_OCTETS;
use super::{Primitive, Refusal};
use crate::block::{Blocks, Kind, Mblk};

/// A primitive's message with data behind it.
#[must_use]
pub fn with_data(primitive: Mblk, data: Option<Mblk>) -> Mblk {
    match data {
        Some(data) => primitive.linked(data),
        None => primitive,
    }
}

/// Octets in front of the parts, the number, and length and offset of each; and those with an
/// address in front of options.
const HEAD: usize = 20;
const SHORT: usize = HEAD + ADDRESS_OCTETS;

/// T_UNITDATA_REQ or T_UNITDATA_IND: what each datagram begins with, and so made in one go where
/// the address is one of ours. Octets as of [`Primitive::emit_by_layout`].
#[inline]
pub(super) fn datagram(
    blocks: &Blocks,
    primitive: Primitive<'_>,
    (addr, opt): (&[u8], &[u8]),
) -> Option<Mblk> {
    let Ok(addr) = <&[u8; ADDRESS_OCTETS]>::try_from(addr) else {
        return primitive.emit_by_layout(blocks);
    };
    let opt_at = if opt.is_empty() { 0 } else { SHORT as u32 };
    let (number, len) = (primitive.number(), opt.len() as u32);
    let words = [number, ADDRESS_OCTETS as u32, HEAD as u32, len, opt_at];
    blocks.filled(Kind::Proto, 0, SHORT + opt.len(), |octets| {
        let Some((short, room)) = octets.split_first_chunk_mut::<SHORT>() else { return };
        for (room, word) in short.as_chunks_mut::<4>().0.iter_mut().zip(words) {
            *room = word.to_le_bytes();
        }
        short[HEAD..].copy_from_slice(addr);
        if !room.is_empty() {
            room.copy_from_slice(opt);
        }
    })
}

/// T_UNITDATA_REQ with its data; `None` if the pool is exhausted: the data is freed.
pub fn unitdata_req(blocks: &Blocks, dest: &[u8], opt: &[u8], data: Mblk) -> Option<Mblk> {
    let front = datagram(blocks, Primitive::UnitdataReq { dest, opt }, (dest, opt))?;
    Some(front.linked(data))
}

/// T_UNITDATA_IND with its data; `None` if the pool is exhausted: the data is freed.
pub fn unitdata_ind(blocks: &Blocks, src: &[u8], opt: &[u8], data: Mblk) -> Option<Mblk> {
    let front = datagram(blocks, Primitive::UnitdataInd { src, opt }, (src, opt))?;
    Some(front.linked(data))
}

/// T_UDERROR_IND.
pub fn uderror_ind(blocks: &Blocks, dest: &[u8], opt: &[u8], error: u32) -> Option<Mblk> {
    Primitive::UderrorInd { dest, opt, error }.emit(blocks)
}

/// T_DISCON_IND.
pub fn discon_ind(blocks: &Blocks, reason: u32, seq: u32) -> Option<Mblk> {
    Primitive::DisconInd { reason, seq }.emit(blocks)
}

/// T_OK_ACK for the primitive of this number.
pub fn ok_ack(blocks: &Blocks, prim: u32) -> Option<Mblk> {
    Primitive::OkAck { prim }.emit(blocks)
}

/// T_ERROR_ACK for the primitive of this number.
pub fn error_ack(blocks: &Blocks, prim: u32, refusal: impl Into<Refusal>) -> Option<Mblk> {
    Primitive::ErrorAck { prim, refusal: refusal.into() }.emit(blocks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use xk_core::Pool;
    use xk_core::message::PoolConfig;

    proptest! {
        #[test]
        fn what_is_made_in_one_go_is_as_all_are(
            addr in prop_oneof![
                prop::collection::vec(any::<u8>(), ADDRESS_OCTETS),
                prop::collection::vec(any::<u8>(), 0..90),
            ],
            opt in prop::collection::vec(any::<u8>(), 0..90),
        ) {
            let pool = Pool::new(&PoolConfig::default()).expect("memory for a pool");
            let blocks = Blocks::of_pool(&pool, 64, 1 << 16);
            let (dest, opt) = (&addr[..], &opt[..]);
            let made = |made: fn(&Blocks, &[u8], &[u8], Mblk) -> Option<Mblk>| {
                let data = blocks.copy(Kind::Data, 0, b"data").expect("a block");
                let mut made = made(&blocks, dest, opt, data).expect("blocks are left");
                assert_eq!(made.unlinkb().expect("the data").octets(), b"data");
                made
            };
            for (made, primitive) in [
                (made(unitdata_req), Primitive::UnitdataReq { dest, opt }),
                (made(unitdata_ind), Primitive::UnitdataInd { src: dest, opt }),
            ] {
                let emitted = primitive.emit_by_layout(&blocks).expect("a block");
                prop_assert_eq!(made.octets(), emitted.octets());
                prop_assert_eq!(made.kind(), emitted.kind());
            }
        }
    }
}
