//! The cost of timers.

use crate::case::{Case, Goal};
use std::hint::black_box;
use std::time::Duration;
use xk_core::Time;
use xk_core::event::Wheel;

fn filled(pending: u64) -> Wheel<u64> {
    let mut wheel = Wheel::new(pending as usize + 16);
    for n in 0..pending {
        let at = Time::from_ns(1_000_000 + n.wrapping_mul(0x9e37_79b9) % 60_000_000_000);
        let _ = wheel.schedule(at, n);
    }
    wheel
}

pub(crate) fn cases() -> Vec<Case> {
    vec![
        schedule_and_cancel(0),
        schedule_and_cancel(1000),
        schedule_and_cancel(1_000_000).goal(Goal::AtMost(25.0)),
        schedule_and_go_off(),
    ]
}

fn schedule_and_cancel(pending: u64) -> Case {
    Case::new(format!("schedule and cancel, {pending} pending"), 500_000, move || {
        let mut wheel = filled(pending);
        move |operations| {
            for n in 0..operations {
                if let Ok(handle) = wheel.schedule(Time::from_ns(200_000_000 + n * 1000), n) {
                    black_box(wheel.cancel(handle));
                }
            }
        }
    })
}

fn schedule_and_go_off() -> Case {
    Case::new("schedule and go off after 1 ms", 300_000, || {
        let mut wheel = filled(0);
        let mut now = Time::ZERO;
        move |operations| {
            for n in 0..operations {
                now = now.after(Duration::from_micros(10));
                let _ = wheel.schedule(now.after(Duration::from_millis(1)), n);
                while let Some((handle, payload)) = wheel.pop_due(now) {
                    black_box(payload);
                    wheel.finish(handle);
                }
            }
        }
    })
}
