//! A join of a multicast group: until its report is on the wire, and until a datagram of the group
//! is delivered, by way of a switch that looks at reports.

use crate::cable::Host;
use crate::case::{Case, Goal, Trouble};
use crate::sim;
use crate::stack::{config, pool};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use xk_compose::SimulationConfig;
use xk_core::object::Refused;
use xk_core::{
    HostAddr, Kernel, Message, Part, Participant, Participants, Protocol, ProtocolRef, SessionRef,
    Time, Upper,
};
use xk_kit::net::groups::{Filter, JoinHost, LeaveHost, Membership};
use xk_sim::HostId;

const GROUP: [u8; 4] = [239, 1, 2, 3];
const PORT: u16 = 7;
const OPERATIONS: u64 = 2000;
/// From a frame's sending to its arrival.
const DELAY: Duration = Duration::from_micros(10);
/// From one datagram of the group to the next.
const GAP: Duration = Duration::from_micros(1);
/// Joins of a round.
const JOINS: f64 = 50.0;
const HEADROOM: usize = 128;

pub(crate) fn cases() -> Vec<Case> {
    let reported =
        Case::new("join and leave in turn, each to its report's frame", OPERATIONS, || {
            let host = Reporting::new();
            move |operations| host.change(operations)
        });
    let delivered = Case::measured("join until a datagram is delivered", |effort| {
        let mut network = Network::new().map_err(Trouble::Failed)?;
        let joins = (JOINS * effort) as usize + 1;
        let trips = (0..joins).map(|_| network.join()).sum::<Result<f64, _>>();
        Ok((trips.map_err(Trouble::Failed)? / joins as f64).into())
    });
    // A link's delay lies between its switch and the host: the datagram's, for half a round trip.
    let delivered = delivered.unit("round trips").goal(Goal::AtMost(0.6));
    vec![reported, delivered]
}

fn membership() -> Membership {
    Membership { group: GROUP.into(), on: HostAddr::UNSPECIFIED, filter: Filter::ALL }
}

/// A host whose groups change.
struct Reporting {
    host: Host,
    joined: Cell<bool>,
}

impl Reporting {
    fn new() -> Self {
        let lines = "eth cable\n arp eth\n ip arp { address \"10.0.0.1/24\"; }\n igmp ip";
        let host = Host::composed(config(&pool(), 1, 1 << 12), 1, lines, "ip", &[]);
        Self { host, joined: Cell::new(false) }
    }

    /// Joins the group and leaves it in turn, each as an operation.
    fn change(&self, operations: u64) {
        let cx = &*self.host.cx;
        for _ in 0..operations {
            let before = self.host.sent();
            // What is sent within ten milliseconds is bounded.
            cx.set_now(cx.now().after(Duration::from_millis(1)));
            let membership = membership();
            let answered = match self.joined.replace(!self.joined.get()) {
                false => self.host.top.ask(cx, JoinHost { membership }).is_some(),
                true => self.host.top.ask(cx, LeaveHost { membership }).is_some(),
            };
            cx.run_due();
            assert!(answered && self.host.sent() > before, "a report was sent");
            self.host.kept().clear();
        }
    }
}

/// The protocol on UDP that receives datagrams of the group.
#[derive(Clone, Default)]
struct Receiver(Rc<Cell<Option<Time>>>);

impl Protocol for Receiver {
    fn demux(
        &self,
        cx: &Kernel,
        _: &ProtocolRef,
        _: &SessionRef,
        _: Message,
    ) -> Result<(), Refused> {
        if self.0.get().is_none() {
            self.0.set(Some(cx.now()));
        }
        Ok(())
    }
}

/// A member, a sender, and a host that asks for members, on a switch that looks at their reports.
struct Network {
    world: xk_sim::World,
    receiver: Receiver,
    sends: SessionRef,
}

const MEMBER: HostId = HostId(0);
const SENDER: HostId = HostId(1);

impl Network {
    fn new() -> Result<Self, String> {
        let text = format!(
            "host \"h{{n}}\" count=2 {{\n sim link=lan\n eth sim\n arp eth\n \
             ip arp {{ address \"10.0.0.{{n+1}}/24\"; }}\n igmp ip\n udp ip\n}}\n\
             host router {{\n sim link=lan\n eth sim\n arp eth\n \
             ip arp {{ address \"10.0.0.254/24\"; }}\n igmp ip querier=#true\n}}\n\
             link lan delay=\"{}us\" snooping=#true\n",
            DELAY.as_micros()
        );
        let mut world = sim::world(&text, SimulationConfig::default())?;
        let receiver = Receiver::default();
        let port = Part::port(PORT);
        let enabled = world.enter(MEMBER, |cx| {
            let udp = cx.find_protocol("udp")?;
            let this = cx.add_protocol("receiver", "receiver", receiver.clone());
            let local = Participant::of(Part::Host(GROUP.into())).with(port);
            udp.open_enable(cx, Upper::new(&this), Participants::local(local)).ok()
        });
        let _stands = enabled.flatten().ok_or("the port of the group is not free")?;
        let sends = world.enter(SENDER, |cx| {
            let udp = cx.find_protocol("udp")?;
            let this = cx.add_protocol("sender", "sender", Receiver::default());
            let peer = Participant::of(Part::Host(GROUP.into())).with(port);
            udp.open(cx, Upper::new(&this), Participants::pair(Part::Any, peer)).ok()
        });
        let sends = sends.flatten().ok_or("no session with the group")?;
        // The first queries make the switch look.
        world.run_until(Time::ZERO.after(Duration::from_secs(5)));
        Ok(Self { world, receiver, sends })
    }

    /// Round trips from a join to the first datagram that is delivered.
    fn join(&mut self) -> Result<f64, String> {
        self.receiver.0.set(None);
        let begun = self.world.now();
        self.tell(|cx, ip| ip.ask(cx, JoinHost { membership: membership() }).is_some())?;
        while self.receiver.0.get().is_none() {
            if self.world.now() > begun.after(Duration::from_secs(1)) {
                return Err("no datagram of the group was delivered".into());
            }
            let session = self.sends.clone();
            self.world.enter(SENDER, |cx| {
                if let Ok(message) = cx.pool().alloc(HEADROOM, 8) {
                    let _ = session.push(cx, message);
                }
            });
            let until = self.world.now().after(GAP);
            self.world.run_until(until);
        }
        let took = self.receiver.0.get().map_or(Duration::ZERO, |at| at.since(begun));
        self.tell(|cx, ip| ip.ask(cx, LeaveHost { membership: membership() }).is_some())?;
        let calm = self.world.now().after(Duration::from_secs(10));
        self.world.run_until(calm);
        Ok(took.as_nanos() as f64 / (2 * DELAY).as_nanos() as f64)
    }

    fn tell(&mut self, what: impl FnOnce(&Kernel, &ProtocolRef) -> bool) -> Result<(), String> {
        let told = self.world.enter(MEMBER, |cx| Some(what(cx, &cx.find_protocol("ip")?)));
        told.flatten().filter(|told| *told).map(|_| ()).ok_or_else(|| "no answer of IP".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_join_is_reported_and_brings_datagrams() {
        Reporting::new().change(4);
        let mut network = Network::new().unwrap();
        let trips = [(); 2].map(|()| network.join().unwrap());
        assert!(trips.iter().all(|trips| (0.5..0.6).contains(trips)), "{trips:?}");
    }
}
