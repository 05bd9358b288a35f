//! All tests of this crate that need no process of their own: one program, linked once.

mod call;
mod commands;
mod deaths;
mod domains;
mod exec;
mod indices;
mod library;
mod programs;
mod sweep;
mod switch;
mod units;
mod upgrade;
mod users;

use std::time::Duration;

const XK: &str = env!("CARGO_BIN_EXE_xk");
/// More than any step needs, even on a busy machine.
const STEP_TIME_MAX: Duration = Duration::from_secs(60);
