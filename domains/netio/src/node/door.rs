//! The socket where programs show their tickets.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::xdp::{hand_over, take_over};
use crate::{Holder, Module, Noted, Rate, Ticket};
use xk_core::control::Report;
use xk_core::object::USER_SHARE;
use xk_core::wire::{Sleeper, Wire};
use xk_core::{Answer, Ask, Kernel, Protocol, ProtocolRef, Time, reason};
use xk_domains::ring::Ring;
use xk_domains::{Arrival, Carrier};
use xk_shm::{Entrance, Link, Options, Peer, Peers, ShmError};

/// Programs that have come and shown no ticket yet at most.
pub const COMERS_MAX: usize = 64;
/// The most of them that are one user's.
pub const COMERS_OF_A_USER_MAX: usize = COMERS_MAX / USER_SHARE;
/// The time in which a program shows its ticket.
pub const TICKET_WITHIN: Duration = Duration::from_secs(2);
/// Octets of what a program shows at most.
const SHOWN_MAX: usize = size_of::<Ticket>() + 1;
/// Interval at which a loop that does not sleep looks for others.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Channels without a right whose holders are listed.
const BARE_SHOWN_MAX: usize = 32;

/// A program that has come and has shown no ticket yet.
struct Comer {
    ring: Ring,
    peer: Peer,
    /// Time by which it must have shown its ticket.
    until: Time,
}

/// Tells a program behind these rings that the channel of this number and rate is its, and gives it
/// what belongs to the channel beside them. Whether it wants frames to bear notes, and the answer
/// whether they do ([`Noted`]).
pub type Hand = Box<dyn Fn(&Ring, bool, (u32, Rate)) -> Result<bool, ShmError>>;

/// Behind a ticket: the program wants frames to bear notes.
const WANTS_NOTES: u8 = 1;

/// A protocol object where programs fetch the channels of a module that they were granted.
pub struct Door {
    module: Rc<Module>,
    entrance: RefCell<Entrance>,
    hand: Hand,
    /// In the order in which they came.
    comers: RefCell<Vec<Comer>>,
    /// Closed carriers, which the executor may still sleep on.
    gone: RefCell<Vec<Box<dyn Carrier>>>,
    /// Time of the next look for others, at the latest.
    look_at: Cell<Time>,
}

/// The program's end of the channel that `ticket` fetches at the door of this path: for
/// [`channel`](crate::channel).
///
/// # Errors
/// [`ShmError`]: nothing listens there, the other side refuses, the ticket fetches nothing, or
/// there is no answer in 2 seconds.
pub fn connect(
    path: impl AsRef<Path>,
    ticket: &Ticket,
) -> Result<Box<dyn Carrier + Send>, ShmError> {
    let peers = Peers::at(path.as_ref());
    let options = Options { peers, geometry: xk_domains::ring::geometry() };
    let mut link = Link::connect(path.as_ref(), &options)?;
    let shown = [&ticket[..], &[WANTS_NOTES]].concat();
    link.send(&shown).map_err(|_| ShmError::Hello("it takes no ticket"))?;
    link.flush();
    take_over(link, TICKET_WITHIN)
}

impl Door {
    /// Adds a door to a kernel: programs of all users that may use `path` fetch channels of
    /// `module` there, as rings alone.
    ///
    /// # Errors
    /// [`ShmError`]: the path will not do, or another process listens there.
    pub fn open(
        cx: &Kernel,
        name: &str,
        path: &Path,
        module: Rc<Module>,
    ) -> Result<ProtocolRef, ShmError> {
        let hand: Hand = Box::new(|ring, wants_notes, _| hand_over(ring, None, wants_notes));
        Self::open_with(cx, name, path, module, hand)
    }

    /// As [`open`](Self::open), with what `hand` gives beside the rings.
    ///
    /// # Errors
    /// [`ShmError`].
    pub fn open_with(
        cx: &Kernel,
        name: &str,
        path: &Path,
        module: Rc<Module>,
        hand: Hand,
    ) -> Result<ProtocolRef, ShmError> {
        let options = Options { peers: Peers::Any, geometry: xk_domains::ring::geometry() };
        let entrance = RefCell::new(Entrance::new(path, &options)?);
        module.set_door(&path.to_string_lossy());
        let door = Self {
            module,
            hand,
            entrance,
            comers: RefCell::default(),
            gone: RefCell::default(),
            look_at: Cell::new(Time::ZERO),
        };
        Ok(cx.add_protocol("netio-door", name, door))
    }

    /// Lets those in that have come.
    #[cold]
    fn look(&self, cx: &Kernel, this: &ProtocolRef) {
        let mut entrance = self.entrance.borrow_mut();
        for _ in 0..COMERS_MAX {
            let link = entrance.step(Instant::now(), true);
            if entrance.take_error().is_some() {
                this.head().drops().count(&reason::PROHIBITED);
            }
            let Some(link) = link else {
                break;
            };
            let (peer, until) = (link.peer(), cx.now().after(TICKET_WITHIN));
            let mut comers = self.comers.borrow_mut();
            comers.push(Comer { ring: Ring::new(link), peer, until });
            // The one that has said nothing for longest makes room.
            let is_of_user = |comer: &Comer| comer.peer.uid == peer.uid;
            let of_user = comers.iter().filter(|comer| is_of_user(comer)).count();
            let late = match of_user > COMERS_OF_A_USER_MAX {
                true => comers.iter().position(is_of_user),
                false => (comers.len() > COMERS_MAX).then_some(0),
            };
            if let Some(late) = late {
                let late = comers.remove(late);
                self.send_away(this, Box::new(late.ring));
            }
        }
        let next = entrance.next_step().map(|at| at.saturating_duration_since(Instant::now()));
        self.look_at.set(cx.now().after(next.unwrap_or(LOOK_EVERY).min(LOOK_EVERY)));
    }

    fn send_away(&self, this: &ProtocolRef, carrier: Box<dyn Carrier>) {
        this.head().drops().count(&reason::PROHIBITED);
        carrier.close();
        let mut gone = self.gone.borrow_mut();
        gone.truncate(2 * COMERS_MAX);
        gone.insert(0, carrier);
    }

    /// Hears those that have shown no ticket yet.
    fn hear(&self, cx: &Kernel, this: &ProtocolRef) -> usize {
        let mut heard = 0;
        for comer in self.comers.take() {
            match comer.ring.receive(cx) {
                Arrival::Frame(frame) => {
                    heard += 1;
                    let shown: Vec<u8> = frame.octets().take(SHOWN_MAX + 1).collect();
                    let shown = shown.split_first_chunk::<{ size_of::<Ticket>() }>();
                    let shown = shown.and_then(|(ticket, behind)| match behind {
                        [] => Some((ticket, false)),
                        [WANTS_NOTES] => Some((ticket, true)),
                        _ => None,
                    });
                    let told = shown.and_then(|(ticket, wants_notes)| {
                        let granted = self.module.granted(cx, ticket)?;
                        let has_notes = (self.hand)(&comer.ring, wants_notes, granted).ok()?;
                        Some((ticket, granted.0, has_notes))
                    });
                    let carrier: Box<dyn Carrier> = match told {
                        Some((.., true)) => Box::new(Noted(comer.ring)),
                        _ => Box::new(comer.ring),
                    };
                    let fetched = match told {
                        None => Err(carrier),
                        Some((ticket, number, _)) => {
                            self.module.attach(cx, ticket, carrier).map(|()| number)
                        }
                    };
                    let Peer { uid, pid, .. } = comer.peer;
                    match fetched {
                        Ok(number) => self.module.fetched_by(cx, number, Holder { uid, pid }),
                        Err(carrier) => self.send_away(this, carrier),
                    }
                }
                Arrival::Nothing | Arrival::NoBuffers if cx.now() < comer.until => {
                    self.comers.borrow_mut().push(comer);
                }
                _ => self.send_away(this, Box::new(comer.ring)),
            }
        }
        heard
    }
}

impl Protocol for Door {
    fn control(&self, cx: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        ask.answer::<Report>(|report| {
            let ((fetched, granted), bare) = (self.module.counts(), self.module.bare());
            let figures = [
                ("channels", fetched),
                ("not-fetched", granted),
                ("without-ticket", self.comers.borrow().len()),
                ("without-right", bare.len()),
            ];
            report.lines = figures.map(|(name, count)| (name.into(), count.to_string())).into();
            let whose = bare.iter().take(BARE_SHOWN_MAX).map(|bare| {
                let Holder { uid, pid } = bare.holder;
                let age = cx.now().since(bare.since).as_secs();
                (format!("program {pid}"), format!("of user {uid}, no right for {age} s"))
            });
            report.lines.extend(whose);
            report.finished = true;
        })
    }

    fn stop(&self, _: &Kernel, this: &ProtocolRef) {
        for comer in self.comers.take() {
            self.send_away(this, Box::new(comer.ring));
        }
    }

    fn wire(&self) -> Option<&dyn Wire> {
        Some(self)
    }
}

impl Wire for Door {
    fn poll(&self, cx: &Kernel, this: &ProtocolRef, _: usize) -> usize {
        if cx.now() >= self.look_at.get() {
            self.look(cx, this);
        }
        if self.comers.borrow().is_empty() { 0 } else { self.hear(cx, this) }
    }

    fn flush(&self, _: &Kernel, _: &ProtocolRef) {}

    fn descriptor(&self, see: &mut dyn FnMut(&dyn Any)) {
        see(self.entrance.borrow().set());
    }

    fn next_poll(&self) -> Option<Time> {
        let comers = self.comers.borrow();
        let looks = self.entrance.borrow().next_step().map(|_| self.look_at.get());
        comers.iter().map(|comer| comer.until).chain(looks).min()
    }

    fn rest(&self, cx: &Kernel, _: &ProtocolRef, sleeper: &dyn Sleeper) -> bool {
        for gone in self.gone.take() {
            let _ = gone.rest(cx, sleeper);
        }
        // What wakes it may be that one has come.
        self.look_at.set(Time::ZERO);
        let mut rests = true;
        for comer in &*self.comers.borrow() {
            rests &= comer.ring.rest(cx, sleeper);
        }
        rests
    }

    fn woken(&self, _: &Kernel, _: &ProtocolRef) {
        self.comers.borrow().iter().for_each(|comer| comer.ring.woken());
    }
}
