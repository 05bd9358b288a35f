//! Decoding of values by XDR: octets of any type, from a slice and from a message in pieces.

use crate::novelty;
use crate::targets::rpcgen;
use std::fmt::Debug;
use xk_core::message::{HeapArena, Message};
use xk_testkit::messages::small_pool;
use xk_xdr::{Array, Decoder, List, Opaque, Quadruple, Text, Xdr};

/// Every kind of type, for the values that have no Rust types: `xk-rpcgen` reads and writes them by
/// its model.
const KINDS: &str = include_str!("../../sockets/rpcgen/tests/x/kinds.x");
/// Octets of the arena for messages.
const ARENA_OCTETS: usize = 1 << 16;

/// Reads a value; what is read must be written as the octets that it was read from.
fn keeps<T: Xdr + Debug>(octets: &[u8]) -> Option<(T, usize)> {
    let mut decoder = Decoder::new(octets).strict();
    let value = T::decode(&mut decoder).ok()?;
    let read = octets.len() - decoder.left();
    let written = xk_xdr::to_vec(&value).ok();
    assert_eq!(written.as_deref(), octets.get(..read), "{value:?}");
    assert!(read >= T::OCTETS_MIN, "{value:?} takes less than the least");
    assert_eq!(xk_xdr::encoded_len(&value), Ok(read), "{value:?}");
    Some((value, read))
}

/// A type by itself, and within what may hold any other.
fn kind<T: Xdr + Debug>(octets: &[u8]) {
    let alone = keeps::<T>(octets).map(|(_, read)| read);
    let array = keeps::<Array<T, 7>>(octets).map(|(_, read)| read);
    let list = keeps::<List<T>>(octets).map(|(_, read)| read);
    keeps::<[T; 3]>(octets);
    keeps::<Option<Box<T>>>(octets);
    keeps::<(T, u32)>(octets);
    novelty::note(&(alone, array, list));
}

/// The octets as a message whose buffers end at `at`.
fn pieces(octets: &[u8], at: usize) -> Option<Message> {
    let arena = HeapArena::new(ARENA_OCTETS).ok()?;
    let pool = small_pool(Box::new(arena));
    let (front, back) = octets.split_at(at.min(octets.len()));
    let mut message = pool.copy_from(0, front).ok()?;
    message.join(pool.copy_from(0, back).ok()?);
    Some(message)
}

/// Reads `data` as everything: its first octet says where the message is cut.
pub(crate) fn run(data: &[u8]) {
    let Some((&cut, octets)) = data.split_first() else {
        return;
    };
    kind::<i32>(octets);
    kind::<u64>(octets);
    kind::<bool>(octets);
    kind::<f64>(octets);
    kind::<Quadruple>(octets);
    kind::<Opaque<9>>(octets);
    kind::<Text<64>>(octets);
    kind::<List<Opaque>>(octets);
    kind::<Array<Array<u32, 3>, 3>>(octets);
    if let Some(message) = pieces(octets, cut.into()) {
        let whole = xk_xdr::from_slice::<Array<Text>>(octets);
        let cut = xk_xdr::from_message::<Array<Text>>(&message);
        assert_eq!(whole, cut, "a message is read otherwise");
    }
    rpcgen::all_values(KINDS, octets);
}
