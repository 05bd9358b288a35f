//! Questions as another address space puts them: written, read there, answered, written back.

use std::cell::RefCell;
use xk_core::control::{Handles, Question, QuestionType, SessionInfo};
use xk_core::message::Pool;
use xk_core::object::ProtocolId;
use xk_core::{Answer, Ask, Kernel, ProtocolRef, Reason, SessionRef};

/// The numbers by which two address spaces know each other's objects; both of them are `cx` here.
struct Numbers<'a> {
    cx: &'a Kernel,
    sessions: RefCell<Vec<SessionRef>>,
}

impl Handles for Numbers<'_> {
    fn number(&self, session: &SessionRef) -> Option<u64> {
        self.sessions.borrow_mut().push(session.clone());
        Some(session.id().0)
    }

    fn session(&self, number: u64) -> Option<SessionRef> {
        self.sessions.borrow().iter().find(|session| session.id().0 == number).cloned()
    }

    fn info(&self, session: &SessionRef) -> Option<SessionInfo> {
        Some(SessionInfo::of(self.cx, session))
    }

    fn protocol(&self, id: ProtocolId) -> Option<ProtocolRef> {
        self.cx.protocol(id)
    }

    fn reason(&self, _key: u32) -> Option<&'static Reason> {
        None
    }

    fn pool(&self) -> &Pool {
        self.cx.pool()
    }
}

/// Puts the question that `make` makes by `control`, three times: as it is, as it is once more, and
/// as octets. If the first two answers are the same, so is the third.
///
/// # Panics
/// If it is not, if the question does not cross, or if less than all of its octets are taken for
/// all.
pub(super) fn put_across<Q: Question>(
    cx: &Kernel,
    make: &mut dyn FnMut() -> Q,
    control: &dyn Fn(&mut Ask<'_>) -> Answer,
) -> Answer {
    let name = Q::NAME;
    let numbers = Numbers { cx, sessions: RefCell::default() };
    let mut straight = || {
        let mut question = make();
        let mut ask = Ask::new(&mut question);
        let answer = control(&mut ask);
        (answer, ask.write(&numbers).expect("law 9: what was answered can be written"))
    };
    let (answer, first) = straight();
    let (_, second) = straight();
    let what: &'static QuestionType = const { &QuestionType::of::<Q>() };
    let mut asked = make();
    let mut ask = Ask::new(&mut asked);
    let octets = ask.write(&numbers).expect("law 9: a question can be written");
    for end in 0..octets.len() {
        let part = what.read(&octets[..end], &numbers, Vec::new(), |_| ());
        assert!(part.is_none(), "law 9: {end} octets of `{name}` are taken for all");
    }
    let there = what.read(&octets, &numbers, Vec::new(), |ask| (control(ask), ask.write(&numbers)));
    let (crossed, back) = there.expect("law 9: a question can be read");
    let back = back.expect("law 9: an answer can be written");
    assert!(ask.fill(&back, &numbers), "law 9: the answer of `{name}` can be read");
    if first == second {
        let third = ask.write(&numbers);
        assert_eq!(
            (crossed, third.as_deref()),
            (answer, Some(&*first)),
            "law 9: `{name}` is answered alike from another address space"
        );
    }
    answer
}
