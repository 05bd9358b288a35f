//! `xk call`: one call, its arguments and its reply as JSON.

use crate::failure::Failure;
use crate::{file, output, rpcgen, user};
use std::io::Read as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use xk_catalog::PROTOCOLS;
use xk_core::object::PushError;
use xk_rpc::{CallCause, Client, Error, ErrorKind, HostReply, OpenError, Setup};
use xk_rpcgen::{Found, LookupError, Model};

/// Octets of arguments that are read from the standard input at most.
const INPUT_OCTETS_MAX: u64 = 64 << 20;
/// Value of `--over` that means ONC RPC over this machine's UDP.
const SUN: &str = "sun";
/// The exit code if the peer refused the call.
const REFUSED: u8 = 3;
/// The exit code if there was no reply.
const SILENT: u8 = 4;

/// Call a procedure of a remote service: its name or number, then its arguments as JSON; prints the
/// reply as JSON
///
/// The file of the RPC language (--x) says what the procedures and their types are. Exit codes: 0
/// replied, 1 something is wrong with the graph, the machine or the reply, 2 the command line or
/// the arguments make no sense, 3 the peer refused the call, 4 no reply came.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  xk call --over sun echo '{\"text\": \"hello\"}' --x graphs/procedures.x --to port2049@127.0.0.1
  xk call graphs/rpc-client.kdl PROCEDURES source 3 --x graphs/procedures.x --to port2049@127.0.0.1
  xk call graphs/rpc-shm-b.kdl null --x graphs/procedures.x
  xk call --over sun 100000 0 --version 2 --raw --to port111@127.0.0.1
  xk call --over sun echo '{\"text\": \"hello\"}' --x graphs/procedures.x --to port0@10.0.0.255 --broadcast

Arguments: one stands alone, several stand in an array; none are left out. `-` reads them from the standard input. Enumerations
are names, unions {\"case\": ..., \"NAME\": ...}, opaque data hexadecimal digits or {\"base64\": ...} or {\"text\": ...} (a reply's is text
if it can be read), optional data null or the value; numbers of 64 bits may be strings of digits.")]
pub(crate) struct Args {
    /// GRAPH [SERVICE] PROCEDURE [JSON]; without GRAPH if --over names the layers. SERVICE is a
    /// program's name or number
    #[arg(
        required = true,
        value_name = "GRAPH|SERVICE|PROCEDURE|JSON",
        allow_negative_numbers = true
    )]
    words: Vec<String>,
    /// The layers to call over instead of a graph: `sun` for ONC RPC over this machine's UDP, or
    /// the nodes of a host as in a graph
    #[arg(long, value_name = "STACK")]
    over: Option<String>,
    /// The `.x` file that describes the service
    #[arg(long, value_name = "FILE.x", required_unless_present = "raw")]
    x: Option<PathBuf>,
    /// The peer: `10.0.0.2`, with its port for programs over UDP: `port2049@10.0.0.2`; not needed
    /// on a link with one other end
    #[arg(long, value_name = "PARTICIPANT", default_value = "")]
    to: String,
    /// Version of the program, by name or number; by default the highest that has the procedure
    #[arg(long, value_name = "VERSION")]
    version: Option<String>,
    /// Host of the graph; not needed if it has only one
    #[arg(long)]
    host: Option<String>,
    /// Node to call through; not needed if the host has one layer of calls at the top
    #[arg(long)]
    node: Option<String>,
    /// Time to wait for a route to the server and for its reply; if nothing listens at the port,
    /// the call ends at once
    #[arg(long, value_parser = file::duration, default_value = "10s", value_name = "TIME")]
    deadline: Duration,
    /// Repeat the call this many times, and print how long it took
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,
    /// Call all hosts of a network: --to is a broadcast or a group, `port2049@10.0.0.255`, or
    /// `port0@10.0.0.255` for the port that the program has on each. Prints a line for each host
    /// that replies
    #[arg(long, conflicts_with_all = ["deadline", "repeat"])]
    broadcast: bool,
    /// Time to wait for replies to a broadcast
    #[arg(long = "for", value_parser = file::duration, default_value = "2s", value_name = "TIME", requires = "broadcast")]
    time: Duration,
    #[command(flatten)]
    user: user::UserArgs,
    /// Without a file: the procedure's number, arguments and reply as hexadecimal digits; SERVICE
    /// is the program's number
    #[arg(long, conflicts_with = "x")]
    raw: bool,
}

/// The words on the command line, by meaning.
struct Words<'a> {
    graph: Option<&'a str>,
    service: Option<&'a str>,
    procedure: &'a str,
    arguments: Option<String>,
}

/// The procedure to call, and its arguments.
struct Wanted<'a> {
    program: Option<(u32, u32)>,
    number: u32,
    octets: Vec<u8>,
    found: Option<(&'a Model, Found<'a>)>,
}

pub(crate) fn main(args: &Args) -> Result<(), Failure> {
    let model = match &args.x {
        Some(path) => Some(rpcgen::load(path)?.model),
        None => None,
    };
    let words = words(args, model.as_ref())?;
    let wanted = match &model {
        Some(model) => by_name(args, &words, model)?,
        None => by_number(args, &words)?,
    };
    let setup = setup(args, &words)?;
    let user = args.user.find()?;
    user.begin()?;
    let stack = setup.here().map_err(failure)?;
    user.give_up_root()?;
    let client = stack.client(&args.to).map_err(failure)?;
    let client = match wanted.program {
        Some((program, version)) => client.program(program, version),
        None => client,
    };
    if args.broadcast {
        return broadcast(&client.with_deadline(args.time), &wanted);
    }
    let client = client.with_deadline(args.deadline);
    let reply = repeat(args.repeat, || client.call(wanted.number, &wanted.octets))?;
    let text = wanted.text(&reply).map_err(Failure::new)?;
    output::print(&format!("{text}\n"));
    Ok(())
}

impl Wanted<'_> {
    /// A reply as JSON, or its octets as digits.
    fn text(&self, reply: &[u8]) -> Result<String, String> {
        match self.found {
            Some((model, found)) => model
                .decode_result(found.procedure, reply)
                .map_err(|error| format!("the reply does not fit the file: {error}")),
            None => Ok(reply.iter().map(|octet| format!("{octet:02x}")).collect()),
        }
    }
}

/// Calls all hosts and prints the replies with their senders, a line of JSON for each.
fn broadcast(client: &Client, wanted: &Wanted<'_>) -> Result<(), Failure> {
    let mut count = 0;
    for reply in client.broadcast(wanted.number, &wanted.octets) {
        let HostReply { host, port, octets } = reply.map_err(failure)?;
        count += 1;
        let said = match wanted.text(&octets) {
            Ok(text) if wanted.found.is_some() => format!("\"reply\":{text}"),
            Ok(digits) => format!("\"reply\":\"{digits}\""),
            Err(what) => format!("\"error\":{}", serde_json::Value::from(what)),
        };
        output::print(&format!("{{\"host\":\"{host}\",\"port\":{port},{said}}}\n"));
    }
    if count > 0 {
        return Ok(());
    }
    let help = "does a host there serve it? with `port0` the port mappers must call it: rpcbind does with `-r`, xk's with `indirect`";
    let what = "no host replied".to_owned();
    Err(Failure::Other(what, Some(help.into()), SILENT))
}

/// Assigns the words by their number, and by whether the file has a procedure of the name.
fn words<'a>(args: &'a Args, model: Option<&Model>) -> Result<Words<'a>, Failure> {
    let mut all = args.words.iter().map(String::as_str);
    let graph = if args.over.is_some() { None } else { all.next() };
    let rest: Vec<&str> = all.collect();
    // Without a file, programs come first where there must be one. What is neither is a procedure
    // with a mistake.
    let is_procedure = |name: &str| match model {
        Some(model) => {
            model.procedure(name, args.version.as_deref()).is_ok() || !model.has_program(name)
        }
        None => args.over.as_deref() != Some(SUN),
    };
    let (service, procedure, arguments) = match rest.as_slice() {
        [procedure] => (None, *procedure, None),
        [first, second] => match is_procedure(first) {
            true => (None, *first, Some(*second)),
            false => (Some(*first), *second, None),
        },
        [service, procedure, json] => (Some(*service), *procedure, Some(*json)),
        _ => {
            let what = "name a graph and a procedure, then its arguments";
            let help = "xk call GRAPH [SERVICE] PROCEDURE [JSON] --x FILE.x --to PARTICIPANT";
            return Err(Failure::usage(what).help(help));
        }
    };
    let arguments = match arguments {
        Some("-") => {
            let mut text = String::new();
            let input = std::io::stdin().take(INPUT_OCTETS_MAX);
            let read = { input }.read_to_string(&mut text);
            read.map_err(|error| Failure::new(format!("cannot read the arguments: {error}")))?;
            Some(text)
        }
        arguments => arguments.map(str::to_owned),
    };
    Ok(Words { graph, service, procedure, arguments })
}

/// By the file.
fn by_name<'a>(args: &Args, words: &Words<'_>, model: &'a Model) -> Result<Wanted<'a>, Failure> {
    let unknown = |error: LookupError| Failure::usage(error.what).help(error.help);
    let version = args.version.as_deref();
    let found = model.procedure_of(words.service, words.procedure, version);
    let found = found.map_err(unknown)?;
    let given = match words.arguments.as_deref().map(str::trim) {
        None | Some("") => None,
        Some(text) => Some(serde_json::from_str(text).map_err(|error| {
            let help = "strings need quotes within quotes: '\"hello\"'";
            Failure::usage(format!("the arguments are not JSON: {error}")).help(help)
        })?),
    };
    let octets = model.encode_arguments(found.procedure, given.as_ref());
    let octets = octets.map_err(|error| {
        let what = format!("{}: {}", error.path, error.what);
        let said = model.describe_procedure(found.procedure);
        let help = match error.expected {
            Some(expected) => format!("expected {expected}; it is {said}"),
            None => format!("it is {said}"),
        };
        Failure::usage(what).help(help)
    })?;
    Ok(Wanted {
        program: Some((found.program.number, found.version.number)),
        number: found.procedure.number,
        octets,
        found: Some((model, found)),
    })
}

/// Without a file.
fn by_number<'a>(args: &Args, words: &Words<'_>) -> Result<Wanted<'a>, Failure> {
    let number = |text: &str, what: &str| {
        let parsed = match text.strip_prefix("0x") {
            Some(digits) => u32::from_str_radix(digits, 16),
            None => text.parse(),
        };
        parsed.map_err(|_| {
            let help = "with --raw all are numbers; names need a file: --x FILE.x";
            Failure::usage(format!("`{text}` is no {what}'s number")).help(help)
        })
    };
    let version = match args.version.as_deref() {
        Some(version) => number(version, "version")?,
        None => 1,
    };
    let program = match words.service {
        Some(service) => Some((number(service, "program")?, version)),
        None => None,
    };
    let digits = words.arguments.as_deref().unwrap_or("").trim();
    let pair = |at: usize| {
        let pair = digits.get(at..at + 2)?;
        u8::from_str_radix(pair, 16).ok()
    };
    let octets: Option<Vec<u8>> = (0..digits.len()).step_by(2).map(pair).collect();
    let octets = octets.ok_or_else(|| {
        Failure::usage("the arguments are no hexadecimal digits, two for each octet")
    })?;
    Ok(Wanted { program, number: number(words.procedure, "procedure")?, octets, found: None })
}

fn setup(args: &Args, words: &Words<'_>) -> Result<Setup, Failure> {
    let mut setup = match (words.graph, args.over.as_deref()) {
        (Some("-"), _) => {
            return Err(Failure::usage("the graph cannot come from the standard input"));
        }
        (Some(path), _) => Setup::from_file(path, PROTOCOLS).map_err(failure)?,
        (None, Some(SUN)) => Setup::from_text(
            "host here { host-udp; reqrep host-udp; sunselect reqrep; sunprog sunselect; portmap sunprog serve=#false; }",
            PROTOCOLS,
        ),
        (None, over) => {
            let nodes = over.unwrap_or_default();
            Setup::from_text(format!("host here {{\n{nodes}\n}}\n"), PROTOCOLS)
        }
    };
    if let Some(host) = &args.host {
        setup = setup.host(host);
    }
    if let Some(node) = &args.node {
        setup = setup.node(node);
    }
    Ok(setup)
}

/// Calls as often as wanted; answers the last reply.
fn repeat(
    count: u32,
    mut call: impl FnMut() -> Result<Vec<u8>, Error>,
) -> Result<Vec<u8>, Failure> {
    let mut times = Vec::new();
    let mut reply = Vec::new();
    for _ in 0..count {
        let began = Instant::now();
        reply = call().map_err(failure)?;
        times.push(began.elapsed());
    }
    if count > 1 {
        times.sort_unstable();
        let at = |part: usize| times.get(times.len() * part / 100).copied();
        let [least, middle, most] = [at(0), at(50), times.last().copied()]
            .map(|time| format!("{:.1?}", time.unwrap_or_default()));
        let text = format!("{count} calls: min {least}, p50 {middle}, max {most}\n");
        output::error(&text);
    }
    Ok(reply)
}

/// Turns an error of a call into a failure: what went wrong, at which layer, and the remedy.
fn failure(error: Error) -> Failure {
    let what = error.to_string().trim_end().to_owned();
    let code = |code, help: Option<&str>| Failure::Other(what.clone(), help.map(Into::into), code);
    match error.kind {
        ErrorKind::Call(CallCause::Rejected(_)) => code(REFUSED, None),
        ErrorKind::Call(CallCause::TimedOut { .. }) => {
            code(SILENT, Some("is the server running, and is --to its address?"))
        }
        // The text asks whether the server is running.
        ErrorKind::Call(CallCause::NobodyThere | CallCause::Push(PushError::Unreachable)) => {
            code(SILENT, Some("is --to its address?"))
        }
        ErrorKind::Call(CallCause::Rebooted | CallCause::Cancelled) => code(SILENT, None),
        ErrorKind::Open(OpenError::Address(_))
        | ErrorKind::Call(CallCause::Push(PushError::NotSupported)) => code(
            2,
            Some("name the peer as the layers need it: --to 10.0.0.2, --to port2049@10.0.0.2"),
        ),
        ErrorKind::Graph(text) if text.contains("name program and version") => code(
            2,
            Some("with --raw name the program: xk call GRAPH PROGRAM PROCEDURE HEX --version N"),
        ),
        _ => code(1, None),
    }
}
