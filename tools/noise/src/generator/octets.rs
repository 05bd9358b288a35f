//! A frame under construction.

use xk_kit::net::checksum::checksum;

/// The largest frame, in octets: an Ethernet frame without check sequence.
pub const FRAME_OCTETS_MAX: usize = 1514;

/// Octets written one behind the other; what does not fit is left out.
pub(super) struct Octets<'a> {
    octets: &'a mut [u8; FRAME_OCTETS_MAX],
    len: usize,
}

impl<'a> Octets<'a> {
    pub(super) fn new(octets: &'a mut [u8; FRAME_OCTETS_MAX]) -> Self {
        Self { octets, len: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_full(&self) -> bool {
        self.len == FRAME_OCTETS_MAX
    }

    pub(super) fn put(&mut self, octets: &[u8]) {
        let room = &mut self.octets[self.len..];
        let count = octets.len().min(room.len());
        room[..count].copy_from_slice(&octets[..count]);
        self.len += count;
    }

    /// Writes over two octets.
    pub(super) fn set_u16(&mut self, at: usize, value: u16) {
        self.write(at, &value.to_be_bytes());
    }

    /// Writes over octets.
    pub(super) fn write(&mut self, at: usize, octets: &[u8]) {
        if let Some(place) = self.octets.get_mut(at..at + octets.len()) {
            place.copy_from_slice(octets);
        }
    }

    /// Sets the checksum at `at` of the octets from `from` on, with those of `pseudo`; wrong if
    /// `wrong` says so.
    pub(super) fn seal(&mut self, from: usize, at: usize, pseudo: &[u8], wrong: bool) {
        self.set_u16(at, 0);
        let mut sum = xk_kit::Checksum::new();
        sum.add(pseudo);
        sum.add(self.octets.get(from..self.len).unwrap_or_default());
        let sum = sum.finish() ^ u16::from(wrong);
        // Zero says that there is none (RFC 768); in ICMP both mean the same.
        self.set_u16(at, if sum == 0 { 0xffff } else { sum });
    }

    /// Sets the checksum at `at` of the octets from `from` to `to`, as of a header of IPv4.
    pub(super) fn seal_header(&mut self, from: usize, to: usize, at: usize, wrong: bool) {
        self.set_u16(at, 0);
        if let Some(octets) = self.octets.get(from..to.min(self.len)) {
            let sum = checksum(octets) ^ u16::from(wrong);
            self.set_u16(at, sum);
        }
    }

    /// Cuts the frame.
    pub(super) fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }
}
