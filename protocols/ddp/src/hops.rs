//! Sessions to the next stations of what is forwarded, kept open for a while: the next hop may
//! still have to be found, and the next datagram is likely to go the same way.

use crate::ports::Port;
use alloc::collections::VecDeque;
use core::cell::RefCell;
use xk_appletalk::addr::Node;
use xk_core::object::OpenError;
use xk_core::{Kernel, Part, Participant, Participants, SessionRef, Upper};
use xk_kit::machine::At;
use xk_kit::net::appletalk::node;

/// Sessions that are kept.
const KEPT_MAX: usize = 64;

/// A session below, and where it leads.
type Hop = ((usize, Node), SessionRef);

/// Sessions that are kept, the one used last in front.
#[derive(Default)]
pub(crate) struct Hops(RefCell<VecDeque<Hop>>);

/// Opens a session to a node of a link, or to a group.
pub(crate) fn open(
    at: At<'_>,
    port: &Port,
    to: Node,
    group: Option<[u8; 6]>,
) -> Result<SessionRef, OpenError> {
    let peer = match group {
        Some(group) => Participant::of(Part::Ether(group)),
        None => node(to.net, to.node),
    };
    let lower = port.lower.open(at.cx, Upper::new(at.this), Participants::pair(Part::Any, peer))?;
    lower.watch();
    Ok(lower)
}

impl Hops {
    /// The session to a node over a port.
    pub(crate) fn to(&self, at: At<'_>, nth: usize, port: &Port, to: Node) -> Option<SessionRef> {
        let place = (nth, to);
        let found = {
            let mut kept = self.0.borrow_mut();
            let found = kept.iter().position(|(known, _)| *known == place);
            found.and_then(|found| kept.remove(found))
        };
        let session = match found {
            Some((_, session)) if !session.head().is_closed() => session,
            gone => {
                gone.into_iter().for_each(|(_, session)| session.close(at.cx));
                open(at, port, to, None).ok()?
            }
        };
        let spare = {
            let mut kept = self.0.borrow_mut();
            kept.push_front((place, session.clone()));
            (kept.len() > KEPT_MAX).then(|| kept.pop_back()).flatten()
        };
        spare.into_iter().for_each(|(_, session)| session.close(at.cx));
        Some(session)
    }

    /// Closes all.
    pub(crate) fn clear(&self, cx: &Kernel) {
        let kept = self.0.take();
        kept.into_iter().for_each(|(_, session)| session.close(cx));
    }
}
