//! An octet there and back in one process, through stacks of growing height: what each protocol
//! adds where the wire is a cable in memory, so that nothing but the protocols is measured.

use crate::cable::{HEADROOM, Host, Hosts, at};
use crate::case::Case;
use crate::rpc::pair::pair;
use crate::rpc::stacks::Stack;
use crate::stack::{config, pool};
use crate::tcp_inprocess::connects::trips as tcp_trips;
use crate::uppers::{Echo, counter};
use std::cell::Cell;
use std::hint::black_box;
use std::rc::Rc;
use std::time::Duration;
use xk_core::numbers::Number;
use xk_core::{Part, Participant, Participants, SessionRef};

/// Both hosts in one thread, with a cable in memory.
pub(super) const IN_PROCESS: &str = "xk in process";
/// Round trips of a measurement.
const TRIPS: u64 = 50_000;
/// Time between two operations, as for TCP's.
const STEP: Duration = Duration::from_micros(100);
/// The least payload of an Ethernet frame, with its header: what stands for an octet on the wire.
const FRAME_OCTETS: usize = 60;
/// The numbers of the users on ETH and IP, which are those for experiments (IEEE 802; RFC 3692).
const NUMBERS: [(&str, u32); 2] = [("eth", 0x88b5), ("ip", 253)];
const PORT: u16 = 7;

/// The protocol below the users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Top {
    Wire,
    Eth,
    Ip,
    Udp,
    Tcp,
    Rpc,
}

impl Top {
    /// A row of round trips, in nanoseconds, whose instructions are counted.
    pub(super) fn case(self, row: &str) -> Case {
        let case = Case::new(row, TRIPS, move || self.trips());
        case.of(IN_PROCESS).unit("ns")
    }

    fn trips(self) -> Box<dyn FnMut(u64)> {
        match self {
            Self::Tcp => Box::new(tcp_trips()),
            Self::Rpc => {
                let calls = pair(Stack::SunUdp, 1);
                Box::new(move |count| calls.make(count))
            }
            _ => Box::new(Pair::new(self).trips()),
        }
    }

    /// The lines on a cable, without the top's own, and the top.
    fn lines(self, number: u8) -> (String, &'static str) {
        let ip = format!("eth cable\narp eth\nip arp {{ address \"10.0.0.{number}/24\"; }}\n");
        match self {
            Self::Wire => (String::new(), "cable"),
            Self::Eth => ("eth cable\n".into(), "eth"),
            Self::Ip => (ip, "ip"),
            _ => (ip + "udp ip\n", "udp"),
        }
    }

    /// Returns the participants that the first host opens, and those that the second serves.
    fn participants(self) -> [Participants; 2] {
        let [own, peer] = match self {
            Self::Wire => return [Participants::default(), Participants::default()],
            Self::Eth => {
                let station = Participant::of(Part::Ether([2, 0, 0, 0, 0, 2]));
                [Participant::of(Part::Any), station]
            }
            Self::Ip => [1, 2].map(|host| Participant::of(Part::Host([10, 0, 0, host].into()))),
            _ => [at(5000, 1), at(PORT, 2)],
        };
        let served = if self == Self::Udp { Part::port(PORT) } else { Part::Any };
        [Participants::pair(own, peer), Participants::local(served)]
    }
}

/// Two hosts, and a session of the first one's user.
struct Pair {
    hosts: Hosts,
    session: SessionRef,
    octets: usize,
    answers: Rc<Cell<u64>>,
}

impl Pair {
    fn new(top: Top) -> Self {
        let pool = pool();
        let host = |(number, upper)| {
            let (lines, name) = top.lines(number);
            let host = Host::composed(config(&pool, number, 1 << 12), number, &lines, name, &[]);
            for (lower, number) in NUMBERS {
                let _ = host.cx.numbers_mut().add(Number { upper, lower, number });
            }
            host
        };
        let (client, answers) = counter();
        let hosts =
            Hosts::of([(1, "client"), (2, "server")].map(host), client, Echo { holds: true });
        let [opened, served] = top.participants();
        hosts.enable(served);
        let session = hosts.open_with(opened).expect("the peer is on the link");
        let octets = if top == Top::Wire { FRAME_OCTETS } else { 1 };
        let pair = Self { hosts, session, octets, answers };
        // The first message waits for address resolution.
        pair.trip();
        assert_eq!(pair.answers.get(), 1, "{top:?}: the pair has connected");
        pair
    }

    #[inline]
    fn trip(&self) {
        self.hosts.pass(STEP);
        let cx = &self.hosts.a.cx;
        if let Ok(message) = cx.pool().alloc(HEADROOM, self.octets) {
            let _ = self.session.push(cx, black_box(message));
        }
        self.hosts.carry();
    }

    fn trips(self) -> impl FnMut(u64) {
        move |count| {
            let before = self.answers.get();
            (0..count).for_each(|_| self.trip());
            assert_eq!(self.answers.get() - before, count, "all answers came");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn octets_come_back_through_every_stack() {
        for top in [Top::Wire, Top::Eth, Top::Ip, Top::Udp, Top::Tcp, Top::Rpc] {
            top.trips()(100);
        }
    }
}
