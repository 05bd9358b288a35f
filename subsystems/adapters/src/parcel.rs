//! A message on its way between two subsystems: in the form of the one, and then of the other,
//! lent wherever the receiving side can hold what the sending side has.
//!
//! | from | to | lent | copied |
//! | --- | --- | --- | --- |
//! | x-kernel | mbufs | all: an mbuf for each slice (`m_ext`) | nothing |
//! | x-kernel | blocks | all: a block for each slice | nothing |
//! | mbufs | x-kernel | clusters, and what the x-kernel lent | small mbufs, foreign storage |
//! | mbufs | blocks | all: clusters as the x-kernel's, small mbufs by `esballoc` | nothing |
//! | blocks | x-kernel | blocks of the kernel's pool, a cluster's too | small mbufs that were lent |
//! | blocks | mbufs | all: as the x-kernel's, or by `m_ext` | nothing |

use crate::edge::{Fault, Traffic};
use alloc::boxed::Box;
use alloc::rc::Rc;
use xk_bsd::{ExtBuf, Mbuf, Mbufs};
use xk_core::{Message, Pool};
use xk_streams::Mblk;
use xk_streams::block::{Blocks, Lent, Priority};

/// Octets in front of what is copied, for headers of the layers below.
const HEADROOM: usize = 128;

/// A message in the form of one of the subsystems.
pub(crate) enum Parcel {
    /// The x-kernel's.
    Message(Message),
    /// BSD's: a packet.
    Mbufs(Mbuf),
    /// A message of STREAMS: blocks of data.
    Blocks(Mblk),
}

impl core::fmt::Debug for Parcel {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Message(message) => message.fmt(f),
            Self::Mbufs(m) => m.fmt(f),
            Self::Blocks(mp) => mp.fmt(f),
        }
    }
}

/// A block whose octets an mbuf refers to; both are freed together (`m_ext`).
struct BlockStorage(Mblk);

impl ExtBuf for BlockStorage {
    fn octets(&self) -> &[u8] {
        self.0.octets()
    }
}

/// An mbuf whose octets a block refers to; both are freed together (`esballoc`).
struct MbufStorage(Mbuf);

impl Lent for MbufStorage {
    fn octets(&self) -> &[u8] {
        self.0.mtod()
    }
}

impl Parcel {
    /// Octets of the message.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Message(message) => message.len(),
            Self::Mbufs(m) => m.m_length(),
            Self::Blocks(mp) => mp.size(),
        }
    }

    /// As the x-kernel's.
    ///
    /// # Errors
    /// [`Fault::NoBuffers`]: it is gone.
    pub(crate) fn into_message(self, pool: &Pool, traffic: &Traffic) -> Result<Message, Fault> {
        let (message, copied) = match self {
            Self::Message(message) => (Ok(message), 0),
            Self::Mbufs(m) => {
                let copied = mbuf_copies(&m);
                (m.into_message(pool, HEADROOM).map_err(|_| Fault::NoBuffers), copied)
            }
            Self::Blocks(mp) => {
                let copied = if mp.is_in_kernel_pool() { 0 } else { block_copies(&mp) };
                (mp.into_message().map_err(|_| Fault::NoBuffers), copied)
            }
        };
        if message.is_ok() {
            traffic.count(copied);
        }
        message
    }

    /// As a packet of BSD's.
    ///
    /// # Errors
    /// [`Fault::NoBuffers`]: it is gone.
    pub(crate) fn into_mbufs(self, mbufs: &Mbufs, traffic: &Traffic) -> Result<Mbuf, Fault> {
        let packet = match self {
            Self::Message(message) => mbufs.m_lend(message, 0).map_err(|_| Fault::NoBuffers),
            Self::Mbufs(m) => Ok(m),
            Self::Blocks(mp) if mp.is_in_kernel_pool() => match mp.into_message() {
                Ok(message) => mbufs.m_lend(message, 0).map_err(|_| Fault::NoBuffers),
                Err(_) => Err(Fault::NoBuffers),
            },
            Self::Blocks(mp) => blocks_as_mbufs(mp, mbufs),
        };
        if packet.is_ok() {
            traffic.count(0);
        }
        packet
    }

    /// As blocks of STREAMS.
    ///
    /// # Errors
    /// [`Fault::NoBuffers`]: it is gone.
    pub(crate) fn into_blocks(self, blocks: &Blocks, traffic: &Traffic) -> Result<Mblk, Fault> {
        let data = match self {
            Self::Message(message) => blocks.lend_message(message).map_err(|_| Fault::NoBuffers),
            Self::Blocks(mp) => Ok(mp),
            Self::Mbufs(m) => mbufs_as_blocks(m, blocks),
        };
        if data.is_ok() {
            traffic.count(0);
        }
        data
    }
}

/// Octets that are copied when an mbuf chain becomes the x-kernel's.
fn mbuf_copies(m: &Mbuf) -> usize {
    m.mbufs().filter(|m| !m.is_message()).map(Mbuf::m_len).sum()
}

/// Octets that are copied when blocks become the x-kernel's.
fn block_copies(mp: &Mblk) -> usize {
    mp.blocks().filter(|block| !block.is_block_in_kernel_pool()).map(Mblk::len).sum()
}

fn blocks_as_mbufs(mp: Mblk, mbufs: &Mbufs) -> Result<Mbuf, Fault> {
    let mut packet: Option<Mbuf> = None;
    let mut next = Some(mp);
    while let Some(mut block) = next {
        next = block.unlinkb();
        let len = block.len();
        if len == 0 && (packet.is_some() || next.is_some()) {
            continue;
        }
        let part = if block.is_block_in_kernel_pool() {
            let message = block.into_message().ok();
            message.and_then(|message| mbufs.m_lend(message, 0).ok())
        } else {
            mbufs.m_extattach(Rc::new(BlockStorage(block)), 0, len).ok()
        };
        let Some(part) = part else {
            if let Some(packet) = packet {
                packet.m_freem();
            }
            return Err(Fault::NoBuffers);
        };
        match &mut packet {
            Some(packet) => drop(packet.last_mut().set_next(Some(part))),
            None => packet = Some(part),
        }
    }
    let mut packet = packet.ok_or(Fault::NoBuffers)?;
    packet.make_packet(0);
    Ok(packet)
}

fn mbufs_as_blocks(m: Mbuf, blocks: &Blocks) -> Result<Mblk, Fault> {
    let mut data: Option<Mblk> = None;
    let mut next = Some(m);
    while let Some(m) = next {
        if m.m_len() == 0 && (data.is_some() || m.m_next().is_some()) {
            next = m.m_free();
            continue;
        }
        let part = match m.take_message() {
            Ok((message, behind)) => {
                next = behind;
                blocks.lend_message(message).ok()
            }
            Err(mut m) => {
                next = m.take_next();
                blocks.esballoc(Box::new(MbufStorage(m)), Priority::Low).ok()
            }
        };
        let Some(part) = part else {
            if let Some(rest) = next {
                rest.m_freem();
            }
            return Err(Fault::NoBuffers);
        };
        match &mut data {
            Some(data) => data.linkb(part),
            None => data = Some(part),
        }
    }
    data.ok_or(Fault::NoBuffers)
}
