//! The control socket: how other commands look into a running graph.
//!
//! Requests and answers are lines of JSON. `{"ask":"dump"}` is answered by `{"ok":{...}}`;
//! `{"error":"..."}` says what is wrong and ends the conversation. Behind the answer to
//! `{"ask":"capture","edge":"ip>eth"}` follows a pcapng file, until either side hangs up. The
//! socket is the user's own, in a folder in which others can put nothing; a client asks the
//! system whose process answers.
//!
//! A thread for each client does the waiting; what concerns the graph is done by its own loop,
//! which never waits for a client.

pub(crate) mod client;
mod request;
mod server;
mod successor;
mod tree;
mod watch;

pub(crate) use request::Request;
pub(crate) use server::{Begun, Clients, Desk, Job as ServerJob, Jobs, Server};
pub(crate) use successor::gives_state;

use crate::failure::Failure;
use crate::user::User;
use rustix::fs::{Gid, Uid};
use std::ffi::OsStr;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use xk_relay::own_folder;

/// The longest request, in octets.
const REQUEST_OCTETS_MAX: u64 = 4096;
/// Largest number of connected clients.
const CLIENTS_MAX: usize = 8;
/// Sessions of each protocol that a dump describes.
const SESSIONS_SHOWN_MAX: usize = 256;

/// The longest answer that a client reads, in octets: more than the longest trace has.
const ANSWER_OCTETS_MAX: u64 = 128 << 20;

/// Whether and where a running graph can be looked into.
#[derive(clap::Args)]
pub(crate) struct ServerArgs {
    /// Path of the control socket for `xk dump`, `xk trace` and `xk capture`
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
    /// Without a control socket
    #[arg(long, conflicts_with = "control")]
    no_control: bool,
}

impl ServerArgs {
    /// The control socket of the process `pid`, which becomes `user`; none if it is not wanted, or,
    /// as `without` is told, if the system has no place for it.
    pub(crate) fn serve(
        &self,
        user: User,
        pid: u32,
        without: impl FnOnce(&Failure),
    ) -> Result<Option<Server>, Failure> {
        match (&self.control, self.no_control) {
            (_, true) => Ok(None),
            (Some(path), _) => Server::new(path.clone(), pid).map(Some),
            (None, _) => {
                let made = own_path(user, pid).and_then(|path| Server::new(path, pid));
                Ok(made.inspect_err(without).ok())
            }
        }
    }
}

/// Default path of the control socket of the process `pid`. Its folder will belong to `user`, so
/// that this user can remove the socket.
fn own_path(user: User, pid: u32) -> Result<PathBuf, Failure> {
    let made = own_folder().and_then(|folder| match rustix::process::geteuid().is_root() {
        true => folder_of(&folder, user.uid, user.gid),
        false => Ok(folder),
    });
    let folder = made.map_err(|error| {
        Failure::new(format!(
            "there is no place for a control socket ({error}); name one: --control PATH, or set \
             XDG_RUNTIME_DIR to a folder of this user alone"
        ))
    })?;
    remove_left(&folder);
    Ok(folder.join(name_of(pid)))
}

/// The folder for those of root's processes that become a user: others can neither write to it nor
/// look into it.
fn folder_of(folder: &Path, user: Uid, group: Gid) -> io::Result<PathBuf> {
    let path = folder.join(user.as_raw().to_string());
    match std::fs::DirBuilder::new().mode(0o700).create(&path) {
        Ok(()) => rustix::fs::chown(&path, Some(user), Some(group))?,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    Ok(path)
}

/// Removes the sockets in a folder of processes that were ended before they could.
fn remove_left(folder: &Path) {
    for (pid, path) in sockets_in(folder) {
        if !Path::new(&format!("/proc/{pid}")).exists() {
            server::remove_stale(&path);
        }
    }
}

/// Folders in which this user's processes may have their sockets; for root those of all processes
/// that root started.
fn folders() -> io::Result<Vec<PathBuf>> {
    let folder = own_folder()?;
    if !rustix::process::geteuid().is_root() {
        return Ok(vec![folder]);
    }
    let inside = std::fs::read_dir(&folder)?.flatten().map(|entry| entry.path());
    let is_folder = |path: &PathBuf| std::fs::symlink_metadata(path).is_ok_and(|m| m.is_dir());
    Ok(inside.filter(is_folder).collect())
}

fn name_of(pid: u32) -> String {
    format!("xk-{pid}.sock")
}

/// The sockets in a folder, with the numbers of their processes; none in one that is gone.
fn sockets_in(folder: &Path) -> impl Iterator<Item = (u32, PathBuf)> + use<> {
    let number =
        |name: &OsStr| name.to_str()?.strip_prefix("xk-")?.strip_suffix(".sock")?.parse().ok();
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(move |entry| Some((number(&entry.file_name())?, entry.path())))
}

/// Sockets that lie there and are of this user's own making, with the numbers of their processes.
fn all() -> io::Result<Vec<(u32, PathBuf)>> {
    let own = rustix::process::geteuid().as_raw();
    let is_own = |path: &Path| std::fs::symlink_metadata(path).is_ok_and(|m| m.uid() == own);
    let mut found = Vec::new();
    for folder in folders()? {
        found.extend(sockets_in(&folder).filter(|(_, path)| is_own(path)));
    }
    found.sort();
    Ok(found)
}
