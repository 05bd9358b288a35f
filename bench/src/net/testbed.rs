//! Surroundings of the two ends of a case: namespaces, cores, and the file by which they meet.

use super::endpoint::{Endpoint, Path, System, Task, Wire};
use super::memory;
use super::memory_unsafe::Memory;
use super::peer::{self, Peer};
use super::space::Spaces;
use crate::case::{Shared, Trouble, shared};
use crate::folder;
use serde_json::Value;
use std::time::Duration;
use tempfile::TempDir;

/// The use of processors by both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// A core each, and neither sleeps.
    Spinning,
    /// Both on one core, each sleeping until something comes.
    OneCore,
    /// A core each, each sleeping until something comes.
    TwoCores,
    /// On the cores that the system chooses, each sleeping until something comes.
    Unpinned,
}

impl Mode {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Spinning => "spinning",
            Self::OneCore => "one core",
            Self::TwoCores => "two cores",
            Self::Unpinned => "unpinned",
        }
    }
}

/// One case: which systems exchange what, and how.
#[derive(Clone, Copy)]
pub(super) struct Setting {
    pub(super) system: System,
    /// The task of each side.
    pub(super) tasks: [Task; 2],
    /// Octets of a message, as the system's user sees it.
    pub(super) octets: usize,
    pub(super) mode: Mode,
    pub(super) time: Duration,
}

/// State that the cases of a benchmark share; made when the first needs it.
#[derive(Clone, Default)]
pub(crate) struct Testbed {
    /// The largest payload of a frame on the veth pair; if not given, Ethernet's.
    mtu_octets: Option<u16>,
    spaces: Shared<Result<Spaces, Trouble>>,
    /// The pair without offloads.
    plain: Shared<Result<Spaces, Trouble>>,
    /// A pair with a way with faults between its ends, and what carries it: one for all.
    faulty: Shared<Result<(Spaces, Peer), Trouble>>,
}

/// The place where both ends of a case meet, removed after it.
#[derive(Default)]
struct Meeting {
    path: Option<String>,
    _memory: Option<Memory>,
    _folder: Option<TempDir>,
}

impl Meeting {
    fn of(setting: &Setting) -> Result<Self, Trouble> {
        let mut meeting = Self::default();
        match setting.system {
            System::Bare(Wire::Shm) => {
                let memory = Memory::new(memory::size(setting.octets))
                    .map_err(|error| Trouble::Failed(format!("no memory to share: {error}")))?;
                meeting.path = Some(memory.path());
                meeting._memory = Some(memory);
            }
            system if system.wire() == Some(Wire::Shm) => {
                let folder = folder::own()?;
                meeting.path = Some(folder.path().join("meeting").display().to_string());
                meeting._folder = Some(folder);
            }
            _ => {}
        }
        Ok(meeting)
    }
}

impl Testbed {
    /// One whose frames bear at most so many octets.
    pub(crate) fn with_mtu(mtu_octets: u16) -> Self {
        Self { mtu_octets: Some(mtu_octets), ..Self::default() }
    }

    /// Runs one round of a case. Answers what the end found that asks or receives, then what the
    /// other did.
    ///
    /// # Errors
    /// [`Trouble`], the machine's or an end's.
    pub(super) fn run(&self, setting: &Setting) -> Result<(Value, Value), Trouble> {
        let cores = cores(setting.mode)?;
        let meeting = Meeting::of(setting)?;
        let end = |side: usize| -> Result<Endpoint, Trouble> {
            Ok(Endpoint {
                system: setting.system,
                task: setting.tasks[side],
                side,
                octets: setting.octets,
                spins: setting.mode == Mode::Spinning,
                port: port(),
                core: cores[side],
                time: setting.time,
                space: self.space(setting.system, side)?,
                meeting: meeting.path.clone(),
            })
        };
        let ends = [end(0)?, end(1)?];
        peer::run(&ends, first(setting))
    }

    /// The namespace for a side of a system, if it needs one.
    fn space(&self, system: System, side: usize) -> Result<Option<String>, Trouble> {
        let side = match (system, system.wire()) {
            (System::LinuxLoopback | System::LinuxLoopbackJoined | System::XkHost, _)
            | (_, Some(Wire::Shm | Wire::Host | Wire::HostUdp)) => return Ok(None),
            // Ports and their range are its own there; without the right to one, those of the
            // machine do.
            (System::LinuxTcpLoopback, _) => {
                let spaces = shared(&self.spaces, || Spaces::new(self.mtu_octets));
                return Ok(spaces.ok().map(|spaces| spaces.path(0)));
            }
            // The device has both ends in one namespace.
            (_, Some(Wire::Tap)) => 0,
            _ => side,
        };
        if let Some(path) = system.path() {
            let faulty = shared(&self.faulty, || faulty(path));
            return faulty.map(|(spaces, _)| Some(spaces.path(side)));
        }
        let spaces = match system {
            System::LinuxTcpVethPlain | System::LinuxTcpSmall => shared(&self.plain, || {
                let spaces = Spaces::new(self.mtu_octets)?;
                spaces.leave_nothing_to_devices()?;
                Ok(spaces)
            }),
            _ => shared(&self.spaces, || Spaces::new(self.mtu_octets)),
        };
        spaces.map(|spaces| Some(spaces.path(side)))
    }
}

/// Two ends and, in a space of its own between them, a process that carries frames from one to the
/// other by this way.
fn faulty(path: Path) -> Result<(Spaces, Peer), Trouble> {
    let (spaces, between) = Spaces::with_space_between()?;
    let end = Endpoint {
        system: System::Between(path),
        task: Task::Answer,
        side: 0,
        octets: 0,
        spins: false,
        port: port(),
        core: cores(Mode::TwoCores)?[0],
        // It carries until it is ended, but not without end.
        time: Duration::from_secs(1800),
        space: Some(between),
        meeting: None,
    };
    let mut peer = Peer::start(&end)?;
    peer.ready()?;
    Ok((spaces, peer))
}

/// The side that is started first: the maker of a device that the other needs, or else the side
/// that answers or receives.
fn first(setting: &Setting) -> usize {
    match setting.system {
        System::XkFrames(Wire::Tap) | System::Bare(Wire::Tap) => 0,
        _ => usize::from(!setting.tasks[0].is_passive()),
    }
}

/// The first of two ports that runs at the same time on one machine hardly share: below those that
/// Linux gives by itself.
pub(super) fn port() -> u16 {
    10_000 + (std::process::id() % 10_000) as u16 * 2
}

/// The cores for both sides; none where the system chooses.
pub(crate) fn cores(mode: Mode) -> Result<[Option<usize>; 2], Trouble> {
    let mut ours = crate::cores::cores().iter().copied();
    let first = ours.next().unwrap_or(0);
    match (mode, ours.next()) {
        (Mode::Unpinned, _) => Ok([None; 2]),
        (Mode::OneCore, _) => Ok([Some(first); 2]),
        (_, Some(second)) => Ok([Some(first), Some(second)]),
        (_, None) => Err(Trouble::Skipped("needs two cores".into())),
    }
}
