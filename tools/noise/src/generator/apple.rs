//! Attacks on a node of AppleTalk: AARP, datagrams of all protocols on DDP, and what others have
//! sent to it under other names. A forged host is the node of its last three octets.

use super::octets::Octets;
use super::{FRAME_OCTETS_MAX, Generator, Kind};
use xk_appletalk::aarp::{ALL_NODES, Function, Packet};
use xk_appletalk::addr::{NODES, Node};
use xk_appletalk::ddp::{DATA_LEN_MAX, LONG_LEN, Long, TYPE_ADSP, TYPE_RTMP};
use xk_kit::EthAddr;

/// LLC and SNAP in front of AARP, and of DDP.
const AARP: [u8; 8] = [0xaa, 0xaa, 3, 0, 0, 0, 0x80, 0xf3];
const DDP: [u8; 8] = [0xaa, 0xaa, 3, 8, 0, 7, 0x80, 0x9b];
/// Octets of the header of 802.3, and with those.
const ETH: usize = 14;
const SNAP: usize = ETH + 8;
/// Networks below are left to honest nodes.
const NET_FORGED_MIN: u16 = 256;
/// The last network that a cable may have (Inside AppleTalk, chapter 4).
const NET_MAX: u16 = 0xfeff;
/// Offset of the network and node of origin in a datagram.
const FROM_NET: usize = 6;
const FROM_NODE: usize = 9;

/// Whether it is a datagram of AppleTalk, whole and with a long header: the header, and where it
/// ends.
fn datagram(frame: &[u8]) -> Option<(Long, usize)> {
    if frame.get(ETH..SNAP)? != DDP {
        return None;
    }
    let packet = frame.get(SNAP..)?;
    let header = Long::parse(packet.first_chunk::<LONG_LEN>()?).ok()?;
    let data = header.data_of(packet.len() - LONG_LEN).ok()?;
    Some((header, SNAP + LONG_LEN + data))
}

impl Generator {
    /// A forged node.
    fn forged_node(&self) -> Node {
        let [_, high, low, node] = self.source().octets();
        let net = u16::from_be_bytes([high, low]);
        let net = NET_FORGED_MIN + net % (NET_MAX - NET_FORGED_MIN + 1);
        Node::new(net, NODES.start() + node % (NODES.end() - NODES.start() + 1))
    }

    /// The station that a forged node pretends to be.
    fn station_of_node(node: Node) -> EthAddr {
        let [a, b, c, d] = node.to_octets();
        EthAddr([0x0a, 0x66, a, b, c, d])
    }

    /// Headers of 802.3 and SNAP; the length is written by [`end_apple`](Self::end_apple).
    fn begin_apple(out: &mut Octets<'_>, to: EthAddr, from: EthAddr, snap: [u8; 8]) {
        out.put(&to.0);
        out.put(&from.0);
        out.put(&[0; 2]);
        out.put(&snap);
    }

    fn end_apple(out: &mut Octets<'_>) {
        let len = out.len().saturating_sub(ETH) as u16;
        out.set_u16(12, len);
    }

    /// A frame of any of its protocols, right in part, and often wrong somewhere.
    pub(super) fn apple(&self, out: &mut Octets<'_>) {
        match self.below(8) {
            0 => self.aarp(out),
            _ => self.apple_datagram(out),
        }
        if self.once_in(8) {
            let at = SNAP + self.below(out.len().saturating_sub(SNAP) as u64) as usize;
            out.write(at, &[self.word() as u8]);
        }
        if self.once_in(32) {
            out.truncate(ETH + self.below(out.len().saturating_sub(ETH) as u64) as usize);
        }
        if !self.once_in(32) {
            Self::end_apple(out);
        }
    }

    /// A request, response or probe; some for the address of the target, some in its name.
    fn aarp(&self, out: &mut Octets<'_>) {
        let (target, from) = (self.target.node, self.forged_node());
        let station = Self::station_of_node(from);
        let function = *self.pick(&[Function::Request, Function::Response, Function::Probe]);
        let claims = self.once_in(8);
        let packet = Packet {
            function,
            from_hw: station.0,
            from: if claims { target } else { from },
            to_hw: if function == Function::Response { self.target.ether.0 } else { [0; 6] },
            to: if self.once_in(4) { from } else { target },
        };
        // What claims the target's node goes to the target alone: others would believe it.
        let is_for_all = !claims && self.once_in(2);
        let to = if is_for_all { EthAddr(ALL_NODES) } else { self.target.ether };
        Self::begin_apple(out, to, station, AARP);
        out.put(&packet.octets());
    }

    fn apple_datagram(&self, out: &mut Octets<'_>) {
        let from = self.forged_node();
        let own = self.target.port as u8;
        // Protocol type, socket.
        let ends = [(1, 1), (5, 1), (2, 2), (3, 6), (3, own), (3, own), (4, 4), (6, 6), (7, own)];
        let (kind, socket) = match self.below(16) {
            0 => (1 + self.below(u64::from(TYPE_ADSP)) as u8, self.word() as u8),
            _ => *self.pick(&ends),
        };
        let to = match self.below(16) {
            // No node but the target is to believe a forged router.
            0 if kind != TYPE_RTMP => Node::ALL,
            1 => Node::new(self.target.node.net, 0),
            2 => self.forged_node(),
            _ => self.target.node,
        };
        let mut data = [0; DATA_LEN_MAX];
        let len = self.apple_data(kind, from, &mut data);
        let data = data.get(..len).unwrap_or_default();
        let from = from.socket(129 + self.below(120) as u8);
        let Some(header) = Long::new(to.socket(socket), from, kind, len) else { return };
        let mut header = if self.once_in(2) { header.with_checksum(data) } else { header };
        if self.once_in(32) {
            header.checksum ^= self.word();
        }
        let station = Self::station_of_node(from.at());
        let to = if to == Node::ALL { EthAddr(ALL_NODES) } else { self.target.ether };
        Self::begin_apple(out, to, station, DDP);
        out.put(&header.octets());
        out.put(data);
    }

    /// The octets of a packet of this protocol; answers how many.
    fn apple_data(&self, kind: u8, from: Node, data: &mut [u8; DATA_LEN_MAX]) -> usize {
        let len = self.below(64) as usize;
        self.random.fill(data);
        let [high, low] = from.net.to_be_bytes();
        let [word, other] = self.word().to_be_bytes();
        let mut put = |octets: &[u8]| {
            let count = octets.len().min(data.len());
            data[..count].copy_from_slice(&octets[..count]);
            count
        };
        match kind {
            // Data of a router: what it is, and one cable.
            1 => put(&[high, low, 8, from.node, high, low, 0x80, high, low, 0x82, word, other, 1]),
            5 => put(&[1 + (word & 3)]),
            // One tuple, for any name.
            2 => {
                let function = 1 + (word & 3);
                put(&[
                    function << 4 | 1,
                    other,
                    high,
                    low,
                    from.node,
                    200,
                    0,
                    1,
                    b'=',
                    1,
                    b'=',
                    1,
                    b'*',
                ])
            }
            // Transactions: requests of all kinds, and what answers none of ours.
            3 => {
                let control = *self.pick(&[0x40, 0x60, 0x60, 0x61, 0x80, 0x90, 0xc0, 0x88]);
                let function = *self.pick(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
                let head = [control, 0xff, word, other, function, word & 3, 0, 1];
                put(&head) + len
            }
            4 => put(&[1 + (word & 1)]) + len,
            6 => put(&[1 + (word & 7), 1 + (other & 3), high, low, 0, 1, 0]) + len / 8,
            _ => len,
        }
    }

    /// Notes a datagram for the node that came along the link.
    pub(super) fn hear_apple(&mut self, frame: &[u8]) {
        let Some((header, end)) = datagram(frame) else { return };
        let is_honest = header.from.net < NET_FORGED_MIN && header.to.at() == self.target.node;
        if self.kind != Kind::Replays || !is_honest {
            return;
        }
        let Some(packet) = frame.get(..end.min(FRAME_OCTETS_MAX)) else { return };
        let first = packet.get(SNAP + LONG_LEN).copied().unwrap_or_default();
        let sort = (header.kind, u16::from_be_bytes([header.to.socket, first]));
        self.note(sort, packet);
    }

    /// A datagram that was heard, from another node: wherever it says its origin.
    pub(super) fn replay_apple(&self, packet: &[u8], out: &mut Octets<'_>) {
        let from = self.forged_node();
        Self::begin_apple(out, self.target.ether, Self::station_of_node(from), DDP);
        let body = packet.get(SNAP..).unwrap_or_default();
        out.put(body);
        let [high, low] = from.net.to_be_bytes();
        if let (Some(net), Some(node)) = (body.get(FROM_NET..FROM_NET + 2), body.get(FROM_NODE)) {
            let data = body.windows(3).enumerate().skip(LONG_LEN);
            for (at, _) in data.filter(|(_, word)| word.starts_with(net) && word[2] == *node) {
                out.write(SNAP + at, &[high, low, from.node]);
            }
        }
        out.write(SNAP + FROM_NET, &[high, low]);
        out.write(SNAP + FROM_NODE, &[from.node]);
        // Without a checksum.
        out.write(SNAP + 2, &[0, 0]);
        Self::end_apple(out);
    }
}
