//! Programs on transports of the x-kernel's: BSD's sockets and the transport interface of STREAMS,
//! on simulated hosts.

mod datagrams;
mod ends;
mod streams;
mod transactions;

use std::cell::RefCell;
use std::fmt::Write as _;
use std::rc::Rc;
use std::time::Duration;
use xk_compose::{SimulationConfig, check_text, simulate, start_world};
use xk_core::{Kernel, Time};
use xk_sim::World;

/// Hosts `h1`, `h2` ... alike, on one cable.
pub(crate) fn world(hosts: u8, lines: &str, link: &str, seed: u64) -> World {
    let mut source = String::new();
    for host in 1..=hosts {
        let lines = lines.replace("{n}", &host.to_string());
        let _ = writeln!(source, "host h{host} {{\nsim link=lan\n{lines}\n}}");
    }
    let _ = writeln!(source, "link lan {link}");
    let graph = check_text(&source, "g", &xk_catalog::standard());
    let graph = graph.unwrap_or_else(|mistakes| panic!("{}", mistakes.to_text()));
    let config = SimulationConfig { seed, ..SimulationConfig::default() };
    let mut world = simulate(&graph, config).unwrap_or_else(|m| panic!("{}", m.to_text()));
    start_world(&graph, &mut world).unwrap_or_else(|m| panic!("{}", m.to_text()));
    world
}

/// The Internet's transports of the x-kernel's below both frameworks.
pub(crate) const INET: &str = "eth sim
arp eth
ip arp { address \"10.0.0.{n}/24\"; }
udp ip
tcp ip
subsystem bsd { sockets udp tcp; }
subsystem streams { tli udp tcp; }";

/// Lines that programs have to say at the end.
#[derive(Clone, Default)]
pub(crate) struct Said(Rc<RefCell<Vec<String>>>);

impl Said {
    pub(crate) fn say(&self, what: impl Into<String>) {
        self.0.borrow_mut().push(what.into());
    }

    pub(crate) fn sorted(&self) -> Vec<String> {
        let mut all = self.0.borrow().clone();
        all.sort();
        all
    }
}

/// Runs a program on the host `h{n}`.
pub(crate) fn run(world: &mut World, host: u8, program: impl FnOnce(&Kernel) + 'static) {
    let host = world.find(&format!("h{host}")).expect("the host");
    assert!(world.spawn(host, program), "there is a shepherd");
}

pub(crate) fn pass(world: &mut World, time: Duration) {
    let until = world.now().after(time);
    world.run_until(until);
}

/// Every buffer is free, and nothing waits: what each host still has.
pub(crate) fn assert_nothing_is_kept(world: &World, hosts: u8) {
    for host in 1..=hosts {
        let id = world.find(&format!("h{host}")).expect("the host");
        let cx = world.kernel(id).expect("it is up");
        let mbufs = xk_bsd::Bsd::of(cx).map_or(0, |bsd| bsd.mbufs().mbstat().in_use);
        let blocks =
            xk_streams::Streams::of(cx).map_or(0, |streams| streams.blocks().stats().messages);
        assert_eq!((mbufs, blocks), (0, 0), "h{host}: mbufs and blocks");
    }
}

#[allow(dead_code)]
pub(crate) fn at(seconds: u64) -> Time {
    Time::ZERO.after(Duration::from_secs(seconds))
}
