//! Captures in the pcapng format, with nanoseconds and the name of the edge on every frame.
//!
//! # Synopsis
//! [`Writer`] turns frames into a capture that Wireshark, tshark and every other reader of pcapng opens. One file holds any
//! number of interfaces: one per wire, and one per traced edge of the graph. The octets depend on nothing but what is written:
//! no host name, no time of day; so a seeded simulation gives the same file twice.
//!
//! # Behaviour
//! Every operation writes whole blocks to the given [`std::io::Write`] and keeps nothing but the number of interfaces; hand it
//! a [`std::io::BufWriter`] where the system would otherwise be called for each frame.
//!
//! # Example
//! ```
//! use xk_pcap::{Direction, Frame, Interface, LinkType, Writer};
//!
//! let mut writer = Writer::new(Vec::new(), "xk")?;
//! let wire = writer.add_interface(&Interface::new("client/eth", LinkType::ETHERNET))?;
//! let (header, payload) = ([0; 14], [0; 46]);
//! writer.write(wire, &Frame::new(1_500, &[&header, &payload]).direction(Direction::Outbound).comment("client: ip > eth"))?;
//! let octets = writer.into_inner();
//! assert_eq!(octets.get(..4), Some([0x0a, 0x0d, 0x0d, 0x0a].as_slice()));
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! # Standard
//! draft-ietf-opsawg-pcapng, sections 3 (blocks and options), 4.1 (section header), 4.2 (interface description) and 4.3
//! (enhanced packet); link types from the registry of draft-ietf-opsawg-pcaplinktype.

mod writer;

pub use writer::{Direction, Frame, Interface, InterfaceId, LinkType, Writer};
