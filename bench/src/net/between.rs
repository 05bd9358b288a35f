//! The wire with faults between two ends: a graph of xk with two packet sockets, a `fault` on each,
//! and a protocol that hands frames from either to the other. Both systems at
//! the ends, xk and Linux, have this one.

use super::course::{Course, Top};
use super::endpoint::{Endpoint, Path};
use super::space::BETWEEN;
use super::stack::run_under;
use crate::case::Trouble;
use serde_json::Value;
use std::cell::RefCell;
use std::rc::Rc;
use xk_core::object::{OpenError, Popped};
use xk_core::{Kernel, Message, Participants, Protocol, ProtocolRef, SessionRef, Upper};

/// Hands frames over; clones are the same one.
#[derive(Clone)]
struct Between(Rc<(Course, RefCell<Vec<SessionRef>>)>);

/// The names of what it stands on.
const FAULTS: [&str; 2] = ["f0", "f1"];

pub(super) fn run(end: &Endpoint, path: Path) -> Result<Value, Trouble> {
    let mut text = String::from("host end {\n");
    for (number, device) in BETWEEN.iter().enumerate() {
        text += &format!(
            "packet device={device} name=w{number} promiscuous=#true\n\
             fault w{number} name={} direction=up {}\n",
            FAULTS[number],
            path.faults()
        );
    }
    text += "}\n";
    let between = |_| Between(Rc::new((Course::new(end), RefCell::default())));
    run_under(end, "fault", &text, FAULTS[0], between)
}

impl Protocol for Between {
    fn start(&self, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        for name in FAULTS {
            let lower = cx.find_protocol(name).ok_or(OpenError::NoLower)?;
            let upper = Upper::new(this);
            let _stands = lower.open_enable(cx, upper, Participants::default())?;
            let session = lower.open(cx, upper, Participants::default())?;
            self.0.1.borrow_mut().push(session);
        }
        Ok(())
    }

    fn demux(&self, cx: &Kernel, _: &ProtocolRef, lower: &SessionRef, message: Message) -> Popped {
        let from = lower.head().protocol();
        let sessions = self.0.1.borrow();
        let other = sessions.iter().find(|s| s.head().protocol() != from);
        if let Some(other) = other {
            // One that does not go is one more that is lost; the wire counts it.
            let _ = other.push(cx, message);
        }
        Ok(())
    }

    fn stop(&self, _: &Kernel, _: &ProtocolRef) {
        self.0.1.take();
    }
}

impl Top for Between {
    fn course(&self) -> &Course {
        &self.0.0
    }
}
