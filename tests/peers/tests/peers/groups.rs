//! Memberships, told to a bridge of Linux that snoops and asks, and to FRR's router of groups.

use std::path::Path;
use std::time::{Duration, Instant};

use xk_core::HostAddr;
use xk_igmp::IgmpLinks;
use xk_kit::net::groups::{Filter, JoinHost, LeaveHost, Membership};
use xk_peers::testbed::{DEVICE, Lan, Wire};
use xk_testkit::{needs, needs_root};

const KEPT: &str = "239.9.9.9";
const GROUP: [u8; 4] = [239, 1, 2, 3];
const SOURCE: [u8; 4] = [192, 0, 2, 7];
/// Nothing may take longer.
const LIMIT: Duration = Duration::from_secs(30);

/// Waits until the bridge's list of members is as wanted.
fn await_members(lan: &Lan, what: &str, is_so: impl Fn(&str) -> bool) {
    let begun = Instant::now();
    loop {
        let said = lan.linux.exec(&["bridge", "-d", "mdb", "show", "dev", "br0"]).unwrap();
        if is_so(&said) {
            return;
        }
        assert!(begun.elapsed() < LIMIT, "{what}: {said}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The bridge asks in version 2 and in version 3; its queries come from no host.
pub(crate) fn a_bridge_follows_joins_and_leaves(wire: Wire) {
    needs_root!("ip", "bridge", "tshark");
    for version in [2_u8, 3] {
        let lan = Lan::new(&format!("groups-{version}"), wire);
        let number = version.to_string();
        let ip = |arguments: &str| {
            lan.linux.ip(&arguments.split(' ').collect::<Vec<_>>()).unwrap();
        };
        ip("link add br0 type bridge mcast_snooping 1 mcast_querier 1 mcast_query_interval 200");
        ip(&format!("link set br0 type bridge mcast_igmp_version {number}"));
        ip("link set br0 type bridge mcast_startup_query_interval 200");
        ip("link set br0 type bridge mcast_query_response_interval 100");
        ip("link set br0 type bridge mcast_last_member_interval 50");
        ip(&format!("link set {DEVICE} master br0"));
        let stack = lan.start("", "igmp ip");
        ip("link set br0 up");
        let on = HostAddr::UNSPECIFIED;
        let kept = Membership { group: [239, 9, 9, 9].into(), on, filter: Filter::ALL };
        stack.ask("ip", JoinHost { membership: kept });
        await_members(&lan, "the first", |said| said.contains(KEPT));
        let filter = match version {
            3 => Filter { excludes: false, sources: vec![SOURCE.into()] },
            _ => Filter::ALL,
        };
        let membership = Membership { group: GROUP.into(), on, filter };
        stack.ask("ip", JoinHost { membership: membership.clone() });
        await_members(&lan, "joined", |said| {
            said.contains("239.1.2.3") && (version == 2 || said.contains("192.0.2.7"))
        });
        // The bridge has asked by now, or asks soon.
        let begun = Instant::now();
        while stack.ask("igmp", IgmpLinks::default()).links[0].version != version {
            assert!(begun.elapsed() < LIMIT, "version {version}");
            std::thread::sleep(Duration::from_millis(50));
        }
        std::thread::sleep(Duration::from_secs(3));
        await_members(&lan, "still there", |said| said.contains("239.1.2.3"));
        stack.ask("ip", LeaveHost { membership });
        await_members(&lan, "left", |said| !said.contains("239.1.2.3") && said.contains(KEPT));
        // The bridge's own report, to all that snoop (RFC 4286).
        stack.assert_drops_only(&["eth: not mine"]);
        drop(stack);
        assert!(lan.testbed.count("ours.pcapng", "igmp.type == 0x11") > 0, "it was asked");
        lan.testbed.judge(&[]);
    }
}

/// The folder of FRR's programs, which is on no path.
const FRR: &str = "/usr/lib/frr";
/// A second between queries, and between those to the last member.
const PIMD: &str =
    "interface eth0\n ip igmp\n ip igmp query-max-response-time 5\n ip igmp query-interval 1\n";

/// `pimd` asks in version 3, and lists the groups and the sources that it is told of.
pub(crate) fn a_router_follows_joins_and_leaves(wire: Wire) {
    needs_root!("ip", "tshark", "vtysh");
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let user = users.lines().find_map(|line| line.strip_prefix("frr:")?.split(':').nth(1));
    let Some(user) = user.filter(|_| Path::new(FRR).join("pimd").is_file()) else {
        needs::skip("needs pimd (apt-get install frr)");
        return;
    };
    let lan = Lan::new("frr", wire);
    let folder = tempfile::Builder::new().prefix("xkt-frr-").tempdir().unwrap();
    std::os::unix::fs::chown(&folder, user.parse().ok(), None).unwrap();
    let place = folder.path().display();
    let daemon = |name: &str, config: &str| {
        std::fs::write(folder.path().join(name), config).unwrap();
        let line = format!(
            "{FRR}/{name} -z {place}/routes -i {place}/{name}.pid --vty_socket {place} -f {place}/{name}"
        );
        lan.linux.spawn(&line.split(' ').collect::<Vec<_>>()).unwrap()
    };
    let _zebra = daemon("zebra", "");
    let _pimd = daemon("pimd", &PIMD.replace("eth0", DEVICE));
    let shown = |what: &str| {
        let show = format!("show ip igmp {what} json");
        let vtysh = ["vtysh", "--vty_socket", &place.to_string(), "-c", &show];
        lan.linux.exec(&vtysh).unwrap_or_default()
    };
    let await_shown = |what: &str, is_so: &dyn Fn(&str) -> bool| {
        let begun = Instant::now();
        while !is_so(&shown(what)) {
            assert!(begun.elapsed() < LIMIT, "{what}: {}", shown(what));
            std::thread::sleep(Duration::from_millis(100));
        }
    };
    await_shown("interface", &|said| said.contains("\"querier\":true"));
    let stack = lan.start("", "igmp ip");
    let on = HostAddr::UNSPECIFIED;
    let kept = Membership { group: [239, 9, 9, 9].into(), on, filter: Filter::ALL };
    stack.ask("ip", JoinHost { membership: kept });
    let filter = Filter { excludes: false, sources: vec![SOURCE.into()] };
    let membership = Membership { group: GROUP.into(), on, filter };
    stack.ask("ip", JoinHost { membership: membership.clone() });
    await_shown("groups", &|said| said.contains(KEPT) && said.contains("239.1.2.3"));
    await_shown("sources", &|said| said.contains("192.0.2.7"));
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(stack.ask("igmp", IgmpLinks::default()).links[0].version, 3);
    assert!(shown("groups").contains("239.1.2.3"), "it was answered");
    stack.ask("ip", LeaveHost { membership });
    await_shown("groups", &|said| !said.contains("239.1.2.3") && said.contains(KEPT));
    drop(stack);
    assert!(lan.testbed.count("ours.pcapng", "igmp.type == 0x11") > 0, "it was asked");
    lan.testbed.judge(&[]);
}
