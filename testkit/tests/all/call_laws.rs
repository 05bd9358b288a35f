//! The laws of the rpc realm, checked for every layer of it that stands on messages, and for those
//! of ONC RPC.
//!
//! SELECT and the layer that forwards check themselves, in their own folders.

use xk_core::graph::{Params, Value};
use xk_core::{Entry, Kernel, Part, Participant, Participants, ProtocolRef, Reason};
use xk_kit::rpc::call::{BAD_ARGUMENTS, NO_PROCEDURE, PROCEDURE, PROGRAM, SYSTEM_ERROR, VERSION};
use xk_testkit::conformance::calls::{self, CallFixture, LAWS};
use xk_testkit::conformance::{Findings, Side, Verdict};
use xk_testkit::kernel::{Family, Lower};

/// Counts, so that the law "no allocation per call" can be checked.
/// The number of the protocol above on `channel`: any that is free.
const ABOVE: u32 = 9;
/// A program of RFC 5531's range for users, section 8.4.
const OFFERED: u64 = 0x2000_0001;

fn entry(kind: &str) -> &'static Entry {
    xk_catalog::find(kind).expect("a protocol of the catalog")
}

/// The host of the other side with these parts on top, and as many open ones of our own.
fn both(family: Family, side: Side, parts: &[Part]) -> Participants {
    let mut to = Participant::of(Part::Host(family.host(1 + side.other() as u32)));
    let mut own = Participant::of(Part::Any);
    for part in parts {
        to.push(*part);
        own.push(Part::Any);
    }
    Participants::pair(own, to)
}

fn keeps(fixture: &dyn CallFixture) -> Findings {
    let findings = calls::all(fixture);
    println!("{findings}");
    findings
}

/// One call at a time in a session, no procedures.
struct Channel(Family);

impl CallFixture for Channel {
    fn entry(&self) -> &'static Entry {
        entry("channel")
    }

    fn lower(&self, side: Side) -> Lower {
        Lower::host(side.host(self.0), 102)
    }

    fn number(&self) -> Option<u32> {
        Some(ABOVE)
    }

    fn has_procedures(&self) -> bool {
        false
    }

    fn is_concurrent(&self) -> bool {
        false
    }
}

#[test]
fn channel_keeps_the_laws() {
    for family in Family::ALL {
        let findings = keeps(&Channel(family));
        assert_eq!(findings.held.len(), LAWS.len() - 1, "all but that of procedures");
    }
}

/// Everything in one layer.
struct Mrpc(Family);

impl CallFixture for Mrpc {
    fn entry(&self) -> &'static Entry {
        entry("mrpc")
    }

    fn lower(&self, side: Side) -> Lower {
        Lower::host(side.host(self.0), 90)
    }

    fn params(&self, _: Side) -> Params {
        // As many as the law of calls at one time makes.
        let mut params = Params::default();
        params.set("channels", Value::Integer(12));
        params
    }

    fn octets_max(&self) -> usize {
        16_384
    }
}

#[test]
fn mrpc_keeps_the_laws() {
    for family in Family::ALL {
        let findings = keeps(&Mrpc(family));
        assert_eq!(findings.held.len(), LAWS.len(), "every law applies");
    }
}

/// Replies to requests, no procedures; a refused request gets no reply.
struct Reqrep(Family);

impl CallFixture for Reqrep {
    fn entry(&self) -> &'static Entry {
        entry("reqrep")
    }

    fn lower(&self, side: Side) -> Lower {
        Lower::host(side.host(self.0), 103)
    }

    fn has_procedures(&self) -> bool {
        false
    }

    fn refusals(&self) -> &'static [&'static Reason] {
        &[]
    }
}

#[test]
fn reqrep_keeps_the_laws() {
    for family in Family::ALL {
        let findings = keeps(&Reqrep(family));
        assert_eq!(findings.held.len(), LAWS.len() - 1, "all but that of procedures");
    }
}

/// The layers of ONC RPC that name programs: `sunselect`, or others on it up to the one named.
struct Programs(Family, &'static str);

/// Stands a layer on others.
fn on(
    cx: &Kernel,
    side: Side,
    kind: &str,
    lowers: &[&ProtocolRef],
    params: &Params,
) -> ProtocolRef {
    let entry = entry(kind);
    let lowers: Vec<ProtocolRef> = lowers.iter().map(|lower| (*lower).clone()).collect();
    entry.add(cx, &format!("{kind}-{side:?}"), &lowers, params).expect("the parameters build it")
}

impl CallFixture for Programs {
    fn entry(&self) -> &'static Entry {
        entry(self.1)
    }

    fn lower(&self, side: Side) -> Lower {
        Lower::host(side.host(self.0), 0)
    }

    fn open(&self, side: Side, procedure: u32) -> Participants {
        let program = Part::Number(PROGRAM, OFFERED);
        let version = Part::Number(VERSION, 1);
        let procedure = Part::Number(PROCEDURE, procedure.into());
        both(self.0, side, &[program, version, procedure])
    }

    fn enable(&self, _: Side) -> Participants {
        let local = Participant::of(Part::Number(PROGRAM, OFFERED));
        Participants::local(local.with(Part::Number(VERSION, 1)))
    }

    /// Above `sunselect` the flavor of the credentials: none.
    fn number(&self) -> Option<u32> {
        (self.1 == "sunselect").then_some(0)
    }

    /// The table stands on the layer that names what it looks for, or on layers of authentication
    /// between.
    fn build(&self, cx: &Kernel, side: Side, bottom: &ProtocolRef, params: &Params) -> ProtocolRef {
        let number = entry("sunselect").numbers[0].1;
        let select = on(cx, side, "sunselect", &[bottom], params);
        let set = |upper: &ProtocolRef, lower: &ProtocolRef, number| {
            let mut numbers = cx.numbers_mut();
            numbers.override_pair(upper.id(), lower.id(), number);
        };
        set(&select, bottom, number);
        if self.1 == "sunselect" {
            return select;
        }
        let auth = |kind: &str, lowers: &[&ProtocolRef]| {
            let layer = on(cx, side, kind, lowers, params);
            set(&layer, &select, entry(kind).numbers[0].1);
            layer
        };
        let under = match self.1 {
            "authnone" => auth("authnone", &[&select]),
            "authsys" => auth("authsys", &[&select]),
            "authshort" => {
                let whole = auth("authsys", &[&select]);
                auth("authshort", &[&select, &whole])
            }
            _ => select.clone(),
        };
        let table = on(cx, side, "sunprog", &[&under], params);
        set(&table, &select, 0);
        // The suite speaks to the bottom in the place of what it tests.
        set(&table, bottom, number);
        if self.1 != "deadline" {
            return table;
        }
        let deadline = on(cx, side, "deadline", &[&table], params);
        set(&deadline, bottom, number);
        deadline
    }

    fn refusals(&self) -> &'static [&'static Reason] {
        // RFC 5531, section 9, has no more of them (`accept_stat`).
        static ACCEPTED: [&Reason; 3] = [&NO_PROCEDURE, &BAD_ARGUMENTS, &SYSTEM_ERROR];
        &ACCEPTED
    }
}

#[test]
fn sunselect_keeps_the_laws() {
    let findings = keeps(&Programs(Family::V6, "sunselect"));
    assert_eq!(findings.held.len(), LAWS.len(), "every law applies");
}

#[test]
fn sunprog_keeps_the_laws() {
    let findings = keeps(&Programs(Family::V6, "sunprog"));
    assert_eq!(findings.held.len(), LAWS.len(), "every law applies");
}

/// On a layer that answers the null procedure itself.
#[test]
fn deadline_on_programs_keeps_the_laws() {
    let findings = keeps(&Programs(Family::V6, "deadline"));
    assert_eq!(findings.held.len(), LAWS.len(), "every law applies");
}

#[test]
fn the_layers_of_authentication_keep_the_laws() {
    for kind in ["authnone", "authsys", "authshort"] {
        let findings = keeps(&Programs(Family::V6, kind));
        assert_eq!(findings.held.len(), LAWS.len(), "every law applies");
    }
}

/// Layers of ONC RPC on sessions that carry any number of calls: those of `reqrep`, which all
/// procedures share.
struct OnReqrep(Programs);

impl CallFixture for OnReqrep {
    fn entry(&self) -> &'static Entry {
        self.0.entry()
    }

    fn lower(&self, side: Side) -> Lower {
        Lower::host(Family::V4.host(1 + side as u32), 103)
    }

    fn is_on_calls(&self) -> bool {
        false
    }

    fn open(&self, side: Side, procedure: u32) -> Participants {
        self.0.open(side, procedure)
    }

    fn enable(&self, side: Side) -> Participants {
        self.0.enable(side)
    }

    fn number(&self) -> Option<u32> {
        self.0.number()
    }

    fn build(&self, cx: &Kernel, side: Side, bottom: &ProtocolRef, params: &Params) -> ProtocolRef {
        let reqrep = on(cx, side, "reqrep", &[bottom], params);
        self.0.build(cx, side, &reqrep, params)
    }

    fn refusals(&self) -> &'static [&'static Reason] {
        self.0.refusals()
    }
}

#[test]
fn calls_on_a_session_that_others_share_end_with_their_own() {
    let fixture = OnReqrep(Programs(Family::V4, "sunselect"));
    assert_eq!(calls::end_with_their_session(&fixture), Verdict::Holds);
    assert_eq!(calls::obeys_deadlines(&fixture), Verdict::Holds);
}

/// `reqrep` has no words for it: what stands above asks how much it carries.
#[test]
fn results_too_big_for_the_messages_below_are_told_of() {
    for kind in ["sunprog", "authsys"] {
        let fixture = OnReqrep(Programs(Family::V4, kind));
        assert_eq!(calls::tells_of_long_replies(&fixture), Verdict::Holds);
    }
}
