//! Both halves are threads of this process.

use std::thread;

use super::half::{Half, Side};
use super::{IDLE, Place, Signals, converse, far, outlives};
use xk_share_ring::pair;

/// Cuts host 1 above the node `last`.
fn holds(last: &'static str, kind: &'static str) {
    let place = Place::new();
    let signals = Signals::default();
    let (above, below) = pair().unwrap();
    let (text, far_text) = (place.host(1), place.host(2));
    let (stop, errors) = (signals.stop.clone(), signals.errors.clone());
    let far = thread::spawn(move || far(&far_text, &stop, &errors));
    let below = thread::spawn({
        let text = text.clone();
        move || {
            let below = Half::new(&text, IDLE, Some((Side::Below, last, below)));
            outlives(&below, kind);
        }
    });
    let near = Half::new(&text, IDLE, Some((Side::Above, last, above)));
    converse(&near, Some(&signals.errors));
    drop(near);
    below.join().expect("the lower half");
    drop(signals);
    far.join().expect("the far host");
}

#[test]
fn a_protocol_and_the_one_below_it_lie_in_two_threads() {
    holds("icmp", "udp");
}

#[test]
fn an_application_and_the_protocol_below_it_lie_in_two_threads() {
    holds("udp", "app");
}
