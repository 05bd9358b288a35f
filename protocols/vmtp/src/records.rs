//! The records of remote clients (RFC 1045, section 5.1): one for each client entity that has
//! called, with the state of its last transaction.

use crate::blocks::{Incoming, Outgoing};
use crate::reasons::NO_RECORD;
use crate::shared::{Path, Settings};
use crate::tables::ServerState;
use crate::wire::{Entity, Header};
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::time::Duration;
use xk_core::Secret;
use xk_core::map::{Map, MapStats};
use xk_core::object::SessionSlot;
use xk_core::{Kernel, PeerName, ProtocolRef, Reason, SessionRef, Time};

/// Time for which a record is kept after its client was heard last: four lifetimes of a packet
/// (TS4). No client still waits for an answer by then.
pub(crate) const KEPT: Duration = Duration::from_secs(120);

/// Key of a record: the client, and the host that sent its request.
pub(crate) type Key = (u64, PeerName);

/// One record.
pub(crate) struct Record {
    key: Key,
    slot: u32,
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
    pub(crate) paced: Cell<Time>,
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
    fn new(key: Key, slot: u32) -> Self {
        Self {
            key,
            slot,
            bound: Cell::new(true),
            state: Cell::default(),
            verified: Cell::new(false),
            request: Cell::new(None),
            lower: SessionSlot::default(),
            path: Cell::default(),
            incoming: Incoming::default(),
            out: Outgoing::default(),
            repeats: Cell::new(false),
            control: Cell::new(0),
            answered: Cell::new(None),
            is_through: Cell::new(false),
            retries: Cell::new(0),
            due: Cell::new(Time::MAX),
            paced: Cell::new(Time::MAX),
            heard: Cell::new(Time::ZERO),
            probe: Cell::new(None),
            onward: SessionSlot::default(),
        }
    }

    /// The client.
    pub(crate) fn client(&self) -> Entity {
        Entity(self.key.0)
    }

    /// Name of the host that sent the request.
    pub(crate) fn peer(&self) -> PeerName {
        self.key.1
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

    /// Drops the kept parts of request and response.
    #[inline]
    pub(crate) fn clear(&self) {
        self.is_through.set(false);
        self.incoming.clear();
        self.out.clear();
        self.paced.set(Time::MAX);
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

/// All records of a server.
pub(crate) struct Records {
    map: Map<Key, Rc<Record>>,
    slots: RefCell<Vec<Option<Rc<Record>>>>,
    max: usize,
    host_max: usize,
}

impl Records {
    pub(crate) fn new(secret: Secret, config: &Settings) -> Self {
        let max = config.records_max.max(1);
        Self {
            map: Map::new(secret, max),
            slots: RefCell::default(),
            max,
            host_max: config.host_records_max.clamp(1, max),
        }
    }

    #[inline(always)]
    pub(crate) fn get(&self, key: Key) -> Option<Rc<Record>> {
        self.map.get(&key)
    }

    /// A new record. In a full table, or if the host has its share, it takes the place of one that
    /// may go, the one not heard of for longest. `None` if there is none.
    pub(crate) fn make(&self, cx: &Kernel, this: &ProtocolRef, key: Key) -> Option<Rc<Record>> {
        let all = self.list();
        let share = all.iter().filter(|record| record.peer() == key.1).count();
        let own = share >= self.host_max;
        if own || all.len() >= self.max {
            let fits = |r: &&Rc<Record>| r.may_go(cx.now()) && (!own || r.peer() == key.1);
            let victim = all.iter().filter(fits).min_by_key(|record| record.heard.get())?;
            if matches!(victim.state.get(), ServerState::Receiving | ServerState::Probing) {
                this.head().drops().count(&NO_RECORD);
            }
            self.remove(victim);
        }
        let mut slots = self.slots.borrow_mut();
        let free = slots.iter().position(Option::is_none).unwrap_or(slots.len());
        let record = Rc::new(Record::new(key, free as u32));
        self.map.bind(key, Rc::clone(&record)).ok()?;
        match slots.get_mut(free) {
            Some(slot) => *slot = Some(Rc::clone(&record)),
            None => slots.push(Some(Rc::clone(&record))),
        }
        Some(record)
    }

    /// Takes a record off its client.
    pub(crate) fn remove(&self, record: &Rc<Record>) {
        if record.bound.replace(false) {
            self.map.unbind(&record.key);
            if let Some(slot) = self.slots.borrow_mut().get_mut(record.slot as usize) {
                *slot = None;
            }
            record.clear();
        }
    }

    /// The number of a question about this record: its place, under bits that no stranger knows.
    pub(crate) fn ask(&self, cx: &Kernel, record: &Record) -> u32 {
        let number = cx.random().next_u32() << 16 | record.slot & 0xffff;
        record.probe.set(Some(number));
        number
    }

    /// The record with this question.
    pub(crate) fn asked(&self, number: u32) -> Option<Rc<Record>> {
        let slots = self.slots.borrow();
        let record = slots.get((number & 0xffff) as usize)?.as_ref()?;
        (record.probe.get() == Some(number)).then(|| Rc::clone(record))
    }

    /// The first record for which `is` is true.
    pub(crate) fn find(&self, is: impl Fn(&Record) -> bool) -> Option<Rc<Record>> {
        self.slots.borrow().iter().flatten().find(|record| is(record)).cloned()
    }

    /// All records.
    pub(crate) fn list(&self) -> Vec<Rc<Record>> {
        self.slots.borrow().iter().flatten().cloned().collect()
    }

    pub(crate) fn describe(&self) -> String {
        let all = self.list();
        let number = |state| all.iter().filter(|record| record.state.get() == state).count();
        alloc::format!(
            "{} clients known, {} requests executed, {} responses kept",
            all.len(),
            number(ServerState::Processing),
            number(ServerState::Responded)
        )
    }

    pub(crate) fn stats(&self) -> MapStats {
        self.map.stats()
    }

    pub(crate) fn stop(&self) {
        for record in self.list() {
            self.remove(&record);
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
