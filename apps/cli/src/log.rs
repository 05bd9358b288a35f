//! Messages of `xk run` and `xk exec`: warnings and, with `-v`, what happens in the graph.

use crate::output;
use crate::user::User;
use rustix::io::read;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use xk_core::control::Describe;
use xk_core::object::SessionId;
use xk_core::trace::PassiveOpens;
use xk_core::{Kernel, ProtocolRef, SessionRef};
use xk_run::Runner;

/// Time between two looks at the counters of drops, in nanoseconds.
const LOOK_EVERY_NS: i64 = 250_000_000;
/// Number of looks, those of a second, that have [`LINES_MAX`] lines together.
const LOOKS: u32 = 4;
/// Largest number of lines a second, beside the one that counts the others.
const LINES_MAX: u64 = 6;

/// Verbosity of messages on the standard error.
#[derive(clap::Args, Clone, Copy)]
pub(crate) struct Verbosity {
    /// Say which devices are open, the user, sessions that peers open, and drops with layer and
    /// reason: a few lines a second; given twice, every line
    #[arg(short, long, action = clap::ArgAction::Count)]
    verbose: u8,
    /// No warnings
    #[arg(short, long, conflicts_with = "verbose")]
    quiet: bool,
}

impl Verbosity {
    /// As if `-v` were given so often.
    pub(crate) fn new(verbose: u8) -> Self {
        Self { verbose, quiet: false }
    }

    /// Number of times that `-v` was given.
    pub(crate) fn level(self) -> u8 {
        self.verbose
    }

    /// A warning, unless none are wanted.
    pub(crate) fn warn(self, text: &str) {
        self.unless_quiet(|| line(text));
    }

    /// Warns in another way, unless no warnings are wanted.
    pub(crate) fn unless_quiet(self, warn: impl FnOnce()) {
        if !self.quiet {
            warn();
        }
    }

    /// True with `-v`.
    pub(crate) fn is_verbose(self) -> bool {
        self.verbose > 0
    }

    /// Writes a line only with `-v`.
    pub(crate) fn say(self, text: impl FnOnce() -> String) {
        if self.is_verbose() {
            line(&text());
        }
    }

    /// Writes the user that this process has become.
    pub(crate) fn say_user(self, user: User) {
        let (uid, gid) = (user.uid.as_raw(), user.gid.as_raw());
        self.say(|| format!("user {uid}, group {gid}, without capabilities"));
    }

    /// With `-v`: from now on the runner's loop says what happens in its graph.
    ///
    /// # Errors
    /// If there is no descriptor for the timer.
    pub(crate) fn look_on(self, runner: &Runner) -> io::Result<()> {
        let lines_max = match self.verbose {
            0 => return Ok(()),
            1 => LINES_MAX,
            _ => u64::MAX,
        };
        let log = Rc::new(Log {
            lines_max,
            left: Cell::new(lines_max),
            more: Cell::default(),
            looks: Cell::default(),
            session_last: Cell::new(SessionId(0)),
            drops: RefCell::default(),
        });
        let opens = Rc::clone(&log);
        let opened = move |cx: &Kernel, upper: &ProtocolRef, session: &SessionRef| {
            opens.opened(cx, upper, session);
        };
        runner.kernel().surround(Rc::new(PassiveOpens(Box::new(opened))));
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        let every = Timespec { tv_sec: 0, tv_nsec: LOOK_EVERY_NS };
        let times = Itimerspec { it_interval: every, it_value: every };
        timerfd_settime(&timer, TimerfdTimerFlags::empty(), &times)?;
        let expired = timer.try_clone()?;
        let look = move |cx: &Kernel| {
            // How often it has expired does not matter.
            let _ = read(&expired, &mut [0; 8]);
            log.look(cx);
        };
        runner.watch(timer, Rc::new(look))?;
        Ok(())
    }
}

fn line(text: &str) {
    output::error(&format!("xk: {text}\n"));
}

/// Log of a running graph, limited to a number of lines a second.
struct Log {
    lines_max: u64,
    left: Cell<u64>,
    /// Lines that were left out.
    more: Cell<u64>,
    looks: Cell<u32>,
    session_last: Cell<SessionId>,
    /// The drops said already: for each protocol those of each reason, in the order of their first
    /// occurrence.
    drops: RefCell<Vec<Vec<u64>>>,
}

impl Log {
    fn line(&self, text: impl FnOnce() -> String) {
        match self.left.get().checked_sub(1) {
            Some(left) => {
                self.left.set(left);
                line(&text());
            }
            None => self.more.set(self.more.get() + 1),
        }
    }

    fn opened(&self, cx: &Kernel, upper: &ProtocolRef, session: &SessionRef) {
        let head = session.head();
        // A layer that hands on the session of the one below tells of it once more.
        if self.session_last.replace(head.id()) == head.id() {
            return;
        }
        self.line(|| {
            let lower = cx.name_of(head.protocol()).unwrap_or_default();
            let about = session.ask(cx, Describe::default());
            let about = about.map_or_else(String::new, |about| about.text);
            format!("{lower}: a peer opens s{} for {}: {about}", head.id().0, upper.name())
        });
    }

    fn look(&self, cx: &Kernel) {
        let looks = self.looks.get() + 1;
        self.looks.set(looks % LOOKS);
        if looks == LOOKS {
            self.left.set(self.lines_max);
            match self.more.take() {
                0 => {}
                more => line(&format!("and {more} more")),
            }
        }
        let mut said = self.drops.borrow_mut();
        let protocols = cx.protocols();
        said.resize(protocols.len(), Vec::new());
        for (protocol, said) in protocols.iter().zip(said.iter_mut()) {
            let drops = protocol.head().drops().list();
            said.resize(drops.len(), 0);
            for ((reason, count), said) in drops.into_iter().zip(said) {
                let new = count - std::mem::replace(said, count);
                if new > 0 {
                    self.line(|| format!("{}: dropped {new}: {reason}", protocol.name()));
                }
            }
        }
    }
}
