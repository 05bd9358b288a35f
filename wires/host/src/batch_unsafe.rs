//! The system calls on UDP sockets that carry many datagrams at once, and those that rustix lacks.
//!
//! Source: recvmmsg(2), sendmmsg(2), recvmsg(2), udp(7), ip(7).

use std::io;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

use xk_core::{Message, Pool};
use xk_kit::control::Start;

use crate::address::{CONTROL_OCTETS, Control, NAME_OCTETS, Name, Notes, Reported, decode, encode};

/// Datagrams, or runs of them, that one system call carries.
pub(crate) const BATCH: usize = 16;
/// Octets of a receive buffer that most datagrams fit into.
const FIRST_OCTETS: usize = 1856;
/// Octets of the longest datagram, or of the longest run of them that the system joins.
const OCTETS_MAX: usize = 65_535;
/// Slices that one datagram or run may have (`UIO_MAXIOV`).
pub(crate) const SLICES_MAX: usize = 1024;

/// Number of arrivals that a socket has lost since it was opened (`SO_MEMINFO`, socket(7);
/// `SK_MEMINFO_DROPS` of `include/uapi/linux/sock_diag.h`).
pub(crate) fn losses(socket: BorrowedFd<'_>) -> io::Result<u32> {
    const DROPS: usize = 8;
    let mut values = [0_u32; DROPS + 1];
    // SAFETY: any octets are valid numbers.
    unsafe { xk_linux::get(socket, libc::SOL_SOCKET, libc::SO_MEMINFO, &mut values) }?;
    Ok(values[DROPS])
}

/// A header that points nowhere.
fn no_header() -> libc::mmsghdr {
    // SAFETY: `mmsghdr` is plain data: null pointers and lengths of zero are valid.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

const NO_SLICE: libc::iovec = libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 };

/// One arrival.
pub(crate) struct Arrival {
    /// The datagram, or several behind one another (see [`Notes::segment`]).
    pub(crate) message: Message,
    /// Sender of the datagram.
    pub(crate) from: SocketAddr,
    /// Notes of the system about it.
    pub(crate) notes: Notes,
}

/// Result in one place of a batch.
pub(crate) enum Received {
    /// A datagram.
    Arrival(Arrival),
    /// One that was longer than any should be, or whose sender has no address.
    Unusable,
}

/// Buffers of one datagram: most fit the first, long ones and joined ones go on in the second.
#[derive(Default)]
struct Buffers {
    first: Option<Message>,
    second: Option<Message>,
}

/// Receives batches. Its buffers are messages of the pool, so that an arrival is a message without
/// a copy.
///
/// Buffers are kept from one call to the next; [`Receiver::release`] gives them back.
pub(crate) struct Receiver {
    places: Box<[Buffers; BATCH]>,
    headers: Box<[libc::mmsghdr; BATCH]>,
    slices: Box<[[libc::iovec; 2]; BATCH]>,
    names: Box<[Name; BATCH]>,
    controls: Box<[Control; BATCH]>,
    /// Places that were prepared and not used since.
    ready: [bool; BATCH],
    /// Calls in a row that found one datagram, or were not asked for more.
    singles: u8,
}

/// After so many calls for one datagram that found it, one asks for many: where they come one by
/// one, the call for many takes longer, for it looks for the second.
const SINGLES_MAX: u8 = 16;

impl Receiver {
    pub(crate) fn new() -> Self {
        Self {
            places: Box::default(),
            headers: Box::new(std::array::from_fn(|_| no_header())),
            slices: Box::new([[NO_SLICE; 2]; BATCH]),
            names: Box::new([Name([0; NAME_OCTETS]); BATCH]),
            controls: Box::new([Control([0; CONTROL_OCTETS]); BATCH]),
            ready: [false; BATCH],
            singles: 0,
        }
    }

    /// Gives the buffers back.
    pub(crate) fn release(&mut self) {
        *self.places = Default::default();
        self.ready = [false; BATCH];
    }

    /// Fills the places that lack buffers; answers how many from the first on are ready.
    fn prepare(&mut self, pool: &Pool, headroom: usize, wanted: usize) -> usize {
        for at in 0..wanted {
            if self.ready[at] {
                continue;
            }
            let place = &mut self.places[at];
            if place.first.is_none() {
                place.first = pool.alloc(headroom, FIRST_OCTETS).ok();
            }
            if place.second.is_none() {
                place.second = pool.alloc(0, OCTETS_MAX - FIRST_OCTETS).ok();
            }
            let slices = &mut self.slices[at];
            let Some(first) = place.first.as_mut().and_then(Message::front_mut) else {
                return at;
            };
            slices[0] = slice_of(first);
            let second = place.second.as_mut().and_then(Message::front_mut);
            slices[1] = second.map_or(NO_SLICE, slice_of);
            let header = &mut self.headers[at].msg_hdr;
            header.msg_name = (&raw mut self.names[at]).cast();
            header.msg_namelen = NAME_OCTETS as libc::socklen_t;
            header.msg_iov = slices.as_mut_ptr();
            header.msg_iovlen = 2;
            header.msg_control = (&raw mut self.controls[at]).cast();
            header.msg_controllen = CONTROL_OCTETS;
            header.msg_flags = 0;
            self.ready[at] = true;
        }
        wanted
    }

    /// Number of datagrams that the next call asks for, of `budget`.
    pub(crate) fn wanted(&self, budget: usize) -> usize {
        match self.singles {
            0..SINGLES_MAX => 1,
            _ => budget.min(BATCH),
        }
    }

    /// Takes at most `wanted` datagrams and shows each; answers how many there were. If it `waits`,
    /// it waits for the first, as long as the socket does.
    ///
    /// # Errors
    /// What the system says, such as `WouldBlock`, or an error about a datagram sent before;
    /// `OutOfMemory` if the pool has no buffer.
    pub(crate) fn receive(
        &mut self,
        socket: BorrowedFd<'_>,
        (pool, headroom): (&Pool, usize),
        (wanted, waits): (usize, bool),
        mut each: impl FnMut(Received),
    ) -> io::Result<usize> {
        let ready = self.prepare(pool, headroom, wanted.min(BATCH));
        if ready == 0 {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        let flags = if waits { 0 } else { libc::MSG_DONTWAIT };
        let fd = socket.as_raw_fd();
        let headers = self.headers.as_mut_ptr();
        // SAFETY: the first `ready` headers were prepared now or by an earlier call and not used
        // since: each points to a name, two slices and control data in boxes of `self`, and the
        // slices to the octets of two messages that `self.places` has held since and that nothing
        // else sees (`front_mut` gives only such).
        let count = unsafe {
            if ready == 1 {
                libc::recvmsg(fd, &raw mut (*headers).msg_hdr, flags)
            } else {
                let none = ptr::null_mut();
                libc::recvmmsg(fd, headers, ready as _, flags as _, none) as isize
            }
        };
        let mut count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
        if ready == 1 {
            self.headers[0].msg_len = count as u32;
            count = 1;
        }
        self.singles = match (wanted, count) {
            (1, _) => self.singles.saturating_add(1),
            (_, 1) => 0,
            _ => SINGLES_MAX,
        };
        for at in 0..count.min(BATCH) {
            each(self.take(at));
        }
        Ok(count)
    }

    /// The datagram that came to a place.
    fn take(&mut self, at: usize) -> Received {
        self.ready[at] = false;
        let header = &self.headers[at];
        let octets = header.msg_len as usize;
        let place = &mut self.places[at];
        if header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0 {
            return Received::Unusable;
        }
        let named = (header.msg_hdr.msg_namelen as usize).min(NAME_OCTETS);
        let Some(from) = decode(&self.names[at].0[..named]) else {
            return Received::Unusable;
        };
        let controlled = header.msg_hdr.msg_controllen.min(CONTROL_OCTETS);
        let notes = Notes::read(&self.controls[at].0[..controlled]);
        let Some(mut message) = place.first.take() else {
            return Received::Unusable;
        };
        if octets <= FIRST_OCTETS {
            message.truncate(octets);
        } else if let Some(mut rest) = place.second.take() {
            rest.truncate(octets - FIRST_OCTETS);
            message.join(rest);
        }
        Received::Arrival(Arrival { message, from, notes })
    }
}

fn slice_of(octets: &mut [u8]) -> libc::iovec {
    libc::iovec { iov_base: octets.as_mut_ptr().cast(), iov_len: octets.len() }
}

/// Takes the next report about a datagram sent before, with the address that it was sent to, its
/// first octets, and what the system notes; `None` if there is none.
#[expect(clippy::type_complexity, reason = "the parts of one answer, taken apart at once")]
pub(crate) fn take_report(
    socket: BorrowedFd<'_>,
) -> io::Result<Option<(Reported, Option<SocketAddr>, Start, Notes)>> {
    let mut quote = [0_u8; Start::OCTETS_MAX];
    let mut name = Name([0; NAME_OCTETS]);
    let mut control = Control([0; CONTROL_OCTETS]);
    let mut slice = slice_of(&mut quote);
    let mut header = no_header().msg_hdr;
    header.msg_name = (&raw mut name).cast();
    header.msg_namelen = NAME_OCTETS as libc::socklen_t;
    header.msg_iov = &raw mut slice;
    header.msg_iovlen = 1;
    header.msg_control = (&raw mut control).cast();
    header.msg_controllen = CONTROL_OCTETS;
    let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
    // SAFETY: the header points to a name, a slice and control data that live on this stack, of the
    // sizes given.
    let count = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, flags) };
    let Ok(count) = usize::try_from(count) else {
        let error = io::Error::last_os_error();
        return match error.kind() {
            io::ErrorKind::WouldBlock => Ok(None),
            _ => Err(error),
        };
    };
    let controlled = &control.0[..header.msg_controllen.min(CONTROL_OCTETS)];
    let named = &name.0[..(header.msg_namelen as usize).min(NAME_OCTETS)];
    let Some(reported) = Reported::read(controlled) else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    let notes = Notes::read(controlled);
    let start = Start::new(quote.get(..count).unwrap_or(&quote));
    Ok(Some((reported, decode(named), start, notes)))
}

/// One datagram, or a run of them to one peer, on its way to the system.
pub(crate) struct Parcel {
    to: SocketAddr,
    control: Control,
    control_octets: usize,
    /// First of its slices: they end where those of the next begin.
    slices_from: usize,
}

/// Sends batches: the arrays that the system call reads, kept from one to the next.
pub(crate) struct Batch {
    headers: Box<[libc::mmsghdr; BATCH]>,
    names: Box<[Name; BATCH]>,
    parcels: Vec<Parcel>,
    slices: Vec<libc::iovec>,
}

/// A batch being filled. It borrows the octets that it points to until it is sent.
pub(crate) struct Filling<'a> {
    batch: &'a mut Batch,
}

impl Batch {
    pub(crate) fn new() -> Self {
        Self {
            headers: Box::new(std::array::from_fn(|_| no_header())),
            names: Box::new([Name([0; NAME_OCTETS]); BATCH]),
            parcels: Vec::with_capacity(BATCH),
            slices: Vec::with_capacity(4 * BATCH),
        }
    }

    /// Begins a batch of octets that live for `'a`.
    pub(crate) fn fill<'a>(&'a mut self) -> Filling<'a> {
        self.parcels.clear();
        self.slices.clear();
        Filling { batch: self }
    }
}

impl<'a> Filling<'a> {
    /// Number of parcels.
    pub(crate) fn len(&self) -> usize {
        self.batch.parcels.len()
    }

    /// Begins a parcel. At most [`BATCH`] of them.
    pub(crate) fn parcel(&mut self, to: SocketAddr) {
        self.batch.parcels.push(Parcel {
            to,
            control: Control([0; CONTROL_OCTETS]),
            control_octets: 0,
            slices_from: self.batch.slices.len(),
        });
    }

    /// Adds control data to the latest parcel.
    pub(crate) fn control(&mut self, level: i32, kind: i32, data: &[u8]) {
        if let Some(parcel) = self.batch.parcels.last_mut() {
            let at = parcel.control_octets;
            parcel.control_octets =
                crate::address::put_control(&mut parcel.control, at, level, kind, data);
        }
    }

    /// Adds octets to the latest parcel. At most [`SLICES_MAX`] times for one.
    pub(crate) fn slice(&mut self, octets: &'a [u8]) {
        self.batch.slices.push(libc::iovec {
            iov_base: octets.as_ptr().cast_mut().cast(),
            iov_len: octets.len(),
        });
    }

    /// Slices of the latest parcel.
    pub(crate) fn slices(&self) -> usize {
        let from = self.batch.parcels.last().map_or(0, |p| p.slices_from);
        self.batch.slices.len() - from
    }

    /// Sends all parcels without waiting; answers how many the system took, from the first on.
    ///
    /// # Errors
    /// What the system says of the first, if it took none.
    pub(crate) fn send(self, socket: BorrowedFd<'_>) -> io::Result<usize> {
        let Batch { headers, names, parcels, slices } = self.batch;
        let count = parcels.len().min(BATCH);
        let mut slices_end = slices.len();
        for at in (0..count).rev() {
            let parcel = &mut parcels[at];
            let header = &mut headers[at].msg_hdr;
            header.msg_name = (&raw mut names[at]).cast();
            header.msg_namelen = encode(parcel.to, &mut names[at]) as libc::socklen_t;
            let own = &mut slices[parcel.slices_from..slices_end];
            slices_end = parcel.slices_from;
            header.msg_iov = own.as_mut_ptr();
            header.msg_iovlen = own.len();
            header.msg_controllen = parcel.control_octets;
            header.msg_control = match parcel.control_octets {
                0 => ptr::null_mut(),
                _ => (&raw mut parcel.control).cast(),
            };
        }
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        let fd = socket.as_raw_fd();
        // SAFETY: the first `count` headers were filled above: each points to a name in a box, to
        // its own part of `slices` and to its parcel's control data, none of which moves before the
        // call returns; the slices point to octets borrowed for `'a`, which the system only reads.
        let taken = unsafe {
            if count == 1 {
                // The call for many takes longer for one.
                match libc::sendmsg(fd, &raw const headers[0].msg_hdr, flags) {
                    -1 => -1,
                    _ => 1,
                }
            } else {
                libc::sendmmsg(fd, headers.as_mut_ptr(), count as _, flags as _) as isize
            }
        };
        usize::try_from(taken).map_err(|_| io::Error::last_os_error())
    }
}
