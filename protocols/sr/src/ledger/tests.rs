use super::*;
use std::vec;
use std::vec::Vec;
use xk_core::random::Random;

#[test]
fn a_report_is_read_as_it_was_written_and_cut_it_is_none() {
    let mut ledger = Ledger::default();
    ledger.sent(2);
    ledger.sent(2);
    ledger.received(1);
    let octets = ledger.emit();
    assert_eq!(octets, [0, 1, 255, 255, 255, 255, 0, 2, 0, 0, 0, 2]);
    assert_eq!(Ledger::parse(&octets), Some(ledger));
    for cut in 0..octets.len() {
        assert_eq!(Ledger::parse(&octets[..cut]).is_some(), cut % COUNT == 0);
    }
    let twice = [&octets[..6], &octets[..6]].concat();
    assert_eq!(Ledger::parse(&twice), None);
}

/// A machine of the model: it goes on with what it was given, and is idle when there is nothing.
struct Machine {
    ledger: Ledger,
    work: u32,
    reports: u32,
}

/// Machines that send each other messages, each of which arrives some time; each report, too.
#[test]
fn the_end_is_found_when_nothing_is_under_way_and_not_before() {
    xk_testkit::seeds::of(1).run(|seed| {
        let random = Random::new(seed);
        let n = 2 + random.below(5) as usize;
        let new =
            |at| Machine { ledger: Ledger::default(), work: u32::from(at == 0) * 3, reports: 0 };
        let mut machines: Vec<Machine> = (0..n).map(new).collect();
        let (mut under_way, mut reports) = (Vec::new(), Vec::new());
        let (mut totals, mut left) = (Totals::new(n as u16), 40);
        for step in 0.. {
            let at = random.below(n as u64) as usize;
            match random.below(4) {
                0 if machines[at].work > 0 => {
                    machines[at].work -= 1;
                    for _ in 0..random.below(3).min(left) {
                        let to = random.below(n as u64) as usize;
                        if to != at {
                            machines[at].ledger.sent(to as u16);
                            under_way.push(to);
                            left -= 1;
                        }
                    }
                }
                1 if !under_way.is_empty() => {
                    let to = under_way.swap_remove(random.below(under_way.len() as u64) as usize);
                    machines[to].ledger.received(to as u16);
                    machines[to].work += 1;
                }
                2 if machines[at].work == 0 => {
                    machines[at].reports += 1;
                    reports.push((at as u16, machines[at].reports, machines[at].ledger.clone()));
                }
                3 if !reports.is_empty() => {
                    let at = random.below(reports.len() as u64) as usize;
                    let (machine, number, ledger) = reports.swap_remove(at);
                    totals.hear(machine, number, ledger);
                    let is_over = under_way.is_empty() && machines.iter().all(|m| m.work == 0);
                    if totals.is_over() {
                        assert!(is_over, "seed {seed}: something can still go on at step {step}");
                        break;
                    }
                }
                _ => {}
            }
            assert!(step < 100_000, "seed {seed}: the end is not found");
        }
    });
}

#[test]
fn without_all_machines_there_is_no_end() {
    let mut totals = Totals::new(2);
    totals.hear(0, 1, Ledger::default());
    totals.hear(7, 1, Ledger::default());
    assert!(!totals.is_over(), "machine 7 is none of this program");
    totals.hear(1, 2, Ledger(vec![(0, 1)].into_iter().collect()));
    assert!(!totals.is_over(), "a message to machine 0 is under way");
    totals.hear(1, 1, Ledger::default());
    assert!(!totals.is_over(), "an older report is nothing new");
    totals.hear(0, 2, Ledger(vec![(0, -1)].into_iter().collect()));
    assert!(totals.is_over());
    assert!(!Totals::new(0).is_over());
}
