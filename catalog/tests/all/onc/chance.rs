//! A network that loses, repeats and delays: zero or more executions, at least one for each reply,
//! and no reply to another call.

use crate::onc::net::{Faults, Net, over, udp};
use core::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use xk_core::object::CallCause;
use xk_core::{Kernel, ProtocolRef};
use xk_testkit::seeds;

/// The cost of a seed.
const COST: u64 = 5;

fn stack(cx: &Kernel, name: &str, below: ProtocolRef, dupcache: usize) -> ProtocolRef {
    let udp = udp(cx, &format!("udp-{name}"), below);
    let settings = xk_reqrep::Settings { dupcache, ..xk_reqrep::Settings::default() };
    over(cx, name, udp, settings)
}

/// Number of executions of each call, and the calls that had a reply.
#[derive(Default)]
struct Model {
    executed: RefCell<HashMap<u32, u32>>,
    replies: Cell<u32>,
    timeouts: Cell<u32>,
}

fn run(seed: u64, dupcache: usize, faults: Faults) -> Rc<Model> {
    let build = move |cx: &Kernel, name: &str, below: ProtocolRef| stack(cx, name, below, dupcache);
    let net = Net::new(seed, &build);
    net.faults.set(faults);
    let model = Rc::new(Model::default());
    let noted = Rc::clone(&model);
    net.server.act.replace(Some(Rc::new(move |_, _, request| {
        let mut number = [0; 4];
        request.copy_to(0, &mut number);
        let number = u32::from_be_bytes(number);
        *noted.executed.borrow_mut().entry(number).or_default() += 1;
        None
    })));
    let sessions = [net.open(1), net.open(3)];
    for n in 0..20u32 {
        let (model, session) = (Rc::clone(&model), sessions[n as usize % 2].clone());
        net.then(move |net| {
            let octets = n.to_be_bytes();
            match session.call(&net.cx, net.cx.message(&octets)) {
                Ok(reply) => {
                    assert!(reply.eq_octets(&octets), "seed {seed}: another's reply");
                    let count = model.executed.borrow().get(&n).copied();
                    assert!(count >= Some(1), "seed {seed}: a reply, but no execution");
                    model.replies.set(model.replies.get() + 1);
                }
                Err(error) => {
                    let is_time = matches!(error.cause, CallCause::TimedOut { .. });
                    assert!(is_time, "seed {seed}: {error}");
                    model.timeouts.set(model.timeouts.get() + 1);
                }
            }
        });
    }
    net.run();
    drop(sessions);
    net.finish();
    model
}

#[test]
fn zero_or_more_executions_and_at_least_one_for_a_reply() {
    let sum = seeds::of(COST).sum(|seed| {
        let faults = Faults {
            loss: [0, 100, 300, 600][seed as usize % 4],
            duplicate: [0, 100, 300][seed as usize % 3],
            late: 200,
        };
        let model = run(seed, 0, faults);
        let twice = model.executed.borrow().values().filter(|n| **n > 1).count();
        [model.replies.get().into(), model.timeouts.get().into(), twice as u64]
    });
    if let Some([replies, timeouts, twice]) = sum {
        assert!(replies > 0 && timeouts > 0, "{replies} and {timeouts}");
        assert!(twice > 0, "requests that came twice are executed twice");
    }
}

#[test]
fn with_a_cache_that_holds_them_all_none_is_executed_twice() {
    seeds::of(COST).run(|seed| {
        let faults = Faults { loss: [0, 100, 300][seed as usize % 3], duplicate: 300, late: 200 };
        let model = run(seed, 64, faults);
        let executed = model.executed.borrow();
        assert!(executed.values().all(|n| *n == 1), "seed {seed}: {executed:?}");
    });
}
