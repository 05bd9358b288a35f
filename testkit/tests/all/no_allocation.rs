//! In a steady conversation no message costs an allocation, through all layers of two hosts and the
//! network between.

use core::cell::{Cell, RefCell};
use std::rc::Rc;
use xk_compose::{SimulationConfig, check, simulate, start_world};
use xk_core::object::Popped;
use xk_core::{
    Kernel, Message, Part, Participant, Participants, Protocol, ProtocolRef, SessionRef, Time,
    Upper,
};
use xk_sim::{Ended, World};
use xk_testkit::conformance::messages::pattern;
use xk_testkit::conformance::{allocations, counts_allocations};
use xk_testkit::kernel::HEADROOM;

/// Number of datagrams that go there and back before allocations are counted.
const WARM: u32 = 1000;
/// Number of datagrams that go there and back while they are counted.
const STEADY: u32 = 10_000;

/// A host that sends and a host that answers, with all that UDP needs.
const GRAPH: &str = r#"
host asks {
    sim  link=wire
    eth  sim
    arp  eth
    ip   arp { address "10.0.0.1/24"; }
    icmp ip
    udp  ip
}
host answers {
    sim  link=wire
    eth  sim
    arp  eth
    ip   arp { address "10.0.0.2/24"; }
    icmp ip
    udp  ip
    echo udp port=7
}
link wire kind=pointtopoint
"#;

/// State that [`Asker`] and the test share.
struct State {
    /// Octets of every datagram.
    octets: Vec<u8>,
    session: RefCell<Option<SessionRef>>,
    received: Cell<u32>,
    /// Allocations when the conversation was warm, and at its end.
    before: Cell<u64>,
    after: Cell<u64>,
}

impl State {
    fn send(&self, cx: &Kernel) {
        let session = self.session.borrow().clone().expect("an open session");
        let message = cx.pool().copy_from(HEADROOM, &self.octets);
        session.push(cx, message.expect("a buffer")).expect("a datagram goes");
    }
}

/// Sends the next datagram when the one before has come back.
struct Asker(Rc<State>);

impl Protocol for Asker {
    fn demux(&self, cx: &Kernel, _: &ProtocolRef, _: &SessionRef, message: Message) -> Popped {
        let state = &self.0;
        assert!(message.eq_octets(&state.octets), "it comes back unchanged");
        drop(message);
        let received = state.received.get() + 1;
        state.received.set(received);
        if received == WARM {
            state.before.set(allocations());
        }
        if received < WARM + STEADY {
            state.send(cx);
        } else {
            state.after.set(allocations());
        }
        Ok(())
    }

    fn stop(&self, _: &Kernel, _: &ProtocolRef) {
        let session = self.0.session.take();
        drop(session);
    }
}

fn world() -> World {
    let graph = check(GRAPH, "two.kdl", &xk_catalog::standard()).unwrap_or_else(|e| panic!("{e}"));
    let config = SimulationConfig::default();
    let mut world = simulate(&graph, config).unwrap_or_else(|e| panic!("{e}"));
    start_world(&graph, &mut world).unwrap_or_else(|e| panic!("{e}"));
    world
}

/// Number of allocations while [`STEADY`] datagrams of so many octets go there and back.
fn counted(octets: usize) -> u64 {
    let mut world = world();
    let asks = world.find("asks").expect("the host");
    let state = Rc::new(State {
        octets: pattern(octets, 1),
        session: RefCell::default(),
        received: Cell::new(0),
        before: Cell::new(0),
        after: Cell::new(0),
    });
    world.enter(asks, |cx| {
        let asker = cx.add_protocol("asker", "asker", Asker(Rc::clone(&state)));
        let protocols = cx.protocols();
        let udp = protocols.iter().find(|protocol| protocol.name() == "udp");
        let peer = Participant::of(Part::Host([10, 0, 0, 2].into())).with(Part::port(7));
        let both = Participants::pair(Part::port(5000), peer);
        let opened = udp.expect("the host's UDP").open(cx, Upper::new(&asker), both);
        *state.session.borrow_mut() = Some(opened.expect("a session"));
        state.send(cx);
    });
    // No line takes time, so all of it happens before ARP looks at its entries again.
    let ended = world.run_until(Time::from_ns(1_000_000_000));
    assert_eq!(ended, Ended::Time);
    assert_eq!(state.received.get(), WARM + STEADY, "none is lost");
    world.stop();
    state.after.get() - state.before.get()
}

#[test]
fn allocations_are_counted() {
    assert!(counts_allocations());
}

#[test]
fn small_datagrams() {
    assert_eq!(counted(64), 0);
}

#[test]
fn datagrams_that_fill_a_frame() {
    assert_eq!(counted(1472), 0);
}

#[test]
fn datagrams_in_fragments() {
    assert_eq!(counted(8192), 0);
}
