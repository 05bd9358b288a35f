//! The module as a wire: the laws of wires, what stands on it and ends, and what a device of this
//! machine leaves open.

use std::rc::Rc;
use xk_core::object::ProtocolId;
use xk_core::{Kernel, Message, Participants, ProtocolRef, SessionRef, reason};
use xk_domains::{Arrival, Carrier, Queue};
use xk_kit::net::checksum::checksum;
use xk_kit::net::template::{Check, HeaderField, Headers, OCTETS_MAX};
use xk_kit::wire::offload::{self, TransportChecksum};
use xk_kit::wire::segments::{self, NetworkHeader, RUN_PACKETS_MAX, Segments};
use xk_kit::wire::virtio::Note;
use xk_netio::{GrantChannel, GrantRight, ListRights, Module, Noted, Rate};
use xk_testkit::conformance::wire::{self, WireFixture};
use xk_testkit::kernel::{Bottom, Lower, TestKernel, Top, octets};

const OURS: [u8; 6] = [2, 0, 0, 0, 0, 1];
const FREELY: Rate = Rate { octets_per_second: 1 << 40, burst_octets: 1 << 40 };

/// A module on a tap, with nothing on it yet.
struct Host {
    cx: TestKernel,
    tap: Bottom,
    netio: ProtocolRef,
    module: Rc<Module>,
}

impl Host {
    fn new() -> Self {
        let cx = TestKernel::new(8);
        let tap = Bottom::add(&cx, "tap", Lower::wire(OURS));
        let (netio, module) = xk_netio::add(&cx, "netio", tap.protocol().clone());
        cx.start().expect("it starts");
        Self { cx, tap, netio, module }
    }

    /// A program with a right to these headers.
    fn program(&self, headers: Headers) -> Queue {
        self.program_behind(headers, |own| Box::new(own))
    }

    /// As [`program`](Self::program), the module's end in this.
    fn program_behind(
        &self,
        headers: Headers,
        behind: impl FnOnce(Queue) -> Box<dyn Carrier>,
    ) -> Queue {
        let granted = self.netio.ask(&self.cx, GrantChannel::new(FREELY)).expect("it is known");
        let of = (ProtocolId(7), Participants::default());
        let right = GrantRight { channel: granted.number, headers, of, number: None };
        assert!(self.netio.ask(&self.cx, right).is_some_and(|right| right.number.is_some()));
        let (own, program) = Queue::pair(256);
        let ticket = granted.ticket.expect("there is room");
        assert!(self.module.attach(&self.cx, &ticket, behind(own)).is_ok());
        program
    }

    fn top(&self, name: &str) -> (Top, SessionRef) {
        let top = Top::add(&self.cx, name);
        let session = top.open(&self.cx, &self.netio, Participants::default());
        (top, session.expect("nothing stands on the module"))
    }

    fn arrives(&self, message: Message) {
        assert!(self.tap.inject(&self.cx, None, message), "the module has the wire");
    }

    /// Checks that a program sends and receives, and that the protocol above the module gets none
    /// of it.
    fn serves(&self, program: &Queue, what: &str) {
        drop(self.tap.take_sent());
        program.send(&self.cx, &[1, 2, 3], &self.cx.message(&[])).expect("there is room");
        self.module.carry_all(&self.cx, 64);
        let sent: Vec<_> = self.tap.take_sent().iter().map(|s| octets(&s.message)).collect();
        assert_eq!(sent, [[1, 2, 3]], "{what}");
        self.arrives(self.cx.message(&[1, 2, 9]));
        let arrival = program.receive(&self.cx);
        assert!(matches!(arrival, Arrival::Frame(got) if got.eq_octets(&[1, 2, 9])), "{what}");
    }
}

impl WireFixture for Host {
    fn cx(&self) -> &Kernel {
        &self.cx
    }

    fn wire(&self) -> &ProtocolRef {
        &self.netio
    }

    fn arrive(&self, octets: &[u8]) {
        self.arrives(self.cx.message(octets));
    }

    /// Stands on the test's tap, which does not say.
    fn knows_room(&self) -> bool {
        false
    }
}

#[test]
fn keeps_the_laws_of_wires() {
    wire::all(Host::new);
}

fn plain() -> Headers {
    Headers::of_wire(1500).with((&[1, 2], &[]), (&[1, 2], &[])).expect("a template")
}

/// The protocol that granted a right may end in any way, and another take its place: the program
/// goes on before, meanwhile and after.
#[test]
fn channels_are_as_they_were_whatever_stands_on_the_module() {
    let host = Host::new();
    let program = host.program(plain());
    host.serves(&program, "before anything stands on it");
    for round in 0..3 {
        let (top, session) = host.top(&format!("top {round}"));
        let enable =
            (round == 1).then(|| top.enable(&host.cx, &host.netio, Participants::default()));
        host.serves(&program, "below a protocol");
        host.arrives(host.cx.message(&[7]));
        assert_eq!((top.received(), session.push(&host.cx, host.cx.message(&[8]))), (1, Ok(())));
        if let Some(Ok(enable)) = enable {
            host.netio.open_disable(&host.cx, enable);
        }
        // As a cut does it for a side that has died.
        session.abort(&host.cx);
        host.serves(&program, "when that has ended");
        let drops = host.netio.head().drops().of(&reason::NO_PROTOCOL);
        host.arrives(host.cx.message(&[7]));
        assert_eq!(host.netio.head().drops().of(&reason::NO_PROTOCOL), drops + 1);
    }
    let listed = host.netio.ask(&host.cx, ListRights::default()).expect("it is known");
    assert_eq!(listed.rights.len(), 1, "the one that comes back hears of it");
}

/// The wire is the module's from the start.
#[test]
fn a_program_needs_nothing_to_stand_on_the_module() {
    let host = Host::new();
    let program = host.program(plain());
    host.serves(&program, "alone");
    host.cx.stop();
    assert!(program.send(&host.cx, &[1, 2], &host.cx.message(&[])).is_err(), "all has ended");
    assert_eq!(host.tap.held().len(), 0, "the wire is given back");
}

/// Ethernet, IPv4 without options, TCP without options.
const HEADERS: usize = 14 + 20 + 20;
const SIZE: usize = 1460;

/// A segment from port 7 with so much payload, or a run of several, its sum left open.
fn segment(payload: usize) -> Vec<u8> {
    let mut octets = vec![0; HEADERS];
    octets[12..14].copy_from_slice(&[8, 0]);
    octets[14..18].copy_from_slice(&[0x45, 0, 0, 0]);
    octets[16..18].copy_from_slice(&((40 + payload) as u16).to_be_bytes());
    octets[22..24].copy_from_slice(&[64, 6]);
    octets[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    let sum = checksum(&octets[14..34]);
    octets[24..26].copy_from_slice(&sum.to_be_bytes());
    octets[34..38].copy_from_slice(&[0, 7, 0, 9]);
    octets[46] = 0x50;
    let pseudo = pseudo(20 + payload);
    octets[50..52].copy_from_slice(&(!checksum(&pseudo)).to_be_bytes());
    octets.extend((0..payload).map(|n| (n % 251) as u8));
    octets
}

fn pseudo(segment: usize) -> Vec<u8> {
    let [high, low] = (segment as u16).to_be_bytes();
    vec![10, 0, 0, 1, 10, 0, 0, 2, 0, 6, high, low]
}

/// A right to all that comes from port 7.
fn from_port_7() -> Headers {
    let mut octets = segment(0);
    octets.truncate(HEADERS);
    let free = |at, count| (at, HeaderField::Free(count));
    let length = (16, HeaderField::Length { from: 14 });
    let fields = [length, free(18, 2), free(24, 2), free(38, 8), free(47, 7)];
    Headers::of_wire(1514).with((&octets, &fields), (&octets, &fields)).expect("a template")
}

/// A frame of port 7 as a device has left it: its sum open, and a run if it is long.
fn left_open(cx: &TestKernel, payload: usize) -> Message {
    let mut run = cx.message(&segment(payload));
    let segment = 20 + payload as u32;
    run.set_attribute(TransportChecksum::Partial { segment, field: 16 }).expect("room");
    if payload > SIZE {
        let segments =
            Segments { segment, header: 20, size: SIZE as u16, network: NetworkHeader::ipv4(20) };
        run.set_attribute(segments).expect("room");
    }
    run
}

/// The octets of a message, and what it says besides.
fn all_of(message: &Message) -> (Vec<u8>, Option<TransportChecksum>, Option<Segments>) {
    (octets(message), message.attribute(), message.attribute())
}

/// A channel with notes takes frames there and back as they are, whole runs of segments too: what
/// goes by the module loses nothing to what has the device.
#[test]
fn a_channel_with_notes_brings_what_a_device_has_left_open() {
    let host = Host::new();
    let program = Noted(host.program_behind(from_port_7(), |own| Box::new(Noted(own))));
    for payload in [0, 1, SIZE, SIZE + 1, 2 * SIZE, 40_000, 64 * 1000] {
        let frame = || left_open(&host.cx, payload);
        host.arrives(frame());
        let Arrival::Frame(came) = program.receive(&host.cx) else {
            panic!("{payload} octets of payload did not arrive");
        };
        assert_eq!(all_of(&came), all_of(&frame()), "{payload} octets");
        assert!(matches!(program.receive(&host.cx), Arrival::Nothing), "as one frame");
        program.send(&host.cx, &[], &frame()).expect("there is room");
        host.module.carry_all(&host.cx, 64);
        let sent: Vec<_> = host.tap.take_sent().iter().map(|sent| all_of(&sent.message)).collect();
        assert_eq!(sent, [all_of(&frame())], "{payload} octets");
    }
    assert_eq!(host.netio.head().drops().total(), 0);
}

/// Whatever a program notes, what the wire makes of its frames is as it was granted.
#[test]
fn a_note_changes_nothing_that_was_granted() {
    let host = Host::new();
    let check = Check::new(&from_port_7().sent);
    let mut noted = host.program_behind(from_port_7(), |own| Box::new(Noted(own)));
    let note = |start, field, size| match size {
        0 => Note::Partial { start, field },
        size => Note::Run { start, field, header_octets: 54, segment_octets: size, reduced: false },
    };
    let mut carried = 0;
    for payload in [0, 40, SIZE, SIZE + 1, 4 * SIZE, 65_000] {
        for size in [0, 1, 40, SIZE as u16 - 1, SIZE as u16, SIZE as u16 + 1, u16::MAX] {
            for (start, field) in (0..60).flat_map(|at| [(34, at), (at, 16), (26, at), (at, at)]) {
                let frame = segment(payload);
                let octets = note(start, field, size).emit();
                if noted.send(&host.cx, &octets, &host.cx.message(&frame)).is_err() {
                    // Revoked, as it deserves: the next one.
                    noted = host.program_behind(from_port_7(), |own| Box::new(Noted(own)));
                }
                while host.module.carry_all(&host.cx, 64) > 0 {}
                for sent in host.tap.take_sent() {
                    let packets = match segments::of(&sent.message) {
                        Some(run) => {
                            assert!(run.packets() <= RUN_PACKETS_MAX, "{payload} {size}");
                            let packets = segments::split(sent.message).expect("it can be cut");
                            packets.map(|packet| packet.expect("there is room")).collect()
                        }
                        None => vec![sent.message],
                    };
                    for mut packet in packets {
                        offload::complete(host.cx.pool(), &mut packet).expect("there is room");
                        let octets = xk_testkit::kernel::octets(&packet);
                        let front = &octets[..octets.len().min(OCTETS_MAX)];
                        let what = (payload, size, start, field);
                        assert!(check.admits(front, octets.len()), "{what:?}");
                        assert_eq!(checksum(&octets[14..34]), 0, "{what:?}");
                        carried += 1;
                    }
                }
            }
        }
    }
    assert!(carried > 1000, "{carried}");
}

/// A program without notes gets octets alone, as they would be on a wire.
#[test]
fn what_a_device_has_left_open_is_finished_for_a_program() {
    let host = Host::new();
    let (top, _session) = host.top("top");
    let program = host.program(from_port_7());
    for payload in [0, 1, SIZE, SIZE + 1, 2 * SIZE, 40_000] {
        host.arrives(left_open(&host.cx, payload));
        let mut came = Vec::new();
        while let Arrival::Frame(frame) = program.receive(&host.cx) {
            let frame = octets(&frame);
            assert!(frame.len() <= 1514 && !frame.is_empty());
            let sum = checksum(&[&pseudo(frame.len() - 34)[..], &frame[34..]].concat());
            assert_eq!((sum, checksum(&frame[14..34])), (0, 0), "its sums are there");
            came.extend_from_slice(&frame[HEADERS..]);
        }
        let sent: Vec<u8> = (0..payload).map(|n| (n % 251) as u8).collect();
        assert_eq!((came, top.received()), (sent, 0), "{payload} octets");
    }
    // A run that is for no program stays one.
    let mut other = segment(9000);
    other[35] = 8;
    let mut run = host.cx.message(&other);
    let of_run =
        Segments { segment: 9020, header: 20, size: SIZE as u16, network: NetworkHeader::ipv4(20) };
    run.set_attribute(of_run).expect("room");
    run.set_attribute(TransportChecksum::Partial { segment: 9020, field: 16 }).expect("room");
    host.arrives(run);
    let received = top.take_received();
    assert_eq!(received.len(), 1);
    assert!(received[0].message.len() == HEADERS + 9000 && received[0].message.has_attributes());
}
