//! `xk udp`: datagrams from and to a host of a graph.

use crate::failure::Failure;
use crate::top::{self, HEADROOM, HostArgs};
use crate::{file, output};
use clap::Subcommand;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use xk_core::object::{OpenError, Refused};
use xk_core::participant::{PORT, Participant};
use xk_core::{
    Answer, Ask, Kernel, Message, Part, Participants, Protocol, ProtocolRef, SessionRef, Upper,
};
use xk_kit::control::{NetworkError, PeerHost, PeerPort};

/// Octets of a datagram that are shown.
const SHOWN_MAX: usize = 512;
/// The largest datagram's payload, in octets (RFC 768 on RFC 791).
const SIZE_MAX: usize = 65_507;

/// Send and receive datagrams from a host of a graph
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Send datagrams and show what comes back
    Send(SendArgs),
    /// Show datagrams that arrive
    Listen(ListenArgs),
}

#[derive(clap::Args)]
struct SendArgs {
    #[command(flatten)]
    place: HostArgs,
    /// The receiver, such as port7@10.0.0.1
    #[arg(long, value_name = "PEER")]
    to: Participant,
    /// Local port; by default any free one
    #[arg(long)]
    port: Option<u16>,
    /// Number of datagrams
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    count: u64,
    /// Time between two datagrams
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = file::duration)]
    interval: Duration,
    /// Time to wait for answers after the last datagram
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = file::duration)]
    wait: Duration,
    /// Octets of each datagram; DATA is repeated or cut to it
    #[arg(long, value_name = "OCTETS")]
    size: Option<usize>,
    /// Text to send
    #[arg(default_value = "hello")]
    data: String,
}

#[derive(clap::Args)]
struct ListenArgs {
    #[command(flatten)]
    place: HostArgs,
    /// The port
    #[arg(long)]
    port: u16,
    /// End after this many datagrams
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// Duration; without it, until Ctrl-C
    #[arg(long = "for", value_name = "TIME", value_parser = file::duration)]
    limit: Option<Duration>,
}

pub(crate) fn main(args: &Args) -> Result<(), Failure> {
    match &args.what {
        What::Send(args) => send(args),
        What::Listen(args) => listen(args),
    }
}

fn send(args: &SendArgs) -> Result<(), Failure> {
    let size = args.size.unwrap_or(args.data.len());
    if size > SIZE_MAX {
        return Err(Failure::usage(format!("a size of {size} octets is more than {SIZE_MAX}")));
    }
    if !matches!(args.to.top(), Some(Part::Number(PORT, _))) {
        let what = format!("`--to {}` names no port", args.to);
        return Err(Failure::usage(what).help(format!("such as port7@{}", args.to)));
    }
    let data = args.data.as_bytes();
    let source = if data.is_empty() { &[0][..] } else { data };
    let job = Job::Send {
        to: args.to.clone(),
        port: args.port,
        count: args.count,
        interval: args.interval.max(Duration::from_millis(1)),
        wait: args.wait.max(Duration::from_millis(1)),
        data: source.iter().copied().cycle().take(size).collect(),
    };
    let tally = run(&args.place, job, None)?;
    output::print(&format!(
        "{} sent, {} received, {} errors\n",
        tally.sent.get(),
        tally.received.get(),
        tally.errors.get()
    ));
    if tally.errors.get() > 0 { Err(Failure::Said) } else { Ok(()) }
}

fn listen(args: &ListenArgs) -> Result<(), Failure> {
    let job = Job::Listen { port: args.port, count: args.count.unwrap_or(u64::MAX) };
    let tally = run(&args.place, job, args.limit)?;
    output::print(&format!("{} received\n", tally.received.get()));
    Ok(())
}

fn run(place: &HostArgs, job: Job, limit: Option<Duration>) -> Result<Rc<Tally>, Failure> {
    let tally = Rc::new(Tally::default());
    let (mine, seen) = (Rc::clone(&tally), Rc::clone(&tally));
    let end = |udp, _: &str| UdpTop { udp, job, session: RefCell::default(), tally: mine };
    top::run(place, "udp", end, limit, move |_| seen.done.get())?;
    Ok(tally)
}

#[derive(Default)]
struct Tally {
    sent: Cell<u64>,
    received: Cell<u64>,
    errors: Cell<u64>,
    done: Cell<bool>,
}

enum Job {
    Send {
        to: Participant,
        port: Option<u16>,
        count: u64,
        interval: Duration,
        wait: Duration,
        data: Vec<u8>,
    },
    Listen {
        port: u16,
        count: u64,
    },
}

/// The top that sends or listens.
struct UdpTop {
    udp: ProtocolRef,
    job: Job,
    session: RefCell<Option<SessionRef>>,
    tally: Rc<Tally>,
}

impl UdpTop {
    fn trouble(&self, text: &str) {
        self.tally.errors.set(self.tally.errors.get() + 1);
        output::print(&format!("{text}\n"));
    }

    fn send(&self, cx: &Kernel, data: &[u8]) {
        self.tally.sent.set(self.tally.sent.get() + 1);
        let Some(session) = self.session.borrow().clone() else {
            return;
        };
        let pushed = cx
            .pool()
            .copy_from(HEADROOM, data)
            .map_err(|error| error.to_string())
            .and_then(|message| session.push(cx, message).map_err(|error| error.to_string()));
        if let Err(error) = pushed {
            self.trouble(&format!("not sent: {error}"));
        }
    }
}

impl Protocol for UdpTop {
    fn start(&self, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        match &self.job {
            Job::Send { to, port, .. } => {
                let port = port.map_or(Part::Any, Part::port);
                let local = Participant::of(Part::Any).with(port);
                let participants = Participants::pair(local, to.clone());
                let session = self.udp.open(cx, Upper::new(this), participants)?;
                *self.session.borrow_mut() = Some(session);
                cx.schedule_protocol(this, Duration::from_millis(1), 0)?;
            }
            Job::Listen { port, .. } => {
                let local = Participants::local(Part::port(*port));
                let _ = self.udp.open_enable(cx, Upper::new(this), local)?;
            }
        }
        Ok(())
    }

    fn demux(
        &self,
        cx: &Kernel,
        _: &ProtocolRef,
        lower: &SessionRef,
        message: Message,
    ) -> Result<(), Refused> {
        let unknown = PeerHost::default();
        let host = lower.ask(cx, unknown).map(|q| q.host);
        let port = lower.ask(cx, PeerPort::default()).map(|q| q.port);
        let from = match (host, port) {
            (Some(host), Some(port)) => format!("port{port}@{host}"),
            _ => "somebody".into(),
        };
        let start: Vec<u8> = message.octets().take(SHOWN_MAX).collect();
        let more = if message.len() > SHOWN_MAX { " ..." } else { "" };
        let text = start.escape_ascii();
        output::print(&format!("{} octets from {from}: {text}{more}\n", message.len()));
        let received = self.tally.received.get() + 1;
        self.tally.received.set(received);
        let wanted = match &self.job {
            Job::Send { count, .. } | Job::Listen { count, .. } => *count,
        };
        if received >= wanted {
            self.tally.done.set(true);
        }
        Ok(())
    }

    fn control(&self, cx: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        let Some(error) = ask.get::<NetworkError>() else {
            return self.udp.control(cx, ask);
        };
        self.tally.errors.set(self.tally.errors.get() + 1);
        output::print(&top::network_error(error));
        Answer::Answered
    }

    fn timeout(&self, cx: &Kernel, this: &ProtocolRef, _: u64) {
        let Job::Send { count, interval, wait, data, .. } = &self.job else {
            return;
        };
        let sent = self.tally.sent.get();
        if sent >= *count {
            self.tally.done.set(true);
            return;
        }
        self.send(cx, data);
        let delay = if sent + 1 >= *count { *wait } else { *interval };
        if cx.schedule_protocol(this, delay, 0).is_err() {
            self.tally.done.set(true);
        }
    }

    fn stop(&self, _: &Kernel, _: &ProtocolRef) {
        drop(self.session.take());
    }
}
