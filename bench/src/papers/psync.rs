//! The cost of Psync beside UDP, by the number of participants.

use super::quoted::quoted;
use crate::case::Case;
use crate::group::Group;

const OPERATIONS: u64 = 1000;
const PARTICIPANTS: [usize; 5] = [2, 3, 5, 9, 16];
const UDP: &str = "xk, UDP to each";
/// The layers, as systems.
const SYSTEMS: [(&str, &str); 2] = [("xk, Psync", "psync"), (UDP, "udp")];
const THERE_AND_BACK: &str = "2 participants, 1 octet there and back";
/// The paper's time of that.
const PSYNC_NS: f64 = 2.9e6;

pub(crate) fn cases() -> Vec<Case> {
    let mut list = vec![quoted(THERE_AND_BACK, "Psync, Sun 3/75", PSYNC_NS)];
    let beside = |case: Case, system| {
        let case = case.of(system);
        if system == UDP { case } else { case.beside(UDP) }
    };
    for (system, layer) in SYSTEMS {
        let case = Case::new(THERE_AND_BACK, OPERATIONS, move || {
            let mut group = Group::answered(layer, 2, true).expect("a group");
            move |operations| {
                // The question and its answer are heard once each.
                (0..operations).for_each(|_| group.exchange(1, 2).expect("an answer"));
            }
        });
        list.push(beside(case, system));
    }
    for participants in PARTICIPANTS {
        for (system, layer) in SYSTEMS {
            let row = format!("{participants} participants, a message to all");
            let case = Case::new(row, OPERATIONS, move || {
                let mut group = Group::new(layer, participants).expect("a group");
                move |operations| {
                    (0..operations).for_each(|_| group.send(&[0], 1, 1).expect("all hear it"));
                }
            });
            list.push(beside(case, system));
        }
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_reaches_all() {
        for (_, layer) in SYSTEMS {
            Group::new(layer, 3).unwrap().send(&[0], 2, 1).unwrap();
            Group::answered(layer, 2, true).unwrap().exchange(1, 2).unwrap();
        }
    }
}
