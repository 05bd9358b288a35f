//! `cargo xtask install`: the command where a shell finds it, with all that belongs to it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::workspace::{env_cargo, target_dir};

/// The files that are built, and where each goes below the prefix.
const FILES: [(&str, &str); 2] = [
    ("xk", "bin/xk"),
    ("libxk_preload.so", "lib/xk/libxk_preload.so"),
];

/// Builds the command and the library of `xk exec`, and puts them below `prefix` with manual pages and
/// completions; without one below /usr/local for root, and below the user's ~/.local otherwise.
pub(crate) fn run(root: &Path, prefix: Option<&str>) -> io::Result<bool> {
    let prefix = match prefix {
        Some(prefix) => std::path::absolute(prefix)?,
        None => usual()?,
    };
    let build = [
        "build",
        "--release",
        "--package",
        "xk",
        "--package",
        "xk-preload",
    ];
    let built = Command::new(env_cargo())
        .args(build)
        .current_dir(root)
        .status()?;
    if !built.success() {
        return Ok(false);
    }
    let from = target_dir(root).join("release");
    for (file, place) in FILES {
        put(&from.join(file), &prefix.join(place))?;
    }
    let program = prefix.join(FILES[0].1);
    let generated = Command::new(&program)
        .arg("generate")
        .arg(&prefix)
        .status()?;
    println!("installed: {}", program.display());
    Ok(generated.success())
}

fn usual() -> io::Result<PathBuf> {
    if crate::setup::is_root() {
        return Ok("/usr/local".into());
    }
    let home =
        std::env::var_os("HOME").ok_or_else(|| io::Error::other("name a place by --prefix"))?;
    Ok(Path::new(&home).join(".local"))
}

/// Puts a file in place at once, whoever runs the one that was there.
fn put(from: &Path, to: &Path) -> io::Result<()> {
    let failed = |error| io::Error::other(format!("{}: {error}", to.display()));
    let folder = to.parent().unwrap_or(to);
    let fresh = to.with_extension("new");
    fs::create_dir_all(folder).map_err(failed)?;
    fs::copy(from, &fresh).map_err(failed)?;
    fs::rename(&fresh, to).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_takes_the_place_of_another() {
        let folder = std::env::temp_dir().join(format!("xk-install-{}", std::process::id()));
        let place = folder.join("lib/xk/library.so");
        for text in ["old", "new"] {
            let from = folder.join(text);
            fs::create_dir_all(&folder).unwrap();
            fs::write(&from, text).unwrap();
            put(&from, &place).unwrap();
            assert_eq!(fs::read_to_string(&place).unwrap(), text);
        }
        assert_eq!(fs::read_dir(folder.join("lib/xk")).unwrap().count(), 1);
        fs::remove_dir_all(folder).unwrap();
    }
}
