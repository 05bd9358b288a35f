//! Users that are charged beyond the next cut, and what others have room for there.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use xk_core::object::{Payer, Popped};
use xk_core::{
    Kernel, Message, Part, Participant, Participants, Protocol, ProtocolRef, SessionRef, Upper,
};
use xk_domains::messages::{Data, FRAMES_MAX, pair};
use xk_domains::{
    Account, Arrival, Carrier, Known, Port, Queue, SendError, add_port, lower_proxy, upper_proxy,
};
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
    fn demux(&self, cx: &Kernel, _: &ProtocolRef, lower: &SessionRef, message: Message) -> Popped {
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

/// Act of the other side each time that a frame is sent.
type Act = Rc<RefCell<Option<Box<dyn Fn()>>>>;

/// An end of a carrier whose other side acts at once, for as long as there is something to do.
struct Prompted(Box<dyn Carrier>, Act);

impl Carrier for Prompted {
    fn room(&self) -> usize {
        self.0.room()
    }

    fn look_for_room(&self) {
        self.0.look_for_room();
    }

    fn frame_octets_max(&self) -> usize {
        self.0.frame_octets_max()
    }

    fn send(&self, cx: &Kernel, head: &[u8], body: &Message) -> Result<(), SendError> {
        self.0.send(cx, head, body)?;
        self.1.borrow().iter().for_each(|act| act());
        Ok(())
    }

    fn receive(&self, cx: &Kernel) -> Arrival {
        self.0.receive(cx)
    }

    fn is_lost(&self, cx: &Kernel) -> bool {
        self.0.is_lost(cx)
    }

    fn close(&self) {
        self.0.close();
    }

    fn flush(&self) {
        self.0.flush();
    }
}

impl Cut {
    fn new() -> Self {
        let (down, up) = Queue::pair(SLOTS);
        Self::on(Box::new(down), Box::new(up))
    }

    /// One on these ends of a carrier.
    fn on(down: Box<dyn Carrier>, up: Box<dyn Carrier>) -> Self {
        let (below, above) = (TestKernel::new(1), TestKernel::new(2));
        let bottom = Bottom::add(&below, "bottom", Lower::host(OWN, 253));
        let lower = Port::new(down, Known::of(&[]));
        lower.grant(bottom.protocol());
        lower.admit(|cx: &Kernel, port: &Rc<Port>, of| {
            Some(upper_proxy(cx, port, of, "top", "top"))
        });
        // Until the protocol above is enabled the side below takes what is asked for at once.
        let (act, cx, below_port) = (Act::default(), below.share(), Rc::clone(&lower));
        let upper = Port::new(Box::new(Prompted(up, Rc::clone(&act))), Known::of(&[]));
        act.replace(Some(Box::new(move || {
            below_port.poll(&cx, usize::MAX);
            below_port.flush(&cx);
        })));
        add_port(&below, &lower, "lower port");
        add_port(&above, &upper, "upper port");
        let proxy = lower_proxy(&above, &upper, bottom.protocol().id(), "bottom", "bottom");
        let back = Back::default();
        let (payer, taken) = (Rc::clone(&back.payer), Rc::clone(&back.taken));
        let back = above.add_protocol("back", "back", back);
        let anybody = Participants::local(Participant::of(Part::Any));
        let _enabled =
            proxy.open_enable(&above, Upper::new(&back), anybody).expect("it is enabled");
        drop(act.take());
        Self { below, above, bottom, lower, upper, payer, taken }
    }

    /// Lets a message of a peer arrive, which the side above answers.
    fn arrives(&self, number: u64) {
        self.arrives_with(number, 0);
    }

    /// As [`arrives`](Self::arrives), of a message with so many octets more.
    fn arrives_with(&self, number: u64, more: usize) {
        let octets = [&number.to_le_bytes()[..], &vec![0; more]].concat();
        let message = self.below.message(&octets);
        self.bottom.inject(&self.below, Some(Part::host(PEER)), message);
        self.lower.flush(&self.below);
        self.upper.poll(&self.above, usize::MAX);
        self.upper.flush(&self.above);
    }

    /// Returns the numbers that have come back since the side below looked the last time.
    fn come_back(&self) -> Vec<u64> {
        self.lower.poll(&self.below, usize::MAX);
        let number = |sent: Sent| {
            let octets: Vec<u8> = sent.message.octets().take(8).collect();
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

/// Whatever carries them across, and however long they are.
#[test]
fn what_has_come_up_finds_room_for_its_answer() {
    let messages = |data| {
        let (down, up) = pair(data).expect("a socket");
        Cut::on(Box::new(down), Box::new(up))
    };
    for more in [0, 4000] {
        answers_all(&Cut::new(), more, SLOTS, &format!("{more} octets more"));
        for data in [Data::InBand, Data::Mapped] {
            answers_all(
                &messages(data),
                more,
                FRAMES_MAX,
                &format!("{more} octets more, {data:?}"),
            );
        }
    }
}

/// Sends many messages: more than `least` are taken, and each of these is answered.
fn answers_all(cut: &Cut, more: usize, least: usize, what: &str) {
    for number in 1..=4 * SLOTS as u64 {
        cut.arrives_with(number, more);
        // The side below takes fewer than it sends.
        if number % 3 == 0 {
            cut.lower.poll(&cut.below, 1);
        }
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
    assert!(back.len() > least && back.is_sorted(), "{what}: {}", back.len());
    assert_eq!(back.len(), cut.taken.get(), "{what}: all that the side above has taken");
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
