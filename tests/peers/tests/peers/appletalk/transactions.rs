//! Transactions (ATP), at least once and exactly once, in both directions: lists of zones by
//! atalkd, a print job by papd, a session's beginning by afpd.

use std::num::NonZeroU8;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use xk_appletalk::atp::{Options, ReleaseTimer, Want, bitmap_of};
use xk_core::object::Refused;
use xk_core::{
    Kernel, Message, Part, Participant, Participants, Protocol, ProtocolRef, SessionRef, Upper,
};
use xk_kit::rpc::call::{CallOptions, NO_PROCEDURE, Transaction};
use xk_peers::appletalk::{Cable, GUEST, OF_OTHERS, Stage, cable};
use xk_peers::stack::Stack;
use xk_peers::testbed::{PROGRAM_TIME_MAX, Wire};

use super::addresses::ready;
use super::needs_appletalk;

/// Room for the headers below, in octets.
const HEADROOM: usize = 64;

/// The reply's user octets and data, or what the layer that gave up says.
pub(super) type End = Result<([u8; 4], Vec<u8>), String>;

/// Calls, and serves nothing.
struct Still;

impl Protocol for Still {}

/// A request with these user octets, for so many packets.
pub(super) fn want(once: bool, user: [u8; 4], packets: usize) -> Want {
    Want {
        once: once.then_some(ReleaseTimer::HalfMinute),
        user,
        bitmap: bitmap_of(packets),
        tries: NonZeroU8::new(8),
        interval: Duration::from_secs(1),
    }
}

/// A transaction with a socket of the guest.
pub(super) fn call(stack: &Stack, socket: u8, want: Want, data: &[u8]) -> End {
    let data = data.to_vec();
    stack.with(move |cx| {
        let lower = cx.find_protocol("atp").expect("the layer");
        let caller = cx.add_protocol("caller", "atp-caller", Still);
        let to: Participant = format!("socket{socket}@node{GUEST}@net10").parse().expect("a peer");
        let session = lower
            .open(cx, Upper::new(&caller), Participants::pair(Part::Any, to))
            .map_err(|error| error.to_string())?;
        let mut request = cx.pool().copy_from(HEADROOM, &data).expect("a buffer");
        let deadline = cx.now().after(PROGRAM_TIME_MAX);
        request.set_attribute(CallOptions { deadline, tag: 0 }).expect("room for it");
        let beside = Transaction(Options::request(&want, 0).emit());
        request.set_attribute(beside).expect("room for it");
        let result = session.call(cx, request);
        session.close(cx);
        let reply = result.map_err(|error| error.describe(cx))?;
        Ok((user_of(&reply), octets(&reply)))
    })
}

/// Calls of `asp` in one session with a server at the guest: the replies, or why there is none.
pub(super) fn commands_of(
    stack: &Stack,
    socket: u8,
    commands: Vec<Vec<u8>>,
) -> Vec<Result<Vec<u8>, String>> {
    commands_by(stack, socket, move |replies| {
        commands.get(replies.len()).map(|command| (command.clone(), 0))
    })
}

/// As above, of commands that depend on the replies before; of each so many octets are the block in
/// front of what is written.
pub(super) fn commands_by(
    stack: &Stack,
    socket: u8,
    mut next: impl FnMut(&[Result<Vec<u8>, String>]) -> Option<(Vec<u8>, usize)> + Send + 'static,
) -> Vec<Result<Vec<u8>, String>> {
    stack.with(move |cx| {
        let lower = cx.find_protocol("asp").expect("the layer");
        let caller = cx.add_protocol("caller", "asp-caller", Still);
        let to: Participant = format!("socket{socket}@node{GUEST}@net10").parse().expect("a peer");
        let both = Participants::pair(Part::Any, to);
        let session = lower.open(cx, Upper::new(&caller), both).expect("a session");
        let mut replies = Vec::new();
        while let Some((command, block)) = next(&replies) {
            let mut request = cx.pool().copy_from(HEADROOM, &command).expect("a buffer");
            if block > 0 {
                let beside =
                    Options { amount: block as u16, ..Options::request(&want(true, [0; 4], 8), 0) };
                request.set_attribute(Transaction(beside.emit())).expect("room for it");
            }
            let deadline = cx.now().after(PROGRAM_TIME_MAX);
            request.set_attribute(CallOptions { deadline, tag: 0 }).expect("room for it");
            let reply = session.call(cx, request);
            replies.push(reply.map(|reply| octets(&reply)).map_err(|error| error.describe(cx)));
        }
        session.close(cx);
        replies
    })
}

fn octets(message: &Message) -> Vec<u8> {
    let mut octets = vec![0; message.len()];
    message.copy_to(0, &mut octets);
    octets
}

fn options_of(message: &Message) -> Options {
    let Transaction(octets) = message.attribute().expect("options of the transaction");
    Options::parse(&octets).expect("options")
}

fn user_of(message: &Message) -> [u8; 4] {
    options_of(message).user
}

/// Answers requests that come up: user octets and data to user octets and data.
type Serve = Box<dyn Fn([u8; 4], Vec<u8>) -> Option<([u8; 4], Vec<u8>)> + Send>;

struct Server(Serve);

impl Protocol for Server {
    fn call_demux(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        _: &SessionRef,
        message: Message,
    ) -> Result<Message, Refused> {
        let asked = options_of(&message);
        let Some((user, data)) = (self.0)(asked.user, octets(&message)) else {
            return Err(this.refuse(message, &NO_PROCEDURE));
        };
        let mut reply = cx.pool().copy_from(HEADROOM, &data).expect("a buffer");
        // PAP's packets.
        let beside = Options { amount: 512, ..asked.response(user) };
        reply.set_attribute(Transaction(beside.emit())).expect("room for it");
        Ok(reply)
    }
}

/// Serves at a socket of ours.
pub(super) fn serve(
    stack: &Stack,
    socket: u8,
    answer: impl Fn([u8; 4], Vec<u8>) -> Option<([u8; 4], Vec<u8>)> + Send + 'static,
) {
    stack.with(move |cx| {
        let lower = cx.find_protocol("atp").expect("the layer");
        let server = cx.add_protocol("server", "atp-server", Server(Box::new(answer)));
        let local: Participants = format!("socket{socket}").parse().expect("a participant");
        lower.open_enable(cx, Upper::new(&server), local).map(drop).expect("an offer");
    });
}

/// The socket that nbplkup names in the guest.
pub(super) fn socket_of(cable: &Cable, name: &str) -> u8 {
    let said = cable.exec(&format!("nbplkup {name}"));
    let socket = said.trim().rsplit_once(':').and_then(|(_, socket)| socket.parse().ok());
    socket.unwrap_or_else(|| panic!("{name}: {said}"))
}

pub(crate) fn zones_are_listed(_: Wire) {
    needs_appletalk!();
    let host = cable().join("zones");
    let stack = host.start("net=\"10-19\" node=70", "atp ddp");
    ready(&stack);
    host.cable.wait(Stage::Router);
    // GetZoneList and GetLocalZones from the first on, GetMyZone. atalkd leaves requests unanswered
    // that are to be executed exactly once.
    for (user, last) in [([8, 0, 0, 1], 1), ([9, 0, 0, 1], 1), ([7, 0, 0, 0], 0)] {
        let reply = call(&stack, 6, want(false, user, 1), &[]);
        assert_eq!(reply, Ok(([last, 0, 0, 1], b"\x02XK".to_vec())), "{user:?}");
    }
    // What is no request there is not answered: it goes as often as it is to.
    let two = Want {
        tries: NonZeroU8::new(2),
        interval: Duration::from_millis(300),
        ..want(false, [77, 0, 0, 1], 1)
    };
    let reply = call(&stack, 6, two, &[]);
    assert!(reply.as_ref().is_err_and(|why| why.contains("atp")), "{reply:?}");
    stack.assert_drops_only(&OF_OTHERS);
    drop(stack);
    host.testbed.judge(&[]);
}

/// A PostScript program with so many lines, each with its number. papd prints what says of itself
/// what it is.
fn job(lines: usize) -> Vec<u8> {
    let head = "%!PS-Adobe-3.0\n%%Title: lines\n%%For: xk\n%%EndComments\n";
    let line = |number| format!("% line {number:05} of what is printed, and no other\n");
    let lines: String = (0..lines).map(line).collect();
    format!("{head}{lines}showpage\n%%Trailer\n%%EOF\n").into_bytes()
}

/// Rest of a job that is handed out piece by piece.
struct Job {
    left: Vec<u8>,
    /// The sequence number of the request that was answered last.
    last: u16,
    asked: Vec<u16>,
    is_done: bool,
}

/// Octets of data that one reply of PAP has.
const QUANTUM: usize = 8 * 512;
/// Our socket, and the connection's number.
const OURS: u8 = 203;
const CONNECTION: u8 = 7;

/// PAP's client in a few lines: prints `text` by papd, which asks for it by transactions of its
/// own.
fn print(stack: &Stack, printer: u8, text: &[u8]) -> Vec<u16> {
    let job = Job { left: text.to_vec(), last: 0, asked: Vec::new(), is_done: false };
    let job = Arc::new(Mutex::new(job));
    let shared = Arc::clone(&job);
    serve(stack, OURS, move |[connection, function, high, low], _| {
        let mut job = shared.lock().unwrap();
        match (connection, function) {
            // SendData
            (CONNECTION, 3) => {
                let sequence = u16::from_be_bytes([high, low]);
                job.asked.push(sequence);
                // An execution that is repeated would skip a piece.
                assert!(sequence > job.last, "{:?}", job.asked);
                job.last = sequence;
                let some = job.left.len().min(QUANTUM);
                let piece: Vec<u8> = job.left.drain(..some).collect();
                job.is_done = job.left.is_empty();
                Some(([CONNECTION, 4, u8::from(job.is_done), 0], piece))
            }
            // Tickles, which have no answer.
            _ => None,
        }
    });
    // OpenConn: our socket, the packets of a reply, and how long we have waited.
    let opened = call(stack, printer, want(true, [CONNECTION, 1, 0, 0], 1), &[OURS, 8, 0, 0]);
    let ([connection, function, ..], data) = opened.expect("the printer answers");
    assert_eq!((connection, function), (CONNECTION, 2));
    let [its, 8, 0, 0, ..] = data[..] else { panic!("OpenConnReply: {data:?}") };
    // What it has to say, until that ends: it does when papd has all of ours.
    for sequence in 1_u16.. {
        let [high, low] = sequence.to_be_bytes();
        let more = Want { tries: None, ..want(true, [CONNECTION, 3, high, low], 8) };
        let ([connection, function, eof, _], said) = call(stack, its, more, &[]).expect("its data");
        assert_eq!((connection, function), (CONNECTION, 4), "{said:?}");
        if eof != 0 {
            break;
        }
    }
    let closed = call(stack, its, want(true, [CONNECTION, 6, 0, 0], 1), &[]);
    assert_eq!(closed.map(|(user, _)| user[1]), Ok(7));
    let job = job.lock().unwrap();
    assert!(job.is_done);
    job.asked.clone()
}

/// papd's transactions are executed exactly once by us, and ours by papd.
pub(crate) fn papd_prints(_: Wire) {
    needs_appletalk!();
    let host = cable().join("papd");
    let stack = host.start("net=\"10-19\" node=71", "atp ddp");
    ready(&stack);
    host.cable.wait(Stage::Servers);
    let printer = socket_of(&host.cable, "TestPrinter:LaserWriter");
    // SendStatus, at least once.
    let status = call(&stack, printer, want(false, [0, 8, 0, 0], 1), &[]);
    let (user, data) = status.expect("a status");
    assert_eq!(user[1], 9);
    assert!(String::from_utf8_lossy(&data).contains("status:"), "{data:?}");
    let text = job(300);
    let asked = print(&stack, printer, &text);
    // Four pieces; behind the end it asks on, until the connection is closed.
    assert!(asked.len() >= 4 && asked.iter().copied().eq(1..=asked.len() as u16), "{asked:?}");
    let begun = Instant::now();
    let printed = || host.cable.run("busybox cat /tmp/printed").1;
    while printed().len() < text.len() && begun.elapsed() < PROGRAM_TIME_MAX {
        std::thread::sleep(Duration::from_millis(200));
    }
    // The shell ends what it says with an empty line.
    assert_eq!(printed().trim_end(), String::from_utf8_lossy(&text).trim_end());
    stack.assert_drops_only(&OF_OTHERS);
    drop(stack);
    // tshark takes PAP for ASP, whose second functions are others.
    host.testbed.judge_without(&["asp"], &[]);
}

/// ASP's first steps with afpd, whose replies end before all packets that are asked for.
pub(crate) fn afpd_opens_a_session(_: Wire) {
    needs_appletalk!();
    let host = cable().join("afpd");
    let stack = host.start("net=\"10-19\" node=72", "atp ddp");
    ready(&stack);
    host.cable.wait(Stage::Servers);
    let server = socket_of(&host.cable, "=:AFPServer");
    let status = call(&stack, server, want(false, [3, 0, 0, 0], 8), &[]);
    let (user, data) = status.expect("a status");
    assert_eq!(user, [0; 4]);
    assert!(String::from_utf8_lossy(&data).contains("Netatalk"), "{data:?}");
    // OpenSess: our workstation socket, ASP's version.
    let opened = call(&stack, server, want(true, [4, 205, 1, 0], 1), &[]);
    let ([session, number, high, low], data) = opened.expect("a session");
    assert_eq!((high, low, data.len()), (0, 0, 0));
    // A command before a login is refused: FPGetSrvrParms.
    let refused = call(&stack, session, want(true, [2, number, 0, 0], 8), &[16, 0]);
    let (error, _) = refused.expect("a reply");
    assert!(i32::from_be_bytes(error) < 0, "{error:?}");
    let closed = call(&stack, session, want(true, [1, number, 0, 0], 1), &[]);
    assert_eq!(closed.map(|(user, _)| user), Ok([0; 4]));
    stack.assert_drops_only(&OF_OTHERS);
    drop(stack);
    // netatalk tells of itself more than tshark knows of.
    host.testbed.judge_without(&["afp"], &[]);
}
