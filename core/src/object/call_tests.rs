//! Calls through two layers: counts, errors that name their layer, closed sessions.

use super::*;
use crate::kernel::Config;
use crate::message::{Pool, PoolConfig};
use crate::random::Random;
use crate::shepherd::{Limits, NoSwitch, Shepherds};
use alloc::boxed::Box;

static NO_PROCEDURE: Reason = Reason::new("no such procedure", reason::Class::NoProtocol);

struct Still;
impl Protocol for Still {}

/// Gives the request back as the reply; an empty one finds no session.
struct Echo;

impl Session for Echo {
    fn call(&self, _: &Kernel, _: &SessionRef, request: Message) -> Result<Message, CallError> {
        if request.is_empty() {
            return Err(CallError::rejected(&NO_PROCEDURE));
        }
        Ok(request)
    }

    fn call_pop(
        &self,
        cx: &Kernel,
        this: &SessionRef,
        request: Message,
    ) -> Result<Message, Refused> {
        if request.is_empty() {
            return Err(this.refuse(cx, request, &NO_PROCEDURE));
        }
        Ok(request)
    }
}

/// Passes calls on.
struct Through(SessionRef);

impl Session for Through {
    fn call(&self, cx: &Kernel, _: &SessionRef, request: Message) -> Result<Message, CallError> {
        self.0.call(cx, request)
    }
}

fn kernel(seed: u64) -> Kernel {
    Kernel::new(Config {
        random: Random::new(seed),
        pool: Pool::new(&PoolConfig::default()).unwrap(),
        shepherds: Shepherds::new(Box::new(NoSwitch), Limits::default()),
        timers_max: 8,
    })
}

#[test]
fn an_error_names_the_layer_that_made_it() {
    let cx = kernel(1);
    let below = cx.add_protocol("echo", "below", Still);
    let above = cx.add_protocol("through", "above", Still);
    let echo = cx.new_session(&below, &above, Echo);
    let through = cx.new_session(&above, &above, Through(echo.clone()));
    let message = |octets: &[u8]| cx.pool().copy_from(8, octets).unwrap();

    let reply = through.call(&cx, message(b"hello")).unwrap();
    assert!(reply.eq_octets(b"hello"));
    assert_eq!((through.head().sent(), echo.head().sent()), (1, 1));

    let error = through.call(&cx, message(b"")).unwrap_err();
    assert_eq!(error.cause, CallCause::Rejected(Rejection::new(&NO_PROCEDURE)));
    assert_eq!(error.layer, Some(below.id()));
    assert_eq!(error.describe(&cx), "below: the peer refused the call: no such procedure");

    assert!(echo.call_pop(&cx, message(b"up")).is_ok());
    assert!(echo.call_pop(&cx, message(b"")).is_err());
    assert_eq!(echo.head().received(), 2);
    assert_eq!(below.head().drops().of(&NO_PROCEDURE), 1);

    echo.abort(&cx);
    let error = through.call(&cx, message(b"late")).unwrap_err();
    assert_eq!((error.cause, error.layer), (CallCause::Closed, Some(below.id())));
    assert!(echo.call_pop(&cx, message(b"late")).is_err());
    assert_eq!(below.head().drops().of(&reason::CLOSED), 2);
}

#[test]
fn a_boot_has_a_name_that_is_not_zero() {
    let [first, again, other] = [1, 1, 2].map(|seed| kernel(seed).boot_id());
    assert_eq!(first, again);
    assert_ne!(first, other);
    assert_ne!(first, 0);
}
