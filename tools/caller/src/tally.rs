//! Counts of calls, and their report.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::time::Duration;
use xk_core::Kernel;
use xk_core::control::Report;
use xk_core::object::{CallError, OpenError};
use xk_kit::times::{Figures, Times};

/// Kinds of errors that are told apart; the others count together.
const KINDS_MAX: usize = 32;

/// Why a call brought no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The session did not open.
    Open(OpenError),
    /// There was no buffer for the request.
    NoBuffers,
    /// Error of the layers below.
    Call(CallError),
}

impl Failure {
    fn describe(&self, cx: &Kernel) -> String {
        match self {
            Self::Open(error) => format!("not opened: {error}"),
            Self::NoBuffers => "no buffer for the request".into(),
            Self::Call(error) => error.describe(cx),
        }
    }
}

/// Counts of one caller.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) begun: u64,
    pub(crate) waiting: u64,
    waiting_most: u64,
    replies: u64,
    octets: u64,
    pub(crate) wrong: u64,
    /// In the order of first occurrence.
    failures: Vec<(Failure, u64)>,
    failures_other: u64,
    times: Times,
}

impl Tally {
    /// Notes a call about to be made; answers its number.
    pub(crate) fn begin(&mut self) -> u64 {
        let number = self.begun;
        self.begun += 1;
        self.waiting += 1;
        self.waiting_most = self.waiting_most.max(self.waiting);
        number
    }

    /// Notes a reply.
    pub(crate) fn reply(&mut self, octets: usize, time: Duration) {
        self.waiting -= 1;
        self.replies += 1;
        self.octets += octets as u64;
        self.times.add(time);
    }

    /// Notes a call that brought none.
    pub(crate) fn fail(&mut self, failure: Failure) {
        self.waiting -= 1;
        let is_room = self.failures.len() < KINDS_MAX;
        match self.failures.iter_mut().find(|(kind, _)| *kind == failure) {
            Some((_, n)) => *n += 1,
            None if is_room => self.failures.push((failure, 1)),
            None => self.failures_other += 1,
        }
    }

    /// Fills in a report; `count` calls were to be made, 0 for no end.
    pub(crate) fn report(&self, cx: &Kernel, report: &mut Report, count: u64) {
        let mut lines: Vec<(String, String)> = Vec::new();
        let mut line = |name: &str, value: String| lines.push((name.into(), value));
        line("calls", self.begun.to_string());
        line("replies", self.replies.to_string());
        line("octets", self.octets.to_string());
        line("wrong", self.wrong.to_string());
        for (failure, n) in &self.failures {
            line(&failure.describe(cx), n.to_string());
        }
        if self.failures_other > 0 {
            line("other errors", self.failures_other.to_string());
        }
        line("waiting", self.waiting.to_string());
        line("waiting at most", self.waiting_most.to_string());
        for (name, time) in self.times.figures().iter().flat_map(Figures::lines) {
            line(name, time);
        }
        report.finished = count > 0 && self.begun >= count && self.waiting == 0;
        report.failed = report.finished && self.replies == 0 || self.wrong > 0;
        if report.failed {
            let is_wrong = self.wrong > 0;
            line("why", if is_wrong { "replies were wrong" } else { "no reply came" }.into());
        }
        report.lines = lines;
    }
}
