//! Messages of primitives that are made often.

use super::{Primitive, Refusal};
use crate::block::{Blocks, Mblk};

/// A primitive's message with data behind it.
#[must_use]
pub fn with_data(primitive: Mblk, data: Option<Mblk>) -> Mblk {
    match data {
        Some(data) => primitive.linked(data),
        None => primitive,
    }
}

/// T_UNITDATA_REQ with its data; `None` if the pool is exhausted: the data is freed.
pub fn unitdata_req(blocks: &Blocks, dest: &[u8], opt: &[u8], data: Mblk) -> Option<Mblk> {
    Some(Primitive::UnitdataReq { dest, opt }.emit(blocks)?.linked(data))
}

/// T_UNITDATA_IND with its data; `None` if the pool is exhausted: the data is freed.
pub fn unitdata_ind(blocks: &Blocks, src: &[u8], opt: &[u8], data: Mblk) -> Option<Mblk> {
    Some(Primitive::UnitdataInd { src, opt }.emit(blocks)?.linked(data))
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
