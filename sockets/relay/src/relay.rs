//! The relay's loop.

use crate::bell::Bell;
use crate::datagrams::{Aim, Datagrams};
use crate::folder::Folder;
use crate::listening::{Handed, Listening};
use crate::options::Options;
use crate::requests::answer;
use crate::splice::{Connecting, Next, SCRATCH, Splice};
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::SocketFlags;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};
use xk_net::{Source, Stack, TcpStream, Thread};
use xk_request::Reply;
use xk_shm::peer_of;

/// Numbers of what is no socket of a program.
const DOOR: u64 = 0;
const BELL: u64 = 1;
const FIRST: u64 = 2;
/// Largest number of askers and programs' sockets.
const THINGS_MAX: usize = 1 << 16;
/// Askers of one user at a time: each asks at once, and is answered at once.
const ASKERS_OF_A_USER_MAX: usize = 256;
/// Askers that are let in before others have their turn.
const WELCOMES: usize = 64;
/// Time in which an asker asks.
const ASK_LIMIT: Duration = Duration::from_secs(5);
/// Ended streams whose causes are remembered.
const EPITAPHS_MAX: usize = 1024;
/// Time between two looks whether programs still have their listeners.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Least number of bound sockets that are looked at each time, and the number of times after which
/// each has been.
const LOOKS: usize = 64;
const LOOK_ROUNDS: usize = 8;
/// Time after which a stream that a program had no room for is offered again.
const OFFER_EVERY: Duration = Duration::from_millis(5);
/// Time that it goes on after the end for streams that are still to be sent.
const FAREWELL: Duration = Duration::from_secs(5);

/// Thing for which a number stands.
pub(crate) enum Thing {
    Asker(Asker),
    Listening(Box<Listening>),
    Splice(Box<Splice>),
    Datagrams(Box<Datagrams>),
    /// The socket that stands for a peer, for one socket for datagrams.
    StandIn(u64, Aim),
    /// Linux's side of which bound socket.
    Outside(u64),
}

/// A process that has not asked yet.
pub(crate) struct Asker {
    pub(crate) socket: OwnedFd,
    user: u32,
    came: Instant,
}

/// The relay's loop and all that it holds.
pub(crate) struct Inner {
    pub(crate) stack: Stack<Thread>,
    pub(crate) folder: Arc<Folder>,
    pub(crate) token: String,
    pub(crate) bell: Arc<Bell>,
    epoll: OwnedFd,
    door: OwnedFd,
    pub(crate) things: HashMap<u64, Thing>,
    /// Number of askers of each user.
    askers: HashMap<u32, usize>,
    last: u64,
    /// Sockets that are bound, in the order in which they are looked at.
    pub(crate) bound: VecDeque<u64>,
    /// The listeners to be looked after at once.
    pub(crate) again: VecDeque<u64>,
    /// Listeners whose programs had no room.
    later: Vec<u64>,
    /// Streams in the making whose programs give them up at some time.
    pub(crate) connecting: Vec<(u64, Instant)>,
    /// Why streams are over, for requests that come later.
    pub(crate) epitaphs: VecDeque<(u64, i32)>,
    /// Datagrams that neither side got.
    pub(crate) lost: Arc<AtomicU64>,
    looked: Instant,
    pub(crate) scratch: Vec<u8>,
}

impl Inner {
    pub(crate) fn new(
        stack: Stack<Thread>,
        folder: Folder,
        token: String,
        bell: Arc<Bell>,
    ) -> io::Result<Self> {
        let door = folder.door()?;
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let number = EventData::new_u64(DOOR);
        epoll::add(&epoll, &door, number, EventFlags::IN | EventFlags::ET)?;
        let number = EventData::new_u64(BELL);
        epoll::add(&epoll, bell.descriptor(), number, EventFlags::IN)?;
        Ok(Self {
            stack,
            folder: Arc::new(folder),
            token,
            bell,
            epoll,
            door,
            things: HashMap::new(),
            askers: HashMap::new(),
            last: FIRST,
            bound: VecDeque::new(),
            again: VecDeque::new(),
            later: Vec::new(),
            connecting: Vec::new(),
            epitaphs: VecDeque::new(),
            lost: Arc::default(),
            looked: Instant::now(),
            scratch: vec![0; SCRATCH],
        })
    }

    /// Serves until the bell says that it is over, and then until what programs have written is
    /// sent.
    pub(crate) fn run(&mut self) {
        let mut events: Vec<Event> = Vec::with_capacity(256);
        let mut until = None;
        loop {
            if self.bell.has_ended() {
                let until = *until.get_or_insert_with(|| Instant::now() + FAREWELL);
                self.things.retain(|_, thing| matches!(thing, Thing::Splice(_)));
                if self.things.is_empty() || Instant::now() > until {
                    return;
                }
            }
            let timeout = match (self.again.is_empty(), self.later.is_empty()) {
                (false, _) => Duration::ZERO,
                (_, false) => OFFER_EVERY,
                _ if until.is_some() => FAREWELL / 10,
                _ => LOOK_EVERY,
            };
            let timeout = Timespec {
                tv_sec: timeout.as_secs() as i64,
                tv_nsec: i64::from(timeout.subsec_nanos()),
            };
            events.clear();
            let room = rustix::buffer::spare_capacity(&mut events);
            // An interrupted sleep reports nothing.
            let _ = epoll::wait(&self.epoll, room, Some(&timeout));
            for event in &events {
                self.happened(event.data.u64(), event.flags);
            }
            for _ in 0..self.again.len() {
                if let Some(id) = self.again.pop_front() {
                    self.tend(id);
                }
            }
            for id in std::mem::take(&mut self.later) {
                self.tend(id);
            }
            if self.looked.elapsed() >= LOOK_EVERY {
                self.looked = Instant::now();
                self.look();
                self.dismiss();
                self.give_up();
            }
        }
    }

    fn happened(&mut self, id: u64, flags: EventFlags) {
        match id {
            DOOR => self.welcome(),
            BELL => {
                self.bell.silence();
                while let Some(id) = self.bell.next() {
                    self.tend(id);
                }
            }
            id => {
                if let Some(Thing::Splice(splice)) = self.things.get_mut(&id) {
                    splice.gone |= flags.contains(EventFlags::HUP);
                }
                self.tend(id);
            }
        }
    }

    /// Lets in the processes that may ask.
    fn welcome(&mut self) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        for _ in 0..WELCOMES {
            match rustix::net::accept_with(&self.door, flags) {
                Ok(socket) => self.let_in(socket),
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                // No descriptor is left, most likely.
                Err(_) => return self.later.push(DOOR),
            }
        }
        self.again.push_back(DOOR);
    }

    /// A process that is not let in finds the socket closed.
    fn let_in(&mut self, socket: OwnedFd) {
        let Ok(peer) = peer_of(&socket) else { return };
        let askers = self.askers.get(&peer.uid).copied().unwrap_or(0);
        let has_room = askers < ASKERS_OF_A_USER_MAX && self.things.len() < THINGS_MAX;
        if !has_room || !self.folder.lets_in(peer.uid) {
            return;
        }
        let id = self.number();
        if self.listen_to(&socket, id).is_ok() {
            self.askers.insert(peer.uid, askers + 1);
            let asker = Asker { socket, user: peer.uid, came: Instant::now() };
            self.things.insert(id, Thing::Asker(asker));
        }
    }

    /// Takes an asker's socket out, to be answered.
    pub(crate) fn take_asker(&mut self, id: u64) -> Option<OwnedFd> {
        let Some(Thing::Asker(asker)) = self.things.remove(&id) else {
            return None;
        };
        match self.askers.get_mut(&asker.user) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(self.askers.remove(&asker.user)),
        }
        Some(asker.socket)
    }

    pub(crate) fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    pub(crate) fn listen_to(&self, fd: &impl AsFd, id: u64) -> io::Result<()> {
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        Ok(epoll::add(&self.epoll, fd, EventData::new_u64(id), flags)?)
    }

    /// Looks after whatever has this number.
    pub(crate) fn tend(&mut self, id: u64) {
        match self.things.get_mut(&id) {
            None if id == DOOR => self.welcome(),
            None => {}
            Some(Thing::Asker(_)) => self.hear(id),
            Some(Thing::Listening(_)) => self.hand_over(id),
            Some(Thing::Datagrams(_)) => self.tend_datagrams(id, None),
            Some(Thing::Outside(of)) => {
                let of = *of;
                self.tend(of);
            }
            Some(Thing::StandIn(of, peer)) => {
                let (of, peer) = (*of, *peer);
                self.tend_datagrams(of, Some(peer));
            }
            Some(Thing::Splice(splice)) => {
                let next = splice.tend(&mut self.scratch);
                if splice.connected
                    && let Some(asker) = splice.waiting.take()
                {
                    splice.confirmed = true;
                    answer(&asker, &Reply::Errno(0), None);
                }
                match next {
                    Next::Wait => {}
                    Next::Again => self.again.push_back(id),
                    Next::Over(why) => self.bury(id, why),
                }
            }
        }
    }

    /// A stream is over.
    fn bury(&mut self, id: u64, why: Option<i32>) {
        let Some(Thing::Splice(mut splice)) = self.things.remove(&id) else {
            return;
        };
        let Some(why) = why else {
            return;
        };
        if let Some(asker) = splice.waiting.take() {
            answer(&asker, &Reply::Errno(why), None);
            return;
        }
        if self.epitaphs.len() >= EPITAPHS_MAX {
            self.epitaphs.pop_front();
        }
        self.epitaphs.push_back((id, why));
    }

    /// Has a socket for datagrams do something, which may need stand-ins.
    pub(crate) fn with_datagrams<T>(
        &mut self,
        id: u64,
        work: impl FnOnce(&mut Self, &mut Datagrams, &mut [u8]) -> T,
    ) -> Option<T> {
        let Some(Thing::Datagrams(mut datagrams)) = self.things.remove(&id) else {
            return None;
        };
        let mut scratch = std::mem::take(&mut self.scratch);
        let result = work(self, &mut datagrams, &mut scratch);
        self.scratch = scratch;
        self.things.insert(id, Thing::Datagrams(datagrams));
        Some(result)
    }

    /// Listens to Linux's side of the bound socket `of`; the number is forgotten with that.
    pub(crate) fn listens_outside(&mut self, of: u64, fd: &impl AsFd) -> io::Result<u64> {
        let number = self.number();
        self.listen_to(fd, number)?;
        self.things.insert(number, Thing::Outside(of));
        Ok(number)
    }

    /// A number for the stand-in of a peer, which is listened to from now on.
    pub(crate) fn stands_in(&mut self, of: u64, unix: &OwnedFd, peer: Aim) -> io::Result<u64> {
        let number = self.number();
        self.listen_to(unix, number)?;
        self.things.insert(number, Thing::StandIn(of, peer));
        Ok(number)
    }

    fn tend_datagrams(&mut self, id: u64, from: Option<Aim>) {
        let mut gone = Vec::new();
        let next = self.with_datagrams(id, |inner, datagrams, scratch| {
            let watch = &mut |unix: &OwnedFd, peer| inner.stands_in(id, unix, peer);
            datagrams.tend(from, scratch, &mut gone, watch)
        });
        self.forget(&gone);
        match next {
            Some(Next::Again) => self.again.push_back(id),
            Some(Next::Over(_)) => self.close_datagrams(id),
            Some(Next::Wait) | None => {}
        }
    }

    /// Stand-ins that are no longer there.
    pub(crate) fn forget(&mut self, gone: &[u64]) {
        for number in gone {
            self.things.remove(number);
        }
    }

    pub(crate) fn close_listening(&mut self, id: u64) {
        if let Some(Thing::Listening(listening)) = self.things.remove(&id) {
            self.forget(listening.numbers());
        }
    }

    pub(crate) fn close_datagrams(&mut self, id: u64) {
        if let Some(Thing::Datagrams(datagrams)) = self.things.remove(&id) {
            self.forget(&datagrams.numbers());
        }
    }

    pub(crate) fn keep(
        &mut self,
        id: u64,
        stream: TcpStream<Thread>,
        unix: OwnedFd,
        connecting: Option<Connecting>,
        options: Options,
    ) -> io::Result<()> {
        self.listen_to(&unix, id)?;
        let watch = stream.watch(self.bell.teller(id));
        let splice = Splice::new(stream, unix, watch, connecting, options);
        self.things.insert(id, Thing::Splice(Box::new(splice)));
        self.again.push_back(id);
        Ok(())
    }

    fn hand_over(&mut self, id: u64) {
        loop {
            let number = self.number();
            let Some(Thing::Listening(listening)) = self.things.get_mut(&id) else {
                return;
            };
            match listening.hand_over(&self.folder, &self.token, number) {
                Handed::Outside => {}
                Handed::Over(stream, unix) => {
                    let options = listening.options.clone();
                    // If it cannot be watched it is dropped, and both ends hear of it.
                    let _ = self.keep(number, stream, unix, None, options);
                }
                Handed::Nobody => return,
                Handed::Later => {
                    self.later.push(id);
                    return;
                }
                Handed::Closed => return self.close_listening(id),
            }
        }
    }

    /// Releases the socket of this number, if its program has released it.
    pub(crate) fn look_at(&mut self, id: u64) {
        if self.is_alive(id) {
            return;
        }
        match self.things.get(&id) {
            Some(Thing::Listening(_)) => self.close_listening(id),
            Some(Thing::Datagrams(_)) => self.close_datagrams(id),
            _ => {}
        }
    }

    /// Closes connections on which nothing is asked.
    fn dismiss(&mut self) {
        let is_late = |(id, thing): (&u64, &Thing)| match thing {
            Thing::Asker(asker) if asker.came.elapsed() > ASK_LIMIT => Some(*id),
            _ => None,
        };
        let late: Vec<u64> = self.things.iter().filter_map(is_late).collect();
        for id in late {
            self.take_asker(id);
        }
    }

    /// Gives up connections that are in the making for too long.
    fn give_up(&mut self) {
        let now = Instant::now();
        for (id, until) in std::mem::take(&mut self.connecting) {
            match self.things.get(&id) {
                Some(Thing::Splice(splice)) if !splice.connected && now < until => {
                    self.connecting.push((id, until));
                }
                Some(Thing::Splice(splice)) if !splice.connected => {
                    self.bury(id, Some(libc::ETIMEDOUT));
                }
                _ => {}
            }
        }
    }

    /// Whether a bound socket is still any program's.
    fn is_alive(&self, id: u64) -> bool {
        match self.things.get(&id) {
            Some(Thing::Listening(listening)) => listening.is_alive(),
            Some(Thing::Datagrams(datagrams)) => datagrams.is_alive(),
            _ => false,
        }
    }

    /// Looks at some of the bound sockets, and releases those that their programs have released.
    /// Each socket has its turn, however many there are.
    fn look(&mut self) {
        for _ in 0..LOOKS.max(self.bound.len() / LOOK_ROUNDS).min(self.bound.len()) {
            let Some(id) = self.bound.pop_front() else {
                return;
            };
            self.look_at(id);
            if let Some(Thing::Listening(listening)) = self.things.get_mut(&id) {
                listening.find_room();
            }
            if self.things.contains_key(&id) {
                self.bound.push_back(id);
            }
        }
    }

    /// Releases the sockets at a port that their programs have released; true if there were any.
    pub(crate) fn look_at_port(&mut self, port: u16) -> bool {
        let is_at = |(id, thing): (&u64, &Thing)| {
            let local = match thing {
                Thing::Listening(listening) => listening.local.port(),
                Thing::Datagrams(datagrams) => datagrams.port(),
                _ => return None,
            };
            (local == port).then_some(*id)
        };
        let at: Vec<u64> = self.things.iter().filter_map(is_at).collect();
        let before = self.things.len();
        for id in at {
            self.look_at(id);
        }
        self.things.len() < before
    }
}
