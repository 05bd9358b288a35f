//! The wire: a TAP device below a graph.

use std::any::Any;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::IoSlice;
use std::net::Ipv4Addr;
use std::os::fd::{OwnedFd, RawFd};
use std::rc::Rc;

use smallvec::SmallVec;
use xk_core::graph::{Build, BuildError, Look, Params};
use xk_core::message::NoBuffers;
use xk_core::reason;
use xk_core::{Kernel, Message, Pool, ProtocolRef, Reason, SessionRef};
use xk_kit::wire::device::{
    Anchored, BACKLOG_MAX, Capabilities, DEVICE_ERROR, Device, Receiving, Unsent,
};
use xk_kit::wire::entry::{HEADER_OCTETS, HEADROOM, environment, interface_name, station};
use xk_kit::wire::handed::HandedDevices;
use xk_kit::wire::offload::{self, TransportChecksum};
use xk_kit::wire::virtio::{NOTE_OCTETS, Note, RUN_OCTETS_MAX};
use xk_kit::wire::{frames, segments};
use xk_kit::{Cidr, EthAddr};

use crate::device::{MTU_MAX, MTU_MIN, Options, TapDevice, Transmitted};
use crate::error::TapError;

/// Form of the parameter `host_routes`.
pub(crate) const ROUTES: &str =
    "networks and what they lie behind, between commas, such as 10.1.0.0/16 via 10.9.0.2";
/// Octets of a buffer for a run of segments, and how many there are for the longest one.
const RUN_PIECE_OCTETS: usize = 16 << 10;
const RUN_PIECES: usize = RUN_OCTETS_MAX.div_ceil(RUN_PIECE_OCTETS);
/// Slices of a message that go to the device without another allocation.
const PARTS: usize = 16;

/// Builds the wire from its place in a graph.
pub(crate) fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let (name, options) = options(build.params)?;
    let address = station(build.params)?;
    let handed = build.cx.surroundings::<HandedDevices>();
    let tun = handed.as_ref().and_then(|handed| handed.take::<OwnedFd>(build.name));
    let handed = handed.filter(|_| tun.is_some());
    let device = match (fd(build.params), tun) {
        (None, None) => TapDevice::open(name, &options),
        (None, Some(tun)) => TapDevice::go_on(tun, name, &options),
        (Some(fd), None) => TapDevice::inherited(fd, &options),
        (Some(fd), Some(tun)) => TapDevice::given(fd, tun, &options),
    };
    let device = device.map_err(|error| no_device(build.params, &error))?;
    let address = address.unwrap_or(EthAddr(device.hardware_address()));
    let capabilities = Capabilities::ethernet(device.mtu() + HEADER_OCTETS, address)
        .offloads(device.takes_open_checksums(), u16::MAX);
    let state = State { device, handed, usual: None, others: Vec::new() };
    build.add(Anchored::new(TapWire(RefCell::new(state)), capabilities))
}

/// Looks whether the device can be opened or made. One that is made for the look goes with it.
pub(crate) fn probe(params: &Params, look: Look) -> Result<(), BuildError> {
    let (name, options) = options(params)?;
    station(params)?;
    if look == Look::Parameters {
        return Ok(());
    }
    let looked = match fd(params) {
        Some(fd) => TapDevice::look_at(fd, &options),
        None => TapDevice::open(name, &Options { create: true, ..Options::default() }).map(drop),
    };
    looked.map_err(|error| no_device(params, &error))
}

/// The descriptor that the parameter `fd` names.
fn fd(params: &Params) -> Option<RawFd> {
    params.get("fd").map(|_| params.number("fd", -1))
}

fn no_device(params: &Params, error: &TapError) -> BuildError {
    environment(if fd(params).is_some() { "fd" } else { "device" }, error)
}

fn options(params: &Params) -> Result<(&str, Options), BuildError> {
    let wanted = "an IPv4 address and prefix, such as 10.9.0.1/24";
    let host = params.parse::<Cidr>("host_address", wanted)?;
    let mtu = params.get("mtu").map(|_| params.octets("mtu", 0));
    if mtu.is_some_and(|mtu| !(MTU_MIN..=MTU_MAX).contains(&mtu)) {
        return Err(BuildError::param("mtu", format!("{MTU_MIN} to {MTU_MAX} octets")));
    }
    let options = Options {
        host_routes: host_routes(params)?,
        create: true,
        persist: false,
        host_address: host.map(|cidr| (cidr.addr(), cidr.prefix())),
        mtu,
        up: true,
        offload: params.get("offload").is_none() || params.flag("offload"),
        runs: true,
    };
    Ok((interface_name(params)?.unwrap_or("xk0"), options))
}

/// The networks of `host_routes`, each with the machine that it lies behind.
fn host_routes(params: &Params) -> Result<Vec<(Ipv4Addr, u8, Ipv4Addr)>, BuildError> {
    let Some(text) = params.text("host_routes") else {
        return Ok(Vec::new());
    };
    let route = |text: &str| {
        let (network, via) = text.split_once(" via ")?;
        let network = match network.trim() {
            "default" => "0.0.0.0/0",
            network => network,
        };
        let (address, prefix) = network.split_once('/')?;
        let (address, prefix): (Ipv4Addr, u8) = (address.parse().ok()?, prefix.parse().ok()?);
        let behind = u32::MAX.checked_shr(prefix.into()).unwrap_or(0);
        let is_network = prefix <= 32 && address.to_bits() & behind == 0;
        is_network.then_some((address, prefix, via.trim().parse().ok()?))
    };
    let routes: Option<Vec<_>> = text.split(',').map(|text| route(text.trim())).collect();
    routes.ok_or_else(|| BuildError::param("host_routes", ROUTES))
}

/// Notes on an arrival what the host says of its checksum.
fn take_note(pool: &Pool, frame: &mut Message, note: Note) -> Result<(), NoBuffers> {
    match note {
        Note::Nothing => Ok(()),
        Note::Verified => {
            // There is room: it has no other yet.
            let _ = frame.set_attribute(TransportChecksum::Verified);
            Ok(())
        }
        Note::Partial { start, field } => {
            offload::note_partial(pool, frame, (start.into(), field.into()))
        }
        // Taken in elsewhere.
        Note::Run { .. } => Ok(()),
    }
}

/// The device as a wire's.
struct TapWire(RefCell<State>);

/// The device, and the buffers that its next frame comes into.
struct State {
    device: TapDevice,
    /// Another process takes its arrivals until this one goes on.
    handed: Option<Rc<HandedDevices>>,
    /// Buffer for a usual frame.
    usual: Option<Message>,
    /// Buffers behind it for a run of segments, the last of them first. Buffers that a frame does
    /// not reach serve the next.
    others: Vec<Message>,
}

impl State {
    /// Sees to it that there is room for the longest frame; false if the pool has none.
    fn prepare(&mut self, pool: &Pool) -> bool {
        if self.usual.is_none() {
            self.usual = pool.alloc(HEADROOM, self.device.frame_octets_max()).ok();
        }
        let wanted = if self.device.takes_open_checksums() { RUN_PIECES } else { 0 };
        while self.others.len() < wanted {
            match pool.alloc(0, RUN_PIECE_OCTETS) {
                Ok(fresh) => self.others.push(fresh),
                Err(_) => return false,
            }
        }
        self.usual.is_some()
    }

    /// The first `octets` octets of the room as a message.
    fn take(&mut self, pool: &Pool, octets: usize) -> Option<Message> {
        let mut whole = self.usual.take()?;
        let mut left = octets.saturating_sub(whole.len());
        whole.truncate(octets);
        while left > 0 {
            let mut next = self.others.pop()?;
            let now = left.min(next.len());
            next.truncate(now);
            left -= now;
            whole.join(segments::compact(pool, next, RUN_PIECE_OCTETS));
        }
        Some(whole)
    }

    /// Puts the next frame behind the others; false if there is none, or no room for it.
    fn receive_one(
        &mut self,
        pool: &Pool,
        arrivals: &mut VecDeque<Message>,
    ) -> Result<bool, &'static Reason> {
        // Without a buffer the frame stays with the host, which has a queue of its own; the pool
        // counts the failure.
        if !self.prepare(pool) {
            return Ok(false);
        }
        let all = self.usual.iter_mut().chain(self.others.iter_mut().rev());
        let mut parts: SmallVec<[_; PARTS]> = all.filter_map(Message::front_mut).collect();
        let received = TapDevice::receive_parts(&mut self.device, &mut parts);
        drop(parts);
        let (octets, note) = match received {
            Ok(Some(received)) => received,
            Ok(None) => return Ok(false),
            Err(_) => return Err(&DEVICE_ERROR),
        };
        let mut message = self.take(pool, octets).ok_or(&reason::NO_BUFFERS)?;
        if let Note::Run { segment_octets, .. } = note {
            frames::arrive(pool, message, (segment_octets, true), arrivals)?;
            return Ok(true);
        }
        take_note(pool, &mut message, note).map_err(|_| &reason::NO_BUFFERS)?;
        arrivals.push_back(message);
        Ok(true)
    }
}

impl Device for TapWire {
    const BACKLOG_MAX: usize = BACKLOG_MAX;

    fn receive(&self, into: Receiving<'_>) {
        let Receiving { cx, this, budget, arrivals } = into;
        let state = &mut *self.0.borrow_mut();
        if let Some(handed) = &state.handed {
            if !handed.is_going_on() {
                return;
            }
            state.handed = None;
        }
        for _ in 0..budget {
            match state.receive_one(cx.pool(), arrivals) {
                Ok(true) => {}
                Ok(false) => return,
                Err(why) => return this.head().drops().count(why),
            }
        }
    }

    fn send(&self, _: &Kernel, _: &SessionRef, frame: Message) -> Result<(), Unsent> {
        let mut header = [0; NOTE_OCTETS];
        let Some(note) = Note::of(&frame) else {
            return Err(Unsent::failed(frame));
        };
        let note = (note, &mut header);
        let octets = frame.slices().map(|slice| slice.octets);
        let mut parts: SmallVec<[_; PARTS]> =
            [[].as_slice()].into_iter().chain(octets).map(IoSlice::new).collect();
        let sent = self.0.borrow_mut().device.transmit_noted(&mut parts, note);
        drop(parts);
        match sent {
            Ok(Transmitted::Sent) => Ok(()),
            Ok(Transmitted::WouldBlock) => Err(Unsent::Full(frame)),
            Err(_) => Err(Unsent::failed(frame)),
        }
    }

    fn losses(&self) -> u64 {
        self.0.borrow().device.oversized()
    }

    fn describe(&self, able: &Capabilities) -> Option<String> {
        able.address.map(|address| address.to_string())
    }

    fn descriptor(&self, see: &mut dyn FnMut(&dyn Any)) {
        see(self.0.borrow().device.fd());
    }
}
