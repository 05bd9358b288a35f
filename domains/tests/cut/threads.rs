//! Both halves are threads of this process.

use std::thread;

use super::half::{Cut, Half, Lends, Side};
use super::{IDLE, Place, Signals, converse, far, outlives};
use xk_domains::ring::{Kin, pair};

/// Cuts host 1 above the node `last`.
fn holds(last: &'static str, kind: &'static str, lends: bool) {
    let place = Place::new();
    let signals = Signals::default();
    let (above, below) = pair().unwrap();
    let (kin, other) = Kin::pair();
    let lends = |kin| if lends { Lends::ToThread(kin) } else { Lends::Nothing };
    let (lends, other_lends) = (lends(kin), lends(other));
    let (text, far_text) = (place.host(1), place.host(2));
    let (stop, errors) = (signals.stop.clone(), signals.errors.clone());
    let far = thread::spawn(move || far(&far_text, &stop, &errors));
    let below = thread::spawn({
        let text = text.clone();
        move || {
            let below = Half::new(
                &text,
                IDLE,
                Some(Cut { side: Side::Below, last, ring: below, lends: other_lends }),
            );
            outlives(&below, kind);
        }
    });
    let near = Half::new(&text, IDLE, Some(Cut { side: Side::Above, last, ring: above, lends }));
    converse(&near, Some(&signals.errors));
    drop(near);
    below.join().expect("the lower half");
    drop(signals);
    far.join().expect("the far host");
}

#[test]
fn a_protocol_and_the_one_below_it_lie_in_two_threads() {
    holds("icmp", "udp", false);
}

#[test]
fn an_application_and_the_protocol_below_it_lie_in_two_threads() {
    holds("udp", "app", false);
}

#[test]
fn two_threads_lend_each_other_messages() {
    holds("icmp", "udp", true);
    holds("udp", "app", true);
}
