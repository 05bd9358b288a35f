//! Shared parts of wires: one object for a wire, offloads of checksums and segments, corruption.

pub mod corrupt;
pub mod device;
pub mod entry;
pub mod frames;
pub mod handed;
pub mod offload;
pub mod segments;
pub mod virtio;
