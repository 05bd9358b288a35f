//! The wire: a network interface below a graph.

use std::collections::VecDeque;
use std::os::fd::AsRawFd;

use arrayvec::ArrayVec;
use xk_core::graph::{Build, BuildError, Params, Value};
use xk_core::message::NoBuffers;
use xk_core::reason::{self, Class};
use xk_core::{Message, Pool, ProtocolRef, Reason};
use xk_kit::EthAddr;
use xk_kit::device_wire::{DEVICE_ERROR, DeviceSettings, DeviceWire, FrameDevice, Untaken};
use xk_kit::offload::{self, TransportChecksum};

use crate::complete;
use crate::device::{FrameInfo, Options, PacketDevice, Transmitted};
use crate::error::PacketError;

/// Room in front of an arrival, in octets, so that it can be answered or forwarded with longer headers.
const HEADROOM: usize = 128;
/// How many slices of a message go to the ring without another allocation.
const PARTS: usize = 16;

/// After how many looks without an arrival the socket is asked for an error: a system call that a spinning loop should not pay.
const EMPTY_LOOKS: u32 = 64;

/// The interface went down; arrivals go on when it is up again.
static DEVICE_DOWN: Reason = Reason::new("device down", Class::Exhausted);

/// Which hardware address is ours.
#[derive(Clone, Copy)]
enum Address {
    /// One that depends on the interface's.
    Derived,
    /// The interface's own.
    Own,
    Given(EthAddr),
}

/// Builds the wire from its place in a graph.
///
/// # Errors
/// [`BuildError`] if a parameter does not do, or the interface cannot be opened.
pub(crate) fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let params = build.params;
    let address = address(params)?;
    let promiscuous = match params.get("promiscuous") {
        Some(Value::Bool(wanted)) => *wanted,
        _ => !matches!(address, Address::Own),
    };
    let options = Options {
        promiscuous,
        offload: params.get("offload").is_none() || params.flag("offload"),
        ..Options::default()
    };
    let device = PacketDevice::open(name(params), &options).map_err(environment)?;
    let own = device.hardware_address();
    let settings = DeviceSettings {
        address: match address {
            Address::Derived => derived(own),
            Address::Own => EthAddr(own),
            Address::Given(address) => address,
        },
        takes_groups: promiscuous,
    };
    let wire = PacketWire {
        device,
        offload: options.offload,
        scrapped: 0,
        empty: 0,
    };
    build.add(DeviceWire::new(wire, settings))
}

/// Looks whether the interface can be opened.
///
/// # Errors
/// [`BuildError`] as [`build`] would give it.
pub(crate) fn probe(params: &Params) -> Result<(), BuildError> {
    address(params)?;
    let small = Options {
        rx_slots: 1,
        tx_slots: 1,
        ..Options::default()
    };
    match PacketDevice::open(name(params), &small) {
        Ok(_) => Ok(()),
        Err(error) => Err(environment(error)),
    }
}

fn name(params: &Params) -> &str {
    params.text("device").unwrap_or_default()
}

fn address(params: &Params) -> Result<Address, BuildError> {
    let wanted = "the address of one station, such as 02:00:00:00:00:01, or own";
    match params.text("address") {
        None => Ok(Address::Derived),
        Some("own") => Ok(Address::Own),
        Some(text) => match text.parse::<EthAddr>() {
            Ok(address) if address.is_unicast() => Ok(Address::Given(address)),
            _ => Err(BuildError::Param {
                name: "address",
                index: 0,
                expected: wanted.into(),
            }),
        },
    }
}

/// An address of our own beside the interface's: locally administered, one station (IEEE 802-2014 section 8.2.2), and another
/// one than any that counting upwards from the interface's gives soon.
fn derived([first, b, c, d, e, last]: [u8; 6]) -> EthAddr {
    EthAddr([(first | 2) & !1, b ^ 0x78, c ^ 0x6b, d, e, last])
}

/// The error as the composer shows it: what is missing, and what to do about it.
fn environment(error: PacketError) -> BuildError {
    let text = error.to_string();
    let (what, help) = text.split_once("; ").unwrap_or((&text, ""));
    BuildError::Environment {
        param: Some("device"),
        what: what.into(),
        help: help.into(),
    }
}

/// The device, and what it handed out that could not be used.
struct PacketWire {
    device: PacketDevice,
    /// Checksums may stay open.
    offload: bool,
    scrapped: u64,
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
        // What has no known place stays as it is: whoever checks drops it, counted.
        if let Some(place) = complete::find(frame.front_slice()) {
            offload::note_partial(pool, frame, place)?;
        }
        if !offload {
            offload::settle(pool, frame)?;
        }
    } else if info.checksum_valid && offload {
        // There is room: it has no other yet.
        let _ = frame.set_attribute(TransportChecksum::Verified);
    }
    Ok(())
}

impl FrameDevice for PacketWire {
    fn mtu(&self) -> usize {
        self.device.mtu()
    }

    fn receive(
        &mut self,
        pool: &Pool,
        budget: usize,
        arrivals: &mut VecDeque<Message>,
    ) -> Result<(), (&'static Reason, usize)> {
        let (scrapped, offload) = (&mut self.scrapped, &self.offload);
        let mut no_buffers = 0;
        let count = self.device.receive(budget, |frame, info| {
            if info.truncated {
                *scrapped += 1;
                return;
            }
            let Ok(mut message) = pool.copy_from(HEADROOM, frame) else {
                no_buffers += 1;
                return;
            };
            if take_note(pool, &mut message, info, *offload).is_err() {
                no_buffers += 1;
                return;
            }
            arrivals.push_back(message);
        });
        if no_buffers > 0 {
            return Err((&reason::NO_BUFFERS, no_buffers));
        }
        self.empty = if count > 0 { 0 } else { self.empty + 1 };
        if self.empty < EMPTY_LOOKS {
            return Ok(());
        }
        self.empty = 0;
        // A held error, such as that the interface went down, wakes every sleep until it is taken.
        match self.device.take_error() {
            Ok(None) => Ok(()),
            Ok(Some(_)) => Err((&DEVICE_DOWN, 1)),
            Err(_) => Err((&DEVICE_ERROR, 1)),
        }
    }

    fn transmit(&mut self, frame: Message) -> Result<(), Untaken> {
        let open = offload::place(&frame).and_then(|place| {
            let (start, field) = (place.start.try_into(), place.field.try_into());
            start.ok().zip(field.ok())
        });
        let mut parts = ArrayVec::<&[u8], PARTS>::new();
        let fits = frame
            .slices()
            .all(|slice| parts.try_push(slice.octets).is_ok());
        let queued = if fits {
            self.device.transmit_open(&parts, open)
        } else {
            let all: Vec<_> = frame.slices().map(|slice| slice.octets).collect();
            self.device.transmit_open(&all, open)
        };
        drop(parts);
        match queued {
            Ok(Transmitted::Queued) => Ok(()),
            Ok(Transmitted::Full) => Err(Untaken::Full(frame)),
            Err(_) => Err(Untaken::Never(frame)),
        }
    }

    fn flush(&mut self) -> Result<bool, &'static Reason> {
        match self.device.flush() {
            Ok(left) => Ok(left == 0),
            Err(_) => Err(&DEVICE_ERROR),
        }
    }

    fn takes_partial_checksums(&self) -> bool {
        self.offload
    }

    fn losses(&mut self) -> u64 {
        let lost = self
            .device
            .statistics()
            .map_or(0, |s| s.dropped + s.inconsistent);
        lost + self.scrapped
    }

    fn descriptor(&self) -> i32 {
        self.device.fd().as_raw_fd()
    }
}
