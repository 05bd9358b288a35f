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
