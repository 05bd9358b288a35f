//! Linux's programs, which do for themselves what shepherds, upcalls and sessions do in an
//! x-kernel.

pub(crate) mod sockets;

use crate::case::{Sample, Trouble};
use crate::cores::{cores, stay_on};
use std::io::{Read, Write};
use std::sync::{Barrier, Condvar, Mutex};
use std::thread;
use std::time::Instant;

/// Puts the calling thread on the first core that it may use.
fn stay_on_one_core() -> Result<(), Trouble> {
    let failed =
        |error: rustix::io::Errno| Trouble::Skipped(format!("cannot choose a core: {error}"));
    stay_on(cores().first().copied().unwrap_or(0)).map_err(failed)
}

/// Runs `asks` and `answers` on two threads of one core; the first says when it has finished and
/// how long it took.
fn two_threads(
    asks: impl FnOnce() -> Result<Sample, Trouble> + Send,
    answers: impl FnOnce() + Send,
) -> Result<Sample, Trouble> {
    let begin = Barrier::new(2);
    thread::scope(|scope| {
        let other = scope.spawn(|| {
            let placed = stay_on_one_core();
            begin.wait();
            answers();
            placed
        });
        let one = scope.spawn(|| {
            let placed = stay_on_one_core();
            begin.wait();
            let found = asks();
            placed.and(found)
        });
        let found = one.join().unwrap_or_else(|_| Err(Trouble::Failed("a thread panicked".into())));
        match other.join() {
            Ok(placed) => placed.and(found),
            Err(_) => Err(Trouble::Failed("a thread panicked".into())),
        }
    })
}

/// Thread whose turn it is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    Asks,
    Answers,
    Over,
}

/// Nanoseconds from one thread to another of the same process and core, by a condition variable:
/// half a round trip.
pub(super) fn thread_switch(trips: u64) -> Result<Sample, Trouble> {
    let (turn, changed) = (Mutex::new(Turn::Asks), Condvar::new());
    let poisoned = || Trouble::Failed("a thread panicked".into());
    let asks = || {
        let start = Instant::now();
        let mut now = turn.lock().map_err(|_| poisoned())?;
        for _ in 0..trips {
            *now = Turn::Answers;
            changed.notify_one();
            while *now != Turn::Asks {
                now = changed.wait(now).map_err(|_| poisoned())?;
            }
        }
        let took = start.elapsed();
        *now = Turn::Over;
        changed.notify_one();
        Ok((took.as_nanos() as f64 / 2.0 / trips as f64).into())
    };
    let answers = || {
        let Ok(mut now) = turn.lock() else { return };
        loop {
            match *now {
                Turn::Over => return,
                Turn::Answers => {
                    *now = Turn::Asks;
                    changed.notify_one();
                }
                Turn::Asks => match changed.wait(now) {
                    Ok(next) => now = next,
                    Err(_) => return,
                },
            }
        }
    };
    two_threads(asks, answers)
}

/// Nanoseconds until a process that waits in `read` runs after a `write` of another one on the same
/// core: half a round trip through two pipes.
pub(super) fn wake_reader(trips: u64) -> Result<Sample, Trouble> {
    let pipe = || std::io::pipe().map_err(|error| Trouble::Failed(format!("no pipe: {error}")));
    let ((mut from_asks, mut to_answers), (mut from_answers, mut to_asks)) = (pipe()?, pipe()?);
    let asks = move || {
        let start = Instant::now();
        for _ in 0..trips {
            let mut octet = [1];
            let done =
                to_answers.write_all(&octet).and_then(|()| from_answers.read_exact(&mut octet));
            done.map_err(|error| Trouble::Failed(format!("a pipe broke: {error}")))?;
        }
        Ok((start.elapsed().as_nanos() as f64 / 2.0 / trips as f64).into())
    };
    let answers = move || {
        let mut octet = [0];
        // Ends when the other side has closed its end.
        while from_asks.read_exact(&mut octet).is_ok() && to_asks.write_all(&octet).is_ok() {}
    };
    two_threads(asks, answers)
}
