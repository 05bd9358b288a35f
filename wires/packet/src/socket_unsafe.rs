//! Options of packet sockets that are structures.
//!
//! Source: packet(7).

use std::io;
use std::os::fd::BorrowedFd;

/// Asks for a ring: `PACKET_RX_RING` or `PACKET_TX_RING`.
pub(crate) fn set_ring(
    socket: BorrowedFd<'_>,
    option: libc::c_int,
    ring: &libc::tpacket_req,
) -> io::Result<()> {
    // SAFETY: both options take one `tpacket_req`, which points to nothing.
    unsafe { xk_linux::set(socket, libc::SOL_PACKET, option, ring) }
}

/// Number of frames that were dropped since the last question (`PACKET_STATISTICS`).
pub(crate) fn dropped(socket: BorrowedFd<'_>) -> io::Result<u32> {
    let mut answer = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
    // SAFETY: any octets are valid in a `tpacket_stats`.
    unsafe { xk_linux::get(socket, libc::SOL_PACKET, libc::PACKET_STATISTICS, &mut answer) }?;
    Ok(answer.tp_drops)
}
