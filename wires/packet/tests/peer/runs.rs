//! Frames that stand for runs of segments.

use xk_packet::{Note, Options, TransmitError, Transmitted};
use xk_testkit::needs_root;

use crate::{EXPERIMENT, frames, open, pair, send};

/// A run of TCP segments from one socket to another: the interface of memory between carries it as
/// it is.
pub(crate) fn cross_whole() {
    needs_root!("ip");
    let pair = pair("packet run");
    let offload = Options { offload: true, ..Options::default() };
    let mut left = open(&pair.left, "v0", &offload);
    let mut right = open(&pair.right, "v1", &Options::default());
    let payload: Vec<u8> = (0..60_000u32).map(|at| (at * 7) as u8).collect();
    let mut headers = [&[2; 12][..], &[8, 0, 0x45, 0]].concat();
    headers.extend((40 + payload.len() as u16).to_be_bytes());
    headers.extend([0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    headers.extend([0, 7, 0, 9, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 9, 9, 0, 0, 0, 0]);
    let run =
        Note::Run { start: 34, field: 16, header_octets: 54, segment_octets: 1446, reduced: false };
    for _ in 0..3 {
        send(&mut left, &[&[0xff; 12], &EXPERIMENT, b"before"]);
        let sent = left.transmit_noted(&[&headers, &payload], run).unwrap();
        assert_eq!(sent, Transmitted::Queued);
        send(&mut left, &[&[0xff; 12], &EXPERIMENT, b"behind"]);
        let found = frames(&mut right, 3);
        assert_eq!(found[0].0[14..], *b"before");
        let (frame, info) = &found[1];
        assert_eq!((info.segment_octets, frame.len()), (1446, 60_054));
        assert!(info.checksum_not_ready && !info.truncated);
        assert_eq!(frame[54..], payload);
        assert_eq!(found[2].0[14..], *b"behind");
    }
    let long = vec![0; 65_536];
    let refused = left.transmit_noted(&[&headers, &long], run).unwrap_err();
    assert!(matches!(refused, TransmitError::TooLong { .. }));
    let refused = right.transmit_noted(&[&headers, &payload], run);
    assert_eq!(refused.unwrap_err(), TransmitError::Open);
}
