//! Agreement of the members of a conversation on those of them that count. It knows no kernel, no
//! clock and no octets.
//!
//! A *roll* has for each member how often it has gone and come back: it is in while that is even.
//! A member that finds that another has failed raises its number, and tells its own roll, in a
//! message of the conversation: this is its *vote*. One that hears a roll with a higher number
//! joins it to its own, and votes again. A roll is *decided* when every member that is in by it has
//! voted for exactly this one, and they are more than half of all that ever were. Rolls grow, and
//! two majorities have a member in common, so all that are decided follow each other.
//!
//! A member that goes is counted up to its *cut*: its last message that came before one of these
//! votes, anywhere. A vote comes after all that its sender had, so a member that has the votes has
//! the messages up to the cut. From its vote on a member holds back all that comes. Once a roll is
//! decided it passes up what is left of it, with messages beyond a cut left out.
//!
//! A member may decide a roll and fail, and the others then decide a higher one, which has also its
//! failure. The lower one counts nevertheless, with its cuts, if all its votes precede those of the
//! higher: they do if any that is left has decided it. So the same rolls count at all that are
//! left.
//!
//! A member that *leaves* says so in its last message: those that have it vote that it is out, and
//! a majority is one of those that have not left. One that counts so has the message, and with it
//! all votes of that member. So two majorities of different members have one in common, or both
//! know of the vote of one that has left.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use xk_kit::group::NodeId;

/// Number of times that each member has gone and come back.
pub type Roll = Vec<u16>;

/// Whether a member with this number is in.
fn is_in(changes: u16) -> bool {
    changes.is_multiple_of(2)
}

/// The members that are in, as bits.
#[must_use]
pub fn bits(roll: &[u16]) -> u64 {
    roll.iter().enumerate().fold(0, |bits, (at, changes)| bits | u64::from(is_in(*changes)) << at)
}

/// Whether `low` lies below `high`, or is the same.
fn is_within(low: &[u16], high: &[u16]) -> bool {
    low.len() == high.len() && low.iter().zip(high).all(|(low, high)| low <= high)
}

/// For each member the higher number of two.
fn join<T: Copy + Ord>(one: &mut [T], other: &[T]) {
    one.iter_mut().zip(other).for_each(|(one, other)| *one = (*one).max(*other));
}

/// A message that a member may have to hold back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held<B> {
    /// The message.
    pub id: NodeId,
    /// Whether it was sent for its place alone.
    pub is_null: bool,
    /// The octets for the layer above.
    pub body: B,
}

/// A change of one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// Index in the list of members.
    pub member: u8,
    /// Number of times that it has been started, if it has come back; 0 if it has gone.
    pub incarnation: u16,
    /// Number of the last of its messages that count.
    pub cut: u32,
}

/// Something that goes up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Up<B> {
    /// A message.
    Message(Held<B>),
    /// A message that lies beyond the cut of its sender is left out.
    BeyondCut,
    /// A roll is decided: the members that are in, and those that have changed.
    View(u64, Vec<Change>),
}

/// Reason for paying no attention to a message or a vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ignored {
    /// The vote says no more than one before.
    Old,
    /// The members that it leaves in are too few ever to decide.
    TooFew,
    /// The message lies beyond the cut of its sender.
    BeyondCut,
    /// Too many are held back.
    TooMany,
}

/// A vote that is in this member's view.
struct Vote {
    roll: Roll,
    seq: u32,
    /// For each member its last message that is the vote or precedes it.
    past: Vec<u32>,
}

/// The agreement, as one member knows it. `B` is what messages have for the layer above.
pub struct Agreement<B> {
    me: usize,
    held_max: usize,
    /// The roll that was decided last, and the one that this member votes for.
    decided: Roll,
    wanted: Roll,
    /// Votes of each member for rolls above the decided one.
    votes: Vec<Vec<Vote>>,
    cuts: Vec<u32>,
    /// The members that have left, as bits.
    left: u64,
    /// Number of the last message of each that has come. The layer below may be ahead.
    seen: Vec<u32>,
    held: VecDeque<Held<B>>,
    up: VecDeque<Up<B>>,
}

impl<B> Agreement<B> {
    /// The agreement of so many members, of which this one is number `me`. It holds back at most
    /// `held_max` messages.
    #[must_use]
    pub fn new(members: usize, me: usize, held_max: usize) -> Self {
        let members = members.clamp(me + 1, 64);
        Self {
            me,
            held_max,
            decided: alloc::vec![0; members],
            wanted: alloc::vec![0; members],
            votes: (0..members).map(|_| Vec::new()).collect(),
            cuts: alloc::vec![u32::MAX; members],
            left: 0,
            seen: alloc::vec![0; members],
            held: VecDeque::new(),
            up: VecDeque::new(),
        }
    }

    /// Fewest members that decide.
    #[must_use]
    pub fn quorum(&self) -> u32 {
        (self.decided.len() as u32 - self.left.count_ones()) / 2 + 1
    }

    /// The members that are in by the roll that was decided last, as bits.
    #[must_use]
    pub fn members(&self) -> u64 {
        bits(&self.decided)
    }

    /// The members that are in by the roll that this member votes for, as bits.
    #[must_use]
    pub fn hoped(&self) -> u64 {
        bits(&self.wanted)
    }

    /// Whether nothing is under way, and nothing waits to go up.
    #[must_use]
    pub fn is_calm(&self) -> bool {
        self.decided == self.wanted && self.up.is_empty()
    }

    /// Whether a roll is to be decided.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.decided != self.wanted
    }

    /// Whether another has found that this member has failed. It has to come back as a new one.
    #[must_use]
    pub fn is_out(&self) -> bool {
        !is_in(self.wanted[self.me])
    }

    /// Whether this member leaves.
    #[must_use]
    pub fn leaves(&self) -> bool {
        self.left >> self.me & 1 != 0
    }

    /// Takes note that a member, perhaps this one, has sent its last message. Of a member that has
    /// left [`suspect`](Self::suspect) may tell, too.
    pub fn leave(&mut self, member: usize) {
        if member < self.decided.len() {
            self.left |= 1 << member;
            self.suspect(1 << member);
        }
    }

    /// Takes note that members have failed, those of `failed`; false if those that would be left
    /// are too few to decide.
    pub fn suspect(&mut self, failed: u64) -> bool {
        let mut roll = self.wanted.clone();
        for (at, changes) in roll.iter_mut().enumerate().filter(|(at, _)| *at != self.me) {
            *changes += u16::from(failed >> at & 1 != 0 && is_in(*changes));
        }
        let can_decide = bits(&roll).count_ones() >= self.quorum();
        if can_decide && !self.is_out() {
            self.wanted = roll;
        }
        can_decide
    }

    /// The roll that this member has to vote for, if it has not.
    #[must_use]
    pub fn unsaid(&self) -> Option<&[u16]> {
        let said = self.votes[self.me].last().map_or(&self.decided, |vote| &vote.roll);
        (self.wanted != *said && !self.leaves()).then_some(&self.wanted)
    }

    /// The members that have not voted as this one does, as bits.
    #[must_use]
    pub fn missing(&self) -> u64 {
        let has_voted =
            |at: &usize| self.votes[*at].last().map(|vote| &vote.roll) == Some(&self.wanted);
        let voted = (0..self.votes.len()).filter(has_voted).fold(0, |bits, at| bits | 1 << at);
        if self.is_open() { self.hoped() & !voted } else { 0 }
    }

    /// Takes a vote that is in the view, of this member or another: message number `seq` of it,
    /// with its past.
    ///
    /// # Errors
    /// Why it changes nothing.
    pub fn vote(
        &mut self,
        from: usize,
        roll: &[u16],
        seq: u32,
        past: Vec<u32>,
    ) -> Result<(), Ignored> {
        let n = self.decided.len();
        let Some(votes) = self.votes.get_mut(from).filter(|_| past.len() == n) else {
            return Err(Ignored::Old);
        };
        let last = votes.last().map_or(&self.decided, |vote| &vote.roll);
        // A higher number would count a member again that is out, which nothing lets back in.
        let is_near = |(one, own): (&u16, &u16)| *one <= own | 1;
        if !is_within(last, roll) || last == roll || !roll.iter().zip(&self.wanted).all(is_near) {
            return Err(Ignored::Old);
        }
        votes.push(Vote { roll: roll.into(), seq, past });
        let mut joined = self.wanted.clone();
        join(&mut joined, roll);
        if self.leaves() {
            // It need not be told, but looks on.
            joined[self.me] = self.wanted[self.me];
        }
        let can_decide = bits(&joined).count_ones() >= self.quorum();
        // One that is on its way out has no say any more.
        if can_decide && is_in(self.wanted[from]) && !self.is_out() {
            self.wanted = joined;
        }
        self.decide();
        if can_decide { Ok(()) } else { Err(Ignored::TooFew) }
    }

    /// The votes of the members that are in by a roll, if all of them have voted for it, within the
    /// messages that `seen` says.
    fn votes_for(&self, roll: &[u16], seen: &[u32]) -> Option<Vec<&Vote>> {
        let all = (0..roll.len()).filter(|at| is_in(roll[*at]));
        let vote = |at: usize| {
            self.votes[at].iter().find(|vote| vote.roll == roll && vote.seq <= seen[at])
        };
        all.map(vote).collect()
    }

    /// Decides the roll that this member votes for, if it can be, and those below it that count.
    fn decide(&mut self) {
        let is_last =
            |at: usize| self.votes[at].last().is_some_and(|vote| vote.roll == self.wanted);
        let mut all = (0..self.wanted.len()).filter(|at| is_in(self.wanted[*at]));
        let past = |at: usize| self.votes[at].last().map_or(&[][..], |vote| &vote.past);
        let mut pasts = (0..self.wanted.len()).filter(|at| is_in(self.wanted[*at])).map(past);
        let is_seen = |past: &[u32]| {
            let mut all = past.iter().zip(&self.seen).enumerate();
            all.all(|(at, (last, seen))| at == self.me || last <= seen)
        };
        if !self.is_open()
            || self.is_out()
            || self.leaves()
            || !all.all(is_last)
            || !pasts.all(is_seen)
        {
            return;
        }
        // From the highest down: each with what precedes its votes.
        let mut chain: Vec<(Roll, Vec<u32>)> = Vec::new();
        let mut seen = alloc::vec![u32::MAX; self.wanted.len()];
        for own in self.votes[self.me].iter().rev() {
            if let Some(votes) = self.votes_for(&own.roll, &seen) {
                let mut past = alloc::vec![0; self.wanted.len()];
                votes.iter().for_each(|vote| join(&mut past, &vote.past));
                seen.clone_from(&past);
                chain.push((own.roll.clone(), past));
            }
        }
        while let Some((roll, past)) = chain.pop() {
            self.enter(roll, &past);
        }
        let rest = core::mem::take(&mut self.held);
        rest.into_iter().for_each(|held| self.pass(held));
        let decided = &self.decided;
        self.votes
            .iter_mut()
            .for_each(|votes| votes.retain(|vote| !is_within(&vote.roll, decided)));
    }

    /// Enters a roll that is decided: what precedes its votes goes up before it.
    fn enter(&mut self, roll: Roll, past: &[u32]) {
        let mut changes = Vec::new();
        for (at, (new, old)) in roll.iter().zip(&self.decided).enumerate() {
            if new != old {
                let (incarnation, cut) = (if is_in(*new) { new / 2 + 1 } else { 0 }, past[at]);
                self.cuts[at] = if incarnation > 0 { u32::MAX } else { cut };
                changes.push(Change { member: at as u8, incarnation, cut });
            }
        }
        let is_before = |held: &Held<B>| held.id.seq <= past[usize::from(held.id.sender)];
        let (before, after) = core::mem::take(&mut self.held).into_iter().partition(is_before);
        self.held = after;
        VecDeque::into_iter(before).for_each(|held| self.pass(held));
        self.up.push_back(Up::View(bits(&roll), changes));
        self.decided = roll;
    }

    /// Has a message go up, unless it lies beyond a cut.
    fn pass(&mut self, held: Held<B>) {
        let counts = self.check(held.id).is_ok();
        self.up.push_back(if counts { Up::Message(held) } else { Up::BeyondCut });
    }

    /// Whether a message counts, as far as it is decided.
    ///
    /// # Errors
    /// Why it does not.
    pub fn check(&self, id: NodeId) -> Result<(), Ignored> {
        let cut = self.cuts.get(usize::from(id.sender));
        if cut.is_some_and(|cut| id.seq <= *cut) { Ok(()) } else { Err(Ignored::BeyondCut) }
    }

    /// Notes that a message has come.
    pub fn note(&mut self, id: NodeId) {
        if let Some(seen) = self.seen.get_mut(usize::from(id.sender)) {
            *seen = (*seen).max(id.seq);
        }
    }

    /// Takes a message whose predecessors have come. It goes up behind those before it, at once or
    /// when the roll is decided. Of what a member sent for its place alone the last is held back.
    ///
    /// # Errors
    /// Why it never goes up.
    pub fn take(&mut self, held: Held<B>) -> Result<(), Ignored> {
        self.note(held.id);
        self.check(held.id)?;
        if !self.is_open() {
            self.up.push_back(Up::Message(held));
            return Ok(());
        }
        let is_idle = |one: &Held<B>| one.is_null && one.id.sender == held.id.sender;
        self.held.retain(|one| !is_idle(one));
        if self.held.len() >= self.held_max {
            return Err(Ignored::TooMany);
        }
        self.held.push_back(held);
        self.decide();
        Ok(())
    }

    /// Takes out what goes up next.
    #[expect(clippy::should_implement_trait, reason = "the next one may come later")]
    pub fn next(&mut self) -> Option<Up<B>> {
        self.up.pop_front()
    }

    /// Puts back what could not go up.
    pub fn put_back(&mut self, up: Up<B>) {
        self.up.push_front(up);
    }

    /// Number of messages that wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.held.len() + self.up.len()
    }

    /// Throws away all that waits.
    pub fn clear(&mut self) {
        self.held.clear();
        self.up.clear();
    }
}

#[cfg(test)]
mod tests;
