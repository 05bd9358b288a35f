//! `xk switch`: more than two parties at one socket of shared memory.

use crate::failure::Failure;
use crate::output::{self, grouped, heading};
use crate::user;
use std::path::PathBuf;
use xk_run::interrupt_unsafe;
use xk_shm::{Geometry, Options, Peers, PortCounters, Switch};

/// Octets of an Ethernet header.
const HEADER_OCTETS: u32 = 14;

/// Switch frames between processes that share memory: each graph with a wire `shm` of this path is
/// a party
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Path of the switch: the `path` of the wires that it joins
    path: PathBuf,
    /// Largest number of parties, 2 to 256
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(2..=256))]
    ports: u16,
    /// The largest packet in octets, as in the parties' graphs
    #[arg(long, default_value_t = 1500)]
    mtu: u32,
    /// Frames that each direction of a port holds at most, a power of two
    #[arg(long, default_value_t = 512)]
    slots: u32,
    /// The number of the user whose processes may take part; without it, the user of this process
    #[arg(long)]
    peer_uid: Option<u32>,
    #[command(flatten)]
    user: user::UserArgs,
}

pub(crate) fn main(args: &Args) -> Result<(), Failure> {
    let geometry = Geometry::new(args.slots, args.mtu.saturating_add(HEADER_OCTETS));
    let geometry = geometry.ok_or_else(|| {
        Failure::new("slots: a power of two from 8 to 32768; mtu: 46 to 65536 octets".to_owned())
    })?;
    let user = args.user.find()?;
    user.begin()?;
    let options = Options { geometry, peers: args.peer_uid.map_or_else(Peers::own, Peers::User) };
    // Before its socket is made, so that no signal leaves it behind.
    interrupt_unsafe::catch();
    let switch = Switch::new(&args.path, usize::from(args.ports), &options);
    let mut switch = switch.map_err(|error| Failure::new(error.to_string()))?;
    user.give_up_root()?;
    output::print(&format!(
        "{}\n  {} ports at {}\nCtrl-C ends it.\n",
        heading("switch"),
        args.ports,
        args.path.display()
    ));
    let mut parties = 0;
    switch.run(|switch| {
        let now = switch.ports().count();
        if now != parties {
            parties = now;
            output::print(&format!("{now} parties\n"));
        }
        interrupt_unsafe::is_requested()
    });
    output::print(&counters(&switch));
    Ok(())
}

fn counters(switch: &Switch) -> String {
    let mut text = format!("\n{}\n", heading("counters"));
    for (number, peer, counters, addresses) in switch.ports() {
        text +=
            &line(&format!("port {number}, process {}, {addresses} addresses", peer.pid), counters);
    }
    text += &line("parties that are gone", switch.past());
    let all = switch.counters();
    text += &format!(
        "  in all: {} came, {} went, {} broke the rules, {} were refused, {} frames to all\n",
        grouped(all.came),
        grouped(all.gone),
        grouped(all.broken),
        grouped(all.refused),
        grouped(all.flooded)
    );
    text
}

fn line(name: &str, counters: PortCounters) -> String {
    format!(
        "  {name}: {} received, {} sent, {} dropped because its ring was full, {} malformed, {} of others' addresses\n",
        grouped(counters.received),
        grouped(counters.sent),
        grouped(counters.full),
        grouped(counters.malformed),
        grouped(counters.foreign)
    )
}
