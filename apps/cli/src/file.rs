//! Reading a graph file, and finding the host that is meant.

use crate::failure::Failure;
use std::io::Read;
use std::path::Path;
use std::time::Duration;
use xk_compose::CheckedGraph;
use xk_lang::{HostInstance, SOURCE_OCTETS_MAX, nearest};

/// The least average time between crashes.
const APART_MIN: Duration = Duration::from_millis(1);
/// Hosts that an error names.
const HOSTS_NAMED: usize = 12;

/// Reads and checks the graph at `path`, or from the standard input if that is `-`.
pub(crate) fn load(path: &Path) -> Result<CheckedGraph, Failure> {
    load_with(path, |_, source| Ok(source))
}

/// As [`load`], after a change of the text.
pub(crate) fn load_with(
    path: &Path,
    change: impl FnOnce(&str, String) -> Result<String, Failure>,
) -> Result<CheckedGraph, Failure> {
    let name = path.display().to_string();
    let source = change(&name, source(path)?)?;
    Ok(xk_compose::check(&source, &name, &xk_catalog::standard())?)
}

/// The text of a graph file. Behind that of a file whose `sweep` names another graph stands that
/// one, which has been checked by itself.
pub(crate) fn source(path: &Path) -> Result<String, Failure> {
    let source = read(path)?;
    let (parsed, mistakes) = xk_lang::parse(&path.display().to_string(), &source);
    let Some(graph) = parsed.sweep.iter().find_map(|sweep| sweep.param("graph")) else {
        return Ok(source);
    };
    let mut mistakes = mistakes;
    let Some(name) = graph.value.text(&mut mistakes) else {
        return Err(Failure::Mistakes(Box::new(mistakes)));
    };
    // Beside the file that names it.
    let other = path.parent().unwrap_or(Path::new("")).join(name);
    let text = read(&other).map_err(|failure| {
        failure.help(format!("{} names it in `sweep graph=...`", path.display()))
    })?;
    xk_compose::check(&text, &other.display().to_string(), &xk_catalog::standard())?;
    Ok(format!("{source}\n{text}"))
}

/// The text with parameters set.
pub(crate) fn set(source: String, set: &[(String, String)]) -> Result<String, Failure> {
    set.iter().try_fold(source, |text, (path, value)| {
        xk_lang::edit::set(&text, path, value)
            .map_err(|why| Failure::usage(format!("{path}={value}: {why}")))
    })
}

/// A parameter and its value on the command line.
pub(crate) fn setting(text: &str) -> Result<(String, String), String> {
    let form = "expected a parameter and its value, such as lan.loss=5%";
    let (path, value) = text.split_once('=').ok_or(form)?;
    Ok((path.into(), value.into()))
}

/// Reads the average time between crashes.
pub(crate) fn apart(text: &str) -> Result<Duration, String> {
    let apart = duration(text)?;
    if apart < APART_MIN { Err(format!("at least {APART_MIN:?}")) } else { Ok(apart) }
}

fn read(path: &Path) -> Result<String, Failure> {
    let failed = |error| Failure::file("cannot read", path, error);
    // One octet more than allowed, so that the parser says that it is too long.
    let limit = SOURCE_OCTETS_MAX as u64 + 1;
    let mut octets = Vec::new();
    if path.as_os_str() == "-" {
        std::io::stdin().take(limit).read_to_end(&mut octets).map_err(failed)?;
    } else {
        let file = std::fs::File::open(path).map_err(failed)?;
        file.take(limit).read_to_end(&mut octets).map_err(failed)?;
    }
    String::from_utf8(octets).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let line = 1 + error.as_bytes()[..at].iter().filter(|octet| **octet == b'\n').count();
        Failure::new(format!("{}: line {line}, octet {at} is no UTF-8 text", path.display()))
            .help("save it as UTF-8, such as by `iconv -f latin1 -t utf-8`; is it a graph file?")
    })
}

/// The host called `name`, or the only one.
pub(crate) fn pick_host<'g>(
    graph: &'g CheckedGraph,
    name: Option<&str>,
) -> Result<HostInstance<'g>, Failure> {
    let all = graph.graph().expand();
    let names: Vec<String> = all.iter().map(|host| host.name.to_string()).collect();
    let some = names.iter().take(HOSTS_NAMED).cloned().collect::<Vec<_>>().join(", ");
    let more = names.len().saturating_sub(HOSTS_NAMED);
    let list = match more {
        0 => some,
        _ => format!("{some} and {more} more"),
    };
    match name {
        Some(name) => graph.host(name).ok_or_else(|| {
            let failure = Failure::usage(format!("the graph has no host `{name}`"));
            failure.help(match nearest(name, names.iter().map(String::as_str)) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("the hosts are: {list}"),
            })
        }),
        None => {
            let mut all = all;
            match (all.pop(), all.is_empty()) {
                (Some(only), true) => Ok(only),
                (None, _) => Err(Failure::new("the graph has no host")),
                _ => Err(Failure::usage(format!("the graph has {} hosts", names.len()))
                    .help(format!("choose one by --host: {list}; or run all by `xk sim`"))),
            }
        }
    }
}

/// A length of time on the command line: `30s`, `250ms`; a number alone means seconds.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    xk_lang::parse_duration(text)
        .or_else(|| {
            let seconds: f64 = text.parse().ok()?;
            Duration::try_from_secs_f64(seconds).ok()
        })
        .ok_or_else(|| "expected a length of time, such as 30s, 250ms or 1.5".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units_or_mean_seconds() {
        assert_eq!(duration("30s"), Ok(Duration::from_secs(30)));
        assert_eq!(duration("1.5"), Ok(Duration::from_millis(1500)));
        assert!(duration("-1").is_err() && duration("soon").is_err());
    }
}
