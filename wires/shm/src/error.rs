//! Why two sides do not come together, and what to do about it.

use std::io;
use std::path::{Path, PathBuf};

use crate::memory_unsafe::MemoryError;

/// Why there is no link. The text of those that need a person names a remedy.
#[derive(Debug, thiserror::Error)]
pub enum ShmError {
    /// A socket cannot have this path.
    #[error(
        "{path:?} cannot be a socket: {what}; give the path of a file in an existing folder, such as /run/user/1000/lab.sock"
    )]
    Path {
        /// The path.
        path: PathBuf,
        /// The fault.
        what: String,
    },
    /// Something else is in the place of the socket.
    #[error("{path:?} is there and is no socket; it is left alone: choose another path")]
    NotSocket {
        /// The path.
        path: PathBuf,
    },
    /// Another process listens there.
    #[error("{} listens at {path:?}; end it first, or choose another path", listener(*process))]
    Taken {
        /// The path.
        path: PathBuf,
        /// The process, if it has said.
        process: Option<u32>,
    },
    /// One more process asked for a link than there is room for.
    #[error(
        "another process asked for a link and was sent away; for more than two parties: xk switch"
    )]
    Crowded,
    /// This user may not use the socket, or make it there.
    #[error(
        "user {} may not {action} {path:?}; choose a folder of that user's, such as $XDG_RUNTIME_DIR, or run as a user \
         that may write to {:?}: xk run --user NAME",
        rustix::process::geteuid().as_raw(),
        written(path)
    )]
    NotPermitted {
        /// The path.
        path: PathBuf,
        /// The refused action.
        action: &'static str,
    },
    /// The process at the other end belongs to another user.
    #[error(
        "the peer runs as user {uid}, which is not {expected}; if it may take part, say so: peer_uid={uid}"
    )]
    Stranger {
        /// User of the process.
        uid: u32,
        /// Users and groups that may be there.
        expected: String,
    },
    /// The peer refuses us.
    #[error("the peer refuses: {0}")]
    Refused(Refusal),
    /// The peer's first message makes no sense.
    #[error("the peer does not speak this protocol: {0}")]
    Hello(&'static str),
    /// The peer's memory is not taken.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The peer said nothing for too long.
    #[error("the peer does not answer")]
    Silent,
    /// No peer came within the time given.
    #[error("no process came to {path:?}; run the graph that opens it, or look at the path")]
    Nobody {
        /// The path.
        path: PathBuf,
    },
    /// The system refuses something else.
    #[error("cannot {action}: {source}")]
    System {
        /// The request to the system.
        action: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

impl ShmError {
    pub(crate) fn system(action: &'static str) -> impl Fn(rustix::io::Errno) -> Self {
        move |errno| Self::System { action, source: errno.into() }
    }
}

/// Why one side refuses the other, as it says in its hello.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The other side has a peer already, or no port left.
    #[error("it has a peer already; for more than two parties: xk switch")]
    Busy,
    /// The other side's link has another version.
    #[error("it speaks another version; use the same xk on both sides")]
    Version,
    /// The other side's frames have another length.
    #[error(
        "its longest frame has {octets} octets; give both sides the same mtu, {}",
        octets.saturating_sub(14)
    )]
    FrameOctets {
        /// The longest that the refusing side has, in octets.
        octets: u32,
    },
    /// Our hello makes no sense to the other side.
    #[error("it does not understand our hello")]
    Malformed,
    /// Our process belongs to another user, which the refusing side does not allow.
    #[error("it allows another user only; see its peer_uid")]
    Stranger,
    /// A number that this version does not know.
    #[error("reason {0}")]
    Other(u32),
}

impl Refusal {
    pub(crate) fn number(self) -> u32 {
        match self {
            Self::Busy => 1,
            Self::Version => 2,
            Self::FrameOctets { .. } => 3,
            Self::Malformed => 4,
            Self::Stranger => 5,
            Self::Other(number) => number,
        }
    }

    pub(crate) fn from_number(number: u32, octets: u32) -> Self {
        match number {
            1 => Self::Busy,
            2 => Self::Version,
            3 => Self::FrameOctets { octets },
            4 => Self::Malformed,
            5 => Self::Stranger,
            other => Self::Other(other),
        }
    }
}

/// The listener, in words.
fn listener(process: Option<u32>) -> String {
    process.map_or_else(|| "another process".into(), |process| format!("process {process}"))
}

/// The path that has to be written to: the file, or the folder to make it in.
fn written(path: &Path) -> &Path {
    let folder = || path.parent().filter(|folder| !folder.as_os_str().is_empty());
    if path.exists() { path } else { folder().unwrap_or(Path::new(".")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_remedy_names_what_is_there() {
        let missing = Path::new(env!("CARGO_MANIFEST_DIR")).join("no-such.lock");
        let error = ShmError::NotPermitted { path: missing, action: "open the lock file" };
        let text = error.to_string();
        let named = text.rsplit('"').nth(1).unwrap_or_default();
        assert!(Path::new(named).is_dir(), "{text}");
    }
}
