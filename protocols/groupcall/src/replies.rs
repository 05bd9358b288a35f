//! The replies to one call, as an object without kernel, clock or octets.

use alloc::collections::VecDeque;
use xk_core::Reason;
use xk_kit::group::Want;

/// The reply of one member, or why it refused the call.
pub type Outcome<R> = Result<R, &'static Reason>;

/// State of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// More replies are waited for.
    Waits,
    /// There are as many as are wanted.
    Enough,
    /// So many will not come: too few members are left, or there were too few from the beginning.
    TooFew,
}

/// The replies to one call. Members are bits.
pub struct Replies<R> {
    want: Want,
    asked: u64,
    /// Members that are masked out.
    gone: u64,
    replied: u64,
    /// Replies that were not taken yet, in the order in which they came: at most one of a member.
    arrived: VecDeque<(u8, Outcome<R>)>,
}

impl<R> Replies<R> {
    /// None yet, to a call of these members.
    #[must_use]
    pub fn new(want: Want, asked: u64) -> Self {
        Self { want, asked, gone: 0, replied: 0, arrived: VecDeque::new() }
    }

    /// Takes the reply of a member; gives it back if the member has replied, or was not asked.
    ///
    /// # Errors
    /// The reply.
    pub fn take(&mut self, member: u8, reply: Outcome<R>) -> Result<(), Outcome<R>> {
        let bit = 1_u64.checked_shl(member.into()).unwrap_or(0);
        if self.asked & bit == 0 || self.replied & bit != 0 {
            return Err(reply);
        }
        self.replied |= bit;
        self.arrived.push_back((member, reply));
        Ok(())
    }

    /// These members are masked out, and no others are.
    pub fn set_gone(&mut self, gone: u64) {
        self.gone = gone;
    }

    /// The members whose replies may still come.
    #[must_use]
    pub fn missing(&self) -> u64 {
        self.asked & !self.gone & !self.replied
    }

    /// Whether it has what it wants.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        let (replied, missing) = (self.replied.count_ones(), self.missing().count_ones());
        let need = match self.want {
            Want::All => (replied + missing).max(1),
            Want::Majority => self.asked.count_ones() / 2 + 1,
            Want::Count(count) => u32::from(count).max(1),
        };
        match () {
            () if replied >= need => Verdict::Enough,
            () if replied + missing < need => Verdict::TooFew,
            () => Verdict::Waits,
        }
    }

    /// The next reply in the order in which they came.
    pub fn take_next(&mut self) -> Option<(u8, Outcome<R>)> {
        self.arrived.pop_front()
    }

    /// The first reply that is no refusal, or else the first refusal.
    pub fn first(&mut self) -> Option<(u8, Outcome<R>)> {
        let accepted = self.arrived.iter().position(|(_, reply)| reply.is_ok());
        self.arrived.remove(accepted.unwrap_or(0))
    }
}

#[cfg(test)]
mod tests;
