//! Three hosts on a link, their crashes, and the calls between them.

use crate::executions::apps::{Client, Server, Takes};
use crate::executions::model::{Counts, Model, message};
use crate::executions::plan::{CLIENTS, Crash, FAULTS_END, Form, Plan, Planned, SERVER, Stack};
use core::cell::{Cell, RefCell};
use core::time::Duration;
use std::collections::BTreeMap;
use std::rc::Rc;
use xk_compose::{
    CheckedGraph, SimulationConfig, check, rebuild_host, simulate as build, start_world,
};
use xk_core::control::Report;
use xk_core::object::{CallCause, CallError, OpenError, PushError};
use xk_core::{
    Kernel, Message, Part, Participant, Participants, ProtocolRef, SessionRef, Time, Upper,
};
use xk_kit::rpc::call::Transaction;
use xk_sim::{HostId, World};
use xk_testkit::kernel::{HEADROOM, octets};

/// Time after the last fault in which every call must end.
const CALLS_TIME_MAX: Duration = Duration::from_secs(600);
/// Number of calls that may fail at the end, in a network that is mild by then. A host that was
/// started again learns within a minute which host a station is, and refuses its frames until then;
/// VMTP gives a call up after six seconds.
const TRIES: u64 = 12;
/// Time from a failed call to the next: a host that did not answer an address request is not asked
/// for 20 seconds.
const BETWEEN_TRIES: Duration = Duration::from_secs(6);
/// The number of the first of those.
const FINAL: u64 = 1_000_000;

/// State that all boots of one client share.
#[derive(Default)]
struct Seat {
    /// Number of the boot.
    boot: Cell<u32>,
    app: RefCell<Option<ProtocolRef>>,
    /// Sessions that no call is using.
    idle: RefCell<Vec<SessionRef>>,
}

struct Run<'a> {
    stack: &'a Stack,
    graph: CheckedGraph,
    config: SimulationConfig,
    world: World,
    model: Rc<Model>,
    seats: [Rc<Seat>; 2],
    takes: Takes,
}

/// Runs the plan of a seed.
///
/// # Errors
/// The first thing that did not hold.
pub(crate) fn simulate(stack: &Stack, seed: u64) -> Result<Counts, String> {
    let mut plan = Plan::new(seed, stack.octets_max);
    if stack.is_of_one_boot {
        let servers = plan.crashes.iter_mut().filter(|crash| crash.host == SERVER);
        servers.for_each(|crash| crash.host = CLIENTS[0]);
    }
    simulate_plan(stack, seed, &plan)
}

/// Runs a plan; all other chance is that of the seed.
///
/// # Errors
/// As of [`simulate`].
pub(crate) fn simulate_plan(stack: &Stack, seed: u64, plan: &Plan) -> Result<Counts, String> {
    let source = format!("{}{}", stack.graph, plan.link);
    let graph =
        check(&source, "executions.kdl", &xk_catalog::standard()).map_err(|e| e.to_text())?;
    let config = SimulationConfig { seed, ..SimulationConfig::default() };
    let world = build(&graph, config).map_err(|e| e.to_text())?;
    let takes: BTreeMap<u64, Duration> = (0..).zip(plan.calls.iter().map(|c| c.takes)).collect();
    let mut run = Run {
        stack,
        graph,
        config,
        world,
        model: Rc::new(Model::new(stack.promise)),
        seats: Default::default(),
        takes: Rc::new(move |call| takes.get(&call).copied().unwrap_or_default()),
    };
    for host in [CLIENTS[0], CLIENTS[1], SERVER] {
        run.furnish(host)?;
    }
    start_world(&run.graph, &mut run.world).map_err(|e| e.to_text())?;
    let result = run.play(plan);
    let counters = if result.is_err() { run.counters() } else { String::new() };
    run.world.stop();
    run.forget();
    let judged = run.model.judge();
    let result = result.map_err(|what| format!("{what}\n{}\n{counters}", run.model.errors()));
    result.and(judged).map_err(|what| format!("{what}\n{plan:?}"))
}

impl Run<'_> {
    fn host(&self, name: &str) -> Result<HostId, String> {
        self.world.find(name).ok_or(format!("no host `{name}`"))
    }

    /// Adds the application to a host that is built and not started.
    fn furnish(&self, name: &'static str) -> Result<(), String> {
        let id = self.host(name)?;
        let cx = self.world.kernel(id).ok_or("no kernel")?;
        let lower = cx.find_protocol(self.stack.lower);
        let lower = lower.ok_or(format!("no `{}`", self.stack.lower))?;
        let number = |app: &ProtocolRef, lower: &ProtocolRef| {
            if let Form::Datagram(number) = self.stack.form {
                let mut numbers = cx.numbers_mut();
                numbers.override_pair(app.id(), lower.id(), number);
            }
        };
        let Some(client) = CLIENTS.iter().position(|client| *client == name) else {
            let server = Server {
                lower: lower.clone(),
                at: self.stack.at.parse().map_err(|e| format!("{e}"))?,
                model: Rc::clone(&self.model),
                takes: Rc::clone(&self.takes),
            };
            let app = cx.add_protocol("procedures", "application", server);
            number(&app, &lower);
            return Ok(());
        };
        let app = cx.add_protocol("caller", "application", Client);
        number(&app, &lower);
        *self.seats[client].app.borrow_mut() = Some(app);
        Ok(())
    }

    /// Lets everything planned happen, then everything come to an end.
    fn play(&mut self, plan: &Plan) -> Result<(), String> {
        let mut steps: Vec<(Duration, Step)> = Vec::new();
        for crash in &plan.crashes {
            steps.push((crash.at, Step::Down(*crash)));
            steps.push((crash.at + crash.down, Step::Up(crash.host)));
        }
        for (number, call) in (0..).zip(&plan.calls) {
            steps.push((call.at, Step::Call(number, *call)));
        }
        steps.sort_by_key(|(at, _)| *at);
        let mut down: Vec<&str> = Vec::new();
        for (at, step) in steps {
            self.world.run_until(Time::ZERO + at);
            match step {
                Step::Down(crash) if !down.contains(&crash.host) => {
                    self.crash(crash.host)?;
                    down.push(crash.host);
                }
                // It is down already, and comes back when that crash says.
                Step::Down(_) => {}
                Step::Up(host) if down.contains(&host) => {
                    down.retain(|other| *other != host);
                    self.reboot(host)?;
                }
                Step::Up(_) => {}
                Step::Call(number, call) => {
                    if !down.contains(&CLIENTS[call.client]) {
                        self.call(number, call)?;
                    }
                }
            }
        }
        self.rest(plan.is_mild)
    }

    fn rest(&mut self, is_mild: bool) -> Result<(), String> {
        let mut until = Time::ZERO + FAULTS_END;
        self.world.run_until(until);
        let last = until.after(CALLS_TIME_MAX);
        while self.model.is_busy() && until < last {
            until = until.after(Duration::from_secs(5));
            self.world.run_until(until);
        }
        if !is_mild || self.model.is_busy() {
            return Ok(());
        }
        for (client, name) in CLIENTS.iter().enumerate() {
            let mut numbers = (0..TRIES).map(|n| FINAL + 100 * client as u64 + n);
            let through = numbers.any(|number| self.call_alone(number, client));
            if !through {
                return Err(format!("no call of `{name}` gets through any more"));
            }
        }
        Ok(())
    }

    /// Makes a small call and waits for its end. True if it brought its reply.
    fn call_alone(&mut self, number: u64, client: usize) -> bool {
        let small = Planned { client, at: Duration::ZERO, sizes: [10, 10], takes: Duration::ZERO };
        let called = self.call(number, small);
        let mut left = CALLS_TIME_MAX.as_secs();
        while called.is_ok() && self.model.is_busy() && left > 0 {
            self.world.run_until(self.world.now().after(Duration::from_secs(1)));
            left -= 1;
        }
        if !self.model.is_replied(number) {
            self.world.run_until(self.world.now().after(BETWEEN_TRIES));
        }
        self.model.is_replied(number)
    }

    fn crash(&mut self, name: &'static str) -> Result<(), String> {
        let id = self.host(name)?;
        self.model.crashes.set(self.model.crashes.get() + 1);
        if let Some(client) = CLIENTS.iter().position(|client| *client == name) {
            // Before it goes down, so that its calls see that they end by the crash.
            let seat = &self.seats[client];
            seat.boot.set(seat.boot.get() + 1);
            let kept = (seat.app.take(), seat.idle.take());
            drop(kept);
        }
        if name == SERVER {
            self.model.server_crashes.set(self.model.server_crashes.get() + 1);
        }
        self.world.crash(id);
        Ok(())
    }

    fn reboot(&mut self, name: &'static str) -> Result<(), String> {
        let built = rebuild_host(&self.graph, &mut self.world, name, self.config);
        let id = built.map_err(|e| e.to_text())?.ok_or("no such host")?;
        self.furnish(name)?;
        let started = self.world.start_host(id);
        started.map_err(|(protocol, error)| format!("{protocol:?} does not start again: {error}"))
    }

    fn call(&mut self, number: u64, call: Planned) -> Result<(), String> {
        let id = self.host(CLIENTS[call.client])?;
        let (model, seat) = (Rc::clone(&self.model), Rc::clone(&self.seats[call.client]));
        let to: Participant = self.stack.to.parse().map_err(|e| format!("{e}"))?;
        let (lower, form, options) = (self.stack.lower, self.stack.form, self.stack.options());
        model.call(number);
        self.world.spawn(id, move |cx| {
            let boot = seat.boot.get();
            let [size, back] = call.sizes;
            let request = message(number, 1, size, back);
            let end = call_once(
                cx,
                &seat,
                lower,
                to,
                |cx, session, mut message| match form {
                    Form::Call => {
                        if let Some(options) = options {
                            let set = message.set_attribute(Transaction(options));
                            set.map_err(|_| PushError::NoBuffers)?;
                        }
                        session.call(cx, message).map(|reply| octets(&reply))
                    }
                    // Of a datagram nothing comes back: what the model awaits is what this would
                    // be.
                    Form::Datagram(_) => session
                        .push(cx, message)
                        .map(|()| crate::executions::model::message(number, 2, back, 0))
                        .map_err(CallError::from),
                },
                &request,
            );
            match end {
                _ if seat.boot.get() != boot => model.gone(number),
                Ok(reply) => model.reply(number, back, &reply),
                Err(error) => model.fail(number, error),
            }
        });
        Ok(())
    }

    /// Counters of every layer, for the report of a failure.
    fn counters(&self) -> String {
        let mut all = String::new();
        for host in [CLIENTS[0], CLIENTS[1], SERVER] {
            let Some(cx) = self.world.find(host).and_then(|id| self.world.kernel(id)) else {
                continue;
            };
            for protocol in cx.protocols() {
                let report = protocol.ask(cx, Report::default()).map(|report| report.lines);
                let drops = protocol.head().drops().list();
                all += &format!("{host} {}: {report:?} {drops:?}\n", protocol.name());
            }
        }
        all
    }

    fn forget(&self) {
        for seat in &self.seats {
            let kept = (seat.app.take(), seat.idle.take());
            drop(kept);
        }
    }
}

enum Step {
    Down(Crash),
    Up(&'static str),
    Call(u64, Planned),
}

/// Makes one call through a session that no other is using.
fn call_once(
    cx: &Kernel,
    seat: &Seat,
    lower: &str,
    to: Participant,
    call: impl FnOnce(&Kernel, &SessionRef, Message) -> Result<Vec<u8>, CallError>,
    request: &[u8],
) -> Result<Vec<u8>, CallError> {
    let boot = seat.boot.get();
    let idle = seat.idle.borrow_mut().pop();
    let session = match idle {
        Some(session) => session,
        None => open(cx, seat, lower, to).map_err(|_| CallCause::Push(PushError::NoRoute))?,
    };
    let message = cx.pool().copy_from(HEADROOM, request);
    let message = message.map_err(|_| PushError::NoBuffers)?;
    let end = call(cx, &session, message);
    if !session.head().is_closed() && seat.boot.get() == boot {
        seat.idle.borrow_mut().push(session);
    }
    end
}

fn open(cx: &Kernel, seat: &Seat, lower: &str, to: Participant) -> Result<SessionRef, OpenError> {
    let app = seat.app.borrow().clone().ok_or(OpenError::NoLower)?;
    let lower = cx.find_protocol(lower).ok_or(OpenError::NoLower)?;
    let mut local = Participant::of(Part::Any);
    for _ in 1..to.len() {
        local.push(Part::Any);
    }
    lower.open(cx, Upper::new(&app), Participants::pair(local, to))
}
