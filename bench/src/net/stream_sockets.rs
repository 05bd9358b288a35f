//! TCP sockets of Linux.

use super::endpoint::{Endpoint, System, Task};
use super::endpoint::{failed, ready};
use super::exchange::{ANSWER_TIME_MAX, Trips, WAIT, Window};
use super::pattern::{Pattern, WRITE_OCTETS};
use super::sockets::port;
use super::space::LINUX;
use crate::case::Trouble;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use serde_json::{Value, json};
use std::hint::black_box;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use xk_run::interrupt_unsafe::is_requested;

/// Octets that one reading call takes.
const READ_OCTETS: usize = 256 * 1024;

/// Octets of small buffers, of which Linux makes twice as many and gives half of those as window
/// (tcp(7)).
const SMALL_OCTETS: usize = 4096;

/// The congestion control of the sender.
const CONGESTION: &str = "cubic";
/// Time between two looks at the clock of a receiver of many connections.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// The server's address.
fn server(end: &Endpoint) -> SocketAddrV4 {
    let host = match end.system {
        System::LinuxTcpLoopback => Ipv4Addr::LOCALHOST,
        _ => LINUX[1].parse().unwrap_or(Ipv4Addr::UNSPECIFIED),
    };
    SocketAddrV4::new(host, port(end, true))
}

/// Nothing could be done now.
fn is_pause(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

fn ended() -> io::Error {
    io::Error::new(ErrorKind::Interrupted, "told to end")
}

/// One connection; one that spins never sleeps in a call.
struct Stream(TcpStream);

impl Stream {
    fn new(socket: TcpStream, spins: bool) -> io::Result<Self> {
        socket.set_nodelay(true)?;
        if spins {
            socket.set_nonblocking(true)?;
        } else {
            socket.set_read_timeout(Some(WAIT))?;
        }
        Ok(Self(socket))
    }

    /// Connects; a socket that spins asks again and again for the answer.
    fn connect(to: SocketAddrV4, spins: bool) -> io::Result<Self> {
        if !spins {
            return Self::new(TcpStream::connect(to)?, false);
        }
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket =
            rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
        match rustix::net::connect(&socket, &SocketAddr::V4(to)) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(error) => return Err(error.into()),
        }
        let socket = TcpStream::from(socket);
        socket.set_nodelay(true)?;
        Ok(Self(socket))
    }

    /// Something of what has come; 0 at the end.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.0.read(buffer) {
                Err(error) if is_pause(&error) && !is_requested() => std::hint::spin_loop(),
                outcome => return outcome,
            }
        }
    }

    /// All of the buffer; false at the end of the stream.
    fn read_all(&mut self, mut buffer: &mut [u8]) -> io::Result<bool> {
        while !buffer.is_empty() {
            match self.read(buffer)? {
                0 => return Ok(false),
                octets => buffer = &mut buffer[octets..],
            }
        }
        Ok(true)
    }

    fn write_all(&mut self, mut octets: &[u8]) -> io::Result<()> {
        while !octets.is_empty() {
            match self.0.write(octets) {
                Ok(count) => octets = &octets[count..],
                Err(error) if is_pause(&error) && !is_requested() => std::hint::spin_loop(),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// The listener for connections.
struct Door {
    listener: TcpListener,
    spins: bool,
}

impl Door {
    fn open(end: &Endpoint) -> io::Result<Self> {
        let listener = TcpListener::bind(server(end))?;
        listener.set_nonblocking(true)?;
        if end.system == System::LinuxTcpSmall {
            rustix::net::sockopt::set_socket_recv_buffer_size(&listener, SMALL_OCTETS)?;
        }
        let spins = end.spins;
        Ok(Self { listener, spins })
    }

    /// The next connection.
    fn accept(&self) -> io::Result<Stream> {
        loop {
            match self.listener.accept() {
                Ok((socket, _)) => return Stream::new(socket, self.spins),
                Err(error) if !is_pause(&error) => return Err(error),
                Err(_) if is_requested() => return Err(ended()),
                Err(_) if self.spins => std::hint::spin_loop(),
                Err(_) => self.wait()?,
            }
        }
    }

    /// Sleeps until a connection comes, but not for long.
    fn wait(&self) -> io::Result<()> {
        let mut list = [rustix::event::PollFd::new(&self.listener, rustix::event::PollFlags::IN)];
        let limit = rustix::event::Timespec { tv_sec: 0, tv_nsec: WAIT.as_nanos() as i64 };
        match rustix::event::poll(&mut list, Some(&limit)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Runs one end.
pub(super) fn run(end: &Endpoint) -> Result<Value, Trouble> {
    if end.task.is_passive() {
        let door = Door::open(end).map_err(failed("cannot listen"))?;
        ready();
        return match end.task {
            Task::Receive if end.system.flows() > 1 => receive_many(end, &door),
            Task::Receive => receive(end, &door),
            _ => serve(&door),
        };
    }
    ready();
    let trips = match end.task {
        Task::Ask => ask(end),
        Task::Connect => connect(end),
        _ => return send_many(end),
    };
    trips.map(Trips::result).map_err(failed("while asking"))
}

fn ask(end: &Endpoint) -> io::Result<Trips> {
    let mut stream = Stream::connect(server(end), end.spins)?;
    let question = vec![0x5a; end.octets.max(1)];
    let mut answer = question.clone();
    let mut trips = Trips::new(end.time);
    stream.write_all(&question)?;
    stream.read_all(&mut answer)?;
    trips.begin();
    loop {
        stream.write_all(&question)?;
        if !stream.read_all(black_box(&mut answer))? {
            return Err(io::Error::other("the peer has gone"));
        }
        if !trips.note() {
            return Ok(trips);
        }
    }
}

/// Opens a connection, has one octet sent back, closes, and so on.
fn connect(end: &Endpoint) -> io::Result<Trips> {
    let mut trips = Trips::new(end.time);
    let mut is_first = true;
    loop {
        let mut stream = Stream::connect(server(end), end.spins)?;
        stream.write_all(&[1])?;
        if !stream.read_all(&mut [0])? {
            return Err(io::Error::other("the peer has gone"));
        }
        drop(stream);
        if std::mem::take(&mut is_first) {
            trips.begin();
        } else if !trips.note() {
            return Ok(trips);
        }
    }
}

/// Sends back what comes, connection by connection, until told to end.
fn serve(door: &Door) -> Result<Value, Trouble> {
    let mut buffer = vec![0; READ_OCTETS];
    let mut one = || -> io::Result<()> {
        let mut stream = door.accept()?;
        loop {
            match stream.read(&mut buffer)? {
                0 => return Ok(()),
                octets => stream.write_all(&buffer[..octets])?,
            }
        }
    };
    loop {
        match one() {
            Err(_) if is_requested() => return Ok(json!({})),
            Err(error) if error.kind() != ErrorKind::ConnectionReset => {
                return Err(failed("while answering")(error));
            }
            _ => {}
        }
    }
}

/// Sends on as many connections as the system has, each from a thread of its own.
fn send_many(end: &Endpoint) -> Result<Value, Trouble> {
    std::thread::scope(|scope| {
        for _ in 1..end.system.flows() {
            scope.spawn(|| send(end));
        }
        send(end)
    })
}

/// Counts what comes on as many connections as the system has, each read by a thread of its own.
fn receive_many(end: &Endpoint, door: &Door) -> Result<Value, Trouble> {
    let count = AtomicU64::new(0);
    let is_over = AtomicBool::new(false);
    let read = |mut stream: Stream| {
        let mut buffer = vec![0; READ_OCTETS];
        while !is_over.load(Ordering::Relaxed) {
            match stream.0.read(&mut buffer) {
                Ok(0) => return,
                Ok(octets) => drop(count.fetch_add(octets as u64, Ordering::Relaxed)),
                Err(error) if is_pause(&error) => {}
                Err(_) => return,
            }
        }
    };
    std::thread::scope(|scope| {
        let read = &read;
        let accepted = (0..end.system.flows()).try_for_each(|_| {
            let stream = door.accept()?;
            scope.spawn(move || read(stream));
            Ok(())
        });
        let mut window = Window::new(end.time);
        let (begun, mut seen) = (Instant::now(), 0);
        while accepted.is_ok() && !window.look(begun.elapsed()) && !is_requested() {
            std::thread::sleep(LOOK_EVERY);
            let now = count.load(Ordering::Relaxed);
            window.saw_octets(now - seen);
            seen = now;
        }
        is_over.store(true, Ordering::Relaxed);
        accepted.map_err(failed("while connections come"))?;
        window.result()
    })
}

/// Sends until told to end, or until the receiver has seen enough.
fn send(end: &Endpoint) -> Result<Value, Trouble> {
    let mut stream = Stream::connect(server(end), end.spins).map_err(failed("cannot connect"))?;
    // The one that most systems have, whatever this one is set to.
    let chosen = rustix::net::sockopt::set_tcp_congestion(&stream.0, CONGESTION);
    if let (Err(error), System::LinuxTcpFaulty(_)) = (chosen, end.system) {
        return Err(Trouble::Skipped(format!("needs {CONGESTION}: {error}")));
    }
    if end.system == System::LinuxTcpSmall {
        let set = rustix::net::sockopt::set_socket_send_buffer_size(&stream.0, SMALL_OCTETS);
        set.map_err(|error| Trouble::Failed(format!("no small buffer: {error}")))?;
    }
    let pattern = Pattern::default();
    let octets = end.octets.clamp(1, WRITE_OCTETS);
    let mut at: u64 = 0;
    let begun = Instant::now();
    while !is_requested() && begun.elapsed() < end.time * 2 + ANSWER_TIME_MAX {
        if stream.write_all(pattern.at(at, octets)).is_err() {
            break;
        }
        at += octets as u64;
    }
    Ok(json!({}))
}

fn receive(end: &Endpoint, door: &Door) -> Result<Value, Trouble> {
    let broken = failed("while receiving");
    let mut stream = door.accept().map_err(&broken)?;
    let pattern = Pattern::default();
    let mut buffer = vec![0; READ_OCTETS];
    let mut window = Window::new(end.time);
    let mut at: u64 = 0;
    let begun = Instant::now();
    loop {
        let octets = stream.read(&mut buffer).map_err(&broken)?;
        if octets == 0 {
            return Err(Trouble::Failed("the stream ended early".into()));
        }
        if !window.measures() {
            check(&pattern, at, &buffer[..octets])?;
        }
        at += octets as u64;
        window.saw_octets(octets as u64);
        if window.look(begun.elapsed()) {
            return window.result();
        }
    }
}

/// Whether octets from a place on are those that were sent.
fn check(pattern: &Pattern, mut at: u64, octets: &[u8]) -> Result<(), Trouble> {
    for part in octets.chunks(WRITE_OCTETS) {
        if part != pattern.at(at, part.len()) {
            return Err(Trouble::Failed("what came is not what was sent".into()));
        }
        at += part.len() as u64;
    }
    Ok(())
}
