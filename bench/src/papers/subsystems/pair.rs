//! A client and a server of transactions in two kernels of one thread, with a cable between them.

use super::configuration::Configuration;
use crate::cable::{HEADROOM, Host};
use crate::calls::{Caller, Calls, Turns, carry, pass};
use crate::stack::{pool, waiting_config};
use std::cell::Cell;
use std::time::Duration;
use xk_core::graph::{Build, BuildError, Family, Realm};
use xk_core::object::{Enable, OpenError, Refused};
use xk_core::{
    Entry, Kernel, Message, Participant, Participants, Protocol, ProtocolRef, SessionRef, Upper,
    reason,
};

/// Octets of a packet of a reply.
pub(super) const PACKET: usize = 578;
/// Octets of a request.
const REQUEST: usize = 45;
/// Steps of time in which the nodes have found their addresses, and the length of one.
const STEPS: u32 = 50;
const STEP: Duration = Duration::from_millis(100);

/// The caller or server, as a line of a graph.
static USER: Entry = Entry::top("user", "", build_user)
    .summary("calls for the benchmark, and serves it")
    .on(&[Realm::Rpc], &[Family::Any]);

/// On ATP or its adapter: asks there, and replies as many packets as a request's first octet says.
struct User {
    lower: ProtocolRef,
}

fn build_user(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let lower = build.lower(0)?.clone();
    build.add(User { lower })
}

impl Protocol for User {
    fn open(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        _: Upper<'_>,
        participants: Participants,
    ) -> Result<SessionRef, OpenError> {
        self.lower.open(cx, Upper::new(this), participants)
    }

    fn open_enable(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        _: Upper<'_>,
        participants: Participants,
    ) -> Result<Enable, OpenError> {
        self.lower.open_enable(cx, Upper::new(this), participants)
    }

    fn call_demux(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        _: &SessionRef,
        message: Message,
    ) -> Result<Message, Refused> {
        let packets = message.front_slice().first().copied().unwrap_or_default();
        match cx.pool().alloc(HEADROOM, usize::from(packets) * PACKET) {
            Ok(reply) => Ok(reply),
            Err(_) => Err(this.refuse(message, &reason::NO_BUFFERS)),
        }
    }
}

/// A client and its server.
pub(super) struct Pair(Calls<Client>);

/// Requester of transactions.
struct Client {
    of: Configuration,
    /// Packets of a reply.
    packets: Cell<u8>,
}

impl Pair {
    /// Both hosts, with transactions behind them that make everything warm.
    ///
    /// # Panics
    /// If one fails.
    pub(super) fn new(of: Configuration) -> Self {
        let pool = pool();
        let [a, b] = [17, 18].map(|node| {
            let lines = of.lines(node) + "user atp\n";
            Host::composed(waiting_config(&pool, node), node, &lines, "user", &[&USER])
        });
        for _ in 0..STEPS {
            pass(&a, &b, STEP);
            while carry::<Client>(&a, &b) > 0 {}
        }
        let socket: Participant = "socket140".parse().expect("a participant");
        let enabled = b.top.open_enable(&b.cx, Upper::new(&b.top), Participants::local(socket));
        let _stands = enabled.unwrap_or_else(|error| panic!("{}: {error}", of.system));
        Self(Calls::new(a, b, Client { of, packets: Cell::new(1) }))
    }

    /// Makes so many transactions with replies of so many packets, one after the other.
    ///
    /// # Panics
    /// If one brings no reply.
    pub(super) fn transactions(&self, count: u64, packets: u8) {
        self.0.caller().packets.set(packets);
        self.0.make(count);
    }
}

impl Caller for Client {
    const HAS_QUEUES: bool = true;

    fn name(&self) -> &'static str {
        self.of.system
    }

    fn open(&self, a: &Host) -> Result<SessionRef, String> {
        let text = "*,socket140@node18@net10";
        let participants = text.parse::<Participants>();
        let participants = participants.map_err(|error| format!("{text}: {error}"))?;
        let opened = a.top.open(&a.cx, Upper::new(&a.top), participants);
        opened.map_err(|error| format!("open: {error}"))
    }

    #[inline]
    fn call(&self, turns: &Turns<Self>, session: &SessionRef) -> Result<(), String> {
        let (cx, packets) = (&*turns.a.cx, self.packets.get());
        let message = cx.pool().copy_from(HEADROOM, &[packets; REQUEST]);
        let message = message.map_err(|error| error.to_string())?;
        let reply = session.call(cx, message).map_err(|error| error.describe(cx))?;
        match usize::from(packets) * PACKET {
            octets if octets == reply.len() => Ok(()),
            octets => Err(format!("a reply of {} octets for {octets}", reply.len())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::papers::subsystems::configuration::CONFIGURATIONS;

    #[test]
    fn a_transaction_takes_a_frame_for_the_request_and_one_for_each_packet() {
        for of in CONFIGURATIONS {
            let pair = Pair::new(of);
            for packets in 1..=8 {
                let before = pair.0.frames();
                pair.transactions(5, packets);
                let frames = pair.0.frames() - before;
                let least = 5 * (1 + u64::from(packets));
                assert!(frames >= least, "{} {packets}: {frames} frames", of.system);
            }
        }
    }
}
