//! The place in a running graph where programs attach.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

use xk_core::object::{OpenError, Payer, ProtocolId, USER_SHARE};
use xk_core::wire::{Sleeper, Wire};
use xk_core::{Answer, Ask, Kernel, Protocol, ProtocolRef, Time, reason};
use xk_domains::ring::Ring;
use xk_domains::{Account, Carrier, Known, Port, guest_proxy};
use xk_kit::net::notice::notice;
use xk_shm::{Entrance, Options, Peer, Peers, ShmError};

use crate::grant::{Grant, gives_type, is_of_registry, permits};
use crate::questions::{
    DESK, Granted, Join, ListGrants, NAME_OCTETS_MAX, Own, PROTOCOLS_MAX, QUESTIONS, VERSION,
};

/// The most programs that are attached to one door.
pub const PROGRAMS_MAX: usize = 64;
/// The most programs of one user at a door.
pub const PROGRAMS_OF_A_USER_MAX: usize = PROGRAMS_MAX / USER_SHARE;
/// Time in which a program says which protocols it has.
const JOIN_WITHIN: Duration = Duration::from_secs(10);
/// The number of the first protocol of the first program: behind those of all kernels of a host.
const FIRST: u32 = 1 << 24;
/// Protocol numbers of one program.
const NUMBERS: u32 = PROTOCOLS_MAX as u32 + 1;
/// Number of programs that have numbers of their own.
const PLACES: u64 = (DESK.0 - FIRST) as u64 / NUMBERS as u64;

/// The source of programs that come to attach.
pub trait Visitors {
    /// The next that has come, and the process that it is. Without `room` all are sent away.
    fn next(&mut self, room: bool) -> Option<(Box<dyn Carrier>, Peer)>;

    /// Time until the next look, at the latest.
    fn next_look(&self) -> Option<Duration> {
        None
    }

    /// Why the last was sent away, once.
    fn take_error(&mut self) -> Option<String> {
        None
    }

    /// Shows a descriptor that is readable when one has come, or one that is here has gone: as
    /// [`Wire::descriptor`].
    fn descriptor(&self, see: &mut dyn FnMut(&dyn Any)) {
        let _ = see;
    }
}

/// Programs that come to the path of a socket.
struct AtPath(Entrance);

impl Visitors for AtPath {
    fn next(&mut self, room: bool) -> Option<(Box<dyn Carrier>, Peer)> {
        let link = self.0.step(Instant::now(), room)?;
        let peer = link.peer();
        Some((Box::new(Ring::new(link)), peer))
    }

    fn next_look(&self) -> Option<Duration> {
        let step = self.0.next_step()?;
        Some(step.saturating_duration_since(Instant::now()))
    }

    fn take_error(&mut self) -> Option<String> {
        self.0.take_error().map(|error| error.to_string())
    }

    fn descriptor(&self, see: &mut dyn FnMut(&dyn Any)) {
        see(self.0.set());
    }
}

/// A program that has come.
struct Guest {
    port: Rc<Port>,
    peer: Peer,
    /// The number of its desk, and of the first of its protocols less 1.
    first: u32,
    /// The nodes that the program may use.
    grants: Rc<[Grant]>,
    has_joined: Cell<bool>,
    /// Time by which it must have joined.
    until: Time,
}

impl Guest {
    /// The program's name in messages.
    fn name(&self) -> String {
        format!("program {}", self.peer.pid)
    }
}

/// Answers one program.
struct Desk(std::rc::Weak<Guest>);

impl Protocol for Desk {
    fn control(&self, cx: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        let Some(guest) = self.0.upgrade() else {
            return Answer::Unknown;
        };
        if let Some(question) = ask.get::<ListGrants>() {
            question.version = VERSION;
            question.first = guest.first + 1;
            question.nodes.clear();
            for grant in &*guest.grants {
                let (number, head) = (grant.node.id().0, grant.node.head());
                if !question.nodes.iter().any(|node| node.number == number) {
                    let (kind, name) = (head.kind().into(), grant.node.name().into());
                    question.nodes.push(Granted { number, kind, name });
                }
            }
        } else if let Some(question) = ask.get::<Join>() {
            let joined = guest.join(cx, &std::mem::take(&mut question.protocols));
            question.refusal = joined.err().unwrap_or_default();
        } else {
            return Answer::Unknown;
        }
        Answer::Answered
    }
}

impl Guest {
    /// Adds what stands for the program's protocols.
    fn join(&self, cx: &Kernel, protocols: &[Own]) -> Result<(), String> {
        if self.has_joined.get() {
            return Err("the program has joined already".into());
        }
        if protocols.len() > PROTOCOLS_MAX {
            return Err(format!("a program has {PROTOCOLS_MAX} protocols at most"));
        }
        let own = self.first + 1..self.first + NUMBERS;
        for (at, protocol) in protocols.iter().enumerate() {
            let name = &protocol.name;
            let is_again = protocols[..at].iter().any(|other| other.number == protocol.number);
            if !own.contains(&protocol.number) || is_again {
                return Err(format!("the number of `{}` is none of the program's", shown(name)));
            }
            if name.len() > NAME_OCTETS_MAX || name.contains(char::is_control) {
                return Err("a protocol's name is too long, or has control characters".into());
            }
            for (node, number) in &protocol.types {
                if !gives_type(&self.grants, ProtocolId(*node), *number) {
                    let node = cx.name_of(ProtocolId(*node)).unwrap_or_default();
                    let node = self.granted(&node).unwrap_or("that node");
                    return Err(format!(
                        "`{}` is not granted number {number} on {node}",
                        shown(name)
                    ));
                }
            }
        }
        for protocol in protocols {
            let name = format!("{} of {}", protocol.name, self.name());
            let id = ProtocolId(protocol.number);
            guest_proxy(cx, &self.port, id, "program", &name).ok_or("a number is taken")?;
            for (node, number) in &protocol.types {
                cx.numbers_mut().override_pair(id, ProtocolId(*node), *number);
            }
        }
        for (at, grant) in self.grants.iter().enumerate() {
            if !self.grants[..at].iter().any(|other| other.node == grant.node) {
                self.port.grant(&grant.node);
            }
        }
        self.has_joined.set(true);
        Ok(())
    }

    /// The name of a node, if the program may know it.
    fn granted(&self, name: &str) -> Option<&str> {
        let mut all = self.grants.iter();
        all.find(|grant| grant.node.name() == name).map(|grant| grant.node.name())
    }
}

/// A name as it may be shown.
fn shown(name: &str) -> String {
    name.chars().filter(|c| !c.is_control()).take(NAME_OCTETS_MAX).collect()
}

/// A protocol object where programs attach, each with the whole uniform interface to the nodes that
/// it is granted.
pub struct Door {
    visitors: RefCell<Box<dyn Visitors>>,
    grants: Vec<Grant>,
    known: Box<dyn Fn() -> Known>,
    guests: RefCell<Vec<Rc<Guest>>>,
    /// Number of programs that have come so far.
    came: Cell<u64>,
    /// Time of the next look for others, at the latest.
    look_at: Cell<Time>,
    /// Whether those that come are let in: from the start on, when what they may use has started.
    is_open: Cell<bool>,
}

/// Interval at which a loop that does not sleep looks for others.
const LOOK_EVERY: Duration = Duration::from_millis(10);

impl Door {
    /// Adds a door to a kernel: programs attach at `path` and use what `grants` give to their user.
    /// `known` are the questions and reasons that cross. Programs that come before the door is
    /// started wait.
    ///
    /// # Errors
    /// [`ShmError`]: the path will not do, or another process listens there.
    pub fn open(
        cx: &Kernel,
        name: &str,
        path: &Path,
        grants: Vec<Grant>,
        known: impl Fn() -> Known + 'static,
    ) -> Result<ProtocolRef, ShmError> {
        let all = |number: fn(&Grant) -> Option<u32>| grants.iter().filter_map(number).collect();
        let is_for_all = |grant: &Grant| grant.uid.is_none() && grant.gid.is_none();
        let peers = match grants.iter().any(is_for_all) {
            true => Peers::Any,
            false => Peers::Listed { uids: all(|grant| grant.uid), gids: all(|grant| grant.gid) },
        };
        let options = Options { peers, geometry: xk_domains::ring::geometry() };
        let visitors = AtPath(Entrance::new(path, &options)?);
        Ok(Self::with(cx, name, (Box::new(visitors), false), grants, known))
    }

    /// Adds a door to a kernel at which these visitors come, from now on.
    pub fn add(
        cx: &Kernel,
        name: &str,
        visitors: Box<dyn Visitors>,
        grants: Vec<Grant>,
        known: impl Fn() -> Known + 'static,
    ) -> ProtocolRef {
        Self::with(cx, name, (visitors, true), grants, known)
    }

    fn with(
        cx: &Kernel,
        name: &str,
        (visitors, is_open): (Box<dyn Visitors>, bool),
        grants: Vec<Grant>,
        known: impl Fn() -> Known + 'static,
    ) -> ProtocolRef {
        let door = Self {
            visitors: RefCell::new(visitors),
            grants,
            known: Box::new(known),
            guests: RefCell::default(),
            came: Cell::new(0),
            look_at: Cell::new(Time::ZERO),
            is_open: Cell::new(is_open),
        };
        cx.add_protocol("door", name, door)
    }

    fn guests(&self) -> Vec<Rc<Guest>> {
        self.guests.borrow().clone()
    }

    /// Lets those in that have come.
    #[cold]
    fn look(&self, cx: &Kernel, this: &ProtocolRef) {
        loop {
            let room = self.guests.borrow().len() < PROGRAMS_MAX;
            let (next, error) = {
                let mut visitors = self.visitors.borrow_mut();
                (visitors.next(room), visitors.take_error())
            };
            if let Some(error) = error {
                this.head().drops().count(&reason::PROHIBITED);
                notice(cx, || format!("{}: {error}", this.name()));
            }
            match next {
                Some((carrier, peer)) => self.admit(cx, this, carrier, peer),
                None => break,
            }
        }
        let next = self.visitors.borrow().next_look().unwrap_or(LOOK_EVERY);
        self.look_at.set(cx.now().after(next.min(LOOK_EVERY)));
    }

    fn admit(&self, cx: &Kernel, this: &ProtocolRef, carrier: Box<dyn Carrier>, peer: Peer) {
        let grants: Rc<[Grant]> =
            self.grants.iter().filter(|grant| grant.is_of(&peer)).cloned().collect();
        // What has gone takes no place from what comes, though its last words may be to be heard.
        let of_user = self.guests().into_iter().filter(|guest| guest.peer.uid == peer.uid);
        let here = of_user.filter(|guest| !guest.port.is_left(cx)).count();
        if grants.is_empty() || here >= PROGRAMS_OF_A_USER_MAX {
            this.head().drops().count(&reason::PROHIBITED);
            carrier.close();
            return;
        }
        let first = self.next_first();
        let port =
            Port::new(carrier, (self.known)().with(&QUESTIONS).with(&xk_registry::QUESTIONS));
        let until = cx.now().after(JOIN_WITHIN);
        let rights = Rc::clone(&grants);
        let has_place = Cell::new(false);
        port.guard(move |wish| {
            // A program has one place at a registry, which has a bounded number of them.
            if is_of_registry(&rights, wish) && has_place.replace(true) {
                return false;
            }
            let is_to_desk = matches!(wish, xk_domains::Wish::AskProtocol(DESK, _));
            is_to_desk || permits(&rights, wish)
        });
        port.charge(&Account::of(cx, Payer::user(peer.uid)));
        port.stand_at(this, u64::from(first));
        let guest =
            Rc::new(Guest { port, peer, first, grants, has_joined: Cell::new(false), until });
        let desk = Desk(Rc::downgrade(&guest));
        let name = format!("desk of {}", guest.name());
        if let Some(desk) = cx.add_guest(ProtocolId(first), "desk", &name, desk) {
            guest.port.grant_as(DESK, &desk);
            notice(cx, || {
                format!("{}: {} of user {} has come", this.name(), guest.name(), peer.uid)
            });
            self.guests.borrow_mut().push(guest);
        }
    }

    /// The number of the desk of one more program. Those of programs that are gone come back once
    /// all others were used.
    fn next_first(&self) -> u32 {
        loop {
            let came = self.came.get();
            self.came.set(came.wrapping_add(1));
            let first = FIRST + (came % PLACES) as u32 * NUMBERS;
            if !self.guests.borrow().iter().any(|guest| guest.first == first) {
                return first;
            }
        }
    }

    /// A program has gone, or is sent away.
    #[cold]
    fn dismiss(&self, cx: &Kernel, this: &ProtocolRef, guest: &Rc<Guest>) {
        let mut guests = self.guests.borrow_mut();
        let Some(at) = guests.iter().position(|other| Rc::ptr_eq(other, guest)) else {
            // Another shepherd sees to it.
            return;
        };
        guests.remove(at);
        drop(guests);
        guest.port.lose(cx);
        guest.port.stop();
        for number in guest.first..guest.first + NUMBERS {
            cx.remove_guest(ProtocolId(number));
        }
        if !guest.has_joined.get() {
            this.head().drops().count(&reason::PROHIBITED);
        }
        notice(cx, || format!("{}: {} has gone", this.name(), guest.name()));
    }
}

impl Protocol for Door {
    fn start(&self, _: &Kernel, _: &ProtocolRef) -> Result<(), OpenError> {
        self.is_open.set(true);
        Ok(())
    }

    fn control(&self, _: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        ask.answer::<xk_core::control::Describe>(|question| {
            let guests = self.guests.borrow();
            let all: Vec<String> = guests
                .iter()
                .map(|guest| format!("{} of user {}", guest.name(), guest.peer.uid))
                .collect();
            let all = if all.is_empty() { "none".into() } else { all.join(", ") };
            question.text = format!("{} programs so far, attached: {all}", self.came.get());
        })
    }

    fn timeout(&self, cx: &Kernel, this: &ProtocolRef, tag: u64) {
        let guests = self.guests();
        if let Some(guest) = guests.iter().find(|guest| u64::from(guest.first) == tag) {
            guest.port.timeout(cx, this);
        }
    }

    fn stop(&self, cx: &Kernel, this: &ProtocolRef) {
        for guest in self.guests() {
            self.dismiss(cx, this, &guest);
        }
    }

    fn wire(&self) -> Option<&dyn Wire> {
        Some(self)
    }
}

impl Wire for Door {
    fn poll(&self, cx: &Kernel, this: &ProtocolRef, budget: usize) -> usize {
        if cx.now() >= self.look_at.get() && self.is_open.get() {
            self.look(cx, this);
        }
        if self.guests.borrow().is_empty() {
            return 0;
        }
        let mut count = 0;
        for guest in self.guests() {
            count += guest.port.poll(cx, budget);
            let is_late = !guest.has_joined.get() && cx.now() >= guest.until;
            if guest.port.is_lost() || is_late {
                self.dismiss(cx, this, &guest);
            }
            if cx.must_leave() {
                break;
            }
        }
        count
    }

    fn flush(&self, cx: &Kernel, _: &ProtocolRef) {
        if self.guests.borrow().is_empty() {
            return;
        }
        for guest in self.guests() {
            guest.port.flush(cx);
        }
    }

    fn descriptor(&self, see: &mut dyn FnMut(&dyn Any)) {
        self.visitors.borrow().descriptor(see);
    }

    fn next_poll(&self) -> Option<Time> {
        let guests = self.guests.borrow();
        let of_guests = guests.iter().flat_map(|guest| {
            let joins = (!guest.has_joined.get()).then_some(guest.until);
            guest.port.next_poll().into_iter().chain(joins)
        });
        let look = self.visitors.borrow().next_look().map(|_| self.look_at.get());
        of_guests.chain(look).min()
    }

    fn rest(&self, cx: &Kernel, this: &ProtocolRef, sleeper: &dyn Sleeper) -> bool {
        // What wakes it may be that one has come.
        self.look_at.set(Time::ZERO);
        let mut is_quiet = true;
        for guest in self.guests() {
            is_quiet &= guest.port.rest(cx, this, sleeper);
        }
        is_quiet
    }

    fn woken(&self, cx: &Kernel, this: &ProtocolRef) {
        for guest in self.guests() {
            guest.port.woken(cx, this);
        }
    }

    fn may_spin(&self) -> bool {
        self.guests.borrow().iter().all(|guest| guest.port.may_spin())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Programs that come and go use up no numbers, and take none from those that stay.
    #[test]
    fn numbers_do_not_run_out() {
        struct Nothing;
        impl Visitors for Nothing {
            fn next(&mut self, _: bool) -> Option<(Box<dyn Carrier>, Peer)> {
                None
            }
        }
        let door = |came| Door {
            visitors: RefCell::new(Box::new(Nothing)),
            grants: Vec::new(),
            known: Box::new(|| Known::of(&[])),
            guests: RefCell::default(),
            came: Cell::new(came),
            look_at: Cell::new(Time::ZERO),
            is_open: Cell::new(true),
        };
        let last = FIRST + (PLACES - 1) as u32 * NUMBERS;
        assert!(last + (NUMBERS - 1) < DESK.0, "the last has all of its numbers");
        for came in [PLACES - 1, 7 * PLACES - 1, u64::MAX / PLACES * PLACES - 1] {
            let door = door(came);
            assert_eq!((door.next_first(), door.next_first()), (last, FIRST));
            let stays = Guest {
                port: Port::new(Box::new(xk_domains::Queue::pair(1).0), Known::of(&[])),
                peer: Peer { uid: 1, gid: 1, pid: 1 },
                first: FIRST + NUMBERS,
                grants: Rc::new([]),
                has_joined: Cell::new(true),
                until: Time::ZERO,
            };
            door.guests.borrow_mut().push(Rc::new(stays));
            assert_eq!(door.next_first(), FIRST + 2 * NUMBERS, "what stays keeps its numbers");
        }
    }
}
