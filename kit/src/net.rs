//! Shared parts of network protocols: addresses, checksums, attributes of messages, ports,
//! neighbours, receivers, streams, and the skeleton of layers that choose among others.

pub mod addr;
pub mod appletalk;
pub mod attribute;
pub mod checksum;
pub mod drop_sources;
pub mod groups;
pub mod moving;
pub mod names;
pub mod neighbour;
pub mod notice;
pub mod offers;
pub mod ports;
pub mod receivers;
pub mod stream;
pub mod template;
pub mod virtual_layer;
pub mod waiting;
