//! The subsystem in a kernel: its node, and the lines of a graph that are drivers and multiplexors.

use crate::module::Streamtab;
use crate::modules::{CountTab, StreamModules};
use crate::pack::Form;
use crate::packers::Tab;
use crate::queue::{Q, Side};
use crate::streams::{Bounds, Streams, chain};
use alloc::format;
use alloc::rc::Rc;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use xk_core::control::{Report, own_question, question};
use xk_core::graph::{Build, BuildError, int, octets, text};
use xk_core::object::OpenError;
use xk_core::{Answer, Ask, Entry, Kernel, Protocol, ProtocolRef};

/// The catalog entry of the subsystem's node.
pub static ENTRY: Entry = Entry::framework("streams", include_str!("lib.rs"), build)
    .summary("System V STREAMS as a framework for protocols")
    .parameters(&[
        int("blocks_max", 16..=1_048_576, 16_384, "data blocks at one time"),
        octets("octets_max", 16 << 20, "octets of data blocks at one time"),
        int("streams_max", 1..=1_048_576, 1024, "streams at one time"),
        int("push_max", 1..=64, 9, "modules that may be pushed on one stream"),
        text("autopush", AUTOPUSH, "", "modules that each stream opened on a line gets"),
    ])
    .questions(&[
        question("report", "streams, blocks and messages, the modules of each stream"),
        own_question::<StreamModules>("the modules of the streams on a line, pushed and popped"),
    ]);

const AUTOPUSH: &str = "lines, each with its modules, such as \"ddp squeeze, ether queue\"";

/// The node: it owns the timers of the subsystem and answers for it.
struct Node(Rc<Streams>);

impl Protocol for Node {
    fn start(&self, _: &Kernel, _: &ProtocolRef) -> Result<(), OpenError> {
        // All lines have been built.
        if self.0.missing_autopush().is_some() { Err(OpenError::NoLower) } else { Ok(()) }
    }

    fn timeout(&self, cx: &Kernel, _: &ProtocolRef, token: u64) {
        self.0.core.timeout(cx, token);
    }

    fn control(&self, cx: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        if let Some(asked) = ask.get::<StreamModules>() {
            self.0.change_modules(cx, asked);
            return Answer::Answered;
        }
        ask.answer::<Report>(|report| {
            report.lines = self.0.report();
            report.finished = true;
        })
    }

    fn stop(&self, cx: &Kernel, _: &ProtocolRef) {
        self.0.stop(cx);
    }
}

fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let bounds = Bounds {
        blocks_max: build.int("blocks_max")?,
        octets_max: build.octets("octets_max")?,
        streams_max: build.int("streams_max")?,
        push_max: build.int("push_max")?,
    };
    let (streams, node) = add(build.cx, build.name, bounds);
    let autopush = build.params.text("autopush").unwrap_or_default();
    streams.set_autopush(autopush).map_err(|error| BuildError::Environment {
        param: Some("autopush"),
        what: error.to_string(),
        help: format!("there are the modules {}", streams.module_names().join(", ")),
    })?;
    Ok(node)
}

/// Makes the subsystem of a kernel and its node, for programs that compose without a graph file.
pub fn add(cx: &Kernel, name: &str, bounds: Bounds) -> (Rc<Streams>, ProtocolRef) {
    let streams = Streams::new(cx, bounds);
    cx.surround(Rc::clone(&streams));
    let node = cx.add_protocol(ENTRY.kind, name, Node(Rc::clone(&streams)));
    streams.core.set_node(node.id());
    streams.add_module("count", Rc::new(CountTab));
    streams.add_module("queue", Rc::new(Tab::Queue));
    streams.add_module("squeeze", Rc::new(Tab::Pack(Form::Runs)));
    streams.add_module("crunch", Rc::new(Tab::Pack(Form::Repeats)));
    (streams, node)
}

/// A line of a graph that is a driver or a multiplexor: a node for its name and its counters.
struct Line {
    lowers: Vec<ProtocolRef>,
    /// Lines of this subsystem below it, by whatever name they have.
    tab: Rc<dyn Streamtab>,
}

impl Protocol for Line {
    /// Links the lines below, in the order of the graph, by `I_PLINK`.
    fn start(&self, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        let streams = Streams::of(cx).ok_or(OpenError::NoLower)?;
        if self.tab.lower().is_none() {
            return Ok(());
        }
        for lower in self.lowers.iter().filter(|lower| streams.line(lower.id()).is_some()) {
            let linked = streams.link_lines(cx, this.id(), lower.id());
            linked.map_err(|error| match error {
                crate::Errno::ENOSR => OpenError::NoBuffers,
                crate::Errno::EADDRINUSE => OpenError::InUse,
                crate::Errno::EINVAL => OpenError::NotSupported,
                _ => OpenError::NoLower,
            })?;
        }
        Ok(())
    }

    fn control(&self, cx: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        self.tab.control(cx, ask).unwrap_or_else(|| match self.lowers.first() {
            Some(lower) => lower.control(cx, ask),
            None => Answer::Unknown,
        })
    }

    fn lower(&self) -> Option<&ProtocolRef> {
        self.lowers.first()
    }

    fn stop(&self, cx: &Kernel, _: &ProtocolRef) {
        self.tab.stop(cx);
    }
}

/// Makes the node of a line of a graph and registers its driver or multiplexor: the whole of an
/// entry's build but for its parameters. Lines below it that are of this subsystem are linked below
/// it when the graph starts.
///
/// # Errors
/// [`BuildError::Environment`] in a kernel without the subsystem.
pub fn line(build: &Build<'_>, tab: Rc<dyn Streamtab>) -> Result<ProtocolRef, BuildError> {
    add_line(build.cx, build.entry.kind, build.name, build.lowers, tab)
}

/// As [`line()`], for programs that compose without a graph file: of this kind and name.
///
/// # Errors
/// As of [`line()`].
pub fn add_line(
    cx: &Kernel,
    kind: &'static str,
    name: &str,
    lowers: &[ProtocolRef],
    tab: Rc<dyn Streamtab>,
) -> Result<ProtocolRef, BuildError> {
    let streams = Streams::of(cx).ok_or_else(missing)?;
    let line = Line { lowers: lowers.to_vec(), tab: Rc::clone(&tab) };
    let node = cx.add_protocol(kind, name, line);
    tab.placed(&node);
    streams.register(node.id(), name, tab);
    Ok(node)
}

pub(crate) fn missing() -> BuildError {
    BuildError::Environment {
        param: None,
        what: "the host has no STREAMS".into(),
        help: "write the line within `subsystem streams { ... }`".into(),
    }
}

impl Streams {
    /// Figures for a person: what `netstat -m` says of blocks, `strconf` of streams.
    pub fn report(&self) -> Vec<(String, String)> {
        let (stats, counts) = (self.blocks().stats(), self.counts());
        let (opened, open) = self.opens();
        let mut lines: Vec<(String, String)> = [
            ("streams", format!("{open} open, {opened} opened")),
            ("message blocks", stats.messages.to_string()),
            ("data blocks", format!("{}, {} at most", stats.blocks, stats.blocks_high_water)),
            ("data octets", stats.octets.to_string()),
            ("blocks refused", stats.failures.to_string()),
            ("services", format!("{} in {} runs", counts.services, counts.runs)),
            ("writers blocked", counts.blocked.to_string()),
            ("back-enables", counts.back_enables.to_string()),
            ("messages lost", counts.lost.to_string()),
            ("messages flushed", counts.flushed.to_string()),
            ("bufcalls", counts.bufcalls.to_string()),
            ("links", self.link_count().to_string()),
        ]
        .map(|(name, text)| (name.into(), text))
        .into();
        for class in stats.classes.iter().filter(|class| class.made > 0) {
            let name = match class.octets {
                0 => "blocks lent".into(),
                octets => format!("blocks of {octets}"),
            };
            lines.push((name, format!("{} live, {} made", class.live, class.made)));
        }
        for top in self.tops.borrow().iter() {
            let names: Vec<&str> = chain(&top.q).iter().map(|q| q.module().info().name).collect();
            let above = top.q.module().info().name;
            lines.push(("stream".into(), format!("{above} {}", names.join(" "))));
            lines.extend(core::iter::once(top.q.write_side()).chain(chain(&top.q)).flat_map(|q| {
                [q.read_side(), q].into_iter().filter_map(|q| Some(("queue".into(), in_words(&q)?)))
            }));
        }
        lines
    }
}

/// Contents and counters of a queue as text, if ever a message waited in it.
fn in_words(q: &Q) -> Option<String> {
    let (figures, side) = (
        q.figures(),
        match q.side() {
            Side::Read => "read",
            Side::Write => "write",
        },
    );
    let (name, (high, low)) = (q.module().info().name, q.marks());
    (figures.octets_max > 0).then(|| {
        format!(
            "{name} {side}: {} messages, {} octets, {} at most, marks {high} and {low}, {} services, \
             {} blocked, {} back-enables",
            q.qsize(),
            q.count(),
            figures.octets_max,
            figures.services,
            figures.blocked,
            figures.back_enables,
        )
    })
}
