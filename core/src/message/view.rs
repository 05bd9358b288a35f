//! Reading a message: its slices, its octets, copies of parts of it.

use core::iter::FusedIterator;

use super::message_unsafe::Message;
use super::node_unsafe::DescRef;

/// One run of octets of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice<'a> {
    /// Position of the run in the arena of its pool, in octets; a descriptor ring carries it
    /// instead of an address.
    pub offset: usize,
    /// The octets.
    pub octets: &'a [u8],
}

/// The slices of a message, from the front. Made by [`Message::slices`].
#[derive(Clone)]
pub struct Slices<'a> {
    message: &'a Message,
    next: Option<DescRef>,
}

impl<'a> Iterator for Slices<'a> {
    type Item = Slice<'a>;

    #[inline]
    fn next(&mut self) -> Option<Slice<'a>> {
        loop {
            let desc = self.next?;
            self.next = desc.next.get();
            // Only the head may be empty.
            if desc.len() != 0 {
                let offset = desc.buf.get().pool.offset(desc.data.get()).unwrap_or(usize::MAX);
                return Some(Slice { offset, octets: self.message.octets_of(desc) });
            }
        }
    }
}

impl FusedIterator for Slices<'_> {}

impl Message {
    /// The slices that have octets, from the front.
    #[inline]
    pub fn slices(&self) -> Slices<'_> {
        Slices { message: self, next: Some(self.head) }
    }

    /// The octets of the slices, from the front, for a reader that does not ask where they lie.
    #[inline]
    pub fn octet_slices(&self) -> impl Iterator<Item = &[u8]> + '_ {
        let mut next = Some(self.head);
        core::iter::from_fn(move || {
            loop {
                let desc = next?;
                next = desc.next.get();
                // Only the head may be empty.
                if desc.len() != 0 {
                    return Some(self.octets_of(desc));
                }
            }
        })
    }

    /// All octets, one by one, from the front.
    pub fn octets(&self) -> impl Iterator<Item = u8> + '_ {
        self.octet_slices().flat_map(|octets| octets.iter().copied())
    }

    /// Copies octets from `offset` on into `to`; answers how many there were.
    pub fn copy_to(&self, offset: usize, to: &mut [u8]) -> usize {
        let mut skip = offset;
        let mut done = 0;
        for slice in self.slices() {
            let Some(octets) = slice.octets.get(skip..) else {
                skip -= slice.octets.len();
                continue;
            };
            skip = 0;
            let to = to.get_mut(done..).unwrap_or_default();
            let count = octets.len().min(to.len());
            to[..count].copy_from_slice(&octets[..count]);
            done += count;
            if count < octets.len() {
                break;
            }
        }
        done
    }

    /// Overwrites the octets from `offset` on with `from`; answers how many it wrote. It stops at
    /// the end of the message, and at the first slice whose buffer another reference sees.
    pub fn copy_in(&mut self, offset: usize, from: &[u8]) -> usize {
        let mut skip = offset;
        let mut done = 0;
        for desc in self.descs() {
            if skip >= desc.len() {
                skip -= desc.len();
                continue;
            }
            let from = from.get(done..).unwrap_or_default();
            if from.is_empty() {
                break;
            }
            let Some(octets) = self.octets_of_mut(desc) else {
                break;
            };
            let octets = octets.get_mut(skip..).unwrap_or_default();
            skip = 0;
            let count = octets.len().min(from.len());
            octets[..count].copy_from_slice(&from[..count]);
            done += count;
        }
        done
    }

    /// Whether the message consists of exactly these octets.
    pub fn eq_octets(&self, octets: &[u8]) -> bool {
        let mut left = octets;
        self.len() == octets.len()
            && self.slices().all(|slice| {
                let Some((first, behind)) = left.split_at_checked(slice.octets.len()) else {
                    return false;
                };
                left = behind;
                first == slice.octets
            })
    }
}

/// Length and slices (position in the arena, octets), not the contents.
impl core::fmt::Debug for Message {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Message({} octets", self.len())?;
        for slice in self.slices() {
            write!(f, ", {}+{}", slice.offset, slice.octets.len())?;
        }
        f.write_str(")")
    }
}
