//! Shared parts of all handles of sockets: waiting, and the options that are the handle's own.

use crate::driver::{Driver, Setting};
use crate::error::invalid;
use crate::ready::{Becomes, Ready};
use crate::stack::Shown;
use rustix::io::Errno;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A socket and how to reach it. Clones of a socket share it, options and all, as duplicates of a
/// descriptor do.
pub(crate) struct Handle<D: Driver> {
    /// Before the driver, so that it is closed first.
    pub(crate) socket: D::Socket,
    pub(crate) driver: D,
    shown: Shown,
    nonblocking: AtomicBool,
    pub(crate) read_timeout: Limit,
    pub(crate) write_timeout: Limit,
    pub(crate) linger: Limit,
    /// Options that are only asked back.
    pub(crate) nodelay: AtomicBool,
    pub(crate) broadcast: AtomicBool,
}

/// A time that may be none, in nanoseconds.
pub(crate) struct Limit(AtomicU64);

const NONE: u64 = u64::MAX;

impl Limit {
    fn none() -> Self {
        Self(AtomicU64::new(NONE))
    }

    pub(crate) fn get(&self) -> Option<Duration> {
        let ns = self.0.load(Ordering::Relaxed);
        (ns != NONE).then(|| Duration::from_nanos(ns))
    }

    pub(crate) fn set(&self, time: Option<Duration>) {
        let ns = time.map_or(NONE, |time| u64::try_from(time.as_nanos()).unwrap_or(NONE - 1));
        self.0.store(ns, Ordering::Relaxed);
    }

    /// As the standard library sets timeouts.
    pub(crate) fn set_timeout(&self, time: Option<Duration>) -> io::Result<()> {
        if time == Some(Duration::ZERO) {
            return Err(invalid("cannot set a 0 duration timeout"));
        }
        self.set(time);
        Ok(())
    }
}

impl<D: Driver> Handle<D> {
    pub(crate) fn new(driver: &D, socket: D::Socket) -> Arc<Self> {
        let shown = Shown(Arc::clone(D::status(&socket)));
        #[allow(
            clippy::arc_with_non_send_sync,
            reason = "handles of a stack with a thread of its own are sent"
        )]
        Arc::new(Self {
            socket,
            driver: driver.clone(),
            shown,
            nonblocking: AtomicBool::new(false),
            read_timeout: Limit::none(),
            write_timeout: Limit::none(),
            linger: Limit::none(),
            nodelay: AtomicBool::new(false),
            broadcast: AtomicBool::new(false),
        })
    }

    pub(crate) fn shown(&self) -> &Shown {
        &self.shown
    }

    pub(crate) fn set_nonblocking(&self, on: bool) {
        self.nonblocking.store(on, Ordering::Relaxed);
    }

    pub(crate) fn take_error(&self) -> Option<io::Error> {
        self.driver.take_error(&self.socket).map(io::Error::from)
    }

    pub(crate) fn local(&self) -> SocketAddr {
        self.driver.addresses(&self.socket).0.into()
    }

    pub(crate) fn peer(&self) -> io::Result<SocketAddr> {
        let peer = self.driver.addresses(&self.socket).1;
        peer.map(SocketAddr::from).ok_or(Errno::NOTCONN.into())
    }

    pub(crate) fn set(&self, setting: Setting) -> io::Result<()> {
        Ok(self.driver.set(&self.socket, setting)?)
    }

    /// Tries until it need not wait, unless the socket is not to block or the time is over.
    #[inline]
    pub(crate) fn until<T>(
        &self,
        wanted: Ready,
        limit: &Limit,
        mut attempt: impl FnMut() -> Result<T, Errno>,
    ) -> io::Result<T> {
        match attempt() {
            Err(Errno::AGAIN) => {}
            result => return Ok(result?),
        }
        if self.nonblocking.load(Ordering::Relaxed) {
            self.driver.look();
            return Ok(attempt()?);
        }
        let deadline = limit.get().and_then(|time| self.driver.now().checked_add(time));
        loop {
            if !self.wait(wanted, deadline)? {
                return Err(Errno::AGAIN.into());
            }
            match attempt() {
                Err(Errno::AGAIN) => {}
                result => return Ok(result?),
            }
        }
    }

    /// Waits until the socket is ready for any of `wanted`; false if the deadline was first.
    pub(crate) fn wait(&self, wanted: Ready, deadline: Option<Instant>) -> io::Result<bool> {
        let status = Arc::clone(&self.shown.0);
        self.driver.wait(&Becomes { status, wanted }, deadline)
    }
}

/// Methods of every socket's handle.
macro_rules! any_socket {
    ($name:ident) => {
        impl<D: Driver> $name<D> {
            /// The local address, with the actual port.
            pub fn local_addr(&self) -> io::Result<SocketAddr> {
                Ok(self.0.local())
            }

            /// Makes another handle of this socket.
            pub fn try_clone(&self) -> io::Result<Self> {
                Ok(Self(Arc::clone(&self.0)))
            }

            /// Takes the pending error (`SO_ERROR`), which is reported once.
            pub fn take_error(&self) -> io::Result<Option<io::Error>> {
                Ok(self.0.take_error())
            }

            /// Sets whether calls fail with `WouldBlock` instead of waiting.
            pub fn set_nonblocking(&self, on: bool) -> io::Result<()> {
                self.0.set_nonblocking(on);
                Ok(())
            }
        }

        impl<D: Driver> Source for $name<D> {
            fn status(&self) -> &Shown {
                self.0.shown()
            }
        }

        impl<D: Driver> fmt::Debug for $name<D> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let mut shown = f.debug_struct(stringify!($name));
                shown.field("addr", &self.0.local());
                if let Ok(peer) = self.0.peer() {
                    shown.field("peer", &peer);
                }
                shown.finish()
            }
        }
    };
}

/// Methods of a socket that carries octets both ways.
macro_rules! two_way_socket {
    ($name:ident) => {
        impl<D: Driver> $name<D> {
            /// The peer's address.
            ///
            /// # Errors
            /// `ENOTCONN` if there is none.
            pub fn peer_addr(&self) -> io::Result<SocketAddr> {
                self.0.peer()
            }

            /// Ends one direction or both. The peer of a stream reads its end after the last octet
            /// written.
            ///
            /// # Errors
            /// `ENOTCONN` without a peer.
            pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
                Ok(self.0.driver.shutdown(&self.0.socket, how)?)
            }

            /// Sets the longest time that a call waits to read; then it fails with `WouldBlock`.
            ///
            /// # Errors
            /// `InvalidInput` for no time.
            pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
                self.0.read_timeout.set_timeout(timeout)
            }

            /// Sets the longest time that a call waits to write; then it fails with `WouldBlock`.
            ///
            /// # Errors
            /// `InvalidInput` for no time.
            pub fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
                self.0.write_timeout.set_timeout(timeout)
            }

            /// Value of [`set_read_timeout`](Self::set_read_timeout).
            pub fn read_timeout(&self) -> io::Result<Option<Duration>> {
                Ok(self.0.read_timeout.get())
            }

            /// Value of [`set_write_timeout`](Self::set_write_timeout).
            pub fn write_timeout(&self) -> io::Result<Option<Duration>> {
                Ok(self.0.write_timeout.get())
            }

            /// Octets that can be read at once; for datagrams, those of the first one (`FIONREAD`).
            pub fn unread(&self) -> usize {
                self.0.driver.unread(&self.0.socket)
            }
        }
    };
}

pub(crate) use {any_socket, two_way_socket};
