//! Frames without a stack: the rings and calls of a wire, and nothing else.

use super::endpoint::{Endpoint, Task};
use super::exchange::{self, Line, WAIT};
use super::space::VETH;
use crate::case::Trouble;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::Value;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use xk_packet::{PacketDevice, Transmitted};
use xk_tap::TapDevice;
use xk_xdp::{Fate, XdpSocket};

/// An Ethernet header without tag (IEEE 802.3), in octets.
pub(super) const HEADER_OCTETS: usize = 14;
/// The TAP device of a measurement.
pub(super) const TAP: &str = "xkb-tap";
/// Frames taken at a time.
const BURST: usize = 64;

/// The hardware address of a side: one that no other end of the pair has.
pub(super) fn address_of(side: usize) -> [u8; 6] {
    [2, 0, 0, 0, 0x77, side as u8 + 1]
}

/// The header of a frame to the other side: an EtherType for experiments (IEEE 802), which Linux
/// passes over.
pub(super) fn header(side: usize) -> [u8; HEADER_OCTETS] {
    let mut header = [0; HEADER_OCTETS];
    header[..6].copy_from_slice(&address_of(1 - side));
    header[6..12].copy_from_slice(&address_of(side));
    header[12..].copy_from_slice(&[0x88, 0xb5]);
    header
}

/// Waits for an arrival as long as a line may.
pub(super) fn wait(fd: BorrowedFd<'_>) -> io::Result<()> {
    let limit = Timespec { tv_sec: 0, tv_nsec: i64::from(WAIT.subsec_nanos()) };
    match poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&limit)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Returns the message in a frame of this benchmark; other frames are passed over.
fn payload(frame: &[u8]) -> Option<&[u8]> {
    let (header, payload) = frame.split_at_checked(HEADER_OCTETS)?;
    (header[12..] == [0x88, 0xb5]).then_some(payload)
}

/// Looks for arrivals, and once more behind a wait if there are none; answers how many came.
#[inline]
fn look<D>(
    device: &mut D,
    spins: bool,
    fd: impl Fn(&D) -> BorrowedFd<'_>,
    mut each: impl FnMut(&mut D) -> usize,
) -> io::Result<usize> {
    let count = each(device);
    if count > 0 || spins {
        return Ok(count);
    }
    wait(fd(device))?;
    Ok(each(device))
}

struct Packet {
    device: PacketDevice,
    header: [u8; HEADER_OCTETS],
    spins: bool,
}

impl Line for Packet {
    fn send(&mut self, message: &[u8]) -> io::Result<bool> {
        match self.device.transmit(&[&self.header, message]) {
            Ok(Transmitted::Queued) => Ok(true),
            Ok(Transmitted::Full) => Ok(false),
            Err(error) => Err(io::Error::other(error.to_string())),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.device.flush().map(drop)
    }

    fn receive(&mut self, mut each: impl FnMut(&[u8])) -> io::Result<usize> {
        look(
            &mut self.device,
            self.spins,
            |device| device.fd().as_fd(),
            |device| {
                let mut count = 0;
                device.receive(BURST, |frame, _| {
                    if let Some(payload) = payload(frame) {
                        count += 1;
                        each(payload);
                    }
                });
                count
            },
        )
    }
}

pub(super) fn packet(end: &Endpoint) -> Result<Value, Trouble> {
    let device = PacketDevice::open(VETH[end.side], &xk_packet::Options::default())?;
    let line = Packet { device, header: header(end.side), spins: end.spins };
    exchange::run(end, line)
}

/// The graph's end of a TAP device by read and write.
struct Tap {
    device: TapDevice,
    header: [u8; HEADER_OCTETS],
    buffer: Vec<u8>,
    spins: bool,
}

impl Line for Tap {
    fn send(&mut self, message: &[u8]) -> io::Result<bool> {
        let parts = [IoSlice::new(&self.header), IoSlice::new(message)];
        Ok(self.device.transmit(&parts)? == xk_tap::Transmitted::Sent)
    }

    fn receive(&mut self, mut each: impl FnMut(&[u8])) -> io::Result<usize> {
        if !self.spins {
            wait(self.device.fd().as_fd())?;
        }
        let Some(octets) = self.device.receive(&mut self.buffer)? else {
            return Ok(0);
        };
        let Some(payload) = payload(&self.buffer[..octets]) else {
            return Ok(0);
        };
        each(payload);
        Ok(1)
    }
}

/// One end makes the device; the other, behind it in time, takes part on the host's side of it by a
/// packet socket.
pub(super) fn tap(end: &Endpoint) -> Result<Value, Trouble> {
    if end.side == 1 {
        return host_of_tap(end);
    }
    let device = TapDevice::open(TAP, &xk_tap::Options::create())?;
    let line = Tap {
        buffer: vec![0; device.frame_octets_max()],
        device,
        header: header(0),
        spins: end.spins,
    };
    exchange::run(end, line)
}

/// The host's side of a TAP device: what Linux would send to it, or see of it.
fn host_of_tap(end: &Endpoint) -> Result<Value, Trouble> {
    debug_assert!(matches!(end.task, Task::Send | Task::Receive));
    let line = Packet {
        device: PacketDevice::open(TAP, &xk_packet::Options::default())?,
        header: header(1),
        spins: end.spins,
    };
    exchange::run(end, line)
}

/// The rings of an AF_XDP socket.
struct Xdp {
    socket: XdpSocket,
    header: [u8; HEADER_OCTETS],
    spins: bool,
}

impl Line for Xdp {
    #[inline]
    fn send(&mut self, message: &[u8]) -> io::Result<bool> {
        let header = self.header;
        Ok(self.socket.transmit_with(HEADER_OCTETS + message.len(), |room| {
            room[..HEADER_OCTETS].copy_from_slice(&header);
            room[HEADER_OCTETS..].copy_from_slice(message);
        }))
    }

    #[inline]
    fn flush(&mut self) -> io::Result<()> {
        self.socket.flush().map(drop)
    }

    #[inline]
    fn receive(&mut self, mut each: impl FnMut(&[u8])) -> io::Result<usize> {
        self.take(|frame| {
            each(&frame[HEADER_OCTETS..]);
            Fate::Done
        })
    }

    /// From where the frame lies.
    #[inline]
    fn answer(&mut self, _: &mut [u8]) -> io::Result<usize> {
        let count = self.take(|frame| Fate::Return(frame.len()))?;
        if count > 0 {
            self.socket.flush()?;
        }
        Ok(count)
    }
}

impl Xdp {
    /// Decides about each frame of ours that has come.
    #[inline]
    fn take(&mut self, mut fate: impl FnMut(&[u8]) -> Fate) -> io::Result<usize> {
        look(
            &mut self.socket,
            self.spins,
            |socket| socket.fd().as_fd(),
            |socket| {
                let mut count = 0;
                socket.receive(BURST, |frame| match payload(frame) {
                    Some(_) => {
                        count += 1;
                        fate(frame)
                    }
                    None => Fate::Done,
                });
                count
            },
        )
    }
}

pub(super) fn xdp(end: &Endpoint) -> Result<Value, Trouble> {
    let socket = XdpSocket::open(VETH[end.side], &xk_xdp::Options::default())?;
    let line = Xdp { socket, header: header(end.side), spins: end.spins };
    exchange::run(end, line)
}
