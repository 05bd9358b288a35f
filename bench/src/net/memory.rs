//! The bare exchange through shared memory: a mailbox each way for questions and answers, a ring
//! one way for a stream.

use super::endpoint::failed;
use super::endpoint::{Endpoint, Task};
use super::exchange::{self, BURST, Line, WAIT};
use super::memory_unsafe::Mapped;
use crate::case::Trouble;
use rustix::event::Timespec;
use rustix::thread::futex;
use serde_json::Value;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};

/// Room of a mailbox, and of the ring's head, in octets: the two sides share no cache line.
const PAGE: usize = 4096;
/// Messages that the ring holds.
const SLOTS: usize = 1024;
/// Octets before a message in a slot: its number and its length.
const SLOT_HEAD: usize = 8;

/// Memory of an exchange, in octets.
pub(super) fn size(octets: usize) -> usize {
    2 * PAGE + SLOTS * stride(octets)
}

/// From one slot to the next: whole cache lines.
fn stride(octets: usize) -> usize {
    (SLOT_HEAD + octets).next_multiple_of(64)
}

/// Sleeps until a word is no longer `old`, but no longer than a line may.
fn sleep(word: &AtomicU32, old: u32) {
    let limit = Timespec { tv_sec: 0, tv_nsec: i64::from(WAIT.subsec_nanos()) };
    // Whatever ends it, the caller looks at the word again.
    let _ = futex::wait(word, futex::Flags::empty(), old, Some(&limit));
}

fn wake(word: &AtomicU32) {
    let _ = futex::wake(word, futex::Flags::empty(), 1);
}

/// One message each way: its number, by which it is known to be new, and behind it in the same
/// cache line its octets.
struct Mailboxes {
    memory: Mapped,
    side: usize,
    octets: usize,
    spins: bool,
    sent: u32,
    seen: u32,
    buffer: [u8; PAGE],
}

impl Mailboxes {
    fn fits(&self, message: &[u8]) -> io::Result<()> {
        if message.len() == self.octets {
            return Ok(());
        }
        Err(io::Error::other("a message of another length"))
    }
}

impl Line for Mailboxes {
    #[inline]
    fn send(&mut self, message: &[u8]) -> io::Result<bool> {
        self.fits(message)?;
        let at = self.side * PAGE;
        self.memory.put(at + 4, message);
        self.sent = self.sent.wrapping_add(1);
        let word = self.memory.word(at);
        word.store(self.sent, Ordering::Release);
        if !self.spins {
            wake(word);
        }
        Ok(true)
    }

    #[inline]
    fn receive(&mut self, mut each: impl FnMut(&[u8])) -> io::Result<usize> {
        let at = (1 - self.side) * PAGE;
        let word = self.memory.word(at);
        let mut number = word.load(Ordering::Acquire);
        if number == self.seen && !self.spins {
            sleep(word, number);
            number = word.load(Ordering::Acquire);
        }
        if number == self.seen {
            return Ok(0);
        }
        self.seen = number;
        let message = &mut self.buffer[..self.octets];
        self.memory.take(at + 4, message);
        each(message);
        Ok(1)
    }
}

/// Many messages one way. A slot's number says whose it is: the sender's until it is stored, then
/// the receiver's.
struct Ring {
    memory: Mapped,
    stride: usize,
    /// Messages sent, or received.
    at: u32,
    /// Number of messages that the receiver had taken when the sender last looked.
    taken: u32,
    buffer: Vec<u8>,
}

impl Ring {
    #[inline]
    fn slot(&self) -> usize {
        2 * PAGE + self.at as usize % SLOTS * self.stride
    }
}

impl Line for Ring {
    #[inline]
    fn send(&mut self, message: &[u8]) -> io::Result<bool> {
        if self.at.wrapping_sub(self.taken) as usize >= SLOTS {
            self.taken = self.memory.word(0).load(Ordering::Acquire);
            if self.at.wrapping_sub(self.taken) as usize >= SLOTS {
                return Ok(false);
            }
        }
        let slot = self.slot();
        self.memory.put(slot + SLOT_HEAD, message);
        let length = u32::try_from(message.len()).unwrap_or(0);
        self.memory.word(slot + 4).store(length, Ordering::Relaxed);
        self.at = self.at.wrapping_add(1);
        self.memory.word(slot).store(self.at, Ordering::Release);
        Ok(true)
    }

    #[inline]
    fn receive(&mut self, mut each: impl FnMut(&[u8])) -> io::Result<usize> {
        let mut count = 0;
        while count < BURST {
            let slot = self.slot();
            let next = self.at.wrapping_add(1);
            if self.memory.word(slot).load(Ordering::Acquire) != next {
                break;
            }
            let length = self.memory.word(slot + 4).load(Ordering::Relaxed) as usize;
            let message = &mut self.buffer[..length];
            self.memory.take(slot + SLOT_HEAD, message);
            each(message);
            self.at = next;
            count += 1;
        }
        if count > 0 {
            self.memory.word(0).store(self.at, Ordering::Release);
        }
        Ok(count)
    }
}

pub(super) fn run(end: &Endpoint) -> Result<Value, Trouble> {
    let path = end.meeting.as_deref().unwrap_or_default();
    let memory = Mapped::open(path).map_err(failed("cannot map the memory"))?;
    if matches!(end.task, Task::Send | Task::Receive) {
        let ring = Ring {
            memory,
            stride: stride(end.octets),
            at: 0,
            taken: 0,
            buffer: vec![0; end.octets],
        };
        return exchange::run(end, ring);
    }
    let boxes = Mailboxes {
        memory,
        side: end.side,
        octets: end.octets,
        spins: end.spins,
        sent: 0,
        seen: 0,
        buffer: [0; PAGE],
    };
    exchange::run(end, boxes)
}
