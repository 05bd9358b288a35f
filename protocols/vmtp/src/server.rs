//! The server half (RFC 1045, section 5): a request packet in each state of its client's record.

use crate::blocks::{HEADROOM, Taken, groups_of, push};
use crate::client::into_user_data;
use crate::reasons::{
    ABORTED, FORGED_DELIVERY, NO_ENTITY, NO_RECORD, NO_STREAM, REPLAYED, SECURE, UNFINISHED,
    UNVERIFIED, code_of,
};
use crate::records::{Age, KEPT, Record, server_of};
use crate::session::VmtpSession;
use crate::shared::{
    ANY, At, GROUP_REST, PACKET_TIME, PASSIVE, RESPONSE_REST, Shared, TRIES_MAX, halves, name_key,
    peer_of,
};
use crate::tables::{self, ServerAction, ServerEvent, ServerState};
use crate::wire::{
    APG, BLOCK_OCTETS, CMG, CRE, DGM, EPG, Entity, FORWARDS, GROUP_OCTETS, Header, MPG, NER, NRT,
    NSR, PIC, RESPONSE, ROUND, SDA, STI, USER_OCTETS, blocks_of, code, operation, padded, round_of,
};
use alloc::rc::Rc;
use xk_core::object::Refused;
use xk_core::{Kernel, Message, ProtocolRef, Reason, SessionRef, Time, reason};
use xk_kit::answers::is_for_one;
use xk_kit::control::PeerHost;
use xk_kit::rpc::between_hosts;
use xk_kit::rpc::call;

impl Shared {
    /// A request packet for one of our servers; `data` lies between its header and its checksum.
    #[inline(never)]
    pub(crate) fn request(self: &Rc<Self>, at: At<'_>, data: Message) -> Result<(), Refused> {
        let At { cx, this, lower, header } = at;
        let is_alone = header.domain & MPG == 0 && !header.server.is_group();
        if header.domain & EPG != 0 {
            if is_alone && header.wants_answer() {
                self.notify_client(at, 0, code::SECURITY_NOT_SUPPORTED);
            }
            return Err(this.refuse(data, &SECURE));
        }
        let named = peer_of(cx, lower).and_then(|peer| {
            let path = cx.unless_lost(|| self.path(cx, lower))?;
            Ok(((header.client.0, peer), path))
        });
        let (key, path) = match named {
            Ok(named) => named,
            Err(why) => return Err(this.refuse(data, why)),
        };
        let known = self.records.get(&key);
        let is_known = known.as_ref().is_some_and(|record| record.lower.has(lower));
        if !is_known
            && !header.server.is_group()
            && let Err(why) = is_for_one(cx, lower)
        {
            return Err(this.refuse(data, why));
        }
        let record = match known {
            Some(record) => record,
            None if !self.is_ours(header, path.own) => {
                if is_alone && header.wants_answer() {
                    self.notify_client(at, 0, code::NONEXISTENT_ENTITY);
                }
                return Err(this.refuse(data, &NO_ENTITY));
            }
            None => match self.make_record(cx, this, key) {
                Some(record) => {
                    self.watch_record(cx, this, &record, cx.now().after(KEPT));
                    record
                }
                None => {
                    if is_alone {
                        self.notify_client(at, 0, code::BUSY);
                    }
                    return Err(this.refuse(data, &NO_RECORD));
                }
            },
        };
        let is_passed_on = header.forwards() > 0 && is_alone;
        let way = match is_passed_on {
            true => self.way_to(cx, this, header.client),
            false => Some(lower.clone()),
        };
        let Some(way) = way else { return Err(this.refuse(data, &NO_ENTITY)) };
        if let Err(why) = record.learn(cx, &way, || self.path(cx, &way)) {
            return Err(this.refuse(data, why));
        }
        if header.forwards() > 0 {
            drop(record.onward.replace(is_passed_on.then(|| lower.clone())));
        }
        record.heard.set(cx.now());
        record.control.set(header.control);
        let age = record.compare(header);
        let is_again = age == Age::Same
            && record.repeats.get()
            && record.state.get() == ServerState::Discarded;
        match age {
            Age::Old => Err(this.refuse(data, &REPLAYED)),
            Age::New => self.newer(at, &record, data),
            Age::Same if is_again => self.newer(at, &record, data),
            Age::Same => self.current(at, &record, data),
        }
    }

    /// The way of almost every request: new, in one packet, of a client that is known. Its record.
    #[inline(always)]
    pub(crate) fn request_at_once(
        &self,
        cx: &Kernel,
        lower: &SessionRef,
        header: &Header,
        data: usize,
    ) -> Option<Rc<Record>> {
        let is_plain = header.domain & EPG == 0
            && header.control & (NSR | NER | APG) == 0
            && header.is_whole(data);
        if !is_plain {
            return None;
        }
        let record = self.records.get(&(header.client.0, lower.head().peer()))?;
        let is_ready =
            matches!(record.state.get(), ServerState::Responded | ServerState::Discarded)
                && record.verified.get()
                && record.lower.has(lower)
                && record.compare(header) == Age::New;
        if !is_ready {
            return None;
        }
        // The response before is acknowledged by it.
        record.clear();
        record.repeats.set(false);
        record.request.set(Some(*header));
        record.control.set(header.control);
        record.heard.set(cx.now());
        record.state.set(tables::server(ServerState::Probing, ServerEvent::Verified).0);
        Some(record)
    }

    /// Whether a request is for one of our servers, with this host in their names.
    fn is_ours(&self, header: &Header, own: u32) -> bool {
        header.domain >> 16 == self.config.domain
            && (header.server.is_group() || header.server.host() == own)
    }

    /// A packet of a request newer than the current one.
    fn newer(
        self: &Rc<Self>,
        at: At<'_>,
        record: &Rc<Record>,
        data: Message,
    ) -> Result<(), Refused> {
        let At { this, header, .. } = at;
        if header.control & (NER | CMG) == NER && !header.server.is_group() {
            self.notify_client(at, 0, code::STREAMING_NOT_SUPPORTED);
            return Err(this.refuse(data, &NO_STREAM));
        }
        if header.control & NSR != 0 {
            // The groups before it are not there.
            self.notify_client(at, 0, code::NO_RUN_RECORD);
            return Err(this.refuse(data, &REPLAYED));
        }
        record.clear();
        record.repeats.set(false);
        record.request.set(Some(*header));
        record.retries.set(0);
        record.incoming.begin(header);
        self.collect(at, record, data, true)
    }

    /// A packet of the current request.
    fn current(
        self: &Rc<Self>,
        at: At<'_>,
        record: &Rc<Record>,
        data: Message,
    ) -> Result<(), Refused> {
        let At { cx, this, header, .. } = at;
        if record.state.get() == ServerState::Receiving {
            return self.collect(at, record, data, false);
        }
        let is_asked = record.is_to_answer(header);
        match record.step(ServerEvent::Whole) {
            ServerAction::Acknowledge if is_asked => {
                self.notify_client(at, u32::MAX, code::OK);
                if record.state.get() == ServerState::Forwarded {
                    self.pass_again(cx, this, record);
                }
            }
            // Each round is answered once, however often the network has doubled its packets.
            ServerAction::Resend if is_asked => {
                self.respond_again(cx, this, record, None);
            }
            ServerAction::Gone if is_asked && !record.request.get().is_some_and(|r| r.has(DGM)) => {
                self.notify_client(at, 0, code::RESPONSE_DISCARDED);
            }
            _ => return Err(this.refuse(data, &REPLAYED)),
        }
        Ok(())
    }

    /// A part of the request that the record is at.
    fn collect(
        self: &Rc<Self>,
        at: At<'_>,
        record: &Rc<Record>,
        data: Message,
        is_new: bool,
    ) -> Result<(), Refused> {
        let At { cx, this, header, .. } = at;
        let incoming = &record.incoming;
        if incoming.is_behind(header) {
            // The groups before it were here once, and were forgotten.
            self.notify_client(at, 0, code::NO_RUN_RECORD);
            return Err(this.refuse(data, &REPLAYED));
        }
        let Ok(taken) = incoming.take(header, data) else {
            this.head().drops().count(&FORGED_DELIVERY);
            if is_new {
                record.forget();
            }
            return Ok(());
        };
        let event = match (taken, is_new) {
            (Taken::Whole, true) => ServerEvent::NewWhole,
            (Taken::Whole, false) => ServerEvent::Whole,
            (_, true) => ServerEvent::NewPart,
            (_, false) => ServerEvent::Part,
        };
        record.step(event);
        let is_asked = record.is_to_answer(header);
        if taken == Taken::Whole {
            if is_asked {
                self.notify_client(at, u32::MAX, code::OK);
            }
            if self.config.probe && !record.verified.get() {
                self.probe(cx, record);
                self.watch_record(cx, this, record, cx.now().after(RESPONSE_REST));
                return Ok(());
            }
            return self.verified(cx, this, record);
        }
        record.retries.set(0);
        self.watch_record(cx, this, record, cx.now().after(GROUP_REST));
        if header.wants_answer() && incoming.is_before(header) {
            // The group before the one that is collected is there; its acknowledgement may be lost.
            self.notify_client(at, u32::MAX, code::OK);
        } else if is_asked && header.data_octets() == 0 {
            self.notify_client(at, incoming.held(), code::RETRY);
        } else if taken == Taken::Duplicate {
            this.head().drops().count(&REPLAYED);
        }
        Ok(())
    }

    /// The client of a whole request is known: has it executed.
    pub(crate) fn verified(
        self: &Rc<Self>,
        cx: &Kernel,
        this: &ProtocolRef,
        record: &Rc<Record>,
    ) -> Result<(), Refused> {
        if record.step(ServerEvent::Verified) != ServerAction::Execute {
            return Ok(());
        }
        record.verified.set(true);
        record.probe.set(None);
        let (Some(header), Some(lower)) = (record.request.get(), record.lower.get()) else {
            return Ok(());
        };
        let whole = record.incoming.finish(cx);
        let request = match header.has(SDA) {
            true => whole,
            false => cx.pool().copy_from(HEADROOM, &header.user_octets()).ok(),
        };
        if let Some(request) = request {
            self.execute(cx, this, record, &lower, &header, request);
        } else {
            // As good as lost: its client sends it again.
            record.forget();
        }
        Ok(())
    }

    /// Asks the client of a request whether it is its current one.
    #[cold]
    fn probe(&self, cx: &Kernel, record: &Record) {
        let (Some(lower), Some(request)) = (record.lower.get(), record.request.get()) else {
            return;
        };
        let [client, low] = halves(request.client);
        let header = Header {
            client: Entity::new(self.prober, record.path.get().own),
            domain: self.config.domain << 16,
            transaction: record.ask(cx),
            server: Entity::MANAGERS,
            code: CRE | PIC | operation::PROBE_ENTITY,
            user: [client, low, client, low, 0, 0, 0],
            ..Header::default()
        };
        self.push_bare(cx, &lower, &header);
    }

    /// A client's manager answers such a question.
    pub(crate) fn probe_answered(self: &Rc<Self>, at: At<'_>) -> bool {
        let At { cx, this, lower, header } = at;
        let is_asked = |record: &Record| record.probe.get() == Some(header.transaction);
        let Some(record) = self.find_record(is_asked) else {
            return false;
        };
        let asked = record.lower.get().and_then(|asked| peer_of(cx, &asked).ok());
        if asked.is_none() || asked != peer_of(cx, lower).ok() {
            return false;
        }
        record.probe.set(None);
        if header.code == code::OK && header.user[0] == record.transaction() {
            // It was refused or executed, and counted there.
            drop(self.verified(cx, this, &record));
        } else if record.step(ServerEvent::Denied) == ServerAction::Forget {
            this.head().drops().count(&UNVERIFIED);
            record.forget();
        }
        true
    }

    /// Has a request executed above, and its response sent. May block.
    #[inline]
    pub(crate) fn execute(
        self: &Rc<Self>,
        cx: &Kernel,
        this: &ProtocolRef,
        record: &Rc<Record>,
        lower: &SessionRef,
        header: &Header,
        request: Message,
    ) {
        if let Some(route) = self.route(header.plain_code())
            && !header.server.is_group()
            && !header.has(DGM)
        {
            let result = self.forward(cx, this, record, (header, request), route);
            if let Err(why) = result {
                self.finish(cx, this, record, lower, header, Err(why));
            }
            return;
        }
        let name = name_key(header.server.discriminator(), header.plain_code());
        let session = match self.sessions.get(&(lower.id().0, name, PASSIVE)) {
            Some(session) => Ok(session),
            None => self.open_passive(cx, this, lower, header),
        };
        let result = match session {
            Ok(session) => session.call_pop(cx, request).map_err(|refused| refused.reason),
            Err(why) => {
                this.discard(request, why);
                if *why == reason::NO_ANSWER {
                    // A question was lost: the client sends it again.
                    return record.forget();
                }
                Err(why)
            }
        };
        self.finish(cx, this, record, lower, header, result);
    }

    /// A session for a procedure and a host that calls it for the first time.
    #[cold]
    fn open_passive(
        self: &Rc<Self>,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        header: &Header,
    ) -> Result<SessionRef, &'static Reason> {
        let (server, procedure) = (header.server.discriminator(), header.plain_code());
        let upper = self.enables.get(&name_key(server, procedure));
        let upper = upper.or_else(|| self.enables.get(&name_key(server, ANY)));
        let upper = upper.ok_or(&call::NO_PROCEDURE)?;
        let key = (lower.id().0, name_key(server, procedure), PASSIVE);
        let make = || {
            let own = between_hosts::own(cx, lower, self.config.address);
            let peer = lower.ask(cx, PeerHost::default()).map(|q| q.host);
            let hosts = (own.unwrap_or_default(), peer.unwrap_or_default());
            let server = server_of(header, self.path(cx, lower).own);
            let body = VmtpSession::new(cx, self, key, (lower, &upper), hosts, server);
            (body, hosts)
        };
        let from = (lower, procedure);
        between_hosts::accept(&self.sessions, cx, this, &upper, key, from, make)
    }

    /// A request has been executed: its response is kept and sent.
    #[inline]
    fn finish(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        record: &Rc<Record>,
        lower: &SessionRef,
        request: &Header,
        result: Result<Message, &'static Reason>,
    ) {
        let is_current = record.is_bound()
            && record.transaction() == request.transaction
            && record.state.get() == ServerState::Processing;
        if !is_current {
            this.head().drops().count(&ABORTED);
            return;
        }
        record.heard.set(cx.now());
        if request.has(DGM) {
            record.step(ServerEvent::DoneDatagram);
            self.watch_record(cx, this, record, cx.now().after(KEPT));
            return;
        }
        let mut header = self.response_to(record, request);
        let reply = match result {
            Ok(reply) if self.is_too_long(request, reply.len()) => {
                this.discard(reply, &reason::TOO_BIG);
                Err(&reason::TOO_BIG)
            }
            other => other,
        };
        let mut reply = match reply {
            Ok(reply) => reply,
            Err(why) => {
                header.code = code_of(why);
                let Ok(empty) = cx.pool().empty(HEADROOM) else { return };
                empty
            }
        };
        let len = reply.len();
        if header.code == code::OK {
            header.code |= SDA | if self.config.idempotent { DGM } else { 0 };
            header.user[6] = len as u32;
            if len == USER_OCTETS {
                let Ok(empty) = into_user_data(cx, &reply, &mut header) else { return };
                reply = empty;
            }
        }
        self.respond(cx, this, record, lower, header, reply);
    }

    /// Whether a response has more octets than its client takes.
    fn is_too_long(&self, request: &Header, octets: usize) -> bool {
        octets > self.config.message_max || octets > GROUP_OCTETS && request.control & STI == 0
    }

    /// The header of the response to a request, without code and user data.
    #[inline]
    fn response_to(&self, record: &Record, request: &Header) -> Header {
        Header {
            client: request.client,
            domain: self.config.domain << 16,
            control: RESPONSE | record.control.get() & ROUND | request.control & FORWARDS,
            transaction: request.transaction,
            server: server_of(request, record.path.get().own),
            ..Header::default()
        }
    }

    #[inline]
    fn respond(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        record: &Rc<Record>,
        lower: &SessionRef,
        header: Header,
        reply: Message,
    ) {
        let is_kept = !header.has(DGM);
        let event = if is_kept { ServerEvent::Done } else { ServerEvent::DoneDatagram };
        record.step(event);
        record.repeats.set(!is_kept);
        record.retries.set(0);
        let len = reply.len();
        if len <= record.path.get().blocks as usize * BLOCK_OCTETS {
            if is_kept && record.out.save(header, &reply).is_err() {
                // As good as lost: the client asks for it, and is told that it is gone.
                record.state.set(ServerState::Discarded);
                return;
            }
            // The timer is set: it goes off in time for what was due before.
            record.due.set(cx.now().after(KEPT));
            let header = header.with_data(blocks_of(len), padded(len));
            // A response that does not go is as good as lost: it is asked for again.
            let _ = push(cx, lower, &header, reply, self.config.checksum);
            return;
        }
        record.out.put(header, reply);
        self.send_response(cx, this, record, record.out.blocks(), 0);
        if !is_kept && !record.out.is_run() {
            record.out.clear();
        }
    }

    /// Sends blocks of the response that is kept, at once or with gaps.
    pub(crate) fn send_response(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        record: &Rc<Record>,
        mask: u32,
        control: u32,
    ) {
        let Some(lower) = record.lower.get() else { return };
        let gap = record.request.get().map_or(0, |request| request.gap());
        let ways = (self.config.checksum, Self::gap_time(gap));
        // What does not go is asked for again.
        let _ = record.out.send(cx, &lower, (mask, record.path.get().blocks), control, ways);
        self.watch(cx, this, record.out.due());
        self.watch_record(cx, this, record, cx.now().after(RESPONSE_REST));
    }

    /// Sends the response once more: these blocks of it, or all.
    #[cold]
    fn respond_again(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        record: &Rc<Record>,
        missing: Option<u32>,
    ) {
        let mask = missing.unwrap_or_else(|| record.out.blocks());
        // The round of the last request packet (RFC 1045, section 3.4).
        record.out.set_round(round_of(record.control.get()));
        let is_long = record.out.is_long(record.path.get().blocks);
        self.send_response(cx, this, record, mask, if is_long { APG } else { 0 });
        if !is_long {
            self.watch_record(cx, this, record, cx.now().after(KEPT));
        }
    }

    /// A client's manager tells what has come of a response.
    pub(crate) fn server_notified(&self, at: At<'_>) -> bool {
        let At { cx, this, lower, header: notice } = at;
        let [_, _, _, _, transaction, delivery, code] = notice.user;
        let client = notice.user_entity(2);
        let known = peer_of(cx, lower).ok().and_then(|peer| self.records.get(&(client.0, peer)));
        // Of a request that another server passed on its host is not the client's.
        let passed = |record: &Record| {
            record.client() == client
                && record.out.transaction() == transaction
                && record.request.get().is_some_and(|request| request.forwards() > 0)
        };
        let Some(record) = known.or_else(|| self.find_record(passed)) else {
            return false;
        };
        if record.state.get() != ServerState::Responded || record.out.transaction() != transaction {
            return false;
        }
        record.heard.set(cx.now());
        let event = match code {
            code::OK => ServerEvent::Ok,
            code::RETRY | code::RETRY_ALL => ServerEvent::Retry,
            code::BUSY => return true,
            _ => ServerEvent::Refused,
        };
        if event == ServerEvent::Ok && record.out.is_run() && record.out.next_group() {
            record.retries.set(0);
            self.send_response(cx, this, &record, record.out.blocks(), 0);
            return true;
        }
        let (state, action) = tables::server(record.state.get(), event);
        match action {
            ServerAction::SendMissing => {
                // As often as a client asks, and not oftener than it waits between two questions.
                let since = record.due.get().since(cx.now());
                if since > RESPONSE_REST.saturating_sub(GROUP_REST / 2) && record.retries.get() > 0
                {
                    return true;
                }
                record.retries.set(record.retries.get() + 1);
                if record.retries.get() > TRIES_MAX {
                    return self.discard_response(&record);
                }
                let missing = match code {
                    code::RETRY => record.out.blocks() & !delivery,
                    _ => record.out.blocks(),
                };
                self.respond_again(cx, this, &record, Some(missing));
            }
            ServerAction::Discard => {
                record.state.set(state);
                record.is_through.set(true);
                return self.discard_response(&record);
            }
            _ => {}
        }
        true
    }

    fn discard_response(&self, record: &Record) -> bool {
        record.state.set(ServerState::Discarded);
        record.out.clear();
        true
    }

    /// Has the record looked after then.
    #[inline]
    pub(crate) fn watch_record(&self, cx: &Kernel, this: &ProtocolRef, record: &Record, due: Time) {
        record.due.set(due);
        self.watch(cx, this, due);
    }

    /// Looks after a record whose time has come.
    pub(crate) fn look_after(
        self: &Rc<Self>,
        cx: &Kernel,
        this: &ProtocolRef,
        record: &Rc<Record>,
    ) {
        let request = record.request.get();
        let is_passed = record.state.get() == ServerState::Forwarded && record.is_through.get();
        if is_passed && cx.now().since(record.heard.get()) < KEPT {
            return self.watch_record(cx, this, record, cx.now().after(KEPT));
        }
        let is_last = record.retries.get() + 1 >= TRIES_MAX
            || request.is_some_and(|r| r.has(DGM) || r.control & NRT != 0)
                && record.state.get() == ServerState::Receiving;
        let event = if is_last { ServerEvent::Exhausted } else { ServerEvent::Timeout };
        let (_, action) = tables::server(record.state.get(), event);
        let now = cx.now();
        match action {
            ServerAction::AskMissing if self.asking.get() > now => {
                // What other clients were asked for is on its way.
                self.watch_record(cx, this, record, self.asking.get());
            }
            ServerAction::AskMissing => {
                let packets = record.incoming.missing() / record.path.get().blocks.max(1);
                self.asking.set(now.after(PACKET_TIME * packets));
                record.retries.set(record.retries.get() + 1);
                self.ask_blocks(cx, this, record);
                let wait = GROUP_REST * (1 << record.retries.get().min(6));
                self.watch_record(cx, this, record, now.after(wait));
            }
            ServerAction::Probe => {
                record.retries.set(record.retries.get() + 1);
                self.probe(cx, record);
                self.watch_record(cx, this, record, now.after(RESPONSE_REST));
            }
            ServerAction::Forget => {
                let why = if record.state.get() == ServerState::Probing {
                    &UNVERIFIED
                } else {
                    &UNFINISHED
                };
                this.head().drops().count(why);
                // It was not executed: its client may send it again.
                record.forget();
                self.watch_record(cx, this, record, now.after(KEPT));
            }
            ServerAction::Resend if record.out.is_long(record.path.get().blocks) => {
                record.retries.set(record.retries.get() + 1);
                // A header alone: the client says what it lacks.
                self.respond_again(cx, this, record, Some(0));
            }
            ServerAction::PassAgain => self.pass_again(cx, this, record),
            ServerAction::Discard | ServerAction::Resend => {
                self.discard_response(record);
                self.watch_record(cx, this, record, now.after(KEPT));
            }
            _ if now.since(record.heard.get()) >= KEPT
                && matches!(record.state.get(), ServerState::Awaiting | ServerState::Discarded) =>
            {
                self.remove_record(record);
            }
            _ => self.watch_record(cx, this, record, now.after(KEPT)),
        }
    }

    /// Asks the client for the missing blocks of its request.
    fn ask_blocks(&self, cx: &Kernel, this: &ProtocolRef, record: &Record) {
        let forwarder = record.onward.get();
        let lower = forwarder.or_else(|| record.lower.get());
        let (Some(lower), Some(request)) = (lower, record.request.get()) else {
            return;
        };
        let group = record.incoming.group();
        let header = Header {
            transaction: request.transaction.wrapping_add(group),
            control: record.control.get(),
            ..request
        };
        debug_assert!(group < groups_of(request.segment_octets()));
        self.notify_client(
            At { cx, this, lower: &lower, header: &header },
            record.incoming.held(),
            code::RETRY,
        );
    }
}
