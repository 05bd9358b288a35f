//! A lender and a borrower against vectors of octets.

use super::{Pair, Script, small_pool};
use std::cell::Cell;
use std::ptr::NonNull;
use std::rc::Rc;
use xk_core::message::{
    Foreign, HeapArena, LendError, LentSlice, Loans, Message, Pool, PoolConfig, SizeClass, View,
    WrapError,
};

/// Octets of the lender's arena.
const ARENA_OCTETS: usize = 1 << 16;

/// Octets of buffers that are lent at one time, at most; and loans that the borrower knows at one
/// time.
const LENT_MAX: usize = 4096;
const LOANS_MAX: u32 = 24;

/// First of the numbers that the lender has never given.
const MADE_UP: u32 = 1 << 31;

/// The lender's arena, at the same address.
struct SameAddress {
    lender: Pool,
    is_steady: Rc<Cell<bool>>,
}

// SAFETY: the region is the lender's as long as there is a handle. `is_steady` is true only while
// `run_loans_script` wraps the slices of a message that it has just lent; it takes back only what
// `returned` has answered with, and a message in a `Loans` is not written.
unsafe impl View for SameAddress {
    fn region(&self) -> (NonNull<u8>, usize) {
        self.lender.region()
    }

    fn is_steady(&self, _: u32, _: LentSlice) -> bool {
        self.is_steady.get()
    }
}

/// Reads `script` as a sequence of operations: a pool lends, loans are wrapped, by a borrower that
/// believes the lender or does not, what is wrapped goes through the operations of
/// [`run_script`](super::run_script), and loans come back; between them stand loans and returns
/// that are made up. In the end all is back in both pools.
///
/// # Panics
/// At the first difference from vectors of octets.
pub fn run_loans_script(script: &[u8]) {
    let arena = || Box::new(HeapArena::new(ARENA_OCTETS).expect("memory"));
    let lender = small_pool(arena());
    let config = PoolConfig {
        octets_max: ARENA_OCTETS,
        descriptors_max: 24,
        classes: vec![SizeClass { octets: 256, octets_max: 1 << 14 }],
    };
    let borrower = Pool::with_arena(arena(), &config).expect("memory");
    let is_steady = Rc::new(Cell::new(false));
    let view = SameAddress { lender: lender.clone(), is_steady: Rc::clone(&is_steady) };
    let mut both = Both {
        foreign: borrower.foreign(view, LOANS_MAX),
        loans: Loans::new(&lender, LENT_MAX),
        lender: &lender,
        is_steady,
        made_up: Vec::new(),
    };
    let mut script = Script::new(&borrower, script);
    while !script.octets.is_empty() {
        both.step(&mut script);
        script.compare();
        assert!(both.loans.octets() <= LENT_MAX, "no more is lent than may be");
    }
    let Both { foreign, mut loans, made_up, .. } = both;
    match script.next() % 3 {
        // Everything is given back.
        0 => {
            drop(script);
            assert_eq!(foreign.held(), 0);
            let mut told: Vec<_> = std::iter::from_fn(|| foreign.returned()).collect();
            told.retain(|index| !made_up.contains(index));
            told.iter().for_each(|index| drop(loans.take_back(*index).expect("it is lent")));
            assert_eq!((loans.count(), loans.octets()), (0, 0), "each loan is told once");
        }
        // The borrower's handle goes first, and nothing is told.
        1 => {
            drop(foreign);
            script.compare();
            drop(script);
        }
        // The borrower dies.
        _ => drop((script, foreign)),
    }
    drop(loans);
    for pool in [lender, borrower] {
        let stats = pool.stats();
        assert_eq!((stats.descriptors_live, stats.buffers_live), (0, 0), "all is back");
    }
}

struct Both<'a> {
    foreign: Foreign,
    loans: Loans,
    lender: &'a Pool,
    is_steady: Rc<Cell<bool>>,
    /// Numbers that were wrapped and never lent, not told yet.
    made_up: Vec<u32>,
}

impl Both<'_> {
    fn step(&mut self, script: &mut Script<'_>) {
        match script.next() % 16 {
            0..=2 => self.lend(script),
            3 | 4 => self.take_back(),
            5 => {
                let index = MADE_UP + script.next() as u32;
                assert!(self.loans.take_back(index).is_err(), "it was never lent");
            }
            6 => self.wrap_made_up(script),
            7 => self.lend_borrowed(script),
            8 => {
                // The oldest goes.
                if !script.pairs.is_empty() {
                    drop(script.pairs.remove(0));
                }
            }
            _ => script.step(),
        }
    }

    /// A message of the lender's, in some slices, part of it taken off.
    fn message(&self, script: &mut Script<'_>) -> Option<(Message, Vec<u8>)> {
        let mut octets = vec![0; script.up_to(600)];
        script.fill(&mut octets);
        let at = script.up_to(octets.len());
        let mut message = self.lender.copy_from(script.up_to(100), &octets[..at]).ok()?;
        message.join(self.lender.copy_from(0, &octets[at..]).ok()?);
        let off = script.up_to(octets.len());
        assert!(message.strip(off));
        octets.drain(..off);
        Some((message, octets))
    }

    fn lend(&mut self, script: &mut Script<'_>) {
        let Some((message, octets)) = self.message(script) else {
            return;
        };
        let (lent, count) = (self.loans.octets(), self.loans.count());
        let (index, slices) = match self.loans.lend(message) {
            Ok((index, message)) => {
                let at = |slice: xk_core::message::Slice<'_>| LentSlice {
                    offset: slice.offset,
                    octets: slice.octets.len(),
                };
                (index, message.slices().map(at).collect::<Vec<_>>())
            }
            Err((message, why)) => {
                assert_eq!(why, LendError::Full);
                assert!(lent + 2 * 1024 > LENT_MAX, "there was room");
                assert!(message.eq_octets(&octets));
                return;
            }
        };
        assert_eq!(self.loans.count(), count + 1);
        // One that does not believe the lender has a copy, and the loan goes back at once.
        let believes = !script.next().is_multiple_of(4);
        self.is_steady.set(believes);
        let wrapped = self.foreign.wrap(index, &slices);
        self.is_steady.set(false);
        match wrapped {
            Ok(mut message) => {
                assert!(message.eq_octets(&octets) && !message.has_attributes());
                if believes && !octets.is_empty() {
                    assert!(message.front_mut().is_none() && !message.has_room(1));
                    assert_eq!(message.headroom(), 0);
                    assert!(!message.uncover(1), "nothing was taken off here");
                    assert!(!message.pad_in_place::<700>() && !message.lies_in(script.pool));
                    assert_eq!(message.copy_in(0, &[0; 8]), 0);
                }
                script.pairs.push(Pair::new(message, octets, None));
            }
            Err(WrapError::NoBuffers) => {}
            Err(WrapError::TooMany) => {
                drop(self.loans.take_back(index).expect("it is lent"));
            }
            Err(WrapError::Outside) => panic!("it lies in the arena"),
        }
    }

    /// Returns octets without any reference to them to the lender, which writes to them.
    fn take_back(&mut self) {
        while let Some(index) = self.foreign.returned() {
            if let Some(at) = self.made_up.iter().position(|kept| *kept == index) {
                self.made_up.swap_remove(at);
                continue;
            }
            let mut message = self.loans.take_back(index).expect("each is told once");
            assert!(self.loans.take_back(index).is_err(), "it is back");
            message.front_mut().expect("the lender has it to itself").fill(0xee);
        }
    }

    /// A loan that no lender made, of any octets.
    fn wrap_made_up(&mut self, script: &mut Script<'_>) {
        let slices: Vec<_> = (0..script.next() % 4)
            .map(|_| {
                let near = |script: &mut Script<'_>| match script.next() % 5 {
                    0 => usize::MAX - script.next(),
                    1 => ARENA_OCTETS - script.next(),
                    2 => (1 << 32) - script.next(),
                    _ => script.up_to(2000),
                };
                let offset = near(script);
                let octets = match script.next() % 2 {
                    0 => ARENA_OCTETS.wrapping_sub(offset).wrapping_add(script.next() % 3),
                    _ => near(script),
                };
                LentSlice { offset, octets: octets.saturating_sub(1) }
            })
            .collect();
        let lies_inside = |slice: &LentSlice| {
            let (begin, octets) = (slice.offset as u128, slice.octets as u128);
            octets != 0 && begin + octets <= ARENA_OCTETS as u128
        };
        let index = MADE_UP + script.next() as u32;
        let held = self.foreign.held();
        let wrapped = self.foreign.wrap(index, &slices);
        let is_outside = matches!(wrapped, Err(WrapError::Outside));
        assert_eq!(is_outside, !slices.iter().all(lies_inside), "{slices:?}");
        match wrapped {
            Ok(message) => {
                let octets: usize = slices.iter().map(|slice| slice.octets).sum();
                assert_eq!(message.len(), octets);
                self.made_up.push(index);
            }
            Err(WrapError::NoBuffers) => self.made_up.push(index),
            Err(WrapError::Outside | WrapError::TooMany) => {}
        }
        assert_eq!(self.foreign.held(), held, "it is not believed");
    }

    /// Checks that borrowed octets cannot be lent as one's own.
    fn lend_borrowed(&mut self, script: &mut Script<'_>) {
        if let Some(mut pair) = script.take() {
            let Err((message, LendError::NotOurs)) = self.loans.lend(pair.message) else {
                panic!("it lies in another arena");
            };
            pair.message = message;
            script.pairs.push(pair);
        }
    }
}
