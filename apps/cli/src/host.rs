//! One host of a graph in real time: built, started, run.

use crate::failure::Failure;
use crate::output;
use crate::user::User;
use crate::view::Lowers;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use xk_compose::CheckedGraph;
use xk_core::graph::Realm;
use xk_core::{HostAddr, Kernel, ProtocolRef};
use xk_kit::EthAddr;
use xk_kit::control::{MyEther, MyHost};
use xk_kit::net::notice::Notices;
use xk_kit::passthrough::EpochOffset;
use xk_lang::{HostInstance, Node, Severity, Value};
use xk_run::{Runner, real_kernel};
use xk_show::figures;
use xk_tracer::TraceLines;

/// The bound of all messages together, in octets.
const POOL_OCTETS_MAX: usize = 256 << 20;

/// A kernel with the host's protocols, not started: callers may add their own on top. Files and
/// sockets are `user`'s.
pub(crate) fn build(
    graph: &CheckedGraph,
    host: &HostInstance<'_>,
    user: User,
) -> Result<Rc<Kernel>, Failure> {
    user.begin()?;
    let missing = xk_compose::check_environment(graph, Some(&host.name), Severity::Error);
    if missing.has_errors() {
        return Err(Failure::Mistakes(Box::new(missing)));
    }
    let kernel = kernel()?;
    xk_compose::build(graph, host, &kernel)?;
    Ok(kernel)
}

/// A kernel without protocols.
pub(crate) fn kernel() -> Result<Rc<Kernel>, Failure> {
    let kernel = real_kernel(POOL_OCTETS_MAX).map_err(no_kernel)?;
    furnish(&kernel);
    Ok(Rc::new(kernel))
}

/// A kernel without protocols, and the file in which its pool lies.
pub(crate) fn lending_kernel() -> Result<(Rc<Kernel>, OwnedFd), Failure> {
    let (kernel, pool) = xk_run::lending_kernel(POOL_OCTETS_MAX).map_err(no_kernel)?;
    furnish(&kernel);
    Ok((Rc::new(kernel), pool))
}

fn no_kernel(error: io::Error) -> Failure {
    Failure::new(format!("cannot make a kernel: {error}"))
}

/// The kernel knows the time, and says on the standard output what is to be said.
pub(crate) fn furnish(kernel: &Kernel) {
    // The kernel's clock begins when it is run, a moment from now.
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
    kernel.surround(Rc::new(EpochOffset(since_1970.unwrap_or(Duration::ZERO))));
    kernel.surround(Rc::new(TraceLines(Box::new(|line: &str| {
        output::print(&format!("{line}\n"));
    }))));
    kernel.surround(Rc::new(Notices(Box::new(|line: &str| {
        output::print(&format!("{line}\n"));
    }))));
}

/// Starts what was built, and is nothing but `user` then: devices are open.
pub(crate) fn start(
    graph: &CheckedGraph,
    host: &HostInstance<'_>,
    runner: &Runner,
    user: User,
) -> Result<(), Failure> {
    xk_compose::started(graph, host, runner.start())?;
    user.give_up_root()
}

/// The anchors that have something to finish.
pub(crate) fn unfinished(kernel: &Kernel) -> Vec<ProtocolRef> {
    let mut all = kernel.protocols();
    let left =
        |p: &ProtocolRef| !p.is_proxy() && figures::report(kernel, p).is_some_and(|r| !r.finished);
    all.retain(left);
    all
}

/// The anchors with whose end the run ends. A protocol that finds something out on the way is none
/// as long as an application of the host, in whichever domain, serves others.
pub(crate) fn ends_with(kernel: &Kernel, host: &HostInstance<'_>) -> Vec<ProtocolRef> {
    let is_application =
        |kind: &str| xk_catalog::find(kind).is_some_and(|entry| entry.realm == Realm::Top);
    let mut all = unfinished(kernel);
    let finishes = |name: &str| all.iter().any(|protocol| protocol.name() == name);
    let serves = |node: &Node| is_application(&node.kind) && !finishes(&node.name);
    if host.nodes().iter().any(serves) {
        all.retain(|protocol| is_application(protocol.head().kind()));
    }
    all
}

/// The devices of a host that has started, and its addresses.
pub(crate) struct Devices {
    /// A line for each.
    pub(crate) lines: Vec<String>,
    /// First address of the host.
    pub(crate) address: Option<HostAddr>,
    /// Neighbours reach it over Linux's network.
    pub(crate) is_outside: bool,
}

fn my_host(kernel: &Kernel, protocol: &ProtocolRef) -> Option<HostAddr> {
    let unknown = MyHost::default();
    Some(protocol.ask(kernel, unknown)?.host)
}

/// Asks what is open for its addresses.
pub(crate) fn devices(kernel: &Kernel, host: &HostInstance<'_>) -> Devices {
    let (mut lines, mut outside, mut first) = (Vec::new(), false, None);
    let nodes = host.nodes();
    for protocol in kernel.protocols().into_iter().filter(|protocol| !protocol.is_proxy()) {
        let (name, kind) = (protocol.name(), protocol.head().kind());
        // What stands above the graph has no node.
        let node = nodes.iter().find(|node| *node.name == *name);
        let node = node.filter(|node| node.lowers.is_empty());
        if let (Some(node), Some(_)) = (node, protocol.wire()) {
            outside |= matches!(kind, "tap" | "packet");
            let device = node.param("device").and_then(|param| match &*param.value {
                Value::Text(device) => Some(format!(", device {device}")),
                _ => None,
            });
            let address = protocol.ask(kernel, MyEther::default());
            let address = address.map(|q| format!(" {}", EthAddr(q.address)));
            let address = address.or_else(|| Some(format!(" {}", my_host(kernel, &protocol)?)));
            let (address, device) = (address.unwrap_or_default(), device.unwrap_or_default());
            lines.push(format!("wire {name}{address}{device}"));
        }
        if kind == "ip"
            && let Some(mine) = my_host(kernel, &protocol)
        {
            lines.push(format!("{name} {mine}"));
            first = first.or(Some(mine));
        }
    }
    Devices { lines, address: first, is_outside: outside }
}

/// Returns the names that Linux has for the host's devices.
pub(crate) fn device_names(host: &HostInstance<'_>) -> Vec<String> {
    let of = |node: &xk_lang::Node| match &*node.param("device")?.value {
        Value::Text(device) => Some(device.to_string()),
        _ => None,
    };
    host.nodes().iter().filter_map(of).collect()
}

/// The lowers of each node of the host.
pub(crate) fn lowers(host: &HostInstance<'_>) -> Lowers {
    let nodes = host.nodes();
    let below = |node: &xk_lang::Node| node.lowers.iter().map(|name| name.to_string()).collect();
    nodes.iter().map(|node| (node.name.to_string(), below(node))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a host with these applications and gives its last words; the host looks up names, too.
    fn ends(applications: &str) -> Vec<String> {
        let text = format!(
            "host lab {{\n\
             loopback name=wire\nip wire {{ address \"10.0.0.1/24\"; }}\nicmp ip\nudp ip\n\
             host-eth local=\"127.0.0.1:0\" peer=\"127.0.0.1:9\"\neth host-eth\naarp eth\n\
             ddp aarp\nnbp ddp {{ lookup \"=:=@*\"; }}\n{applications}\n}}\n"
        );
        let graph = xk_compose::check(&text, "lab", &xk_catalog::standard());
        let graph = graph.unwrap_or_else(|mistakes| panic!("{mistakes}"));
        let host = graph.host("lab").expect("it is there");
        let Ok(kernel) = kernel() else {
            panic!("no kernel");
        };
        let built = xk_compose::build(&graph, &host, &kernel);
        drop(built.unwrap_or_else(|mistakes| panic!("{mistakes}")));
        ends_with(&kernel, &host).iter().map(|anchor| anchor.name().to_owned()).collect()
    }

    #[test]
    fn a_run_goes_on_as_long_as_applications_serve() {
        let (serves, asks) = ("echo udp port=7", "probe icmp to=\"10.0.0.1\" count=1");
        assert_eq!(ends(""), ["nbp"], "nothing but a lookup");
        assert_eq!(ends(asks), ["nbp", "probe"], "both have something to finish");
        assert_eq!(ends(serves), <[&str; 0]>::default(), "a server has nothing to finish");
        assert_eq!(ends(&format!("{serves}\n{asks}")), ["probe"]);
    }
}
