//! A stream of the stack joined to a stream socket of the system, whose other end a program has.

use crate::options::Options;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvFlags, SendFlags, Shutdown};
use std::io::{self, ErrorKind, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::time::Duration;
use xk_net::{Source, TcpStream, Thread, WatchId};
use xk_request::Setting;

/// Turns of one direction before others have theirs.
pub(crate) const TURNS: usize = 16;
/// Octets that are moved at once.
pub(crate) const SCRATCH: usize = 64 << 10;

/// Octets that are moved at once where the program has the smallest buffer.
const PIECE_MIN: usize = 1024;

/// Octets that a stream is stuffed with at most while it is being connected.
const STUFFING_MAX: usize = 1 << 20;

/// Form in which the program finds a stream that is being connected.
pub(crate) enum Connecting {
    /// The program waits to hear the result.
    Awaited(OwnedFd),
    /// Not ready to be written, for there are so many octets in front, which are not for the peer.
    Stuffed(usize),
}

/// Next step of a splice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// The splice waits for a notice.
    Wait,
    /// The splice has more to do at once.
    Again,
    /// The splice is over; with an error number if it broke.
    Over(Option<i32>),
}

/// A stream of the stack joined to one of the system.
pub(crate) struct Splice {
    pub(crate) stream: TcpStream<Thread>,
    unix: OwnedFd,
    watch: WatchId,
    /// The stream stands.
    pub(crate) connected: bool,
    /// Octets in front that are not for the peer.
    stuffing: usize,
    to_program: Half,
    to_peer: Half,
    /// The program has closed its end altogether.
    pub(crate) gone: bool,
    /// Asker that waits to hear whether it stands.
    pub(crate) waiting: Option<OwnedFd>,
    /// The program has heard by a call of its own that it stands.
    pub(crate) confirmed: bool,
    pub(crate) options: Options,
}

/// One direction.
#[derive(Default)]
struct Half {
    /// Octets that were taken and not yet given.
    rest: Vec<u8>,
    ended: bool,
    told: bool,
    /// A record ends behind the rest.
    record: bool,
}

fn errno(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(104)
}

pub(crate) fn blocks(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

impl Splice {
    pub(crate) fn new(
        stream: TcpStream<Thread>,
        unix: OwnedFd,
        watch: WatchId,
        connecting: Option<Connecting>,
        options: Options,
    ) -> Self {
        let connected = connecting.is_none();
        bound(&unix, &options);
        let (waiting, stuffing) = match connecting {
            None => (None, 0),
            Some(Connecting::Awaited(asker)) => (Some(asker), 0),
            Some(Connecting::Stuffed(octets)) => (None, octets),
        };
        Self {
            stream,
            unix,
            watch,
            connected,
            stuffing,
            to_program: Half::default(),
            to_peer: Half::default(),
            gone: false,
            waiting,
            confirmed: connected,
            options,
        }
    }

    /// Sets an option of it.
    pub(crate) fn set(&mut self, setting: &Setting) -> Result<(), Errno> {
        self.options.set(Some(&self.stream), setting)?;
        bound(&self.unix, &self.options);
        Ok(())
    }

    /// Moves what can be moved.
    pub(crate) fn tend(&mut self, scratch: &mut [u8]) -> Next {
        if !self.connected {
            if !self.stream.ready().is_writable() {
                return if self.gone { Next::Over(None) } else { Next::Wait };
            }
            if let Ok(Some(error)) = self.stream.take_error() {
                return Next::Over(Some(errno(&error)));
            }
            self.connected = true;
        }
        if self.unstuff(scratch).is_err() {
            return Next::Over(None);
        }
        if self.is_broken_off() {
            return self.abandoned();
        }
        // The program reads no more and would not find it; behind the peer's end there is nothing
        // to write to (as Linux has it).
        if self.to_program.ended
            && self.to_program.rest.is_empty()
            && let Ok(Some(error)) = self.stream.take_error()
        {
            return Next::Over(Some(match errno(&error) {
                libc::ECONNRESET => libc::EPIPE,
                number => number,
            }));
        }
        let down = self.tend_program(scratch);
        let up = self.tend_peer(scratch);
        match (down, up) {
            (Next::Over(why), _) | (_, Next::Over(why)) => Next::Over(why.map(|number| {
                // Behind the peer's end there is nothing to write to, as Linux has it.
                match number {
                    libc::ECONNRESET if self.to_program.ended => libc::EPIPE,
                    number => number,
                }
            })),
            _ if self.to_program.told && self.to_peer.told => Next::Over(None),
            (Next::Again, _) | (_, Next::Again) => Next::Again,
            _ => Next::Wait,
        }
    }

    /// Octets that the program has written and the peer has not acknowledged, and those of them
    /// that were not sent yet.
    pub(crate) fn unacknowledged(&self) -> (u32, u32) {
        let info = self.stream.info().unwrap_or_default();
        let waits = rustix::io::ioctl_fionread(&self.unix).unwrap_or(0);
        let waits = waits.saturating_sub(self.stuffing as u64) + self.to_peer.rest.len() as u64;
        let unsent = info.unsent.saturating_add(u32::try_from(waits).unwrap_or(u32::MAX));
        (unsent.saturating_add(info.in_flight), unsent)
    }

    /// Throws the octets in front away.
    fn unstuff(&mut self, scratch: &mut [u8]) -> io::Result<()> {
        while self.stuffing > 0 {
            let take = self.stuffing.min(scratch.len());
            match rustix::net::recv(&self.unix, &mut scratch[..take], RecvFlags::DONTWAIT) {
                Ok((0, _)) => return Ok(()),
                Ok((octets, _)) => self.stuffing -= octets,
                Err(error) if blocks(&error.into()) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn tend_program(&mut self, scratch: &mut [u8]) -> Next {
        // Not more than the program lets wait for it.
        let most = (self.options.kept_max() as usize / 2).clamp(PIECE_MIN, scratch.len());
        let scratch = &mut scratch[..most];
        let half = &mut self.to_program;
        for _ in 0..TURNS {
            if !half.rest.is_empty() {
                match send(&self.unix, &half.rest) {
                    Ok(octets) => drop(half.rest.drain(..octets)),
                    Err(error) if blocks(&error) => return Next::Wait,
                    Err(_) => return self.abandoned(),
                }
                continue;
            }
            if half.ended {
                if !half.told {
                    half.told = true;
                    // If the program is gone, that is found on the other side.
                    let _ = rustix::net::shutdown(&self.unix, Shutdown::Write);
                }
                return Next::Wait;
            }
            match self.stream.read(scratch) {
                Ok(0) => half.ended = true,
                Ok(octets) => match send(&self.unix, &scratch[..octets]) {
                    Ok(sent) => half.rest.extend_from_slice(&scratch[sent..octets]),
                    Err(error) if blocks(&error) => half.rest.extend_from_slice(&scratch[..octets]),
                    Err(_) => return self.abandoned(),
                },
                Err(error) if blocks(&error) => return Next::Wait,
                Err(error) => return Next::Over(Some(errno(&error))),
            }
        }
        Next::Again
    }

    /// Whether the program has closed its end and wants the stream broken off by that (`SO_LINGER`
    /// of no time): a reset and no end before it, or the peer would take what it has for all (RFC
    /// 9293, section 3.10.5).
    fn is_broken_off(&self) -> bool {
        if !self.options.breaks_off() {
            return false;
        }
        let mut polled = [PollFd::new(&self.unix, PollFlags::empty())];
        // Asked here, as a close may be found by reading before it is reported.
        let asked = rustix::event::poll(&mut polled, Some(&Timespec::default()));
        self.gone || asked.is_ok() && polled[0].revents().contains(PollFlags::HUP)
    }

    /// The program is gone and has not read what came, or breaks the stream off: the peer is told
    /// by a reset, as by any system.
    fn abandoned(&self) -> Next {
        let _ = self.stream.set_linger(Some(Duration::ZERO));
        Next::Over(None)
    }

    fn tend_peer(&mut self, scratch: &mut [u8]) -> Next {
        if self.stuffing > 0 {
            return Next::Wait;
        }
        // Not more than the program lets wait to be sent.
        let most = (self.options.unsent_max() as usize / 4).clamp(PIECE_MIN, scratch.len());
        let scratch = &mut scratch[..most];
        let half = &mut self.to_peer;
        for _ in 0..TURNS {
            if !half.rest.is_empty() {
                match self.stream.write(&half.rest) {
                    Ok(octets) => drop(half.rest.drain(..octets)),
                    Err(error) if blocks(&error) => return Next::Wait,
                    Err(error) => return Next::Over(Some(errno(&error))),
                }
                continue;
            }
            if std::mem::take(&mut half.record) {
                // If it has broken, writing says so.
                let _ = self.stream.end_record();
            }
            if half.ended {
                return self.peer_told();
            }
            match receive(&self.unix, scratch) {
                Ok((0, _)) => half.ended = true,
                Ok((octets, ends_record)) => {
                    half.record = ends_record;
                    match self.stream.write(&scratch[..octets]) {
                        Ok(sent) => half.rest.extend_from_slice(&scratch[sent..octets]),
                        Err(error) if blocks(&error) => {
                            half.rest.extend_from_slice(&scratch[..octets]);
                        }
                        Err(error) => return Next::Over(Some(errno(&error))),
                    }
                }
                Err(error) if blocks(&error.into()) => return Next::Wait,
                // The program has closed with octets unread.
                Err(_) => return self.abandoned(),
            }
        }
        Next::Again
    }

    /// The program writes no more, and all of it has been passed on.
    fn peer_told(&mut self) -> Next {
        if self.is_broken_off() {
            return self.abandoned();
        }
        if !self.to_peer.told {
            self.to_peer.told = true;
            // If the stream is broken, reading from it says so.
            let _ = self.stream.shutdown(std::net::Shutdown::Write);
        }
        if self.gone {
            return Next::Over(None);
        }
        Next::Wait
    }
}

/// Lets no more octets wait between the stack and the program than it has room for by its own word,
/// if it said so (`SO_RCVBUF`).
fn bound(unix: &OwnedFd, options: &Options) {
    let most = options.kept_max();
    if most < u32::MAX {
        // Linux doubles the number once more. It takes any, and makes of it what it can.
        let _ = rustix::net::sockopt::set_socket_send_buffer_size(unix, most as usize / 2);
    }
}

/// Fills the program's end until nothing can be written to it any more; answers with how many
/// octets.
pub(crate) fn stuff(socket: &OwnedFd) -> io::Result<usize> {
    let stuffing = [0; 32 << 10];
    let mut octets = 0;
    while octets < STUFFING_MAX {
        match rustix::net::send(socket, &stuffing, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(sent) => octets += sent,
            Err(Errno::AGAIN) => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(octets)
}

impl Drop for Splice {
    fn drop(&mut self) {
        self.stream.unwatch(self.watch);
    }
}

/// Receives what the program has written, and whether a record ends there: a descriptor comes with
/// its last octet, and the system gives nothing behind it at once.
fn receive(unix: &OwnedFd, scratch: &mut [u8]) -> Result<(usize, bool), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let parts = &mut [IoSliceMut::new(scratch)];
    let octets = rustix::net::recvmsg(unix, parts, &mut control, flags)?.bytes;
    Ok((octets, control.drain().next().is_some()))
}

fn send(unix: &OwnedFd, octets: &[u8]) -> io::Result<usize> {
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    Ok(rustix::net::send(unix, octets, flags)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{
        AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SocketFlags, SocketType,
    };
    use std::io::IoSlice;
    use std::os::fd::AsFd;

    #[test]
    fn a_record_ends_where_a_descriptor_comes_along() {
        let flags = SocketFlags::CLOEXEC;
        let (one, other) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
        let put = |octets: &[u8], ends: bool| {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            let descriptor = [one.as_fd()];
            assert!(!ends || control.push(SendAncillaryMessage::ScmRights(&descriptor)));
            let parts = [IoSlice::new(octets)];
            let sent = rustix::net::sendmsg(&one, &parts, &mut control, SendFlags::empty());
            assert_eq!(sent, Ok(octets.len()));
        };
        for (octets, ends) in [(&b"ab"[..], false), (b"c", true), (b"d", true), (b"ef", false)] {
            put(octets, ends);
        }
        let mut scratch = [0; 100];
        let mut got = || receive(&other, &mut scratch);
        assert_eq!([got(), got(), got()], [Ok((3, true)), Ok((1, true)), Ok((2, false))]);
        assert_eq!(got(), Err(Errno::AGAIN));
    }
}
