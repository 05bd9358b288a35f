//! The protocol object: hears routers and other members, and tells them of the host's groups.

use crate::link::{Link, Out, Settings};
use crate::wire::{ALL_SYSTEMS, Error, Packet};
use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::time::Duration;
use xk_core::graph::{Build, BuildError};
use xk_core::object::{OpenError, Refused};
use xk_core::{
    Answer, Ask, HostAddr, Kernel, Message, Part, ProtocolRef, Reason, SessionRef, Upper, fields,
    question, reason,
};
use xk_kit::control::{AlertRouters, PeerHost};
use xk_kit::machine::{self, At, Machine, Running};
use xk_kit::net::addr::Ipv4;
use xk_kit::net::attribute::{Arrived, Sending};
use xk_kit::net::groups::{CameBy, GroupChanged, WatchGroups, WatchedLink};

/// Why it drops messages, besides the reasons that all protocols share.
pub mod reasons {
    use xk_core::reason::{Class, Reason};

    /// About a group that is none.
    pub static NO_GROUP: Reason = Reason::new("about no group", Class::Bad);
    /// A query of version 2 or 3 that had no router look at it (RFC 3376, section 9.1).
    pub static NO_ALERT: Reason = Reason::new("without router alert", Class::Bad);
    /// A query about all groups that went to another group than all systems.
    pub static ASTRAY: Reason = Reason::new("general query astray", Class::Bad);
}

/// Octets of the network header with its option.
const NETWORK_LEN: usize = 24;
/// Class of the traffic: internetwork control (RFC 3376, section 4).
const CLASS: u8 = 0xc0;

/// An interface, for `xk dump`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IgmpLink {
    /// Our host there.
    pub host: HostAddr,
    /// Version that is spoken there now.
    pub version: u8,
    /// Number of groups that are told of.
    pub groups: usize,
}

fields!(IgmpLink { host, version, groups });

/// The interfaces on which routers are told of groups.
#[derive(Clone, Debug, Default)]
pub struct IgmpLinks {
    /// The interfaces, in the network layer's order.
    pub links: Vec<IgmpLink>,
}

question!(IgmpLinks { links }, "igmp-links", Ask);

/// An interface with its host, and the octets of the largest message there.
struct Place {
    host: HostAddr,
    room: usize,
    link: Link,
}

/// One instance.
pub struct Igmp {
    settings: Settings,
    places: RefCell<BTreeMap<u8, Place>>,
}

/// Builds it from its place in a graph.
///
/// # Errors
/// [`BuildError`] if the graph gives it nothing to stand on.
pub fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let settings = Settings::read(build)?;
    machine::add(build, Igmp { settings, places: RefCell::default() })
}

/// The reason that corresponds to what is wrong with a message.
fn reason_of(error: Error) -> &'static Reason {
    match error {
        Error::Truncated => &reason::TRUNCATED,
        Error::Checksum => &reason::BAD_CHECKSUM,
        Error::Type(_) => &reason::NOT_SUPPORTED,
        Error::Length => &reason::BAD_LENGTH,
        Error::Group => &reasons::NO_GROUP,
    }
}

impl Igmp {
    /// Takes a message in that came from a host to a group, or to this host alone.
    fn take(
        &self,
        at: At<'_>,
        by: Option<CameBy>,
        from: HostAddr,
        to: Option<Ipv4>,
        octets: &[u8],
    ) -> Result<(), &'static Reason> {
        let packet = Packet::parse(octets).map_err(reason_of)?;
        let CameBy { interface, alerts } = by.ok_or(&reason::NOT_MINE)?;
        let mut places = self.places.borrow_mut();
        let place = places.get_mut(&interface).ok_or(&reason::NOT_MINE)?;
        match packet {
            Packet::Query(query) => {
                if query.version > 1 && !alerts && self.settings.router_alert {
                    return Err(&reasons::NO_ALERT);
                }
                // One of version 1 has no alert that keeps it on its link.
                let is_astray = to.map_or(query.version == 1, |to| to != ALL_SYSTEMS);
                if query.group.is_none() && is_astray {
                    return Err(&reasons::ASTRAY);
                }
                place.link.query(&query, at.now(), at.cx.random());
                if let (Some(from), Some(own)) = (from.to_v4(), place.host.to_v4()) {
                    place.link.hear_querier(from, own, at.now());
                }
                Ok(())
            }
            // A report goes to its group.
            Packet::Report { group, .. }
                if to == Some(group) && place.link.report(group, at.now()) =>
            {
                Ok(())
            }
            _ => Err(&reason::NOT_MINE),
        }
    }

    /// Begins with an interface, or begins again. One without a host of ours is none of whose
    /// groups routers hear.
    fn begin(&self, at: At<'_>, told: WatchedLink) {
        if told.host.is_unspecified() {
            return;
        }
        let mut places = self.places.borrow_mut();
        let link = || Link::new(self.settings.clone());
        let new = || Place { host: told.host, room: 0, link: link() };
        let place = places.entry(told.interface).or_insert_with(new);
        place.room = usize::from(told.octets).saturating_sub(NETWORK_LEN);
        place.host = told.host;
        place.link.leave_all(at.now());
    }

    fn change(&self, at: At<'_>, told: &GroupChanged) {
        let mut places = self.places.borrow_mut();
        let place = places.get_mut(&told.interface);
        if let (Some(place), Some(group)) = (place, told.group.to_v4())
            && !place.link.changed(group, told.filter.clone(), at.now())
        {
            at.count(&reason::TABLE_FULL);
        }
    }
}

/// Sends a message by the interface of a host. What keeps it from going is counted; the next report
/// makes up for it.
fn send(at: At<'_>, host: HostAddr, out: &Out) {
    let Some(mut message) = at.message(&out.octets) else { return };
    let Ok(session) = at.open(Part::host(host), Part::host(out.to)) else {
        return at.count(&reason::TABLE_FULL);
    };
    // A network layer without the option has no routers that look for it.
    let _ = session.ask(at.cx, AlertRouters);
    let asked = Sending { hops: 1, class: Some(CLASS), stays_out: true, ..Sending::default() };
    // It is the first attribute.
    let _ = message.set_attribute(asked);
    at.push(session, message);
}

impl Machine for Igmp {
    const OCTETS_MAX: usize = 65_535;

    fn start(&self, at: At<'_>) -> Result<(), OpenError> {
        at.enable(Part::Any)?;
        let number = Upper::new(at.this).number_on(at.cx, at.lower)?;
        at.tell(WatchGroups { watcher: at.this.clone(), number });
        Ok(())
    }

    fn demux(
        all: &Rc<Running<Self>>,
        at: At<'_>,
        lower: &SessionRef,
        message: Message,
    ) -> Result<(), Refused> {
        let by = message.attribute::<CameBy>();
        let to = message.attribute::<Arrived>().and_then(|said| said.to.to_v4());
        let from = lower.ask(at.cx, PeerHost::default()).unwrap_or_default().host;
        let to = to.filter(Ipv4::is_multicast);
        all.hear_by(at, message, |octets| all.take(at, by, from, to, octets))
    }

    fn next(&self) -> Option<Duration> {
        self.places.borrow().values().filter_map(|place| place.link.next()).min()
    }

    fn due(&self, at: At<'_>) {
        let mut all = Vec::new();
        for Place { host, room, link } in self.places.borrow_mut().values_mut() {
            let out = link.due(at.now(), *room, at.cx.random());
            all.extend(out.into_iter().map(|out| (*host, out)));
        }
        all.iter().for_each(|(host, out)| send(at, *host, out));
    }

    fn answer(&self, at: At<'_>, ask: &mut Ask<'_>) -> Option<Answer> {
        if let Some(told) = ask.get::<WatchedLink>() {
            self.begin(at, *told);
        } else if let Some(told) = ask.get::<GroupChanged>() {
            self.change(at, told);
        } else {
            ask.get::<IgmpLinks>()?.links = self.links();
        }
        Some(Answer::Answered)
    }

    fn describe(&self) -> Option<String> {
        let mut text = String::new();
        for IgmpLink { host, version, groups } in self.links() {
            let comma = if text.is_empty() { "" } else { "; " };
            text += &alloc::format!("{comma}{host}: version {version}, {groups} groups");
        }
        Some(text)
    }

    fn stop(&self, _: &Kernel) {
        self.places.take();
    }
}

impl Igmp {
    fn links(&self) -> Vec<IgmpLink> {
        let places = self.places.borrow();
        let link = |Place { host, link, .. }: &Place| IgmpLink {
            host: *host,
            version: link.version(),
            groups: link.groups(),
        };
        places.values().map(link).collect()
    }
}
