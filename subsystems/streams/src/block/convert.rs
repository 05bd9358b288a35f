//! Between blocks and x-kernel messages, without a copy where that can be.

use super::{Blocks, Kind, Mblk, Store};
use alloc::rc::Rc;
use xk_core::Message;
use xk_core::message::NoBuffers;

impl Blocks {
    /// A message of M_DATA blocks over an x-kernel message, one for each of its slices, without a
    /// copy; attributes go with the message. It comes back if the pool is exhausted, counted.
    ///
    /// # Errors
    /// The message.
    pub fn lend_message(&self, message: Message) -> Result<Mblk, Message> {
        if message.single_slice().is_some() {
            if !self.core().has_blocks(1) {
                self.core().refuse::<()>();
                return Err(message);
            }
            return Ok(self.core().over_message(message));
        }
        self.lend_slices(message)
    }

    #[cold]
    fn lend_slices(&self, mut message: Message) -> Result<Mblk, Message> {
        if !self.core().has_blocks(message.slices().count()) {
            self.core().refuse::<()>();
            return Err(message);
        }
        let mut parts = alloc::vec::Vec::new();
        while message.single_slice().is_none() {
            match message.split_front(message.front_slice().len()) {
                Ok(front) => parts.push(front),
                Err(_) => {
                    // Put together again what was cut.
                    for mut front in parts.into_iter().rev() {
                        front.join(message);
                        message = front;
                    }
                    return Err(message);
                }
            }
        }
        let mut chain = self.core().over_message(message);
        for front in parts.into_iter().rev() {
            chain = self.core().over_message(front).linked(chain);
        }
        Ok(chain)
    }

    /// A copy of the octets of an x-kernel message in one block; `None` if the pool is exhausted,
    /// counted, or no buffer holds so many.
    pub fn copy_message(&self, headroom: usize, message: &Message) -> Option<Mblk> {
        let size = headroom.checked_add(message.len())?;
        let mut block = self.allocb(size, super::Priority::Low)?;
        block.reset(headroom);
        message.octet_slices().all(|octets| block.put(octets)).then_some(block)
    }
}

impl Mblk {
    /// The octets of the whole message, whatever the types of its blocks, as an x-kernel message:
    /// without a copy for blocks that lie in the kernel's pool, those in front of the read pointer
    /// being headroom if this block alone sees them.
    ///
    /// # Errors
    /// [`NoBuffers`], counted by the kernel's pool; the message is gone.
    pub fn into_message(mut self) -> Result<Message, NoBuffers> {
        let mut behind = self.unlinkb();
        let mut message = self.block_into_message()?;
        while let Some(mut block) = behind {
            behind = block.unlinkb();
            if !block.is_empty() {
                message.join(block.block_into_message()?);
            }
        }
        Ok(message)
    }

    fn block_into_message(mut self) -> Result<Message, NoBuffers> {
        let (read, len) = (self.read as usize, self.len());
        let Some(data) = self.data.as_mut() else { return Err(NoBuffers) };
        let pool = data.pool.as_ref().map(|pool| pool.pool().clone()).ok_or(NoBuffers)?;
        if let Some(alone) = Rc::get_mut(data)
            && matches!(alone.store, Store::Message(_))
            && let Store::Message(mut message) = core::mem::take(&mut alone.store)
        {
            let _ = message.strip(read);
            message.truncate(len);
            return Ok(message);
        }
        match &data.store {
            Store::Message(message) if len > 0 => {
                message.try_clone_part(read, len).map_err(|_| NoBuffers)
            }
            _ => pool.copy_from(0, self.octets()),
        }
    }

    /// Whether [`into_message`](Self::into_message) copies nothing.
    pub fn is_in_kernel_pool(&self) -> bool {
        self.blocks().all(Self::is_block_in_kernel_pool)
    }

    /// As [`is_in_kernel_pool`](Self::is_in_kernel_pool), of this block alone.
    pub fn is_block_in_kernel_pool(&self) -> bool {
        self.data.as_ref().is_some_and(|data| matches!(data.store, Store::Message(_)))
    }

    /// The first block's octets, if it is of this type.
    pub fn control(&self, kind: Kind) -> Option<&[u8]> {
        (self.kind() == kind).then(|| self.octets())
    }
}
