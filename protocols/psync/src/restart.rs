//! The return of a member that has lost its state, on its own side. It knows no kernel.
//!
//! The member asks the others with a number of its start. Each answers with a number of its own,
//! the cookie, which the member has to show from then on: so the question comes from its host. Once
//! the others have let the member in, they answer with the list of members and the base, in as many
//! packets as it takes; those of one member are put together.

use crate::conversation::STRANGE;
use crate::graph::BaseOf;
use crate::wire::{Address, Asking, Header, LISTED, Let, Opening, VERSION, base};
use alloc::vec::Vec;
use core::time::Duration;
use xk_core::{Message, Reason, Time, reason};
use xk_kit::net::attribute::Peer;

/// Time after which the others are asked again first, and at most.
const ASK_WAIT: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(2)];
/// Time after which what another member says may take the place of what one has said in part.
const STALE_AFTER: Duration = Duration::from_millis(500);
/// Largest number of members that were heard.
const HEARD_MAX: usize = 64;

/// A return under way.
pub(crate) struct Restart {
    start: u64,
    /// The members that were heard.
    heard: Vec<Other>,
    parts: Option<Parts>,
    /// The others are asked next.
    pub(crate) due: Time,
    tries: u32,
}

/// Another member, as one that comes back knows it.
struct Other {
    peer: Peer,
    /// Number that is to be shown; 0 before its first answer.
    cookie: u64,
    asked_at: Time,
}

/// Answers of one member.
struct Parts {
    from: Peer,
    since: Time,
    opening: Opening,
    me: u16,
    base: Vec<BaseOf>,
}

/// The place at which a member comes back.
pub(crate) struct Back {
    /// Number of the start.
    pub(crate) start: u64,
    pub(crate) opening: Opening,
    /// Index of the member.
    pub(crate) me: u8,
    pub(crate) base: Vec<BaseOf>,
}

/// Result of an answer.
pub(crate) enum Heard {
    /// The member that has answered is to be asked again at once.
    Ask,
    /// Nothing is to be done.
    Wait,
    /// All is known.
    Back(Back),
}

impl Restart {
    /// A return that begins now; `start` is a random number, of which 48 bits are used.
    pub(crate) fn new(start: u64, now: Time) -> Self {
        Self { start: (start >> 16).max(1), heard: Vec::new(), parts: None, due: now, tries: 0 }
    }

    /// Notes that the others are asked now.
    pub(crate) fn note_asked(&mut self, now: Time) {
        let wait = ASK_WAIT[0] * (1 << self.tries.min(5));
        (self.due, self.tries) = (now.after(wait.min(ASK_WAIT[1])), self.tries + 1);
    }

    /// Returns the body of the question to a member.
    pub(crate) fn question(&self, to: Peer) -> [u8; Asking::OCTETS] {
        let cookie = self.heard.iter().find(|other| other.peer == to);
        let parts = self.parts.as_ref().filter(|parts| parts.from == to);
        let first = parts.map_or(0, |parts| parts.base.len() as u16);
        let cookie = cookie.map_or(0, |other| other.cookie);
        Asking { start: self.start, cookie, first }.emit()
    }

    /// Takes an answer of the member at `from`, its header off; `is_own` says whether an address is
    /// that of this member.
    pub(crate) fn take(
        &mut self,
        from: Peer,
        header: &Header,
        message: &Message,
        now: Time,
        is_own: impl Fn(&Address) -> bool,
    ) -> Result<Heard, &'static Reason> {
        let is_let_in = header.flags == LISTED;
        let is_sound = header.version == VERSION && header.entries == 0 && header.seq == 0;
        let opening = match is_let_in {
            true => Some(Opening::read(message, 0).ok_or(&reason::MALFORMED)?),
            false => None,
        };
        let mut at = opening.as_ref().map_or(0, |opening| Opening::octets(opening.members.len()));
        let end = at + header.length as usize;
        let mut octets = [0; Let::OCTETS];
        let is_whole = message.copy_to(at, &mut octets) == octets.len() && end <= message.len();
        let said = Let::parse(&octets);
        if !is_sound || !is_whole || header.flags & !LISTED != 0 {
            return Err(&reason::MALFORMED);
        }
        if said.start != self.start {
            return Err(&STRANGE);
        }
        let other = self.other(from, now);
        let is_new = core::mem::replace(&mut other.cookie, said.cookie) != said.cookie;
        let Some(mut opening) = opening else {
            return Ok(if is_new { Heard::Ask } else { Heard::Wait });
        };
        let n = opening.members.len();
        if let Some(member) = opening.members.get_mut(usize::from(header.sender)) {
            member.peer = from;
        }
        let at_peer = |peer| opening.members.iter().position(|other| other.peer == peer);
        let is_once = |(at, member): (usize, &Address)| at_peer(member.peer) == Some(at);
        let is_me = opening.members.get(usize::from(said.me)).is_some_and(is_own);
        let is_sound = n > 1 && opening.members.iter().enumerate().all(is_once);
        if !is_me || !is_sound || usize::from(header.sender) >= n {
            return Err(&reason::MALFORMED);
        }
        at += Let::OCTETS;
        let mut all = Vec::new();
        while at < end && all.len() < n {
            let (of, octets) = base::read(message, at, opening.window).ok_or(&reason::MALFORMED)?;
            all.push(of);
            at += octets;
        }
        if all.is_empty() || at != end {
            return Err(&reason::MALFORMED);
        }
        self.join(from, said, opening, all, now)
    }

    /// Whether a member that was heard may be asked now, and notes that it is: each at a pace, and
    /// of those that a stranger may make up no more at a time than are kept.
    pub(crate) fn may_ask(&mut self, peer: Peer, now: Time) -> bool {
        let is_known = self.heard.iter().any(|other| other.peer == peer);
        let is_early = |other: &Other| now.since(other.asked_at) < ASK_WAIT[0];
        if !is_known && self.heard.len() == HEARD_MAX && is_early(&self.heard[0]) {
            return false;
        }
        let other = self.other(peer, now);
        let may_ask = !is_known || !is_early(other);
        if may_ask {
            other.asked_at = now;
        }
        may_ask
    }

    /// The member at this peer; it takes the place of the one that was heard first, if need be.
    fn other(&mut self, peer: Peer, now: Time) -> &mut Other {
        let at = self.heard.iter().position(|other| other.peer == peer).unwrap_or_else(|| {
            if self.heard.len() == HEARD_MAX {
                self.heard.remove(0);
            }
            self.heard.push(Other { peer, cookie: 0, asked_at: now });
            self.heard.len() - 1
        });
        &mut self.heard[at]
    }

    /// Puts an answer behind those that the same member has given before.
    fn join(
        &mut self,
        from: Peer,
        said: Let,
        opening: Opening,
        mut all: Vec<BaseOf>,
        now: Time,
    ) -> Result<Heard, &'static Reason> {
        let (n, first) = (opening.members.len(), usize::from(said.first));
        let known = self.parts.as_mut();
        match known {
            Some(parts) if parts.from == from && parts.base.len() == first && first > 0 => {
                if parts.opening != opening || parts.me != said.me || first + all.len() > n {
                    return Err(&reason::MALFORMED);
                }
                parts.base.append(&mut all);
            }
            Some(parts) if parts.from != from && now.since(parts.since) < STALE_AFTER => {
                return Ok(Heard::Wait);
            }
            _ if first == 0 => {
                self.parts = Some(Parts { from, since: now, opening, me: said.me, base: all });
            }
            _ => return Ok(Heard::Wait),
        }
        if self.parts.as_ref().is_some_and(|parts| parts.base.len() < n) {
            return Ok(Heard::Ask);
        }
        let Some(Parts { opening, me, base, .. }) = self.parts.take() else {
            return Ok(Heard::Wait);
        };
        let own = &base[usize::from(me)];
        let has_leaves = base.iter().any(|of| of.is_leaf) == base.iter().any(|of| of.seq > 0);
        if own.is_masked || own.incarnation < 2 || !has_leaves {
            return Err(&reason::MALFORMED);
        }
        Ok(Heard::Back(Back { start: self.start, opening, me: me as u8, base }))
    }
}
