//! Ten thousand calls at one time on one kernel: what their shepherds take, and what happens beyond
//! the bound.
use xk_compose::{SimulationConfig, check, simulate, start_world};
use xk_core::Time;
use xk_core::control::Report;
use xk_core::shepherd::{Limits, Stats};

/// Calls at one time: in the ordinary run, and in the long one.
const CALLS: u32 = 1_000;
const CALLS_LONG: u32 = 10_000;
/// Octets of a stack that lie in memory, at most: what is touched when it is made, and a page for a
/// deeper call.
const STACK_MAX: usize = 20 * 1024;
/// Octets that a call keeps besides stacks, at most: channels and sessions of both sides, request
/// and reply.
const BESIDES_MAX: usize = 8 * 1024;

/// Client and server on one kernel, on the loopback link: `CALLS` calls of a procedure that sleeps.
fn graph(calls: u32, interval: &str) -> String {
    format!(
        "host one {{
            loopback
            channel    loopback channels_max={max}
            select     channel channels={calls}
            procedures select
            caller     select procedure=5 to=\"10.0.0.1\" interval=\"{interval}\" time=\"3s\" count={calls} concurrency={calls}
        }}",
        max = 3 * calls,
    )
}

/// Octets of this process that lie in memory (proc(5), statm).
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = text.split_whitespace().nth(1).unwrap().parse().unwrap();
    pages * 4096
}

/// Runs the graph, and returns the caller's report by line.
fn run(calls: u32, interval: &str, shepherds_max: u32) -> (Vec<(String, String)>, Stats, usize) {
    let source = graph(calls, interval);
    let graph =
        check(&source, "calls.kdl", &xk_catalog::standard()).unwrap_or_else(|e| panic!("{e}"));
    let config = SimulationConfig { shepherds_max, ..SimulationConfig::default() };
    let mut world = simulate(&graph, config).unwrap_or_else(|e| panic!("{e}"));
    start_world(&graph, &mut world).unwrap_or_else(|e| panic!("{e}"));
    let before = resident();
    world.run_until(Time::from_ms(2000));
    let while_waiting = resident().saturating_sub(before);
    world.run_until_finished(Time::from_ms(120_000));
    let id = world.find("one").unwrap();
    let cx = world.kernel(id).unwrap();
    let caller = cx.find_protocol("caller").unwrap();
    let lines = caller.ask(cx, Report::default()).unwrap().lines;
    let stats = cx.shepherds().stats();
    world.stop();
    (lines, stats, while_waiting)
}

fn figure(lines: &[(String, String)], name: &str) -> u64 {
    let found = lines.iter().find(|(line, _)| line.contains(name));
    found.map_or(0, |(_, value)| value.parse().unwrap())
}

/// Each call has two shepherds here, the client's and the server's, since both live on one kernel.
/// What they take at worst is bounded by their number and the size of a stack,
/// `Limits::stack_octets`; what they take here is stated in `docs/rpc.md`.
fn wait_at_one_time(calls: u32) {
    let (lines, stats, octets) = run(calls, "100us", 2 * calls + 16);
    assert_eq!(figure(&lines, "replies"), u64::from(calls), "{lines:?}");
    assert_eq!(figure(&lines, "waiting at most"), u64::from(calls));
    assert!(stats.in_use_high_water >= 2 * calls, "{stats:?}");
    let each = octets / calls as usize;
    println!("{octets} octets resident for {calls} calls: {each} each, with two shepherds");
    let bound = 2 * STACK_MAX + BESIDES_MAX;
    assert!(STACK_MAX < Limits::default().stack_octets);
    assert!(each <= bound, "{each} octets for each call");
}

#[test]
fn a_thousand_calls_wait_at_one_time() {
    wait_at_one_time(CALLS);
}

#[test]
#[ignore = "takes ten seconds and 350 MB"]
fn ten_thousand_calls_wait_at_one_time() {
    wait_at_one_time(CALLS_LONG);
}

#[test]
fn beyond_the_bound_callers_are_told() {
    let (lines, stats, _) = run(500, "0s", 300);
    let refused = figure(&lines, "no shepherd left");
    assert!(stats.made <= 300, "{stats:?}");
    assert!(stats.refusals_no_shepherds > 0 && refused > 0, "{lines:?}");
    assert_eq!(figure(&lines, "calls"), 500);
    assert_eq!(figure(&lines, "waiting"), 0, "{lines:?}");
}
