//! Needs of a test that a machine may lack, and how the test says so.
//!
//! A test asks at its beginning, by [`needs_root!`](crate::needs_root) or
//! [`needs_program!`](crate::needs_program). When the thing is missing, one line naming the test
//! and the remedy is printed and the test returns; [`crate::peer`] then counts it as skipped. Under
//! the standard harness, which has no such count, it passes and the line is in its output.

use std::cell::RefCell;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

thread_local! {
    /// Why the test running on this thread gave up, and its name where the runner knows it.
    static SKIPPED: RefCell<Option<String>> = const { RefCell::new(None) };
    static NAME: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Whether this process may change the network: effective user 0.
#[must_use]
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Path of `program` along `PATH` (and in the `sbin` folders, which users' paths often lack).
#[must_use]
pub fn program(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from))
        .map(|folder| folder.join(program))
        .find(|candidate| {
            rustix::fs::access(candidate, rustix::fs::Access::EXEC_OK).is_ok()
                && candidate.is_file()
        })
}

/// The reason to skip for want of root, or nothing. The macro [`needs_root!`](crate::needs_root) is
/// the usual way in.
#[must_use]
pub fn root_missing() -> Option<String> {
    if !is_root() {
        let command: Vec<String> = std::env::args().collect();
        return Some(format!("needs root (run: sudo {})", command.join(" ")));
    }
    // Root of a container may have less.
    static CONFINED: OnceLock<bool> = OnceLock::new();
    let confined = CONFINED.get_or_init(|| {
        let script = "[ -w /proc/sys/net/ipv4/ip_forward ]";
        let output = Command::new("unshare").args(["-n", "sh", "-c", script]).output();
        output.is_ok_and(|output| !output.status.success())
    });
    confined.then(|| {
        "needs the right to make network namespaces and to set what they do (a container has it with --privileged)".to_owned()
    })
}

/// The reason to skip for want of `name`, or nothing. The macro
/// [`needs_program!`](crate::needs_program) is the usual way in.
#[must_use]
pub fn program_missing(name: &str) -> Option<String> {
    program(name).is_none().then(|| {
        format!(
            "needs the program {name} (install it, for example: sudo apt install {})",
            package(name)
        )
    })
}

/// The Debian package that brings a program, where the names differ.
fn package(program: &str) -> &str {
    match program {
        "ip" | "ss" | "tc" => "iproute2",
        "ping" => "iputils-ping",
        "nc" => "netcat-openbsd",
        "mtr" => "mtr-tiny",
        "linux.uml" => "user-mode-linux",
        "busybox" => "busybox-static",
        "nping" => "nmap",
        "nginx" => "nginx-light",
        "redis-cli" | "redis-benchmark" => "redis-tools",
        "ssh" | "ssh-keygen" => "openssh-client",
        "sshd" => "openssh-server",
        "rpcgen" => "rpcsvc-proto",
        "rpcinfo" => "rpcbind",
        other => other,
    }
}

/// Records that the test on this thread is skipped, and prints `SKIPPED <name>: <reason>`. The test
/// must return at once.
pub fn skip(reason: &str) {
    println!("SKIPPED {}: {reason}", test_name());
    SKIPPED.with_borrow_mut(|slot| *slot = Some(reason.to_owned()));
}

/// The reason recorded since the last call on this thread. The runner asks after each test.
pub fn take_skipped() -> Option<String> {
    SKIPPED.with_borrow_mut(Option::take)
}

/// Names the test that runs on this thread from now on.
pub(crate) fn set_test_name(name: &str) {
    NAME.with_borrow_mut(|slot| *slot = Some(name.to_owned()));
}

/// The running test's name: the peer runner's, or the standard harness's, which names its threads
/// after tests.
fn test_name() -> String {
    NAME.with_borrow(Clone::clone)
        .or_else(|| std::thread::current().name().map(str::to_owned))
        .unwrap_or_else(|| "(unnamed test)".to_owned())
}

/// Returns from the test, counted as skipped, unless the process is root, and finds every named
/// program.
#[macro_export]
macro_rules! needs_root {
    ($($name:expr),* $(,)?) => {
        if let Some(reason) = $crate::needs::root_missing() {
            $crate::needs::skip(&reason);
            return;
        }
        $crate::needs_program!($($name),*);
    };
}

/// Returns from the test, counted as skipped, unless every named program is found.
#[macro_export]
macro_rules! needs_program {
    ($($name:expr),* $(,)?) => {
        $(
            if let Some(reason) = $crate::needs::program_missing($name) {
                $crate::needs::skip(&reason);
                return;
            }
        )*
    };
}

/// Looks every few milliseconds whether something holds; fails with the message after this time.
#[macro_export]
macro_rules! await_that {
    ($limit:expr, $holds:expr, $($message:tt)+) => {
        let begun = std::time::Instant::now();
        while !($holds) {
            assert!(begun.elapsed() < $limit, $($message)+);
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_along_the_path() {
        assert!(program("sh").is_some());
        assert!(program("no-such-program-anywhere").is_none());
        assert!(program_missing("sh").is_none());
    }

    #[test]
    fn a_skip_is_recorded_once() {
        fn asks() {
            crate::needs_program!("sh", "no-such-program-anywhere");
            panic!("went on without its program");
        }
        asks();
        let reason = take_skipped().expect("a reason");
        assert!(reason.contains("no-such-program-anywhere"), "{reason}");
        assert_eq!(take_skipped(), None);
    }
}
