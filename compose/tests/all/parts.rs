//! A host whose graph lies in several kernels: its nodes have one numbering in all of them.

use crate::sim::{checked, config, folder};
use std::collections::BTreeSet;
use std::rc::Rc;
use xk_compose::{CheckedGraph, Lies, build_part, simulate};
use xk_core::graph::Shape;
use xk_core::object::{CallCause, CallError, ProtocolId};
use xk_core::{Answer, Ask, Kernel, Protocol, ProtocolRef};
use xk_lang::HostInstance;
use xk_run::real_kernel;

/// First of a part's own numbers.
const OWN_FIRST: u32 = 1000;

/// Stands for a node that another kernel has, and asks it.
struct Elsewhere {
    kernel: Rc<Kernel>,
    real: ProtocolRef,
}

impl Protocol for Elsewhere {
    fn control(&self, _: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        self.real.control(&self.kernel, ask)
    }
}

/// Builds the nodes that `is_here` says, and holds them against the whole host in `whole`.
fn holds(
    (name, graph, host): (&str, &CheckedGraph, &HostInstance<'_>),
    whole: &Rc<Kernel>,
    is_here: &dyn Fn(usize) -> bool,
) {
    let at = graph.graph().hosts.iter().position(|h| std::ptr::eq(h, host.template));
    let places = graph.plan(at.expect("a host")).expect("a plan").places();
    // What stands on something here, or something here on it.
    let is_near = |at: usize| {
        let stands_on = |upper: usize, lower: usize| places[upper].lowers().contains(&lower);
        (0..places.len()).any(|o| is_here(o) && (stands_on(o, at) || stands_on(at, o)))
    };
    let part = real_kernel(1 << 20).expect("a kernel");
    let built = build_part(graph, host, &part, OWN_FIRST, &mut |site| {
        if is_here(site.at) {
            return Lies::Here;
        }
        if !is_near(site.at) {
            return Lies::Elsewhere(None);
        }
        let real = whole.find_protocol(&site.node.name).expect("the whole host has it");
        let other = Elsewhere { kernel: Rc::clone(whole), real };
        Lies::Elsewhere(Some(part.add_protocol(site.place.entry().kind, &site.node.name, other)))
    });
    let built = built.unwrap_or_else(|mistakes| panic!("{name}: {mistakes}"));
    for (at, (protocol, node)) in built.iter().zip(host.nodes().iter()).enumerate() {
        let Some(protocol) = protocol else {
            assert!(!is_here(at) && !is_near(at), "{name}: a hole is what is elsewhere");
            continue;
        };
        let real = whole.find_protocol(&node.name).expect("the whole host has it");
        assert_eq!(protocol.id(), real.id(), "{name}: `{}` has one number", real.name());
    }
    let ids: Vec<ProtocolId> = whole.protocols().iter().map(ProtocolRef::id).collect();
    for (&upper, &lower) in ids.iter().flat_map(|upper| ids.iter().map(move |l| (upper, l))) {
        assert_eq!(
            part.name_of(upper),
            whole.name_of(upper),
            "{name}: a node is known by its number"
        );
        assert_eq!(part.type_number(upper, lower), whole.type_number(upper, lower), "{name}");
    }
    struct Own;
    impl Protocol for Own {}
    let own = [0, 1].map(|_| part.add_protocol("own", "own", Own).id().0);
    assert!(own[0] >= OWN_FIRST && own[1] == own[0] + 1, "{name}: own numbers are apart");
    assert!(part.find_protocol("own").is_some());
    part.stop();
}

#[test]
fn all_kernels_of_a_host_number_its_nodes_alike() {
    let mut kinds = BTreeSet::new();
    for file in std::fs::read_dir(folder("graphs")).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_none_or(|kind| kind != "kdl") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let name = path.file_name().unwrap().to_string_lossy();
        if ["pcap", "domain ", "subsystem "].iter().any(|word| text.contains(word)) {
            // It writes a file, or its hosts have several kernels to begin with, or lines that lie
            // in one kernel with their framework.
            continue;
        }
        let graph = checked(&text);
        // Graphs that reach outside are not simulated, and the large ones are of hosts alike.
        let Ok(world) = simulate(&graph, config(1)) else { continue };
        for host in graph.graph().expand().iter().take(8) {
            let whole = world.find(&host.name).and_then(|id| world.kernel(id)).expect("a host");
            let at = graph.graph().hosts.iter().position(|h| std::ptr::eq(h, host.template));
            let plan = graph.plan(at.unwrap()).expect("a plan");
            for (place, node) in host.nodes().iter().enumerate() {
                let built = whole.find_protocol(&node.name).expect("it is built");
                assert_eq!(Some(built.id()), plan.number(place), "{name}: {}", built.name());
                kinds.insert(built.head().kind());
            }
            let part = |is_part: &dyn Fn(usize) -> bool| {
                let is_here = |at| is_part(at) && plan.places()[at].entry().shape != Shape::Wire;
                holds((&name, &graph, host), whole, &is_here);
            };
            part(&|at| at % 2 == 0);
            part(&|at| at % 2 == 1);
            part(&|at| at < plan.places().len() / 2);
        }
    }
    assert!(kinds.len() > 25, "most kinds occur in the graphs: {kinds:?}");
}

#[test]
fn an_error_names_a_layer_in_another_kernel() {
    let cx = real_kernel(1 << 20).expect("a kernel");
    let node = |kind: &'static str, name: &str| xk_core::Node {
        kind,
        name: name.into(),
        numbers_below: None,
    };
    cx.join_host(vec![node("udp", "u"), node("channel", "slow")], 100);
    let error = CallError::from(CallCause::TimedOut { tries: 3 }).at(ProtocolId(1));
    assert_eq!(error.describe(&cx), "slow: timed out after 3 tries");
    assert!(cx.protocol(ProtocolId(1)).is_none());
}

#[test]
fn a_guest_has_the_number_of_its_program_until_it_goes() {
    let cx = real_kernel(1 << 20).expect("a kernel");
    let node = |kind: &'static str, name: &str| xk_core::Node {
        kind,
        name: name.into(),
        numbers_below: None,
    };
    cx.join_host(vec![node("ip", "ip")], 100);
    struct Own;
    impl Protocol for Own {}
    let ip = cx.add_protocol("ip", "ip", Own);
    let own = cx.add_protocol("own", "own", Own);
    let id = ProtocolId(5000);
    for taken in [ip.id(), ProtocolId(1), own.id()] {
        assert!(cx.add_guest(taken, "program", "taken", Own).is_none(), "{taken:?} is the host's");
    }
    for _ in 0..2 {
        let guest = cx.add_guest(id, "program", "mine", Own).expect("a free number");
        assert!(cx.add_guest(id, "program", "mine", Own).is_none());
        assert_eq!((guest.id(), cx.protocol(id)), (id, Some(guest.clone())));
        assert_eq!(cx.find_protocol("mine"), Some(guest));
        cx.numbers_mut().override_pair(id, ip.id(), 253);
        assert_eq!(cx.type_number(id, ip.id()), Some(253));
        cx.remove_guest(id);
        assert!(cx.protocol(id).is_none() && cx.type_number(id, ip.id()).is_none());
        cx.remove_guest(id);
        assert!(cx.find_protocol("mine").is_none() && cx.protocols().len() == 2);
    }
}
