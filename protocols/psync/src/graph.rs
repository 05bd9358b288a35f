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
//!
//! A member that has lost its state comes back on a *base*, such a set as well: it is taken as
//! delivered, and of its messages only the depths are known, and which of them are leaves. What is
//! not in it is kept for the member by the others.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;
use xk_kit::group::{NodeId as Id, NodeOrder as Order};

/// Largest number of members.
pub const MEMBERS_MAX: usize = 64;

/// Returns how many depths of one sender a base has at most. A message that the member lacks may
/// follow the newest message that all held when the sender's window was full.
pub(crate) const fn depths_max(window: u32) -> u32 {
    window + 1
}

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

/// The messages of one sender in the base of a member that comes back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseOf {
    /// Incarnation of the sender.
    pub incarnation: u16,
    /// Number of its last message of earlier incarnations.
    pub since: u32,
    /// Whether the sender is masked out.
    pub is_masked: bool,
    /// Whether no other message of the base follows the last one.
    pub is_leaf: bool,
    /// Number of the last one; 0 if there is none.
    pub seq: u32,
    /// Depths of the last ones, up to that.
    pub depths: Vec<u32>,
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
    /// Number of its last message, with which it leaves; 0 while that is not known.
    ends_at: u32,
    /// The member is masked, but is to come back: others keep what it will lack.
    is_coming: bool,
    incarnation: u16,
    /// Number of the last message of earlier incarnations.
    since: u32,
    /// Number of its last message in the base of this member, and whether that was a leaf.
    base: u32,
    is_base_leaf: bool,
    /// Made with the first message of the sender.
    row: Option<Row<B>>,
}

impl<B> Member<B> {
    /// Whether neither memory nor stability counts it.
    fn is_out(&self) -> bool {
        self.is_masked && !self.is_coming
    }
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
    /// Members whose last message is in the view, as bits.
    left: u64,
    /// Messages that were given up and are not counted yet.
    given_up: usize,
    /// This member has come back on a base.
    has_base: bool,
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
            ends_at: 0,
            is_coming: false,
            incarnation: 1,
            since: 0,
            base: 0,
            is_base_leaf: false,
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
            left: 0,
            given_up: 0,
            has_base: false,
            vector: vec![0; n],
        }
    }

    /// The graph of a member that comes back on a base, which has an entry for each member. It
    /// sends once it knows what the others hold.
    #[must_use]
    pub fn resume(me: usize, window: u32, upcalls: u32, base: &[BaseOf]) -> Self {
        let mut graph = Self::new(base.len(), me, window, upcalls);
        graph.has_base = true;
        for (at, of) in base.iter().take(graph.members.len()).enumerate() {
            let sender = at as u8;
            for (back, depth) in of.depths.iter().rev().enumerate() {
                let seq = of.seq.saturating_sub(back as u32);
                let place = graph.place(seq);
                graph.keep(Id { sender, seq }, &[], false, None);
                if let Some(row) = &mut graph.members[at].row {
                    row.vectors[place][at] = seq;
                }
                if let Some(slot) = graph.slot_mut(Id { sender, seq }) {
                    slot.depth = *depth;
                }
            }
            let member = &mut graph.members[at];
            (member.inserted, member.begun, member.returned) = (of.seq, of.seq, of.seq);
            (member.freed, member.since, member.base) = (of.seq, of.since, of.seq);
            (member.incarnation, member.is_masked) = (of.incarnation, of.is_masked);
            // How much of its own the others hold they say.
            member.held_by_all = if at == me { 0 } else { of.seq };
            member.is_base_leaf = of.is_leaf;
            if of.is_leaf {
                graph.leaves.push(Id { sender, seq: of.seq });
            }
        }
        for member in &mut graph.members {
            member.heard = base.iter().map(|of| of.seq).collect();
        }
        graph
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
    fn keep(&mut self, id: Id, predecessors: &[Id], is_null: bool, body: Option<B>) {
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
        row.slots[at] = Slot { seq: id.seq, depth: 0, predecessors: count as u8, is_null, body };
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
        let member = self.members.get(usize::from(id.sender));
        member.is_some_and(|m| {
            // Once others have agreed to its return, what a member has sent besides is void.
            let is_over = id.sender == self.me || m.is_coming;
            let window = if is_over { 0 } else { self.window };
            let is_behind = m.ends_at != 0 && id.seq > m.ends_at;
            id.seq != 0 && id.seq <= m.begun.saturating_add(window) && !is_behind
        })
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
        self.keep(id, &leaves, is_null, Some(body));
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
        self.keep(id, predecessors, is_null, Some(body));
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
                if self.waits(id) && self.is_complete(id) {
                    match self.insert_new(id) {
                        Some(_) => is_over = false,
                        None => self.given_up += 1,
                    }
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
        self.cover(&mut vector);
        // Of the base it is known only that it is closed.
        let based = self.members[sender].base.min(id.seq - 1);
        let depth = depth.filter(|_| vector[sender].max(based) + 1 == id.seq);
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

    /// Raises the vector of a set that has all leaves of the base to the base.
    fn cover(&self, vector: &mut [u32]) {
        let has = |(member, seq): (&Member<B>, &u32)| !member.is_base_leaf || *seq >= member.base;
        if self.has_base && self.members.iter().zip(&*vector).all(has) {
            vector.iter_mut().zip(&self.members).for_each(|(seq, m)| *seq = (*seq).max(m.base));
        }
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

    /// Notes that a null, which is in the graph or waits, is the last message of its sender.
    pub fn end_with(&mut self, id: Id) {
        if self.slot(id).is_some_and(|slot| slot.is_null)
            && let Some(member) = self.members.get_mut(usize::from(id.sender))
            && member.ends_at == 0
        {
            member.ends_at = id.seq;
            self.left |= u64::from(id.sender == self.me) << id.sender;
        }
    }

    /// Whether a message is the last one of its sender.
    #[must_use]
    pub fn is_last(&self, id: Id) -> bool {
        let member = self.members.get(usize::from(id.sender));
        member.is_some_and(|member| member.ends_at == id.seq && id.seq != 0)
    }

    /// The members that are counted, as bits.
    #[must_use]
    pub fn counted(&self) -> u64 {
        let all = self.members.iter().enumerate().filter(|(_, member)| !member.is_masked);
        all.fold(0, |bits, (at, _)| bits | 1 << at)
    }

    /// The members that have left, as bits: the last message of each is in the view.
    #[must_use]
    pub fn left(&self) -> u64 {
        self.left
    }

    /// Whether a member has left.
    #[must_use]
    pub fn has_left(&self, member: usize) -> bool {
        self.left >> member & 1 != 0
    }

    /// Begins the next upcall that may begin: one whose predecessors' upcalls have returned, and
    /// whose body `copy` finds room for; else it stays, and is [`next`](Self::has_next) again.
    /// Nulls are begun and returned on the way, unless `takes_nulls`, or `takes_last` and it is the
    /// last message of its sender.
    pub fn begin<C>(
        &mut self,
        takes_nulls: bool,
        takes_last: bool,
        copy: impl Fn(&B) -> Option<C>,
    ) -> Option<(Begun, C)> {
        let mut at = 0;
        while let Some(id) = self.ready.get(at).copied() {
            let is_null = self.is_null(id);
            let is_silent = is_null && !takes_nulls && !(takes_last && self.is_last(id));
            let may_run = is_silent || self.running < self.upcalls;
            if !may_run || !self.may_begin(id) {
                at += 1;
                continue;
            }
            // Silent ones need no copy.
            let copied = match is_silent {
                true => None,
                false => Some(self.body(id).and_then(|(body, _)| copy(body))?),
            };
            self.ready.remove(at);
            let depth = self.depth(id).unwrap_or(0);
            self.members[usize::from(id.sender)].begun = id.seq;
            self.see(id);
            if self.is_last(id) {
                // All others do so at the same message.
                self.left |= 1 << id.sender;
                self.mask_out(id.sender.into());
            }
            if let Some(copied) = copied {
                self.running += 1;
                self.running_of |= 1 << id.sender;
                return Some((Begun { id, depth, is_null }, copied));
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
        self.comes_up(id)
            && member.returned + 1 == id.seq
            && self.running_of & (1 << id.sender) == 0
            && self.predecessors(id).iter().all(has_returned)
    }

    /// Whether a message comes up, as far as it is known: of a masked member only what others have
    /// followed.
    fn comes_up(&self, id: Id) -> bool {
        let member = usize::from(id.sender);
        !self.members[member].is_masked || id.seq <= self.last_of_masked(member)
    }

    /// Number of the last message of a masked member that comes up: one that was begun, or that a
    /// message of another follows.
    fn last_of_masked(&self, member: usize) -> u32 {
        let others = self.members.iter().filter(|other| !other.is_masked);
        let followed = others.map(|other| other.heard[member]).max().unwrap_or(0);
        followed.max(self.members[member].begun)
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
            self.cover(&mut vector);
            self.note_holds(member, &vector);
        }
        self.vector = vector;
        is_known
    }

    /// Notes that a member has this one's messages up to a number in its view.
    pub fn note_seen(&mut self, member: usize, seq: u32) {
        let own = usize::from(self.me);
        if member < self.members.len() && seq <= self.members[own].inserted {
            self.raise(member, own, seq);
        }
    }

    /// Returns the last messages of each sender that a member is known to hold.
    pub fn holds(&self, member: usize) -> impl Iterator<Item = Id> + '_ {
        let holds = self.members.get(member).map_or(&[][..], |member| &member.holds);
        let all = holds.iter().enumerate().map(|(at, seq)| Id { sender: at as u8, seq: *seq });
        all.filter(|id| id.seq > 0)
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
        let others = all.filter(|(at, member)| *at != sender && !member.is_out());
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

    /// Throws away the waiting messages that `id`, which does not come, precedes.
    pub fn give_up(&mut self, id: Id) {
        let mut lost = vec![id];
        while let Some(id) = lost.pop() {
            let follows = |waiting: &Id| {
                let is_later = waiting.sender == id.sender && waiting.seq > id.seq;
                is_later || self.predecessors(*waiting).contains(&id)
            };
            let all: Vec<Id> = self.waiting().filter(follows).collect();
            all.iter().for_each(|waiting| self.drop_waiting(*waiting));
            self.given_up += all.len();
            lost.extend(all);
        }
    }

    /// Returns how many messages were given up since the last call.
    pub fn take_given_up(&mut self) -> usize {
        core::mem::take(&mut self.given_up)
    }

    /// Returns the number of this member's messages that another does not hold.
    #[must_use]
    pub fn unheld(&self) -> u32 {
        let own = &self.members[usize::from(self.me)];
        own.inserted - own.held_by_all
    }

    /// Whether a member holds the last message of this one, as far as it is known.
    #[must_use]
    pub fn has_all(&self, member: usize) -> bool {
        let me = usize::from(self.me);
        self.members[member].holds[me] >= self.members[me].inserted
    }

    /// Whether another member is known to hold a message of this one.
    #[must_use]
    pub fn is_known(&self) -> bool {
        let me = usize::from(self.me);
        let mut all = self.members.iter().enumerate();
        all.any(|(at, member)| at != me && member.holds[me] > 0)
    }

    /// Whether nothing has come of a member that is counted, and it is not known to hold anything.
    #[must_use]
    pub fn is_fresh(&self, member: usize) -> bool {
        let member = &self.members[member];
        member.inserted == 0 && !member.is_masked && member.holds.iter().all(|seq| *seq == 0)
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

    /// Numbers of messages in the graph whose upcall is still to begin, and of those that wait.
    #[must_use]
    pub fn outstanding(&self) -> (usize, usize) {
        let ready = self.ready.iter().filter(|id| self.comes_up(**id));
        (ready.count(), self.waiting().count())
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
        self.has(id) && all.all(|(at, member)| member.is_out() || bits & 1 << at != 0)
    }

    /// Returns the order of two messages.
    #[must_use]
    pub fn order(&self, one: Id, other: Id) -> Order {
        let precedes = |one: Id, other: Id| {
            self.vector(other).map(|vector| vector[usize::from(one.sender)] >= one.seq)
        };
        let is_based = |id: Id| id.seq <= self.members[usize::from(id.sender)].base;
        let is_there = |id: Id| self.has(id) && !is_based(id);
        if !is_there(one) || !is_there(other) || one == other {
            return Order::Unknown;
        }
        match (precedes(one, other), precedes(other, one)) {
            (Some(true), _) => Order::Before,
            (_, Some(true)) => Order::After,
            (Some(false), Some(false)) => Order::Concurrent,
            _ => Order::Unknown,
        }
    }

    /// Counts a member no longer; returns the number of its last message that comes up.
    pub fn mask_out(&mut self, member: usize) -> u32 {
        let Some(found) = self.members.get_mut(member) else {
            return 0;
        };
        (found.is_masked, found.is_coming) = (true, false);
        (0..self.members.len()).for_each(|sender| self.count_held(sender));
        self.last_of_masked(member)
    }

    /// Keeps for a masked member, which is to come back, what is not in the view by now; false if
    /// it is not masked.
    pub fn keep_for(&mut self, member: usize) -> bool {
        let view: Vec<u32> = self.members.iter().map(|member| member.begun).collect();
        let Some(found) = self.members.get_mut(member).filter(|member| member.is_masked) else {
            return false;
        };
        // A return that was agreed to before may still be the one that all agree to.
        if !core::mem::replace(&mut found.is_coming, true) {
            (found.holds, found.heard) = (view.clone(), view);
        }
        true
    }

    /// Counts a member again that comes back on this base. False if that cannot be: this member has
    /// thrown away something that the other would lack, does not have all of the base in its view,
    /// or has seen more of the member than the base has.
    pub fn let_in(&mut self, member: usize, incarnation: u16, base: &[u32]) -> bool {
        // What was thrown away since it is kept for the member, the member has.
        let kept = self.members.get(member).filter(|member| member.is_coming);
        let fits = |(at, (known, seq)): (usize, (&Member<B>, &u32))| {
            let least = kept.map_or(known.held_by_all, |kept| kept.holds[at]);
            (least..=known.begun).contains(seq)
        };
        let is_sound = base.len() == self.members.len()
            && member < base.len()
            && member != usize::from(self.me)
            && incarnation > self.members[member].incarnation
            && self.members.iter().zip(base).enumerate().all(fits);
        let mut others =
            self.members.iter().enumerate().filter(|(at, other)| *at != member && !other.is_masked);
        if !is_sound
            || self.members[member].begun > base[member]
            || others.any(|(_, other)| other.heard[member] > base[member])
        {
            return false;
        }
        // What it had sent besides is void, and has no number any more.
        let (first, last) = (base[member] + 1, base[member].saturating_add(2 * self.window));
        self.ready.retain(|id| usize::from(id.sender) != member);
        self.members[member].inserted = base[member];
        for seq in first..=last {
            let id = Id { sender: member as u8, seq };
            self.drop_waiting(id);
            self.give_up(id);
        }
        let found = &mut self.members[member];
        if !core::mem::replace(&mut found.is_coming, false) {
            found.holds.fill(0);
        }
        (found.incarnation, found.since, found.is_masked) = (incarnation, base[member], false);
        found.ends_at = 0;
        self.left &= !(1 << member);
        let found = &mut self.members[member];
        found.heard.copy_from_slice(base);
        self.note_holds(member, base);
        true
    }

    /// Returns what a member that comes back on a base is to know of one sender.
    #[must_use]
    pub fn base_of(&self, sender: usize, base: &[u32]) -> BaseOf {
        let (member, seq) = (&self.members[sender], base[sender]);
        let top = |at: usize| Id { sender: at as u8, seq: base[at] };
        let follows = |at: usize| {
            let vector = self.vector(top(at)).filter(|_| at != sender);
            vector.is_some_and(|vector| vector[sender] >= seq)
        };
        let was_leaf = seq > member.base || member.is_base_leaf;
        let kept = (1..=seq).rev().take(depths_max(self.window) as usize);
        let id = |seq| Id { sender: sender as u8, seq };
        let mut depths: Vec<u32> = kept.map_while(|seq| self.depth(id(seq))).collect();
        depths.reverse();
        BaseOf {
            incarnation: member.incarnation,
            since: member.since,
            is_masked: member.is_masked,
            is_leaf: seq > 0 && was_leaf && !(0..base.len()).any(follows),
            seq,
            depths,
        }
    }

    /// Incarnation of a member.
    #[must_use]
    pub fn incarnation(&self, member: usize) -> u16 {
        self.members.get(member).map_or(0, |member| member.incarnation)
    }

    /// Returns the incarnation that a packet names with a message.
    #[must_use]
    pub fn incarnation_of(&self, id: Id) -> u16 {
        let member = self.members.get(usize::from(id.sender));
        member.map_or(0, |m| m.incarnation.saturating_sub(u16::from(id.seq <= m.since)).max(1))
    }

    /// Whether the sender of a message may have sent it in this incarnation.
    #[must_use]
    pub fn is_of(&self, id: Id, incarnation: u16) -> bool {
        self.members.get(usize::from(id.sender)).is_some_and(|member| match id.seq > member.since {
            true => incarnation == member.incarnation,
            false => (1..=member.incarnation).contains(&incarnation),
        })
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
