//! Between blocks and x-kernel messages, without a copy where that can be.

use super::{Blocks, Kind, Mblk, Store};
use alloc::rc::Rc;
use xk_core::Message;
use xk_core::message::NoBuffers;
use xk_kit::wire::offload::finish_checksum;

/// Octets in front of what is copied, for headers of the layers below.
const HEADROOM: usize = 128;

impl Blocks {
    /// A message of M_DATA blocks over an x-kernel message, one for each of its slices, without a
    /// copy. Its attributes are gone: a checksum that was left to others is completed. It comes
    /// back if the pool is exhausted, counted.
    ///
    /// # Errors
    /// The message.
    pub fn lend_message(&self, mut message: Message) -> Result<Mblk, Message> {
        if finish_checksum(self.pool(), &mut message).is_err() {
            self.core().refuse::<()>();
            return Err(message);
        }
        message.clear_attributes();
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
}

impl Mblk {
    /// The octets of the whole message, whatever the types of its blocks, as an x-kernel message:
    /// without a copy for blocks that lie in the kernel's pool, those in front of the read pointer
    /// being headroom if this block alone sees them. Others are copied, those that stand together
    /// into one buffer.
    ///
    /// # Errors
    /// [`NoBuffers`], counted by the kernel's pool; the message is gone.
    pub fn into_message(mut self) -> Result<Message, NoBuffers> {
        let mut behind = self.unlinkb();
        let mut message = self.into_part(HEADROOM, &mut behind)?;
        while let Some(mut block) = behind {
            behind = block.unlinkb();
            if !block.is_empty() {
                message.join(block.into_part(0, &mut behind)?);
            }
        }
        Ok(message)
    }

    /// This block, and what of `behind` is copied with it.
    fn into_part(self, headroom: usize, behind: &mut Option<Mblk>) -> Result<Message, NoBuffers> {
        if self.is_block_in_kernel_pool() {
            return self.block_into_message();
        }
        let is_copied = |block: &Mblk| !block.is_block_in_kernel_pool();
        let others = behind.iter().flat_map(Mblk::blocks).take_while(|block| is_copied(block));
        let octets = self.len() + others.map(Mblk::len).sum::<usize>();
        let mut copy = self.pool().ok_or(NoBuffers)?.pool().alloc(headroom, octets)?;
        let mut at = copy.copy_in(0, self.octets());
        while let Some(mut block) = behind.take_if(|block| is_copied(block)) {
            *behind = block.unlinkb();
            at += copy.copy_in(at, block.octets());
        }
        Ok(copy)
    }

    fn block_into_message(mut self) -> Result<Message, NoBuffers> {
        let (read, len) = (self.read as usize, self.len());
        if let Some(alone) = Rc::get_mut(&mut self.data)
            && let Store::Message(mut message) = core::mem::take(&mut alone.store)
        {
            let _ = message.strip(read);
            message.truncate(len);
            return Ok(message);
        }
        match &self.data.store {
            Store::Message(message) if len > 0 => {
                message.try_clone_part(read, len).map_err(|_| NoBuffers)
            }
            _ => self.pool().ok_or(NoBuffers)?.pool().empty(0),
        }
    }

    /// Whether [`into_message`](Self::into_message) copies nothing.
    pub fn is_in_kernel_pool(&self) -> bool {
        self.blocks().all(Self::is_block_in_kernel_pool)
    }

    /// As [`is_in_kernel_pool`](Self::is_in_kernel_pool), of this block alone.
    pub fn is_block_in_kernel_pool(&self) -> bool {
        matches!(self.data.store, Store::Message(_))
    }

    /// The first block's octets, if it is of this type.
    pub fn control(&self, kind: Kind) -> Option<&[u8]> {
        (self.kind() == kind).then(|| self.octets())
    }
}
