//! In steady state a call allocates nothing, on the stack that the rest of the world speaks.

use core::cell::RefCell;
use std::rc::Rc;
use xk_core::graph::Params;
use xk_core::object::{Enable, OpenError, PushError, Refused, Served};
use xk_core::{Kernel, Message, Participants, Protocol, ProtocolRef, Session, SessionRef, Upper};
use xk_kit::rpc::onc::{AUTH_NONE, AUTH_SYS};
use xk_testkit::conformance::{CountingAllocator, allocations, counts_allocations};
use xk_testkit::kernel::TestKernel;

#[global_allocator]
static COUNTED: CountingAllocator = CountingAllocator;

type Ends = Rc<[RefCell<Option<SessionRef>>; 2]>;

/// One end of a link that takes no time: what is pushed at one end is popped at the other before
/// the push returns.
struct Link(Ends, usize);

struct LinkSession(Ends, usize, ProtocolRef);

impl Protocol for Link {
    fn open(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        _: Participants,
    ) -> Result<SessionRef, OpenError> {
        let Link(ends, side) = self;
        if let Some(session) = &*ends[*side].borrow() {
            session.hold();
            return Ok(session.clone());
        }
        let body = LinkSession(Rc::clone(ends), *side, upper.receiver.clone());
        let session = cx.new_session(this, upper.receiver, body);
        *ends[*side].borrow_mut() = Some(session.clone());
        Ok(session)
    }

    fn open_enable(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        participants: Participants,
    ) -> Result<Enable, OpenError> {
        self.open(cx, this, upper, participants).map(|_| Enable(0))
    }

    fn stop(&self, _: &Kernel, _: &ProtocolRef) {
        let Link(ends, side) = self;
        drop(ends[*side].take());
    }
}

impl Session for LinkSession {
    fn push(&self, cx: &Kernel, _: &SessionRef, message: Message) -> Result<(), PushError> {
        let LinkSession(ends, side, _) = self;
        let other = ends[1 - side].borrow().clone().ok_or(PushError::NoRoute)?;
        drop(other.pop(cx, message));
        Ok(())
    }

    fn pop(&self, cx: &Kernel, this: &SessionRef, message: Message) -> Result<(), Refused> {
        self.2.demux(cx, this, message)
    }
}

/// Gives every request back.
struct Echo(ProtocolRef);

impl Protocol for Echo {
    fn start(&self, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        let local: xk_core::Participant = "version1@program5@port7".parse().unwrap();
        let local = Participants::local(local);
        self.0.open_enable(cx, Upper::new(this), local).map(drop)
    }

    fn call_demux(&self, _: &Kernel, _: &ProtocolRef, _: &SessionRef, request: Message) -> Served {
        Ok(request)
    }
}

struct Client;
impl Protocol for Client {}

/// A stack up to the table of programs, with a layer of authentication or without.
fn stack(cx: &Kernel, below: ProtocolRef, with_credentials: bool) -> ProtocolRef {
    let udp = xk_udp::ENTRY.add(cx, "udp", &[below], &Params::default()).expect("udp");
    let reqrep = xk_reqrep::add(cx, "reqrep", udp, xk_reqrep::Settings::default());
    let settings = xk_sunselect::Settings::default();
    let select = xk_sunselect::add(cx, "sunselect", reqrep, settings);
    let (upper, flavor) = if with_credentials {
        let entry = &xk_auth::authsys::ENTRY;
        let sys = entry.add(cx, "authsys", core::slice::from_ref(&select), &Params::default());
        (Some(sys.expect("authsys")), AUTH_SYS)
    } else {
        (None, AUTH_NONE)
    };
    let below = upper.clone().unwrap_or_else(|| select.clone());
    let prog = xk_sunprog::add(cx, "sunprog", below, &[], xk_sunprog::Settings::default());
    let chosen = upper.as_ref().unwrap_or(&prog);
    cx.numbers_mut().override_pair(chosen.id(), select.id(), flavor);
    prog
}

fn calls_without_allocating(with_credentials: bool) {
    assert!(counts_allocations());
    let cx = TestKernel::new(1);
    let ends: Ends = Rc::default();
    let links = [0, 1].map(|side| cx.add_protocol("link", "link", Link(Rc::clone(&ends), side)));
    let [client_stack, server_stack] = links.map(|link| stack(&cx, link, with_credentials));
    cx.add_protocol("echo", "echo", Echo(server_stack));
    let client = cx.add_protocol("client", "client", Client);
    cx.start().unwrap();
    let ends = "*, procedure1@version1@program5@port7@*".parse().unwrap();
    let session = client_stack.open(&cx, Upper::new(&client), ends).unwrap();
    let call = || {
        let reply = session.call(&cx, cx.message(b"arguments"));
        assert!(reply.unwrap().eq_octets(b"arguments"));
    };
    // A place for every number there may be, and what else is made once.
    (0..200).for_each(|_| call());
    let before = allocations();
    (0..1000).for_each(|_| call());
    assert_eq!(allocations() - before, 0, "a call allocates");
    drop(session);
    cx.stop();
    assert_eq!(cx.live(), (0, 0), "no message is left");
}

#[test]
fn without_credentials() {
    calls_without_allocating(false);
}

#[test]
fn with_credentials() {
    calls_without_allocating(true);
}
