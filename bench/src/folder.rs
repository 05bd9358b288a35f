//! Folders of a benchmark's own.

use crate::case::Trouble;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use tempfile::{Builder, TempDir};

/// A new folder that only this user can look into, under a name that cannot be known
/// before; it goes with the value.
///
/// # Errors
/// There is no place for it.
pub(crate) fn own() -> Result<TempDir, Trouble> {
    let mut builder = Builder::new();
    builder.prefix("xk-bench-").permissions(Permissions::from_mode(0o700));
    let made = builder.tempdir();
    made.map_err(|error| Trouble::Failed(format!("no folder to work in: {error}")))
}
