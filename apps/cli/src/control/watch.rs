//! Looking on: traces and captures of a running graph.
//!
//! A kernel has one observer at most. This one is set while a client looks, and shares what it sees
//! among all that do.

use super::server::{Answers, Piece, send_line};
use super::tree;
use crate::view::Lowers;
use serde_json::{Value, json};
use std::cell::{Cell, RefCell};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::TrySendError;
use std::time::{SystemTime, UNIX_EPOCH};
use xk_core::object::ProtocolId;
use xk_core::trace::{Crossing, Observer};
use xk_core::{Kernel, ProtocolRef};
use xk_pcap::{Direction, Frame, Interface, InterfaceId, LinkType, Writer};
use xk_run::Recorder;

/// Crossings that are kept for each message of a trace.
const SPANS_PER_MESSAGE: u64 = 256;
/// Crossings of a domain that are kept.
const WATCHED_MAX: usize = 1 << 15;
/// Largest number of captures at a time.
const CAPTURES_MAX: usize = 8;

type Done = Box<dyn Fn(&Kernel, &Recorder)>;

struct Trace {
    recorder: Recorder,
    /// Number of messages that are still to be recorded to their end.
    left: Cell<u64>,
    done: Done,
}

/// A pipe to a client: each write is a piece.
struct Pipe {
    answers: Answers,
    piece: Vec<u8>,
}

impl Write for Pipe {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        self.piece.extend_from_slice(octets);
        Ok(octets.len())
    }

    /// Hands the piece on; one for which there is no room is lost whole.
    fn flush(&mut self) -> io::Result<()> {
        match self.answers.try_send(Piece::Octets(std::mem::take(&mut self.piece))) {
            Ok(()) => Ok(()),
            Err(TrySendError::Full(_)) => Err(io::ErrorKind::WouldBlock.into()),
            Err(TrySendError::Disconnected(_)) => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }
}

struct Capture {
    /// The protocols whose edge it is.
    upper: Option<ProtocolId>,
    lower: ProtocolId,
    writer: Writer<Pipe>,
    interface: InterfaceId,
    /// Names by protocol number, for comments.
    names: Vec<String>,
    gone: bool,
}

struct Looks {
    trace: RefCell<Option<Trace>>,
    captures: RefCell<Vec<Capture>>,
    depth: Cell<u64>,
    /// Rung when something is to be tidied up.
    doorbell: Arc<OwnedFd>,
}

/// Observer of a kernel.
pub(super) struct Watch {
    looks: Rc<Looks>,
    set: Cell<bool>,
}

impl Watch {
    /// Nothing looks on yet; `doorbell` is rung when [`tidy`](Self::tidy) has something to do.
    pub(super) fn new(doorbell: Arc<OwnedFd>) -> Self {
        let looks = Looks {
            trace: RefCell::default(),
            captures: RefCell::default(),
            depth: Cell::new(0),
            doorbell,
        };
        Self { looks: Rc::new(looks), set: Cell::new(false) }
    }

    fn look_on(&self, kernel: &Kernel) {
        if !self.set.replace(true) {
            self.looks.depth.set(0);
            kernel.set_observer(Some(Rc::clone(&self.looks) as Rc<dyn Observer>));
        }
    }

    /// Records the next `messages` messages; then calls `done`.
    pub(super) fn trace(&self, kernel: &Kernel, messages: u64, done: Done) -> Result<(), String> {
        let mut trace = self.looks.trace.borrow_mut();
        if trace.is_some() {
            return Err("another trace is under way; try again when it is done".into());
        }
        let spans_max = usize::try_from(messages * SPANS_PER_MESSAGE).unwrap_or(usize::MAX);
        *trace = Some(Trace {
            recorder: Recorder::new(spans_max, kernel.protocols()),
            left: Cell::new(messages),
            done,
        });
        drop(trace);
        self.look_on(kernel);
        Ok(())
    }

    /// Records every message from now on, until [`watched`](Self::watched) is told to end it.
    pub(super) fn watch(&self, kernel: &Kernel) {
        let trace = Trace {
            recorder: Recorder::new(WATCHED_MAX, kernel.protocols()),
            left: Cell::new(u64::MAX),
            done: Box::new(|_, _| {}),
        };
        *self.looks.trace.borrow_mut() = Some(trace);
        self.look_on(kernel);
    }

    /// The number of messages recorded and, at the last look, the records.
    pub(super) fn watched(&self, kernel: &Kernel, is_last: bool) -> Value {
        let mut slot = self.looks.trace.borrow_mut();
        let seen = slot.as_ref().map_or(0, |trace| u64::MAX - trace.left.get());
        let mut answer = json!({"messages": seen});
        if is_last && let Some(trace) = slot.take() {
            answer["trace"] = tree::of(kernel, &trace.recorder);
        }
        answer
    }

    /// Sends what crosses an edge to a client from now on.
    pub(super) fn capture(
        &self,
        kernel: &Kernel,
        lowers: &Lowers,
        edge: &str,
        answers: &Answers,
    ) -> Result<(), String> {
        let mut captures = self.looks.captures.borrow_mut();
        if captures.len() >= CAPTURES_MAX {
            return Err("too many captures".into());
        }
        let (upper, lower) = find_edge(kernel, lowers, edge)?;
        let name = match &upper {
            Some(upper) => format!("{} > {}", upper.name(), lower.name()),
            None => format!("all > {}", lower.name()),
        };
        let link_type = link_type(kernel, lowers, upper.as_ref(), &lower);
        send_line(answers, &json!({"ok": {"edge": name, "link_type": link_type.0}}));
        let pipe = Pipe { answers: answers.clone(), piece: Vec::new() };
        let failed = |error: io::Error| error.to_string();
        let mut writer = Writer::new(pipe, "xk").map_err(failed)?;
        let interface = writer.add_interface(&Interface::new(&name, link_type)).map_err(failed)?;
        writer.flush().map_err(failed)?;
        let all = kernel.protocols();
        captures.push(Capture {
            upper: upper.map(|p| p.id()),
            lower: lower.id(),
            writer,
            interface,
            names: all.iter().map(|p| p.name().to_owned()).collect(),
            gone: false,
        });
        drop(captures);
        self.look_on(kernel);
        Ok(())
    }

    /// Answers what is done, and stops looking if no request is left. For between two turns.
    pub(super) fn tidy(&self, kernel: &Kernel) {
        if !self.set.get() || self.looks.depth.get() > 0 {
            return;
        }
        let mut slot = self.looks.trace.borrow_mut();
        let done = slot.take_if(|trace| trace.left.get() == 0);
        drop(slot);
        if let Some(trace) = done {
            (trace.done)(kernel, &trace.recorder);
        }
        let mut captures = self.looks.captures.borrow_mut();
        captures.retain(|capture| !capture.gone);
        if captures.is_empty() && self.looks.trace.borrow().is_none() {
            self.set.set(false);
            kernel.set_observer(None);
        }
    }
}

impl Looks {
    fn is_untidy(&self) -> bool {
        let trace = self.trace.borrow();
        let traced = trace.as_ref().is_some_and(|trace| trace.left.get() == 0);
        traced || self.captures.borrow().iter().any(|capture| capture.gone)
    }
}

impl Observer for Looks {
    fn enter(&self, crossing: Crossing<'_>) -> u64 {
        self.depth.set(self.depth.get() + 1);
        for capture in self.captures.borrow_mut().iter_mut() {
            capture.take(&crossing);
        }
        match &*self.trace.borrow() {
            Some(trace) if trace.left.get() > 0 => trace.recorder.enter(crossing),
            _ => u64::MAX,
        }
    }

    fn leave(&self, span: u64) {
        let depth = self.depth.get().saturating_sub(1);
        self.depth.set(depth);
        if let Some(trace) = &*self.trace.borrow()
            && trace.left.get() > 0
        {
            trace.recorder.leave(span);
            if depth == 0 {
                trace.left.set(trace.left.get() - 1);
            }
        }
        if depth == 0 && self.is_untidy() {
            // The counter is full only if it has been rung already.
            let _ = rustix::io::write(&self.doorbell, &1u64.to_ne_bytes());
        }
    }
}

impl Capture {
    fn take(&mut self, crossing: &Crossing<'_>) {
        use xk_core::trace::Operation::{Call, CallDemux, Demux, Push};
        // A message that comes up crosses the edge once, as it is handed to the upper protocol.
        let crosses = matches!(crossing.operation, Push | Call | Demux | CallDemux);
        let here =
            crossing.lower == self.lower && self.upper.is_none_or(|upper| upper == crossing.upper);
        if self.gone || !crosses || !here {
            return;
        }
        let direction =
            if crossing.operation.is_down() { Direction::Outbound } else { Direction::Inbound };
        let name = |id: ProtocolId| self.names.get(id.0 as usize).map_or("?", String::as_str);
        let comment = format!("{} > {}", name(crossing.upper), name(crossing.lower));
        let parts: Vec<&[u8]> = crossing.message.slices().map(|s| s.octets).collect();
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let time_ns = now.map_or(0, |d| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX));
        let frame = Frame { direction, comment: &comment, ..Frame::new(time_ns, &parts) };
        let written = self.writer.write(self.interface, &frame).and_then(|()| self.writer.flush());
        if let Err(error) = written {
            // A slow client misses a message; one that is gone misses all.
            self.gone = error.kind() == io::ErrorKind::BrokenPipe;
        }
    }
}

/// The protocols at both ends of `upper>lower`, or the protocol whose upper edges are all meant.
fn find_edge(
    kernel: &Kernel,
    lowers: &Lowers,
    edge: &str,
) -> Result<(Option<ProtocolRef>, ProtocolRef), String> {
    let find = |name: &str| {
        kernel.find_protocol(name.trim()).ok_or_else(|| {
            let all: Vec<String> = kernel.protocols().iter().map(|p| p.name().into()).collect();
            format!("no protocol `{}`; there are: {}", name.trim(), all.join(", "))
        })
    };
    let Some((upper, lower)) = edge.split_once('>') else {
        return Ok((None, find(edge)?));
    };
    let (upper, lower) = (find(upper)?, find(lower)?);
    let stands = |name: &str| {
        let found = lowers.iter().find(|(n, _)| n == name);
        found.map_or(&[][..], |(_, below)| below.as_slice())
    };
    // A virtual protocol such as arp hands its upper the sessions of the layer below: that edge
    // exists, too.
    let below = stands(upper.name());
    let near =
        below.iter().any(|n| n == lower.name() || stands(n).iter().any(|n| n == lower.name()));
    if !near {
        let (upper, lower) = (upper.name(), lower.name());
        let what = format!("`{upper}` does not stand on `{lower}`");
        return Err(match below {
            _ if stands(lower).iter().any(|n| n == upper) => {
                format!("{what}: that edge is {lower}>{upper}")
            }
            [] => format!("{what}, nor on any"),
            below => format!("{what} but on: {}", below.join(", ")),
        });
    }
    Ok((Some(upper), lower))
}

/// Link type of the messages that cross the edge.
fn link_type(
    kernel: &Kernel,
    lowers: &Lowers,
    upper: Option<&ProtocolRef>,
    lower: &ProtocolRef,
) -> LinkType {
    let stands_here = |(_, below): &&(String, Vec<String>)| below.iter().any(|n| n == lower.name());
    let above: Vec<ProtocolRef> = match upper {
        Some(upper) => vec![upper.clone()],
        None => {
            let names = lowers.iter().filter(stands_here).map(|(name, _)| name);
            names.filter_map(|name| kernel.find_protocol(name)).collect()
        }
    };
    let mut types = above.iter().map(|upper| xk_pcap::link_type(kernel, upper, lower));
    let first = types.next().flatten();
    first.filter(|first| types.all(|other| other == Some(*first))).unwrap_or(LinkType::USER0)
}
