//! Requests that another server answers (RFC 1045, sections 2.9 and 5.6.3): passed on by the first,
//! answered to the client by the last.

use crate::blocks::HEADROOM;
use crate::reasons::LOOPED;
use crate::records::{KEPT, Record};
use crate::shared::{At, RESPONSE_REST, Shared, TRIES_MAX, blocks_for, peer_number};
use crate::tables::{ServerAction, ServerEvent, ServerState};
use crate::wire::{APG, Entity, FORWARDS_MAX, Header, NRT, SDA, STI, code};
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::ops::RangeInclusive;
use core::time::Duration;
use xk_core::graph::{BuildError, Params};
use xk_core::object::{OpenError, SessionSlot};
use xk_core::{
    HostAddr, Kernel, Message, Part, Participant, Participants, ProtocolRef, Reason, SessionRef,
    Upper,
};
use xk_kit::rpc::call::SYSTEM_ERROR;

/// A range of procedures, and the server that answers them.
pub(crate) struct Route {
    procedures: RangeInclusive<u32>,
    entity: u32,
    to: Participant,
    pub(crate) way: SessionSlot,
}

impl Route {
    /// The ranges of the blocks `route`; the first that has a procedure counts.
    pub(crate) fn read_all(params: &Params) -> Result<Vec<Self>, BuildError> {
        let read = |(index, block): (usize, &Params)| {
            let wrong = || BuildError::Param {
                name: "route",
                index,
                expected: "to=\"HOST\", a participant such as entity7@10.0.0.3".into(),
            };
            let first = block.number("first", 0u32);
            let last = block.number("last", first);
            let to: Option<Participant> = block.text("to").and_then(|text| text.parse().ok());
            let mut to = to.ok_or_else(wrong)?;
            let (_, entity) = crate::protocol::pop_name(&mut to).map_err(|_| wrong())?;
            Ok(Self { procedures: first..=last, entity, to, way: SessionSlot::default() })
        };
        params.blocks("route").enumerate().map(read).collect()
    }
}

impl Shared {
    /// The route of a procedure that another server answers.
    #[inline]
    pub(crate) fn route(&self, procedure: u32) -> Option<&Route> {
        self.routes.iter().find(|route| route.procedures.contains(&procedure))
    }

    fn open_way(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        to: Participant,
    ) -> Result<SessionRef, OpenError> {
        let ends = Participants::pair(Part::Any, to);
        self.lower.open(cx, Upper::new(this), ends)
    }

    /// The session below to the client of a request that another server passed on.
    pub(crate) fn way_to(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        client: Entity,
    ) -> Option<SessionRef> {
        let known = self.ways.get(&client.host());
        if let Some(way) = known.filter(|way| !way.head().is_closed()) {
            return Some(way);
        }
        let host = HostAddr::from(client.host().to_be_bytes());
        let way = self.open_way(cx, this, Participant::of(Part::Host(host))).ok()?;
        for (_, old) in [self.ways.put(client.host(), way.clone())].into_iter().flatten() {
            old.close(cx);
        }
        Some(way)
    }

    /// Passes a request on to the server of a route.
    #[cold]
    pub(crate) fn forward(
        self: &Rc<Self>,
        cx: &Kernel,
        this: &ProtocolRef,
        record: &Rc<Record>,
        (header, request): (&Header, Message),
        route: &Route,
    ) -> Result<(), &'static Reason> {
        if header.forwards() >= FORWARDS_MAX {
            this.discard(request, &LOOPED);
            return Err(&LOOPED);
        }
        let way = match route.way.live() {
            Some(way) => way,
            None => {
                let opened = self.open_way(cx, this, route.to.clone());
                let way = opened.map_err(|_| &SYSTEM_ERROR)?;
                drop(route.way.replace(Some(way.clone())));
                way
            }
        };
        let host = cx.unless_lost(|| peer_number(cx, &way)).map_err(|_| &SYSTEM_ERROR)?;
        let passed = Header {
            server: Entity::new(route.entity, host),
            control: header.control & (STI | NRT),
            ..header.with_data(0, 0)
        };
        let passed = passed.with_forwards(header.forwards() + 1);
        let segment = match header.has(SDA) {
            true => request,
            false => cx.pool().empty(HEADROOM).map_err(|_| &SYSTEM_ERROR)?,
        };
        record.step(ServerEvent::Forward);
        record.out.put(passed, segment);
        record.retries.set(0);
        drop(record.onward.replace(Some(way)));
        self.pass_on(cx, this, record, record.out.blocks());
        Ok(())
    }

    /// Sends blocks of a request that is passed on.
    fn pass_on(&self, cx: &Kernel, this: &ProtocolRef, record: &Record, mask: u32) {
        let Some(way) = record.onward.get() else { return };
        let blocks = (mask, blocks_for(cx, &way));
        // What does not go is as good as lost.
        let ways = (self.config.checksum, Duration::ZERO);
        let _ = record.out.send(cx, &way, blocks, APG, ways);
        self.watch_record(cx, this, record, cx.now().after(RESPONSE_REST));
    }

    /// The other server has said nothing of a request that was passed on to it, or the client of a
    /// response: asks the server.
    pub(crate) fn pass_again(&self, cx: &Kernel, this: &ProtocolRef, record: &Record) {
        record.retries.set(record.retries.get() + 1);
        record.out.set_round(record.retries.get());
        let blocks = record.onward.get().map_or(1, |way| blocks_for(cx, &way));
        let mask = if record.out.is_long(blocks) { 0 } else { record.out.blocks() };
        self.pass_on(cx, this, record, mask);
    }

    /// The manager of that server tells what has come of a request; false if none was passed on.
    pub(crate) fn forwarder_notified(&self, at: At<'_>) -> bool {
        let At { cx, this, header: notice, .. } = at;
        let [_, _, _, _, transaction, delivery, code] = notice.user;
        let client = notice.user_entity(0);
        let record = self.find_record(|record| {
            record.state.get() == ServerState::Forwarded
                && record.client() == client
                && record.out.transaction() == transaction
        });
        let Some(record) = record else { return false };
        let event = match code {
            code::OK => ServerEvent::Ok,
            code::RETRY | code::RETRY_ALL => ServerEvent::Retry,
            code::BUSY => return true,
            _ => ServerEvent::Refused,
        };
        match record.step(event) {
            ServerAction::SendMissing if record.retries.get() < TRIES_MAX => {
                record.retries.set(record.retries.get() + 1);
                self.pass_on(cx, this, &record, record.out.blocks() & !delivery);
            }
            ServerAction::Discard => {
                record.out.clear();
                if let (Some(lower), Some(request)) = (record.lower.get(), record.request.get()) {
                    let control = record.control.get();
                    let request = Header { control, ..request };
                    self.notify_client(At { lower: &lower, header: &request, ..at }, 0, code);
                }
            }
            _ if event == ServerEvent::Ok && record.out.next_group() => {
                record.retries.set(0);
                self.pass_on(cx, this, &record, record.out.blocks());
            }
            _ if event == ServerEvent::Ok => {
                record.is_through.set(true);
                self.watch_record(cx, this, &record, cx.now().after(KEPT));
            }
            _ => {}
        }
        true
    }
}
