//! Figure 6: UDP round trips against the number of open ports.

use super::linux::sockets::Sockets;
use super::quoted::{LINUX, SUN_OS, X_KERNEL, quoted};
use crate::benchmark::{Benchmark, Plot};
use crate::case::{Case, Sample, Shared, Trouble};
use crate::many_sessions::{Choice, ManySessions};

pub(super) fn benchmark() -> Benchmark {
    Benchmark::new(
        "papers/xkernel-figure-6",
        "UDP there and back against the number of open ports, one in use; xk and Linux within one machine (Hutchinson and \
         Peterson 1991, figure 6; its figures from table III and the text on it)",
        "us",
        cases,
    )
    .plot(Plot::Lines { x: "open ports" })
}

/// Ports open besides the one in use, and that one.
const PORTS: [usize; 8] = [1, 10, 20, 40, 60, 80, 100, 1000];
/// Round trips of a round.
const TRIPS: f64 = 20_000.0;
const SOCKET_TRIPS: f64 = 1000.0;
const NS_PER_US: f64 = 1000.0;

fn cases() -> Vec<Case> {
    let mut list = Vec::new();
    for ports in PORTS {
        let row = format!("{ports} ports");
        let many = move |_| ManySessions::with_ports(ports).map_err(Trouble::Failed);
        let ours = Case::measured_on(row.clone(), &Shared::default(), many, |many, effort| {
            let times = many.times(Choice::One, (TRIPS * effort) as usize + 1);
            Ok(Sample::of_times(&times, NS_PER_US))
        });
        let sockets = move |_| Sockets::new(ports);
        let theirs =
            Case::measured_on(row.clone(), &Shared::default(), sockets, |sockets, effort| {
                let times = sockets.times(Choice::One, (SOCKET_TRIPS * effort) as usize + 1)?;
                Ok(Sample::of_times(&times, NS_PER_US))
            });
        list.extend([ours.beside(LINUX), theirs.of(LINUX)]);
        // Table III says what one port costs, and the text what forty cost more: nothing, and a
        // tenth.
        let unix = match ports {
            1 => Some(5360.0),
            40 => Some(5896.0),
            _ => None,
        };
        if let Some(unix) = unix {
            list.push(quoted(row.clone(), X_KERNEL, 2000.0));
            list.push(quoted(row, SUN_OS, unix));
        }
    }
    list
}
