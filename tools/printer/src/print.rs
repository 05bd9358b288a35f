//! # Synopsis
//! `print ATP [NBP]` — prints on a printer of AppleTalk, which it finds by its name.
//!
//! # Participants
//! `to` as it stands, or the socket that has the name `entity`; its own is `socket`.
//!
//! # Behaviour
//! On `nbp`, its second lower protocol, names are looked up.
//!
//! After `start` it looks the printer up, unless `to` names its socket, opens a connection by PAP,
//! and gives the printer `size` octets, a pattern or, with `postscript`, a program with numbered
//! lines, as it asks for them. It asks for what the printer has to say until that is over, and
//! closes. A printer that is busy or not there is asked again after 2 s, `tries` times in all; so
//! for each of `count` jobs.
//!
//! Its `report` has `printed` jobs, `octets` of the last, its `sum` (that of DDP), `failed` jobs,
//! `attempts`, `printer` (where it is). It has finished when each job is printed or has failed, and
//! failed if one has.
//!
//! # Example
//! ```kdl
//! host one {
//!     sim   link=lan
//!     eth   sim
//!     aarp  eth
//!     ddp   aarp net="10-19" node=17
//!     atp   ddp
//!     print atp to="socket130@node18@net10" size="40KiB"
//! }
//! ```
//!
//! # Standard
//! Inside AppleTalk, second edition, chapter 10.

use crate::job::{Tally, octet, postscript_octet};
use crate::pap::{asked, call, reply, send_data, want};
use alloc::format;
use alloc::rc::Rc;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::time::Duration;
use xk_appletalk::pap::{Function, Open, Opened, PACKET_OCTETS_MAX, User};
use xk_core::control::Report;
use xk_core::graph::{Build, BuildError};
use xk_core::object::{OpenError, Refused};
use xk_core::shepherd::Semaphore;
use xk_core::{Answer, Ask, Kernel, Message, Part, Participant, ProtocolRef, SessionRef};
use xk_kit::asks::SHORTEST;
use xk_kit::machine::{self, At, Machine, Running};
use xk_kit::net::appletalk::{SOCKET, socket};
use xk_kit::net::names::NbpLookup;
use xk_kit::rpc::call::BAD_ARGUMENTS;

/// Time between two attempts.
const PAUSE: Duration = Duration::from_secs(2);

xk_core::settings! {
    /// Parameters of the graph.
    #[derive(Clone, Debug)]
    pub(crate) struct Settings {
        socket: u8 = int(1..=254, 140, "its socket"),
        quantum: u8 = int(1..=8, 8, "how many packets it takes at once"),
        size: usize = octets(20_000, "octets of a job"),
        postscript: bool = flag(false, "whether a job is PostScript, as spoolers want it"),
        count: u64 = int(1..=i64::MAX, 1, "how many jobs"),
        tries: u64 = int(1..=i64::MAX, 30, "how often it tries to print one"),
        start: Duration = duration(Duration::ZERO, "the delay before the first"),
        ..
        /// The printer's name.
        name: String = String::new(),
        /// Socket of the printer.
        to: Option<Participant> = None,
    }
    [
        crate::name("=:LaserWriter@*", "the printer's name, where `nbp` is below"),
        crate::to("the printer's socket"),
    ]
}

/// One instance.
pub struct Print {
    nbp: Option<ProtocolRef>,
    settings: Settings,
    connection: Cell<u8>,
    /// Octets of the job that have been given.
    given: Cell<usize>,
    tally: Cell<Tally>,
    printed: Cell<u64>,
    failed: Cell<u64>,
    attempts: Cell<u64>,
    printer: RefCell<String>,
}

/// Builds it from its place in a graph.
pub(crate) fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let name = build.params.text("entity").unwrap_or("=:LaserWriter@*").to_string();
    let to = build.params.participant("to")?;
    let settings = Settings { name, to, ..Settings::read(build)? };
    let nbp = build.lower(1).ok();
    if nbp.is_none() && settings.to.is_none() {
        return Err(BuildError::param("to", "the printer's socket, where no `nbp` is below"));
    }
    let print = Print {
        nbp,
        settings,
        connection: Cell::new(0),
        given: Cell::new(0),
        tally: Cell::default(),
        printed: Cell::new(0),
        failed: Cell::new(0),
        attempts: Cell::new(0),
        printer: RefCell::default(),
    };
    machine::add(build, print)
}

impl Print {
    /// Address of the printer, with its node.
    fn find(&self, cx: &Kernel) -> Option<Participant> {
        if let Some(to) = &self.settings.to {
            return Some(to.clone());
        }
        let name = self.settings.name.clone();
        let looked = self.nbp.as_ref()?.ask(cx, NbpLookup { name, ..NbpLookup::default() })?;
        let found = looked.found.first()?;
        *self.printer.borrow_mut() =
            format!("{} at {}.{}:{}", found.name, found.net, found.node, found.socket);
        Some(socket(found.net, found.node, found.socket))
    }

    fn open(&self, at: At<'_>, to: Participant) -> Option<SessionRef> {
        let own = Participant::of(Part::Any).with(Part::Any);
        at.open(own.with(Part::Number(SOCKET, self.settings.socket.into())), to).ok()
    }

    /// Tries to print a job; `None` if that is to be tried again.
    fn print(&self, at: At<'_>) -> Option<()> {
        let to = self.find(at.cx)?;
        let session = self.open(at, to.clone())?;
        let printed = self.connect(at, &session, to);
        session.close(at.cx);
        printed
    }

    fn connect(&self, at: At<'_>, session: &SessionRef, mut to: Participant) -> Option<()> {
        let cx = at.cx;
        let connection = self.connection.get().wrapping_add(1).max(1);
        self.connection.set(connection);
        self.given.set(0);
        self.tally.set(Tally::default());
        let Settings { socket, quantum, .. } = self.settings;
        let open = Open { socket, quantum, waited: 0 };
        let asks = want(User::new(connection, Function::OpenConnection), 1, 5);
        let (_, data) = call(cx, session, &asks, &open.emit()).ok()?;
        let opened = Opened::parse(&data).ok().filter(|opened| opened.result == 0)?;
        // The printer's end of the connection may be at another socket.
        to.pop();
        let end = self.open(at, to.with(Part::Number(SOCKET, opened.socket.into())))?;
        let (reading, closing) = (
            want(send_data(connection, 1), quantum, 60),
            want(User::new(connection, Function::CloseConnection), 1, 5),
        );
        // What the printer says comes to its end when it has the job.
        let heard = call(cx, &end, &reading, &[]);
        let is_whole = self.given.get() >= self.settings.size;
        let _ = call(cx, &end, &closing, &[]);
        end.close(cx);
        (heard.is_ok() && is_whole).then_some(())
    }

    /// Prints all jobs.
    fn run(&self, at: At<'_>) {
        for _ in 0..self.settings.count {
            let mut left = self.settings.tries;
            loop {
                self.attempts.set(self.attempts.get() + 1);
                if self.print(at).is_some() {
                    self.printed.set(self.printed.get() + 1);
                    break;
                }
                left -= 1;
                if left == 0 {
                    self.failed.set(self.failed.get() + 1);
                    break;
                }
                let _ = at.cx.wait(&Semaphore::new(0), Some(PAUSE));
            }
        }
    }

    /// The next octets of the job, as many as so many packets hold.
    fn give(&self, packets: u32) -> (Vec<u8>, bool) {
        let (from, size) = (self.given.get(), self.settings.size);
        let until = size.min(from + packets as usize * PACKET_OCTETS_MAX);
        let number = self.printed.get();
        let octets: Vec<u8> = match self.settings.postscript {
            true => (from..until).map(|at| postscript_octet(size, at)).collect(),
            false => (from..until).map(|at| octet(number, at)).collect(),
        };
        self.given.set(until);
        let mut tally = self.tally.get();
        tally.add(&octets);
        self.tally.set(tally);
        (octets, until == size)
    }
}

impl Machine for Print {
    fn start(&self, at: At<'_>) -> Result<(), OpenError> {
        at.enable(Part::Number(SOCKET, self.settings.socket.into()))?;
        at.schedule(self.settings.start.max(SHORTEST), 0)
    }

    fn timeout(all: &Rc<Running<Self>>, at: At<'_>, _: u64) {
        all.run(at);
    }

    fn call(
        all: &Rc<Running<Self>>,
        at: At<'_>,
        _: &SessionRef,
        request: Message,
    ) -> Result<Message, Refused> {
        let (asked, user, request) = asked(at.this, request)?;
        let is_ours = user.connection == all.connection.get();
        match user.function {
            Function::SendData if is_ours => {
                let (octets, is_last) = all.give(asked.bitmap.count_ones());
                let user = User::data(user.connection, is_last);
                reply(at.cx, at.this, &asked, request, user, &octets)
            }
            Function::CloseConnection => {
                let user = User::new(user.connection, Function::CloseConnectionReply);
                reply(at.cx, at.this, &asked, request, user, &[])
            }
            Function::Tickle => reply(at.cx, at.this, &asked, request, user, &[]),
            _ => at.refuse(request, &BAD_ARGUMENTS),
        }
    }

    fn answer(&self, _: At<'_>, ask: &mut Ask<'_>) -> Option<Answer> {
        let report = ask.get::<Report>()?;
        let tally = self.tally.get();
        let figures = [
            ("printed", self.printed.get()),
            ("octets", tally.octets),
            ("sum", tally.sum().into()),
            ("failed", self.failed.get()),
            ("attempts", self.attempts.get()),
        ];
        report.lines = figures.map(|(name, figure)| (name.into(), figure.to_string())).into();
        let printer = self.printer.borrow();
        if !printer.is_empty() {
            report.lines.push(("printer".into(), printer.clone()));
        }
        report.finished = self.printed.get() + self.failed.get() >= self.settings.count;
        report.failed = self.failed.get() > 0;
        Some(Answer::Answered)
    }
}
