//! The wire and its session.

use core::cell::{Cell, RefCell};
use core::time::Duration;
use std::any::Any;
use std::net::SocketAddr;

use xk_core::graph::{Build, BuildError};
use xk_core::object::PushError;
use xk_core::reason::{self, Class};
use xk_core::{Kernel, Message, ProtocolRef, Reason, SessionRef, Time};
use xk_kit::net::ports::NO_PEER;
use xk_kit::wire::device::{
    Anchored, Capabilities, DEVICE_FULL, Device, Receiving, Unsent, room_if,
};
use xk_kit::wire::entry::HEADER_OCTETS;
use xk_kit::wire::frames;

use super::config::Config;
use super::peers::{Destination, Peers};
use super::vxlan;
use crate::batch_unsafe::{Arrival, Batch, Receiver};
use crate::inbox::{self, Take};
use crate::outbox::{COALESCED_MAX, Flushed, Outbox, Outgoing, WAITING_MAX, in_few_slices};
use crate::socket::Socket;

/// The frame is of another network than ours.
pub(crate) static OTHER_NETWORK: Reason = Reason::new("other network", Class::NotMine);

/// Interval at which silent strangers are looked for.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The wire.
struct HostEth {
    local: SocketAddr,
    vni: Option<u32>,
    mtu: usize,
    peers: Peers,
    socket: Socket,
    receiver: RefCell<Receiver>,
    outbox: RefCell<Outbox>,
    batch: RefCell<Batch>,
    blocked: Cell<bool>,
    look_at: Cell<Time>,
}

/// Builds the wire from its place in a graph.
pub(crate) fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let config = Config::read(build.params)?;
    let socket = config.open()?;
    build.add(wire(build.cx, &config, socket))
}

fn wire(cx: &Kernel, config: &Config, socket: Socket) -> Anchored<HostEth> {
    // Other ends of such a network send from any port, and are sent to at the one that is
    // configured.
    let port = config.vni.map(|_| config.local.port());
    let prefix = config.vni.map(vxlan::emit);
    let capabilities = Capabilities::ethernet(config.mtu + HEADER_OCTETS, config.address);
    let wire = HostEth {
        local: socket.local().unwrap_or(config.local),
        vni: config.vni,
        mtu: config.mtu,
        peers: Peers::new(cx, &config.peers, (config.learn, port), config.stations_max),
        socket,
        receiver: RefCell::new(Receiver::new()),
        outbox: RefCell::new(Outbox::new(prefix.as_ref().map_or(&[], |p| p.as_slice()))),
        batch: RefCell::new(Batch::new()),
        blocked: Cell::new(false),
        look_at: Cell::new(Time::ZERO),
    };
    Anchored::new(wire, capabilities)
}

impl HostEth {
    /// Takes a datagram, or a run of them, apart into frames.
    fn accept(&self, into: &mut Receiving<'_>, arrival: Arrival) {
        let (cx, this) = (into.cx, into.this);
        let Arrival { message, from, notes } = arrival;
        let Some(peer) = self.peers.who(cx.now(), from) else {
            this.discard(message, &reason::BAD_SOURCE);
            return;
        };
        inbox::split(this, message, notes.segment, |datagram| {
            self.accept_one(into, peer, datagram);
        });
    }

    fn accept_one(&self, into: &mut Receiving<'_>, peer: SocketAddr, datagram: Message) {
        let Receiving { cx, this, arrivals, .. } = into;
        let mut frame = datagram;
        if let Some(vni) = self.vni {
            let mut header = [0; vxlan::HEADER_LEN];
            let whole = frame.copy_to(0, &mut header) == header.len();
            if !whole || !frame.strip(header.len()) {
                return this.discard(frame, &reason::TRUNCATED);
            }
            match vxlan::parse(&header) {
                None => return this.discard(frame, &reason::MALFORMED),
                Some(other) if other != vni => return this.discard(frame, &OTHER_NETWORK),
                Some(_) => {}
            }
        }
        if frame.len() < HEADER_OCTETS {
            return this.discard(frame, &reason::TRUNCATED);
        }
        let mut station = [0; 6];
        frame.copy_to(6, &mut station);
        self.peers.heard(cx.now(), station, peer);
        // A sender on this machine leaves sums, and cutting into segments, to the interface below,
        // which is memory.
        if self.vni.is_some() && frames::note_begun(cx.pool(), &mut frame).is_err() {
            return this.discard(frame, &reason::NO_BUFFERS);
        }
        if let Err(why) = frames::arrive_long(cx.pool(), frame, self.mtu, arrivals) {
            this.head().drops().count(why);
        }
    }

    fn send_all(&self, cx: &Kernel, this: &SessionRef, frame: Message) -> Result<(), PushError> {
        let Some(last) = self.peers.counts().0.checked_sub(1) else {
            this.discard(cx, frame, &NO_PEER);
            return Err(PushError::NoRoute);
        };
        let mut result = Ok(());
        for at in 0..last {
            let Some(to) = self.peers.get(at) else { break };
            let Ok(copy) = frame.try_clone() else {
                this.discard(cx, frame, &reason::NO_BUFFERS);
                return Err(PushError::NoBuffers);
            };
            result = result.and(self.queue(cx, this, copy, to));
        }
        match self.peers.get(last) {
            Some(to) => result.and(self.queue(cx, this, frame, to)),
            None => result,
        }
    }

    fn queue(
        &self,
        cx: &Kernel,
        this: &SessionRef,
        message: Message,
        to: SocketAddr,
    ) -> Result<(), PushError> {
        let outgoing = Outgoing { message, to, from: None };
        let refused = self.outbox.borrow_mut().push(outgoing);
        if let Err(message) = refused {
            this.discard(cx, message, &DEVICE_FULL);
            return Err(PushError::QueueFull);
        }
        let waiting = self.outbox.borrow().len();
        if waiting >= COALESCED_MAX
            && !self.blocked.get()
            && let Some(protocol) = this.protocol(cx)
        {
            self.empty_outbox(&protocol);
        }
        Ok(())
    }

    /// Sends what is in the outbox.
    fn empty_outbox(&self, this: &ProtocolRef) {
        let mut outbox = self.outbox.borrow_mut();
        if outbox.is_empty() {
            return;
        }
        let batch = &mut *self.batch.borrow_mut();
        let count = |_: &Outgoing, why| this.head().drops().count(why);
        let left = outbox.flush(&self.socket, batch, count);
        self.blocked.set(left == Flushed::Blocked);
    }
}

impl Device for HostEth {
    /// Takes what the socket has, at most `budget` datagrams or runs of them.
    fn receive(&self, mut into: Receiving<'_>) {
        let Receiving { cx, this, budget, .. } = into;
        let receiver = &mut *self.receiver.borrow_mut();
        let taken = inbox::receive(
            (&self.socket, receiver),
            cx.pool(),
            this,
            Take::Now(budget),
            |arrival| self.accept(&mut into, arrival),
        );
        if let Err(error) = taken {
            inbox::complaints(&self.socket, this, &error, drop);
        }
        if cx.now() >= self.look_at.get() {
            self.look_at.set(cx.now().after(LOOK_EVERY));
            self.peers.forget_silent(cx.now());
        }
    }

    /// Sends a frame to its station's peer.
    fn send(&self, cx: &Kernel, this: &SessionRef, frame: Message) -> Result<(), Unsent> {
        let frame = in_few_slices(cx, this, frame).map_err(Unsent::Gone)?;
        let mut station = [0; 6];
        frame.copy_to(0, &mut station);
        let sent = match self.peers.towards(cx.now(), station) {
            Destination::One(to) => self.queue(cx, this, frame, to),
            Destination::All => self.send_all(cx, this, frame),
        };
        sent.map_err(Unsent::Gone)
    }

    fn flush(&self, _: &Kernel, this: &ProtocolRef) -> bool {
        self.empty_outbox(this);
        !self.blocked.get()
    }

    /// Tells room for a frame that goes to every peer, or to as many as ever find a place.
    fn room(&self, _: &Kernel) -> Option<Duration> {
        let copies = self.peers.counts().0.clamp(1, WAITING_MAX);
        room_if(self.outbox.borrow().has_room(copies))
    }

    fn describe(&self, able: &Capabilities) -> Option<String> {
        let (peers, stations) = self.peers.counts();
        let (address, local) = (able.address?, self.local);
        Some(format!("{address} at {local}, {peers} peers, {stations} stations behind them"))
    }

    fn stop(&self, _: &Kernel, _: &ProtocolRef) {
        self.outbox.borrow_mut().clear();
        self.receiver.borrow_mut().release();
    }

    fn descriptor(&self, see: &mut dyn FnMut(&dyn Any)) {
        see(&**self.socket.fd());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;
    use std::net::UdpSocket;
    use xk_core::Participants;
    use xk_core::graph::{Params, Value};
    use xk_kit::control::WireRoom;
    use xk_testkit::kernel::{TestKernel, Top};

    /// A wire with so many peers, whose socket takes nothing.
    fn blocked(cx: &Kernel, peers: &[UdpSocket]) -> ProtocolRef {
        let all: Vec<_> = peers.iter().map(|p| p.local_addr().unwrap().to_string()).collect();
        let mut params = Params::default();
        params.set("local", Value::Text("127.0.0.1:0".into()));
        params.set("peer", Value::Text(all.join(",")));
        let config = Config::read(&params).unwrap();
        let socket = config.open().unwrap();
        let wire = wire(cx, &config, socket);
        wire.wire().device().blocked.set(true);
        cx.add_protocol("host-eth", "host-eth", wire)
    }

    #[test]
    fn a_full_queue_is_told_before_a_frame_is_lost() {
        for copies in [1, 3] {
            let cx = TestKernel::new(1);
            let peers: Vec<_> =
                (0..copies).map(|_| UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap()).collect();
            let wire = blocked(&cx, &peers);
            let top = Top::add(&cx, "top");
            let session = top.open(&cx, &wire, Participants::default()).unwrap();
            let has_room =
                || session.ask(&cx, WireRoom::default()).is_some_and(|room| room.after.is_zero());
            let to_all = [0xff; 60];
            for _ in 0..WAITING_MAX / copies {
                assert!(has_room());
                session.push(&cx, cx.message(&to_all)).unwrap();
            }
            assert!(!has_room());
            assert_eq!(session.push(&cx, cx.message(&to_all)), Err(PushError::QueueFull));
            let lost = copies - WAITING_MAX % copies;
            assert_eq!(wire.head().drops().of(&DEVICE_FULL), lost as u64, "each copy counts");
            wire.wire().unwrap().flush(&cx, &wire);
            assert!(has_room(), "the system has taken all of it");
        }
    }
}
