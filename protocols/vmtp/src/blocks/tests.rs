use super::*;
use crate::wire::{MDM, SDA};
use alloc::vec::Vec;
use xk_testkit::kernel::{TestKernel, octets};

fn header(size: usize) -> Header {
    Header {
        code: SDA | 3,
        transaction: 7,
        user: [0, 0, 0, 0, 0, 0, size as u32],
        ..Header::default()
    }
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 251) as u8).collect()
}

/// The data of a packet with these blocks of a group, and its header.
fn packet(cx: &TestKernel, size: usize, group: u32, mask: u32) -> (Header, Message) {
    let whole = cx.message(&pattern(size));
    let octets = group_octets(size, group);
    let mut data = cut(&whole, group as usize * GROUP_OCTETS, octets, mask).unwrap();
    let len = padded(octets_in(mask, octets));
    data.pad(len).unwrap();
    let header = Header { transaction: 7 + group, ..header(size) };
    (header.with_data(mask, len), data)
}

#[test]
fn the_example_of_the_rfc() {
    // Section 2.13: a segment of 0x1D00 octets, of which MsgDelivery has 0x74FF, on Ethernet.
    let mut mask = 0x74ff;
    let mut masks = Vec::new();
    while mask != 0 {
        let now = lowest(mask, blocks_in(1500 - 20));
        masks.push(now);
        mask &= !now;
    }
    assert_eq!(masks, [0x3, 0xc, 0x30, 0xc0, 0x1400, 0x6000]);
    assert_eq!(MDM, 0x2000_0000);
}

#[test]
fn runs_and_groups() {
    assert_eq!(first_run(0b0111_0000), (4, 7));
    assert_eq!(first_run(u32::MAX), (0, 32));
    assert_eq!((run(0, 32), run(4, 7), run(31, 32)), (u32::MAX, 0b0111_0000, 1 << 31));
    assert_eq!([0, 1, GROUP_OCTETS, GROUP_OCTETS + 1].map(groups_of), [1, 1, 1, 2]);
    assert_eq!([0, 580, 1092, 1480, 9000, 70_000].map(blocks_in), [1, 1, 2, 2, 17, 32]);
}

#[test]
fn parts_in_any_order_and_doubled_make_the_message() {
    let cx = TestKernel::new(1);
    for size in [1025, 1300, 5000, 16_384] {
        let all = blocks_of(size);
        for turn in 0..40u64 {
            let incoming = Incoming::default();
            incoming.begin(&header(size));
            let random = xk_core::random::Random::new(turn);
            let mut taken = Taken::New;
            while taken != Taken::Whole {
                let mask = all & random.next_u32() & random.next_u32();
                if mask == 0 {
                    continue;
                }
                let before = incoming.held();
                let (header, data) = packet(&cx, size, 0, mask);
                taken = incoming.take(&header, data).unwrap();
                assert_eq!(taken == Taken::Duplicate, mask & !before == 0);
            }
            assert_eq!(octets(&incoming.finish(&cx).unwrap()), pattern(size));
            assert!(incoming.first().is_none() && incoming.held() == 0);
        }
    }
}

#[test]
fn masks_that_lie_are_refused() {
    let cx = TestKernel::new(1);
    let size = 1300;
    let incoming = Incoming::default();
    incoming.begin(&header(size));
    // Blocks that the segment does not have.
    for mask in [0b1000, 1 << 31, u32::MAX] {
        let (header, data) = packet(&cx, 16_384, 0, mask);
        let lie = Header { user: [0, 0, 0, 0, 0, 0, size as u32], ..header };
        assert_eq!(incoming.take(&lie, data), Err(Error::Delivery));
    }
    // More or fewer octets than the blocks have.
    for (mask, said) in [(0b1, 0b11), (0b11, 0b1), (0b100, 0b1), (0b1, 0b100), (0b1, 0)] {
        let (header, data) = packet(&cx, size, 0, mask);
        let lie = Header { delivery: said, ..header };
        assert_eq!(incoming.take(&lie, data), Err(Error::Delivery));
    }
    // Another message, or a group beyond its end.
    let (fine, _) = packet(&cx, size, 0, 1);
    for lie in [
        Header { code: SDA | 4, ..fine },
        Header { transaction: 8, ..fine },
        Header { transaction: 6, ..fine },
        Header { user: [1, 0, 0, 0, 0, 0, size as u32], ..fine },
        Header { user: [0, 0, 0, 0, 0, 0, size as u32 + 1], ..fine },
    ] {
        let (_, data) = packet(&cx, size, 0, 1);
        assert_eq!(incoming.take(&lie, data), Err(Error::Delivery));
    }
    assert_eq!(incoming.held(), 0);
}

#[test]
fn groups_come_one_behind_the_other() {
    let cx = TestKernel::new(1);
    let size = 2 * GROUP_OCTETS + 100;
    let incoming = Incoming::default();
    incoming.begin(&header(size));
    let take = |group, mask| {
        let (header, data) = packet(&cx, size, group, mask);
        (incoming.take(&header, data).unwrap(), incoming.is_before(&header))
    };
    assert_eq!(take(1, 3), (Taken::Duplicate, false));
    assert_eq!(take(0, u32::MAX >> 1), (Taken::New, false));
    assert_eq!(take(0, 1 << 31), (Taken::Group, true));
    assert_eq!(take(0, 1 << 31), (Taken::Duplicate, true));
    assert_eq!(take(1, u32::MAX), (Taken::Group, true));
    assert_eq!(take(2, 1), (Taken::Whole, false));
    assert_eq!(octets(&incoming.finish(&cx).unwrap()), pattern(size));
}
