//! Many waits, signals, time-outs and interrupts in an order drawn by chance.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use xk_core::shepherd::{Semaphore, Ticket, WaitError};

use crate::world::{NewSwitch, World};

const SEMAPHORES: usize = 4;

#[derive(Default)]
struct Tally {
    begun: Cell<u32>,
    signals: Cell<u32>,
    ok: Cell<u32>,
    timed_out: Cell<u32>,
    interrupted: Cell<u32>,
    refused: Cell<u32>,
    tickets: RefCell<Vec<Ticket>>,
    timeouts_taken: Cell<u32>,
    interrupts_taken: Cell<u32>,
    semaphores: [Semaphore; SEMAPHORES],
}

fn add(counter: &Cell<u32>, more: u32) {
    counter.set(counter.get() + more);
}

pub(crate) fn every_wait_ends_once_and_no_signal_is_lost(switch: NewSwitch<'_>) {
    let (seeds, steps) = if cfg!(miri) { (1, 60) } else { (20, 600) };
    for seed in 1..=seeds {
        play(switch, seed, steps);
    }
}

fn play(switch: NewSwitch<'_>, seed: u64, steps: u32) {
    let world = World::new(switch, 12);
    let tally = Rc::new(Tally::default());
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut draw = |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 8) % below
    };
    for _ in 0..steps {
        let (act, which, waits) = (draw(16), draw(SEMAPHORES as u64) as usize, draw(3));
        let tally = Rc::clone(&tally);
        match act {
            0..7 => world.send(move |world| (0..=waits).for_each(|_| tally.wait(world, which))),
            7..13 => world.send(move |world| {
                tally.semaphores[which].signal(&world.shepherds);
                add(&tally.signals, 1);
            }),
            13..15 => world.send(move |world| tally.time_out(world, waits as usize)),
            _ => world.send(move |world| {
                let ended = tally.semaphores[which].interrupt_all(&world.shepherds);
                add(&tally.interrupts_taken, ended);
            }),
        }
    }
    world.run();
    add(&tally.interrupts_taken, world.shepherds.interrupt_all());
    while world.shepherds.stats().suspended > 0 {
        world.run();
        add(&tally.interrupts_taken, world.shepherds.interrupt_all());
    }
    tally.check(&world, seed);
}

impl Tally {
    fn wait(&self, world: &World, which: usize) {
        add(&self.begun, 1);
        let arm = |ticket| self.tickets.borrow_mut().push(ticket);
        let counter = match self.semaphores[which].wait_ticketed(&world.shepherds, arm) {
            Ok(()) => &self.ok,
            Err(WaitError::TimedOut) => &self.timed_out,
            Err(WaitError::Interrupted) => &self.interrupted,
            Err(WaitError::NoShepherds) => &self.refused,
            Err(other) => panic!("{other}"),
        };
        add(counter, 1);
    }

    /// Times one of the last tickets out, live or stale.
    fn time_out(&self, world: &World, back: usize) {
        let tickets = self.tickets.borrow();
        if let Some(&ticket) = tickets.iter().rev().nth(back * 3) {
            let taken = world.shepherds.time_out(ticket);
            add(&self.timeouts_taken, u32::from(taken));
        }
    }

    fn check(&self, world: &World, seed: u64) {
        let kept: u32 = self.semaphores.iter().map(Semaphore::count).sum();
        let (ok, refused) = (self.ok.get(), self.refused.get());
        assert_eq!(self.signals.get(), ok + kept, "seed {seed}");
        assert_eq!(self.timed_out, self.timeouts_taken, "seed {seed}");
        assert_eq!(self.interrupted, self.interrupts_taken, "seed {seed}");
        let ended = ok + refused + self.timed_out.get() + self.interrupted.get();
        assert_eq!(self.begun.get(), ended, "seed {seed}");
        let stats = world.shepherds.stats();
        assert_eq!(stats.refusals_no_shepherds, u64::from(refused));
        assert_eq!((stats.suspended, stats.ready, stats.running), (0, 0, 0));
        if !cfg!(miri) {
            assert!(refused > 0 && self.timed_out.get() > 0, "seed {seed} tests little");
        }
    }
}
