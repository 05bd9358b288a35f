//! Whoever runs the tests finds the machine afterwards as it was: no namespace, no device, no process more.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

/// The variable by which a process of this run is known, wherever it went.
pub(crate) const MARK: &str = "XK_TEST_RUN";

/// How long what is being torn down may take.
const GRACE: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(250);

/// What was there before the run.
#[derive(Debug)]
pub(crate) struct Before {
    namespaces: BTreeSet<String>,
    devices: BTreeSet<String>,
}

impl Before {
    pub(crate) fn look() -> Self {
        Self {
            namespaces: names_in("/run/netns"),
            devices: names_in("/sys/class/net"),
        }
    }

    /// What is there besides, each in words with what removes it; waits a little for what is about to go.
    pub(crate) fn left(&self) -> Vec<String> {
        let polls = GRACE.as_millis() / POLL.as_millis();
        for _ in 0..polls {
            if self.left_now().is_empty() {
                return Vec::new();
            }
            std::thread::sleep(POLL);
        }
        self.left_now()
    }

    fn left_now(&self) -> Vec<String> {
        let now = Self::look();
        let namespaces = now.namespaces.difference(&self.namespaces);
        let devices = now.devices.difference(&self.devices);
        let mut left: Vec<String> = namespaces
            .map(|name| format!("namespace {name}: ip netns delete {name}"))
            .collect();
        left.extend(devices.map(|name| format!("device {name}: ip link delete {name}")));
        left.extend(
            marked(&mark()).map(|(pid, name)| format!("process {pid} ({name}): kill {pid}")),
        );
        left
    }
}

/// The mark of this run: our own process id.
pub(crate) fn mark() -> String {
    std::process::id().to_string()
}

fn names_in(dir: &str) -> BTreeSet<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}

/// The processes, not counting ourselves, that carry `mark` in their environment.
fn marked(mark: &str) -> impl Iterator<Item = (u32, String)> {
    let entry = format!("{MARK}={mark}").into_bytes();
    let pids = names_in("/proc")
        .into_iter()
        .filter_map(|name| name.parse::<u32>().ok());
    pids.filter(|pid| *pid != std::process::id())
        .filter_map(move |pid| {
            let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
            let ours = environment
                .split(|octet| *octet == 0)
                .any(|variable| variable == entry);
            let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            ours.then(|| (pid, name.trim().to_owned()))
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// The marked processes, as soon as there is one: a new program runs before the kernel shows its environment
    /// (the parent goes on when the old memory is given up, the new environment is set later in the same exec).
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
    fn a_marked_process_is_seen_until_it_ends() {
        let mark = format!("test-{}", std::process::id());
        let mut child = Command::new("sleep")
            .arg("20")
            .env(MARK, &mark)
            .spawn()
            .unwrap();
        let seen = await_environment(&mark);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(seen, [(child.id(), "sleep".to_owned())]);
        assert_eq!(marked(&mark).count(), 0);
    }
}
