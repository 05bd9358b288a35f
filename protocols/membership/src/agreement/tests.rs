//! A model of conversations of two to nine members: messages reach each member after those that
//! they follow, by any member that has them, at any time. Members fail, are cut off, and suspect
//! each other, rightly or not. Those that are out come back without their state.

use super::*;
use std::collections::BTreeMap;
use std::format;
use std::println;
use std::string::String;
use std::vec;
use xk_core::random::Random;
use xk_testkit::seeds;

#[derive(Clone, Debug)]
enum Kind {
    Data,
    Null,
    Last,
    Vote(Roll),
}

#[derive(Clone, Debug)]
struct Node {
    id: NodeId,
    incarnation: u16,
    depth: u32,
    past: Vec<u32>,
    kind: Kind,
}

/// Something in the total order.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Entry {
    Message(NodeId, u16),
    /// A member has changed, with the number of its start if it is in again.
    Change(u8, u16),
}

/// Total order of what comes up, by complete waves.
#[derive(Clone, Default)]
struct Waves {
    waits: BTreeMap<(u32, u8), Entry>,
    /// Depth of the last message of each, and 1.
    levels: Vec<u32>,
    members: u64,
    last: Option<(u32, u8)>,
    order: Vec<Entry>,
}

impl Waves {
    fn take(&mut self, node: &Node) {
        let key = (node.depth, node.id.sender);
        self.levels[usize::from(node.id.sender)] = node.depth + 1;
        if matches!(node.kind, Kind::Data) {
            assert!(self.last.is_none_or(|last| last < key), "{key:?} comes after {:?}", self.last);
            self.waits.insert(key, Entry::Message(node.id, node.incarnation));
        }
        self.go_on();
    }

    fn change(&mut self, members: u64, change: &Change, depth: u32) {
        let Change { member, status, incarnation, .. } = *change;
        self.members = members;
        if status == Status::In {
            let levels = &mut self.levels[usize::from(member)];
            *levels = (*levels).max(depth + 1);
        }
        let key = (depth, 128 + member);
        assert!(self.last.is_none_or(|last| last < key), "{change:?} comes late");
        self.waits.insert(key, Entry::Change(member, incarnation));
    }

    fn go_on(&mut self) {
        while let Some((key, id)) = self.waits.first_key_value() {
            let (key, id) = (*key, *id);
            let is_behind =
                |(at, levels): (usize, &u32)| self.members >> at & 1 != 0 && *levels <= key.0;
            if self.levels.iter().enumerate().any(is_behind) {
                return;
            }
            self.waits.pop_first();
            self.last = Some(key);
            self.order.push(id);
        }
    }
}

struct Member {
    is_alive: bool,
    incarnation: u16,
    /// The last start of each that was let in here, and the base for it.
    let_in: BTreeMap<usize, (u16, u64, Vec<u32>)>,
    /// Members that were let in, and are not out for this member since.
    heard: u64,
    agreement: Agreement<()>,
    /// Messages in the graph, and in the view.
    image: Vec<u32>,
    view: Vec<u32>,
    /// Last message with octets of each that came up, and all views.
    handed: Vec<u32>,
    /// Last messages that are part of the state which one that comes back is given.
    based: Vec<u32>,
    views: Vec<(u64, Vec<Change>)>,
    cuts: Vec<u32>,
    waves: Waves,
}

struct Model {
    n: usize,
    random: Random,
    nodes: Vec<Vec<Node>>,
    members: Vec<Member>,
    /// The side of each member of a network that is parted.
    side: Vec<u8>,
    /// Starts of members that ask to come back; 0 for those that do not.
    asks: Vec<u64>,
    starts: u64,
    /// Times that a member was in again.
    returns: u64,
    log: String,
}

impl Model {
    fn new(n: usize, seed: u64) -> Self {
        let waves = Waves { levels: vec![0; n], members: (1 << n) - 1, ..Waves::default() };
        let member = |me| Member {
            is_alive: true,
            incarnation: 1,
            let_in: BTreeMap::new(),
            heard: (1 << n) - 1,
            agreement: Agreement::new(n, me, 4096),
            image: vec![0; n],
            view: vec![0; n],
            handed: vec![0; n],
            based: vec![0; n],
            views: Vec::new(),
            cuts: vec![u32::MAX; n],
            waves: waves.clone(),
        };
        Self {
            n,
            random: Random::new(seed),
            nodes: vec![Vec::new(); n],
            members: (0..n).map(member).collect(),
            side: vec![0; n],
            asks: vec![0; n],
            starts: 0,
            returns: 0,
            log: String::new(),
        }
    }

    fn node(&self, sender: usize, seq: u32) -> &Node {
        &self.nodes[sender][seq as usize - 1]
    }

    fn is_linked(&self, one: usize, other: usize) -> bool {
        self.members[one].is_alive
            && self.members[other].is_alive
            && self.side[one] == self.side[other]
    }

    fn send(&mut self, me: usize, kind: Kind) {
        let member = &mut self.members[me];
        let lasts = (0..self.n).filter(|at| member.view[*at] > 0);
        let depths = lasts.map(|at| self.nodes[at][member.view[at] as usize - 1].depth + 1);
        let depth = depths.max().unwrap_or(0);
        member.view[me] += 1;
        member.image[me] = member.view[me];
        let id = NodeId { sender: me as u8, seq: member.view[me] };
        let incarnation = member.incarnation;
        let node = Node { id, incarnation, depth, past: member.view.clone(), kind };
        if matches!(node.kind, Kind::Data) {
            member.handed[me] = id.seq;
        }
        member.waves.take(&node);
        self.nodes[me].push(node.clone());
        match node.kind {
            Kind::Vote(roll) => {
                let _ = self.members[me].agreement.vote(me, &roll, (id.seq, node.depth), node.past);
                self.hand_up(me);
            }
            Kind::Last => self.members[me].agreement.leave(me),
            Kind::Data | Kind::Null => {}
        }
    }

    /// Whether a member takes messages of another that it gets.
    fn hears(&self, me: usize, from: usize) -> bool {
        let member = &self.members[me];
        let is_out = status(member.agreement.wanted()[from]) == Status::Out;
        member.heard >> from & 1 != 0 && !is_out
    }

    /// Whether a message comes up at a member: of one that it does not hear only what another has
    /// followed that it hears; none of a start that is not let in.
    fn comes_up(&self, me: usize, sender: usize, seq: u32) -> bool {
        let member = &self.members[me];
        let follows = |at: usize| {
            let last = member.image[at];
            at != sender
                && (at == me || self.hears(me, at))
                && last > 0
                && self.node(at, last).past[sender] >= seq
        };
        self.is_known(me, sender, seq) && (self.hears(me, sender) || (0..self.n).any(follows))
    }

    /// Whether a message is of a start of its sender that a member counts.
    fn is_known(&self, me: usize, sender: usize, seq: u32) -> bool {
        let (known, base) = match self.members[me].let_in.get(&sender) {
            Some((known, _, base)) => (*known, base[sender]),
            None => (1, 0),
        };
        seq <= base || self.node(sender, seq).incarnation == known
    }

    /// A member begins again without its state, and asks to come back.
    fn restart(&mut self, me: usize) {
        self.starts += 1;
        self.log += &format!("{me} starts again as {}\n", self.starts);
        self.asks[me] = self.starts;
        self.members[me].is_alive = false;
    }

    /// A member lets others back, or is told that it is out, or comes back itself.
    fn tend(&mut self, me: usize) {
        for other in 0..self.n {
            let asks = self.asks[other];
            if asks > 0 && self.members[me].is_alive && self.side[me] == self.side[other] {
                let known = self.members[me].let_in.get(&other).map(|(_, start, _)| *start);
                let agreement = &mut self.members[me].agreement;
                match status(agreement.decided()[other]) {
                    _ if known == Some(asks) => self.come_back(other, me),
                    Status::Out => drop(agreement.admit(other, asks)),
                    _ => drop(agreement.suspect(1 << other)),
                }
            }
            if self.is_linked(me, other) {
                if self.members[other].agreement.is_strange() {
                    self.members[me].agreement.hello(other);
                }
                let is_told = |of: &usize| {
                    let teller = &self.members[*of].agreement;
                    self.is_linked(*of, other)
                        && self.members[other].agreement.is_out_by(teller.decided())
                };
                let told = (0..self.n).filter(is_told).count() as u32;
                if told >= self.members[me].agreement.quorum() {
                    self.restart(other);
                }
            }
        }
    }

    /// A member is back in the graph, by what another one tells it.
    fn come_back(&mut self, me: usize, by: usize) {
        let (incarnation, start, base) = self.members[by].let_in[&me].clone();
        self.log += &format!("{me} is back by {by} on {base:?}\n");
        self.asks[me] = 0;
        self.nodes[me].truncate(base[me] as usize);
        for at in (0..self.n).filter(|at| *at != me) {
            let other = &mut self.members[at];
            other.image[me] = other.image[me].min(base[me]);
            if other.is_alive && other.view[me] > base[me] {
                // One that is out, too.
                assert!(
                    other.agreement.members() >> me & 1 != 0,
                    "{at} has seen more\n{}",
                    self.log
                );
                self.restart(at);
            }
        }
        let n = self.n;
        let mut agreement = Agreement::new(n, me, 4096);
        agreement.come_back(incarnation, base.clone());
        let levels = |at: usize| match base[at] {
            0 => 0,
            seq => self.node(at, seq).depth + 1,
        };
        let members = (1 << n) - 1;
        let waves = Waves { levels: (0..n).map(levels).collect(), members, ..Waves::default() };
        let teller = &self.members[by];
        let (mut let_in, heard) = (teller.let_in.clone(), teller.heard);
        let_in.insert(me, (incarnation, start, base.clone()));
        self.members[me] = Member {
            is_alive: true,
            incarnation,
            let_in,
            heard: heard | 1 << by,
            agreement,
            image: base.clone(),
            view: base.clone(),
            handed: base.clone(),
            based: base,
            views: Vec::new(),
            cuts: vec![u32::MAX; n],
            waves,
        };
    }

    /// A message that one member may get from another.
    fn transfers(&self, from: usize, to: usize) -> Vec<NodeId> {
        if from == to || !self.is_linked(from, to) || !self.hears(to, from) {
            return Vec::new();
        }
        let next = |sender: &usize| {
            let seq = self.members[to].image[*sender] + 1;
            let has = *sender != to && self.members[from].image[*sender] >= seq;
            has && self.is_known(to, *sender, seq)
                && (0..self.n).all(|at| {
                    at == *sender || self.node(*sender, seq).past[at] <= self.members[to].image[at]
                })
        };
        (0..self.n)
            .filter(next)
            .map(|sender| NodeId { sender: sender as u8, seq: self.members[to].image[sender] + 1 })
            .collect()
    }

    /// Has the upcall of a message begin; false if none waits.
    fn see(&mut self, me: usize) -> bool {
        let member = &self.members[me];
        let may = |sender: &usize| {
            let seq = member.view[*sender] + 1;
            seq <= member.image[*sender]
                && self.comes_up(me, *sender, seq)
                && (0..self.n)
                    .all(|at| at == *sender || self.node(*sender, seq).past[at] <= member.view[at])
        };
        let all: Vec<usize> = (0..self.n).filter(may).collect();
        if !member.is_alive || all.is_empty() {
            return false;
        }
        let sender = all[self.random.below(all.len() as u64) as usize];
        let node = self.node(sender, member.view[sender] + 1).clone();
        let member = &mut self.members[me];
        member.view[sender] += 1;
        let is_null = !matches!(node.kind, Kind::Data);
        let _ = member.agreement.take(Held { id: node.id, is_null, body: () });
        if matches!(node.kind, Kind::Last) {
            member.agreement.leave(sender);
        }
        if let Kind::Vote(roll) = &node.kind {
            let place = (node.id.seq, node.depth);
            let _ = member.agreement.vote(sender, roll, place, node.past.clone());
        }
        self.hand_up(me);
        true
    }

    fn hand_up(&mut self, me: usize) {
        while let Some(up) = self.members[me].agreement.next() {
            match up {
                Up::Message(held) => {
                    let node = self.node(held.id.sender.into(), held.id.seq).clone();
                    self.check_causes(me, &node);
                    let member = &mut self.members[me];
                    if matches!(node.kind, Kind::Data) {
                        member.handed[usize::from(held.id.sender)] = held.id.seq;
                    }
                    member.waves.take(&node);
                }
                Up::BeyondCut => {}
                Up::Place(held) => {
                    let mut node = self.node(held.id.sender.into(), held.id.seq).clone();
                    node.kind = Kind::Null;
                    self.members[me].waves.take(&node);
                }
                Up::LetIn(change, base) => self.let_in(me, change, &base),
                Up::View(Decided { members, changes, past, depth }) => {
                    self.log += &format!("{me} decides {members:b} {changes:?}\n");
                    let is_back =
                        |one: &Change| usize::from(one.member) == me && one.status == Status::In;
                    let is_new = changes.iter().any(is_back);
                    for change in &changes {
                        self.change(me, *change, members, &past, depth);
                        if is_new && change.status == Status::Out {
                            // It has its place further on.
                            self.members[me].waves.waits.remove(&(depth, 128 + change.member));
                        }
                    }
                    let member = &mut self.members[me];
                    member.views.push((members, changes));
                    member.waves.go_on();
                }
            }
        }
    }

    fn let_in(&mut self, me: usize, change: Change, base: &[u32]) {
        let (at, Status::Coming(start)) = (usize::from(change.member), change.status) else {
            return;
        };
        let member = &mut self.members[me];
        if member.let_in.get(&at).is_none_or(|(incarnation, ..)| *incarnation < change.incarnation)
        {
            assert!(member.view[at] <= base[at], "{me} has seen more of {at}\n{}", self.log);
            member.image[at] = member.image[at].min(base[at]);
            member.let_in.insert(at, (change.incarnation, start, base.to_vec()));
            member.heard |= 1 << at;
            self.log += &format!("{me} lets {at} in\n");
        }
    }

    fn change(&mut self, me: usize, change: Change, members: u64, past: &[u32], depth: u32) {
        let at = usize::from(change.member);
        if let Status::Coming(_) = change.status {
            return self.let_in(me, change, past);
        }
        let member = &mut self.members[me];
        let is_in = change.status == Status::In;
        member.waves.change(members, &change, depth);
        member.cuts[at] = if is_in { u32::MAX } else { change.cut };
        if !is_in {
            member.heard &= !(1 << at);
        } else if at == me {
            self.returns += 1;
            (member.handed, member.based) = (past.to_vec(), past.to_vec());
        }
    }

    /// All that a message follows, and that counts, has come up before it.
    fn check_causes(&self, me: usize, node: &Node) {
        let member = &self.members[me];
        for sender in (0..self.n).filter(|at| *at != usize::from(node.id.sender)) {
            let last = node.past[sender].min(member.cuts[sender]);
            let data =
                (1..=last).rev().find(|seq| matches!(self.node(sender, *seq).kind, Kind::Data));
            let is_there =
                data.is_none_or(|seq| seq <= member.handed[sender].max(member.based[sender]));
            assert!(is_there, "{me} lacks {sender}:{data:?} before {node:?}\n{}", self.log);
        }
    }

    /// Lets chance move one step.
    fn step(&mut self, talks: bool) {
        let me = self.random.below(self.n as u64) as usize;
        if !self.members[me].is_alive {
            return;
        }
        let talks = talks && !self.members[me].agreement.leaves();
        match self.random.below(11) {
            10 => self.tend(me),
            0 | 1 if talks && !self.members[me].agreement.is_open() => self.send(me, Kind::Data),
            2 if self.random.chance(0.3) => self.answer(me),
            3 | 4 => self.speak(me),
            5 | 6 => drop(self.see(me)),
            _ => {
                let from = self.random.below(self.n as u64) as usize;
                let all = self.transfers(from, me);
                if !all.is_empty() {
                    let id = all[self.random.below(all.len() as u64) as usize];
                    self.members[me].image[usize::from(id.sender)] = id.seq;
                }
            }
        }
    }

    /// Sends a null, but not before a vote of one that comes back, which proves that it may.
    fn answer(&mut self, me: usize) {
        let member = &self.members[me];
        if member.agreement.leaves() {
            return;
        }
        let has_voted = !member.agreement.is_strange() || member.view[me] > member.based[me];
        if member.is_alive && has_voted {
            self.send(me, Kind::Null);
        }
    }

    fn speak(&mut self, me: usize) {
        if let Some(roll) = self.members[me].agreement.unsaid().map(<[u64]>::to_vec) {
            self.log += &format!("{me} votes {roll:?}\n");
            self.send(me, Kind::Vote(roll));
        }
    }

    fn leave(&mut self, me: usize) {
        if self.members[me].is_alive && !self.members[me].agreement.leaves() {
            self.log += &format!("{me} leaves\n");
            self.send(me, Kind::Last);
        }
    }

    fn suspect(&mut self, me: usize, failed: u64) {
        if self.members[me].is_alive && self.members[me].agreement.suspect(failed) {
            self.log += &format!("{me} suspects {failed:b}\n");
        }
    }

    /// The members that another one cannot hear.
    fn unheard(&self, me: usize) -> u64 {
        (0..self.n)
            .filter(|at| *at != me && !self.is_linked(me, *at))
            .filter(|at| self.asks[*at] == 0 || self.side[*at] != self.side[me])
            .fold(0, |bits, at| bits | 1 << at)
    }

    /// Moves all that can move, with answers and suspicions where they are due.
    fn calm_down(&mut self) {
        for _ in 0..6 {
            for _ in 0..400 * self.n {
                self.step(false);
            }
            for me in 0..self.n {
                let unheard = self.unheard(me);
                self.suspect(me, unheard);
                self.tend(me);
                self.answer(me);
            }
        }
        for _ in 0..2 {
            (0..self.n).for_each(|at| self.answer(at));
            self.move_all();
        }
    }

    fn move_all(&mut self) {
        let mut moves = true;
        while core::mem::take(&mut moves) {
            for me in 0..self.n {
                while self.see(me) {
                    moves = true;
                }
                self.speak(me);
                if self.members[me].is_alive {
                    self.tend(me);
                }
                for from in 0..self.n {
                    for id in self.transfers(from, me) {
                        self.members[me].image[usize::from(id.sender)] = id.seq;
                        moves = true;
                    }
                }
            }
        }
    }

    /// The members that count for each other agree on the members, on cuts, and on the order.
    fn check(&self) {
        let counts =
            |one: usize, other: usize| self.members[one].agreement.members() >> other & 1 != 0;
        for one in 0..self.n {
            for other in (0..self.n).filter(|other| counts(one, *other) && counts(*other, one)) {
                let (a, b) = (&self.members[one], &self.members[other]);
                let (of_a, of_b) = (&a.waves.order, &b.waves.order);
                // From where a member has come back.
                let from = |all: &[Entry], me: usize, m: &Member| match m.incarnation {
                    1 => Some(0),
                    k => all.iter().position(|one| *one == Entry::Change(me as u8, k)),
                };
                let of = |all: &[Entry]| Some(from(all, one, a)?.max(from(all, other, b)?));
                if let (Some(at), Some(to)) = (of(of_a), of(of_b)) {
                    let same = of_a[at..].iter().zip(&of_b[to..]).all(|(a, b)| a == b);
                    assert!(same, "{one}: {of_a:?}\n{other}: {of_b:?}\n{}", self.log);
                }
                if a.incarnation + b.incarnation == 2 {
                    let same = a.views.iter().zip(&b.views).all(|(a, b)| a == b);
                    assert!(same, "{one}: {:?}\n{other}: {:?}\n{}", a.views, b.views, self.log);
                }
            }
        }
    }

    /// All of these are in one view, and have all that they sent.
    fn check_alive(&self, all: &[usize]) {
        let first = &self.members[all[0]];
        let bits = all.iter().fold(0, |bits, at| bits | 1 << at);
        for at in all {
            let member = &self.members[*at];
            assert!(!member.agreement.is_open(), "{at} is not done\n{}", self.log);
            assert_eq!(member.agreement.members(), bits, "{at}\n{}", self.log);
            let (order, of_first) = (&member.waves.order, &first.waves.order);
            let is_back = member.incarnation.max(first.incarnation) > 1;
            assert!(is_back || order == of_first, "{at}");
            let own = self.nodes[*at].iter().filter(|node| {
                matches!(node.kind, Kind::Data) && node.incarnation == member.incarnation
            });
            let is_own = |one: &&Entry| match one {
                Entry::Message(id, incarnation) => {
                    usize::from(id.sender) == *at && *incarnation == member.incarnation
                }
                Entry::Change(..) => false,
            };
            let heard = order.iter().filter(is_own);
            assert_eq!(own.count(), heard.count(), "of {at}\n{}", self.log);
        }
    }
}

/// Fewer than half of the members fail, and are found out late.
fn members_fail(seed: u64) {
    let mut model = Model::new(3 + (seed % 7) as usize, seed);
    let n = model.n;
    let failing = 1 + model.random.below((n as u64 - 1) / 2) as usize;
    let mut doomed: Vec<usize> = (0..n).collect();
    while doomed.len() > failing {
        let at = model.random.below(doomed.len() as u64) as usize;
        doomed.remove(at);
    }
    for round in 0..300 * n {
        model.step(true);
        if round % 100 == 99
            && model.random.chance(0.4)
            && let Some(at) = doomed.pop()
        {
            model.members[at].is_alive = false;
            model.log += &format!("{at} fails\n");
        }
        let me = model.random.below(n as u64) as usize;
        if model.random.chance(0.02) {
            let failed = model.unheard(me) & !(model.random.next_u64() & model.random.next_u64());
            model.suspect(me, failed);
        }
    }
    model.calm_down();
    model.check();
    let alive: Vec<usize> = (0..n).filter(|at| model.members[*at].is_alive).collect();
    model.check_alive(&alive);
}

/// Members leave at any time, and perhaps one fails; none of those that stay is cut off.
fn members_leave(seed: u64) {
    let mut model = Model::new(2 + (seed % 8) as usize, seed);
    let n = model.n;
    let mut all: Vec<usize> = (0..n).collect();
    let mut leaving: Vec<usize> = Vec::new();
    for _ in 0..1 + model.random.below(n as u64 - 1) {
        leaving.push(all.remove(model.random.below(all.len() as u64) as usize));
    }
    let fails = all.len() > 2 && model.random.chance(0.5);
    let failing = fails.then(|| all.remove(0));
    for round in 0..300 * n {
        model.step(true);
        if round > 100
            && model.random.chance(0.01)
            && let Some(at) = leaving.pop()
        {
            model.leave(at);
        }
        if round == 150 * n
            && let Some(at) = failing
        {
            model.members[at].is_alive = false;
            model.log += &format!("{at} fails\n");
        }
    }
    leaving.into_iter().for_each(|at| model.leave(at));
    model.calm_down();
    model.check();
    model.check_alive(&all);
    let first = &model.members[all[0]];
    let gone: Vec<Change> = first.views.iter().flat_map(|(_, changes)| changes.clone()).collect();
    for at in (0..n).filter(|at| model.members[*at].agreement.leaves()) {
        let is_last = |change: &&Change| usize::from(change.member) == at;
        let cut = gone.iter().find(is_last).map(|change| change.cut as usize);
        assert_eq!(cut, Some(model.nodes[at].len()), "all of {at} counts\n{}", model.log);
    }
}

/// Fewer than half of the members fail, or are cut off from the others, and come back.
fn members_come_back(seed: u64) -> [u64; 1] {
    let mut model = Model::new(3 + (seed % 7) as usize, seed);
    let n = model.n;
    let first = model.random.below(n as u64) as usize;
    let failing: Vec<usize> = (0..n.div_ceil(2) - 1).map(|at| (first + at) % n).collect();
    for _ in 0..900 * n {
        model.step(true);
        let at = failing[model.random.below(failing.len() as u64) as usize];
        match model.random.below(200 * n as u64) {
            0..4 if model.members[at].is_alive => {
                model.members[at].is_alive = false;
                model.log += &format!("{at} fails\n");
            }
            4..12 if !model.members[at].is_alive && model.asks[at] == 0 => model.restart(at),
            12 => model.side[at] = 1,
            13..16 => model.side[at] = 0,
            _ => {}
        }
        let me = model.random.below(n as u64) as usize;
        if model.random.chance(0.02) && model.side[me] == 0 {
            let failed = model.unheard(me) & !(model.random.next_u64() & model.random.next_u64());
            model.suspect(me, failed);
        }
    }
    model.side = vec![0; n];
    for at in failing {
        if !model.members[at].is_alive && model.asks[at] == 0 {
            model.restart(at);
        }
    }
    for _ in 0..4 {
        model.calm_down();
    }
    model.check();
    let all: Vec<usize> = (0..n).collect();
    model.check_alive(&all);
    [model.returns]
}

/// Members are cut off from each other; those of one side are more than half.
fn sides_part(seed: u64) {
    let mut model = Model::new(3 + (seed % 7) as usize, seed);
    let n = model.n;
    let most = n / 2 + 1 + model.random.below((n as u64).div_ceil(2) - 1) as usize;
    for round in 0..300 * n {
        if round == 60 * n {
            model.side = (0..n).map(|at| u8::from(at >= most)).collect();
        }
        model.step(true);
        let me = model.random.below(n as u64) as usize;
        if model.random.chance(0.02) {
            let failed = model.unheard(me) & !(model.random.next_u64() & model.random.next_u64());
            model.suspect(me, failed);
        }
    }
    model.calm_down();
    model.check();
    let side: Vec<usize> = (0..most).collect();
    model.check_alive(&side);
    let left = (most..n).map(|at| &model.members[at]);
    left.for_each(|member| assert!(member.views.is_empty(), "few decide nothing"));
}

/// Members fail, and suspect each other, as chance has it: decisions are alike.
fn anything_happens(seed: u64) {
    let mut model = Model::new(2 + (seed % 8) as usize, seed);
    let n = model.n;
    for _ in 0..400 * n {
        model.step(true);
        let me = model.random.below(n as u64) as usize;
        match model.random.below(1000) {
            0 => {
                model.members[me].is_alive = false;
                model.log += &format!("{me} fails\n");
            }
            20..23 => model.leave(me),
            1 => model.side = (0..n).map(|_| model.random.below(2) as u8).collect(),
            2 => model.side = vec![0; n],
            3..8 => {
                let (a, b) = (model.random.next_u64(), model.random.next_u64());
                model.suspect(me, a & b);
            }
            8..20 => {
                let unheard = model.unheard(me);
                model.suspect(me, unheard);
            }
            23..26 => {
                let at = model.random.below(n as u64) as usize;
                if !model.members[at].is_alive && model.asks[at] == 0 {
                    model.restart(at);
                }
            }
            _ => {}
        }
    }
    model.check();
    model.side = vec![0; n];
    model.calm_down();
    model.check();
}

/// The layer below may have more in its view than has come here: across a cut it is ahead.
#[test]
fn a_decision_waits_for_all_that_its_votes_follow() {
    let mut agreement = Agreement::new(3, 0, 16);
    let held = |sender, seq| Held { id: NodeId { sender, seq }, is_null: false, body: () };
    assert!(agreement.suspect(0b100));
    let roll = [0, 0, 1 << START_BITS];
    assert_eq!(agreement.vote(0, &roll, (1, 2), vec![1, 0, 1]), Ok(()), "it follows one of 2");
    assert_eq!(agreement.take(held(1, 1)), Ok(()));
    assert_eq!(agreement.vote(1, &roll, (1, 1), vec![0, 1, 0]), Ok(()));
    assert!(agreement.is_open());
    assert_eq!(agreement.take(held(2, 1)), Ok(()));
    let gone = Change { member: 2, status: Status::Out, incarnation: 0, cut: 1 };
    let decided = Decided { members: 0b11, changes: vec![gone], past: vec![1; 3], depth: 2 };
    let all: Vec<Up<()>> = core::iter::from_fn(|| agreement.next()).collect();
    assert_eq!(all, [Up::Message(held(1, 1)), Up::Message(held(2, 1)), Up::View(decided)]);
}

#[test]
fn members_that_leave_are_missed_at_once_and_nothing_of_them_is() {
    seeds::of(1).run(members_leave);
}

#[test]
fn members_that_fail_go_at_the_same_cut_everywhere() {
    seeds::of(1).run(members_fail);
}

#[test]
fn members_come_back_at_the_same_place_everywhere() {
    if let Some([returns]) = seeds::of(1).sum(members_come_back) {
        println!("{returns} returns");
        assert!(returns > 100);
    }
}

#[test]
fn the_greater_side_goes_on_and_the_lesser_decides_nothing() {
    seeds::of(1).run(sides_part);
}

#[test]
fn whatever_happens_the_decisions_are_alike() {
    seeds::of(1).run(anything_happens);
}
