//! Records out of a stream: fragments of any number and size, cut anywhere.

use crate::wire::{MARK_OCTETS, Mark};
use xk_core::message::NoBuffers;
use xk_core::{Message, Pool};

/// Room in front of what is copied, in octets.
const HEADROOM: usize = 128;
/// Pieces of fewer octets are copied together: each keeps a whole buffer otherwise.
const PIECE_OCTETS: usize = 512;
/// Octets of a buffer into which they are copied.
const TOGETHER_OCTETS: usize = 1920;

/// Pieces of a message, kept in little more memory than they need.
#[derive(Default)]
pub(crate) struct Gather {
    whole: Option<Message>,
    /// A buffer that small pieces are copied into, and how many octets of it are used.
    tail: Option<(Message, usize)>,
}

impl Gather {
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn len(&self) -> usize {
        let tail = self.tail.as_ref().map_or(0, |(_, used)| *used);
        self.whole.as_ref().map_or(0, Message::len) + tail
    }

    /// Puts a piece behind the others.
    pub(crate) fn add(&mut self, pool: &Pool, piece: Message) -> Result<(), NoBuffers> {
        if piece.len() >= PIECE_OCTETS {
            self.seal();
            self.join(piece);
            return Ok(());
        }
        for mut octets in piece.octet_slices() {
            while !octets.is_empty() {
                if self.tail.as_ref().is_some_and(|(_, used)| *used == TOGETHER_OCTETS) {
                    self.seal();
                }
                let (tail, used) = match &mut self.tail {
                    Some(tail) => tail,
                    none => none.insert((pool.alloc(HEADROOM, TOGETHER_OCTETS)?, 0)),
                };
                let room = octets.len().min(TOGETHER_OCTETS - *used);
                let (now, later) = octets.split_at(room);
                let written = tail.copy_in(*used, now);
                if written < now.len() {
                    return Err(NoBuffers);
                }
                *used += written;
                octets = later;
            }
        }
        Ok(())
    }

    fn seal(&mut self) {
        if let Some((mut tail, used)) = self.tail.take() {
            tail.truncate(used);
            self.join(tail);
        }
    }

    fn join(&mut self, piece: Message) {
        match &mut self.whole {
            Some(whole) => whole.join(piece),
            none => *none = Some(piece),
        }
    }

    /// All pieces as one message.
    pub(crate) fn take(&mut self) -> Option<Message> {
        self.seal();
        self.whole.take()
    }
}

/// Why no record can come of a stream any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    /// A record is larger than the bound.
    TooBig,
    /// There is no memory.
    NoBuffers,
}

/// Octets of a stream that have come and are no record yet.
#[derive(Default)]
pub(crate) struct Assembly {
    /// Octets that follow, not looked at yet.
    rest: Option<Message>,
    mark: [u8; MARK_OCTETS],
    mark_len: usize,
    /// Octets that the present fragment still lacks, and whether it is the last; `None` between
    /// fragments.
    fragment: Option<(usize, bool)>,
    record: Gather,
}

impl Assembly {
    /// Puts what has arrived behind what is there.
    pub(crate) fn put(&mut self, arrived: Message) {
        match &mut self.rest {
            Some(rest) => rest.join(arrived),
            none => *none = Some(arrived),
        }
    }

    /// Octets that are here.
    pub(crate) fn len(&self) -> usize {
        self.record.len() + self.rest.as_ref().map_or(0, Message::len)
    }

    /// The next whole record, of at most `max` octets.
    pub(crate) fn next(&mut self, pool: &Pool, max: usize) -> Result<Option<Message>, Broken> {
        loop {
            let (lacks, is_last) = match self.fragment {
                Some(fragment) => fragment,
                None => match self.next_mark() {
                    Some(mark) => {
                        let len = usize::try_from(mark.len).unwrap_or(usize::MAX);
                        if len > max.saturating_sub(self.record.len()) {
                            return Err(Broken::TooBig);
                        }
                        (len, mark.is_last)
                    }
                    None => return Ok(None),
                },
            };
            self.fragment = Some((lacks, is_last));
            if lacks > 0 {
                let Some(piece) = self.take_front(lacks)? else {
                    return Ok(None);
                };
                let lacks = lacks - piece.len();
                if lacks == 0 && is_last && self.record.is_empty() {
                    self.fragment = None;
                    return Ok(Some(piece));
                }
                self.fragment = Some((lacks, is_last));
                self.record.add(pool, piece).map_err(|_| Broken::NoBuffers)?;
                if lacks > 0 {
                    continue;
                }
            }
            self.fragment = None;
            if is_last {
                let empty = || pool.empty(HEADROOM).map_err(|_| Broken::NoBuffers);
                return self.record.take().map_or_else(empty, Ok).map(Some);
            }
        }
    }

    /// The next mark, once all its octets are there.
    fn next_mark(&mut self) -> Option<Mark> {
        let rest = self.rest.as_mut()?;
        let room = self.mark.get_mut(self.mark_len..)?;
        let count = rest.copy_to(0, room);
        let _ = rest.strip(count);
        self.mark_len += count;
        if self.mark_len < MARK_OCTETS {
            self.rest = None;
            return None;
        }
        self.mark_len = 0;
        Some(Mark::parse(self.mark))
    }

    /// The first octets of the rest, `max` at most; none if there is nothing.
    fn take_front(&mut self, max: usize) -> Result<Option<Message>, Broken> {
        let Some(rest) = &mut self.rest else {
            return Ok(None);
        };
        if rest.is_empty() {
            self.rest = None;
            return Ok(None);
        }
        if rest.len() <= max {
            return Ok(self.rest.take());
        }
        let front = rest.split_front(max).map_err(|_| Broken::NoBuffers)?;
        Ok(Some(front))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use xk_core::message::PoolConfig;

    fn pool() -> Pool {
        Pool::new(&PoolConfig::with_octets_max(8 << 20)).unwrap()
    }

    /// A stream of these records, each cut into fragments of `fragment` octets.
    fn stream(records: &[Vec<u8>], fragment: usize) -> Vec<u8> {
        let mut octets = Vec::new();
        for record in records {
            let mut rest = &record[..];
            loop {
                let (now, later) = rest.split_at(fragment.min(rest.len()));
                let mark = Mark { is_last: later.is_empty(), len: now.len() as u32 };
                octets.extend(mark.emit());
                octets.extend(now);
                if later.is_empty() {
                    break;
                }
                rest = later;
            }
        }
        octets
    }

    #[test]
    fn records_come_out_however_they_are_cut() {
        let pool = pool();
        let pattern = |len: usize| (0..len).map(|n| (n * 7) as u8).collect::<Vec<u8>>();
        let records: Vec<Vec<u8>> = [0, 1, 3, 4, 100, 511, 512, 2000, 5000].map(pattern).into();
        for fragment in [1, 5, 600, 10_000] {
            let octets = stream(&records, fragment);
            for piece in [1, 3, 7, 512, 1460, octets.len()] {
                let mut assembly = Assembly::default();
                let mut found: Vec<Vec<u8>> = Vec::new();
                for piece in octets.chunks(piece) {
                    assembly.put(pool.copy_from(0, piece).unwrap());
                    while let Some(record) = assembly.next(&pool, 5000).unwrap() {
                        found.push(record.octets().collect());
                    }
                }
                assert_eq!(found, records, "fragments {fragment}");
            }
        }
        assert_eq!(pool.stats().descriptors_live, 0);
    }

    #[test]
    fn what_is_larger_than_the_bound_is_not_kept() {
        let pool = pool();
        let mut assembly = Assembly::default();
        assembly.put(pool.copy_from(0, &[0x80, 0, 0, 101]).unwrap());
        assert_eq!(assembly.next(&pool, 100).err(), Some(Broken::TooBig));
        let mut assembly = Assembly::default();
        let octets = stream(&[alloc::vec![7; 101]], 60);
        assembly.put(pool.copy_from(0, &octets).unwrap());
        assert_eq!(assembly.next(&pool, 100).err(), Some(Broken::TooBig));
    }

    #[test]
    fn small_pieces_take_little_memory() {
        let pool = pool();
        let mut assembly = Assembly::default();
        let octets = stream(&[alloc::vec![7; 100_000]], 100_000);
        for octet in octets.chunks(1).take(90_000) {
            assembly.put(pool.copy_from(0, octet).unwrap());
            assert!(matches!(assembly.next(&pool, 1 << 20), Ok(None)));
        }
        assert!(pool.stats().buffers_live < 60, "{:?}", pool.stats());
    }
}
