//! Sessions: a client's stands for one procedure of one peer, a server's for one procedure called
//! through one channel.

use crate::pool::ChannelPool;
use crate::protocol::Shared;
use crate::wire::{HEADER_OCTETS, Header, STATUS_OK, Type, reason_of, status_of};
use alloc::rc::Rc;
use xk_core::control::Describe;
use xk_core::object::{CallError, Closing, Refused};
use xk_core::{Answer, Ask, Kernel, Message, ProtocolRef, Session, SessionRef, reason};
use xk_kit::net::ports::less_header;
use xk_kit::rpc::call::{CancelCall, MyProcedure};
use xk_kit::rpc::call_layer::{bad_reply, pop_header, prepend, reply_with};

/// What a client's session is found by: the pool, the procedure and the upper protocol.
pub(crate) type ClientKey = (u64, u16, u32);
/// What a server's session is found by: the channel's session and the procedure.
pub(crate) type ServerKey = (u64, u16);

/// A client's session.
pub(crate) struct ClientSession {
    pub(crate) shared: Rc<Shared>,
    pub(crate) key: ClientKey,
    pub(crate) pool: Rc<ChannelPool>,
    /// The header of every call.
    pub(crate) template: [u8; HEADER_OCTETS],
    /// The header of every reply to one that was executed.
    pub(crate) expected: [u8; HEADER_OCTETS],
}

impl ClientSession {
    /// A reply that says no, or that is none.
    #[cold]
    fn other_reply(
        &self,
        cx: &Kernel,
        this: &SessionRef,
        mut reply: Message,
    ) -> Result<Message, CallError> {
        let octets = match pop_header::<HEADER_OCTETS>(&mut reply) {
            Ok(octets) => octets,
            Err(why) => return Err(bad_reply(cx, this, reply, why)),
        };
        match Header::parse(&octets) {
            Ok(header) if header.kind == Type::Reply && header.command == self.key.1 => {
                match header.status {
                    STATUS_OK => Ok(reply),
                    status => Err(CallError::rejected(reason_of(status))),
                }
            }
            _ => Err(bad_reply(cx, this, reply, &reason::MALFORMED)),
        }
    }
}

impl Session for ClientSession {
    #[inline]
    fn call(
        &self,
        cx: &Kernel,
        this: &SessionRef,
        mut request: Message,
    ) -> Result<Message, CallError> {
        prepend(&mut request, &self.template)?;
        let mut reply = self.pool.call(cx, this.id(), request)?;
        if reply.peek_in_place::<HEADER_OCTETS>() == Some(&self.expected) {
            reply.strip_in_place(HEADER_OCTETS);
            return Ok(reply);
        }
        self.other_reply(cx, this, reply)
    }

    fn control(&self, cx: &Kernel, this: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        if let Some(question) = ask.get::<MyProcedure>() {
            question.number = self.key.1.into();
            return Answer::Answered;
        }
        if let Some(question) = ask.get::<CancelCall>() {
            let tag = question.tag;
            return self.pool.cancel(cx, this.id(), tag);
        }
        if let Some(question) = ask.get::<Describe>() {
            let (command, opened) = (self.key.1, self.pool.opened());
            question.text = alloc::format!("calls procedure {command}, {opened} channels open");
            return Answer::Answered;
        }
        let channel = self.pool.some_channel();
        let answer = channel.map_or(Answer::Unknown, |channel| channel.control(cx, ask));
        if answer.is_answered() {
            less_header(ask, HEADER_OCTETS);
        }
        answer
    }

    fn close(&self, cx: &Kernel, this: &SessionRef) -> Closing {
        self.shared.clients.release(&self.key, this);
        if self.pool.leave(cx) {
            self.shared.forget_pool(&self.pool);
        }
        Closing::Done
    }
}

/// A session through which calls go with their header as it is, and their replies come back so: for
/// who forwards.
pub(crate) struct WholeSession {
    pub(crate) shared: Rc<Shared>,
    pub(crate) pool: Rc<ChannelPool>,
}

impl Session for WholeSession {
    fn call(&self, cx: &Kernel, this: &SessionRef, request: Message) -> Result<Message, CallError> {
        self.pool.call(cx, this.id(), request)
    }

    fn close(&self, cx: &Kernel, _: &SessionRef) -> Closing {
        if self.pool.leave(cx) {
            self.shared.forget_pool(&self.pool);
        }
        Closing::Done
    }
}

/// A server's session.
pub(crate) struct ServerSession {
    pub(crate) shared: Rc<Shared>,
    pub(crate) key: ServerKey,
    pub(crate) upper: ProtocolRef,
    pub(crate) lower: SessionRef,
    /// The header of every reply to a call that was executed.
    pub(crate) template: [u8; HEADER_OCTETS],
}

/// The reply that says why a call was refused.
#[cold]
pub(crate) fn refusal(command: u16, mut refused: Refused) -> Result<Message, Refused> {
    let header = Header::reply(command, status_of(refused.reason)).emit();
    refused.message.truncate(0);
    match prepend(&mut refused.message, &header) {
        Ok(()) => Ok(refused.message),
        Err(_) => Err(refused),
    }
}

impl Session for ServerSession {
    #[inline]
    fn call_pop(
        &self,
        cx: &Kernel,
        this: &SessionRef,
        request: Message,
    ) -> Result<Message, Refused> {
        match self.upper.call_demux(cx, this, request) {
            Ok(reply) => reply_with(cx, this, reply, &self.template),
            Err(refused) => refusal(self.key.1, refused),
        }
    }

    fn control(&self, cx: &Kernel, _: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        if let Some(question) = ask.get::<MyProcedure>() {
            question.number = self.key.1.into();
            return Answer::Answered;
        }
        if let Some(question) = ask.get::<Describe>() {
            question.text = alloc::format!("serves procedure {}", self.key.1);
            return Answer::Answered;
        }
        let answer = self.lower.control(cx, ask);
        if answer.is_answered() {
            less_header(ask, HEADER_OCTETS);
        }
        answer
    }

    fn lower(&self) -> Option<&SessionRef> {
        Some(&self.lower)
    }

    fn close(&self, _: &Kernel, this: &SessionRef) -> Closing {
        self.shared.servers.release(&self.key, this);
        Closing::Done
    }
}
