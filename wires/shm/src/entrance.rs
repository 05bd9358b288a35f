//! A socket at which one process gives links to many others.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Instant;

use rustix::event::epoll::{self, CreateFlags};

use crate::error::ShmError;
use crate::link::Link;
use crate::listen::{self, Listener};
use crate::meet::{Options, check_path};

/// Listens at a path, and gives a link to each process that comes and may have one
/// ([`Options::peers`]). The other side is [`Link::connect`].
pub struct Entrance {
    listener: Listener,
    options: Options,
    set: OwnedFd,
}

impl Entrance {
    /// Listens at `path`.
    ///
    /// # Errors
    /// [`ShmError`]: the path will not do, or another process listens there.
    pub fn new(path: &Path, options: &Options) -> Result<Self, ShmError> {
        check_path(path)?;
        let set = epoll::create(CreateFlags::CLOEXEC);
        let set = set.map_err(ShmError::system("make an epoll set"))?;
        let taken = || ShmError::Taken { path: path.into(), process: listen::holder(path) };
        let listener = Listener::bind(path, options, &set)?.ok_or_else(taken)?;
        Ok(Self { listener, options: options.clone(), set })
    }

    /// A descriptor that is readable when a step is worth taking, or when one of the links is to be
    /// checked ([`Link::check`]).
    pub fn set(&self) -> &OwnedFd {
        &self.set
    }

    /// Time of the next step, at the latest.
    pub fn next_step(&self) -> Option<Instant> {
        self.listener.next_step()
    }

    /// Does what can be done now without waiting. Answers a link when one was given; without `room`
    /// all that come are sent away.
    pub fn step(&mut self, now: Instant, room: bool) -> Option<Link> {
        self.listener.step(now, room, &self.options, &self.set)
    }

    /// Why the last comer was sent away, once.
    pub fn take_error(&mut self) -> Option<ShmError> {
        self.listener.take_error()
    }
}
