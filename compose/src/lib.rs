//! Checks graphs, draws them, and makes kernels and simulations of them.
//!
//! A graph file is read by `xk-lang`, which knows the language; this crate knows what the words
//! mean: which protocols there are (the catalog), what each may stand on, and which parameters it
//! has. [`check`] finds every mistake in one run and gives a [`CheckedGraph`], from which
//! everything else is made: [`build`] a kernel, and what the features bring, `host` a [`HostSetup`]
//! for one host on this machine, `domains` what builds a host in several kernels
//! ([`build_domain`]), `attach` the places where programs attach ([`open_doors`]), `simulate` a
//! whole network in virtual time ([`simulate`](simulate())), `draw` pictures ([`draw_text`],
//! [`draw_svg`]).
//!
//! # Example
//! ```
//! let catalog = xk_catalog::standard();
//! let source = "host one {\n    sim link=lan\n    eth smi\n}\nlink lan\n";
//! let Err(mistakes) = xk_compose::check(source, "one.kdl", &catalog) else { panic!() };
//! assert!(mistakes.to_text().starts_with(
//!     "one.kdl:3:9: error: host `one` has no node called `smi`"
//! ));
//!
//! let source = source.replace("smi", "sim");
//! let graph = xk_compose::check(&source, "one.kdl", &catalog).expect("no mistakes");
//! assert_eq!((graph.host_count(), graph.protocol_count()), (1, 2));
//! ```

mod build;
mod check;
#[cfg(feature = "domains")]
mod cut;
mod domain;
#[cfg(feature = "attach")]
mod doors;
#[cfg(feature = "draw")]
mod draw;
mod environment;
mod params;
mod plan;
mod rehearse;
#[cfg(feature = "host")]
mod setup;
#[cfg(feature = "simulate")]
mod simulate;

pub use build::{BuiltHost, Lies, Site, build, build_part, build_some, started};
pub use check::{check, check_text};
#[cfg(feature = "domains")]
pub use cut::{BuiltDomain, build_domain};
pub use domain::{Crossing, DomainPlan, DomainSetup, Grant};
#[cfg(feature = "attach")]
pub use doors::open_doors;
#[cfg(feature = "draw")]
pub use draw::{draw_svg, draw_text};
pub use environment::{check_environment, report_environment};
pub use plan::{CheckedGraph, HostPlan, Place};
#[cfg(feature = "host")]
pub use setup::{HostSetup, OpenHost};
#[cfg(feature = "simulate")]
pub use simulate::{
    CaptureError, Captures, Cuts, Event, Faults, SimulationConfig, domain_name, rebuild_host,
    restart, simulate, start_world,
};
