//! Ends that stand around one protocol, in each subsystem: what sends and receives above it, and
//! what takes and brings below it. They do nothing else, so that what is between them can be
//! watched ([`crate::stopwatch`]).
//!
//! The ends hand over messages that are ready, in the forms of their subsystem, and free what they
//! get; both is outside of what counts.

mod bsd;
pub(super) mod desk;
mod streams;
mod xk;

use super::configuration::Subsystem;
use crate::stack::{pool, waiting_config};
use desk::{Above, Between, DATAGRAM, Desk, Form};
use std::rc::Rc;
use std::time::Duration;
use xk_catalog::PROTOCOLS;
use xk_core::graph::Catalog;
use xk_core::{Entry, Kernel};

/// Operations after which everything is found and opened.
const WARM: u64 = 8;
/// Time in which nodes claim their addresses.
const STEPS: u32 = 50;
const STEP: Duration = Duration::from_millis(100);

/// One protocol with its ends.
pub(super) struct Rig {
    cx: Rc<Kernel>,
    desk: Rc<Desk>,
    name: String,
}

/// Entries of the real ones' kinds that are taken from the catalog.
fn catalog(real: &[&str]) -> Catalog {
    let is_wanted = |entry: &&&'static Entry| {
        let is_framework = matches!(entry.kind, "bsd" | "streams") || entry.kind.contains("-on-");
        is_framework || real.contains(&entry.kind)
    };
    let known = PROTOCOLS.iter().filter(is_wanted).copied();
    let ends = xk::ENTRIES.iter().chain(&bsd::ENTRIES).chain(&streams::ENTRIES).copied();
    let ends = ends.filter(|entry| !real.contains(&entry.kind));
    let entries: Vec<&'static Entry> = known.chain(ends).collect();
    Catalog::new(&entries).expect("entries that agree")
}

impl Rig {
    /// With the end above, what is between, and the end below in these subsystems: the upper's and
    /// the lower's. What is between is of the upper's, if it is no adapter.
    ///
    /// # Panics
    /// If it cannot be made, or nothing arrives.
    pub(super) fn new(
        above: Above,
        between: Between,
        (upper, lower): (Subsystem, Subsystem),
    ) -> Self {
        let (real, lines, top): (&[&str], String, &str) = match between {
            Between::Ddp => {
                let link = if upper == Subsystem::Xk { "eth" } else { "ether" };
                let ddp = format!("{link}\nddp {link} net=\"10-19\" node=17\nuser ddp\n");
                (&["ddp"], upper.block(&ddp), "user")
            }
            Between::Atp => (&["atp"], upper.block("ddp\natp ddp xo=#false\nuser atp\n"), "user"),
            Between::Edge if upper == lower => (&[], upper.block("ddp\nuser ddp\n"), "user"),
            Between::Edge => (&[], lower.block("ddp\n") + &upper.block("user ddp\n"), "user"),
        };
        let name = format!("{above:?} {between:?} {upper:?} {lower:?} {top}");
        let cx = Rc::new(Kernel::new(waiting_config(&pool(), 1)));
        let desk = Rc::new(Desk::default());
        desk.above.set(above);
        desk.between.set(between);
        cx.surround(Rc::clone(&desk));
        let text = format!("host h {{\n{lines}}}\n");
        let graph = xk_compose::check(&text, "bench", &catalog(real));
        let graph = graph.unwrap_or_else(|d| panic!("{name}: {}", d.to_text()));
        let host = graph.host("h").expect("the graph's only host");
        let built = xk_compose::build(&graph, &host, &cx);
        built.unwrap_or_else(|d| panic!("{name}: {}", d.to_text()));
        let started = xk_compose::started(&graph, &host, cx.start());
        started.unwrap_or_else(|d| panic!("{name}: {}", d.to_text()));
        let rig = Self { cx, desk, name };
        for _ in 0..STEPS {
            rig.cx.set_now(rig.cx.now().after(STEP));
            rig.cx.run_due();
        }
        let ready = rig.desk.ready.take();
        if let Some(ready) = ready {
            ready(&rig.cx);
        }
        if above != Above::Server {
            rig.down(WARM, DATAGRAM, Form::Own);
        }
        if above != Above::Caller {
            rig.up(WARM, DATAGRAM, Form::Own);
        }
        rig
    }

    /// Sends so many messages of so many octets; each has gone out below.
    pub(super) fn down(&self, count: u64, octets: usize, form: Form) {
        let act = self.desk.down.borrow().clone().expect("the end above has started");
        (0..count).for_each(|_| act(&self.cx, octets, form));
        let went = self.desk.went.replace(0);
        assert_eq!(went, count, "{}: messages went", self.name);
        if self.desk.above.get() == Above::Caller {
            assert_eq!(self.desk.came.replace(0), count, "{}: replies came", self.name);
        }
    }

    /// Brings so many messages of so many octets; each has come in above.
    pub(super) fn up(&self, count: u64, octets: usize, form: Form) {
        let act = self.desk.up.borrow().clone().expect("the end below has started");
        (0..count).for_each(|_| act(&self.cx, octets, form));
        assert_eq!(self.desk.came.replace(0), count, "{}: messages came", self.name);
        if self.desk.above.get() == Above::Server {
            assert_eq!(self.desk.went.replace(0), count, "{}: responses went", self.name);
        }
    }

    /// Number of runs of a service procedure of STREAMS: no watched message waits for one.
    #[cfg(test)]
    fn services(&self) -> u64 {
        xk_streams::Streams::of(&self.cx).map_or(0, |streams| streams.counts().services)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::papers::subsystems::configuration::Subsystem::{Bsd, Streams, Xk};

    const ALL: [Subsystem; 3] = [Xk, Bsd, Streams];

    /// The rig itself asserts that what goes in comes out.
    fn runs(above: Above, between: Between, of: (Subsystem, Subsystem)) {
        let rig = Rig::new(above, between, of);
        let before = rig.services();
        for form in [Form::Own, Form::Foreign] {
            if above != Above::Server {
                rig.down(20, DATAGRAM, form);
            }
            if above != Above::Caller {
                rig.up(20, DATAGRAM, form);
            }
        }
        assert_eq!(rig.services(), before, "{}: nothing waits in a queue", rig.name);
    }

    #[test]
    fn each_protocol_passes_on_what_its_ends_hand_it() {
        for of in ALL {
            runs(Above::Datagrams, Between::Ddp, (of, of));
            runs(Above::Caller, Between::Atp, (of, of));
            runs(Above::Server, Between::Atp, (of, of));
        }
    }

    #[test]
    fn programs_send_and_receive() {
        for of in [Bsd, Streams] {
            runs(Above::Program, Between::Edge, (of, of));
        }
    }

    #[test]
    fn each_adapter_passes_messages_of_all_lengths_and_forms() {
        for upper in ALL {
            for lower in ALL.into_iter().filter(|lower| *lower != upper) {
                let rig = Rig::new(Above::Datagrams, Between::Edge, (upper, lower));
                for octets in [1, 45, 1024, 1025, 4624] {
                    for form in [Form::Own, Form::Foreign] {
                        rig.down(3, octets, form);
                        rig.up(3, octets, form);
                    }
                }
            }
        }
    }
}
