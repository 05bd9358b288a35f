//! The question that only this protocol answers.

use alloc::vec::Vec;
use core::net::Ipv4Addr;
use core::time::Duration;
use xk_core::control::Word;
use xk_core::{fields, question};

/// One host, as the table knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArpEntry {
    /// The host.
    pub host: Ipv4Addr,
    /// Hardware address, if it is known.
    pub address: Option<[u8; 6]>,
    /// `idle`, `asking`, `known`, `checking` or `failed`.
    pub state: Word,
    /// Time since the address was confirmed, or the state was entered.
    pub age: Duration,
    /// Messages that wait for the address.
    pub waiting: usize,
}

fields!(ArpEntry { host, address, state, age, waiting });

/// The cache (at most `max` entries, by host), for `xk dump`.
#[derive(Clone, Debug, Default)]
pub struct ArpTable {
    /// In: how many entries the asker wants at most.
    pub max: usize,
    /// Out: the entries.
    pub entries: Vec<ArpEntry>,
    /// Out: how many there are in all.
    pub total: usize,
    /// Out: packets that showed a host of ours in use by another station.
    pub conflicts: u64,
    /// Out: how often the address of a host has changed.
    pub moved: u64,
    /// Out: packets whose sender was not the station that sent the frame.
    pub mismatched: u64,
}

question!(ArpTable { max, entries, total, conflicts, moved, mismatched }, "arp-table", Ask);
