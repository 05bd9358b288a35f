//! The protocol object: opens, enables, demultiplexes.

use crate::processes::{Age, Process, ProcessState, channel_key};
use crate::reasons::of_wire;
use crate::session::{MrpcSession, PACKET_OCTETS_MAX, Path, timers};
use crate::shared::{ANY_PROCEDURE, Config, Shared};
use crate::timers::{ETHERNET, INTERNET};
use crate::wire::{AREA2_LEN_MAX, HEADER_LEN, Header, REPLY, REQUEST, SERVER, u16_at, u32_at};
use alloc::rc::Rc;
use alloc::string::String;
use xk_core::control::Tables;
use xk_core::graph::{Build, BuildError};
use xk_core::object::{Enable, OpenError, Refused};
use xk_core::participant::{AddressError, Wild};
use xk_core::{
    Answer, Ask, Kernel, Message, Part, Participants, Protocol, ProtocolRef, Reason, SessionRef,
    Upper,
};
use xk_kit::answers::is_for_one;
use xk_kit::control::MaxPacket;
use xk_kit::rpc::between_hosts;
use xk_kit::rpc::call::{LargestPush, PROCEDURE, pop_definite, pop_local};

/// One instance of the layer.
pub struct Mrpc {
    shared: Rc<Shared>,
}

/// Builds it from its place in a graph.
///
/// # Errors
/// [`BuildError::Lower`] if the graph gives it nothing to stand on, [`BuildError::Param`] for an
/// address or timers that are none.
pub fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let config = read(build)?;
    Ok(add(build.cx, build.name, build.lower(0)?, config))
}

/// Adds one to a kernel, for programs that compose without a graph file.
pub fn add(cx: &Kernel, name: &str, lower: ProtocolRef, config: Config) -> ProtocolRef {
    let shared = Rc::new(Shared::new(cx, lower, config));
    cx.add_protocol(crate::ENTRY.kind, name, Mrpc { shared })
}

fn read(build: &Build<'_>) -> Result<Config, BuildError> {
    let params = build.params;
    let timers = match params.text("timers") {
        None | Some("auto") => None,
        Some("ethernet") => Some(ETHERNET),
        Some("internet") => Some(INTERNET),
        Some(_) => {
            return Err(BuildError::param("timers", "\"auto\", \"ethernet\" or \"internet\""));
        }
    };
    let address = between_hosts::address(params)?;
    Ok(Config { timers, address, ..Config::read(build)? })
}

/// A procedure's number, which the header has 16 bits for.
fn narrow(number: u32) -> Result<u32, AddressError> {
    match number {
        0..=0xffff => Ok(number),
        _ => Err(AddressError::OutOfRange),
    }
}

/// Octets of the body, if it is unfragmented, in area 2 alone, and there.
#[inline(always)]
fn plain_body(octets: &[u8; HEADER_LEN], message: &Message) -> Option<usize> {
    let fragments = u32_at::<18>(octets);
    let (sizes, offsets) = (u32_at::<28>(octets), u32_at::<32>(octets));
    let size = sizes as usize;
    // A size of area 1 is in the upper half, beyond every limit.
    let is_plain = fragments | offsets == 0 && size <= AREA2_LEN_MAX;
    (is_plain && HEADER_LEN + size <= message.len()).then_some(size)
}

/// Strips a packet of its header and padding.
#[inline(always)]
fn strip(message: &mut Message, size: usize) {
    message.strip_in_place(HEADER_LEN);
    if message.len() != size {
        message.truncate(size);
    }
}

impl Mrpc {
    /// The way of almost every request: unfragmented, new, on a channel of a client that is known.
    /// Its process and body's octets.
    #[inline(always)]
    fn request_at_once(
        &self,
        octets: &[u8; HEADER_LEN],
        message: &Message,
        lower: &SessionRef,
    ) -> Option<(Rc<Process>, usize)> {
        let size = plain_body(octets, message)?;
        let process =
            self.shared.processes.records.get(&(lower.head().peer(), u16_at::<10>(octets)))?;
        let is_new = matches!(process.state.get(), ProcessState::Waiting | ProcessState::Free)
            && process.compare(u32_at::<14>(octets)) == Some(Age::New);
        let is_its = process.channel.get() == channel_key(octets)
            && process.boot.get() == u32_at::<24>(octets)
            && process.lower_id.get() == lower.id().0;
        (is_new && is_its).then_some((process, size))
    }

    /// Takes any packet.
    #[inline(never)]
    fn demux_other(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        message: Message,
    ) -> Result<(), Refused> {
        let (octets, message) = this.header(message)?;
        let header = Header::parse(&octets);
        if let Err(error) = header.check(message.len() - HEADER_LEN) {
            return Err(this.refuse(message, of_wire(error)));
        }
        if header.flags & SERVER != 0 {
            self.shared.server_half(cx, this, lower, &header, message)
        } else {
            self.shared.client_half(cx, this, lower, &header, message)
        }
    }

    /// A session on a lower one, whose hold it takes over.
    fn open_on(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        lower: &SessionRef,
        procedure: u32,
    ) -> Result<SessionRef, OpenError> {
        let shared = &self.shared;
        let key = (lower.id().0, procedure, upper.receiver.id().0);
        let hosts = between_hosts::opened(cx, lower, shared.config.address)?;
        let suited = (Path::of(cx, shared, lower), timers(cx, shared, lower));
        let body = MrpcSession::new(shared, key, (lower, upper.receiver), hosts, suited);
        shared.sessions.open(cx, this, upper.receiver, key, body)
    }
}

impl Protocol for Mrpc {
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
        let procedure = narrow(pop_definite(participants.peer_mut()?, PROCEDURE)?)?;
        let local = participants.local_mut()?;
        // A client has no procedure of its own.
        pop_local(local, PROCEDURE)?;
        if local.is_empty() {
            local.push(self.shared.config.address.map_or(Part::Any, Part::Host));
        }
        let lower = self.shared.lower.open(cx, Upper::new(this), participants)?;
        self.open_on(cx, this, upper, &lower, procedure)
    }

    fn open_enable(
        &self,
        _: &Kernel,
        _: &ProtocolRef,
        upper: Upper<'_>,
        mut participants: Participants,
    ) -> Result<Enable, OpenError> {
        let procedure = match pop_local(participants.local_mut()?, PROCEDURE)? {
            Wild::Any => ANY_PROCEDURE,
            Wild::Is(number) => narrow(number)?,
        };
        let enables = &self.shared.enables;
        enables.enable(procedure, upper.receiver.clone(), |_| false)?;
        Ok(Enable(procedure.into()))
    }

    fn open_disable(&self, _: &Kernel, _: &ProtocolRef, enable: Enable) {
        if let Ok(procedure) = u32::try_from(enable.0) {
            self.shared.enables.unbind(&procedure);
        }
    }

    fn open_done(
        &self,
        cx: &Kernel,
        _: &ProtocolRef,
        lower: &SessionRef,
        _: Participants,
    ) -> Result<(), &'static Reason> {
        is_for_one(cx, lower)
    }

    #[inline]
    fn demux(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        mut message: Message,
    ) -> Result<(), Refused> {
        const CALL: u16 = REQUEST | SERVER;
        if let Some(octets) = message.peek_in_place::<HEADER_LEN>() {
            match u16_at::<0>(octets) {
                CALL => {
                    if let Some((process, size)) = self.request_at_once(octets, &message, lower) {
                        process.sequence.set(Some(u32_at::<14>(octets)));
                        process.command.set(u16_at::<22>(octets));
                        process.heard.set(cx.now());
                        // It is acknowledged by this request.
                        process.saved.borrow_mut().clear();
                        strip(&mut message, size);
                        let shared = &self.shared;
                        shared.execute(cx, this, &process, lower, message, 0);
                        return Ok(());
                    }
                }
                REPLY => {
                    if let Some(size) = plain_body(octets, &message)
                        && let Some(channel) = self.shared.reply_at_once(octets)
                    {
                        strip(&mut message, size);
                        channel.replied(cx, message, 0);
                        return Ok(());
                    }
                }
                _ => {}
            }
        }
        self.demux_other(cx, this, lower, message)
    }

    fn control(&self, cx: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        let shared = &self.shared;
        if let Some(question) = ask.get::<LargestPush>() {
            question.octets = PACKET_OCTETS_MAX as u32;
        } else if let Some(question) = ask.get::<MaxPacket>() {
            question.octets = AREA2_LEN_MAX as u32;
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
        tables.map("processes", self.shared.processes.records.stats());
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
