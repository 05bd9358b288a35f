//! # Synopsis
//! `ether DEVICE` — Ethernet as a multiplexor of STREAMS: streams of datagrams above, one device of
//! frames below.
//!
//! # Participants
//! The hardware address of the peer. In STREAMS it is a link address: the station and the number of
//! the protocol above ([`Link`]).
//!
//! # Behaviour
//! Lines above have a number as on `eth`: an Ethernet type, or `0x1_0000 (n + 1)` and a protocol
//! for SNAP.
//!
//! A stream is bound to a number (T_BIND_REQ: the one in the address, or that of the protocol that
//! it was opened for); T_OPTMGMT_REQ with a link address binds it to one more number.
//! T_UNITDATA_REQ sends a frame to the station of its address, with the number there, or else the
//! first bound number; T_UNITDATA_IND has an arriving frame, with its destination address in the
//! options. A number belongs to one stream. The number selects Ethernet II or IEEE 802.3 with SNAP.
//! Frames for other stations are dropped; frames for groups are accepted. Short frames are padded
//! with zeros to 60 octets, the minimum; in IEEE 802.3 the padding is cut off on arrival.
//!
//! A frame for a stream whose queue is full is dropped and counted. When the device's queue is
//! full, the writers' queues fill, and are enabled again when it has room.
//!
//! # Example
//! ```kdl
//! host a {
//!     sim link=lan
//!     subsystem streams {
//!         ether sim
//!         ddp ether
//!     }
//! }
//! ```
//!
//! # Standard
//! IEEE 802.3; RFC 1042 (SNAP); the primitives of TPI in place of those of DLPI.

use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::Cell;
use xk_core::graph::{Build, BuildError, Family, Guarantees, Realm, Service};
use xk_core::reason::{self, Reason};
use xk_core::{Answer, Ask, Entry, Kernel, ProtocolRef};
use xk_kit::control::{MaxPacket, MyEther};
use xk_streams::tpi::{
    self, Datagrams, Driver, Endpoint, Info, Link, Multiplexor, Mux, Refusal, SendError, TliError,
    unitdata_ind,
};
use xk_streams::{Blocks, Errno, Kind, Mblk, Module, ModuleInfo, Opening, Priority, Q, Services};

/// The catalog entry.
pub static ENTRY: Entry = Entry::layer("ether", include_str!("ether.rs"), build)
    .subsystem("streams")
    .summary("Ethernet as a multiplexor of STREAMS")
    .above(Family::Ether)
    .numbers_as("eth")
    .on(&[Realm::Wire], &[Family::Link])
    .needs(Guarantees::SESSIONS.and(Guarantees::WHOLE))
    .service(Service::adding(Guarantees::REPLY))
    .header_octets(HEADER);

/// Octets of an Ethernet header.
const HEADER: usize = 14;
/// Octets of LLC and SNAP.
const SNAP: usize = 8;
/// Least octets of a frame that is sent, without its check sequence.
const FRAME_MIN: usize = 60;
/// Longest payload, in octets.
const PAYLOAD_MAX: usize = 1500;
/// The least number that is an Ethernet type.
const TYPE_MIN: u32 = 0x600;
/// Organisations of SNAP by their place in numbers, as in `eth`.
const ORGANISATIONS: [[u8; 3]; 4] = [[0, 0, 0], [0x08, 0, 0x07], [0, 0x80, 0xc2], [0, 0, 0x0c]];
/// Numbers that one stream may be bound to.
const NUMBERS_MAX: usize = 8;

/// A stream that takes frames.
struct User {
    upper: Option<u32>,
    numbers: Vec<u32>,
}

/// One station.
struct Ether {
    station: Cell<[u8; 6]>,
    max: Cell<usize>,
    mux: Mux<User>,
}

fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    xk_streams::line(build, new())
}

fn new() -> Rc<Driver<Ether>> {
    Driver::new(Ether {
        station: Cell::default(),
        max: Cell::new(PAYLOAD_MAX),
        mux: Mux::default(),
    })
}

/// Adds one on a device of frames, for programs that compose without a graph file.
///
/// # Errors
/// [`BuildError`] in a kernel without the subsystem.
pub fn add(cx: &Kernel, name: &str, device: ProtocolRef) -> Result<ProtocolRef, BuildError> {
    xk_streams::add_line(cx, ENTRY.kind, name, &[device], new())
}

impl Ether {
    fn is_bound(&self, number: u32) -> bool {
        self.mux.users.any(|user| user.numbers.contains(&number))
    }

    /// A device is linked below.
    fn link(&self, cx: &Kernel) {
        let device = self.mux.below.node(cx);
        let asked = device.as_ref().and_then(|device| device.ask(cx, MyEther::default()));
        self.station.set(asked.map_or_else(
            || {
                let mut octets = [0; 6];
                cx.random().fill(&mut octets);
                octets[0] = octets[0] & !1 | 2;
                octets
            },
            |asked| asked.address,
        ));
        let max = device.and_then(|device| device.ask(cx, MaxPacket::default()));
        let max = max.map_or(PAYLOAD_MAX, |max| (max.octets as usize).saturating_sub(HEADER));
        self.max.set(max.min(PAYLOAD_MAX));
    }

    /// Puts the headers in front of a payload and sends it.
    fn output(
        &self,
        cx: &Kernel,
        to: [u8; 6],
        number: u32,
        data: Mblk,
    ) -> Result<(), &'static Reason> {
        let down = self.mux.below.q().ok_or(&reason::CLOSED)?;
        let octets = data.size();
        let mut header = [0; HEADER + SNAP];
        header[..6].copy_from_slice(&to);
        header[6..12].copy_from_slice(&self.station.get());
        let used = match (number >> 16) as usize {
            0 => {
                header[12..14].copy_from_slice(&(number as u16).to_be_bytes());
                HEADER
            }
            place => {
                let oui = ORGANISATIONS.get(place - 1).ok_or(&reason::NO_PROTOCOL)?;
                header[12..14].copy_from_slice(&((octets + SNAP) as u16).to_be_bytes());
                header[14..17].copy_from_slice(&[0xaa, 0xaa, 3]);
                header[17..20].copy_from_slice(oui);
                header[20..22].copy_from_slice(&(number as u16).to_be_bytes());
                HEADER + SNAP
            }
        };
        if octets + used - HEADER > self.max.get() {
            return Err(&reason::TOO_BIG);
        }
        let header = &header[..used];
        let mut data = data;
        let frame = if data.put_front(header) {
            data
        } else {
            let mut front = down.blocks().allocb(used, Priority::Low).ok_or(&reason::NO_BUFFERS)?;
            if !front.put(header) {
                return Err(&reason::NO_BUFFERS);
            }
            front.linked(data)
        };
        let frame = pad(down.blocks(), frame, octets + used).ok_or(&reason::NO_BUFFERS)?;
        down.putnext(cx, frame);
        Ok(())
    }

    /// Takes a frame from the device.
    fn input(&self, cx: &Kernel, frame: Mblk) {
        if let Err(reason) = self.take(cx, frame) {
            self.count(reason);
        }
    }

    fn take(&self, cx: &Kernel, mut frame: Mblk) -> Result<(), &'static Reason> {
        if !frame.pullupmsg(Some(HEADER)) {
            return Err(&reason::TRUNCATED);
        }
        let header: [u8; HEADER] = *frame.octets().first_chunk().ok_or(&reason::TRUNCATED)?;
        let address = |at: usize| core::array::from_fn(|i| header[at + i]);
        let (to, from): ([u8; 6], [u8; 6]) = (address(0), address(6));
        if from == self.station.get() || from[0] & 1 != 0 {
            return Err(&reason::BAD_SOURCE);
        }
        if to != self.station.get() && to[0] & 1 == 0 {
            return Err(&reason::NOT_MINE);
        }
        let word = u32::from(u16::from_be_bytes([header[12], header[13]]));
        let number = if word >= TYPE_MIN {
            word
        } else {
            let length = word as usize;
            let behind = frame.size() - HEADER;
            if length > behind || length > PAYLOAD_MAX {
                return Err(&reason::BAD_LENGTH);
            }
            // What is behind the length is padding.
            if !frame.adjmsg(-((behind - length) as isize)) || !frame.pullupmsg(Some(HEADER + SNAP))
            {
                return Err(&reason::TRUNCATED);
            }
            let llc = frame.octets().get(HEADER..HEADER + SNAP).ok_or(&reason::TRUNCATED)?;
            let [0xaa, 0xaa, 3, a, b, c, high, low] = *llc else {
                return Err(&reason::NO_PROTOCOL);
            };
            let place = ORGANISATIONS.iter().position(|oui| *oui == [a, b, c]);
            let place = place.ok_or(&reason::NO_PROTOCOL)? as u32 + 1;
            place << 16 | u32::from(u16::from_be_bytes([high, low]))
        };
        let used = if word >= TYPE_MIN { HEADER } else { HEADER + SNAP };
        if !frame.skip(used) {
            return Err(&reason::TRUNCATED);
        }
        let q = self.mux.users.find(|user| user.numbers.contains(&number));
        let q = q.ok_or(&reason::NO_PROTOCOL)?;
        if !q.canputnext() {
            return Err(&reason::QUEUE_FULL);
        }
        let (src, dst) = (Link { station: from, number }, Link { station: to, number });
        let up = unitdata_ind(q.blocks(), &src.octets(), &dst.octets(), frame);
        q.putnext(cx, up.ok_or(&reason::NO_BUFFERS)?);
        Ok(())
    }
}

/// Fills a frame of so many octets up to the least length.
fn pad(blocks: &Blocks, mut frame: Mblk, octets: usize) -> Option<Mblk> {
    const ZEROS: [u8; FRAME_MIN] = [0; FRAME_MIN];
    let Some(missing) = ZEROS.get(octets..).filter(|missing| !missing.is_empty()) else {
        return Some(frame);
    };
    // Behind the last octets where there is room, else in a block of its own.
    if frame.cont().is_some() || !frame.put(missing) {
        frame.linkb(blocks.copy(Kind::Data, 0, missing)?);
    }
    Some(frame)
}

impl Multiplexor for Ether {
    type User = User;

    const INFO: ModuleInfo = ModuleInfo::new(0x4574, "ether");

    fn mux(&self) -> &Mux<User> {
        &self.mux
    }

    fn opened(this: &Rc<Self>, cx: &Kernel, q: &Q, opening: Opening) -> Rc<dyn Module> {
        this.mux
            .users
            .open(q, User { upper: this.mux.number_of(cx, opening), numbers: Vec::new() });
        Endpoint::new(Rc::clone(this))
    }

    fn lower(this: &Rc<Self>) -> Rc<dyn Module> {
        Rc::new(Device(Rc::clone(this)))
    }

    fn control(&self, _: &Kernel, ask: &mut Ask<'_>) -> Option<Answer> {
        let answer = ask.answer::<MyEther>(|q| q.address = self.station.get());
        answer.is_answered().then_some(answer)
    }
}

impl Datagrams for Ether {
    fn module(&self) -> ModuleInfo {
        Ether::INFO
    }

    fn info(&self) -> Info {
        let octets = tpi::ADDRESS_OCTETS as u32;
        Info::datagrams(self.max.get() as u32, octets, octets)
    }

    fn bind(&self, _: &Kernel, q: &Q, addr: &[u8], _: u32) -> Result<Vec<u8>, Refusal> {
        let named = if addr.iter().all(|octet| *octet == 0) {
            0
        } else {
            Link::parse(addr).ok_or(TliError::TBADADDR)?.number
        };
        let upper = self.mux.users.with(q, |user| user.upper).flatten();
        let number =
            Some(named).filter(|number| *number != 0).or(upper).ok_or(TliError::TNOADDR)?;
        if self.is_bound(number) {
            return Err(Errno::EADDRINUSE.into());
        }
        self.mux.users.with(q, |user| user.numbers.push(number));
        Ok(Link { station: self.station.get(), number }.octets().into())
    }

    fn unbind(&self, _: &Kernel, q: &Q) {
        self.mux.users.with(q, |user| user.numbers.clear());
    }

    fn send(
        &self,
        cx: &Kernel,
        q: &Q,
        (to, _): (&[u8], &[u8]),
        data: Option<Mblk>,
    ) -> Result<(), SendError> {
        let to = Link::parse(to).ok_or(SendError::Told(Errno::EINVAL))?;
        let bound = self.mux.users.with(q, |user| user.numbers.first().copied()).flatten();
        let number = Some(to.number).filter(|number| *number != 0).or(bound);
        let (Some(number), Some(data)) = (number, data) else { return Ok(()) };
        self.output(cx, to.station, number, data).map_err(|reason| {
            self.count(reason);
            SendError::Dropped
        })
    }

    fn told(&self, reason: &'static Reason) {
        self.count(reason);
    }

    fn has_room(&self, _: &Kernel) -> bool {
        self.mux.below.has_room()
    }

    fn manage(&self, _: &Kernel, q: &Q, opt: &[u8], _: u32) -> Result<Vec<u8>, Refusal> {
        let number = Link::parse(opt).ok_or(TliError::TBADOPT)?.number;
        if number == 0 || self.is_bound(number) {
            return Err(Errno::EADDRINUSE.into());
        }
        let added = self.mux.users.with(q, |user| {
            let fits = user.numbers.len() < NUMBERS_MAX;
            if fits {
                user.numbers.push(number);
            }
            fits
        });
        if added == Some(true) { Ok(opt.into()) } else { Err(Errno::ENOSR.into()) }
    }

    fn ioctl(&self, cx: &Kernel, q: &Q, mp: Mblk) {
        if self.mux.below.ioctl(cx, q, mp) {
            self.link(cx);
        }
    }

    fn close(&self, _: &Kernel, q: &Q) {
        self.mux.users.close(q);
    }
}

/// The pair that a device's stream has for a head.
struct Device(Rc<Ether>);

impl Module for Device {
    fn info(&self) -> ModuleInfo {
        Ether::INFO
    }

    fn services(&self) -> Services {
        Services { read: false, write: true }
    }

    fn rput(&self, cx: &Kernel, _: &Q, mp: Mblk) {
        match mp.kind() {
            Kind::Data => self.0.input(cx, mp),
            Kind::Hangup | Kind::Error => self.0.mux.below.gone(),
            _ => drop(mp),
        }
    }

    /// The device has room again.
    fn wsrv(&self, cx: &Kernel, _: &Q) {
        self.0.mux.users.enable(cx);
    }
}
