//! Joins the sockets of unmodified programs to a stack: the part of `xk exec` that runs beside the
//! stack.
//!
//! Programs below `xk exec` have `xk-preload` loaded. It turns their sockets for addresses of the
//! graph into sockets of the system (unix(7)). The relay has their other ends, and its one thread
//! moves octets between them and the stack. `xk-request` defines the requests.

mod bell;
mod datagrams;
mod folder;
mod groups;
mod info;
mod listening;
mod model_unsafe;
mod options;
mod outside;
mod relay;
mod requests;
mod splice;

pub use folder::{Folder, own_folder};

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use xk_net::{Stack, Thread};
use xk_request::{Ticket, write};

/// A running relay; it ends when it is dropped.
pub struct Relay {
    ticket: String,
    bell: Arc<bell::Bell>,
    lost: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Relay {
    /// Begins to serve programs that have the [`ticket`](Self::ticket), with names in `folder`. The
    /// graph has these `devices`, by the names that Linux has for them.
    ///
    /// # Errors
    /// If the system gives no descriptors or no thread.
    pub fn start(stack: Stack<Thread>, folder: Folder, devices: Vec<String>) -> io::Result<Self> {
        let ticket = Ticket {
            token: folder::random_word::<8>()?,
            user: rustix::process::geteuid().as_raw(),
            folder: folder.path().display().to_string(),
            devices,
        };
        let bell = Arc::new(bell::Bell::new()?);
        let text = write(&ticket);
        let mut inner = relay::Inner::new(stack, folder, ticket.token, Arc::clone(&bell))?;
        let lost = Arc::clone(&inner.lost);
        let thread =
            std::thread::Builder::new().name("xk-relay".into()).spawn(move || inner.run())?;
        Ok(Self { ticket: text, bell, lost, thread: Some(thread) })
    }

    /// Ticket that programs need in their environment under [`xk_request::VARIABLE`].
    pub fn ticket(&self) -> &str {
        &self.ticket
    }

    /// Number of datagrams that were lost between the stack and programs: those that could not be
    /// sent, and those for programs that had gone, or for which no descriptor was left.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.bell.end();
        if let Some(thread) = self.thread.take() {
            // A panic there has been shown already.
            let _ = thread.join();
        }
    }
}
