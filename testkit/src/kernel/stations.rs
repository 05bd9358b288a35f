//! A link layer that takes hosts and tells of the stations behind them by `open_done`, as address
//! resolution on an Ethernet does. All of its operations may block.

use super::pauses::Pauses;
use core::cell::RefCell;
use core::time::Duration;
use std::rc::Rc;
use xk_core::object::{Enable, OpenError, PushError, Refused};
use xk_core::{
    Answer, Ask, HostAddr, Kernel, Message, Part, Participants, Protocol, ProtocolRef, Session,
    SessionRef, Upper,
};
use xk_kit::control::{MaxPacket, MyEther, PeerEther, PeerHost, Resolve};
use xk_kit::net::neighbour::{HostAt, HostChanged, HostRoute, WatchHosts};

struct State {
    pauses: Pauses,
    /// The sessions of stations, by host.
    stations: RefCell<Vec<(HostAddr, SessionRef)>>,
    /// Stations that are another host by now than the one that they are named after.
    moved: RefCell<Vec<(HostAddr, HostAddr)>>,
    watcher: RefCell<Option<ProtocolRef>>,
    enabled: RefCell<Option<ProtocolRef>>,
    /// The layer that the stations' sessions are of.
    ether: RefCell<Option<ProtocolRef>>,
}

/// A link whose hosts are all there.
#[derive(Clone)]
pub struct Stations {
    state: Rc<State>,
    protocol: ProtocolRef,
}

/// The station that a host of IPv4 is.
fn address(host: HostAddr) -> [u8; 6] {
    let [a, b, c, d] = host.to_v4().unwrap_or(core::net::Ipv4Addr::UNSPECIFIED).octets();
    [2, 0, a, b, c, d]
}

impl Stations {
    /// Adds one to a kernel.
    pub fn add(cx: &Kernel, name: &str) -> Self {
        let state = Rc::new(State {
            pauses: Pauses::default(),
            stations: RefCell::default(),
            moved: RefCell::default(),
            watcher: RefCell::default(),
            enabled: RefCell::default(),
            ether: RefCell::default(),
        });
        let ether = cx.add_protocol("eth", &format!("{name}-eth"), Link(Rc::clone(&state)));
        *state.ether.borrow_mut() = Some(ether);
        let protocol = cx.add_protocol("eth", name, Link(Rc::clone(&state)));
        Self { state, protocol }
    }

    /// The protocol, to stand others upon.
    #[must_use]
    pub fn protocol(&self) -> &ProtocolRef {
        &self.protocol
    }

    /// Makes operations block for up to `most` from now on.
    pub fn block(&self, most: Duration) {
        self.state.pauses.set(most);
    }

    /// Moves the station of a host to another host from now on, and tells the layer above.
    pub fn move_to(&self, cx: &Kernel, from: HostAddr, to: HostAddr) {
        self.state.moved.borrow_mut().push((from, to));
        let watcher = self.state.watcher.borrow().clone();
        for host in [from, to] {
            // A layer need not watch hosts.
            let _ = watcher.as_ref().and_then(|watcher| watcher.ask(cx, HostChanged { host }));
        }
    }

    /// Answers, for a network layer beside it, that a host is on this link.
    pub fn route(&self, ask: &mut Ask<'_>) -> Answer {
        let Some(question) = ask.get::<HostRoute>() else {
            return Answer::Unknown;
        };
        (question.over, question.direct) = (Some(self.protocol.clone()), true);
        Answer::Answered
    }

    /// Lets a message of a host arrive, through the session of its station.
    ///
    /// # Errors
    /// What the layers above refuse.
    ///
    /// # Panics
    /// If nothing has enabled here.
    pub fn inject(&self, cx: &Kernel, host: HostAddr, message: Message) -> Result<(), Refused> {
        let known = self.state.station(host);
        let session = match known {
            Some(session) => session,
            None => {
                let upper = self.state.enabled.borrow().clone().expect("an enable");
                let session = self.state.make(cx, &upper, host, true);
                if let Err(why) = session.announce(cx, &upper, ends(host)) {
                    return Err(Refused::new(message, why));
                }
                session
            }
        };
        session.pop(cx, message)
    }
}

fn ends(host: HostAddr) -> Participants {
    Participants::pair(Part::Any, Part::Ether(address(host)))
}

impl State {
    /// The other host that the station of this one is now.
    fn now(&self, host: HostAddr) -> Option<HostAddr> {
        let moved = self.moved.borrow();
        moved.iter().find(|(from, _)| *from == host).map(|(_, to)| *to)
    }

    fn station(&self, host: HostAddr) -> Option<SessionRef> {
        let stations = self.stations.borrow();
        stations.iter().find(|(of, _)| *of == host).map(|(_, session)| session.clone())
    }

    fn make(
        self: &Rc<Self>,
        cx: &Kernel,
        upper: &ProtocolRef,
        host: HostAddr,
        passive: bool,
    ) -> SessionRef {
        let body =
            Station { state: Rc::clone(self), host, upper: upper.clone(), knows_host: false };
        let ether = self.ether.borrow().clone().expect("the layer of stations");
        let session = match passive {
            true => cx.new_passive_session(&ether, upper, host.source(), body),
            false => cx.new_session(&ether, upper, body),
        };
        self.stations.borrow_mut().push((host, session.clone()));
        session
    }
}

struct Link(Rc<State>);

impl Protocol for Link {
    fn open(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        mut participants: Participants,
    ) -> Result<SessionRef, OpenError> {
        let host = participants.peer_mut()?.pop_host()?.definite()?;
        self.0.pauses.pause(cx);
        if self.0.station(host).is_none() {
            let session = self.0.make(cx, upper.receiver, host, false);
            let told = session.announce(cx, upper.receiver, ends(host));
            told.map_err(|_| OpenError::NotSupported)?;
        }
        self.0.pauses.pause(cx);
        let state = Rc::clone(&self.0);
        let body = Station { state, host, upper: upper.receiver.clone(), knows_host: true };
        Ok(cx.new_session(this, upper.receiver, body))
    }

    fn open_enable(
        &self,
        _: &Kernel,
        _: &ProtocolRef,
        upper: Upper<'_>,
        _: Participants,
    ) -> Result<Enable, OpenError> {
        *self.0.enabled.borrow_mut() = Some(upper.receiver.clone());
        Ok(Enable(1))
    }

    fn control(&self, cx: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        self.0.pauses.pause(cx);
        if let Some(q) = ask.get::<Resolve>() {
            q.address = Some(address(q.host));
        } else if let Some(q) = ask.get::<HostAt>() {
            let [_, _, a, b, c, d] = q.address;
            let named = HostAddr::from([a, b, c, d]);
            q.host = self.0.now(named).unwrap_or(named);
        } else if let Some(q) = ask.get::<WatchHosts>() {
            *self.0.watcher.borrow_mut() = Some(q.watcher.clone());
        } else if let Some(q) = ask.get::<MaxPacket>() {
            q.octets = 1500;
        } else if let Some(q) = ask.get::<MyEther>() {
            q.address = [2; 6];
        } else {
            return Answer::Unknown;
        }
        Answer::Answered
    }

    fn stop(&self, _: &Kernel, _: &ProtocolRef) {
        let gone = (self.0.stations.take(), self.0.enabled.take(), self.0.ether.take());
        let watcher = self.0.watcher.take();
        // Outside of the borrows: what is dropped may hold the last handle of something else.
        drop((gone, watcher));
    }
}

/// A session to a station; that of the layer above it knows its host.
struct Station {
    state: Rc<State>,
    host: HostAddr,
    upper: ProtocolRef,
    knows_host: bool,
}

impl Session for Station {
    fn push(&self, _: &Kernel, _: &SessionRef, _: Message) -> Result<(), PushError> {
        Ok(())
    }

    fn pop(&self, cx: &Kernel, this: &SessionRef, message: Message) -> Result<(), Refused> {
        self.upper.demux(cx, this, message)
    }

    fn control(&self, _: &Kernel, _: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        // What a host that has moved away sends goes nowhere.
        let is_there = !self.knows_host || self.state.now(self.host).is_none();
        if let Some(q) = ask.get::<PeerEther>().filter(|_| is_there) {
            q.address = address(self.host);
        } else if let Some(q) = ask.get::<PeerHost>().filter(|_| self.knows_host) {
            q.host = self.host;
        } else {
            return Answer::Unknown;
        }
        Answer::Answered
    }
}
