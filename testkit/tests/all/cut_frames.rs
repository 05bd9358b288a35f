//! Frames of a hostile other side of a cut: of any octets, and valid ones in any order.

use std::rc::Rc;
use xk_core::control::Question;
use xk_core::object::ProtocolId;
use xk_core::{HostAddr, Kernel, Part, reason};
use xk_domains::{Arrival, Carrier, Known, Port, Queue, SendError, add_port, upper_proxy};
use xk_kit::control::MaxPacket;
use xk_testkit::kernel::{Bottom, Lower, TestKernel, octets};

const SEEDS: u64 = 300;
const FRAMES: usize = 200;
/// Number of operations.
const OPERATIONS: u64 = 23;
/// Offers of sessions are the lower side's to make.
const OFFER: u8 = 6;

/// The host that sends from outside.
const PEER: [u8; 4] = [10, 0, 0, 2];

/// A number that the other side may have seen, or another.
fn number(cx: &Kernel, seen: &[u32]) -> u32 {
    match cx.random().below(4) {
        0 => cx.random().next_u32(),
        1 => cx.random().below(4) as u32,
        _ => seen.get(cx.random().below(seen.len().max(1) as u64) as usize).map_or(1, |n| *n),
    }
}

/// A frame in no order; of each `wild` (0: none) one is not sound.
fn frame(cx: &Kernel, seen: &[u32], granted: ProtocolId, wild: u64) -> Vec<u8> {
    let mut frame = vec![0; 16];
    // The user that is charged, whom one that is not trusted may name.
    frame[12] = cx.random().below(3) as u8;
    let op = cx.random().below(OPERATIONS) as u8 + 1;
    frame[0] = op;
    frame[4..8].copy_from_slice(&number(cx, seen).to_le_bytes());
    frame[8..12].copy_from_slice(&number(cx, seen).to_le_bytes());
    let upper = (cx.random().below(3) as u32 + 200).to_le_bytes();
    let ends = [2, 1, 0, 1, 3, 4, 10, 0, 0, cx.random().below(3) as u8];
    match op {
        // Open, enable: receiver, selector, participants.
        1 | 3 => {
            frame[8..12].copy_from_slice(&granted.0.to_le_bytes());
            frame.extend([upper, upper].as_flattened());
            frame.extend(if op == 1 { &ends[..] } else { &[1, 1, 0] });
        }
        // Opened: an error.
        2 => frame.extend([0, 5]),
        // Disable: receiver, enable.
        5 => {
            frame[4..8].copy_from_slice(&granted.0.to_le_bytes());
            frame.extend(upper);
            frame.extend((cx.random().below(4) + 1).to_le_bytes());
        }
        // Unwanted, refused: a reason.
        8 | 16 => {
            frame.extend(reason::PROHIBITED.key().to_le_bytes());
            frame.push(reason::PROHIBITED.class as u8);
        }
        // Questions: key, no layer has passed it up, fields.
        21 | 22 => {
            frame.extend(MaxPacket::KEY.to_le_bytes());
            frame.extend([0; 6]);
        }
        // Messages, replies, answers: anything.
        _ => frame.resize(16 + cx.random().below(24) as usize, 7),
    }
    if wild != 0 && cx.random().below(wild) == 0 {
        let at = cx.random().below(frame.len() as u64) as usize;
        frame[at] ^= 1 << cx.random().below(8);
    }
    frame
}

/// The first and second numbers of what has come, and whether there was anything.
fn look(cx: &Kernel, carrier: &Queue, seen: &mut Vec<u32>) {
    while let Arrival::Frame(frame) = carrier.receive(cx) {
        let octets = octets(&frame);
        for at in [4, 8] {
            let number = octets[at..at + 4].try_into().map(u32::from_le_bytes);
            seen.extend(number);
        }
    }
}

#[test]
fn no_frames_harm_the_side_below() {
    let mut lost = 0;
    for seed in 0..SEEDS {
        let (cx, wild) = (TestKernel::new(seed), [0, 20, 200][seed as usize % 3]);
        let bottom = Bottom::add(&cx, "bottom", Lower::host([10, 0, 0, 1], 253));
        let (mine, theirs) = Queue::pair(64);
        let port = Port::new(Box::new(mine), Known::of(&[]));
        port.grant(bottom.protocol());
        port.admit(|cx: &Kernel, port: &Rc<Port>, of| {
            let is_known = (200..202).contains(&of.0);
            is_known.then(|| upper_proxy(cx, port, of, "top", &format!("top {}", of.0)))
        });
        let wire = add_port(&cx, &port, "port");
        let nothing = cx.pool().empty(0).unwrap();
        let mut seen = Vec::new();
        for _ in 0..FRAMES {
            let octets = frame(&cx, &seen, bottom.protocol().id(), wild);
            if octets[0] == OFFER {
                continue;
            }
            match theirs.send(&cx, &octets, &nothing) {
                Ok(()) | Err(SendError::Full) => {}
                Err(error) => assert_eq!(error, SendError::Lost, "seed {seed}"),
            }
            port.poll(&cx, usize::MAX);
            bottom.inject(&cx, Some(Part::Host(HostAddr::from(PEER))), cx.message(b"from outside"));
            drop(bottom.take_sent());
            // It may not look for a while: then what is sent to it waits, and is refused at last.
            if cx.random().below(4) == 0 {
                look(&cx, &theirs, &mut seen);
            }
            port.flush(&cx);
        }
        lost += u64::from(port.is_lost());
        assert!(wild != 0 || !port.is_lost(), "seed {seed}: sound frames are borne");
        theirs.close();
        port.poll(&cx, usize::MAX);
        assert!(port.is_lost(), "seed {seed}: the other side is gone");
        assert_eq!(bottom.held().len(), 0, "seed {seed}: it holds no session any more");
        assert_eq!(bottom.enables(), 0, "seed {seed}: nor an enable");
        drop((nothing, wire));
        cx.stop();
        assert_eq!(cx.live(), (0, 0), "seed {seed}: no message is left");
    }
    // Frames that are not sound are found out, and sound ones in no order are borne. No user that
    // is named is wrong.
    assert!((SEEDS / 4..SEEDS).contains(&lost), "{lost} of {SEEDS} sides were cut off");
}
