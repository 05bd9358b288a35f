//! `cargo xtask setup`: the programs that the peer tests talk to.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A program that a test starts, or a file that it compiles with, and the Debian package that
/// brings it.
const PROGRAMS: &[(&str, &str)] = &[
    ("ip", "iproute2"),
    ("ping", "iputils-ping"),
    ("arping", "iputils-arping"),
    ("tracepath", "iputils-tracepath"),
    ("traceroute", "traceroute"),
    ("iperf3", "iperf3"),
    ("tcpdump", "tcpdump"),
    ("tshark", "tshark"),
    ("socat", "socat"),
    ("iperf", "iperf"),
    ("vtysh", "frr"),
    ("avahi-daemon", "avahi-daemon"),
    ("nc", "netcat-openbsd"),
    ("nmap", "nmap"),
    ("hping3", "hping3"),
    ("python3", "python3"),
    ("curl", "curl"),
    ("wget", "wget"),
    ("redis-server", "redis-server"),
    ("redis-benchmark", "redis-tools"),
    ("nginx", "nginx-light"),
    ("openssl", "openssl"),
    ("ssh", "openssh-client"),
    ("sshd", "openssh-server"),
    ("rpcbind", "rpcbind"),
    ("rpcgen", "rpcsvc-proto"),
    ("/usr/include/tirpc/rpc/rpc.h", "libtirpc-dev"),
    ("valgrind", "valgrind"),
    ("g++", "g++"),
    ("linux.uml", "user-mode-linux"),
    ("busybox", "busybox-static"),
    ("parallel", "parallel"),
    ("corosync", "corosync"),
    ("/usr/include/corosync/cpg.h", "libcpg-dev"),
    ("javac", "openjdk-17-jdk-headless"),
];

/// Folders that a user's search path often lacks, and where several of these programs live.
const SYSTEM_DIRS: &[&str] = &["/usr/sbin", "/sbin", "/usr/local/sbin"];

/// Checks, and installs what is missing when root; whether everything is there in the end. What a
/// test can do without is fetched into `target`, or is said to be missing.
pub(crate) fn run(target: &Path) -> io::Result<bool> {
    let is_complete = install()?;
    if is_complete {
        crate::netatalk::offer(target);
        crate::python::offer(target);
    }
    Ok(is_complete)
}

/// Fetches `what` to a place below the target folder unless it is there, and says so, or why it
/// cannot: tests that meet it are skipped then.
pub(crate) fn offer(
    what: &str,
    (place, is_there): (&Path, bool),
    fetch: impl FnOnce() -> io::Result<()>,
) {
    if is_there {
        println!("setup: {what} is here");
        return;
    }
    match fetch() {
        Ok(()) => println!("setup: {what} is in {} now", place.display()),
        Err(why) => println!(
            "setup: no {what} ({why}); tests that meet it are skipped, until `cargo xtask setup` \
             can fetch it"
        ),
    }
}

fn install() -> io::Result<bool> {
    let missing = missing();
    if missing.is_empty() {
        println!("setup: all {} programs are here", PROGRAMS.len());
        return Ok(true);
    }
    let install = format!("apt-get install --yes --no-install-recommends {}", missing.join(" "));
    if !is_root() || find("apt-get").is_none() {
        println!("setup: missing packages: {}", missing.join(" "));
        println!("type:  sudo sh -c 'apt-get update && DEBIAN_FRONTEND=noninteractive {install}'");
        return Ok(false);
    }
    println!("setup: installing {}", missing.join(" "));
    for arguments in ["apt-get update --quiet", &install] {
        let mut words = arguments.split(' ');
        let program = words.next().unwrap_or_default();
        let status =
            Command::new(program).args(words).env("DEBIAN_FRONTEND", "noninteractive").status()?;
        if !status.success() {
            println!("setup: `{arguments}` failed ({status})");
            return Ok(false);
        }
    }
    Ok(self::missing().is_empty())
}

/// The packages whose programs are not on this machine.
pub(crate) fn missing() -> Vec<&'static str> {
    PROGRAMS
        .iter()
        .filter(|(program, _)| find(program).is_none())
        .map(|(_, package)| *package)
        .collect()
}

/// Whether this process may make namespaces and devices.
pub(crate) fn is_root() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    effective_user(&status) == Some(0)
}

/// The effective user id in the text of `/proc/self/status`.
fn effective_user(status: &str) -> Option<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// Path of `program` on the search path or in the system's own folders; an absolute path is itself.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs = std::env::split_paths(&path).chain(SYSTEM_DIRS.iter().map(PathBuf::from));
    dirs.map(|dir| dir.join(program)).find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_effective_user_counts() {
        assert_eq!(effective_user("Name:\tx\nUid:\t1000\t0\t0\t0\n"), Some(0));
        assert_eq!(effective_user("Uid:\t1000\t1000\t0\t0\n"), Some(1000));
        assert_eq!(effective_user(""), None);
    }

    #[test]
    fn programs_are_found() {
        assert!(find("sh").is_some());
        assert!(find("no-such-program-anywhere").is_none());
    }
}
