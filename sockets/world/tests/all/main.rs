//! Programs in the simulator: each test runs its seeds twice, and both runs end alike.

mod echo;
mod faults;
mod frames;
mod graphs;
mod http;
mod paths;
mod plans;
mod programs;
mod quic;
mod readme;
mod sweeps;
mod system;
mod threads;
mod tls;
mod tonic;

/// The documents show the test of `readme.rs`.
#[test]
fn documents_show_what_runs() {
    let shown = concat!("```rust\n", include_str!("readme.rs"), "```\n");
    assert!(include_str!("../../../../README.md").contains(shown));
    assert!(include_str!("../../../../docs/world.md").contains(shown));
}
