//! Members that lose their state and come back.

use super::*;
use xk_kit::group::{CONVERSATION, MaskIn, TakeMembers};

impl Net {
    /// The member's host is started again, and knows nothing.
    fn crash(&mut self, at: usize, starts: u64, parameters: &[(&'static str, i64)]) {
        let now = self.members[at].cx.now();
        self.incarnations[at] += 1;
        self.members[at] = Member::started(at, starts, parameters);
        self.members[at].cx.advance(now.since(xk_core::Time::ZERO));
    }

    fn number(&self, at: usize) -> u32 {
        self.ask(at, MyMember::default()).conversation
    }

    /// The member opens its way back; the list may begin anywhere.
    fn open_again(&mut self, at: usize, number: u32) {
        let own = if at == 0 { 1 } else { NUMBER };
        let local = process(own).with(Part::Number(CONVERSATION, number.into()));
        let others = (0..self.members.len()).rev().filter(|other| *other != at);
        let number = |other: usize| Part::Number(PROCESS, if other == 0 { 1 } else { NUMBER });
        let peers = others.map(|other| Participant::of(host(other)).with(number(other)));
        let (cx, layer) = (&self.members[at].cx, &self.members[at].layer);
        let ends = Participants::among(local, peers);
        self.sessions[at] = self.members[at].top.open(cx, layer, ends).unwrap();
        cx.advance(Duration::ZERO);
    }

    /// The test decides which members are counted.
    fn decides(&self, at: usize) {
        let TakeMembers = self.ask(at, TakeMembers);
    }

    fn is_back(&self, at: usize) -> bool {
        let my = self.sessions[at].ask(&self.members[at].cx, MyMember::default());
        my.is_some_and(|my| my.incarnation == self.incarnations[at])
    }

    /// Takes the session that was made last, if there is one. Before, an old packet may have made
    /// the host a member that knows nothing.
    fn adopt(&mut self, at: usize) {
        for (session, _) in self.members[at].top.take_opened() {
            session.hold();
            self.sessions[at] = session;
        }
    }

    fn state(&self, at: usize, index: usize) -> MemberState {
        self.ask(at, MemberState { index: index as u8, ..MemberState::default() })
    }

    /// Sends a null, and says which it is.
    fn null(&self, at: usize) -> Option<NodeId> {
        self.sessions[at].ask(&self.members[at].cx, SendNull)?;
        Some(NodeId { sender: at as u8, seq: self.state(at, at).last })
    }

    fn past(&self, at: usize, id: NodeId) -> Option<Vec<u32>> {
        let place = PlaceOf { id, wants_past: true, ..PlaceOf::default() };
        self.sessions[at].ask(&self.members[at].cx, place).map(|place| place.past)
    }

    fn mask_in(&self, at: usize, index: usize, start: u64, base: Vec<u32>) -> bool {
        let incarnation = self.state(at, index).incarnation + 1;
        let question = MaskIn { index: index as u8, incarnation, start, base };
        self.sessions[at].ask(&self.members[at].cx, question).is_some()
    }
}

/// Agreement of the others on a member's end and return, as a layer above reaches it: each masks it
/// out and says so, then keeps messages for it and says so, and lets it in once all have.
struct Agreement {
    of: usize,
    start: u64,
    /// Steps that each member has done, and its two messages about it.
    stages: Vec<(u8, [Option<NodeId>; 2])>,
    base: Option<Vec<u32>>,
}

impl Agreement {
    fn new(n: usize, of: usize) -> Self {
        Self { of, start: 0, stages: vec![(0, [None; 2]); n], base: None }
    }

    /// Lets one member do its next step, if it can.
    fn step(&mut self, net: &Net, at: usize) {
        let others = || (0..net.members.len()).filter(|other| *other != self.of);
        let said = |n: usize| others().map(|other| self.stages[other].1[n]).collect::<Option<_>>();
        let pasts = |n: usize| -> Option<Vec<Vec<u32>>> {
            let all: Vec<NodeId> = said(n)?;
            let has_all = all.iter().all(|id| {
                id.sender as usize == at || net.state(at, id.sender.into()).last >= id.seq
            });
            // The first are only seen.
            has_all.then(|| {
                all[..if n == 0 { 0 } else { all.len() }]
                    .iter()
                    .map(|id| net.past(at, *id))
                    .collect()
            })?
        };
        let (stage, _) = self.stages[at];
        match stage {
            0 => {
                net.ask(at, MaskOut { index: self.of as u8, last: 0 });
                self.stages[at].0 = 1;
            }
            1 | 4 => {
                if let Some(id) = net.null(at) {
                    self.stages[at].1[usize::from(stage / 4)] = Some(id);
                    self.stages[at].0 += 1;
                }
            }
            2 if pasts(0).is_some() => {
                let asks = net.state(at, self.of).asks;
                self.start = if self.start == 0 { asks } else { self.start };
                self.stages[at].0 += u8::from(self.start != 0);
            }
            3 => {
                assert!(net.mask_in(at, self.of, self.start, vec![]));
                self.stages[at].0 = 4;
            }
            5 => {
                if let Some(pasts) = pasts(1) {
                    let greatest = |s: usize| pasts.iter().map(|past| past[s]).max().unwrap();
                    let base: Vec<u32> = (0..net.members.len()).map(greatest).collect();
                    let known = self.base.get_or_insert_with(|| base.clone());
                    assert_eq!(*known, base, "all let it in on one base");
                    // Once all of it is in the view.
                    self.stages[at].0 += u8::from(net.mask_in(at, self.of, self.start, base));
                }
            }
            _ => {}
        }
    }

    fn is_over(&self) -> bool {
        self.stages.iter().enumerate().all(|(at, (stage, _))| at == self.of || *stage == 6)
    }

    /// Goes through all of it, with packets that are not lost.
    fn reach(net: &Net, of: usize) -> Vec<u32> {
        let mut agreement = Self::new(net.members.len(), of);
        for _ in 0..200 {
            let others = (0..net.members.len()).filter(|at| *at != of);
            others.for_each(|at| agreement.step(net, at));
            net.carry(|_| true);
            net.advance(20 * MS);
            if agreement.is_over() {
                return agreement.base.unwrap();
            }
        }
        panic!("no agreement: {:?}", agreement.stages);
    }
}

/// A conversation of four in which one member has crashed; all take part in the decision.
fn lost(at: usize) -> (Net, u32) {
    let mut net = Net::new(4, &[]);
    (0..4).for_each(|at| net.decides(at));
    for round in 0..3 {
        (0..4).for_each(|at| net.push(at, &format!("{round}")).unwrap());
        net.carry(|_| true);
    }
    (0..4).for_each(|at| drop(net.texts(at)));
    let number = net.number((at + 1) % 4);
    net.crash(at, 2, &[]);
    (net, number)
}

#[test]
fn a_member_that_has_crashed_comes_back_by_an_open() {
    for at in 0..4 {
        let (mut net, number) = lost(at);
        net.open_again(at, number);
        assert!(!net.is_back(at), "it waits");
        let other = (at + 1) % 4;
        net.carry(|_| true);
        net.advance(100 * MS);
        net.carry(|_| true);
        assert_ne!(net.state(other, at).asks, 0, "the others know that it asks");
        // The others go on meanwhile.
        net.push(other, "meanwhile").unwrap();
        let base = Agreement::reach(&net, at);
        net.push(other, "then").unwrap();
        net.calm();
        assert!(net.is_back(at));
        let my = net.ask(at, MyMember::default());
        assert_eq!((my.index, my.incarnation, my.members), (at as u8, 2, 4));
        assert_eq!(net.state(at, at).last, base[at]);
        let texts = net.texts(at);
        assert_eq!(texts.last().map(String::as_str), Some("then"));
        net.push(at, "here again").unwrap();
        net.calm();
        for other in (0..4).filter(|other| *other != at) {
            let heard = net.members[other].heard();
            let (node, text) = heard.last().unwrap();
            assert_eq!((node.incarnation, node.id.seq), (2, base[at] + 1));
            assert_eq!(text, b"here again");
            assert_eq!(net.state(other, at).asks, 0);
        }
        let depths: BTreeSet<u32> = (0..4).map(|one| net.state(one, at).depth).collect();
        assert_eq!(depths.len(), 1, "a depth is the same everywhere: {depths:?}");
    }
}

/// A host whose process is enabled comes back when it hears of a conversation that it has lost.
#[test]
fn a_member_that_has_crashed_is_brought_back_by_what_it_hears() {
    let (mut net, _) = lost(2);
    net.push(0, "x").unwrap();
    net.carry(|_| true);
    assert_ne!(net.state(0, 2).asks, 0);
    Agreement::reach(&net, 2);
    net.carry(|_| true);
    net.push(0, "y").unwrap();
    net.carry(|_| true);
    net.sessions[2] = net.members[2].opened();
    net.calm();
    assert_eq!(net.texts(2).last().map(String::as_str), Some("y"));
    assert_eq!(net.ask(2, MyMember::default()).incarnation, 2);
}

/// One that is masked out gets asides alone.
#[test]
fn a_member_that_has_crashed_asks_by_an_aside_as_well() {
    let (net, _) = lost(2);
    net.ask(0, MaskOut { index: 2, last: 0 });
    let mut aside = net.members[0].cx.message(b"aside");
    aside.set_attribute(Aside { member: 2 }).unwrap();
    net.sessions[0].push(&net.members[0].cx, aside).unwrap();
    net.carry(|_| true);
    assert_ne!(net.state(0, 2).asks, 0);
}

/// Packets of another member, at the same time, are no reason not to ask one.
#[test]
fn a_member_that_has_crashed_asks_all_that_it_hears() {
    let (net, _) = lost(2);
    [0, 1, 3].iter().for_each(|at| net.push(*at, "x").unwrap());
    net.carry(|_| true);
    [0, 1, 3].iter().for_each(|at| assert_ne!(net.state(*at, 2).asks, 0, "{at}"));
}

#[test]
fn of_two_one_lets_the_other_in_and_loses_nothing() {
    let mut net = Net::new(2, &[("window", 4)]);
    net.push(0, "heard").unwrap();
    net.calm();
    (0..3).for_each(|n| net.push(0, &format!("{n}")).unwrap());
    net.carry(|_| false);
    net.crash(1, 2, &[("window", 4)]);
    net.advance(500 * MS);
    net.carry(|_| true);
    net.sessions[1] = net.members[1].opened();
    net.calm();
    assert_eq!(net.texts(1), ["0", "1", "2"]);
    net.push(1, "back").unwrap();
    net.calm();
    assert_eq!(net.texts(0), ["back"]);
    // One that is lost again and again is let in at a pace.
    for starts in 3..20 {
        net.crash(1, starts, &[("window", 4)]);
        let _ = net.push(0, "x");
        net.carry(|_| true);
        net.advance(20 * MS);
        net.carry(|_| true);
    }
    assert!(net.state(0, 1).incarnation <= 4, "{}", net.state(0, 1).incarnation);
}

#[test]
fn what_is_closed_is_not_come_back_into() {
    let net = Net::new(2, &[]);
    net.sessions[1].close(&net.members[1].cx);
    net.push(0, "x").unwrap();
    net.carry(|_| true);
    net.advance(Duration::from_secs(10));
    net.carry(|_| true);
    assert_eq!(net.members[1].top.take_opened().len(), 0);
    assert!(net.members[1].drops("closed") > 0);
}

/// Packets that say that a member has started again, from another or from nowhere.
#[test]
fn forged_starts_do_no_harm() {
    let net = Net::new(3, &[]);
    let header = |kind, length: usize| Header {
        version: 1,
        kind,
        flags: 0,
        entries: 0,
        conversation: net.number(0),
        sender: 0,
        incarnation: 0,
        seq: 0,
        length: length as u32,
    };
    let asking = |start: u64, cookie: u64| {
        let body = xk_psync::wire::Asking { start, cookie, first: 0 }.emit();
        [&header(kind::RESTART, body.len()).emit()[..], &body].concat()
    };
    assert!(!net.members[0].arrive(9, &asking(1, 1)), "a stranger");
    for n in 0..1000 {
        net.members[0].arrive(1, &asking(n, n));
    }
    let answers = net.sent();
    assert!(answers.len() <= 32, "{}", answers.len());
    assert_eq!(net.state(0, 1).asks, 0, "without the cookie it is nothing");
    // The live one hears of it, and shows that it lives.
    net.arrive(&answers[0]);
    assert_eq!(net.members[1].drops("another starts as this"), 1);
    let cookie = xk_psync::wire::Let::parse(answers[0].octets[20..40].try_into().unwrap()).cookie;
    net.members[0].cx.advance(100 * MS);
    net.members[0].arrive(1, &asking(7, cookie));
    assert_eq!(net.state(0, 1).asks, 7);
    net.carry(|_| true);
    assert_eq!(net.state(0, 1).asks, 0, "it lives");
    net.members[0].arrive(1, &asking(7, cookie));
    assert_eq!(net.state(0, 1).asks, 0, "what is sent again has an old cookie");
    assert!(!net.mask_in(0, 1, 7, vec![0; 3]), "one that is counted is not let in");
    for octets in [vec![], vec![0; 17], vec![0xff; 40]] {
        for kind in [kind::RESTART, kind::RESTART_ACK] {
            let forged = [&header(kind, octets.len()).emit()[..], &octets].concat();
            assert!(!net.members[0].arrive(1, &forged));
        }
    }
    net.push(1, "as ever").unwrap();
    net.calm();
    assert_eq!(net.texts(0), ["as ever"]);
}

/// One that is told that it has lost messages ends, to come back: two must say so, or the sender.
#[test]
fn one_member_alone_does_not_say_what_another_has_lost() {
    let net = Net::new(4, &[]);
    net.push(3, "x").unwrap();
    net.calm();
    let number = net.number(0);
    let held_at = |to: usize, from: u16, sender: u16, seq: u32| {
        let header = Header {
            version: 1,
            kind: kind::LEAVES,
            flags: xk_psync::wire::HELD,
            entries: 1,
            conversation: number,
            sender: from,
            incarnation: 1,
            seq: 0,
            length: 0,
        };
        let entry = xk_psync::wire::Entry { sender, incarnation: 1, seq };
        net.members[to].arrive(from.into(), &[&header.emit()[..], &entry.emit()].concat())
    };
    let held = |from, sender, seq| held_at(0, from, sender, seq);
    assert!(held(1, 3, 1), "that one it has");
    for seq in 2..20 {
        held(1, 3, seq);
        held(1, 2, seq);
        held(1, 0, seq);
    }
    assert!(!net.sessions[0].head().is_closed(), "one member alone");
    // It says something else, and then another says that this one lacks a message.
    held(1, 3, 1);
    held(2, 3, 2);
    assert!(!net.sessions[0].head().is_closed(), "each was alone");
    net.push(0, "y").unwrap();
    net.calm();
    held(1, 3, 2);
    assert!(net.sessions[0].head().is_closed(), "both say so");
    held_at(1, 3, 3, 9);
    assert!(net.sessions[1].head().is_closed(), "one is believed of its own messages");
}

/// A base is only believed if it can be one; a host that says nonsense is passed over.
#[test]
fn a_base_that_lies_is_refused() {
    let (mut net, number) = lost(3);
    net.open_again(3, number);
    net.carry(|_| true);
    let mut told = Vec::new();
    let mut agreement = Agreement::new(4, 3);
    for _ in 0..100 {
        (0..3).for_each(|at| agreement.step(&net, at));
        let sent = net.sent();
        let is_base = |p: &&Packet| p.octets[1] == kind::RESTART_ACK && p.octets[2] != 0;
        told.extend(sent.iter().filter(is_base).cloned());
        sent.iter().filter(|packet| !is_base(packet)).for_each(|packet| net.arrive(packet));
        net.advance(20 * MS);
    }
    assert!(agreement.is_over() && told.len() > 3 && !net.is_back(3));
    let random = Random::new(3);
    for _ in 0..2000 {
        let mut packet = told[random.below(told.len() as u64) as usize].clone();
        for _ in 0..=random.below(3) {
            let at = random.below(packet.octets.len() as u64) as usize;
            // Not the number of the start, nor the window and the members, which may be others.
            packet.octets[at] = random.next_u64() as u8;
        }
        let cut = random.below(packet.octets.len() as u64) as usize;
        packet.octets.truncate(if random.chance(0.2) { cut } else { usize::MAX });
        net.arrive(&packet);
        if net.is_back(3) {
            // What was changed is such that no member can see it.
            let (mut other, number) = lost(3);
            other.open_again(3, number);
            break;
        }
    }
}

/// Pages of a large base come one after the other.
#[test]
fn a_large_base_comes_in_parts() {
    let parameters = &[("window", 256), ("max-packet", 1300)];
    let mut net = Net::new(3, parameters);
    for n in 0..1000 {
        net.push(n % 3, "x").unwrap();
        if n % 50 == 0 {
            net.carry(|_| true);
        }
    }
    net.calm();
    come_back(&mut net, parameters);
}

/// The second member crashes, and comes back by an open.
fn come_back(net: &mut Net, parameters: &[(&'static str, i64)]) {
    let number = net.number(0);
    net.crash(1, 2, parameters);
    net.open_again(1, number);
    net.carry(|_| true);
    Agreement::reach(net, 1);
    net.calm();
    assert!(net.is_back(1));
}

#[test]
fn a_member_comes_back_into_a_group() {
    let parameters = &[("group", 1)];
    let mut net = Net::new(3, parameters);
    (0..3).for_each(|at| net.push(at, "before").unwrap());
    net.calm();
    come_back(&mut net, parameters);
    (0..3).for_each(|at| drop(net.texts(at)));
    for (from, text) in [(1, "back"), (0, "heard")] {
        net.push(from, text).unwrap();
        let sent = net.sent();
        assert!(sent.len() == 2 && sent.iter().all(|packet| packet.by_group), "of {from}");
        sent.iter().for_each(|packet| net.arrive(packet));
        assert_eq!((net.texts(1 - from), net.texts(2)), (vec![text.into()], vec![text.into()]));
    }
    net.calm();
}

/// A random conversation in which members crash and come back, with packets lost, repeated and
/// late: what comes up keeps the laws, before and after.
fn converse_and_return(seed: u64) {
    let random = Random::new(seed);
    let n = 2 + random.below(6) as usize;
    let window = 4 + random.below(13) as i64;
    let loss = random.below(300_000) as u32;
    let parameters = [("window", window), ("upcalls", 1 + random.below(3) as i64)];
    let mut net = Net::new(n, &parameters);
    (0..n).for_each(|at| net.decides(at));
    let number = net.number(0);
    let mut under_way: Vec<Packet> = Vec::new();
    let mut laws = Laws::new(n);
    let mut starts = vec![1_u64; n];
    let mut agreement: Option<Agreement> = None;
    let mut is_silent = false;
    for round in 0..1200 {
        let (at, is_calm) = (random.below(n as u64) as usize, round > 900);
        if agreement.is_none() && random.chance(0.01) && round < 700 {
            // It crashes, at a time and with what is under way as it happens.
            starts[at] += 1;
            net.crash(at, starts[at], &parameters);
            is_silent = random.chance(0.5);
            if is_silent || at == 0 {
                net.open_again(at, number);
            }
            laws.crashed(at);
            agreement = Some(Agreement::new(n, at));
        }
        if let Some(agreed) = &mut agreement {
            let of = agreed.of;
            if at != of {
                agreed.step(&net, at);
            }
            if net.is_back(of) && agreed.is_over() {
                net.decides(of);
                laws.returned(of, agreed.base.take().unwrap());
                agreement = None;
            }
        }
        let is_away = agreement.as_ref().is_some_and(|agreed| agreed.of == at);
        if !is_away && random.chance(0.3) && (!is_calm || agreement.is_some()) {
            laws.push(&net, at, window);
        }
        for packet in net.sent() {
            if random.chance_per_million(loss) && !is_calm {
                continue;
            }
            if random.chance(0.1) {
                under_way.push(packet.clone());
            }
            under_way.push(packet);
        }
        for _ in 0..random.below(6) {
            if !under_way.is_empty() {
                let packet = under_way.swap_remove(random.below(under_way.len() as u64) as usize);
                net.arrive(&packet);
            }
        }
        if is_calm {
            under_way.drain(..).for_each(|packet| net.arrive(&packet));
            net.advance(20 * MS);
        } else if random.chance(0.2) {
            net.advance(Duration::from_millis(random.below(30)));
        }
        if let Some(agreed) = &agreement {
            net.adopt(agreed.of);
        }
        laws.note(&net, agreement.as_ref(), seed);
    }
    let left = agreement.map(|agreed| (agreed.of, agreed.stages, agreed.start, is_silent));
    assert_eq!(left, None, "seed {seed}: none is away at the end");
    net.calm();
    laws.note(&net, None, seed);
    laws.finish(seed);
}

/// Knowledge of a judge that sees all.
struct Laws {
    /// Messages that each member has heard, or does not have to.
    heard: Vec<BTreeSet<NodeId>>,
    base: Vec<Vec<u32>>,
    causes: BTreeMap<NodeId, BTreeSet<NodeId>>,
    depths: BTreeMap<NodeId, u32>,
    texts: BTreeMap<NodeId, String>,
    /// Heard by a member that is away, whose base is not known yet.
    early: Vec<(Node, Vec<u8>)>,
    /// The member that came back last.
    returns: Option<usize>,
}

impl Laws {
    fn new(n: usize) -> Self {
        Self {
            heard: vec![BTreeSet::new(); n],
            base: vec![vec![0; n]; n],
            causes: BTreeMap::new(),
            depths: BTreeMap::new(),
            texts: BTreeMap::new(),
            early: Vec::new(),
            returns: None,
        }
    }

    fn push(&mut self, net: &Net, at: usize, window: i64) {
        if i64::from(net.ask(at, Outstanding::default()).unheld) >= window {
            return;
        }
        let seq = net.state(at, at).last + 1;
        let id = NodeId { sender: at as u8, seq };
        let own = (1..seq).map(|seq| NodeId { sender: at as u8, seq });
        let own = own.filter(|id| self.texts.contains_key(id));
        self.causes.insert(id, self.heard[at].iter().copied().chain(own).collect());
        let text = format!("{id:?} of {}", net.state(at, at).incarnation);
        net.push(at, &text).unwrap();
        self.texts.insert(id, text);
    }

    fn crashed(&mut self, at: usize) {
        (self.early, self.returns) = (Vec::new(), None);
        self.heard[at].clear();
    }

    fn returned(&mut self, at: usize, base: Vec<u32>) {
        // What it had sent, and no other has, is void.
        let is_void = |id: &NodeId| usize::from(id.sender) == at && id.seq > base[at];
        self.texts.retain(|id, _| !is_void(id));
        self.causes.retain(|id, _| !is_void(id));
        (self.base[at], self.returns) = (base, Some(at));
        self.heard[at].clear();
    }

    fn has(&self, at: usize, id: NodeId) -> bool {
        usize::from(id.sender) == at
            || self.base[at][usize::from(id.sender)] >= id.seq
            || self.heard[at].contains(&id)
    }

    fn note(&mut self, net: &Net, away: Option<&Agreement>, seed: u64) {
        for at in 0..net.members.len() {
            if away.is_some_and(|agreed| agreed.of == at) {
                let all = net.members[at].top.take_received();
                let all = all.iter().filter(|r| r.session == net.sessions[at]);
                let all = all.map(|r| (r.message.attribute().unwrap(), octets(&r.message)));
                self.early.retain(|_| net.is_back(at));
                self.early.extend(all);
                continue;
            }
            let heard = net.members[at].heard();
            let is_back = away.is_none() && self.returns == Some(at);
            let early = if is_back { core::mem::take(&mut self.early) } else { Vec::new() };
            for (node, octets) in early.into_iter().chain(heard) {
                let id = node.id;
                assert_eq!(self.texts[&id].as_bytes(), octets, "seed {seed}: {id:?} at {at}");
                let missing: Vec<_> =
                    self.causes[&id].iter().filter(|id| !self.has(at, **id)).collect();
                assert!(missing.is_empty(), "seed {seed}: {id:?} at {at} before {missing:?}");
                assert!(!self.has(at, id), "seed {seed}: {id:?} twice at {at}");
                let depth = self.depths.entry(id).or_insert(node.depth);
                assert_eq!(*depth, node.depth, "seed {seed}: depth of {id:?} at {at}");
                self.heard[at].insert(id);
            }
        }
    }

    fn finish(&self, seed: u64) {
        for at in 0..self.heard.len() {
            let missed: Vec<_> = self.texts.keys().filter(|id| !self.has(at, **id)).collect();
            assert!(missed.is_empty(), "seed {seed}: {at} has not heard {missed:?}");
        }
    }
}

#[test]
fn random_conversations_keep_the_order_across_returns() {
    xk_testkit::seeds::of(1).behind(&[370, 2612, 28_438]).run(converse_and_return);
}
