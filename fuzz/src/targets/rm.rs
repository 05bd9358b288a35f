//! Record marking: any octets, cut anywhere, make records or none.

use crate::harness::Rig;
use std::rc::Rc;
use xk_core::graph::{Params, Value};
use xk_core::{Answer, Part, Participants};
use xk_kit::net::stream::{StreamAbort, StreamConsumed, StreamSet, StreamSpace};
use xk_rm::wire::{MARK_OCTETS, Mark};
use xk_testkit::kernel::{Lower, Top};

/// Octets of a record, at most, here.
const RECORD_MAX: usize = 2000;

/// Reads `data` as a stream, in pieces as long as its first octet says, and once more in one piece:
/// both make the same records.
pub(crate) fn stack(data: &[u8]) {
    if let Some(octets) = data.first_chunk::<MARK_OCTETS>() {
        assert_eq!(Mark::parse(*octets).emit(), *octets, "the mark changed");
    }
    let Some((piece, stream)) = data.split_first() else {
        return;
    };
    let cut = records(stream, usize::from(*piece).max(1));
    let whole = records(stream, stream.len().max(1));
    assert_eq!(cut, whole, "the records depend on where they are cut");
}

/// The records that a peer's connection brings, and how often it was broken off.
fn records(stream: &[u8], piece: usize) -> (Vec<Vec<u8>>, u64) {
    let mut params = Params::default();
    params.set("record_max", Value::Octets(RECORD_MAX as u64));
    let rig = Rig::new(Lower::link(u32::MAX), 16, &xk_rm::ENTRY, &params);
    let top = Top::add(&rig.cx, "top");
    // The lower layer is one of streams, and its peer reads.
    rig.bottom.on_ask(Rc::new(|_, ask| {
        if let Some(space) = ask.get::<StreamSpace>() {
            space.octets = u32::MAX;
        } else if let Some(set) = ask.get::<StreamSet>() {
            set.taken = true;
        } else if ask.get::<StreamConsumed>().is_none() && ask.get::<StreamAbort>().is_none() {
            return Answer::Unknown;
        }
        Answer::Answered
    }));
    rig.start();
    let any = Participants::local(Part::Any);
    assert!(top.enable(&rig.cx, &rig.layer, any).is_ok(), "nothing is enabled");
    let below = rig.below(None);
    for piece in stream.chunks(piece) {
        if let Some(message) = rig.message(piece, usize::MAX) {
            drop(below.pop(&rig.cx, message));
        }
    }
    let received = top.take_received().into_iter();
    let records: Vec<Vec<u8>> = received.map(|r| r.message.octets().collect()).collect();
    assert!(records.iter().all(|record| record.len() <= RECORD_MAX), "beyond the bound");
    let broken = rig.dropped_but(&[]);
    top.clear();
    drop(below);
    rig.stop();
    (records, broken)
}
