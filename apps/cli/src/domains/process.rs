//! A process that has domains of a host: `xk run` starts it as itself, with a hidden command.

use super::confine::Confined;
use super::hello::Hello;
use super::seat::{self, Place, Shared};
use super::ways::Meeting;
use crate::failure::Failure;
use crate::user::{self, User};
use std::ffi::CString;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use xk_domains::ring::{Kin, pair};

/// Octets of a process's name at most (`PR_SET_NAME`).
const NAME_OCTETS_MAX: usize = 15;

/// Have domains of a host, as `xk run` says over the standard input
#[derive(clap::Args)]
pub(crate) struct Args {}

/// Has the system show this process under the name by which it was started, and not as that of
/// the file, `exe`: `xk: HOST/DOMAIN`, or without the host where that is too long.
fn show_name() -> std::io::Result<()> {
    let called = std::env::args().next().unwrap_or_default();
    let shown = match called.split_once('/') {
        Some((_, domains)) if called.len() > NAME_OCTETS_MAX => format!("xk: {domains}"),
        _ => called,
    };
    // The system takes as much as it has room for.
    Ok(rustix::thread::set_name(&CString::new(shown)?)?)
}

pub(crate) fn main(_: &Args) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::new(format!("cannot begin: {error}"));
    super::die_with_parent().map_err(failed)?;
    show_name().map_err(failed)?;
    let stdin = std::io::stdin().as_fd().try_clone_to_owned().map_err(failed)?;
    let mut hello = Hello::take(&mut UnixStream::from(stdin))?;
    let user = User::of(hello.user);
    let graph = xk_compose::check_text(&hello.text, &hello.file, &xk_catalog::standard())?;
    let none = || Failure::new(format!("the graph has no host `{}`", hello.host));
    let host = graph.host(&hello.host).ok_or_else(none)?;
    let plan = graph.plan_of(&host).ok_or_else(none)?;
    let seats = std::mem::take(&mut hello.seats);
    let own = |domain: usize| seats.iter().any(|seat| seat.domain == domain);
    let mut places = plan.places().iter();
    let has_devices = places.any(|place| own(place.domain()) && place.entry().probe.is_some());
    // A place where programs attach is as a device: it is made with the first rights, and takes
    // what comes.
    let is_here = |place: usize| plan.places().get(place).is_some_and(|place| own(place.domain()));
    let open = graph.domains(&host).into_iter().flat_map(|domain| domain.grants);
    let has_devices = has_devices || { open }.any(|grant| is_here(grant.place));
    let confined = Confined::new(has_devices).map_err(failed)?;
    Confined::bound().map_err(failed)?;
    user.begin()?;
    // What the machine must have was looked for before the processes were started: by now others
    // have their devices.
    if !has_devices {
        user.give_up_root()?;
        super::die_with_parent().map_err(failed)?;
    }
    // Between two threads of this process the ring is made here.
    let mut places: Vec<Place> = Vec::new();
    for mut seat in seats {
        let mut meetings: Vec<(usize, Meeting)> = Vec::new();
        for way in std::mem::take(&mut seat.ways) {
            meetings.push((way.neighbour, Meeting::Socket(way.socket)));
        }
        let neighbours = plan.domains().get(seat.domain).into_iter();
        for neighbour in neighbours.flat_map(|domain| domain.neighbours()) {
            let other = places.iter_mut().find(|place| place.seat.domain == neighbour);
            let Some(other) = other else {
                continue;
            };
            let (one, two) = pair()
                .map_err(|error| Failure::new(format!("no connection to a neighbour: {error}")))?;
            let (kin, other_kin) = Kin::pair();
            other.meetings.push((seat.domain, Meeting::Ring(Box::new(one), kin)));
            meetings.push((neighbour, Meeting::Ring(Box::new(two), other_kin)));
        }
        places.push(Place { seat, meetings });
    }
    let starting = AtomicUsize::new(places.len());
    let shared = Arc::new(Shared { hello, user, confined, starting });
    let mut threads = Vec::new();
    for place in places {
        let shared = Arc::clone(&shared);
        let name = format!("domain {}", place.seat.domain);
        let thread = std::thread::Builder::new().name(name);
        threads.push(thread.spawn(move || seat::run(&shared, place)).map_err(failed)?);
    }
    // This thread only waits.
    user::shed().map_err(failed)?;
    shared.confined.enter().map_err(failed)?;
    for thread in threads {
        let _ = thread.join();
    }
    Ok(())
}
