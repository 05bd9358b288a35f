//! The module as a node of a graph.

use std::path::Path;
use std::rc::Rc;

use xk_core::ProtocolRef;
use xk_core::graph::{Build, BuildError, Look, Params};
use xk_netio::Rate;
use xk_shm::{ShmError, check_path};

use crate::door::Door;

pub(crate) fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let (netio, module) = xk_netio::add(build.cx, build.name, build.lower(0)?);
    if let Some(bits_per_second) = build.params.rate("rate") {
        let burst_octets = build.octets("burst")?;
        module.limit(Rate { octets_per_second: bits_per_second / 8, burst_octets });
    }
    if let Some(path) = door(build.params) {
        let name = format!("door of {}", build.name);
        Door::open(build.cx, &name, path, Rc::clone(&module)).map_err(|e| at_door(&e))?;
    }
    build.cx.surround(module);
    Ok(netio)
}

/// Looks whether there can be a door on this machine.
pub(crate) fn probe(params: &Params, look: Look) -> Result<(), BuildError> {
    match door(params) {
        Some(path) if look == Look::Machine => check_path(path).map_err(|error| at_door(&error)),
        _ => Ok(()),
    }
}

fn door(params: &Params) -> Option<&Path> {
    params.text("door").map(Path::new)
}

/// The remedy is part of the text.
fn at_door(error: &ShmError) -> BuildError {
    BuildError::Environment {
        param: Some("door"),
        what: format!("programs cannot fetch their channels there: {error}"),
        help: String::new(),
    }
}
