//! The writer: section header, interface descriptions, enhanced packets.

use std::io::{self, IoSlice, Write};

/// Block types, section 11.1 of the draft.
const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const ENHANCED_PACKET: u32 = 6;

/// Tells a reader the order of octets, section 4.1.
const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;

/// Option codes, sections 3.5, 4.1, 4.2 and 4.3.
const OPT_END: u16 = 0;
const OPT_COMMENT: u16 = 1;
const SHB_USERAPPL: u16 = 4;
const IF_NAME: u16 = 2;
const IF_DESCRIPTION: u16 = 3;
const IF_TSRESOL: u16 = 9;
const EPB_FLAGS: u16 = 2;

/// `if_tsresol`: units of 10^-9 seconds.
const NANOSECONDS: u8 = 9;
/// Type and both lengths of a block.
const BLOCK_OVERHEAD: usize = 12;
/// Longest option that its 16-bit length can express, section 3.5.
const OPTION_OCTETS_MAX: usize = u16::MAX as usize;
/// Blocks beyond this are refused: readers take longer ones for damage (Wireshark reads at most 16
/// MiB).
const BLOCK_OCTETS_MAX: usize = 16 << 20;

/// First header of a frame: a number of the registry of link types.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LinkType(pub u16);

impl LinkType {
    /// Ethernet II frames without preamble and check sequence.
    pub const ETHERNET: Self = Self(1);
    /// Octets without a known form, shown as they are: `LINKTYPE_USER0`.
    pub const USER0: Self = Self(147);
    /// IPv4 packets without any link header.
    pub const IPV4: Self = Self(228);
}

/// Direction of a frame, as seen from the interface it was captured on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Direction {
    /// Not known.
    #[default]
    Unknown,
    /// The frame came in: on an edge of a graph, it went up.
    Inbound,
    /// The frame went out: on an edge of a graph, it went down.
    Outbound,
}

/// A place where frames are captured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interface<'a> {
    /// Name of the place.
    pub name: &'a str,
    /// Description in words; left out of the file when empty.
    pub description: &'a str,
    /// First header of its frames.
    pub link_type: LinkType,
    /// The most octets kept of a frame; 0 for no limit. [`Writer::write`] cuts longer frames.
    pub snap_octets: u32,
}

impl<'a> Interface<'a> {
    /// An interface without description and limit.
    #[must_use]
    pub fn new(name: &'a str, link_type: LinkType) -> Self {
        Self { name, description: "", link_type, snap_octets: 0 }
    }
}

/// An interface of one [`Writer`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct InterfaceId(u32);

/// One captured frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    /// When, in nanoseconds since the clock's zero: a simulation's begin, or 1970.
    pub time_ns: u64,
    /// Direction.
    pub direction: Direction,
    /// A remark shown with the frame, usually the name of the edge; left out of the file when
    /// empty.
    pub comment: &'a str,
    /// Length of the frame, in octets, when `parts` hold less than all of it; otherwise 0.
    pub wire_octets: usize,
    /// The frame's octets in order.
    pub parts: &'a [&'a [u8]],
}

impl<'a> Frame<'a> {
    /// A whole frame in parts, without direction and remark.
    #[must_use]
    pub fn new(time_ns: u64, parts: &'a [&'a [u8]]) -> Self {
        Self { time_ns, direction: Direction::Unknown, comment: "", wire_octets: 0, parts }
    }
}

/// Writes one section of pcapng.
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
    /// The limit of each interface, by its number.
    snap_octets: Vec<u32>,
    /// A block in the making, kept for its memory: everything but the frame's own octets.
    block: Vec<u8>,
}

impl<W: Write> Writer<W> {
    /// Begins a file. `application` is named in it as the writer (`shb_userappl`).
    pub fn new(out: W, application: &str) -> io::Result<Self> {
        let mut writer = Self { out, snap_octets: Vec::new(), block: Vec::new() };
        let block = &mut writer.block;
        block.extend(BYTE_ORDER_MAGIC.to_le_bytes());
        block.extend(1u16.to_le_bytes());
        block.extend(0u16.to_le_bytes());
        // The section's length is not known beforehand.
        block.extend(u64::MAX.to_le_bytes());
        put_text(block, SHB_USERAPPL, application);
        put_end(block);
        writer.put_block(SECTION_HEADER)?;
        Ok(writer)
    }

    /// Describes an interface; frames of it may follow.
    pub fn add_interface(&mut self, interface: &Interface<'_>) -> io::Result<InterfaceId> {
        let id =
            u32::try_from(self.snap_octets.len()).map_err(|_| invalid("too many interfaces"))?;
        self.block.clear();
        let block = &mut self.block;
        block.extend(interface.link_type.0.to_le_bytes());
        block.extend(0u16.to_le_bytes());
        block.extend(interface.snap_octets.to_le_bytes());
        put_text(block, IF_NAME, interface.name);
        put_text(block, IF_DESCRIPTION, interface.description);
        put_option(block, IF_TSRESOL, &[NANOSECONDS]);
        put_end(block);
        self.put_block(INTERFACE_DESCRIPTION)?;
        self.snap_octets.push(interface.snap_octets);
        Ok(InterfaceId(id))
    }

    /// Writes a frame.
    ///
    /// # Errors
    /// `InvalidInput` when the interface is another writer's or the frame has more than 16 MiB, and
    /// nothing is written then; otherwise what the output gives.
    pub fn write(&mut self, interface: InterfaceId, frame: &Frame<'_>) -> io::Result<()> {
        let snap =
            usize::try_from(interface.0).ok().and_then(|at| self.snap_octets.get(at)).copied();
        let snap = snap.ok_or_else(|| invalid("an interface that this file does not describe"))?;
        let given = frame.parts.iter().try_fold(0usize, |sum, part| sum.checked_add(part.len()));
        let given = given.ok_or_else(|| invalid("a frame longer than memory"))?;
        let kept = if snap == 0 { given } else { given.min(snap as usize) };
        if kept > BLOCK_OCTETS_MAX - BLOCK_OVERHEAD - 3 * OPTION_OCTETS_MAX {
            return Err(invalid("a frame too long for a capture"));
        }
        let original = u32::try_from(given.max(frame.wire_octets)).unwrap_or(u32::MAX);

        self.block.clear();
        let block = &mut self.block;
        block.extend(interface.0.to_le_bytes());
        block.extend(((frame.time_ns >> 32) as u32).to_le_bytes());
        block.extend((frame.time_ns as u32).to_le_bytes());
        block.extend((kept as u32).to_le_bytes());
        block.extend(original.to_le_bytes());
        let before = block.len();
        block.extend(std::iter::repeat_n(0, padding(kept)));
        match frame.direction {
            Direction::Unknown => {}
            Direction::Inbound => put_option(block, EPB_FLAGS, &1u32.to_le_bytes()),
            Direction::Outbound => put_option(block, EPB_FLAGS, &2u32.to_le_bytes()),
        }
        put_text(block, OPT_COMMENT, frame.comment);
        if block.len() > before + padding(kept) {
            put_end(block);
        }
        self.put_packet(before, frame.parts, kept)
    }

    /// Hands on what the output holds back.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// The output, for a look at it.
    pub fn get_ref(&self) -> &W {
        &self.out
    }

    /// Gives the output back; nothing needs to be closed.
    pub fn into_inner(self) -> W {
        self.out
    }

    /// Writes a block whose body is `self.block`.
    fn put_block(&mut self, kind: u32) -> io::Result<()> {
        let octets = ((self.block.len() + BLOCK_OVERHEAD) as u32).to_le_bytes();
        let kind = kind.to_le_bytes();
        let mut parts = [&kind, &octets, self.block.as_slice(), &octets].map(IoSlice::new);
        write_all(&mut self.out, &mut parts)
    }

    /// Writes an enhanced packet: the first `before` octets of `self.block`, the first `kept`
    /// octets of the frame, the rest of `self.block`.
    fn put_packet(&mut self, before: usize, parts: &[&[u8]], kept: usize) -> io::Result<()> {
        let octets = ((self.block.len() + kept + BLOCK_OVERHEAD) as u32).to_le_bytes();
        let (head, tail) = self.block.split_at(before);
        self.out.write_all(&ENHANCED_PACKET.to_le_bytes())?;
        self.out.write_all(&octets)?;
        self.out.write_all(head)?;
        let mut left = kept;
        for part in parts {
            let some = part.get(..left.min(part.len())).unwrap_or_default();
            self.out.write_all(some)?;
            left -= some.len();
        }
        self.out.write_all(tail)?;
        self.out.write_all(&octets)
    }
}

/// Writes every slice in turn, together where the output can.
fn write_all(out: &mut impl Write, mut parts: &mut [IoSlice<'_>]) -> io::Result<()> {
    while !parts.is_empty() {
        match out.write_vectored(parts) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(octets) => IoSlice::advance_slices(&mut parts, octets),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Number of zeroes that follow this many octets, so that everything begins on 4 octets.
fn padding(octets: usize) -> usize {
    octets.wrapping_neg() & 3
}

/// Appends an option whose value has at most [`OPTION_OCTETS_MAX`] octets.
fn put_option(block: &mut Vec<u8>, code: u16, value: &[u8]) {
    block.extend(code.to_le_bytes());
    block.extend((value.len() as u16).to_le_bytes());
    block.extend(value);
    block.extend(std::iter::repeat_n(0, padding(value.len())));
}

/// Appends an option of text, cut between two characters when it is too long, left out when it is
/// empty.
fn put_text(block: &mut Vec<u8>, code: u16, text: &str) {
    let fits = text.floor_char_boundary(OPTION_OCTETS_MAX);
    match text.get(..fits) {
        None | Some("") => {}
        Some(text) => put_option(block, code, text.as_bytes()),
    }
}

/// Ends the options of a block.
fn put_end(block: &mut Vec<u8>) {
    put_option(block, OPT_END, &[]);
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
