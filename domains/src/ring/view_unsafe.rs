//! The neighbour's pool, as lent messages are read in it.

use std::ptr::NonNull;
use std::sync::Arc;

use xk_core::message::{LentSlice, View};
use xk_run::memfd_unsafe::MemfdView;

/// A neighbour's pool. With a lease, which a neighbour in this process gives, what is lent is read
/// in place; otherwise it is copied first, since the neighbour could change it.
pub(crate) struct Neighbour {
    pool: MemfdView,
    lease: Option<Arc<()>>,
}

impl Neighbour {
    pub(crate) fn new(pool: MemfdView, lease: Option<Arc<()>>) -> Self {
        Self { pool, lease }
    }
}

// SAFETY: the view maps a memory file that cannot shrink, for reading, in one place until it is
// dropped. With a lease the lender is a `Lending` of this process: its `Loans` hold each message
// until its number comes back, which `Lending` sends only for what `Foreign::returned` answered
// with, and it does not release the others as long as the lease lives, which is as long as this
// view. What a `Loans` holds is written by nothing.
unsafe impl View for Neighbour {
    fn region(&self) -> (NonNull<u8>, usize) {
        self.pool.region()
    }

    fn is_steady(&self, _: u32, _: LentSlice) -> bool {
        self.lease.is_some()
    }
}
