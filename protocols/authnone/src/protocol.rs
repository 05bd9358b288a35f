//! The protocol object: a layer of authentication whose credentials are empty.

use crate::session::Nobody;
use xk_core::graph::{Build, BuildError};
use xk_core::{Kernel, ProtocolRef};
use xk_kit::rpc::auth;

/// Builds it from its place in a graph.
///
/// # Errors
/// [`BuildError::Lower`] if the graph gives it nothing to stand on.
pub fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let sessions_max = build.int("sessions_max")?;
    Ok(add(build.cx, build.name, build.lower(0)?, sessions_max))
}

/// Adds one to a kernel, for programs that compose without a graph file.
pub fn add(cx: &Kernel, name: &str, lower: ProtocolRef, sessions_max: usize) -> ProtocolRef {
    let layer = auth::layered(cx.secret(), lower, Nobody, sessions_max);
    cx.add_protocol(crate::ENTRY.kind, name, layer)
}
