//! Programs that receive what is sent to groups, on the graph and on Linux.

use super::{Bed, script};
use crate::program::command;
use std::path::Path;
use xk_peers::testbed::{DEVICE, LINUX, OURS, PROGRAM_TIME_MAX, Wire};
use xk_testkit::{needs, needs_program, needs_root};

const GROUP: &str = "239.1.2.3";

/// A second of datagrams to a group; iperf tells that none was lost.
pub(crate) fn iperf_sends_to_groups(wire: Wire) {
    needs_exec!();
    needs_program!("ip", "iperf", "tshark");
    let bed = Bed::new("exec-iperf-groups", wire);
    bed.lan.linux.ip(&["route", "add", "239.0.0.0/8", "dev", DEVICE]).unwrap();
    let server = bed.start_linux(&["iperf", "-s", "-u", "-B", GROUP]);
    server.wait_for("Joining multicast group", PROGRAM_TIME_MAX).unwrap();
    let _sent = bed.ours(&["iperf", "-u", "-c", GROUP, "-T", "1", "-t", "1", "-b", "1M"]);
    server.wait_for("(0%)", PROGRAM_TIME_MAX).unwrap();
    bed.judge();
}

/// A program on the graph asks for a name by multicast DNS, and `avahi-daemon` answers the group.
pub(crate) fn avahi_answers(wire: Wire) {
    needs_exec!();
    needs_program!("ip", "avahi-daemon", "python3", "tshark", "unshare");
    let bed = Bed::new("exec-avahi", wire);
    let (config, device) = (bed.path("avahi.conf"), DEVICE);
    let text = format!(
        "[server]\nhost-name=peer\nuse-ipv6=no\nallow-interfaces={device}\nenable-dbus=no\n"
    );
    std::fs::write(&config, text).unwrap();
    // Its folder has one name on the whole machine.
    let folder = "/run/avahi-daemon";
    let line = format!(
        "mkdir -p {folder} && mount -t tmpfs none {folder} && \
         exec avahi-daemon --no-drop-root --no-chroot --no-rlimits -f {config}"
    );
    let avahi = bed.start_linux(&["unshare", "-m", "sh", "-c", &line]);
    avahi.wait_for("Server startup complete", PROGRAM_TIME_MAX).unwrap();
    let asked = bed.ours(&["python3", "-B", &script("mdns.py"), OURS, "peer.local"]);
    assert_eq!(asked.trim(), LINUX);
    bed.judge();
}
