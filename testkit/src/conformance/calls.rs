//! The laws of the rpc realm: what every protocol keeps whose sessions take calls.
//!
//! A protocol's own test names itself by a [`CallFixture`], and [`all`] puts two instances of it
//! between a bottom and a top: [`Bottom`](crate::kernel::Bottom) if it stands on layers of
//! messages, [`CallBottom`](crate::kernel::CallBottom) if it stands on others of its realm. Time is
//! virtual, and a call may block.
//!
//! | law | function |
//! | --- | --- |
//! | octets go both ways unchanged | [`carries`] |
//! | request and reply may lie in slices | [`takes_slices`] |
//! | the largest request that a refusal tells of is taken | [`tells_what_it_takes`] |
//! | a reply too big is told of | [`tells_of_long_replies`] |
//! | several peers are refused | [`peers::takes_one`] |
//! | both ends know the procedure | [`names_procedures`] |
//! | a refusal comes back with its reason | [`refuses`] |
//! | where no protocol serves, a call ends | [`ends_where_nobody_serves`] |
//! | a closed session takes no call, and can be opened again | [`closes`] |
//! | a session ends with what it stands on, or goes on over another | [`ends_with_its_lower`] |
//! | a procedure may call | [`nests`] |
//! | a question that is lost founds nothing | [`lost::founds_no_calls`] |
//! | several protocols above call one peer | [`shares_its_peer`] |
//! | the null procedure is answered | [`answers_the_null_procedure`] |
//! | calls at one time do not meet | [`keeps_calls_apart`] |
//! | a call ends at its deadline | [`obeys_deadlines`] |
//! | a call ends when it is taken back | [`obeys_cancels`] |
//! | the calls of a closed session end, and no others | [`end_with_their_session`] |
//! | no allocation per call | [`allocates_nothing`] |
//! | no damage panics | [`survives_damage`] |
//! | a caller pins nothing below | [`pins_nothing`] |
//! | a session tells where its first request came from | [`tells_its_source`] |
//! | what is opened is given back | [`gives_back`] |
//! | an unwanted session leaves nothing | [`forgets_the_unwanted`] |
//! | while layers below block, opened at once is as opened in turn | [`blocking::opens_once`] |
//! | so is enabled at once | [`blocking::enables_once`] |
//! | a protocol is told of a session before any request of it | [`blocking::tells_of_sessions_first`] |
//! | and all is given back | [`blocking::comes_and_goes`] |
//! | nothing is left after `stop` | [`stops`] |
//!
//! # Example
//! ```ignore
//! #[global_allocator]
//! static COUNTED: xk_testkit::conformance::CountingAllocator = CountingAllocator;
//!
//! struct Select;
//! impl CallFixture for Select {
//!     fn entry(&self) -> &'static Entry { &xk_select::ENTRY }
//!     fn lower(&self, side: Side) -> Lower { Lower::host(side.host(Family::V4), 0) }
//! }
//!
//! #[test]
//! fn keeps_the_laws() {
//!     println!("{}", calls::all(&Select));
//! }
//! ```

pub mod blocking;
mod laws;
mod null;
mod sharing;
mod sizes;
mod world;

pub use laws::{
    allocates_nothing, carries, closes, end_with_their_session, ends_where_nobody_serves,
    ends_with_its_lower, forgets_the_unwanted, gives_back, keeps_calls_apart, names_procedures,
    nests, obeys_cancels, obeys_deadlines, pins_nothing, refuses, stops, survives_damage,
    takes_slices, tells_its_source,
};
pub use null::answers_the_null_procedure;
pub use sharing::shares_its_peer;
pub use sizes::{tells_of_long_replies, tells_what_it_takes};
pub use world::CallWorld;

use super::{Findings, Side, Verdict, cut, lost, peers};
use crate::kernel::Lower;
use core::time::Duration;
use xk_core::graph::{Params, Realm};
use xk_core::{Entry, Kernel, Part, Participant, Participants, ProtocolRef, Reason};
use xk_kit::rpc::call::{BAD_ARGUMENTS, BUSY, NO_PROCEDURE, PROCEDURE, SYSTEM_ERROR};

/// A protocol of the rpc realm under test, with facts that the suite cannot find out by itself.
pub trait CallFixture {
    /// Catalog entry.
    fn entry(&self) -> &'static Entry;

    /// The layer below.
    fn lower(&self, side: Side) -> Lower;

    /// The participants with which the protocol above opens this procedure of the other side: by
    /// default its address below, with the procedure where there are any.
    fn open(&self, side: Side, procedure: u32) -> Participants {
        let peer = self.lower(side.other()).own().expect("an address");
        match self.has_procedures() {
            true => {
                let procedure = Part::Number(PROCEDURE, procedure.into());
                Participants::pair(Part::Any, Participant::of(peer).with(procedure))
            }
            false => Participants::pair(Part::Any, peer),
        }
    }

    /// The participants with which the protocol above enables every procedure.
    fn enable(&self, side: Side) -> Participants {
        let _ = side;
        Participants::local(Part::Any)
    }

    /// A number by which it selects the protocol above; `None` if it has other means, such as
    /// procedures.
    fn number(&self) -> Option<u32> {
        None
    }

    /// Parameters; one that is missing gets the default of its `build`.
    fn params(&self, side: Side) -> Params {
        let _ = side;
        Params::default()
    }

    /// Stands it on `bottom`, with these parameters.
    ///
    /// # Panics
    /// If the parameters do not build it.
    fn build(&self, cx: &Kernel, side: Side, bottom: &ProtocolRef, params: &Params) -> ProtocolRef {
        let entry = self.entry();
        let name = format!("{}-{side:?}", entry.kind);
        entry
            .add(cx, &name, core::slice::from_ref(bottom), params)
            .expect("the fixture's parameters build the protocol")
    }

    /// The protocol that those above use: the one that was built, or its proxy above a cut.
    fn above(&self, cx: &Kernel, side: Side, tested: &ProtocolRef) -> ProtocolRef {
        let _ = (cx, side);
        tested.clone()
    }

    /// Longest time that a notice takes across cuts, there and back; for a layer whose last packet
    /// of a call has no answer, the time that this may wait below.
    fn lateness(&self) -> Duration {
        Duration::ZERO
    }

    /// Other objects of the side that may drop messages: proxies at cuts, and layers below.
    fn proxies(&self, side: Side) -> Vec<ProtocolRef> {
        let _ = side;
        Vec::new()
    }

    /// Whether it stands on another protocol of its realm.
    fn is_on_calls(&self) -> bool {
        self.entry().below.realms.contains(&Realm::Rpc)
    }

    /// Whether its sessions answer `my-procedure`.
    fn has_procedures(&self) -> bool {
        true
    }

    /// Whether one session carries several calls at a time.
    fn is_concurrent(&self) -> bool {
        true
    }

    /// Whether a call that lost its frames is repeated until it is through.
    fn is_reliable(&self) -> bool {
        true
    }

    /// The largest request and reply, in octets.
    fn octets_max(&self) -> usize {
        1024
    }

    /// The reasons of a refusal that come back as they are.
    fn refusals(&self) -> &'static [&'static Reason] {
        static ALL: [&Reason; 4] = [&NO_PROCEDURE, &BAD_ARGUMENTS, &SYSTEM_ERROR, &BUSY];
        &ALL
    }
}

/// A law: its name, and the function that checks it.
type Law = (&'static str, fn(&dyn CallFixture) -> Verdict);

/// The laws, in the order in which [`all`] checks them.
pub const LAWS: &[Law] = &[
    ("octets go both ways unchanged", carries),
    ("request and reply may lie in slices", takes_slices),
    ("what is too big is told what is not", tells_what_it_takes),
    ("a reply too big is told of", tells_of_long_replies),
    ("several peers are refused", peers::takes_one),
    ("both ends know the procedure", names_procedures),
    ("a refusal comes back with its reason", refuses),
    ("where nobody serves, a call ends", ends_where_nobody_serves),
    ("a closed session takes no call", closes),
    ("a session ends with its lower one", ends_with_its_lower),
    ("a procedure may call", nests),
    ("a lost question founds nothing", lost::founds_no_calls),
    ("several protocols call one peer", shares_its_peer),
    ("the null procedure is answered", answers_the_null_procedure),
    ("calls at one time do not meet", keeps_calls_apart),
    ("a call ends at its deadline", obeys_deadlines),
    ("a call ends when it is taken back", obeys_cancels),
    ("the calls of a closed session end", end_with_their_session),
    ("no allocation per call", allocates_nothing),
    ("no damage panics", survives_damage),
    ("who has called pins nothing", pins_nothing),
    ("a session tells its source", tells_its_source),
    ("what is opened is given back", gives_back),
    ("an unwanted session leaves nothing", forgets_the_unwanted),
    ("opened at one time it is as opened in turn", blocking::opens_once),
    ("enabled at one time it is as enabled in turn", blocking::enables_once),
    ("what comes while a session is told of waits", blocking::tells_of_sessions_first),
    ("what comes and goes at once is given back", blocking::comes_and_goes),
    ("nothing is left after stop", stops),
];

/// Checks every law.
///
/// # Panics
/// If one is broken; the text names it.
pub fn all(fixture: &dyn CallFixture) -> Findings {
    let mut findings = Findings::default();
    for (name, law) in LAWS {
        match law(fixture) {
            Verdict::Holds => findings.held.push(name),
            Verdict::Skipped(why) => findings.skipped.push((name, why)),
        }
    }
    cut::check_calls(fixture, |_| true);
    findings
}

/// Checks every law except those with these names, which do not apply.
///
/// # Panics
/// If one is broken or says nothing of the fixture; the text names it. If a name is no law's.
pub fn keeps_all_but(fixture: &dyn CallFixture, left_out: &[&str]) {
    let known = LAWS.iter().filter(|(name, _)| left_out.contains(name)).count();
    assert_eq!(known, left_out.len(), "the laws that do not apply are laws: {left_out:?}");
    for (name, law) in LAWS.iter().filter(|(name, _)| !left_out.contains(name)) {
        println!("{name}");
        assert_eq!(law(fixture), Verdict::Holds, "{name}");
    }
    cut::check_calls(fixture, |name| !left_out.contains(&name));
}
