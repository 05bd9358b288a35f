//! Agreement of the members of a conversation on those of them that count. It knows no kernel, no
//! clock and no octets.
//!
//! A *roll* has a number for each member, which grows: the member is in at first, out once it has
//! failed, coming when it is let back, and in again. One that finds that another has failed raises
//! its number, and tells its own roll, in a message of the conversation: this is its *vote*. One
//! that hears a roll with a higher number joins it to its own, and votes again. A roll is *decided*
//! when every member that is in by it has voted for exactly this one, and they are more than half
//! of all that ever were. Rolls grow, and two majorities have a member in common, so all that are
//! decided follow each other.
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
//!
//! A member that has lost its state is let back in two rolls. Of the first, by which it is coming,
//! all that precedes the votes is the base on which the layer below begins again at that member.
//! Once it says that it is there, the others raise it to in. It votes with them, and has passed up
//! nothing before: so at all members it counts from the same place on, that of the second roll. One
//! member is let back at a time, by the lowest that is in.
//!
//! A member may vote on before it has all votes of the first roll. Messages of the one that comes
//! back, and what follows them, would reach it then before it decides. But a vote for the second
//! roll proves that the first one was decided: the layer below takes the messages from there on.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use xk_kit::group::NodeId;

/// A number for each member: how often it has changed in the upper 16 bits, and below them the
/// number of the start that is let back, while it is coming.
pub type Roll = Vec<u64>;

/// Bits for the number of a start.
pub const START_BITS: u32 = 48;
/// Largest number of changes: one that is out then stays so.
const CHANGES_MAX: u64 = u16::MAX as u64 - 2;

/// State of a member by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// The member counts.
    In,
    /// The member has failed.
    Out,
    /// The member comes back, and does not count yet; has the number of its start.
    Coming(u64),
}

/// State of a member with this number.
#[must_use]
pub fn status(number: u64) -> Status {
    match (number >> START_BITS) % 3 {
        0 => Status::In,
        1 => Status::Out,
        _ => Status::Coming(number & ((1 << START_BITS) - 1)),
    }
}

fn is_in(number: u64) -> bool {
    status(number) == Status::In
}

fn is_coming(number: u64) -> bool {
    matches!(status(number), Status::Coming(_))
}

/// The number after so many more changes.
fn next(number: u64, changes: u64) -> u64 {
    ((number >> START_BITS) + changes) << START_BITS
}

/// The number of a member that is in, when it has been started so many times.
fn started(incarnation: u16) -> u64 {
    next(0, 3 * u64::from(incarnation.saturating_sub(1)))
}

/// The members that are in, as bits.
#[must_use]
pub fn bits(roll: &[u64]) -> u64 {
    roll.iter().enumerate().fold(0, |bits, (at, number)| bits | u64::from(is_in(*number)) << at)
}

/// Whether `low` lies below `high`, or is the same.
fn is_within(low: &[u64], high: &[u64]) -> bool {
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
    /// State from now on.
    pub status: Status,
    /// Number of times that it has been started, if it is coming or in; 0 if it has gone.
    pub incarnation: u16,
    /// Number of the last of its messages that count.
    pub cut: u32,
}

/// A roll that is decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decided {
    /// The members that are in, as bits.
    pub members: u64,
    /// The members that have changed.
    pub changes: Vec<Change>,
    /// For each member its last message that is one of the votes or precedes one.
    pub past: Vec<u32>,
    /// Largest depth of a vote: messages with octets that count before are less deep, those behind
    /// are deeper.
    pub depth: u32,
}

fn change(at: usize, number: u64, cut: u32) -> Change {
    let status = status(number);
    let incarnation = if status == Status::Out { 0 } else { ((number >> START_BITS) + 4) / 3 };
    Change { member: at as u8, status, incarnation: incarnation as u16, cut }
}

/// Something that goes up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Up<B> {
    /// A message.
    Message(Held<B>),
    /// A message that lies beyond the cut of its sender is left out.
    BeyondCut,
    /// A message of which this member, which has come back, needs the place alone.
    Place(Held<B>),
    /// A roll is decided.
    View(Decided),
    /// Another has decided that a member is coming, on the base of these messages.
    LetIn(Change, Vec<u32>),
}

/// Reason for paying no attention to a message or a vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ignored {
    /// The vote says no more than one before.
    Old,
    /// The members that it leaves in are too few ever to decide.
    TooFew,
    /// Too many are held back.
    TooMany,
}

/// A vote that is in this member's view.
struct Vote {
    roll: Roll,
    seq: u32,
    depth: u32,
    /// For each member its last message that is the vote or precedes it.
    past: Vec<u32>,
}

/// Last messages of each member that are one of the votes or precede one.
fn join_pasts(votes: &[&Vote]) -> Vec<u32> {
    let mut past = Vec::new();
    for vote in votes {
        past.resize(vote.past.len(), 0);
        join(&mut past, &vote.past);
    }
    past
}

/// The agreement, as one member knows it. `B` is what messages have for the layer above.
pub struct Agreement<B> {
    me: usize,
    held_max: usize,
    /// The roll that was decided last, and the one that this member votes for.
    decided: Roll,
    wanted: Roll,
    /// This member comes back, and does not know yet which others are in.
    is_strange: bool,
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
            is_strange: false,
            votes: (0..members).map(|_| Vec::new()).collect(),
            cuts: alloc::vec![u32::MAX; members],
            left: 0,
            seen: alloc::vec![0; members],
            held: VecDeque::new(),
            up: VecDeque::new(),
        }
    }

    /// Has this member begin with its return, at its start number `incarnation`. `seen` has the
    /// last message of each member that it does not get.
    pub fn come_back(&mut self, incarnation: u16, seen: Vec<u32>) {
        (self.is_strange, self.seen) = (true, seen);
        self.decided[self.me] = started(incarnation);
        self.wanted[self.me] = started(incarnation);
    }

    /// Whether this member comes back, and does not count yet.
    #[must_use]
    pub fn is_strange(&self) -> bool {
        self.is_strange
    }

    /// The roll that was decided last.
    #[must_use]
    pub fn decided(&self) -> &[u64] {
        &self.decided
    }

    /// The roll that this member votes for.
    #[must_use]
    pub fn wanted(&self) -> &[u64] {
        &self.wanted
    }

    /// Whether a decided roll has this member out, in this incarnation.
    #[must_use]
    pub fn is_out_by(&self, roll: &[u64]) -> bool {
        let is_out = roll.get(self.me).is_some_and(|number| *number > self.decided[self.me]);
        is_out && !self.leaves()
    }

    /// Lets a member back that is out, and has been started with this number; false if another is
    /// to do so, or it cannot be done now.
    pub fn admit(&mut self, member: usize, start: u64) -> bool {
        let is_lowest = !self.decided[..self.me].iter().copied().any(is_in);
        let is_free = !self.is_open() && !self.decided.iter().copied().any(is_coming);
        let own = self.decided.get(member).copied().unwrap_or(0);
        let has_left = self.left.checked_shr(member as u32).unwrap_or(0) & 1 != 0;
        let can_come = status(own) == Status::Out && !has_left && own >> START_BITS < CHANGES_MAX;
        let is_let_in = is_lowest && is_free && can_come && start > 0 && start >> START_BITS == 0;
        if is_let_in {
            self.wanted[member] = next(own, 1) | start;
        }
        is_let_in
    }

    /// Notes that a member that is coming is there.
    pub fn hello(&mut self, member: usize) {
        let is_coming = |roll: &Roll| roll.get(member).copied().is_some_and(is_coming);
        if is_coming(&self.decided) && is_coming(&self.wanted) && !self.is_out() {
            self.wanted[member] = next(self.wanted[member], 1);
        }
    }

    /// Has this member be out: it could not do as the others do.
    pub fn fail(&mut self) {
        if !self.is_out() {
            self.wanted[self.me] = next(self.wanted[self.me], 1);
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
        !self.is_open() && self.up.is_empty()
    }

    /// Whether a roll is to be decided.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.is_strange || self.decided != self.wanted
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
        let is_failed = |at: usize| at != self.me && failed >> at & 1 != 0;
        for (_, number) in roll.iter_mut().enumerate().filter(|(at, _)| is_failed(*at)) {
            match status(*number) {
                Status::In => *number = next(*number, 1),
                Status::Coming(_) => *number = next(*number, 2),
                Status::Out => {}
            }
        }
        let can_decide = bits(&roll).count_ones() >= self.quorum();
        if can_decide && !self.is_out() && !self.is_strange {
            self.wanted = roll;
        }
        can_decide
    }

    /// The roll that this member has to vote for, if it has not.
    #[must_use]
    pub fn unsaid(&self) -> Option<&[u64]> {
        let is_due = match self.votes[self.me].last() {
            Some(said) => self.wanted != said.roll,
            // By the first vote that it hears it knows the others.
            None if self.is_strange => self.votes.iter().any(|votes| !votes.is_empty()),
            None => self.wanted != self.decided,
        };
        (is_due && !self.leaves()).then_some(&self.wanted)
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
    /// with its depth and its past.
    ///
    /// # Errors
    /// Why it changes nothing.
    pub fn vote(
        &mut self,
        from: usize,
        roll: &[u64],
        (seq, depth): (u32, u32),
        past: Vec<u32>,
    ) -> Result<(), Ignored> {
        let n = self.decided.len();
        let Some(votes) = self.votes.get(from).filter(|_| past.len() == n) else {
            return Err(Ignored::Old);
        };
        let (last, is_first) = match votes.last() {
            Some(vote) => (&vote.roll, false),
            None => (&self.decided, self.is_strange),
        };
        // A number that is far ahead is none that votes lead to, nor is another start.
        let is_near = |((one, own), decided): ((&u64, &u64), &u64)| {
            // One that is let back may have failed again before the vote.
            let steps = match status(*own) {
                Status::In => 1,
                Status::Out => 3,
                Status::Coming(_) => 2,
            };
            let most = next(*own, steps) | ((1 << START_BITS) - 1);
            let is_same = one >> START_BITS == decided >> START_BITS;
            *one <= most && (!is_same || one == decided)
        };
        let mut all = roll.iter().zip(&self.wanted).zip(&self.decided);
        let is_far = !self.is_strange && !all.all(is_near);
        if !is_within(last, roll) || last == roll && !is_first || is_far {
            return Err(Ignored::Old);
        }
        self.votes[from].push(Vote { roll: roll.into(), seq, depth, past });
        let all = self.votes.iter().flatten();
        let proved: Vec<Up<B>> = all.filter_map(|vote| self.proved(vote)).collect();
        self.up.extend(proved);
        let mut joined = self.wanted.clone();
        join(&mut joined, roll);
        if self.leaves() {
            // It need not be told, but looks on.
            joined[self.me] = self.wanted[self.me];
        }
        let can_decide = bits(&joined).count_ones() >= self.quorum();
        // One that is on its way out has no say any more.
        let has_say = is_in(if self.is_strange { roll[from] } else { self.wanted[from] });
        if can_decide && has_say && !self.is_out() {
            self.wanted = joined;
        }
        self.decide();
        if can_decide { Ok(()) } else { Err(Ignored::TooFew) }
    }

    /// The base of a member that is in by a vote, but not coming yet as far as this member has
    /// decided.
    fn proved(&self, Vote { roll, past, .. }: &Vote) -> Option<Up<B>> {
        let changes = |roll: &Roll, at: usize| roll[at] >> START_BITS;
        let is_ahead = |at: &usize| changes(roll, *at) > changes(&self.decided, *at) + 1;
        let mut all = (0..roll.len()).filter(|at| is_in(roll[*at]) && !self.is_strange);
        let at = all.find(is_ahead)?;
        let mut own = self.votes[self.me].iter().filter(|own| is_coming(own.roll[at]));
        own.find_map(|Vote { roll, .. }| {
            let base = join_pasts(&self.votes_for(roll, past)?);
            Some(Up::LetIn(change(at, roll[at], base[at]), base))
        })
    }

    /// The votes of the members that are in by a roll, if all of them have voted for it, within the
    /// messages that `seen` says.
    fn votes_for(&self, roll: &[u64], seen: &[u32]) -> Option<Vec<&Vote>> {
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
        let mut chain: Vec<(Roll, Vec<u32>, u32)> = Vec::new();
        let mut seen = alloc::vec![u32::MAX; self.wanted.len()];
        for own in self.votes[self.me].iter().rev() {
            if let Some(votes) = self.votes_for(&own.roll, &seen) {
                let past = join_pasts(&votes);
                let depth = votes.iter().map(|vote| vote.depth).max().unwrap_or(0);
                seen.clone_from(&past);
                chain.push((own.roll.clone(), past, depth));
            }
        }
        while let Some((roll, past, depth)) = chain.pop() {
            self.enter(roll, past, depth);
        }
        let rest = core::mem::take(&mut self.held);
        rest.into_iter().for_each(|held| self.pass(held));
        let decided = &self.decided;
        self.votes
            .iter_mut()
            .for_each(|votes| votes.retain(|vote| !is_within(&vote.roll, decided)));
    }

    /// Enters a roll that is decided: what precedes its votes goes up before it. At a member that
    /// comes back this is part of the state that it is given.
    fn enter(&mut self, roll: Roll, past: Vec<u32>, depth: u32) {
        let is_new = core::mem::take(&mut self.is_strange);
        let is_before = |held: &Held<B>| held.id.seq <= past[usize::from(held.id.sender)];
        let (before, after) = core::mem::take(&mut self.held).into_iter().partition(is_before);
        self.held = after;
        let mut changes = Vec::new();
        for (at, (new, old)) in roll.iter().zip(&self.decided).enumerate() {
            // One that comes back knows of none that were in.
            let is_told = if is_new { at == self.me || !is_in(*new) } else { new != old };
            changes.extend(is_told.then(|| change(at, *new, past[at])));
        }
        let all: VecDeque<Held<B>> = before;
        match is_new {
            true => self.up.extend(all.into_iter().map(Up::Place)),
            false => all.into_iter().for_each(|held| self.pass(held)),
        }
        for (at, number) in roll.iter().enumerate() {
            match status(*number) {
                Status::In => self.cuts[at] = u32::MAX,
                _ if *number != self.decided[at] => self.cuts[at] = past[at],
                _ => {}
            }
        }
        self.up.push_back(Up::View(Decided { members: bits(&roll), changes, past, depth }));
        self.decided = roll;
    }

    /// Has a message go up, unless it lies beyond a cut.
    fn pass(&mut self, held: Held<B>) {
        if self.counts(held.id) {
            self.up.push_back(Up::Message(held));
        } else if !held.is_null {
            self.up.push_back(Up::BeyondCut);
        }
    }

    /// Whether a message counts, as far as it is decided.
    #[must_use]
    pub fn counts(&self, id: NodeId) -> bool {
        self.cuts.get(usize::from(id.sender)).is_some_and(|cut| id.seq <= *cut)
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
        if !self.is_open() {
            self.pass(held);
            return Ok(());
        }
        let is_idle = |one: &Held<B>| one.is_null && one.id.sender == held.id.sender;
        self.held.retain(|one| !is_idle(one));
        if self.held.len() >= self.held_max {
            // The others pass it up: this member has no part in that any more.
            self.fail();
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
