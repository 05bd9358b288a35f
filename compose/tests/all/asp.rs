//! ASP between two hosts: a command block in front of what is written, attentions, and a session
//! that is held by tickles alone.

use crate::sim::{checked, pass, started};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use xk_appletalk::atp::{OptionKind, Options, REPLY_OCTETS_MAX};
use xk_asp::AspAttention;
use xk_core::control::ListSessions;
use xk_core::object::{CallCause, CallError, Refused};
use xk_core::{
    Answer, Ask, Kernel, Message, Part, Participant, Participants, Protocol, ProtocolRef,
    SessionRef, Upper,
};
use xk_kit::rpc::call::Transaction;
use xk_sim::World;

const HOSTS: &str = r#"
host client { sim link=lan; eth sim; aarp eth; ddp aarp net="10" node=17; atp ddp; asp atp; }
host server { sim link=lan; eth sim; aarp eth; ddp aarp net="10" node=18; atp ddp; asp atp; }
link lan delay="1ms" loss="2%"
"#;

/// A request of so many octets is replied to with more than a reply may have.
const ASKS_FOR_TOO_MUCH: usize = 7;

/// Events at both ends.
#[derive(Default)]
struct Seen {
    /// Octets of the command block, and of all.
    requests: Vec<(u16, usize)>,
    served: Option<SessionRef>,
    attentions: Vec<u16>,
    /// Outcomes of attentions and calls.
    ended: Vec<bool>,
    /// The error of the latest call that had one.
    error: Option<CallError>,
    calling: Option<SessionRef>,
}

type Shared = Rc<RefCell<Seen>>;

fn amount(message: &Message) -> u16 {
    let beside = message.attribute::<Transaction>();
    let options = beside.and_then(|Transaction(octets)| Options::parse(&octets).ok());
    options.map_or(0, |options| options.amount)
}

struct End(Shared);

impl Protocol for End {
    fn call_demux(
        &self,
        cx: &Kernel,
        _: &ProtocolRef,
        lower: &SessionRef,
        mut request: Message,
    ) -> Result<Message, Refused> {
        let mut seen = self.0.borrow_mut();
        let block = amount(&request);
        seen.requests.push((block, request.len()));
        seen.served = Some(lower.clone());
        assert!(request.strip(block.into()));
        if request.len() == ASKS_FOR_TOO_MUCH {
            return Ok(cx.pool().copy_from(128, &[9; REPLY_OCTETS_MAX + 1]).expect("a buffer"));
        }
        Ok(request)
    }

    fn control(&self, _: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        ask.answer::<AspAttention>(|told| self.0.borrow_mut().attentions.push(told.code))
    }
}

fn on(world: &mut World, host: &str, what: impl FnOnce(&Kernel) + 'static) {
    let id = world.find(host).expect("a host");
    assert!(world.spawn(id, what));
}

/// Calls with so many octets, the first of which are a command block.
fn call(world: &mut World, seen: &Shared, octets: usize, block: u16) -> Option<bool> {
    let shared = Rc::clone(seen);
    on(world, "client", move |cx| {
        let session = shared.borrow().calling.clone().expect("a session");
        let data: Vec<u8> = (0..octets).map(|at| at as u8).collect();
        let mut request = cx.pool().copy_from(128, &data).expect("a buffer");
        let beside = Options {
            kind: OptionKind::Request,
            once: None,
            end_of_message: false,
            number: 0,
            user: [0; 4],
            bitmap: 0,
            tries: 0,
            amount: block,
        };
        if block > 0 {
            request.set_attribute(Transaction(beside.emit())).expect("room for it");
        }
        let reply = session.call(cx, request);
        let mut seen = shared.borrow_mut();
        let reply = reply.map_err(|error| seen.error = Some(error));
        let is_echo =
            reply.is_ok_and(|reply| reply.octets().eq(data.iter().skip(block.into()).copied()));
        seen.ended.push(is_echo);
    });
    pass(world, Duration::from_secs(20));
    seen.borrow_mut().ended.pop()
}

#[test]
fn blocks_attentions_and_tickles() {
    let mut world = started(&checked(HOSTS), 7);
    pass(&mut world, Duration::from_secs(5));
    let seen = Shared::default();
    let shared = Rc::clone(&seen);
    on(&mut world, "server", move |cx| {
        let end = cx.add_protocol("end", "end", End(shared));
        let asp = cx.find_protocol("asp").expect("the layer");
        let any = Participants::local(Part::Any);
        let _ = asp.open_enable(cx, Upper::new(&end), any).expect("it serves");
    });
    let shared = Rc::clone(&seen);
    on(&mut world, "client", move |cx| {
        let end = cx.add_protocol("end", "end", End(Rc::clone(&shared)));
        let asp = cx.find_protocol("asp").expect("the layer");
        let to: Participant = "socket129@node18@net10".parse().expect("a server");
        let both = Participants::pair(Part::Any, to);
        shared.borrow_mut().calling = asp.open(cx, Upper::new(&end), both).ok();
    });
    pass(&mut world, Duration::from_secs(1));
    // Octets in all, and of the command block, which the server leaves out of its reply.
    let calls = [(45, 0), (1000, 0), (12, 12), (300, 12), (4624 + 12, 12), (578 + 1000, 578)];
    for (octets, block) in calls {
        assert_eq!(call(&mut world, &seen, octets, block), Some(true), "{octets}, {block}");
    }
    let expected: Vec<_> = calls.iter().map(|(octets, block)| (*block, *octets)).collect();
    assert_eq!(seen.borrow().requests, expected);
    assert_eq!(call(&mut world, &seen, 4625 + 12, 12), Some(false), "more than can be written");
    assert_eq!(call(&mut world, &seen, ASKS_FOR_TOO_MUCH, 0), Some(false), "more than a reply has");
    let error = seen.borrow_mut().error.take().expect("an error");
    assert!(matches!(error.cause, CallCause::Rejected(_)), "{error}");
    assert_eq!(call(&mut world, &seen, 45, 0), Some(true), "and the session goes on");
    assert_eq!(call(&mut world, &seen, 2000, 579), Some(false), "more than a request has");
    // The server has the workstation look.
    let shared = Rc::clone(&seen);
    on(&mut world, "server", move |cx| {
        let session = shared.borrow().served.clone().expect("a session");
        let heard = session.ask(cx, AspAttention { session: 0, code: 0x8001 }).is_some();
        shared.borrow_mut().ended.push(heard);
    });
    pass(&mut world, Duration::from_secs(20));
    assert_eq!(seen.borrow_mut().ended.pop(), Some(true));
    assert_eq!(seen.borrow().attentions, [0x8001], "once, whatever was lost");
    // Ten minutes of nothing but tickles.
    let number = |world: &World| {
        let kernel = world.find("server").and_then(|id| world.kernel(id)).expect("a kernel");
        let asp = kernel.find_protocol("asp").expect("the layer");
        let list = asp.ask(kernel, ListSessions::first(9)).expect("a list");
        list.here().map(SessionRef::id).collect::<Vec<_>>()
    };
    let before = number(&world);
    assert_eq!(before.len(), 1);
    pass(&mut world, Duration::from_secs(600));
    assert_eq!(number(&world), before);
    assert_eq!(call(&mut world, &seen, 45, 0), Some(true));
    assert_eq!(number(&world), before, "in the session of before");
    // The workstation closes it.
    let shared = Rc::clone(&seen);
    on(&mut world, "client", move |cx| {
        if let Some(session) = shared.borrow_mut().calling.take() {
            session.close(cx);
        }
    });
    pass(&mut world, Duration::from_secs(10));
    assert!(number(&world).is_empty(), "it was closed");
    seen.borrow_mut().served.take();
}
