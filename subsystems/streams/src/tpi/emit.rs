//! Messages of primitives that are made often.

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

/// Octets in front of the parts: the number, and length and offset of each.
const HEAD: usize = 20;
/// Octets of a primitive of data that is made in one go; longer ones have options of their own.
const SHORT_MAX: usize = 80;

/// T_UNITDATA_REQ or T_UNITDATA_IND: what each datagram begins with, and so made in one go. Octets
/// as of [`Primitive::emit`].
#[inline]
fn unitdata(blocks: &Blocks, primitive: Primitive<'_>, data: Mblk) -> Option<Mblk> {
    let (Primitive::UnitdataReq { dest: addr, opt } | Primitive::UnitdataInd { src: addr, opt }) =
        primitive
    else {
        return Some(primitive.emit(blocks)?.linked(data));
    };
    let opt_at = (HEAD + addr.len()).next_multiple_of(4);
    let end = if opt.is_empty() { HEAD + addr.len() } else { opt_at + opt.len() };
    let mut octets = [0; SHORT_MAX];
    let (Some(addr_room), false) = (octets.get_mut(HEAD..HEAD + addr.len()), end > SHORT_MAX)
    else {
        return Some(primitive.emit(blocks)?.linked(data));
    };
    addr_room.copy_from_slice(addr);
    if let Some(room) = octets.get_mut(opt_at..opt_at + opt.len()) {
        room.copy_from_slice(opt);
    }
    let place = |part: &[u8], at: usize| if part.is_empty() { 0 } else { at as u32 };
    let words = [
        primitive.number(),
        addr.len() as u32,
        place(addr, HEAD),
        opt.len() as u32,
        place(opt, opt_at),
    ];
    let (head, _) = octets.as_chunks_mut::<4>();
    for (room, word) in head.iter_mut().zip(words) {
        *room = word.to_le_bytes();
    }
    Some(blocks.copy(Kind::Proto, 0, octets.get(..end)?)?.linked(data))
}

/// T_UNITDATA_REQ with its data; `None` if the pool is exhausted: the data is freed.
pub fn unitdata_req(blocks: &Blocks, dest: &[u8], opt: &[u8], data: Mblk) -> Option<Mblk> {
    unitdata(blocks, Primitive::UnitdataReq { dest, opt }, data)
}

/// T_UNITDATA_IND with its data; `None` if the pool is exhausted: the data is freed.
pub fn unitdata_ind(blocks: &Blocks, src: &[u8], opt: &[u8], data: Mblk) -> Option<Mblk> {
    unitdata(blocks, Primitive::UnitdataInd { src, opt }, data)
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
            addr in prop::collection::vec(any::<u8>(), 0..90),
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
                let emitted = primitive.emit(&blocks).expect("a block");
                prop_assert_eq!(made.octets(), emitted.octets());
                prop_assert_eq!(made.kind(), emitted.kind());
            }
        }
    }
}
