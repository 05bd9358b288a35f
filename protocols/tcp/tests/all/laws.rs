//! The laws that every protocol keeps, checked for `tcp` over hosts and over a link: all but those
//! that are about messages, of which a stream knows nothing (that each arrives as it was cut and
//! can be lost, that the first one makes a session, that what the upper refuses is offered again).

use xk_core::graph::{Params, Value};
use xk_core::{Entry, Part};
use xk_kit::net::checksum::Checksum;
use xk_testkit::conformance::{
    Fixture, Side, Verdict, blocking, bounded, control, hostile, hosts, lost, messages, sessions,
};
use xk_testkit::kernel::{Family, Lower, Sent};

/// Over hosts of a family, or over a link.
struct Over(Option<Family>);

impl Fixture for Over {
    fn entry(&self) -> &'static Entry {
        &xk_tcp::ENTRY
    }

    fn lower(&self, side: Side) -> Lower {
        self.0.map_or(Lower::link(1500), |family| Lower::host(side.host(family), 6))
    }

    fn port(&self, side: Side) -> Option<Part> {
        Some(Part::port(5000 + side as u16))
    }

    fn params(&self, _: Side) -> Params {
        let mut params = bounded(self.entry(), self.sessions_max());
        params.set("no_delay", Value::Bool(true));
        params
    }

    /// A SYN of this host.
    fn stranger(&self, sent: &Sent, n: u32) -> Result<(Option<Part>, Vec<u8>), &'static str> {
        let family = self.0.ok_or("a link has one other end")?;
        let peer = family.host(0x0b_0000 + n);
        let mut octets: Vec<u8> = sent.message.octets().take(20).collect();
        // No acknowledgement, a header of five words, SYN, a window, no checksum yet.
        octets[8..18].copy_from_slice(&[0, 0, 0, 0, 0x50, 0x02, 0xff, 0xff, 0, 0]);
        let mut sum = Checksum::pseudo_header(peer, Side::B.host(family), 6, 20);
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
}

fn both(law: fn(&dyn Fixture) -> Verdict) {
    for over in [Some(Family::V4), Some(Family::V6), None] {
        assert_eq!(law(&Over(over)), Verdict::Holds);
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
        assert_eq!(hostile::pins_nothing(&Over(Some(family))), Verdict::Holds);
    }
}

#[test]
fn nothing_is_left_after_stop() {
    both(sessions::stops);
}

#[test]
fn what_is_for_many_is_not_for_one() {
    for family in Family::ALL {
        assert_eq!(hosts::tells_one_from_many(&Over(Some(family))), Verdict::Holds);
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

#[test]
fn ports_are_chosen_once() {
    blocking::chooses_numbers_of_their_own(&Over(Some(Family::V4)));
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

#[test]
fn lost_questions_found_nothing() {
    both(lost::founds_nothing);
}
