//! Surroundings for tests.
//!
//! Most tests of this project run in virtual time and need nothing. Some meet the world: the
//! operating system's own stack, its devices, its tools. This crate gives those a place of their
//! own and an honest way to say that they could not run.
//!
//! | module | what it gives |
//! | --- | --- |
//! | [`kernel`] | a kernel under virtual time, with a protocol below that captures and injects and one above that records |
//! | [`calls`] | hosts with a layer of calls each, frames that the test rules, and a model of executions at most once |
//! | [`conformance`] | the laws that every protocol keeps, as one suite, and an allocator that counts |
//! | [`dummy`] | a network layer of 16-octet hosts, which no transport knows of |
//! | [`everything`] | the graph of a host of every protocol, and of one that asks all its servers |
//! | [`messages`] | the laws that every arena, pool and message keeps |
//! | [`netns`] | network namespaces, veth pairs, addresses and programs that vanish with the value that made them |
//! | [`needs`] | `needs_root!()` and `needs_program!("tshark")`: a test that lacks something says so by name and is counted as skipped |
//! | [`peer`] | a runner for test programs with `harness = false` that counts skipped tests, which the standard one cannot |
//! | [`pty_unsafe`] | a serial line to a program |
//! | [`script`] | packet scripts: segments, acts of an application and times, for a protocol of streams |
//! | [`seeds`] | the seeds of tests by chance: how many, each in a process of its own, one alone, and what does one again |
//! | [`signals_unsafe`] | programs that find their signals as a person would have them, however the tests were started |
//! | [`streams`] | streams in a random network against a model, by seed |
//! | [`tshark`] | a second opinion on a capture: malformed packets, wrong checksums, the dissectors' warnings |
//! | [`uml`] | a whole Linux in one process, with modules that the host's kernel may lack |
//! | [`vectors`] | messages that programs of others have sent, octet for octet |
//!
//! # Example
//! ```no_run
//! use xk_testkit::{needs_root, netns::Net, peer};
//!
//! fn pings() {
//!     needs_root!();
//!     let net = Net::new("pings").unwrap();
//!     let (left, right) = (net.space().unwrap(), net.space().unwrap());
//!     net.veth(&left, "v0", &right, "v1").unwrap();
//!     left.address("v0", "10.9.0.1/24").unwrap();
//!     right.address("v1", "10.9.0.2/24").unwrap();
//!     left.exec(&["ping", "-c", "1", "10.9.0.2"]).unwrap();
//! }
//!
//! fn main() -> std::process::ExitCode {
//!     peer::main(&[("pings", pings)])
//! }
//! ```

pub mod calls;
pub mod conformance;
pub mod dummy;
pub mod everything;
pub mod kernel;
pub mod messages;
pub mod needs;
pub mod netns;
mod offload_unsafe;
pub mod peer;
pub mod pty_unsafe;
pub mod script;
pub mod seeds;
pub mod signals_unsafe;
pub mod streams;
pub mod tshark;
pub mod uml;
pub mod vectors;

/// The graph of a host alone, whose packets to itself go round within it.
pub const ALONE: &str = r#"
host alone {
    loopback
    ip loopback { address "10.0.0.1/24"; }
    icmp ip
    udp ip
    tcp ip
}
"#;
