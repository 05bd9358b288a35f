//! The graph language of xk: what a graph file may say, its one parser, its one printer, and how
//! mistakes are shown.
//!
//! A graph file describes hosts, the protocols on each host with their parameters and order,
//! and the links between hosts. This crate knows the language and no protocol: it checks what
//! can be checked from the file alone, and the composer goes on with the same [`Diagnostics`].
//!
//! The language is described in `docs/graph.md`, which `xk help graph` prints. Of KDL, type
//! annotations and strings over several lines are no part of it. In the terms of this crate: type
//! numbers are [`Node::numbers`], `count=N` makes a [`Template`], units are those of
//! [`parse_duration`], [`parse_rate`], [`parse_octets`] and [`parse_fraction`], and the bounds are
//! [`SOURCE_OCTETS_MAX`], [`DEPTH_MAX`], [`HOSTS_MAX`] and [`NODES_MAX`].
//!
//! # Example
//! ```
//! use std::time::Duration;
//! use xk_lang::{Value, parse};
//!
//! let text = r#"
//! // Two hosts and a switch between them.
//! title "A small net"
//! host server {
//!     sim name=wire link=lan1
//!     eth wire address="02:00:00:00:00:01"
//!     ip  eth { address "10.0.1.1/24" }   // a list: one child for each
//!     udp ip  { number ip=17 }
//! }
//! host station count=1000 {
//!     sim name=wire link=lan1
//!     eth wire address="02:00:00:01:{n/256:02x}:{n%256:02x}"
//!     ip  eth { address "10.1.{n/250}.{n%250+2}/16"; }
//! }
//! link lan1 kind=switch delay="1ms" loss="5%"
//! "#;
//!
//! let (graph, mut diagnostics) = parse("small.kdl", text);
//! assert!(!diagnostics.has_errors());
//! assert_eq!(graph.hosts[0].node("eth").unwrap().lowers[0].as_str(), "wire");
//! let hosts = graph.expand();
//! assert_eq!(hosts.len(), 1001);
//! assert_eq!((hosts[1000].name.as_ref(), hosts[1000].index), ("station999", 999));
//! assert_eq!(hosts[1000].nodes()[2].children[0].args[0].value, Value::from("10.1.3.251/16"));
//!
//! // Values have a meaning when asked; mistakes are collected with their places.
//! let delay = &graph.links[0].param("delay").unwrap().value;
//! let any = Duration::ZERO..=Duration::MAX;
//! assert_eq!(delay.duration(&mut diagnostics, any), Some(Duration::from_millis(1)));
//! assert_eq!(delay.rate(&mut diagnostics), None);
//! assert_eq!(diagnostics.to_text(), r#"small.kdl:15:29: error: the string `1ms` does not fit here
//!   15 | link lan1 kind=switch delay="1ms" loss="5%"
//!      |                             ^^^^^
//!      = expected: a rate in bits per second like "9600bit", "64kbit", "100Mbit" or "1Gbit"
//! "#);
//! ```

mod chars;
mod check;
mod diagnostics;
pub mod edit;
#[cfg(feature = "fancy")]
mod fancy;
mod graph;
mod parse;
mod render;
mod scan;
mod span;
mod template;
mod units;
mod value;
mod words;

pub use diagnostics::{DIAGNOSTICS_MAX, Diagnostic, Diagnostics, Severity, nearest};
pub use graph::{Domain, DomainKind, Graph, Host, Link, Node, Param, ParamBlock, Subsystem};
pub use parse::parse;
pub use render::steers;
pub use span::{Span, Spanned};
pub use template::{HostInstance, Template, TemplateError};
pub use units::{parse_duration, parse_fraction, parse_octets, parse_rate};
pub use value::Value;

/// The most octets a graph file may have.
pub const SOURCE_OCTETS_MAX: usize = 1 << 20;
/// Largest depth of nested blocks. The language itself needs three or four; the limit keeps the
/// parser's stack small.
pub const DEPTH_MAX: usize = 8;
/// Largest depth of nested blocks that are commented out with `/-`: the parser's time doubles with
/// each.
pub const COMMENTED_DEPTH_MAX: usize = 3;
/// The most hosts a graph may have, counts written out.
pub const HOSTS_MAX: u32 = 100_000;
/// The most nodes a graph may have, counts written out.
pub const NODES_MAX: usize = 1_000_000;
