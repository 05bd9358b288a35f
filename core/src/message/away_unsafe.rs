//! Messages that another thread reads.

use super::{message_unsafe::Message, pool_unsafe::Pool};
use core::mem::ManuallyDrop;

/// A message that another thread may read in place, and sends back: only the thread of its pool
/// makes a message of it again. Dropped anywhere, it is lost to its pool.
pub struct Away(ManuallyDrop<Message>);

// SAFETY: another thread reaches the lengths and the octets of the message and nothing else. Its
// descriptors belong to it alone (`Message::head`), and while they see octets nothing writes these
// (`Message::octets_of`), whatever clones its own thread has. To look at them touches no counter.
// The message comes out only where a handle of its pool is (`Away::back`), and handles stay on the
// thread of the pool.
unsafe impl Send for Away {}

impl Away {
    /// Prepares a message for another thread.
    #[must_use]
    #[inline]
    pub fn new(message: Message) -> Self {
        Self(ManuallyDrop::new(message))
    }

    /// The octets of the slices, from the front.
    #[inline]
    pub fn octet_slices(&self) -> impl Iterator<Item = &[u8]> + '_ {
        self.0.octet_slices()
    }

    /// Makes the message again.
    ///
    /// # Errors
    /// It stays away if its descriptor is not of this pool.
    #[inline]
    pub fn back(self, pool: &Pool) -> Result<Message, Self> {
        match self.0.head.pool == pool.core() {
            true => Ok(ManuallyDrop::into_inner(self.0)),
            false => Err(self),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::PoolConfig;
    use alloc::vec::Vec;

    #[test]
    fn another_thread_reads_what_this_one_has_clones_of() {
        let pool = Pool::new(&PoolConfig::with_octets_max(1 << 20)).unwrap();
        let mut message = pool.copy_from(64, b"header, payload").unwrap();
        let mut back = message.split_off(8).unwrap();
        let clone = back.try_clone().unwrap();
        back.push_array(b"(").unwrap();
        message.join(back);
        let away = Away::new(message);
        let reader =
            std::thread::spawn(move || (away.octet_slices().collect::<Vec<_>>().concat(), away));
        let mut clone = clone;
        clone.push_array(b"another header").unwrap();
        drop(clone);
        let (read, away) = reader.join().unwrap();
        assert_eq!(read, b"header, (payload");
        let other = Pool::new(&PoolConfig::with_octets_max(1 << 20)).unwrap();
        let elsewhere = Away::new(other.copy_from(0, b"x").unwrap()).back(&pool);
        drop(elsewhere.err().unwrap().back(&other).ok().unwrap());
        drop(away.back(&pool).ok().unwrap());
        assert_eq!((pool.stats().buffers_live, other.stats().buffers_live), (0, 0));
    }
}
