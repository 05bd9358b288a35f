//! Lists of sessions across a cut, of which the reader was never given any.

use std::rc::Rc;
use xk_core::control::{ListSessions, Listed};
use xk_core::object::OpenError;
use xk_core::{Participants, Upper};
use xk_domains::{Known, Port, Queue, add_port, lower_proxy, ports_at_once};
use xk_testkit::kernel::{Bottom, Lower, TestKernel, Top};

#[test]
fn sessions_are_listed_by_value() -> Result<(), OpenError> {
    let cx = TestKernel::new(1);
    let bottom = Bottom::add(&cx, "bottom", Lower::host([10, 0, 0, 1], 253));
    let top = Top::add(&cx, "top");
    let to = "*, 10.0.0.2".parse::<Participants>().expect("participants");
    let session = bottom.protocol().open(&cx, Upper::new(top.protocol()), to)?;
    let (down, up) = Queue::pair(64);
    let [above, below] = ports_at_once([Box::new(down), Box::new(up)], || Known::of(&[]));
    below.grant(bottom.protocol());
    let id = bottom.protocol().id();
    let proxy = lower_proxy(&cx, &above, id, "bottom", "proxy");
    let ports: Vec<_> = [("above", &above), ("below", &below)]
        .map(|(name, port): (_, &Rc<Port>)| add_port(&cx, port, name))
        .into();

    let list = proxy.ask(&cx, ListSessions::first(9)).expect("it is answered");
    assert_eq!((list.total, list.here().count()), (1, 0));
    let Some(Listed::Elsewhere(info)) = list.sessions.first() else {
        panic!("a session by value");
    };
    assert_eq!(*info, xk_core::control::SessionInfo::of(&cx, &session));
    assert_eq!((info.id, info.protocol, info.holders), (session.id(), id, 1));

    drop((session, list, ports));
    cx.stop();
    Ok(())
}
