//! A kernel of a run has a key of the operating system's: two at the same moment show the same
//! peer different numbers. Kernels of one seed show the same.

use std::net::Ipv4Addr;
use xk_compose::{build, check, started};
use xk_core::{Kernel, Part, Participant, Participants, Protocol, Time, Upper};
use xk_testkit::kernel::TestKernel;
use xk_tracer::TraceLog;

/// A host whose segments go to itself, and stay in view.
const HOST: &str = r#"
host one {
    loopback
    ip loopback { address "10.0.0.1/24"; }
    icmp ip
    tracer ip octets=64
    tcp tracer
    echo tcp port=7
}
"#;
const PORT: u16 = 40_000;
/// Octets of the sequence number in a segment, and of the flags.
const SEQUENCE: std::ops::Range<usize> = 4..8;
const FLAGS: usize = 13;

struct App;

impl Protocol for App {}

/// The first two segments of a connection between two fixed ends at a fixed moment, a SYN and its
/// answer.
fn handshake(kernel: &Kernel) -> [Vec<u8>; 2] {
    let checked = check(HOST, "boots.kdl", &xk_catalog::standard());
    let checked = checked.unwrap_or_else(|mistakes| panic!("{mistakes}"));
    let host = checked.host("one").unwrap();
    let built = build(&checked, &host, kernel).unwrap_or_else(|e| panic!("{e}"));
    let app = kernel.add_protocol("app", "app", App);
    kernel.set_now(Time::from_s(100));
    started(&checked, &host, kernel.start()).unwrap_or_else(|e| panic!("{e}"));
    let here = Part::host(Ipv4Addr::new(10, 0, 0, 1));
    let end = |port| Participant::of(here).with(Part::port(port));
    let tcp = built.find("tcp").unwrap();
    let ends = Participants::pair(end(PORT), end(7));
    let opened = tcp.open(kernel, Upper::new(&app), ends);
    opened.unwrap_or_else(|e| panic!("{e:?}"));
    for _ in 0..10 {
        let next = kernel.next_expiry().unwrap_or(kernel.now());
        if next > Time::from_s(101) {
            break;
        }
        kernel.set_now(next.max(kernel.now()));
        kernel.run_due();
    }
    let log = built.find("tracer").unwrap().ask(kernel, TraceLog::default());
    let seen = log.unwrap().crossings;
    let of = |flags: u8| {
        let found = seen.iter().find(|c| c.first().get(FLAGS) == Some(&flags));
        let found = found.unwrap_or_else(|| panic!("{seen:?}"));
        found.first().to_vec()
    };
    let shown = [of(2), of(18)];
    kernel.stop();
    shown
}

#[test]
fn kernels_of_a_run_have_keys_of_their_own() {
    let [one, other] = [0, 1].map(|_| handshake(&xk_run::real_kernel(1 << 22).unwrap()));
    for (one, other) in one.iter().zip(&other) {
        assert_ne!(one[SEQUENCE], other[SEQUENCE]);
    }
}

#[test]
fn kernels_of_one_seed_show_the_same() {
    let [one, same, other] = [1, 1, 2].map(|seed| handshake(&TestKernel::new(seed)));
    assert_eq!(one, same);
    assert_ne!(one[0][SEQUENCE], other[0][SEQUENCE]);
    assert_ne!(one[1][SEQUENCE], other[1][SEQUENCE]);
}
