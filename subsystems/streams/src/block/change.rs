//! Duplicates, copies, pulling up and cutting.

use super::{Blocks, Mblk, Priority};
use alloc::rc::Rc;

impl Mblk {
    /// Another block that sees the data block of this one (`dupb`); `None` if the pool is
    /// exhausted, counted.
    pub fn dupb(&self) -> Option<Mblk> {
        self.pool()?.admit_message()?;
        let mut block = Mblk::over(Rc::clone(&self.data), self.read, self.write);
        (block.band, block.flag) = (self.band, self.flag);
        Some(block)
    }

    /// Another message on the data blocks of this one (`dupmsg`); `None` if the pool is exhausted,
    /// counted.
    pub fn dupmsg(&self) -> Option<Mblk> {
        self.each(Mblk::dupb)
    }

    /// A copy of this block, with as much room in front and behind (`copyb`); `None` if the pool is
    /// exhausted, counted.
    pub fn copyb(&self) -> Option<Mblk> {
        let limit = self.data.limit as usize;
        let mut block = Blocks(Rc::clone(self.pool()?)).allocb(limit, Priority::Low)?;
        block.reset(self.headroom());
        (block.band, block.flag) = (self.band, self.flag);
        block.set_kind(self.kind());
        block.put(self.octets()).then_some(block)
    }

    /// Takes the first `n` octets off as a message of their own, without a copy; `None`, and
    /// nothing is changed, if there are not so many, or the pool is exhausted, counted.
    pub fn split_front(&mut self, n: usize) -> Option<Mblk> {
        if n > self.size() {
            return None;
        }
        let mut front = self.dupmsg()?;
        let cut = front.size() - n;
        let is_cut = front.cut(n, cut) && self.cut(0, n);
        debug_assert!(is_cut, "both have as many");
        while front.drop_empty_end() {}
        while self.is_empty()
            && let Some(behind) = self.unlinkb()
        {
            *self = behind;
        }
        Some(front)
    }

    /// Drops the last block if it is empty and not the only one.
    fn drop_empty_end(&mut self) -> bool {
        let mut block = self;
        while block.cont().is_some_and(|next| next.cont().is_some()) {
            let Some(next) = block.cont_mut() else { return false };
            block = next;
        }
        block.cont().is_some_and(Mblk::is_empty) && block.unlinkb().is_some()
    }

    fn each(&self, make: impl Fn(&Mblk) -> Option<Mblk>) -> Option<Mblk> {
        let mut made = make(self)?;
        let (mut last, mut next) = (&mut made, self.cont());
        while let Some(block) = next {
            last.cont = make(block)?;
            (last, next) = (&mut last.cont, block.cont());
        }
        Some(made)
    }

    /// Brings the first `n` octets of the blocks of the first block's type together in the first
    /// block, all of them if `n` is none (`pullupmsg`). False, and nothing is changed, if there are
    /// not so many, or the pool is exhausted, counted.
    #[must_use]
    pub fn pullupmsg(&mut self, n: Option<usize>) -> bool {
        let kind = self.kind();
        let alike = || self.blocks().take_while(|block| block.kind() == kind);
        let there: usize = alike().map(Mblk::len).sum();
        let wanted = n.unwrap_or(there);
        if wanted > there {
            return false;
        }
        if wanted <= self.len() && (n.is_some() || alike().count() == 1) {
            return true;
        }
        let Some(pool) = self.pool().cloned() else { return false };
        let Some(mut front) = Blocks(pool).allocb(wanted, Priority::Medium) else { return false };
        front.set_kind(kind);
        (front.band, front.flag) = (self.band, self.flag);
        let mut left = wanted;
        let mut rest = self.take();
        while let Some(mut block) = rest.take() {
            let n = left.min(block.len());
            let fits = front.put(block.octets().get(..n).unwrap_or_default()) && block.skip(n);
            debug_assert!(fits, "the new block has room for all");
            left -= n;
            if !block.is_empty() {
                front.cont = block;
            } else if left == 0 {
                front.cont = core::mem::replace(&mut block.cont, Mblk::EMPTY);
            } else {
                rest = block.unlinkb();
            }
        }
        *self = front;
        true
    }

    /// Takes `n` octets off the front, or if negative off the end, of the blocks of the type of the
    /// first, or the last, block (`adjmsg`). False, and nothing is changed, if there are not so
    /// many.
    #[must_use]
    pub fn adjmsg(&mut self, n: isize) -> bool {
        let octets = n.unsigned_abs();
        if n >= 0 {
            let kind = self.kind();
            let alike = self.blocks().take_while(|block| block.kind() == kind);
            if octets > alike.map(Mblk::len).sum() {
                return false;
            }
            self.cut(0, octets)
        } else {
            let all: alloc::vec::Vec<_> =
                self.blocks().map(|block| (block.kind(), block.len())).collect();
            let Some((kind, _)) = all.last().copied() else { return false };
            let alike = all.iter().rev().take_while(|(other, _)| *other == kind);
            if octets > alike.map(|(_, len)| len).sum() {
                return false;
            }
            self.cut(self.size() - octets, octets)
        }
    }

    /// Takes `n` octets off, from `at` on, which is at the front or ends at the end.
    fn cut(&mut self, mut at: usize, mut n: usize) -> bool {
        let mut block = Some(self);
        while let Some(here) = block {
            if n == 0 {
                break;
            }
            let len = here.len();
            if at >= len {
                at -= len;
            } else {
                let cut = n.min(len - at);
                if at == 0 {
                    here.read += cut as u32;
                } else {
                    here.write -= cut as u32;
                }
                at = 0;
                n -= cut;
            }
            block = here.cont_mut();
        }
        true
    }
}
