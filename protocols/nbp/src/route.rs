//! Requests at a router, which looks up in each cable of the zone.

use crate::protocol::{Nbp, local, place};
use crate::wire::{Entity, Function, Packet, Tuple};
use xk_appletalk::addr::BROADCAST;
use xk_appletalk::ddp::SOCKET_NAMES;
use xk_appletalk::name::Name;
use xk_appletalk::nbp::ZONE_HERE;
use xk_appletalk::zip::multicast;
use xk_core::participant::Participant;
use xk_core::{Part, Reason, reason};
use xk_kit::machine::At;
use xk_kit::net::appletalk::{DdpCable, NET, NODE, SOCKET, ZoneNets, cables, socket};

/// Names in the nodes of a zone at one cable.
fn all_of(zone: &Name) -> Participant {
    let group = Participant::of(Part::Ether(multicast(zone)));
    let parts = [(NET, 0), (NODE, BROADCAST), (SOCKET, SOCKET_NAMES)];
    parts.into_iter().fold(group, |all, (label, n)| all.with(Part::Number(label, n.into())))
}

impl Nbp {
    /// Looks up in all cables of the zone that a request which came over a port names.
    pub(crate) fn broadcast(
        &self,
        at: At<'_>,
        (port, of): (usize, Option<u64>),
        request: &Packet,
    ) -> Result<(), &'static Reason> {
        let wanted = *request.wanted().ok_or(&reason::MALFORMED)?;
        let cables = cables(at.cx, at.lower);
        let from = cables.get(port).ok_or(&reason::NOT_MINE)?;
        let asked = wanted.entity.zone;
        let is_here = asked.is_empty() || asked.is_only(ZONE_HERE);
        let zone = if is_here { place(from).0 } else { asked };
        let zips = self.zip.as_ref().ok_or(&reason::NOT_SUPPORTED)?;
        let question = ZoneNets { zone: zone.octets().to_vec(), ..ZoneNets::default() };
        let nets = zips.ask(at.cx, question).ok_or(&reason::NOT_SUPPORTED)?.nets;
        let tuple = Tuple { entity: Entity { zone, ..wanted.entity }, ..wanted };
        for net in nets {
            let here = cables.iter().find(|cable| (cable.first..=cable.last).contains(&net));
            match here {
                Some(cable) => self.look_up_at(at, cable, of, request.id, tuple)?,
                None => {
                    self.allow(at, of)?;
                    let function = Function::FwdReq;
                    let packet = Packet { function, id: request.id, tuples: [tuple].into() };
                    at.send(local(0), socket(net, 0, SOCKET_NAMES), &packet.octets());
                }
            }
        }
        Ok(())
    }

    /// A router asks this one to look up in a cable of its own.
    pub(crate) fn forwarded(
        &self,
        at: At<'_>,
        (port, of): (usize, Option<u64>),
        request: &Packet,
    ) -> Result<(), &'static Reason> {
        let wanted = *request.wanted().ok_or(&reason::MALFORMED)?;
        let cables = cables(at.cx, at.lower);
        let cable = cables.get(port).ok_or(&reason::NOT_MINE)?;
        self.look_up_at(at, cable, of, request.id, wanted)
    }

    /// Asks all nodes of a zone at one cable, this one among them.
    fn look_up_at(
        &self,
        at: At<'_>,
        cable: &DdpCable,
        of: Option<u64>,
        id: u8,
        wanted: Tuple,
    ) -> Result<(), &'static Reason> {
        self.allow(at, of)?;
        let packet = Packet { function: Function::LkUp, id, tuples: [wanted].into() };
        at.send(local(cable.first), all_of(&wanted.entity.zone), &packet.octets());
        self.answer_names(at, (&packet, of), place(cable))
    }
}
