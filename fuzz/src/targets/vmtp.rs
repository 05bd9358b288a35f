//! VMTP: the header, and the layer as server and client between two others, with time steps.

use crate::harness::{Rig, Script, integers};
use core::cell::{Cell, RefCell};
use core::net::Ipv4Addr;
use core::time::Duration;
use std::rc::Rc;
use xk_core::{Kernel, Part, Participant, Participants, SessionRef};
use xk_kit::rpc::call::{BAD_ARGUMENTS, PROCEDURE};
use xk_testkit::kernel::{HEADROOM, Lower, Top};
use xk_vmtp::PACKET_OCTETS_MAX;
use xk_vmtp::wire::{
    APG, BARE_OCTETS, CHECKSUM_OCTETS, CRE, DGM, Entity, HEADER_OCTETS, Header, NSR, PIC, RESPONSE,
    SDA, STI, blocks_of, octets_in, operation, padded,
};

const OWN: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const PEER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
/// Largest depth of packets that arrive while others are sent.
const DEPTH_MAX: u32 = 4;

/// Reads `data` as a packet, writes its header again and compares.
pub(crate) fn wire(data: &[u8]) {
    let Some((octets, rest)) = data.split_first_chunk::<HEADER_OCTETS>() else {
        return;
    };
    let header = Header::parse(octets);
    assert_eq!(header.emit(), *octets, "the header changed");
    if header.check(data.len()).is_ok() {
        assert_eq!(header.data_octets() + CHECKSUM_OCTETS, rest.len(), "the length is right");
        let size = header.segment_octets();
        let all = blocks_of(size);
        assert_eq!(octets_in(all, size.min(16_384)), size.min(16_384));
    }
}

/// State shared by the layers around the one under test.
#[derive(Default)]
struct Stage {
    script: Script,
    session: RefCell<Option<SessionRef>>,
    /// Number of calls executed.
    executed: Cell<u64>,
    /// Depth of nested pushes.
    depth: Cell<u32>,
}

impl Stage {
    fn next(&self) -> u8 {
        self.script.octet_or_zero()
    }

    /// Lets a packet arrive without a checksum.
    fn deliver(&self, cx: &Kernel, header: &Header, octets: usize) {
        let mut packet = header.emit().to_vec();
        packet.resize(HEADER_OCTETS + octets, self.next());
        packet.resize(packet.len() + CHECKSUM_OCTETS, 0);
        self.raw(cx, &packet);
    }

    fn raw(&self, cx: &Kernel, octets: &[u8]) {
        let session = self.session.borrow().clone();
        if let (Some(session), Ok(message)) = (session, cx.pool().copy_from(HEADROOM, octets)) {
            drop(session.pop(cx, message));
        }
    }

    /// Any octets.
    fn any(&self, cx: &Kernel) {
        let len = usize::from(self.next());
        let mut octets = self.script.take(len).to_vec();
        octets.resize(len, 0);
        self.raw(cx, &octets);
    }

    /// A packet that is nearly right: `like` it, but for what the script says.
    fn crafted(&self, cx: &Kernel, like: &Header) {
        let (blocks, kind, shift) = (self.next(), self.next(), self.next());
        let size = usize::from(self.next()) * 70;
        let mask = blocks_of(size) & (u32::from(blocks) << (kind & 0x1f) | u32::from(kind >> 7));
        let mask = if kind & 0x20 == 0 { blocks_of(size.min(1024)) } else { mask };
        let octets = padded(octets_in(mask, size)) + usize::from(kind & 0x40 != 0) * 8;
        let mut header = *like;
        header.transaction = like.transaction.wrapping_add(u32::from(shift >> 6));
        header.control |= if shift & 1 == 0 { 0 } else { APG };
        header.control |= if shift & 6 == 6 { NSR } else { 0 };
        header.user[6] = size as u32;
        let header = header.with_data(mask, octets).with_round(u32::from(shift >> 3));
        self.deliver(cx, &header, octets);
    }

    /// A request to a server, which is executed once at most.
    fn request(&self, cx: &Kernel) {
        let (choice, which) = (self.next(), self.next());
        let like = Header {
            client: Entity::new(0x0800_0000 | u32::from(which % 3), PEER.to_bits()),
            domain: 1 << 16,
            control: STI,
            transaction: 100 + (u32::from(which >> 2) << 8),
            server: Entity::new(1 + u32::from(choice >> 7), OWN.to_bits()),
            code: SDA | u32::from(choice & 3) | if choice & 0x40 == 0 { 0 } else { DGM },
            ..Header::default()
        };
        let before = self.executed.get();
        self.crafted(cx, &like);
        assert!(self.executed.get() <= before + 1, "one packet, one execution");
    }

    /// A notice of a manager about one of the transactions of either side.
    fn notice(&self, cx: &Kernel, like: &Header) {
        let (choice, code, delivery) = (self.next(), self.next(), self.next());
        let is_client = choice & 1 == 0;
        let [c, s] = [like.client.0, like.server.0];
        let (c, s) = ([(c >> 32) as u32, c as u32], [(s >> 32) as u32, s as u32]);
        let transaction = like.transaction.wrapping_add(u32::from(choice >> 6));
        let (delivery, code) = (u32::from(delivery), u32::from(code % 26));
        let (operation, user) = match is_client {
            true => {
                let control = like.control;
                let user = [c[0], c[1], control, 0, transaction, delivery, code];
                (operation::NOTIFY_CLIENT, user)
            }
            false => {
                let user = [s[0], s[1], c[0], c[1], transaction, delivery, code];
                (operation::NOTIFY_SERVER, user)
            }
        };
        let header = Header {
            client: Entity::new(9, PEER.to_bits()),
            server: Entity::MANAGERS,
            code: DGM | CRE | PIC | operation,
            user,
            domain: 1 << 16,
            ..Header::default()
        };
        self.deliver(cx, &header, 0);
    }

    /// Packets that arrive when one of ours goes out.
    fn answers(&self, cx: &Kernel, sent: &Header) {
        if self.depth.get() >= DEPTH_MAX {
            return;
        }
        self.depth.set(self.depth.get() + 1);
        if sent.plain_code() == operation::PROBE_ENTITY && sent.server == Entity::MANAGERS {
            // The client says yes, or something else.
            let choice = self.next();
            let mut answer = Header { control: RESPONSE, code: 0, ..*sent };
            answer.user = [100 + (u32::from(choice) << 8), 0, 0, 0, 0, 0, 0];
            self.deliver(cx, &answer, 0);
        } else if !sent.is_response() && sent.server != Entity::MANAGERS {
            for _ in 0..self.next() % 4 {
                match self.next() % 4 {
                    0 => self.notice(cx, sent),
                    _ => {
                        let code = SDA | u32::from(self.next() & 4) >> 2;
                        self.crafted(cx, &Header { control: RESPONSE, code, ..*sent });
                    }
                }
            }
        } else if self.next() & 1 == 0 {
            self.notice(cx, sent);
        }
        self.depth.set(self.depth.get() - 1);
    }

    fn call(&self, cx: &Kernel, session: &SessionRef) {
        let (len, kind) = (usize::from(self.next()) * 80, self.next());
        if let Ok(message) = cx.pool().copy_from(HEADROOM, &vec![1; len]) {
            match kind & 7 {
                0 => drop(session.push(cx, message)),
                _ => drop(session.call(cx, message)),
            }
        }
    }
}

/// The layer with a server of three procedures above, and below a lower layer that has the script
/// answer.
fn rig(stage: &Rc<Stage>) -> (Rig, Top) {
    let params = integers(&[("records_max", 3), ("entities", 2)]);
    let rig = Rig::new(Lower::host(OWN, 81), 16, &xk_vmtp::ENTRY, &params);
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
        let mut octets = [0; HEADER_OCTETS];
        assert_eq!(message.copy_to(0, &mut octets), HEADER_OCTETS, "a header is in front");
        assert!(message.len() >= BARE_OCTETS && message.len() <= PACKET_OCTETS_MAX, "one packet");
        let header = Header::parse(&octets);
        assert_eq!(header.check(message.len()), Ok(()), "what is sent is right");
        asked.answers(cx, &header);
    }));
    (rig, top)
}

/// Lets `data` be the script of what arrives, is called, and how time goes by, at a host with three
/// procedures. One packet executes one call at most, and each packet sent is right.
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
            0 => stage.any(&rig.cx),
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
