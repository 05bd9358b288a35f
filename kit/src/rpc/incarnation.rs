//! Calls are executed at most once across reboots: this module tells which incarnation of a client
//! a request is of, and which incarnation of a server answers.
//!
//! The headers of Sprite RPC and of CHANNEL ("RPC in the x-Kernel", appendix) carry the boot id of
//! their sender alone. So a server that has rebooted cannot tell a retransmission of what its
//! predecessor executed from a new request, nor one that has forgotten a client the old duplicate
//! of a dead incarnation from the first request of a new one. Therefore a client has to show a
//! *ticket* with each request, which it has from the server that it calls now.
//!
//! ```text
//!   client                                server
//!     request, ticket 0        ---->        no client known: executes nothing, keeps nothing
//!     challenge, ticket t      <----
//!     request, ticket t | FIRST --->        the ticket of this client and boot: a record is made
//!     reply                    <----        executed
//!     request, ticket t        ---->        the record's ticket: executed
//! ```
//!
//! The ticket of a client without a record is a keyed hash and a generation, so a challenge costs
//! the server no memory, and a host cannot forge the source of a request whose answer it does not
//! see.
//! The generation moves on with every record made, replaced or forgotten: no ticket given to a dead
//! incarnation is ever right again (until 32,767 such events of one share of the hosts later). The
//! mark [`FIRST`] says that the ticket answers a challenge: only such a request makes a record. So
//! a retransmission of an earlier call, whose ticket a predecessor gave, never does in a server
//! that has rebooted, whatever its value; an old duplicate of the answer to a predecessor's
//! challenge does once in 32,767 times. If it is of a dead incarnation of a client that calls now,
//! that one's record gives way, and a call of which it has no reply yet may be executed again.
//!
//! A server promises never to forget a client of whom it executes a call, or whose reply may still
//! be asked for. Under this promise a client whose call is challenged by the server that it knows
//! sends it again: it was not executed.

use crate::Cache;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::Cell;
use xk_core::reason::Class;
use xk_core::{Kernel, PeerName, Reason, Secret};

/// The server does not know the client: it challenged the client and executed nothing.
pub static CHALLENGED: Reason = Reason::new("challenged", Class::NotMine);

/// In a request: the ticket answers a challenge.
pub const FIRST: u16 = 0x8000;
/// The bits of a ticket proper; 0 is none.
pub const TICKET: u16 = 0x7fff;
/// Number of generations that are counted, each for its share of the hosts.
const SHARES: usize = 256;
/// Records that are asked about before a new client is turned away.
const SCAN_MAX: usize = 16;

/// Verdict of a server on a request's boot id and ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// The request is of the known incarnation: go on.
    Known,
    /// The request is of a new incarnation, which is known from now on: forget all that is held of
    /// this host under another boot id, and go on.
    Replaced,
    /// Execute nothing, answer with this ticket.
    Challenge(u16),
    /// Execute nothing: there is no room for one more client, since all are busy.
    Full,
}

#[derive(Clone, Copy)]
struct Record {
    boot: u32,
    ticket: u16,
}

/// The server's side: the incarnation of each client host, bounded.
pub struct Clients {
    /// Key from which tickets are made.
    tickets: Secret,
    /// Key that assigns hosts to shares.
    shares: Secret,
    records: Cache<PeerName, Record>,
    generations: Vec<Cell<u16>>,
}

impl Clients {
    /// A table of at most `clients_max` hosts.
    pub fn new(cx: &Kernel, clients_max: usize) -> Self {
        Self {
            tickets: cx.secret(),
            shares: cx.secret(),
            records: Cache::new(cx.secret(), clients_max),
            generations: (0..SHARES).map(|_| Cell::new(0)).collect(),
        }
    }

    /// Judges a request of `host` by the boot id and the ticket in its header. Where a record has
    /// to go for a new one, `may_forget` says of a host whether nothing of it is executed or kept.
    #[inline]
    pub fn admit(
        &self,
        host: PeerName,
        boot: u32,
        ticket: u16,
        may_forget: impl FnMut(PeerName) -> bool,
    ) -> Admission {
        let is_right = |record: &Record| record.boot == boot && record.ticket == ticket & TICKET;
        match self.records.touch_if(&host, is_right) {
            Some(record) if is_right(&record) => Admission::Known,
            Some(record) if record.boot == boot => Admission::Challenge(record.ticket),
            known => self.admit_other(host, boot, ticket, known.is_some(), may_forget),
        }
    }

    #[cold]
    fn admit_other(
        &self,
        host: PeerName,
        boot: u32,
        ticket: u16,
        is_known: bool,
        mut may_forget: impl FnMut(PeerName) -> bool,
    ) -> Admission {
        let right = self.stateless_ticket(host, boot);
        if ticket != right | FIRST {
            return Admission::Challenge(right);
        }
        if !is_known && self.records.is_full() {
            let Some((oldest, _)) = self.records.evict(SCAN_MAX, |h, _| may_forget(*h)) else {
                return Admission::Full;
            };
            self.move_on(oldest);
        }
        self.move_on(host);
        self.records.put(host, Record { boot, ticket: right });
        Admission::Replaced
    }

    /// The ticket that an incarnation without a record gets now: never 0.
    fn stateless_ticket(&self, host: PeerName, boot: u32) -> u16 {
        // Added and not hashed in, so that the tickets of one incarnation differ for sure from one
        // generation to the next.
        let [a, b, c] = host.words();
        let hash = self.tickets.hash(&[a, b, c, boot.into()]);
        let sum = hash.wrapping_add(u64::from(self.generation(host).get()));
        (sum % u64::from(TICKET)) as u16 + 1
    }

    fn generation(&self, host: PeerName) -> &Cell<u16> {
        let share = self.shares.hash(&host.words()) as usize % SHARES;
        &self.generations[share]
    }

    fn move_on(&self, host: PeerName) {
        let generation = self.generation(host);
        generation.set((generation.get() + 1) % TICKET);
    }

    /// Drops the record of a host of which nothing is executed or kept any more: what comes of it
    /// later is challenged.
    pub fn forget(&self, host: PeerName) {
        if self.records.remove(&host).is_some() {
            self.move_on(host);
        }
    }

    /// Number of known clients.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// True if none is known.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }
}

/// Meaning of a server's packet to a call under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The packet is of the server that was called.
    Valid,
    /// The call was not executed: send it again, with the ticket known now.
    Resend,
    /// The server has rebooted since the call was sent, which may have been executed: the call
    /// fails.
    Rebooted,
    /// No server can have executed the call yet, so this is no answer to it: drop it.
    Stray,
}

/// The client's side: what is known of one server. All that call it share one of these.
#[derive(Debug, Default)]
pub struct Server {
    /// 0: not known.
    boot: Cell<u32>,
    /// With [`FIRST`] until the server has shown that it took it; 0: none.
    ticket: Cell<u16>,
}

/// The incarnation of the server to which a call was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SentUnder {
    /// Boot id of the server; 0 as long as the call went with ticket 0 alone, which no server
    /// executes.
    boot: u32,
}

impl Server {
    /// The ticket to send a call with, first or again; 0 if none is known.
    ///
    /// # Errors
    /// [`Verdict::Rebooted`] if others have learned meanwhile that the server to which the call was
    /// sent is no more.
    #[inline]
    pub fn ticket_for(&self, call: &mut SentUnder) -> Result<u16, Verdict> {
        let (boot, ticket) = (self.boot.get(), self.ticket.get());
        if call.boot != boot {
            if call.boot != 0 {
                return Err(Verdict::Rebooted);
            }
            call.boot = if ticket == 0 { 0 } else { boot };
        }
        Ok(ticket)
    }

    /// A packet for the call came that is no challenge.
    #[inline]
    pub fn heard(&self, call: SentUnder, boot: u32) -> Verdict {
        if boot != call.boot || boot == 0 {
            return self.heard_other(call, boot);
        }
        if self.ticket.get() & FIRST != 0 && self.boot.get() == boot {
            self.ticket.set(self.ticket.get() & TICKET);
        }
        Verdict::Valid
    }

    /// Not of the server that was called; the ticket of this one will come with the next challenge.
    #[cold]
    fn heard_other(&self, call: SentUnder, boot: u32) -> Verdict {
        if call.boot == 0 || boot == 0 {
            return Verdict::Stray;
        }
        if self.boot.get() == call.boot {
            self.boot.set(boot);
            self.ticket.set(0);
        }
        Verdict::Rebooted
    }

    /// A challenge of the call came.
    #[cold]
    pub fn challenged(&self, call: SentUnder, boot: u32, ticket: u16) -> Verdict {
        let ticket = ticket & TICKET;
        if boot == 0 || ticket == 0 {
            return Verdict::Stray;
        }
        // A call that learned otherwise after this one was sent knows better than a challenge that
        // may be old.
        if call.boot == 0 || call.boot == self.boot.get() {
            self.boot.set(boot);
            self.ticket.set(ticket | FIRST);
        }
        if call.boot == 0 || call.boot == self.boot.get() {
            Verdict::Resend
        } else {
            Verdict::Rebooted
        }
    }

    /// The ticket that is known, or 0; for packets that execute nothing.
    pub fn ticket(&self) -> u16 {
        self.ticket.get()
    }

    /// The boot id that is known, or 0.
    pub fn boot(&self) -> u32 {
        self.boot.get()
    }
}

/// The servers that a client knows, bounded: the one used longest ago goes first.
pub struct Servers {
    servers: Cache<PeerName, Rc<Server>>,
}

impl Servers {
    /// A table of at most `servers_max` hosts.
    pub fn new(cx: &Kernel, servers_max: usize) -> Self {
        Self { servers: Cache::new(cx.secret(), servers_max) }
    }

    /// The record of `host`, if there is one.
    pub fn known(&self, host: PeerName) -> Option<Rc<Server>> {
        self.servers.get(&host)
    }

    /// The record of `host`, shared by all that call it. It stays valid for its holders when the
    /// table has evicted it.
    pub fn of(&self, host: PeerName) -> Rc<Server> {
        if let Some(server) = self.servers.touch(&host) {
            return server;
        }
        let server = Rc::new(Server::default());
        // Of one that is free there are two: in the table, and the one that is looked at here.
        let is_free = |_: &PeerName, server: &Rc<Server>| Rc::strong_count(server) <= 2;
        if !self.servers.is_full() || self.servers.evict(SCAN_MAX, is_free).is_some() {
            self.servers.put(host, Rc::clone(&server));
        }
        server
    }
}

#[cfg(test)]
mod tests;
