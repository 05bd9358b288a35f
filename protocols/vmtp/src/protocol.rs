//! The protocol object: opens, enables, demultiplexes.

use crate::forward::Route;
use crate::reasons::{NO_TRANSACTION, UNKNOWN_OPERATION, of_wire};
use crate::session::{VmtpSession, timers_of};
use crate::shared::{ANY, At, PACKET_OCTETS_MAX, SERVER, Settings, Shared, name_key, peer_number};
use crate::wire::{CODE, Entity, HEADER_OCTETS, Header, PIC, operation};
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use xk_core::control::Tables;
use xk_core::graph::{Build, BuildError};
use xk_core::object::{Enable, OpenError, Refused};
use xk_core::participant::{AddressError, Label, Wild};
use xk_core::{
    Answer, Ask, Kernel, Message, Part, Participant, Participants, Protocol, ProtocolRef,
    SessionRef, Upper, reason,
};
use xk_kit::answers::is_for_one;
use xk_kit::control::{IsGroup, MaxPacket};
use xk_kit::rpc::between_hosts;
use xk_kit::rpc::call::{LargestPush, PROCEDURE, pop_local};

/// The label of entities at a host.
pub const ENTITY: Label = Label::new("entity");

/// One instance of the layer.
pub struct Vmtp {
    shared: Rc<Shared>,
}

/// Builds it from its place in a graph.
///
/// # Errors
/// [`BuildError::Lower`] if the graph gives it nothing to stand on, [`BuildError::Param`] for an
/// address or timers that are none.
pub fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let params = build.params;
    let timers = params.text("timers").and_then(timers_of);
    let address = between_hosts::address(params)?;
    let settings = Settings { timers, address, ..Settings::read(build)? };
    let routes = Route::read_all(params)?;
    let shared = Rc::new(Shared::new(build.cx, build.lower(0)?, settings, routes));
    build.add(Vmtp { shared })
}

/// Adds one to a kernel, for programs that compose without a graph file.
pub fn add(cx: &Kernel, name: &str, lower: ProtocolRef, settings: Settings) -> ProtocolRef {
    let shared = Rc::new(Shared::new(cx, lower, settings, Vec::new()));
    cx.add_protocol(crate::ENTRY.kind, name, Vmtp { shared })
}

/// Pops the procedure and the server's entity off a participant; the procedure may be any. The last
/// identifier, if it is any, is the host.
pub(crate) fn pop_name(part: &mut Participant) -> Result<(Wild<u32>, u32), AddressError> {
    let pop = |part: &mut Participant, label| match (part.top(), part.len()) {
        (Some(Part::Any), 1) => Ok(Wild::Any),
        _ => pop_local(part, label),
    };
    let procedure = pop(part, PROCEDURE)?;
    let entity = pop(part, ENTITY)?.value().unwrap_or(SERVER);
    let is_too_large = procedure.value().is_some_and(|number| number > CODE);
    if is_too_large || entity > Entity::DISCRIMINATOR_MAX {
        return Err(AddressError::OutOfRange);
    }
    Ok((procedure, entity))
}

impl Vmtp {
    /// A request for our manager.
    #[cold]
    fn manage(&self, at: At<'_>, rest: Message) -> Result<(), Refused> {
        let At { cx, this, lower, header } = at;
        let shared = &self.shared;
        if let Err(why) = is_for_one(cx, lower) {
            return Err(this.refuse(rest, why));
        }
        let is_known = match header.plain_code() {
            _ if !header.has(PIC) => return Err(this.refuse(rest, &UNKNOWN_OPERATION)),
            operation::PROBE_ENTITY => {
                shared.probed(cx, lower, header);
                true
            }
            operation::NOTIFY_CLIENT | operation::NOTIFY_REMOTE_CLIENT => {
                shared.client_notified(at) || shared.forwarder_notified(at)
            }
            operation::NOTIFY_SERVER => shared.server_notified(at),
            _ => return Err(this.refuse(rest, &UNKNOWN_OPERATION)),
        };
        match is_known {
            true => Ok(()),
            false => Err(this.refuse(rest, &NO_TRANSACTION)),
        }
    }

    /// A session on a lower one, whose hold it takes over.
    fn open_on(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        lower: &SessionRef,
        (procedure, entity): (u32, u32),
    ) -> Result<SessionRef, OpenError> {
        let shared = &self.shared;
        let key = (lower.id().0, name_key(entity, procedure), upper.receiver.id().0);
        let hosts = between_hosts::opened(cx, lower, shared.config.address)?;
        let server = Entity::new(entity, peer_number(cx, lower));
        let server = match IsGroup::ask(
            cx,
            &shared.lower,
            Some(hosts.1).filter(|peer| !peer.is_unspecified()),
        ) {
            true => server.group(),
            false => server,
        };
        let body = VmtpSession::new(cx, shared, key, (lower, upper.receiver), hosts, server);
        shared.sessions.open(cx, this, upper.receiver, key, body)
    }
}

impl Protocol for Vmtp {
    fn start(&self, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        between_hosts::start(cx, this, &self.shared.lower, self.shared.config.address)
    }

    fn open(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        mut participants: Participants,
    ) -> Result<SessionRef, OpenError> {
        let (procedure, entity) = pop_name(participants.peer_mut()?)?;
        let local = participants.local_mut()?;
        // A client has no procedure of its own.
        pop_name(local)?;
        if matches!(local.top(), None | Some(Part::Any)) {
            *local = self.shared.config.address.map_or(Part::Any, Part::Host).into();
        }
        let lower = self.shared.lower.open(cx, Upper::new(this), participants)?;
        let name = (procedure.value().unwrap_or(0), entity);
        self.open_on(cx, this, upper, &lower, name)
    }

    fn open_enable(
        &self,
        _: &Kernel,
        _: &ProtocolRef,
        upper: Upper<'_>,
        mut participants: Participants,
    ) -> Result<Enable, OpenError> {
        let (procedure, entity) = pop_name(participants.local_mut()?)?;
        let key = name_key(entity, procedure.value().unwrap_or(ANY));
        self.shared.enables.enable(key, upper.receiver.clone(), |_| false)?;
        Ok(Enable(key))
    }

    fn open_disable(&self, _: &Kernel, _: &ProtocolRef, enable: Enable) {
        self.shared.enables.unbind(&enable.0);
    }

    #[inline]
    fn demux(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        message: Message,
    ) -> Result<(), Refused> {
        let (read, mut message) = match message.peek_in_place() {
            Some(octets) => (Header::read(octets, &message), message),
            None => {
                let (octets, message) = this.header(message)?;
                (Header::read(&octets, &message), message)
            }
        };
        let header = match read {
            Ok(header) => header,
            Err(error) => return Err(this.refuse(message, of_wire(error))),
        };
        let (data, shared) = (header.data_octets(), &self.shared);
        if header.segment_octets() > shared.config.message_max {
            return Err(this.refuse(message, &reason::TOO_BIG));
        }
        if !message.strip_in_place(HEADER_OCTETS) {
            // It was there to be read.
            let _ = message.strip(HEADER_OCTETS);
        }
        if header.is_response() {
            if let Some(line) = shared.response_at_once(&header, data) {
                message.truncate(header.segment_octets());
                line.finish(cx, Ok(message));
                return Ok(());
            }
        } else if let Some(record) = shared.request_at_once(cx, lower, &header, data) {
            message.truncate(header.segment_octets());
            shared.execute(cx, this, &record, lower, &header, message);
            return Ok(());
        }
        message.truncate(data);
        let at = At { cx, this, lower, header: &header };
        match (header.is_response(), header.server == Entity::MANAGERS) {
            (true, true) if shared.probe_answered(at) => Ok(()),
            (true, true) => Err(this.refuse(message, &NO_TRANSACTION)),
            (true, false) => shared.response(at, message),
            (false, true) => self.manage(at, message),
            (false, false) => shared.request(at, message),
        }
    }

    fn control(&self, cx: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        let shared = &self.shared;
        if let Some(question) = ask.get::<LargestPush>() {
            question.octets = PACKET_OCTETS_MAX as u32;
        } else if let Some(question) = ask.get::<MaxPacket>() {
            question.octets = shared.config.message_max as u32;
        } else {
            return shared.lower.control(cx, ask);
        }
        Answer::Answered
    }

    fn describe(&self) -> Option<String> {
        Some(self.shared.describe())
    }

    fn tables(&self, tables: &mut Tables<'_>) {
        tables.sessions("active", &self.shared.sessions);
        tables.map("passive", self.shared.enables.stats());
        tables.map("records", self.shared.records.stats());
    }

    fn lower(&self) -> Option<&ProtocolRef> {
        Some(&self.shared.lower)
    }

    fn timeout(&self, cx: &Kernel, this: &ProtocolRef, _: u64) {
        self.shared.pass(cx, this);
    }

    fn stop(&self, _: &Kernel, _: &ProtocolRef) {
        self.shared.stop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An identifier that may be any is left out before the host is.
    #[test]
    fn the_last_identifier_is_the_host() {
        for (text, name, host) in [
            ("*", (Wild::Any, SERVER), "*"),
            ("procedure3@*", (Wild::Is(3), SERVER), "*"),
            ("*@*", (Wild::Any, SERVER), "*"),
            ("procedure3@*@*", (Wild::Is(3), SERVER), "*"),
            ("procedure3@entity7@*", (Wild::Is(3), 7), "*"),
            ("entity7@10.0.0.2", (Wild::Any, 7), "10.0.0.2"),
            ("*@*@10.0.0.2", (Wild::Any, SERVER), "10.0.0.2"),
        ] {
            let mut part: Participant = text.parse().unwrap();
            assert_eq!(pop_name(&mut part), Ok(name), "{text}");
            assert_eq!(part, host.parse().unwrap(), "{text}");
        }
    }
}
