//! `xk ping`: a host of a graph pings another one.

use crate::failure::Failure;
use crate::top::{self, HEADROOM, HostArgs};
use crate::{file, output};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, Instant};
use xk_core::object::{OpenError, Refused};
use xk_core::reason::{Class, Reason};
use xk_core::{
    Answer, Ask, HostAddr, Kernel, Message, Part, Participants, Protocol, ProtocolRef, SessionRef,
    Upper,
};
use xk_kit::control::{NetworkError, NetworkErrorKind};
use xk_kit::net::neighbour::HostRoute;

/// No request waits for this reply: it came twice, or too late.
static UNEXPECTED: Reason = Reason::new("unexpected reply", Class::NotMine);
/// Octets of the number in front of a message.
const NUMBER_OCTETS: usize = 8;
/// The largest message, in octets: with 8 of ICMP and 20 of IP as long as a packet can be.
const SIZE_MAX: usize = 65_507;
/// Largest number of replies that are awaited at a time.
const AWAITED_MAX: usize = 4096;

/// Ping a host from a host of a graph
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    place: HostArgs,
    /// Number of requests; without it, until Ctrl-C
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Time between two requests
    #[arg(short, long, value_name = "TIME", default_value = "1s", value_parser = file::duration)]
    interval: Duration,
    /// Time to wait for a reply
    #[arg(short = 'W', long, value_name = "TIME", default_value = "2s", value_parser = file::duration)]
    wait: Duration,
    /// Octets of payload
    #[arg(short, long, value_name = "OCTETS", default_value_t = 56)]
    size: usize,
    /// The host to ping, an IPv4 address
    destination: HostAddr,
}

pub(crate) fn main(args: &Args) -> Result<(), Failure> {
    if args.size > SIZE_MAX {
        return Err(Failure::usage(format!(
            "a size of {} octets is more than {SIZE_MAX}",
            args.size
        )));
    }
    let tally = Rc::new(Tally::default());
    let pinger = |icmp, host: &str| {
        let (destination, size) = (args.destination, args.size);
        output::print(&format!("PING {destination} from {host}: {size} octets of payload\n"));
        Pinger {
            icmp,
            destination,
            interval: args.interval.max(Duration::from_millis(1)),
            wait: args.wait,
            size,
            count: args.count.unwrap_or(u64::MAX),
            session: RefCell::default(),
            tally: Rc::clone(&tally),
        }
    };
    let seen = Rc::clone(&tally);
    let took = top::run(&args.place, "icmp", pinger, None, move |_| seen.done.get())?;
    output::print(&tally.summary(args.destination, took));
    match tally.received.get() {
        0 => {
            output::print(&format!("why: {}\n", tally.why(args.destination)));
            Err(Failure::Said)
        }
        _ => Ok(()),
    }
}

/// Counts of requests and replies.
#[derive(Default)]
struct Tally {
    sent: Cell<u64>,
    received: Cell<u64>,
    errors: Cell<u64>,
    /// Numbers of messages that are awaited, with the time of sending.
    awaited: RefCell<BTreeMap<u64, Instant>>,
    /// Last error that the network reported about a request.
    reported: RefCell<Option<String>>,
    times: RefCell<Times>,
    done: Cell<bool>,
}

#[derive(Default)]
struct Times {
    min: Duration,
    max: Duration,
    sum: Duration,
}

impl Tally {
    fn note(&self, took: Duration) {
        let mut times = self.times.borrow_mut();
        times.min = if self.received.get() == 0 { took } else { times.min.min(took) };
        times.max = times.max.max(took);
        times.sum += took;
        self.received.set(self.received.get() + 1);
    }

    /// Why nothing came back.
    fn why(&self, destination: HostAddr) -> String {
        match &*self.reported.borrow() {
            Some(report) => report.clone(),
            None => format!(
                "time ran out: what was sent left this host, and neither {destination} nor anybody on the way answered; \
                 it is down, drops pings, or has no way back to us"
            ),
        }
    }

    fn summary(&self, destination: HostAddr, took: Duration) -> String {
        let (sent, received) = (self.sent.get(), self.received.get());
        let lost = sent.saturating_sub(received);
        let share = if sent == 0 { 0.0 } else { lost as f64 * 100.0 / sent as f64 };
        let errors = match self.errors.get() {
            0 => String::new(),
            n => format!(", {n} errors"),
        };
        let mut text = format!(
            "\n--- {destination} ping statistics ---\n{sent} sent, {received} received, {share:.0} % lost{errors}, time {:.1} s\n",
            took.as_secs_f64()
        );
        if received > 0 {
            let times = self.times.borrow();
            let mean = times.sum / u32::try_from(received).unwrap_or(u32::MAX);
            text.push_str(&format!(
                "rtt min/avg/max = {}/{}/{} ms\n",
                ms(times.min),
                ms(mean),
                ms(times.max)
            ));
        }
        text
    }
}

fn ms(time: Duration) -> String {
    format!("{:.3}", time.as_secs_f64() * 1e3)
}

/// The top that pings.
struct Pinger {
    icmp: ProtocolRef,
    destination: HostAddr,
    interval: Duration,
    wait: Duration,
    size: usize,
    count: u64,
    session: RefCell<Option<SessionRef>>,
    tally: Rc<Tally>,
}

impl Pinger {
    fn send(&self, cx: &Kernel, number: u64) {
        let Some(session) = self.session.borrow().clone() else {
            return;
        };
        let tally = &self.tally;
        tally.sent.set(number + 1);
        let mut octets: Vec<u8> = (0..self.size).map(|at| at as u8).collect();
        if let Some(front) = octets.first_chunk_mut::<NUMBER_OCTETS>() {
            *front = number.to_be_bytes();
        }
        let Ok(message) = cx.pool().copy_from(HEADROOM, &octets) else {
            tally.errors.set(tally.errors.get() + 1);
            output::print(&format!("seq={number} not sent: no buffers\n"));
            return;
        };
        let mut awaited = tally.awaited.borrow_mut();
        while awaited.len() >= AWAITED_MAX {
            awaited.pop_first();
        }
        awaited.insert(number, Instant::now());
        drop(awaited);
        if let Err(error) = session.push(cx, message) {
            tally.awaited.borrow_mut().remove(&number);
            tally.errors.set(tally.errors.get() + 1);
            output::print(&format!("seq={number} not sent: {error}\n"));
            *tally.reported.borrow_mut() = Some(format!("not sent: {error}"));
        }
    }

    /// Names the station on the link that did not answer.
    fn unresolved(&self, cx: &Kernel) -> String {
        let route = HostRoute { host: self.destination, over: None, direct: true };
        let route = self.icmp.ask(cx, route);
        let over = route.as_ref().and_then(|route| route.over.as_ref());
        let on = over.map_or_else(String::new, |over| format!(" on `{}`", over.name()));
        match route {
            Some(route) if !route.direct => {
                format!("the router towards {} does not answer ARP{on}", self.destination)
            }
            _ => format!("{} does not answer ARP{on}: no such station is there", self.destination),
        }
    }

    /// Sends the next one, or is done when all are answered or given up.
    fn go_on(&self, cx: &Kernel, this: &ProtocolRef) {
        let now = Instant::now();
        let tally = &self.tally;
        let mut lost = Vec::new();
        tally.awaited.borrow_mut().retain(|number, sent| {
            let waits = now.duration_since(*sent) < self.wait;
            if !waits {
                lost.push(*number);
            }
            waits
        });
        for number in lost {
            output::print(&format!("seq={number} no reply\n"));
        }
        let sent = tally.sent.get();
        let delay = if sent < self.count {
            self.send(cx, sent);
            self.interval
        } else {
            Duration::from_millis(20)
        };
        let all = tally.sent.get() >= self.count && tally.awaited.borrow().is_empty();
        if all || cx.schedule_protocol(this, delay, 0).is_err() {
            tally.done.set(true);
        }
    }
}

impl Protocol for Pinger {
    fn start(&self, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        let participants = Participants::pair(Part::Any, Part::Host(self.destination));
        let session = self.icmp.open(cx, Upper::new(this), participants)?;
        *self.session.borrow_mut() = Some(session);
        cx.schedule_protocol(this, Duration::from_millis(1), 0).map(drop)
    }

    fn demux(
        &self,
        _: &Kernel,
        this: &ProtocolRef,
        _: &SessionRef,
        message: Message,
    ) -> Result<(), Refused> {
        let tally = &self.tally;
        let number = match message.peek::<NUMBER_OCTETS>() {
            Some(octets) => Some(u64::from_be_bytes(*octets)),
            // Too short for a number: the answer to the oldest.
            None => tally.awaited.borrow().keys().next().copied(),
        };
        let sent = number.and_then(|number| tally.awaited.borrow_mut().remove(&number));
        let (Some(number), Some(sent)) = (number, sent) else {
            this.discard(message, &UNEXPECTED);
            return Ok(());
        };
        let took = sent.elapsed();
        tally.note(took);
        output::print(&format!(
            "{} octets from {}: seq={number} time={} ms\n",
            message.len(),
            self.destination,
            ms(took)
        ));
        if tally.sent.get() >= self.count && tally.awaited.borrow().is_empty() {
            tally.done.set(true);
        }
        Ok(())
    }

    fn control(&self, cx: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        let Some(error) = ask.get::<NetworkError>() else {
            return self.icmp.control(cx, ask);
        };
        self.tally.errors.set(self.tally.errors.get() + 1);
        let text = match (error.kind, error.reporter) {
            // Only this host itself speaks without a name: its ARP found no answer.
            (NetworkErrorKind::HostUnreachable, None) => self.unresolved(cx),
            _ => top::network_error(error).trim_end().to_owned(),
        };
        output::print(&format!("{text}\n"));
        *self.tally.reported.borrow_mut() = Some(text);
        Answer::Answered
    }

    fn timeout(&self, cx: &Kernel, this: &ProtocolRef, _: u64) {
        self.go_on(cx, this);
    }

    fn stop(&self, _: &Kernel, _: &ProtocolRef) {
        drop(self.session.take());
    }
}
