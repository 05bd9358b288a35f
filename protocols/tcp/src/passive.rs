//! Segments of no session: those that open one (RFC 9293, sections 3.10.7.1 and 3.10.7.2).

use crate::checks::mark_of;
use crate::connection::{Connection, Settings, Syn, syn};
use crate::cookie;
use crate::fast::{FastOpens, Judged};
use crate::origin::path;
use crate::output::send_alone;
use crate::pending::{Note, PendingKey};
use crate::protocol::Tcp;
use crate::session::{Link, TcpSession, end_silently, gives_credit, keep_back, start};
use crate::table::{key, ports};
use crate::wire::{Flags, Header};
use alloc::rc::Rc;
use xk_core::object::Refused;
use xk_core::reason::{self, Class, Reason};
use xk_core::{Kernel, Message, ProtocolRef, SessionRef};
use xk_kit::answers;
use xk_kit::net::moving::MOVED;
use xk_kit::net::ports::{Origin, receiver};
use xk_kit::net::stream::StreamRoom;

/// A SYN that there was no room to note: it was answered by a cookie.
pub(crate) static NOT_NOTED: Reason = Reason::new("SYN not noted", Class::Exhausted);
/// Never answered our SYN.
pub(crate) static SYN_UNANSWERED: Reason = Reason::new("SYN unanswered", Class::Bad);
/// A segment of a connection that begins, with numbers that do not fit.
pub(crate) static BAD_HANDSHAKE: Reason = Reason::new("bad handshake", Class::Bad);

/// A Fast Open, beyond as many as may be pending: it becomes a connection as any other.
pub(crate) static FAST_OPENS_FULL: Reason = Reason::new("Fast Opens full", Class::Exhausted);

/// About how many octets an answer to a SYN has, the header of IP included.
const SYN_OCTETS: usize = 60;

/// Whether the protocol above takes one peer more, and what that is told.
fn room(
    cx: &Kernel,
    upper: &ProtocolRef,
    origin: &Origin,
    (port, fast_open): (u16, u32),
) -> StreamRoom {
    let asked = StreamRoom { fast_open, ..StreamRoom::at(origin.local, port) };
    upper.ask(cx, asked).unwrap_or(asked)
}

/// A segment of no session: through what it came, and its header.
#[derive(Clone, Copy)]
pub(crate) struct Stray<'a> {
    pub(crate) cx: &'a Kernel,
    pub(crate) this: &'a ProtocolRef,
    pub(crate) lower: &'a SessionRef,
    pub(crate) origin: &'a Origin,
    pub(crate) header: &'a Header,
}

impl Tcp {
    /// A whole segment of no session, its header still in front.
    pub(crate) fn demux_first(
        &self,
        stray: Stray<'_>,
        message: Message,
        length: usize,
    ) -> Result<(), Refused> {
        let Stray { cx, this, lower, origin, header } = stray;
        let pair = ports(header.dst, header.src);
        let pending = (self.hosts(cx, origin, lower), pair);
        if let Some(session) = self.made_meanwhile(lower, pair) {
            return session.pop(cx, message);
        }
        if self.table.holds.has(&pending, cx.now()) {
            if let Err(message) = self.table.holds.keep(&pending, message) {
                this.discard(message, &MOVED);
            }
            return Ok(());
        }
        let listener = receiver(&self.table.offers, header.dst, origin.local);
        if let Some(note) = self.table.pending.get(&pending) {
            if listener.as_ref() == Some(&note.upper) {
                return self.demux_pending(stray, pending, note, message, length);
            }
            // What listens no more begins no connection.
            self.table.pending.remove(&pending);
        }
        let is_first =
            header.flags.has(Flags::SYN) && !header.flags.any(Flags::ACK | Flags::RST | Flags::FIN);
        match listener {
            Some(upper) if is_first => {
                // Its data are kept only if it shows a Fast Open cookie: the peer sends them again.
                self.take_syn(stray, pending, &upper, message, length);
            }
            Some(upper) if let Some(note) = self.note_of_cookie(stray, pending, &upper) => {
                return self.establish(stray, pending, note, message);
            }
            // RFC 9293, section 3.10.7.2: a reset to a listener is ignored.
            // And so is what has neither SYN nor ACK.
            Some(_)
                if header.flags.has(Flags::RST) || !header.flags.any(Flags::SYN | Flags::ACK) =>
            {
                this.discard(message, &BAD_HANDSHAKE)
            }
            _ => self.answer_reset(stray, message, length),
        }
        Ok(())
    }

    /// The session that another segment has made while this one waited for an answer from below.
    fn made_meanwhile(&self, lower: &SessionRef, ports: u32) -> Option<SessionRef> {
        let session = self.table.sessions.get(&key(lower, ports));
        session.filter(|session| !session.head().is_closed())
    }

    /// A first SYN to a port that is enabled: it is noted and answered.
    fn take_syn(
        &self,
        stray: Stray<'_>,
        pending: PendingKey,
        upper: &ProtocolRef,
        message: Message,
        length: usize,
    ) {
        let Stray { cx, this, lower, origin, header } = stray;
        let (table, now) = (&self.table, cx.now());
        let at = (header.dst, table.fast.pending_max.get());
        let asked = cx.unless_lost(|| (room(cx, upper, origin, at), path(cx, lower)));
        let (room, path) = match asked {
            Ok((room, _)) if room.full => return self.turn_away(stray, &reason::QUEUE_FULL),
            Ok(asked) => asked,
            Err(why) => return self.turn_away(stray, why),
        };
        if self.made_meanwhile(lower, pending.1).is_some() {
            return;
        }
        let known = table.pending.get(&pending);
        if let Some(note) = known.as_ref().filter(|note| note.syn.irs == header.seq) {
            return self.answer_again(stray, pending, note, message);
        }
        let ends = self.ends(path, pending.0, header.dst, header.src);
        let settings = table.settings_within(&room);
        let mut first = Syn::of(header).marked(mark_of(&message));
        if let Some(shown) = first.fast_open.take().filter(|_| room.fast_open > 0) {
            let Judged { is_good, given } =
                FastOpens::judge(&table.secrets, pending.0, &shown, now);
            first.fast_open = given;
            let iss = table.secrets.sequence(pending.0, pending.1, now);
            let note = Note::new(now, (lower.clone(), upper.clone()), (iss, first, ends));
            if is_good {
                if self.open_fast(stray, pending, note, message, length, room.fast_open) {
                    return;
                }
                // As if there were no Fast Open: the peer does without for a while.
                first.fast_open = None;
            }
        }
        if table.pending.is_full() && known.is_none() {
            this.head().drops().count(&NOT_NOTED);
            let iss = table.cookies.bake(&table.secrets, pending, &first, now);
            let known = cookie::offer(&first);
            let mut answer = syn(&settings, &ends, iss, Some(&known), now);
            if let Some(stamps) = &mut answer.options.timestamps {
                cookie::mark(stamps, &known);
            }
            send_alone(cx, lower, origin, &answer);
            return;
        }
        let iss = table.secrets.sequence(pending.0, pending.1, now);
        let answer = syn(&settings, &ends, iss, Some(&first), now);
        let who = (lower.clone(), upper.clone());
        let note = Note::new(now, who, (iss, first, ends));
        table.pending.enter(pending, note);
        table.keep_ticking(cx, this);
        send_alone(cx, lower, origin, &answer);
    }

    /// The peer's cookie is good: makes the session at once, which has the data of the SYN, and
    /// tells the protocol above (RFC 7413, section 4.2.2). False if there is no room for that.
    fn open_fast(
        &self,
        stray: Stray<'_>,
        pending: PendingKey,
        note: Note,
        mut message: Message,
        length: usize,
        most: u32,
    ) -> bool {
        let Stray { cx, this, lower, origin, .. } = stray;
        let (port, now) = (note.ends.local, cx.now());
        if !self.table.fast.enter(port, most, now) {
            this.head().drops().count(&FAST_OPENS_FULL);
            return false;
        }
        let data = message.strip(length).then_some(message).filter(|data| !data.is_empty());
        let (iss, first, given) = (note.iss, note.syn, note.syn.fast_open);
        let accept =
            |settings| Connection::accept_fast(settings, note.ends, iss, &first, data, given, now);
        let found = self.found(cx, this, (lower, origin), (pending, &note), accept);
        let own = match &found {
            Ok((session, true)) => session.body::<TcpSession>(),
            _ => None,
        };
        let (Ok((session, _)), Some(own)) = (&found, own) else {
            self.table.fast.leave(port, false, now);
            return found.is_ok();
        };
        own.is_fast_pending.set(true);
        let told = self.tell(stray, &note, session, None);
        if told.is_err() {
            end_silently(cx, session);
        } else {
            start(cx, session);
        }
        told.is_ok()
    }

    /// Note of a cookie that comes back; `None` if the segment brings none.
    fn note_of_cookie(
        &self,
        Stray { cx, lower, header, .. }: Stray<'_>,
        pending: PendingKey,
        upper: &ProtocolRef,
    ) -> Option<Note> {
        if !header.flags.has(Flags::ACK) || header.flags.any(Flags::SYN | Flags::RST) {
            return None;
        }
        let (table, now) = (&self.table, cx.now());
        let (iss, first) = table.cookies.taste(&table.secrets, pending, header, now)?;
        let ends = self.ends(path(cx, lower), pending.0, header.dst, header.src);
        let who = (lower.clone(), upper.clone());
        Some(Note::new(now, who, (iss, first, ends)))
    }

    /// A segment of a peer whose SYN was answered.
    fn demux_pending(
        &self,
        stray: Stray<'_>,
        pending: PendingKey,
        note: Note,
        message: Message,
        length: usize,
    ) -> Result<(), Refused> {
        let Stray { this, header, .. } = stray;
        let flags = header.flags;
        let is_next = header.seq == note.syn.irs + 1;
        if flags.has(Flags::RST) {
            if is_next {
                self.table.pending.remove(&pending);
            } else if self.is_in_window(header, &note) {
                self.challenge(stray, &note);
            }
            this.discard(message, &BAD_HANDSHAKE);
            return Ok(());
        }
        if flags.has(Flags::SYN) {
            // A SYN sent again: our answer was lost. Another: the peer has begun again.
            let upper = note.upper.clone();
            if flags.has(Flags::ACK) {
                self.answer_reset(stray, message, length);
                return Ok(());
            }
            if header.seq == note.syn.irs {
                self.answer_again(stray, pending, &note, message);
            } else {
                self.take_syn(stray, pending, &upper, message, length);
            }
            return Ok(());
        }
        if !flags.has(Flags::ACK) || header.ack != note.iss + 1 {
            if flags.has(Flags::ACK) {
                self.answer_reset(stray, message, length);
            } else {
                this.discard(message, &BAD_HANDSHAKE);
            }
            return Ok(());
        }
        if !self.is_in_window(header, &note) {
            self.challenge(stray, &note);
            this.discard(message, &BAD_HANDSHAKE);
            return Ok(());
        }
        self.establish(stray, pending, note, message)
    }

    /// The peer's SYN has come again. The first one's options stand, as with Linux: what is offered
    /// is not taken back. One that asks for marks to be fed back in another way ends it all.
    fn answer_again(&self, stray: Stray<'_>, pending: PendingKey, note: &Note, message: Message) {
        let Stray { cx, this, lower, origin, header } = stray;
        let again = Syn::of(header).marked(mark_of(&message)).ecn;
        let Some(ecn) = note.syn.ecn.renewed(again, &self.table.settings.borrow()) else {
            self.table.pending.remove(&pending);
            let (seq, ack) = (note.iss + 1, note.syn.irs + 1);
            let reset = Header::new(header.dst, header.src, seq, ack, Flags::RST | Flags::ACK);
            if self.table.unfit.take(cx, answers::source(cx, lower), 1) {
                send_alone(cx, lower, origin, &reset);
            }
            this.discard(message, &BAD_HANDSHAKE);
            return;
        };
        let mut note = note.clone();
        note.syn.ecn = ecn;
        self.table.pending.enter(pending, note.clone());
        self.answer_syn(cx, origin, &note, lower);
    }

    /// Octets of the window that a peer was told of with our SYN.
    fn window(&self) -> u16 {
        self.table.settings.borrow().receive_buffer.min(u32::from(u16::MAX)) as u16
    }

    fn is_in_window(&self, header: &Header, note: &Note) -> bool {
        header.seq.within(note.syn.irs + 1, u32::from(self.window().max(1)))
    }

    /// Tells a peer whose SYN was answered what is expected of it (RFC 9293, section 3.10.7.4; RFC
    /// 5961, section 3.2).
    fn challenge(&self, Stray { cx, lower, origin, header, .. }: Stray<'_>, note: &Note) {
        if self.table.unfit.take(cx, answers::source(cx, lower), 1) {
            let (seq, ack) = (note.iss + 1, note.syn.irs + 1);
            let mut ack = Header::new(header.dst, header.src, seq, ack, Flags::ACK);
            ack.window = self.window();
            send_alone(cx, lower, origin, &ack);
        }
    }

    /// Our SYN is acknowledged: makes the session, tells the protocol above, and lets it have the
    /// segment. Where there is no room the segment is dropped and the note stays, be it one that
    /// the peer keeps: our SYN and the peer's data go again.
    #[cold]
    fn establish(
        &self,
        stray: Stray<'_>,
        pending: PendingKey,
        note: Note,
        message: Message,
    ) -> Result<(), Refused> {
        let Stray { cx, this, lower, origin, .. } = stray;
        let answered =
            |settings| Connection::answered(settings, note.ends, note.iss, &note.syn, note.sent);
        let session = match self.found(cx, this, (lower, origin), (pending, &note), answered) {
            Ok((session, true)) => session,
            Ok((session, false)) => return session.pop(cx, message),
            Err(why) => {
                drop(message);
                self.turn_away(stray, why);
                return Ok(());
            }
        };
        let (local, peer) = (note.ends.local, note.ends.peer);
        let key = key(lower, ports(local, peer));
        if let Err(unwanted) = self.tell(stray, &note, &session, Some(message)) {
            self.turn_away(stray, unwanted);
            if unwanted.class == Class::Exhausted && gives_credit(&session) {
                // No room on the way: the peer's segment comes again, or our SYN brings it.
                end_silently(cx, &session);
                self.table.pending.enter(pending, note);
                self.table.keep_ticking(cx, this);
            } else {
                self.table.sessions.unbind(&key);
                // No longer bound, it breaks off, which tells the peer.
                session.abort(cx);
            }
            return Ok(());
        }
        start(cx, &session);
        Ok(())
    }

    /// Tells the protocol above of a new session, which takes `first` in before.
    fn tell(
        &self,
        Stray { cx, lower, origin, .. }: Stray<'_>,
        note: &Note,
        session: &SessionRef,
        first: Option<Message>,
    ) -> Result<(), &'static Reason> {
        let (local, peer) = (note.ends.local, note.ends.peer);
        let participants = origin.participants(local, peer);
        // Acknowledgements are taken meanwhile: what the protocol above sends may wait for them.
        keep_back(session, true);
        let mut next = first;
        // What waits for this segment comes before what finds the session.
        while let Some(segment) =
            next.take().or_else(|| self.table.firsts.next(key(lower, ports(local, peer))))
        {
            if let Err(refused) = session.pop(cx, segment) {
                lower.refused(cx, refused);
            }
        }
        let told = note.upper.open_done(cx, session, participants);
        keep_back(session, false);
        told
    }

    /// The session of a peer whose SYN was answered, over the one below that brought it, and
    /// whether it is new, so that the protocol above is to be told. The note is gone then.
    fn found(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        (lower, origin): (&SessionRef, &Origin),
        (pending, note): (PendingKey, &Note),
        begin: impl FnOnce(Rc<Settings>) -> Connection,
    ) -> Result<(SessionRef, bool), &'static Reason> {
        let (local, peer) = (note.ends.local, note.ends.peer);
        // What held it may release it while the protocol above is asked.
        lower.hold();
        let asked = cx.unless_lost(|| {
            let link = Link::new(cx, lower, *origin, pending.0);
            (room(cx, &note.upper, origin, (local, 0)), link)
        });
        let (room, link) = match asked {
            Ok(asked) if !asked.0.full => asked,
            refused => {
                lower.ease(cx);
                return Err(refused.err().unwrap_or(&reason::QUEUE_FULL));
            }
        };
        let settings = self.table.settings_within(&room);
        let connection = begin(settings);
        let key = key(lower, ports(local, peer));
        if let Some(session) = self.made_meanwhile(lower, key.1) {
            lower.ease(cx);
            return Ok((session, false));
        }
        let body = TcpSession::new(cx, &self.table, link, key, &note.upper, connection);
        let session = cx.new_passive_session(this, &note.upper, lower.head().source(), body);
        if let Err(full) = self.table.sessions.bind(cx, key, session.clone()) {
            // Without a word to the peer.
            session.retire(cx);
            lower.close(cx);
            return Err(full);
        }
        self.table.pending.remove(&pending);
        Ok((session, true))
    }

    /// Makes the sessions of all peers whose SYN was answered, which go on with the handshake
    /// elsewhere: of how many none was made.
    pub(crate) fn found_all(&self, cx: &Kernel, this: &ProtocolRef) -> usize {
        for (pending, note) in self.table.pending.all() {
            let lower = &note.lower;
            let origin = self.table.origins.learned(cx, lower);
            if let Some(origin) = origin.ok().filter(|_| !lower.head().is_closed()) {
                let answered = |settings| {
                    Connection::answered(settings, note.ends, note.iss, &note.syn, note.sent)
                };
                let _ = self.found(cx, this, (lower, &origin), (pending, &note), answered);
            }
        }
        self.table.pending.len()
    }

    /// A segment of no port: dropped, counted, and answered by a reset.
    fn answer_reset(&self, stray: Stray<'_>, message: Message, length: usize) {
        let Stray { cx, this, lower, origin, header } = stray;
        let why = &reason::NO_PORT;
        self.table.drop_sources.record(cx, lower, header.src, why);
        if let Some(reset) = header.answering_reset(message.len().saturating_sub(length))
            && self.table.unfit.take(cx, answers::source(cx, lower), 1)
        {
            send_alone(cx, lower, origin, &reset);
        }
        this.discard(message, why);
    }

    /// There is no room for a peer now: it is told nothing, and tries again.
    fn turn_away(&self, stray: Stray<'_>, why: &'static Reason) {
        self.table.drop_sources.record(stray.cx, stray.lower, stray.header.src, why);
        stray.this.head().drops().count(why);
    }

    /// Sends our SYN once more.
    fn answer_syn(&self, cx: &Kernel, origin: &Origin, note: &Note, lower: &SessionRef) {
        let room = room(cx, &note.upper, origin, (note.ends.local, 0));
        let settings = self.table.settings_within(&room);
        // A Fast Open option may be what does not pass (RFC 7413, section 4.2.2).
        let first = Syn { fast_open: None, ecn: note.syn.ecn.repeated(1), ..note.syn };
        let answer = syn(&settings, &note.ends, note.iss, Some(&first), cx.now());
        send_alone(cx, lower, origin, &answer);
    }

    /// Looks through the notes, and the ends that are held.
    pub(crate) fn tick(&self, cx: &Kernel, this: &ProtocolRef) {
        let pending = &self.table.pending;
        pending.is_ticking.set(false);
        let holds = self.table.holds.tick(cx.now(), this);
        let (again, given_up) = pending.overdue(cx.now());
        for _ in 0..given_up {
            this.head().drops().count(&SYN_UNANSWERED);
        }
        for note in again {
            if note.lower.head().is_closed() {
                // The peer's next segment finds a new one.
                continue;
            }
            // Sent with the first answer, these are as many octets as may always go; a peer that is
            // there asks again.
            let is_free = usize::from(note.retries) < answers::TIMES_MAX;
            let source = answers::source(cx, &note.lower);
            if !is_free && !self.table.unproved.take(cx, source, SYN_OCTETS) {
                this.head().drops().count(&answers::UNPROVED);
                continue;
            }
            if let Ok(origin) = self.table.origins.learned(cx, &note.lower) {
                self.answer_syn(cx, &origin, &note, &note.lower);
            }
        }
        if pending.len() > 0 || holds {
            self.table.keep_ticking(cx, this);
        }
    }
}
