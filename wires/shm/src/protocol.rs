//! The wire: shared memory below a graph.

use core::cell::{Cell, RefCell};
use core::time::Duration;
use std::any::Any;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Instant;

use xk_core::graph::{Build, BuildError, Look, Params};
use xk_core::object::PushError;
use xk_core::reason::{self, Class};
use xk_core::wire::Sleeper;
use xk_core::{Kernel, Message, ProtocolRef, Reason, SessionRef, Time};
use xk_kit::EthAddr;
use xk_kit::net::notice::notice;
use xk_kit::wire::device::{Anchored, Capabilities, Device, Receiving, Unsent, room_if};
use xk_kit::wire::entry::{HEADER_OCTETS, HEADROOM, environment, station};

use crate::layout::Geometry;
use crate::link::{Link, Lost};
use crate::meet::{Meeting, Options, Peers, check_path};
use crate::ring::SendError;

/// Interval at which a loop that does not sleep looks whether the peer is still there, by a system
/// call.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Number of looks after which the processors are told again: the system may move the process.
const LOOKS_A_TELLING: u32 = 100;

/// There is no peer at present.
pub static LINK_DOWN: Reason = Reason::new("link down", Class::Exhausted);
/// A link came to its end because the peer went away; counted once a link.
pub static LINK_LOST: Reason = Reason::new("peer gone", Class::Exhausted);
/// A link came to its end because the peer broke the rules; counted once a link.
pub static LINK_BROKEN: Reason = Reason::new("peer broke the link", Class::Bad);

/// Builds the wire from its place in a graph.
pub(crate) fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let params = build.params;
    let options = options(params)?;
    let address = match station(params)? {
        Some(address) => address,
        None => random_address(build.cx),
    };
    let meeting =
        Meeting::new(path(params), &options).map_err(|error| environment("path", &error))?;
    let frame_octets_max = options.geometry.frame_octets_max() as usize;
    let capabilities = Capabilities::ethernet(frame_octets_max, address);
    build.add(Anchored::new(ShmWire::new(meeting), capabilities))
}

/// Looks whether the parameters will do on this machine.
pub(crate) fn probe(params: &Params, look: Look) -> Result<(), BuildError> {
    options(params)?;
    station(params)?;
    if look == Look::Parameters {
        return Ok(());
    }
    check_path(path(params)).map_err(|error| environment("path", &error))
}

fn path(params: &Params) -> &Path {
    Path::new(params.text("path").unwrap_or_default())
}

fn options(params: &Params) -> Result<Options, BuildError> {
    let slots = params.number("slots", 512_u32);
    let mtu = params.octets("mtu", 1500);
    let octets = u32::try_from(mtu.saturating_add(HEADER_OCTETS)).unwrap_or(u32::MAX);
    if !slots.is_power_of_two() {
        return Err(BuildError::param("slots", "a power of two from 8 to 32768"));
    }
    let geometry = Geometry::new(slots, octets).ok_or_else(|| {
        BuildError::param("mtu", "46 to 65536 octets, without the Ethernet header")
    })?;
    let peers = params.get("peer_uid").map(|_| Peers::User(params.number("peer_uid", u32::MAX)));
    Ok(Options { geometry, peers: peers.unwrap_or_else(Peers::own) })
}

/// A random address, locally administered, of one station (IEEE 802-2014, section 8.2.2).
fn random_address(cx: &Kernel) -> EthAddr {
    let mut octets = [0; 6];
    cx.random().fill(&mut octets);
    octets[0] = octets[0] & !1 | 2;
    EthAddr(octets)
}

/// A pipe that the executor may still sleep on though its link is gone.
type Leftover = Option<OwnedFd>;

/// Shared memory as a wire.
pub(crate) struct ShmWire {
    link: RefCell<Option<Link>>,
    /// None after the end.
    meeting: RefCell<Option<Meeting>>,
    leftover: RefCell<Leftover>,
    /// The executor sleeps on the link's pipe.
    registered: Cell<bool>,
    /// The peer is gone; so many frames are taken out of the ring at most before the link is
    /// dropped.
    last_frames: Cell<Option<u32>>,
    /// Time of the next look after the peer, at the latest.
    look_at: Cell<Time>,
    /// Time at which a step towards a link is due.
    step_at: Cell<Option<Time>>,
    /// True if it has just slept, and does not know why it was woken.
    slept: Cell<bool>,
    looks: Cell<u32>,
    /// Links that came to be so far.
    links: Cell<u64>,
    /// Last error.
    trouble: RefCell<String>,
}

impl ShmWire {
    fn new(meeting: Meeting) -> Self {
        Self {
            link: RefCell::new(None),
            meeting: RefCell::new(Some(meeting)),
            leftover: RefCell::new(None),
            registered: Cell::new(false),
            last_frames: Cell::new(None),
            look_at: Cell::new(Time::ZERO),
            step_at: Cell::new(Some(Time::ZERO)),
            slept: Cell::new(false),
            looks: Cell::new(0),
            links: Cell::new(0),
            trouble: RefCell::default(),
        }
    }

    fn state(&self) -> String {
        let state = match (&*self.link.borrow(), &*self.meeting.borrow()) {
            (Some(link), _) => {
                let peer = link.peer();
                format!("linked to process {} of user {}", peer.pid, peer.uid)
            }
            (None, Some(meeting)) if meeting.is_listening() => "waiting for a peer".into(),
            (None, Some(_)) => "looking for a peer".into(),
            (None, None) => "stopped".into(),
        };
        let links = self.links.get();
        let trouble = self.trouble.borrow();
        let last =
            if trouble.is_empty() { String::new() } else { format!(", last trouble: {trouble}") };
        format!("{state}, {links} links so far{last}")
    }

    /// Looks after the peer, or for one.
    #[cold]
    fn look(&self, cx: &Kernel, this: &ProtocolRef) {
        let checked = self.link.borrow().as_ref().map(|link| (link.check(), link.end_slots()));
        match checked {
            Some((Err(Lost::Gone), slots)) if self.last_frames.get().is_none() => {
                // What it sent before it went is taken first.
                self.last_frames.set(Some(slots));
            }
            Some((Err(Lost::Broken), _)) => self.lose(cx, this, Lost::Broken),
            _ => {}
        }
        let now = Instant::now();
        let (found, error, step) = {
            let mut meeting = self.meeting.borrow_mut();
            let Some(meeting) = meeting.as_mut() else {
                return;
            };
            (meeting.step(now), meeting.take_error(), meeting.next_step())
        };
        if let Some(error) = error {
            self.note(cx, this, error.to_string());
        }
        if let Some(link) = found {
            self.welcome(cx, this, link);
        }
        self.looks.set(self.looks.get().wrapping_add(1));
        if self.looks.get().is_multiple_of(LOOKS_A_TELLING)
            && let Some(link) = self.link.borrow_mut().as_mut()
        {
            link.tell_processors();
        }
        let step = step.map(|step| cx.now().after(step.saturating_duration_since(now)));
        self.step_at.set(step);
        let look = cx.now().after(LOOK_EVERY);
        self.look_at.set(step.map_or(look, |step| step.min(look)));
    }

    fn welcome(&self, cx: &Kernel, this: &ProtocolRef, link: Link) {
        let peer = link.peer();
        self.links.set(self.links.get() + 1);
        self.last_frames.set(None);
        self.registered.set(false);
        self.trouble.borrow_mut().clear();
        *self.link.borrow_mut() = Some(link);
        // As often as links come, and those have pauses between them.
        notice(cx, || {
            format!("{}: linked to process {} of user {}", this.name(), peer.pid, peer.uid)
        });
    }

    /// The link is over: its memory goes at once, its pipe when the executor no longer sleeps on
    /// it.
    #[cold]
    fn lose(&self, cx: &Kernel, this: &ProtocolRef, why: Lost) {
        let Some(link) = self.link.borrow_mut().take() else {
            return;
        };
        let counter = match why {
            Lost::Gone => &LINK_LOST,
            Lost::Broken => &LINK_BROKEN,
        };
        this.head().drops().count(counter);
        self.note(cx, this, why.to_string());
        self.last_frames.set(None);
        let bell = link.into_bell();
        if self.registered.replace(false) {
            *self.leftover.borrow_mut() = Some(bell);
        }
        if let Some(meeting) = self.meeting.borrow_mut().as_mut() {
            meeting.lost(Instant::now());
        }
        self.look_at.set(cx.now());
        self.step_at.set(Some(cx.now()));
    }

    /// Notes what went wrong, and says it unless it was said just before.
    fn note(&self, cx: &Kernel, this: &ProtocolRef, text: String) {
        if *self.trouble.borrow() != text {
            notice(cx, || format!("{}: {text}", this.name()));
            *self.trouble.borrow_mut() = text;
        }
    }

    /// Copies a frame into the ring.
    fn put(&self, message: &Message) -> Result<(), SendError> {
        let mut link = self.link.borrow_mut();
        let Some(link) = link.as_mut() else {
            return Err(SendError::Full);
        };
        match message.single_slice() {
            Some(octets) => link.send(octets),
            None => {
                let parts = message.slices().map(|slice| slice.octets);
                link.end().send_parts(message.len(), parts)
            }
        }
    }
}

impl Device for ShmWire {
    /// Copies frames out of the ring and gives their slots back.
    #[inline]
    fn receive(&self, into: Receiving<'_>) {
        let Receiving { cx, this, budget, arrivals } = into;
        if cx.now() >= self.look_at.get() {
            self.look(cx, this);
        }
        let (mut count, mut lost, mut no_buffers) = (0, false, 0);
        if let Some(link) = self.link.borrow_mut().as_mut() {
            let end = link.end();
            while count < budget {
                match end.arrival() {
                    Ok(Some(arrival)) => match arrival.into_message(cx.pool(), HEADROOM) {
                        Ok(message) => arrivals.push_back(message),
                        Err(arrival) => {
                            no_buffers += 1;
                            arrival.skip();
                        }
                    },
                    Ok(None) => break,
                    Err(_) => {
                        lost = true;
                        break;
                    }
                }
                count += 1;
            }
            end.release();
        }
        this.head().drops().add(&reason::NO_BUFFERS, no_buffers);
        if lost {
            self.lose(cx, this, Lost::Broken);
        }
        if arrivals.is_empty() && self.slept.take() {
            // Not for a frame, so for the peer.
            self.look(cx, this);
        }
        if let Some(left) = self.last_frames.get() {
            let left = left.saturating_sub(u32::try_from(count).unwrap_or(u32::MAX));
            self.last_frames.set(Some(left));
            if arrivals.is_empty() || left == 0 {
                self.lose(cx, this, Lost::Gone);
            }
        }
    }

    fn send(&self, cx: &Kernel, this: &SessionRef, message: Message) -> Result<(), Unsent> {
        let (why, error) = match self.put(&message) {
            Ok(()) => return Ok(()),
            Err(SendError::TooLong) => (&reason::TOO_BIG, PushError::TooBig),
            Err(SendError::Full) if self.link.borrow().is_some() => {
                (&reason::QUEUE_FULL, PushError::QueueFull)
            }
            Err(SendError::Full) => (&LINK_DOWN, PushError::Unreachable),
            Err(SendError::Broken(_)) => {
                if let Some(protocol) = cx.protocol(this.head().protocol()) {
                    self.lose(cx, &protocol, Lost::Broken);
                }
                (&LINK_DOWN, PushError::Unreachable)
            }
        };
        Err(Unsent::Refused(message, why, error))
    }

    /// Tells room where there is no peer: frames are lost then, and counted, and wait for none.
    fn room(&self, _: &Kernel) -> Option<Duration> {
        let mut link = self.link.borrow_mut();
        // A link that is broken says so to what is sent.
        room_if(link.as_mut().is_none_or(|link| link.end().room(1).unwrap_or(1) > 0))
    }

    fn describe(&self, able: &Capabilities) -> Option<String> {
        Some(format!("{}, {}", able.address?, self.state()))
    }

    fn stop(&self, _: &Kernel, _: &ProtocolRef) {
        drop(self.link.take());
        drop(self.meeting.take());
    }

    fn flush(&self, _: &Kernel, _: &ProtocolRef) -> bool {
        if let Some(link) = self.link.borrow_mut().as_mut() {
            link.flush();
        }
        true
    }

    fn descriptor(&self, see: &mut dyn FnMut(&dyn Any)) {
        if let Some(meeting) = self.meeting.borrow().as_ref() {
            see(meeting.set());
        }
    }

    fn next_poll(&self) -> Option<Time> {
        self.step_at.get()
    }

    fn rest(&self, _: &Kernel, sleeper: &dyn Sleeper) -> bool {
        if let Some(bell) = self.leftover.borrow_mut().take() {
            sleeper.remove(&bell);
        }
        let mut link = self.link.borrow_mut();
        let Some(link) = link.as_mut() else {
            return true;
        };
        if !self.registered.get() {
            // If it fails, sleeps are short all the same, and the next one tries again.
            self.registered.set(sleeper.add(link.bell()));
        }
        self.last_frames.get().is_none() && link.doze()
    }

    fn woken(&self, cx: &Kernel, this: &ProtocolRef) {
        let woken = self.link.borrow_mut().as_mut().map(Link::woken);
        if let Some(Err(lost)) = woken {
            self.lose(cx, this, lost);
        }
        self.slept.set(true);
    }

    fn may_spin(&self) -> bool {
        let link = self.link.borrow();
        link.as_ref().is_none_or(|link| !link.shares_processor())
    }
}
