//! The user of a measured graph of RPC: calls, one call after the other, from a shepherd of its
//! own, or executes what is called.

use super::course::{Course, Top};
use super::endpoint::{Endpoint, Task};
use crate::rpc::pair::call;
use crate::uppers::Echo;
use std::rc::Rc;
use std::time::Duration;
use xk_core::object::{OpenError, Refused};
use xk_core::{Kernel, Message, Participants, Protocol, ProtocolRef, Reason, SessionRef, Upper};

/// Longest time for the first call: if an ARP request goes too early, it is repeated after seconds.
const PATIENCE_FIRST: Duration = Duration::from_secs(4);
/// From one try to open or to reach the server to the next.
const PAUSE: Duration = Duration::from_millis(20);
/// A timer of nothing would keep a kernel from looking at its wires.
const SOON: Duration = Duration::from_nanos(1);

/// The user; clones are the same one.
#[derive(Clone)]
pub(super) struct CallUser(Rc<Inner>);

struct Inner {
    course: Course,
    octets: Vec<u8>,
    lower: ProtocolRef,
    participants: Participants,
}

impl CallUser {
    pub(super) fn new(end: &Endpoint, participants: Participants, lower: ProtocolRef) -> Self {
        let octets = vec![0x5a; end.octets];
        Self(Rc::new(Inner { course: Course::new(end), octets, lower, participants }))
    }
}

impl Top for CallUser {
    fn course(&self) -> &Course {
        &self.0.course
    }
}

impl Inner {
    fn measure(&self, cx: &Kernel, this: &ProtocolRef) -> Result<(), String> {
        let session = self.reach(cx, this)?;
        let mut trips = self.course.trips.borrow_mut();
        trips.begin();
        loop {
            call(cx, &session, &self.octets).map_err(|error| error.describe(cx))?;
            if !trips.note() {
                self.course.done.set(true);
                return Ok(());
            }
        }
    }

    /// Opens the server and calls it once; a wire may have to find its peer first.
    fn reach(&self, cx: &Kernel, this: &ProtocolRef) -> Result<SessionRef, String> {
        let limit = cx.now().after(PATIENCE_FIRST);
        let mut opened = None;
        loop {
            let tried = match &opened {
                None => self.open(cx, this).map(|session| opened = Some(session)),
                Some(session) => match call(cx, session, &[]) {
                    Ok(()) => return Ok(session.clone()),
                    Err(error) => Err(error.describe(cx)),
                },
            };
            if let Err(wrong) = tried {
                if cx.now() > limit {
                    return Err(wrong);
                }
                let never = xk_core::shepherd::Semaphore::new(0);
                // It ends by its time, or because the program does.
                let _ = cx.wait(&never, Some(PAUSE));
            }
        }
    }

    fn open(&self, cx: &Kernel, this: &ProtocolRef) -> Result<SessionRef, String> {
        let opened = self.lower.open(cx, Upper::new(this), self.participants.clone());
        opened.map_err(|error| format!("open: {error}"))
    }
}

impl Protocol for CallUser {
    fn start(&self, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        let inner = &*self.0;
        if inner.course.task == Task::Execute {
            let participants = inner.participants.clone();
            let _stands = inner.lower.open_enable(cx, Upper::new(this), participants)?;
        } else {
            // A timer's shepherd may block, and the loop goes on without it.
            let _ = cx.schedule_protocol(this, SOON, 0);
        }
        Ok(())
    }

    fn open_done(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        participants: Participants,
    ) -> Result<(), &'static Reason> {
        Echo { holds: true }.open_done(cx, this, lower, participants)
    }

    #[inline]
    fn call_demux(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        message: Message,
    ) -> Result<Message, Refused> {
        Echo { holds: true }.call_demux(cx, this, lower, message)
    }

    fn timeout(&self, cx: &Kernel, this: &ProtocolRef, _: u64) {
        if let Err(wrong) = self.0.measure(cx, this) {
            self.0.course.breaks(wrong);
        }
    }
}
