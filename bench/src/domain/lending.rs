//! A long message across a cut, copied and lent.

use crate::case::{Case, Goal};
use std::time::Duration;
use xk_core::{Kernel, Message};
use xk_domains::ring::{Kin, Lending, Ring, Terms, pair};
use xk_domains::{Arrival, Carrier};
use xk_run::lending_kernel;

/// Longest time for the two ends to agree.
const MEETING_TIME_MAX: Duration = Duration::from_secs(10);
const POOL_OCTETS: usize = 1 << 25;
const MESSAGES: u64 = 20_000;
const OCTETS: [usize; 3] = [4096, 16_384, 65_000];
/// Headers in front of a message, in octets.
const HEAD: [u8; 12] = [0; 12];
/// Names of the ways other than that between two threads.
const COPIED: &str = "copied in and out";
const BY_PROCESS: &str = "lent to a process, which copies";

/// Way in which the octets of a message cross.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Copied,
    LentToProcess,
    LentToThread,
}

pub(crate) fn cases() -> Vec<Case> {
    let case = |octets: usize, way| {
        Case::new(format!("{octets} octets"), MESSAGES, move || {
            let (below, above) = sides(way);
            let message = below.message(octets);
            move |messages| (0..messages).for_each(|_| cross(&below, &above, &message))
        })
    };
    let of_length = |octets| {
        let lent = case(octets, Way::LentToThread).beside(COPIED);
        [
            if octets > OCTETS[0] { lent.goal(Goal::TimesAsFast(2.0)) } else { lent },
            case(octets, Way::LentToProcess).of(BY_PROCESS),
            case(octets, Way::Copied).of(COPIED),
        ]
    };
    OCTETS.into_iter().flat_map(of_length).collect()
}

/// One side of the cut.
struct Side {
    cx: Kernel,
    carrier: Box<dyn Carrier>,
}

impl Side {
    fn new(ring: Ring, (cx, terms): (Kernel, Option<Terms>)) -> Self {
        let carrier: Box<dyn Carrier> = match terms {
            None => Box::new(ring),
            Some(terms) => Box::new(Lending::new(ring, cx.pool(), terms).expect("a pool")),
        };
        Self { cx, carrier }
    }

    fn message(&self, octets: usize) -> Message {
        self.cx.pool().copy_from(0, &vec![7; octets]).expect("a buffer")
    }
}

/// Both sides.
fn sides(way: Way) -> (Side, Side) {
    let (below, above) = pair().expect("shared memory");
    let [own, other] = [(); 2].map(|()| lending_kernel(POOL_OCTETS).expect("a kernel"));
    if way == Way::Copied {
        return (Side::new(below, (own.0, None)), Side::new(above, (other.0, None)));
    }
    let (kin, other_kin) = Kin::pair();
    let kin_of = |kin| (way == Way::LentToThread).then_some(kin);
    let (kin, other_kin) = (kin_of(kin), kin_of(other_kin));
    // Each waits for what the other says.
    let file = other.1;
    let agreed = std::thread::spawn(move || {
        let terms = Terms::agree(&above, Some(&file), other_kin, MEETING_TIME_MAX).expect("terms");
        (above, terms)
    });
    let terms = Terms::agree(&below, Some(&own.1), kin, MEETING_TIME_MAX).expect("terms");
    let (above, other_terms) = agreed.join().expect("no panic");
    (Side::new(below, (own.0, Some(terms))), Side::new(above, (other.0, Some(other_terms))))
}

/// Sends a message, takes it on the other side, releases it, and gives the loan back.
fn cross(below: &Side, above: &Side, message: &Message) {
    below.carrier.send(&below.cx, &HEAD, message).expect("room");
    below.carrier.flush();
    let Arrival::Frame(frame) = above.carrier.receive(&above.cx) else {
        panic!("the message has come");
    };
    drop(frame);
    above.carrier.flush();
    assert!(matches!(below.carrier.receive(&below.cx), Arrival::Nothing));
    below.carrier.flush();
}
