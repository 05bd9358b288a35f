//! A simulated network of which everything is seen.

use std::cell::RefCell;
use std::net::Ipv4Addr;
use std::rc::Rc;
use xk_compose::{SimulationConfig, check, simulate, start_world};
use xk_core::Time;
use xk_sim::{Sighting, Tap};

/// The host that is looked at.
pub(crate) const CLIENT: &str = "10.0.0.1";

/// An IPv4 packet that the host sent.
pub(crate) struct Sent {
    pub(crate) to: Ipv4Addr,
    /// The packet from the IPv4 header on.
    pub(crate) packet: Vec<u8>,
}

#[derive(Default)]
struct Seen(RefCell<Vec<Sent>>);

impl Tap for Seen {
    fn frame(&self, sighting: Sighting<'_>) {
        let frame: Vec<u8> = sighting.frame.slices().fold(Vec::new(), |mut all, slice| {
            all.extend_from_slice(slice.octets);
            all
        });
        let client: Ipv4Addr = CLIENT.parse().unwrap();
        if frame.len() >= 34 && frame[12..14] == [8, 0] && frame[26..30] == client.octets() {
            let to = Ipv4Addr::new(frame[30], frame[31], frame[32], frame[33]);
            let packet = frame[14..].to_vec();
            self.0.borrow_mut().push(Sent { to, packet });
        }
    }
}

/// Hosts on one link: each with its name, its address, and what stands on its `ip`.
pub(crate) fn graph(hosts: &[(&str, &str, &str)]) -> String {
    let mut text = String::new();
    for (name, address, above) in hosts {
        let above = above.replace("; ", "\n    ");
        let route = match *name {
            "gateway" => "",
            _ => "route default via=\"10.0.0.9\"; ",
        };
        text.push_str(&format!(
            "host {name} {{\n    sim link=lan\n    eth sim\n    arp eth\n    \
             ip arp {{ address \"{address}/8\"; {route}}}\n    {above}\n}}\n"
        ));
    }
    text + "link lan kind=hub delay=\"50us\"\n"
}

/// All that the host sends in so many seconds of a world of this seed.
pub(crate) fn run(source: &str, seed: u64, seconds: u64) -> Vec<Sent> {
    let checked = check(source, "secrets.kdl", &xk_catalog::standard());
    let checked = checked.unwrap_or_else(|mistakes| panic!("{mistakes}\n{source}"));
    let config = SimulationConfig { seed, ..SimulationConfig::default() };
    let mut world = simulate(&checked, config).unwrap_or_else(|e| panic!("{e}"));
    let seen = Rc::new(Seen::default());
    world.network().set_tap(Some(seen.clone()));
    start_world(&checked, &mut world).unwrap_or_else(|e| panic!("{e}"));
    world.run_until(Time::from_s(seconds));
    seen.0.take()
}
