//! A link: one end of the rings, the pipes that wake, and the socket that tells when the other side
//! is gone.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::Shutdown;
use xk_core::wire::Sleeper;

use crate::bell::{Bell, Ringer, pipe};
use crate::credentials_unsafe::{Peer, peer_of};
use crate::error::ShmError;
use crate::foreign_unsafe::Foreign;
use crate::hello::{HELLO_OCTETS, HelloError};
use crate::layout::Geometry;
use crate::listen;
use crate::meet::{self, Meeting, Options};
use crate::memory_unsafe::Memory;
use crate::ring::{Broken, RingEnd, SendError};
use crate::socket::{self, Received};

/// Number of sleeps after which the pipe is emptied: long before it can be full, because a peer
/// rings once a sleep.
const SLEEPS_AN_EMPTYING: u32 = 1024;

/// Why a link is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    /// The other side closed it, or its process ended.
    #[error("the peer is gone")]
    Gone,
    /// The other side broke the rules, in the shared memory or on the socket.
    #[error("the peer broke the rules")]
    Broken,
}

/// One end of a link to another process. Nothing here waits, but [`Link::wait`] and [`Link::meet`].
///
/// ```no_run
/// use std::path::Path;
/// use xk_shm::{Link, Options};
///
/// // The same line in both programs: the first to come listens.
/// let mut link = Link::meet(Path::new("/run/user/1000/lab.sock"), &Options::default(), None)?;
/// link.send(b"any frame")?;
/// link.flush();
/// let mut frame = [0; 1514];
/// while link.receive(&mut frame)?.is_none() {
///     link.wait(None)?;
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Link {
    end: RingEnd,
    socket: Foreign,
    ringer: Ringer,
    bell: Bell,
    peer: Peer,
    sleeps: u32,
    /// Made when it first sleeps by itself.
    bed: Option<OwnedFd>,
}

impl Link {
    pub(crate) fn new(
        end: RingEnd,
        socket: Foreign,
        ringer: Ringer,
        bell: Bell,
        peer: Peer,
    ) -> Self {
        let mut link = Self { end, socket, ringer, bell, peer, sleeps: 0, bed: None };
        link.tell_processors();
        link
    }

    /// Meets another program at the socket `path`, for at most `limit`: the first to come listens,
    /// the other connects.
    ///
    /// # Errors
    /// [`ShmError`]: the path will not do, the other side is refused or refuses, or did not come in
    /// time.
    pub fn meet(path: &Path, options: &Options, limit: Option<Duration>) -> Result<Self, ShmError> {
        let until = limit.and_then(|limit| Instant::now().checked_add(limit));
        let mut meeting = Meeting::new(path, options)?;
        loop {
            if let Some(link) = meeting.step(Instant::now()) {
                return Ok(link);
            }
            let now = Instant::now();
            if until.is_some_and(|until| now >= until) {
                let nobody = ShmError::Nobody { path: path.into() };
                return Err(meeting.take_error().unwrap_or(nobody));
            }
            if meeting.is_hopeless()
                && let Some(error) = meeting.take_error()
            {
                return Err(error);
            }
            let next = [until, meeting.next_step()].into_iter().flatten().min();
            let timeout = next.map(|next| timespec(next.saturating_duration_since(now)));
            let mut events: Vec<Event> = Vec::with_capacity(1);
            let room = rustix::buffer::spare_capacity(&mut events);
            match epoll::wait(meeting.set(), room, timeout.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(ShmError::system("wait for a peer")(errno)),
            }
        }
    }

    /// Asks the process that listens at `path` ([`Entrance`](crate::Entrance)) for a link, and
    /// waits for the answer, 2 seconds at most.
    ///
    /// # Errors
    /// [`ShmError`]: nothing listens there, the other side refuses, or does not answer.
    pub fn connect(path: &Path, options: &Options) -> Result<Self, ShmError> {
        crate::meet::connect(path, options)
    }

    /// Both ends of a link within one process, as two processes have them: for tests, and for two
    /// threads.
    pub fn pair(geometry: &Geometry) -> Result<(Self, Self), ShmError> {
        let (memory, file) = Memory::create(geometry.octets())
            .map_err(|source| ShmError::System { action: "make shared memory", source })?;
        let other = Memory::accept(file.as_fd(), geometry.octets())?;
        let sockets = {
            use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
        };
        let sockets = sockets.map_err(ShmError::system("make a pair of sockets"))?;
        let pipes = pipe().and_then(|first| Ok((first, pipe()?)));
        let ((ringer, other_bell), (other_ringer, bell)) =
            pipes.map_err(ShmError::system("make a pipe"))?;
        let make = |memory: Memory, side, socket: OwnedFd, ringer, bell| {
            let peer = peer(&socket)?;
            let end = RingEnd::new(&Arc::new(memory), geometry, side);
            let parts = end.zip(Bell::accept(bell));
            let (end, bell) = parts.ok_or(ShmError::Hello("no link within one process"))?;
            Ok::<_, ShmError>(Self::new(end, Foreign::new(socket), ringer, bell, peer))
        };
        Ok((
            make(memory, 0, sockets.0, ringer, Foreign::new(bell))?,
            make(other, 1, sockets.1, other_ringer, Foreign::new(other_bell))?,
        ))
    }

    /// A link to the process at the other end of a connected socket of unix(7) that keeps messages
    /// apart (`SOCK_SEQPACKET`) and that grants it ([`grant`](Self::grant)), within `limit`. The
    /// caller knows which process that is.
    ///
    /// # Errors
    /// [`ShmError`].
    pub fn ask(socket: OwnedFd, geometry: &Geometry, limit: Duration) -> Result<Self, ShmError> {
        let socket = Foreign::new(socket);
        let ringer = meet::ask(&socket, geometry).map_err(ShmError::system("ask for a link"))?;
        let (hello, files) = hear(&socket, limit)?;
        let peer = peer(&socket)?;
        meet::granted(socket, ringer, peer, &hello, files, geometry)
    }

    /// The other side of [`ask`](Self::ask): makes the memory.
    ///
    /// # Errors
    /// [`ShmError`].
    pub fn grant(socket: OwnedFd, geometry: &Geometry, limit: Duration) -> Result<Self, ShmError> {
        let socket = Foreign::new(socket);
        let (hello, files) = hear(&socket, limit)?;
        let peer = peer(&socket)?;
        listen::grant(socket, peer, &hello, files, geometry, true)
    }

    /// See [`RingEnd::shares_processor`].
    pub fn shares_processor(&self) -> bool {
        self.end.shares_processor()
    }

    /// Number of frames that a direction holds.
    pub(crate) fn end_slots(&self) -> u32 {
        self.end.slots()
    }

    /// Gives up all but the pipe that was slept on.
    pub(crate) fn into_bell(self) -> OwnedFd {
        self.bell.into()
    }

    /// The rings, to send and receive without a thought of sleeping.
    #[inline]
    pub fn end(&mut self) -> &mut RingEnd {
        &mut self.end
    }

    /// The process at the other end.
    pub fn peer(&self) -> Peer {
        self.peer
    }

    /// See [`RingEnd::send`]. The other side may see the frame at once, but may sleep: see
    /// [`flush`](Self::flush).
    #[inline]
    pub fn send(&mut self, frame: &[u8]) -> Result<(), SendError> {
        self.end.send(frame)
    }

    /// See [`RingEnd::receive`].
    #[inline]
    pub fn receive(&mut self, to: &mut [u8]) -> Result<Option<usize>, Broken> {
        self.end.receive(to)
    }

    /// After sending: wakes the other side if it sleeps. After receiving: gives the slots back.
    #[inline]
    pub fn flush(&mut self) {
        self.end.release();
        if self.end.must_wake() {
            self.ringer.ring();
        }
    }

    /// Sends octets with up to two descriptors beside the rings: what the other side asks for by
    /// [`receive_beside`](Self::receive_beside), and takes for a broken rule otherwise.
    ///
    /// # Errors
    /// The other side is gone, or its socket is full.
    pub fn send_beside(&self, octets: &[u8], files: &[BorrowedFd<'_>]) -> Result<(), ShmError> {
        socket::send(&self.socket, octets, files).map_err(ShmError::system("send descriptors"))
    }

    /// Waits for what the other side sends beside the rings, for at most `limit`: up to
    /// `octets_max` octets, and descriptors. Only of a side that is trusted: to close what it sends
    /// may take time.
    ///
    /// # Errors
    /// The other side is gone, has sent something else, or nothing in time.
    pub fn receive_beside(
        &self,
        octets_max: usize,
        limit: Duration,
    ) -> Result<(Vec<u8>, Vec<OwnedFd>), ShmError> {
        let until = Instant::now() + limit;
        loop {
            match socket::receive(&self.socket, octets_max) {
                Received::Message(octets, files) => {
                    return Ok((octets, files.into_iter().map(Foreign::into_own).collect()));
                }
                Received::Nothing => {}
                Received::Gone => return Err(ShmError::Hello("it is gone")),
                Received::TooMuch => return Err(ShmError::Hello("it has sent too much")),
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(ShmError::Hello("it does not answer in time"));
            }
            let mut waits = [PollFd::new(&self.socket, PollFlags::IN)];
            match poll(&mut waits, Some(&timespec(left))) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(ShmError::system("wait for descriptors")(errno)),
            }
        }
    }

    /// Whether the other side is still there: a system call.
    pub fn check(&self) -> Result<(), Lost> {
        match socket::receive(&self.socket, 1) {
            Received::Nothing => Ok(()),
            Received::Gone => Err(Lost::Gone),
            // After the hello there is nothing to say.
            Received::Message(..) | Received::TooMuch => Err(Lost::Broken),
        }
    }

    /// Tells the other side again on which processors this thread may run.
    pub fn tell_processors(&mut self) {
        self.end.set_processors(processors());
    }

    /// Before sleeping on [`bell`](Self::bell): false if there is something to do.
    #[must_use]
    pub fn doze(&mut self) -> bool {
        self.end.doze()
    }

    /// After sleeping.
    ///
    /// # Errors
    /// If the pipe cannot be emptied: the link is to be dropped.
    pub fn woken(&mut self) -> Result<(), Lost> {
        self.end.woken();
        self.sleeps = self.sleeps.wrapping_add(1);
        if self.sleeps.is_multiple_of(SLEEPS_AN_EMPTYING) {
            self.bell.empty().map_err(|_| Lost::Broken)?;
        }
        Ok(())
    }

    /// The pipe to sleep on, edge-triggered, after [`doze`](Self::doze) said so.
    pub fn bell(&self) -> &OwnedFd {
        self.bell.fd()
    }

    /// The socket, which is readable when the other side is gone.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Has a sleep end when a frame comes, after [`doze`](Self::doze), or the other side goes.
    /// False if the system refuses.
    pub fn add_to(&self, sleeper: &dyn Sleeper) -> bool {
        sleeper.add(self.bell.fd()) && sleeper.add(self.socket.as_own())
    }

    /// Ends it: the other side finds this one gone, and the memory is given back.
    pub fn leave(self) -> Left {
        // The other side may still have a descriptor of the same socket.
        let _ = rustix::net::shutdown(&self.socket, Shutdown::Both);
        Left { bell: self.bell, socket: self.socket }
    }

    /// Sleeps until a frame comes or for at most `limit`. Returns at once if one is there. It may
    /// return without one.
    ///
    /// # Errors
    /// [`Lost`]: the link is over; frames may be left in the ring.
    pub fn wait(&mut self, limit: Option<Duration>) -> Result<(), Lost> {
        let bed = match self.bed.take() {
            Some(bed) => bed,
            None => self.make_bed().map_err(|_| Lost::Broken)?,
        };
        let mut outcome = Ok(());
        if self.end.doze() {
            let timeout = limit.map(timespec);
            let mut events: Vec<Event> = Vec::with_capacity(2);
            let room = rustix::buffer::spare_capacity(&mut events);
            let _interrupted = epoll::wait(&bed, room, timeout.as_ref());
            let socket = self.socket.as_raw_fd() as u64;
            outcome = self.woken();
            if events.iter().any(|event| event.data.u64() == socket) {
                outcome = outcome.and(self.check());
            }
        }
        self.bed = Some(bed);
        outcome
    }

    /// Gives up what [`wait`](Self::wait) has slept by, for one that an executor sleeps on.
    pub fn leave_bed(&mut self) {
        self.bed = None;
    }

    fn make_bed(&self) -> Result<OwnedFd, Errno> {
        let bed = epoll::create(CreateFlags::CLOEXEC)?;
        let edge = EventFlags::IN | EventFlags::ET;
        epoll::add(&bed, &self.bell, EventData::new_u64(u64::MAX), edge)?;
        let number = EventData::new_u64(self.socket.as_raw_fd() as u64);
        epoll::add(&bed, &self.socket, number, EventFlags::IN)?;
        Ok(bed)
    }
}

/// The process at the other end.
pub(crate) fn peer(socket: impl AsFd) -> Result<Peer, ShmError> {
    peer_of(socket).map_err(|source| ShmError::System { action: "ask who the peer is", source })
}

/// Waits for the other side's hello.
fn hear(socket: &Foreign, limit: Duration) -> Result<(Vec<u8>, Vec<Foreign>), ShmError> {
    use rustix::event::{PollFd, PollFlags, poll};
    let until = Instant::now() + limit;
    loop {
        match socket::receive(socket, HELLO_OCTETS) {
            Received::Message(octets, files) => return Ok((octets, files)),
            Received::TooMuch => return Err(ShmError::Hello(HelloError::Length.text())),
            Received::Gone => return Err(ShmError::Silent),
            Received::Nothing => {}
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ShmError::Silent);
        }
        match poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&timespec(left))) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(ShmError::system("wait for a peer")(errno)),
        }
    }
}

/// The descriptors, of a link that is over, on which the executor may still sleep.
pub struct Left {
    bell: Bell,
    socket: Foreign,
}

impl Left {
    /// Undoes [`Link::add_to`].
    pub fn remove_from(&self, sleeper: &dyn Sleeper) {
        sleeper.remove(self.bell.fd());
        sleeper.remove(self.socket.as_own());
    }
}

/// A length of time as the system takes it.
pub(crate) fn timespec(time: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(time.subsec_nanos()),
    }
}

/// The processors on which the calling thread may run, a bit each; 0 if that cannot be said in 64
/// bits.
fn processors() -> u64 {
    let Ok(set) = rustix::thread::sched_getaffinity(None) else {
        return 0;
    };
    let low = (0..64).filter(|cpu| set.is_set(*cpu));
    let mask = low.fold(0u64, |mask, cpu| mask | 1 << cpu);
    if mask.count_ones() == set.count() { mask } else { 0 }
}
