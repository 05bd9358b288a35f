//! Sessions of several protocols above that call through one session below, in a layer that finds
//! the call of a reply by its number.

use xk_core::object::SessionTable;
use xk_core::{ProtocolRef, SessionRef};

/// Names a session: by the one below, and 0 for the first over that, which takes what arrives;
/// others have a number of the protocol above.
pub type Key = (u64, u32);

/// The key of the first session over one below.
#[must_use]
pub fn first(lower: &SessionRef) -> Key {
    (lower.id().0, 0)
}

/// The key of the session that is `upper`'s alone.
#[must_use]
pub fn own(lower: &SessionRef, upper: &ProtocolRef) -> Key {
    (lower.id().0, upper.id().0.wrapping_add(1))
}

/// The key under which `upper` opens a session over `lower`: the first's, unless that is another
/// protocol's.
#[must_use]
pub fn key(sessions: &SessionTable<Key>, lower: &SessionRef, upper: &ProtocolRef) -> Key {
    match sessions.get(&first(lower)) {
        Some(session) if session.head().upper() != upper.id() => own(lower, upper),
        _ => first(lower),
    }
}
