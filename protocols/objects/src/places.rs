//! The places of objects, as one host knows them, and the search for an object: without a kernel.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use xk_core::{HostAddr, Secret, fields};
use xk_kit::Cache;

/// The number of a host's own object, which is always there, and stays.
pub const NODE: u64 = 0;

/// Hosts that are remembered, to be asked for an object.
pub const NODES_MAX: usize = 64;
/// Forwarding pointers that are followed, one behind the other.
pub const HOPS_MAX: u8 = 16;
/// Times that all hosts are asked at once for an object.
pub const BROADCASTS: u8 = 3;
/// Times that each host is asked by itself.
pub const ROUNDS: u8 = 2;

/// Added to the count of an object that a host takes without a word from the host it comes from.
const ADOPTED: u32 = 1 << 16;

/// A place of an object. The count grows by every move, so it tells which of two is newer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The host; unspecified for this one.
    pub host: HostAddr,
    /// Number of the place among those of the object, from 1.
    pub count: u32,
}
fields!(Place { host, count });

/// Knowledge of an object's place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Known {
    /// None.
    #[default]
    Nothing,
    /// The object is at the host that says so.
    Here(Place),
    /// The object may be about to come there.
    Coming(Place),
    /// The object was there when last heard of.
    Away(Place),
}
fields!(
    enum Known {
        Nothing = 0,
        Here(place) = 1,
        Coming(place) = 2,
        Away(place) = 3,
    }
);

impl Known {
    /// The place, if any is known.
    #[must_use]
    pub fn place(self) -> Option<Place> {
        match self {
            Self::Nothing => None,
            Self::Here(place) | Self::Coming(place) | Self::Away(place) => Some(place),
        }
    }
}

/// A change of what a host knows of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Act {
    /// None: only look.
    #[default]
    Look,
    /// The object is made here.
    Create,
    /// An invocation begins.
    Enter,
    /// An invocation has ended.
    Leave,
    /// No invocation begins from now on, for the object is to move.
    Freeze,
    /// The object stays, with a new count, that of no place it was offered to.
    Thaw,
    /// The object is another host's from now on.
    Depart(Place),
    /// The object may come, from this host.
    Expect(Place),
    /// The object that may have come is here.
    Arrive,
    /// So is one of which the host that it comes from may not know, with a count that it will not
    /// reach there.
    Adopt,
    /// The object that may have come does not, or it is no more.
    Drop,
    /// The object is said to be at a host.
    Learn(Place),
    /// The object is not where it was said to be.
    Forget,
}
fields!(
    enum Act {
        Look = 0,
        Create = 1,
        Enter = 2,
        Leave = 3,
        Freeze = 4,
        Thaw = 5,
        Depart(place) = 6,
        Expect(place) = 7,
        Arrive = 8,
        Adopt = 9,
        Drop = 10,
        Learn(place) = 11,
        Forget = 12,
    }
);

/// An object that is here, or may come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Own {
    count: u32,
    /// Invocations that are being executed.
    busy: u32,
    is_moving: bool,
    /// The host that the object comes from, until it is here.
    from: Option<HostAddr>,
}

/// All that one host knows of places.
#[derive(Debug)]
pub struct Places {
    /// With the host's own object.
    own: BTreeMap<u64, Own>,
    hints: Cache<u64, Place>,
    nodes: Cache<HostAddr>,
    objects_max: usize,
}

impl Places {
    /// No objects yet but the host's own, and room for so many here, and for so many places of
    /// others.
    #[must_use]
    pub fn new(secret: Secret, objects_max: usize, hints_max: usize) -> Self {
        let node = Own { count: 1, busy: 0, is_moving: false, from: None };
        let own = BTreeMap::from([(NODE, node)]);
        let (hints, nodes) = (Cache::new(secret, hints_max), Cache::new(secret, NODES_MAX));
        Self { own, hints, nodes, objects_max }
    }

    /// Number of objects that are here, and of places of others.
    #[must_use]
    pub fn len(&self) -> (usize, usize) {
        (self.own.len() - 1, self.hints.len())
    }

    /// The knowledge of an object.
    #[must_use]
    pub fn look(&self, eid: u64) -> Known {
        let here = |own: &Own| Place { host: HostAddr::UNSPECIFIED, count: own.count };
        match (self.own.get(&eid), self.hints.get(&eid)) {
            (Some(own), _) if own.from.is_none() => Known::Here(here(own)),
            (Some(own), _) => Known::Coming(here(own)),
            (None, Some(place)) => Known::Away(place),
            (None, None) => Known::Nothing,
        }
    }

    /// Whether the object is here, and how many invocations of it are being executed.
    #[must_use]
    pub fn busy(&self, eid: u64) -> Option<u32> {
        self.own.get(&eid).filter(|own| own.from.is_none()).map(|own| own.busy)
    }

    /// Changes what is known; false if that cannot be, and nothing has changed.
    pub fn act(&mut self, eid: u64, act: Act) -> bool {
        let known = self.look(eid);
        let is_here = matches!(known, Known::Here(_));
        let has_room = self.own.len() <= self.objects_max;
        let may_come = self.own.len() <= self.objects_max.div_ceil(2);
        match (act, self.own.get_mut(&eid)) {
            (Act::Look, _) => true,
            (Act::Create | Act::Freeze | Act::Drop, _) if eid == NODE => act == Act::Create,
            (Act::Create, None) if known == Known::Nothing && has_room => {
                self.own.insert(eid, Own { count: 1, busy: 0, is_moving: false, from: None });
                true
            }
            (Act::Enter, Some(own)) if is_here && !own.is_moving => {
                own.busy += 1;
                true
            }
            (Act::Leave, Some(own)) => {
                own.busy = own.busy.saturating_sub(1);
                true
            }
            // The last counts would have no successors.
            (Act::Freeze, Some(own)) if is_here && !own.is_moving && own.count < u32::MAX - 2 => {
                own.is_moving = true;
                true
            }
            (Act::Thaw, Some(own)) if own.is_moving => {
                (own.is_moving, own.count) = (false, own.count + 2);
                true
            }
            (Act::Depart(to), Some(own)) if own.is_moving && own.busy == 0 => {
                self.own.remove(&eid);
                self.hints.put(eid, to);
                true
            }
            (Act::Expect(place), Some(own))
                if own.from == Some(place.host) && own.count == place.count =>
            {
                true
            }
            (Act::Expect(from), _) if !is_here && may_come => {
                let newer = known.place().is_none_or(|place| place.count < from.count);
                let host = Some(from.host);
                let own = Own { count: from.count, busy: 0, is_moving: false, from: host };
                newer && self.own.insert(eid, own).is_none_or(|before| before.from.is_some())
            }
            (Act::Arrive | Act::Adopt, Some(own)) if !is_here => {
                let more = if act == Act::Adopt { ADOPTED } else { 0 };
                (own.from, own.count) = (None, own.count.saturating_add(more));
                true
            }
            (Act::Drop, Some(_)) => self.own.remove(&eid).is_some(),
            (Act::Learn(place), None) => {
                let newer = known.place().is_none_or(|before| before.count < place.count);
                if newer {
                    self.hints.put(eid, place);
                }
                newer
            }
            (Act::Forget, _) => self.hints.remove(&eid).is_some(),
            _ => false,
        }
    }

    /// Remembers a host, which is there, as one to be asked.
    pub fn meet(&self, host: HostAddr) {
        if !host.is_unspecified() && !host.is_group() {
            self.nodes.put(host, ());
        }
    }

    /// The search for an object, from what is known of it, or else from `hint`; `others` are to
    /// be asked besides the hosts that are remembered.
    #[must_use]
    pub fn search(&self, eid: u64, hint: Option<HostAddr>, others: &[HostAddr]) -> Search {
        let mut nodes: Vec<HostAddr> = others.to_vec();
        let met = self.nodes.snapshot().into_iter().map(|(node, ())| node);
        nodes.extend(met.filter(|node| !others.contains(node)));
        let first = match self.look(eid) {
            Known::Away(place) => Some(place),
            _ => hint.map(|host| Place { host, count: 0 }),
        };
        let stage = first.map_or(Stage::Broadcast(0), |place| Stage::Chain(place, 0));
        let (after, best) = (Stage::Broadcast(0), Known::Nothing);
        Search { nodes, stage, after, best, lead: Place::default(), chased: 0, stale: 0 }
    }
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    /// A forwarding pointer is followed, the last of so many.
    Chain(Place, u8),
    /// All hosts are asked at once.
    Broadcast(u8),
    /// Hosts are asked one by one: the round, and the host's place in the list.
    Each(u8, usize),
    Done,
}

/// The next thing that a search needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Ask this host, and tell the search of its answer, or that there was none.
    Ask(HostAddr),
    /// Ask all hosts at once, and tell the search of each answer: the first time, or a later one.
    Broadcast(u8),
    /// The search is over.
    Done(Known),
}

/// A search: along the chain of forwarding pointers, then of all hosts at once, then of each.
///
/// Each pointer must have a greater count than the one before, so no chain is a circle.
#[derive(Debug)]
pub struct Search {
    nodes: Vec<HostAddr>,
    stage: Stage,
    /// The stage after a chain that leads nowhere.
    after: Stage,
    /// The newest place whose host says that the object is there, or may come there.
    best: Known,
    /// The newest forwarding pointer that was not followed.
    lead: Place,
    /// The greatest count of a pointer that was followed.
    chased: u32,
    /// Pointers and places that were older than what led there.
    pub stale: u32,
}

impl Search {
    /// The next step; after [`Step::Broadcast`] all its answers have been told.
    pub fn step(&mut self) -> Step {
        loop {
            match self.stage {
                Stage::Chain(place, _) => return Step::Ask(place.host),
                Stage::Broadcast(round) if round < BROADCASTS && !self.has_found() => {
                    self.stage = Stage::Broadcast(round + 1);
                    return Step::Broadcast(round);
                }
                Stage::Broadcast(_) => self.end(Stage::Each(0, 0)),
                Stage::Each(round, at) if round < ROUNDS => {
                    if let Some(node) = self.nodes.get(at) {
                        self.stage = Stage::Each(round, at + 1);
                        return Step::Ask(*node);
                    }
                    self.end(Stage::Each(round + 1, 0));
                }
                Stage::Each(..) => self.stage = Stage::Done,
                Stage::Done => return Step::Done(self.best),
            }
        }
    }

    fn has_found(&self) -> bool {
        matches!(self.best, Known::Here(_))
    }

    /// Ends a stage: with what was found, or by the newest pointer, or by the stage `next`.
    fn end(&mut self, next: Stage) {
        self.stage = if self.has_found() {
            Stage::Done
        } else if self.lead.count > self.chased {
            (self.chased, self.after) = (self.lead.count, next);
            Stage::Chain(self.lead, 0)
        } else if self.best != Known::Nothing {
            Stage::Done
        } else {
            next
        };
    }

    /// Takes the answer of a host in; `None` if it gave none, or what was no answer.
    pub fn hear(&mut self, answer: Option<Known>) {
        let answer = answer.unwrap_or_default();
        let Stage::Chain(from, hops) = self.stage else {
            match answer {
                Known::Here(place) => self.note(answer, place),
                Known::Coming(place) if !self.has_found() => self.note(answer, place),
                Known::Away(place) if place.count > self.lead.count => self.lead = place,
                _ => {}
            }
            return;
        };
        match answer {
            Known::Here(place) | Known::Coming(place) if place.count >= from.count => {
                (self.best, self.stage) = (answer, Stage::Done);
            }
            Known::Away(place) if place.count > from.count && hops < HOPS_MAX => {
                self.chased = self.chased.max(place.count);
                self.stage = Stage::Chain(place, hops + 1);
            }
            answer => {
                self.stale += u32::from(answer != Known::Nothing);
                self.stage = self.after;
            }
        }
    }

    fn note(&mut self, answer: Known, place: Place) {
        let is_better = match self.best {
            Known::Here(best) => place.count > best.count,
            Known::Coming(best) => matches!(answer, Known::Here(_)) || place.count > best.count,
            _ => true,
        };
        if is_better {
            self.best = answer;
        }
    }
}

#[cfg(test)]
mod tests;
