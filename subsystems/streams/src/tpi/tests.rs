//! Primitives on octets, cut and random, and the table of states.

use super::state::{STATES, TABLE};
use super::*;
use crate::block::{Blocks, Mblk};
use alloc::string::ToString;
use alloc::vec::Vec;
use proptest::prelude::*;
use xk_testkit::kernel::TestKernel;

fn octets(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let value = |d: u8| char::from(d).to_digit(16).unwrap() as u8;
    digits.chunks(2).map(|pair| value(pair[0]) << 4 | value(pair[1])).collect()
}

const ADDR: &str = "020007d5 0a000002 00000000 00000000";
const PORT: &str = "020007d5 00000000 00000000 00000000";

/// The vectors of the interface, each with what it says.
fn vectors<'a>(addr: &'a [u8], port: &'a [u8]) -> Vec<(Vec<u8>, Primitive<'a>)> {
    let info = Info { address: 16, state: State::Idle, ..Info::datagrams(0x2400, 16, 64) };
    let bind = |number: &str| [number, "10000000 10000000 00000000", PORT].concat();
    let refused = Primitive::ErrorAck { prim: 6, refusal: Errno::EINVAL.into() };
    let sent = ["08000000 10000000 14000000 00000000 00000000", ADDR].concat();
    let said = "10000000 00240000 feffffff feffffff feffffff 10000000 40000000 00240000 03000000 \
                03000000 00000000";
    [
        (bind("06000000"), Primitive::BindReq { addr: port, conind: 0 }),
        (bind("11000000"), Primitive::BindAck { addr: port, conind: 0 }),
        (sent, Primitive::UnitdataReq { dest: addr, opt: &[] }),
        ("12000000 06000000 08000000 16000000".into(), refused),
        ("13000000 07000000".into(), Primitive::OkAck { prim: 7 }),
        (said.into(), Primitive::InfoAck(info)),
    ]
    .map(|(hex, primitive)| (octets(&hex), primitive))
    .into()
}

#[test]
fn primitives_are_read_and_written_as_their_vectors_say() {
    let cx = TestKernel::new(1);
    let blocks = Blocks::of_pool(cx.pool(), 1024, 1 << 20);
    let (addr, port) = (octets(ADDR), octets(PORT));
    for (octets, primitive) in vectors(&addr, &port) {
        assert_eq!(Primitive::parse(&octets), Ok(primitive));
        assert_eq!(primitive.emit(&blocks).unwrap().to_vec(), octets);
    }
}

/// One of each, with parts that lie apart.
fn all<'a>(addr: &'a [u8], opt: &'a [u8]) -> [Primitive<'a>; 26] {
    [
        Primitive::ConnReq { dest: addr, opt },
        Primitive::ConnRes { acceptor: 7, opt, seq: 9 },
        Primitive::DisconReq { seq: 3 },
        Primitive::DataReq { more: true },
        Primitive::ExdataReq { more: false },
        Primitive::InfoReq,
        Primitive::BindReq { addr, conind: 5 },
        Primitive::UnbindReq,
        Primitive::UnitdataReq { dest: addr, opt },
        Primitive::OptmgmtReq { opt, flags: 4 },
        Primitive::OrdrelReq,
        Primitive::ConnInd { src: addr, opt, seq: 11 },
        Primitive::ConnCon { res: addr, opt },
        Primitive::DisconInd { reason: 2, seq: u32::MAX },
        Primitive::DataInd { more: false },
        Primitive::ExdataInd { more: true },
        Primitive::InfoAck(Info::datagrams(1, 2, 3)),
        Primitive::BindAck { addr, conind: 1 },
        Primitive::ErrorAck { prim: 0, refusal: TliError::TBADADDR.into() },
        Primitive::OkAck { prim: 1 },
        Primitive::UnitdataInd { src: addr, opt },
        Primitive::UderrorInd { dest: addr, opt, error: 65 },
        Primitive::OptmgmtAck { opt, flags: 2 },
        Primitive::OrdrelInd,
        Primitive::AddrReq,
        Primitive::AddrAck { local: addr, remote: opt },
    ]
}

#[test]
fn each_primitive_is_read_as_written_and_cut_at_every_length() {
    let cx = TestKernel::new(1);
    let blocks = Blocks::of_pool(cx.pool(), 1024, 1 << 20);
    for (addr, opt) in [(&[1_u8; 16][..], &[2_u8; 12][..]), (&[], &[]), (&[1; 5], &[2; 3])] {
        for (number, primitive) in all(addr, opt).into_iter().enumerate() {
            assert_eq!(primitive.number() as usize, number);
            let whole = primitive.emit(&blocks).unwrap().to_vec();
            assert_eq!(Primitive::parse(&whole), Ok(primitive));
            for cut in 0..whole.len() {
                let error = Primitive::parse(&whole[..cut]);
                assert!(
                    matches!(error, Err(FormatError::Truncated | FormatError::Outside)),
                    "{primitive:?} cut to {cut}: {error:?}"
                );
            }
        }
    }
    assert_eq!(Primitive::parse(&26_u32.to_le_bytes()), Err(FormatError::Unknown));
}

#[test]
fn a_primitive_without_blocks_is_none() {
    let cx = TestKernel::new(1);
    let blocks = Blocks::of_pool(cx.pool(), 2, 1 << 20);
    let _held: Vec<Mblk> =
        core::iter::from_fn(|| blocks.allocb(1, crate::Priority::High)).collect();
    assert!(Primitive::InfoReq.emit(&blocks).is_none());
}

#[test]
fn every_cell_of_the_table_is_as_written_down() {
    assert_eq!(TABLE_TEXT.to_string(), include_str!("states.txt"));
}

/// Source of a row of the public tables: The Open Group, "Transport Provider Interface", chapter 3,
/// its three state tables; and the sentences of version 2 on options in the states that last.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Section {
    Initialization,
    Connectionless,
    Connections,
    Options2,
}

/// The public tables: for each event and section `state>next`, by the numbers of `sta_0` to
/// `sta_16`. A cell that is in none is empty there.
const PUBLIC: &[(Event, Section, &str)] = &[
    (Event::BindReq, Section::Initialization, "0>1"),
    (Event::UnbindReq, Section::Initialization, "3>2"),
    (Event::OptmgmtReq, Section::Initialization, "3>4"),
    (Event::OptmgmtReq, Section::Options2, "0>0 6>6 7>7 9>9 10>10 11>11"),
    (Event::BindAck, Section::Initialization, "1>3"),
    (Event::OptmgmtAck, Section::Initialization, "4>3"),
    (Event::OptmgmtAck, Section::Options2, "0>0 6>6 7>7 9>9 10>10 11>11"),
    (Event::ErrorAck, Section::Initialization, "1>0 2>3 4>3"),
    (Event::OkAck1, Section::Initialization, "2>0"),
    (Event::UnitdataReq, Section::Connectionless, "3>3"),
    (Event::UnitdataInd, Section::Connectionless, "3>3"),
    (Event::UderrorInd, Section::Connectionless, "3>3"),
    (Event::ConnReq, Section::Connections, "3>5"),
    (Event::ConnRes, Section::Connections, "7>8"),
    (Event::DisconReq, Section::Connections, "6>12 7>13 9>14 10>15 11>16"),
    (Event::DataReq, Section::Connections, "9>9 11>11"),
    (Event::ExdataReq, Section::Connections, "9>9 11>11"),
    (Event::OrdrelReq, Section::Connections, "9>10 11>3"),
    (Event::ConnInd, Section::Connections, "3>7 7>7"),
    (Event::ConnCon, Section::Connections, "6>9"),
    (Event::DataInd, Section::Connections, "9>9 10>10"),
    (Event::ExdataInd, Section::Connections, "9>9 10>10"),
    (Event::OrdrelInd, Section::Connections, "9>11 10>3"),
    (Event::DisconInd1, Section::Connections, "6>3 9>3 10>3 11>3"),
    (Event::DisconInd2, Section::Connections, "7>3"),
    (Event::DisconInd3, Section::Connections, "7>7"),
    (Event::ErrorAck, Section::Connections, "5>3 8>7 12>6 13>7 14>9 15>10 16>11"),
    (Event::OkAck1, Section::Connections, "5>6 12>3 14>3 15>3 16>3"),
    (Event::OkAck2, Section::Connections, "8>9 13>3"),
    (Event::OkAck3, Section::Connections, "8>3 13>3"),
    (Event::OkAck4, Section::Connections, "8>7 13>7"),
    (Event::PassConn, Section::Connections, "0>9 3>9"),
];

#[test]
fn each_cell_is_that_of_the_public_tables() {
    let mut public = alloc::collections::BTreeMap::new();
    for (event, section, cells) in PUBLIC {
        for cell in cells.split(' ') {
            let (from, to) = cell.split_once('>').unwrap();
            let number = |text: &str| text.parse::<u32>().unwrap();
            let before = public.insert((*event as u8, number(from)), (number(to), *section));
            assert_eq!(before, None, "{event:?} in {from} stands in two tables");
        }
    }
    let events: Vec<Event> = TABLE.iter().map(|(event, _)| *event).collect();
    assert_eq!(events.len() * STATES.len(), 28 * 17);
    for event in events {
        for state in STATES {
            let ours = state.after(event).map(|next| next as u32);
            let theirs = public.remove(&(event as u8, state as u32));
            assert_eq!(ours, theirs.map(|(to, _)| to), "{event:?} in {state:?}: {theirs:?}");
        }
    }
    assert!(public.is_empty(), "{public:?}");
}

proptest! {
    #[test]
    fn any_octets_are_read_or_refused(octets in prop::collection::vec(any::<u8>(), 0..80)) {
        let cx = TestKernel::new(1);
        let blocks = Blocks::of_pool(cx.pool(), 1024, 1 << 20);
        for number in 0..27_u32 {
            let mut octets = octets.clone();
            if let Some(first) = octets.first_chunk_mut() {
                *first = number.to_le_bytes();
            }
            if let Ok(primitive) = Primitive::parse(&octets) {
                let again = primitive.emit(&blocks).unwrap();
                prop_assert_eq!(Primitive::of(&again), Ok(primitive));
            }
        }
    }
}
