//! UDP sockets of one process that speak to each other over loopback.

use crate::case::Trouble;
use crate::many_sessions::{Choice, Chooser};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

/// One socket that asks, and many open ones of which some answer.
pub(crate) struct Sockets {
    asks: UdpSocket,
    answers: Vec<(UdpSocket, SocketAddr)>,
}

/// Descriptors that the process needs for other things.
const OTHER_DESCRIPTORS: u64 = 256;

/// Lets this process have as many descriptors, if its hard limit does.
fn allow_descriptors(count: u64) -> Result<(), Trouble> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|now| now >= count) {
        return Ok(());
    }
    if limit.maximum.is_some_and(|most| most < count) {
        let most = limit.maximum.unwrap_or_default();
        return Err(Trouble::Skipped(format!(
            "needs {count} descriptors, and the limit is {most} (ulimit -Hn)"
        )));
    }
    let wanted = Rlimit { current: Some(count), maximum: limit.maximum };
    setrlimit(Resource::Nofile, wanted)
        .map_err(|e| Trouble::Skipped(format!("cannot raise the limit on descriptors: {e}")))
}

impl Sockets {
    /// So many open ports.
    pub(crate) fn new(count: usize) -> Result<Self, Trouble> {
        allow_descriptors(count as u64 + OTHER_DESCRIPTORS)?;
        let open = || -> io::Result<(UdpSocket, SocketAddr)> {
            let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
            socket.set_read_timeout(Some(Duration::from_secs(1)))?;
            let address = socket.local_addr()?;
            Ok((socket, address))
        };
        let failed = |error| Trouble::Failed(format!("no socket: {error}"));
        let (asks, _) = open().map_err(failed)?;
        let answers: io::Result<Vec<_>> = (0..count).map(|_| open()).collect();
        Ok(Self { asks, answers: answers.map_err(failed)? })
    }

    /// Times of so many round trips in nanoseconds, sorted.
    pub(crate) fn times(&self, choice: Choice, trips: usize) -> Result<Vec<f64>, Trouble> {
        let mut chooser = Chooser::new(choice, self.answers.len());
        let mut list = Vec::with_capacity(trips);
        for _ in 0..trips {
            let (socket, address) = &self.answers[chooser.next()];
            let start = Instant::now();
            self.trip(socket, address)
                .map_err(|error| Trouble::Failed(format!("a socket failed: {error}")))?;
            list.push(start.elapsed().as_nanos() as f64);
        }
        list.sort_by(f64::total_cmp);
        Ok(list)
    }

    fn trip(&self, answers: &UdpSocket, to: &SocketAddr) -> io::Result<()> {
        let mut octets = [0x5a; 64];
        self.asks.send_to(&octets, to)?;
        let (length, from) = answers.recv_from(&mut octets)?;
        answers.send_to(&octets[..length], from)?;
        self.asks.recv_from(&mut octets).map(drop)
    }
}
