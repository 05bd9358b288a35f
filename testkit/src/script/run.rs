//! Running a script: the virtual lower protocol below, the application above, and the clock.

use super::app::App;
use super::flow::{Flow, PEER_PORT, cookie_of, peer_octet};
use super::spec::{Act, Case, SegmentSpec, Step};
use super::wire::{Tcp, TcpOption, seal};
use crate::kernel::{Bottom, Lower, TestKernel, octets};
use core::fmt;
use core::net::Ipv4Addr;
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};
use xk_core::graph::{ParamKind, Params, Value};
use xk_core::object::{Arrivals, BURST_MAX, Enable};
use xk_core::{Entry, Part, ProtocolRef, SessionRef, Time};
use xk_kit::control::PseudoHeader;
use xk_kit::net::attribute::{Arrived, Ecn, Sending};
use xk_kit::net::stream::StreamAbort;

/// Our host and the peer's.
const OWN: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
pub(super) const PEER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
/// The number that counts in the pseudo-header.
const NUMBER: u8 = 6;
/// The network header that the lower protocol takes off the path's largest packet, in octets.
const BELOW: u32 = 20;
/// More timers than this in one step of a script never come to an end.
const TIMERS_MAX: usize = 100_000;

/// A script that did not go as written.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Title of the script: what it shows.
    pub title: String,
    /// The line, from 1.
    pub line: usize,
    /// The line's text.
    pub text: String,
    /// The failure.
    pub what: String,
    /// Events until then.
    pub trace: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "line {}: {}", self.line, self.title)?;
        writeln!(f, "  script: {}", self.text)?;
        writeln!(f, "  {}", self.what)?;
        for line in &self.trace {
            writeln!(f, "    {line}")?;
        }
        Ok(())
    }
}

/// A segment that was sent and that no line has spoken of yet.
struct Pending {
    at: Time,
    flow: u16,
    tcp: Tcp,
    ecn: u8,
    /// The wishes for its header, as usual by default.
    sending: Sending,
}

pub(super) struct Run<'a> {
    case: &'a Case,
    pub(super) cx: TestKernel,
    bottom: Bottom,
    pub(super) app: App,
    pub(super) under_test: ProtocolRef,
    pub(super) enable: Option<Enable>,
    flows: BTreeMap<u16, Flow>,
    flow: u16,
    /// The last Fast Open option of the protocol under test that holds a cookie.
    cookie: Option<TcpOption>,
    pending: VecDeque<Pending>,
    /// Segments that arrive with the next one, as one burst.
    arrivals: Arrivals,
    /// Time from which the next relative time counts.
    mark: Time,
    trace: Vec<String>,
}

/// Runs one script against the protocol of this entry; the answer is what happened. With `bursts`,
/// segments that arrive right behind each other do so as one burst.
///
/// # Errors
/// [`Failure`]: the first line that did not go as written.
pub fn run(case: &Case, entry: &'static Entry, bursts: bool) -> Result<Vec<String>, Box<Failure>> {
    let first = case.steps.first().map_or(case.line, |step| step.line);
    let failure = |line: usize, text: &str, what: String, trace: Vec<String>| {
        Box::new(Failure { title: case.title.clone(), line, text: text.to_owned(), what, trace })
    };
    let mut run = Run::new(case, entry).map_err(|what| failure(first, "", what, Vec::new()))?;
    for (at, step) in case.steps.iter().enumerate() {
        let next = case.steps.get(at + 1).filter(|_| bursts);
        let goes_on = next.is_some_and(|next| {
            let follows = next.when.relative && next.when.from.is_zero();
            follows && [&step.act, &next.act].iter().all(|act| matches!(act, Act::Inject(_)))
        });
        if let Err(what) = run.step(step, goes_on) {
            let trace = core::mem::take(&mut run.trace);
            run.finish();
            return Err(failure(step.line, &step.text, what, trace));
        }
    }
    let last = case.steps.last().map_or(case.line, |step| step.line);
    let rest = run.nothing_left();
    let trace = core::mem::take(&mut run.trace);
    let live = run.finish();
    rest.and_then(|()| match live {
        (0, 0) => Ok(()),
        (descriptors, buffers) => Err(format!(
            "when all was taken down, {descriptors} descriptors and {buffers} buffers were still in use"
        )),
    })
    .map(|()| trace.clone())
    .map_err(|what| failure(last, "(the end)", what, trace))
}

/// Turns a parameter's text into what its entry says it is.
fn params(case: &Case, entry: &Entry) -> Result<Params, String> {
    let mut params = Params::default();
    for (name, text) in &case.params {
        let spec = entry
            .parameters
            .iter()
            .find(|spec| spec.name == name)
            .ok_or_else(|| format!("`{}` has no parameter `{name}`", entry.kind))?;
        let bad = |_| format!("parameter `{name}`: `{text}`");
        let value = match spec.kind {
            ParamKind::Integer { .. } => Value::Integer(text.parse().map_err(bad)?),
            ParamKind::Octets => Value::Octets(text.parse().map_err(bad)?),
            ParamKind::Duration { .. } => {
                let ms = text.strip_suffix("ms").unwrap_or(text);
                Value::Duration(Duration::from_millis(ms.parse().map_err(bad)?))
            }
            ParamKind::Bool => Value::Bool(text == "on"),
            _ => Value::Text(text.clone()),
        };
        params.set(spec.name, value);
    }
    Ok(params)
}

impl<'a> Run<'a> {
    fn new(case: &'a Case, entry: &'static Entry) -> Result<Self, String> {
        let cx = TestKernel::new(1);
        let lower =
            Lower { opt_packet: case.mtu.saturating_sub(BELOW), ..Lower::host(OWN, NUMBER) };
        let bottom = Bottom::add(&cx, "lower", lower);
        let under_test = entry
            .add(&cx, entry.kind, core::slice::from_ref(bottom.protocol()), &params(case, entry)?)
            .map_err(|error| error.to_string())?;
        let app = App::add(&cx);
        cx.start().map_err(|(protocol, error)| format!("{protocol:?} does not start: {error}"))?;
        // So that no time is before the beginning.
        cx.set_now(Time::from_s(100));
        let mark = cx.now();
        Ok(Self {
            case,
            cx,
            bottom,
            app,
            under_test,
            enable: None,
            flows: BTreeMap::from([(0, Flow::new(0, case.isn))]),
            flow: 0,
            cookie: None,
            pending: VecDeque::new(),
            arrivals: Arrivals::default(),
            mark,
            trace: Vec::new(),
        })
    }

    /// Takes everything down; answers what is still in use of the pool.
    fn finish(self) -> (u32, u32) {
        let Self { cx, bottom, app, under_test, flows, pending, .. } = self;
        for flow in flows.values() {
            if let Some(session) = &flow.session {
                let _ = session.ask(&cx, StreamAbort);
                session.close(&cx);
            }
        }
        app.clear();
        cx.stop();
        drop((bottom.take_sent(), app, under_test, flows, pending));
        cx.live()
    }

    pub(super) fn flow(&mut self) -> &mut Flow {
        let isn = self.case.isn;
        let number = self.flow;
        self.flows.entry(number).or_insert_with(|| Flow::new(number, isn))
    }

    pub(super) fn session(&mut self) -> Result<SessionRef, String> {
        let session = self.flow().session.clone();
        session.ok_or_else(|| "the application has no session here".to_owned())
    }

    fn note(&mut self, text: &str) {
        let since = self.cx.now().as_us() - Time::from_s(100).as_us();
        let ms = since as f64 / 1000.0;
        self.trace.push(format!("{ms:>12.3}  {text}"));
    }

    fn step(&mut self, step: &Step, goes_on: bool) -> Result<(), String> {
        let base = if step.when.relative { self.mark } else { Time::from_s(100) };
        if let Act::Expect(spec) = &step.act {
            let from = base.after(step.when.from).before(self.case.tolerance);
            let to = base.after(step.when.to).after(self.case.tolerance);
            return self.expect(spec, from, to);
        }
        let at = base.after(step.when.from);
        if at < self.cx.now() {
            return Err("its time is over already".to_owned());
        }
        self.advance(at, false)?;
        self.mark = at;
        if !matches!(step.act, Act::Inject(_) | Act::Quiet | Act::Skip) {
            self.note(&step.text);
        }
        match &step.act {
            Act::Inject(spec) => self.inject(spec, goes_on)?,
            act => self.act(act)?,
        }
        self.collect()
    }

    fn act(&mut self, act: &Act) -> Result<(), String> {
        match act {
            Act::Inject(_) | Act::Expect(_) => Ok(()),
            Act::Quiet => self.quiet(),
            Act::Skip => {
                for pending in self.pending.drain(..) {
                    let anything = SegmentSpec::default();
                    if let Some(flow) = self.flows.get_mut(&pending.flow) {
                        let _ = flow.compare(&anything, &pending.tcp, pending.ecn);
                    }
                }
                Ok(())
            }
            Act::Flow(number) => {
                self.flow = *number;
                self.flow();
                Ok(())
            }
            Act::New(further) => {
                let further = *further;
                if let Some(session) = self.flow().session.take() {
                    session.close(&self.cx);
                }
                self.flow().renew(further);
                Ok(())
            }
            Act::Mtu(octets) => {
                self.bottom.set_opt_packet(octets.saturating_sub(BELOW));
                Ok(())
            }
            Act::Error(kind, seq) => self.network_error(*kind, *seq),
            Act::Drops(reason, bound) => {
                let list = self.under_test.head().drops().list();
                let count = list
                    .iter()
                    .find(|(found, _)| found.name == reason.as_str())
                    .map_or(0, |(_, count)| *count);
                let all: Vec<_> = list.iter().map(|(r, n)| format!("{} {n}", r.name)).collect();
                check(bound.allows(count), || {
                    format!("dropped for it: {count}; all drops: {}", all.join(", "))
                })
            }
            _ => self.application(act),
        }
    }

    /// A segment arrives, with those before it that it was said of that more follow.
    fn inject(&mut self, spec: &SegmentSpec, goes_on: bool) -> Result<(), String> {
        let now = self.cx.now();
        self.flow().cookie = self.cookie.clone();
        let tcp = self.flow().inject(spec, now);
        let ecn = spec.ecn.unwrap_or(0);
        let number = self.flow;
        let text = self.flow().show(&tcp, false, ecn);
        self.note(&format!("{} {text}", arrow(number, '<')));
        let pseudo = pseudo();
        let mut data = tcp.emit(pseudo);
        if let Some(offset) = spec.offset {
            data[12] = offset << 4 | data[12] & 15;
            seal(&mut data, pseudo);
        }
        if let Some(length) = spec.cut {
            data.truncate(length);
            seal(&mut data, pseudo);
        }
        if spec.corrupt {
            data[16] ^= 0x55;
        }
        let mut message = self.cx.message(&data);
        if spec.ecn.is_some() {
            // As the network layer does that was asked for it.
            let _ = message.set_attribute(Arrived { to: PEER.into(), hops: 64, class: ecn });
        }
        if Ecn::from_bits(ecn) == Some(Ecn::Experienced) {
            let _ = message.set_attribute(Ecn::Experienced);
        }
        self.arrivals.queue_mut().push_back(message);
        if goes_on {
            return Ok(());
        }
        match self.bottom.session(&self.cx, Some(Part::host(PEER)), None) {
            Ok(session) => while self.arrivals.deliver(&self.cx, &session, BURST_MAX) > 0 {},
            Err(why) => {
                self.arrivals.clear();
                self.note(&format!("  (it was refused: {why})"));
            }
        }
        Ok(())
    }

    /// Takes what was sent and delivered, and what the application was given.
    pub(super) fn collect(&mut self) -> Result<(), String> {
        for (session, port) in self.app.take_accepted() {
            let number = port.wrapping_sub(PEER_PORT);
            let isn = self.case.isn;
            let flow = self.flows.entry(number).or_insert_with(|| Flow::new(number, isn));
            flow.session = Some(session);
        }
        for (session, data) in self.app.take_octets() {
            let flow = self
                .flows
                .values_mut()
                .find(|flow| flow.session.as_ref().is_some_and(|s| s.id() == session))
                .ok_or("octets came up through a session that nobody knows")?;
            for octet in data {
                if octet != peer_octet(flow.delivered) {
                    return Err(format!("octet {} came up with a wrong value", flow.delivered));
                }
                flow.delivered += 1;
            }
        }
        for sent in self.bottom.take_sent() {
            let data = octets(&sent.message);
            let ecn = sent.message.attribute::<Ecn>().map_or(0, Ecn::bits);
            let sending = sent.message.attribute().unwrap_or_default();
            let tcp = Tcp::parse(&data, pseudo())
                .map_err(|what| format!("a segment was sent: {what}"))?;
            let number = tcp.destination.wrapping_sub(PEER_PORT);
            let isn = self.case.isn;
            let flow = self.flows.entry(number).or_insert_with(|| Flow::new(number, isn));
            let wrong = flow.see(&tcp);
            self.cookie = cookie_of(&tcp).cloned().or(self.cookie.take());
            flow.cookie = self.cookie.clone();
            let start = data.first_chunk().copied().unwrap_or_default();
            flow.last = Some((sent.session, start));
            let text = flow.show(&tcp, true, ecn);
            self.note(&format!("{} {text}", arrow(number, '>')));
            wrong?;
            let at = self.cx.now();
            self.pending.push_back(Pending { at, flow: number, tcp, ecn, sending });
        }
        Ok(())
    }

    /// Lets time pass until `to`, or until a segment waits if `waits`.
    fn advance(&mut self, to: Time, waits: bool) -> Result<(), String> {
        self.collect()?;
        for _ in 0..TIMERS_MAX {
            if waits && !self.pending.is_empty() {
                return Ok(());
            }
            let Some(next) = self.cx.next_expiry().filter(|next| *next <= to) else {
                self.cx.set_now(to);
                return Ok(());
            };
            self.cx.set_now(next);
            self.cx.run_due();
            self.collect()?;
        }
        Err("timers go off without end".to_owned())
    }

    fn expect(&mut self, spec: &SegmentSpec, from: Time, to: Time) -> Result<(), String> {
        self.advance(to, true)?;
        let Some(pending) = self.pending.pop_front() else {
            return Err(format!("nothing was sent by {}", since(to)));
        };
        self.mark = pending.at;
        if pending.flow != self.flow {
            return Err(format!("the segment is for connection {}", pending.flow));
        }
        let compared = self.flow().compare(spec, &pending.tcp, pending.ecn);
        let seen = self.flow().show(&pending.tcp, true, pending.ecn);
        compared.map_err(|what| format!("seen:   > {seen}\n  {what}"))?;
        let Sending { hops, class, .. } = pending.sending;
        let is_asked = |wanted: Option<u8>, seen: u8| wanted.is_none_or(|wanted| wanted == seen);
        check(is_asked(spec.hops, hops) && is_asked(spec.class, class.unwrap_or(0)), || {
            format!("seen:   > {seen}\n  it asks for {hops} hops and class {class:?}")
        })?;
        check(pending.at >= from && pending.at <= to, || {
            format!(
                "seen:   > {seen}\n  at {}, not {} to {}",
                since(pending.at),
                since(from),
                since(to)
            )
        })
    }

    fn quiet(&mut self) -> Result<(), String> {
        self.collect()?;
        let Some(pending) = self.pending.front() else {
            return Ok(());
        };
        let text = self.flows[&pending.flow].show(&pending.tcp, true, pending.ecn);
        Err(format!(
            "at {} this was sent:\n  {} {text}",
            since(pending.at),
            arrow(pending.flow, '>')
        ))
    }

    /// Checks at the end that no line was left out: nothing was sent and nothing told that the
    /// script does not name.
    fn nothing_left(&mut self) -> Result<(), String> {
        self.quiet()?;
        // A holder that has released a session need not care what it is told.
        for flow in self.flows.values().filter(|flow| flow.released) {
            if let Some(session) = &flow.session {
                while self.app.next_of(session.id()).is_some() {}
            }
        }
        match self.app.left() {
            Some(told) => Err(format!("the application was also told {told:?}")),
            None => Ok(()),
        }
    }
}

pub(super) fn check(holds: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what()) }
}

fn arrow(flow: u16, direction: char) -> String {
    if flow == 0 { direction.to_string() } else { format!("[{flow}] {direction}") }
}

fn since(time: Time) -> String {
    let us = time.as_us().saturating_sub(Time::from_s(100).as_us());
    format!("{} ms", us as f64 / 1000.0)
}

fn pseudo() -> u32 {
    PseudoHeader::new([OWN.into(); 2], PEER.into(), NUMBER.into()).sum
}
