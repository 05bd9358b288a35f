//! The module as a node of a graph.

use std::path::Path;
use std::rc::Rc;

use crate::xdp::{Steering, hand_over};
use crate::{Module, Rate};
use xk_core::ProtocolRef;
use xk_core::graph::{Build, BuildError, Look, Params};
use xk_kit::control::LinkType;
use xk_kit::wire::device::ETHERNET;
use xk_shm::{ShmError, check_path};
use xk_xdp::Mode;

use super::door::{Door, Hand};

/// Method that finds the program of an arrival.
#[derive(Clone, Copy)]
enum Demux<'t> {
    /// The module finds a frame's right by its headers.
    Map,
    /// Programs of the system at this interface find it by its headers.
    Bpf(&'t str),
    /// An index in the frame names its right.
    Index,
}

impl<'t> Demux<'t> {
    fn of(params: &'t Params) -> Result<Self, BuildError> {
        let wants = |name, expected: &str| {
            Err(BuildError::Param { name, index: 0, expected: expected.into() })
        };
        match (params.text("demux").unwrap_or("map"), params.text("uplink")) {
            ("bpf", Some(uplink)) => Ok(Self::Bpf(uplink)),
            ("bpf", None) => wants("demux", "an `uplink` beside bpf: the interface of the wire"),
            (_, Some(_)) => wants("uplink", "no interface, unless the parameter `demux` is bpf"),
            ("index", None) => Ok(Self::Index),
            _ => Ok(Self::Map),
        }
    }
}

pub(crate) fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let (wire, demux) = (build.lower(0)?, Demux::of(build.params)?);
    let kind = wire.ask(build.cx, LinkType::default()).map(|question| question.number);
    let (netio, module) = crate::add(build.cx, build.name, wire);
    if let Demux::Index = demux {
        if kind.is_some_and(|kind| kind != ETHERNET) {
            let expected = "map, since the frames of the wire are not those of Ethernet".into();
            return Err(BuildError::Param { name: "demux", index: 0, expected });
        }
        module.use_indices();
    }
    if let Some(bits_per_second) = build.params.rate("rate") {
        let burst_octets = build.octets("burst")?;
        module.limit(Rate { octets_per_second: bits_per_second / 8, burst_octets });
    }
    if let Some(path) = door(build.params) {
        let name = format!("door of {}", build.name);
        let hand = hand(demux, &module)?;
        let door = Door::open_with(build.cx, &name, path, Rc::clone(&module), hand);
        door.map_err(|error| at_door(&error))?;
    }
    build.cx.surround(module);
    Ok(netio)
}

/// Returns the function that gives programs their channels: with a socket beside the rings, if the
/// system is to check their frames at an interface.
fn hand(demux: Demux<'_>, module: &Rc<Module>) -> Result<Hand, BuildError> {
    let Demux::Bpf(uplink) = demux else {
        return Ok(Box::new(|ring, wants_notes, _| hand_over(ring, None, wants_notes)));
    };
    let steering = Steering::attach(uplink, Mode::Auto).map_err(|error| {
        let what = format!("the system cannot check frames there: {error}");
        BuildError::Environment { param: Some("uplink"), what, help: String::new() }
    })?;
    let steering = Rc::new(steering);
    module.steer(Rc::<Steering>::clone(&steering));
    Ok(Box::new(move |ring, wants_notes, (number, rate)| {
        // The module itself does it for a channel that the system has no means for.
        let granted = steering.open(number, rate).ok();
        hand_over(ring, granted.as_ref(), wants_notes)
    }))
}

/// Looks whether there can be a door on this machine.
pub(crate) fn probe(params: &Params, look: Look) -> Result<(), BuildError> {
    Demux::of(params)?;
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
