//! A printer of AppleTalk and those that print on it, over a cable that loses, repeats and
//! reorders.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use xk_compose::{SimulationConfig, check, simulate, start_world};
use xk_core::Time;
use xk_core::control::Report;
use xk_testkit::seeds;

/// The report of a node of each host.
fn run(seed: u64) -> BTreeMap<&'static str, BTreeMap<String, String>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../graphs/apple-printer.kdl");
    let source = std::fs::read_to_string(path).unwrap();
    let graph = check(&source, "apple-printer.kdl", &xk_catalog::standard())
        .unwrap_or_else(|mistakes| panic!("{mistakes}"));
    let config = SimulationConfig { seed, ..SimulationConfig::default() };
    let mut world = simulate(&graph, config).unwrap_or_else(|error| panic!("{error}"));
    start_world(&graph, &mut world).unwrap_or_else(|error| panic!("{error}"));
    world.run_until_finished(Time::ZERO + Duration::from_secs(300));
    let reports = [("printer", "printer"), ("one", "print"), ("two", "print")];
    let reports = reports.map(|(host, node)| {
        let kernel = world.find(host).and_then(|id| world.kernel(id)).unwrap();
        let node = kernel.find_protocol(node).unwrap();
        let report = node.ask(kernel, Report::default()).unwrap();
        assert!(report.finished && !report.failed, "seed {seed}: {host} {:?}", report.lines);
        (host, report.lines.into_iter().collect())
    });
    world.stop();
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
