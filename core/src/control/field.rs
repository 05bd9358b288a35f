//! Questions as octets: how one crosses to another address space and its answer comes back.
//!
//! Integers are little-endian; a length or count is two octets; an `Option` is one octet, then the
//! value; handles of objects are numbers that both sides have agreed on ([`Handles`]). Lists and
//! texts have a bound: what is beyond it is left out, and questions that list things say the total.
//! What cannot be read back makes the whole question unreadable; nothing else can go wrong, and
//! reading allocates no more than the octets it was given account for.

use super::{Ask, Listed, Question, SessionInfo};
use crate::message::{Message, Pool};
use crate::object::{ProtocolId, ProtocolRef, SessionRef};
use crate::reason::{self, Class, Reason};
use crate::time::Time;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use core::any::Any;
use core::fmt;
use core::time::Duration;

/// The most elements that a list carries; those behind them are left out.
pub const LIST_MAX: usize = 1024;
/// The most octets of a text or a message; those behind them are left out.
pub const TEXT_MAX: usize = 8192;

/// Names of objects and reasons that cross: both sides know them by numbers.
pub trait Handles {
    /// The number of a session for the other side; `None` if it may not know it.
    fn number(&self, session: &SessionRef) -> Option<u64>;
    /// The session that the other side calls by this number.
    fn session(&self, number: u64) -> Option<SessionRef>;
    /// Entry of a session that is only listed, as the other side may see it; `None` if it may not.
    fn info(&self, session: &SessionRef) -> Option<SessionInfo> {
        let _ = session;
        None
    }
    /// The protocol of this number, which is one for all address spaces of a host.
    fn protocol(&self, id: ProtocolId) -> Option<ProtocolRef>;
    /// The reason of this key, if one of that name is known here.
    fn reason(&self, key: u32) -> Option<&'static Reason>;
    /// The pool in which messages are made.
    fn pool(&self) -> &Pool;
}

/// Takes fields as octets.
pub struct Writer<'a> {
    octets: Vec<u8>,
    handles: &'a dyn Handles,
    is_whole: bool,
    now: Option<Time>,
}

impl<'a> Writer<'a> {
    /// An empty one.
    pub fn new(handles: &'a dyn Handles) -> Self {
        Self::reusing(Vec::new(), handles)
    }

    /// An empty one that writes into this list, whose elements go, as far as it has room.
    pub fn reusing(mut octets: Vec<u8>, handles: &'a dyn Handles) -> Self {
        octets.clear();
        Self { octets, handles, is_whole: true, now: None }
    }

    /// An empty one for a reader with another clock: points in time are written by how far they lie
    /// from `now`.
    pub fn at(handles: &'a dyn Handles, now: Time) -> Self {
        Self { now: Some(now), ..Self::new(handles) }
    }

    /// The time from which points in time are told; the clock's beginning unless it was given.
    pub fn now(&self) -> Time {
        self.now.unwrap_or_default()
    }

    /// Writes octets, of which the reader knows how many there are.
    pub fn put_octets(&mut self, octets: &[u8]) {
        self.octets.extend_from_slice(octets);
    }

    /// Octets written so far; `None` if something could not be expressed for the other side.
    pub fn octets(&self) -> Option<&[u8]> {
        self.is_whole.then_some(&*self.octets)
    }

    /// Writes a text, as much of it as goes.
    pub(super) fn put_text(&mut self, text: &str) {
        let text = &text[..text.floor_char_boundary(TEXT_MAX)];
        (text.len() as u16).put(self);
        self.octets.extend_from_slice(text.as_bytes());
    }

    /// Writes a list, as much of it as goes: the reader takes a `Vec`.
    pub fn put_list(&mut self, list: &[impl Field]) {
        let count = list.len().min(LIST_MAX);
        (count as u16).put(self);
        list.iter().take(count).for_each(|element| element.put(self));
    }

    /// The octets; `None` if something could not be expressed for the other side.
    pub fn finish(self) -> Option<Vec<u8>> {
        self.is_whole.then_some(self.octets)
    }
}

/// Gives fields out of octets.
pub struct Reader<'a> {
    octets: &'a [u8],
    handles: &'a dyn Handles,
    now: Option<Time>,
}

impl<'a> Reader<'a> {
    /// Reads these octets.
    pub fn new(octets: &'a [u8], handles: &'a dyn Handles) -> Self {
        Self { octets, handles, now: None }
    }

    /// Reads these octets, in which points in time are written as distances from `now`. A point
    /// before the clock's beginning is taken for that beginning.
    pub fn at(octets: &'a [u8], handles: &'a dyn Handles, now: Time) -> Self {
        Self { now: Some(now), ..Self::new(octets, handles) }
    }

    /// The time from which points in time are told; the clock's beginning unless it was given.
    pub fn now(&self) -> Time {
        self.now.unwrap_or_default()
    }

    /// The pool in which messages are made.
    pub fn pool(&self) -> &'a Pool {
        self.handles.pool()
    }

    /// The next `count` octets; `None` if there are fewer.
    pub fn octets(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.octets.split_at_checked(count)?;
        self.octets = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.octets(N)?.first_chunk().copied()
    }

    /// A text of at most `max` octets.
    pub(super) fn text(&mut self, max: usize) -> Option<&'a str> {
        let len = usize::from(u16::take(self)?);
        let octets = self.octets(len).filter(|_| len <= max)?;
        core::str::from_utf8(octets).ok()
    }

    /// True if nothing is left.
    pub fn is_empty(&self) -> bool {
        self.octets.is_empty()
    }

    /// Octets that have not been read.
    pub fn rest(&self) -> &'a [u8] {
        self.octets
    }
}

/// A value that crosses: a field of a question.
pub trait Field: Sized {
    /// Writes it.
    fn put(&self, out: &mut Writer<'_>);
    /// Reads it; `None` if the octets are no such value.
    fn take(from: &mut Reader<'_>) -> Option<Self>;
}

macro_rules! integers {
    ($($type:ty),*) => { $(
        impl Field for $type {
            fn put(&self, out: &mut Writer<'_>) {
                out.octets.extend_from_slice(&self.to_le_bytes());
            }

            fn take(from: &mut Reader<'_>) -> Option<Self> {
                from.array().map(Self::from_le_bytes)
            }
        }
    )* };
}
integers!(u8, u16, u32, u64, i64);

impl Field for usize {
    fn put(&self, out: &mut Writer<'_>) {
        (*self as u64).put(out);
    }

    fn take(from: &mut Reader<'_>) -> Option<Self> {
        u64::take(from)?.try_into().ok()
    }
}

impl Field for bool {
    fn put(&self, out: &mut Writer<'_>) {
        u8::from(*self).put(out);
    }

    fn take(from: &mut Reader<'_>) -> Option<Self> {
        match u8::take(from)? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }
}

impl<const N: usize> Field for [u8; N] {
    fn put(&self, out: &mut Writer<'_>) {
        out.octets.extend_from_slice(self);
    }

    fn take(from: &mut Reader<'_>) -> Option<Self> {
        from.array()
    }
}

impl<T: Field> Field for Option<T> {
    fn put(&self, out: &mut Writer<'_>) {
        self.is_some().put(out);
        if let Some(value) = self {
            value.put(out);
        }
    }

    fn take(from: &mut Reader<'_>) -> Option<Self> {
        if bool::take(from)? { T::take(from).map(Some) } else { Some(None) }
    }
}

macro_rules! tuples {
    ($(($($type:ident $at:tt),+))+) => { $(
        impl<$($type: Field),+> Field for ($($type),+) {
            fn put(&self, out: &mut Writer<'_>) {
                $( self.$at.put(out); )+
            }

            fn take(from: &mut Reader<'_>) -> Option<Self> {
                Some(($($type::take(from)?),+))
            }
        }
    )+ };
}
tuples!((A 0, B 1) (A 0, B 1, C 2));

impl<T: Field> Field for Vec<T> {
    fn put(&self, out: &mut Writer<'_>) {
        out.put_list(self);
    }

    fn take(from: &mut Reader<'_>) -> Option<Self> {
        let count = usize::from(u16::take(from)?);
        // An element takes an octet at least, so that the octets bound the list.
        if count > LIST_MAX.min(from.octets.len()) {
            return None;
        }
        let mut list = Vec::new();
        for _ in 0..count {
            list.push(T::take(from)?);
        }
        Some(list)
    }
}

impl Field for String {
    fn put(&self, out: &mut Writer<'_>) {
        out.put_text(self);
    }

    fn take(from: &mut Reader<'_>) -> Option<Self> {
        from.text(TEXT_MAX).map(Self::from)
    }
}

/// No longer than points in time lie apart ([`Time::MAX`]), so that sums do not overflow.
impl Field for Duration {
    fn put(&self, out: &mut Writer<'_>) {
        let time = (*self).min(DURATION_MAX);
        time.as_secs().put(out);
        time.subsec_nanos().put(out);
    }

    fn take(from: &mut Reader<'_>) -> Option<Self> {
        let (seconds, nanos) = Field::take(from)?;
        let time = (nanos < 1_000_000_000).then(|| Self::new(seconds, nanos))?;
        (time <= DURATION_MAX).then_some(time)
    }
}

const DURATION_MAX: Duration = Duration::from_nanos(u64::MAX);

impl Field for Time {
    fn put(&self, out: &mut Writer<'_>) {
        // Modulo 2^64: what lies before `now` is negative for the reader.
        self.as_ns().wrapping_sub(out.now.map_or(0, Self::as_ns)).put(out);
    }

    fn take(from: &mut Reader<'_>) -> Option<Self> {
        let ns = u64::take(from)?;
        Some(Self::from_ns(match from.now {
            Some(now) => now.as_ns().saturating_add_signed(ns.cast_signed()),
            None => ns,
        }))
    }
}

impl<T: Field> Field for Rc<T> {
    fn put(&self, out: &mut Writer<'_>) {
        T::put(self, out);
    }

    fn take(from: &mut Reader<'_>) -> Option<Self> {
        T::take(from).map(Self::new)
    }
}

impl Field for ProtocolRef {
    fn put(&self, out: &mut Writer<'_>) {
        self.id().put(out);
    }

    fn take(from: &mut Reader<'_>) -> Option<Self> {
        let id = ProtocolId::take(from)?;
        from.handles.protocol(id)
    }
}

impl Field for Listed {
    fn put(&self, out: &mut Writer<'_>) {
        let info = match self {
            Self::Here(session) => out.handles.info(session),
            Self::Elsewhere(info) => Some(info.clone()),
        };
        match info {
            Some(info) => info.put(out),
            None => out.is_whole = false,
        }
    }

    fn take(from: &mut Reader<'_>) -> Option<Self> {
        SessionInfo::take(from).map(Self::Elsewhere)
    }
}

impl Field for SessionRef {
    fn put(&self, out: &mut Writer<'_>) {
        let number = out.handles.number(self);
        out.is_whole &= number.is_some();
        number.unwrap_or(0).put(out);
    }

    fn take(from: &mut Reader<'_>) -> Option<Self> {
        let number = u64::take(from)?;
        from.handles.session(number)
    }
}

/// For a reason that is not known here: what is left of it is its class.
static UNKNOWN: [Reason; 6] = [
    Reason::new("bad, for a reason unknown here", Class::Bad),
    Reason::new("no port, for a reason unknown here", Class::NoPort),
    Reason::new("no protocol, for a reason unknown here", Class::NoProtocol),
    Reason::new("prohibited, for a reason unknown here", Class::Prohibited),
    Reason::new("exhausted, for a reason unknown here", Class::Exhausted),
    Reason::new("not mine, for a reason unknown here", Class::NotMine),
];

impl Field for &'static Reason {
    fn put(&self, out: &mut Writer<'_>) {
        self.key().put(out);
        (self.class as u8).put(out);
    }

    fn take(from: &mut Reader<'_>) -> Option<Self> {
        let (key, class) = <(u32, u8)>::take(from)?;
        let unknown = UNKNOWN.get(usize::from(class))?;
        let common = reason::COMMON.iter().copied().find(|reason| reason.key() == key);
        let known = common.or_else(|| from.handles.reason(key));
        Some(known.filter(|reason| reason.class == unknown.class).unwrap_or(unknown))
    }
}

impl Field for Message {
    /// Writes the message's octets, as far as they go, without attributes.
    fn put(&self, out: &mut Writer<'_>) {
        let len = self.len().min(TEXT_MAX);
        (len as u16).put(out);
        let at = out.octets.len();
        out.octets.resize(at + len, 0);
        self.copy_to(0, &mut out.octets[at..]);
    }

    fn take(from: &mut Reader<'_>) -> Option<Self> {
        let len = usize::from(u16::take(from)?);
        let octets = from.octets(len).filter(|_| len <= TEXT_MAX)?;
        from.handles.pool().copy_from(0, octets).ok()
    }
}

/// The fields of a type that crosses: of a struct `fields!(Route { network, metric })` or
/// `fields!(Port(number))`, of an enum with the number of each variant
/// `fields!(enum State { Idle = 0, Busy { since } = 1 })`.
#[macro_export]
macro_rules! fields {
    ($type:ident $( { $($field:ident),* $(,)? } )? $( ( $($value:ident),* ) )?) => {
        impl $crate::control::Field for $type {
            fn put(&self, out: &mut $crate::control::Writer<'_>) {
                let Self $( { $($field),* } )? $( ( $($value),* ) )? = self;
                $( $( $crate::control::Field::put($field, out); )* )?
                $( $( $crate::control::Field::put($value, out); )* )?
                let _ = out;
            }

            fn take(from: &mut $crate::control::Reader<'_>) -> Option<Self> {
                $( $( let $field = $crate::control::Field::take(from)?; )* )?
                $( $( let $value = $crate::control::Field::take(from)?; )* )?
                let _ = from;
                Some(Self $( { $($field),* } )? $( ( $($value),* ) )?)
            }
        }
    };
    (enum $type:ident { $(
        $variant:ident $( { $($field:ident),* } )? $( ( $($value:ident),* ) )? = $number:literal
    ),* $(,)? }) => {
        impl $crate::control::Field for $type {
            fn put(&self, out: &mut $crate::control::Writer<'_>) {
                match self { $(
                    Self::$variant $( { $($field),* } )? $( ( $($value),* ) )? => {
                        $crate::control::Field::put(&($number as u8), out);
                        $( $( $crate::control::Field::put($field, out); )* )?
                        $( $( $crate::control::Field::put($value, out); )* )?
                    }
                )* }
            }

            fn take(from: &mut $crate::control::Reader<'_>) -> Option<Self> {
                Some(match <u8 as $crate::control::Field>::take(from)? {
                    $( $number => {
                        $( $( let $field = $crate::control::Field::take(from)?; )* )?
                        $( $( let $value = $crate::control::Field::take(from)?; )* )?
                        Self::$variant $( { $($field),* } )? $( ( $($value),* ) )?
                    } )*
                    _ => return None,
                })
            }
        }
    };
}

/// One kind of question: its name, how it crosses, and how it is put again on the other side.
pub struct QuestionType {
    /// The name ([`Question::NAME`]).
    pub name: &'static str,
    /// The name as a number ([`Question::KEY`]).
    pub key: u32,
    /// Way in which it crosses.
    pub kind: Kind,
    /// True if layers ask it of those above them.
    pub is_upward: bool,
    /// True if no layer passes it on.
    pub is_direct: bool,
    /// True if it is told again to a protocol that is started again.
    pub is_standing: bool,
    /// The key of the question that takes it back ([`Question::UNDONE_BY`]).
    pub undone_by: Option<u32>,
    put: fn(&dyn Any, &mut Writer<'_>),
    fill: fn(&mut dyn Any, &mut Reader<'_>) -> bool,
    take: fn(&mut Reader<'_>, &mut Put<'_>),
}

/// Function that puts a question that was read.
type Put<'a> = dyn FnMut(&mut dyn Any) + 'a;

/// Way in which a question crosses to another address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The answer does not change while the object lives: told once, and known on both sides.
    Fact,
    /// The question is answered: the asker waits.
    Ask,
    /// The question is answered, and the answer moves something away from where it was: the asker
    /// waits for as long as the other side lives.
    Transfer,
    /// The question has no answer: the asker does not wait.
    Tell,
}

impl fmt::Debug for QuestionType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl QuestionType {
    /// The type of `Q`.
    pub const fn of<Q: Question>() -> Self {
        Self {
            name: Q::NAME,
            key: Q::KEY,
            kind: Q::KIND,
            is_upward: Q::UPWARD,
            is_direct: Q::DIRECT,
            is_standing: Q::STANDING,
            undone_by: match Q::UNDONE_BY {
                Some(name) => Some(crate::name_key(name)),
                None => None,
            },
            put: |question, out| {
                if let Some(question) = question.downcast_ref::<Q>() {
                    question.put(out);
                }
            },
            fill: |question, from| {
                let Some(answered) = Q::take(from).filter(|_| from.is_empty()) else {
                    return false;
                };
                let Some(question) = question.downcast_mut::<Q>() else {
                    return false;
                };
                *question = answered;
                true
            },
            take: |from, put| {
                if let Some(mut question) = Q::take(from).filter(|_| from.is_empty()) {
                    put(&mut question);
                }
            },
        }
    }

    /// Reads a question of this kind that came as `octets` from another address space, where the
    /// layers `passed_up_by` have passed it up, and returns the result of `put` on it; `None` if
    /// octets are missing or left over. The question lies on the stack.
    pub fn read<T>(
        &'static self,
        octets: &[u8],
        handles: &dyn Handles,
        passed_up_by: Vec<ProtocolId>,
        put: impl FnOnce(&mut Ask<'_>) -> T,
    ) -> Option<T> {
        let (mut once, mut said) = (Some((put, passed_up_by)), None);
        (self.take)(&mut Reader::new(octets, handles), &mut |question| {
            if let Some((put, passed_up_by)) = once.take() {
                said = Some(put(&mut Ask { kind: self, question, passed_up_by, is_put: false }));
            }
        });
        said
    }
}

impl Ask<'_> {
    /// Writes the question with what is filled in, for another address space.
    pub fn put(&self, out: &mut Writer<'_>) {
        (self.kind.put)(self.question, out);
    }

    /// The question with what is filled in, for another address space; `None` if something in it
    /// must not be known there.
    pub fn write(&self, handles: &dyn Handles) -> Option<Vec<u8>> {
        let mut out = Writer::new(handles);
        self.put(&mut out);
        out.finish()
    }

    /// Takes the answer that came as `octets`; false if it is none.
    #[must_use]
    pub fn fill(&mut self, octets: &[u8], handles: &dyn Handles) -> bool {
        (self.kind.fill)(self.question, &mut Reader::new(octets, handles))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::HostAddr;
    use crate::control::Word;
    use crate::message::PoolConfig;
    use crate::reason::NO_PORT;
    use alloc::string::ToString;
    use alloc::vec;

    static OWN: Reason = Reason::new("a reason of its own", Class::Exhausted);

    pub(in crate::control) struct Lone {
        pool: Pool,
        knows_own: bool,
    }

    impl Handles for Lone {
        fn number(&self, _session: &SessionRef) -> Option<u64> {
            None
        }

        fn session(&self, _number: u64) -> Option<SessionRef> {
            None
        }

        fn protocol(&self, _id: ProtocolId) -> Option<ProtocolRef> {
            None
        }

        fn reason(&self, key: u32) -> Option<&'static Reason> {
            (self.knows_own && key == OWN.key()).then_some(&OWN)
        }

        fn pool(&self) -> &Pool {
            &self.pool
        }
    }

    pub(in crate::control) fn lone(knows_own: bool) -> Lone {
        Lone { pool: Pool::new(&PoolConfig::default()).unwrap(), knows_own }
    }

    #[derive(Clone, Debug, PartialEq)]
    enum Fruit {
        Apple,
        Pear { seeds: u8 },
        Mix(u16, bool),
    }

    fields!(enum Fruit { Apple = 0, Pear { seeds } = 1, Mix(count, ripe) = 7 });

    #[derive(Clone, Debug, PartialEq)]
    struct All {
        number: u64,
        size: usize,
        station: [u8; 6],
        hosts: Vec<HostAddr>,
        pair: (u8, Option<bool>),
        fruit: Vec<Fruit>,
        text: String,
        word: Word,
        age: Duration,
        since: Time,
        by: ProtocolId,
        reasons: Vec<(&'static Reason, u64)>,
    }

    crate::question!(
        All { number, size, station, hosts, pair, fruit, text, word, age, since, by, reasons },
        "all",
        Ask
    );
    static ALL: QuestionType = QuestionType::of::<All>();

    fn all() -> All {
        All {
            number: u64::MAX,
            size: 7,
            station: [1, 2, 3, 4, 5, 6],
            hosts: vec![[10, 0, 0, 1].into(), "fe80::1%3".parse().unwrap()],
            pair: (9, Some(true)),
            fruit: vec![Fruit::Apple, Fruit::Pear { seeds: 4 }, Fruit::Mix(300, false)],
            text: "grüße".to_string(),
            word: "SYN-RECEIVED".into(),
            age: Duration::new(3, 999_999_999),
            since: Time::from_ns(5),
            by: ProtocolId(4),
            reasons: vec![(&NO_PORT, 2), (&OWN, 1)],
        }
    }

    fn written(question: &mut All) -> Vec<u8> {
        Ask::new(question).write(&lone(true)).unwrap()
    }

    fn read(octets: &[u8], handles: &Lone) -> Option<All> {
        ALL.read(octets, handles, Vec::new(), |ask| ask.get::<All>().cloned())?
    }

    #[test]
    fn what_is_written_is_read() {
        let octets = written(&mut all());
        assert_eq!(read(&octets, &lone(true)), Some(all()));
        // Of a reason that is not known there its class is left.
        let unknown = read(&octets, &lone(false)).unwrap().reasons;
        assert_eq!(*unknown[0].0, NO_PORT);
        assert!(*unknown[1].0 != OWN && unknown[1].0.class == Class::Exhausted);
    }

    #[test]
    fn nothing_but_the_whole_is_read() {
        let octets = written(&mut all());
        for end in 0..octets.len() {
            assert_eq!(read(&octets[..end], &lone(true)), None, "{end} octets");
        }
        let longer: Vec<u8> = octets.iter().copied().chain([0]).collect();
        assert_eq!(read(&longer, &lone(true)), None);
        let mut question = all();
        assert!(!Ask::new(&mut question).fill(&longer, &lone(true)));
    }

    /// Octets that can be read are written again as they were: each value has one form.
    #[test]
    fn changed_octets_are_refused_or_another_value() {
        let octets = written(&mut all());
        for at in 0..octets.len() {
            for change in [1, 0x80, 0xff] {
                let mut changed = octets.clone();
                changed[at] ^= change;
                if let Some(mut value) = read(&changed, &lone(true)) {
                    let unknown = value.reasons.iter().any(|(r, _)| r.name.contains("unknown"));
                    assert!(unknown || written(&mut value) == changed, "octet {at}");
                }
            }
        }
    }

    /// Clocks begin at different times, and run alike.
    #[test]
    fn a_time_is_told_by_how_far_off_it_is() {
        let handles = lone(true);
        let cross = |time, here: u64, there: u64| {
            let mut out = Writer::at(&handles, Time::from_ns(here));
            Time::from_ns(time).put(&mut out);
            let octets = out.finish().unwrap();
            let mut from = Reader::at(&octets, &handles, Time::from_ns(there));
            Time::take(&mut from).unwrap().as_ns()
        };
        assert_eq!((cross(70, 100, 1000), cross(130, 100, 1000)), (970, 1030));
        assert_eq!(cross(70, 100, 5), 0, "before the clock's beginning");
        assert_eq!(cross(130, 100, 0), 30);
    }

    #[test]
    fn lists_and_texts_are_bounded() {
        let mut long = all();
        long.hosts = vec![HostAddr::LOCALHOST; LIST_MAX + 5];
        long.text = "ü".repeat(TEXT_MAX);
        let back = read(&written(&mut long), &lone(true)).unwrap();
        assert_eq!((back.hosts.len(), back.text.len()), (LIST_MAX, TEXT_MAX));
        // A count that the octets cannot hold allocates nothing.
        assert_eq!(Vec::<u8>::take(&mut Reader::new(&[0, 4, 1], &lone(true))), None);
    }
}
