//! Each operation across a cut, beside the bare exchange over the same memory.

use super::mirror::{self, Above, Below};
use crate::case::{Case, Goal};
use crate::child;
use crate::cores::{self, cores};
use crate::record::Record;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::time::{Duration, Instant};
use xk_domains::ring::{Ring, geometry, pair};
use xk_shm::{Link, Lost};

/// Longest time for the two sides of a link to find each other.
const MEETING_TIME_MAX: Duration = Duration::from_secs(10);
const OPERATIONS: u64 = 50_000;
/// Name of the bare exchange.
pub(super) const BARE: &str = "bare";

/// Place of the other side.
#[derive(Clone, Copy)]
enum Place {
    Here,
    Thread,
    Process,
}

impl Place {
    fn name(self) -> &'static str {
        match self {
            Self::Here => "one thread",
            Self::Thread => "two threads",
            Self::Process => "two processes",
        }
    }
}

/// Both sides of a mirror.
fn mirror(place: Place) -> Rc<Above> {
    match place {
        Place::Here => {
            let (above, below) = pair().expect("shared memory");
            Above::new(above, Some(Below::new(below)))
        }
        Place::Thread => {
            let (above, below) = pair().expect("shared memory");
            mirror::on_thread(below, cores().get(1).copied());
            Above::new(above, None)
        }
        Place::Process => {
            let socket = process("domain-mirror");
            Above::new(Ring::grant(socket, MEETING_TIME_MAX).expect("a ring"), None)
        }
    }
}

/// Starts this program once more for a side of a link; the socket to it.
fn process(name: &'static str) -> OwnedFd {
    let sockets =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
    let (ours, theirs) = sockets.expect("a pair of sockets");
    child::start(name, theirs).expect("this program starts again");
    ours
}

fn socket_of_process() -> Result<OwnedFd, String> {
    std::io::stdin().as_fd().try_clone_to_owned().map_err(|error| error.to_string())
}

/// The side below as a process of its own.
pub(crate) fn mirror_process(_: &str) -> Result<Vec<f64>, String> {
    // If it may not, it measures where it is.
    let _ = cores::place(cores().get(1).copied());
    let ring =
        Ring::ask(socket_of_process()?, MEETING_TIME_MAX).map_err(|error| error.to_string())?;
    Below::new(ring).spin();
    Ok(Vec::new())
}

/// A link that sends everything back, as a process of its own.
pub(crate) fn echo_process(_: &str) -> Result<Vec<f64>, String> {
    // If it may not, it measures where it is.
    let _ = cores::place(cores().get(1).copied());
    let socket = socket_of_process()?;
    let link =
        Link::ask(socket, &geometry(), MEETING_TIME_MAX).map_err(|error| error.to_string())?;
    echo(link);
    Ok(Vec::new())
}

/// Sends everything back until the other side is gone.
fn echo(mut link: Link) {
    let mut frame = vec![0; geometry().frame_octets_max() as usize];
    while link.check() != Err(Lost::Gone) {
        for _ in 0..1 << 16 {
            echo_once(&mut link, &mut frame);
            std::hint::spin_loop();
        }
    }
}

fn echo_once(link: &mut Link, frame: &mut [u8]) {
    while let Ok(Some(octets)) = link.receive(frame) {
        link.send(&frame[..octets]).expect("the ring has room");
    }
    link.flush();
}

/// The bare exchange of frames of so many octets.
fn bare(place: Place, octets: usize, batch: u64) -> impl FnMut(u64) {
    let (mut link, other) = match place {
        Place::Process => {
            let socket = process("domain-echo");
            (Link::grant(socket, &geometry(), MEETING_TIME_MAX).expect("a link"), None)
        }
        Place::Here | Place::Thread => {
            let (link, other) = Link::pair(&geometry()).expect("shared memory");
            (link, Some(other))
        }
    };
    let mut here = None;
    match (place, other) {
        (Place::Thread, Some(other)) => {
            std::thread::spawn(move || {
                // If it may not, it measures where it is.
                let _ = cores::place(cores().get(1).copied());
                echo(other);
            });
        }
        (_, other) => here = other,
    }
    let mut frame = vec![0; geometry().frame_octets_max() as usize];
    let mut room = frame.clone();
    move |operations| {
        let mut left = operations;
        while left > 0 {
            let now = left.min(batch);
            for _ in 0..now {
                link.send(&frame[..octets]).expect("the ring has room");
            }
            link.flush();
            let mut received = 0;
            while received < now {
                if let Some(other) = &mut here {
                    echo_once(other, &mut room);
                }
                while let Ok(Some(_)) = link.receive(&mut frame) {
                    received += 1;
                }
                link.flush();
            }
            left -= now;
        }
    }
}

/// A row. One thread is measured as others are; two sides that spin are there for a round alone.
fn case<R: FnMut(u64) + 'static>(row: &str, place: Place, setup: impl Fn() -> R + 'static) -> Case {
    if matches!(place, Place::Here) {
        return Case::new(row, OPERATIONS, setup);
    }
    Case::measured(row, move |effort| {
        let operations = ((OPERATIONS as f64 * effort) as u64).max(1);
        let mut run = setup();
        run(operations.div_ceil(10));
        let begun = Instant::now();
        run(operations);
        Ok((begun.elapsed().as_nanos() as f64 / operations as f64).into())
    })
}

/// One message across a cut, half of there and back: between two processes that spin, or the work
/// of both sides alone, on one thread.
pub(crate) fn crossing(row: &str, is_between_processes: bool) -> Case {
    let place = if is_between_processes { Place::Process } else { Place::Here };
    // One is divided as a batch of operations is, the other as a round.
    case(row, place, move || mirror(place).exchange(1, 1))
        .per(2.0)
        .shown_as(|there_and_back| there_and_back / 2.0)
}

/// Sends messages of one octet across a cut and back, both sides on this thread.
pub(crate) fn across() -> impl FnMut(u64) {
    mirror(Place::Here).exchange(1, 1)
}

pub(crate) fn cases() -> Vec<Case> {
    let mut list = Vec::new();
    let here = [(28, 1), (28, 32)].map(|(octets, batch)| (Place::Here, octets, batch));
    let others = [28, 1052].map(|octets| [Place::Thread, Place::Process].map(|p| (p, octets, 1)));
    for (place, octets, batch) in here.into_iter().chain(others.into_iter().flatten()) {
        let batches = if batch == 1 { String::new() } else { format!(", batches of {batch}") };
        let row = format!("push and demux, {octets} octets{batches}, {}", place.name());
        let across = move || mirror(place).exchange(octets, batch);
        list.push(case(&row, place, across).beside(BARE));
        list.push(case(&row, place, move || bare(place, octets, batch)).of(BARE));
    }
    for place in [Place::Here, Place::Thread, Place::Process] {
        let row = |what: &str| format!("{what}, {}", place.name());
        let fact =
            case(&row("question answered from facts"), place, move || mirror(place).ask_fact());
        let asks =
            case(&row("question that crosses"), place, move || mirror(place).suspended(Above::ask));
        let call = case(&row("empty call"), place, move || mirror(place).suspended(Above::call));
        let bare = case(&row("empty call"), place, move || bare(place, 28, 1));
        let open = case(&row("open and close"), place, move || {
            mirror(place).suspended(Above::open_and_close)
        });
        let call = call.goal(Goal::AtMost(600.0)).beside(BARE).goal(Goal::AtMostTimes(2.5));
        list.extend([
            fact.goal(Goal::AtMost(20.0)),
            asks.goal(Goal::AtMost(1000.0)),
            call,
            bare.of(BARE),
            open,
        ]);
    }
    list
}

/// Time of a crossing beyond the bare exchange: half the difference of the round trips.
pub(crate) fn derived(records: &[Record]) -> Vec<Record> {
    let across = records.iter().filter(|record| {
        record.system == "xk" && record.row.starts_with("push and demux") && record.median > 0.0
    });
    let over = |record: &Record| {
        let bare = records.iter().find(|r| r.system == BARE && r.row == record.row)?;
        let row = record.row.replace("push and demux", "a crossing over the bare one");
        let over = record.beyond(row, &[bare], 2.0);
        Some(Record { goal: Some(Goal::AtMost(100.0)), ..over })
    };
    across.filter_map(over).collect()
}
