//! The units of systemd(1) in `dist/systemd`, and that a host needs no right beside those which
//! they give it.

use crate::{STEP_TIME_MAX, XK};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use xk_testkit::netns::Net;
use xk_testkit::{needs_program, needs_root};

fn from_root(path: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path).display().to_string()
}

/// The value of a line of a unit.
fn value(unit: &str, key: &str) -> String {
    let line = unit.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    line.unwrap_or_else(|| panic!("no {key}")).to_owned()
}

#[test]
fn units_are_understood() {
    needs_program!("systemd-analyze");
    let folder = tempfile::tempdir().unwrap();
    let mut names = Vec::new();
    for unit in fs::read_dir(from_root("dist/systemd")).unwrap().flatten() {
        let text = fs::read_to_string(unit.path()).unwrap();
        let name = folder.path().join(unit.file_name());
        fs::write(&name, text.replace("/usr/local/bin/xk", XK)).unwrap();
        names.push(name);
    }
    assert_eq!(names.len(), 2);
    let mut verify = Command::new("systemd-analyze");
    let said = verify.args(["verify", "--man=no"]).args(&names).output().unwrap();
    let text = String::from_utf8_lossy(&said.stderr);
    // Other units of the machine are looked at, too.
    let own: Vec<&str> = text.lines().filter(|line| line.contains("xk")).collect();
    assert!(said.status.success() && own.is_empty(), "{text}");
}

#[test]
fn a_host_needs_the_rights_of_its_unit_alone() {
    needs_root!("ip", "ping", "setpriv");
    let unit = fs::read_to_string(from_root("dist/systemd/xk@.service")).unwrap();
    let rights = value(&unit, "AmbientCapabilities");
    assert_eq!(rights, value(&unit, "CapabilityBoundingSet"));
    let rights: Vec<String> = rights
        .split_whitespace()
        .map(|right| format!("+{}", right.trim_start_matches("CAP_").to_lowercase()))
        .collect();
    let rights = rights.join(",");
    let (ambient, bound) =
        (format!("--ambient-caps={rights}"), format!("--bounding-set=-all,{rights}"));
    let inherited = format!("--inh-caps={rights}");
    let user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs"];
    let line = [&user[..], &[&inherited, &ambient, &bound, XK, "run", "--no-control"]].concat();
    for name in ["graphs/org-one.kdl", "graphs/org-per-protocol.kdl"] {
        let net = Net::new(name).unwrap();
        let [space, ours] = [(); 2].map(|()| net.space().unwrap());
        net.veth(&space, "xk0", &ours, "xk1").unwrap();
        space.address("xk0", "10.9.0.1/24").unwrap();
        // TAP devices have an access mode besides (udev(7)), which differs from machine to machine.
        let tap = "tap  device=xk0 host_address=\"10.9.0.1/24\"";
        let text = fs::read_to_string(from_root(name)).unwrap();
        assert!(text.contains(tap), "{text}");
        let text = text.replace(tap, "packet device=xk1 name=tap");
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        let file = folder.path().join("graph.kdl");
        fs::write(&file, text).unwrap();
        let file = file.display().to_string();
        let running = ours.spawn(&[&line[..], &[&file]].concat()).unwrap();
        running.wait_for("Ctrl-C ends it.", STEP_TIME_MAX).unwrap();
        space.exec(&["ping", "-c", "2", "-i", "0.05", "-W", "5", "10.9.0.2"]).unwrap();
        // What runs protocols keeps none of them.
        let children = format!("/proc/{0}/task/{0}/children", running.id());
        let children = fs::read_to_string(children).unwrap();
        let mut processes: Vec<&str> = children.split_whitespace().collect();
        let own = running.id().to_string();
        if processes.is_empty() {
            processes.push(&own);
        }
        for process in processes {
            let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
            let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
            assert_eq!(effective.unwrap().trim(), "0000000000000000", "{name}: {status}");
        }
    }
}
