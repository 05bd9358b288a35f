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

/// Looks a name up. The answer waits for the result where it may; otherwise it has `is_done` false,
/// and the question is asked again.
#[derive(Clone, Debug, Default)]
pub struct NbpLookup {
    /// In: the name, perhaps with wildcards.
    pub name: String,
    /// Out: whether the search has ended.
    pub is_done: bool,
    /// Out: the sockets found.
    pub found: Vec<NbpFound>,
}

question!(NbpLookup { name, is_done, found }, "nbp-lookup", Ask);

/// Gives a socket of this node a name. The answer waits for the result where it may; otherwise it
/// has `is_done` false, and the question is asked again.
#[derive(Clone, Debug, Default)]
pub struct NbpRegister {
    /// In: the name.
    pub name: String,
    /// In: the socket.
    pub socket: u8,
    /// Out: whether the result is known.
    pub is_done: bool,
    /// Out: whether the socket has the name.
    pub is_taken: bool,
}

question!(NbpRegister { name, socket, is_done, is_taken }, "nbp-register", Ask);
