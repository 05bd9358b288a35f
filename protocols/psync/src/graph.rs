//! The context graph of a conversation, as one member has it. It knows no kernel, no clock and no
//! octets.
//!
//! A message *precedes* another if the sender of the other had it when it sent. Each message names
//! its immediate predecessors: the leaves of its sender's *view*, which is the part of the graph
//! that was sent or whose upcall has begun. A message of which a predecessor is missing waits.
//!
//! Messages of one sender are numbered from 1 and precede each other, so a set that is closed under
//! "precedes" is a vector: for each sender the number of its last message. Four such vectors say
//! all of this member's own state: what was inserted, what was begun, what has returned, and what
//! all members hold.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;
use xk_kit::group::{NodeId as Id, NodeOrder as Order};

/// Largest number of members.
pub const MEMBERS_MAX: usize = 64;

/// Result of an arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// The message is in the graph, perhaps with others that had waited for it.
    Inserted,
    /// The message waits: a predecessor is missing.
    Waiting,
    /// The message has arrived before.
    Duplicate,
    /// The number is further on than the window allows.
    BeyondWindow,
    /// The predecessors cannot be those of this message.
    BadContext,
}

/// A message whose upcall begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Begun {
    /// The message.
    pub id: Id,
    /// Length of the longest path to it from a message without predecessors.
    pub depth: u32,
    /// Whether it has no octets for the protocol above.
    pub is_null: bool,
}

/// One message, as far as it is kept.
struct Slot<B> {
    /// Number of the message; 0 while the slot is free.
    seq: u32,
    depth: u32,
    predecessors: u8,
    is_null: bool,
    /// Present until every member holds the message and its upcall here has returned.
    body: Option<B>,
}

/// The slots of one sender's messages, each with room for a vector and for predecessors.
struct Row<B> {
    slots: Vec<Slot<B>>,
    vectors: Vec<u32>,
    predecessors: Vec<Id>,
}

/// One member, as this one knows it.
struct Member<B> {
    /// Number of its last message that is in the graph, whose upcall has begun, has returned.
    inserted: u32,
    begun: u32,
    returned: u32,
    /// Number of its last message that every member holds, and the last whose body was given back.
    held_by_all: u32,
    freed: u32,
    /// Numbers of the last message of each sender that it holds, as far as this member knows.
    holds: Vec<u32>,
    /// Numbers of the last messages that precede its own last one.
    heard: Vec<u32>,
    is_masked: bool,
    /// Made with the first message of the sender.
    row: Option<Row<B>>,
}

/// The graph. `B` is the body of a message.
pub struct Graph<B> {
    me: u8,
    window: u32,
    /// Largest number of upcalls under way.
    upcalls: u32,
    running: u32,
    running_of: u64,
    members: Vec<Member<B>>,
    /// In the order of insertion: messages whose upcall has not begun.
    ready: VecDeque<Id>,
    /// Leaves of the view.
    leaves: Vec<Id>,
    /// Scratch for the vector of a message that is inserted.
    vector: Vec<u32>,
}

impl<B> Graph<B> {
    /// A graph of `members` members, of which this one is number `me`. Each may have `window`
    /// messages that another member does not hold yet; at most `upcalls` upcalls are under way.
    #[must_use]
    pub fn new(members: usize, me: usize, window: u32, upcalls: u32) -> Self {
        let n = members.min(MEMBERS_MAX);
        let member = |_| Member {
            inserted: 0,
            begun: 0,
            returned: 0,
            held_by_all: 0,
            freed: 0,
            holds: vec![0; n],
            heard: vec![0; n],
            is_masked: false,
            row: None,
        };
        Self {
            me: me as u8,
            window: window.clamp(1, 1 << 10),
            upcalls: upcalls.max(1),
            running: 0,
            running_of: 0,
            members: (0..n).map(member).collect(),
            ready: VecDeque::new(),
            leaves: Vec::with_capacity(n),
            vector: vec![0; n],
        }
    }

    /// Returns the number of members.
    #[must_use]
    pub fn members(&self) -> usize {
        self.members.len()
    }

    /// Returns the number of slots of a sender: twice the window for what is not held by all or
    /// waits, once more for the context of messages that are late, rounded up.
    fn slots(&self) -> usize {
        (4 * self.window as usize).next_power_of_two()
    }

    fn at(&self, seq: u32) -> usize {
        seq as usize & (self.slots() - 1)
    }

    fn place(&self, seq: u32) -> Range<usize> {
        let at = self.at(seq) * self.members.len();
        at..at + self.members.len()
    }

    fn slot(&self, id: Id) -> Option<&Slot<B>> {
        let row = self.members.get(usize::from(id.sender))?.row.as_ref()?;
        row.slots.get(self.at(id.seq)).filter(|slot| slot.seq == id.seq && id.seq != 0)
    }

    fn slot_mut(&mut self, id: Id) -> Option<&mut Slot<B>> {
        let at = self.at(id.seq);
        let row = self.members.get_mut(usize::from(id.sender))?.row.as_mut()?;
        row.slots.get_mut(at).filter(|slot| slot.seq == id.seq && id.seq != 0)
    }

    /// Puts a message into its slot.
    fn keep(&mut self, id: Id, predecessors: &[Id], is_null: bool, body: B) {
        let (slots, n, at) = (self.slots(), self.members.len(), self.at(id.seq));
        let place = self.place(id.seq);
        let row = self.members[usize::from(id.sender)].row.get_or_insert_with(|| Row {
            slots: core::iter::repeat_with(|| Slot {
                seq: 0,
                depth: 0,
                predecessors: 0,
                is_null: false,
                body: None,
            })
            .take(slots)
            .collect(),
            vectors: vec![0; slots * n],
            predecessors: vec![Id::default(); slots * n],
        });
        let count = predecessors.len().min(n);
        row.predecessors[place][..count].copy_from_slice(&predecessors[..count]);
        row.slots[at] =
            Slot { seq: id.seq, depth: 0, predecessors: count as u8, is_null, body: Some(body) };
    }

    /// Returns the immediate predecessors of a message that is in the graph or waits.
    #[must_use]
    pub fn predecessors(&self, id: Id) -> &[Id] {
        let Some(slot) = self.slot(id) else {
            return &[];
        };
        let row = self.members[usize::from(id.sender)].row.as_ref();
        let all = row.and_then(|row| row.predecessors.get(self.place(id.seq)));
        all.and_then(|all| all.get(..usize::from(slot.predecessors))).unwrap_or(&[])
    }

    /// Returns the vector of a message in the graph: for each sender the last message that is this
    /// one or precedes it.
    #[must_use]
    pub fn vector(&self, id: Id) -> Option<&[u32]> {
        self.slot(id).filter(|_| self.has(id))?;
        let row = self.members[usize::from(id.sender)].row.as_ref()?;
        row.vectors.get(self.place(id.seq))
    }

    /// Returns the depth of a message in the graph.
    #[must_use]
    pub fn depth(&self, id: Id) -> Option<u32> {
        self.slot(id).filter(|_| self.has(id)).map(|slot| slot.depth)
    }

    /// Whether a message in the graph was sent for its place alone.
    #[must_use]
    pub fn is_null(&self, id: Id) -> bool {
        self.slot(id).is_some_and(|slot| slot.is_null)
    }

    /// Returns the body of a message that another member may lack, and whether it is a null.
    #[must_use]
    pub fn body(&self, id: Id) -> Option<(&B, bool)> {
        self.slot(id).and_then(|slot| Some((slot.body.as_ref()?, slot.is_null)))
    }

    /// Whether the message was inserted.
    #[must_use]
    pub fn has(&self, id: Id) -> bool {
        let member = self.members.get(usize::from(id.sender));
        member.is_some_and(|member| id.seq != 0 && id.seq <= member.inserted)
    }

    /// Whether the message waits for a predecessor.
    #[must_use]
    pub fn waits(&self, id: Id) -> bool {
        !self.has(id) && self.slot(id).is_some()
    }

    /// Whether the number is one that its sender may use by now: the view of this member is a part
    /// of what all hold, so that no number is further on than the window beyond that.
    #[must_use]
    pub fn may_exist(&self, id: Id) -> bool {
        let window = if id.sender == self.me { 0 } else { self.window };
        let member = self.members.get(usize::from(id.sender));
        member.is_some_and(|m| id.seq != 0 && id.seq <= m.begun.saturating_add(window))
    }

    /// Returns the messages that wait.
    pub fn waiting(&self) -> impl Iterator<Item = Id> + '_ {
        self.members.iter().enumerate().flat_map(|(sender, member)| {
            let numbers = member.inserted + 1..=member.begun.saturating_add(self.window);
            let id = move |seq| Id { sender: sender as u8, seq };
            numbers.map(id).filter(|id| member.row.is_some() && self.waits(*id))
        })
    }

    /// Returns the predecessors of a waiting message that neither are in the graph nor wait.
    pub fn missing(&self, id: Id) -> impl Iterator<Item = Id> + '_ {
        let all = self.predecessors(id).iter().copied();
        all.filter(|before| !self.has(*before) && !self.waits(*before))
    }

    /// Returns the leaves of the view: all of it precedes one of them, or is one.
    #[must_use]
    pub fn leaves(&self) -> &[Id] {
        &self.leaves
    }

    /// Whether the window has room for one more message of this member.
    #[must_use]
    pub fn has_room(&self) -> bool {
        let own = &self.members[usize::from(self.me)];
        own.inserted - own.held_by_all < self.window && own.inserted < u32::MAX - 1
    }

    /// Inserts a message of this member, in the context of its view; `None` if the window is full.
    pub fn send(&mut self, is_null: bool, body: B) -> Option<Begun> {
        if !self.has_room() {
            return None;
        }
        let me = usize::from(self.me);
        let id = Id { sender: self.me, seq: self.members[me].inserted + 1 };
        let leaves = core::mem::take(&mut self.leaves);
        self.keep(id, &leaves, is_null, body);
        self.leaves = leaves;
        // Its predecessors are leaves of the view, so they fit.
        let depth = self.insert(id)?;
        let member = &mut self.members[me];
        (member.begun, member.returned) = (id.seq, id.seq);
        self.see(id);
        self.free(me);
        Some(Begun { id, depth, is_null })
    }

    /// Takes a message of another member.
    pub fn arrive(&mut self, id: Id, predecessors: &[Id], is_null: bool, body: B) -> Arrival {
        if self.members.get(usize::from(id.sender)).is_none() || id.sender == self.me {
            return Arrival::BadContext;
        }
        if self.has(id) || self.waits(id) {
            return Arrival::Duplicate;
        }
        if !self.may_exist(id) {
            return Arrival::BeyondWindow;
        }
        if !self.may_precede(id, predecessors) {
            return Arrival::BadContext;
        }
        self.keep(id, predecessors, is_null, body);
        if id.seq != self.members[usize::from(id.sender)].inserted + 1 || !self.is_complete(id) {
            return Arrival::Waiting;
        }
        if self.insert_new(id).is_none() {
            return Arrival::BadContext;
        }
        self.retry();
        Arrival::Inserted
    }

    /// Whether these may be the immediate predecessors of a message, as far as their numbers tell.
    fn may_precede(&self, id: Id, predecessors: &[Id]) -> bool {
        let mut senders = 0_u64;
        let mut is_sound = predecessors.len() <= self.members.len();
        for before in predecessors {
            let bit = 1_u64.checked_shl(before.sender.into()).unwrap_or(0);
            is_sound &= self.may_exist(*before) && senders & bit == 0;
            is_sound &= before.sender != id.sender || before.seq.checked_add(1) == Some(id.seq);
            senders |= bit;
        }
        // All but the first message of a sender follow its one before.
        is_sound && (id.seq == 1 || !predecessors.is_empty())
    }

    fn is_complete(&self, id: Id) -> bool {
        self.predecessors(id).iter().all(|before| self.has(*before))
    }

    /// Inserts another member's message whose predecessors are in the graph; one whose predecessors
    /// precede each other is thrown away.
    fn insert_new(&mut self, id: Id) -> Option<u32> {
        let depth = self.insert(id);
        match depth {
            Some(_) => self.ready.push_back(id),
            None => {
                self.drop_waiting(id);
                self.give_up(id);
            }
        }
        depth
    }

    /// Inserts what waits no longer.
    fn retry(&mut self) {
        let mut is_over = false;
        while !core::mem::replace(&mut is_over, true) {
            for sender in 0..self.members.len() as u8 {
                let id = Id { sender, seq: self.members[usize::from(sender)].inserted + 1 };
                if self.waits(id) && self.is_complete(id) && self.insert_new(id).is_some() {
                    is_over = false;
                }
            }
        }
    }

    /// Computes depth and vector of a message, and notes what its sender holds by them; `None` if
    /// its predecessors are no leaves of a view.
    fn insert(&mut self, id: Id) -> Option<u32> {
        let sender = usize::from(id.sender);
        let mut vector = core::mem::take(&mut self.vector);
        vector.fill(0);
        let depth = self.join(id, &mut vector);
        let depth = depth.filter(|_| vector[sender] + 1 == id.seq);
        if let Some(depth) = depth {
            let place = self.place(id.seq);
            let member = &mut self.members[sender];
            member.inserted = id.seq;
            member.heard.copy_from_slice(&vector);
            if let Some(row) = &mut member.row {
                row.vectors[place.clone()].copy_from_slice(&vector);
                row.vectors[place][sender] = id.seq;
            }
            if let Some(slot) = self.slot_mut(id) {
                slot.depth = depth;
            }
            // The sender's window: it would not have sent this one unless all held that one.
            let proved = id.seq.saturating_sub(self.window);
            if id.sender != self.me && proved > self.members[sender].held_by_all {
                self.members[sender].held_by_all = proved;
                self.free(sender);
            }
            vector[sender] = id.seq;
            self.note_holds(sender, &vector);
        }
        self.vector = vector;
        depth
    }

    /// Joins the vectors of a message's predecessors, and returns its depth; `None` if one of them
    /// precedes another, or is too old to tell.
    fn join(&self, id: Id, vector: &mut [u32]) -> Option<u32> {
        let mut depth = 0;
        let all = self.predecessors(id);
        for before in all {
            depth = depth.max(self.depth(*before)? + 1);
            for (sum, one) in vector.iter_mut().zip(self.vector(*before)?) {
                *sum = (*sum).max(*one);
            }
        }
        // No other has it in its past, if the join has no later message of its sender.
        let is_leaf = |before: &Id| {
            let mut others = all.iter().filter(|other| *other != before);
            let precedes = |other: &Id| {
                let at = usize::from(before.sender);
                self.vector(*other).is_none_or(|vector| vector[at] >= before.seq)
            };
            !others.any(precedes)
        };
        all.iter().all(is_leaf).then_some(depth)
    }

    /// Notes that a message is in the view, of which it becomes a leaf.
    fn see(&mut self, id: Id) {
        let mut leaves = core::mem::take(&mut self.leaves);
        let before = self.predecessors(id);
        leaves.retain(|leaf| !before.contains(leaf));
        leaves.push(id);
        self.leaves = leaves;
        self.raise(usize::from(self.me), usize::from(id.sender), id.seq);
    }

    /// Begins the next upcall that may begin: one whose predecessors' upcalls have returned. Nulls
    /// are begun and returned on the way, unless `takes_nulls`.
    pub fn begin(&mut self, takes_nulls: bool) -> Option<Begun> {
        let mut at = 0;
        while let Some(id) = self.ready.get(at).copied() {
            let is_null = self.is_null(id);
            let is_silent = is_null && !takes_nulls;
            let may_run = is_silent || self.running < self.upcalls;
            if !may_run || !self.may_begin(id) {
                at += 1;
                continue;
            }
            self.ready.remove(at);
            let depth = self.depth(id).unwrap_or(0);
            self.members[usize::from(id.sender)].begun = id.seq;
            self.see(id);
            if !is_silent {
                self.running += 1;
                self.running_of |= 1 << id.sender;
                return Some(Begun { id, depth, is_null });
            }
            self.members[usize::from(id.sender)].returned = id.seq;
            self.free(id.sender.into());
            // Those that waited for this one may lie before it.
            at = 0;
        }
        None
    }

    /// Whether an upcall could begin now.
    #[must_use]
    pub fn has_next(&self) -> bool {
        let can_run = self.running < self.upcalls;
        self.ready.iter().any(|id| {
            let is_null = self.is_null(*id);
            (can_run || is_null) && self.may_begin(*id)
        })
    }

    fn may_begin(&self, id: Id) -> bool {
        let member = &self.members[usize::from(id.sender)];
        let has_returned = |before: &Id| {
            let member = &self.members[usize::from(before.sender)];
            before.seq <= member.returned
        };
        member.returned + 1 == id.seq
            && self.running_of & (1 << id.sender) == 0
            && self.predecessors(id).iter().all(has_returned)
    }

    /// Notes that an upcall has returned.
    pub fn returned(&mut self, id: Id) {
        let sender = usize::from(id.sender);
        if self.running_of & (1 << id.sender) != 0 && self.members[sender].begun == id.seq {
            self.running -= 1;
            self.running_of &= !(1 << id.sender);
            self.members[sender].returned = id.seq;
            self.free(sender);
        }
    }

    /// Notes the leaves of another member's view; false if one of them is not in the graph, so that
    /// nothing is known by them.
    pub fn note_leaves(&mut self, member: usize, leaves: &[Id]) -> bool {
        let mut vector = core::mem::take(&mut self.vector);
        vector.fill(0);
        let mut is_known = member < self.members.len();
        for leaf in leaves {
            match self.vector(*leaf) {
                Some(one) => {
                    vector.iter_mut().zip(one).for_each(|(sum, one)| *sum = (*sum).max(*one));
                }
                // Older than what is kept: then it is held by all.
                None if self.has(*leaf) => {
                    let at = usize::from(leaf.sender);
                    vector[at] = vector[at].max(leaf.seq);
                }
                None => is_known = false,
            }
        }
        if is_known {
            self.note_holds(member, &vector);
        }
        self.vector = vector;
        is_known
    }

    fn note_holds(&mut self, member: usize, vector: &[u32]) {
        for (sender, seq) in vector.iter().enumerate() {
            self.raise(member, sender, *seq);
        }
    }

    /// Notes that a member holds a sender's messages up to this one.
    fn raise(&mut self, member: usize, sender: usize, seq: u32) {
        let known = &mut self.members[member].holds[sender];
        if *known < seq {
            let before = core::mem::replace(known, seq);
            if before <= self.members[sender].held_by_all {
                self.count_held(sender);
            }
        }
    }

    /// Computes what all members hold of a sender's messages.
    fn count_held(&mut self, sender: usize) {
        let all = self.members.iter().enumerate();
        let others = all.filter(|(at, member)| *at != sender && !member.is_masked);
        let least = others.map(|(_, member)| member.holds[sender]).min();
        let member = &mut self.members[sender];
        let least = least.unwrap_or(member.inserted).min(member.inserted);
        if least > member.held_by_all {
            member.held_by_all = least;
            self.free(sender);
        }
    }

    /// Gives back the bodies of a sender's messages that no member lacks.
    fn free(&mut self, sender: usize) {
        let member = &self.members[sender];
        let last = member.held_by_all.min(member.returned);
        for seq in member.freed + 1..=last {
            if let Some(slot) = self.slot_mut(Id { sender: sender as u8, seq }) {
                slot.body = None;
            }
        }
        let member = &mut self.members[sender];
        member.freed = member.freed.max(last);
    }

    /// Throws a waiting message away.
    fn drop_waiting(&mut self, id: Id) {
        if let Some(slot) = self.slot_mut(id) {
            (slot.seq, slot.body) = (0, None);
        }
    }

    /// Throws away the waiting messages that `id`, which does not come, precedes; returns how many
    /// those are.
    pub fn give_up(&mut self, id: Id) -> usize {
        let (mut lost, mut count) = (vec![id], 0);
        while let Some(id) = lost.pop() {
            let names = |waiting: &Id| self.predecessors(*waiting).contains(&id);
            let all: Vec<Id> = self.waiting().filter(names).collect();
            all.iter().for_each(|waiting| self.drop_waiting(*waiting));
            count += all.len();
            lost.extend(all);
        }
        count
    }

    /// Returns the number of this member's messages that another does not hold.
    #[must_use]
    pub fn unheld(&self) -> u32 {
        let own = &self.members[usize::from(self.me)];
        own.inserted - own.held_by_all
    }

    /// Whether a member holds the last message of this one, as far as it is known.
    #[must_use]
    pub fn is_told(&self, member: usize) -> bool {
        let me = usize::from(self.me);
        let other = &self.members[member];
        other.is_masked || other.holds[me] >= self.members[me].inserted
    }

    /// Number of the last message of a sender that every member holds.
    #[must_use]
    pub fn held_by_all(&self, sender: usize) -> u32 {
        self.members.get(sender).map_or(0, |member| member.held_by_all)
    }

    /// Number of the last message of a sender that is in the graph.
    #[must_use]
    pub fn last(&self, sender: usize) -> u32 {
        self.members.get(sender).map_or(0, |member| member.inserted)
    }

    /// Number of the last message of a sender that is in the view.
    #[must_use]
    pub fn seen(&self, sender: usize) -> u32 {
        self.members.get(sender).map_or(0, |member| member.begun)
    }

    /// Numbers of messages in the graph whose upcall has not begun, and of those that wait.
    #[must_use]
    pub fn outstanding(&self) -> (usize, usize) {
        (self.ready.len(), self.waiting().count())
    }

    /// The members, as bits, that have sent a message which this one precedes, its sender included.
    #[must_use]
    pub fn followers(&self, id: Id) -> u64 {
        let sender = usize::from(id.sender);
        let all = self.members.iter().enumerate();
        let follows = |(at, member): &(usize, &Member<B>)| {
            *at == sender || member.heard.get(sender).is_some_and(|seq| *seq >= id.seq)
        };
        all.filter(follows).fold(0, |bits, (at, _)| bits | 1 << at)
    }

    /// Whether every member that is not masked out has sent a message which this one precedes.
    #[must_use]
    pub fn is_stable(&self, id: Id) -> bool {
        let bits = self.followers(id);
        let mut all = self.members.iter().enumerate();
        self.has(id) && all.all(|(at, member)| member.is_masked || bits & 1 << at != 0)
    }

    /// Returns the order of two messages.
    #[must_use]
    pub fn order(&self, one: Id, other: Id) -> Order {
        let precedes = |one: Id, other: Id| {
            self.vector(other).map(|vector| vector[usize::from(one.sender)] >= one.seq)
        };
        if !self.has(one) || !self.has(other) || one == other {
            return Order::Unknown;
        }
        match (precedes(one, other), precedes(other, one)) {
            (Some(true), _) => Order::Before,
            (_, Some(true)) => Order::After,
            (Some(false), Some(false)) => Order::Concurrent,
            _ => Order::Unknown,
        }
    }

    /// Counts a member no longer, or again.
    pub fn mask(&mut self, member: usize, is_masked: bool) {
        if let Some(found) = self.members.get_mut(member) {
            found.is_masked = is_masked;
            (0..self.members.len()).for_each(|sender| self.count_held(sender));
        }
    }

    /// Whether a member is masked out.
    #[must_use]
    pub fn is_masked(&self, member: usize) -> bool {
        self.members.get(member).is_some_and(|member| member.is_masked)
    }

    /// The messages of which something is kept, in the order of senders and numbers.
    pub fn kept(&self) -> impl Iterator<Item = Id> + '_ {
        self.members.iter().enumerate().flat_map(|(sender, member)| {
            let slots = member.row.iter().flat_map(|row| &row.slots);
            let numbers = slots.map(|slot| slot.seq).filter(|seq| *seq != 0);
            let id = move |seq| Id { sender: sender as u8, seq };
            numbers.map(id).filter(|id| self.has(*id))
        })
    }
}

#[cfg(test)]
mod tests;
