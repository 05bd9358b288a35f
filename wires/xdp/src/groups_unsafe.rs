//! Frames for all and for groups, which the host's stack gets and we get as well: a packet socket
//! that hears nothing else.
//!
//! The redirect program gives a frame to one side only. So it leaves these to the host, and this
//! socket sees them on their way there.
//!
//! Source: packet(7); Linux `Documentation/networking/filter.rst`.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType};

use crate::interface_unsafe::Interface;

/// A packet socket on an interface.
#[derive(Debug)]
pub(crate) struct Groups {
    socket: OwnedFd,
}

/// One instruction of a socket's filter.
const fn code(code: u32, if_so: u8, if_not: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt: if_so, jf: if_not, k }
}

/// Takes a frame whose first octet has the group bit (IEEE 802, section 8.2), unless it had a VLAN
/// tag: the system has taken that off, so it would look like another frame.
const GROUPS: [libc::sock_filter; 6] = {
    use libc::{BPF_ABS, BPF_B, BPF_JEQ, BPF_JMP, BPF_JSET, BPF_K, BPF_LD, BPF_RET};
    let tag_present = (libc::SKF_AD_OFF + libc::SKF_AD_VLAN_TAG_PRESENT) as u32;
    [
        code(BPF_LD | BPF_B | BPF_ABS, 0, 0, tag_present),
        code(BPF_JMP | BPF_JEQ | BPF_K, 0, 3, 0),
        code(BPF_LD | BPF_B | BPF_ABS, 0, 0, 0),
        code(BPF_JMP | BPF_JSET | BPF_K, 0, 1, 1),
        code(BPF_RET | BPF_K, 0, 0, u32::MAX),
        code(BPF_RET | BPF_K, 0, 0, 0),
    ]
};

impl Groups {
    /// Opens the socket. It hears something if `listens`, and lets frames for every hardware
    /// address in if `promiscuous`.
    pub(crate) fn open(
        interface: &Interface,
        listens: bool,
        promiscuous: bool,
    ) -> io::Result<Self> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        // Without a protocol it receives nothing before it is bound.
        let socket = rustix::net::socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)?;
        let index = interface.index as libc::c_int;
        if promiscuous {
            let wanted = libc::packet_mreq {
                mr_ifindex: index,
                mr_type: libc::PACKET_MR_PROMISC as libc::c_ushort,
                mr_alen: 0,
                mr_address: [0; 8],
            };
            set(&socket, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &wanted)?;
        }
        if listens {
            set(&socket, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, &1i32)?;
            let mut filter = GROUPS;
            let program =
                libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
            set(&socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)?;
            bind(&socket, index)?;
        }
        Ok(Self { socket })
    }

    /// Puts the next frame there is into `room`, and gives its length, which may be greater than
    /// the room.
    ///
    /// # Errors
    /// Such as that the interface went down, once.
    pub(crate) fn receive(&self, room: &mut [u8]) -> io::Result<Option<usize>> {
        let flags = RecvFlags::DONTWAIT | RecvFlags::TRUNC;
        match rustix::net::recv(&self.socket, room, flags) {
            Ok((_, octets)) => Ok(Some(octets)),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Takes part in what an interface receives, whatever its EtherType.
fn bind(socket: &OwnedFd, index: libc::c_int) -> io::Result<()> {
    // SAFETY: `sockaddr_ll` is plain data in which all zeroes are valid.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as libc::c_ushort;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = index;
    let octets = size_of_val(&address) as libc::socklen_t;
    // SAFETY: the pointer and the length are those of one `sockaddr_ll`, which outlives the call.
    let answer = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), octets) };
    outcome(answer)
}

/// Sets an option. The callers give the structure that the option takes; the filter's points to its
/// instructions.
fn set<T>(socket: &OwnedFd, level: libc::c_int, option: libc::c_int, value: &T) -> io::Result<()> {
    let octets = size_of::<T>() as libc::socklen_t;
    let value = std::ptr::from_ref(value).cast();
    // SAFETY: the pointer and the length are those of one `T`, which outlives the call, as do the
    // instructions that a filter points to; the system only reads them.
    let answer = unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, value, octets) };
    outcome(answer)
}

fn outcome(answer: libc::c_int) -> io::Result<()> {
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
