//! Datagrams on their way in: taken in batches, counted where lost, runs taken apart.

use std::io;
use std::os::fd::AsFd;

use xk_core::reason;
use xk_core::{Message, Pool, ProtocolRef};
use xk_kit::wire::device::DEVICE_ERROR;
use xk_kit::wire::entry::HEADROOM;

use crate::batch_unsafe::{Arrival, Received, Receiver};
use crate::socket::{Complaint, OVERFLOW, Socket, reason_of};

/// Complaints that one look takes; the rest wait for the next.
const COMPLAINTS_MAX: usize = 64;

/// Arrivals that a look takes from a socket.
#[derive(Clone, Copy)]
pub(crate) enum Take {
    /// The datagrams, or runs of them, that are there, at most this many.
    Now(usize),
    /// One, waited for as long as the socket does.
    Wait,
}

/// Shows what the socket has to `each`. False if more than what was asked for may be there, and
/// nothing but another look tells.
///
/// # Errors
/// The socket has something to complain about: see [`complaints`].
pub(crate) fn receive(
    (socket, receiver): (&Socket, &mut Receiver),
    pool: &Pool,
    this: &ProtocolRef,
    take: Take,
    mut each: impl FnMut(Arrival),
) -> io::Result<bool> {
    let (mut left, waits) = match take {
        Take::Now(budget) => (budget, false),
        Take::Wait => (1, true),
    };
    while left > 0 {
        let wanted = receiver.wanted(left);
        let how = (wanted, waits);
        let outcome =
            receiver.receive(
                socket.fd().as_fd(),
                (pool, HEADROOM),
                how,
                |received| match received {
                    Received::Arrival(arrival) => {
                        this.head().drops().add(&OVERFLOW, socket.lost(&arrival.notes).into());
                        each(arrival);
                    }
                    Received::Unusable => this.head().drops().count(&reason::TOO_BIG),
                },
            );
        match outcome {
            Ok(count) if count == wanted && wanted > 1 => left -= count,
            Ok(count) => {
                let lost = if count > 0 { socket.lost_untold() } else { 0 };
                this.head().drops().add(&OVERFLOW, lost.into());
                return Ok(true);
            }
            Err(error) => match error.kind() {
                io::ErrorKind::Interrupted if !waits => {}
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => return Ok(true),
                // The pool counts its own failures; the datagrams stay where they are.
                io::ErrorKind::OutOfMemory => return Ok(false),
                _ => return Err(error),
            },
        }
    }
    Ok(false)
}

/// Takes a run of datagrams of `segment` octets each apart, without copying; 0 stands for a single
/// one.
pub(crate) fn split(
    this: &ProtocolRef,
    message: Message,
    segment: usize,
    mut each: impl FnMut(Message),
) {
    let mut left = message;
    while segment > 0 && left.len() > segment {
        match left.split_front(segment) {
            Ok(datagram) => each(datagram),
            Err(_) => {
                let datagrams = left.len().div_ceil(segment);
                drop(left);
                this.head().drops().add(&reason::NO_BUFFERS, datagrams as u64);
                return;
            }
        }
    }
    each(left);
}

/// Shows what the socket complains about, after `error`, to `each`, and counts every datagram that
/// did not reach its peer.
pub(crate) fn complaints(
    socket: &Socket,
    this: &ProtocolRef,
    error: &io::Error,
    mut each: impl FnMut(Complaint),
) {
    for n in 0..COMPLAINTS_MAX {
        match socket.complaint() {
            Ok(Some(complaint)) => {
                // One that the socket makes itself was counted where the datagram was handed over.
                if complaint.is_from_network() {
                    let errno = complaint.reported.errno;
                    let why = reason_of(&io::Error::from_raw_os_error(errno));
                    this.head().drops().count(why);
                    each(complaint);
                }
            }
            Ok(None) if n > 0 => return,
            Ok(None) => return this.head().drops().count(reason_of(error)),
            Err(_) => return this.head().drops().count(&DEVICE_ERROR),
        }
    }
}
