//! The laws that every protocol keeps, checked for `tcp` over hosts and over a link: all but those
//! that are about messages, of which a stream knows nothing (that each arrives as it was cut and
//! can be lost, that the first one makes a session, that what the upper refuses is offered again).

use xk_core::graph::{Params, Value};
use xk_core::{Entry, HostAddr, Part, Participant, Participants};
use xk_kit::net::checksum::Checksum;
use xk_testkit::conformance::{
    Fixture, Side, Verdict, blocking, control, hostile, hosts, messages, sessions,
};
use xk_testkit::kernel::{Family, Lower, Sent};

/// The port that the protocol above enables on each side.
fn port(side: Side) -> Part {
    Part::port(5000 + side as u16)
}

fn params() -> Params {
    let mut params = Params::default();
    params.set("sessions_max", Value::Integer(256));
    params.set("no_delay", Value::Bool(true));
    params
}

struct OverHosts(Family);

impl Fixture for OverHosts {
    fn entry(&self) -> &'static Entry {
        &xk_tcp::ENTRY
    }

    fn lower(&self, side: Side) -> Lower {
        Lower::host(self.0.host(1 + side as u32), 6)
    }

    fn open(&self, side: Side) -> Participants {
        let peer = Participant::of(Part::Host(self.0.host(1 + side.other() as u32)))
            .with(port(side.other()));
        Participants::pair(port(side), peer)
    }

    fn enable(&self, side: Side) -> Option<Participants> {
        Some(Participants::local(port(side)))
    }

    fn enable_at(&self, side: Side, host: HostAddr) -> Option<Participants> {
        let local = Participant::of(Part::Host(host)).with(port(side));
        Some(Participants::local(local))
    }

    /// A SYN of this host.
    fn stranger(&self, sent: &Sent, n: u32) -> Result<(Option<Part>, Vec<u8>), &'static str> {
        let peer = self.0.host(0x0b_0000 + n);
        let mut octets: Vec<u8> = sent.message.octets().take(20).collect();
        // No acknowledgement, a header of five words, SYN, a window, no checksum yet.
        octets[8..18].copy_from_slice(&[0, 0, 0, 0, 0x50, 0x02, 0xff, 0xff, 0, 0]);
        let mut sum = Checksum::pseudo_header(peer, self.0.host(2), 6, 20);
        sum.add(&octets);
        octets[16..18].copy_from_slice(&sum.finish().to_be_bytes());
        Ok((Some(Part::Host(peer)), octets))
    }

    fn opens_nothing(&self) -> Option<&'static str> {
        Some("a connection is there after its handshake")
    }

    fn takes_many(&self) -> bool {
        false
    }

    fn is_stream(&self) -> bool {
        true
    }

    fn params(&self, _: Side) -> Params {
        params()
    }

    fn sessions_max(&self) -> usize {
        256
    }
}

struct OverLink;

impl Fixture for OverLink {
    fn entry(&self) -> &'static Entry {
        &xk_tcp::ENTRY
    }

    fn lower(&self, _: Side) -> Lower {
        Lower::link(1500)
    }

    fn open(&self, side: Side) -> Participants {
        Participants::pair(port(side), port(side.other()))
    }

    fn enable(&self, side: Side) -> Option<Participants> {
        OverHosts(Family::V4).enable(side)
    }

    fn params(&self, _: Side) -> Params {
        params()
    }

    fn is_stream(&self) -> bool {
        true
    }

    fn sessions_max(&self) -> usize {
        256
    }
}

fn both(law: fn(&dyn Fixture) -> Verdict) {
    let [v4, v6] = Family::ALL.map(OverHosts);
    for fixture in [&v4 as &dyn Fixture, &v6, &OverLink] {
        assert_eq!(law(fixture), Verdict::Holds);
    }
}

#[test]
fn one_conversation_is_one_session() {
    both(sessions::is_found_again);
}

#[test]
fn a_layer_may_slip_between() {
    both(sessions::lets_a_layer_between);
}

#[test]
fn kept_copies_are_left_alone() {
    both(messages::leaves_copies_alone);
}

#[test]
fn damage_is_counted() {
    both(hostile::survives_damage);
}

#[test]
fn questions_are_answered_as_listed() {
    both(control::answers);
}

#[test]
fn strangers_pin_nothing_below() {
    for family in Family::ALL {
        assert_eq!(hostile::pins_nothing(&OverHosts(family)), Verdict::Holds);
    }
}

#[test]
fn nothing_is_left_after_stop() {
    both(sessions::stops);
}

#[test]
fn what_is_for_many_is_not_for_one() {
    for family in Family::ALL {
        assert_eq!(hosts::tells_one_from_many(&OverHosts(family)), Verdict::Holds);
    }
}

#[test]
fn opened_several_times_at_once_it_is_one_session() {
    both(blocking::opens_once);
}

#[test]
fn of_enables_at_one_time_as_many_succeed_as_in_turn() {
    both(blocking::enables_once);
}

#[test]
fn first_segments_at_one_time_make_one_session() {
    both(blocking::makes_one_session);
}

#[test]
fn octets_keep_their_order_while_layers_block() {
    both(blocking::keeps_order);
}

/// Opens with any port of ours.
struct AnyPort;

impl Fixture for AnyPort {
    fn entry(&self) -> &'static Entry {
        &xk_tcp::ENTRY
    }

    fn lower(&self, side: Side) -> Lower {
        OverHosts(Family::V4).lower(side)
    }

    fn open(&self, side: Side) -> Participants {
        let mut ends = OverHosts(Family::V4).open(side);
        let local = ends.local_mut().expect("a local participant");
        *local = Participant::of(Part::Any);
        ends
    }

    fn params(&self, _: Side) -> Params {
        let mut params = Params::default();
        params.set("sessions_max", Value::Integer(65_536));
        params
    }
}

#[test]
fn ports_are_chosen_once() {
    blocking::chooses_numbers_of_their_own(&AnyPort);
}

#[test]
fn what_comes_while_a_session_is_told_of_waits() {
    both(blocking::tells_of_sessions_first);
}

#[test]
fn what_comes_and_goes_at_once_is_given_back() {
    both(blocking::gives_back);
}

#[test]
fn copies_and_damage_at_one_time_harm_nothing() {
    both(blocking::bears_copies);
}
