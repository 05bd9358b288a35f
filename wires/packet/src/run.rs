//! Runs of segments on their way out: longer than a slot, so they go through a socket of their own.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use smallvec::SmallVec;

use xk_kit::wire::virtio::Note;

/// Octets of the queue of runs that were sent and that the interface has not taken.
const QUEUE_OCTETS: usize = 4 << 20;
/// The most parts that a run is gathered from without another allocation.
const PARTS: usize = 64;

/// A socket without rings, which receives nothing.
#[derive(Debug)]
pub(crate) struct RunSender(OwnedFd);

impl RunSender {
    /// Makes `socket`, a fresh packet socket, send runs out of the interface `index`.
    ///
    /// They go through the interface's queues: past those (`PACKET_QDISC_BYPASS`) Linux drops what
    /// it has to cut itself, as for a device without segmentation (`__dev_direct_xmit` in its
    /// net/core/dev.c).
    pub(crate) fn open(socket: OwnedFd, index: libc::c_int) -> io::Result<Self> {
        let fd = socket.as_fd();
        xk_linux::set_number(fd, libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1)?;
        xk_linux::set_send_room(fd, QUEUE_OCTETS)?;
        xk_linux::bind(fd, index, 0)?;
        Ok(Self(socket))
    }

    /// Sends a run; false if there is no room now.
    pub(crate) fn send(&self, parts: &[&[u8]], run: Note) -> io::Result<bool> {
        let note = run.emit();
        let all = [&note[..]].into_iter().chain(parts.iter().copied());
        let gathered: SmallVec<[IoSlice<'_>; PARTS]> = all.map(IoSlice::new).collect();
        loop {
            return match rustix::io::writev(&self.0, &gathered) {
                Ok(_) => Ok(true),
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN | Errno::NOBUFS) => Ok(false),
                Err(errno) => Err(errno.into()),
            };
        }
    }
}
