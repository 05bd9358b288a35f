//! # Synopsis
//! `pcap LOWER file="FILE"` — a layer for any edge that writes what crosses it to a pcapng file.
//!
//! # Participants
//! Those of the layer below, passed through.
//!
//! # Behaviour
//! Passes everything on unchanged, and writes each message of either direction to the file, with
//! its time, its direction, and the edge's name (`eth > tap`) as a comment. The link type is that
//! of the wire below, IPv4 (228) for packets of `ip`, and otherwise `USER0` (147), with the reason
//! in the interface's description; messages of different link types have interfaces of their own.
//! Times are the kernel's: virtual in a simulation, so that one seed gives the same octets twice;
//! in a real run, since 1970, if the program that runs the kernel has put an
//! [`EpochOffset`](xk_kit::passthrough::EpochOffset) beside it.
//!
//! The file is buffered, and flushed when the graph is taken down. After the first error nothing
//! more is written, and each missing message is counted as "not captured", but still passed on.
//!
//! The [`Writer`] can be used alone. Each of its operations writes whole blocks to the given
//! [`std::io::Write`] and keeps only the number of interfaces. Its output depends only on the
//! messages: it has no host name and no time of day.
//!
//! # Example
//! ```kdl
//! host one {
//!     tap  device="xk0"
//!     pcap tap file="one.pcapng"
//!     eth  pcap
//! }
//! ```
//! ```
//! use xk_pcap::{Direction, Frame, Interface, LinkType, Writer};
//!
//! let mut writer = Writer::new(Vec::new(), "xk")?;
//! let wire = writer.add_interface(&Interface::new("client/eth", LinkType::ETHERNET))?;
//! let (header, payload) = ([0; 14], [0; 46]);
//! let slices: [&[u8]; 2] = [&header, &payload];
//! let direction = Direction::Outbound;
//! writer.write(wire, &Frame { direction, ..Frame::new(1_500, &slices) })?;
//! let octets = writer.into_inner();
//! assert_eq!(octets.get(..4), Some([0x0a, 0x0d, 0x0d, 0x0a].as_slice()));
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! # Standard
//! draft-ietf-opsawg-pcapng, sections 3 (blocks and options), 4.1 (section header), 4.2 (interface
//! description) and 4.3 (enhanced packet); link types from the registry of
//! draft-ietf-opsawg-pcaplinktype.

mod protocol;
mod writer;

pub use protocol::{Capture, NOT_CAPTURED, link_type};
pub use writer::{Direction, Frame, Interface, InterfaceId, LinkType, Writer};

use xk_core::Entry;
use xk_core::graph::{ParamKind, StackingRules, octets, required};

/// The catalog entry.
#[rustfmt::skip]
pub static ENTRY: Entry = Entry::filter("pcap", include_str!("lib.rs"), protocol::build)
    .summary("a layer that writes what crosses its edge to a pcapng file")
    .stacking_rules(&StackingRules { sole: &["file"], ..StackingRules::NONE })
    .parameters(&[
        required("file", ParamKind::Text("a file's name"), "the file, made anew"),
        octets("snap", 0, "how many octets of a message are kept; 0 for all"),
    ])
    .reasons(&[&protocol::NOT_CAPTURED]);
