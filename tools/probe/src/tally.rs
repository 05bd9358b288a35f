//! What is counted, and the report of it.

use crate::window::Window;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use xk_core::Time;
use xk_core::control::Report;
use xk_core::object::{OpenError, PushError};
use xk_kit::control::NetworkErrorKind;
use xk_kit::net::stream::StreamError;
use xk_kit::times::{Figures, Times};

/// Counts of one probe.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) window: Window,
    pub(crate) times: Times,
    pub(crate) received: u64,
    pub(crate) corrupt: u64,
    pub(crate) duplicates: u64,
    pub(crate) late: u64,
    /// What went wrong otherwise, in the order of first occurrence; one entry per kind.
    errors: Vec<(&'static str, u64)>,
    pub(crate) open_error: Option<OpenError>,
    /// The stream broke: nothing more goes or comes.
    pub(crate) is_broken: bool,
}

impl Tally {
    fn error(&mut self, name: &'static str) {
        match self.errors.iter_mut().find(|(kind, _)| *kind == name) {
            Some((_, n)) => *n += 1,
            None => self.errors.push((name, 1)),
        }
    }

    /// A message could not be sent.
    pub(crate) fn push_error(&mut self, error: PushError) {
        self.error(match error {
            PushError::Closed => "not sent: closed",
            PushError::TooBig => "not sent: too big",
            PushError::NoBuffers => "not sent: no buffers",
            PushError::QueueFull => "not sent: queue full",
            PushError::NoRoute => "not sent: no route",
            PushError::Unreachable => "not sent: unreachable",
            PushError::NotSupported => "not sent: not supported",
        });
    }

    /// The network reported something.
    pub(crate) fn network_error(&mut self, kind: NetworkErrorKind) {
        self.error(kind.name());
    }

    /// The stream below broke.
    pub(crate) fn stream_error(&mut self, error: StreamError) {
        self.is_broken = true;
        self.window.expire(Time::MAX);
        self.error(match error {
            StreamError::Refused => "stream refused",
            StreamError::Reset => "stream reset",
            StreamError::TimedOut => "stream timed out",
            StreamError::Network(kind) => kind.name(),
            StreamError::Aborted => "stream aborted",
            StreamError::NoBuffers => "stream without buffers",
        });
    }

    /// Fills in a report; `count` messages were to be sent, 0 for no end.
    pub(crate) fn report(&self, report: &mut Report, count: u64) {
        let sent = self.window.next();
        let mut lines: Vec<(String, String)> = Vec::new();
        let mut line = |name: &str, value: String| lines.push((name.into(), value));
        for (name, n) in [
            ("sent", sent),
            ("received", self.received),
            ("lost", self.window.lost()),
            ("corrupt", self.corrupt),
            ("duplicates", self.duplicates),
            ("late", self.late),
        ] {
            line(name, n.to_string());
        }
        for (name, n) in &self.errors {
            line(name, n.to_string());
        }
        if let Some(error) = self.open_error {
            line("not opened", error.to_string());
        }
        for (name, time) in self.times.figures().iter().flat_map(Figures::lines) {
            line(name, time);
        }
        report.lines = lines;
        let all_sent = count > 0 && sent >= count;
        report.finished =
            self.open_error.is_some() || self.is_broken || all_sent && self.window.awaited() == 0;
        report.failed = report.finished && self.received == 0 || self.is_broken || self.corrupt > 0;
    }
}
