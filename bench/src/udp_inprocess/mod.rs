//! UDP over IP over Ethernet in one process: send, and receive at the other end.
//!
//! Two hosts, a cable between them. One operation makes a message of the given size, pushes it
//! through UDP, IP, ARP's session and ETH onto the cable, and passes the frame up through the other
//! host's ETH, IP and UDP to the application, which counts it. All checksums are computed and
//! verified on both sides of the comparison.

mod ours;
mod smoltcp_peer;

use crate::case::{Benchmark, Case, Goal};

pub(crate) use ours::Pair;

pub(crate) fn benchmark() -> Benchmark {
    Benchmark::new(
        "udp-inprocess",
        "UDP/IP/ETH send + receive in one process, checksums on",
        "ns",
        cases,
    )
    .why(include_str!("../why/udp-inprocess.md"))
}

const OPERATIONS: u64 = 60_000;

fn cases() -> Vec<Case> {
    let mut list = Vec::new();
    for (octets, batch) in [(64, 1), (64, 32), (1472, 1)] {
        let row = match batch {
            1 => format!("{octets} octets"),
            _ => format!("{octets} octets, batches of {batch}"),
        };
        let mut case =
            Case::new(row.clone(), OPERATIONS, move || ours::Pair::new(1).exchange(octets, batch))
                .beside("smoltcp");
        if (octets, batch) == (64, 1) {
            case = case.goal(Goal::AtMost(70.0));
            list.push(
                Case::new("64 octets, against smoltcp", OPERATIONS, move || {
                    ours::Pair::new(1).exchange(64, 1)
                })
                .beside("smoltcp")
                .goal(Goal::TimesAsFast(3.0)),
            );
            list.push(
                Case::new("64 octets, against smoltcp", OPERATIONS, move || {
                    smoltcp_peer::exchange(64, 1)
                })
                .of("smoltcp"),
            );
        }
        list.push(case);
        list.push(
            Case::new(row, OPERATIONS, move || smoltcp_peer::exchange(octets, batch)).of("smoltcp"),
        );
    }
    let flows = Case::new("64 octets, 64 flows in turn", OPERATIONS, || {
        ours::Pair::new(64).exchange(64, 1)
    });
    list.push(flows);
    list
}
