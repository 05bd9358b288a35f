//! A folder of scripts.

use super::parse::{Definitions, parse};
use super::run::run;
use super::spec::Case;
use core::fmt::Write as _;
use std::path::Path;
use xk_core::Entry;

/// The file whose definitions all others of the folder may use.
const COMMON: &str = "common.pkt";

/// The scripts of one file.
#[derive(Clone, Debug)]
pub struct File {
    /// Name without the folder.
    pub name: String,
    /// Scripts of the file.
    pub cases: Vec<Case>,
}

/// Reads all files `*.pkt` of a folder, in the order of their names; definitions of `common.pkt`
/// hold for all.
///
/// # Errors
/// A file that cannot be read, or the first line that makes no sense, with its file.
pub fn load(folder: &Path) -> Result<Vec<File>, String> {
    let named = |error: &dyn core::fmt::Display, name: &str| format!("{name}: {error}");
    let entries = std::fs::read_dir(folder).map_err(|e| named(&e, &folder.to_string_lossy()))?;
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.ends_with(".pkt") && name != COMMON)
        .collect();
    names.sort();
    let mut common = Definitions::new();
    let read = |name: &str| {
        std::fs::read_to_string(folder.join(name)).map_err(|error| named(&error, name))
    };
    if folder.join(COMMON).exists() {
        parse(&read(COMMON)?, &mut common).map_err(|error| named(&error, COMMON))?;
    }
    let file = |name: String| {
        let mut definitions = common.clone();
        let text = read(&name)?;
        let cases = parse(&text, &mut definitions).map_err(|error| named(&error, &name))?;
        Ok(File { name, cases })
    };
    names.into_iter().map(file).collect()
}

/// Runs the scripts of a file whose title, or line as `FILE:LINE`, contains `filter`: each twice,
/// with segments one by one, and in bursts as they come right behind each other.
///
/// # Errors
/// What every script that did not go as written has to say.
pub fn run_file(file: &File, entry: &'static Entry, filter: Option<&str>) -> Result<usize, String> {
    let mut failures = String::new();
    let mut ran = 0;
    for case in &file.cases {
        let place = format!("{}:{}", file.name, case.line);
        if filter.is_some_and(|filter| !case.title.contains(filter) && !place.contains(filter)) {
            continue;
        }
        ran += 1;
        for bursts in [false, true] {
            let how = if bursts { " (in bursts)" } else { "" };
            match run(case, entry, bursts) {
                Ok(trace) if filter.is_some() => println!("{place}{how}\n{}", trace.join("\n")),
                Ok(_) => {}
                Err(failure) => {
                    let _ = writeln!(failures, "{}{how}: {failure}", file.name);
                }
            }
        }
    }
    if failures.is_empty() { Ok(ran) } else { Err(failures) }
}
