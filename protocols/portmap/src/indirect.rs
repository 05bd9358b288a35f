//! Calls of procedures by way of this server (RFC 1833, sections 2.2 and 3.2: `CALLIT`, `BCAST`,
//! `INDIRECT`).
//!
//! They go to servers that stand on this very layer, and nowhere else: no datagram is sent on
//! behalf of others. The server learns the real caller, so that a stranger gains nothing by
//! coming this way.

use crate::protocol::Shared;
use crate::serve::{HEADROOM, Refusal, Request};
use crate::table::Mapped;
use crate::wire::{PROGRAM, procedure};
use alloc::string::String;
use xk_core::{Answer, Ask, Kernel, Message, Session, SessionRef};
use xk_kit::rpc::call::{NO_PROCEDURE, NO_PROGRAM, SYSTEM_ERROR};
use xk_kit::rpc::onc::ProcedureName;

/// The program that lets clients mount file systems: it trusts the address of the caller (RFC
/// 1813, appendix I).
const MOUNT: u32 = 100_005;

/// The session that the server sees: that of the request, but for the procedure.
struct Forwarded {
    call: ProcedureName,
    lower: SessionRef,
}

impl Session for Forwarded {
    fn describe(&self, _: &SessionRef) -> Option<String> {
        Some(alloc::format!("{}, called indirectly", self.call))
    }

    fn control(&self, cx: &Kernel, _: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        if self.call.answer(ask) {
            return Answer::Answered;
        }
        self.lower.control(cx, ask)
    }

    fn lower(&self) -> Option<&SessionRef> {
        Some(&self.lower)
    }
}

impl Shared {
    /// Has the call executed, and gives the mapping with the results.
    pub(crate) fn call_above(
        &self,
        request: &Request<'_>,
        call: ProcedureName,
        arguments: &[u8],
    ) -> Result<(Mapped, Message), Refusal> {
        let cx = request.cx;
        if !self.settings.indirect || matches!(call.program, PROGRAM | MOUNT) {
            return Err(&NO_PROCEDURE);
        }
        let mapped = self.table.exact(call.program, call.version, request.netid);
        let mapped = mapped.ok_or(&NO_PROGRAM)?;
        let null = ProcedureName { procedure: procedure::NULL, ..call };
        self.server_of(null).ok_or(&NO_PROGRAM)?;
        if call == null {
            // No protocol above hears of it, as of all calls of it (RFC 5531, section 8.1).
            let nothing = cx.pool().empty(HEADROOM).map_err(|_| &SYSTEM_ERROR)?;
            return Ok((mapped, nothing));
        }
        let (this, upper) = self.server_of(call).ok_or(&NO_PROCEDURE)?;
        let message = cx.pool().copy_from(HEADROOM, arguments);
        let message = message.map_err(|_| &SYSTEM_ERROR)?;
        let (lower, source) = (request.session.clone(), request.session.head().source());
        let session = cx.new_passive_session(&this, &upper, source, Forwarded { call, lower });
        session.hold();
        let participants = call.participants(cx, request.session);
        let done = upper.open_done(cx, &session, participants);
        let result = match done {
            Ok(()) => upper.call_demux(cx, &session, message).map_err(|refused| refused.reason),
            Err(unwanted) => Err(unwanted),
        };
        session.abort(cx);
        result.map(|results| (mapped, results))
    }
}
