//! Tests of the graph by itself: the sheet's example, and random conversations beside a model that
//! knows all messages and their whole past.

use super::*;
use alloc::collections::{BTreeMap, BTreeSet};
use proptest::prelude::*;
use std::format;

const fn id(sender: u8, seq: u32) -> Id {
    Id { sender, seq }
}

fn up(graph: &mut Graph<u32>) -> Option<Begun> {
    graph.begin(false, false, |_| Some(())).map(|(begun, ())| begun)
}

/// Begins and ends all upcalls that may begin.
fn drain(graph: &mut Graph<u32>) -> Vec<Id> {
    core::iter::from_fn(|| {
        let begun = up(graph)?;
        graph.returned(begun.id);
        Some(begun.id)
    })
    .collect()
}

/// Messages 1 to 4 of the example: one, two answers that are concurrent, and one after both.
fn example() -> [(Id, Vec<Id>); 4] {
    [
        (id(0, 1), vec![]),
        (id(1, 1), vec![id(0, 1)]),
        (id(2, 1), vec![id(0, 1)]),
        (id(0, 2), vec![id(1, 1), id(2, 1)]),
    ]
}

#[test]
fn messages_that_arrive_backwards_come_out_in_order() {
    let mut graph = Graph::new(4, 3, 16, 1);
    for (id, before) in example().iter().skip(1).rev() {
        assert_eq!(graph.arrive(*id, before, false, 0), Arrival::Waiting);
    }
    let missing: BTreeSet<Id> = graph.waiting().flat_map(|id| graph.missing(id)).collect();
    assert_eq!(missing, [id(0, 1)].into());
    assert_eq!(drain(&mut graph), []);
    let (first, before) = &example()[0];
    assert_eq!(graph.arrive(*first, before, false, 0), Arrival::Inserted);
    assert_eq!(drain(&mut graph), [id(0, 1), id(1, 1), id(2, 1), id(0, 2)]);
    let depths = [id(0, 1), id(1, 1), id(2, 1), id(0, 2)].map(|id| graph.depth(id));
    assert_eq!(depths, [Some(0), Some(1), Some(1), Some(2)]);
    assert_eq!(graph.order(id(1, 1), id(2, 1)), Order::Concurrent);
    assert_eq!(graph.order(id(0, 2), id(2, 1)), Order::After);
    assert_eq!(graph.leaves(), [id(0, 2)]);
}

/// A message need not name the one before it of its sender: it may name others, which do.
#[test]
fn what_a_member_has_sent_after_a_message_that_does_not_come_is_given_up() {
    let mut graph = Graph::new(2, 1, 16, 1);
    graph.arrive(id(0, 1), &[], false, 0);
    drain(&mut graph);
    graph.send(false, 0).unwrap();
    assert_eq!(graph.arrive(id(0, 3), &[id(1, 1)], false, 0), Arrival::Waiting);
    graph.give_up(id(0, 2));
    assert_eq!((graph.take_given_up(), graph.outstanding()), (1, (0, 0)));
}

#[test]
fn what_a_masked_member_has_sent_is_outstanding_only_if_it_was_followed() {
    let mut graph = Graph::new(3, 2, 16, 1);
    graph.arrive(id(0, 1), &[], false, 0);
    assert_eq!((graph.outstanding(), graph.mask_out(0)), ((1, 0), 0));
    assert_eq!((graph.outstanding(), drain(&mut graph)), ((0, 0), vec![]));
    graph.arrive(id(1, 1), &[id(0, 1)], false, 0);
    assert_eq!(graph.outstanding(), (2, 0), "another has followed it");
    assert_eq!(drain(&mut graph), [id(0, 1), id(1, 1)]);
}

#[test]
fn stable_is_what_all_others_have_followed() {
    let mut graph = Graph::new(3, 2, 16, 1);
    let [(a, none), (b, before_b), _, _] = example();
    graph.arrive(a, &none, false, 0);
    drain(&mut graph);
    let own = graph.send(false, 0).unwrap();
    assert_eq!((own.id, own.depth), (id(2, 1), 1));
    graph.arrive(b, &before_b, false, 0);
    assert!(graph.is_stable(a), "members 1 and 2 have sent after it");
    assert!(!graph.is_stable(b));
    graph.mask_out(0);
    assert!(!graph.is_stable(b), "this member has sent nothing after it");
    drain(&mut graph);
    graph.send(false, 0).unwrap();
    assert!(graph.is_stable(b));
}

#[test]
fn a_message_waits_for_the_upcalls_of_its_predecessors_only() {
    let mut graph = Graph::new(4, 3, 16, 4);
    for (id, before) in example() {
        graph.arrive(id, &before, false, 0);
    }
    let first = up(&mut graph).unwrap();
    assert_eq!((first.id, up(&mut graph)), (id(0, 1), None));
    graph.returned(first.id);
    let both = [up(&mut graph).unwrap().id, up(&mut graph).unwrap().id];
    assert_eq!((both, up(&mut graph)), ([id(1, 1), id(2, 1)], None));
    graph.returned(id(2, 1));
    assert_eq!(up(&mut graph), None, "the other is still under way");
    graph.returned(id(1, 1));
    assert_eq!(up(&mut graph).map(|begun| begun.id), Some(id(0, 2)));
}

#[test]
fn what_cannot_be_a_context_is_refused() {
    let mut graph = Graph::new(3, 2, 4, 1);
    assert_eq!(graph.arrive(id(0, 1), &[], false, 0), Arrival::Inserted);
    assert_eq!(graph.arrive(id(0, 1), &[], false, 0), Arrival::Duplicate);
    for (id, before) in [
        (id(0, 2), vec![]),
        (id(0, 2), vec![id(0, 2)]),
        (id(0, 3), vec![id(0, 1)]),
        (id(1, 1), vec![id(0, 1), id(0, 1)]),
        (id(1, 1), vec![id(3, 1)]),
        (id(1, 1), vec![id(0, 0)]),
        (id(1, 1), vec![id(0, 99)]),
        (id(2, 1), vec![]),
        (id(9, 1), vec![]),
    ] {
        assert_eq!(graph.arrive(id, &before, false, 0), Arrival::BadContext, "{id:?} {before:?}");
    }
    assert_eq!(graph.arrive(id(0, 6), &[id(0, 5)], false, 0), Arrival::BeyondWindow);
    // Those that name each other wait, and are given up together.
    assert_eq!(graph.arrive(id(0, 2), &[id(1, 1), id(0, 1)], false, 0), Arrival::Waiting);
    assert_eq!(graph.arrive(id(1, 1), &[id(0, 2)], false, 0), Arrival::Waiting);
    assert_eq!(graph.waiting().flat_map(|id| graph.missing(id)).count(), 0);
    graph.give_up(id(0, 2));
    assert_eq!((graph.take_given_up(), graph.outstanding()), (2, (1, 0)));
    // A predecessor that precedes another is none.
    assert_eq!(graph.arrive(id(1, 1), &[id(0, 1)], false, 0), Arrival::Inserted);
    assert_eq!(graph.arrive(id(0, 2), &[id(0, 1), id(1, 1)], false, 0), Arrival::BadContext);
    assert_eq!(graph.arrive(id(0, 2), &[id(1, 1)], false, 0), Arrival::Inserted);
}

#[test]
fn the_window_is_what_others_do_not_hold() {
    let mut graph = Graph::new(3, 0, 4, 1);
    assert!((0..4).all(|_| graph.send(false, 0).is_some()));
    assert!(graph.send(false, 0).is_none() && graph.unheld() == 4);
    assert!(graph.note_leaves(1, &[id(0, 4)]) && !graph.has_room());
    assert!(!graph.note_leaves(2, &[id(0, 2), id(1, 1)]), "of the second nothing is known");
    assert!(!graph.has_room());
    assert!(graph.note_leaves(2, &[id(0, 2)]) && graph.unheld() == 2);
    assert!(graph.body(id(0, 2)).is_none() && graph.body(id(0, 3)).is_some());
    assert!(graph.send(false, 0).is_some() && graph.send(false, 0).is_some());
    assert!(!graph.has_room());
    graph.mask_out(2);
    assert_eq!(graph.unheld(), 2, "the other member holds four");
}

#[test]
fn nulls_are_context_and_no_upcall() {
    let mut graph = Graph::new(2, 1, 8, 1);
    graph.arrive(id(0, 1), &[], true, 0);
    graph.arrive(id(0, 2), &[id(0, 1)], false, 0);
    assert_eq!(drain(&mut graph), [id(0, 2)]);
    graph.arrive(id(0, 3), &[id(0, 2)], true, 0);
    assert_eq!(graph.begin(true, false, |_| Some(())).map(|begun| begun.0.is_null), Some(true));
}

/// Members of a random conversation, and the model.
struct Talk {
    graphs: Vec<Graph<u32>>,
    /// All that precedes a message, and itself.
    past: BTreeMap<Id, BTreeSet<Id>>,
    /// Messages that each member has had, in its order; its own messages as well.
    had: Vec<Vec<Id>>,
    /// Messages under way: receiver, message, predecessors.
    net: Vec<(usize, Id, Vec<Id>)>,
    window: u32,
}

/// One act of a random conversation; the numbers choose among what there is.
#[derive(Clone, Debug)]
enum Act {
    Send(usize),
    Deliver(usize),
    Lose(usize),
    Twice(usize),
    Begin(usize),
    Return(usize),
    Tell(usize, usize),
    Ask(usize),
}

impl Talk {
    fn new(members: usize, window: u32, upcalls: u32) -> Self {
        Self {
            graphs: (0..members).map(|me| Graph::new(members, me, window, upcalls)).collect(),
            past: BTreeMap::new(),
            had: vec![Vec::new(); members],
            net: Vec::new(),
            window,
        }
    }

    fn act(&mut self, act: &Act, running: &mut Vec<(usize, Id)>) {
        let n = self.graphs.len();
        match *act {
            Act::Send(me) => self.send(me % n),
            Act::Deliver(at) if !self.net.is_empty() => {
                let (to, id, before) = self.net.remove(at % self.net.len());
                let _ = self.graphs[to].arrive(id, &before, false, id.seq);
            }
            Act::Lose(at) if !self.net.is_empty() => drop(self.net.remove(at % self.net.len())),
            Act::Twice(at) if !self.net.is_empty() => {
                self.net.push(self.net[at % self.net.len()].clone());
            }
            Act::Begin(me) => {
                if let Some(begun) = up(&mut self.graphs[me % n]) {
                    self.heard(me % n, begun);
                    running.push((me % n, begun.id));
                }
            }
            Act::Return(at) if !running.is_empty() => {
                let (me, id) = running.remove(at % running.len());
                self.graphs[me].returned(id);
            }
            Act::Tell(from, to) if from % n != to % n => {
                let leaves = self.graphs[from % n].leaves().to_vec();
                self.graphs[to % n].note_leaves(from % n, &leaves);
            }
            Act::Ask(me) => self.ask(me % n),
            _ => {}
        }
        self.check();
    }

    fn send(&mut self, me: usize) {
        let view: BTreeSet<Id> = self.had[me].iter().copied().collect();
        let Some(sent) = self.graphs[me].send(false, 0) else {
            return;
        };
        let before = self.graphs[me].predecessors(sent.id).to_vec();
        let mut past: BTreeSet<Id> = before.iter().flat_map(|id| self.past[id].clone()).collect();
        assert_eq!(past, view, "the context of a message is the view of its sender");
        past.insert(sent.id);
        self.past.insert(sent.id, past);
        self.had[me].push(sent.id);
        let others = (0..self.graphs.len()).filter(|to| *to != me);
        self.net.extend(others.map(|to| (to, sent.id, before.clone())));
    }

    /// An upcall begins: all that precedes the message has had its own, and it has had none.
    fn heard(&mut self, me: usize, begun: Begun) {
        let had: BTreeSet<Id> = self.had[me].iter().copied().collect();
        let past = &self.past[&begun.id];
        assert!(past.iter().all(|id| *id == begun.id || had.contains(id)), "before predecessors");
        assert!(!had.contains(&begun.id), "twice");
        self.had[me].push(begun.id);
    }

    /// Asks for what is missing: the sender of the message that waits has it.
    fn ask(&mut self, me: usize) {
        let graph = &self.graphs[me];
        let of = |id: Id| graph.missing(id).map(move |missing| (id.sender, missing));
        let wanted: Vec<(u8, Id)> = graph.waiting().flat_map(of).collect();
        for (sender, id) in wanted {
            let there = &self.graphs[usize::from(sender)];
            assert!(there.body(id).is_some(), "what a member lacks is not thrown away: {id:?}");
            self.net.push((me, id, there.predecessors(id).to_vec()));
        }
    }

    /// All that holds at every moment.
    fn check(&self) {
        for (me, graph) in self.graphs.iter().enumerate() {
            for sender in 0..self.graphs.len() {
                let held = graph.held_by_all(sender);
                let in_views = |(at, had): (usize, &Vec<Id>)| {
                    at == sender || held == 0 || had.contains(&id(sender as u8, held))
                };
                assert!(self.had.iter().enumerate().all(in_views), "held, but in a view it is not");
                assert!(graph.last(sender) - held <= 2 * self.window);
            }
            assert!(graph.outstanding().0 + graph.outstanding().1 <= 64 * self.window as usize);
            let depth = |id: &Id| self.past[id].len() as u32;
            for one in graph.kept() {
                assert!(graph.depth(one).unwrap() < depth(&one), "{me}: {one:?}");
            }
        }
    }

    /// Lets everything arrive.
    fn calm(&mut self, running: &mut Vec<(usize, Id)>) {
        for _ in 0..200 {
            let is_told = |graph: &Graph<u32>| graph.unheld() == 0 && graph.outstanding() == (0, 0);
            if self.net.is_empty() && running.is_empty() && self.graphs.iter().all(is_told) {
                return;
            }
            for (me, id) in core::mem::take(running) {
                self.graphs[me].returned(id);
            }
            for (to, id, before) in core::mem::take(&mut self.net) {
                let _ = self.graphs[to].arrive(id, &before, false, id.seq);
            }
            let n = self.graphs.len();
            for me in 0..n {
                while let Some(begun) = up(&mut self.graphs[me]) {
                    self.heard(me, begun);
                    self.graphs[me].returned(begun.id);
                }
                self.ask(me);
                for to in (0..n).filter(|to| *to != me) {
                    self.tell_and_ask(me, to);
                }
            }
            self.check();
        }
    }

    /// A beacon: a member that lacks a leaf asks for it.
    fn tell_and_ask(&mut self, from: usize, to: usize) {
        let leaves = self.graphs[from].leaves().to_vec();
        if self.graphs[to].note_leaves(from, &leaves) {
            return;
        }
        for leaf in leaves.into_iter().filter(|leaf| self.graphs[to].may_exist(*leaf)) {
            if !self.graphs[to].has(leaf) && self.graphs[from].body(leaf).is_some() {
                let before = self.graphs[from].predecessors(leaf).to_vec();
                self.net.push((to, leaf, before));
            }
        }
    }
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => any::<usize>().prop_map(Act::Send),
        6 => any::<usize>().prop_map(Act::Deliver),
        2 => any::<usize>().prop_map(Act::Lose),
        1 => any::<usize>().prop_map(Act::Twice),
        5 => any::<usize>().prop_map(Act::Begin),
        5 => any::<usize>().prop_map(Act::Return),
        2 => any::<(usize, usize)>().prop_map(|(from, to)| Act::Tell(from, to)),
        1 => any::<usize>().prop_map(Act::Ask),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn random_conversations_agree(
        members in 2_usize..9,
        window in 1_u32..9,
        upcalls in 1_u32..4,
        acts in prop::collection::vec(act(), 0..300),
    ) {
        let mut talk = Talk::new(members, window, upcalls);
        let mut running = Vec::new();
        acts.iter().for_each(|act| talk.act(act, &mut running));
        talk.calm(&mut running);
        let all: BTreeSet<Id> = talk.past.keys().copied().collect();
        for (me, graph) in talk.graphs.iter().enumerate() {
            let had: BTreeSet<Id> = talk.had[me].iter().copied().collect();
            prop_assert_eq!(&had, &all, "member {} has not had all", me);
            for one in graph.kept() {
                for other in graph.kept().filter(|other| *other != one) {
                    let expected = match (talk.past[&other].contains(&one), talk.past[&one].contains(&other)) {
                        (true, _) => Order::Before,
                        (_, true) => Order::After,
                        _ => Order::Concurrent,
                    };
                    prop_assert_eq!(graph.order(one, other), expected);
                }
            }
            prop_assert_eq!(graph.unheld(), 0, "{}", format!("member {me}"));
        }
    }
}

/// A member that leaves holds up the others until its last message is in their view, and no longer.
#[test]
fn a_member_that_has_left_is_waited_for_no_longer() {
    let mut graph = Graph::new(3, 0, 4, 1);
    assert!((0..4).all(|_| graph.send(false, 0).is_some()));
    let leaves = graph.leaves().to_vec();
    graph.note_leaves(1, &leaves);
    assert!(graph.send(false, 0).is_none(), "member 2 holds none of these");
    graph.arrive(id(2, 1), &[], true, 0);
    graph.end_with(id(2, 1));
    assert!(!graph.has_left(2) && !graph.is_masked(2) && graph.send(false, 0).is_none());
    // What says so need not go up.
    assert_eq!(up(&mut graph), None);
    assert!(graph.has_left(2) && graph.is_masked(2) && graph.send(false, 0).is_some());
    // No more comes of it.
    assert_eq!(graph.arrive(id(2, 2), &[id(2, 1)], false, 0), Arrival::BeyondWindow);
}

#[test]
fn the_last_message_goes_up_where_it_is_asked_for() {
    let mut graph = Graph::new(2, 0, 4, 1);
    graph.arrive(id(1, 1), &[], true, 0);
    graph.arrive(id(1, 2), &[id(1, 1)], true, 0);
    graph.end_with(id(1, 2));
    let last = graph.begin(false, true, |_| Some(())).map(|begun| begun.0.id);
    assert_eq!((last, graph.is_masked(1)), (Some(id(1, 2)), true));
}

#[test]
fn a_message_without_room_comes_up_later() {
    let mut graph = Graph::new(2, 0, 4, 1);
    graph.arrive(id(1, 1), &[], false, 7);
    assert_eq!(graph.begin(false, false, |_| None::<u32>), None);
    assert_eq!((graph.leaves(), graph.seen(1), graph.has_next()), (&[][..], 0, true));
    assert_eq!(graph.begin(false, false, |body| Some(*body)).map(|(_, body)| body), Some(7));
}
