//! The two rings in mapped memory: slots of one size, each with a header that says whose it is.
//!
//! A slot belongs to one side at a time. Its first word, the status, says to which, and is the only
//! word that both sides may touch at once: it is read with *acquire* and written with *release*.
//! Everything else in a slot is touched only while the status gives the slot to us. The numbers in
//! a header are the system's; they are copied once, checked against the slot, and never lead
//! outside it.
//!
//! Source: Linux `include/uapi/linux/if_packet.h` (`struct tpacket2_hdr`),
//! `Documentation/networking/packet_mmap.rst`.

use std::ffi::c_void;
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use libc::tpacket2_hdr;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use xk_kit::wire::virtio::NOTE_OCTETS;

/// Octets of the header of every slot.
pub(crate) const HEADER_OCTETS: usize = size_of::<tpacket2_hdr>();
/// Offset at which the system looks for the frame in a slot to send: behind the header, aligned
/// (`tpacket_snd`).
pub(crate) const TX_DATA_OFFSET: usize = HEADER_OCTETS.next_multiple_of(libc::TPACKET_ALIGNMENT);
/// Octets that a VLAN tag needs (IEEE 802.1Q, section 9.3), and where it stands: behind both
/// hardware addresses.
pub(crate) const VLAN_OCTETS: usize = 4;
pub(crate) const ADDRESSES_OCTETS: usize = 12;
/// The tag protocol identifier where the system does not give one: IEEE 802.1Q.
const TPID_8021Q: u16 = 0x8100;

/// One ring within the mapping.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    /// Offset in the mapping.
    pub(crate) offset: usize,
    /// Octets of a slot; a multiple of 16.
    pub(crate) slot_octets: usize,
    /// Number of slots.
    pub(crate) slots: usize,
}

/// Contents of a received slot.
pub(crate) struct Received<'a> {
    /// The frame, with its VLAN tag.
    pub(crate) frame: &'a [u8],
    /// The slot's status bits.
    pub(crate) status: u32,
    /// The frame's length on the wire, with its VLAN tag.
    pub(crate) wire_octets: usize,
    /// Time of its arrival, in nanoseconds since 1970.
    pub(crate) time_ns: u64,
    /// The header that the system puts before the frame (`struct virtio_net_hdr`).
    pub(crate) note: [u8; NOTE_OCTETS],
    /// The VLAN tag that is in the frame here, and that the copy in the socket's queue lacks.
    pub(crate) tag: Option<[u8; VLAN_OCTETS]>,
}

/// A mapping of both rings of one socket, undone when dropped.
#[derive(Debug)]
pub(crate) struct Rings {
    base: NonNull<u8>,
    octets: usize,
    rx: Shape,
    tx: Shape,
}

// SAFETY: the mapping belongs to this value alone, and every access goes through `&mut self` or
// touches only status words, which are atomic; nothing is tied to a thread.
unsafe impl Send for Rings {}

impl Rings {
    /// Maps the rings that the socket was given, the receiving one first.
    pub(crate) fn map(socket: BorrowedFd<'_>, rx: Shape, tx: Shape) -> io::Result<Self> {
        let octets = [rx, tx]
            .iter()
            .map(|ring| ring.offset + ring.slots * ring.slot_octets)
            .max()
            .unwrap_or(0);
        let least = TX_DATA_OFFSET + ADDRESSES_OCTETS + VLAN_OCTETS;
        if [rx, tx].iter().any(|ring| {
            ring.slot_octets < least || ring.slot_octets % 16 != 0 || ring.offset % 16 != 0
        }) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let (protection, flags) =
            (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::POPULATE);
        // SAFETY: a fresh mapping at an address of the system's choice disturbs nothing.
        let base = unsafe { mmap(std::ptr::null_mut(), octets, protection, flags, socket, 0) }?;
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, octets, rx, tx })
    }

    /// Shows `each` the frame in receiving slot `at`, or that the slot's words do not fit together,
    /// and gives the slot back to the system. `None`, and nothing done, when the slot is the
    /// system's.
    pub(crate) fn rx<T>(
        &mut self,
        at: usize,
        each: impl FnOnce(Result<Received<'_>, Inconsistent>) -> T,
    ) -> Option<T> {
        let slot = self.slot(self.rx, at);
        let status = status(slot);
        let bits = status.load(Ordering::Acquire);
        if bits & libc::TP_STATUS_USER == 0 {
            return None;
        }
        // Given back even if `each` panics: putting the VLAN tag back twice would spoil the frame.
        let _release = Release(status);
        let octets = self.rx.slot_octets;
        // SAFETY: the slot has `octets` octets within the mapping and is ours by its status, read
        // with acquire, until `_release` gives it back, which happens after the last use of both
        // values. It is aligned to 16, as the header needs, and any octets are a valid header. The
        // slice begins behind the header, so it does not hold the status word.
        let (header, data) = unsafe {
            let header = slot.cast::<tpacket2_hdr>().read();
            let data = std::slice::from_raw_parts_mut(
                slot.as_ptr().add(HEADER_OCTETS),
                octets - HEADER_OCTETS,
            );
            (header, data)
        };
        Some(each(unpack(&header, bits, data)))
    }

    /// Whether sending slot `at` is ours to fill. Slots that the system refused are taken back too.
    pub(crate) fn tx_is_free(&self, at: usize) -> bool {
        let status = status(self.slot(self.tx, at)).load(Ordering::Acquire);
        status & (libc::TP_STATUS_SEND_REQUEST | libc::TP_STATUS_SENDING) == 0
    }

    /// Whether the system has not looked at sending slot `at` yet.
    pub(crate) fn tx_is_waiting(&self, at: usize) -> bool {
        status(self.slot(self.tx, at)).load(Ordering::Acquire) & libc::TP_STATUS_SEND_REQUEST != 0
    }

    /// Fills sending slot `at` with `header` and the parts of a frame and gives it to the system.
    /// False, and nothing done, when the slot is not free or too small.
    pub(crate) fn tx_fill(&mut self, at: usize, header: &[u8], parts: &[&[u8]]) -> bool {
        let total = header.len() + parts.iter().map(|part| part.len()).sum::<usize>();
        if !self.tx_is_free(at) || total > self.tx.slot_octets - TX_DATA_OFFSET {
            return false;
        }
        let slot = self.slot(self.tx, at);
        let octets = self.tx.slot_octets - TX_DATA_OFFSET;
        // SAFETY: as for `rx`: within the mapping, aligned, and ours since its status, read with
        // acquire, says so; the slice begins behind the header, so it holds no word that the system
        // may touch meanwhile.
        let data =
            unsafe { std::slice::from_raw_parts_mut(slot.as_ptr().add(TX_DATA_OFFSET), octets) };
        let mut rest = data;
        for part in [header].iter().chain(parts) {
            let Some((here, behind)) = rest.split_at_mut_checked(part.len()) else {
                return false;
            };
            here.copy_from_slice(part);
            rest = behind;
        }
        let header = slot.cast::<tpacket2_hdr>().as_ptr();
        // SAFETY: `header` is the slot's, ours as above; the two fields are plain words in it.
        unsafe {
            (&raw mut (*header).tp_len).write(total as u32);
            (&raw mut (*header).tp_snaplen).write(total as u32);
        }
        status(slot).store(libc::TP_STATUS_SEND_REQUEST, Ordering::Release);
        true
    }

    /// Address of slot `at` of a ring. Whatever `at` is, the result lies in the ring.
    fn slot(&self, ring: Shape, at: usize) -> NonNull<u8> {
        let offset = ring.offset + (at % ring.slots) * ring.slot_octets;
        // SAFETY: the slot lies within the mapping, whose length `map` computed from the same
        // shapes.
        unsafe { self.base.add(offset) }
    }
}

impl Drop for Rings {
    fn drop(&mut self) {
        // SAFETY: base and length are those of the mapping made by `map`; no borrow of a slot
        // outlives this value.
        let _never_fails = unsafe { munmap(self.base.as_ptr().cast::<c_void>(), self.octets) };
    }
}

/// A slot's words contradict each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Inconsistent;

/// Gives a receiving slot back to the system when dropped.
struct Release<'a>(&'a AtomicU32);

impl Drop for Release<'_> {
    fn drop(&mut self) {
        self.0.store(libc::TP_STATUS_KERNEL, Ordering::Release);
    }
}

/// The status word of a slot.
fn status<'a>(slot: NonNull<u8>) -> &'a AtomicU32 {
    // SAFETY: the callers give the beginning of a slot, which is aligned to 16 and mapped for as
    // long as the reference is used (it never leaves this module); its first word is touched
    // through atomics only, except for the copy of a header that is ours.
    unsafe { AtomicU32::from_ptr(slot.as_ptr().cast()) }
}

/// Finds the frame in a slot's `data`, the octets behind the header, and puts its VLAN tag back.
fn unpack<'a>(
    header: &tpacket2_hdr,
    status: u32,
    data: &'a mut [u8],
) -> Result<Received<'a>, Inconsistent> {
    let begin = usize::from(header.tp_mac).checked_sub(HEADER_OCTETS).ok_or(Inconsistent)?;
    let end = begin.checked_add(header.tp_snaplen as usize).ok_or(Inconsistent)?;
    if header.tp_snaplen > header.tp_len {
        return Err(Inconsistent);
    }
    // Before the tag is put back: the addresses move to where this lies.
    let note = begin.checked_sub(NOTE_OCTETS).and_then(|at| data.get(at..));
    let note = note.and_then(<[u8]>::first_chunk).copied();
    let mut wire_octets = header.tp_len as usize;
    let (mut begin_tagged, mut put_back) = (begin, None);
    if status & libc::TP_STATUS_VLAN_VALID != 0 && header.tp_snaplen as usize >= ADDRESSES_OCTETS {
        begin_tagged = begin.checked_sub(VLAN_OCTETS).ok_or(Inconsistent)?;
        let place = data.get_mut(begin_tagged..end).ok_or(Inconsistent)?;
        place.copy_within(VLAN_OCTETS..VLAN_OCTETS + ADDRESSES_OCTETS, 0);
        let given = status & libc::TP_STATUS_VLAN_TPID_VALID != 0;
        let tpid = if given { header.tp_vlan_tpid } else { TPID_8021Q };
        let ([a, b], [c, d]) = (tpid.to_be_bytes(), header.tp_vlan_tci.to_be_bytes());
        place
            .get_mut(ADDRESSES_OCTETS..ADDRESSES_OCTETS + VLAN_OCTETS)
            .ok_or(Inconsistent)?
            .copy_from_slice(&[a, b, c, d]);
        put_back = Some([a, b, c, d]);
        wire_octets += VLAN_OCTETS;
    }
    let frame = data.get(begin_tagged..end).ok_or(Inconsistent)?;
    let time_ns = u64::from(header.tp_sec) * 1_000_000_000 + u64::from(header.tp_nsec);
    Ok(Received {
        frame,
        status,
        wire_octets,
        time_ns,
        note: note.unwrap_or_default(),
        tag: put_back,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(mac: usize, kept: u32, on_wire: u32) -> tpacket2_hdr {
        tpacket2_hdr {
            tp_status: 0,
            tp_len: on_wire,
            tp_snaplen: kept,
            tp_mac: mac as u16,
            tp_net: 0,
            tp_sec: 2,
            tp_nsec: 7,
            tp_vlan_tci: 0x2005,
            tp_vlan_tpid: 0x88a8,
            tp_padding: [0; 4],
        }
    }

    #[test]
    fn a_frame_is_found() {
        let mut data: Vec<u8> = (0..64).collect();
        let found = unpack(&header(HEADER_OCTETS + 4, 20, 30), 0, &mut data).ok().unwrap();
        assert_eq!(found.frame, (4..24).collect::<Vec<u8>>());
        assert_eq!((found.wire_octets, found.time_ns), (30, 2_000_000_007));
    }

    #[test]
    fn a_vlan_tag_is_put_back() {
        let mut data: Vec<u8> = (0..64).collect();
        let bits = libc::TP_STATUS_VLAN_VALID | libc::TP_STATUS_VLAN_TPID_VALID;
        let found = unpack(&header(HEADER_OCTETS + 4, 16, 16), bits, &mut data).ok().unwrap();
        assert_eq!(
            found.frame,
            [&(4..16).collect::<Vec<u8>>()[..], &[0x88, 0xa8, 0x20, 5], &[16, 17, 18, 19]].concat()
        );
        assert_eq!(found.wire_octets, 20);
        let mut data: Vec<u8> = (0..64).collect();
        let found =
            unpack(&header(HEADER_OCTETS + 4, 16, 16), libc::TP_STATUS_VLAN_VALID, &mut data)
                .ok()
                .unwrap();
        assert_eq!(found.frame.get(12..14), Some([0x81, 0x00].as_slice()));
    }

    #[test]
    fn no_header_leads_outside_its_slot() {
        let values = [0, 1, 31, 32, 33, 35, 36, 63, 64, 95, 96, 97, 0x7fff, 0xffff];
        let lengths = [0, 1, 11, 12, 13, 27, 28, 32, 60, 64, 65, 0xffff, u32::MAX - 32, u32::MAX];
        for mac in values {
            for kept in lengths {
                for bits in [0, libc::TP_STATUS_VLAN_VALID] {
                    let mut data = vec![0; 64];
                    let fits = mac >= HEADER_OCTETS && mac - HEADER_OCTETS + kept as usize <= 64;
                    let found = unpack(&header(mac, kept, u32::MAX), bits, &mut data);
                    assert!(fits || found.is_err(), "{mac} {kept} {bits}");
                }
            }
        }
        assert!(unpack(&header(HEADER_OCTETS, 20, 19), 0, &mut [0; 64]).is_err());
    }
}
