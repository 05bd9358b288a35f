//! Shared parts of the servers at the top of a graph: the participant that they serve.

use xk_core::graph::{Build, BuildError};
use xk_core::{Part, Participant};

/// The participant that a graph's parameters `port` and `local` name: the port, else the
/// participant, else any.
///
/// # Errors
/// [`BuildError::Param`] if `local` is no participant.
pub fn local(build: &Build<'_>) -> Result<Participant, BuildError> {
    let given = build.params.participant("local")?;
    Ok(match build.params.number("port", 0u16) {
        0 => given.unwrap_or_else(|| Participant::of(Part::Any)),
        port => Participant::of(Part::port(port)),
    })
}
