//! The fuzz target of the assembly: any octets, cut anywhere, make records or none, and nothing is
//! left.

use crate::assembly::Assembly;
use crate::wire::{MARK_OCTETS, Mark};
use xk_core::message::{Pool, PoolConfig};

/// Octets of a record, at most, here.
const RECORD_MAX: usize = 2000;

/// Reads `data` as a stream, in pieces as long as its first octet says, and once more in one piece:
/// both must make the same records.
///
/// # Panics
/// If they do not, or a message is left.
pub fn fuzz_stack(data: &[u8]) {
    let Ok(pool) = Pool::new(&PoolConfig::with_octets_max(1 << 20)) else {
        return;
    };
    if let Some(octets) = data.first_chunk::<MARK_OCTETS>() {
        assert_eq!(Mark::parse(*octets).emit(), *octets, "the mark changed");
    }
    let Some((piece, stream)) = data.split_first() else {
        return;
    };
    let cut = records(&pool, stream, usize::from(*piece).max(1));
    let whole = records(&pool, stream, stream.len().max(1));
    assert_eq!(cut, whole, "the records depend on where they are cut");
    assert_eq!(pool.stats().descriptors_live, 0, "nothing is left");
}

/// How many records there are, of how many octets, and the sum of those.
fn records(pool: &Pool, stream: &[u8], piece: usize) -> (usize, usize, u64) {
    let mut assembly = Assembly::default();
    let mut found = (0, 0, 0);
    for piece in stream.chunks(piece) {
        let Ok(message) = pool.copy_from(0, piece) else {
            return found;
        };
        assembly.put(message);
        loop {
            match assembly.next(pool, RECORD_MAX) {
                Ok(Some(record)) => {
                    assert!(record.len() <= RECORD_MAX, "a record beyond the bound");
                    found.0 += 1;
                    found.1 += record.len();
                    found.2 += record.octets().map(u64::from).sum::<u64>();
                }
                Ok(None) => break,
                Err(_) => return found,
            }
        }
    }
    found
}
