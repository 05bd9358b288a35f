//! Conversations of many members, all in one process: what a message costs this machine until all
//! have heard it, how many round trips of the network that takes, and how many frames.

use crate::case::{Case, Sample, Trouble};
use crate::sim;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};
use xk_compose::SimulationConfig;
use xk_core::object::{OpenError, Refused};
use xk_core::{
    Kernel, Message, Part, Participant, Participants, Protocol, ProtocolRef, Reason, SessionRef,
    Time, Upper,
};
use xk_kit::group::{PROCESS, TakeOwn};
use xk_sim::{HostId, World};

/// Layers, by the words for them.
const ORDERS: [(&str, &str); 2] = [("partial", "psync"), ("total", "order")];
const MEMBERS: [usize; 4] = [2, 4, 8, 16];
const OCTETS: [usize; 2] = [64, 1024];
/// From a frame's sending to its arrival.
const DELAY: Duration = Duration::from_micros(10);
/// Messages of a round: one at a time, and without waiting.
const SINGLE: f64 = 200.0;
const STREAM: f64 = 2000.0;
/// Time of the network within which all must have come.
const LIMIT: Duration = Duration::from_secs(600);
/// Room for the headers of the layers below.
const HEADROOM: usize = 128;

pub(crate) fn cases() -> Vec<Case> {
    let mut list = Vec::new();
    for (words, layer) in ORDERS {
        for members in MEMBERS {
            for octets in OCTETS {
                let row = format!("{words}, {members} members, {octets} octets");
                list.push(Case::measured(format!("{row}, one at a time"), move |effort| {
                    single(layer, members, octets, effort).map_err(Trouble::Failed)
                }));
                for (senders, who) in [(1, "one sends"), (members, "all send")] {
                    list.push(Case::measured(format!("{row}, {who}"), move |effort| {
                        stream(layer, members, octets, senders, effort).map_err(Trouble::Failed)
                    }));
                }
            }
        }
    }
    list
}

/// Sends one message after the other, each when all have heard the one before.
fn single(layer: &str, members: usize, octets: usize, effort: f64) -> Result<Sample, String> {
    let mut group = Group::new(layer, members)?;
    group.send(&[0], 1, octets)?;
    let count = (SINGLE * effort) as usize + 1;
    let (before, mut times, mut trips) = (group.world.stats().frames, Vec::new(), 0.0);
    for _ in 0..count {
        let (start, sent) = (Instant::now(), group.world.now());
        group.send(&[0], 1, octets)?;
        times.push(start.elapsed().as_nanos() as f64);
        trips += group.heard.at.get().since(sent).as_nanos() as f64;
    }
    group.calm();
    let frames = (group.world.stats().frames - before) as f64 / count as f64;
    let trips = trips / count as f64 / (2 * DELAY).as_nanos() as f64;
    times.sort_by(f64::total_cmp);
    let also = vec![("round trips", trips), ("frames", frames)];
    Ok(Sample { also, ..Sample::of_times(&times, 1e3) })
}

/// Has senders send without waiting: microseconds a message.
fn stream(
    layer: &str,
    members: usize,
    octets: usize,
    senders: usize,
    effort: f64,
) -> Result<Sample, String> {
    let mut group = Group::new(layer, members)?;
    let all: Vec<usize> = (0..senders).collect();
    group.send(&all, 1, octets)?;
    let each = (STREAM * effort) as usize / senders + 1;
    let (before, start) = (group.world.stats().frames, Instant::now());
    group.send(&all, each, octets)?;
    let us = start.elapsed().as_secs_f64() * 1e6;
    group.calm();
    let count = (each * senders) as f64;
    let frames = (group.world.stats().frames - before) as f64 / count;
    Ok(Sample { also: vec![("frames", frames)], ..(us / count).into() })
}

/// Messages that came up at all members together, and the time of the last.
#[derive(Default)]
struct Heard {
    count: Cell<u64>,
    at: Cell<Time>,
}

/// The member above a conversation.
struct Member {
    heard: Rc<Heard>,
    session: Rc<RefCell<Option<SessionRef>>>,
}

impl Protocol for Member {
    fn open_done(
        &self,
        _: &Kernel,
        _: &ProtocolRef,
        lower: &SessionRef,
        _: Participants,
    ) -> Result<(), &'static Reason> {
        lower.hold();
        *self.session.borrow_mut() = Some(lower.clone());
        Ok(())
    }

    fn demux(
        &self,
        cx: &Kernel,
        _: &ProtocolRef,
        _: &SessionRef,
        _: Message,
    ) -> Result<(), Refused> {
        self.heard.count.set(self.heard.count.get() + 1);
        self.heard.at.set(cx.now());
        Ok(())
    }
}

/// A conversation whose members are hosts of one network.
struct Group {
    world: World,
    sessions: Vec<SessionRef>,
    heard: Rc<Heard>,
    /// Members that a message comes up at.
    hearers: u64,
}

impl Group {
    fn new(layer: &str, members: usize) -> Result<Self, String> {
        let text = format!(
            "host \"h{{n}}\" count={members} {{\n sim link=lan\n eth sim\n arp eth\n \
             ip arp {{ address \"10.0.0.{{n+1}}/24\"; }}\n psync ip window=64\n order psync\n}}\n\
             link lan delay=\"{}us\"\n",
            DELAY.as_micros()
        );
        let mut world = sim::world(&text, SimulationConfig::default())?;
        let (heard, mut slots) = (Rc::<Heard>::default(), Vec::new());
        for host in 0..members {
            let session = Rc::<RefCell<Option<SessionRef>>>::default();
            slots.push(Rc::clone(&session));
            let member = Member { heard: Rc::clone(&heard), session };
            let layer = layer.to_owned();
            world.spawn(HostId(host as u32), move |cx| {
                let slot = Rc::clone(&member.session);
                if let Ok(Some(session)) = join(cx, &layer, member, host, members) {
                    *slot.borrow_mut() = Some(session);
                }
            });
        }
        world.run_until(Time::ZERO.after(Duration::from_secs(10)));
        let sessions: Option<Vec<SessionRef>> =
            slots.iter().map(|slot| slot.borrow().clone()).collect();
        let sessions = sessions.ok_or("a member has no session")?;
        let mut hears_own = false;
        for (host, session) in sessions.iter().enumerate() {
            let asked = world.enter(HostId(host as u32), |cx| session.ask(cx, TakeOwn));
            hears_own = asked.flatten().is_some();
        }
        let hearers = members as u64 - u64::from(!hears_own);
        Ok(Self { world, sessions, heard, hearers })
    }

    /// Has each of these members send so many messages, and waits until all have heard them.
    fn send(&mut self, senders: &[usize], each: usize, octets: usize) -> Result<(), String> {
        let wanted = self.heard.count.get() + (senders.len() * each) as u64 * self.hearers;
        for sender in senders {
            let session = self.sessions[*sender].clone();
            self.world.spawn(HostId(*sender as u32), move |cx| {
                for _ in 0..each {
                    if let Ok(message) = cx.pool().alloc(HEADROOM, octets) {
                        let _ = session.push(cx, message);
                    }
                }
            });
        }
        let until = self.world.now().after(LIMIT);
        while self.heard.count.get() < wanted {
            if self.world.now() > until {
                let heard = self.heard.count.get();
                return Err(format!("{heard} of {wanted} messages were heard"));
            }
            self.pass(DELAY);
        }
        Ok(())
    }

    fn pass(&mut self, time: Duration) {
        let until = self.world.now().after(time);
        self.world.run_until(until);
    }

    /// Lets what belongs to the messages that were heard go its way.
    fn calm(&mut self) {
        self.pass(Duration::from_secs(1));
    }
}

/// Joins the conversation; the first opens it.
fn join(
    cx: &Kernel,
    layer: &str,
    member: Member,
    host: usize,
    members: usize,
) -> Result<Option<SessionRef>, OpenError> {
    let layer = cx.find_protocol(layer).ok_or(OpenError::NoLower)?;
    let this = cx.add_protocol("member", "member", member);
    let process = Part::Number(PROCESS, 7);
    if host > 0 {
        let _ = layer.open_enable(cx, Upper::new(&this), Participants::local(process))?;
        return Ok(None);
    }
    let peer =
        |at: usize| Participant::of(Part::Host([10, 0, 0, at as u8 + 1].into())).with(process);
    let ends = Participants::among(process.into(), (1..members).map(peer));
    layer.open(cx, Upper::new(&this), ends).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_is_heard_by_all() {
        for (words, layer) in ORDERS {
            let one = single(layer, 3, 64, 0.02).unwrap();
            assert!(one.also[0].1 >= 0.5 && one.also[1].1 >= 2.0, "{words}: {:?}", one.also);
            let all = stream(layer, 3, 64, 3, 0.02).unwrap();
            assert!(all.value > 0.0, "{words}");
        }
    }
}
