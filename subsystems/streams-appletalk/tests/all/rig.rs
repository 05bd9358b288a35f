//! Hosts with Ethernet and DDP in STREAMS on one link that loses what it is told to.

use core::time::Duration;
use std::cell::Cell;
use std::rc::Rc;
use xk_core::{Kernel, ProtocolRef};
use xk_streams::head::Want;
use xk_streams::tpi::Primitive;
use xk_streams::{Bounds, Errno, Mblk, Stream, Streams};
use xk_streams_appletalk::ddp::{self, Settings};
use xk_streams_appletalk::{aep, atp, nbp, rtmp};
use xk_testkit::kernel::{Bottom, Lower, TestKernel};

/// One host.
pub(crate) struct Host {
    pub(crate) cx: TestKernel,
    pub(crate) wire: Bottom,
    pub(crate) streams: Rc<Streams>,
    pub(crate) ether: ProtocolRef,
    pub(crate) ddp: ProtocolRef,
    pub(crate) atp: ProtocolRef,
}

impl Host {
    /// The host of this node number, at this place on the link.
    pub(crate) fn new(place: u8, node: u8) -> Self {
        let cx = TestKernel::new(u64::from(place));
        let wire = Bottom::add(&cx, "wire", Lower::wire([2, 0, 0, 0, 0, place]));
        let (streams, _) = xk_streams::add(&cx, "streams", Bounds::default());
        for entry in [&ddp::ENTRY, &aep::ENTRY, &atp::ENTRY, &nbp::ENTRY, &rtmp::ENTRY] {
            for number in entry.type_numbers() {
                cx.numbers_mut().add(number).unwrap();
            }
        }
        let device = xk_streams_inet::wire::add(&cx, "device", wire.protocol().clone()).unwrap();
        let ether = xk_streams_inet::ether::add(&cx, "ether", device).unwrap();
        let range = "10-19".parse().unwrap();
        let settings = Settings { range, node: Some(node), ..Settings::default() };
        let ddp = ddp::add(&cx, "ddp", ether.clone(), settings).unwrap();
        aep::add(&cx, "aep", ddp.clone()).unwrap();
        nbp::add(&cx, "nbp", ddp.clone()).unwrap();
        rtmp::add(&cx, "rtmp", ddp.clone()).unwrap();
        let atp = atp::add(&cx, "atp", ddp.clone()).unwrap();
        Self { cx, wire, streams, ether, ddp, atp }
    }

    /// Drops of `ddp`, but for what came before there was an address.
    pub(crate) fn drops(&self) -> u64 {
        let drops = self.ddp.head().drops();
        drops.total() - drops.of(&xk_core::reason::NOT_MINE)
    }

    /// A stream on a line, not to wait, bound to this address.
    pub(crate) fn bound(&self, line: &str, addr: &[u8]) -> Rc<Stream> {
        let stream = self.streams.open(&self.cx, line).unwrap();
        stream.set_nonblocking(true);
        assert_eq!(bind(&self.cx, &stream, addr), Ok(()));
        stream
    }
}

/// Binds a stream.
pub(crate) fn bind(cx: &Kernel, stream: &Stream, addr: &[u8]) -> Result<(), String> {
    let request = Primitive::BindReq { addr, conind: 0 }.emit(stream.blocks()).unwrap();
    stream.putp(cx, request).unwrap();
    let answer = stream.getp(cx, Want::High).unwrap();
    match Primitive::of(&answer).unwrap() {
        Primitive::BindAck { .. } => Ok(()),
        other => Err(format!("{other:?}")),
    }
}

/// Sends a datagram.
pub(crate) fn send(cx: &Kernel, stream: &Stream, to: &[u8], opt: &[u8], data: &[u8]) {
    let data = stream.blocks().copy(xk_streams::Kind::Data, 0, data).unwrap();
    let request = xk_streams::tpi::unitdata_req(stream.blocks(), to, opt, data).unwrap();
    stream.putp(cx, request).unwrap();
}

/// A message on a stream: address, options, data.
pub(crate) type Came = (Vec<u8>, Vec<u8>, Vec<u8>);

/// The next datagram that has come.
pub(crate) fn receive(cx: &Kernel, stream: &Stream) -> Result<Came, Errno> {
    let mut mp: Mblk = stream.getp(cx, Want::Any)?;
    let data = mp.unlinkb().map(|data| data.to_vec()).unwrap_or_default();
    match Primitive::of(&mp) {
        Ok(Primitive::UnitdataInd { src, opt }) => Ok((src.into(), opt.into(), data)),
        other => panic!("{other:?}"),
    }
}

/// Hosts on one link.
pub(crate) struct Lan {
    pub(crate) hosts: Vec<Host>,
    /// One of so many frames is lost; none at 0.
    pub(crate) loses: Cell<u64>,
    frames: Cell<u64>,
}

impl Lan {
    /// Starts hosts of these node numbers and lets them claim their addresses.
    pub(crate) fn new(nodes: &[u8]) -> Self {
        let hosts: Vec<Host> =
            (0..).zip(nodes).map(|(place, node)| Host::new(place, *node)).collect();
        let lan = Self { hosts, loses: Cell::new(0), frames: Cell::new(0) };
        lan.start();
        lan
    }

    pub(crate) fn start(&self) {
        for host in &self.hosts {
            host.cx.start().unwrap();
        }
        self.run(Duration::from_secs(4));
    }

    /// Lets time pass, and carries frames meanwhile.
    pub(crate) fn run(&self, time: Duration) {
        const STEP: Duration = Duration::from_millis(1);
        let end = self.hosts[0].cx.now().after(time);
        while self.hosts[0].cx.now() < end {
            for host in &self.hosts {
                host.cx.advance(STEP);
            }
            while self.carry() {}
        }
    }

    /// Carries the frames that wait; false if there were none.
    fn carry(&self) -> bool {
        let mut any = false;
        for (from, host) in self.hosts.iter().enumerate() {
            for sent in host.wire.take_sent() {
                any = true;
                self.frames.set(self.frames.get() + 1);
                let loses = self.loses.get();
                if loses != 0 && self.frames.get().is_multiple_of(loses) {
                    continue;
                }
                let octets: Vec<u8> = sent.message.octets().collect();
                for (to, other) in self.hosts.iter().enumerate().filter(|(to, _)| *to != from) {
                    let _ = to;
                    other.wire.inject(&other.cx, None, other.cx.message(&octets));
                    other.cx.run_due();
                }
            }
            host.cx.run_due();
        }
        any
    }
}
