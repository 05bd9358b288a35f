//! The records of remote clients (RFC 1045, section 5.1): one for each client entity that has
//! called, with the state of its last transaction.

use crate::blocks::{Incoming, Outgoing};
use crate::reasons::NO_RECORD;
use crate::shared::{Path, Shared};
use crate::tables::{self, ServerAction, ServerEvent, ServerState};
use crate::wire::{Entity, Header};
use alloc::rc::Rc;
use alloc::string::String;
use core::cell::Cell;
use core::time::Duration;
use xk_core::object::SessionSlot;
use xk_core::{Kernel, PeerName, ProtocolRef, Reason, SessionRef, Time};
use xk_kit::rpc::records as kept;

/// Time for which a record is kept after its client was heard last: four lifetimes of a packet
/// (TS4). No client still waits for an answer by then.
pub(crate) const KEPT: Duration = Duration::from_secs(120);

/// Key of a record: the client, and the host that sent its request.
pub(crate) type Key = (u64, PeerName);

/// One record.
pub(crate) struct Record {
    key: Key,
    /// False once the client has another record, or none.
    bound: Cell<bool>,
    pub(crate) state: Cell<ServerState>,
    /// The client has confirmed a transaction of its own.
    pub(crate) verified: Cell<bool>,
    /// The first header of the current request; `None` before the first.
    pub(crate) request: Cell<Option<Header>>,
    /// The session below that the last packet came through.
    pub(crate) lower: SessionSlot,
    pub(crate) path: Cell<Path>,
    pub(crate) incoming: Incoming,
    /// The response, or the request that was passed on.
    pub(crate) out: Outgoing,
    /// The response is not kept: a request that comes again is executed again.
    pub(crate) repeats: Cell<bool>,
    /// The last packet's control word.
    pub(crate) control: Cell<u32>,
    /// Round of the request that was answered last.
    answered: Cell<Option<(u32, u32)>>,
    /// The client has the response.
    pub(crate) is_through: Cell<bool>,
    pub(crate) retries: Cell<u32>,
    /// Time of the next action; far away if there is none.
    pub(crate) due: Cell<Time>,
    pub(crate) heard: Cell<Time>,
    /// Number of the question to the client, if there is one.
    pub(crate) probe: Cell<Option<u32>>,
    /// The session below to the server that the request was passed on to; of a request that
    /// another server passed on, that to this one.
    pub(crate) onward: SessionSlot,
}

/// Age of a request, compared with the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Age {
    Old,
    Same,
    New,
}

impl Record {
    fn new(key: Key) -> Self {
        Self {
            key,
            bound: Cell::new(true),
            state: Cell::default(),
            verified: Cell::default(),
            request: Cell::default(),
            lower: SessionSlot::default(),
            path: Cell::default(),
            incoming: Incoming::default(),
            out: Outgoing::default(),
            repeats: Cell::default(),
            control: Cell::default(),
            answered: Cell::default(),
            is_through: Cell::default(),
            retries: Cell::default(),
            due: Cell::new(Time::MAX),
            heard: Cell::default(),
            probe: Cell::default(),
            onward: SessionSlot::default(),
        }
    }

    /// The client.
    pub(crate) fn client(&self) -> Entity {
        Entity(self.key.0)
    }

    /// Whether this is still the record of its client.
    #[inline]
    pub(crate) fn is_bound(&self) -> bool {
        self.bound.get()
    }

    /// The transaction of the current request; 0 before the first.
    #[inline]
    pub(crate) fn transaction(&self) -> u32 {
        self.request.get().map_or(0, |request| request.transaction)
    }

    /// Takes the step of the table; its action.
    #[inline]
    pub(crate) fn step(&self, event: ServerEvent) -> ServerAction {
        let (state, action) = tables::server(self.state.get(), event);
        self.state.set(state);
        action
    }

    /// Compares a request with the current one, in serial number arithmetic. One of the same run
    /// is the same; one that was forwarded oftener is newer.
    #[inline]
    pub(crate) fn compare(&self, header: &Header) -> Age {
        let Some(last) = self.request.get() else {
            return Age::New;
        };
        let groups = crate::blocks::groups_of(last.segment_octets());
        let ahead = header.transaction.wrapping_sub(last.transaction);
        match ahead as i32 {
            0 if header.forwards() > last.forwards() => Age::New,
            0 if header.forwards() < last.forwards() => Age::Old,
            ahead if ahead >= 0 && (ahead as u32) < groups => Age::Same,
            1.. => Age::New,
            _ => Age::Old,
        }
    }

    /// Keeps the session below that answers go through.
    ///
    /// # Errors
    /// [`reason::NO_ANSWER`](xk_core::reason::NO_ANSWER) if a question to it was lost.
    pub(crate) fn learn(
        &self,
        cx: &Kernel,
        lower: &SessionRef,
        path: impl FnOnce() -> Path,
    ) -> Result<(), &'static Reason> {
        if !self.lower.has(lower) {
            self.path.set(cx.unless_lost(path)?);
            drop(self.lower.replace(Some(lower.clone())));
        }
        Ok(())
    }

    /// Whether a packet asks for an answer, and is the first of its round that does.
    pub(crate) fn is_to_answer(&self, header: &Header) -> bool {
        let round = Some((header.transaction, header.round()));
        header.wants_answer() && self.answered.replace(round) != round
    }

    /// The number of a question about the request, which no stranger knows.
    pub(crate) fn ask(&self, cx: &Kernel) -> u32 {
        let number = cx.random().next_u32();
        self.probe.set(Some(number));
        number
    }

    /// Drops the kept parts of request and response.
    #[inline]
    pub(crate) fn clear(&self) {
        self.is_through.set(false);
        self.incoming.clear();
        self.out.clear();
    }

    /// Forgets the request, which was not executed, and with it which ones were: the next is asked
    /// about.
    pub(crate) fn forget(&self) {
        self.clear();
        self.request.set(None);
        self.verified.set(false);
        self.state.set(ServerState::Awaiting);
    }

    /// Whether nothing depends on the record any more, or nothing of it was believed yet.
    fn may_go(&self, now: Time) -> bool {
        match self.state.get() {
            ServerState::Awaiting => true,
            ServerState::Receiving | ServerState::Probing => !self.verified.get(),
            ServerState::Responded | ServerState::Discarded | ServerState::Forwarded => {
                self.is_through.get() || now.since(self.heard.get()) >= KEPT
            }
            ServerState::Processing => false,
        }
    }
}

impl kept::Record for Record {
    fn peer(&self) -> PeerName {
        self.key.1
    }

    fn heard(&self) -> Time {
        self.heard.get()
    }
}

/// All records of a server.
pub(crate) type Records = kept::Records<Key, Record>;

impl Shared {
    /// A new record, in place of one that may go if there is no room. `None` if there is none.
    pub(crate) fn make_record(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        key: Key,
    ) -> Option<Rc<Record>> {
        let victim = self.records.room(key.1, |record| record.may_go(cx.now())).ok()?;
        if let Some(victim) = victim {
            if matches!(victim.state.get(), ServerState::Receiving | ServerState::Probing) {
                this.head().drops().count(&NO_RECORD);
            }
            self.remove_record(&victim);
        }
        self.records.enter(key, Record::new(key))
    }

    /// Takes a record off its client.
    pub(crate) fn remove_record(&self, record: &Record) {
        if record.bound.replace(false) {
            self.records.remove(&record.key);
            record.clear();
        }
    }

    /// The first record for which `is` is true.
    pub(crate) fn find_record(&self, is: impl Fn(&Record) -> bool) -> Option<Rc<Record>> {
        self.records.list().into_iter().find(|record| is(record))
    }

    pub(crate) fn describe_records(&self) -> String {
        let number = |state| self.records.number(|record| record.state.get() == state);
        alloc::format!(
            "{} clients known, {} requests executed, {} responses kept",
            self.records.len(),
            number(ServerState::Processing),
            number(ServerState::Responded)
        )
    }

    pub(crate) fn stop_records(&self) {
        for record in self.records.list() {
            self.remove_record(&record);
            drop(record.lower.take());
            drop(record.onward.take());
        }
    }
}

/// The entity that a request of this record names as its server.
pub(crate) fn server_of(request: &Header, own: u32) -> Entity {
    match request.server.is_group() {
        true => Entity::new(request.server.discriminator(), own),
        false => request.server,
    }
}
