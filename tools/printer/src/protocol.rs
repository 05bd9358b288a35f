//! The printer.

use crate::job::Tally;
use crate::pap::{asked, call, next, node_of, reply, send_data, want};
use alloc::rc::Rc;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::time::Duration;
use xk_appletalk::pap::{BUSY, Function, Open, Opened, User};
use xk_core::control::Report;
use xk_core::graph::{Build, BuildError};
use xk_core::object::{OpenError, Refused};
use xk_core::shepherd::Semaphore;
use xk_core::{Answer, Ask, Kernel, Message, Part, Participant, ProtocolRef, SessionRef};
use xk_kit::asks::SHORTEST;
use xk_kit::machine::{self, At, Machine, Running};
use xk_kit::net::appletalk::{SOCKET, socket};
use xk_kit::net::names::NbpRegister;
use xk_kit::rpc::call::{BAD_ARGUMENTS, BUSY as SERVER_BUSY};

/// Tokens of the timers.
const NAME: u64 = 0;
const JOB: u64 = 1;
/// Time between two attempts to be given the name.
const NAMED_AGAIN: Duration = Duration::from_secs(5);
/// Time that a workstation waits for the end of its job.
const JOB_WAIT_MAX: Duration = Duration::from_secs(120);

xk_core::settings! {
    /// Parameters of the graph.
    #[derive(Clone, Debug)]
    pub(crate) struct Settings {
        socket: u8 = int(1..=254, 130, "its socket"),
        quantum: u8 = int(1..=8, 8, "how many packets it asks for at once"),
        tries: u8 = int(1..=255, 15, "how often it asks a workstation that does not answer"),
        ..
        /// Name of the printer.
        name: String = String::new(),
    }
    [crate::name("printer:LaserWriter@*", "its name, where `nbp` is below")]
}

/// The connection that there is.
struct Job {
    connection: u8,
    /// Network, node and socket of the workstation.
    peer: (u16, u8, u8),
    quantum: u8,
    tally: Cell<Tally>,
    is_over: Cell<bool>,
    /// Signalled when it is over.
    over: Semaphore,
}

impl Job {
    fn end(&self, cx: &Kernel) {
        if !self.is_over.replace(true) {
            cx.signal(&self.over);
        }
    }
}

/// One instance.
pub struct Printer {
    nbp: Option<ProtocolRef>,
    settings: Settings,
    job: RefCell<Option<Rc<Job>>>,
    jobs: Cell<u64>,
    printed: Cell<Tally>,
    busy: Cell<u64>,
    failed: Cell<u64>,
    is_named: Cell<bool>,
}

/// Builds it from its place in a graph.
pub(crate) fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let name = build.params.text("entity").unwrap_or("printer:LaserWriter@*").to_string();
    let settings = Settings { name, ..Settings::read(build)? };
    let printer = Printer {
        nbp: build.lower(1).ok(),
        settings,
        job: RefCell::default(),
        jobs: Cell::new(0),
        printed: Cell::default(),
        busy: Cell::new(0),
        failed: Cell::new(0),
        is_named: Cell::new(false),
    };
    machine::add(build, printer)
}

fn add(cell: &Cell<u64>) {
    cell.set(cell.get() + 1);
}

impl Printer {
    fn status(&self) -> Vec<u8> {
        let is_busy = self.job.borrow().is_some();
        if is_busy { b"status: busy".to_vec() } else { b"status: idle".to_vec() }
    }

    /// The connection of this number with the node at the other end of a session.
    fn job(&self, cx: &Kernel, lower: &SessionRef, connection: u8) -> Option<Rc<Job>> {
        let job = self.job.borrow().clone()?;
        let (net, node) = node_of(cx, lower)?;
        let is_it = job.connection == connection && (job.peer.0, job.peer.1) == (net, node);
        is_it.then_some(job)
    }

    /// A workstation opens a connection.
    fn open(&self, at: At<'_>, lower: &SessionRef, user: User, data: &[u8]) -> Option<Opened> {
        let open = Open::parse(data).ok()?;
        let (net, node) = node_of(at.cx, lower)?;
        let Settings { socket, quantum, .. } = self.settings;
        let is_busy = self.job.borrow().is_some();
        let result = if is_busy { BUSY } else { 0 };
        if is_busy {
            add(&self.busy);
        } else {
            let job = Job {
                connection: user.connection,
                peer: (net, node, open.socket),
                quantum: open.quantum,
                tally: Cell::default(),
                is_over: Cell::new(false),
                over: Semaphore::new(0),
            };
            *self.job.borrow_mut() = Some(Rc::new(job));
            // Behind the reply. Without a timer the workstation hears no more of it.
            at.schedule(SHORTEST, JOB).ok()?;
        }
        Some(Opened { socket, quantum, result, status: self.status() })
    }

    /// Takes a job from the workstation, and prints it.
    fn take(&self, at: At<'_>) {
        let Some(job) = self.job.borrow().clone() else { return };
        let (net, node, to) = job.peer;
        let own = Participant::of(Part::Any).with(Part::Any);
        let own = own.with(Part::Number(SOCKET, self.settings.socket.into()));
        let taken = at.open(own, socket(net, node, to)).is_ok_and(|session| {
            let taken = self.read(at.cx, &session, &job);
            session.close(at.cx);
            taken
        });
        if taken {
            add(&self.jobs);
            self.printed.set(job.tally.get());
        } else {
            add(&self.failed);
        }
        self.job.take();
        job.end(at.cx);
    }

    /// Asks for data until the last have come; false if they do not.
    fn read(&self, cx: &Kernel, session: &SessionRef, job: &Job) -> bool {
        let packets = job.quantum.min(self.settings.quantum);
        let mut number = 1;
        while !job.is_over.get() {
            let want = want(send_data(job.connection, number), packets, self.settings.tries);
            let Ok((Some(user), data)) = call(cx, session, &want, &[]) else {
                return false;
            };
            if user.function != Function::Data || user.connection != job.connection {
                return false;
            }
            let mut tally = job.tally.get();
            tally.add(&data);
            job.tally.set(tally);
            if user.is_last() {
                return true;
            }
            number = next(number);
        }
        false
    }

    /// Waits for the end of a job.
    fn wait(cx: &Kernel, job: &Job) {
        if !job.is_over.get() {
            let _ = cx.wait(&job.over, Some(JOB_WAIT_MAX));
            // For another that waits.
            cx.signal(&job.over);
        }
    }

    fn register(&self, at: At<'_>) {
        let Some(nbp) = &self.nbp else { return };
        let Settings { name, socket, .. } = self.settings.clone();
        let asked = nbp.ask(at.cx, NbpRegister { name, socket, ..NbpRegister::default() });
        match asked {
            Some(NbpRegister { is_done: true, is_taken, .. }) => self.is_named.set(is_taken),
            // Not yet, or there is no address yet.
            _ => drop(at.schedule(NAMED_AGAIN, NAME)),
        }
    }
}

impl Machine for Printer {
    fn start(&self, at: At<'_>) -> Result<(), OpenError> {
        at.enable(Part::Number(SOCKET, self.settings.socket.into()))?;
        self.nbp.as_ref().map_or(Ok(()), |_| at.schedule(SHORTEST, NAME))
    }

    fn timeout(all: &Rc<Running<Self>>, at: At<'_>, token: u64) {
        match token {
            NAME => all.register(at),
            _ => all.take(at),
        }
    }

    fn call(
        all: &Rc<Running<Self>>,
        at: At<'_>,
        lower: &SessionRef,
        request: Message,
    ) -> Result<Message, Refused> {
        let (cx, this) = (at.cx, at.this);
        let (asked, user, request) = asked(this, request)?;
        let answer = |request, user, data: &[u8]| reply(cx, this, &asked, request, user, data);
        match user.function {
            Function::SendStatus => {
                let status = all.status();
                let opened = Opened { socket: 0, quantum: 0, result: 0, status };
                answer(request, User::new(0, Function::Status), &opened.emit())
            }
            Function::OpenConnection => {
                let data: Vec<u8> = request.octets().take(4).collect();
                match all.open(at, lower, user, &data) {
                    Some(opened) => {
                        let user = User::new(user.connection, Function::OpenConnectionReply);
                        answer(request, user, &opened.emit())
                    }
                    None => at.refuse(request, &BAD_ARGUMENTS),
                }
            }
            Function::SendData => match all.job(cx, lower, user.connection) {
                Some(job) => {
                    Self::wait(cx, &job);
                    answer(request, User::data(user.connection, true), &[])
                }
                // It is over already.
                None => answer(request, User::data(user.connection, true), &[]),
            },
            Function::CloseConnection => {
                if let Some(job) = all.job(cx, lower, user.connection) {
                    job.is_over.set(true);
                }
                answer(request, User::new(user.connection, Function::CloseConnectionReply), &[])
            }
            // It has no reply; the layer below sends none.
            Function::Tickle => answer(request, user, &[]),
            _ => at.refuse(request, &SERVER_BUSY),
        }
    }

    fn answer(&self, _: At<'_>, ask: &mut Ask<'_>) -> Option<Answer> {
        let report = ask.get::<Report>()?;
        let printed = self.printed.get();
        let figures = [
            ("jobs", self.jobs.get()),
            ("octets", printed.octets),
            ("sum", printed.sum().into()),
            ("busy", self.busy.get()),
            ("failed", self.failed.get()),
            ("named", self.is_named.get().into()),
        ];
        report.lines = figures.map(|(name, figure)| (name.into(), figure.to_string())).into();
        report.finished = true;
        Some(Answer::Answered)
    }

    fn stop(&self, _: &Kernel) {
        self.job.take();
    }
}
