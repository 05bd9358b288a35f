//! Whether a program can be given the sockets of a graph: by the library that the loader takes in,
//! and that stands in front of the C library's functions.

use object::{Object, ReadCache};
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Bits of a mode by which a program changes its user or group: the loader takes in no library of
/// others then.
const CHANGES_USER: u32 = 0o6000;

/// Why the sockets of a program are going to be Linux's; `None` if they are the graph's, or it is
/// no program.
pub(crate) fn stays_linux(program: &OsStr) -> Option<&'static str> {
    let path = found(program)?;
    let file = File::open(path).ok()?;
    if file.metadata().ok()?.mode() & CHANGES_USER != 0 {
        return Some("it changes its user");
    }
    let read = ReadCache::new(file);
    // A script, whose interpreter is another matter, is none.
    let elf = object::File::parse(&read).ok()?;
    let has = |section| elf.section_by_name(section).is_some();
    match (has(".interp"), has(".go.buildinfo")) {
        (false, _) => Some("it is linked statically"),
        (true, true) => Some("it is a program in Go, which makes system calls by itself"),
        (true, false) => None,
    }
}

/// Path at which the system finds a program (execvp(3)).
fn found(program: &OsStr) -> Option<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        return Some(Path::new(program).into());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|path| path.is_file())
}
