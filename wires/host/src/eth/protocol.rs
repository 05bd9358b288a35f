//! The wire and its session.

use core::cell::{Cell, RefCell};
use core::time::Duration;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::rc::Rc;

use xk_core::control::Describe;
use xk_core::graph::{Build, BuildError};
use xk_core::object::{Closing, Enable, OpenError, PushError, Refused};
use xk_core::reason::{self, Class};
use xk_core::wire::Wire;
use xk_core::{
    Answer, Ask, Kernel, Message, Participants, Protocol, ProtocolRef, Reason, Session, SessionRef,
    Time, Upper,
};
use xk_kit::EthAddr;
use xk_kit::control::{JoinGroup, LinkType, MaxPacket, MyEther, OptPacket};
use xk_kit::offload;
use xk_kit::wire_end::WireEnd;

use super::config::{Config, FRAME_HEADER_OCTETS};
use super::peers::{Destination, Peers};
use super::vxlan;
use crate::batch_unsafe::{Arrival, Batch, Receiver};
use crate::inbox;
use crate::outbox::{COALESCED_MAX, Flushed, Outbox, Outgoing, in_few_slices};
use crate::socket::{DEVICE_FULL, Socket};

/// Nobody is known yet to send to.
static NO_PEER: Reason = Reason::new("no peer", Class::Bad);
/// The frame is of another network than ours.
static OTHER_NETWORK: Reason = Reason::new("other network", Class::NotMine);

/// Octets of a VLAN tag, which an arriving frame may have beyond the MTU (IEEE 802.1Q).
const TAG_OCTETS: usize = 4;
/// How often silent strangers are looked for.
const LOOK_EVERY: Duration = Duration::from_secs(1);

struct Shared {
    end: WireEnd,
    local: SocketAddr,
    vni: Option<u32>,
    address: EthAddr,
    frame_octets_max: usize,
    peers: Peers,
    socket: Socket,
    receiver: RefCell<Receiver>,
    outbox: RefCell<Outbox>,
    batch: RefCell<Batch>,
    /// Frames taken and not delivered yet. Shared by all shepherds: if one blocks in a delivery, the next goes on.
    arrivals: RefCell<VecDeque<Message>>,
    blocked: Cell<bool>,
    look_at: Cell<Time>,
}

/// The wire as a protocol object. One protocol stands on it.
struct HostEth {
    shared: Rc<Shared>,
}

/// Builds the wire from its place in a graph.
///
/// # Errors
/// [`BuildError`] if a parameter does not do, or the socket cannot be opened.
pub(crate) fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let config = Config::read(build.params)?;
    let socket = config.open()?;
    // Other ends of such a network send from any port, and are sent to at the one that is configured.
    let port = config.vni.map(|_| config.local.port());
    let prefix = config.vni.map(vxlan::emit);
    let shared = Shared {
        end: WireEnd::default(),
        local: socket.local().unwrap_or(config.local),
        vni: config.vni,
        address: config.address,
        frame_octets_max: config.mtu + FRAME_HEADER_OCTETS,
        peers: Peers::new(
            build.cx,
            &config.peers,
            (config.learn, port),
            config.stations_max,
        ),
        socket,
        receiver: RefCell::new(Receiver::new()),
        outbox: RefCell::new(Outbox::new(prefix.as_ref().map_or(&[], |p| p.as_slice()))),
        batch: RefCell::new(Batch::new()),
        arrivals: RefCell::default(),
        blocked: Cell::new(false),
        look_at: Cell::new(Time::ZERO),
    };
    build.add(HostEth {
        shared: Rc::new(shared),
    })
}

impl Shared {
    fn answer(&self, ask: &mut Ask<'_>) -> Answer {
        let octets = u32::try_from(self.frame_octets_max).unwrap_or(u32::MAX);
        if let Some(q) = ask.get::<MaxPacket>() {
            q.octets = octets;
        } else if let Some(q) = ask.get::<OptPacket>() {
            q.octets = octets;
        } else if let Some(q) = ask.get::<MyEther>() {
            q.address = self.address.0;
        } else if let Some(q) = ask.get::<LinkType>() {
            q.number = 1;
        } else if let Some(q) = ask.get::<Describe>() {
            let (peers, stations) = self.peers.counts();
            q.text = format!(
                "{} at {}, {peers} peers, {stations} stations behind them",
                self.address, self.local
            );
        } else if ask.get::<JoinGroup>().is_none() {
            return Answer::Unknown;
        }
        Answer::Answered
    }

    /// Takes what the socket has, at most `budget` datagrams or runs of them.
    fn receive(&self, cx: &Kernel, this: &ProtocolRef, budget: usize) {
        let receiver = &mut *self.receiver.borrow_mut();
        let taken = inbox::receive(
            (&self.socket, receiver),
            cx.pool(),
            this,
            budget,
            |arrival| {
                self.accept(cx, this, arrival);
            },
        );
        if let Err(error) = taken {
            inbox::complaints(&self.socket, this, &error, drop);
        }
    }

    /// Takes a datagram, or a run of them, apart into frames.
    fn accept(&self, cx: &Kernel, this: &ProtocolRef, arrival: Arrival) {
        let Arrival {
            message,
            from,
            notes,
        } = arrival;
        let Some(peer) = self.peers.who(cx.now(), from) else {
            this.discard(message, &reason::BAD_SOURCE);
            return;
        };
        inbox::split(this, message, notes.segment, |datagram| {
            self.accept_one(cx, this, peer, datagram);
        });
    }

    fn accept_one(&self, cx: &Kernel, this: &ProtocolRef, peer: SocketAddr, datagram: Message) {
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
        if frame.len() < FRAME_HEADER_OCTETS {
            return this.discard(frame, &reason::TRUNCATED);
        }
        if frame.len() > self.frame_octets_max + TAG_OCTETS {
            return this.discard(frame, &reason::TOO_BIG);
        }
        let mut station = [0; 6];
        frame.copy_to(6, &mut station);
        self.peers.heard(cx.now(), station, peer);
        self.arrivals.borrow_mut().push_back(frame);
    }

    /// Sends a frame to whom it is for.
    fn send(&self, cx: &Kernel, this: &SessionRef, frame: Message) -> Result<(), PushError> {
        let frame = match in_few_slices(cx.pool(), frame) {
            Ok(frame) => frame,
            Err(frame) => {
                this.discard(cx, frame, &reason::NO_BUFFERS);
                return Err(PushError::NoBuffers);
            }
        };
        let mut station = [0; 6];
        frame.copy_to(0, &mut station);
        match self.peers.towards(cx.now(), station) {
            Destination::One(to) => self.queue(cx, this, frame, to),
            Destination::All => self.send_all(cx, this, frame),
        }
    }

    fn send_all(&self, cx: &Kernel, this: &SessionRef, frame: Message) -> Result<(), PushError> {
        let Some(last) = self.peers.counts().0.checked_sub(1) else {
            this.discard(cx, frame, &NO_PEER);
            return Err(PushError::NoRoute);
        };
        for at in 0..last {
            let Some(to) = self.peers.get(at) else { break };
            let Ok(copy) = frame.try_clone() else {
                this.discard(cx, frame, &reason::NO_BUFFERS);
                return Err(PushError::NoBuffers);
            };
            self.queue(cx, this, copy, to)?;
        }
        match self.peers.get(last) {
            Some(to) => self.queue(cx, this, frame, to),
            None => Ok(()),
        }
    }

    fn queue(
        &self,
        cx: &Kernel,
        this: &SessionRef,
        message: Message,
        to: SocketAddr,
    ) -> Result<(), PushError> {
        let outgoing = Outgoing {
            message,
            to,
            from: None,
        };
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
            self.flush(&protocol);
        }
        Ok(())
    }

    fn flush(&self, this: &ProtocolRef) {
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

impl HostEth {
    fn session(&self, upper: ProtocolRef) -> EthSession {
        EthSession {
            shared: Rc::clone(&self.shared),
            upper,
        }
    }
}

impl Protocol for HostEth {
    fn open(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        _: Participants,
    ) -> Result<SessionRef, OpenError> {
        let make = |upper| self.session(upper);
        self.shared.end.open(cx, this, upper, make)
    }

    fn open_enable(
        &self,
        _: &Kernel,
        _: &ProtocolRef,
        upper: Upper<'_>,
        _: Participants,
    ) -> Result<Enable, OpenError> {
        self.shared.end.open_enable(upper)
    }

    fn open_disable(&self, _: &Kernel, _: &ProtocolRef, enable: Enable) {
        self.shared.end.open_disable(enable);
    }

    fn control(&self, _: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        match self.shared.end.control(ask) {
            Answer::Answered => Answer::Answered,
            Answer::Unknown => self.shared.answer(ask),
        }
    }

    fn stop(&self, _: &Kernel, this: &ProtocolRef) {
        // Last words, such as a farewell to peers, still go out.
        self.shared.flush(this);
        self.shared.end.stop();
        self.shared.outbox.borrow_mut().clear();
        self.shared.receiver.borrow_mut().release();
        drop(self.shared.arrivals.take());
    }

    fn wire(&self) -> Option<&dyn Wire> {
        Some(self)
    }
}

impl Wire for HostEth {
    fn poll(&self, cx: &Kernel, this: &ProtocolRef, budget: usize) -> usize {
        let shared = &self.shared;
        if shared.arrivals.borrow().is_empty() {
            shared.receive(cx, this, budget);
        }
        let mut count = 0;
        while count < budget && !cx.must_leave() {
            let next = shared.arrivals.borrow_mut().pop_front();
            let Some(message) = next else { break };
            count += 1;
            shared
                .end
                .deliver(cx, this, message, |upper| self.session(upper));
        }
        if cx.now() >= shared.look_at.get() {
            shared.look_at.set(cx.now().after(LOOK_EVERY));
            shared.peers.forget_silent(cx.now());
        }
        count
    }

    fn flush(&self, _: &Kernel, this: &ProtocolRef) {
        self.shared.flush(this);
    }

    fn descriptor(&self) -> Option<i32> {
        Some(self.shared.socket.fd().as_raw_fd())
    }

    fn next_poll(&self) -> Option<Time> {
        // Joined datagrams may be more than one turn's.
        (!self.shared.arrivals.borrow().is_empty()).then_some(Time::ZERO)
    }

    fn wants_writable(&self) -> bool {
        self.shared.blocked.get()
    }
}

/// The wire's only session.
struct EthSession {
    shared: Rc<Shared>,
    upper: ProtocolRef,
}

impl Session for EthSession {
    fn push(&self, cx: &Kernel, this: &SessionRef, message: Message) -> Result<(), PushError> {
        let mut message = message;
        if offload::settle(cx.pool(), &mut message).is_err() {
            this.discard(cx, message, &reason::NO_BUFFERS);
            return Err(PushError::NoBuffers);
        }
        if message.len() > self.shared.frame_octets_max {
            this.discard(cx, message, &reason::TOO_BIG);
            let max = u32::try_from(self.shared.frame_octets_max).unwrap_or(u32::MAX);
            return Err(PushError::TooBig { max });
        }
        self.shared.send(cx, this, message)
    }

    #[inline]
    fn pop(&self, cx: &Kernel, this: &SessionRef, message: Message) -> Result<(), Refused> {
        self.upper.demux(cx, this, message)
    }

    fn control(&self, _: &Kernel, _: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        self.shared.answer(ask)
    }

    fn close(&self, _: &Kernel, _: &SessionRef) -> Closing {
        self.shared.end.close()
    }
}
