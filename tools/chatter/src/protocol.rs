//! The protocol object: one session, one timer.

use crate::heard::{Heard, Verdict};
use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::time::Duration;
use xk_core::control::Report;
use xk_core::graph::{Build, BuildError, ParamKind, optional};
use xk_core::object::{OpenError, Refused};
use xk_core::reason::Class;
use xk_core::{
    Answer, Ask, Kernel, Message, Part, Participant, Participants, Protocol, ProtocolRef, Reason,
    SessionRef, Time, Upper,
};
use xk_kit::asks::{self, SHORTEST};
use xk_kit::control::TryOpen;
use xk_kit::group::{MyMember, TakeOwn, View};

/// The message is none of a member, or of one too many.
pub(crate) static STRANGER: Reason = Reason::new("stranger", Class::Bad);

/// Tokens of the timers for sending, and for looking whether it is over.
const SEND: u64 = 0;
const LOOK: u64 = 1;
const PEER: &str = "process7@10.0.0.2";

xk_core::settings! {
    /// Parameters of the graph.
    #[derive(Clone, Debug)]
    pub struct Settings {
        count: u32 = int(1..=1_000_000_000, 10, "how many messages it sends"),
        interval: Duration = duration(Duration::from_millis(10), "from one message to the next"),
        size: usize = octets(64, "octets of a message, at least"),
        timeout: Duration = duration(Duration::from_secs(5),
            "how long nothing is heard before it is over"),
        start: Duration = duration(Duration::ZERO, "the delay before the conversation is opened"),
        ..
        /// The peers; empty for a member that waits for another to open the conversation.
        to: Vec<Participant> = Vec::new(),
        /// The local participant.
        local: Participant = Participant::new(),
    }
    [
        optional("to", ParamKind::Peers(PEER), "the other members, if this one opens"),
        optional("local", ParamKind::Participant(PEER), "the local participant"),
    ]
}

/// One instance.
pub struct Chatter {
    lower: ProtocolRef,
    settings: Settings,
    /// Number by which others know it.
    name: u32,
    session: RefCell<Option<SessionRef>>,
    heard: RefCell<Heard>,
    sent: Cell<u32>,
    received: Cell<u64>,
    early: Cell<u64>,
    twice: Cell<u64>,
    disorder: Cell<u64>,
    /// All members hear all messages in the same order, their own as well.
    in_order: Cell<bool>,
    failed: Cell<u64>,
    open_error: Cell<Option<OpenError>>,
    heard_at: Cell<Time>,
}

/// Builds it from its place in a graph.
pub fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let params = build.params;
    let settings = Settings {
        to: params.peers("to")?,
        local: params.participant("local")?.unwrap_or_default(),
        ..Settings::read(build)?
    };
    asks::check_sizes(&[("size", settings.size)])?;
    let body = Chatter {
        lower: build.lower(0)?,
        settings,
        name: build.cx.random().next_u32(),
        session: RefCell::default(),
        heard: RefCell::default(),
        sent: Cell::new(0),
        received: Cell::new(0),
        early: Cell::new(0),
        twice: Cell::new(0),
        disorder: Cell::new(0),
        in_order: Cell::new(false),
        failed: Cell::new(0),
        open_error: Cell::new(None),
        heard_at: Cell::new(Time::ZERO),
    };
    build.add(body)
}

fn count(of: &Cell<u64>) {
    of.set(of.get() + 1);
}

impl Chatter {
    fn ends(&self) -> Participants {
        asks::ends(&self.settings.local, &self.settings.to)
    }

    /// The session, opened at first use; `None` if there is none yet.
    fn session(&self, cx: &Kernel, this: &ProtocolRef) -> Option<SessionRef> {
        let kept = self.session.borrow().clone();
        if kept.is_some() || self.settings.to.is_empty() {
            return kept;
        }
        match self.lower.open(cx, Upper::new(this), self.ends()) {
            Ok(session) => {
                self.heard_at.set(cx.now());
                *self.session.borrow_mut() = Some(session.clone());
                Some(session)
            }
            Err(error) => {
                self.open_error.set(Some(error));
                None
            }
        }
    }

    fn send(&self, cx: &Kernel, this: &ProtocolRef) {
        let Some(session) = self.session(cx, this) else {
            return;
        };
        let number = self.sent.get() + 1;
        if number == 1 {
            self.in_order.set(session.ask(cx, TakeOwn).is_some());
        }
        let (size, in_order) = (self.settings.size, self.in_order.get());
        let octets = self.heard.borrow().message(self.name, number, size, in_order);
        let message = asks::message(cx, octets.len(), |at| octets.get(at).copied().unwrap_or(0));
        let pushed = message.map(|message| session.push(cx, message));
        match pushed {
            Some(Ok(())) => self.sent.set(number),
            _ => count(&self.failed),
        }
    }

    fn plan(&self, cx: &Kernel, this: &ProtocolRef, after: Duration) {
        if let Err(error) = cx.schedule_protocol(this, after.max(SHORTEST), SEND) {
            self.open_error.set(Some(error));
        }
    }

    /// The other members that are to be heard, as far as it is known how many they are.
    fn peers(&self, cx: &Kernel) -> usize {
        let session = self.session.borrow().clone();
        let of = |session: &SessionRef| {
            let all = session.ask(cx, MyMember::default())?.members.into();
            let view = session.ask(cx, View::default());
            let members = view.map_or(all, |view| view.members.count_ones() as usize);
            Some(members.saturating_sub(1))
        };
        let asked = session.as_ref().and_then(of);
        asked.unwrap_or_else(|| self.settings.to.len().max(self.heard.borrow().members()))
    }

    fn report(&self, cx: &Kernel, report: &mut Report) {
        let members = self.heard.borrow().members() as u64;
        let mut lines = [
            ("sent", self.sent.get().into()),
            ("received", self.received.get()),
            ("members", members),
            ("early", self.early.get()),
            ("twice", self.twice.get()),
            ("failed", self.failed.get()),
        ]
        .map(|(name, n): (&str, u64)| (name.into(), n.to_string()))
        .to_vec();
        let own = if self.in_order.get() { self.settings.count } else { 0 };
        let done = self.heard.borrow().done(self.settings.count);
        // Others may have sent all before it came back.
        let has_heard = self.heard.borrow().is_back || done >= self.peers(cx);
        let has_all = has_heard && self.heard.borrow().own() >= own;
        let has_sent = self.sent.get() >= self.settings.count;
        let is_quiet = cx.now().since(self.heard_at.get()) >= self.settings.timeout;
        let waits = self.session.borrow().is_none() && self.settings.to.is_empty();
        let is_open = self.session.borrow().is_some();
        let open_error = self.open_error.get();
        if let Some(error) = open_error {
            lines.push(("why".into(), error.to_string()));
        }
        if self.in_order.get() {
            lines.push(("disorder".into(), self.disorder.get().to_string()));
            lines.push(("order".into(), format!("{:016x}", self.heard.borrow().digest())));
        }
        report.lines = lines;
        // Whether it has finished is not asked again once it has.
        report.finished = open_error.is_some()
            || is_open && has_sent && has_all
            || is_quiet && (waits || is_open);
        report.failed = open_error.is_some()
            || report.finished && !waits && !(has_sent && has_all)
            || self.early.get() + self.twice.get() + self.disorder.get() + self.failed.get() > 0;
    }
}

impl Protocol for Chatter {
    fn start(&self, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        self.heard_at.set(cx.now());
        cx.schedule_protocol(this, self.settings.timeout.max(SHORTEST), LOOK)?;
        if !self.settings.to.is_empty() {
            return cx.schedule_protocol(this, self.settings.start.max(SHORTEST), SEND).map(drop);
        }
        let local = match self.settings.local.is_empty() {
            true => Participant::of(Part::Any),
            false => self.settings.local.clone(),
        };
        self.lower.open_enable(cx, Upper::new(this), Participants::local(local)).map(drop)
    }

    fn open_done(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        _: Participants,
    ) -> Result<(), &'static Reason> {
        let mut session = self.session.borrow_mut();
        if session.is_some() {
            return Err(&xk_core::reason::TABLE_FULL);
        }
        lower.hold();
        *session = Some(lower.clone());
        drop(session);
        let my = lower.ask(cx, MyMember::default());
        self.heard.borrow_mut().is_back = my.is_some_and(|my| my.incarnation > 1);
        self.heard_at.set(cx.now());
        self.plan(cx, this, self.settings.interval);
        Ok(())
    }

    fn demux(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        _: &SessionRef,
        message: Message,
    ) -> Result<(), Refused> {
        let octets: Vec<u8> = message.octets().take(crate::heard::OCTETS_MAX).collect();
        let own = self.heard.borrow().own();
        let verdict = self.heard.borrow_mut().judge(&octets, self.name, self.in_order.get());
        match verdict {
            Verdict::Stranger => return Err(this.refuse(message, &STRANGER)),
            Verdict::Early => count(&self.early),
            Verdict::Twice => count(&self.twice),
            Verdict::OtherOrder => count(&self.disorder),
            Verdict::InOrder => {}
        }
        self.heard_at.set(cx.now());
        if own == self.heard.borrow().own() {
            count(&self.received);
        }
        Ok(())
    }

    fn timeout(&self, cx: &Kernel, this: &ProtocolRef, token: u64) {
        if token == LOOK {
            // A kernel in which nothing happens does not know that time has passed.
            if cx.now().since(self.heard_at.get()) < self.settings.timeout {
                let _ = cx.schedule_protocol(this, self.settings.timeout, LOOK);
            }
            return;
        }
        self.send(cx, this);
        // Not before the push has returned, which may wait.
        if self.sent.get() < self.settings.count && self.open_error.get().is_none() {
            self.plan(cx, this, self.settings.interval);
        }
    }

    fn control(&self, cx: &Kernel, this: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        if let Some(tried) = ask.get::<TryOpen>() {
            if !self.settings.to.is_empty() {
                tried.note(cx, self.lower.open(cx, Upper::new(this), self.ends()));
            }
        } else if let Some(report) = ask.get::<Report>() {
            self.report(cx, report);
        } else {
            return self.lower.control(cx, ask);
        }
        Answer::Answered
    }

    fn lower(&self) -> Option<&ProtocolRef> {
        Some(&self.lower)
    }

    fn stop(&self, _: &Kernel, _: &ProtocolRef) {
        drop(self.session.take());
    }
}
