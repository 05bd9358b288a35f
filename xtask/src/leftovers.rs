//! After the tests the machine is as it was: none of the run's namespaces,
//! with the devices in them, and none of its processes is left. What others made meanwhile is
//! theirs.

use std::fs;
use std::time::Duration;

/// The variable by which a process of this run is known, wherever it went, and which the names of
/// its namespaces end with (`xk_testkit::netns`).
pub(crate) const MARK: &str = "XK_TEST_RUN";
/// The variable by which `.ci/run` says which mark it looks for.
const GIVEN: &str = "XK_CI_RUN";

/// Time in which things that are being torn down go.
const GRACE: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(250);

/// Things left of the run with this mark, each in words with its remedy; waits a little for those
/// about to go.
pub(crate) fn left(mark: &str) -> Vec<String> {
    let polls = GRACE.as_millis() / POLL.as_millis();
    for _ in 0..polls {
        if left_now(mark).is_empty() {
            return Vec::new();
        }
        std::thread::sleep(POLL);
    }
    left_now(mark)
}

fn left_now(mark: &str) -> Vec<String> {
    let namespaces = names_in("/run/netns").into_iter();
    let namespaces = namespaces.filter(|name| is_of(name, mark));
    let mut left: Vec<String> =
        namespaces.map(|name| format!("namespace {name}: ip netns delete {name}")).collect();
    left.extend(marked(mark).map(|(pid, name)| format!("process {pid} ({name}): kill {pid}")));
    left
}

/// The mark of this run: the one given, or our own process id.
pub(crate) fn mark() -> String {
    let given = std::env::var(GIVEN).ok();
    let given = given.filter(|mark| mark.parse::<u32>().is_ok());
    given.unwrap_or_else(|| std::process::id().to_string())
}

/// Whether a namespace was made by a test of the run with this mark.
fn is_of(namespace: &str, mark: &str) -> bool {
    let parts: Vec<&str> = namespace.split('-').collect();
    matches!(parts[..], ["xkt", _, _, _, run] if run == mark)
}

fn names_in(dir: &str) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// The processes, not counting ourselves, that carry `mark` in their environment.
fn marked(mark: &str) -> impl Iterator<Item = (u32, String)> {
    let entry = format!("{MARK}={mark}").into_bytes();
    let pids = names_in("/proc").into_iter().filter_map(|name| name.parse::<u32>().ok());
    pids.filter(|pid| *pid != std::process::id()).filter_map(move |pid| {
        let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
        let ours = environment.split(|octet| *octet == 0).any(|variable| variable == entry);
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        ours.then(|| (pid, name.trim().to_owned()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// The marked processes, as soon as there is one: a new program runs before the kernel shows
    /// its environment (the parent goes on when the old memory is given up, the new environment is
    /// set later in the same exec).
    fn await_environment(mark: &str) -> Vec<(u32, String)> {
        let polls = GRACE.as_millis() / POLL.as_millis();
        for _ in 0..polls {
            let seen: Vec<_> = marked(mark).collect();
            if !seen.is_empty() {
                return seen;
            }
            std::thread::sleep(POLL);
        }
        Vec::new()
    }

    #[test]
    fn what_others_made_is_theirs() {
        assert!(is_of("xkt-4711-2-4026531836-77", "77"));
        for other in ["xkt-77-2-4026531836-78", "xkt-77", "xkt-4711-77-4026531836-0", "a-77", "77"]
        {
            assert!(!is_of(other, "77"), "{other}");
        }
    }

    #[test]
    fn a_marked_process_is_seen_until_it_ends() {
        let mark = format!("test-{}", std::process::id());
        let mut child = Command::new("sleep").arg("20").env(MARK, &mark).spawn().unwrap();
        let seen = await_environment(&mark);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(seen, [(child.id(), "sleep".to_owned())]);
        assert_eq!(marked(&mark).count(), 0);
    }
}
