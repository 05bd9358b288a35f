//! Number of messages for each wake-up of a sleeper, by their rate: "Implementing Network Protocols
//! at User Level" (Thekkath and others 1993), section 4, finds that notifications are batched under
//! load.

use super::mirror::{Above, Below};
use crate::case::{Case, Sample, Trouble};
use crate::cores::{cores, place};
use std::time::{Duration, Instant};
use xk_domains::ring::pair;

/// Length of a round.
const TIME: Duration = Duration::from_millis(200);
const OCTETS: usize = 28;
/// The pause between two messages, in microseconds.
const PAUSES_US: [u64; 4] = [1000, 100, 10, 1];

pub(crate) fn cases() -> Vec<Case> {
    let paused = PAUSES_US.map(|us| (format!("one each {us} us"), us));
    let all = paused.into_iter().chain([("without a pause".into(), 0)]);
    let case = |(row, us)| {
        let pause = Duration::from_micros(us);
        Case::measured(row, move |effort| {
            // Each side has a core: on one, every message would wake the sleeper at once.
            let core = cores().first().copied();
            let sender = std::thread::spawn(move || {
                let _ = place(core);
                for_each_waking(pause, TIME.mul_f64(effort))
            });
            sender.join().unwrap_or_else(|_| Err(Trouble::Failed("it panicked".into())))
        })
    };
    all.map(case).collect()
}

fn for_each_waking(pause: Duration, time: Duration) -> Result<Sample, Trouble> {
    let (above, below) = pair()?;
    let core = cores().get(1).copied();
    let sleeper = std::thread::spawn(move || {
        let _ = place(core);
        Below::sink(below).sleep()
    });
    let above = Above::new(above, None);
    let (begun, mut sent, mut refused) = (Instant::now(), 0_u64, 0_u64);
    let mut next = begun;
    while begun.elapsed() < time {
        if above.send(OCTETS) {
            sent += 1;
        } else {
            refused += 1;
        }
        next += pause;
        while Instant::now() < next {
            std::hint::spin_loop();
        }
    }
    let seconds = begun.elapsed().as_secs_f64();
    drop(above);
    let stats = sleeper.join().map_err(|_| Trouble::Failed("it panicked".into()))??;
    let also = vec![("sent/s", sent as f64 / seconds), ("refused/s", refused as f64 / seconds)];
    let value = sent as f64 / stats.sleeps.max(1) as f64;
    Ok(Sample { value, also, ..Sample::default() })
}
