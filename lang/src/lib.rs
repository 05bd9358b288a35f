//! The graph language of xk: what a graph file may say, its one parser, its one printer, and how mistakes are shown.
//!
//! A graph file describes hosts, the protocols on each host with their parameters and who stands on whom, and the
//! links between hosts. This crate knows the language and no protocol: it checks what can be checked from the file
//! alone, and the composer goes on with the same [`Diagnostics`].
//!
//! # The language
//! The syntax is [KDL](https://kdl.dev) version 2: a *node* is a name, then values and `property=value` pairs, then
//! perhaps children in braces; it ends with its line or with `;`. `//` and `/* */` are comments, `/-` comments out the
//! next node, value or block, and a backslash at the end of a line joins it with the next. A string stands in quotes;
//! it may go without them if it is a plain word, one that does not begin like a number and holds none of
//! ``\ / ( ) { } [ ] ; " # =`` and no space. So addresses and quantities need quotes: `"10.0.1.2/24"`, `"1ms"`. Truth is `#true`
//! and `#false`. Of KDL, type annotations and strings over several lines are not part of the language.
//!
//! ```text
//! title "..."                                    at most one
//! host NAME [count=N] {                          any number
//!     KIND [LOWER ...] [name=NAME] [PARAM=VALUE ...] {
//!         PARAM [VALUE ...] [PARAM=VALUE ...] { ... }
//!         number LOWER=N
//!     }
//! }
//! link NAME [PARAM=VALUE ...] { ... }            any number
//! ```
//!
//! - **Nodes of a host** are its protocols. KIND is the protocol; NAME, unique in the host, is the kind unless `name=`
//!   says otherwise. The LOWERs are names of nodes of the same host, before or after this one: those it stands on, in
//!   order.
//! - **Parameters** are properties, each at most once, or children where they are lists or have parts of their own.
//! - **`number LOWER=N`** overrides the type number under which this node is known at that lower: [`Node::numbers`].
//! - **`count=N`** makes N hosts alike (at most [`HOSTS_MAX`] in all). In their strings `{n}` is the index from 0, and
//!   `{n+2}`, `{n/250}`, `{n%250}`, `{n/256%256:02x}` compute with it from left to right ([`Template`]). A name without
//!   a placeholder gets the index at its end.
//! - **Units** are those of [`parse_duration`], [`parse_rate`], [`parse_octets`] and [`parse_fraction`].
//! - **Bounds**: a file has at most [`SOURCE_OCTETS_MAX`] octets, blocks nest at most [`DEPTH_MAX`] deep, all hosts
//!   together have at most [`NODES_MAX`] nodes.
//!
//! # Example
//! ```
//! use std::time::Duration;
//! use xk_lang::{Document, Value};
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
//! let mut document = Document::parse("small.kdl", text).expect("no mistakes");
//! let graph = document.graph();
//! assert_eq!(graph.hosts[0].node("eth").unwrap().lowers[0].as_str(), "wire");
//! let hosts = graph.expand();
//! assert_eq!(hosts.len(), 1001);
//! assert_eq!((hosts[1000].name.as_ref(), hosts[1000].index), ("station999", 999));
//! assert_eq!(hosts[1000].nodes()[2].children[0].args[0].value, Value::from("10.1.3.251/16"));
//!
//! // Values have meaning for whoever asks; mistakes are collected with their places.
//! let mut diagnostics = document.warnings().clone();
//! let delay = &graph.links[0].param("delay").unwrap().value;
//! assert_eq!(delay.duration(&mut diagnostics), Some(Duration::from_millis(1)));
//! assert_eq!(delay.rate(&mut diagnostics), None);
//! assert_eq!(diagnostics.to_text(), r#"small.kdl:15:29: error: the string `1ms` does not fit here
//!   15 | link lan1 kind=switch delay="1ms" loss="5%"
//!      |                             ^^^^^
//!      = expected: a rate in bits per second like "9600bit", "64kbit", "100Mbit" or "1Gbit"
//! "#);
//!
//! // Edits change nothing but what they must.
//! document.set_param("server", "udp", "checksum", &Value::from(true)).unwrap();
//! assert_eq!(document.to_text(), text.replace("udp ip  {", "udp ip checksum=#true  {"));
//! ```

mod check;
mod diagnostics;
mod document;
#[doc(hidden)]
pub mod fuzz;
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
pub use document::{Document, EditError};
pub use graph::{Graph, Host, Link, Node, Param, ParamBlock};
pub use parse::parse;
pub use span::{Span, Spanned};
pub use template::{HostInstance, Template, TemplateError};
pub use units::{parse_duration, parse_fraction, parse_octets, parse_rate};
pub use value::Value;

/// The most octets a graph file may have.
pub const SOURCE_OCTETS_MAX: usize = 1 << 20;
/// How deep blocks may nest. The language itself needs three or four; the limit keeps the parser's stack small.
pub const DEPTH_MAX: usize = 8;
/// How deep blocks that are commented out with `/-` may nest: the parser's time doubles with each.
pub const COMMENTED_DEPTH_MAX: usize = 3;
/// The most hosts a graph may have, counts written out.
pub const HOSTS_MAX: u32 = 100_000;
/// The most nodes a graph may have, counts written out.
pub const NODES_MAX: usize = 1_000_000;
