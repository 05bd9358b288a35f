//! Sprite RPC: the header, and the layer as server and client between two others, with time steps.

use crate::harness::{Rig, Script, integers};
use core::cell::{Cell, RefCell};
use core::net::Ipv4Addr;
use core::time::Duration;
use std::collections::BTreeSet;
use std::rc::Rc;
use xk_core::{Kernel, Part, Participant, Participants, SessionRef};
use xk_kit::rpc::call::{BAD_ARGUMENTS, PROCEDURE};
use xk_kit::rpc::incarnation::FIRST;
use xk_mrpc::wire::{ACK, ERROR, HEADER_LEN, Header, NACK, REPLY, REQUEST, SERVER};
use xk_mrpc::{PACKET_OCTETS_MAX, Parameters};
use xk_testkit::kernel::{HEADROOM, Lower, Top};

const OWN: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const PEER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
/// Largest depth of packets that arrive while others are sent.
const DEPTH_MAX: u32 = 4;

/// Reads `data` as a header, writes it again and compares; says whether it is acceptable, and
/// prints it.
pub(crate) fn wire(data: &[u8]) {
    let Some((octets, body)) = data.split_first_chunk::<HEADER_LEN>() else {
        return;
    };
    let header = Header::parse(octets);
    assert_eq!(header.emit(), *octets, "the header changed");
    if header.check(body.len()).is_ok() {
        assert!(header.body_len() <= body.len(), "no octet beyond the end");
        assert!(header.mask & !header.all() == 0 || header.flags & (REQUEST | REPLY) == 0);
    }
}

/// State shared by the layers around the one under test.
#[derive(Default)]
struct Stage {
    script: Script,
    session: RefCell<Option<SessionRef>>,
    /// The last ticket that was sent.
    ticket: Cell<u16>,
    /// Number of calls executed.
    executed: Cell<u64>,
    /// The calls that were: boot id, ticket, channel and number. Under another ticket it is another
    /// incarnation's.
    known: RefCell<BTreeSet<(u32, u16, u16, u32)>>,
    /// Depth of nested pushes.
    depth: Cell<u32>,
}

impl Stage {
    fn next(&self) -> u8 {
        self.script.octet_or_zero()
    }

    /// Lets a packet arrive, which executes a call at most once.
    fn deliver(&self, cx: &Kernel, octets: &[u8]) {
        let session = self.session.borrow().clone();
        let before = self.executed.get();
        if let (Some(session), Ok(message)) = (session, cx.pool().copy_from(HEADROOM, octets)) {
            drop(session.pop(cx, message));
        }
        if let Some(header) = octets.first_chunk().map(Header::parse)
            && self.executed.get() > before
        {
            let call = (header.boot, header.process & !FIRST, header.channel, header.sequence);
            assert!(self.known.borrow_mut().insert(call), "executed twice: {header:?}");
        }
    }

    /// Any octets.
    fn raw(&self, cx: &Kernel) {
        let len = usize::from(self.next());
        let mut octets = self.script.take(len).to_vec();
        octets.resize(len, 0);
        self.deliver(cx, &octets);
    }

    /// A packet that is nearly right: `like` it, but for what the script says.
    fn crafted(&self, cx: &Kernel, like: &Header) {
        let (fragments, index, kind) = (self.next(), self.next(), self.next());
        let (size, shift) = (u16::from(self.next()), self.next());
        let mut header = *like;
        header.flags ^= u16::from(kind & 0x0f);
        header.fragments = u16::from(fragments % 18);
        header.mask = match header.fragments {
            0 => u16::from(kind >> 6),
            _ => 1 << (index % 16),
        };
        header.sizes = [u16::from(kind >> 4 & 1) * size, size];
        header.offsets = match header.fragments {
            0 => [0, u16::from(shift >> 7)],
            _ => [0, u16::from(index % 16) * size + u16::from(shift >> 6)],
        };
        header.sequence = header.sequence.wrapping_add(u32::from(shift & 0x0f)).wrapping_sub(1);
        let mut octets = header.emit().to_vec();
        octets.resize(HEADER_LEN + header.body_len(), index);
        self.deliver(cx, &octets);
    }

    /// A request to the server half, which is executed once at most.
    fn request(&self, cx: &Kernel) {
        let (choice, channel) = (self.next(), self.next());
        let mark = if choice & 4 == 0 { 0 } else { FIRST };
        let like = Header {
            flags: if choice & 8 == 0 { REQUEST | SERVER } else { ACK | SERVER },
            client_host: PEER.to_bits(),
            server_host: OWN.to_bits(),
            channel: u16::from(channel % 3),
            process: if choice & 1 == 0 { self.ticket.get() | mark } else { choice.into() },
            sequence: 100 + u32::from(channel >> 2),
            command: u16::from(choice >> 5),
            boot: 7 + u32::from(choice >> 4 & 1),
            ..Header::default()
        };
        let before = self.executed.get();
        self.crafted(cx, &like);
        assert!(self.executed.get() <= before + 1, "one packet, one execution");
    }

    /// Packets that arrive while a call waits; the call's request is given.
    fn answers(&self, cx: &Kernel, request: &Header) {
        self.depth.set(self.depth.get() + 1);
        let count = if self.depth.get() > DEPTH_MAX { 0 } else { self.next() % 8 };
        for _ in 0..count {
            let choice = self.next();
            let flags = [REPLY, ACK, NACK, NACK | ERROR, REPLY | ERROR];
            let like = Header {
                flags: flags[usize::from(choice) % flags.len()],
                process: match choice & 0x40 {
                    0 => request.process & !FIRST,
                    _ => 9,
                },
                // The same number, if the script leaves it alone.
                sequence: request.sequence.wrapping_add(1),
                boot: 50 + u32::from(choice >> 7),
                ..*request
            };
            self.crafted(cx, &like);
        }
        self.depth.set(self.depth.get() - 1);
    }

    fn call(&self, cx: &Kernel, session: &SessionRef) {
        let (len, area1) = (usize::from(self.next()) * 80, u16::from(self.next()));
        let Ok(mut message) = cx.pool().copy_from(HEADROOM, &vec![1; len]) else {
            return;
        };
        if area1 & 1 != 0 {
            let _ = message.set_attribute(Parameters { octets: area1 });
        }
        drop(session.call(cx, message));
    }
}

/// The layer with a server of three procedures above, and below a lower layer that notes tickets
/// and has the script answer.
fn rig(stage: &Rc<Stage>) -> (Rig, Top) {
    let params = integers(&[("processes_max", 2)]);
    let rig = Rig::new(Lower::host(OWN, 90), 16, &xk_mrpc::ENTRY, &params);
    let top = Top::add(&rig.cx, "top");
    top.forget(true);
    let counted = Rc::clone(stage);
    top.on_serve(Some(Rc::new(move |_, _, request| {
        counted.executed.set(counted.executed.get() + 1);
        if request.len() % 7 == 1 { Err(&BAD_ARGUMENTS) } else { Ok(request) }
    })));
    let asked = Rc::clone(stage);
    rig.bottom.keep(false);
    rig.bottom.on_push(Rc::new(move |cx, message| {
        let mut octets = [0; HEADER_LEN];
        assert_eq!(message.copy_to(0, &mut octets), HEADER_LEN, "a header is in front");
        assert!(message.len() <= PACKET_OCTETS_MAX, "one packet");
        let header = Header::parse(&octets);
        assert_eq!(header.check(message.len() - HEADER_LEN), Ok(()), "what is sent is right");
        if header.flags & SERVER == 0 {
            asked.ticket.set(header.process);
        } else if header.flags & REQUEST != 0 {
            asked.answers(cx, &header);
        }
    }));
    (rig, top)
}

/// Lets `data` be the script of what arrives, is called, and how time goes by, at a host with three
/// procedures. No call is executed twice, and each packet sent is right.
pub(crate) fn stack(data: &[u8]) {
    let stage = Rc::new(Stage { script: Script::new(data), ..Stage::default() });
    let (rig, top) = rig(&stage);
    rig.start();
    for procedure in [0, 1, 2] {
        let local = Participants::local(Part::Number(PROCEDURE, procedure));
        assert!(top.enable(&rig.cx, &rig.layer, local).is_ok(), "the procedure is free");
    }
    *stage.session.borrow_mut() = Some(rig.below(Some(Part::host(PEER))));
    let peer = Participant::of(Part::host(PEER)).with(Part::Number(PROCEDURE, 2));
    let session = top.open(&rig.cx, &rig.layer, Participants::pair(Part::Any, peer));
    let session = session.expect("a session opens");
    while let Some(what) = stage.script.octet() {
        match what % 8 {
            0 => stage.raw(&rig.cx),
            1..=4 => stage.request(&rig.cx),
            5 => drop(rig.cx.advance(Duration::from_millis(1 << (stage.next() % 18)))),
            _ => stage.call(&rig.cx, &session),
        }
    }
    drop((session, stage.session.take()));
    rig.stop();
}

#[cfg(test)]
mod tests {
    use xk_core::random::Random;

    #[test]
    fn any_script_keeps_the_laws() {
        let random = Random::new(1);
        for _ in 0..300 {
            let mut data = vec![0; random.below(600) as usize];
            random.fill(&mut data);
            super::stack(&data);
            super::wire(&data);
        }
    }
}
