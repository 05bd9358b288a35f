//! The devices and programs: an uplink, and a pair of virtual interfaces for each channel.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use crate::{CHANNELS_MAX, ENDED_MAX, RIGHTS_MAX, RIGHTS_OF_A_CHANNEL_MAX, Rate, Steer};
use rustix::net::{AddressFamily, SocketType};
use rustix::thread::{CapabilitySet, CapabilitySets};
use xk_kit::net::template::{Headers, Template};
use xk_linux::Interface;
use xk_xdp::bpf::{Attachment, Map, MapKind, Program, REDIRECT};
use xk_xdp::{Granted, Mode, Options, Redirect, XdpError, grant};

use super::programs::{self, Counts, StateMap};
use super::space_unsafe;
use super::table::{Change, Table};
use super::veth;

/// Frames of a channel's rings, in each direction.
const FRAMES: u32 = 1024;

/// Why there is no steering, or no channel.
#[derive(Debug, thiserror::Error)]
pub enum SteeringError {
    /// The interface, or the socket on a channel's own one.
    #[error(transparent)]
    Xdp(#[from] XdpError),
    /// The system refuses a part of it.
    #[error(
        "{name}: cannot {action}: {source}; it needs cap_net_admin, cap_net_raw, cap_bpf and, when \
         it begins, cap_sys_admin"
    )]
    System {
        /// The uplink.
        name: String,
        /// The request to the system.
        action: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// The thread that keeps the channels has ended.
    #[error("the thread that keeps the channels has ended")]
    Ended,
}

/// One channel.
struct Channel {
    rate: Rate,
    /// Templates of the frames that it may send.
    sent: Table,
    /// Templates of the last [`ENDED_MAX`] rights that have ended.
    ended: Table,
    ended_last: VecDeque<Template>,
    state: StateMap,
    /// The end of the pair that the program guards.
    inner: u32,
    guard: Attachment,
    /// The program that gives arrivals to the socket.
    _arrivals: Redirect,
}

/// Devices of the thread, in a network namespace of its own: they end with it.
struct Devices {
    name: String,
    mtu: usize,
    /// The other end of the uplink is on this machine.
    finishes: bool,
    mode: Mode,
    received: Table,
    uplink: Program,
    entrance: Attachment,
    /// From 0 to the uplink.
    to_uplink: Map,
    /// From channels' numbers to the ends of their pairs.
    to_channels: Map,
    channels: BTreeMap<u32, Channel>,
}

type Job = Box<dyn FnOnce(&mut Devices) + Send>;

/// Channels that the system itself checks and demultiplexes, at one interface.
///
/// A channel's user has an XDP socket on one end of a pair of virtual interfaces. What it sends has
/// been copied by the system once it comes out of the other end, where a program compares it with
/// the templates of its rights, and gives it to the uplink, or to nothing. A program at the uplink
/// gives what arrives and fits a right to that right's channel, and all else to the host's own
/// stack, as if it were not there.
///
/// The pairs lie in a network namespace that nothing else is in. It ends with this value, or with
/// the process, however that ends, once the users' sockets are closed; until then what they send
/// leads nowhere.
pub struct Steering {
    /// None at the end.
    jobs: Option<mpsc::Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Steering {
    /// Nothing of a channel passes any more once this is done.
    fn drop(&mut self) {
        self.jobs.take();
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl Steering {
    /// Begins at the interface `name`, in this thread's network namespace.
    ///
    /// # Errors
    /// [`SteeringError`].
    pub fn attach(name: &str, mode: Mode) -> Result<Self, SteeringError> {
        let fails =
            |action| move |source| SteeringError::System { name: name.to_owned(), action, source };
        let uplink = xk_xdp::find(name)?;
        let index = uplink.index as u32;
        let received = Table::new(RIGHTS_MAX as u32);
        let map = |entries| Map::new(MapKind::Devices, 4, 4, entries).map_err(fails("make a map"));
        let (to_uplink, to_channels) = (map(1)?, map(CHANNELS_MAX as u32)?);
        let entered = to_uplink.set(&[0; 4], &index.to_ne_bytes());
        entered.map_err(fails("enter the uplink in a map"))?;
        let program = programs::uplink(&received, &to_channels).map_err(fails("load a program"))?;
        let attached = match mode {
            Mode::Generic => program.attach(index, false),
            Mode::Native | Mode::ZeroCopy => program.attach(index, true),
            Mode::Auto => program.attach(index, true).or_else(|_| program.attach(index, false)),
        };
        let entrance = attached.map_err(fails("attach a program"))?;
        let (mtu, finishes) = (uplink.mtu, xk_xdp::is_in_memory(name));
        let name = name.to_owned();
        let channels = BTreeMap::new();
        let devices = Devices {
            name,
            mtu,
            finishes,
            mode,
            received,
            uplink: program,
            entrance,
            to_uplink,
            to_channels,
            channels,
        };
        Self::begin(devices)
    }

    /// Has a thread of its own keep them.
    fn begin(mut devices: Devices) -> Result<Self, SteeringError> {
        let name = devices.name.clone();
        let (jobs, due) = mpsc::channel::<Job>();
        let (tell, told) = mpsc::sync_channel(1);
        let keep = move || {
            let left = space_unsafe::leave_for_a_fresh_one().and_then(|()| keep_rights());
            // Nothing but frames of channels goes through the interfaces made here, as long as the
            // system itself says nothing there; what it does say is no user's, and goes nowhere.
            let _ = std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
            let begins = left.is_ok();
            let _ = tell.send(left);
            while begins && let Ok(job) = due.recv() {
                // A process that has become another user's has lost them for the moment; what then
                // fails says so.
                let _ = use_rights();
                job(&mut devices);
            }
        };
        let fails = |source| SteeringError::System {
            name,
            action: "have a network namespace of its own",
            source,
        };
        let thread = thread::Builder::new().name("xk-steering".into()).spawn(keep);
        match (thread, told.recv()) {
            (Err(error), _) => Err(fails(error)),
            (_, Ok(Err(errno))) => Err(fails(errno.into())),
            (_, Err(_)) => Err(SteeringError::Ended),
            (Ok(thread), Ok(Ok(()))) => Ok(Self { jobs: Some(jobs), thread: Some(thread) }),
        }
    }

    /// Has the thread run `job`, and returns its result.
    fn have<R: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Devices) -> R + Send + 'static,
    ) -> Result<R, SteeringError> {
        let (tell, told) = mpsc::sync_channel(1);
        let job = Box::new(move |devices: &mut Devices| {
            let _ = tell.send(job(devices));
        });
        let jobs = self.jobs.as_ref().ok_or(SteeringError::Ended)?;
        jobs.send(job).map_err(|_| SteeringError::Ended)?;
        told.recv().map_err(|_| SteeringError::Ended)
    }

    /// Makes the channel of this number, which may send so much, and nothing before it has a right.
    ///
    /// # Errors
    /// [`SteeringError`].
    pub fn open(&self, number: u32, rate: Rate) -> Result<Granted, SteeringError> {
        self.have(move |devices| devices.open(number, rate))?
    }

    /// The channel of this number may send and receives frames with these headers.
    ///
    /// # Errors
    /// There is no such channel; another right receives what this one would; there is no room.
    pub fn grant(&self, number: u32, headers: Headers) -> Result<(), SteeringError> {
        self.have(move |devices| devices.grant(number, &headers))?
    }

    /// Ends the right to these headers of the channel of this number.
    ///
    /// # Errors
    /// [`SteeringError`].
    pub fn revoke(&self, number: u32, headers: Headers) -> Result<(), SteeringError> {
        self.have(move |devices| devices.revoke(number, &headers))?
    }

    /// The channel is no more. Its rights are to be revoked before.
    ///
    /// # Errors
    /// [`SteeringError::Ended`].
    pub fn close(&self, number: u32) -> Result<(), SteeringError> {
        self.have(move |devices| devices.close(number))
    }

    /// Whether the program at the uplink takes a frame of at least 14 octets for a channel's: runs
    /// it on the frame, without any effect.
    ///
    /// # Errors
    /// What the system gives, as for a frame that is too short.
    pub fn would_take(&self, frame: Vec<u8>) -> Result<bool, SteeringError> {
        self.have(move |devices| {
            let verdict = devices.uplink.run(&frame).map_err(devices.fails("run a program"))?;
            Ok(verdict == REDIRECT)
        })?
    }

    /// Nanoseconds in which the uplink's program finds the channel of this frame, by the system's
    /// clock around so many runs without any effect.
    ///
    /// # Errors
    /// What the system gives, as for a frame that is too short.
    pub fn finds_in_ns(&self, frame: Vec<u8>, runs: u32) -> Result<u32, SteeringError> {
        self.have(move |devices| {
            devices.uplink.time_ns(&frame, runs).map_err(devices.fails("run a program"))
        })?
    }

    /// Counts the frames that a channel's user has sent; `None` if there is no such channel.
    ///
    /// # Errors
    /// [`SteeringError::Ended`].
    pub fn counts(&self, number: u32) -> Result<Option<Counts>, SteeringError> {
        self.have(move |devices| devices.channels.get(&number)?.state.counts().ok())
    }
}

impl Steer for Steering {
    fn grant(&self, number: u32, headers: &Headers) -> bool {
        Steering::grant(self, number, headers.clone()).is_ok()
    }

    fn revoke(&self, number: u32, headers: &Headers) {
        // A thread that has ended has taken all channels with it.
        let _ = Steering::revoke(self, number, headers.clone());
    }

    fn close(&self, number: u32) {
        let _ = Steering::close(self, number);
    }

    fn describe(&self) -> String {
        let all = self.have(|devices| {
            let counts = devices.channels.values().filter_map(|one| one.state.counts().ok());
            counts.fold(Counts::default(), Counts::and)
        });
        match all {
            Ok(Counts { admitted, forged, late, ended }) => format!(
                "by the system {admitted} sent, {forged} not as granted, {late} too fast, {ended} \
                 of rights that have ended"
            ),
            Err(error) => error.to_string(),
        }
    }
}

impl Channel {
    /// Notes what the frames of a right are like that ends, and forgets the first of too many.
    fn remember(&mut self, sent: &Template, number: u32) -> Change {
        let Ok(added) = self.ended.add(sent, number) else {
            // It is there already, or there are too many shapes.
            return Change::Entries;
        };
        self.ended_last.push_back(sent.clone());
        let is_full = self.ended_last.len() > ENDED_MAX;
        let first = self.ended_last.pop_front_if(|_| is_full);
        let removed = first.map_or(Change::Entries, |first| self.ended.remove(&first));
        if added == Change::Classes { added } else { removed }
    }
}

impl Devices {
    fn fails(&self, action: &'static str) -> impl Fn(io::Error) -> SteeringError + use<> {
        let name = self.name.clone();
        move |source| SteeringError::System { name: name.clone(), action, source }
    }

    fn open(&mut self, number: u32, rate: Rate) -> Result<Granted, SteeringError> {
        let names = ["i", "o"].map(|end| format!("ch{number}{end}"));
        let [inner_name, outer] = &names;
        veth::make([inner_name, outer], self.mtu)
            .map_err(self.fails("make a pair of interfaces"))?;
        let opened = self.open_on(number, rate, [inner_name, outer]);
        if opened.is_err()
            && let Ok(index) = index_of(inner_name)
        {
            let _ = veth::remove(index);
        }
        opened
    }

    fn open_on(
        &mut self,
        number: u32,
        rate: Rate,
        [inner_name, outer]: [&str; 2],
    ) -> Result<Granted, SteeringError> {
        let inner = index_of(inner_name).map_err(self.fails("find an interface"))?;
        let sent = Table::new(RIGHTS_OF_A_CHANNEL_MAX as u32);
        let state = StateMap::new().map_err(self.fails("make a map"))?;
        let ended = Table::new(ENDED_MAX as u32 + 1);
        let program = programs::channel([&sent, &ended], &state, rate, &self.to_uplink);
        let program = program.map_err(self.fails("load a program"))?;
        let guard = program.attach(inner, false).map_err(self.fails("attach a program"))?;
        // An uplink whose driver runs its program gives frames to interfaces whose driver does.
        let mode = if self.mode == Mode::Generic { Mode::Generic } else { Mode::Native };
        let options = Options { frames: FRAMES, mode, ..Options::default() };
        let (mut granted, arrivals) = grant(outer, &options)?;
        granted.finishes = self.finishes;
        let entered = self.to_channels.set(&number.to_ne_bytes(), &inner.to_ne_bytes());
        entered.map_err(self.fails("enter a channel in a map"))?;
        let ended_last = VecDeque::new();
        let _arrivals = arrivals;
        let channel = Channel { rate, sent, ended, ended_last, state, inner, guard, _arrivals };
        self.channels.insert(number, channel);
        Ok(granted)
    }

    fn grant(&mut self, number: u32, headers: &Headers) -> Result<(), SteeringError> {
        let fails = self.fails("grant a right");
        let missing = || fails(io::ErrorKind::NotFound.into());
        let channel = self.channels.get_mut(&number).ok_or_else(missing)?;
        let received = self.received.add(&headers.received, number).map_err(&fails)?;
        let sent = match channel.sent.add(&headers.sent, number) {
            Ok(change) => change,
            Err(error) => {
                let undone = self.received.remove(&headers.received);
                self.renew(undone, number, Change::Entries)?;
                return Err(fails(error));
            }
        };
        self.renew(received, number, sent)
    }

    fn revoke(&mut self, number: u32, headers: &Headers) -> Result<(), SteeringError> {
        // Its program knows of that first: what the user has sent before it knows is no violation.
        if let Some(channel) = self.channels.get_mut(&number) {
            let changed = channel.remember(&headers.sent, number);
            self.renew(Change::Entries, number, changed)?;
        }
        let received = self.received.remove(&headers.received);
        let channel = self.channels.get_mut(&number);
        let sent = channel.map_or(Change::Entries, |channel| channel.sent.remove(&headers.sent));
        self.renew(received, number, sent)
    }

    /// Has programs look through the classes that there are now.
    fn renew(&mut self, received: Change, number: u32, sent: Change) -> Result<(), SteeringError> {
        let fails = self.fails("change a program");
        if received == Change::Classes {
            let program = programs::uplink(&self.received, &self.to_channels).map_err(&fails)?;
            self.entrance.replace(&program).map_err(&fails)?;
            self.uplink = program;
        }
        if sent == Change::Classes
            && let Some(channel) = self.channels.get(&number)
        {
            let (tables, state) = ([&channel.sent, &channel.ended], &channel.state);
            let program = programs::channel(tables, state, channel.rate, &self.to_uplink);
            channel.guard.replace(&program.map_err(&fails)?).map_err(&fails)?;
        }
        Ok(())
    }

    fn close(&mut self, number: u32) {
        let _ = self.to_channels.remove(&number.to_ne_bytes());
        if let Some(channel) = self.channels.remove(&number) {
            let _ = veth::remove(channel.inner);
        }
    }
}

/// Capabilities of the thread: for interfaces, sockets, programs and their memory.
fn rights() -> CapabilitySet {
    CapabilitySet::NET_ADMIN | CapabilitySet::NET_RAW | CapabilitySet::BPF | CapabilitySet::IPC_LOCK
}

/// Leaves the thread these rights alone, also once the process becomes another user's.
fn keep_rights() -> rustix::io::Result<()> {
    rustix::thread::set_keep_capabilities(true)?;
    use_rights()
}

fn use_rights() -> rustix::io::Result<()> {
    let permitted = rustix::thread::capabilities(None)?.permitted & rights();
    let inheritable = CapabilitySet::empty();
    let sets = CapabilitySets { effective: permitted, permitted, inheritable };
    rustix::thread::set_capabilities(None, sets)
}

fn index_of(name: &str) -> io::Result<u32> {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    let found = Interface::ethernet(socket, name)?;
    found.map(|interface| interface.index as u32).map_err(io::Error::other)
}
