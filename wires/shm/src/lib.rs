//! wip
mod bell;
mod credentials_unsafe;
mod error;
mod hello;
mod layout;
mod link;
mod listen;
mod meet;
mod memory_unsafe;
mod ring;
mod socket;

pub use credentials_unsafe::Peer;
pub use error::{Refusal, ShmError};
pub use layout::{
    FRAME_OCTETS_LEAST, FRAME_OCTETS_MOST, Geometry, INLINE_OCTETS, SLOTS_MAX, SLOTS_MIN,
};
pub use link::{Link, Lost};
pub use meet::{Meeting, Options, check_path};
pub use memory_unsafe::MemoryError;
pub use ring::{Arrival, Broken, End, SendError};
