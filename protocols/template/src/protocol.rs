//! The layer: the type number of the upper protocol is the key, the length is what is checked.

use crate::wire::{HEADER_OCTETS, Header};
use alloc::string::String;
use xk_core::graph::{Build, BuildError};
use xk_core::{Kernel, Message, ProtocolRef, SessionRef};
use xk_kit::layer::{Bounds, Conversation, Layer, Layered};

/// One instance of the layer: what all its conversations share.
pub struct Template;

type Own = Conversation<Template, HEADER_OCTETS>;

/// Builds it from its place in a graph.
///
/// # Errors
/// [`BuildError::Lower`] if the graph gives it nothing to stand on.
pub fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let bounds = Bounds::sessions(build.params.number("sessions_max", 1024));
    let layer = Layered::new(build.cx.secret(), build.lower(0)?, bounds, Template);
    build.add(layer)
}

impl Layer<HEADER_OCTETS> for Template {
    /// The type number of the protocol above.
    type Key = u16;
    /// What a conversation keeps: nothing yet.
    type State = ();

    const OCTETS_MAX: usize = u16::MAX as usize;

    fn key_for(number: u32) -> Option<u16> {
        number.try_into().ok()
    }

    #[inline]
    fn key_of(header: &[u8; HEADER_OCTETS]) -> u16 {
        Header::parse(header).number
    }

    #[inline(always)]
    fn length(header: &[u8; HEADER_OCTETS]) -> Option<usize> {
        Some(Header::parse(header).length.into())
    }

    fn offer_for(number: u16) -> u64 {
        number.into()
    }

    fn begin(&self, _: &Kernel, _: &SessionRef, _: u16) {}

    /// The header of a message on its way down.
    #[inline]
    fn header(&self, own: &Own, message: &Message) -> Option<[u8; HEADER_OCTETS]> {
        if message.len() > own.octets_max {
            return None;
        }
        let (number, length) = (own.key, message.len() as u16);
        Some(Header { number, length }.emit())
    }

    fn describe(&self, own: &Own) -> String {
        alloc::format!("template > {}", own.key)
    }
}
