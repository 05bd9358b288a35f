//! Questions to the protocol.

use crate::protocol::Ddp;
use crate::shared::reasons;
use crate::wire::DATA_LEN_MAX;
use alloc::string::String;
use xk_appletalk::addr::{NetRange, Node};
use xk_appletalk::ddp::Cable;
use xk_appletalk::name::Name;
use xk_appletalk::zip::is_multicast;
use xk_core::{Answer, Ask, Kernel};
use xk_kit::control::{JoinGroup, MaxPacket, OptPacket};
use xk_kit::machine::At;
use xk_kit::net::appletalk::{DdpCable, DdpRoutes, NodeClaimed, SetCable, SetRouter, SetRoutes};

impl Ddp {
    pub(crate) fn asked(&self, at: At<'_>, ask: &mut Ask<'_>) -> Option<Answer> {
        let cx = at.cx;
        if let Some(question) = ask.get::<DdpCable>() {
            return Some(self.cable(question));
        } else if let Some(question) = ask.get::<SetCable>() {
            return Some(self.set_cable(cx, question));
        } else if let Some(question) = ask.get::<SetRouter>() {
            let SetRouter { port, net, node } = *question;
            let router = (node != 0).then_some(Node::new(net, node));
            return Some(self.change(cx, port, |cable| Cable { router, ..cable }));
        } else if let Some(question) = ask.get::<SetRoutes>() {
            let ports = self.ports.list.len();
            let mut routes = question.routes.clone();
            routes.retain(|route| usize::from(route.port) < ports);
            routes.truncate(self.routes_max);
            *self.ports.routes.borrow_mut() = routes;
            self.outdate();
        } else if let Some(question) = ask.get::<DdpRoutes>() {
            question.routes = self.ports.routes.borrow().clone();
        } else if let Some(question) = ask.get::<NodeClaimed>() {
            let NodeClaimed { claim, net, node, is_disputed } = *question;
            match is_disputed {
                true => at.count(&reasons::CONFLICT),
                false => self.claimed(cx, claim.into(), Node::new(net, node)),
            }
        } else if let Some(question) = ask.get::<MaxPacket>() {
            question.octets = DATA_LEN_MAX as u32;
        } else if let Some(question) = ask.get::<OptPacket>() {
            question.octets = DATA_LEN_MAX as u32;
        } else {
            return None;
        }
        Some(Answer::Answered)
    }

    fn cable(&self, question: &mut DdpCable) -> Answer {
        let ports = &self.ports.list;
        question.ports = ports.len() as u8;
        let Some(port) = ports.get(usize::from(question.port)) else { return Answer::Unknown };
        let Cable { me, range, router } = port.cable.get();
        question.is_ready = port.is_ready.get();
        (question.net, question.node) = (me.net, me.node);
        (question.first, question.last) = (range.first(), range.last());
        question.is_known = port.is_known.get();
        question.router = router.map_or((0, 0), |router| (router.net, router.node));
        question.zone = port.zone.borrow().octets().to_vec();
        Answer::Answered
    }

    fn set_cable(&self, cx: &Kernel, question: &SetCable) -> Answer {
        let at = usize::from(question.port);
        let range = NetRange::new(question.first, question.last);
        let port = self.ports.list.get(at);
        let zone = Name::new(&question.zone);
        let (Some(range), Some(port), Ok(zone)) = (range, port, zone) else {
            return Answer::Unknown;
        };
        if !zone.is_empty() {
            *port.zone.borrow_mut() = zone;
        }
        // Not any that a stranger says: those of zones are few, and leave room for others.
        if let Some(address) = question.group.filter(|group| is_multicast(*group)) {
            // A link that takes all has no use for it.
            let _ = port.lower.ask(cx, JoinGroup { address });
        }
        self.set_range(cx, at, range);
        Answer::Answered
    }

    /// Changes what is known of a cable.
    fn change(&self, cx: &Kernel, port: u8, change: impl FnOnce(Cable) -> Cable) -> Answer {
        let at = usize::from(port);
        let Some(port) = self.ports.list.get(at) else { return Answer::Unknown };
        let before = port.cable.get();
        let after = change(before);
        if after != before {
            port.cable.set(after);
            self.outdate();
            self.tell(cx, at);
        }
        Answer::Answered
    }

    pub(crate) fn state(&self) -> String {
        let mut text = String::new();
        for port in &self.ports.list {
            let Cable { me, range, router } = port.cable.get();
            let state = if port.is_ready.get() { "node" } else { "claims" };
            text += &alloc::format!("{state} {me} of {range}");
            if let Some(router) = router {
                text += &alloc::format!(", router {router}");
            }
            let zone = port.zone.borrow();
            if !zone.is_empty() {
                text += &alloc::format!(", zone {zone}");
            }
            text += "; ";
        }
        text + &alloc::format!("{} ways to others", self.ports.routes.borrow().len())
    }
}
