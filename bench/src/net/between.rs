//! The wire with faults between two ends: a graph of xk with two packet sockets, a `fault` on each,
//! and a protocol that hands frames from either to the other. Both systems at
//! the ends, xk and Linux, have this one.

use super::endpoint::Endpoint;
use super::space::BETWEEN;
use super::stack::{Top, run_under};
use crate::case::Trouble;
use serde_json::{Value, json};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use xk_core::object::{OpenError, Refused};
use xk_core::{Kernel, Message, Participants, Protocol, ProtocolRef, SessionRef, Upper};

/// What each frame suffers, once: the share lost, and half of the round trip.
const LOSS: &str = "1%";
const DELAY: &str = "10ms";
/// How long it carries at most, if it is not ended.
const LIMIT: Duration = Duration::from_secs(3600);

/// Hands frames over; clones are the same one.
#[derive(Clone, Default)]
struct Between(Rc<RefCell<Vec<SessionRef>>>);

/// The names of what it stands on.
const FAULTS: [&str; 2] = ["f0", "f1"];

pub(super) fn run(end: &Endpoint) -> Result<Value, Trouble> {
    let mut text = String::from("host end {\n");
    for (number, device) in BETWEEN.iter().enumerate() {
        text += &format!(
            "packet device={device} name=w{number} promiscuous=#true\n\
             fault w{number} name={} direction=up loss=\"{LOSS}\" delay=\"{DELAY}\" queue=65536\n",
            FAULTS[number]
        );
    }
    text += "}\n";
    run_under(end, "fault", &text, FAULTS[0], |_| Between::default())
}

impl Protocol for Between {
    fn start(&self, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        for name in FAULTS {
            let lower = cx.find_protocol(name).ok_or(OpenError::NoLower)?;
            let upper = Upper::new(this);
            let _stands = lower.open_enable(cx, upper, Participants::default())?;
            let session = lower.open(cx, upper, Participants::default())?;
            self.0.borrow_mut().push(session);
        }
        Ok(())
    }

    fn demux(
        &self,
        cx: &Kernel,
        _: &ProtocolRef,
        lower: &SessionRef,
        message: Message,
    ) -> Result<(), Refused> {
        let from = lower.head().protocol();
        let sessions = self.0.borrow();
        let other = sessions.iter().find(|s| s.head().protocol() != from);
        if let Some(other) = other {
            // One that does not go is one more that is lost; the wire counts it.
            let _ = other.push(cx, message);
        }
        Ok(())
    }

    fn stop(&self, _: &Kernel, _: &ProtocolRef) {
        self.0.take();
    }
}

impl Top for Between {
    fn turn(&self, _: &Kernel, _: &ProtocolRef) -> bool {
        false
    }

    fn limit(&self) -> Duration {
        LIMIT
    }

    fn result(&self) -> Result<Value, Trouble> {
        Ok(json!({}))
    }
}
