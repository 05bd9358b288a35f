//! The control socket: how other commands look into a running graph.
//!
//! Requests and answers are lines of JSON. `{"ask":"dump"}` is answered by `{"ok":{...}}`; `{"error":"..."}` says what is wrong
//! and ends the conversation. Behind the answer to `{"ask":"capture","edge":"ip>eth"}` follows a pcapng file, until either side
//! hangs up. The socket is the user's own: nobody else may open it.
//!
//! A thread for each client does the waiting; what concerns the graph is done by its own loop, which waits for nobody.

pub(crate) mod client;
mod request;
mod server;
mod tree;
mod watch;

pub(crate) use server::Server;

use std::path::PathBuf;

/// The longest request, in octets.
const REQUEST_OCTETS_MAX: u64 = 4096;
/// How many clients may be connected at a time.
const CLIENTS_MAX: usize = 8;
/// How many sessions of each protocol a dump describes.
const SESSIONS_SHOWN_MAX: usize = 256;

/// Where sockets lie if nothing else is said.
pub(crate) fn folder() -> PathBuf {
    std::env::var_os("XDG_RUNTIME_DIR")
        .map(PathBuf::from)
        .filter(|path| path.is_dir())
        .unwrap_or_else(|| PathBuf::from("/tmp"))
}

/// Where the socket of the process `pid` lies if nothing else is said.
pub(crate) fn path_of(pid: u32) -> PathBuf {
    folder().join(format!("xk-{pid}.sock"))
}
