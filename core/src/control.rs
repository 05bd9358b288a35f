//! Control: typed questions to a protocol or session, answered by it or forwarded to the one below.
//!
//! A question is a struct: the fields put in are its arguments, the fields filled in its answer.
//! The set is open; what several protocols share lies in `xk-kit`, what every object can be asked
//! lies here.

use crate::map::{Key, MapStats};
use crate::name_key;
use crate::object::{ProtocolId, SessionRef, SessionTable};
use alloc::string::String;
use alloc::vec::Vec;
use core::any::Any;

/// A question that objects can be asked.
pub trait Question: Any {
    /// Its name, as `xk` lists it.
    const NAME: &'static str;
    /// Its name as a number: what another address space knows it by.
    const KEY: u32 = name_key(Self::NAME);
    /// True if layers ask it of those above them: a layer that fits any edge passes it up.
    const UPWARD: bool = false;
}

/// Whether the question was understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Answer {
    /// The object filled in the answer.
    Answered,
    /// Neither this object nor any below it knows.
    Unknown,
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
    name: &'static str,
    is_upward: bool,
    question: &'a mut dyn Any,
    /// The layers that have passed it up.
    passed_up_by: Vec<ProtocolId>,
}

impl<'a> Ask<'a> {
    /// Puts a question.
    pub fn new<Q: Question>(question: &'a mut Q) -> Self {
        Self { name: Q::NAME, is_upward: Q::UPWARD, question, passed_up_by: Vec::new() }
    }

    /// For a layer that passes a question from below on to those above, under one name for all of
    /// its objects. False if it has done so: then nobody above has understood the question, so that
    /// it came back down, and ends here.
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
        self.name
    }

    /// Whether it is one that layers ask of those above them.
    pub fn is_upward(&self) -> bool {
        self.is_upward
    }

    /// The question, if it is a `Q`.
    pub fn get<Q: Question>(&mut self) -> Option<&mut Q> {
        self.question.downcast_mut()
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

/// What an object says about one question it answers, for listing.
#[derive(Clone, Copy, Debug)]
pub struct QuestionInfo {
    /// The question's name ([`Question::NAME`]).
    pub name: &'static str,
    /// What the answer means here.
    pub meaning: &'static str,
}

/// A question for the list of an entry.
pub const fn question(name: &'static str, meaning: &'static str) -> QuestionInfo {
    QuestionInfo { name, meaning }
}

/// Asked of any session: a line about its participants and state, for `xk dump`.
#[derive(Default)]
pub struct Describe {
    /// The line.
    pub text: String,
}

impl Question for Describe {
    const NAME: &'static str = "describe";
}

/// Asked of any protocol: its sessions (at most `max`), for `xk dump`.
pub struct ListSessions {
    /// How many the asker wants at most.
    pub max: usize,
    /// The sessions.
    pub sessions: Vec<SessionRef>,
    /// How many there are in all.
    pub total: usize,
}

impl ListSessions {
    /// Adds those of a table, as far as more are wanted.
    pub fn add<K: Key>(&mut self, table: &SessionTable<K>) {
        let wanted = self.max.saturating_sub(self.sessions.len());
        self.sessions.extend(table.sessions(wanted));
        self.total += table.len();
    }

    /// Adds one, unless no more are wanted.
    pub fn push(&mut self, session: &SessionRef) {
        if self.sessions.len() < self.max {
            self.sessions.push(session.clone());
        }
        self.total += 1;
    }
}

impl Question for ListSessions {
    const NAME: &'static str = "list-sessions";
}

/// Asked of any protocol: its maps and how they are used, for `xk dump`.
#[derive(Default)]
pub struct ListMaps {
    /// Name and figures of each map.
    pub maps: Vec<(&'static str, MapStats)>,
}

impl Question for ListMaps {
    const NAME: &'static str = "list-maps";
}

/// Asked of an anchor at the top: what it has to tell a person (replies seen, losses, errors), as
/// `name value` pairs.
#[derive(Default)]
pub struct Report {
    /// The figures, in the order to print them.
    pub lines: Vec<(String, String)>,
    /// True once the anchor has done all it was asked to do; an anchor that serves for ever says
    /// true from the start.
    pub finished: bool,
    /// False if what it was asked to do went wrong.
    pub failed: bool,
}

impl Question for Report {
    const NAME: &'static str = "report";
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Colour(u8);
    impl Question for Colour {
        const NAME: &'static str = "colour";
    }

    #[test]
    fn only_its_own_type_is_answered() {
        let mut colour = Colour(0);
        let mut ask = Ask::new(&mut colour);
        assert_eq!(ask.answer::<Describe>(|d| d.text.clear()), Answer::Unknown);
        assert_eq!(ask.answer::<Colour>(|c| c.0 = 7), Answer::Answered);
        assert_eq!(ask.name(), "colour");
        assert_eq!(colour.0, 7);
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
