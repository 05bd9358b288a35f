//! Questions about a connection that change nothing.

use crate::connection::Connection;
use crate::seq::Seq;
use xk_core::control::Question;
use xk_core::{Ask, Kernel, SessionRef};
use xk_kit::net::stream::{StreamInfo, StreamSoftError};

/// Put to a session by its protocol: is what it sent at this number not acknowledged?
struct Outstanding {
    seq: Seq,
    is: bool,
}

impl Question for Outstanding {
    const NAME: &'static str = "tcp-outstanding";
}

/// Whether what `session` sent at `seq` is not acknowledged.
pub(crate) fn has_outstanding(cx: &Kernel, session: &SessionRef, seq: Seq) -> bool {
    let told = session.ask(cx, Outstanding { seq, is: false });
    told.is_some_and(|told| told.is)
}

/// Answers such a question; false if it is none.
pub(crate) fn answer(connection: &Connection, ask: &mut Ask<'_>) -> bool {
    if let Some(question) = ask.get::<StreamInfo>() {
        *question = connection.info();
    } else if let Some(question) = ask.get::<StreamSoftError>() {
        question.error = connection.soft_error();
    } else if let Some(question) = ask.get::<Outstanding>() {
        question.is = connection.is_outstanding(question.seq);
    } else {
        return false;
    }
    true
}
