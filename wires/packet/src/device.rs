//! The device: a socket, its rings, and where we are in them.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::SendFlags;

use crate::error::{PacketError, TransmitError};
use xk_kit::wire::virtio::{NOTE_OCTETS, Note};
use xk_linux::Interface;

use crate::frame::{Frame, FrameInfo};
use crate::ring_unsafe::{Inconsistent, Rings, Shape, TX_DATA_OFFSET, VLAN_OCTETS};
use crate::run::RunSender;
use crate::socket_unsafe;

/// Octets of an Ethernet header (IEEE 802.3).
const HEADER_OCTETS: usize = 14;
/// Largest number of octets that the system puts before a received frame: its header and address,
/// aligned, room for a VLAN tag, and the slack that aligns the network header (`tpacket_rcv`).
const RX_BEFORE_OCTETS: usize = 128;
/// The longest frame that stands for a run of segments: an IPv4 packet of any length, and its
/// header.
const RUN_OCTETS_MAX: usize = u16::MAX as usize + HEADER_OCTETS;
/// The smallest slot; longer ones are powers of two, so that slots fill blocks without rest.
const SLOT_OCTETS_MIN: usize = 2048;
/// The system allocates a ring in blocks of this many octets, or of one slot if that is more.
const BLOCK_OCTETS: usize = 1 << 16;
/// The most slots of a ring.
const SLOTS_MAX: usize = 1 << 16;
/// The most octets of a ring.
const RING_OCTETS_MAX: usize = 1 << 25;

/// Options for opening an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Slots of the receiving ring: 1 to 65,536, rounded up to whole blocks of 64 KiB. A slot has 2
    /// KiB, or more where the MTU needs it; the ring has fewer slots where so many would exceed 32
    /// MiB.
    pub rx_slots: usize,
    /// Slots of the sending ring: likewise.
    pub tx_slots: usize,
    /// Receive frames for every hardware address, not only the interface's own.
    pub promiscuous: bool,
    /// Hand frames to the interface's driver at once, past the host's queueing disciplines.
    pub bypass_queues: bool,
    /// Let the interface, or the host on its behalf, complete transport checksums and cut runs of
    /// segments: see [`PacketDevice::transmit_noted`].
    pub offload: bool,
    /// Memory, in octets as the system counts them, for arrivals that are longer than a slot, such
    /// as runs of segments. Without the privilege to have more, it is what everybody may have
    /// (`net.core.rmem_max`).
    pub long_octets: usize,
}

impl Default for Options {
    /// 1024 and 256 slots, not promiscuous, past the queues, all checksums complete, 4 MiB for long
    /// arrivals.
    fn default() -> Self {
        Self {
            rx_slots: 1024,
            tx_slots: 256,
            promiscuous: false,
            bypass_queues: true,
            offload: false,
            long_octets: 4 << 20,
        }
    }
}

/// Fate of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Transmitted {
    /// The frame is in the ring and goes out with the next [`PacketDevice::flush`].
    Queued,
    /// The ring is full; it may be offered again after a flush.
    Full,
}

/// Counts since the device was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Statistics {
    /// Frames handed out.
    pub received: u64,
    /// Frames that found no room in the receiving ring.
    pub dropped: u64,
    /// Slots whose own words do not fit together.
    pub inconsistent: u64,
    /// Frames put into the sending ring.
    pub queued: u64,
}

/// An open interface.
#[derive(Debug)]
pub struct PacketDevice {
    // The mapping goes before the socket that it belongs to.
    rings: Rings,
    socket: OwnedFd,
    interface: Interface,
    rx_at: usize,
    tx_at: usize,
    tx_slots: usize,
    /// Slots filled since the system last took all of them.
    tx_waiting: usize,
    /// The socket for runs; checksums and runs may be left to the system.
    runs: Option<RunSender>,
    /// Buffer in which a long arrival is put together for [`Self::receive`].
    scratch: Vec<u8>,
    statistics: Statistics,
}

impl PacketDevice {
    /// Opens the interface `name`, which must carry Ethernet frames (loopback does).
    ///
    /// # Errors
    /// [`PacketError`], each with a remedy in its text.
    pub fn open(name: &str, options: &Options) -> Result<Self, PacketError> {
        let device = Self::prepare(name, options)?;
        device.listen()?;
        Ok(device)
    }

    /// As [`open`](Self::open); nothing arrives before [`listen`](Self::listen).
    ///
    /// # Errors
    /// [`PacketError`], each with a remedy in its text.
    pub fn prepare(name: &str, options: &Options) -> Result<Self, PacketError> {
        let fails =
            |action| move |source| PacketError::System { name: name.to_owned(), action, source };
        let socket = open_socket(name)?;
        let interface = Interface::ethernet(&socket, name).map_err(fails("ask about it"))??;
        let (rx, tx) = shapes(name, interface.mtu, options)?;
        set_options(socket.as_fd(), options).map_err(fails("set the socket's options"))?;
        socket_unsafe::set_ring(socket.as_fd(), libc::PACKET_RX_RING, &request(rx))
            .map_err(fails("get a receiving ring"))?;
        socket_unsafe::set_ring(socket.as_fd(), libc::PACKET_TX_RING, &request(tx))
            .map_err(fails("get a sending ring"))?;
        let rings = Rings::map(socket.as_fd(), rx, tx).map_err(fails("map the rings"))?;
        if options.promiscuous {
            xk_linux::set_promiscuous(&socket, interface.index)
                .map_err(fails("make it promiscuous"))?;
        }
        let runs = options.offload.then(|| {
            let socket = open_socket(name)?;
            RunSender::open(socket, interface.index)
                .map_err(fails("get a socket for runs of segments"))
        });
        let runs = runs.transpose()?;
        // What is sent goes out of it; nothing arrives yet.
        xk_linux::bind(&socket, interface.index, 0).map_err(fails("send by it"))?;
        Ok(Self {
            rings,
            socket,
            interface,
            rx_at: 0,
            tx_at: 0,
            tx_slots: tx.slots,
            tx_waiting: 0,
            runs,
            scratch: Vec::new(),
            statistics: Statistics::default(),
        })
    }

    /// Frames arrive from here on.
    ///
    /// # Errors
    /// What the system says.
    pub fn listen(&self) -> Result<(), PacketError> {
        let bound = xk_linux::bind(&self.socket, self.interface.index, libc::ETH_P_ALL as u16);
        let (name, action) = (self.interface.name.clone(), "take part in what it receives");
        bound.map_err(|source| PacketError::System { name, action, source })
    }

    /// The interface's name.
    pub fn name(&self) -> &str {
        &self.interface.name
    }

    /// The MTU at the time of opening, in octets without the Ethernet header.
    pub fn mtu(&self) -> usize {
        self.interface.mtu
    }

    /// The most octets of a frame, with Ethernet header and one VLAN tag.
    pub fn frame_octets_max(&self) -> usize {
        self.interface.mtu + HEADER_OCTETS + VLAN_OCTETS
    }

    /// The interface's hardware address.
    pub fn hardware_address(&self) -> [u8; 6] {
        self.interface.hardware_address
    }

    /// Hands out frames that have arrived, from at most `budget` slots, and gives the number of
    /// slots. A frame is valid during the call of `each` only: its slot goes back to the system
    /// behind it. One that is longer than a slot is put together first.
    pub fn receive(&mut self, budget: usize, mut each: impl FnMut(&[u8], FrameInfo)) -> usize {
        let mut scratch = std::mem::take(&mut self.scratch);
        let count = self.receive_frames(budget, |frame| {
            let info = frame.info;
            if let Some(octets) = frame.in_slot() {
                each(octets, info);
                return;
            }
            let octets = info.wire_octets.min(RUN_OCTETS_MAX + VLAN_OCTETS);
            if scratch.len() < octets {
                scratch.resize(octets, 0);
            }
            if let Some(room) = scratch.get_mut(..octets)
                && frame.read(&mut [room])
            {
                each(scratch.get(..octets).unwrap_or_default(), info);
            }
        });
        self.scratch = scratch;
        count
    }

    /// As `receive`, for a caller with room of its own for long frames.
    pub fn receive_frames(&mut self, budget: usize, mut each: impl FnMut(Frame<'_>)) -> usize {
        let mut frames = 0;
        for _ in 0..budget {
            let at = self.rx_at;
            let (rx_at, statistics) = (&mut self.rx_at, &mut self.statistics);
            let socket = self.socket.as_fd();
            let whole = self.rings.rx(at, |slot| {
                // Before the call of `each`, which may panic.
                *rx_at = at.wrapping_add(1);
                match slot {
                    Err(Inconsistent) => statistics.inconsistent += 1,
                    Ok(slot) => {
                        statistics.received += 1;
                        each(Frame::new(&slot, socket));
                    }
                }
            });
            if whole.is_none() {
                break;
            }
            frames += 1;
        }
        frames
    }

    /// Writes a frame, whose octets are those of the parts in order, into the ring. [`Self::flush`]
    /// sends it. Should the MTU shrink while the device is open, the system drops what no longer
    /// fits.
    ///
    /// # Errors
    /// The frame can never be sent here: it is shorter than 14 octets, or longer than the MTU and
    /// its header allow.
    pub fn transmit(&mut self, parts: &[&[u8]]) -> Result<Transmitted, TransmitError> {
        self.transmit_noted(parts, Note::Nothing)
    }

    /// As `transmit`, for a frame of which `note` tells what is left open, if [`Options::offload`]
    /// was agreed on. One that stands for a run of segments ([`Note::Run`]), each of which fits the
    /// MTU, is sent behind all that is in the ring: the interface cuts it, or the system, or a
    /// receiver on this machine takes it as it is.
    ///
    /// # Errors
    /// As for [`Self::transmit`]; also if nothing was agreed on, if a run is longer than 65,549
    /// octets, or if the interface is gone.
    pub fn transmit_noted(
        &mut self,
        parts: &[&[u8]],
        note: Note,
    ) -> Result<Transmitted, TransmitError> {
        if note != Note::Nothing && self.runs.is_none() {
            return Err(TransmitError::Open);
        }
        if let Note::Run { .. } = note {
            return self.transmit_run(parts, note);
        }
        let octets: usize = parts.iter().map(|part| part.len()).sum();
        if octets < HEADER_OCTETS {
            return Err(TransmitError::TooShort { octets });
        }
        // Only a tagged frame may use the tag's four octets (`packet_extra_vlan_len_allowed`).
        let tagged = octets > self.interface.mtu + HEADER_OCTETS
            && octet(parts, 12) == Some(0x81)
            && octet(parts, 13) == Some(0);
        let octets_max = self.interface.mtu + HEADER_OCTETS + if tagged { VLAN_OCTETS } else { 0 };
        if octets > octets_max {
            return Err(TransmitError::TooLong { octets, octets_max });
        }
        if !self.rings.tx_fill(self.tx_at, &note.emit(), parts) {
            return Ok(Transmitted::Full);
        }
        self.tx_at = self.tx_at.wrapping_add(1);
        self.tx_waiting = (self.tx_waiting + 1).min(self.tx_slots);
        self.statistics.queued += 1;
        Ok(Transmitted::Queued)
    }

    fn transmit_run(&mut self, parts: &[&[u8]], run: Note) -> Result<Transmitted, TransmitError> {
        let octets: usize = parts.iter().map(|part| part.len()).sum();
        if octets > RUN_OCTETS_MAX {
            let octets_max = RUN_OCTETS_MAX;
            return Err(TransmitError::TooLong { octets, octets_max });
        }
        if self.tx_waiting > 0 && !matches!(self.flush(), Ok(0)) {
            return Ok(Transmitted::Full);
        }
        let Some(runs) = &self.runs else {
            return Err(TransmitError::Open);
        };
        match runs.send(parts, run) {
            Ok(true) => Ok(Transmitted::Queued),
            Ok(false) => Ok(Transmitted::Full),
            Err(error) => Err(TransmitError::System { errno: error.raw_os_error().unwrap_or(0) }),
        }
    }

    /// Lets the interface take in frames for this group, or takes one such wish back. Wishes for
    /// one group count.
    ///
    /// # Errors
    /// What the system says: no memory, or a group that was not asked for.
    pub fn set_group(&mut self, group: [u8; 6], is_joined: bool) -> io::Result<()> {
        xk_linux::set_group(&self.socket, self.interface.index, group, is_joined)
    }

    /// Hands every frame in the ring to the interface and gives how many the system left for the
    /// next flush, which it does when it lacks buffers. Without frames it does nothing.
    ///
    /// # Errors
    /// The interface is down (`ENETDOWN`) or gone (`ENXIO`); the frames stay in the ring.
    pub fn flush(&mut self) -> io::Result<usize> {
        if self.tx_waiting == 0 {
            return Ok(0);
        }
        let outcome = rustix::net::send(&self.socket, &[], SendFlags::DONTWAIT);
        // The system takes slots in order: what it left begins at the oldest still waiting, and
        // mostly there is none.
        let waits = |back: &usize| self.rings.tx_is_waiting(self.tx_at.wrapping_sub(*back));
        let left = if waits(&1) { (1..=self.tx_waiting).rev().find(waits) } else { None };
        self.tx_waiting = left.unwrap_or(0);
        match outcome {
            Ok(_)
            | Err(rustix::io::Errno::AGAIN | rustix::io::Errno::NOBUFS | rustix::io::Errno::INTR) => {
                Ok(self.tx_waiting)
            }
            Err(errno) => Err(errno.into()),
        }
    }

    /// Counts since the device was opened.
    ///
    /// # Errors
    /// What the system gives; the device is then unusable.
    pub fn statistics(&mut self) -> io::Result<Statistics> {
        self.statistics.dropped += u64::from(socket_unsafe::dropped(self.socket.as_fd())?);
        Ok(self.statistics)
    }

    /// Takes the error that the socket holds, if any: a wait on the descriptor returns at once
    /// until it is taken. `ENETDOWN` tells that the interface went down.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        Ok(rustix::net::sockopt::socket_error(&self.socket)?.err().map(io::Error::from))
    }

    /// The descriptor, to wait for readiness on: readable while a received frame waits, writable
    /// while a sending slot is free.
    pub fn fd(&self) -> &OwnedFd {
        &self.socket
    }
}

/// Opens a packet socket that receives nothing before it is bound.
fn open_socket(name: &str) -> Result<OwnedFd, PacketError> {
    xk_linux::packet_socket().map_err(|source| {
        let name = name.to_owned();
        match source.kind() {
            io::ErrorKind::PermissionDenied => PacketError::NotPermitted { name, source },
            _ => PacketError::System { name, action: "open a packet socket", source },
        }
    })
}

/// Sets what must be set before the rings are made.
fn set_options(socket: BorrowedFd<'_>, options: &Options) -> io::Result<()> {
    let set = |option, value| xk_linux::set_number(socket, libc::SOL_PACKET, option, value);
    // It tells how long the segments of a run are; frames sent have it in front, too.
    set(libc::PACKET_VNET_HDR, 1)?;
    // What is longer than a slot comes through the socket's queue as well, whole.
    set(libc::PACKET_COPY_THRESH, 1)?;
    xk_linux::set_receive_room(socket, options.long_octets)?;
    set(libc::PACKET_VERSION, libc::tpacket_versions::TPACKET_V2 as libc::c_int)?;
    set(libc::PACKET_RESERVE, VLAN_OCTETS as libc::c_int)?;
    // A frame that the system finds malformed is passed over; otherwise the ring would stand still
    // at it.
    set(libc::PACKET_LOSS, 1)?;
    set(libc::PACKET_IGNORE_OUTGOING, 1)?;
    set(libc::PACKET_QDISC_BYPASS, libc::c_int::from(options.bypass_queues))
}

/// The shapes of both rings, one behind the other in the mapping.
fn shapes(name: &str, mtu: usize, options: &Options) -> Result<(Shape, Shape), PacketError> {
    let Options { rx_slots, tx_slots, .. } = *options;
    let refuse =
        |what: String| PacketError::Rings { name: name.to_owned(), rx_slots, tx_slots, what };
    if ![rx_slots, tx_slots].iter().all(|slots| (1..=SLOTS_MAX).contains(slots)) {
        return Err(refuse(format!("a ring has 1 to {SLOTS_MAX} slots")));
    }
    let frame = mtu.saturating_add(HEADER_OCTETS + VLAN_OCTETS);
    let shape = |offset, slots: usize, before| {
        let slot_octets =
            frame.saturating_add(before).max(SLOT_OCTETS_MIN).checked_next_power_of_two()?;
        let (per_block, slots_max) =
            ((BLOCK_OCTETS / slot_octets).max(1), RING_OCTETS_MAX / slot_octets);
        let slots = slots.next_multiple_of(per_block).min(slots_max);
        (slots > 0).then_some(Shape { offset, slot_octets, slots })
    };
    shape(0, rx_slots, RX_BEFORE_OCTETS)
        .and_then(|rx| {
            Some((rx, shape(rx.slots * rx.slot_octets, tx_slots, TX_DATA_OFFSET + NOTE_OCTETS)?))
        })
        .ok_or_else(|| {
            refuse(format!("an MTU of {mtu} octets needs slots beyond {RING_OCTETS_MAX} octets"))
        })
}

/// Request for a ring.
fn request(ring: Shape) -> libc::tpacket_req {
    let block_octets = BLOCK_OCTETS.max(ring.slot_octets);
    // `shapes` bounds every number here far below the type's.
    libc::tpacket_req {
        tp_block_size: block_octets as u32,
        tp_block_nr: (ring.slots * ring.slot_octets / block_octets) as u32,
        tp_frame_size: ring.slot_octets as u32,
        tp_frame_nr: ring.slots as u32,
    }
}

/// The octet at a place in the concatenation of the parts.
fn octet(parts: &[&[u8]], at: usize) -> Option<u8> {
    parts.iter().copied().flatten().nth(at).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(rx_slots: usize, tx_slots: usize) -> Options {
        Options { rx_slots, tx_slots, ..Options::default() }
    }

    #[test]
    fn rings_fill_whole_blocks() {
        for mtu in [68, 1500, 9000, 65_535, 1 << 20] {
            for slots in [1, 3, 256, 1000] {
                let (rx, tx) = shapes("eth", mtu, &options(slots, slots)).unwrap();
                assert_eq!(tx.offset, rx.slots * rx.slot_octets);
                for ring in [rx, tx] {
                    let octets = ring.slots * ring.slot_octets;
                    assert!(octets <= RING_OCTETS_MAX, "{ring:?}");
                    assert!(ring.slots >= slots || octets == RING_OCTETS_MAX, "{ring:?}");
                    assert!(ring.slot_octets >= mtu + HEADER_OCTETS + VLAN_OCTETS, "{ring:?}");
                    let asked = request(ring);
                    assert_eq!(asked.tp_block_size % asked.tp_frame_size, 0);
                    assert_eq!(
                        asked.tp_block_nr * (asked.tp_block_size / asked.tp_frame_size),
                        asked.tp_frame_nr
                    );
                }
            }
        }
    }

    #[test]
    fn impossible_rings_are_refused() {
        for (rx_slots, tx_slots, mtu) in [
            (0, 1, 1500),
            (1, 0, 1500),
            (1, SLOTS_MAX + 1, 1500),
            (1, 1, RING_OCTETS_MAX),
            (1, 1, usize::MAX),
        ] {
            let refused = shapes("eth", mtu, &options(rx_slots, tx_slots));
            assert!(matches!(refused, Err(PacketError::Rings { .. })), "{refused:?}");
        }
    }

    #[test]
    fn an_octet_is_found_across_parts() {
        assert_eq!(octet(&[&[1, 2], &[], &[3]], 2), Some(3));
        assert_eq!(octet(&[&[1, 2]], 2), None);
    }
}
