//! UDP over IP over Ethernet in one process: send, and receive at the other end.
//!
//! Two hosts, a cable between them. One operation makes a message of the given size, pushes it
//! through UDP, IP, ARP's session and ETH onto the cable, and passes the frame up through the other
//! host's ETH, IP and UDP to the application, which counts it. All checksums are computed and
//! verified on both sides of the comparison.

mod ours;
mod smoltcp_peer;

use crate::case::{Case, Goal};

pub(crate) use ours::Pair;

const OPERATIONS: u64 = 60_000;

pub(crate) fn cases() -> Vec<Case> {
    let both = |(row, octets, batch, goal): (&'static str, usize, u64, Option<Goal>)| {
        let ours = Case::new(row, OPERATIONS, move || Pair::new(1).exchange(octets, batch));
        let theirs = Case::new(row, OPERATIONS, move || smoltcp_peer::exchange(octets, batch));
        let ours = ours.beside("smoltcp");
        [goal.into_iter().fold(ours, Case::goal), theirs.of("smoltcp")]
    };
    let rows = [
        ("64 octets, against smoltcp", 64, 1, Some(Goal::TimesAsFast(3.0))),
        ("64 octets", 64, 1, Some(Goal::AtMost(70.0))),
        ("64 octets, batches of 32", 64, 32, None),
        ("1472 octets", 1472, 1, None),
    ];
    let mut list: Vec<Case> = rows.into_iter().flat_map(both).collect();
    let flows = || Pair::new(64).exchange(64, 1);
    list.push(Case::new("64 octets, 64 flows in turn", OPERATIONS, flows));
    let to_one = || Pair::to_unconnected(1).exchange(64, 1);
    list.push(Case::new("64 octets, to an unconnected session", OPERATIONS, to_one));
    let from_many = || Pair::to_unconnected(64).exchange(64, 1);
    list.push(Case::new("64 octets, 64 flows to an unconnected session", OPERATIONS, from_many));
    list
}
