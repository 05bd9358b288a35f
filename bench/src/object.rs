//! Invocations of an object: one that is here, one at another host, and one that has moved since
//! it was invoked last, so that the host that it was at passes the invocation on.

use crate::case::{Case, Sample, Shared, Trouble};
use crate::child;
use crate::sim;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};
use xk_compose::SimulationConfig;
use xk_core::object::{OpenError, Refused};
use xk_core::{
    HostAddr, Kernel, Message, Part, Participant, Participants, Protocol, ProtocolRef, SessionRef,
    Time, Upper,
};
use xk_kit::rpc::call::{OBJECT, PROCEDURE};
use xk_sim::{HostId, World};

/// The object, and its operation.
const EID: u64 = 7;
const OPERATION: u64 = 1;
/// Octets of its state.
const IMAGE: [u8; 64] = [0x5a; 64];
/// From a frame's sending to its arrival.
const DELAY: Duration = Duration::from_micros(10);
/// Invocations of a round.
const INVOCATIONS: f64 = 200.0;
/// Time of the network within which one must have returned.
const LIMIT: Duration = Duration::from_secs(10);
const HEADROOM: usize = 128;
/// The host that invokes, and those that the object moves between.
const CALLER: u32 = 0;
const PLACES: [u32; 2] = [1, 2];

/// Rows: where the object is, and whether it moves before each invocation.
const ROWS: [(&str, u32, bool); 3] = [
    ("the object is here", CALLER, false),
    ("the object is at another host", PLACES[0], false),
    ("after one move", PLACES[0], true),
];

pub(crate) fn cases() -> Vec<Case> {
    let network = Shared::default();
    let row = |(row, place, moves): (&'static str, u32, bool)| {
        let network: Shared<Result<RefCell<Network>, Trouble>> = Rc::clone(&network);
        let rows = [
            (row.to_owned(), "us", None),
            (format!("{row}, round trips"), "round trips", None),
            (format!("{row}, frames"), "frames", None),
        ];
        child::rows(rows, move |effort| {
            let make = || Network::new().map(RefCell::new).map_err(Trouble::Failed);
            let network = crate::case::shared(&network, make)?;
            let sample = network.borrow_mut().round(place, moves, effort);
            let sample = sample.map_err(Trouble::Failed)?;
            let also = sample.also.iter().map(|(_, figure)| *figure);
            let single = [sample.p50, sample.p99].into_iter().flatten();
            Ok([sample.value].into_iter().chain(also).chain(single).collect())
        })
    };
    ROWS.into_iter().flat_map(row).collect()
}

/// The server of the object, wherever it is, and its owner.
#[derive(Clone)]
struct Owner(ProtocolRef);

impl Protocol for Owner {
    fn call_demux(
        &self,
        cx: &Kernel,
        _: &ProtocolRef,
        lower: &SessionRef,
        mut request: Message,
    ) -> Result<Message, Refused> {
        // An empty question of the layer that moves asks for the state.
        if lower.head().protocol() == self.0.id()
            && request.is_empty()
            && let Ok(image) = cx.pool().copy_from(HEADROOM, &IMAGE)
        {
            return Ok(image);
        }
        request.truncate(0);
        Ok(request)
    }
}

/// Three hosts of one link.
struct Network {
    world: World,
    owners: Vec<ProtocolRef>,
    /// The host that has the object.
    place: u32,
    invokes: Option<SessionRef>,
}

impl Network {
    fn new() -> Result<Self, String> {
        let text = format!(
            "host \"h{{n}}\" count=3 {{\n sim link=lan\n eth sim\n arp eth\n \
             ip arp {{ address \"10.0.0.{{n+1}}/24\"; }}\n vip arp ip\n fragment vip\n \
             channel fragment\n objloc channel nodes=\"10.0.0.1, 10.0.0.2, 10.0.0.3\"\n \
             objinv objloc\n objmove objinv\n}}\nlink lan delay=\"{}us\"\n",
            DELAY.as_micros()
        );
        let mut world = sim::world(&text, SimulationConfig::default())?;
        let mut owners = Vec::new();
        for host in 0..3 {
            let owner = world.enter(HostId(host), |cx| own(cx, host == CALLER));
            let owner = owner.flatten().ok_or("no object could be enabled")?;
            owners.push(owner);
        }
        let mut network = Self { world, owners, place: CALLER, invokes: None };
        let (this, opened) = (network.owners[0].clone(), Rc::new(RefCell::new(None)));
        let slot = Rc::clone(&opened);
        network.run(CALLER, move |cx| {
            let peer = Participant::new()
                .with(Part::Number(OBJECT, EID))
                .with(Part::Number(PROCEDURE, OPERATION));
            let layer = cx.find_protocol("objinv").ok_or(OpenError::NoLower);
            let ends = Participants::pair(Part::Any, peer);
            let session = layer.and_then(|layer| layer.open(cx, Upper::new(&this), ends));
            *slot.borrow_mut() = Some(session.map_err(|error| error.to_string())?);
            Ok(())
        })?;
        network.invokes = opened.take();
        network.invoke()?;
        Ok(network)
    }

    /// Has a shepherd of a host do something, and answers when it was done.
    fn run(
        &mut self,
        host: u32,
        what: impl FnOnce(&Kernel) -> Result<(), String> + 'static,
    ) -> Result<Time, String> {
        let done = Rc::new(Cell::new(None));
        let told = Rc::clone(&done);
        let begun = self.world.now();
        self.world.spawn(HostId(host), move |cx| {
            let result = what(cx);
            told.set(Some(result.map(|()| cx.now())));
        });
        loop {
            if let Some(result) = done.take() {
                return result;
            }
            if self.world.now() > begun.after(LIMIT) {
                return Err("an invocation has not returned".into());
            }
            let until = self.world.now().after(DELAY);
            self.world.run_until(until);
        }
    }

    fn invoke(&mut self) -> Result<Time, String> {
        let session = self.invokes.clone().ok_or("no session")?;
        self.run(CALLER, move |cx| call(cx, &session))
    }

    /// Moves the object, and lets what belongs to that come to its end.
    fn move_to(&mut self, host: u32) -> Result<(), String> {
        if host == self.place {
            return Ok(());
        }
        let this = self.owners[self.place as usize].clone();
        self.run(self.place, move |cx| {
            let address = HostAddr::from([10, 0, 0, host as u8 + 1]);
            let peer = Participant::of(Part::Host(address)).with(Part::Number(OBJECT, EID));
            let layer = cx.find_protocol("objmove").ok_or("no objmove")?;
            let session = layer.open(cx, Upper::new(&this), Participants::pair(Part::Any, peer));
            let session = session.map_err(|error| error.to_string())?;
            let moved = call(cx, &session);
            session.close(cx);
            moved
        })?;
        self.place = host;
        let calm = self.world.now().after(Duration::from_millis(50));
        self.world.run_until(calm);
        Ok(())
    }

    /// Invokes the object at this place; if it moves, at the other one before each invocation.
    fn round(&mut self, place: u32, moves: bool, effort: f64) -> Result<Sample, String> {
        self.move_to(place)?;
        self.invoke()?;
        let count = (INVOCATIONS * effort) as usize + 1;
        let (mut times, mut trips, mut frames) = (Vec::new(), 0.0, 0);
        for _ in 0..count {
            if moves {
                self.move_to(PLACES[usize::from(self.place == PLACES[0])])?;
            }
            let (begun, sent) = (self.world.now(), self.world.stats().frames);
            let start = Instant::now();
            let ended = self.invoke()?;
            times.push(start.elapsed().as_nanos() as f64);
            trips += ended.since(begun).as_nanos() as f64;
            frames += self.world.stats().frames - sent;
        }
        times.sort_by(f64::total_cmp);
        let trips = trips / count as f64 / (2 * DELAY).as_nanos() as f64;
        let also = vec![("round trips", trips), ("frames", frames as f64 / count as f64)];
        Ok(Sample { also, ..Sample::of_times(&times, 1e3) })
    }
}

/// Adds the owner of objects to a host; of the object itself if it is there.
fn own(cx: &Kernel, is_here: bool) -> Option<ProtocolRef> {
    let (invokes, moves) = (cx.find_protocol("objinv")?, cx.find_protocol("objmove")?);
    let this = cx.add_protocol("owner", "owner", Owner(moves.clone()));
    let object = if is_here { Part::Number(OBJECT, EID) } else { Part::Any };
    let all = Participants::local(Participant::of(object).with(Part::Any));
    let _stands = invokes.open_enable(cx, Upper::new(&this), all).ok()?;
    let _stands = moves.open_enable(cx, Upper::new(&this), Participants::local(Part::Any)).ok()?;
    Some(this)
}

fn call(cx: &Kernel, session: &SessionRef) -> Result<(), String> {
    let request = cx.pool().empty(HEADROOM).map_err(|error| error.to_string())?;
    session.call(cx, request).map(drop).map_err(|error| error.describe(cx))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_invoked_wherever_it_is() {
        let mut network = Network::new().unwrap();
        let rounds = ROWS.map(|(_, place, moves)| network.round(place, moves, 0.01).unwrap());
        let [here, there, moved] = rounds.map(|sample| [sample.also[0].1, sample.also[1].1]);
        assert_eq!(here, [0.0, 0.0], "no message for an object that is here");
        assert_eq!(there, [1.0, 2.0]);
        assert!(moved[0] > there[0] && moved[1] > there[1], "{moved:?}");
    }
}
