//! The layer that captures what crosses it.

use crate::writer::{self, Frame, Interface, InterfaceId, LinkType, Writer};
use core::cell::{Cell, RefCell};
use core::fmt::Write as _;
use core::time::Duration;
use smallvec::SmallVec;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use xk_core::graph::{Build, BuildError};
use xk_core::object::OpenError;
use xk_core::reason::Class;
use xk_core::{Kernel, Message, ProtocolRef, Reason};
use xk_kit::control;
use xk_kit::passthrough::{Direction, EpochOffset, Filter, Hop, PassThrough};
use xk_kit::wire::offload;

/// Not in the file, because writing has failed; the message went on its way.
pub static NOT_CAPTURED: Reason = Reason::new("not captured", Class::Exhausted);

/// A message of so many slices is noted without allocating; few have more.
const PARTS_FEW: usize = 8;

/// Name of the writer in the file.
const APPLICATION: &str = "xk";

struct Output {
    writer: Writer<Box<dyn Write>>,
    /// One for each link type that was seen.
    interfaces: Vec<(LinkType, InterfaceId)>,
    /// The edge's name, written for each message in the same place.
    comment: String,
}

/// The capturing filter.
pub struct Capture {
    name: String,
    snap_octets: u32,
    /// The file to write once the graph starts.
    out: Cell<Option<Box<dyn Write>>>,
    /// `None` before the start, after the end and after the first error.
    output: RefCell<Option<Output>>,
    epoch: Cell<Duration>,
    /// The layer's own handle, for counting.
    this: RefCell<Option<ProtocolRef>>,
}

pub(crate) fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let file = build.params.text("file").unwrap_or_default();
    let opened = File::create(file).map_err(|error| BuildError::Environment {
        param: Some("file"),
        what: format!("the capture file `{file}` cannot be made: {error}"),
        help: "name a file in a directory where you may write".into(),
    })?;
    let snap_octets = u32::try_from(build.params.octets("snap", 0)).unwrap_or(u32::MAX);
    let capture = Capture::new(build.name, snap_octets, Box::new(BufWriter::new(opened)));
    build.add(PassThrough::new(build.lower(0)?, capture))
}

impl Capture {
    /// A filter that writes to `out`, as the interface `name`, at most `snap_octets` of each
    /// message (0 for all).
    pub fn new(name: &str, snap_octets: u32, out: Box<dyn Write>) -> Self {
        Self {
            name: name.into(),
            snap_octets,
            out: Cell::new(Some(out)),
            output: RefCell::default(),
            epoch: Cell::new(Duration::ZERO),
            this: RefCell::default(),
        }
    }

    /// The interface for messages of one link type, entered with the first of them.
    fn interface(&self, output: &mut Output, edge: &Edge<'_>) -> io::Result<InterfaceId> {
        let Edge { upper, below, link_type: known } = *edge;
        let link_type = known.unwrap_or(LinkType::USER0);
        let entered = output.interfaces.iter().find(|(of, _)| *of == link_type);
        if let Some((_, interface)) = entered {
            return Ok(*interface);
        }
        let description = match known {
            Some(_) => format!("above {below}"),
            None => format!("above {below}; packets of {upper} have no link type"),
        };
        let (name, description, snap_octets) = (&self.name, &description, self.snap_octets);
        let interface = Interface { name, description, link_type, snap_octets };
        let interface = output.writer.add_interface(&interface)?;
        output.interfaces.push((link_type, interface));
        Ok(interface)
    }

    /// Writes a message; false if that is not possible any more.
    fn write(&self, cx: &Kernel, hop: Hop<'_>, direction: Direction, message: &Message) -> bool {
        let below = hop.lower.protocol(cx);
        let link_type = below.as_ref().and_then(|below| link_type(cx, hop.upper, below));
        let edge = Edge {
            upper: hop.upper.name(),
            below: below.as_ref().map_or("", |below| below.name()),
            link_type,
        };
        let mut output = self.output.borrow_mut();
        let Some(output) = output.as_mut() else {
            return false;
        };
        let Ok(interface) = self.interface(output, &edge) else {
            return false;
        };
        let Output { writer, comment, .. } = output;
        comment.clear();
        // Writing to a string does not fail.
        let _ = write!(comment, "{} > {}", edge.upper, edge.below);
        let parts: SmallVec<[&[u8]; PARTS_FEW]> =
            message.slices().map(|slice| slice.octets).collect();
        let time = self.epoch.get().saturating_add(Duration::from_nanos(cx.now().as_ns()));
        let time_ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let direction = match direction {
            Direction::Down => writer::Direction::Outbound,
            Direction::Up => writer::Direction::Inbound,
        };
        let frame = Frame { direction, comment, ..Frame::new(time_ns, &parts) };
        writer.write(interface, &frame).is_ok()
    }
}

/// Edge that a message crosses: the two layers, and the link type of the message.
struct Edge<'a> {
    upper: &'a str,
    below: &'a str,
    link_type: Option<LinkType>,
}

/// The link type of what `upper` pushes into `lower`: that of a wire, or of a protocol whose
/// packets have one of their own; `None` where the registry has none.
pub fn link_type(cx: &Kernel, upper: &ProtocolRef, lower: &ProtocolRef) -> Option<LinkType> {
    if upper.head().kind() == "ip" {
        return Some(LinkType::IPV4);
    }
    let mut at = lower;
    while at.wire().is_none() {
        at = at.numbers_below()?;
    }
    // Layers above a wire pass the question on, and have other octets.
    let asked = at.ask(cx, control::LinkType::default());
    asked.map(|answer| LinkType(answer.number))
}

/// A copy with the checksum that a device further down will fill in; `None` if there is nothing to
/// fill in.
fn completed(cx: &Kernel, message: &Message) -> Option<Message> {
    offload::place(message)?;
    let mut copy = message.try_clone().ok()?;
    offload::complete(cx.pool(), &mut copy).ok()?;
    Some(copy)
}

impl Filter for Capture {
    fn leaves_alone(&self) -> bool {
        true
    }

    fn start(&self, cx: &Kernel, this: &ProtocolRef, _: &ProtocolRef) -> Result<(), OpenError> {
        *self.this.borrow_mut() = Some(this.clone());
        if let Some(offset) = cx.surroundings::<EpochOffset>() {
            self.epoch.set(offset.0);
        }
        if let Some(out) = self.out.take() {
            let begun = Writer::new(out, APPLICATION).ok();
            *self.output.borrow_mut() = begun.map(|writer| Output {
                writer,
                interfaces: Vec::new(),
                comment: String::new(),
            });
        }
        Ok(())
    }

    fn seen(&self, cx: &Kernel, hop: Hop<'_>, direction: Direction, message: &Message) {
        // The file shows what a network would: without a buffer for it, what is there.
        let completed = completed(cx, message);
        let written = self.write(cx, hop, direction, completed.as_ref().unwrap_or(message));
        if !written {
            // Behind half a block nothing can be read.
            self.output.take();
            if let Some(this) = &*self.this.borrow() {
                this.head().drops().count(&NOT_CAPTURED);
            }
        }
    }

    fn stop(&self, _: &Kernel) {
        let this = self.this.take();
        let Some(mut output) = self.output.take() else {
            return;
        };
        if let (Err(_), Some(this)) = (output.writer.flush(), this) {
            this.head().drops().count(&NOT_CAPTURED);
        }
    }
}

#[cfg(test)]
mod tests;
