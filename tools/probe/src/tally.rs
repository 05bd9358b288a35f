//! Counts of messages, and their report.

use crate::window::Window;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::time::Duration;
use xk_core::control::Report;
use xk_core::object::{OpenError, PushError};
use xk_core::{Time, fields, question};
use xk_kit::control::NetworkErrorKind;
use xk_kit::net::stream::StreamError;
use xk_kit::times::{Figures, Times};

/// The times that answers took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoundTrips {
    /// The shortest.
    pub min: Duration,
    /// The average.
    pub avg: Duration,
    /// The median, right to one part in 32.
    pub p50: Duration,
    /// The longest.
    pub max: Duration,
}

fields!(RoundTrips { min, avg, p50, max });

/// Asked of a probe: what it has found so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Results {
    /// Messages sent, counted once for each peer.
    pub sent: u64,
    /// Messages that came back in time.
    pub received: u64,
    /// Messages that did not come back in time.
    pub lost: u64,
    /// Messages that came back changed.
    pub corrupt: u64,
    /// Messages that came back once more.
    pub duplicates: u64,
    /// Messages that came back when they were lost already.
    pub late: u64,
    /// Messages that could not be sent, and what the network reported.
    pub errors: u64,
    /// Round-trip times; `None` if no answer that can be timed has come.
    pub round_trips: Option<RoundTrips>,
    /// True if it has done all that it was asked to do.
    pub finished: bool,
    /// True if it has finished, and nothing came back, or something came back changed; or if its
    /// stream broke.
    pub failed: bool,
}

question!(
    Results {
        sent,
        received,
        lost,
        corrupt,
        duplicates,
        late,
        errors,
        round_trips,
        finished,
        failed
    },
    "probe-results",
    Ask
);

/// Counts of one probe.
pub(crate) struct Tally {
    pub(crate) window: Window,
    pub(crate) times: Times,
    pub(crate) received: u64,
    pub(crate) corrupt: u64,
    pub(crate) duplicates: u64,
    pub(crate) late: u64,
    /// Other errors, in the order of first occurrence; one entry per kind.
    errors: Vec<(&'static str, u64)>,
    pub(crate) open_error: Option<OpenError>,
    /// The stream broke: nothing more goes or comes.
    pub(crate) is_broken: bool,
}

impl Tally {
    /// No message yet, to so many peers.
    pub(crate) fn new(peers: usize) -> Self {
        Self {
            window: Window::new(peers),
            times: Times::default(),
            received: 0,
            corrupt: 0,
            duplicates: 0,
            late: 0,
            errors: Vec::new(),
            open_error: None,
            is_broken: false,
        }
    }

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

    /// Results so far; `count` messages were to be sent, 0 for no end.
    pub(crate) fn results(&self, count: u64) -> Results {
        let all_sent = count > 0 && self.window.next() >= count;
        let has_ended = self.open_error.is_some() || self.is_broken;
        let finished = has_ended || all_sent && self.window.awaited() == 0;
        let failed = finished && self.received == 0 || self.is_broken || self.corrupt > 0;
        let round_trips = self.times.figures().map(|times| {
            let Figures { min, avg, p50, max } = times;
            RoundTrips { min, avg, p50, max }
        });
        Results {
            sent: self.window.sent(),
            received: self.received,
            lost: self.window.lost(),
            corrupt: self.corrupt,
            duplicates: self.duplicates,
            late: self.late,
            errors: self.errors.iter().map(|(_, count)| count).sum(),
            round_trips,
            finished,
            failed,
        }
    }

    /// Fills in a report of these results.
    pub(crate) fn report(&self, report: &mut Report, results: &Results) {
        let mut lines: Vec<(String, String)> = Vec::new();
        let mut line = |name: &str, value: String| lines.push((name.into(), value));
        for (name, n) in [
            ("sent", results.sent),
            ("received", results.received),
            ("lost", results.lost),
            ("corrupt", results.corrupt),
            ("duplicates", results.duplicates),
            ("late", results.late),
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
        if results.failed {
            let why = match () {
                () if self.corrupt > 0 => "answers were corrupt",
                () if self.is_broken => "the stream broke",
                () => "no answer came",
            };
            line("why", why.into());
        }
        report.lines = lines;
        report.finished = results.finished;
        report.failed = results.failed;
    }
}
