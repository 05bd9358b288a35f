//! Captures over a loopback, read back by another reader.

use super::*;
use pcap_parser::pcapng::{Block, parse_block_le};
use std::rc::Rc;
use xk_core::graph::{Params, Value};
use xk_core::{Participants, SessionRef, Time};
use xk_testkit::kernel::{TestKernel, Top};

fn wire(cx: &Kernel) -> ProtocolRef {
    let (entry, params) = (&xk_loopback::ENTRY, Params::default());
    entry.add(cx, "wire", &[], &params).unwrap()
}

/// Sends two messages through the layer.
fn traffic(cx: &Kernel, wire: &ProtocolRef, capture: &ProtocolRef) {
    let sink = Top::add(cx, "sink");
    cx.start().unwrap();
    let session = sink.open(cx, capture, Participants::default()).unwrap();
    for n in 1..=2 {
        cx.set_now(Time::from_us(u64::from(n)));
        let mut message = cx.pool().copy_from(0, &[n; 3]).unwrap();
        message.join(cx.pool().copy_from(0, &[9; 2]).unwrap());
        session.push(cx, message).unwrap();
        wire.wire().unwrap().poll(cx, wire, 1);
    }
}

fn captured(file: &std::path::Path, snap: u64, epoch: Option<Duration>) -> Vec<u8> {
    let cx = TestKernel::new(1);
    if let Some(epoch) = epoch {
        cx.surround(Rc::new(EpochOffset(epoch)));
    }
    let wire = wire(&cx);
    let mut params = Params::default();
    params.set("file", Value::Text(file.to_str().unwrap().into()));
    params.set("snap", Value::Octets(snap));
    let lowers = core::slice::from_ref(&wire);
    let entry = &crate::ENTRY;
    let capture = entry.add(&cx, "tap of one", lowers, &params).unwrap();
    traffic(&cx, &wire, &capture);
    cx.stop();
    assert_eq!(capture.head().drops().total(), 0);
    std::fs::read(file).unwrap()
}

/// A directory of this test's own, removed at the end.
struct Folder(std::path::PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let place = std::env::temp_dir().join(format!("xk-pcap-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&place).unwrap();
        Self(place)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn what_crosses_is_in_the_file() {
    let place = Folder::new("crosses");
    let octets = captured(&place.0.join("a.pcapng"), 4, Some(Duration::from_secs(1)));
    let (mut left, mut frames) = (octets.as_slice(), Vec::new());
    while !left.is_empty() {
        let (rest, block) = parse_block_le(left).unwrap();
        left = rest;
        match block {
            Block::InterfaceDescription(idb) => assert_eq!((idb.linktype.0, idb.snaplen), (147, 4)),
            Block::EnhancedPacket(epb) => {
                let time_ns = (u64::from(epb.ts_high) << 32) | u64::from(epb.ts_low);
                let comment = epb.options.first().map(|o| o.value.to_vec()).unwrap_or_default();
                frames.push((time_ns, epb.origlen, epb.data[..4].to_vec(), comment));
            }
            _ => {}
        }
    }
    let times: Vec<u64> = frames.iter().map(|f| f.0).collect();
    assert_eq!(times, [1_000_001_000, 1_000_001_000, 1_000_002_000, 1_000_002_000]);
    assert!(frames.iter().all(|f| f.1 == 5));
    assert_eq!(frames[0].2, [1, 1, 1, 9]);
    let text = String::from_utf8_lossy(&octets);
    assert_eq!(text.matches("sink > wire").count(), 4);
    assert!(text.contains("tap of one") && text.contains("above wire"));
}

/// Link types in a file: the number of each interface, in order, and of each message.
fn link_types(octets: &[u8]) -> (Vec<i32>, Vec<u32>) {
    let (mut left, mut interfaces, mut messages) = (octets, Vec::new(), Vec::new());
    while !left.is_empty() {
        let (rest, block) = parse_block_le(left).unwrap();
        left = rest;
        match block {
            Block::InterfaceDescription(idb) => interfaces.push(idb.linktype.0),
            Block::EnhancedPacket(epb) => messages.push(epb.if_id),
            _ => {}
        }
    }
    (interfaces, messages)
}

/// A session of the capture for an upper protocol of this kind.
fn session(cx: &Kernel, capture: &ProtocolRef, kind: &'static str) -> SessionRef {
    Top::add_kind(cx, kind, kind).open(cx, capture, Participants::default()).unwrap()
}

/// Above a layer, what is captured has no header of the wire any more.
#[test]
fn the_link_type_is_that_of_what_crosses() {
    let cx = TestKernel::new(1);
    let place = Folder::new("types");
    let capture = |name: &'static str, lower: &ProtocolRef| {
        let file = place.0.join(name);
        let out = Box::new(File::create(&file).unwrap());
        let body = PassThrough::new(lower.clone(), Capture::new(name, 0, out));
        (file, cx.add_protocol("pcap", name, body))
    };
    let wire = wire(&cx);
    let (low, pcap) = capture("low", &wire);
    // One more that looks on below is no layer.
    let (lower, above) = capture("lower", &pcap);
    let layer = xk_null::add(&cx, "null", above.clone(), 16);
    let (high, top) = capture("high", &layer);
    cx.numbers_mut()
        .add(xk_core::numbers::Number { upper: "ip", lower: "null", number: 1 })
        .unwrap();
    cx.numbers_mut()
        .add(xk_core::numbers::Number { upper: "arp", lower: "null", number: 2 })
        .unwrap();
    cx.start().unwrap();
    for kind in ["arp", "ip"] {
        let message = cx.pool().copy_from(64, &[0x45; 20]).unwrap();
        session(&cx, &top, kind).push(&cx, message).unwrap();
    }
    cx.stop();
    let wires = (vec![147], vec![0, 0]);
    for file in [low, lower] {
        assert_eq!(link_types(&std::fs::read(file).unwrap()), wires);
    }
    assert_eq!(link_types(&std::fs::read(high).unwrap()), (vec![147, 228], vec![0, 1]));
}

#[test]
fn the_same_run_gives_the_same_octets() {
    let place = Folder::new("same");
    let (one, two) = (place.0.join("1.pcapng"), place.0.join("2.pcapng"));
    assert_eq!(captured(&one, 0, None), captured(&two, 0, None));
}

#[test]
fn a_file_that_cannot_be_made_is_reported() {
    let cx = TestKernel::new(1);
    let wire = wire(&cx);
    let mut params = Params::default();
    params.set("file", Value::Text("/nowhere/at/all.pcapng".into()));
    let lowers = core::slice::from_ref(&wire);
    let entry = &crate::ENTRY;
    let built = entry.add(&cx, "pcap", lowers, &params);
    assert!(matches!(built, Err(BuildError::Environment { param: Some("file"), .. })));
}

/// An output with room for the file's head only.
struct Small(usize);

impl Write for Small {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        let taken = octets.len().min(self.0);
        self.0 -= taken;
        if taken == 0 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(taken) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_disk_stops_the_capture_and_nothing_else() {
    for room in [0, 200] {
        let cx = TestKernel::new(1);
        let wire = wire(&cx);
        let capture = Capture::new("pcap", 0, Box::new(Small(room)));
        let capture = cx.add_protocol("pcap", "pcap", PassThrough::new(wire.clone(), capture));
        traffic(&cx, &wire, &capture);
        let sink = cx.find_protocol("sink").unwrap();
        assert_eq!(sink.head().received(), 2);
        let missing = capture.head().drops().of(&NOT_CAPTURED);
        assert_eq!(missing, if room == 0 { 4 } else { 3 });
    }
}
