//! Programs in the manner of SR in the simulator: machines that invoke each other by call and send
//! on a network that loses, repeats and delays, on both layers of calls below.

use core::time::Duration;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use xk_compose::{SimulationConfig, check, simulate, start_world};
use xk_core::control::Report;
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
            format!(
                "host h{vm} {{\n sim link=lan\n eth sim\n arp eth\n \
                 ip arp {{ address \"10.0.0.{address}/24\"; }}\n {layers} vm={vm} \
                 coordinator=\"10.0.0.1\" machines={machines}\n}}\n"
            )
        };
        let source: String = (0..n).map(host).chain([format!("link lan {link}\n")]).collect();
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

/// A host that speaks to machine 1 without being one.
#[test]
fn forged_messages_are_counted_and_change_nothing() {
    let layers = format!("{} queued_max=20", STACKS[1]);
    let mut program = Program::new(3, &layers, SOUND, 1);
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
