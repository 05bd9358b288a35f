//! Programs that take as much as they can of what all users share.

use std::cell::Cell;
use std::io::{IoSlice, Write as _};
use std::mem::MaybeUninit;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType,
};
use xk_attach::Attached;
use xk_core::object::{OpenError, Popped, USER_SHARE};
use xk_core::{
    Kernel, Message, Part, Participant, Participants, Protocol, ProtocolRef, SessionRef, Upper,
};
use xk_kit::net::stream::{KeepAlive, StreamSet, StreamSetting};
use xk_peers::testbed::{LINUX, OURS, PROGRAM_TIME_MAX};
use xk_run::{Idle, Runner};

use super::programs::{Outcome, Program, end};
use super::shares::{FRAMES, HELD_PORT, PROGRAMS, SESSIONS_MAX, SILENT};
use super::{HONEST_PORT, HOSTILE_PORT};

/// Descriptors that go with one message at most (`SCM_MAX_FD`, unix(7)).
const DESCRIPTORS_MAX: usize = 253;
/// Sockets that take an hour to close, in one message.
const SLOW: usize = 80;
/// Messages between two looks at what has come back.
const TRAIN: u64 = 128;

/// Counts what comes.
struct Counts(Rc<Cell<u64>>);

impl Protocol for Counts {
    fn demux(&self, _: &Kernel, _: &ProtocolRef, _: &SessionRef, _: Message) -> Popped {
        self.0.set(self.0.get() + 1);
        Ok(())
    }
}

/// A program that is attached, and its protocol.
struct Here {
    attached: Attached,
    own: ProtocolRef,
    count: Rc<Cell<u64>>,
}

impl Here {
    fn open(&self, node: &str, own: u16, peer: (&str, u16)) -> Result<SessionRef, OpenError> {
        let node = self.attached.find(node).ok_or(OpenError::NoLower)?;
        let ends = Participants::pair(end(OURS, own), end(peer.0, peer.1));
        node.open(self.attached.kernel(), Upper::new(&self.own), ends)
    }

    fn runner(&self) -> std::io::Result<Runner> {
        Runner::new(Rc::clone(self.attached.kernel()), Idle::Sleep)
    }
}

fn run(runner: &Runner, milliseconds: u64) -> Outcome {
    runner.run(Some(Duration::from_millis(milliseconds)), Rc::new(|_| false))?;
    Ok(())
}

impl Program {
    /// Attaches with a protocol that counts what comes.
    fn enters(&self) -> Result<Here, Box<dyn std::error::Error>> {
        let attached = xk_attach::attach(self.path("door"))?;
        let count = Rc::new(Cell::new(0));
        let own = attached.kernel().add_protocol("own", "own", Counts(Rc::clone(&count)));
        attached.join()?;
        Ok(Here { attached, own, count })
    }

    /// As [`enters`](Self::enters), as soon as those of this user before are seen to be gone.
    fn enters_soon(&self) -> Result<Here, Box<dyn std::error::Error>> {
        let begun = Instant::now();
        loop {
            match self.enters() {
                Err(_) if begun.elapsed() < PROGRAM_TIME_MAX => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                entered => return entered,
            }
        }
    }

    /// Opens all that it can on a transport and holds it: no more than its share.
    pub(super) fn hoards(&self, node: &str) -> Outcome {
        let here = self.enters_soon()?;
        let runner = here.runner()?;
        let mut held = Vec::new();
        for at in 0..4 * SESSIONS_MAX as u16 {
            let (own, peer) = (HOSTILE_PORT + at % 900, HELD_PORT + at / 900);
            held.extend(here.open(node, own, (LINUX, peer)));
        }
        let share = SESSIONS_MAX / USER_SHARE;
        if !(1..=share).contains(&held.len()) {
            return Err(format!("{} sessions, and its share is {share}", held.len()).into());
        }
        while self.goes_on() {
            run(&runner, 50)?;
        }
        println!("held {} sessions of {SESSIONS_MAX}", held.len());
        Ok(())
    }

    /// Sends sockets to the door that linger for an hour, one of them within another, and as many
    /// files as a message takes.
    pub(super) fn lingers(&self) -> Outcome {
        let slow = (0..SLOW).map(|_| slow()).collect::<Result<Vec<_>, _>>()?;
        let file = std::fs::File::open("/dev/null")?;
        let (flags, kind) = (SocketFlags::CLOEXEC, SocketType::SEQPACKET);
        let (within, outer) = rustix::net::socketpair(AddressFamily::UNIX, kind, flags, None)?;
        let (deepest, _reader) = self::slow()?;
        hand(&within, &[deepest.as_fd()])?;
        drop(deepest);
        let files = vec![file.as_fd(); DESCRIPTORS_MAX];
        let mut first: Vec<BorrowedFd<'_>> =
            slow.iter().map(|(sender, _)| sender.as_fd()).collect();
        first.push(outer.as_fd());
        let door = SocketAddrUnix::new(self.path("door"))?;
        let comes = |with: &[BorrowedFd<'_>]| {
            let socket = rustix::net::socket(AddressFamily::UNIX, kind, None)?;
            rustix::net::connect(&socket, &door).and_then(|()| hand(&socket, with))
        };
        while comes(&first).is_err() {}
        // The host's is the last, or this thread has its turn to linger.
        std::thread::spawn(move || drop(outer));
        let mut messages = 1_u64;
        while self.goes_on() {
            messages += u64::from(comes(&files).is_ok());
        }
        // Without readers they do not linger here.
        slow.into_iter().for_each(|(sender, reader)| drop((reader, sender)));
        println!("{messages} messages with {DESCRIPTORS_MAX} descriptors");
        Ok(())
    }

    /// Programs that enable ports and never answer what they are asked about peers there.
    pub(super) fn keeps_silent(&self) -> Outcome {
        let mut silent = Vec::new();
        for at in 0..SILENT {
            let here = self.enters_soon()?;
            let tcp = here.attached.find("tcp").ok_or("no tcp")?;
            let port = Participant::of(Part::Any).with(Part::port(HOSTILE_PORT + at));
            let local = Participants::local(port);
            let enabled = tcp.open_enable(here.attached.kernel(), Upper::new(&here.own), local);
            let at = HOSTILE_PORT + at;
            let _ = enabled.map_err(|error| format!("port {at}: {error}"))?;
            silent.push(here);
        }
        while self.goes_on() {
            std::thread::sleep(Duration::from_millis(20));
        }
        println!("{} silent programs", silent.len());
        Ok(())
    }

    /// Wants its peer to be probed every nanosecond, and after a second.
    pub(super) fn probes(&self) -> Outcome {
        let here = self.enters_soon()?;
        let (kernel, runner) = (here.attached.kernel(), here.runner()?);
        let open = |at| here.open("tcp", HOSTILE_PORT + at, (LINUX, HELD_PORT));
        let sessions: Vec<SessionRef> = (0..SILENT).map(open).collect::<Result<_, _>>()?;
        run(&runner, 100)?;
        let is_taken = |session: &SessionRef, every| {
            let times = KeepAlive { idle: every, interval: every, probes_max: u32::MAX };
            let setting = StreamSetting::KeepAlive(Some(times));
            let asked = session.ask(kernel, StreamSet { setting, taken: false });
            asked.is_some_and(|asked| asked.taken)
        };
        for session in &sessions {
            if is_taken(session, Duration::from_nanos(1)) {
                return Err("a probe every nanosecond".into());
            }
            if !is_taken(session, Duration::from_secs(1)) {
                return Err("no probe even every second".into());
            }
        }
        while self.goes_on() {
            run(&runner, 50)?;
        }
        println!("{} connections are probed every second", sessions.len());
        Ok(())
    }

    /// Comes again and again, opens sessions and a port, sends through one, and goes.
    pub(super) fn comes_again(&self) -> Outcome {
        let (mut came, mut opened, mut sent) = (0_u64, 0_usize, 0_u64);
        while self.goes_on() && came < PROGRAMS {
            let Ok(here) = self.enters() else {
                // Programs come faster than those before are seen to be gone.
                std::thread::sleep(Duration::from_millis(1));
                continue;
            };
            came += 1;
            let open = |at| here.open("udp", HOSTILE_PORT + at, (OURS, 7));
            let sessions: Vec<SessionRef> = (0..4).filter_map(|at| open(at).ok()).collect();
            opened += sessions.len();
            let kernel = here.attached.kernel();
            for session in &sessions {
                let octets = kernel.pool().copy_from(128, &came.to_le_bytes());
                let octets = octets.map_err(|_| "no buffers")?;
                sent += u64::from(session.push(kernel, octets).is_ok());
            }
        }
        println!("{came} programs, {opened} sessions, {sent} messages");
        Ok(())
    }

    /// Sends messages to the host's own server, each other than the last, and takes what it
    /// answers.
    pub(super) fn floods(&self) -> Outcome {
        let here = self.enters_soon()?;
        let (kernel, runner) = (here.attached.kernel(), here.runner()?);
        // Another such program may have the first.
        let open = |at| here.open("udp", HOSTILE_PORT + 900 + at, (OURS, 7)).ok();
        let session = (0..SILENT).find_map(open).ok_or("no port")?;
        let (mut sent, mut refused) = (0_u64, 0_u64);
        while self.goes_on() && sent + here.count.get() < FRAMES {
            for _ in 0..TRAIN {
                let octets = (sent + refused).to_le_bytes();
                let octets = kernel.pool().copy_from(128, &octets).map_err(|_| "no buffers")?;
                match session.push(kernel, octets) {
                    Ok(()) => sent += 1,
                    Err(_) => refused += 1,
                }
            }
            run(&runner, 0)?;
        }
        println!("{sent} frames down, {refused} refused, {} up", here.count.get());
        Ok(())
    }

    /// Computes, and has nothing to do with the host.
    pub(super) fn computes(&self) -> Outcome {
        while self.goes_on() {
            std::hint::spin_loop();
        }
        println!("has computed");
        Ok(())
    }

    /// An honest one that has not been here before: is let in, and has what it asks for.
    pub(super) fn is_let_in(&self) -> Outcome {
        let here = self.enters_soon()?;
        for (node, peer) in [("udp", 9), ("tcp", HELD_PORT)] {
            for at in 1..=SILENT {
                here.open(node, HONEST_PORT + at, (LINUX, peer))
                    .map_err(|error| format!("{node}: {error}"))?;
            }
        }
        Ok(())
    }
}

/// Sends words of no sense with these descriptors.
fn hand(socket: &OwnedFd, descriptors: &[BorrowedFd<'_>]) -> rustix::io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(descriptors));
    let words = [IoSlice::new(b"nonsense")];
    rustix::net::sendmsg(socket, &words, &mut control, SendFlags::NOSIGNAL).map(drop)
}

/// A connection that to close takes an hour, and what keeps it so.
fn slow() -> std::io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut sender = TcpStream::connect(listener.local_addr()?)?;
    let (reader, _) = listener.accept()?;
    sender.set_nonblocking(true)?;
    while sender.write(&[0; 1 << 16]).is_ok() {}
    rustix::net::sockopt::set_socket_linger(&sender, Some(Duration::from_secs(3600)))?;
    Ok((sender, reader))
}
