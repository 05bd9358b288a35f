//! Conversations of several protocols above that call through one session below, in a layer that
//! carries calls in messages and finds the call of a reply by its number.
//!
//! The key of such a layer tells apart the conversations over one session below: [`FIRST`] takes
//! what arrives; those of further protocols have a number of the protocol above.

use crate::layer::{Arrival, Conversation, Layer, Layered, One};
use xk_core::object::{OpenError, Refused};
use xk_core::participant::AddressError;
use xk_core::{
    Kernel, Message, Part, Participant, Participants, ProtocolRef, Reason, SessionRef, Upper,
};

/// Number of the first conversation over a session below.
pub const FIRST: u32 = 0;

fn own(upper: &ProtocolRef) -> u32 {
    upper.id().0.wrapping_add(1)
}

/// Our own end, which is any unless the participants say more.
///
/// # Errors
/// [`AddressError`].
pub fn local(ends: &mut Participants) -> Result<&mut Participant, AddressError> {
    let local = ends.local_mut()?;
    if local.is_empty() {
        local.push(Part::Any);
    }
    Ok(local)
}

/// Opens a session below that `admit` agrees to, and the conversation of `upper` over it: the first
/// one, unless that is another protocol's.
///
/// # Errors
/// [`OpenError`].
pub fn open<L: Layer<N, Key = u32>, const N: usize>(
    all: &Layered<L, N>,
    cx: &Kernel,
    this: &ProtocolRef,
    upper: &ProtocolRef,
    mut ends: Participants,
    admit: impl FnOnce(&SessionRef) -> Result<(), OpenError>,
) -> Result<SessionRef, OpenError> {
    ends.check_one_peer()?;
    local(&mut ends)?;
    let lower = all.lower.open(cx, Upper::new(this), ends)?;
    admit(&lower).inspect_err(|_| lower.close(cx))?;
    let key = match all.find(&lower, FIRST) {
        Some(session) if session.head().upper() != upper.id() => own(upper),
        _ => FIRST,
    };
    all.open_by(cx, this, upper, One(lower), key)
}

/// Has `serve` take a request at the conversation of `server`, the protocol that serves, over the
/// session below of one that another protocol has opened.
///
/// # Errors
/// The request, for the reason `none` if nothing serves, or as of [`Layered::made`].
#[cold]
pub fn serve_by<L: Layer<N, Key = u32>, const N: usize>(
    one: &Conversation<L, N>,
    cx: &Kernel,
    this: &SessionRef,
    server: Option<ProtocolRef>,
    none: &'static Reason,
    request: Message,
    serve: impl FnOnce(&Conversation<L, N>, &SessionRef, Message) -> Result<(), Refused>,
) -> Result<(), Refused> {
    let found = match (server, this.protocol(cx)) {
        (Some(server), Some(this)) => {
            let at = Arrival { cx, this: &this, lower: one.lower() };
            one.all.made(at, &server, own(&server))
        }
        _ => Err(none),
    };
    let why = match &found {
        Ok(session) => match session.body().filter(|_| session != this) {
            Some(own) => return serve(own, session, request),
            None => none,
        },
        Err(why) => why,
    };
    Err(this.refuse(cx, request, why))
}
