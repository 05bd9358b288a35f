//! The message tool: octets on their way through the layers, without a copy.
//!
//! A [`Message`] is one pointer wide. Behind it lies a chain of slices of counted buffers, like a
//! chain of mbufs; the nodes of the chain and the buffers come from a [`Pool`] and go back to it
//! when they are dropped. The octets lie in an [`Arena`]: the heap, or memory that other processes
//! see as well, where a buffer is known by its position ([`Slice::offset`]), never by its address.
//!
//! ```
//! use xk_core::message::{Pool, PoolConfig};
//!
//! # fn main() -> Result<(), Box<dyn core::error::Error>> {
//! let pool = Pool::new(&PoolConfig::default())?;
//! let mut message = pool.copy_from(64, b"payload")?;
//! message.push_array(b"header")?;
//! assert_eq!(message.len(), 13);
//!
//! assert_eq!(message.pop_array(), Some(b"header"));
//! let mut back = message.split_off(3)?;
//! back.push_array(b"+")?;
//! message.join(back);
//! assert!(message.eq_octets(b"pay+load"));
//! # Ok(())
//! # }
//! ```
//!
//! # What may be written
//! Clones and the parts of a split see the same buffer, yet no message ever writes octets that
//! another can see. A header may be pushed into a buffer in two cases: this message holds the only
//! reference to it; or this message is the one that owns the front of the buffer. The message made
//! by the pool owns it; a clone and the back part of a split get none of it; and its owner owns
//! only what lies in front of everything that has been shared. In all other cases the header goes
//! into a fresh small buffer, linked in front.
//!
//! # Between domains
//! What one domain lends another reads in place: a [`Foreign`] makes messages of octets in another
//! pool's arena, which nothing here ever writes, and tells when the last one is gone; a [`Loans`]
//! keeps, for the lender, what each other domain has.
//!
//! # Threads
//! All counters are plain: messages and pools stay on their thread. Between threads and processes
//! go octets in an arena, by position and length. A thread of the same program may read a message
//! in place, and sends it back ([`Away`]).

mod arena_unsafe;
mod attribute;
mod away_unsafe;
mod chain;
mod config;
mod foreign_unsafe;
mod loans;
mod message_unsafe;
mod node_unsafe;
mod pool_unsafe;
mod view;

pub use arena_unsafe::{Arena, HeapArena};
pub use attribute::{
    ATTRIBUTE_OCTETS, ATTRIBUTES_MAX, Attribute, AttributeType, AttributesFull, Crossing, Sender,
};
pub use away_unsafe::Away;
pub use chain::{PULL_UP_OCTETS_MAX, PullUpError, SplitError};
pub use config::{
    BUFFER_ALIGN, CLASSES_MAX, ClassStats, LARGE_HEADROOM, NoBuffers, PoolConfig, PoolError,
    PoolStats, SizeClass,
};
pub use foreign_unsafe::{Foreign, LentSlice, View, WrapError};
pub use loans::{LendError, Loans, NotLent};
pub use message_unsafe::Message;
pub use pool_unsafe::Pool;
pub use view::{Slice, Slices};
