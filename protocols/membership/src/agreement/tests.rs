//! A model of conversations of two to nine members: messages reach each member after those that
//! they follow, by any member that has them, at any time. Members fail, are cut off, and suspect
//! each other, rightly or not.

use super::*;
use std::collections::BTreeMap;
use std::format;
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
    depth: u32,
    past: Vec<u32>,
    kind: Kind,
}

/// Total order of what comes up, by complete waves.
#[derive(Clone, Default)]
struct Waves {
    waits: BTreeMap<(u32, u8), NodeId>,
    /// Depth of the last message of each, and 1.
    levels: Vec<u32>,
    members: u64,
    last: Option<(u32, u8)>,
    order: Vec<NodeId>,
}

impl Waves {
    fn take(&mut self, node: &Node) {
        let key = (node.depth, node.id.sender);
        self.levels[usize::from(node.id.sender)] = node.depth + 1;
        if matches!(node.kind, Kind::Data) {
            assert!(self.last.is_none_or(|last| last < key), "{key:?} comes after {:?}", self.last);
            self.waits.insert(key, node.id);
        }
        self.go_on();
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
    agreement: Agreement<()>,
    /// Messages in the graph, and in the view.
    image: Vec<u32>,
    view: Vec<u32>,
    /// Last message with octets of each that came up, and all views.
    handed: Vec<u32>,
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
    log: String,
}

impl Model {
    fn new(n: usize, seed: u64) -> Self {
        let waves = Waves { levels: vec![0; n], members: (1 << n) - 1, ..Waves::default() };
        let member = |me| Member {
            is_alive: true,
            agreement: Agreement::new(n, me, 4096),
            image: vec![0; n],
            view: vec![0; n],
            handed: vec![0; n],
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
        let node = Node { id, depth, past: member.view.clone(), kind };
        if matches!(node.kind, Kind::Data) {
            member.handed[me] = id.seq;
        }
        member.waves.take(&node);
        self.nodes[me].push(node.clone());
        match node.kind {
            Kind::Vote(roll) => {
                let _ = self.members[me].agreement.vote(me, &roll, id.seq, node.past);
                self.hand_up(me);
            }
            Kind::Last => self.members[me].agreement.leave(me),
            Kind::Data | Kind::Null => {}
        }
    }

    /// A message that one member may get from another.
    fn transfers(&self, from: usize, to: usize) -> Vec<NodeId> {
        if from == to
            || !self.is_linked(from, to)
            || self.members[to].agreement.hoped() >> from & 1 == 0
        {
            return Vec::new();
        }
        let next = |sender: &usize| {
            let seq = self.members[to].image[*sender] + 1;
            let has = *sender != to && self.members[from].image[*sender] >= seq;
            has && (0..self.n).all(|at| {
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
            let _ = member.agreement.vote(sender, roll, node.id.seq, node.past.clone());
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
                Up::View(members, changes) => {
                    self.log += &format!("{me} decides {members:b} {changes:?}\n");
                    let member = &mut self.members[me];
                    member.waves.members = members;
                    for change in &changes {
                        let cut = if change.incarnation > 0 { u32::MAX } else { change.cut };
                        member.cuts[usize::from(change.member)] = cut;
                    }
                    member.views.push((members, changes));
                    member.waves.go_on();
                }
            }
        }
    }

    /// All that a message follows, and that counts, has come up before it.
    fn check_causes(&self, me: usize, node: &Node) {
        let member = &self.members[me];
        for sender in (0..self.n).filter(|at| *at != usize::from(node.id.sender)) {
            let last = node.past[sender].min(member.cuts[sender]);
            let data =
                (1..=last).rev().find(|seq| matches!(self.node(sender, *seq).kind, Kind::Data));
            let is_there = data.is_none_or(|seq| seq <= member.handed[sender]);
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
        match self.random.below(10) {
            0 | 1 if talks && !self.members[me].agreement.is_open() => self.send(me, Kind::Data),
            2 if self.random.chance(0.3) => self.null(me),
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

    fn speak(&mut self, me: usize) {
        if let Some(roll) = self.members[me].agreement.unsaid().map(<[u16]>::to_vec) {
            self.log += &format!("{me} votes {roll:?}\n");
            self.send(me, Kind::Vote(roll));
        }
    }

    fn null(&mut self, me: usize) {
        if self.members[me].is_alive && !self.members[me].agreement.leaves() {
            self.send(me, Kind::Null);
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
                self.suspect(me, unheard & self.members[me].agreement.members());
                self.null(me);
            }
        }
        for _ in 0..2 {
            (0..self.n).for_each(|at| self.null(at));
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
                let same = a.views.iter().zip(&b.views).all(|(a, b)| a == b);
                assert!(same, "{one}: {:?}\n{other}: {:?}\n{}", a.views, b.views, self.log);
                let same = a.waves.order.iter().zip(&b.waves.order).all(|(a, b)| a == b);
                assert!(same, "orders of {one} and {other}\n{}", self.log);
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
            assert_eq!(member.waves.order, first.waves.order, "{at}");
            let own = self.nodes[*at].iter().filter(|node| matches!(node.kind, Kind::Data));
            let heard = first.waves.order.iter().filter(|id| usize::from(id.sender) == *at);
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
    let roll = [0, 0, 1];
    assert_eq!(agreement.vote(0, &roll, 1, vec![1, 0, 1]), Ok(()), "it follows one of 2");
    assert_eq!(agreement.take(held(1, 1)), Ok(()));
    assert_eq!(agreement.vote(1, &roll, 1, vec![0, 1, 0]), Ok(()));
    assert!(agreement.is_open());
    assert_eq!(agreement.take(held(2, 1)), Ok(()));
    let gone = Change { member: 2, incarnation: 0, cut: 1 };
    let all: Vec<Up<()>> = core::iter::from_fn(|| agreement.next()).collect();
    assert_eq!(all, [Up::Message(held(1, 1)), Up::Message(held(2, 1)), Up::View(0b11, vec![gone])]);
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
fn the_greater_side_goes_on_and_the_lesser_decides_nothing() {
    seeds::of(1).run(sides_part);
}

#[test]
fn whatever_happens_the_decisions_are_alike() {
    seeds::of(1).run(anything_happens);
}
