//! Questions to AppleTalk's name binding: sockets of names, and names for sockets.

use alloc::string::String;
use alloc::vec::Vec;
use xk_core::{fields, question};

/// A socket that has a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NbpFound {
    /// The name, with its zone.
    pub name: String,
    /// The network.
    pub net: u16,
    /// The node.
    pub node: u8,
    /// The socket.
    pub socket: u8,
}

fields!(NbpFound { name, net, node, socket });

/// Looks a name up. Waits where it can; else it has `is_done` false at first, and is asked again.
#[derive(Clone, Debug, Default)]
pub struct NbpLookup {
    /// In: the name, perhaps with wildcards.
    pub name: String,
    /// Out: whether the search has ended.
    pub is_done: bool,
    /// Out: what was found.
    pub found: Vec<NbpFound>,
}

question!(NbpLookup { name, is_done, found }, "nbp-lookup", Ask);

/// Gives a socket of this node a name. Waits where it can; else it has `is_done` false at first,
/// and is asked again.
#[derive(Clone, Debug, Default)]
pub struct NbpRegister {
    /// In: the name.
    pub name: String,
    /// In: the socket.
    pub socket: u8,
    /// Out: whether it is known what became of it.
    pub is_done: bool,
    /// Out: whether the socket has the name.
    pub is_taken: bool,
}

question!(NbpRegister { name, socket, is_done, is_taken }, "nbp-register", Ask);
