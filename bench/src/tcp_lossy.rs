//! The simulated part of `tcp-lossy`: streams from one host to another over a link that loses, in
//! virtual time.

use crate::case::{Sample, Trouble};
use crate::net::endpoint::FLOWS;
use crate::uppers::Sink;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use xk_compose::SimulationConfig;
use xk_core::object::{OpenError, Popped};
use xk_core::{
    Answer, Ask, Kernel, Message, Part, Participant, Participants, Protocol, ProtocolRef,
    SessionRef, Time, Upper,
};
use xk_kit::net::stream::{StreamEvent, StreamNotice, StreamSpace};
use xk_sim::{HostId, World};

/// Room for the headers of TCP, IP and Ethernet, in octets.
const HEADROOM: usize = 128;
/// Octets pushed at once.
const WRITE: usize = 16 * 1024;
/// The server's port, and the first of the client's.
const PORT: u16 = 7;
const PORT_FIRST: u16 = 20_000;
/// Virtual time in which nothing is measured yet.
const WARM: Duration = Duration::from_secs(1);

/// Pushes whenever there is room.
struct Sender;

impl Protocol for Sender {
    fn demux(&self, _: &Kernel, _: &ProtocolRef, _: &SessionRef, _: Message) -> Popped {
        Ok(())
    }

    fn control(&self, cx: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        let Some(notice) = ask.get::<StreamNotice>() else {
            return Answer::Unknown;
        };
        let session = notice.session.clone();
        if matches!(notice.event, StreamEvent::Connected | StreamEvent::Writable) {
            fill(cx, &session);
        }
        Answer::Answered
    }
}

/// Pushes as much as there is room for.
fn fill(cx: &Kernel, session: &SessionRef) {
    let has_room = || {
        let space = session.ask(cx, StreamSpace::default());
        space.is_some_and(|space| space.octets as usize >= WRITE)
    };
    while has_room() {
        let message = cx.pool().alloc(HEADROOM, WRITE);
        if !message.is_ok_and(|message| session.push(cx, message).is_ok()) {
            return;
        }
    }
}

/// Mb/s of one of the connections, of the world that `seed` makes.
///
/// # Errors
/// What could not be built.
pub(crate) fn goodput(congestion: &str, seed: u64, time: Duration) -> Result<Sample, Trouble> {
    run(congestion, seed, time).map(Sample::from).map_err(Trouble::Failed)
}

fn run(congestion: &str, seed: u64, time: Duration) -> Result<f64, String> {
    let (mut world, received) = built(congestion, seed)?;
    world.run_until(Time::ZERO + WARM);
    let before = received.get();
    world.run_until(Time::ZERO + WARM + time);
    let octets = (received.get() - before) as f64;
    Ok(octets * 8.0 / 1e6 / time.as_secs_f64() / f64::from(FLOWS))
}

/// Two hosts, the connections between them begun.
fn built(congestion: &str, seed: u64) -> Result<(World, Rc<Cell<u64>>), String> {
    let host = |name, number| {
        format!(
            "host {name} {{\n sim link=lan\n eth sim\n arp eth\n ip arp {{ address \"10.0.0.{number}/24\"; }}\n \
             tcp ip congestion={congestion}\n}}\n"
        )
    };
    let text = host("a", 1) + &host("b", 2) + "link lan delay=\"10ms\" loss=\"1%\"\n";
    let config = SimulationConfig { seed, ..SimulationConfig::default() };
    let mut world = crate::sim::world(&text, config)?;
    let received = Rc::new(Cell::new(0));
    let sink = Sink(Rc::clone(&received));
    let served = world.enter(HostId(1), |cx| serve(cx, sink));
    served.unwrap_or(Err(OpenError::NoLower)).map_err(|e| format!("nobody serves: {e}"))?;
    let opened = world.enter(HostId(0), open);
    opened.unwrap_or(Err(OpenError::NoLower)).map_err(|e| format!("nothing opens: {e}"))?;
    Ok((world, received))
}

fn serve(cx: &Kernel, sink: Sink) -> Result<(), OpenError> {
    let tcp = cx.find_protocol("tcp").ok_or(OpenError::NoLower)?;
    let sink = cx.add_protocol("sink", "sink", sink);
    let local = Participants::local(Part::port(PORT));
    tcp.open_enable(cx, Upper::new(&sink), local).map(drop)
}

fn open(cx: &Kernel) -> Result<(), OpenError> {
    let tcp = cx.find_protocol("tcp").ok_or(OpenError::NoLower)?;
    let sender = cx.add_protocol("sender", "sender", Sender);
    let at = |host: u8, port| {
        Participant::of(Part::Host([10, 0, 0, host].into())).with(Part::port(port))
    };
    for flow in 0..FLOWS {
        let ends = Participants::pair(at(1, PORT_FIRST + flow as u16), at(2, PORT));
        tcp.open(cx, Upper::new(&sender), ends)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_has_one_goodput() {
        let found = |seed| run("cubic", seed, Duration::from_secs(2)).unwrap();
        assert!(found(1) > 0.1);
        assert_eq!(found(1).to_bits(), found(1).to_bits());
        assert_ne!(found(1).to_bits(), found(2).to_bits());
    }
}
