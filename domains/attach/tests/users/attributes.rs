//! A program that is not trusted sends what it likes: no octet outside of its own payload is its to
//! choose, and nothing changes but its own sessions.

use std::time::Duration;

use xk_core::control::QuestionType;
use xk_core::message::{ATTRIBUTE_OCTETS, Attribute};
use xk_core::object::ProtocolId;
use xk_core::random::Random;
use xk_core::{Participants, SessionRef};
use xk_domains::{Carrier, NOT_ALLOWED};
use xk_kit::net::stream::{StreamSet, StreamSetNext, StreamSetting};
use xk_kit::wire::offload::{self, TransportChecksum};
use xk_kit::wire::segments::{self, NetworkHeader, Segments};
use xk_kit::{attributes, questions};
use xk_testkit::kernel::Bottom;

use crate::rig::{ENTRIES, HONEST, HOSTILE, Host, OWN, PEER, PORT, Program, end, look};

/// A host and a program that has come to it.
struct Rig {
    host: Host,
    program: Program,
}

impl Rig {
    fn new() -> Self {
        let host = Host::new();
        let program = host.program(HOSTILE).expect("it is let in");
        Self { host, program }
    }

    /// A session of the program's on UDP.
    fn open(&self) -> SessionRef {
        self.program.open("udp", PORT).expect("within its ports")
    }

    /// The octets that a push of the program with these attributes puts on the wire, whose checksum
    /// a device has completed, and how many attributes were taken off.
    fn push(
        &self,
        session: &SessionRef,
        payload: &[u8],
        attributes: &[(u32, [u8; ATTRIBUTE_OCTETS])],
    ) -> (Vec<Vec<u8>>, u64) {
        let before = self.host.door.head().drops().of(&NOT_ALLOWED);
        let kernel = self.program.kernel();
        let mut message = kernel.pool().copy_from(128, payload).unwrap();
        for (key, value) in attributes {
            message.set_attribute_encoded(*key, *value).unwrap();
        }
        let _ = session.push(kernel, message);
        look(&self.host.cx, &self.host.door);
        let sent = self.host.bottoms[0].take_sent().into_iter().map(|sent| {
            let mut message = sent.message;
            // A run lies in the payload, or a device cuts it into packets with other headers.
            if let Some(run) = segments::of(&message) {
                assert!(run.segment as usize <= payload.len(), "{run:?} has headers of others");
            }
            offload::complete(self.host.cx.pool(), &mut message).unwrap();
            message.octets().collect()
        });
        (sent.collect(), self.host.door.head().drops().of(&NOT_ALLOWED) - before)
    }

    /// Sends a question as octets to a protocol that the program is granted.
    fn ask(&self, tag: u32, number: ProtocolId, key: u32, fields: &[u8]) {
        let mut octets = vec![21, 0, 0, 0];
        octets.extend([tag, number.0, key].iter().flat_map(|word| word.to_le_bytes()));
        octets.extend([0, 0]);
        octets.extend(fields);
        let kernel = self.program.kernel();
        let body = kernel.pool().copy_from(128, &octets).unwrap();
        let _ = self.program.end.send(kernel, &[], &body);
        self.program.end.flush();
        look(&self.host.cx, &self.host.door);
        while matches!(self.program.end.receive(kernel), xk_domains::Arrival::Frame(_)) {}
    }
}

/// Octets of UDP's header without its checksum, which is over the payload, too.
const UDP_FRONT: usize = 6;
const UDP_HEADER: usize = 8;

#[test]
fn no_attribute_of_a_program_reaches_beyond_its_payload() {
    let rig = Rig::new();
    let session = rig.open();
    // What looks like a header of TCP at its front.
    let mut payload = [7u8; 100];
    payload[12] = 5 << 4;
    let (plain, _) = rig.push(&session, &payload, &[]);
    let plain = &plain[0];
    let see = |attributes: &[(u32, [u8; ATTRIBUTE_OCTETS])]| {
        let (sent, _) = rig.push(&session, &payload, attributes);
        for packet in sent {
            assert_eq!(packet.len(), plain.len(), "{attributes:?}");
            assert_eq!(packet[..UDP_FRONT], plain[..UDP_FRONT], "{attributes:?}");
            let sum = [6, 7].map(|at| packet[at] == plain[at]);
            let is_changed = packet[UDP_HEADER..] != plain[UDP_HEADER..];
            assert!(sum == [true; 2] || is_changed, "{attributes:?}");
        }
    };
    // Each place in front of the payload and in it.
    for segment in 0..payload.len() as u32 + 64 {
        for field in [0, 2, 4, 6, 16, segment.saturating_sub(2) as u16, u16::MAX] {
            let partial = TransportChecksum::Partial { segment, field };
            see(&[(TransportChecksum::KEY, partial.encode())]);
        }
        for (header, size) in [(0, 1), (8, 10), (20, 0), (20, 1), (20, 40), (u16::MAX, u16::MAX)] {
            let run = Segments { segment, header, size, network: NetworkHeader::ipv4(20) };
            see(&[(Segments::KEY, run.encode())]);
        }
    }
    // Any value of each, and of keys that are none.
    let random = Random::new(7);
    let keys = attributes::SHARED.iter().map(|kind| kind.key);
    for key in keys.chain([0, 1, u32::MAX]) {
        for round in 0..200 {
            let mut value = [0u8; ATTRIBUTE_OCTETS];
            for octet in &mut value {
                // Small numbers as often as large ones.
                *octet =
                    if round % 2 == 0 { random.next_u32() as u8 } else { random.below(3) as u8 };
            }
            see(&[(key, value)]);
        }
    }
}

#[test]
fn what_a_program_may_not_send_is_counted_and_the_rest_stays() {
    let rig = Rig::new();
    let session = rig.open();
    let payload = [7u8; 100];
    let count = |attribute: &dyn Fn() -> (u32, [u8; ATTRIBUTE_OCTETS])| {
        rig.push(&session, &payload, &[attribute()]).1
    };
    let partial = |segment, field| {
        let partial = TransportChecksum::Partial { segment, field };
        (TransportChecksum::KEY, partial.encode())
    };
    assert_eq!(count(&|| partial(100, 98)), 0, "all of it within the payload");
    assert_eq!(count(&|| partial(101, 0)), 1, "an octet of the header's");
    assert_eq!(count(&|| partial(100, 99)), 1, "beyond the end");
    assert_eq!(count(&|| (TransportChecksum::KEY, TransportChecksum::Verified.encode())), 1);
    assert_eq!(count(&|| (xk_kit::rpc::call::Caller::KEY, [1; ATTRIBUTE_OCTETS])), 1);
    assert_eq!(count(&|| (77, [0; ATTRIBUTE_OCTETS])), 1, "of no protocol that all know");
}

#[test]
fn what_a_program_asks_of_a_protocol_changes_nothing() {
    let rig = Rig::new();
    let host = &rig.host;
    let honest = host.top("honest");
    // The SYN of a connection of the host's own, without what is of that one alone: its port and
    // number.
    let syn = |port| {
        let ends = Participants::pair(end(OWN, port), end(PEER, 80));
        honest.open(&host.cx, &host.transports[1], ends).expect("it opens");
        let mut sent = host.bottoms[1].take_sent();
        let octets: Vec<u8> = sent.remove(0).message.octets().collect();
        (octets.len(), octets[12..16].to_vec(), octets[20..24].to_vec())
    };
    let (before, enables) = (syn(7000), host.bottoms.each_ref().map(Bottom::enables));
    let own = ENTRIES.iter().flat_map(|entry| entry.questions).filter_map(|listed| listed.own);
    let all: Vec<&QuestionType> = questions::SHARED.iter().chain(own).collect();
    let random = Random::new(11);
    for node in &host.transports {
        // What would be understood: a graph's defaults.
        let kernel = rig.program.kernel();
        for setting in [
            StreamSetting::SegmentMax(64),
            StreamSetting::ReceiveBuffer(4096),
            StreamSetting::UserTimeout(Some(Duration::from_millis(10))),
            StreamSetting::ManualWindow(true),
        ] {
            let asked = StreamSet { setting, taken: false };
            let _ = rig.program.node(node.name()).ask(kernel, asked);
            look(&host.cx, &host.door);
        }
        for kind in &all {
            for round in 0..24 {
                let fields: Vec<u8> =
                    (0..random.below(40)).map(|_| random.below(256) as u8).collect();
                let fields = if round == 0 { Vec::new() } else { fields };
                // Without a tag nothing is answered.
                rig.ask(
                    if round % 2 == 0 { 0 } else { 1 << 16 | round },
                    node.id(),
                    kind.key,
                    &fields,
                );
            }
        }
    }
    assert_eq!(syn(7001), before, "of the next connection");
    assert_eq!(host.bottoms.each_ref().map(Bottom::enables), enables);
}

#[test]
fn what_a_program_says_of_its_next_session_is_of_that_alone() {
    let host = Host::new();
    let (one, other) = (host.program(HOSTILE).unwrap(), host.program(HONEST).unwrap());
    let top = host.top("top");
    // The largest segment that a SYN announces (RFC 9293, section 3.7.1).
    let announced = || {
        let syn = host.bottoms[1].take_sent().remove(0).message;
        let octets: Vec<u8> = syn.octets().collect();
        assert_eq!(octets[20..22], [2, 4], "the option is the first");
        u16::from_be_bytes([octets[22], octets[23]])
    };
    let of = |program: &Program, port| {
        program.open("tcp", port).expect("within its ports");
        announced()
    };
    let of_host = |port| {
        let ends = Participants::pair(end(OWN, port), end(PEER, 80));
        top.open(&host.cx, &host.transports[1], ends).expect("it opens");
        announced()
    };
    let usual = of_host(7000);
    let says = |program: &Program, octets| {
        let set = StreamSet { setting: StreamSetting::SegmentMax(octets), taken: false };
        let asked = program.node("tcp").ask(program.kernel(), StreamSetNext { set });
        assert!(asked.expect("it is answered").set.taken);
    };
    says(&one, 700);
    assert_eq!((of(&other, PORT), of_host(7001)), (usual, usual), "of others");
    says(&other, 800);
    assert_eq!((of(&one, PORT + 1), of(&other, PORT + 2)), (700, 800));
    assert_eq!((of(&one, PORT + 3), of(&other, PORT + 4)), (usual, usual), "of those behind");
    // What users say that open nothing is forgotten, not kept without bound.
    for uid in 0..1000 {
        let program = host.program(10_000 + uid).expect("it is let in");
        says(&program, 700);
        program.goes(&host);
    }
    assert_eq!(of_host(7002), usual);
}
