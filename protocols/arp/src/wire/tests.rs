use super::*;
use proptest::prelude::*;
use smoltcp::wire as peer;

const REQUEST: [u8; PACKET_LEN] = [
    0x00, 0x01, 0x08, 0x00, 0x06, 0x04, 0x00, 0x01, 0x00, 0x00, 0x5e, 0x00, 0x53, 0x01, 0xc0, 0x00,
    0x02, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xc0, 0x00, 0x02, 0x02,
];
const ETH: [EthAddr; 2] = [EthAddr([0, 0, 0x5e, 0, 0x53, 1]), EthAddr([0, 0, 0x5e, 0, 0x53, 2])];
const IP: [Ipv4; 2] = [Ipv4::new(192, 0, 2, 1), Ipv4::new(192, 0, 2, 2)];

#[test]
fn request_and_reply() {
    let request = Packet::parse(&REQUEST).unwrap();
    assert_eq!(request, Packet::request(ETH[0], IP[0], IP[1]));
    let reply = request.reply(ETH[1]);
    assert_eq!((reply.operation, reply.sender_eth), (Operation::Reply, ETH[1]));
    assert_eq!(reply.sender_ip, IP[1]);
    assert_eq!((reply.target_eth, reply.target_ip), (ETH[0], IP[0]));
    let mut octets = [0; PACKET_LEN];
    request.emit(&mut octets);
    assert_eq!(octets, REQUEST);
}

#[test]
fn conflict_detection() {
    let probe = Packet::probe(ETH[0], IP[0]);
    assert!(probe.is_probe() && !probe.is_announcement());
    assert_eq!(probe.target_ip, IP[0]);
    let announcement = Packet::announcement(ETH[0], IP[0]);
    assert!(!announcement.is_probe() && announcement.is_announcement());
    assert_eq!((announcement.sender_ip, announcement.sender_eth), (IP[0], ETH[0]));
    assert!(probe.conflicts_with(ETH[1], IP[0], true), "two probe at once");
    assert!(!probe.conflicts_with(ETH[1], IP[0], false), "a probe claims nothing");
    assert!(!probe.conflicts_with(ETH[0], IP[0], true), "our own probe came back");
    assert!(announcement.conflicts_with(ETH[1], IP[0], false));
    assert!(!announcement.conflicts_with(ETH[1], IP[1], true));
}

#[test]
fn every_wrong_field() {
    let parse = |at: usize, value: u8| {
        let mut octets = REQUEST;
        octets[at] = value;
        Packet::parse(&octets)
    };
    assert_eq!(parse(1, 6), Err(Error::Hardware(6)));
    assert_eq!(parse(3, 6), Err(Error::Protocol(0x0806)));
    assert_eq!(parse(4, 8), Err(Error::AddressLength(8, 4)));
    assert_eq!(parse(5, 16), Err(Error::AddressLength(6, 16)));
    assert_eq!(parse(6, 1), Err(Error::Operation(257)));
    assert_eq!(parse(7, 3), Err(Error::Operation(3)));
}

#[test]
fn every_truncation() {
    for len in 0..PACKET_LEN {
        assert_eq!(Packet::parse_slice(&REQUEST[..len]), Err(Error::Truncated));
    }
    let mut padded = [0; 46];
    padded[..PACKET_LEN].copy_from_slice(&REQUEST);
    assert_eq!(Packet::parse_slice(&padded), Packet::parse(&REQUEST));
}

fn packets() -> impl Strategy<Value = Packet> {
    (any::<bool>(), any::<[u8; 6]>(), any::<u32>(), any::<[u8; 6]>(), any::<u32>()).prop_map(
        |(reply, sender_eth, sender_ip, target_eth, target_ip)| Packet {
            operation: if reply { Operation::Reply } else { Operation::Request },
            sender_eth: EthAddr(sender_eth),
            sender_ip: Ipv4::from_bits(sender_ip),
            target_eth: EthAddr(target_eth),
            target_ip: Ipv4::from_bits(target_ip),
        },
    )
}

fn to_smoltcp(packet: &Packet) -> peer::ArpRepr {
    peer::ArpRepr::EthernetIpv4 {
        operation: peer::ArpOperation::from(packet.operation as u16),
        source_hardware_addr: peer::EthernetAddress(packet.sender_eth.0),
        source_protocol_addr: packet.sender_ip,
        target_hardware_addr: peer::EthernetAddress(packet.target_eth.0),
        target_protocol_addr: packet.target_ip,
    }
}

fn to_etherparse(packet: &Packet) -> etherparse::ArpEthIpv4Packet {
    etherparse::ArpEthIpv4Packet {
        operation: etherparse::ArpOperation(packet.operation as u16),
        sender_mac: packet.sender_eth.0,
        sender_ipv4: packet.sender_ip.octets(),
        target_mac: packet.target_eth.0,
        target_ipv4: packet.target_ip.octets(),
    }
}

proptest! {
    #[test]
    fn agrees_with_oracles(packet in packets()) {
        let mut octets = [0; PACKET_LEN];
        packet.emit(&mut octets);
        prop_assert_eq!(Packet::parse(&octets), Ok(packet));

        let theirs = peer::ArpPacket::new_checked(&octets[..]).unwrap();
        prop_assert_eq!(peer::ArpRepr::parse(&theirs).unwrap(), to_smoltcp(&packet));
        let theirs = etherparse::ArpPacketSlice::from_slice(&octets).unwrap().to_packet();
        prop_assert_eq!(theirs.try_eth_ipv4().unwrap(), to_etherparse(&packet));

        let mut octets = [0; PACKET_LEN];
        to_smoltcp(&packet).emit(&mut peer::ArpPacket::new_unchecked(&mut octets[..]));
        prop_assert_eq!(Packet::parse(&octets), Ok(packet));
        prop_assert_eq!(Packet::parse(&to_etherparse(&packet).to_bytes()), Ok(packet));
    }
}
