//! The transport provider interface of STREAMS: the codec, and providers that get anything.

use xk_core::kernel::Config;
use xk_core::message::{Pool, PoolConfig};
use xk_core::random::Random;
use xk_core::shepherd::{Limits, NoSwitch, Shepherds};
use xk_core::{Kernel, ProtocolRef};
use xk_streams::head::Want;
use xk_streams::tpi::Primitive;
use xk_streams::{Blocks, Bounds, Kind, Mblk};

#[path = "../../../subsystems/streams/tests/all/tic.rs"]
mod tic;

fn pool() -> Pool {
    Pool::new(&PoolConfig::with_octets_max(4 << 20)).expect("a pool")
}

/// Reads `data` as a control part; what can be read is written and read as the same again.
pub(crate) fn wire(data: &[u8]) {
    let blocks = Blocks::of_pool(&pool(), 16, 1 << 16);
    if let Ok(primitive) = Primitive::parse(data) {
        let again = primitive.emit(&blocks).expect("room for one");
        assert_eq!(Primitive::of(&again), Ok(primitive), "it changed");
        assert_eq!(again.kind(), primitive.kind());
    }
}

/// Kind of a script's message.
fn kind(octet: u8) -> Kind {
    match octet % 8 {
        0..=3 => Kind::Proto,
        4 => Kind::PcProto,
        5 => Kind::Data,
        6 => Kind::Ioctl,
        _ => Kind::Flush,
    }
}

/// Sends the messages of a script down three streams of each loopback provider: whatever they say,
/// the providers go on, and at the end no block is left.
pub(crate) fn providers(data: &[u8]) {
    let cx = Kernel::new(Config {
        random: Random::new(1),
        pool: pool(),
        shepherds: Shepherds::new(Box::new(NoSwitch), Limits::default()),
        timers_max: 1024,
    });
    let (streams, _): (_, ProtocolRef) = xk_streams::add(&cx, "streams", Bounds::default());
    tic::add(&streams);
    let names = ["ticlts", "ticots", "ticotsord"];
    let open = |name| {
        let stream = streams.open(&cx, name).expect("room for a few");
        stream.set_nonblocking(true);
        stream
    };
    let all: Vec<_> = (0..3).flat_map(|_| names.map(open)).collect();
    let mut left = data;
    // To which stream, what it is, how long, the octets.
    while let Some(([to, what, length], rest)) = left.split_first_chunk() {
        let (octets, rest) = rest.split_at(rest.len().min(usize::from(*length)));
        left = rest;
        let stream = &all[usize::from(*to) % all.len()];
        let copy = |kind, octets: &[u8]| streams.blocks().copy(kind, 0, octets);
        let behind = copy(Kind::Data, octets.get(8..).unwrap_or_default());
        let mp = copy(kind(*what), octets).zip(behind).map(|(mp, behind)| mp.linked(behind));
        if let Some(mp) = mp {
            let _ = stream.putp(&cx, mp);
        }
        if what & 0x80 != 0 {
            let _: Option<Mblk> = stream.getp(&cx, Want::Any).ok();
        }
        cx.run_due();
    }
    for stream in &all {
        stream.close(&cx);
    }
    cx.stop();
    assert_eq!(streams.blocks().stats().messages, 0, "blocks are left");
}
