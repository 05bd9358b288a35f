//! Conversations of xk between processes.

use super::super::endpoint::{Endpoint, System, Task, Wire};
use super::super::testbed::port;
use super::foreign::Foreign;
use super::member::{Part, Phase};
use super::{Ordering, Process, Said, TIME_MAX};
use crate::case::Trouble;
use crate::child::{self, Running};
use crate::folder;
use rustix::process::Signal;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering as Atomic};
use std::time::Duration;
use xk_shm::{Options, Switch};

/// Longest time for a member to end when told to.
const FAREWELL: Duration = Duration::from_secs(2);

/// Members of xk, started in each round.
#[derive(Default)]
pub(super) struct Ours;

impl Ours {
    /// Has a conversation of so many members send what the phases say.
    ///
    /// # Errors
    /// [`Trouble`].
    pub(super) fn run(
        &self,
        foreign: &Foreign,
        (wire, order): (Wire, Ordering),
        members: usize,
        phases: &[Phase],
    ) -> Result<Vec<Said>, Trouble> {
        let folder = folder::own()?;
        let meeting = folder.path().join("meeting");
        let _switch = Switched::new(wire, &meeting, members)?;
        let mut list = Vec::new();
        // The first opens the conversation, and so is started last.
        for side in (0..members).rev() {
            let space = match wire {
                Wire::Packet => Some(foreign.hub()?.path(side)),
                _ => None,
            };
            let end = Endpoint {
                system: System::Xk(wire),
                task: Task::Accept,
                side,
                octets: 0,
                spins: false,
                port: port(),
                core: None,
                time: TIME_MAX,
                space,
                meeting: Some(meeting.display().to_string()),
            };
            let layer = match order {
                Ordering::Partial => "psync",
                Ordering::Total => "order",
            };
            let part = Part { end, members, layer: layer.into(), phases: phases.to_vec() };
            let mut command = child::again("group-member", &part.to_text())?;
            command.stdout(Stdio::piped()).stderr(Stdio::null());
            let process = Process::new(Running::start(&mut command, (Signal::TERM, FAREWELL))?);
            process.line()?;
            list.push(process);
        }
        let found = phases.iter().map(|_| list.iter().map(Process::numbers).collect()).collect();
        list.iter().for_each(|process| process.running.signal());
        found
    }
}

/// The switch of more than two members that share memory, on a thread of its own.
struct Switched(Arc<AtomicBool>);

impl Switched {
    fn new(wire: Wire, path: &Path, members: usize) -> Result<Option<Self>, Trouble> {
        if wire != Wire::Shm || members < 3 {
            return Ok(None);
        }
        let mut switch = Switch::new(path, members, &Options::default())?;
        let ends = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&ends);
        std::thread::spawn(move || switch.run(|_| told.load(Atomic::Relaxed)));
        Ok(Some(Self(ends)))
    }
}

impl Drop for Switched {
    fn drop(&mut self) {
        self.0.store(true, Atomic::Relaxed);
    }
}
