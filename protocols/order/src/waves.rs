//! The one order of a conversation's messages, as one member finds it. It knows no kernel, no clock
//! and no octets.
//!
//! Messages come in with their places in the context graph, and each after those that it follows.
//! All of one depth are a *wave*: no two of them precede each other. A wave is complete once every
//! member has sent a message at least as deep, since what a member sends later is deeper. So the
//! order is that of depth, and of members within a wave, which all members find by themselves.
//!
//! With followers counted, a message must besides have been followed by every member. Then each
//! message that has not come yet follows it, too. This permits *classes*: messages of one class may
//! be executed in either order. A *barrier* is a message of class 0, or one of a class other than
//! that of the last barrier in its past. Barriers have their order as above. All others lie in the
//! run behind the last barrier in their past, in whichever order they come.
//!
//! A *change* of the members is a barrier as well, behind the messages that are no deeper than it.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use xk_kit::group::{Node, NodeId};

/// A message that this member has, or has sent.
#[derive(Clone, Debug)]
pub struct Arrived<B> {
    /// The place in the context graph.
    pub node: Node,
    /// Class of messages that it commutes with; 0 for none.
    pub class: u8,
    /// For each member the number of its last message that is this one or precedes it; empty unless
    /// followers are counted.
    pub past: Vec<u32>,
    /// The octets that are handed up; `None` if it was sent for its place alone.
    pub body: Option<B>,
}

/// Reason for leaving a message out of the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dropped {
    /// Messages behind it in the order have been handed up: others counted its sender no longer.
    Late,
    /// As many of its sender's wait as may.
    TooMany,
}

/// An answer that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    /// A message that waits for this member to send another.
    pub to: NodeId,
    /// Messages that came since this member sent its last.
    pub unanswered: u32,
}

/// One member, as this one knows it.
#[derive(Clone, Default)]
struct Member {
    /// Number of its last message that has its place.
    seq: u32,
    /// Number of the last one that has come, which may have to wait for others.
    arrived: u32,
    /// Depth of the last that has its place, and 1; 0 without any.
    levels: u32,
    /// Messages of this sender that wait.
    waiting: u32,
    /// Number of the message from which on it is counted no longer.
    masked_after: Option<u32>,
    /// Depth from which on it is counted, if it has come back.
    from: u32,
}

impl Member {
    /// Whether it is counted no longer, and all has come that is counted of it.
    fn is_over(&self) -> bool {
        self.masked_after.is_some_and(|last| self.seq >= last)
    }
}

/// A barrier that waits, with the run behind it.
struct Barrier<B> {
    node: Node,
    class: u8,
    body: B,
    /// Members that have sent a message which follows it, as bits; its sender counts.
    followers: u64,
    run: VecDeque<(Node, B)>,
}

/// Senders from here on are those of changes.
const CHANGE: u8 = 128;

/// The order. `B` is what is handed up. The default is of no members, and takes no message.
#[derive(Default)]
pub struct Waves<B> {
    me: usize,
    waiting_max: u32,
    counts_followers: bool,
    members: Vec<Member>,
    /// By depth and sender.
    barriers: BTreeMap<(u32, u8), Barrier<B>>,
    /// The barrier that was handed up last, with its depth, its class, and what may come next.
    last: Option<(NodeId, u32)>,
    class: u8,
    run: VecDeque<(Node, B)>,
    /// Messages in whose past one of this member's lies that is not noted yet.
    early: Vec<Arrived<B>>,
    unanswered: u32,
}

impl<B> Waves<B> {
    /// The order of a conversation of `members`, of which this one is number `me`. At most
    /// `waiting_max` messages of each wait.
    #[must_use]
    pub fn new(members: usize, me: usize, waiting_max: u32, counts_followers: bool) -> Self {
        Self {
            me,
            waiting_max,
            counts_followers,
            members: alloc::vec![Member::default(); members.max(me + 1)],
            barriers: BTreeMap::new(),
            last: None,
            class: 0,
            run: VecDeque::new(),
            early: Vec::new(),
            unanswered: 0,
        }
    }

    /// Takes a message; returns why messages were left out of the order.
    pub fn take(&mut self, arrived: Arrived<B>) -> Vec<Dropped> {
        let NodeId { sender, seq } = arrived.node.id;
        if let Some(member) = self.members.get_mut(usize::from(sender)) {
            member.arrived = member.arrived.max(seq);
            self.early.push(arrived);
        }
        self.come()
    }

    /// Places all that is early no longer.
    fn come(&mut self) -> Vec<Dropped> {
        let mut dropped = Vec::new();
        while let Some(at) = self.early.iter().position(|arrived| self.may_come(arrived)) {
            let arrived = self.early.remove(at);
            dropped.extend(self.place(arrived));
        }
        dropped
    }

    /// Whether all that precedes a message has come. The layer below may leave out one that was
    /// sent for its place alone, if a later one of its sender makes up for it.
    fn may_come(&self, arrived: &Arrived<B>) -> bool {
        let sender = usize::from(arrived.node.id.sender);
        let is_there = |(at, (seq, member)): (usize, (&u32, &Member))| {
            let is_early = |early: &Arrived<B>| {
                usize::from(early.node.id.sender) == at && early.node.id.seq <= *seq
            };
            at == sender
                || *seq <= member.seq
                || member.is_over()
                || *seq <= member.arrived && !self.early.iter().any(is_early)
        };
        arrived.past.iter().zip(&self.members).enumerate().all(is_there)
    }

    fn place(&mut self, arrived: Arrived<B>) -> Option<Dropped> {
        let Arrived { node, class, past, body } = arrived;
        let sender = usize::from(node.id.sender);
        let follows = |id: NodeId| past.get(usize::from(id.sender)).map(|seq| *seq >= id.seq);
        // Without followers to count there may be very many.
        let counted = if self.counts_followers { self.barriers.len() } else { 0 };
        for barrier in self.barriers.values_mut().take(counted) {
            let is_follower = follows(barrier.node.id) == Some(true);
            barrier.followers |= u64::from(is_follower) << sender;
        }
        let member = &mut self.members[sender];
        (member.seq, member.levels) = (node.id.seq, node.depth.saturating_add(1));
        match (sender == self.me, &body) {
            (true, _) => self.unanswered = 0,
            (false, Some(_)) => self.unanswered += 1,
            (false, None) => {}
        }
        let body = body?;
        let key = (node.depth, node.id.sender);
        let is_late = |(last, depth): (NodeId, u32)| match follows(last) {
            Some(is_behind) => !is_behind,
            None => key < (depth, last.sender),
        };
        if self.last.is_some_and(is_late) {
            return Some(Dropped::Late);
        }
        if member.waiting >= self.waiting_max {
            return Some(Dropped::TooMany);
        }
        member.waiting += 1;
        let mut barriers = self.barriers.values_mut().rev();
        let is_before = |barrier: &Barrier<B>| match barrier.node.id.sender < CHANGE {
            true => follows(barrier.node.id) == Some(true),
            false => barrier.node.depth < node.depth,
        };
        let tag = barriers.find(|barrier| class != 0 && is_before(barrier));
        let (run_class, run) = match tag {
            Some(barrier) => (barrier.class, &mut barrier.run),
            None => (self.class, &mut self.run),
        };
        if class != 0 && class == run_class {
            run.push_back((node, body));
            return None;
        }
        let barrier = Barrier { node, class, body, followers: 1 << sender, run: VecDeque::new() };
        self.barriers.insert(key, barrier);
        None
    }

    /// Whether the first barrier has its place for good.
    fn may_go(&self, first: &Barrier<B>) -> bool {
        self.members.iter().enumerate().all(|(at, member)| {
            let has_answered = match self.counts_followers {
                true => first.followers >> at & 1 != 0 || member.from > first.node.depth,
                false => member.levels > first.node.depth,
            };
            has_answered || member.is_over() || first.node.id.sender >= CHANGE
        })
    }

    /// Whether there is a [`next`](Self::next) one.
    #[must_use]
    pub fn has_next(&self) -> bool {
        let first = self.barriers.first_key_value();
        !self.run.is_empty() || first.is_some_and(|(_, first)| self.may_go(first))
    }

    /// Returns how many messages have their places for good.
    #[must_use]
    pub fn ready(&self) -> usize {
        let firm = self.barriers.values().take_while(|barrier| self.may_go(barrier));
        firm.fold(self.run.len(), |sum, barrier| sum + 1 + barrier.run.len())
    }

    /// Takes out the next message in the order, if that is known.
    #[expect(clippy::should_implement_trait, reason = "the next one may come later")]
    pub fn next(&mut self) -> Option<(Node, B)> {
        if !self.has_next() {
            return None;
        }
        let next = match self.run.pop_front() {
            Some(next) => next,
            None => {
                let (_, first) = self.barriers.pop_first()?;
                self.last = Some((first.node.id, first.node.depth));
                (self.class, self.run) = (first.class, first.run);
                (first.node, first.body)
            }
        };
        if let Some(member) = self.members.get_mut(usize::from(next.0.id.sender)) {
            member.waiting -= 1;
        }
        Some(next)
    }

    /// The answer that this member owes the others, if there is one: a message that is deeper than
    /// its last one waits, or, with followers counted, one that it has not followed. What is sent
    /// for its place alone waits for nothing, so answers are not answered.
    #[must_use]
    pub fn due(&self) -> Option<Due> {
        let all = self.barriers.values().rev();
        let mut all = all.filter(|barrier| barrier.node.id.sender < CHANGE);
        let found = match self.counts_followers {
            true => all.find(|barrier| barrier.followers >> self.me & 1 == 0),
            false => all.next().filter(|last| last.node.depth >= self.members[self.me].levels),
        };
        found.map(|barrier| Due { to: barrier.node.id, unanswered: self.unanswered })
    }

    /// Counts a member no longer, once its message number `last` has come; returns why messages
    /// that had waited for it were left out of the order.
    pub fn mask(&mut self, member: usize, last: u32) -> Vec<Dropped> {
        if let Some(member) = self.members.get_mut(member) {
            member.masked_after = Some(last);
        }
        self.come()
    }

    /// Begins in the middle: a member has sent this many messages, the last of which is below so
    /// many waves.
    pub fn begin_at(&mut self, member: usize, seq: u32, levels: u32) {
        if let Some(member) = self.members.get_mut(member) {
            (member.seq, member.arrived, member.levels) = (seq, seq, levels);
        }
    }

    /// Puts a change of a member behind all messages that are no deeper; it comes up as `body`.
    pub fn change(&mut self, member: u8, depth: u32, body: B) {
        let id = NodeId { sender: CHANGE | member, seq: 0 };
        let node = Node { id, incarnation: 0, depth, is_null: true };
        let barrier = Barrier { node, class: 0, body, followers: u64::MAX, run: VecDeque::new() };
        self.barriers.insert((depth, id.sender), barrier);
    }

    /// Counts a member again that has come back: what it sends lies beyond so many waves, and
    /// behind its message number `seq`.
    pub fn unmask(&mut self, member: usize, seq: u32, levels: u32) {
        if let Some(member) = self.members.get_mut(member) {
            (member.masked_after, member.from) = (None, levels);
            (member.seq, member.arrived) = (seq, seq);
            member.levels = member.levels.max(levels);
        }
    }

    /// Returns how many messages of a member wait.
    #[must_use]
    pub fn waiting_of(&self, member: usize) -> u32 {
        let is_its = |arrived: &&Arrived<B>| usize::from(arrived.node.id.sender) == member;
        let early = self.early.iter().filter(is_its).count() as u32;
        self.members.get(member).map_or(0, |member| member.waiting + early)
    }

    /// Returns how many messages wait.
    #[must_use]
    pub fn waiting(&self) -> u32 {
        (0..self.members.len()).map(|member| self.waiting_of(member)).sum()
    }

    /// Throws away all that waits.
    pub fn clear(&mut self) {
        self.barriers.clear();
        self.run.clear();
        self.early.clear();
    }
}

#[cfg(test)]
mod tests;
