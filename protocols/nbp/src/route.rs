//! Requests at a router, which looks up in each cable of the zone.

use crate::protocol::{Nbp, local};
use crate::wire::{Entity, Function, Packet, Tuple};
use xk_appletalk::addr::{BROADCAST, Node};
use xk_appletalk::ddp::SOCKET_NAMES;
use xk_appletalk::name::Name;
use xk_appletalk::nbp::ZONE_HERE;
use xk_appletalk::zip::multicast;
use xk_core::participant::Participant;
use xk_core::{Kernel, Part, ProtocolRef, Reason, reason};
use xk_kit::net::appletalk::{DdpCable, NET, NODE, SOCKET, ZoneNets, cables, socket};

/// Names in the nodes of a zone at one cable.
fn all_of(zone: &Name) -> Participant {
    Participant::of(Part::Ether(multicast(zone)))
        .with(Part::Number(NET, 0))
        .with(Part::Number(NODE, BROADCAST.into()))
        .with(Part::Number(SOCKET, SOCKET_NAMES.into()))
}

impl Nbp {
    /// Looks up in all cables of the zone that a request which came over a port names.
    pub(crate) fn broadcast(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        (port, of): (usize, Option<u64>),
        request: &Packet,
    ) -> Result<(), &'static Reason> {
        let wanted = *request.wanted().ok_or(&reason::MALFORMED)?;
        let cables = cables(cx, &self.lower);
        let from = cables.get(port).ok_or(&reason::NOT_MINE)?;
        let asked = wanted.entity.zone;
        let zone = match asked.is_empty() || asked.is_only(ZONE_HERE) {
            true => Name::new(&from.zone).unwrap_or_default(),
            false => asked,
        };
        let zips = self.zip.as_ref().ok_or(&reason::NOT_SUPPORTED)?;
        let question = ZoneNets { zone: zone.octets().to_vec(), ..ZoneNets::default() };
        let nets = zips.ask(cx, question).ok_or(&reason::NOT_SUPPORTED)?.nets;
        let tuple = Tuple { entity: Entity { zone, ..wanted.entity }, ..wanted };
        for net in nets {
            let here = cables.iter().find(|cable| (cable.first..=cable.last).contains(&net));
            match here {
                Some(cable) => self.look_up_at(cx, this, (cable, of), request.id, tuple)?,
                None => {
                    self.allow(cx, of)?;
                    let function = Function::FwdReq;
                    let packet = Packet { function, id: request.id, tuples: [tuple].into() };
                    let ends = (local(0), socket(net, 0, SOCKET_NAMES));
                    self.send(cx, this, ends, &packet);
                }
            }
        }
        Ok(())
    }

    /// A router asks this one to look up in a cable of its own.
    pub(crate) fn forwarded(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        (port, of): (usize, Option<u64>),
        request: &Packet,
    ) -> Result<(), &'static Reason> {
        let wanted = *request.wanted().ok_or(&reason::MALFORMED)?;
        let cables = cables(cx, &self.lower);
        let cable = cables.get(port).ok_or(&reason::NOT_MINE)?;
        self.look_up_at(cx, this, (cable, of), request.id, wanted)
    }

    /// Asks all nodes of a zone at one cable, this one among them.
    fn look_up_at(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        (cable, of): (&DdpCable, Option<u64>),
        id: u8,
        wanted: Tuple,
    ) -> Result<(), &'static Reason> {
        self.allow(cx, of)?;
        let packet = Packet { function: Function::LkUp, id, tuples: [wanted].into() };
        let ends = (local(cable.first), all_of(&wanted.entity.zone));
        self.send(cx, this, ends, &packet);
        let me = Node::new(cable.net, cable.node);
        let zone = Name::new(&cable.zone).unwrap_or_default();
        self.answer_names(cx, this, (&packet, of), me, &zone)
    }
}
