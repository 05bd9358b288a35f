use super::*;
use std::vec::Vec;
use xk_core::random::Random;

/// Turn of an invocation.
#[derive(Debug, PartialEq)]
enum Turn {
    Now,
    Later,
    Far,
}

/// A receiver of invocations: those that it has queued, in their order.
struct Queue {
    orders: Orders<u32>,
    queued: Vec<(Process, u32)>,
}

impl Queue {
    fn arrive(&mut self, process: Process, order: u32) -> Turn {
        match self.orders.arrive(process, order, order) {
            Ok(Some(order)) => {
                let mut next = Some(order);
                while let Some(order) = next {
                    self.queued.push((process, order));
                    next = self.orders.done(process, order);
                }
                Turn::Now
            }
            Ok(None) => Turn::Later,
            Err(_) => Turn::Far,
        }
    }
}

fn queue() -> Queue {
    Queue { orders: Orders::default(), queued: Vec::new() }
}

#[test]
fn processes_are_queued_each_in_its_order_however_they_arrive() {
    xk_testkit::seeds::of(1).run(|seed| {
        let (random, mut queue) = (Random::new(seed), queue());
        let processes = 1 + random.below(4) as u8;
        let mut under_way: Vec<(Process, u32)> = Vec::new();
        let mut next = [1; 4];
        for step in 0..300 {
            let of = random.below(processes.into()) as u8;
            under_way.push(((1, of), next[usize::from(of)]));
            next[usize::from(of)] += 1;
            while under_way.len() > 20 {
                // The oldest now and then, so that none falls out of the window.
                let at = if step % 3 == 0 { 0 } else { random.below(21) as usize };
                let (process, order) = under_way.remove(at);
                let turn = queue.arrive(process, order);
                assert_ne!(turn, Turn::Far, "seed {seed}: {order} of {process:?}");
            }
        }
        for (process, order) in under_way {
            assert_ne!(queue.arrive(process, order), Turn::Far, "seed {seed}");
        }
        for of in 0..processes {
            let queued = queue.queued.iter().filter(|(process, _)| *process == (1, of));
            let orders: Vec<u32> = queued.map(|(_, order)| *order).collect();
            let all: Vec<u32> = (1..next[usize::from(of)]).collect();
            assert_eq!(orders, all, "seed {seed}: those of process {of}");
        }
        assert_eq!(queue.orders.early(), 0, "seed {seed}");
    });
}

#[test]
fn one_that_gives_up_is_passed_over_and_a_new_life_begins_at_one() {
    let (mut queue, process) = (queue(), (3, 0));
    assert_eq!(queue.arrive(process, 2), Turn::Later);
    assert!(queue.orders.waits(|order| *order == 2));
    assert_eq!(queue.orders.give_up(|order| *order == 3), None);
    assert_eq!(queue.orders.give_up(|_| true), Some(2));
    assert_eq!(queue.orders.early(), 0);
    assert_eq!(queue.orders.done(process, 2), None, "it is queued without its turn");
    assert_eq!(queue.arrive(process, 3), Turn::Now);
    assert_eq!(queue.arrive(process, 1), Turn::Now, "the process has begun again");
    assert_eq!(queue.arrive(process, 2), Turn::Now);
    // Numbers wrap.
    queue.orders.done(process, 2);
    assert_eq!(queue.arrive(process, u32::MAX), Turn::Now);
    assert_eq!(queue.arrive(process, 1), Turn::Later);
    assert_eq!(queue.arrive(process, 0), Turn::Now);
    assert_eq!(queue.orders.early(), 0);
}

#[test]
fn jumps_and_strangers_are_bounded() {
    let (mut queue, random) = (queue(), Random::new(1));
    assert_eq!(queue.arrive((1, 0), 1), Turn::Now);
    assert_eq!(queue.arrive((1, 0), 1_000_000), Turn::Far);
    assert_eq!(queue.arrive((1, 0), 1_000_001), Turn::Now, "after it all is in order");
    assert_eq!(queue.arrive((2, 0), 300), Turn::Now, "a process that was forgotten");
    for _ in 0..100_000 {
        let process = (random.below(254) as u16, random.below(256) as u8);
        let order = match random.below(3) {
            0 => random.next_u32(),
            _ => random.below(70) as u32,
        };
        queue.arrive(process, order);
        assert!(queue.orders.early() <= EARLY_MAX);
    }
}

#[test]
fn a_machine_whose_invocations_wait_leaves_others_their_share() {
    let mut queue = queue();
    let waiting = (0..=u8::MAX).filter(|process| queue.arrive((1, *process), 2) == Turn::Later);
    assert_eq!(waiting.count(), EARLY_SHARE);
    assert_eq!(queue.arrive((2, 0), 2), Turn::Later);
}
