//! Programs in the manner of SR in the simulator: machines that invoke each other by call and send
//! on a network that loses, repeats and delays, on both layers of calls below.

use core::time::Duration;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use xk_compose::{SimulationConfig, check, simulate, start_world};
use xk_core::control::{ListSessions, Report};
use xk_core::object::{CallCause, CallError, Enable};
use xk_core::random::Random;
use xk_core::shepherd::Semaphore;
use xk_core::{Answer, Kernel, Message, Part, Participant, Participants, SessionRef, Upper};
use xk_kit::group::PROCESS;
use xk_kit::rpc::call::{CallOptions, PROCEDURE, SYSTEM_ERROR};
use xk_kit::rpc::invoke::{
    AskGuards, Guard, Invocation, MACHINE, Manner, ProcessRuns, ProgramEnded,
};
use xk_sim::{HostId, World};
use xk_testkit::kernel::{OnAsk, OnServe, Top, octets};
use xk_testkit::seeds;

const MS: Duration = Duration::from_millis(1);
/// The stacks, by the line of the graph alone.
const STACKS: [&str; 3] = [
    "vip arp ip\n fragment vip\n channel fragment\n sr channel",
    "udp ip\n reqrep udp dupcache=256\n sr reqrep at=port2006",
    "fragment ip\n channel fragment\n sr channel",
];
const LOSSY: &str = "delay=\"1ms\" jitter=\"2ms\" loss=\"3%\" duplicate=\"5%\" reorder=\"20%\"";
const SOUND: &str = "delay=\"1ms\"";

/// The end of a call: the reply, or why there is none.
type End = Rc<RefCell<Option<Result<String, CallError>>>>;

struct Program {
    world: World,
    hosts: Vec<HostId>,
    tops: Vec<Top>,
    enabled: Vec<Enable>,
}

/// A session of `top` to an operation of a machine.
fn open(cx: &Kernel, top: &Top, process: u8, vm: usize, operation: u32) -> SessionRef {
    let own = Participant::of(Part::Number(PROCESS, process.into()));
    let to = Participant::of(Part::Any).with(Part::Number(MACHINE, vm as u64));
    let ends = Participants::pair(own, to.with(Part::Number(PROCEDURE, operation.into())));
    top.open(cx, &cx.find_protocol("sr").unwrap(), ends).expect("it opens")
}

fn message(cx: &Kernel, text: &str, invocation: Invocation) -> Message {
    let mut message = cx.pool().copy_from(128, text.as_bytes()).unwrap();
    message.set_attribute(invocation).unwrap();
    message
}

fn manner(manner: Manner) -> Invocation {
    Invocation { manner, number: 0 }
}

fn text(message: &Message) -> String {
    String::from_utf8(octets(message)).unwrap()
}

impl Program {
    /// Machines 0 to `n - 1`, each with a protocol above that serves all operations.
    fn new(n: usize, layers: &str, link: &str, seed: u64) -> Self {
        let host = |vm: usize| {
            let (address, machines) = (vm + 1, if vm == 0 { n } else { 0 });
            let coordinator = if vm == 0 { "" } else { "coordinator=\"10.0.0.1\"" };
            format!(
                "host h{vm} {{\n sim link=lan\n eth sim\n arp eth\n \
                 ip arp {{ address \"10.0.0.{address}/24\"; }}\n {layers} vm={vm} \
                 {coordinator} machines={machines}\n}}\n"
            )
        };
        let stranger = |n: u8| {
            format!(
                "host s{n} {{\n sim link=lan\n eth sim\n arp eth\n \
                 ip arp {{ address \"10.0.0.{}/24\"; }}\n udp ip\n reqrep udp\n}}\n",
                90 + n
            )
        };
        let hosts = (0..n).map(host).chain((0..2).map(stranger));
        let source: String = hosts.chain([format!("link lan {link}\n")]).collect();
        let checked = check(&source, "machines", &xk_catalog::standard());
        let checked = checked.unwrap_or_else(|mistakes| panic!("{mistakes}\n{source}"));
        let config = SimulationConfig { seed, ..SimulationConfig::default() };
        let mut world = simulate(&checked, config).unwrap_or_else(|e| panic!("{e}"));
        let hosts: Vec<HostId> = (0..n).map(|vm| world.find(&format!("h{vm}")).unwrap()).collect();
        let tops = hosts.iter().map(|host| {
            let top = world.enter(*host, |cx| {
                let top = Top::add(cx, "top");
                // A process of the test's own, so that the program does not end by itself.
                cx.find_protocol("sr").unwrap().ask(cx, ProcessRuns { begins: true }).unwrap();
                top
            });
            top.unwrap()
        });
        let tops: Vec<Top> = tops.collect();
        start_world(&checked, &mut world).unwrap_or_else(|e| panic!("{e}"));
        let mut program = Self { world, hosts, tops, enabled: Vec::new() };
        program.enabled = (0..n).map(|vm| program.enable(vm)).collect();
        program.pass(1000 * MS);
        program
    }

    fn pass(&mut self, time: Duration) {
        let until = self.world.now().after(time);
        self.world.run_until(until);
    }

    fn enable(&mut self, vm: usize) -> Enable {
        let top = self.tops[vm].clone();
        let enabled = self.world.enter(self.hosts[vm], |cx| {
            let ends = Participants::local(Part::Any);
            top.enable(cx, &cx.find_protocol("sr").unwrap(), ends)
        });
        enabled.unwrap().expect("it is enabled")
    }

    fn serve(&self, vm: usize, serve: impl Fn(&Kernel, &SessionRef, Message) -> Served + 'static) {
        self.tops[vm].on_serve(Some(Rc::new(serve) as OnServe));
    }

    /// Has machine `vm` answer guards.
    fn guard(&self, vm: usize, guard: impl Fn(&mut Guard) + 'static) {
        let on_ask: OnAsk = Rc::new(move |_, ask| match ask.get::<Guard>() {
            Some(asked) => {
                guard(asked);
                Answer::Answered
            }
            None => Answer::Unknown,
        });
        self.tops[vm].on_ask(on_ask);
    }

    /// A process of machine `from` invokes an operation of another one.
    fn invoke(
        &mut self,
        (from, process): (usize, u8),
        to: (usize, u32),
        how: Manner,
        body: &str,
    ) -> End {
        let (top, body, end) = (self.tops[from].clone(), body.to_owned(), End::default());
        let ended = Rc::clone(&end);
        self.world.spawn(self.hosts[from], move |cx| {
            let session = open(cx, &top, process, to.0, to.1);
            let reply = session.call(cx, message(cx, &body, manner(how)));
            *ended.borrow_mut() = Some(reply.map(|reply| text(&reply)));
            session.close(cx);
        });
        end
    }

    fn tell<Q: xk_core::control::Question>(&mut self, vm: usize, question: Q) -> Option<Q> {
        let ask = |cx: &Kernel| cx.find_protocol("sr").unwrap().ask(cx, question);
        self.world.enter(self.hosts[vm], ask).unwrap()
    }

    fn has_ended(&mut self, vm: usize) -> bool {
        self.tell(vm, ProgramEnded::default()).unwrap().has_ended
    }

    fn drops(&mut self, vm: usize, name: &str) -> u64 {
        let list = self
            .world
            .enter(self.hosts[vm], |cx| cx.find_protocol("sr").unwrap().head().drops().list());
        let found = list.unwrap().into_iter().find(|(reason, _)| reason.name == name);
        found.map_or(0, |(_, count)| count)
    }
}

type Served = Result<Message, &'static xk_core::Reason>;

fn is(end: &End, wanted: &str) -> bool {
    matches!(&*end.borrow(), Some(Ok(reply)) if reply == wanted)
}

fn refused(end: &End) -> Option<&'static str> {
    match &*end.borrow() {
        Some(Err(CallError { cause: CallCause::Rejected(why), .. })) => Some(why.reason.name),
        _ => None,
    }
}

/// Shepherds of one process make sends at the same time; each is numbered as it is made.
#[test]
fn a_hundred_sends_of_one_process_arrive_in_their_order() {
    seeds::of(20).run(|seed| {
        let layers = STACKS[seed as usize % STACKS.len()];
        let mut program = Program::new(2, layers, LOSSY, seed);
        let (come, made) = (Rc::new(RefCell::new(Vec::new())), Rc::new(Cell::new(0)));
        let heard = Rc::clone(&come);
        program.serve(1, move |_, _, request| {
            heard.borrow_mut().push(text(&request).parse::<u32>().unwrap());
            Ok(request)
        });
        for _ in 0..10 {
            let (top, made) = (program.tops[0].clone(), Rc::clone(&made));
            program.world.spawn(program.hosts[0], move |cx| {
                let session = open(cx, &top, 7, 1, 9);
                for _ in 0..10 {
                    let number = made.get();
                    made.set(number + 1);
                    let send = message(cx, &number.to_string(), manner(Manner::CoSend));
                    let reply = session.call(cx, send);
                    assert!(
                        matches!(&reply, Ok(reply) if reply.is_empty()),
                        "seed {seed}: {reply:?}"
                    );
                }
            });
        }
        program.pass(60_000 * MS);
        assert_eq!(*come.borrow(), (0..100).collect::<Vec<u32>>(), "seed {seed}");
    });
}

#[test]
fn a_rendezvous_takes_the_largest_that_is_permitted() {
    for layers in STACKS {
        let mut program = Program::new(3, layers, LOSSY, 3);
        let (is_open, order) = (Rc::new(Cell::new(false)), Rc::new(RefCell::new(Vec::new())));
        let (opened, executed) = (Rc::clone(&is_open), Rc::clone(&order));
        program.guard(0, move |guard| {
            guard.may = opened.get() && guard.arguments[0] != b'0';
            guard.by = -i64::from(guard.arguments[0]);
        });
        program.serve(0, move |_, _, request| {
            executed.borrow_mut().push(text(&request));
            Ok(request)
        });
        let bodies = ["3", "9", "0", "1", "7", "5"];
        let calls = bodies.iter().enumerate();
        let calls: Vec<(End, &str)> = calls
            .map(|(n, body)| {
                (program.invoke((1 + n % 2, n as u8), (0, 9), Manner::Call, body), *body)
            })
            .collect();
        program.pass(3000 * MS);
        assert!(order.borrow().is_empty(), "none is permitted yet");
        is_open.set(true);
        program.tell(0, AskGuards).unwrap();
        program.pass(3000 * MS);
        assert_eq!(*order.borrow(), ["9", "7", "5", "3", "1"]);
        for (end, body) in &calls {
            assert_eq!(is(end, body), *body != "0", "{body}");
        }
        // What waits when its operation is destroyed is told.
        let sent = program.invoke((1, 21), (0, 9), Manner::Send, "0");
        program.pass(2000 * MS);
        assert!(is(&sent, "") && calls[2].0.borrow().is_none());
        let enable = program.enabled[0];
        program.world.enter(program.hosts[0], |cx| {
            cx.find_protocol("sr").unwrap().open_disable(cx, enable);
        });
        program.pass(2000 * MS);
        assert_eq!(refused(&calls[2].0), Some("no such procedure"));
        assert_eq!(program.drops(0, "operation destroyed"), 1);
    }
}

#[test]
fn executions_overlap_but_not_arbitrarily_many() {
    let layers = format!("{} upcalls=3", STACKS[0]);
    let mut program = Program::new(2, &layers, SOUND, 1);
    program.serve(1, |cx, _, request| {
        let _ = cx.wait(&Semaphore::new(0), Some(100 * MS));
        Ok(request)
    });
    let ends: Vec<End> =
        (0..12).map(|n| program.invoke((0, n), (1, 9), Manner::Call, "x")).collect();
    program.pass(5000 * MS);
    assert!(ends.iter().all(|end| is(end, "x")));
    assert_eq!(program.tops[1].serving_most(), 3);
}

/// Machine 1 calls 2, which forwards to 3, and that to 0, which answers 1.
#[test]
fn an_invocation_is_forwarded_through_three_machines_and_answered_directly() {
    for layers in STACKS {
        let mut program = Program::new(4, layers, LOSSY, 5);
        for (vm, next) in [(2, 3), (3, 0)] {
            let top = program.tops[vm].clone();
            program.serve(vm, move |cx, _, request| {
                let number = request.attribute::<Invocation>().unwrap();
                let session = open(cx, &top, 0, next, 9);
                let body = format!("{}{vm}", text(&request));
                let forwarded = session.call(cx, message(cx, &body, number));
                session.close(cx);
                // It is dropped, since the invocation is not this machine's any more.
                forwarded.map_err(|_| &SYSTEM_ERROR)
            });
        }
        program.serve(0, |cx, _, request| {
            let _ = cx.wait(&Semaphore::new(0), Some(5000 * MS));
            let body = format!("{}0", text(&request));
            Ok(message(cx, &body, Invocation::default()))
        });
        let end = program.invoke((1, 0), (2, 9), Manner::Call, "1");
        program.pass(4000 * MS);
        assert!(end.borrow().is_none(), "it is asked for, and still executed: {end:?}");
        program.pass(6000 * MS);
        assert!(is(&end, "1230"), "{end:?}");
        // The last one dies while another is executed there.
        let end = program.invoke((1, 0), (2, 9), Manner::Call, "1");
        program.pass(2000 * MS);
        let hosts = program.hosts.clone();
        hosts[1..].iter().for_each(|host| program.world.network().partition(hosts[0], *host));
        program.pass(120_000 * MS);
        assert_eq!(refused(&end), Some("machine dead"), "{end:?}");
    }
}

#[test]
fn a_reply_comes_before_the_end_of_its_operation() {
    let mut program = Program::new(2, STACKS[0], LOSSY, 2);
    let ended = Rc::new(Cell::new(0));
    let ends = Rc::clone(&ended);
    program.serve(1, move |cx, session, request| {
        let number = request.attribute::<Invocation>().unwrap();
        assert!(session.push(cx, message(cx, "early", number)).is_ok());
        assert!(session.push(cx, message(cx, "twice", number)).is_err());
        let _ = cx.wait(&Semaphore::new(0), Some(10_000 * MS));
        ends.set(ends.get() + 1);
        Ok(request)
    });
    let end = program.invoke((0, 0), (1, 9), Manner::Call, "x");
    program.pass(5000 * MS);
    assert!(is(&end, "early") && ended.get() == 0, "{end:?}");
    program.pass(10_000 * MS);
    assert_eq!((ended.get(), program.drops(1, "answered already")), (1, 1));
    assert_eq!(program.drops(0, "result of no call"), 0);
}

#[test]
fn of_calls_at_one_time_that_of_a_dead_machine_fails_alone() {
    for layers in STACKS {
        let mut program = Program::new(4, layers, SOUND, 7);
        program.serve(2, |cx, _, request| {
            let _ = cx.wait(&Semaphore::new(0), Some(50 * MS));
            Ok(request)
        });
        assert!(program.world.crash(program.hosts[3]));
        let call = |program: &mut Program, vm| {
            program.invoke((0, 1), (vm, 9), Manner::CoCall, &vm.to_string())
        };
        let ends: Vec<End> = (1..4).map(|vm| call(&mut program, vm)).collect();
        program.pass(40 * MS);
        assert!(is(&ends[0], "1") && ends[1].borrow().is_none(), "in the order of their ends");
        program.pass(100 * MS);
        assert!(is(&ends[1], "2") && ends[2].borrow().is_none());
        program.pass(120_000 * MS);
        assert_eq!(refused(&ends[2]), Some("machine dead"), "{:?}", ends[2]);
    }
}

#[test]
fn there_is_no_operation_on_no_machine() {
    let mut program = Program::new(2, STACKS[0], SOUND, 1);
    let call = program.invoke((0, 0), (255, 9), Manner::Call, "x");
    let send = program.invoke((0, 0), (255, 9), Manner::Send, "x");
    let noop = program.invoke((0, 0), (254, 9), Manner::Call, "x");
    let here = program.invoke((1, 0), (1, 9), Manner::Call, "here");
    let unknown = program.invoke((1, 0), (200, 9), Manner::Call, "x");
    program.pass(30_000 * MS);
    assert_eq!(refused(&call), Some("no such procedure"));
    assert!(is(&send, "") && is(&noop, "") && is(&here, "here"));
    assert_eq!(refused(&unknown), Some("machine dead"));
    assert_eq!(program.drops(0, "operation destroyed"), 1);
}

/// Two machines forward an invocation to each other without end.
#[test]
fn a_circle_of_forwards_comes_to_an_end() {
    let mut program = Program::new(3, STACKS[0], SOUND, 1);
    for (vm, next) in [(1, 2), (2, 1)] {
        let top = program.tops[vm].clone();
        program.serve(vm, move |cx, _, request| {
            let number = request.attribute::<Invocation>().unwrap();
            let session = open(cx, &top, 0, next, 9);
            let forwarded = session.call(cx, message(cx, &text(&request), number));
            forwarded.map_err(|_| &SYSTEM_ERROR)
        });
    }
    let end = program.invoke((0, 0), (1, 9), Manner::Call, "x");
    program.pass(5000 * MS);
    assert_eq!(refused(&end), Some("system error"));
    let far = program.drops(1, "too many forwards") + program.drops(2, "too many forwards");
    assert_eq!((far, program.tops[1].served() + program.tops[2].served()), (1, 16));
}

/// Each machine sends to the next; one message takes a second longer than all others, and reports
/// overtake it.
#[test]
fn the_end_is_not_found_while_a_message_is_under_way() {
    seeds::of(20).run(|seed| {
        let (random, n) = (Random::new(seed), 4);
        let layers = STACKS[seed as usize % STACKS.len()];
        let mut program = Program::new(n, layers, SOUND, seed);
        let (done, hops) = (Rc::new(Cell::new(0)), 6);
        for vm in 0..n {
            let (top, done) = (program.tops[vm].clone(), Rc::clone(&done));
            program.serve(vm, move |cx, _, request| {
                let left: u32 = text(&request).parse().unwrap();
                if left == 0 {
                    done.set(done.get() + 1);
                } else {
                    let session = open(cx, &top, 0, (vm + 1) % n, 9);
                    let body = (left - 1).to_string();
                    let sent = session.call(cx, message(cx, &body, manner(Manner::Send)));
                    assert!(sent.is_ok(), "seed {seed}: {:?}", sent.map(drop));
                    session.close(cx);
                }
                Ok(request)
            });
        }
        let slow = random.below(n as u64) as usize;
        let pair = (program.hosts[slow], program.hosts[(slow + 1) % n]);
        program.world.network().partition(pair.0, pair.1);
        let top = program.tops[1].clone();
        program.world.spawn(program.hosts[1], move |cx| {
            let session = open(cx, &top, 1, 2, 9);
            let sent = session.call(cx, message(cx, &hops.to_string(), manner(Manner::Send)));
            assert!(sent.is_ok(), "seed {seed}: {:?}", sent.map(drop));
            session.close(cx);
            let ends = ProcessRuns { begins: false };
            cx.find_protocol("sr").unwrap().ask(cx, ends).unwrap();
        });
        // The other processes end at some time.
        program.pass(random.below(20) as u32 * MS);
        for vm in [0, 2, 3] {
            program.tell(vm, ProcessRuns { begins: false }).unwrap();
        }
        let mut ended_at = None;
        for step in 0..2000 {
            if step == 100 {
                program.world.network().repair(pair.0, pair.1);
            }
            program.pass(10 * MS);
            let ended = (0..n).filter(|vm| program.has_ended(*vm)).count();
            assert!(ended == 0 || done.get() == 1, "seed {seed}: ended at step {step}");
            if ended == n {
                ended_at = Some(step);
                break;
            }
        }
        assert!(ended_at.is_some_and(|step| step > 100), "seed {seed}: {ended_at:?}");
        let late = program.invoke((1, 0), (2, 9), Manner::Call, "0");
        program.pass(10 * MS);
        assert_eq!(refused(&late), Some("program ended"), "seed {seed}");
    });
}

const HELLO: u8 = 1;
const INVOKE: u8 = 5;
const RESULT: u8 = 6;
const IDLE: u8 = 8;
const STOP: u8 = 9;
/// States of replies to those that speak past `sr`.
const TAKEN: u8 = 0;
const UNMET: u8 = 253;
const UNKNOWN: u8 = 255;

/// The octets of a message: its kind, hops and manner, and from and for which machine.
fn raw(message: u8, manner: u8, (origin, vm): (u16, u16), operation: u32, order: u32) -> Vec<u8> {
    let [from, to] = [origin.to_be_bytes(), vm.to_be_bytes()];
    let front = [&[1, message, 0, manner][..], &from, &to, &operation.to_be_bytes()].concat();
    let token = if matches!(message, INVOKE | RESULT) { order } else { 0 };
    [front, [token, order, 0].map(u32::to_be_bytes).concat()].concat()
}

impl Program {
    /// Sends messages to a machine, past any `sr`, one after the other; the status and the rest of
    /// each reply.
    fn say(&mut self, host: &str, vm: u16, all: Vec<Vec<u8>>) -> Vec<Option<(u8, Vec<u8>)>> {
        let (said, of) = (Rc::new(RefCell::new(Vec::new())), all.len());
        let (heard, host) = (Rc::clone(&said), self.world.find(host).unwrap());
        self.world.spawn(host, move |cx| {
            let lower = cx.find_protocol("reqrep").unwrap();
            let to = format!("port2006@10.0.0.{}", vm + 1).parse::<Participant>().unwrap();
            let ends = Participants::pair(Participant::of(Part::Any), to);
            let liar = Top::add(cx, "liar");
            let lower = lower.open(cx, Upper::new(liar.protocol()), ends).expect("it opens");
            for message in all {
                let mut request = cx.pool().copy_from(128, &message).unwrap();
                let options = CallOptions { deadline: cx.now().after(3000 * MS), tag: 0 };
                request.set_attribute(options).unwrap();
                let reply = lower.call(cx, request).ok().map(|reply| octets(&reply));
                heard.borrow_mut().push(reply.map(|reply| (reply[1], reply[4..].to_vec())));
            }
        });
        while said.borrow().len() < of {
            self.pass(10 * MS);
        }
        said.take()
    }

    /// Has a host take all messages of machines; those that come.
    fn answers(&mut self, host: &str) -> Rc<RefCell<Vec<Vec<u8>>>> {
        let come = Rc::new(RefCell::new(Vec::new()));
        let (heard, host) = (Rc::clone(&come), self.world.find(host).unwrap());
        let served = self.world.enter(host, |cx| {
            let (top, at) = (Top::add(cx, "answers"), "port2006".parse::<Participant>().unwrap());
            top.on_serve(Some(Rc::new(move |cx: &Kernel, _: &SessionRef, request: Message| {
                heard.borrow_mut().push(octets(&request));
                Ok(cx.pool().copy_from(128, &[1, TAKEN, 0, 0]).unwrap())
            })));
            top.enable(cx, &cx.find_protocol("reqrep").unwrap(), Participants::local(at))
        });
        assert!(served.unwrap().is_ok());
        come
    }

    /// A host says which machine it is, with the ticket that it is told; the status.
    fn claim(&mut self, host: &str, machine: u16, vm: u16) -> u8 {
        let hello = |ticket| vec![raw(HELLO, 0, (machine, vm), ticket, 0)];
        match self.say(host, vm, hello(0)).remove(0).expect("a reply") {
            (UNMET, ticket) => {
                let ticket = u32::from_be_bytes(*ticket.first_chunk().unwrap());
                self.say(host, vm, hello(ticket)).remove(0).expect("a reply").0
            }
            (status, _) => status,
        }
    }
}

#[test]
fn no_stranger_ends_a_program() {
    let mut program = Program::new(2, STACKS[1], SOUND, 1);
    // All but the coordinator are idle.
    program.tell(1, ProcessRuns { begins: false }).unwrap();
    program.pass(1000 * MS);
    for message in [IDLE, INVOKE] {
        program.say("s0", 0, vec![raw(message, 1, (0, 0), 9, 1 << 30)]);
    }
    program.say("s0", 1, vec![raw(STOP, 0, (0, 1), 0, 0)]);
    program.say("h1", 0, vec![raw(IDLE, 0, (0, 0), 0, 1 << 30)]);
    program.pass(1000 * MS);
    assert_eq!([program.has_ended(0), program.has_ended(1)], [false; 2]);
    assert!(program.drops(0, "not that machine's host") >= 3, "of its own number");
    assert!(program.drops(1, "not that machine's host") >= 1, "the end");
    assert_eq!(program.tops[0].served(), 0);
}

#[test]
fn a_machines_number_is_of_the_host_that_has_shown_it_is_there() {
    let mut program = Program::new(2, STACKS[1], SOUND, 1);
    let invoke = |machine| vec![raw(INVOKE, 1, (machine, 1), 9, 1)];
    // Such a host may be forged.
    assert_eq!(program.say("s0", 1, invoke(7))[0].as_ref().map(|said| said.0), Some(UNMET));
    let hello = program.say("s0", 1, vec![raw(HELLO, 0, (7, 1), 99, 0)]).remove(0);
    assert_eq!(hello.map(|said| said.0), Some(UNMET), "that is not its ticket");
    assert_eq!(program.tops[1].served(), 0);
    let _ = program.answers("s0");
    assert_eq!(program.claim("s0", 7, 1), TAKEN);
    assert_eq!(program.say("s0", 1, invoke(7))[0].as_ref().map(|said| said.0), Some(TAKEN));
    assert_eq!(program.tops[1].served(), 1);
    // A host has one number, and a number one host, as long as that is there.
    assert_eq!(program.claim("s0", 8, 1), UNKNOWN);
    assert_eq!(program.claim("s0", 1, 1), UNKNOWN);
    assert_eq!(program.claim("s0", 0, 1), UNKNOWN);
    assert_eq!(program.claim("s1", 7, 1), UNKNOWN);
    assert_eq!(program.say("s1", 1, invoke(7))[0].as_ref().map(|said| said.0), Some(UNMET));
    let host = program.world.find("s0").unwrap();
    assert!(program.world.crash(host));
    assert_eq!(program.claim("s1", 7, 1), TAKEN, "no number is held for ever");
    assert_eq!(program.claim("s1", 0, 1), UNKNOWN, "but the coordinator's");
}

#[test]
fn where_the_hosts_of_machines_are_known_others_are_none() {
    let hosts = r#"hosts="10.0.0.1, 10.0.0.2, 10.0.0.90""#;
    let mut program = Program::new(2, &format!("{} {hosts}", STACKS[1]), SOUND, 1);
    // Nothing is asked of the coordinator for a machine in the list.
    let end = program.invoke((1, 0), (0, 9), Manner::Call, "x");
    program.pass(500 * MS);
    assert!(is(&end, "x"), "{end:?}");
    for (host, machine) in [("s1", 2), ("s1", 7), ("s0", 7), ("s0", 0)] {
        assert_eq!(program.claim(host, machine, 1), UNKNOWN, "{host} is no machine {machine}");
    }
    let _ = program.answers("s0");
    assert_eq!(program.claim("s0", 2, 1), TAKEN);
    assert_eq!(program.drops(1, "not that machine's host"), 4);
    let (ended, top) = (End::default(), program.tops[1].clone());
    let end = Rc::clone(&ended);
    program.world.spawn(program.hosts[1], move |cx| {
        let to = "procedure9@vm2@10.0.0.91".parse::<Participant>().unwrap();
        let ends = Participants::pair(Participant::new(), to);
        let session = top.open(cx, &cx.find_protocol("sr").unwrap(), ends).expect("it opens");
        let reply = session.call(cx, message(cx, "x", manner(Manner::Call)));
        *end.borrow_mut() = Some(reply.map(|reply| text(&reply)));
    });
    program.pass(1000 * MS);
    assert_eq!(refused(&ended), Some("not that machine's host"));
}

#[test]
fn the_token_of_a_call_tells_nothing_of_others() {
    let mut program = Program::new(2, STACKS[1], SOUND, 1);
    program.guard(1, |guard| guard.may = false);
    let (come, top) = (program.answers("s0"), program.tops[0].clone());
    program.world.spawn(program.hosts[0], move |cx| {
        let to = "procedure9@vm7@10.0.0.90".parse::<Participant>().unwrap();
        let own = Participant::of(Part::Number(PROCESS, 5));
        let ends = Participants::pair(own, to);
        let session = top.open(cx, &cx.find_protocol("sr").unwrap(), ends).expect("it opens");
        let _ = session.call(cx, message(cx, "x", manner(Manner::Call)));
    });
    program.pass(500 * MS);
    let invoked = come.borrow().iter().find(|octets| octets[1] == INVOKE).cloned();
    let token = u32::from_be_bytes(*invoked.expect("it comes")[12..].first_chunk().unwrap());
    let end = program.invoke((0, 1), (1, 9), Manner::Call, "x");
    program.pass(500 * MS);
    for next in 1..9 {
        let forged = raw(RESULT, 1, (7, 0), 9, token.wrapping_add(next));
        assert!(program.say("s0", 0, vec![forged])[0].is_some());
    }
    assert!(end.borrow().is_none(), "{end:?}");
    assert_eq!(program.drops(0, "result of no call"), 8);
}

#[test]
fn what_no_guard_permits_leaves_others_their_places() {
    for layers in STACKS {
        let mut program = Program::new(3, layers, SOUND, 1);
        program.guard(1, |guard| guard.may = guard.arguments[0] != b'0');
        let top = program.tops[2].clone();
        let refused = Rc::new(Cell::new(0));
        let busy = Rc::clone(&refused);
        program.world.spawn(program.hosts[2], move |cx| {
            let session = open(cx, &top, 0, 1, 9);
            for _ in 0..1100 {
                let sent = session.call(cx, message(cx, "0", manner(Manner::Send)));
                busy.set(busy.get() + u32::from(sent.is_err()));
            }
        });
        program.pass(10_000 * MS);
        assert!(refused.get() > 0, "it has its share");
        let end = program.invoke((0, 1), (1, 9), Manner::Call, "1");
        program.pass(1000 * MS);
        assert!(is(&end, "1"), "{end:?}");
    }
}

/// A machine that is cut off when its results come, and one whose forwards have unknown callers.
#[test]
fn results_that_do_not_arrive_hold_up_no_execution() {
    for layers in STACKS {
        let mut program = Program::new(3, layers, SOUND, 1);
        program.serve(1, |cx, _, request| {
            let _ = cx.wait(&Semaphore::new(0), Some(100 * MS));
            Ok(request)
        });
        let warm = program.invoke((0, 1), (1, 9), Manner::Call, "1");
        let calls: Vec<End> =
            (0..20).map(|n| program.invoke((2, n), (1, 9), Manner::Call, "x")).collect();
        program.pass(50 * MS);
        program.world.network().partition(program.hosts[1], program.hosts[2]);
        program.pass(300 * MS);
        let end = program.invoke((0, 1), (1, 9), Manner::Call, "1");
        program.pass(1000 * MS);
        assert!(is(&end, "1") && is(&warm, "1"), "{end:?}");
        program.pass(120_000 * MS);
        assert!(calls.iter().all(|end| end.borrow().is_some()), "each call ends");
    }
    let mut program = Program::new(3, STACKS[1], SOUND, 1);
    let known = program.invoke((2, 1), (1, 9), Manner::Call, "1");
    program.pass(1000 * MS);
    assert!(is(&known, "1"));
    // Of machine 200, forwarded once by machine 2.
    let forged = raw(INVOKE, 0x11, (200, 1), 9, 2);
    program.say("h2", 1, vec![forged; 8]);
    let end = program.invoke((0, 1), (1, 9), Manner::Call, "1");
    program.pass(1000 * MS);
    assert!(is(&end, "1"), "{end:?}");
    assert_eq!(program.tops[1].served(), 10, "they are executed");
}

#[test]
fn a_machine_that_is_cut_off_at_the_end_learns_of_it_later() {
    for layers in STACKS {
        let mut program = Program::new(3, layers, SOUND, 1);
        program.tell(2, ProcessRuns { begins: false }).unwrap();
        program.pass(1000 * MS);
        let (first, cut) = (program.hosts[0], program.hosts[2]);
        program.world.network().partition(first, cut);
        for vm in [0, 1] {
            program.tell(vm, ProcessRuns { begins: false }).unwrap();
        }
        program.pass(90_000 * MS);
        assert_eq!([0, 1, 2].map(|vm| program.has_ended(vm)), [true, true, false]);
        program.world.network().repair(first, cut);
        program.pass(90_000 * MS);
        assert!(program.has_ended(2));
    }
}

/// A host that speaks to machine 1 past its own machine.
#[test]
fn forged_messages_are_counted_and_change_nothing() {
    let layers = format!("{} queued_max=20", STACKS[1]);
    let mut program = Program::new(3, &layers, SOUND, 1);
    let known = program.invoke((2, 9), (1, 9), Manner::Call, "1");
    program.pass(1000 * MS);
    assert!(is(&known, "1"));
    program.guard(1, |guard| {
        guard.may = guard.arguments[0] != b'0';
    });
    let waits = program.invoke((0, 0), (1, 9), Manner::Call, "0");
    program.pass(100 * MS);
    let answers = Rc::new(Cell::new(0));
    let heard = Rc::clone(&answers);
    // From the host of machine 2, past its `sr`.
    program.world.spawn(program.hosts[2], move |cx| {
        let (top, random) = (Top::add(cx, "liar"), Random::new(9));
        let lower = cx.find_protocol("reqrep").unwrap();
        let ends: Participants = Participants::pair(
            Participant::of(Part::Any),
            "port2006@10.0.0.2".parse::<Participant>().unwrap(),
        );
        let lower = lower.open(cx, Upper::new(top.protocol()), ends).expect("it opens");
        for n in 0..3000u32 {
            let mut forged = [0u8; 28];
            random.fill(&mut forged);
            let body = forged.len() as u32 - 24;
            forged[0] = 1;
            // An invocation, a result, idleness, the end, or any.
            forged[1] = [5, 5, 6, 8, 9, forged[1] & 15][n as usize % 6];
            // Of a process of machine 2, by call or send, or in the name of machine 0.
            (forged[2], forged[3]) = (forged[2] & 3, 1 + (forged[3] & 1));
            forged[4..8].copy_from_slice(&[0, if n % 7 == 0 { 0 } else { 2 }, 0, 1]);
            forged[20..24].copy_from_slice(&body.to_be_bytes());
            forged[24] = b'0';
            let cut = if n % 5 == 0 { random.below(28) as usize } else { 28 };
            let mut request = cx.pool().copy_from(128, &forged[..cut]).unwrap();
            let options = CallOptions { deadline: cx.now().after(20 * MS), tag: 0 };
            request.set_attribute(options).unwrap();
            heard.set(heard.get() + u32::from(lower.call(cx, request).is_ok()));
        }
    });
    program.pass(100_000 * MS);
    assert!(answers.get() > 300, "{} were answered", answers.get());
    assert!(waits.borrow().is_none(), "no forged result ends a call, and nothing ends: {waits:?}");
    assert!(!program.has_ended(1));
    for why in
        ["result of no call", "not that machine's host", "truncated", "malformed", "queue full"]
    {
        assert!(program.drops(1, why) > 0, "{why}");
    }
    assert!(program.drops(1, "order number too far ahead") > 0);
    // All others are served.
    program.guard(1, |guard| guard.may = true);
    program.tell(1, AskGuards).unwrap();
    program.pass(1000 * MS);
    assert!(is(&waits, "0"), "{waits:?}");
    let end = program.invoke((0, 3), (1, 9), Manner::Call, "all is well");
    program.pass(5000 * MS);
    assert!(is(&end, "all is well"), "{end:?}");
}

/// Processes whose machine dies end, and leave no session open.
#[test]
fn processes_of_a_dead_machine_close_their_sessions() {
    let checked = check(include_str!("../../../graphs/sr.kdl"), "sr", &xk_catalog::standard());
    let checked = checked.unwrap_or_else(|mistakes| panic!("{mistakes}"));
    let mut world = simulate(&checked, SimulationConfig::default()).unwrap();
    start_world(&checked, &mut world).unwrap_or_else(|e| panic!("{e}"));
    world.run_until(xk_core::Time::from_ms(300));
    assert!(
        world.crash(world.find("table").unwrap()) && world.crash(world.find("buffer").unwrap())
    );
    world.run_until(xk_core::Time::from_ms(600_000));
    for host in ["alice", "bob"] {
        let kernel = world.kernel(world.find(host).unwrap()).unwrap();
        let list =
            kernel.find_protocol("sr").unwrap().ask(kernel, ListSessions::first(99)).unwrap();
        let open = list.here().filter(|session| !session.head().is_passive()).count();
        assert_eq!(open, 0, "at {host}");
    }
}

/// The graph of the buffer and the philosophers, on both layers of calls below.
#[test]
fn the_programs_of_the_graph_end_well_whatever_is_lost() {
    let graph = include_str!("../../../graphs/sr.kdl");
    let (on_channel, on_udp) = (
        "vip      arp ip\n    fragment vip\n    channel  fragment\n    sr       channel",
        "udp      ip\n    reqrep   udp dupcache=256\n    sr       reqrep at=port2006",
    );
    assert!(graph.contains(on_channel));
    seeds::of(20).run(|seed| {
        let source = if seed % 2 == 0 { graph.into() } else { graph.replace(on_channel, on_udp) };
        let checked = check(&source, "sr", &xk_catalog::standard());
        let checked = checked.unwrap_or_else(|mistakes| panic!("{mistakes}"));
        let config = SimulationConfig { seed, ..SimulationConfig::default() };
        let mut world = simulate(&checked, config).unwrap_or_else(|e| panic!("{e}"));
        start_world(&checked, &mut world).unwrap_or_else(|e| panic!("{e}"));
        world.run_until_finished(xk_core::Time::from_ms(600_000));
        let (mut taken, mut given, mut most) = (0, 0, 0);
        for host in ["buffer", "table", "alice", "bob"] {
            let kernel = world.kernel(world.find(host).unwrap()).unwrap();
            let protocols = kernel.protocols();
            for part in protocols.iter().filter(|part| part.head().kind() == "resource") {
                let report = part.ask(kernel, Report::default()).unwrap();
                let drops: Vec<_> = ["buffer", "table", "alice", "bob"]
                    .map(|host| crate::strangers::drops(&world, host))
                    .into();
                let at = format!(
                    "seed {seed}: {} at {host}: {:?}, {drops:?}",
                    part.name(),
                    report.lines
                );
                assert!(report.finished && !report.failed, "{at}");
                let line = |name| {
                    let found = report.lines.iter().find(|(line, _)| line == name);
                    found.map_or(0, |(_, n)| n.parse::<u64>().unwrap())
                };
                match part.name() {
                    "items" => assert_eq!((line("taken"), line("given")), (150, 150), "{at}"),
                    "forks" => assert_eq!((line("taken"), line("given")), (100, 100), "{at}"),
                    name if name.starts_with("uses") => taken += line("taken"),
                    name if name.starts_with("makes") => given += line("given"),
                    _ => assert_eq!((line("taken"), line("given")), (20, 20), "{at}"),
                }
                most = most.max(line("most"));
            }
        }
        assert_eq!((taken, given), (150, 150), "seed {seed}");
        assert!(most <= 4, "seed {seed}: of the buffer four at most, and of the seats two");
    });
}
