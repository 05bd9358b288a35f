//! The laws of the rpc realm, checked for the layer that carries calls to hosts by itself, and for
//! the two others on it.

use core::slice;
use xk_core::graph::{Params, Value};
use xk_core::object::OpenError;
use xk_core::{Entry, Kernel, Part, Participant, Participants, ProtocolRef};
use xk_kit::rpc::call::{OBJECT, PROCEDURE};
use xk_testkit::conformance::calls::{self, CallFixture, LAWS};
use xk_testkit::conformance::{CountingAllocator, Side};
use xk_testkit::kernel::{Bottom, Family, Lower, TestKernel, Top};

/// Counts, so that the law "no allocation per call" can be checked.
#[global_allocator]
static COUNTED: CountingAllocator = CountingAllocator;

/// The object of each host.
fn object(side: Side) -> Part {
    Part::Number(OBJECT, 1 + side as u64)
}

struct Finds;

impl CallFixture for Finds {
    fn entry(&self) -> &'static Entry {
        &xk_objects::objloc::ENTRY
    }

    fn lower(&self, side: Side) -> Lower {
        Lower::host(side.host(Family::V4), 0)
    }

    fn has_procedures(&self) -> bool {
        false
    }

    fn is_concurrent(&self) -> bool {
        false
    }
}

#[test]
fn what_finds_keeps_the_laws() {
    let findings = calls::all(&Finds);
    println!("{findings}");
    assert_eq!(findings.held.len(), LAWS.len() - 1, "all but that of procedures");
}

struct Invokes;

impl CallFixture for Invokes {
    fn entry(&self) -> &'static Entry {
        &xk_objects::objinv::ENTRY
    }

    fn lower(&self, side: Side) -> Lower {
        Lower::host(side.host(Family::V4), 0)
    }

    fn open(&self, side: Side, procedure: u32) -> Participants {
        let peer = Participant::of(self.lower(side.other()).own().expect("a host"));
        let operation = Part::Number(PROCEDURE, procedure.into());
        Participants::pair(Part::Any, peer.with(object(side.other())).with(operation))
    }

    fn enable(&self, side: Side) -> Participants {
        Participants::local(Participant::of(object(side)).with(Part::Any))
    }

    fn build(&self, cx: &Kernel, side: Side, bottom: &ProtocolRef, params: &Params) -> ProtocolRef {
        let below = format!("objloc-{side:?}");
        let usual = Params::default();
        let finds = xk_objects::objloc::ENTRY.add(cx, &below, slice::from_ref(bottom), &usual);
        let finds = finds.expect("it stands on hosts");
        let name = format!("objinv-{side:?}");
        self.entry().add(cx, &name, slice::from_ref(&finds), params).expect("it stands on that")
    }
}

#[test]
fn what_invokes_keeps_the_laws() {
    let findings = calls::all(&Invokes);
    println!("{findings}");
    assert_eq!(findings.held.len(), LAWS.len());
}

#[test]
fn an_object_for_which_there_is_no_room_is_refused() {
    let cx = TestKernel::new(1);
    let bottom = Bottom::add(&cx, "bottom", Invokes.lower(Side::A));
    let mut params = xk_objects::objloc::ENTRY.defaults();
    params.set("objects_max", Value::Integer(1));
    let lower = slice::from_ref(bottom.protocol());
    let finds = xk_objects::objloc::ENTRY.add(&cx, "objloc", lower, &params).unwrap();
    let usual = xk_objects::objinv::ENTRY.defaults();
    let finds = slice::from_ref(&finds);
    let invokes = xk_objects::objinv::ENTRY.add(&cx, "objinv", finds, &usual).unwrap();
    let top = Top::add(&cx, "top");
    let enable = |eid| {
        let object = Participant::of(Part::Number(OBJECT, eid)).with(Part::Any);
        top.enable(&cx, &invokes, Participants::local(object))
    };
    assert!(enable(1).is_ok());
    for _ in 0..2 {
        assert_eq!(enable(2).map(drop), Err(OpenError::Full), "and it is no offer");
    }
    cx.finish();
}
