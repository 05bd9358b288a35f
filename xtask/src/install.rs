//! `cargo xtask install`: the command where a shell finds it, with all that belongs to it.

use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use crate::workspace::{env_cargo, target_dir};

/// The files that are built, and where each goes below the prefix.
const FILES: [(&str, &str); 2] =
    [("xk", "bin/xk"), ("libxk_preload.so", "lib/xk/libxk_preload.so")];

/// The list of what was installed, below the prefix.
const LIST: &str = "lib/xk/installed";

/// Builds the command and the library of `xk exec`, and puts them below `prefix` with manual pages
/// and completions; without one below /usr/local for root, and below the user's ~/.local otherwise.
pub(crate) fn run(root: &Path, prefix: Option<&str>) -> io::Result<bool> {
    let prefix = match prefix {
        Some(prefix) => std::path::absolute(prefix)?,
        None => usual()?,
    };
    let build = ["build", "--release", "--package", "xk", "--package", "xk-preload"];
    let built = Command::new(env_cargo()).args(build).current_dir(root).status()?;
    if !built.success() {
        return Ok(false);
    }
    let from = target_dir(root).join("release");
    let program = prefix.join(FILES[0].1);
    let made = target_dir(root).join("install");
    if made.exists() {
        fs::remove_dir_all(&made)?;
    }
    for (file, place) in FILES {
        put(&from.join(file), &made.join(place))?;
    }
    let mut generate = Command::new(from.join(FILES[0].0));
    if !generate.arg("generate").arg(&made).status()?.success() {
        return Ok(false);
    }
    place(&made, &prefix)?;
    println!("installed: {}", program.display());
    Ok(true)
}

/// Puts all files below `made` at their places below `prefix`, and notes them there.
fn place(made: &Path, prefix: &Path) -> io::Result<()> {
    let mut files = Vec::new();
    let mut folders = vec![made.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            match path.is_dir() {
                true => folders.push(path),
                false => files.push(path),
            }
        }
    }
    files.sort();
    let mut list = String::new();
    for file in files {
        let name = file.strip_prefix(made).map_err(io::Error::other)?;
        put(&file, &prefix.join(name))?;
        list += &format!("{}\n", name.display());
    }
    fs::write(prefix.join(LIST), list)
}

/// Removes what was installed below `prefix`, by default where [`run`] puts it; false if that is
/// nothing.
pub(crate) fn remove(prefix: Option<&str>) -> io::Result<bool> {
    let prefix = prefix.map_or_else(usual, |prefix| Ok(prefix.into()))?;
    let Ok(list) = fs::read_to_string(prefix.join(LIST)) else {
        println!("nothing is installed below {}", prefix.display());
        return Ok(false);
    };
    let inside = |name: &&str| {
        let mut parts = Path::new(name).components();
        parts.all(|part| matches!(part, Component::Normal(_)))
    };
    for name in list.lines().filter(inside).chain([LIST]) {
        match fs::remove_file(prefix.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    // Other folders are the system's; this one may hold what others have put there.
    let _ = fs::remove_dir(prefix.join("lib/xk"));
    println!("removed from {}", prefix.display());
    Ok(true)
}

fn usual() -> io::Result<PathBuf> {
    if crate::setup::is_root() {
        return Ok("/usr/local".into());
    }
    let home =
        std::env::var_os("HOME").ok_or_else(|| io::Error::other("name a place by --prefix"))?;
    Ok(Path::new(&home).join(".local"))
}

/// Puts a file in place at once, even if the one that was there is running.
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

    #[test]
    fn what_is_installed_is_removed_and_nothing_else() {
        let folder = std::env::temp_dir().join(format!("xk-uninstall-{}", std::process::id()));
        let (made, prefix) = (folder.join("made"), folder.join("prefix"));
        let name = |n: &str| prefix.join(n);
        for file in ["bin/xk", "lib/xk/libxk_preload.so", "share/man/man1/xk.1"] {
            let path = made.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, file).unwrap();
        }
        fs::create_dir_all(name("bin")).unwrap();
        fs::write(name("bin/other"), "kept").unwrap();
        fs::write(folder.join("outside"), "kept").unwrap();
        place(&made, &prefix).unwrap();
        assert_eq!(fs::read_to_string(name("bin/xk")).unwrap(), "bin/xk");
        let list = fs::read_to_string(name(LIST)).unwrap();
        assert_eq!(list.lines().count(), 3);
        // What a list should not have.
        fs::write(name(LIST), list + "../outside\n").unwrap();
        assert!(remove(prefix.to_str()).unwrap());
        for gone in ["bin/xk", "lib/xk", "share/man/man1/xk.1"] {
            assert!(!name(gone).exists(), "{gone}");
        }
        assert!(name("bin/other").exists() && folder.join("outside").exists());
        assert!(!remove(prefix.to_str()).unwrap());
        fs::remove_dir_all(folder).unwrap();
    }
}
