//! A program's place at the registry: its session there, and what it may carry on.

use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;
use xk_core::control::TEXT_MAX;
use xk_core::object::{OpenError, SessionSlot};
use xk_core::{Ask, HostAddr, Kernel, Participants, ProtocolRef, SessionRef, Upper};
use xk_kit::control::DeliverError;
use xk_kit::net::moving::{EndsFailed, MoveError, TakeState, release, rest_of, state_of};
use xk_kit::net::ports::pop_ports;
use xk_netio::Ticket;

use crate::questions::{
    EndRight, FindStation, GiveBack, OpenChannel, PassOn, StationChanged, TakeOn, TakeOver,
};
use crate::stations::Known;

/// Both hosts of these ends, ours first.
fn hosts_of(ends: &Participants) -> Option<(HostAddr, HostAddr)> {
    let mut ends = ends.clone();
    pop_ports(&mut ends).ok()?;
    let own = ends.local_mut().ok()?.pop_host().ok()?.value()?;
    Some((own, ends.peer_mut().ok()?.pop_host().ok()?.value()?))
}

/// Why a conversation does not go on in the program.
pub(crate) enum Untaken {
    /// The peer has not answered yet.
    Later,
    /// There is no right for it.
    NotGranted,
}

/// Shared state of the libraries of one program.
pub(crate) struct Membership {
    /// Proxy of the registry.
    registry: ProtocolRef,
    session: SessionSlot,
    pub(crate) known: Rc<Known>,
    /// Both hosts of each right, ours first.
    hosts: RefCell<BTreeMap<u32, (HostAddr, HostAddr)>>,
}

impl Membership {
    pub(crate) fn new(registry: ProtocolRef) -> Rc<Self> {
        Rc::new(Self {
            registry,
            session: SessionSlot::default(),
            known: Rc::default(),
            hosts: RefCell::default(),
        })
    }

    /// Takes the program's place, for the receiver `this`.
    pub(crate) fn enter(&self, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        if self.session.is_some() {
            return Ok(());
        }
        let session = self.registry.open(cx, Upper::new(this), Participants::default())?;
        drop(self.session.replace(Some(session)));
        Ok(())
    }

    fn session(&self) -> Option<SessionRef> {
        self.session.live()
    }

    /// True while the registry is gone.
    pub(crate) fn is_lost(&self) -> bool {
        self.session().is_none()
    }

    /// The program's channel.
    pub(crate) fn open_channel(&self, cx: &Kernel) -> Option<OpenChannel> {
        self.session()?.ask(cx, OpenChannel::default())
    }

    /// Has what `far` is sent between these ends come to `own`, which answers nothing yet: the
    /// right, and the state of `far`, which is over then, or why there is none. If it `waits`,
    /// `far` may still be connecting.
    ///
    /// # Errors
    /// [`Untaken`]: `far` goes on as before.
    pub(crate) fn take_over(
        &self,
        cx: &Kernel,
        (far, own): (&SessionRef, &ProtocolRef),
        ends: &Participants,
        waits: bool,
    ) -> Result<(u32, Result<Vec<u8>, MoveError>), Untaken> {
        let hosts = hosts_of(ends).ok_or(Untaken::NotGranted)?;
        self.known.expect(hosts.1);
        let part = cx.pool().empty(0).ok();
        let begin = TakeState { ends: ends.clone(), at: 0, part, taken: false };
        let is_held = own.ask(cx, begin).is_some_and(|answer| answer.taken);
        let taken = if is_held { self.share(cx, far, waits) } else { None };
        let is_later = taken.as_ref().is_some_and(|taken| taken.later);
        let right = taken.as_ref().and_then(|taken| taken.right);
        let Some((right, taken)) = right.zip(taken) else {
            self.known.forget(cx, hosts.1);
            return Err(if is_later { Untaken::Later } else { Untaken::NotGranted });
        };
        self.known.change(cx, hosts.1, taken.station);
        self.hosts.borrow_mut().insert(right, hosts);
        let state: Vec<u8> = taken.part.map_or_else(Vec::new, |part| part.octets().collect());
        let total = taken.total as usize;
        let state = match state.len() {
            0 => Err(MoveError::NothingGiven),
            octets if octets == total => Ok(state),
            // Too long for one answer.
            _ => rest_of(cx, far, state)
                .filter(|state| release(cx, far, state.len()))
                .ok_or(MoveError::NotTaken),
        };
        Ok((right, state))
    }

    /// The right to what `far` is sent and sends.
    pub(crate) fn share(&self, cx: &Kernel, far: &SessionRef, waits: bool) -> Option<TakeOver> {
        let session = Some(far.clone());
        self.session()?.ask(cx, TakeOver { session, waits, ..TakeOver::default() })
    }

    /// Local host from which a host is reached, on behalf of the session `far`, and the station on
    /// the way; `None` if these are not known, or the registry is gone.
    pub(crate) fn find_station(
        &self,
        cx: &Kernel,
        far: &SessionRef,
        host: HostAddr,
    ) -> Option<(HostAddr, [u8; 6])> {
        let asked = FindStation { session: Some(far.clone()), host, station: None };
        self.session()?.ask(cx, asked)?.station
    }

    /// The right is no more.
    pub(crate) fn end_right(&self, cx: &Kernel, right: u32, state: Option<usize>) -> bool {
        let asked = EndRight { right, state_octets: state.unwrap_or(0) as u32, done: false };
        let answer = self.session().and_then(|registry| registry.ask(cx, asked));
        let hosts = self.hosts.borrow_mut().remove(&right);
        hosts.inspect(|(_, peer)| self.known.forget(cx, *peer));
        answer.is_some_and(|answer| answer.done)
    }

    /// The registry tells something of a right; `None` if it is none of this one.
    pub(crate) fn hear(
        &self,
        cx: &Kernel,
        (own, net): &(ProtocolRef, ProtocolRef),
        ask: &mut Ask<'_>,
    ) -> Option<()> {
        let hosts = |right| self.hosts.borrow().get(&right).copied();
        if let Some(question) = ask.get::<StationChanged>() {
            let (_, peer) = hosts(question.right)?;
            self.known.change(cx, peer, question.address);
            return Some(());
        }
        let question = ask.get::<EndsFailed>()?;
        let (source, destination) = hosts(question.number)?;
        // It goes on as if it had arrived here.
        let protocol = cx.type_number(own.id(), net.id()).and_then(|n| u8::try_from(n).ok())?;
        let error = question.error.clone();
        let _ = net.ask(cx, DeliverError { source, destination, protocol, error });
        Some(())
    }

    /// The conversation of a right goes to another program: the ticket that this shows.
    pub(crate) fn pass_on(&self, cx: &Kernel, right: u32) -> Option<Ticket> {
        let ticket = self.session()?.ask(cx, PassOn { right, ticket: None })?.ticket?;
        let hosts = self.hosts.borrow_mut().remove(&right);
        hosts.inspect(|(_, peer)| self.known.forget(cx, *peer));
        Some(ticket)
    }

    /// Shows what another program has passed on, its ticket in front: false if it is none.
    pub(crate) fn take_on(&self, cx: &Kernel, passed: &[u8]) -> bool {
        let Some((registry, (ticket, state))) = self.session().zip(passed.split_first_chunk())
        else {
            return false;
        };
        let (mut at, total) = (0, state.len() as u32);
        state.chunks(TEXT_MAX).all(|part| {
            let part = cx.pool().copy_from(0, part).ok();
            let octets = part.as_ref().map_or(0, xk_core::Message::len);
            let asked = TakeOn { ticket: *ticket, at, total, part, taken: false };
            at += octets as u32;
            registry.ask(cx, asked).is_some_and(|answer| answer.taken)
        })
    }

    /// Gives the conversation of a right back: false if it goes on here.
    pub(crate) fn give_back(&self, cx: &Kernel, right: u32, here: &SessionRef) -> bool {
        let Some((registry, state)) = self.session().zip(state_of(cx, here)) else {
            return false;
        };
        let mut at = 0;
        let given = state.chunks(TEXT_MAX).all(|part| {
            let part = cx.pool().copy_from(0, part).ok();
            let octets = part.as_ref().map_or(0, xk_core::Message::len);
            let asked = GiveBack { right, at, part, taken: false };
            at += octets as u32;
            registry.ask(cx, asked).is_some_and(|answer| answer.taken)
        });
        if !given {
            return false;
        }
        // Whatever came of it there, the right is no more.
        self.end_right(cx, right, Some(state.len()));
        release(cx, here, state.len());
        true
    }

    pub(crate) fn stop(&self) {
        drop(self.session.take());
        drop(self.hosts.take());
    }
}
