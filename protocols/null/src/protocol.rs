//! The layer: the type number of the upper protocol is the key.

use crate::wire::{HEADER_OCTETS, Header};
use xk_core::graph::{Build, BuildError};
use xk_core::{Kernel, Message, ProtocolRef, SessionRef};
use xk_kit::layer::{Bounds, Conversation, Layer, Layered};
use xk_kit::net::template::Headers;

/// One instance of the layer.
pub struct Null;

/// Builds it from its place in a graph.
///
/// # Errors
/// [`BuildError::Lower`] if the graph gives it nothing to stand on.
pub fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    Layered::build(build, Null)
}

/// Adds one to a kernel, for programs that compose without a graph file.
pub fn add(cx: &Kernel, name: &str, lower: ProtocolRef, sessions_max: usize) -> ProtocolRef {
    let layer = Layered::new(cx.secret(), lower, Bounds::sessions(sessions_max), Null);
    cx.add_protocol(crate::ENTRY.kind, name, layer)
}

impl Layer<HEADER_OCTETS> for Null {
    /// The type number of the protocol above.
    type Key = u32;
    /// The header of every message.
    type State = [u8; HEADER_OCTETS];

    #[inline]
    fn key_of(header: &[u8; HEADER_OCTETS]) -> u32 {
        Header::parse(header).number
    }

    fn begin(&self, _: &Kernel, _: &SessionRef, number: u32) -> [u8; HEADER_OCTETS] {
        Header { number }.emit()
    }

    #[inline]
    fn header(
        &self,
        own: &Conversation<Self, HEADER_OCTETS>,
        _: &Message,
    ) -> Option<[u8; HEADER_OCTETS]> {
        Some(own.state)
    }

    fn headers(
        &self,
        own: &Conversation<Self, HEADER_OCTETS>,
        _: &Kernel,
        below: Headers,
    ) -> Option<Headers> {
        below.with((&own.state, &[]), (&own.state, &[]))
    }
}
