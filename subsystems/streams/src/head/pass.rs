//! Streams passed over stream pipes: `I_SENDFD` and `I_RECVFD`.

use super::Stream;
use crate::block::{Kind, Mblk};
use crate::errno::Errno;
use alloc::rc::Rc;
use xk_core::Kernel;

impl Stream {
    /// The two streams of a pipe know each other.
    pub(crate) fn pair(one: &Rc<Stream>, other: &Rc<Stream>) {
        one.partner.replace(Some(Rc::downgrade(other)));
        other.partner.replace(Some(Rc::downgrade(one)));
    }

    /// Whether it is one end of a pipe.
    pub fn is_pipe(&self) -> bool {
        self.partner.borrow().is_some()
    }

    /// Passes a stream to the head at the other end of this pipe, past all modules (`I_SENDFD`).
    /// The one passed stays open, too, until the receiver closes it.
    ///
    /// # Errors
    /// EINVAL on what is no pipe; ENXIO hung up; EBADF if `passed` is closed; EAGAIN if the other
    /// head is full or no block is there; EBADF and the error of an M_ERROR as for all ioctls.
    pub fn sendfd(&self, cx: &Kernel, passed: &Stream) -> Result<(), Errno> {
        self.check_sending_ioctl()?;
        let partner = match &*self.partner.borrow() {
            None => return Err(Errno::EINVAL),
            Some(partner) => partner.upgrade().filter(|other| other.is_open()),
        };
        let partner = partner.ok_or(Errno::ENXIO)?;
        passed.check_open()?;
        if !partner.head.canput() {
            return Err(Errno::EAGAIN);
        }
        let octets = passed.token().to_le_bytes();
        let mp = self.blocks().copy(Kind::PassFp, 0, &octets).ok_or(Errno::EAGAIN)?;
        passed.opens.set(passed.opens.get() + 1);
        partner.arrive(cx, mp);
        Ok(())
    }

    /// Takes the stream that is passed first; waits for one (`I_RECVFD`).
    ///
    /// # Errors
    /// EBADMSG if another message is in front; EAGAIN on a stream that is not to wait; ENXIO hung
    /// up and nothing left; EINTR, and the error of an M_ERROR; EBADF if the stream is gone.
    pub fn recvfd(&self, cx: &Kernel) -> Result<Rc<Stream>, Errno> {
        let mp = self.getp(cx, super::Want::Any)?;
        if mp.kind() != Kind::PassFp {
            self.head.putbq(cx, mp);
            return Err(Errno::EBADMSG);
        }
        self.passed(&mp).ok_or(Errno::EBADF)
    }

    fn passed(&self, mp: &Mblk) -> Option<Rc<Stream>> {
        let token = mp.octets().first_chunk().map(|octets| u32::from_le_bytes(*octets))?;
        self.streams.upgrade()?.stream_of(token)
    }

    /// Closes the streams that wait here and that no user will take.
    pub(crate) fn drop_passed(&self, cx: &Kernel) {
        loop {
            let (mut at, mut found) = (0, None);
            self.head.each(|mp| {
                if found.is_none() && mp.kind() == Kind::PassFp {
                    found = Some(at);
                }
                at += 1;
            });
            let Some(mp) = found.and_then(|at| self.head.rmvq(cx, at)) else { return };
            if let Some(stream) = self.passed(&mp) {
                stream.close(cx);
            }
        }
    }
}
