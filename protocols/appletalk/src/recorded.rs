//! Octets that Linux 6.1 and netatalk 4.2.3 put on a wire, in a run of ours: read, judged, and made
//! again octet for octet.

use std::vec::Vec;

use crate::addr::Node;
use crate::atp::{HEADER_OCTETS, Header, Kind};
use crate::tests::hex;
use crate::{aarp, aep, ddp, nbp, rtmp, zip};

/// AARP of Linux: a probe, and an answer to 10.200.
const AARP: &[&str] = &[
    "0001 809b 06 04 0003 86a7461ed7be 00000a11 000000000000 00000a11",
    "0001 809b 06 04 0002 86a7461ed7be 00000a11 0200000000c8 00000ac8",
];

/// Datagrams, and which program sent each. The node is 10.17; 10.200 and 10.81 are the
/// others.
const DATAGRAMS: &[(&str, &str)] = &[
    ("Linux", "001f0015 000a000a c811 c804 04 02 68656c6c6f2066726f6d2031302e323030"),
    ("Linux", "0019d86a 000a000a c811 c804 04 02 6e6f20636865636b73756d"),
    ("aecho", "002282e5 000a000a c811 0484 04 01000000000752086b00000000c28f000000000000"),
    ("atalkd, RTMP response", "001767c3 000a000a c811 c701 01 000a0811000a80001382"),
    ("atalkd, RTMP data", "001df219 0000000a ff11 0101 01 000a0811000a80001382000a80001382"),
    ("atalkd", "001e498e 000a000a c811 c606 06 06a0000a001300060900070000f902584b"),
    ("atalkd", "001d0f9f 000a000a c811 c606 06 0620000a001302584b060900070000f9"),
    ("atalkd", "0021c2e5 000a000a c811 c606 06 06a0000a001303424144060900070000f902584b"),
    ("atalkd", "001475fc 000a000a c811 c606 06 0201000a02584b"),
    ("atalkd, zones", "00188c02 000a000a c811 c906 03 900012340100000102584b"),
    ("atalkd, zones", "00188d02 000a000a c811 c906 03 900012350100000102584b"),
    ("atalkd, zones", "00188d82 000a000a c811 c906 03 900012360000000102584b"),
    ("atalkd", "001b78a7 0000000a ff11 0202 02 2109000ac8c500013d013d02584b"),
    (
        "atalkd",
        "005c2966 000a000a c811 c502 02 3307 000a118200 06286e6f6e6529 09414650536572766572 012a \
         000a118001 0b546573745072696e746572 0b4c61736572577269746572 012a \
         000a118002 056775657374 07584b65726e656c 02584b",
    ),
    (
        "papd, status",
        "003e2774 000a000a c811 c980 03 90000101 00090000 00000000 \
         247374617475733a207072696e742073706f6f6c65722070726f63657373696e67206a6f62",
    ),
    (
        "papd, OpenConn",
        "003e6586 000a000a c811 ca80 03 90000202 07020000 83080000 \
         247374617475733a207072696e742073706f6f6c65722070726f63657373696e67206a6f62",
    ),
    ("papd, SendData", "0015179a 000a000a c811 cb83 03 60ff93c507030001"),
    ("papd, release", "00157710 000a000a c811 cb83 03 c0ff93c500000000"),
    ("papd, SendData again", "001517bc 000a000a c811 cb83 03 60ff93c607030002"),
    ("papd, CloseConn", "00158bf7 000a000a c811 cb83 03 9000030307070000"),
    ("pap, OpenConn", "00194fe7 000a000a 5111 8284 03 60019f3aed01000084080000"),
    ("pap, release", "0015c59e 000a000a 5111 8284 03 c0019f3a00000000"),
    ("pap, SendData", "0015f3a8 000a000a 5111 8284 03 60ff9f3bed030001"),
    (
        "afpd, GetStatus",
        "00a0f895 000a000a c811 cc82 03 90000401 00000000 \
         001a0028005d00008e5906286e6f6e652900006e007e000000000d4e65746174616c6b342e322e3304\
         0e41465056657273696f6e20312e310e41465056657273696f6e20322e300e41465056657273696f6e20322e31\
         06414650322e32010f4e6f20557365722041757468656e74\
         ce7b7a4179dcb1a948d6878c9ac01090020601000000000603000a1182",
    ),
    ("afpd, OpenSess", "0015979f 000a000a c811 cc82 03 9000040283000000"),
    ("afpd, a command's error", "0015b7e7 000a000a c811 cd83 03 90000403ffffec60"),
    ("afpd, CloseSess", "00159baf 000a000a c811 cd83 03 9000040400000000"),
];

#[test]
fn address_resolution_of_linux() {
    for text in AARP {
        let octets = hex(text);
        let packet = aarp::Packet::parse(&octets).expect(text);
        assert_eq!(packet.octets()[..], octets, "{text}");
        for short in 0..octets.len() {
            assert!(aarp::Packet::parse(&octets[..short]).is_err(), "{text}: {short} octets");
        }
    }
}

/// Encodes again what was read of a datagram; `None` if it cannot be read.
fn again(header: &ddp::Long, data: &[u8]) -> Option<Vec<u8>> {
    match (header.kind, header.from.socket) {
        (1, _) => {
            let packet = rtmp::Data::parse(data).ok()?;
            let made = if packet.routes.is_empty() {
                packet.response()
            } else {
                packet.packets().swap_remove(0)
            };
            Some(made)
        }
        (2, _) => nbp::Packet::parse(data).ok().map(|packet| packet.octets()),
        (3, from) => {
            let header = Header::parse(data).ok()?;
            let mut made = header.emit().to_vec();
            match from {
                6 if header.kind == Kind::Response => {
                    let list = zip::ListReply::parse(header.user, &data[HEADER_OCTETS..]).ok()?;
                    let (user, zones) = list.octets();
                    // What stands for the last part of a list means nothing for a single zone.
                    assert_eq!(user[2..], header.user[2..]);
                    made.extend(zones);
                }
                _ => made.extend_from_slice(&data[HEADER_OCTETS..]),
            }
            Some(made)
        }
        (4, _) => {
            let (function, echoed) = aep::split(data).ok()?;
            Some([&[function as u8], echoed].concat())
        }
        (6, _) => zip::Packet::parse(data).ok().map(|packet| packet.octets()),
        _ => None,
    }
}

#[test]
fn datagrams_of_linux_and_netatalk() {
    for (program, text) in DATAGRAMS {
        let octets = hex(text);
        let (header, data) = ddp::split(&octets).expect(program);
        assert!(header.is_intact(data), "{program}: {text}");
        assert_eq!(header.from.at(), Node::new(10, 17), "{program}");
        let made = again(&header, data).unwrap_or_else(|| panic!("{program}: {text}"));
        assert_eq!(made, data, "{program}");
        let made = ddp::join(header.to, header.from, header.kind, &made, true);
        assert_eq!(made.as_ref(), Some(&octets), "{program}");
        // What is cut is refused, or is shorter.
        for short in 0..data.len() {
            if let Some(made) = again(&header, &data[..short]) {
                assert!(made.len() <= short, "{program}: {short} octets of {text}");
            }
        }
    }
}

#[test]
fn transactions_of_papd_and_afpd() {
    let header = |program: &str| {
        let (_, text) = DATAGRAMS.iter().find(|(sent_by, _)| *sent_by == program).expect(program);
        let octets = hex(text);
        Header::parse(ddp::split(&octets).expect(program).1).expect(program)
    };
    let asks = header("papd, SendData");
    assert_eq!((asks.kind, asks.exactly_once, asks.number), (Kind::Request, true, 0xff));
    // PAP's connection, function and sequence number.
    assert_eq!(asks.user, [7, 3, 0, 1]);
    let release = header("papd, release");
    assert_eq!((release.kind, release.tid), (Kind::Release, asks.tid));
    let opened = header("afpd, OpenSess");
    assert!(opened.end_of_message && !opened.send_status);
    // ASP's session socket, its number, and the error.
    assert_eq!(opened.user, [0x83, 0, 0, 0]);
    assert_eq!(header("afpd, a command's error").user, (-5024_i32).to_be_bytes());
}
