//! A program that is not trusted sends what it likes: no octet outside of its own payload is its to
//! choose, and nothing changes but its own sessions.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::rc::Rc;
use std::time::Duration;

use xk_attach::{Attached, Door, Grant, Visitors};
use xk_core::control::QuestionType;
use xk_core::graph::Params;
use xk_core::message::{ATTRIBUTE_OCTETS, Attribute};
use xk_core::object::ProtocolId;
use xk_core::random::Random;
use xk_core::{Kernel, Part, Participant, Participants, ProtocolRef, SessionRef};
use xk_kit::net::stream::{StreamSet, StreamSetting};
use xk_kit::wire::offload::{self, TransportChecksum};
use xk_kit::wire::segments::{self, Segments};
use xk_kit::{attributes, questions};
use xk_share::{Carrier, Known, NOT_ALLOWED, Queue};
use xk_shm::Peer;
use xk_testkit::kernel::{Bottom, Lower, TestKernel, Top};

const OWN: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const PEER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const ENTRIES: [&xk_core::Entry; 2] = [&xk_udp::ENTRY, &xk_tcp::ENTRY];

/// Programs that have come to the door.
type Come = Rc<RefCell<VecDeque<Queue>>>;

struct Coming(Come);

impl Visitors for Coming {
    fn next(&mut self, room: bool) -> Option<(Box<dyn Carrier>, Peer)> {
        let queue = self.0.borrow_mut().pop_front().filter(|_| room)?;
        Some((Box::new(queue), Peer { uid: 1234, gid: 1234, pid: 77 }))
    }
}

/// Lets the door look at what there is.
fn look(cx: &Kernel, door: &ProtocolRef) {
    let wire = door.wire().expect("a door is looked after");
    wire.poll(cx, door, usize::MAX);
    wire.flush(cx, door);
}

/// Two transports with a door above, and a program that has come to it.
struct Rig {
    cx: TestKernel,
    bottoms: [Bottom; 2],
    transports: [ProtocolRef; 2],
    door: Rc<ProtocolRef>,
    end: Queue,
    program: Attached,
    own: Top,
}

impl Rig {
    fn new() -> Self {
        let cx = TestKernel::new(1);
        let bottoms = [17, 6]
            .map(|number| Bottom::add(&cx, &format!("below {number}"), Lower::host(OWN, number)));
        let transports = [0, 1].map(|at| {
            let lowers = [bottoms[at].protocol().clone()];
            ENTRIES[at].add(&cx, ENTRIES[at].kind, &lowers, &Params::default()).unwrap()
        });
        let come = Come::default();
        let grants = transports
            .iter()
            .map(|node| Grant { ports: Some(5000..=5999), ..Grant::new(node) })
            .collect();
        let known = || Known::of(&ENTRIES);
        let door = Door::add(&cx, "door", Box::new(Coming(Rc::clone(&come))), grants, known);
        let door = Rc::new(door);
        cx.start().expect("all start");
        let (here, end) = Queue::pair(512);
        let host = cx.share();
        end.on_put(&door, move |door, _| look(&host, door));
        come.borrow_mut().push_back(here);
        cx.advance(Duration::from_millis(20));
        look(&cx, &door);
        let kernel = TestKernel::small(1, 1 << 20, 16);
        let program = Attached::through(Box::new(end.clone()), kernel.share(), &ENTRIES);
        let program = program.expect("it is let in");
        let own = Top::add(program.kernel(), "own");
        program.join().expect("it may join");
        Self { cx, bottoms, transports, door, end, program, own }
    }

    fn node(&self, name: &str) -> ProtocolRef {
        self.program.find(name).expect("it is granted").clone()
    }

    /// A session of the program's.
    fn open(&self, node: &str) -> SessionRef {
        let ends = Participants::pair(end(OWN, 5000), end(PEER, 9));
        self.own.open(self.program.kernel(), &self.node(node), ends).expect("within its ports")
    }

    /// The octets that a push of the program with these attributes puts on the wire, whose checksum
    /// a device has completed, and how many attributes were taken off.
    fn push(
        &self,
        session: &SessionRef,
        payload: &[u8],
        attributes: &[(u32, [u8; ATTRIBUTE_OCTETS])],
    ) -> (Vec<Vec<u8>>, u64) {
        let before = self.door.head().drops().of(&NOT_ALLOWED);
        let kernel = self.program.kernel();
        let mut message = kernel.pool().copy_from(128, payload).unwrap();
        for (key, value) in attributes {
            message.set_attribute_encoded(*key, *value).unwrap();
        }
        let _ = session.push(kernel, message);
        look(&self.cx, &self.door);
        let sent = self.bottoms[0].take_sent().into_iter().map(|sent| {
            let mut message = sent.message;
            // A run lies in the payload, or a device cuts it into packets with other headers.
            if let Some(run) = segments::of(&message) {
                assert!(run.segment as usize <= payload.len(), "{run:?} has headers of others");
            }
            offload::complete(self.cx.pool(), &mut message).unwrap();
            message.octets().collect()
        });
        (sent.collect(), self.door.head().drops().of(&NOT_ALLOWED) - before)
    }

    /// Sends a question as octets to a protocol that the program is granted.
    fn ask(&self, tag: u32, number: ProtocolId, key: u32, fields: &[u8]) {
        let mut octets = vec![21, 0, 0, 0];
        octets.extend([tag, number.0, key].iter().flat_map(|word| word.to_le_bytes()));
        octets.extend([0, 0]);
        octets.extend(fields);
        let kernel = self.program.kernel();
        let body = kernel.pool().copy_from(128, &octets).unwrap();
        let _ = self.end.send(kernel, &[], &body);
        self.end.flush();
        look(&self.cx, &self.door);
        while matches!(self.end.receive(kernel), xk_share::Arrival::Frame(_)) {}
    }
}

fn end(host: Ipv4Addr, port: u16) -> Participant {
    Participant::of(Part::host(host)).with(Part::port(port))
}

/// Octets of UDP's header without its checksum, which is over the payload, too.
const UDP_FRONT: usize = 6;
const UDP_HEADER: usize = 8;

#[test]
fn no_attribute_of_a_program_reaches_beyond_its_payload() {
    let rig = Rig::new();
    let session = rig.open("udp");
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
            let run = Segments { segment, header, size };
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
    let session = rig.open("udp");
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
    let honest = Top::add(&rig.cx, "honest");
    // The SYN of a connection of the host's own, without what is of that one alone: its port and
    // number.
    let syn = |port| {
        let ends = Participants::pair(end(OWN, port), end(PEER, 80));
        honest.open(&rig.cx, &rig.transports[1], ends).expect("it opens");
        let mut sent = rig.bottoms[1].take_sent();
        let octets: Vec<u8> = sent.remove(0).message.octets().collect();
        (octets.len(), octets[12..16].to_vec(), octets[20..24].to_vec())
    };
    let (before, enables) = (syn(7000), rig.bottoms.each_ref().map(Bottom::enables));
    let own = ENTRIES.iter().flat_map(|entry| entry.questions).filter_map(|listed| listed.own);
    let all: Vec<&QuestionType> = questions::SHARED.iter().chain(own).collect();
    let random = Random::new(11);
    for node in &rig.transports {
        // What would be understood: a graph's defaults.
        let kernel = rig.program.kernel();
        for setting in [
            StreamSetting::SegmentMax(64),
            StreamSetting::ReceiveBuffer(4096),
            StreamSetting::UserTimeout(Some(Duration::from_millis(10))),
            StreamSetting::ManualWindow(true),
        ] {
            let asked = StreamSet { setting, taken: false };
            let _ = rig.node(node.name()).ask(kernel, asked);
            look(&rig.cx, &rig.door);
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
    assert_eq!(rig.bottoms.each_ref().map(Bottom::enables), enables);
}
