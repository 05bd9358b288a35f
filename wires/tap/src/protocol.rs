//! The wire: a TAP device below a graph.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::os::fd::AsRawFd;

use arrayvec::ArrayVec;
use xk_core::graph::{Build, BuildError, Params};
use xk_core::message::NoBuffers;
use xk_core::reason;
use xk_core::{Message, Pool, ProtocolRef, Reason};
use xk_kit::device_wire::{DEVICE_ERROR, DeviceSettings, DeviceWire, FrameDevice, Untaken};
use xk_kit::offload::{self, TransportChecksum};
use xk_kit::{Cidr, EthAddr};

use crate::device::{Note, Options, TapDevice, Transmitted};
use crate::device_unsafe::NOTE_OCTETS;
use crate::error::TapError;

/// Room in front of an arrival, in octets, so that it can be answered or forwarded with longer headers.
const HEADROOM: usize = 128;
/// How many slices of a message go to the device without another allocation.
const PARTS: usize = 16;

/// Builds the wire from its place in a graph.
///
/// # Errors
/// [`BuildError`] if a parameter does not do, or the device cannot be opened.
pub(crate) fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let (name, options) = options(build.params)?;
    let address = address(build.params)?;
    let device = TapDevice::open(name, &options).map_err(environment)?;
    let settings = DeviceSettings {
        address: address.unwrap_or(EthAddr(device.hardware_address())),
        takes_groups: true,
    };
    build.add(DeviceWire::new(device, settings))
}

/// Looks whether the device can be opened or made. One that is made for the look goes with it.
///
/// # Errors
/// [`BuildError`] as [`build`] would give it, settings that need privilege excepted.
pub(crate) fn probe(params: &Params) -> Result<(), BuildError> {
    let (name, options) = options(params)?;
    address(params)?;
    let bare = Options {
        create: options.create,
        ..Options::default()
    };
    match TapDevice::open(name, &bare) {
        Ok(_) => Ok(()),
        Err(error) => Err(environment(error)),
    }
}

fn options(params: &Params) -> Result<(&str, Options), BuildError> {
    let wanted = "an IPv4 address and prefix, such as 10.9.0.1/24";
    let host = params.parse::<Cidr>("host_address", wanted)?;
    let options = Options {
        create: true,
        persist: false,
        host_address: host.map(|cidr| (cidr.addr(), cidr.prefix())),
        mtu: params.get("mtu").map(|_| params.octets("mtu", 0)),
        up: true,
        offload: params.get("offload").is_none() || params.flag("offload"),
    };
    Ok((params.text("device").unwrap_or("xk0"), options))
}

fn address(params: &Params) -> Result<Option<EthAddr>, BuildError> {
    let wanted = "the address of one station, such as 02:00:00:00:00:01";
    let address = params.parse::<EthAddr>("address", wanted)?;
    if address.is_some_and(|address| !address.is_unicast()) {
        return Err(BuildError::Param {
            name: "address",
            index: 0,
            expected: wanted.into(),
        });
    }
    Ok(address)
}

/// The error as the composer shows it: what is missing, and what to do about it.
fn environment(error: TapError) -> BuildError {
    let text = error.to_string();
    let (what, help) = text.split_once("; ").unwrap_or((&text, ""));
    BuildError::Environment {
        param: Some("device"),
        what: what.into(),
        help: help.into(),
    }
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
    }
}

/// What the host is to know of a frame's checksum.
fn note_of(frame: &Message) -> Note {
    let place = offload::place(frame);
    let note = place.and_then(|place| {
        Some(Note::Partial {
            start: u16::try_from(place.start).ok()?,
            field: u16::try_from(place.field).ok()?,
        })
    });
    note.unwrap_or_default()
}

impl FrameDevice for TapDevice {
    fn mtu(&self) -> usize {
        TapDevice::mtu(self)
    }

    fn receive(
        &mut self,
        pool: &Pool,
        budget: usize,
        arrivals: &mut VecDeque<Message>,
    ) -> Result<(), (&'static Reason, usize)> {
        let octets_max = self.frame_octets_max();
        for _ in 0..budget {
            // Without a buffer the frame stays with the host, which has a queue of its own; the pool counts the failure.
            let Ok(mut message) = pool.alloc(HEADROOM, octets_max) else {
                return Ok(());
            };
            let Some(room) = message.front_mut() else {
                return Ok(());
            };
            match TapDevice::receive_noted(self, room) {
                Ok(Some((octets, note))) => {
                    message.truncate(octets);
                    if take_note(pool, &mut message, note).is_err() {
                        return Err((&reason::NO_BUFFERS, 1));
                    }
                    arrivals.push_back(message);
                }
                Ok(None) => return Ok(()),
                Err(_) => return Err((&DEVICE_ERROR, 1)),
            }
        }
        Ok(())
    }

    fn transmit(&mut self, frame: Message) -> Result<(), Untaken> {
        let mut header = [0; NOTE_OCTETS];
        let note = (note_of(&frame), &mut header);
        let mut parts = ArrayVec::<IoSlice<'_>, PARTS>::new();
        parts.push(IoSlice::new(&[]));
        let fits = frame
            .slices()
            .all(|slice| parts.try_push(IoSlice::new(slice.octets)).is_ok());
        let sent = if fits {
            self.transmit_noted(&mut parts, note)
        } else {
            let octets = frame.slices().map(|slice| slice.octets);
            let mut all: Vec<_> = [[].as_slice()]
                .into_iter()
                .chain(octets)
                .map(IoSlice::new)
                .collect();
            self.transmit_noted(&mut all, note)
        };
        drop(parts);
        match sent {
            Ok(Transmitted::Sent) => Ok(()),
            Ok(Transmitted::WouldBlock) => Err(Untaken::Full(frame)),
            Err(_) => Err(Untaken::Never(frame)),
        }
    }

    fn takes_partial_checksums(&self) -> bool {
        self.takes_open_checksums()
    }

    fn losses(&mut self) -> u64 {
        self.oversized()
    }

    fn descriptor(&self) -> i32 {
        self.fd().as_raw_fd()
    }
}
