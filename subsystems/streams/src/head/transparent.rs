//! Transparent ioctls: the driver says what it wants of the user's memory, by M_COPYIN and
//! M_COPYOUT, and gets it by M_IOCDATA. The user's memory is the slice that the call lends, and an
//! address is an offset in it.

use super::{Command, Info, Stream};
use crate::block::{Kind, Mblk};
use crate::errno::Errno;
use core::time::Duration;
use xk_core::Kernel;

/// The count of an M_IOCTL that is transparent: its data is the argument, an address (TRANSPARENT).
pub const TRANSPARENT: u32 = u32::MAX;

/// Request of M_COPYIN and M_COPYOUT (`copyreq`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyReq {
    /// Command of the ioctl.
    pub command: Command,
    /// The number of the request.
    pub id: u32,
    /// Address in the user's memory.
    pub address: u32,
    /// Number of octets.
    pub size: u32,
    /// The driver's own, which comes back with the answer.
    pub private: u32,
}

/// Answer of M_IOCDATA (`copyresp`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyResp {
    /// Command of the ioctl.
    pub command: Command,
    /// The number of the request.
    pub id: u32,
    /// Why it failed; 0 if it did not. After a failure the driver releases the request.
    pub error: Errno,
    /// The driver's own, of the question.
    pub private: u32,
}

impl CopyReq {
    /// Reads an M_COPYIN or M_COPYOUT.
    pub fn of(mp: &Mblk) -> Option<Self> {
        let Info { command, id, count, error, value } = Info::of(mp)?;
        Some(Self { command, id, address: count, size: error.0, private: value })
    }
}

impl CopyResp {
    /// Reads an M_IOCDATA.
    pub fn of(mp: &Mblk) -> Option<Self> {
        let Info { command, id, error, value, .. } = Info::of(mp)?;
        Some(Self { command, id, error, private: value })
    }
}

/// Writes a question over the head of an M_IOCTL or M_IOCDATA.
fn ask(mut mp: Mblk, kind: Kind, address: u32, size: u32, private: u32) -> Mblk {
    if let Some(info) = Info::of(&mp) {
        let words = Info { count: address, error: Errno(size), value: private, ..info };
        let _ = words.write_to(&mut mp);
    }
    mp.of_kind(kind)
}

/// The address that a transparent M_IOCTL has for its argument; none for one of `I_STR`.
pub fn argument(mp: &Mblk) -> Option<u32> {
    let info = Info::of(mp).filter(|info| info.count == TRANSPARENT)?;
    let _ = info;
    mp.cont()?.octets().first_chunk().map(|octets| u32::from_le_bytes(*octets))
}

/// Turns an M_IOCTL or M_IOCDATA into the question for so many octets at this address.
#[must_use]
pub fn copyin(mut mp: Mblk, (address, size): (u32, u32), private: u32) -> Mblk {
    drop(mp.unlinkb());
    ask(mp, Kind::CopyIn, address, size, private)
}

/// Turns an M_IOCTL or M_IOCDATA into the wish that these octets be written to this address.
#[must_use]
pub fn copyout(mut mp: Mblk, address: u32, octets: Mblk, private: u32) -> Mblk {
    drop(mp.unlinkb());
    let size = octets.size() as u32;
    ask(mp, Kind::CopyOut, address, size, private).linked(octets)
}

impl Stream {
    /// Sends a transparent ioctl with this argument down and does what the driver asks of `memory`,
    /// until it answers. It waits without end.
    ///
    /// # Errors
    /// EFAULT if the driver asks for what is not in `memory`; the error of the refusal, EINVAL if
    /// it has none; ENXIO hung up; ENOSR without a block; EPROTO for an answer that is none.
    pub fn transparent(
        &self,
        cx: &Kernel,
        command: Command,
        argument: u32,
        memory: &mut [u8],
    ) -> Result<u32, Errno> {
        self.check_sending_ioctl()?;
        self.begin(cx, command, TRANSPARENT, &argument.to_le_bytes())?;
        let done = loop {
            match self.answer(cx, Duration::MAX) {
                Ok(mp) if matches!(mp.kind(), Kind::CopyIn | Kind::CopyOut) => {
                    if let Err(error) = self.copy(cx, mp, memory) {
                        break Err(error);
                    }
                }
                answer => break answer.and_then(super::ioctl::judge),
            }
        };
        self.end(cx);
        done.map(|answer| Info::of(&answer).map_or(0, |info| info.value))
    }

    /// Does what one question asks of the user's memory, and answers it.
    fn copy(&self, cx: &Kernel, mut mp: Mblk, memory: &mut [u8]) -> Result<(), Errno> {
        let request = CopyReq::of(&mp).ok_or(Errno::EPROTO)?;
        let behind = mp.unlinkb();
        let from = request.address as usize;
        let to = from.checked_add(request.size as usize);
        let range = to.and_then(|to| memory.get_mut(from..to));
        let (error, data) = match (mp.kind(), range, behind) {
            (Kind::CopyIn, Some(octets), _) => match self.blocks().copy(Kind::Data, 0, octets) {
                Some(data) => (Errno(0), Some(data)),
                None => (Errno::ENOSR, None),
            },
            (_, Some(octets), Some(data)) if data.size() == octets.len() => {
                octets.copy_from_slice(&data.to_vec());
                (Errno(0), None)
            }
            (_, Some([]), None) => (Errno(0), None),
            _ => (Errno::EFAULT, None),
        };
        self.respond(cx, mp, error, data);
        if error == Errno(0) { Ok(()) } else { Err(error) }
    }

    /// Answers a question by M_IOCDATA.
    pub(super) fn respond(&self, cx: &Kernel, mut mp: Mblk, error: Errno, data: Option<Mblk>) {
        drop(mp.unlinkb());
        let is_written = Info::of(&mp).is_some_and(|info| {
            let count = data.as_ref().map_or(0, Mblk::size) as u32;
            Info { count, error, ..info }.write_to(&mut mp)
        });
        if !is_written {
            return self.core.count_loss(mp);
        }
        let mp = crate::tpi::with_data(mp.of_kind(Kind::IocData), data);
        self.head.write_side().putnext(cx, mp);
    }
}
