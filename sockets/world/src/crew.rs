//! Threads that programs start: one runs at a time, and the world's time stands still while it
//! does. So what they do follows from the seed.
//!
//! The thread of the world leads. It lets a thread run when it has nothing else to do at this
//! moment, or waits itself, until that thread waits or ends.

use crate::threads_unsafe::{has_events, wait_for_word, word};
use rustix::io::Errno;
use rustix::thread::futex;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The place of the world's thread.
pub(crate) const LEADER: u32 = 0;
/// The first place of a blocking program, which waits on a stack of the world's thread.
const PROGRAMS: u32 = 1 << 31;
/// After how long on this machine a thread that does not wait is told of.
const LATE: futex::Timespec = futex::Timespec { tv_sec: 10, tv_nsec: 0 };
/// The virtual time that a wait for others takes, if there are none: what asks again and again
/// whether something has come lets time go on.
const OTHERS_NS: u64 = 1000;
/// Bounds the time on this machine that the leader waits for threads outside of the world.
const OUTSIDE: Duration = Duration::from_secs(1);

/// The mistake of an asynchronous program that waits for what only time brings.
const BLOCKED: &str = "waits in asynchronous code for what only time brings, such as \
    `std::thread::sleep` or a thread that sleeps: time does not pass meanwhile; await \
    `tokio::time::sleep` or `spawn_blocking` instead, or be a blocking program and call \
    `Stack::sleep`";

/// Lets one thread of the system run.
#[derive(Default)]
struct Turn(AtomicU32);

impl Turn {
    fn give(&self) {
        self.0.store(1, Ordering::Release);
        // That nothing waits for it yet is no mistake.
        let _ = futex::wake(&self.0, futex::Flags::PRIVATE, 1);
    }

    /// Waits for it, and calls `late` whenever that has taken a while.
    fn take(&self, mut late: impl FnMut()) {
        while self.0.swap(0, Ordering::Acquire) == 0 {
            let waited = futex::wait(&self.0, futex::Flags::PRIVATE, 0, Some(&LATE));
            if waited == Err(Errno::TIMEDOUT) {
                late();
            }
        }
    }
}

/// The event that a thread waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum For {
    /// The word at an address differs from this one, or a wake-up comes there.
    Word { at: usize, expected: u32 },
    /// The thread in this place has ended.
    End(u32),
    /// There is an event at this descriptor of epoll(7).
    Events(i32),
    /// Others have had a turn.
    Others,
    /// Only time passes.
    Time,
}

/// The ways in which a wait ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Woken {
    Told,
    /// The time was over first.
    Late,
    /// The world has ended: threads run freely.
    Free,
}

struct Member {
    turn: Arc<Turn>,
    host: Option<usize>,
    /// The system's name of it.
    handle: u64,
    woken: Woken,
}

struct Waiter {
    place: u32,
    what: For,
    until_ns: Option<u64>,
}

#[derive(Default)]
struct CrewState {
    members: BTreeMap<u32, Member>,
    last: u32,
    ready: VecDeque<u32>,
    /// In the order in which they began to wait.
    waiting: Vec<Waiter>,
    leader_woken: Option<Woken>,
    programs_last: u32,
    /// Blocking programs whose waits have ended.
    programs_woken: Vec<u32>,
    /// Hosts whose threads have run.
    ran: BTreeSet<usize>,
    names: Vec<(String, Ipv4Addr)>,
    /// Hosts whose threads do not run now.
    paused: BTreeSet<usize>,
    /// Nanoseconds by which a host's clock is ahead, and the number of looks at it since.
    skews: BTreeMap<usize, (i64, u64)>,
    /// The host of a program that did what the world cannot do, and what that was.
    mistake: Option<(Option<usize>, String)>,
}

/// The threads of one world.
#[derive(Default)]
pub(crate) struct Crew {
    leader: Turn,
    now_ns: AtomicU64,
    /// There has been a thread besides the leader.
    has_members: AtomicBool,
    /// Programs run, and not the test around them.
    is_running: AtomicBool,
    is_over: AtomicBool,
    state: Mutex<CrewState>,
}

/// The part of this thread in a world.
struct Role {
    crew: Arc<Crew>,
    place: u32,
}

thread_local! {
    static ROLE: RefCell<Option<Role>> = const { RefCell::new(None) };
}

impl Drop for Role {
    /// The first of a thread's variables, and so the last to go: the thread has ended.
    fn drop(&mut self) {
        if self.place != LEADER {
            self.crew.end(self.place);
        }
    }
}

/// The crew of this thread, and its place there.
pub(crate) fn role() -> Option<(Arc<Crew>, u32)> {
    let found = ROLE.try_with(|role| {
        let role = role.try_borrow().ok()?;
        role.as_ref().map(|role| (Arc::clone(&role.crew), role.place))
    });
    found.ok().flatten().filter(|(crew, _)| !crew.is_over.load(Ordering::Acquire))
}

impl CrewState {
    /// Ends the waits that have become needless.
    fn look(&mut self, now_ns: u64) {
        let mut at = 0;
        while let Some(waiter) = self.waiting.get(at) {
            let is_told = match waiter.what {
                For::Word { at, expected } => word(at) != expected,
                For::End(place) => !self.members.contains_key(&place),
                For::Events(descriptor) => has_events(descriptor),
                For::Others => !self.ready.is_empty(),
                For::Time => false,
            };
            let is_late = waiter.until_ns.is_some_and(|until| until <= now_ns);
            if is_told || is_late {
                let waiter = self.waiting.remove(at);
                self.wake(waiter.place, if is_told { Woken::Told } else { Woken::Late });
            } else {
                at += 1;
            }
        }
    }

    fn wake(&mut self, place: u32, how: Woken) {
        if place == LEADER {
            self.leader_woken = Some(how);
        } else if place >= PROGRAMS {
            self.programs_woken.push(place);
        } else if let Some(member) = self.members.get_mut(&place) {
            member.woken = how;
            self.ready.push_back(place);
        }
    }

    fn is_paused(&self, place: u32) -> bool {
        let host = self.members.get(&place).and_then(|member| member.host);
        host.is_some_and(|host| self.paused.contains(&host))
    }

    /// End of the first of the waits, if nothing ends it before.
    fn next_ns(&self) -> Option<u64> {
        self.waiting.iter().filter_map(|waiter| waiter.until_ns).min()
    }
}

impl Crew {
    /// A crew that this thread leads.
    pub(crate) fn lead() -> Arc<Self> {
        let crew: Arc<Self> = Arc::default();
        ROLE.set(Some(Role { crew: Arc::clone(&crew), place: LEADER }));
        crew
    }

    fn state(&self) -> MutexGuard<'_, CrewState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn now_ns(&self) -> u64 {
        self.now_ns.load(Ordering::Relaxed)
    }

    pub(crate) fn set_now(&self, ns: u64) {
        self.now_ns.store(ns, Ordering::Relaxed);
    }

    pub(crate) fn add_name(&self, name: &str, address: Ipv4Addr) {
        self.state().names.push((name.into(), address));
    }

    pub(crate) fn address_of(&self, wanted: &str) -> Option<Ipv4Addr> {
        let state = self.state();
        state.names.iter().find(|(name, _)| name == wanted).map(|(_, address)| *address)
    }

    pub(crate) fn is_running(&self) -> bool {
        self.is_running.load(Ordering::Relaxed)
    }

    /// Says whether programs run from now on, or the test around them. Returns which of them did
    /// before.
    pub(crate) fn set_running(&self, is_running: bool) -> bool {
        self.is_running.swap(is_running, Ordering::Relaxed)
    }

    /// Notes the first mistake of a program.
    pub(crate) fn blame(&self, host: Option<usize>, what: &str) {
        if !self.is_running() {
            return;
        }
        self.state().mistake.get_or_insert_with(|| (host, what.into()));
    }

    pub(crate) fn take_mistake(&self) -> Option<(Option<usize>, String)> {
        self.state().mistake.take()
    }

    /// Adds a thread of a host, before it is begun.
    pub(crate) fn add(&self, host: Option<usize>) -> u32 {
        self.has_members.store(true, Ordering::Relaxed);
        let mut state = self.state();
        state.last += 1;
        let place = state.last;
        let member = Member { turn: Arc::default(), host, handle: 0, woken: Woken::Told };
        state.members.insert(place, member);
        state.ready.push_back(place);
        place
    }

    /// The system has begun it.
    pub(crate) fn set_handle(&self, place: u32, handle: u64) {
        if let Some(member) = self.state().members.get_mut(&place) {
            member.handle = handle;
        }
    }

    /// The system has not.
    pub(crate) fn remove(&self, place: u32) {
        let mut state = self.state();
        state.members.remove(&place);
        state.ready.retain(|other| *other != place);
    }

    pub(crate) fn place_of(&self, handle: u64) -> Option<u32> {
        let state = self.state();
        let found = state.members.iter().find(|(_, member)| member.handle == handle);
        found.map(|(place, _)| *place)
    }

    /// This thread is a new one of the crew, and waits for its first turn.
    pub(crate) fn join(self: Arc<Self>, place: u32) -> Woken {
        let turn = self.state().members.get(&place).map(|member| Arc::clone(&member.turn));
        ROLE.set(Some(Role { crew: Arc::clone(&self), place }));
        if let Some(turn) = turn {
            turn.take(|| ());
        }
        if self.is_over.load(Ordering::Acquire) { Woken::Free } else { Woken::Told }
    }

    /// A thread's last word.
    fn end(&self, place: u32) {
        let mut state = self.state();
        let ended = state.members.remove(&place);
        state.ran.extend(ended.and_then(|member| member.host));
        drop(state);
        if !self.is_over.load(Ordering::Acquire) {
            self.leader.give();
        }
    }

    /// Ends the waits of as many threads as `most` at a word, longest first; how many there were.
    pub(crate) fn wake(&self, at: usize, most: usize) -> usize {
        let mut state = self.state();
        let mut count = 0;
        while count < most {
            let is_here =
                |waiter: &Waiter| matches!(waiter.what, For::Word { at: w, .. } if w == at);
            let Some(found) = state.waiting.iter().position(is_here) else { break };
            let place = state.waiting.remove(found).place;
            state.wake(place, Woken::Told);
            count += 1;
        }
        count
    }

    /// Notes what a blocking program waits for; the place that names it.
    pub(crate) fn park(&self, what: For) -> u32 {
        self.has_members.store(true, Ordering::Relaxed);
        let mut state = self.state();
        state.programs_last += 1;
        let place = PROGRAMS | state.programs_last;
        state.waiting.push(Waiter { place, what, until_ns: None });
        place
    }

    /// A blocking program waits no longer.
    pub(crate) fn unpark(&self, place: u32) {
        let mut state = self.state();
        state.waiting.retain(|waiter| waiter.place != place);
        state.programs_woken.retain(|other| *other != place);
    }

    /// The blocking programs whose waits have ended since this was last asked.
    pub(crate) fn take_programs(&self) -> Vec<u32> {
        if !self.has_members.load(Ordering::Relaxed) {
            return Vec::new();
        }
        std::mem::take(&mut self.state().programs_woken)
    }

    /// Lets this thread wait, up to a time of the world.
    pub(crate) fn wait(
        &self,
        (place, host): (u32, Option<usize>),
        what: For,
        until_ns: Option<u64>,
    ) -> Woken {
        if matches!((place, what), (LEADER, For::Others)) {
            self.run_one();
            return Woken::Told;
        }
        let mut state = self.state();
        let until_ns = match what {
            For::Others => Some(self.now_ns().saturating_add(OTHERS_NS)),
            _ => until_ns,
        };
        state.waiting.push(Waiter { place, what, until_ns });
        if place == LEADER {
            state.leader_woken = None;
            drop(state);
            return self.wait_leading(host, what);
        }
        let turn = state.members.get(&place).map(|member| Arc::clone(&member.turn));
        state.ran.extend(host);
        drop(state);
        self.leader.give();
        let Some(turn) = turn else { return Woken::Free };
        turn.take(|| ());
        if self.is_over.load(Ordering::Acquire) {
            return Woken::Free;
        }
        self.state().members.get(&place).map_or(Woken::Free, |member| member.woken)
    }

    fn wait_leading(&self, host: Option<usize>, what: For) -> Woken {
        let mut outside = Duration::ZERO;
        loop {
            let ran = self.run_one();
            let mut state = self.state();
            if let Some(woken) = state.leader_woken.take() {
                return woken;
            }
            if ran {
                continue;
            }
            let next_ns = state.next_ns();
            if next_ns.is_none() || outside < OUTSIDE {
                drop(state);
                // A thread that the world does not know may have what this one waits for.
                match what {
                    For::Word { at, expected } => outside += wait_for_word(at, expected),
                    _ if next_ns.is_some() => outside = OUTSIDE,
                    _ => outside += wait_for_word(self.leader.0.as_ptr() as usize, 0),
                }
                if outside.as_millis().is_multiple_of(10_000) {
                    eprintln!(
                        "xk-world: the world's thread waits since {outside:?} for what no thread \
                         of it can give"
                    );
                }
                continue;
            }
            let ahead_ns = next_ns.unwrap_or_default().max(self.now_ns());
            drop(state);
            self.set_now(ahead_ns);
            self.blame(host, BLOCKED);
        }
    }

    /// Lets the first thread that can run do so until it waits or ends; false if there is none.
    fn run_one(&self) -> bool {
        let mut state = self.state();
        state.look(self.now_ns());
        let Some(at) = state.ready.iter().position(|place| !state.is_paused(*place)) else {
            return false;
        };
        let Some(place) = state.ready.remove(at) else { return false };
        let Some(member) = state.members.get(&place) else { return true };
        let turn = Arc::clone(&member.turn);
        drop(state);
        turn.give();
        self.leader.take(|| {
            eprintln!(
                "xk-world: a thread that a program has started has neither waited nor ended for \
                 10 s; the world's time stands still meanwhile"
            );
        });
        true
    }

    /// Lets the threads run until all wait; the hosts whose threads did.
    pub(crate) fn run(&self) -> BTreeSet<usize> {
        if !self.has_members.load(Ordering::Relaxed) {
            return BTreeSet::new();
        }
        while self.run_one() {}
        std::mem::take(&mut self.state().ran)
    }

    /// Time at which a thread wants to go on by itself.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        let may_wait = self.has_members.load(Ordering::Relaxed);
        may_wait.then(|| self.state().next_ns()).flatten()
    }

    /// The threads of a host never run again.
    pub(crate) fn abandon(&self, host: usize) {
        let mut state = self.state();
        let is_its = |member: &Member| member.host == Some(host);
        let gone: BTreeSet<u32> =
            state.members.iter().filter(|(_, member)| is_its(member)).map(|(at, _)| *at).collect();
        state.members.retain(|place, _| !gone.contains(place));
        state.waiting.retain(|waiter| !gone.contains(&waiter.place));
        state.ready.retain(|place| !gone.contains(place));
    }

    /// The threads of a host stand still from now on, or go on; how many would have run meanwhile.
    pub(crate) fn pause(&self, host: usize, is_paused: bool) -> usize {
        let mut state = self.state();
        let held = state.ready.iter().filter(|place| state.is_paused(**place)).count();
        match is_paused {
            true => state.paused.insert(host),
            false => state.paused.remove(&host),
        };
        held
    }

    /// A host's clock is so far ahead from now on.
    pub(crate) fn skew(&self, host: usize, ns: i64) {
        self.state().skews.entry(host).or_default().0 = ns;
    }

    /// Nanoseconds by which a host's clock is ahead, at one look.
    pub(crate) fn look_at_clock(&self, host: usize) -> i64 {
        self.state().skews.get_mut(&host).map_or(0, |(ns, looks)| {
            *looks += 1;
            *ns
        })
    }

    /// Counts the looks at clocks that are not the world's.
    pub(crate) fn looks(&self) -> Vec<(usize, u64)> {
        self.state().skews.iter().map(|(host, (_, looks))| (*host, *looks)).collect()
    }

    /// The world is over: what is left runs on outside of it.
    pub(crate) fn disband(&self) {
        self.is_over.store(true, Ordering::Release);
        let turns: Vec<_> =
            self.state().members.values().map(|member| Arc::clone(&member.turn)).collect();
        ROLE.set(None);
        turns.iter().for_each(|turn| turn.give());
    }
}
