//! Requests that arrive at once, on a lower half of the tests' own.

use super::calls::REQUESTS_MAX;
use super::*;
use crate::form::Form;
use alloc::vec;
use core::time::Duration;
use xk_appletalk::atp::{OptionKind, Options as Parsed, ReleaseTimer, Want};
use xk_core::object::Served;
use xk_core::{Message, Protocol};
use xk_testkit::kernel::TestKernel;

/// A lower half that notes what is sent.
#[derive(Default)]
struct Below1 {
    sink: RefCell<Option<Rc<dyn Sink>>>,
    sent: Rc<RefCell<Vec<Ends>>>,
}

struct Door1(Addr, Rc<RefCell<Vec<Ends>>>);

impl Below for Below1 {
    fn open(
        &self,
        _: &Kernel,
        _: ProtocolId,
        local: Addr,
        sink: Rc<dyn Sink>,
    ) -> Result<Rc<dyn Door>, Fault> {
        *self.sink.borrow_mut() = Some(sink);
        Ok(Rc::new(Door1(local, Rc::clone(&self.sent))))
    }

    fn max_packet(&self, _: &Kernel) -> Option<u32> {
        None
    }

    fn local_to(&self, _: &Kernel, _: &Addr) -> Option<Addr> {
        None
    }

    fn stop(&self, _: &Kernel) {
        drop(self.sink.take());
    }
}

impl Door for Door1 {
    fn send(&self, _: &Kernel, ends: &Ends, _: Parcel) -> Result<(), Fault> {
        self.1.borrow_mut().push(*ends);
        Ok(())
    }

    fn local(&self, _: &Kernel) -> Addr {
        self.0
    }

    fn close(&self, _: &Kernel) {}
}

/// Replies with what it is asked, and with what came beside it.
struct Server;

impl Protocol for Server {
    fn call_demux(&self, _: &Kernel, _: &ProtocolRef, _: &SessionRef, request: Message) -> Served {
        Ok(request)
    }
}

struct Lower;

impl Protocol for Lower {}

/// Each request has its answer: beyond those that wait that it is not executed, so that it may come
/// again; and the reply has none of what came beside the request.
#[test]
fn requests_beyond_those_that_wait_are_refused() {
    let cx = TestKernel::new(1);
    let form = Form::of("atp").unwrap();
    let below = Rc::new(Below1::default());
    let lower = cx.add_protocol("atp", "atp", Lower);
    let edge = Edge::new(form, lower);
    let half: Rc<dyn super::Below> = Rc::<Below1>::clone(&below);
    let above = XkAbove::new(&cx, &edge, &half);
    let node = cx.add_protocol("adapter", "adapter", above);
    edge.placed(&node);
    let server = cx.add_protocol("server", "server", Server);
    cx.start().unwrap();
    let local = Participants::local("socket140".parse::<xk_core::Participant>().unwrap());
    let _ = node.open_enable(&cx, Upper::new(&server), local).unwrap();
    let sink = below.sink.borrow().clone().unwrap();
    let addr = |text: &str| form.to_addr(&text.parse().unwrap()).unwrap();
    let want = Want { once: Some(ReleaseTimer::HalfMinute), user: *b"user", ..Want::DEFAULT };
    let arrive = |number: u16| {
        let options = Some(Parsed::request(&want, number).emit());
        let ends = Ends::new(addr("socket130@node3@net10"), addr("socket140"));
        let parcel = Parcel::Message(cx.pool().copy_from(64, b"request").unwrap());
        sink.arrive(&cx, &Ends { options, ..ends }, parcel).map_err(|unwanted| unwanted.why)
    };
    let more = 6;
    let arrived: Vec<_> = (0..).take(REQUESTS_MAX + more).map(arrive).collect();
    let full = Err(&reason::QUEUE_FULL);
    let expected = [vec![Ok(()); REQUESTS_MAX], vec![full; more]].concat();
    assert!(arrived == expected);
    let answers = || {
        let sent = below.sent.take();
        let read = |ends: Ends| {
            assert_eq!(ends.to, addr("socket130@node3@net10"));
            let options = Parsed::parse(&ends.options.unwrap()).unwrap();
            assert_eq!(options.user, [0; 4]);
            (options.kind, options.number)
        };
        sent.into_iter().map(read).collect::<Vec<_>>()
    };
    let numbers = |first: usize, count: usize, kind| -> Vec<(OptionKind, u16)> {
        (first..first + count).map(|number| (kind, number as u16)).collect()
    };
    assert_eq!(answers(), numbers(REQUESTS_MAX, more, OptionKind::Refused));
    cx.advance(Duration::ZERO);
    assert_eq!(answers(), numbers(0, REQUESTS_MAX, OptionKind::Response));
    // There is room again.
    assert_eq!(arrive(99), Ok(()));
    cx.advance(Duration::ZERO);
    assert_eq!(answers(), [(OptionKind::Response, 99)]);
    drop(sink);
    cx.stop();
    assert_eq!(cx.live().0, 0);
}
