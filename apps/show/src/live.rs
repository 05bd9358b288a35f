//! A table on the terminal that changes while a simulation runs.

use crate::failure::Failure;
use crate::output;
use crate::simulation::Simulation;
use std::time::{Duration, Instant};
use xk_core::Time;
use xk_run::interrupt_unsafe;

/// Time between two pictures.
const FRAME: Duration = Duration::from_millis(120);

/// A screen on which each picture replaces the last.
#[derive(Default)]
pub struct Screen {
    lines: usize,
}

impl Screen {
    /// Replaces the last picture.
    pub fn draw(&mut self, text: &str) {
        let mut out = String::new();
        if self.lines > 0 {
            // Up by as many lines, then clear to the end of the screen.
            output::draw(&format!("\x1b[{}A\x1b[J", self.lines));
        }
        let width = output::width();
        for line in text.lines() {
            let end = line.char_indices().nth(width).map_or(line.len(), |(at, _)| at);
            out.push_str(line.get(..end).unwrap_or_default());
            out.push('\n');
        }
        self.lines = text.lines().count();
        output::print(&out);
    }

    /// Runs a simulation at `speed` seconds of virtual time a second, with a picture every now and
    /// then; at full speed after `patience`. Ctrl-C ends it.
    ///
    /// # Errors
    /// Those of [`Simulation::run`].
    pub fn follow(
        &mut self,
        simulation: &mut Simulation<'_>,
        until: Time,
        speed: f64,
        patience: Duration,
    ) -> Result<(), Failure> {
        interrupt_unsafe::catch();
        let begun = Instant::now();
        let step = FRAME.mul_f64(speed.max(0.001));
        loop {
            let frame = Instant::now();
            let next = (simulation.world().now() + step).min(until);
            let done = simulation.run(next)? || next >= until;
            let now = simulation.world().now();
            self.draw(&format!("virtual time {now:.2}\n{}", simulation.live()));
            if done || interrupt_unsafe::is_requested() {
                return Ok(());
            }
            if begun.elapsed() < patience {
                std::thread::sleep(FRAME.saturating_sub(frame.elapsed()));
            }
        }
    }
}
