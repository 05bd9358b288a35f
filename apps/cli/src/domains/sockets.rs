//! The sockets of a host at which nodes listen and programs attach, and their folders.

use crate::failure::Failure;
use crate::user::User;
use rustix::process::geteuid;
use std::io::ErrorKind;
use std::os::unix::fs::chown;
use std::path::Path;
use xk_compose::CheckedGraph;
use xk_lang::{HostInstance, Value};

/// Folders for sockets are made here, where only root can make them.
const ROOM: &str = "/run/xk";

/// The folder right below [`ROOM`] that a socket lies in.
fn folder_to_make(path: &Path) -> Option<&Path> {
    let folder = path.parent().filter(|folder| folder.file_name().is_some())?;
    (folder.parent() == Some(Path::new(ROOM))).then_some(folder)
}

/// The sockets of a host, each with the domain whose process makes it.
pub(crate) fn of(graph: &CheckedGraph, host: &HostInstance<'_>) -> Vec<(usize, String)> {
    let places = graph.plan_of(host).map_or(&[][..], |plan| plan.places());
    let nodes = host.nodes();
    let named = places.iter().zip(nodes.iter()).filter_map(|(place, node)| {
        match &place.listens_at(node)?.value.value {
            Value::Text(path) => Some((place.domain(), path.clone())),
            _ => None,
        }
    });
    let setups = graph.domains(host);
    let opened = setups.iter().filter_map(|setup| {
        let granted = places.get(setup.grants.first()?.place)?;
        Some((granted.domain(), setup.path.clone()?))
    });
    named.chain(opened).collect()
}

/// Makes the folders below [`ROOM`] where these domains listen, for the user that they become:
/// only root can, and no other user takes a name there first.
pub(crate) fn make_folders(
    sockets: &[(usize, String)],
    domains: &[usize],
    user: User,
) -> Result<(), Failure> {
    if !geteuid().is_root() {
        return Ok(());
    }
    for (_, path) in sockets.iter().filter(|(domain, _)| domains.contains(domain)) {
        let Some(folder) = folder_to_make(Path::new(path)) else { continue };
        let make = |at: &Path| match std::fs::create_dir(at) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
            made => made.map(|()| true),
        };
        let made = make(Path::new(ROOM)).and_then(|_| make(folder));
        let given = made.and_then(|is_new| match is_new {
            true => chown(folder, Some(user.uid.as_raw()), Some(user.gid.as_raw())),
            false => Ok(()),
        });
        given.map_err(super::failed("no folder for a socket"))?;
    }
    Ok(())
}

/// Removes sockets whose processes have ended, and the folders that were made for them, unless
/// another host's lie there: a process that listened there has no right left to.
pub(super) fn remove(sockets: &[(usize, String)]) {
    for (_, path) in sockets {
        xk_shm::remove_left(Path::new(path));
        if let Some(folder) = folder_to_make(Path::new(path)) {
            let _ = std::fs::remove_dir(folder);
            let _ = std::fs::remove_dir(ROOM);
        }
    }
}
