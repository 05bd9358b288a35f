//! Users that are charged beyond the next cut, and what others have room for there.

use std::cell::Cell;
use std::rc::Rc;

use xk_core::object::{Payer, Refused};
use xk_core::{
    Kernel, Message, Part, Participant, Participants, Protocol, ProtocolRef, SessionRef, Upper,
};
use xk_share::{Account, Known, Port, Queue, add_port, lower_proxy, upper_proxy};
use xk_testkit::kernel::{Bottom, Lower, Sent, TestKernel};

use crate::rig::{HOSTILE, OWN, PEER};

/// Frames under way each way.
const SLOTS: usize = 512;

/// Sends each message back where it came from.
#[derive(Default)]
struct Back {
    payer: Rc<Cell<Option<Payer>>>,
    taken: Rc<Cell<usize>>,
}

impl Protocol for Back {
    fn demux(
        &self,
        cx: &Kernel,
        _: &ProtocolRef,
        lower: &SessionRef,
        message: Message,
    ) -> Result<(), Refused> {
        self.payer.set(cx.payer());
        self.taken.set(self.taken.get() + 1);
        // What finds no room is lost, as a datagram is.
        let _ = lower.push(cx, message);
        Ok(())
    }
}

/// A protocol and what answers above it, in two domains.
struct Cut {
    below: TestKernel,
    above: TestKernel,
    bottom: Bottom,
    lower: Rc<Port>,
    upper: Rc<Port>,
    payer: Rc<Cell<Option<Payer>>>,
    taken: Rc<Cell<usize>>,
}

impl Cut {
    fn new() -> Self {
        let (below, above) = (TestKernel::new(1), TestKernel::new(2));
        let bottom = Bottom::add(&below, "bottom", Lower::host(OWN, 253));
        let (down, up) = Queue::pair(SLOTS);
        let lower = Port::new(Box::new(down), Known::of(&[]));
        lower.grant(bottom.protocol());
        lower.admit(|cx: &Kernel, port: &Rc<Port>, of| {
            Some(upper_proxy(cx, port, of, "top", "top"))
        });
        // Until the protocol above is enabled the side below takes what is asked for at once.
        let (is_prompt, cx) = (Rc::new(Cell::new(true)), below.share());
        let prompt = Rc::clone(&is_prompt);
        up.on_put(&lower, move |port, _| {
            if prompt.get() {
                port.poll(&cx, usize::MAX);
                port.flush(&cx);
            }
        });
        let upper = Port::new(Box::new(up), Known::of(&[]));
        add_port(&below, &lower, "lower port");
        add_port(&above, &upper, "upper port");
        let proxy = lower_proxy(&above, &upper, bottom.protocol().id(), "bottom", "bottom");
        let back = Back::default();
        let (payer, taken) = (Rc::clone(&back.payer), Rc::clone(&back.taken));
        let back = above.add_protocol("back", "back", back);
        let anybody = Participants::local(Participant::of(Part::Any));
        let _enabled =
            proxy.open_enable(&above, Upper::new(&back), anybody).expect("it is enabled");
        is_prompt.set(false);
        Self { below, above, bottom, lower, upper, payer, taken }
    }

    /// Lets a message of a peer arrive, which the side above answers.
    fn arrives(&self, number: u64) {
        let message = self.below.message(&number.to_le_bytes());
        self.bottom.inject(&self.below, Some(Part::host(PEER)), message);
        self.lower.flush(&self.below);
        self.upper.poll(&self.above, usize::MAX);
        self.upper.flush(&self.above);
    }

    /// Returns the numbers that have come back since the side below looked the last time.
    fn come_back(&self) -> Vec<u64> {
        self.lower.poll(&self.below, usize::MAX);
        let number = |sent: Sent| {
            let octets: Vec<u8> = sent.message.octets().collect();
            u64::from_le_bytes(octets.try_into().expect("eight octets"))
        };
        self.bottom.take_sent().into_iter().map(number).collect()
    }
}

#[test]
fn what_a_user_brings_about_leaves_room_to_others_on_its_way_back() {
    let (cut, hostile) = (Cut::new(), Payer::user(HOSTILE));
    for number in 1..=2 * SLOTS as u64 {
        cut.below.charging(hostile, || cut.arrives(number));
        assert_eq!(cut.payer.get(), Some(hostile));
    }
    cut.arrives(u64::MAX);
    assert_eq!(cut.payer.get(), None);
    let back = cut.come_back();
    assert!(back.len() > SLOTS / 2, "its share: {}", back.len());
    assert_eq!(back.last(), Some(&u64::MAX), "what others have asked for is answered");
}

#[test]
fn what_has_come_up_finds_room_for_its_answer() {
    let cut = Cut::new();
    for number in 1..=4 * SLOTS as u64 {
        cut.arrives(number);
    }
    let mut back = Vec::new();
    // Each side in turn, as long as anything is under way.
    loop {
        let more = cut.come_back();
        cut.lower.flush(&cut.below);
        cut.upper.poll(&cut.above, usize::MAX);
        cut.upper.flush(&cut.above);
        if more.is_empty() {
            break;
        }
        back.extend(more);
    }
    assert!(back.len() > SLOTS && back.is_sorted(), "{}", back.len());
    assert_eq!(back.len(), cut.taken.get(), "all that the side above has taken");
}

#[test]
fn a_side_that_is_not_trusted_hears_of_no_other_user() {
    let cut = Cut::new();
    let own = Payer::user(HOSTILE + 1);
    cut.lower.charge(&Account::of(&cut.below, own));
    cut.below.charging(Payer::user(HOSTILE), || cut.arrives(1));
    assert_eq!(cut.payer.get(), None);
    assert_eq!(cut.come_back(), [1]);
    // What it says itself is not believed.
    let payer = Rc::new(Cell::new(None));
    let seen = Rc::clone(&payer);
    cut.bottom.on_push(Rc::new(move |cx, _| seen.set(cx.payer())));
    cut.above.charging(Payer::user(HOSTILE), || cut.arrives(2));
    assert_eq!(cut.come_back(), [2]);
    assert_eq!(payer.get(), Some(own));
}
