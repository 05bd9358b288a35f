//! Conversations of many members, all in one process: what a message costs this machine until all
//! have heard it, how many round trips of the network that takes, and how many frames.

use crate::case::{Case, Goal, Sample, Trouble};
use crate::child;
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
const ORDERS: [(&str, &str); 3] =
    [("partial", "psync"), ("partial by multicast", MULTICAST), ("total", "order")];
/// The word for `psync` in a multicast group.
const MULTICAST: &str = "multicast";
const MEMBERS: [usize; 4] = [2, 4, 8, 16];
const OCTETS: [usize; 2] = [64, 1024];
/// From a frame's sending to its arrival.
const DELAY: Duration = Duration::from_micros(10);
/// Messages of a round: one at a time, and without waiting.
const SINGLE: f64 = 200.0;
const STREAM: f64 = 2000.0;
/// Time of the network within which all must have come.
const LIMIT: Duration = Duration::from_secs(600);
/// Round trips until all have heard a message, at most: one and a fifth.
const TRIPS: f64 = 1.2;
/// Room for the headers of the layers below.
const HEADROOM: usize = 128;

pub(crate) fn cases() -> Vec<Case> {
    let mut list = Vec::new();
    for (words, layer) in ORDERS {
        for members in MEMBERS {
            for octets in OCTETS {
                let row = format!("{words}, {members} members, {octets} octets");
                let is_total = layer == "order";
                let trips = is_total.then_some(Goal::AtMost(TRIPS));
                // One at a time, members of a total order answer each message to all.
                let frames = if layer == MULTICAST { 2.0 } else { members as f64 + 1.0 };
                let frames = Goal::AtMost(frames);
                let rows = [
                    ("", "us", None),
                    (", round trips", "round trips", trips),
                    (", frames", "frames", (!is_total).then_some(frames)),
                ];
                let rows =
                    rows.map(|(of, unit, goal)| (format!("{row}, one at a time{of}"), unit, goal));
                list.extend(child::rows(rows, move |effort| {
                    single(layer, members, octets, effort).map_err(Trouble::Failed)
                }));
                for (senders, who) in [(1, "one sends"), (members, "all send")] {
                    let rows = [("", "us", None), (", frames", "frames", Some(frames))];
                    let rows =
                        rows.map(|(of, unit, goal)| (format!("{row}, {who}{of}"), unit, goal));
                    list.extend(child::rows(rows, move |effort| {
                        stream(layer, members, octets, senders, effort).map_err(Trouble::Failed)
                    }));
                }
            }
        }
    }
    list
}

/// Sends one message after the other, each when all have heard the one before: microseconds, round
/// trips and frames of one, then the percentiles.
fn single(layer: &str, members: usize, octets: usize, effort: f64) -> Result<Vec<f64>, String> {
    let mut group = Group::new(layer, members)?;
    group.send(&[0], 1, octets)?;
    let count = (SINGLE * effort) as usize + 1;
    let (before, mut times, mut trips) = (group.frames(), Vec::new(), 0.0);
    for _ in 0..count {
        let (start, sent) = (Instant::now(), group.world.now());
        group.send(&[0], 1, octets)?;
        times.push(start.elapsed().as_nanos() as f64);
        trips += group.heard.at.get().since(sent).as_nanos() as f64;
    }
    group.calm();
    let frames = (group.frames() - before) as f64 / count as f64;
    let trips = trips / count as f64 / (2 * DELAY).as_nanos() as f64;
    times.sort_by(f64::total_cmp);
    let Sample { value, p50, p99, .. } = Sample::of_times(&times, 1e3);
    Ok([Some(value), Some(trips), Some(frames), p50, p99].into_iter().flatten().collect())
}

/// Has senders send without waiting: microseconds and frames of a message.
fn stream(
    layer: &str,
    members: usize,
    octets: usize,
    senders: usize,
    effort: f64,
) -> Result<Vec<f64>, String> {
    let mut group = Group::new(layer, members)?;
    let all: Vec<usize> = (0..senders).collect();
    group.send(&all, 1, octets)?;
    let each = (STREAM * effort) as usize / senders + 1;
    let (before, start) = (group.frames(), Instant::now());
    group.send(&all, each, octets)?;
    let us = start.elapsed().as_secs_f64() * 1e6;
    group.calm();
    let count = (each * senders) as f64;
    let frames = (group.frames() - before) as f64 / count;
    Ok(vec![us / count, frames])
}

/// Messages that came up at all members together, and the time of the last.
#[derive(Default)]
struct Heard {
    count: Cell<u64>,
    at: Cell<Time>,
}

/// The sessions by which a member sends to all others.
type Sessions = Rc<RefCell<Vec<SessionRef>>>;

/// The member above a conversation.
struct Member {
    heard: Rc<Heard>,
    sessions: Sessions,
    /// Whether it answers each message.
    answers: bool,
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
        self.sessions.borrow_mut().push(lower.clone());
        Ok(())
    }

    fn demux(
        &self,
        cx: &Kernel,
        _: &ProtocolRef,
        lower: &SessionRef,
        message: Message,
    ) -> Result<(), Refused> {
        if self.answers {
            // One that does not go is missed by the sender.
            let _ = cx.pool().alloc(HEADROOM, message.len()).map(|answer| lower.push(cx, answer));
        }
        self.heard.count.set(self.heard.count.get() + 1);
        self.heard.at.set(cx.now());
        Ok(())
    }
}

/// A conversation whose members are hosts of one network; or, on `udp`, a host with a session to
/// each of the others.
pub(crate) struct Group {
    world: World,
    sessions: Vec<Sessions>,
    heard: Rc<Heard>,
    /// Members that a message comes up at.
    hearers: u64,
}

impl Group {
    /// Has the hosts of a network join; on `layer`.
    ///
    /// # Errors
    /// One could not.
    pub(crate) fn new(layer: &str, members: usize) -> Result<Self, String> {
        Self::answered(layer, members, false)
    }

    /// As [`Group::new`], with all but the first answering each message, if so wanted.
    ///
    /// # Errors
    /// One could not join.
    pub(crate) fn answered(layer: &str, members: usize, answers: bool) -> Result<Self, String> {
        let (layer, psync) = match layer {
            MULTICAST => ("psync", "igmp ip\n psync ip window=64 group=\"239.1.1.1\""),
            layer => (layer, "psync ip window=64"),
        };
        let text = format!(
            "host \"h{{n}}\" count={members} {{\n sim link=lan\n eth sim\n arp eth\n \
             ip arp {{ address \"10.0.0.{{n+1}}/24\"; }}\n {psync}\n order psync\n \
             udp ip\n}}\nlink lan delay=\"{}us\"\n",
            DELAY.as_micros()
        );
        let mut world = sim::world(&text, SimulationConfig::default())?;
        let (heard, mut sessions) = (Rc::<Heard>::default(), Vec::new());
        for host in 0..members {
            let list = Sessions::default();
            sessions.push(Rc::clone(&list));
            let answers = answers && host > 0;
            let member = Member { heard: Rc::clone(&heard), sessions: Rc::clone(&list), answers };
            let layer = layer.to_owned();
            world.spawn(HostId(host as u32), move |cx| {
                if let Ok(opened) = join(cx, &layer, member, host, members) {
                    list.borrow_mut().extend(opened);
                }
            });
        }
        world.run_until(Time::ZERO.after(Duration::from_secs(10)));
        let mut hears_own = false;
        if layer != "udp" {
            for (host, sessions) in sessions.iter().enumerate() {
                let session = sessions.borrow().first().cloned();
                let session = session.ok_or("a member has no session")?;
                let asked = world.enter(HostId(host as u32), |cx| session.ask(cx, TakeOwn));
                hears_own = asked.flatten().is_some();
            }
        }
        let hearers = members as u64 - u64::from(!hears_own);
        Ok(Self { world, sessions, heard, hearers })
    }

    /// Has the first member send a message, and waits until it has been heard so often, with the
    /// answers.
    ///
    /// # Errors
    /// It was not.
    pub(crate) fn exchange(&mut self, octets: usize, heard: u64) -> Result<(), String> {
        let wanted = self.heard.count.get() + heard;
        self.push(0, 1, octets);
        self.wait_for(wanted)
    }

    /// Has each of these members send so many messages, and waits until all have heard them.
    ///
    /// # Errors
    /// They have not.
    pub(crate) fn send(
        &mut self,
        senders: &[usize],
        each: usize,
        octets: usize,
    ) -> Result<(), String> {
        let wanted = self.heard.count.get() + (senders.len() * each) as u64 * self.hearers;
        senders.iter().for_each(|sender| self.push(*sender, each, octets));
        self.wait_for(wanted)
    }

    fn push(&mut self, sender: usize, each: usize, octets: usize) {
        let sessions = Rc::clone(&self.sessions[sender]);
        self.world.spawn(HostId(sender as u32), move |cx| {
            let sessions = sessions.borrow().clone();
            for _ in 0..each {
                for session in &sessions {
                    if let Ok(message) = cx.pool().alloc(HEADROOM, octets) {
                        let _ = session.push(cx, message);
                    }
                }
            }
        });
    }

    fn wait_for(&mut self, wanted: u64) -> Result<(), String> {
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

    /// Frames that were sent.
    fn frames(&self) -> u64 {
        self.world.network().links().iter().map(|(_, stats)| stats.sent).sum()
    }

    /// Lets what belongs to the messages that were heard go its way.
    fn calm(&mut self) {
        self.pass(Duration::from_secs(1));
    }
}

/// The port on `udp`.
const PORT: u16 = 7;

/// Joins the conversation; the first opens it, and has the sessions.
fn join(
    cx: &Kernel,
    layer: &str,
    member: Member,
    host: usize,
    members: usize,
) -> Result<Vec<SessionRef>, OpenError> {
    let name = if layer == "udp" { Part::port(PORT) } else { Part::Number(PROCESS, 7) };
    let layer = cx.find_protocol(layer).ok_or(OpenError::NoLower)?;
    let this = cx.add_protocol("member", "member", member);
    if host > 0 {
        let _ = layer.open_enable(cx, Upper::new(&this), Participants::local(name))?;
        return Ok(Vec::new());
    }
    let peer = |at: usize| Participant::of(Part::Host([10, 0, 0, at as u8 + 1].into())).with(name);
    let peers = (1..members).map(peer);
    if name == Part::port(PORT) {
        let open = |peer| layer.open(cx, Upper::new(&this), Participants::pair(name, peer));
        return peers.map(open).collect();
    }
    let ends = Participants::among(name.into(), peers);
    Ok(vec![layer.open(cx, Upper::new(&this), ends)?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_is_heard_by_all() {
        for (words, layer) in ORDERS {
            let one = single(layer, 3, 64, 0.02).unwrap();
            let frames = if layer == MULTICAST { 1.0 } else { 2.0 };
            assert!(one[1] >= 0.5 && one[2] >= frames, "{words}: {one:?}");
            let all = stream(layer, 3, 64, 3, 0.02).unwrap();
            assert!(all[0] > 0.0, "{words}");
        }
    }
}
