//! Tests of the order by itself: small graphs by hand, and random conversations in which every
//! member has its own, each message handed to it after those that it follows.

use super::*;
use alloc::collections::BTreeSet;
use std::{env, println, vec};
use xk_core::random::Random;

type Id = (u8, u32);

const fn node(sender: u8, seq: u32, depth: u32, is_null: bool) -> Node {
    Node { id: NodeId { sender, seq }, incarnation: 1, depth, is_null }
}

/// Takes a message, or a null without a class, by its depth alone.
fn take(
    waves: &mut Waves<u32>,
    sender: u8,
    seq: u32,
    depth: u32,
    body: Option<u32>,
) -> Vec<Dropped> {
    let node = node(sender, seq, depth, body.is_none());
    waves.take(Arrived { node, class: 0, past: Vec::new(), body })
}

fn drain(waves: &mut Waves<u32>) -> Vec<u32> {
    core::iter::from_fn(|| waves.next()).map(|(_, body)| body).collect()
}

#[test]
fn a_wave_is_complete_when_every_member_has_sent_as_deep() {
    // The sheet's example, at member 2: one, two answers, and one after both.
    let mut waves = Waves::new(3, 2, 16, false);
    take(&mut waves, 0, 1, 0, Some(1));
    assert_eq!(drain(&mut waves), []);
    take(&mut waves, 1, 1, 1, Some(2));
    assert_eq!(waves.due(), Some(Due { to: NodeId { sender: 1, seq: 1 }, unanswered: 2 }));
    take(&mut waves, 2, 1, 1, Some(3));
    assert_eq!((drain(&mut waves), waves.due()), (vec![1], None));
    take(&mut waves, 0, 2, 2, Some(4));
    assert_eq!(drain(&mut waves), [2, 3], "by members within a wave");
    assert_eq!((waves.waiting(), waves.waiting_of(0)), (1, 1));
    take(&mut waves, 1, 2, 3, None);
    take(&mut waves, 2, 2, 3, None);
    assert_eq!((drain(&mut waves), waves.waiting(), waves.due()), (vec![4], 0, None));
}

#[test]
fn a_member_that_has_come_back_is_counted_from_its_base_on() {
    let mut waves = Waves::new(3, 0, 4, false);
    take(&mut waves, 0, 1, 0, Some(1));
    take(&mut waves, 1, 1, 1, Some(2));
    take(&mut waves, 2, 1, 0, None);
    assert!(waves.mask(2, 1).is_empty());
    assert_eq!(drain(&mut waves), [1]);
    // The base has the wave of the second: what is complete stays so.
    waves.unmask(2, 1, 2);
    take(&mut waves, 0, 2, 2, Some(3));
    take(&mut waves, 1, 2, 3, Some(4));
    assert_eq!(drain(&mut waves), [2], "the third waits for the member");
    let mut back = Waves::new(3, 2, 4, false);
    for (at, seq, levels) in [(0, 1, 1), (1, 1, 2), (2, 1, 1)] {
        back.begin_at(at, seq, levels);
    }
    take(&mut back, 0, 2, 2, Some(3));
    take(&mut back, 1, 2, 3, Some(4));
    assert!(back.due().is_some(), "it answers");
    for waves in [&mut waves, &mut back] {
        take(waves, 2, 2, 4, Some(5));
    }
    assert_eq!((drain(&mut waves), drain(&mut back)), (vec![3], vec![3]));
}

/// The layer below passes up of what a member sends for its place the last one only, and none of
/// one that is gone.
#[test]
fn a_null_that_is_left_out_holds_up_none() {
    let take = |waves: &mut Waves<u32>, sender, seq, depth, past: &[u32], body| {
        let arrived =
            Arrived { node: node(sender, seq, depth, false), class: 0, past: past.into(), body };
        assert_eq!(waves.take(arrived), []);
    };
    let mut waves = Waves::new(4, 0, 4, true);
    // This member's own follows 1:1, which 1:2 makes up for, and that follows this member's.
    take(&mut waves, 0, 1, 1, &[1, 1, 0, 0], None);
    take(&mut waves, 2, 1, 1, &[0, 1, 1, 0], Some(1));
    take(&mut waves, 1, 2, 2, &[1, 2, 1, 0], None);
    take(&mut waves, 0, 2, 3, &[2, 2, 1, 1], None);
    assert_eq!(waves.waiting(), 2, "3:1 has not come");
    assert!(waves.mask(3, 0).is_empty());
    assert_eq!(drain(&mut waves), [1]);
}

#[test]
fn a_member_that_is_masked_out_holds_up_none() {
    let mut waves = Waves::new(3, 0, 2, false);
    take(&mut waves, 0, 1, 0, Some(1));
    take(&mut waves, 1, 1, 1, Some(2));
    assert_eq!(drain(&mut waves), []);
    assert!(waves.mask(2, 0).is_empty());
    assert_eq!(drain(&mut waves), [1]);
    // Another was not masked out here when it sent this.
    assert_eq!(take(&mut waves, 2, 1, 0, Some(3)), []);
    assert_eq!(take(&mut waves, 1, 2, 2, Some(4)), []);
    assert_eq!(drain(&mut waves), [3]);
    take(&mut waves, 0, 2, 9, None);
    assert_eq!(drain(&mut waves), [2, 4]);
    assert_eq!(take(&mut waves, 2, 2, 1, Some(5)), [Dropped::Late]);
    assert_eq!(take(&mut waves, 2, 3, 1, None), [], "a null has no place");
    for n in 3..5 {
        assert_eq!(take(&mut waves, 1, n, n, Some(n)), []);
        assert!(waves.mask(9, 0).is_empty());
    }
    take(&mut waves, 1, 5, 50, Some(5));
    take(&mut waves, 1, 6, 51, Some(6));
    assert_eq!(take(&mut waves, 1, 7, 52, Some(7)), [Dropped::TooMany]);
    assert_eq!(take(&mut waves, 7, 1, 0, Some(8)), [], "no member's");
}

#[test]
fn nulls_are_not_kept_and_not_answered() {
    let mut waves = Waves::new(2, 0, 4, false);
    for n in 1..100_000 {
        take(&mut waves, 1, n, n, None);
    }
    assert_eq!((waves.waiting(), waves.due(), waves.early.len()), (0, None, 0));
}

/// A message of the model.
#[derive(Clone)]
struct Sent {
    id: Id,
    class: u8,
    depth: u32,
    past: Vec<u32>,
    is_null: bool,
}

/// A member of the model.
struct Member {
    waves: Waves<Id>,
    /// The view of the layer below: numbers of each sender, and the depth of the next.
    view: Vec<u32>,
    depth: u32,
    /// Messages that the layer below has, and this one has not yet.
    handed: VecDeque<usize>,
    unnoted: VecDeque<usize>,
    log: Vec<(Id, u8)>,
    is_dead: bool,
    masks: Vec<bool>,
}

struct Model {
    random: Random,
    members: Vec<Member>,
    sent: Vec<Sent>,
    window: u32,
    classes: u8,
    is_safe: bool,
    /// Last number of each sender that members may still get.
    cut: Vec<u32>,
    nulls: usize,
    dropped: usize,
    seed: u64,
}

impl Model {
    /// Each keeps so many times the window of each sender.
    fn new(seed: u64, times: u32) -> Self {
        let random = Random::new(seed);
        let n = 2 + random.below(8) as usize;
        let window = 1 + random.below(16) as u32;
        let (is_safe, classes) = [(false, 0), (true, 0), (false, 1), (false, 3)][seed as usize % 4];
        let member = |me| Member {
            waves: Waves::new(n, me, window * times, is_safe || classes > 0),
            view: vec![0; n],
            depth: 0,
            handed: VecDeque::new(),
            unnoted: VecDeque::new(),
            log: Vec::new(),
            is_dead: false,
            masks: vec![false; n],
        };
        let members = (0..n).map(member).collect();
        let cut = vec![u32::MAX; n];
        let sent = Vec::new();
        Self { random, members, sent, window, classes, is_safe, cut, nulls: 0, dropped: 0, seed }
    }

    fn n(&self) -> usize {
        self.members.len()
    }

    fn pick(&self, below: usize) -> usize {
        self.random.below(below as u64) as usize
    }

    fn send(&mut self, me: usize, is_null: bool) {
        let class = self.pick(usize::from(self.classes) + 1) as u8;
        let member = &mut self.members[me];
        member.view[me] += 1;
        let id = (me as u8, member.view[me]);
        let class = if is_null { 0 } else { class };
        let (depth, past) = (member.depth, member.view.clone());
        member.depth += 1;
        member.unnoted.push_back(self.sent.len());
        self.sent.push(Sent { id, class, depth, past, is_null });
        self.nulls += usize::from(is_null);
    }

    /// One that the layer below may take into its view, if there is one.
    fn comes(&mut self, me: usize) -> bool {
        let start = self.pick(self.sent.len().max(1));
        let order = (start..self.sent.len()).chain(0..start);
        let member = &self.members[me];
        let may_come = |sent: &Sent| {
            let sender = usize::from(sent.id.0);
            let mut past = sent.past.iter().enumerate();
            sender != me
                && sent.id.1 == member.view[sender] + 1
                && sent.id.1 <= self.cut[sender]
                && past.all(|(at, seq)| at == sender || *seq <= member.view[at])
        };
        let found = order.into_iter().find(|at| may_come(&self.sent[*at]));
        let Some(found) = found else { return false };
        let sent = &self.sent[found];
        let member = &mut self.members[me];
        member.view[usize::from(sent.id.0)] = sent.id.1;
        member.depth = member.depth.max(sent.depth + 1);
        member.handed.push_back(found);
        true
    }

    fn arrive(&mut self, me: usize, at: usize) {
        let Sent { id, class, depth, past, is_null } = self.sent[at].clone();
        let past = if self.is_safe || self.classes > 0 { past } else { Vec::new() };
        let arrived = Arrived {
            node: node(id.0, id.1, depth, is_null),
            class,
            past,
            body: (!is_null).then_some(id),
        };
        self.dropped += self.members[me].waves.take(arrived).len();
    }

    /// Hands up one of what waits below, or notes one of its own; false if there is none.
    fn hands(&mut self, me: usize) -> bool {
        let own_first = self.pick(2) == 0;
        let member = &mut self.members[me];
        let own = |member: &mut Member| member.unnoted.pop_front();
        let other = |member: &mut Member| member.handed.pop_front();
        let next = match own_first {
            true => own(member).or_else(|| other(member)),
            false => other(member).or_else(|| own(member)),
        };
        let is_any = next.inspect(|at| self.arrive(me, *at)).is_some();
        self.delivers(me);
        is_any
    }

    fn delivers(&mut self, me: usize) {
        while let Some((_, id)) = self.members[me].waves.next() {
            let class = self.find(id).class;
            self.members[me].log.push((id, class));
            if self.is_safe {
                let masks = &self.members[me].masks;
                for (at, member) in self.members.iter().enumerate() {
                    let holds = member.view[usize::from(id.0)] >= id.1;
                    assert!(masks[at] || holds, "seed {}: {id:?} is not safe", self.seed);
                }
            }
        }
    }

    fn find(&self, id: Id) -> &Sent {
        self.sent.iter().find(|sent| sent.id == id).unwrap()
    }

    fn answers(&mut self, me: usize) -> bool {
        let member = &self.members[me];
        let is_due = member.unnoted.is_empty() && member.waves.due().is_some();
        if is_due {
            self.send(me, true);
        }
        is_due
    }

    fn pushes(&mut self, me: usize) {
        let member = &self.members[me];
        if member.waves.waiting_of(me) + (member.unnoted.len() as u32) < self.window {
            self.send(me, false);
        }
    }

    /// A member dies; what of its messages one of the others has, all of them will get.
    fn dies(&mut self, dead: usize) {
        self.members[dead].is_dead = true;
        let others = self.members.iter().filter(|member| !member.is_dead);
        self.cut[dead] = others.map(|member| member.view[dead]).max().unwrap_or(0);
    }

    /// Masks the dead out where all of theirs has come.
    fn masks(&mut self, me: usize) {
        for dead in 0..self.n() {
            let last = self.cut[dead];
            let member = &mut self.members[me];
            // Some may still be on their way up.
            let has_all = member.view[dead] == last;
            if !member.masks[dead] && last != u32::MAX && has_all {
                member.masks[dead] = true;
                self.dropped += member.waves.mask(dead, last).len();
            }
        }
        self.delivers(me);
    }

    fn act(&mut self, dies: bool) {
        let me = self.pick(self.n());
        if self.members[me].is_dead {
            return;
        }
        match self.pick(16) {
            0..3 => self.pushes(me),
            3..8 => drop(self.comes(me)),
            8..13 => drop(self.hands(me)),
            13 => drop(self.answers(me)),
            14 if dies && self.pick(100) == 0 => {
                let dead = self.members.iter().filter(|member| member.is_dead).count();
                if dead + 2 < self.n() {
                    self.dies(me);
                }
            }
            _ => self.masks(me),
        }
        if self.cut.iter().any(|cut| *cut != u32::MAX) {
            // Others may know of a death, and go on.
            return;
        }
        for (at, member) in self.members.iter().enumerate() {
            let waiting = member.waves.members.iter().map(|of| of.waiting).max();
            // A sender's own bound is that of each other member.
            let is_behind = !member.unnoted.is_empty();
            assert!(
                is_behind || waiting <= Some(self.window),
                "seed {}: member {at} keeps {waiting:?}",
                self.seed
            );
        }
    }

    /// Lets everything come to its end.
    fn ends(&mut self) {
        let mut is_over = false;
        while !core::mem::replace(&mut is_over, true) {
            for me in 0..self.n() {
                if self.members[me].is_dead {
                    continue;
                }
                while self.comes(me) || self.hands(me) {
                    is_over = false;
                }
                self.masks(me);
                is_over &= !self.answers(me);
            }
        }
    }

    /// Looks whether all members have found one order, which extends that of causes.
    fn judges(&self) {
        let seed = self.seed;
        let alive = || self.members.iter().filter(|member| !member.is_dead);
        let one = normal(&alive().next().unwrap().log);
        for (at, member) in self.members.iter().enumerate() {
            let log = normal(&member.log);
            if !member.is_dead {
                assert_eq!(log, one, "seed {seed}: member {at}");
                assert_eq!(member.waves.waiting(), 0, "seed {seed}: member {at}");
            } else if self.is_safe || self.classes == 0 {
                // Without classes a log is a list.
                let has_same =
                    member.log.iter().zip(&alive().next().unwrap().log).all(|(a, b)| a == b);
                assert!(has_same || !self.is_safe, "seed {seed}: the dead member {at} was ahead");
            }
            let mut seen: BTreeSet<Id> = BTreeSet::new();
            for (id, _) in &member.log {
                let past = self.find(*id).past.clone();
                let before = self.sent.iter().filter(|sent| !sent.is_null && sent.id != *id);
                for cause in before.filter(|sent| past[usize::from(sent.id.0)] >= sent.id.1) {
                    assert!(seen.contains(&cause.id), "seed {seed}: {id:?} before {:?}", cause.id);
                }
                assert!(seen.insert(*id), "seed {seed}: {id:?} twice");
            }
        }
        let all = self
            .sent
            .iter()
            .filter(|sent| !sent.is_null && sent.id.1 <= self.cut[usize::from(sent.id.0)]);
        let heard: usize = one.iter().map(BTreeSet::len).sum();
        assert_eq!((heard, self.dropped), (all.count(), 0), "seed {seed}");
        let data = self.sent.len() - self.nulls;
        assert!(
            self.nulls <= data * (self.n() - 1),
            "seed {seed}: {} nulls for {data}",
            self.nulls
        );
    }
}

/// A log as a list of sets: neighbours that commute are in one.
fn normal(log: &[(Id, u8)]) -> Vec<BTreeSet<Id>> {
    let runs = log.chunk_by(|(_, one), (_, other)| *one != 0 && one == other);
    runs.map(|run| run.iter().map(|(id, _)| *id).collect()).collect()
}

fn converse(seed: u64) {
    // One that masks out late keeps what others send meanwhile.
    let dies = (seed / 4).is_multiple_of(2);
    let mut model = Model::new(seed, if dies { 1000 } else { 8 });
    for _ in 0..600 {
        model.act(dies);
    }
    model.ends();
    model.judges();
}

#[test]
fn random_conversations_have_one_order() {
    let given = |name| env::var(name).ok().and_then(|n: std::string::String| n.parse().ok());
    let (first, seeds) = (given("XK_SEED").unwrap_or(1), given("XK_SEEDS").unwrap_or(300));
    println!("seeds {first} to {}", first + seeds - 1);
    (first..first + seeds).for_each(converse);
}

/// Masks at any time, without agreement: orders may part, but nothing grows and nothing panics.
#[test]
fn masks_that_disagree_do_no_harm() {
    let mut dropped = 0;
    for seed in 0..300 {
        let mut model = Model::new(seed, 2);
        for _ in 0..600 {
            let me = model.pick(model.n());
            if model.pick(60) == 0 {
                let other = model.pick(model.n());
                if other != me {
                    model.members[me].masks[other] = true;
                    model.dropped += model.members[me].waves.mask(other, 0).len();
                }
            }
            match model.pick(4) {
                0 => model.pushes(me),
                1 => drop(model.comes(me) && model.hands(me)),
                2 => drop(model.hands(me) && model.answers(me)),
                _ => {
                    model.is_safe &= false;
                    while let Some((_, id)) = model.members[me].waves.next() {
                        model.members[me].log.push((id, 0));
                    }
                }
            }
            for member in &model.members {
                let most = 2 * model.window;
                assert!(member.waves.members.iter().all(|of| of.waiting <= most), "seed {seed}");
            }
        }
        for member in &model.members {
            let all: BTreeSet<_> = member.log.iter().collect();
            assert_eq!(all.len(), member.log.len(), "seed {seed}: nothing comes twice");
        }
        dropped += model.dropped;
    }
    assert!(dropped > 0, "some came after others that were behind them");
}

/// A change comes up behind all that is no deeper, and is the last barrier for what is deeper. One
/// that has come back is waited for from there on.
#[test]
fn changes_have_their_places() {
    for counts_followers in [false, true] {
        let mut waves = Waves::new(3, 0, 9, counts_followers);
        let arrived = |sender, seq, depth, past: [u32; 3]| Arrived {
            node: Node { id: NodeId { sender, seq }, incarnation: 1, depth, is_null: false },
            class: u8::from(counts_followers && depth > 4),
            past: if counts_followers { past.to_vec() } else { Vec::new() },
            body: Some(depth),
        };
        waves.mask(2, 0);
        waves.take(arrived(0, 1, 0, [1, 0, 0]));
        waves.unmask(2, 0, 4);
        waves.change(2, 3, 33);
        assert!(waves.next().is_none(), "1 has not answered");
        waves.take(arrived(1, 1, 5, [1, 1, 0]));
        let next = |waves: &mut Waves<u32>| waves.next().map(|(_, body)| body);
        assert_eq!(
            [next(&mut waves), next(&mut waves), next(&mut waves)],
            [Some(0), Some(33), None]
        );
        assert_eq!(waves.due().map(|due| due.to.sender), Some(1), "a change is not answered");
        waves.take(arrived(0, 2, 6, [2, 1, 0]));
        assert_eq!(next(&mut waves), None, "2 has not answered");
        waves.take(arrived(2, 1, 7, [2, 1, 1]));
        assert_eq!(
            next(&mut waves),
            Some(5),
            "as a barrier, since the change is one of another class"
        );
    }
}
