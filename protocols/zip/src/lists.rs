//! Lists of zones, which go by transactions: what a router tells, and what a node asks it for
//! (Inside AppleTalk, chapter 8, "GetZoneList", "GetMyZone", "GetLocalZones").

use crate::protocol::{TOKEN_LIST, Zip};
use crate::wire::{ListKind, ListReply, ListRequest};
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::Cell;
use core::num::NonZeroU8;
use core::time::Duration;
use xk_appletalk::atp::{Options, Want};
use xk_appletalk::ddp::SOCKET_ZONE;
use xk_appletalk::name::Name;
use xk_core::object::OpenError;
use xk_core::{
    Kernel, Message, Part, Participant, Participants, Reason, SessionRef, Upper, question, reason,
};
use xk_kit::Pending;
use xk_kit::asks::HEADROOM;
use xk_kit::machine::At;
use xk_kit::net::appletalk::{DdpEnds, SOCKET, cables, socket};
use xk_kit::rpc::call::{BAD_ARGUMENTS, Transaction};

/// Zones that a node takes from a router.
const ZONES_MAX: usize = 4096;
/// Lists that are asked for at a time.
const FETCHES_MAX: usize = 8;

/// The zones that there are, of a node as of a router: those of all networks, those of the cable,
/// or the one that the node is in. A node asks its router. Waits where it can; else it has
/// `is_done` false at first, and is asked again.
#[derive(Clone, Debug, Default)]
pub struct ZoneList {
    /// In: 0 for all, 1 for those of the cable, 2 for the node's own.
    pub which: u8,
    /// Out: whether the router has told all, or does not answer.
    pub is_done: bool,
    /// Out: the zones, in the order of the router; none if it does not answer.
    pub zones: Vec<String>,
}

question!(ZoneList { which, is_done, zones }, "zones", Ask);

/// A list that a router is asked for.
pub(crate) struct Fetch {
    kind: ListKind,
    router: Participant,
    is_begun: Cell<bool>,
    zones: Pending<Vec<Name>>,
}

impl ZoneList {
    fn kind(&self) -> Option<ListKind> {
        [ListKind::All, ListKind::Local, ListKind::MyZone].get(usize::from(self.which)).copied()
    }
}

/// Options of a request for a part of a list: the routers of others leave those unanswered that are
/// to be executed exactly once.
fn want(request: ListRequest) -> Want {
    Want {
        once: None,
        user: request.octets(),
        bitmap: 1,
        tries: NonZeroU8::new(5),
        interval: Duration::from_secs(1),
    }
}

fn options(message: &Message) -> Option<Options> {
    let Transaction(octets) = message.attribute()?;
    Options::parse(&octets).ok()
}

impl Zip {
    /// Receives what is asked by transactions.
    pub(crate) fn serve(&self, at: At<'_>) -> Result<(), OpenError> {
        let Some(atp) = &self.atp else { return Ok(()) };
        let local = Participants::local(Part::Number(SOCKET, SOCKET_ZONE.into()));
        atp.open_enable(at.cx, Upper::new(at.this), local).map(drop)
    }

    /// Answers a node that asks for a part of a list.
    pub(crate) fn list(
        &self,
        at: At<'_>,
        lower: &SessionRef,
        request: &Message,
    ) -> Result<Message, &'static Reason> {
        if !self.is_router.get() {
            return Err(&reason::NOT_MINE);
        }
        let asked = options(request).ok_or(&BAD_ARGUMENTS)?;
        let list = ListRequest::parse(asked.user).map_err(|_| &BAD_ARGUMENTS)?;
        let ends = lower.ask(at.cx, DdpEnds::default()).unwrap_or_default();
        self.allow(at, &ends, 1)?;
        let cables = cables(at.cx, at.lower);
        let first = cables.get(usize::from(ends.port)).map_or(0, |cable| cable.first);
        let zones = self.zones.borrow().list(list.kind, first);
        let (mut user, data) = ListReply::part(list, zones.iter()).octets();
        if list.kind == ListKind::MyZone {
            // One zone is no list that could have a last part.
            user[0] = 0;
        }
        let mut reply = at.cx.pool().copy_from(HEADROOM, &data).map_err(|_| &reason::NO_BUFFERS)?;
        // A message just made has room for it.
        let _ = reply.set_attribute(Transaction(asked.response(user).emit()));
        Ok(reply)
    }

    /// Fills in the zones, if there is such a list.
    pub(crate) fn fill(&self, at: At<'_>, question: &mut ZoneList) -> Option<()> {
        let kind = question.kind()?;
        let cables = cables(at.cx, at.lower);
        let cable = cables.first()?;
        let zones = match cable.router {
            _ if self.is_router.get() => Some(self.zones.borrow().list(kind, cable.first)),
            // A cable without a router has the zone that the node was told, if any.
            (_, 0) => {
                let own = Name::new(&cable.zone).ok().filter(|zone| !zone.is_empty());
                Some(own.into_iter().collect())
            }
            (net, node) => self.fetched(at, socket(net, node, SOCKET_ZONE), kind),
        };
        question.is_done = zones.is_some();
        question.zones = zones.iter().flatten().map(Name::text).collect();
        Some(())
    }

    /// Answer of a router; waits for it where that can be.
    fn fetched(&self, at: At<'_>, router: Participant, kind: ListKind) -> Option<Vec<Name>> {
        let is_it = |fetch: &&Rc<Fetch>| fetch.kind == kind && fetch.router == router;
        let known = self.fetches.borrow().iter().find(is_it).cloned();
        let fetch = match known {
            Some(fetch) => fetch,
            None => {
                let (is_begun, zones) = (Cell::new(false), Pending::begun());
                let fetch = Rc::new(Fetch { kind, router, is_begun, zones });
                // The timer has a shepherd that can wait.
                at.schedule(Duration::ZERO, TOKEN_LIST).ok()?;
                let mut fetches = self.fetches.borrow_mut();
                // Of a router before, or what nothing asked for again.
                if fetches.len() >= FETCHES_MAX {
                    fetches.remove(0);
                }
                fetches.push(Rc::clone(&fetch));
                fetch
            }
        };
        let zones = fetch.zones.get(at.cx);
        if zones.is_some() {
            self.fetches.borrow_mut().retain(|other| !Rc::ptr_eq(other, &fetch));
        }
        zones
    }

    /// Asks for what is wanted.
    pub(crate) fn fetch(&self, at: At<'_>) {
        loop {
            let next = self.fetches.borrow().iter().find(|fetch| !fetch.is_begun.get()).cloned();
            let Some(fetch) = next else { return };
            fetch.is_begun.set(true);
            let zones = self.ask_router(at, fetch.router.clone(), fetch.kind);
            fetch.zones.finish(at.cx, zones.unwrap_or_default());
        }
    }

    /// Asks a router for a list, part by part.
    fn ask_router(&self, at: At<'_>, router: Participant, kind: ListKind) -> Option<Vec<Name>> {
        let any = Participant::of(Part::Any).with(Part::Any).with(Part::Any);
        let ends = Participants::pair(any, router);
        let session = self.atp.as_ref()?.open(at.cx, Upper::new(at.this), ends).ok()?;
        let mut zones = Vec::new();
        let is_whole = loop {
            // There are no more than fit.
            let request = ListRequest { kind, start: zones.len() as u16 + 1 };
            let Some(part) = Self::ask_part(at.cx, &session, request) else { break false };
            let is_last = part.is_last || kind == ListKind::MyZone || part.zones.is_empty();
            zones.extend(part.zones);
            zones.truncate(ZONES_MAX);
            if is_last || zones.len() == ZONES_MAX {
                break true;
            }
        };
        session.close(at.cx);
        is_whole.then_some(zones)
    }

    fn ask_part(cx: &Kernel, session: &SessionRef, request: ListRequest) -> Option<ListReply> {
        let mut message = cx.pool().empty(HEADROOM).ok()?;
        let beside = Options::request(&want(request), 0);
        // A message just made has room for it.
        let _ = message.set_attribute(Transaction(beside.emit()));
        let reply = session.call(cx, message).ok()?;
        let user = options(&reply)?.user;
        ListReply::parse(user, &reply.octets().collect::<Vec<u8>>()).ok()
    }
}
