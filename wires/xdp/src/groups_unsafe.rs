//! A packet socket that receives only broadcast and group frames, which the host's stack needs as
//! well.
//!
//! The redirect program gives a frame either to the host or to the ring. So it leaves broadcast and
//! group frames to the host, and this socket sees them on their way there.
//!
//! Source: packet(7); Linux `Documentation/networking/filter.rst`.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::RecvFlags;
use xk_linux::Interface;

/// A packet socket on an interface.
#[derive(Debug)]
pub(crate) struct Groups {
    socket: OwnedFd,
    /// The interface's number.
    index: i32,
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
    /// Opens the socket. It receives frames only if `listens`. If `promiscuous`, the interface
    /// takes frames for every hardware address.
    pub(crate) fn open(
        interface: &Interface,
        listens: bool,
        promiscuous: bool,
    ) -> io::Result<Self> {
        let socket = xk_linux::packet_socket()?;
        let index = interface.index;
        if promiscuous {
            xk_linux::set_promiscuous(&socket, index)?;
        }
        if listens {
            xk_linux::set_number(&socket, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1)?;
            let mut filter = GROUPS;
            let program =
                libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
            // SAFETY: the option takes a `sock_fprog`, whose instructions are on this stack.
            unsafe { xk_linux::set(&socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program) }?;
            xk_linux::bind(&socket, index, libc::ETH_P_ALL as u16)?;
        }
        Ok(Self { socket, index })
    }

    /// Joins the interface to this group, or takes one join back.
    pub(crate) fn set(&self, group: [u8; 6], is_joined: bool) -> io::Result<()> {
        xk_linux::set_group(&self.socket, self.index, group, is_joined)
    }

    /// Puts the next frame there is into `room`, and gives its length, which may be greater than
    /// the room.
    ///
    /// # Errors
    /// Those of the system, such as, once, that the interface went down.
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
