//! The wire: a network interface below a graph.

use std::any::Any;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use smallvec::SmallVec;
use xk_core::graph::{Build, BuildError, Look, Params, Value};
use xk_core::message::NoBuffers;
use xk_core::reason;
use xk_core::{Kernel, Message, Pool, ProtocolRef, Reason, SessionRef};
use xk_kit::EthAddr;
use xk_kit::wire::device::{
    Anchored, BACKLOG_MAX, Capabilities, DEVICE_DOWN, DEVICE_ERROR, Device, Receiving, Unsent,
};
use xk_kit::wire::entry::{Address, HEADER_OCTETS, HEADROOM, environment, interface_name};
use xk_kit::wire::handed::HandedDevices;
use xk_kit::wire::offload::{self, TransportChecksum};
use xk_kit::wire::virtio::{Note, RUN_OCTETS_MAX};
use xk_kit::wire::{frames, segments};

use crate::device::{Options, PacketDevice, Transmitted};
use crate::frame::{Frame, FrameInfo};

/// Slices of a message that go to the ring without another allocation.
const PARTS: usize = 16;

/// Number of looks without an arrival after which the socket is asked for an error: a system call
/// that a spinning loop should not pay.
const EMPTY_LOOKS: u32 = 64;

/// Builds the wire from its place in a graph.
pub(crate) fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let params = build.params;
    let address = Address::read(params)?;
    let promiscuous = match params.get("promiscuous") {
        Some(Value::Bool(wanted)) => *wanted,
        _ => !matches!(address, Address::Own),
    };
    let options = Options {
        promiscuous,
        offload: params.get("offload").is_none() || params.flag("offload"),
        long_octets: params.octets("long_queue", Options::default().long_octets),
        ..Options::default()
    };
    // Another process's socket is of no use: its rings are that one's.
    let handed = build.cx.surroundings::<HandedDevices>();
    let handed = handed.filter(|all| all.take::<OwnedFd>(build.name).is_some());
    let device = match handed {
        Some(_) => PacketDevice::prepare(name(params)?, &options),
        None => PacketDevice::open(name(params)?, &options),
    };
    let device = device.map_err(|error| environment("device", &error))?;
    let own = device.hardware_address();
    let capabilities = Capabilities {
        takes_groups: promiscuous,
        ..Capabilities::ethernet(device.mtu() + HEADER_OCTETS, address.beside(own))
    }
    .offloads(options.offload, u16::MAX);
    let (offload, pieces) = (options.offload, Vec::new());
    let state = State { device, handed, offload, scrapped: 0, pieces, empty: 0 };
    build.add(Anchored::new(PacketWire(RefCell::new(state)), capabilities))
}

/// Looks whether the interface can be opened.
pub(crate) fn probe(params: &Params, look: Look) -> Result<(), BuildError> {
    Address::read(params)?;
    let name = name(params)?;
    if look == Look::Parameters {
        return Ok(());
    }
    let small = Options { rx_slots: 1, tx_slots: 1, ..Options::default() };
    PacketDevice::open(name, &small).map(drop).map_err(|error| environment("device", &error))
}

fn name(params: &Params) -> Result<&str, BuildError> {
    Ok(interface_name(params)?.unwrap_or_default())
}

/// The device as a wire's.
struct PacketWire(RefCell<State>);

/// The device, and what it handed out that could not be used.
struct State {
    device: PacketDevice,
    /// Another process takes its arrivals until this one goes on.
    handed: Option<Rc<HandedDevices>>,
    /// Checksums may stay open.
    offload: bool,
    scrapped: u64,
    /// Pieces of a long arrival until it is whole.
    pieces: Vec<Message>,
    /// Looks since the last arrival that found nothing.
    empty: u32,
}

/// Notes on an arrival what the system says of its checksum; without `offload` it is completed.
fn take_note(
    pool: &Pool,
    frame: &mut Message,
    info: FrameInfo,
    offload: bool,
) -> Result<(), NoBuffers> {
    if info.checksum_not_ready {
        // What has no known place stays as it is: the layer that checks drops it, counted.
        if let Some(place) = frames::sum_place(frame.front_slice()) {
            offload::note_partial(pool, frame, place)?;
        }
        if !offload {
            offload::finish_checksum(pool, frame)?;
        }
    } else if info.checksum_valid && offload {
        // There is room: it has no other yet.
        let _ = frame.set_attribute(TransportChecksum::Verified);
    }
    Ok(())
}

/// Copies an arrival into message memory; `None` if its end is missing.
fn take(
    pool: &Pool,
    frame: Frame<'_>,
    pieces: &mut Vec<Message>,
) -> Result<Option<Message>, NoBuffers> {
    if frame.info.truncated {
        return Ok(None);
    }
    if let Some(octets) = frame.in_slot() {
        return pool.copy_from(HEADROOM, octets).map(Some);
    }
    let octets = frame.info.wire_octets;
    if octets > RUN_OCTETS_MAX {
        return Ok(None);
    }
    segments::room(pool, HEADROOM, octets, pieces)?;
    let mut parts: SmallVec<[&mut [u8]; PARTS]> =
        pieces.iter_mut().filter_map(Message::front_mut).collect();
    let read = frame.read(&mut parts);
    drop(parts);
    let whole = segments::join(pieces);
    Ok(whole.filter(|_| read))
}

/// Puts an arrival behind the others with what is known of it.
fn arrive(
    pool: &Pool,
    mut message: Message,
    (info, offload): (FrameInfo, bool),
    arrivals: &mut VecDeque<Message>,
) -> Result<(), &'static Reason> {
    if info.segment_octets == 0 {
        take_note(pool, &mut message, info, offload).map_err(|_| &reason::NO_BUFFERS)?;
        arrivals.push_back(message);
        return Ok(());
    }
    let run = (info.segment_octets, info.checksum_not_ready);
    let before = arrivals.len();
    frames::arrive(pool, message, run, arrivals)?;
    if offload {
        return Ok(());
    }
    // Nothing is left open here: what came as one goes on as several, with checksums.
    for run in arrivals.split_off(before) {
        if segments::of(&run).is_none() {
            arrivals.push_back(run);
            continue;
        }
        for piece in segments::split(run)? {
            let mut piece = piece?;
            offload::finish_checksum(pool, &mut piece).map_err(|_| &reason::NO_BUFFERS)?;
            arrivals.push_back(piece);
        }
    }
    Ok(())
}

impl Device for PacketWire {
    const BACKLOG_MAX: usize = BACKLOG_MAX;

    fn receive(&self, into: Receiving<'_>) {
        let state = &mut *self.0.borrow_mut();
        let pool = into.cx.pool();
        if let Some(handed) = &state.handed {
            if !handed.is_going_on() {
                return;
            }
            if state.device.listen().is_err() {
                return into.lost(&DEVICE_ERROR, 1);
            }
            state.handed = None;
        }
        let State { device, offload, scrapped, pieces, empty, .. } = state;
        let count = device.receive_frames(into.budget, |frame| {
            let info = frame.info;
            let arrived = match take(pool, frame, pieces) {
                Ok(None) => {
                    *scrapped += 1;
                    Ok(())
                }
                Ok(Some(message)) => arrive(pool, message, (info, *offload), into.arrivals),
                Err(NoBuffers) => Err(&reason::NO_BUFFERS),
            };
            if let Err(why) = arrived {
                into.this.head().drops().count(why);
            }
        });
        *empty = if count > 0 { 0 } else { *empty + 1 };
        if *empty < EMPTY_LOOKS {
            return;
        }
        *empty = 0;
        // A held error, such as that the interface went down, wakes every sleep until it is taken.
        match device.take_error() {
            Ok(None) => {}
            Ok(Some(_)) => into.lost(&DEVICE_DOWN, 1),
            Err(_) => into.lost(&DEVICE_ERROR, 1),
        }
    }

    fn send(&self, _: &Kernel, _: &SessionRef, frame: Message) -> Result<(), Unsent> {
        let Some(note) = Note::of(&frame) else {
            return Err(Unsent::failed(frame));
        };
        let parts: SmallVec<[&[u8]; PARTS]> = frame.slices().map(|slice| slice.octets).collect();
        let queued = self.0.borrow_mut().device.transmit_noted(&parts, note);
        drop(parts);
        match queued {
            Ok(Transmitted::Queued) => Ok(()),
            Ok(Transmitted::Full) => Err(Unsent::Full(frame)),
            Err(_) => Err(Unsent::failed(frame)),
        }
    }

    /// A failed device is not waited for, which would only spin. Its frames are tried again behind
    /// the next one.
    fn flush(&self, _: &Kernel, this: &ProtocolRef) -> bool {
        match self.0.borrow_mut().device.flush() {
            Ok(left) => left == 0,
            Err(_) => {
                this.head().drops().count(&DEVICE_ERROR);
                true
            }
        }
    }

    fn set_group(&self, group: EthAddr, is_joined: bool) -> bool {
        self.0.borrow_mut().device.set_group(group.0, is_joined).is_ok()
    }

    fn losses(&self) -> u64 {
        let state = &mut *self.0.borrow_mut();
        let lost = state.device.statistics().map_or(0, |s| s.dropped + s.inconsistent);
        lost + state.scrapped
    }

    fn describe(&self, able: &Capabilities) -> Option<String> {
        able.address.map(|address| address.to_string())
    }

    fn descriptor(&self, see: &mut dyn FnMut(&dyn Any)) {
        see(self.0.borrow().device.fd());
    }
}
