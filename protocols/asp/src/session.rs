//! The sessions: that of a workstation, which calls, and that of a server, which serves.

use crate::protocol::{Address, Asp, AspAttention, TURN_WAIT_MAX};
use crate::wire::{self, Request};
use alloc::format;
use alloc::rc::Rc;
use alloc::string::String;
use core::cell::RefCell;
use xk_appletalk::asp::{Client, VERSION, result};
use xk_appletalk::atp::{DATA_OCTETS_MAX, Options, REPLY_OCTETS_MAX, RESPONSES_MAX};
use xk_core::object::{CallCause, CallError, Closing, PushError, Refused, SessionSlot};
use xk_core::shepherd::Semaphore;
use xk_core::{
    Answer, Ask, Kernel, Message, Participant, ProtocolRef, Session, SessionRef, Upper, reason,
};
use xk_kit::asks::HEADROOM;
use xk_kit::control::{MaxPacket, OptPacket};
use xk_kit::machine::Running;
use xk_kit::net::appletalk::now;
use xk_kit::rpc::call::{CallOptions, CallsAtOnce, SYSTEM_ERROR, Transaction};

/// A workstation's session.
pub(crate) struct Calling {
    shared: Rc<Running<Asp>>,
    /// The server's first socket.
    to: Participant,
    /// The session below that leads there.
    pub(crate) listener: SessionRef,
    pub(crate) client: RefCell<Option<Client<u8>>>,
    /// The session to the ASP session's own socket.
    pub(crate) opened: SessionSlot,
    /// Admits one command at a time.
    turn: Semaphore,
    /// The user octets by which the server asks for the data of the write under way, and those.
    pub(crate) write: RefCell<Option<([u8; 4], Message)>>,
    /// Told of attentions.
    pub(crate) upper: ProtocolRef,
}

impl Calling {
    pub(crate) fn new(
        all: &Rc<Running<Asp>>,
        to: Participant,
        listener: SessionRef,
        upper: Upper<'_>,
    ) -> Self {
        let (shared, upper, turn) = (Rc::clone(all), upper.receiver.clone(), Semaphore::new(1));
        let (client, opened, write) = Default::default();
        Self { shared, to, listener, client, opened, turn, write, upper }
    }

    /// The session below for commands; opens the session with the server if there is none.
    fn connect(&self, cx: &Kernel, options: Option<CallOptions>) -> Result<SessionRef, CallError> {
        if self.client.borrow().is_some()
            && let Some(session) = self.opened.live()
        {
            return Ok(session);
        }
        let socket = self.shared.settings.socket;
        let open = Request::OpenSession { socket, version: VERSION }.emit();
        let request = message(cx, options)?;
        let (_, user) =
            wire::call(cx, &self.listener, open, 1, self.shared.settings.tries, request)?;
        let client = Client::opened(now(cx), user, |socket| socket);
        let client = client.map_err(|_| CallError::rejected(&SYSTEM_ERROR))?;
        let opened = self.shared.act(cx, |at| self.shared.open_socket(at, &self.to, client.peer()));
        let session = opened.and_then(Result::ok).ok_or(CallCause::Push(PushError::NoRoute))?;
        self.shared.forget(cx, self, client.session());
        *self.client.borrow_mut() = Some(client);
        if let Some(old) = self.opened.replace(Some(session.clone())) {
            old.close(cx);
        }
        Ok(session)
    }

    /// Makes one call; `None` if the server says that the session is over.
    fn command(
        &self,
        cx: &Kernel,
        mut request: Message,
        options: Option<CallOptions>,
    ) -> Result<Option<Message>, CallError> {
        let session = self.connect(cx, options)?;
        // What the caller says goes whole, in front of the data that the server asks for.
        let block = wire::options(&mut request).map_or(0, |beside| usize::from(beside.amount));
        let block = block.min(request.len());
        let is_write = block > 0 || request.len() > DATA_OCTETS_MAX;
        let (sent, data) = match (is_write, block) {
            (false, _) => (request, None),
            (true, 0) => (message(cx, options)?, Some(request)),
            (true, block) => {
                let data =
                    request.split_off(block).map_err(|_| CallCause::Push(PushError::NoBuffers))?;
                (request, Some(data))
            }
        };
        let user = match (&mut *self.client.borrow_mut(), data) {
            (Some(client), Some(data)) => {
                let (user, asked) = client.write();
                *self.write.borrow_mut() = Some((asked, data));
                user
            }
            (Some(client), None) => client.command(),
            (None, _) => return Ok(None),
        };
        let tries = self.shared.settings.tries;
        let replied = wire::call(cx, &session, user, RESPONSES_MAX, tries, sent);
        self.write.take();
        let (reply, user) = match replied {
            Ok(replied) => replied,
            Err(error) => {
                // The order may be lost: the next call opens another session.
                self.client.take();
                return Err(error);
            }
        };
        if let Some(client) = &mut *self.client.borrow_mut() {
            client.hear(now(cx));
        }
        match i32::from_be_bytes(user) {
            0 => Ok(Some(reply)),
            result::SESSION_CLOSED => {
                self.client.take();
                Ok(None)
            }
            _ => Err(CallError::rejected(&SYSTEM_ERROR)),
        }
    }

    /// The data of the write that a server asks for with these user octets.
    pub(crate) fn data(&self, user: [u8; 4]) -> Option<Message> {
        let write = self.write.borrow();
        let (asked, data) = write.as_ref()?;
        if *asked != user {
            return None;
        }
        data.try_clone().ok()
    }

    /// The number of the session with the server.
    pub(crate) fn number(&self) -> Option<u8> {
        self.client.borrow().as_ref().map(Client::session)
    }
}

/// A message without octets, for a call with these options.
fn message(cx: &Kernel, options: Option<CallOptions>) -> Result<Message, CallError> {
    let mut message = cx.pool().empty(HEADROOM)?;
    if let Some(options) = options {
        // A message just made has room for it.
        let _ = message.set_attribute(options);
    }
    Ok(message)
}

impl Session for Calling {
    fn call(&self, cx: &Kernel, this: &SessionRef, request: Message) -> Result<Message, CallError> {
        let block = request.attribute::<Transaction>();
        let block = block.and_then(|Transaction(octets)| Options::parse(&octets).ok());
        let block = block.map_or(0, |beside| usize::from(beside.amount)).min(request.len());
        if block > DATA_OCTETS_MAX || request.len() - block > REPLY_OCTETS_MAX {
            this.discard(cx, request, &reason::TOO_BIG);
            return Err(PushError::TooBig.into());
        }
        let options = request.attribute::<CallOptions>();
        let Some(limit) = CallOptions::clip(options, cx.now(), TURN_WAIT_MAX) else {
            return Err(CallCause::TimedOut { tries: 0 }.into());
        };
        let again = request.try_clone()?;
        cx.wait(&self.turn, Some(limit)).map_err(|error| match CallError::from(error).cause {
            CallCause::TimedOut { .. } => CallCause::TimedOut { tries: 0 },
            other => other,
        })?;
        let mut result = self.command(cx, request, options);
        if let Ok(None) = result {
            // It had ended before this call, which was not executed.
            result = self.command(cx, again, options);
        }
        cx.signal(&self.turn);
        match result {
            Ok(Some(reply)) => Ok(reply),
            Ok(None) => Err(CallCause::Closed.into()),
            Err(error) => Err(error),
        }
    }

    fn describe(&self, _: &SessionRef) -> Option<String> {
        let number = self.number().map(|number| format!("session {number}"));
        number.or_else(|| Some("no session yet".into()))
    }

    fn control(&self, cx: &Kernel, _: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        if let Some(question) = ask.get::<CallsAtOnce>() {
            question.calls = 1;
        } else if let Some(question) = ask.get::<MaxPacket>() {
            question.octets = REPLY_OCTETS_MAX as u32;
        } else if let Some(question) = ask.get::<OptPacket>() {
            question.octets = DATA_OCTETS_MAX as u32;
        } else {
            return self.opened.live().unwrap_or(self.listener.clone()).control(cx, ask);
        }
        Answer::Answered
    }

    fn lower(&self) -> Option<&SessionRef> {
        Some(&self.listener)
    }

    fn close(&self, cx: &Kernel, this: &SessionRef) -> Closing {
        self.shared
            .calling
            .borrow_mut()
            .retain(|other| other.upgrade().is_some_and(|other| other != *this));
        if let (Some(session), Some(lower)) = (self.number(), self.opened.live()) {
            // Said once, and not waited for: a server that misses it finds the session silent.
            let request = (Request::CloseSession { session }, 0);
            let _ = self.shared.act(cx, |at| self.shared.ask(at, &lower, request, &[]));
        }
        self.opened.close(cx);
        self.turn.close(cx.shepherds());
        self.listener.close(cx);
        Closing::Done
    }
}

/// A server's session.
pub(crate) struct Serving {
    pub(crate) shared: Rc<Running<Asp>>,
    pub(crate) number: u8,
    pub(crate) peer: Address,
    pub(crate) upper: ProtocolRef,
}

impl Session for Serving {
    fn call_pop(
        &self,
        cx: &Kernel,
        this: &SessionRef,
        request: Message,
    ) -> Result<Message, Refused> {
        this.hold();
        let result = self.upper.call_demux(cx, this, request);
        this.ease(cx);
        result
    }

    fn describe(&self, _: &SessionRef) -> Option<String> {
        let (net, node, socket) = self.peer;
        Some(format!("session {} of {net}.{node}:{socket}", self.number))
    }

    fn control(&self, cx: &Kernel, _: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        if let Some(question) = ask.get::<AspAttention>() {
            question.session = self.number;
            let (session, code) = (self.number, question.code);
            let request = (Request::Attention { session, code }, 1);
            let heard = self.shared.act(cx, |at| self.shared.ask_peer(at, self.peer, request, &[]));
            return heard.flatten().map_or(Answer::Unknown, |_| Answer::Answered);
        }
        self.shared.lower.control(cx, ask)
    }

    fn close(&self, _: &Kernel, this: &SessionRef) -> Closing {
        if !this.head().is_aborted() {
            return Closing::Idle;
        }
        self.shared.serving.release(&u64::from(self.number), this);
        Closing::Done
    }
}
