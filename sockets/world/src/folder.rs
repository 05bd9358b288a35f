//! The folder of what tests keep for a time: reports of runs, captures, rows of sweeps.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The name of the folder.
const NAME: &str = "xk-world";

/// The folder that only this user can write to, which is made if need be: beside the test's
/// program, so that the same program finds it again; or, where that cannot be, beside other files
/// of the user's session, or other temporary ones.
///
/// # Errors
/// Each of these is another's, open to others, or cannot be made.
pub(crate) fn own() -> io::Result<PathBuf> {
    let program = std::env::current_exe().ok();
    let beside = program.as_deref().and_then(Path::parent).map(|at| at.join(NAME));
    let session = std::env::var_os("XDG_RUNTIME_DIR").map(|at| Path::new(&at).join(NAME));
    let user = rustix::process::geteuid().as_raw();
    let shared = std::env::temp_dir().join(format!("{NAME}-{user}"));
    first(beside.into_iter().chain(session).chain([shared]))
}

/// The first of these that is this user's alone, or can be made so.
fn first(places: impl Iterator<Item = PathBuf>) -> io::Result<PathBuf> {
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for place in places {
        match make(&place) {
            Ok(()) => return Ok(place),
            Err(error) => {
                last = io::Error::new(error.kind(), format!("{}: {error}", place.display()))
            }
        }
    }
    Err(last)
}

/// Makes a folder, or finds it as it would have been made: a name in a folder that others can write
/// to may be anything of theirs.
fn make(place: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(place) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => return made,
    }
    let found = std::fs::symlink_metadata(place)?;
    let is_own = found.is_dir()
        && found.uid() == rustix::process::geteuid().as_raw()
        && found.mode() & 0o022 == 0;
    let why = "it is no folder of this user alone: remove it, or set TMPDIR";
    if is_own { Ok(()) } else { Err(io::Error::new(io::ErrorKind::PermissionDenied, why)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    #[test]
    fn what_others_may_have_made_is_not_used() {
        let at = tempfile::tempdir().unwrap();
        let [open, link, file, own] =
            ["open", "link", "file", "own"].map(|name| at.path().join(name));
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, Permissions::from_mode(0o777)).unwrap();
        symlink(at.path(), &link).unwrap();
        fs::write(&file, "").unwrap();
        let foreign = match rustix::process::geteuid().is_root() {
            true => {
                let foreign = at.path().join("foreign");
                fs::create_dir(&foreign).unwrap();
                chown(&foreign, Some(1), Some(1)).unwrap();
                foreign
            }
            // Root's.
            false => "/".into(),
        };
        let bad = [open, link, file, foreign, at.path().join("none/below")];
        for place in &bad {
            assert!(make(place).is_err(), "{}", place.display());
        }
        let why = first(bad.iter().take(3).cloned()).unwrap_err().to_string();
        assert!(why.contains("file: it is no folder of this user alone"), "{why}");
        for _ in 0..2 {
            let found = first(bad.iter().cloned().chain([own.clone()])).unwrap();
            assert_eq!(found, own);
        }
        assert_eq!(fs::metadata(&own).unwrap().mode() & 0o777, 0o700);
    }
}
