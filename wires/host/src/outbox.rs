//! Datagrams on their way out: queued, joined into runs, handed to the system in batches.

use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;

use xk_core::object::PushError;
use xk_core::{Kernel, Message, Reason, SessionRef, reason};

use crate::batch_unsafe::{BATCH, Batch, Filling, SLICES_MAX};
use crate::socket::{Socket, reason_of};

/// Largest number of datagrams that wait.
pub(crate) const WAITING_MAX: usize = 1024;
/// Datagrams that wait before they are handed over without waiting for the end of the turn.
pub(crate) const COALESCED_MAX: usize = 128;
/// Largest number of datagrams of a run (`UDP_MAX_SEGMENTS` was 64 when runs came; now it is more).
const RUN_MAX: usize = 64;
/// Octets of a run at most: an IPv4 packet's length less the headers.
const RUN_OCTETS_MAX: usize = 65_507;

/// A datagram.
pub(crate) struct Outgoing {
    pub(crate) message: Message,
    pub(crate) to: SocketAddr,
    /// Our host that it is to come from, where the socket leaves that open.
    pub(crate) from: Option<Ipv4Addr>,
}

/// Datagrams that wait for one socket.
pub(crate) struct Outbox {
    waiting: VecDeque<Outgoing>,
    /// Octets in front of every datagram.
    prefix: Box<[u8]>,
    /// Datagrams of more octets do not go in runs: the system refused them, since the way carries
    /// no such frame or the device no such work.
    run_datagram_max: usize,
}

/// Rest after a flush.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flushed {
    /// Nothing.
    All,
    /// The system takes no more now.
    Blocked,
}

impl Outbox {
    pub(crate) fn new(prefix: &[u8]) -> Self {
        Self { waiting: VecDeque::new(), prefix: prefix.into(), run_datagram_max: RUN_OCTETS_MAX }
    }

    /// Number of waiting datagrams.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// True if so many datagrams more may wait.
    pub(crate) fn has_room(&self, datagrams: usize) -> bool {
        self.waiting.len() + datagrams <= WAITING_MAX
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Puts a datagram behind those that wait.
    ///
    /// # Errors
    /// The datagram, if [`WAITING_MAX`] wait.
    pub(crate) fn push(&mut self, outgoing: Outgoing) -> Result<(), Message> {
        if !self.has_room(1) {
            return Err(outgoing.message);
        }
        self.waiting.push_back(outgoing);
        Ok(())
    }

    /// Drops all that wait.
    pub(crate) fn clear(&mut self) {
        self.waiting = VecDeque::new();
    }

    /// Hands over what waits. `dropped` hears of each datagram that the system does not take.
    pub(crate) fn flush(
        &mut self,
        socket: &Socket,
        batch: &mut Batch,
        mut dropped: impl FnMut(&Outgoing, &'static Reason),
    ) -> Flushed {
        let mut complaints = 0;
        while !self.waiting.is_empty() {
            let mut filling = batch.fill();
            let runs = self.fill(&mut filling);
            match filling.send(socket.fd().as_fd()) {
                Ok(taken) => {
                    let datagrams: usize = runs.iter().take(taken).map(|n| usize::from(*n)).sum();
                    self.waiting.drain(..datagrams.min(self.waiting.len()));
                    complaints = 0;
                    // After less than all of them the next call tells why.
                }
                Err(error) => {
                    complaints += 1;
                    match self.refused(&error, usize::from(runs[0]), complaints) {
                        Remedy::Again => {}
                        Remedy::Wait => return Flushed::Blocked,
                        Remedy::Drop => {
                            let run = usize::from(runs[0]).min(self.waiting.len());
                            for outgoing in self.waiting.drain(..run) {
                                dropped(&outgoing, reason_of(&error));
                            }
                            complaints = 0;
                        }
                    }
                }
            }
        }
        Flushed::All
    }

    /// Remedy if the system does not take even the first run, of `run` datagrams.
    fn refused(&mut self, error: &io::Error, run: usize, complaints: usize) -> Remedy {
        let first = self.waiting.front();
        let octets = self.prefix.len() + first.map_or(0, |o| o.message.len());
        match error.raw_os_error() {
            Some(libc::EINTR) => Remedy::Again,
            Some(libc::EAGAIN) => Remedy::Wait,
            // As a run it does not go: the way is too narrow, or the device lacks something. Then
            // one by one.
            Some(libc::EINVAL | libc::EMSGSIZE) if run > 1 => {
                self.run_datagram_max = octets.saturating_sub(1);
                Remedy::Again
            }
            Some(libc::EIO | libc::EOPNOTSUPP) if run > 1 => {
                self.run_datagram_max = 0;
                Remedy::Again
            }
            // May be about a datagram sent before: such a complaint is made once.
            Some(
                libc::ECONNREFUSED
                | libc::EHOSTUNREACH
                | libc::ENETUNREACH
                | libc::EMSGSIZE
                | libc::EACCES
                | libc::EPROTO
                | libc::ENOPROTOOPT
                | libc::EHOSTDOWN
                | libc::ENONET,
            ) if complaints <= 1 => Remedy::Again,
            _ => Remedy::Drop,
        }
    }

    /// Fills a batch from the front; answers how many datagrams each of its parcels has.
    fn fill<'a>(&'a self, filling: &mut Filling<'a>) -> [u8; BATCH] {
        let mut runs = [0_u8; BATCH];
        let mut waiting = self.waiting.iter().peekable();
        while filling.len() < BATCH
            && let Some(first) = waiting.next()
        {
            let at = filling.len();
            let segment = self.prefix.len() + first.message.len();
            filling.parcel(first.to);
            self.put(filling, first);
            let (mut run, mut octets) = (1, segment);
            // Each but the last of a run has the same length; an empty one cannot be told from
            // none.
            while run < RUN_MAX
                && 0 < segment
                && segment <= self.run_datagram_max
                && let Some(next) = waiting.next_if(|next| {
                    let len = self.prefix.len() + next.message.len();
                    next.to == first.to
                        && next.from == first.from
                        && octets == run * segment
                        && (1..=segment).contains(&len)
                        && octets + len <= RUN_OCTETS_MAX
                        && filling.slices() + 1 + next.message.slices().count() <= SLICES_MAX
                })
            {
                octets += self.prefix.len() + next.message.len();
                run += 1;
                self.put(filling, next);
            }
            if run > 1 {
                let segment = (segment as u16).to_ne_bytes();
                filling.control(libc::SOL_UDP, libc::UDP_SEGMENT, &segment);
            }
            if let Some(host) = first.from {
                // Interface (any), our host, and a field that is not read (ip(7)).
                let mut info = [0; 12];
                info[4..8].copy_from_slice(&host.octets());
                filling.control(libc::IPPROTO_IP, libc::IP_PKTINFO, &info);
            }
            runs[at] = run as u8;
        }
        runs
    }

    fn put<'a>(&'a self, filling: &mut Filling<'a>, outgoing: &'a Outgoing) {
        if !self.prefix.is_empty() {
            filling.slice(&self.prefix);
        }
        for slice in outgoing.message.slices() {
            filling.slice(slice.octets);
        }
    }
}

/// Remedy for datagrams that the system did not take.
enum Remedy {
    /// Offer it again at once.
    Again,
    /// Offer it when the socket is writable.
    Wait,
    /// Count and drop the first run.
    Drop,
}

/// A message of the session `this` in few enough slices for one system call: itself, or a copy.
///
/// # Errors
/// [`PushError::NoBuffers`]; the message is gone, and counted.
pub(crate) fn in_few_slices(
    cx: &Kernel,
    this: &SessionRef,
    message: Message,
) -> Result<Message, PushError> {
    if message.slices().nth(SLICES_MAX / 2).is_none() {
        return Ok(message);
    }
    let Ok(mut copy) = cx.pool().alloc(0, message.len()) else {
        this.discard(cx, message, &reason::NO_BUFFERS);
        return Err(PushError::NoBuffers);
    };
    let mut at = 0;
    for slice in message.slices() {
        at += copy.copy_in(at, slice.octets);
    }
    Ok(copy)
}
