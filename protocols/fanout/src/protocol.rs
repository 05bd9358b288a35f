//! The layer: number and room tell conversations apart.

use crate::wire::{HEADER_OCTETS, Header};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use xk_core::graph::{Build, BuildError};
use xk_core::object::OpenError;
use xk_core::participant::{AddressError, Label};
use xk_core::{Kernel, Message, Part, Participants, ProtocolRef, SessionRef, Upper};
use xk_kit::control::PeerHost;
use xk_kit::layer::{Conversation, Layer, Layered, Many};

/// Label of a room.
pub const ROOM: Label = Label::new("room");

/// One instance of the layer: what the graph says of it.
pub struct Fanout {
    joins: bool,
}

type Own = Conversation<Fanout, HEADER_OCTETS, Many>;

/// Builds it from its place in a graph.
///
/// # Errors
/// [`BuildError::Lower`] if the graph gives it nothing to stand on.
pub fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    Layered::build(build, Fanout { joins: build.flag("joins")? })
}

impl Layer<HEADER_OCTETS, Many> for Fanout {
    /// The type number of the protocol above in the upper half, the room in the lower.
    type Key = u32;
    type State = ();

    const OCTETS_MAX: usize = u16::MAX as usize;

    fn key(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        ends: &mut Participants,
    ) -> Result<u32, OpenError> {
        let number = u16::try_from(upper.number_on(cx, this)?);
        let number = number.map_err(|_| OpenError::NoTypeNumber)?;
        let local = ends.local_mut()?;
        let room = match local.top() {
            Some(Part::Number(ROOM, _)) => local.pop_number(ROOM)?.definite()?,
            _ => 0,
        };
        let room = u16::try_from(room).map_err(|_| AddressError::OutOfRange)?;
        if local.is_empty() {
            local.push(Part::Any);
        }
        Ok(u32::from(number) << 16 | u32::from(room))
    }

    fn key_of(header: &[u8; HEADER_OCTETS]) -> u32 {
        let Header { number, room, .. } = Header::parse(header);
        u32::from(number) << 16 | u32::from(room)
    }

    /// Every room of the protocol above.
    fn offer_for(key: u32) -> u64 {
        u64::from(key >> 16)
    }

    fn length(header: &[u8; HEADER_OCTETS]) -> Option<usize> {
        Some(Header::parse(header).length.into())
    }

    fn begin(&self, _: &Kernel, _: &SessionRef, _: u32) {}

    fn header(&self, own: &Own, message: &Message) -> Option<[u8; HEADER_OCTETS]> {
        let (number, room) = ((own.key >> 16) as u16, own.key as u16);
        Some(Header { number, room, length: message.len() as u16 }.emit())
    }

    fn joins(own: &Own, _: &Kernel, _: &Message) -> bool {
        own.all.layer.joins
    }

    fn ends(&self, cx: &Kernel, lower: &SessionRef, key: u32) -> Participants {
        let peer = lower.ask(cx, PeerHost::default()).unwrap_or_default().host;
        Participants::pair(Part::Number(ROOM, u64::from(key as u16)), Part::Host(peer))
    }

    fn describe(&self, own: &Own) -> String {
        let hosts: Vec<_> = own.ways.peers().iter().map(|peer| peer.host).collect();
        format!("room {} of number {}, with {hosts:?}", own.key as u16, own.key >> 16)
    }
}
