//! Damage on purpose, seen by the receiver alone.

use xk_core::message::NoBuffers;
use xk_core::{Message, Pool};

/// Room in front of a damaged copy, in octets: as makers of messages reserve it.
const HEADROOM: usize = 128;

/// A copy of `message` in a buffer of its own, with one bit flipped: number `bit`, counted from the
/// first octet's lowest. A bit behind the end flips nothing. The copy carries no attributes.
///
/// # Errors
/// [`NoBuffers`], counted at the pool.
pub fn copy_flipped(pool: &Pool, message: &Message, bit: usize) -> Result<Message, NoBuffers> {
    let mut copy = pool.alloc(HEADROOM, message.len())?;
    let mut at = 0;
    for slice in message.slices() {
        at += copy.copy_in(at, slice.octets);
    }
    let mut octet = [0];
    if copy.copy_to(bit / 8, &mut octet) == 1 {
        octet = octet.map(|o| o ^ (1 << (bit % 8)));
        copy.copy_in(bit / 8, &octet);
    }
    Ok(copy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use xk_core::message::PoolConfig;

    #[test]
    fn one_bit_differs_and_the_original_does_not() {
        let pool = Pool::new(&PoolConfig::default()).unwrap();
        let mut message = pool.copy_from(0, &[0; 4]).unwrap();
        message.join(pool.copy_from(0, &[0; 3]).unwrap());
        let copy = copy_flipped(&pool, &message, 42).unwrap();
        assert!(message.eq_octets(&[0; 7]));
        assert!(copy.eq_octets(&[0, 0, 0, 0, 0, 4, 0]));
        assert!(copy_flipped(&pool, &message, 56).unwrap().eq_octets(&[0; 7]));
        let empty = pool.empty(0).unwrap();
        assert!(copy_flipped(&pool, &empty, 0).unwrap().is_empty());
    }
}
