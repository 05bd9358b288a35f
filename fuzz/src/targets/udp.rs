//! UDP: the codec, and the layer between two others.

use crate::harness::{Rig, Script, integers};
use core::net::Ipv4Addr;
use xk_core::{HostAddr, Part, Participants};
use xk_kit::Checksum;
use xk_kit::net::ports::{NO_PEER, NO_REPLY, Pseudo, UNREACHABLE};
use xk_testkit::kernel::{Lower, Top};
use xk_udp::wire::{HEADER_LEN, Header, IP_PROTOCOL, Template};

/// Both hosts count nothing in a checksum together: that of the corpus is over the protocol's
/// number alone.
const OWN: Ipv4Addr = Ipv4Addr::LOCALHOST;
const PEER: Option<Part> = Some(Part::Host(HostAddr::v4(Ipv4Addr::new(128, 255, 255, 254))));

/// Parses `data` as a datagram, writes its header again and compares.
pub(crate) fn wire(data: &[u8]) {
    let Some((head, rest)) = data.split_first_chunk::<HEADER_LEN>() else {
        return;
    };
    let header = Header::parse(head);
    assert_eq!(header.octets(), *head, "the header changed");
    let Some(payload) = header.payload(rest.len()).and_then(|octets| rest.get(..octets)) else {
        return;
    };
    let (src, dst) = (Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(198, 51, 100, 2));
    let sum = Checksum::pseudo_header(src, dst, IP_PROTOCOL, 0);
    let pseudo = Some(Pseudo { sent: sum, received: sum, is_required: false });
    let template = Template::new((header.src(), header.dst()), pseudo, true);
    let is_intact = template.sum_received(header, payload.len()).is_none_or(|mut sum| {
        sum.add(payload);
        sum.is_valid()
    });
    if is_intact && header.checksum() != 0 {
        let sum = template.sum_sent(payload.len()).map(|mut sum| {
            sum.add(payload);
            sum
        });
        assert_eq!(template.header(payload.len(), sum), header, "the checksum changed");
    }
}

/// Lets `data` arrive as datagrams, each behind an octet of its length and followed by an error
/// about it, at a layer whose ports 7 (enabled) and 53 (unconnected) echo. Each is delivered or
/// counted.
pub(crate) fn stack(data: &[u8]) {
    let params = integers(&[("sessions_max", 4)]);
    let rig = Rig::new(Lower::host(OWN, 17), 16, &xk_udp::ENTRY, &params);
    let top = Top::add(&rig.cx, "top");
    top.forget(true);
    top.echo(true);
    rig.start();
    let local = Participants::local(Part::port(7));
    assert!(top.enable(&rig.cx, &rig.layer, local).is_ok(), "port 7 is free");
    let unconnected = Participants::pair(Part::port(53), Part::Any);
    assert!(top.open(&rig.cx, &rig.layer, unconnected).is_ok(), "port 53 is free");
    let script = Script::new(data);
    while let Some(datagram) = script.counted() {
        rig.arrive(PEER, datagram);
        rig.report(PEER, datagram);
    }
    // Replies that could not be sent are counted, too: those are no arrivals.
    let unsent = [NO_REPLY.name, UNREACHABLE.name, NO_PEER.name, "no route"];
    let outcomes = top.received() + rig.dropped_but(&unsent);
    assert_eq!(rig.layer.head().received(), outcomes, "each is delivered or counted");
    rig.stop();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame;
    use xk_core::random::Random;

    #[test]
    fn the_layer_takes_anything() {
        let random = Random::new(3);
        for round in 0..2000 {
            let mut data = vec![0; random.below(120) as usize];
            random.fill(&mut data);
            // Half of them with ports and lengths that are taken.
            if round % 2 == 0
                && let [_, _, a, b, _, l, ..] = &mut data[..]
            {
                (*a, *b, *l) = (0, 7, *l % 40);
            }
            stack(&data);
        }
    }

    #[test]
    fn the_codec_takes_anything() {
        let random = Random::new(4);
        let hosts = (Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(198, 51, 100, 2));
        for round in 0..1000 {
            let mut data = vec![0; random.below(40) as usize];
            random.fill(&mut data);
            if round % 2 == 0 {
                let ports = (random.next_u32() as u16, random.next_u32() as u16);
                data = frame::udp(hosts, ports, &data);
            }
            wire(&data);
        }
    }
}
