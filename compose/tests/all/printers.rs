//! A printer of AppleTalk and those that print on it, over a cable that loses, repeats and
//! reorders.

use crate::sim::{example, report, started};
use std::collections::BTreeMap;
use std::time::Duration;
use xk_core::Time;
use xk_testkit::seeds;

/// The report of a node of each host.
fn run(seed: u64) -> BTreeMap<&'static str, BTreeMap<String, String>> {
    let mut world = started(&example("apple-printer.kdl"), seed);
    world.run_until_finished(Time::ZERO + Duration::from_secs(300));
    let reports = [("printer", "printer"), ("one", "print"), ("two", "print")];
    let reports = reports.map(|(host, node)| {
        let report = report(&world, host, node);
        assert!(report.finished && !report.failed, "seed {seed}: {host} {:?}", report.lines);
        (host, report.lines.into_iter().collect())
    });
    reports.into()
}

#[test]
fn every_job_is_printed_octet_by_octet_and_one_at_a_time() {
    let waited = seeds::of(15).sum(|seed| {
        let reports = run(seed);
        let figure = |host: &str, name: &str| reports[host][name].clone();
        // A client may have lost the end of a job that the printer has, and prints it once more.
        let jobs: u64 = figure("printer", "jobs").parse().unwrap();
        assert!(jobs >= 4, "seed {seed}: {reports:?}");
        assert_eq!(figure("one", "printed"), "1", "seed {seed}: {reports:?}");
        assert_eq!(figure("two", "printed"), "3", "seed {seed}: {reports:?}");
        // The last one that was printed is the last of one of the two.
        let last = |host| (figure(host, "octets"), figure(host, "sum"));
        assert!([last("one"), last("two")].contains(&last("printer")), "seed {seed}: {reports:?}");
        [figure("printer", "busy").parse().unwrap()]
    });
    assert_ne!(waited, Some([0]), "some find the printer busy");
}
