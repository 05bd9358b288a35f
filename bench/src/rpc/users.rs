//! Requests of these octets, and calls with them.

use crate::cable::HEADROOM;
use xk_core::object::CallError;
use xk_core::{Kernel, Message, SessionRef};

/// A request of these octets.
#[inline]
pub(crate) fn request(cx: &Kernel, octets: &[u8]) -> Option<Message> {
    cx.pool().copy_from(HEADROOM, octets).ok()
}

/// One call.
///
/// # Errors
/// [`CallError`].
#[inline]
pub(crate) fn call(cx: &Kernel, session: &SessionRef, octets: &[u8]) -> Result<(), CallError> {
    let message = request(cx, octets).ok_or(xk_core::object::PushError::NoBuffers)?;
    session.call(cx, message).map(drop)
}
