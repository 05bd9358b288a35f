//! The network I/O module: templates against frames, beside a model that looks at each bit.

use crate::harness::{Script, build, number};
use crate::novelty;
use std::rc::Rc;
use xk_core::graph::Params;
use xk_core::object::ProtocolId;
use xk_core::{Part, Participants, ProtocolRef};
use xk_domains::{Arrival, Carrier, Queue};
use xk_kit::net::template::{HeaderField, Headers, OCTETS_MAX, Template};
use xk_netio::{GrantChannel, GrantRight, Module, Rate, RevokeRight, VIOLATIONS_MAX};
use xk_testkit::kernel::{Bottom, Lower, TestKernel, Top, octets};

const OWN: [u8; 6] = [2, 0, 0, 0, 0, 1];
const FREELY: Rate = Rate { octets_per_second: 1 << 40, burst_octets: 1 << 40 };
/// Channels of one input at most, so that none waits for its turn.
const CHANNELS_MAX: usize = 4;
/// Shapes of headers that a set of rules bears, as the module has it.
const SHAPES_MAX: usize = 16;

/// Octets of a template's headers, and what lies in them.
type Parts = (Vec<u8>, Vec<(u8, HeaderField)>, u32, u32);

/// A template, and what it was made of.
#[derive(Clone)]
struct Model {
    template: Template,
    parts: Parts,
    /// The bits that are as they are in all.
    shape: Vec<usize>,
}

impl Model {
    /// One that a script describes, if it is one.
    fn of(script: &Script) -> Option<Self> {
        let header = script.take(usize::from(script.octet()? % 48)).to_vec();
        let mut fields = Vec::new();
        for _ in 0..script.octet()? % 5 {
            let (at, kind, first, second) =
                (script.octet()?, script.octet()?, script.octet()?, script.octet()?);
            let field = match kind % 6 {
                0 => HeaderField::Free(first),
                1 => HeaderField::Bits(first),
                2 => HeaderField::Peer(first),
                3 => HeaderField::Length { from: first },
                4 => HeaderField::HeaderSum { from: first, octets: second },
                _ => HeaderField::Sum { from: first, pseudo: u16::from(second) },
            };
            fields.push((at, field));
        }
        let (padded, max) = (script.octet()?, script.octet()?);
        // With 0 there is no message at all.
        let all = if max == 0 { 0 } else { header.len() + usize::from(max) };
        let template = Template::wire(all).header(&header, &fields)?.padded_to(padded.into());
        let padded = header.len() as u32 + u32::from(padded);
        let parts = (header, fields, padded, all as u32);
        let mut model = Self { template, parts, shape: Vec::new() };
        model.shape = (0..8 * OCTETS_MAX).filter(|bit| model.is_alike(*bit)).collect();
        Some(model)
    }

    /// Whether this bit of a frame, from the most significant one of its octet on, is as it is in
    /// all.
    fn is_alike(&self, bit: usize) -> bool {
        let (header, fields, ..) = &self.parts;
        let within = |at: u8, octets: usize| {
            (usize::from(at)..usize::from(at) + octets).contains(&(bit / 8))
        };
        bit / 8 < header.len()
            && fields.iter().all(|(at, field)| match *field {
                HeaderField::Peer(_) => true,
                HeaderField::Free(octets) => !within(*at, octets.into()),
                HeaderField::Bits(mask) => !within(*at, 1) || mask << (bit % 8) & 0x80 != 0,
                _ => !within(*at, 2),
            })
    }

    fn value(&self) -> Vec<bool> {
        self.shape.iter().map(|bit| bit_of(&self.parts.0, *bit)).collect()
    }

    fn is_nothing(&self) -> bool {
        self.parts.3 == 0
    }

    fn fits(&self, frame: &[u8]) -> bool {
        let (header, fields, padded, max) = &self.parts;
        let is_long_enough = (header.len()..=*max as usize).contains(&frame.len());
        if self.is_nothing() || !is_long_enough {
            return false;
        }
        if !self.shape.iter().all(|bit| bit_of(frame, *bit) == bit_of(header, *bit)) {
            return false;
        }
        let ends: Vec<usize> = fields
            .iter()
            .filter_map(|(at, field)| match field {
                HeaderField::Length { from } => {
                    let at = usize::from(*at);
                    Some(
                        usize::from(*from)
                            + (usize::from(frame[at]) << 8)
                            + usize::from(frame[at + 1]),
                    )
                }
                _ => None,
            })
            .collect();
        let padding =
            |end| (header.len()..frame.len()).contains(&end) && frame.len() <= *padded as usize;
        ends.iter().all(|end| *end == ends[0] && (*end == frame.len() || padding(*end)))
    }
}

fn bit_of(octets: &[u8], bit: usize) -> bool {
    octets.get(bit / 8).is_some_and(|octet| octet << (bit % 8) & 0x80 != 0)
}

/// Whether one more template finds room beside others: none says as much, and there are not too
/// many shapes.
fn has_room<'a>(others: impl Iterator<Item = &'a Model> + Clone, one: &Model) -> bool {
    let others = others.filter(|other| !other.is_nothing());
    if one.is_nothing() {
        return true;
    }
    let mut shapes: Vec<&[usize]> = others.clone().map(|other| &other.shape[..]).collect();
    let is_known = shapes.contains(&&one.shape[..]);
    shapes.sort_unstable();
    shapes.dedup();
    let mut alike = others.filter(|other| other.shape == one.shape);
    alike.all(|other| other.value() != one.value()) && (is_known || shapes.len() < SHAPES_MAX)
}

struct Right {
    number: u32,
    channel: u32,
    sent: Model,
    received: Model,
}

struct Channel {
    number: u32,
    program: Queue,
    forged: u32,
}

struct World {
    cx: TestKernel,
    tap: Bottom,
    netio: ProtocolRef,
    module: Rc<Module>,
    eth: ProtocolRef,
    channels: Vec<Channel>,
    rights: Vec<Right>,
}

/// Lets `data` say which channels and rights are granted and revoked, and which frames are sent and
/// arrive. What is granted, what goes out, and where to what arrives goes is as the model says.
pub(crate) fn rights(data: &[u8]) {
    let cx = TestKernel::small(1, 1 << 20, 64);
    let tap = Bottom::add(&cx, "tap", Lower::wire(OWN));
    let (netio, module) = xk_netio::add(&cx, "netio", tap.protocol().clone());
    let eth = build(&cx, &xk_eth::ENTRY, core::slice::from_ref(&netio), &Params::default());
    let top = Top::add(&cx, "top");
    number(&cx, "top", "eth", 0x88b5);
    cx.start().expect("the graph starts");
    // The module knows its wire by what passes.
    let session = top.open(&cx, &eth, Participants::pair(Part::Any, Part::Ether([2; 6])));
    let session = session.expect("there is room");
    session.push(&cx, cx.message(b"passes")).expect("it goes");
    drop(tap.take_sent());
    let (channels, rights) = (Vec::new(), Vec::new());
    let mut world = World { cx, tap, netio, module, eth, channels, rights };
    let script = Script::new(data);
    world.grant_channel();
    while let Some(kind) = script.octet() {
        match kind & 7 {
            0 => world.grant_channel(),
            1 => world.revoke_channel(script.octet_or_zero()),
            2 | 3 => world.grant_right(kind >> 3, &script),
            4 => world.revoke_right(script.octet_or_zero()),
            5 | 6 => world.send(kind >> 3, &script),
            _ => world.arrive(&script),
        }
    }
    novelty::note(&(world.channels.len(), world.rights.len().min(20)));
    session.close(&world.cx);
    let World { cx, tap, netio, module, eth, .. } = world;
    drop((netio, module, eth, top, session));
    cx.stop();
    drop(tap.take_sent());
    assert_eq!(cx.live(), (0, 0), "messages are left");
}

impl World {
    fn grant_channel(&mut self) {
        if self.channels.len() == CHANNELS_MAX {
            return;
        }
        let question = GrantChannel::new(FREELY);
        let granted = self.netio.ask(&self.cx, question).expect("the module knows it");
        let (own, program) = Queue::pair(64);
        let ticket = granted.ticket.expect("there is room");
        assert!(self.module.attach(&self.cx, &ticket, Box::new(own)).is_ok(), "its ticket");
        self.channels.push(Channel { number: granted.number, program, forged: 0 });
    }

    /// The place of a channel.
    fn channel(&self, which: u8) -> Option<usize> {
        usize::from(which).checked_rem(self.channels.len())
    }

    fn forget(&mut self, at: usize) {
        let channel = self.channels.remove(at);
        self.rights.retain(|right| right.channel != channel.number);
        assert!(channel.program.is_lost(&self.cx), "its program hears of it");
    }

    fn revoke_channel(&mut self, which: u8) {
        if let Some(at) = self.channel(which) {
            assert!(self.module.revoke(self.channels[at].number), "it was there");
            self.forget(at);
        }
    }

    fn grant_right(&mut self, which: u8, script: &Script) {
        let (Some(at), Some(sent)) = (self.channel(which), Model::of(script)) else {
            return;
        };
        let received = match script.octet_or_zero() & 1 {
            0 => sent.clone(),
            _ => match Model::of(script) {
                Some(received) => received,
                None => return,
            },
        };
        let channel = self.channels[at].number;
        let headers = Headers { sent: sent.template.clone(), received: received.template.clone() };
        let of = (ProtocolId(7), Participants::default());
        let question = GrantRight { channel, headers, of, number: None };
        let granted = self.netio.ask(&self.cx, question).expect("the module knows it").number;
        let of_channel = self.rights.iter().filter(|right| right.channel == channel);
        let has_room = has_room(self.rights.iter().map(|right| &right.received), &received)
            && has_room(of_channel.map(|right| &right.sent), &sent);
        assert_eq!(
            granted.is_some(),
            has_room,
            "{sent}, {received}",
            sent = sent.template,
            received = received.template
        );
        if let Some(number) = granted {
            self.rights.push(Right { number, channel, sent, received });
        }
    }

    fn revoke_right(&mut self, which: u8) {
        let Some(at) = usize::from(which).checked_rem(self.rights.len()) else {
            return;
        };
        let number = self.rights.swap_remove(at).number;
        let question = RevokeRight { number, was_there: false };
        assert!(self.netio.ask(&self.cx, question).is_some_and(|answer| answer.was_there));
    }

    /// A frame near to what a right says: its headers, some octets changed, of a length that fits
    /// or does not.
    fn frame(&self, script: &Script, of: impl Fn(&Right) -> &Model) -> Vec<u8> {
        let which = script.octet_or_zero();
        let at = usize::from(which).checked_rem(self.rights.len());
        let (mut frame, fields) = at.map_or_else(Default::default, |at| {
            let (header, fields, ..) = &of(&self.rights[at]).parts;
            (header.clone(), fields.clone())
        });
        frame.extend(vec![7; usize::from(script.octet_or_zero()) % 80]);
        let changes = script.octet_or_zero();
        if changes & 8 == 0 {
            for (at, field) in fields {
                if let HeaderField::Length { from } = field {
                    let padding = usize::from(changes >> 4);
                    let length = frame.len().saturating_sub(usize::from(from) + padding) as u16;
                    frame[usize::from(at)..][..2].copy_from_slice(&length.to_be_bytes());
                }
            }
        }
        for _ in 0..changes & 3 {
            let (at, to) = (script.octet_or_zero(), script.octet_or_zero());
            if let Some(octet) = frame.get_mut(usize::from(at)) {
                *octet ^= to;
            }
        }
        if changes & 4 != 0 {
            frame.truncate(script.octet_or_zero().into());
        }
        frame
    }

    fn send(&mut self, which: u8, script: &Script) {
        let Some(at) = self.channel(which) else {
            return;
        };
        let frame = self.frame(script, |right| &right.sent);
        let (number, empty) = (self.channels[at].number, self.cx.message(&[]));
        self.channels[at].program.send(&self.cx, &frame, &empty).expect("there is room");
        while self.module.carry_all(&self.cx, 64) > 0 {}
        let carried: Vec<Vec<u8>> =
            self.tap.take_sent().iter().map(|sent| octets(&sent.message)).collect();
        let mut own = self.rights.iter().filter(|right| right.channel == number);
        let is_granted = own.any(|right| right.sent.fits(&frame));
        assert_eq!(carried, if is_granted { vec![frame] } else { vec![] });
        novelty::note(&is_granted);
        if !is_granted {
            self.channels[at].forged += 1;
            if self.channels[at].forged == VIOLATIONS_MAX {
                self.forget(at);
            }
        }
    }

    fn arrive(&self, script: &Script) {
        let frame = self.frame(script, |right| &right.received);
        let before = self.eth.head().received();
        self.tap.inject(&self.cx, None, self.cx.message(&frame));
        let goes_up = self.eth.head().received() - before;
        let fitting: Vec<&Right> =
            self.rights.iter().filter(|right| right.received.fits(&frame)).collect();
        // What says most goes first.
        let most = fitting.iter().map(|right| right.received.shape.len()).max();
        let takes = |right: &&&Right| Some(right.received.shape.len()) == most;
        let mut taken = Vec::new();
        for channel in &self.channels {
            while let Arrival::Frame(got) = channel.program.receive(&self.cx) {
                assert!(got.eq_octets(&frame), "another frame");
                taken.push(channel.number);
            }
        }
        let is_right = match (&taken[..], goes_up) {
            ([], 1) => fitting.is_empty(),
            ([channel], 0) => fitting.iter().filter(takes).any(|right| right.channel == *channel),
            _ => false,
        };
        assert!(is_right, "to {taken:?}, {goes_up} up, of {} that fit", fitting.len());
        novelty::note(&fitting.len());
    }
}

/// Scripts to begin with.
pub(crate) fn seeds() -> [(&'static str, Vec<u8>); 2] {
    // The headers of a datagram on a link: a type, a length of all behind it, a peer, a checksum.
    let template = |kind: u8| {
        let header = [2, 0, 0, 1, 0x88, kind, 0, 0, 9, 9, 0, 0, 4, 5];
        let fields = [[6, 3, 6, 0], [8, 2, 2, 0], [10, 5, 6, 1], [13, 1, 0xf0, 0]];
        [
            &[header.len() as u8][..],
            &header,
            &[fields.len() as u8],
            fields.as_flattened(),
            &[20, 99],
        ]
        .concat()
    };
    let right = |channel: u8, kind| [&[2 | channel << 3][..], &template(kind), &[0]].concat();
    let mut several = vec![0];
    for (channel, kind) in [(0, 1), (0, 2), (1, 3), (0, 3)] {
        several.extend(right(channel, kind));
        // As it is, with padding, with a changed octet, too short; then one arrives.
        for frame in [&[kind, 9, 0][..], &[kind, 9, 0x20], &[kind, 9, 1, 5, 1], &[kind, 9, 4, 8]] {
            several.extend([&[5 | channel << 3][..], frame, &[7], frame].concat());
        }
    }
    several.extend([4, 1, 7, 0, 9, 0, 1, 0, 7, 1, 9, 0]);
    // Two ways: another template for what arrives, and one of nothing.
    let mut ways = [&[2][..], &template(1), &[1], &template(2)].concat();
    ways.extend([&[2][..], &template(3), &[1], &template(1)[..32], &[0, 0]].concat());
    ways.extend([5, 0, 9, 0, 7, 0, 9, 0, 4, 1, 7, 0, 9, 0]);
    [("several", several), ("ways", ways)]
}
