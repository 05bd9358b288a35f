//! `xk upgrade`: another process goes on with a running graph in its place.

use crate::control::Server;
use crate::control::client::{Connection, Target};
use crate::failure::{Failure, show};
use crate::run::{self, HowArgs};
use crate::{host, output};
use serde_json::{Value, json};
use std::any::Any;
use std::path::Path;
use std::rc::Rc;
use xk_core::{Kernel, Participants, ProtocolRef, Upper};
use xk_kit::net::moving;
use xk_kit::wire::handed::HandedDevices;
use xk_run::interrupt_unsafe;

/// Replace the process of a running graph by this program, which takes over its devices, ports and
/// connections; peers notice at most a pause. If something cannot be taken over, or fails on the
/// way, the process runs on, and this command says why: a host in domains cannot be taken over, nor
/// a device other than `tap` and `packet`
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    how: HowArgs,
}

pub(crate) fn main(args: &Args) -> Result<(), Failure> {
    let how = &args.how;
    let mut before = Connection::open(args.target.named()?)?;
    let about = before.ask(&json!({"ask": "upgrade"})).map_err(|failure| {
        failure.help(
            "it runs on unchanged; to run this program, end it by Ctrl-C and start it again by \
             `xk run FILE`: its peers connect again",
        )
    })?;
    let field = |name: &str| about[name].as_str().unwrap_or_default();
    // What this program makes of the graph may differ from what the other one did.
    let catalog = xk_catalog::standard();
    let graph = xk_compose::check(field("text"), field("file"), &catalog)?;
    how.log.unless_quiet(|| show(graph.warnings()));
    let none = || Failure::new(format!("the graph has no host `{}`", field("host")));
    let host = graph.host(field("host")).ok_or_else(none)?;
    let user = how.user.find()?;
    interrupt_unsafe::catch();
    let mut devices: Vec<(String, Box<dyn Any>)> = Vec::new();
    for name in list(&about["devices"]).iter().filter_map(Value::as_str) {
        devices.push((name.to_owned(), Box::new(before.ask_for_device(Some(name))?)));
    }
    let listener = before.ask_for_device(None)?;
    user.begin()?;
    let devices = Rc::new(HandedDevices::new(devices));
    let kernel = host::kernel()?;
    kernel.surround(Rc::clone(&devices));
    xk_compose::build(&graph, &host, &kernel)?;
    if let Some(name) = devices.untaken() {
        return Err(Failure::new(format!("the device of `{name}` cannot be taken over")));
    }
    let runner = how.runner(&kernel)?;
    host::start(&graph, &host, &runner, user)?;
    let moved = Moved::take(&kernel, &mut before)?;
    // A process that ends before it has answered goes on no more than one that has answered.
    match before.ask(&json!({"ask": "taken"})) {
        Err(failure) if !before.is_over() => return Err(failure),
        _ => {}
    }
    // From here on there is no way back.
    devices.go_on();
    let lost = moved.go_on(&kernel);
    runner.flush();
    let (pid, count) = (&about["pid"], moved.0.len() - lost.len());
    let number = pid.as_u64().and_then(|pid| pid.try_into().ok()).unwrap_or_default();
    let path = Path::new(field("control"));
    let server = Server::given(listener, path, number);
    let unseen = |error| Failure::file("cannot be inspected at", path, error);
    let server = server.map_err(unseen).inspect_err(Failure::show).ok();
    output::print(&format!("goes on in place of process {pid}, with {count} connections\n"));
    lost.iter().for_each(|line| output::error(&format!("xk: {line}\n")));
    run::run(&graph, &host, runner, server.as_ref(), how, user)
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// A session that another process has stopped.
struct Session {
    below: ProtocolRef,
    above: ProtocolRef,
    ends: Participants,
    holders: u64,
}

/// All of them, which the protocols below expect.
struct Moved(Vec<Session>);

impl Moved {
    /// Has the process before this one stop, and takes all that it has.
    fn take(kernel: &Kernel, before: &mut Connection) -> Result<Self, Failure> {
        let told = before.ask(&json!({"ask": "hand-over"}))?;
        let mut all = Vec::new();
        for session in list(&told["sessions"]) {
            let malformed = || Failure::new(format!("makes no sense: {session}"));
            let octets = session["octets"].as_u64().ok_or_else(malformed)?;
            let octets = usize::try_from(octets).map_err(|_| malformed())?;
            if octets > moving::STATE_OCTETS_MAX {
                return Err(malformed());
            }
            let state = before.read(octets)?;
            let named = |field: &str| kernel.find_protocol(session[field].as_str()?);
            let (below, above) = (named("below"), named("above"));
            let ends = session["ends"].as_str().and_then(|ends| ends.parse().ok());
            let (Some(below), Some(above), Some(ends)) = (below, above, ends) else {
                return Err(malformed());
            };
            let holders = session["holders"].as_u64().unwrap_or(0);
            let session = Session { below, above, ends, holders };
            if !moving::bring(kernel, &session.below, &session.ends, &state) {
                let (name, ends) = (session.below.name(), &session.ends);
                return Err(Failure::new(format!("`{name}` does not take {ends}")));
            }
            all.push(session);
        }
        Ok(Self(all))
    }

    /// Goes on with all of them; answers a line for each that did not.
    fn go_on(&self, kernel: &Kernel) -> Vec<String> {
        let mut lost = Vec::new();
        for Session { below, above, ends, holders } in &self.0 {
            match below.open(kernel, Upper::new(above), ends.clone()) {
                // An open is a hold: it is given back if the protocol above had none.
                Ok(session) if *holders == 0 => session.ease(kernel),
                Ok(session) => (1..*holders).for_each(|_| session.hold()),
                Err(error) => lost.push(format!("{ends} is lost: {error}")),
            }
        }
        lost
    }
}
