//! ASP, the AppleTalk session protocol (Inside AppleTalk, second edition, chapter 11): what it says
//! in the user octets of ATP's packets, and the sessions of both ends.
//!
//! A server's sessions are at one socket (SLS) until they are opened; requests of an open session
//! go to its session socket (SSS), and the server's own to the workstation's (WSS).

use alloc::vec::Vec;
use core::time::Duration;

/// The version of the protocol.
pub const VERSION: u16 = 0x0100;
/// Interval at which each end says that it is there.
pub const TICKLE: Duration = Duration::from_secs(30);
/// Time that a session lives of which nothing is heard.
pub const SILENCE_MAX: Duration = Duration::from_secs(120);

/// Kind of a request, by its user octets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// `CloseSess`.
    CloseSession {
        /// The session.
        session: u8,
    },
    /// `Command`: executed once, in the order of the numbers.
    Command {
        /// The session.
        session: u8,
        /// Number of the command in the session.
        sequence: u16,
    },
    /// `GetStatus`, of a server without a session.
    GetStatus,
    /// `OpenSess`.
    OpenSession {
        /// The workstation's socket for the server's requests.
        socket: u8,
        /// The version that it speaks.
        version: u16,
    },
    /// `Tickle`, which has no reply.
    Tickle {
        /// The session.
        session: u8,
    },
    /// `Write`: a command whose data the server asks for.
    Write {
        /// The session.
        session: u8,
        /// Number of the write in the session.
        sequence: u16,
    },
    /// `WriteContinue`, of the server: the data of a write.
    WriteContinue {
        /// The session.
        session: u8,
        /// The number of the write.
        sequence: u16,
    },
    /// `Attention`, of the server.
    Attention {
        /// The session.
        session: u8,
        /// Code of the subject; not 0.
        code: u16,
    },
}

/// User octets that are no request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("function {0} is none of ASP's")]
pub struct UnknownFunction(pub u8);

impl Request {
    /// Reads user octets.
    ///
    /// # Errors
    /// [`UnknownFunction`].
    pub fn parse([function, session, high, low]: [u8; 4]) -> Result<Self, UnknownFunction> {
        let sequence = u16::from_be_bytes([high, low]);
        Ok(match function {
            1 => Self::CloseSession { session },
            2 => Self::Command { session, sequence },
            3 => Self::GetStatus,
            4 => Self::OpenSession { socket: session, version: sequence },
            5 => Self::Tickle { session },
            6 => Self::Write { session, sequence },
            7 => Self::WriteContinue { session, sequence },
            8 => Self::Attention { session, code: sequence },
            other => return Err(UnknownFunction(other)),
        })
    }

    /// Writes them.
    #[must_use]
    pub fn emit(self) -> [u8; 4] {
        let (function, session, number) = match self {
            Self::CloseSession { session } => (1, session, 0),
            Self::Command { session, sequence } => (2, session, sequence),
            Self::GetStatus => (3, 0, 0),
            Self::OpenSession { socket, version } => (4, socket, version),
            Self::Tickle { session } => (5, session, 0),
            Self::Write { session, sequence } => (6, session, sequence),
            Self::WriteContinue { session, sequence } => (7, session, sequence),
            Self::Attention { session, code } => (8, session, code),
        };
        let [high, low] = number.to_be_bytes();
        [function, session, high, low]
    }

    /// The session that it is about; `None` of one that needs none.
    #[must_use]
    pub fn session(self) -> Option<u8> {
        match self {
            Self::GetStatus | Self::OpenSession { .. } => None,
            Self::CloseSession { session }
            | Self::Command { session, .. }
            | Self::Tickle { session }
            | Self::Write { session, .. }
            | Self::WriteContinue { session, .. }
            | Self::Attention { session, .. } => Some(session),
        }
    }
}

/// Results that the protocol itself gives; zero is success, all others are the layer's above.
pub mod result {
    /// The server speaks another version.
    pub const BAD_VERSION: i16 = -1066;
    /// The server has as many sessions as it may.
    pub const TOO_MANY_CLIENTS: i16 = -1069;
    /// The session is over, or was none.
    pub const SESSION_CLOSED: i32 = -1072;
}

/// The reply to an [`OpenSession`](Request::OpenSession): its user octets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// The server's socket for the session.
    pub socket: u8,
    /// The session's number.
    pub session: u8,
    /// Zero, or why there is no session.
    pub error: i16,
}

impl Opened {
    /// Reads user octets.
    #[must_use]
    pub const fn parse([socket, session, high, low]: [u8; 4]) -> Self {
        Self { socket, session, error: i16::from_be_bytes([high, low]) }
    }

    /// Writes them.
    #[must_use]
    pub const fn emit(self) -> [u8; 4] {
        let [high, low] = self.error.to_be_bytes();
        [self.socket, self.session, high, low]
    }
}

/// A session of a server.
#[derive(Debug)]
struct Session<A> {
    /// The workstation's socket for the server's requests.
    peer: A,
    /// The number that the next command has.
    next: u16,
    opened: Duration,
    /// Whether a command came.
    is_used: bool,
    heard: Duration,
    tickled: Duration,
}

/// Verdict of a server on a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// The status is asked for.
    Status,
    /// The reply has these user octets and no data.
    Reply([u8; 4]),
    /// The command of this session is to be executed; its reply's user octets are the result.
    Execute(u8),
    /// So is this write, whose data are to be asked for.
    ExecuteWrite(u8),
    /// The session has ended; the reply has user octets of zeros.
    Closed(u8),
    /// Nothing: it was a tickle, or is dropped.
    Nothing,
}

/// Work that falls due at either end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due<A> {
    /// The peer is to be told that this end is there: the session, and where.
    Tickle(u8, A),
    /// The session has ended: nothing was heard of the peer.
    Lost(u8, A),
}

/// The sessions of a server, which are named by their places.
///
/// After a crash of the server its numbers begin elsewhere, for a workstation may still use one of
/// before, and nothing else tells sessions of one node apart.
#[derive(Debug)]
pub struct Server<A> {
    socket: u8,
    max: usize,
    last: u8,
    sessions: Vec<Option<Session<A>>>,
}

impl<A: Copy + Eq> Server<A> {
    /// One without sessions, of at most `max` (255 beyond that), all at this socket. The first has
    /// the number after `last`, which is to be random.
    #[must_use]
    pub const fn new(socket: u8, max: usize, last: u8) -> Self {
        let max = if max > 255 { 255 } else { max };
        Self { socket, max, last, sessions: Vec::new() }
    }

    /// Number of open sessions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.sessions.iter().flatten().count()
    }

    /// Whether none is open.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Address at which the workstation of a session takes requests.
    #[must_use]
    pub fn peer(&self, session: u8) -> Option<A> {
        self.sessions.get(usize::from(session))?.as_ref().map(|session| session.peer)
    }

    /// Ends the session that was opened longest ago of those that no command came in: a request
    /// proves no source. False if there is none.
    fn give_way(&mut self) -> bool {
        let unused = self
            .sessions
            .iter_mut()
            .filter(|place| place.as_ref().is_some_and(|session| !session.is_used));
        let oldest = unused.min_by_key(|place| place.as_ref().map(|session| session.opened));
        oldest.is_some_and(|place| place.take().is_some())
    }

    fn open(&mut self, now: Duration, version: u16, peer: A) -> [u8; 4] {
        let refused = |error| Opened { socket: 0, session: 0, error }.emit();
        if version != VERSION {
            return refused(result::BAD_VERSION);
        }
        if self.len() >= self.max && !self.give_way() {
            return refused(result::TOO_MANY_CLIENTS);
        }
        self.sessions.resize_with(256, || None);
        let mut number = self.last.wrapping_add(1);
        // At most 255 are taken.
        while self.sessions.get(usize::from(number)).is_some_and(Option::is_some) {
            number = number.wrapping_add(1);
        }
        self.last = number;
        if let Some(place) = self.sessions.get_mut(usize::from(number)) {
            *place = Some(Session {
                peer,
                next: 0,
                opened: now,
                is_used: false,
                heard: now,
                tickled: now,
            });
        }
        Opened { socket: self.socket, session: number, error: 0 }.emit()
    }

    /// A request; `from(socket)` is that socket of the node that it came from, and `is_same_node`
    /// says whether a workstation's address is of it, too: requests about a session are taken from
    /// its node alone.
    pub fn request(
        &mut self,
        now: Duration,
        request: Request,
        from: impl Fn(u8) -> A,
        is_same_node: impl Fn(&A) -> bool,
    ) -> Asked {
        let number = match request {
            Request::GetStatus => return Asked::Status,
            Request::OpenSession { socket, version } => {
                return Asked::Reply(self.open(now, version, from(socket)));
            }
            // A server sends these.
            Request::WriteContinue { .. } | Request::Attention { .. } => return Asked::Nothing,
            Request::CloseSession { session }
            | Request::Tickle { session }
            | Request::Command { session, .. }
            | Request::Write { session, .. } => session,
        };
        let place = self.sessions.get_mut(usize::from(number));
        let Some(place) =
            place.filter(|place| place.as_ref().is_some_and(|s| is_same_node(&s.peer)))
        else {
            return match request {
                Request::Tickle { .. } => Asked::Nothing,
                _ => Asked::Reply(result::SESSION_CLOSED.to_be_bytes()),
            };
        };
        if let Request::CloseSession { .. } = request {
            *place = None;
            return Asked::Closed(number);
        }
        let Some(session) = place else { return Asked::Nothing };
        session.heard = now;
        match request {
            Request::Command { sequence, .. } if sequence == session.next => {
                (session.next, session.is_used) = (sequence.wrapping_add(1), true);
                Asked::Execute(number)
            }
            Request::Write { sequence, .. } if sequence == session.next => {
                (session.next, session.is_used) = (sequence.wrapping_add(1), true);
                Asked::ExecuteWrite(number)
            }
            // One that comes again after its transaction was released: it was executed.
            _ => Asked::Nothing,
        }
    }

    /// Something else was heard of the workstation of a session, such as a reply.
    pub fn hear(&mut self, now: Duration, session: u8) {
        if let Some(Some(session)) = self.sessions.get_mut(usize::from(session)) {
            session.heard = now;
        }
    }

    /// Ends a session from this end.
    pub fn close(&mut self, session: u8) -> Option<A> {
        let place = self.sessions.get_mut(usize::from(session))?;
        place.take().map(|session| session.peer)
    }

    /// One thing that has fallen due, until there is none; to be asked for every few seconds.
    pub fn poll(&mut self, now: Duration) -> Option<Due<A>> {
        for (number, place) in (0..=u8::MAX).zip(self.sessions.iter_mut()) {
            let Some(session) = place else { continue };
            let peer = session.peer;
            if now.saturating_sub(session.heard) >= SILENCE_MAX {
                *place = None;
                return Some(Due::Lost(number, peer));
            }
            if now.saturating_sub(session.tickled) >= TICKLE {
                session.tickled = now;
                return Some(Due::Tickle(number, peer));
            }
        }
        None
    }
}

/// A workstation's end of a session.
#[derive(Debug)]
pub struct Client<A> {
    session: u8,
    /// The server's socket for the session.
    peer: A,
    next: u16,
    heard: Duration,
    tickled: Duration,
}

impl<A: Copy> Client<A> {
    /// The session that a server has opened; `at(socket)` is that socket of the server's node.
    ///
    /// # Errors
    /// Why there is none.
    pub fn opened(now: Duration, user: [u8; 4], at: impl Fn(u8) -> A) -> Result<Self, i16> {
        let opened = Opened::parse(user);
        if opened.error != 0 {
            return Err(opened.error);
        }
        let (session, peer) = (opened.session, at(opened.socket));
        Ok(Self { session, peer, next: 0, heard: now, tickled: now })
    }

    /// Address to which its requests go.
    pub fn peer(&self) -> A {
        self.peer
    }

    /// The session's number.
    pub fn session(&self) -> u8 {
        self.session
    }

    /// The next command's user octets. It is to be sent exactly once, and the next one when its
    /// reply is there.
    pub fn command(&mut self) -> [u8; 4] {
        let sequence = self.next;
        self.next = sequence.wrapping_add(1);
        Request::Command { session: self.session, sequence }.emit()
    }

    /// The next write's user octets, and those of the request by which the server asks for the
    /// data.
    pub fn write(&mut self) -> ([u8; 4], [u8; 4]) {
        let (session, sequence) = (self.session, self.next);
        self.next = sequence.wrapping_add(1);
        let asked = Request::WriteContinue { session, sequence }.emit();
        (Request::Write { session, sequence }.emit(), asked)
    }

    /// Something was heard of the server.
    pub fn hear(&mut self, now: Duration) {
        self.heard = now;
    }

    /// Returns work that has fallen due; to be called every few seconds.
    pub fn poll(&mut self, now: Duration) -> Option<Due<A>> {
        if now.saturating_sub(self.heard) >= SILENCE_MAX {
            self.heard = now;
            return Some(Due::Lost(self.session, self.peer));
        }
        if now.saturating_sub(self.tickled) >= TICKLE {
            self.tickled = now;
            return Some(Due::Tickle(self.session, self.peer));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::AtAddr;
    use proptest::prelude::*;

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    const WORKSTATION: AtAddr = AtAddr::new(10, 18, 0x83);

    fn ask(server: &mut Server<AtAddr>, now: u64, user: [u8; 4]) -> Asked {
        ask_from(server, now, user, WORKSTATION)
    }

    fn ask_from(server: &mut Server<AtAddr>, now: u64, user: [u8; 4], from: AtAddr) -> Asked {
        let request = Request::parse(user).unwrap();
        let at = |socket| AtAddr { socket, ..from };
        server.request(s(now), request, at, |peer| peer.at() == from.at())
    }

    /// Octets of asip-status and netatalk's afpd.
    #[test]
    fn a_real_session_opens() {
        let mut server = Server::new(132, 2, 255);
        let user = [4, 0x8e, 1, 0];
        let open = Request::OpenSession { socket: 0x8e, version: VERSION };
        assert_eq!((Request::parse(user), open.emit()), (Ok(open), user));
        assert_eq!(ask(&mut server, 0, user), Asked::Reply([0x84, 0, 0, 0]));
        assert_eq!(server.peer(0), Some(AtAddr { socket: 0x8e, ..WORKSTATION }));
        let at = |socket| AtAddr::new(10, 17, socket);
        let client = Client::opened(s(0), [0x84, 0, 0, 0], at).unwrap();
        assert_eq!((client.peer(), client.session()), (at(132), 0));
        assert_eq!(ask(&mut server, 0, [3, 0, 0, 0]), Asked::Status);
    }

    #[test]
    fn commands_are_executed_in_turn_and_none_twice() {
        let mut server = Server::new(132, 2, 255);
        let Asked::Reply(opened) = ask(&mut server, 0, [4, 7, 1, 0]) else { panic!() };
        let mut client = Client::opened(s(0), opened, |socket| socket).unwrap();
        let first = client.command();
        assert_eq!(first, [2, 0, 0, 0]);
        assert_eq!(ask(&mut server, 1, first), Asked::Execute(0));
        assert_eq!(ask(&mut server, 1, first), Asked::Nothing);
        let (write, asked) = client.write();
        assert_eq!((write, asked), ([6, 0, 0, 1], [7, 0, 0, 1]));
        assert_eq!(ask(&mut server, 1, write), Asked::ExecuteWrite(0));
        assert_eq!(ask(&mut server, 1, write), Asked::Nothing);
        // From another node nothing is taken, nor of a session that there is not.
        let closed = Asked::Reply((-1072i32).to_be_bytes());
        let stranger = AtAddr::new(10, 19, 0x83);
        assert_eq!(ask_from(&mut server, 1, client.command(), stranger), closed);
        assert_eq!(ask_from(&mut server, 1, [1, 0, 0, 0], stranger), closed);
        assert_eq!(ask(&mut server, 1, [2, 1, 0, 0]), closed);
        assert_eq!(ask(&mut server, 1, [1, 0, 0, 0]), Asked::Closed(0));
        assert_eq!(ask(&mut server, 1, [1, 0, 0, 0]), closed);
        // After 65536 commands the numbers begin again. The next session has another number.
        ask(&mut server, 1, [4, 7, 1, 0]);
        for number in (0..=u16::MAX).chain([0, 1]) {
            let user = Request::Command { session: 1, sequence: number }.emit();
            assert_eq!(ask(&mut server, 2, user), Asked::Execute(1));
        }
    }

    #[test]
    fn sessions_are_bounded_and_versions_compared() {
        let mut server = Server::new(132, 2, 255);
        for session in 0..2 {
            let opened = Opened { socket: 132, session, error: 0 };
            assert_eq!(ask(&mut server, 0, [4, 7, 1, 0]), Asked::Reply(opened.emit()));
        }
        // One that no command came in gives way.
        assert_eq!(ask(&mut server, 0, [2, 0, 0, 0]), Asked::Execute(0));
        let opened = Opened { socket: 132, session: 2, error: 0 };
        assert_eq!(ask(&mut server, 0, [4, 7, 1, 0]), Asked::Reply(opened.emit()));
        assert_eq!((server.peer(1), server.len()), (None, 2));
        assert_eq!(ask(&mut server, 0, [2, 2, 0, 0]), Asked::Execute(2));
        let full = Opened { socket: 0, session: 0, error: -1069 }.emit();
        assert_eq!(ask(&mut server, 0, [4, 7, 1, 0]), Asked::Reply(full));
        let bad = Opened { socket: 0, session: 0, error: -1066 }.emit();
        assert_eq!(ask(&mut server, 0, [4, 7, 2, 0]), Asked::Reply(bad));
        assert_eq!(Client::opened(s(0), full, |socket| socket).map(|_| ()), Err(-1069));
        assert_eq!(server.close(0), Some(AtAddr { socket: 7, ..WORKSTATION }));
        assert_eq!((server.close(0), server.close(9), server.len()), (None, None, 1));
    }

    #[test]
    fn both_ends_tickle_and_a_silent_one_is_lost() {
        let mut server = Server::new(132, 2, 255);
        let Asked::Reply(opened) = ask(&mut server, 0, [4, 7, 1, 0]) else { panic!() };
        let mut client = Client::opened(s(0), opened, |socket| socket).unwrap();
        let peer = AtAddr { socket: 7, ..WORKSTATION };
        assert_eq!((server.poll(s(29)), client.poll(s(29))), (None, None));
        for at in [30, 60, 90] {
            assert_eq!(server.poll(s(at)), Some(Due::Tickle(0, peer)));
            assert_eq!((server.poll(s(at)), client.poll(s(at))), (None, Some(Due::Tickle(0, 132))));
        }
        assert_eq!(ask(&mut server, 100, [5, 0, 0, 0]), Asked::Nothing);
        assert_eq!(client.poll(s(120)), Some(Due::Lost(0, 132)));
        assert_eq!(server.poll(s(219)), Some(Due::Tickle(0, peer)));
        assert_eq!(server.poll(s(220)), Some(Due::Lost(0, peer)));
        assert!(server.is_empty() && server.poll(s(1000)).is_none());
    }

    proptest! {
        #[test]
        fn what_is_read_is_made_again(user: [u8; 4]) {
            if let Ok(request) = Request::parse(user) {
                prop_assert_eq!(Request::parse(request.emit()), Ok(request));
            }
            prop_assert_eq!(Opened::parse(user).emit(), user);
        }

        #[test]
        fn a_server_takes_whatever_comes(requests: Vec<([u8; 4], u8)>) {
            let mut server = Server::new(132, 3, 7);
            for (now, (mut user, node)) in (0..).zip(requests) {
                user[0] %= 9;
                if Request::parse(user).is_ok() {
                    ask_from(&mut server, now * 7, user, AtAddr::new(10, node % 3, 1));
                }
                while server.poll(s(now * 7)).is_some() {}
                prop_assert!(server.len() <= 3);
            }
        }
    }
}
