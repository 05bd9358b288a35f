//! The server half (Sprite, rpcServer.c and rpcDaemon.c): what a packet means in each state of its
//! process.
//!
//! | packet | state | action |
//! | --- | --- | --- |
//! | new request | free, waiting | the saved reply is acknowledged by it: executed, or its
//! fragments collected |
//! | new | fragment | the partial request is abandoned |
//! | new | busy | dropped; the reply under way is suppressed |
//! | same request | fragment | stored; if it was the last of a batch, what is held is acknowledged
//! |
//! | same | busy | acknowledged if it asks for that |
//! | same | waiting | if it asks for an acknowledgement, the reply is sent again, or its last
//! fragment |
//! | same | free | dropped: it was acknowledged |
//! | acknowledgement with close | any | free |
//! | partial acknowledgement | waiting | the missing fragments of the reply are sent again |
//!
//! Each round of a client is answered once, however often the network has doubled its packets.

use crate::fragments::{Cut, Parameters, Taken, mark, push, push_bare};
use crate::processes::{Age, Process, ProcessState, client_of};
use crate::reasons::{
    FORGED_FRAGMENT, INCOMPLETE, NACK_CODE, NO_CALL, NO_PROCESS, REPLAYED, STUCK, SUPPRESSED,
    WRONG_BOOT, code_of,
};
use crate::session::{MrpcSession, Path, timers};
use crate::shared::{ANY_PROCEDURE, PASSIVE, Shared, body_of};
use crate::wire::{
    ACK, AREA2_LEN_MAX, CLOSE, ECHO, ERROR, Header, LASTFRAG, NACK, PLSACK, REPLY, REQUEST,
};
use alloc::rc::Rc;
use core::time::Duration;
use xk_core::object::Refused;
use xk_core::{Kernel, Message, ProtocolRef, Reason, SessionRef, Time, reason};
use xk_kit::control::MyHost;
use xk_kit::rpc::between_hosts;
use xk_kit::rpc::call;
use xk_kit::rpc::incarnation::{Admission, CHALLENGED, FIRST};
use xk_kit::rpc::records::Record;

/// Interval at which processes are looked after (Sprite, rpcDaemon.c).
pub(crate) const PASS: Duration = Duration::from_secs(2);
/// Number of unanswered questions whether a channel is idle that go out one a pass; later ones go
/// seldom.
const PROBES: u64 = 10;
/// A partial request that nothing was added to for so long is dropped: no client waits so long
/// between two tries.
const PARTIAL_KEPT: Duration = Duration::from_secs(30);
/// A reply that was not acknowledged for so long is dropped. No client still asks for it: eight
/// tries at most fifteen seconds apart are over by then.
const REPLY_KEPT: Duration = Duration::from_secs(180);
/// A process that was not used for so long is given up, so that no number of its last call comes
/// round again.
const PROCESS_KEPT: Duration = Duration::from_secs(300);

impl Shared {
    /// A packet for the server half; the header is still in front.
    #[inline(never)]
    pub(crate) fn server_half(
        self: &Rc<Self>,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        header: &Header,
        message: Message,
    ) -> Result<(), Refused> {
        let known = self.processes.records.get(&(client_of(cx, lower, header), header.channel));
        if let Some(process) = &known
            && header.flags & (REQUEST | ECHO) == REQUEST
            && process.is_of(header, lower)
        {
            process.heard.set(cx.now());
            return self.requested(cx, this, process, lower, header, message);
        }
        if let Some(why) = self.objection(cx, lower, header) {
            return Err(this.refuse(message, why));
        }
        match header.flags & (REQUEST | ACK | ECHO) {
            REQUEST => {}
            ACK => return self.acknowledged(cx, this, lower, header, message),
            flags if flags & ECHO != 0 => {
                self.echo(cx, this, lower, header, message);
                return Ok(());
            }
            _ => return Err(this.refuse(message, &reason::MALFORMED)),
        }
        let ticket = header.process & !FIRST;
        let is_known = |p: &Rc<Process>| p.boot.get() == header.boot && p.ticket() == ticket;
        if !known.as_ref().is_some_and(is_known) {
            let may_forget = |host| self.processes.is_idle(host);
            let host = client_of(cx, lower, header);
            match self.clients.admit(host, header.boot, header.process, may_forget) {
                Admission::Known => {}
                Admission::Replaced => self.processes.remove_others(host, header.boot),
                Admission::Challenge(ticket) => {
                    self.refuse_call(cx, lower, header, NACK | ERROR, ticket);
                    return Err(this.refuse(message, &CHALLENGED));
                }
                Admission::Full => {
                    self.refuse_call(cx, lower, header, NACK, ticket);
                    return Err(this.refuse(message, &NO_PROCESS));
                }
            }
        }
        let Some(process) = self.process(cx, this, lower, header) else {
            self.refuse_call(cx, lower, header, NACK, ticket);
            return Err(this.refuse(message, &NO_PROCESS));
        };
        self.requested(cx, this, &process, lower, header, message)
    }

    /// Why a packet is not for us, or not from whom it says.
    fn objection(
        &self,
        cx: &Kernel,
        lower: &SessionRef,
        header: &Header,
    ) -> Option<&'static Reason> {
        if client_of(cx, lower, header).host().folded() != header.client_host {
            return Some(&reason::BAD_SOURCE);
        }
        let own = match self.config.address {
            Some(address) => Some(address),
            None => match cx.unless_lost(|| lower.ask(cx, MyHost::default())) {
                Ok(own) => own.map(|q| q.host),
                Err(why) => return Some(why),
            },
        };
        let is_ours = own.is_none_or(|own| own.folded() == header.server_host);
        (!is_ours).then_some(&reason::NOT_MINE)
    }

    /// The process of a client's channel, a new one if it has none; `None` if there is no room.
    fn process(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        header: &Header,
    ) -> Option<Rc<Process>> {
        let key = (client_of(cx, lower, header), header.channel);
        let path = || Path::of(cx, self, lower);
        let process = match self.processes.records.get(&key) {
            Some(process) => process,
            None => {
                let path = cx.unless_lost(path).ok()?;
                let made = self.processes.make(key, path, |host| self.clients.forget(host))?;
                self.watch(cx, this);
                made
            }
        };
        process.learn(cx, header, header.process & !FIRST, lower, path);
        Some(process)
    }

    /// A request of a client that is known.
    fn requested(
        self: &Rc<Self>,
        cx: &Kernel,
        this: &ProtocolRef,
        process: &Rc<Process>,
        lower: &SessionRef,
        header: &Header,
        message: Message,
    ) -> Result<(), Refused> {
        let Some(age) = process.compare(header.sequence) else {
            return Err(this.refuse(message, &REPLAYED));
        };
        match (age, process.state.get()) {
            (Age::New, ProcessState::Busy) => {
                process.stuck.set(true);
                return Err(this.refuse(message, &STUCK));
            }
            (Age::New, _) => {
                process.clear();
                process.sequence.set(Some(header.sequence));
                process.command.set(header.command);
                process.state.set(ProcessState::Fragment);
            }
            (Age::Same, ProcessState::Fragment) => {}
            (Age::Same, ProcessState::Busy) if process.is_to_answer(header, PLSACK) => {
                self.acknowledge(cx, process, header, 0, header.all());
                return Ok(());
            }
            (Age::Same, ProcessState::Waiting) if process.is_to_answer(header, PLSACK) => {
                let (_, cut) = process.reply.get();
                self.send_reply(cx, process, cut.last());
                return Ok(());
            }
            (Age::Same, _) => return Err(this.refuse(message, &REPLAYED)),
        }
        if header.fragments == 0 {
            if process.partial.held() != 0 {
                return Err(this.refuse(message, &FORGED_FRAGMENT));
            }
            let area1 = header.sizes[0];
            let body = body_of(message, header);
            if process.is_to_answer(header, PLSACK) {
                process.state.set(ProcessState::Busy);
                self.acknowledge(cx, process, header, 0, 0);
            }
            self.execute(cx, this, process, lower, body, area1);
            return Ok(());
        }
        self.collect(cx, this, process, lower, header, message)
    }

    /// A fragment of the request that the process is at.
    fn collect(
        self: &Rc<Self>,
        cx: &Kernel,
        this: &ProtocolRef,
        process: &Rc<Process>,
        lower: &SessionRef,
        header: &Header,
        message: Message,
    ) -> Result<(), Refused> {
        match process.partial.take(header, body_of(message, header)) {
            Taken::Forged => this.head().drops().count(&FORGED_FRAGMENT),
            Taken::Duplicate | Taken::New if process.is_to_answer(header, PLSACK | LASTFRAG) => {
                self.acknowledge(cx, process, header, LASTFRAG, process.partial.held());
            }
            Taken::Duplicate => this.head().drops().count(&REPLAYED),
            Taken::New => {}
            Taken::Complete => match process.partial.join() {
                Some((request, area1)) => {
                    if process.is_to_answer(header, PLSACK) {
                        process.state.set(ProcessState::Busy);
                        self.acknowledge(cx, process, header, 0, header.all());
                    }
                    self.execute(cx, this, process, lower, request, area1);
                }
                None => {
                    this.head().drops().count(&FORGED_FRAGMENT);
                    self.abandon(process);
                }
            },
        }
        Ok(())
    }

    /// Drops a partial request, so that it may begin again.
    fn abandon(&self, process: &Process) {
        process.partial.clear();
        process.state.set(ProcessState::Free);
        let before = process.sequence.get().map(|s| s.wrapping_sub(1));
        process.sequence.set(before);
    }

    /// An acknowledgement of a client.
    fn acknowledged(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        header: &Header,
        message: Message,
    ) -> Result<(), Refused> {
        let Some(process) =
            self.processes.records.get(&(client_of(cx, lower, header), header.channel))
        else {
            return Err(this.refuse(message, &NO_CALL));
        };
        if process.boot.get() != header.boot {
            return Err(this.refuse(message, &WRONG_BOOT));
        }
        if process.sequence.get() != Some(header.sequence) {
            return Err(this.refuse(message, &REPLAYED));
        }
        process.heard.set(cx.now());
        if header.flags & CLOSE != 0 {
            match process.state.get() {
                ProcessState::Busy => process.stuck.set(true),
                ProcessState::Free => {}
                ProcessState::Waiting | ProcessState::Fragment => {
                    process.clear();
                    process.state.set(ProcessState::Free);
                }
            }
        } else if header.flags & LASTFRAG != 0 && process.state.get() == ProcessState::Waiting {
            let (_, cut) = process.reply.get();
            let missing = match cut.fragments {
                0 => u16::MAX,
                _ => cut.all() & !header.mask,
            };
            if missing != 0 && process.is_asked(header) {
                self.send_reply(cx, &process, missing);
            }
        }
        Ok(())
    }

    /// Has a request executed above, and its reply sent. May block.
    #[inline]
    pub(crate) fn execute(
        self: &Rc<Self>,
        cx: &Kernel,
        this: &ProtocolRef,
        process: &Rc<Process>,
        lower: &SessionRef,
        mut request: Message,
        area1: u16,
    ) {
        process.state.set(ProcessState::Busy);
        let key = (lower.id().0, u32::from(process.command.get()), PASSIVE);
        let session = match self.sessions.get(&key) {
            Some(session) => Ok(session),
            None => self.open_passive(cx, this, process, lower),
        };
        mark(&mut request, area1);
        let result = match session {
            Ok(session) => session.call_pop(cx, request).map_err(|refused| refused.reason),
            Err(why) => {
                this.discard(request, why);
                Err(why)
            }
        };
        self.finish(cx, this, process, lower, result);
    }

    /// A session for a procedure and a client that has called it for the first time.
    #[cold]
    fn open_passive(
        self: &Rc<Self>,
        cx: &Kernel,
        this: &ProtocolRef,
        process: &Process,
        lower: &SessionRef,
    ) -> Result<SessionRef, &'static Reason> {
        let procedure = u32::from(process.command.get());
        let upper = self.enables.get(&procedure);
        let upper = upper.or_else(|| self.enables.get(&ANY_PROCEDURE));
        let upper = upper.ok_or(&call::NO_PROCEDURE)?;
        let key = (lower.id().0, procedure, PASSIVE);
        let make = || {
            let own = between_hosts::own(cx, lower, self.config.address);
            let said = process.header(0, 0).server_host.to_be_bytes();
            let hosts = (own.unwrap_or(said.into()), process.peer().host());
            let suited = (process.path.get(), timers(cx, self, lower));
            let body = MrpcSession::new(self, key, (lower, &upper), hosts, suited);
            (body, hosts)
        };
        let from = (lower, procedure);
        between_hosts::accept(&self.sessions, cx, this, &upper, key, from, make)
    }

    /// A call has been executed: its reply is kept and sent.
    #[inline]
    fn finish(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        process: &Process,
        lower: &SessionRef,
        result: Result<Message, &'static Reason>,
    ) {
        if process.stuck.get() || !process.is_bound() {
            self.suppress(this, process, result);
            return;
        }
        process.heard.set(cx.now());
        let mut header = process.header(REPLY, self.boot);
        let mut reply = match result {
            Ok(reply) => reply,
            Err(why) => return self.finish_badly(cx, process, header, why),
        };
        let area1 = match reply.has_attributes() {
            true => reply.remove_attribute::<Parameters>().map_or(0, |p| p.octets.into()),
            false => 0,
        };
        let Some(cut) = Cut::new(reply.len(), area1, process.path.get().payload) else {
            this.discard(reply, &reason::TOO_BIG);
            return self.finish_badly(cx, process, header, &reason::TOO_BIG);
        };
        if cut.fragments != 0 {
            process.saved.borrow_mut().put(reply);
            process.reply.set((header, cut));
            process.state.set(ProcessState::Waiting);
            return self.send_reply(cx, process, u16::MAX);
        }
        if !reply.is_empty() && process.saved.borrow_mut().save(&reply).is_err() {
            return self.finish_badly(cx, process, header, &reason::NO_BUFFERS);
        }
        process.reply.set((header, cut));
        process.state.set(ProcessState::Waiting);
        header = cut.header(&header, 0);
        let octets = header.emit();
        // A reply that does not go is as good as lost: it is asked for again.
        if reply.push_in_place(&octets) || reply.push_array(&octets).is_ok() {
            let _ = lower.push(cx, reply);
        }
    }

    /// The reply is an error.
    #[cold]
    fn finish_badly(&self, cx: &Kernel, process: &Process, header: Header, why: &Reason) {
        process.saved.borrow_mut().clear();
        let header = Header { flags: REPLY | ERROR, command: code_of(why), ..header };
        process.reply.set((header, Cut::default()));
        process.state.set(ProcessState::Waiting);
        self.send_reply(cx, process, u16::MAX);
    }

    /// No call waits for the reply any more.
    #[cold]
    fn suppress(
        &self,
        this: &ProtocolRef,
        process: &Process,
        result: Result<Message, &'static Reason>,
    ) {
        process.stuck.set(false);
        process.state.set(ProcessState::Free);
        this.head().drops().count(&SUPPRESSED);
        drop(result);
    }

    /// Sends the saved reply, or those of its fragments.
    #[cold]
    fn send_reply(&self, cx: &Kernel, process: &Process, mask: u16) {
        let Some(lower) = process.lower.get() else {
            return;
        };
        let (header, cut) = process.reply.get();
        // The ticket may have changed since.
        let header = Header {
            flags: header.flags | process.reply_round().flags(),
            process: process.ticket(),
            ..header
        };
        let saved = process.saved.borrow().again(cx.pool());
        if let Ok(saved) = saved {
            // What does not go is asked for again.
            let _ = cut.send(cx, &lower, &header, 0, saved.as_ref(), mask);
        }
    }

    /// Tells a client which fragments of its request are held.
    fn acknowledge(&self, cx: &Kernel, process: &Process, request: &Header, flags: u16, mask: u16) {
        let Some(lower) = process.lower.get() else {
            return;
        };
        let header =
            Header { mask, ..process.header(ACK | flags | request.round().flags(), self.boot) };
        push_bare(cx, &lower, &header);
    }

    /// Tells a client that its request was not executed: once, however many packets it has.
    #[cold]
    fn refuse_call(
        &self,
        cx: &Kernel,
        lower: &SessionRef,
        request: &Header,
        flags: u16,
        ticket: u16,
    ) {
        if !request.is_last() {
            return;
        }
        let header = Header {
            flags: flags | request.round().flags(),
            process: ticket,
            command: NACK_CODE,
            boot: self.boot,
            ..request.bare()
        };
        push_bare(cx, lower, &header);
    }

    /// Sends an echo back.
    #[cold]
    fn echo(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        request: &Header,
        message: Message,
    ) {
        if request.flags & REQUEST == 0 || request.body_len() > AREA2_LEN_MAX {
            this.discard(message, &reason::MALFORMED);
            return;
        }
        let header = Header {
            flags: ECHO | REPLY | request.flags & LASTFRAG,
            process: request.process & !FIRST,
            boot: self.boot,
            ..*request
        };
        let _ = push(cx, lower, &header, body_of(message, request));
    }

    /// Sees to it that processes are looked after.
    fn watch(&self, cx: &Kernel, this: &ProtocolRef) {
        if !self.processes.is_watched.get() && cx.schedule_protocol(this, PASS, 0).is_ok() {
            self.processes.is_watched.set(true);
        }
    }

    /// Looks after all processes, as often as [`PASS`] says.
    pub(crate) fn pass(&self, cx: &Kernel, this: &ProtocolRef) {
        self.processes.is_watched.set(false);
        for process in self.processes.records.list() {
            self.look_after(cx, this, &process);
        }
        if !self.processes.records.is_empty() {
            self.watch(cx, this);
        }
    }

    fn look_after(&self, cx: &Kernel, this: &ProtocolRef, process: &Rc<Process>) {
        let silent = cx.now().since(process.heard.get().max(Time::ZERO));
        match process.state.get() {
            ProcessState::Busy => {}
            ProcessState::Fragment if silent >= PARTIAL_KEPT => {
                this.head().drops().count(&INCOMPLETE);
                self.abandon(process);
            }
            ProcessState::Fragment => {}
            ProcessState::Waiting if silent >= REPLY_KEPT => self.reclaim(process),
            ProcessState::Waiting => {
                // The first pass only marks it as ageing.
                let passes = silent.as_nanos() as u64 / PASS.as_nanos() as u64;
                if passes >= 1 && (passes <= PROBES || passes.is_multiple_of(PROBES)) {
                    self.acknowledge(cx, process, &process.header(0, 0), CLOSE, 0);
                }
            }
            ProcessState::Free if silent >= PROCESS_KEPT => self.reclaim(process),
            ProcessState::Free => {}
        }
    }

    /// Takes a process away from a client that is gone or idle. What it sends later is challenged.
    fn reclaim(&self, process: &Rc<Process>) {
        self.processes.remove(process);
        self.clients.forget(process.peer());
    }
}
