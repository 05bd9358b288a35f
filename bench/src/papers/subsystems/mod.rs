//! The figures of the fifth paper: protocols of AppleTalk in three subsystems, and what joins them.
//! Its machine was a SPARCstation LX with SunOS 4.1.3C.

mod configuration;
mod ends;
mod figure_3;
mod figure_4;
mod figure_7;
mod figure_8;
mod pair;
mod queues;

use crate::benchmark::Benchmark;

pub(super) fn benchmarks() -> Vec<Benchmark> {
    vec![
        figure_3::benchmark(),
        figure_4::benchmark(),
        figure_7::benchmark(),
        figure_8::benchmark(),
        queues::benchmark(),
    ]
}
