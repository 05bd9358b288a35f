//! A host, or what lies on one side of a cut through it.

use std::rc::Rc;
use std::time::{Duration, Instant};
use xk_catalog::PROTOCOLS;
use xk_compose::{CheckedGraph, Lies, build_part, check_text};
use xk_core::graph::Catalog;
use xk_core::object::ProtocolId;
use xk_core::{Kernel, Message, ProtocolRef};
use xk_domains::ring::{Kin, Lending, Ring, Terms};
use xk_domains::{Carrier, Known, Port, add_port, lower_proxy, upper_proxy};
use xk_run::{Idle, Runner, lending_kernel, real_kernel};
use xk_testkit::kernel::Top;

/// More than any of these tests needs, even on a busy machine.
const STEP_TIME_MAX: Duration = Duration::from_secs(20);
/// Time after which a datagram that may have been lost is sent again.
const TRY_EVERY: Duration = Duration::from_millis(100);
/// Octets of a kernel's pool.
const POOL_OCTETS: usize = 1 << 23;
/// Numbers of protocols that are no nodes begin here, and so far further in the half above.
const OWN_FIRST: u32 = 1000;

/// Side of a cut.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Above,
    Below,
}

/// Lending of messages between both halves.
pub(crate) enum Lends {
    Nothing,
    ToThread(Kin),
    ToProcess,
}

/// The cut of a host: the node of this name and all before it lie below.
pub(crate) struct Cut<'a> {
    pub(crate) side: Side,
    pub(crate) last: &'a str,
    pub(crate) ring: Ring,
    pub(crate) lends: Lends,
}

/// A kernel with a part of a host, or all of it, and a protocol above the highest.
pub(crate) struct Half {
    pub(crate) runner: Runner,
    pub(crate) port: Option<Rc<Port>>,
    /// The port as a protocol.
    pub(crate) wire: Option<ProtocolRef>,
    /// By node.
    protocols: Vec<(String, ProtocolRef)>,
    /// Above the highest.
    pub(crate) top: Top,
}

fn known() -> Known {
    Known::of(PROTOCOLS)
}

fn graph(text: &str) -> CheckedGraph {
    let catalog = Catalog::new(PROTOCOLS).unwrap();
    check_text(text, "cut", &catalog).unwrap_or_else(|mistakes| panic!("{mistakes:?}"))
}

/// A kernel and what takes frames from it to the other half.
fn carrier(ring: Ring, lends: Lends) -> (Kernel, Box<dyn Carrier>) {
    let kin = match lends {
        Lends::Nothing => return (real_kernel(POOL_OCTETS).unwrap(), Box::new(ring)),
        Lends::ToThread(kin) => Some(kin),
        Lends::ToProcess => None,
    };
    let (kernel, file) = lending_kernel(POOL_OCTETS).unwrap();
    let terms = Terms::agree(&ring, Some(&file), kin, STEP_TIME_MAX).unwrap();
    let lending = Lending::new(ring, kernel.pool(), terms).unwrap();
    (kernel, Box::new(lending))
}

impl Half {
    /// The only host of a graph, or what lies on one side of a cut.
    pub(crate) fn new(text: &str, idle: Idle, cut: Option<Cut<'_>>) -> Self {
        let graph = graph(text);
        let hosts = graph.graph().expand();
        let [host] = &*hosts else {
            panic!("one host");
        };
        let nodes = host.nodes();
        let (side, last) = cut.as_ref().map_or((None, ""), |cut| (Some(cut.side), cut.last));
        let (kernel, carrier) = match cut {
            None => (real_kernel(POOL_OCTETS).unwrap(), None),
            Some(cut) => {
                let (kernel, carrier) = carrier(cut.ring, cut.lends);
                (kernel, Some(carrier))
            }
        };
        let kernel = Rc::new(kernel);
        let port = carrier.map(|carrier| Port::new(carrier, known()));
        let last = nodes.iter().position(|node| *node.name == *last);
        let is_below = |at: usize| last.is_some_and(|last| at <= last);
        // Nodes are numbered bottom-up, and each is shown in turn.
        let mut number = 0;
        let own_first = OWN_FIRST * if side == Some(Side::Above) { 2 } else { 1 };
        let built = build_part(&graph, host, &kernel, own_first, &mut |site| {
            let id = ProtocolId(number);
            number += 1;
            match side {
                Some(Side::Below) if !is_below(site.at) => Lies::Elsewhere(None),
                Some(Side::Above) if is_below(site.at) => {
                    let entry = site.place.entry();
                    let proxy = port.as_ref().map(|port| {
                        lower_proxy(&kernel, port, id, entry.kind, site.node.name.as_str())
                    });
                    Lies::Elsewhere(proxy)
                }
                _ => Lies::Here,
            }
        });
        let built = built.unwrap_or_else(|mistakes| panic!("{mistakes:?}"));
        let named = nodes.iter().zip(built).filter_map(|(node, built)| {
            built.map(|protocol| (node.name.as_str().to_owned(), protocol))
        });
        let protocols: Vec<_> = named.collect();
        let kinds: Vec<_> = graph
            .plan(0)
            .map(|plan| plan.order().iter().map(|&at| plan.places()[at].entry().kind).collect())
            .unwrap_or_default();
        if let (Some(port), Some(Side::Below)) = (&port, side) {
            for (_, protocol) in &protocols {
                port.grant(protocol);
            }
            port.admit(move |cx: &Kernel, port: &Rc<Port>, of: ProtocolId| {
                let kind = kinds.get(of.0 as usize).copied().unwrap_or("top");
                let name = cx.name_of(of).unwrap_or_else(|| format!("top {}", of.0));
                Some(upper_proxy(cx, port, of, kind, &name))
            });
        }
        let wire = port.as_ref().map(|port| add_port(&kernel, port, "port"));
        let top = Top::add(&kernel, "app");
        let runner = Runner::new(kernel, idle).unwrap();
        runner.start().unwrap_or_else(|(at, why)| panic!("{} does not start: {why}", at.name()));
        Self { runner, port, wire, protocols, top }
    }

    /// A node's protocol, or what stands for it.
    pub(crate) fn node(&self, name: &str) -> &ProtocolRef {
        let found = self.protocols.iter().find(|(node, _)| node == name);
        &found.unwrap_or_else(|| panic!("{name} is here")).1
    }

    pub(crate) fn cx(&self) -> &Kernel {
        self.runner.kernel()
    }

    /// Turns until `done`, for a minute at most.
    pub(crate) fn run_until(&self, what: &str, done: impl Fn() -> bool + 'static) {
        let done = Rc::new(done);
        let finished = Rc::clone(&done);
        self.runner.run(Some(STEP_TIME_MAX), Rc::new(move |_| finished())).unwrap();
        assert!(done(), "{what}");
    }

    /// Asks `done` again and again what comes of the messages that arrive, for a minute at most.
    pub(crate) fn until(&self, what: &str, mut done: impl FnMut(&[Message]) -> bool) {
        let begun = Instant::now();
        let mut received = Vec::new();
        while !done(&received) {
            assert!(begun.elapsed() < STEP_TIME_MAX, "{what}");
            let (top, before) = (self.top.clone(), self.top.received());
            let came = Rc::new(move |_: &Kernel| top.received() > before);
            self.runner.run(Some(TRY_EVERY), came).unwrap();
            received = self.top.take_received().into_iter().map(|r| r.message).collect();
        }
    }
}
