//! Control: typed questions to a protocol or session, answered by it or forwarded to the one below.
//!
//! A question is a struct: the fields put in are its arguments, the fields filled in its answer.
//! The set is open; what several protocols share lies in `xk-kit`, what every object can be asked
//! lies here. [`question!`](crate::question) makes one of a struct: it says the question's name,
//! how it crosses to another address space ([`Kind`]), and which fields go there and back.

mod field;
mod interface;
mod word;

pub use crate::{fields, question};
pub use field::{Field, Handles, Kind, LIST_MAX, QuestionType, Reader, TEXT_MAX, Writer};
pub use word::Word;

use crate::map::{Key, MapStats};
use crate::object::{ProtocolId, SessionId, SessionRef, SessionTable};
use crate::reason::{self, Reason};
use crate::{Kernel, name_key};
use alloc::string::String;
use alloc::vec::Vec;
use core::any::Any;
use core::cell::RefCell;

/// A question that objects can be asked.
pub trait Question: Any + Field {
    /// The question's name, as `xk` lists it.
    const NAME: &'static str;
    /// The name as a number, by which another address space knows the question.
    const KEY: u32 = name_key(Self::NAME);
    /// The way in which it crosses to another address space.
    const KIND: Kind;
    /// True if layers ask it of those above them: a layer that fits any edge passes it up.
    const UPWARD: bool = false;
    /// True if it is about the very object that it is put to: no layer passes it on.
    const DIRECT: bool = false;
    /// True if what it tells a protocol holds as long as that lives: a cut tells it again to one
    /// that is started again.
    const STANDING: bool = false;
    /// The name of the question that takes back what this one tells, by the same fields. A cut puts
    /// it for an asker that has died.
    const UNDONE_BY: Option<&'static str> = None;
}

/// Makes a struct of fields that cross ([`Field`]) a [`Question`]: its name, its [`Kind`], and
/// `upward` if layers ask it of those above, `direct` if none passes it on, or `standing` if what
/// it tells holds as long as the protocol lives, or `until` another question takes it back.
///
/// ```
/// # extern crate alloc;
/// /// The largest message that can be pushed.
/// #[derive(Default)]
/// pub struct MaxPacket {
///     /// Octets.
///     pub octets: u32,
/// }
/// xk_core::question!(MaxPacket { octets }, "max-packet", Fact);
/// ```
#[macro_export]
macro_rules! question {
    ($type:ident { $($field:ident),* }, $name:literal, $kind:ident
        $(, $how:ident $(until $undo:literal)?)?) => {
        $crate::fields!($type { $($field),* });
        impl $crate::control::Question for $type {
            const NAME: &'static str = $name;
            const KIND: $crate::control::Kind = $crate::control::Kind::$kind;
            $(
                $crate::question!($how);
                $( const UNDONE_BY: Option<&'static str> = Some($undo); )?
            )?
        }
    };
    (upward) => { const UPWARD: bool = true; };
    (direct) => { const DIRECT: bool = true; };
    (standing) => { const STANDING: bool = true; };
}

/// Whether the question was understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Answer {
    /// The object filled in the answer.
    Answered,
    /// Neither this object nor any below it knows; or the question was lost, which is no answer
    /// ([`Kernel::unless_lost`]).
    Unknown,
}

/// Counts of the questions that each shepherd has lost, by its number. The first count is for code
/// that runs on no shepherd.
#[derive(Default)]
pub(crate) struct Losses(RefCell<Vec<u32>>);

impl Kernel {
    fn asker(&self) -> usize {
        self.shepherds().current().map_or(0, |shepherd| shepherd as usize + 1)
    }

    /// Number of lost questions that this shepherd has put.
    pub(crate) fn lost(&self) -> u32 {
        self.losses.0.borrow().get(self.asker()).copied().unwrap_or(0)
    }

    /// Answers a question that did not get to the object it was put to, or the answer to which did
    /// not come back: the caller's shepherd has learned nothing, not that the object does not know.
    #[cold]
    pub fn lose_question(&self) -> Answer {
        let (mut all, asker) = (self.losses.0.borrow_mut(), self.asker());
        if all.len() <= asker {
            all.resize(asker + 1, 0);
        }
        all[asker] = all[asker].wrapping_add(1);
        Answer::Unknown
    }

    /// Runs `learn`, which puts questions, and returns its result unless one of them was lost. A
    /// lost question looks like [`Answer::Unknown`], so a result that is kept must be learned in
    /// this way: it would stay wrong. [`ProtocolRef::open`](crate::ProtocolRef::open) and the other
    /// operations that answer do so for all that protocols do in them.
    ///
    /// # Errors
    /// [`reason::NO_ANSWER`] if one of the questions was lost: then the same is tried later.
    pub fn unless_lost<T>(&self, learn: impl FnOnce() -> T) -> Result<T, &'static Reason> {
        let before = self.lost();
        let learned = learn();
        if self.lost() == before { Ok(learned) } else { Err(&reason::NO_ANSWER) }
    }
}

impl Answer {
    /// True if the object filled in the answer.
    pub fn is_answered(self) -> bool {
        self == Answer::Answered
    }
}

/// A question under way. The object looks whether it is one that it knows.
///
/// ```ignore
/// fn control(&self, cx: &Kernel, this: &SessionRef, ask: &mut Ask<'_>) -> Answer {
///     ask.answer::<MaxPacket>(|q| q.octets = 1500)
/// }
/// ```
pub struct Ask<'a> {
    kind: &'static QuestionType,
    question: &'a mut dyn Any,
    /// The layers that have passed it up.
    passed_up_by: Vec<ProtocolId>,
    /// True once it has been put to an object.
    is_put: bool,
}

impl<'a> Ask<'a> {
    /// Puts a question.
    pub fn new<Q: Question>(question: &'a mut Q) -> Self {
        Self {
            kind: const { &QuestionType::of::<Q>() },
            question,
            passed_up_by: Vec::new(),
            is_put: false,
        }
    }

    /// Puts it to one more object; false if it is for the first alone.
    #[must_use]
    pub(crate) fn reaches_next(&mut self) -> bool {
        let is_first = !core::mem::replace(&mut self.is_put, true);
        is_first || !self.kind.is_direct
    }

    /// For a layer that passes a question from below on to those above, under one name for all of
    /// its objects. False if it has done so: then no layer above has understood the question, so
    /// that it came back down, and ends here.
    #[must_use]
    pub fn goes_up_by(&mut self, layer: ProtocolId) -> bool {
        let is_first = !self.passed_up_by.contains(&layer);
        if is_first {
            self.passed_up_by.push(layer);
        }
        is_first
    }

    /// The question's name.
    pub fn name(&self) -> &'static str {
        self.kind.name
    }

    /// The kind's name, key and encoding.
    pub fn kind(&self) -> &'static QuestionType {
        self.kind
    }

    /// The layers that have passed it up, for one that passes it on to another address space.
    pub fn passed_up_by(&self) -> &[ProtocolId] {
        &self.passed_up_by
    }

    /// Whether it is one that layers ask of those above them.
    pub fn is_upward(&self) -> bool {
        self.kind.is_upward
    }

    /// The question, if it is a `Q`.
    pub fn get<Q: Question>(&mut self) -> Option<&mut Q> {
        self.question.downcast_mut()
    }

    /// Answers [`Describe`] if there is something to say; false if it is another question.
    pub(crate) fn describes(&mut self, text: impl FnOnce() -> Option<String>) -> bool {
        match self.get::<Describe>() {
            Some(question) => text().map(|text| question.text = text).is_some(),
            None => false,
        }
    }

    /// Answers [`ListSessions`] or [`ListMaps`] if there is something to show; false if it is
    /// another question.
    pub(crate) fn shows(&mut self, show: impl FnOnce(&mut Tables<'_>)) -> bool {
        let list = match self.question.downcast_mut::<ListSessions>() {
            Some(sessions) => Err(sessions),
            None => match self.question.downcast_mut::<ListMaps>() {
                Some(maps) => Ok(maps),
                None => return false,
            },
        };
        let mut tables = Tables { list, is_shown: false };
        show(&mut tables);
        tables.is_shown
    }

    /// Lets `fill` answer if the question is a `Q`.
    pub fn answer<Q: Question>(&mut self, fill: impl FnOnce(&mut Q)) -> Answer {
        match self.get::<Q>() {
            Some(q) => {
                fill(q);
                Answer::Answered
            }
            None => Answer::Unknown,
        }
    }
}

/// One question that an object answers, for listing.
#[derive(Clone, Copy, Debug)]
pub struct QuestionInfo {
    /// The question's name ([`Question::NAME`]).
    pub name: &'static str,
    /// Meaning of the answer here.
    pub meaning: &'static str,
    /// The question's type, if it is this protocol's own.
    pub own: Option<&'static QuestionType>,
}

/// A question for the list of an entry, by its name; one of those that protocols share.
pub const fn question(name: &'static str, meaning: &'static str) -> QuestionInfo {
    QuestionInfo { name, meaning, own: None }
}

/// A question for the list of an entry that is this protocol's own.
pub const fn own_question<Q: Question>(meaning: &'static str) -> QuestionInfo {
    QuestionInfo { name: Q::NAME, meaning, own: Some(const { &QuestionType::of::<Q>() }) }
}

/// Asked of any session: a line about its participants and state, for `xk dump`.
#[derive(Default)]
pub struct Describe {
    /// The line.
    pub text: String,
}

question!(Describe { text }, "describe", Ask);

/// A session as `xk dump` lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionInfo {
    /// The session's number.
    pub id: SessionId,
    /// The protocol that made it.
    pub protocol: ProtocolId,
    /// The protocol that it delivers to.
    pub upper: ProtocolId,
    /// Number of holders.
    pub holders: u32,
    /// Messages pushed.
    pub sent: u64,
    /// Messages popped.
    pub received: u64,
    /// The session's own description ([`Describe`]).
    pub text: String,
}

fields!(SessionInfo { id, protocol, upper, holders, sent, received, text });

impl SessionInfo {
    /// Reads a session's entry.
    pub fn of(cx: &Kernel, session: &SessionRef) -> Self {
        let head = session.head();
        Self {
            id: head.id(),
            protocol: head.protocol(),
            upper: head.upper(),
            holders: head.opens(),
            sent: head.sent(),
            received: head.received(),
            text: session.ask(cx, Describe::default()).unwrap_or_default().text,
        }
    }
}

/// A session in a list.
#[derive(Clone)]
pub enum Listed {
    /// One of the asker's own address space.
    Here(SessionRef),
    /// One of another.
    Elsewhere(SessionInfo),
}

impl Listed {
    /// The protocol that made it.
    pub fn protocol(&self) -> ProtocolId {
        match self {
            Self::Here(session) => session.head().protocol(),
            Self::Elsewhere(info) => info.protocol,
        }
    }

    /// The session as a list shows it.
    pub fn info(&self, cx: &Kernel) -> SessionInfo {
        match self {
            Self::Here(session) => SessionInfo::of(cx, session),
            Self::Elsewhere(info) => info.clone(),
        }
    }
}

/// Asked of any protocol: its sessions (at most `max`), for `xk dump`. To another address space
/// they go by value: handles would let it use what it only wanted to look at.
#[derive(Default)]
pub struct ListSessions {
    /// Sessions that the asker wants at most.
    pub max: usize,
    /// The sessions.
    pub sessions: Vec<Listed>,
    /// Number of sessions in all.
    pub total: usize,
}

impl ListSessions {
    /// The question for so many.
    pub fn first(max: usize) -> Self {
        Self { max, ..Self::default() }
    }

    /// Sessions that lie in this address space.
    pub fn here(&self) -> impl Iterator<Item = &SessionRef> {
        self.sessions.iter().filter_map(|listed| match listed {
            Listed::Here(session) => Some(session),
            Listed::Elsewhere(_) => None,
        })
    }

    /// Adds those of a table, as far as more are wanted.
    pub fn add<K: Key>(&mut self, table: &SessionTable<K>) {
        let wanted = self.max.saturating_sub(self.sessions.len());
        self.sessions.extend(table.sessions(wanted).into_iter().map(Listed::Here));
        self.total += table.len();
    }

    /// Adds one, unless no more are wanted.
    pub fn push(&mut self, session: &SessionRef) {
        if self.sessions.len() < self.max {
            self.sessions.push(Listed::Here(session.clone()));
        }
        self.total += 1;
    }
}

question!(ListSessions { max, sessions, total }, "list-sessions", Ask);

/// Asked of any protocol: its maps and how they are used, for `xk dump`.
#[derive(Default)]
pub struct ListMaps {
    /// Name and figures of each map.
    pub maps: Vec<(Word, MapStats)>,
}

question!(ListMaps { maps }, "list-maps", Ask);

impl ListMaps {
    /// Adds one.
    pub fn add(&mut self, name: &'static str, stats: MapStats) {
        self.maps.push((name.into(), stats));
    }
}

/// Collects the sessions and maps that a protocol shows
/// ([`Protocol::tables`](crate::Protocol::tables)), for [`ListSessions`] or [`ListMaps`].
pub struct Tables<'a> {
    list: Result<&'a mut ListMaps, &'a mut ListSessions>,
    is_shown: bool,
}

impl Tables<'_> {
    /// Shows a table of sessions, and its figures under this name.
    pub fn sessions<K: Key>(&mut self, name: &'static str, table: &SessionTable<K>) {
        match &mut self.list {
            Ok(maps) => maps.add(name, table.stats()),
            Err(sessions) => sessions.add(table),
        }
        self.is_shown = true;
    }

    /// Shows sessions that are in no table.
    pub fn others<'s>(&mut self, others: impl IntoIterator<Item = &'s SessionRef>) {
        if let Err(sessions) = &mut self.list {
            others.into_iter().for_each(|session| sessions.push(session));
        }
    }

    /// Shows the figures of a map.
    pub fn map(&mut self, name: &'static str, stats: MapStats) {
        if let Ok(maps) = &mut self.list {
            maps.add(name, stats);
            self.is_shown = true;
        }
    }
}

/// Asked of an anchor at the top: what it has to tell a person (replies seen, losses, errors), as
/// `name value` pairs.
#[derive(Default)]
pub struct Report {
    /// The figures, in the order to print them.
    pub lines: Vec<(String, String)>,
    /// True once the anchor has done all it was asked to do; an anchor that serves without end says
    /// true from the start.
    pub finished: bool,
    /// False if what it was asked to do went wrong.
    pub failed: bool,
}

question!(Report { lines, finished, failed }, "report", Ask);

#[cfg(test)]
mod tests {
    use super::*;

    struct Colour {
        hue: u8,
    }
    question!(Colour { hue }, "colour", Fact);

    #[test]
    fn only_its_own_type_is_answered() {
        let mut colour = Colour { hue: 0 };
        let mut ask = Ask::new(&mut colour);
        assert_eq!(ask.answer::<Describe>(|d| d.text.clear()), Answer::Unknown);
        assert_eq!(ask.answer::<Colour>(|c| c.hue = 7), Answer::Answered);
        assert_eq!(ask.name(), "colour");
        assert_eq!(colour.hue, 7);
    }

    #[test]
    fn each_layer_passes_a_question_up_once_whoever_else_does() {
        let mut question = Describe::default();
        let mut ask = Ask::new(&mut question);
        let [under, beside] = [ProtocolId(1), ProtocolId(2)];
        assert!(ask.goes_up_by(under) && ask.goes_up_by(beside));
        // What stands on both passes it down to the first again.
        assert!(!ask.goes_up_by(under) && !ask.goes_up_by(beside));
    }
}
