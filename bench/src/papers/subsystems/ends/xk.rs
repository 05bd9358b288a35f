//! The ends of the x-kernel: `user` above; `ddp`, or `eth` with AppleTalk's nodes, below.

use super::desk::{Above, Between, Desk, RESPONSE, count, desk, end_below, message};
use crate::cable::HEADROOM;
use crate::stopwatch::{Way, enter, leave};
use std::cell::{OnceCell, RefCell};
use std::rc::Rc;
use xk_core::graph::{Build, BuildError, Family, Realm, Service};
use xk_core::object::{Closing, Enable, OpenError, Popped, PushError, Refused, Served};
use xk_core::{
    Answer, Ask, Entry, Kernel, Message, Participant, Participants, Protocol, ProtocolRef, Session,
    SessionRef, Upper,
};
use xk_kit::control::MaxPacket;

static USER: Entry = Entry::layer("user", "", build_user)
    .on(&[Realm::Async, Realm::Rpc], &[Family::Any])
    .service(Service::TOP)
    .numbers(&[("ddp", super::desk::TYPE as u32)]);
static DDP: Entry = end_below("ddp", build_lower, Family::Other("AppleTalk sockets"));
static ETH: Entry = end_below("eth", build_lower, Family::Other("AppleTalk nodes"));
pub(super) static ENTRIES: [&Entry; 3] = [&USER, &DDP, &ETH];

/// Both ends' addresses, ours first.
fn ends() -> Participants {
    "socket140,socket130@node18@net10".parse().expect("participants")
}

// ---- above ----

struct User {
    lower: ProtocolRef,
    desk: Rc<Desk>,
}

fn build_user(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let (lower, desk) = (build.lower(0)?, desk(build.cx));
    build.add(User { lower, desk })
}

impl Protocol for User {
    fn start(&self, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        let above = self.desk.above.get();
        if above == Above::Server {
            let own: Participant = "socket140".parse().expect("a participant");
            let own = Participants::local(own);
            return self.lower.open_enable(cx, Upper::new(this), own).map(drop);
        }
        let (lower, this, desk) = (self.lower.clone(), this.clone(), Rc::clone(&self.desk));
        let session: OnceCell<SessionRef> = OnceCell::new();
        let act = move |cx: &Kernel, octets: usize, _| {
            let session = session
                .get_or_init(|| lower.open(cx, Upper::new(&this), ends()).expect("a session"));
            let message = message(cx.pool(), octets);
            if above == Above::Caller {
                let reply = enter(Way::Down, || session.call(cx, message)).expect("a reply");
                assert_eq!(reply.len(), RESPONSE, "of the response");
                return count(&desk.came);
            }
            enter(Way::Down, || session.push(cx, message)).expect("it goes");
        };
        *self.desk.down.borrow_mut() = Some(Rc::new(act));
        Ok(())
    }

    fn demux(&self, _: &Kernel, _: &ProtocolRef, _: &SessionRef, message: Message) -> Popped {
        leave(|| {
            drop(message);
            count(&self.desk.came);
        });
        Ok(())
    }

    fn call_demux(&self, cx: &Kernel, _: &ProtocolRef, _: &SessionRef, request: Message) -> Served {
        Ok(leave(|| {
            drop(request);
            count(&self.desk.came);
            message(cx.pool(), RESPONSE)
        }))
    }

    fn stop(&self, _: &Kernel, _: &ProtocolRef) {
        self.desk.down.take();
    }
}

// ---- below ----

struct Lower {
    desk: Rc<Desk>,
    /// The protocol above, and the session through which it gets what comes.
    upper: Rc<RefCell<(Option<ProtocolRef>, Option<SessionRef>)>>,
}

struct End {
    desk: Rc<Desk>,
    upper: ProtocolRef,
}

fn build_lower(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let desk = desk(build.cx);
    build.add(Lower { desk, upper: Rc::default() })
}

impl Protocol for Lower {
    fn start(&self, _: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        let (this, desk, upper) = (this.clone(), Rc::clone(&self.desk), Rc::clone(&self.upper));
        let act = move |cx: &Kernel, octets: usize, _| {
            let message = match desk.between.get() {
                Between::Edge => message(cx.pool(), octets),
                _ => cx.pool().copy_from(HEADROOM, &desk.coming(octets)).expect("messages"),
            };
            let (receiver, session) = upper.borrow().clone();
            let session = session.unwrap_or_else(|| {
                let receiver = receiver.expect("it is offered");
                let end = End { desk: Rc::clone(&desk), upper: receiver.clone() };
                let made = cx.new_passive_session(&this, &receiver, 0, end);
                made.announce(cx, &receiver, ends()).expect("it is taken");
                upper.borrow_mut().1 = Some(made.clone());
                made
            });
            enter(Way::Up, || session.pop(cx, message)).expect("it is taken");
        };
        *self.desk.up.borrow_mut() = Some(Rc::new(act));
        Ok(())
    }

    fn open(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        _: Participants,
    ) -> Result<SessionRef, OpenError> {
        let (desk, receiver) = (Rc::clone(&self.desk), upper.receiver.clone());
        let session = cx.new_session(this, upper.receiver, End { desk, upper: receiver });
        self.upper.borrow_mut().1 = Some(session.clone());
        Ok(session)
    }

    fn open_enable(
        &self,
        _: &Kernel,
        _: &ProtocolRef,
        upper: Upper<'_>,
        _: Participants,
    ) -> Result<Enable, OpenError> {
        self.upper.borrow_mut().0 = Some(upper.receiver.clone());
        Ok(Enable(1))
    }

    fn control(&self, _: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        ask.answer::<MaxPacket>(|q| q.octets = super::desk::MAX as u32)
    }

    fn stop(&self, _: &Kernel, _: &ProtocolRef) {
        self.desk.up.take();
        self.upper.take();
    }
}

impl Session for End {
    fn push(&self, cx: &Kernel, this: &SessionRef, message: Message) -> Result<(), PushError> {
        leave(|| {
            let response = self.desk.went(message.front_slice());
            drop(message);
            if let Some(octets) = response {
                let response = cx.pool().copy_from(HEADROOM, &octets).expect("messages are left");
                enter(Way::Up, || this.pop(cx, response)).expect("it is taken");
            }
        });
        Ok(())
    }

    fn pop(&self, cx: &Kernel, this: &SessionRef, message: Message) -> Result<(), Refused> {
        self.upper.demux(cx, this, message)
    }

    fn control(&self, _: &Kernel, _: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        ask.answer::<MaxPacket>(|q| q.octets = super::desk::MAX as u32)
    }

    fn close(&self, _: &Kernel, _: &SessionRef) -> Closing {
        Closing::Done
    }
}
