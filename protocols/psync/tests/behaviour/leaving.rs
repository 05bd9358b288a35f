//! Members that leave by a last message.

use super::*;
use xk_kit::group::{Leave, TakeViews, ViewChange};
use xk_psync::wire::LAST;

impl Net {
    fn leave(&self, at: usize) -> bool {
        self.ask(at, Leave::default()).is_sent
    }

    /// Closes the session of a member that need not stay; false if it has to.
    fn close(&self, at: usize) -> bool {
        let may_go = self.ask(at, Outstanding::default()).unheld == 0;
        if may_go {
            self.sessions[at].close(&self.members[at].cx);
        }
        may_go
    }
}

/// Time that a member takes to leave at most, with a fifth of all packets lost: what it asks every
/// 200 ms has the others ask for what they lack. The longest of 3,000 took 2.9 s.
const LEAVE_MAX: Duration = Duration::from_secs(6);

/// Members talk and leave as chance has it, all but perhaps some of them; those whose sessions are
/// closed answer, or are silent.
fn talk_and_leave(seed: u64) {
    let random = Random::new(seed);
    let n = 2 + random.below(8) as usize;
    let window = 2 + random.below(15) as i64;
    let is_silent = random.chance(0.5);
    let net = Net::new(n, &[("window", window), ("upcalls", 1 + random.below(3) as i64)]);
    (0..n).for_each(|at| {
        net.ask(at, TakeViews);
    });
    let staying = random.below(n as u64) as usize;
    let (mut sent, mut left) = (vec![0_u32; n], vec![None; n]);
    let mut closed = vec![false; n];
    let mut heard: Vec<Vec<NodeId>> = vec![Vec::new(); n];
    let mut gone: Vec<BTreeMap<u8, u32>> = vec![BTreeMap::new(); n];
    let (mut under_way, mut now): (Vec<Packet>, Duration) = (Vec::new(), Duration::ZERO);
    // Some leave all at one time.
    let at_once = random.chance(0.3);
    while now < Duration::from_secs(60) {
        for at in 0..n {
            if closed[at] {
                continue;
            }
            let unheld = net.ask(at, Outstanding::default()).unheld;
            if left[at].is_none()
                && sent[at] < 20
                && random.chance(0.3)
                && i64::from(unheld) < window
            {
                sent[at] += 1;
                net.push(at, "x").unwrap();
            }
            let is_time = if at_once { now > 500 * MS } else { random.chance(0.02) };
            if at >= staying && left[at].is_none() && is_time && net.leave(at) {
                left[at] = Some(now);
                assert_eq!(net.push(at, "late"), Err(PushError::Closed));
            }
            closed[at] = left[at].is_some() && net.close(at);
            assert!(
                left[at].is_none_or(|since| now - since < LEAVE_MAX),
                "seed {seed}: {at} of {n}"
            );
        }
        for packet in net.sent() {
            if random.chance(0.8) {
                under_way.push(packet);
            }
        }
        for packet in core::mem::take(&mut under_way) {
            match random.chance(0.7) {
                true if is_silent && closed[packet.to] => {}
                true => net.arrive(&packet),
                false => under_way.push(packet),
            }
        }
        net.advance(10 * MS);
        now += 10 * MS;
        for (at, member) in net.members.iter().enumerate() {
            for one in member.top.take_received() {
                let node: Node = one.message.attribute().unwrap();
                match one.message.attribute::<ViewChange>() {
                    Some(change) => {
                        assert_eq!(change.member, Some(node.id.sender));
                        assert_eq!(change.members >> node.id.sender & 1, 0);
                        let before = gone[at].insert(node.id.sender, node.id.seq);
                        assert_eq!(before, None, "seed {seed}: twice");
                    }
                    None => heard[at].push(node.id),
                }
            }
        }
        if now > 3000 * MS && (staying..n).all(|at| closed[at]) && is_over(&net, staying) {
            break;
        }
    }
    assert!((staying..n).all(|at| closed[at]), "seed {seed}: all have left: {closed:?}");
    for at in 0..staying {
        let others = (0..n).filter(|other| *other != at);
        let all: u32 = others.map(|other| sent[other]).sum();
        assert_eq!(heard[at].len() as u32, all, "seed {seed}: {at} of {n} has heard all");
        let last = (staying..n).map(|other| (other as u8, sent[other] + 1));
        assert!(gone[at].clone().into_iter().eq(last), "seed {seed}: {:?}", gone[at]);
    }
}

fn is_over(net: &Net, staying: usize) -> bool {
    (0..staying).all(|at| net.ask(at, Outstanding::default()) == Outstanding::default())
}

#[test]
fn every_leave_ends_and_loses_nothing() {
    xk_testkit::seeds::of(1).run(talk_and_leave);
}

#[test]
fn without_loss_a_leave_takes_one_acknowledgement() {
    let net = Net::new(3, &[]);
    net.push(1, "last words").unwrap();
    assert!(net.leave(1) && net.leave(1), "it is sent once");
    assert!(!net.close(1));
    net.carry(|_| true);
    assert_eq!(
        (net.texts(0), net.texts(2)),
        (vec!["last words".into()], vec!["last words".into()])
    );
    net.advance(40 * MS);
    net.carry(|_| true);
    assert!(net.close(1));
    // The others wait for it no longer, and the packets that it might get are answered.
    net.push(0, "alone").unwrap();
    assert!(
        net.sent()
            .iter()
            .all(|packet| Header::parse(packet.octets.first_chunk().unwrap()).kind == kind::DATA)
    );
    net.advance(3000 * MS);
    assert!(net.members[0].top.take_opened().is_empty());
}

#[test]
fn two_that_leave_at_once_need_no_time() {
    let net = Net::new(2, &[]);
    assert!(net.leave(0) && net.leave(1));
    net.carry(|_| true);
    net.advance(40 * MS);
    net.carry(|_| true);
    assert!(net.close(0) && net.close(1));
}

/// One has gone, and what it has said to the other was lost: the other waits two seconds at most.
#[test]
fn a_member_that_leaves_does_not_wait_for_one_that_has_gone() {
    let net = Net::new(2, &[]);
    assert!(net.leave(0) && net.leave(1));
    // The first has the last message of the second, which lacks that of the first.
    net.carry(|packet| packet.to == 0);
    let mut waited = Duration::ZERO;
    while !net.close(0) {
        net.advance(10 * MS);
        waited += 10 * MS;
        net.carry(|packet| packet.to == 0 && packet.from == 9);
    }
    assert!((1900 * MS..2300 * MS).contains(&waited), "{waited:?}");
    // The second asks, and the first, whose host is there, answers.
    net.advance(500 * MS);
    net.carry(|_| true);
    assert!(net.close(1));
}

/// The opener calls one that is not there ever more seldom; once it leaves it has little time.
#[test]
fn a_member_that_leaves_calls_soon_those_that_have_not_answered() {
    let members: Vec<Member> = (0..2).map(|at| Member::new(at, &[])).collect();
    let sessions = vec![members[0].open(&[1]).unwrap()];
    let net = Net { members, sessions, incarnations: vec![1; 2], frames: Cell::new(0) };
    for _ in 0..600 {
        net.advance(100 * MS);
        drop(net.sent());
    }
    assert!(net.leave(0));
    drop(net.sent());
    for _ in 0..20 {
        net.advance(100 * MS);
        net.carry(|_| true);
    }
    assert_eq!(net.ask(0, Outstanding::default()), Outstanding::default(), "it may go");
}

/// A member cannot say for another that it leaves.
#[test]
fn a_forged_last_message_is_none() {
    let net = Net::new(3, &[]);
    net.push(1, "x").unwrap();
    let data = net.sent().remove(0);
    let mut forged = data.clone();
    forged.octets[2] |= LAST;
    net.arrive(&forged);
    assert_eq!(net.members[forged.to].drops("malformed"), 1, "one with octets is no last one");
    net.arrive(&data);
    net.calm();
    net.push(1, "y").unwrap();
    net.calm();
}
