//! Figure 6: UDP round trips against the number of open ports.

use super::linux::sockets::Sockets;
use super::quoted::{LINUX, SUN_OS, X_KERNEL, quoted};
use crate::case::{Case, Sample, Shared, Trouble};
use crate::many_sessions::{Choice, ManySessions};

/// Ports open besides the one in use, and that one.
const PORTS: [usize; 8] = [1, 10, 20, 40, 60, 80, 100, 1000];
/// Round trips of a round.
const TRIPS: f64 = 20_000.0;
const SOCKET_TRIPS: f64 = 1000.0;
const NS_PER_US: f64 = 1000.0;

pub(crate) fn cases() -> Vec<Case> {
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
