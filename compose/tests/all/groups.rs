//! Members tell routers of groups, on the link where they are, also from another domain than IP's.

use crate::sim::{ask, checked, example, kernel, pass, started};
use std::time::Duration;
use xk_core::{HostAddr, reason};
use xk_igmp::{IgmpLink, IgmpLinks};
use xk_kit::net::groups::{Filter, JoinHost, LeaveHost, Membership};
use xk_sim::World;

/// A host that asks, and takes what is reported.
fn router(name: &str, link: &str, address: &str, igmp: &str) -> String {
    format!(
        "host {name} {{\n sim link={link}; eth sim; arp eth\n \
         ip arp {{ address \"{address}/24\"; group \"224.0.0.22\"; group \"224.0.0.2\"; }}\n \
         igmp ip querier=#true query_interval=\"5s\" response_interval=\"1s\" {igmp}\n}}\nlink {link}\n"
    )
}

/// The reports that a router has heard, which are none of a host's business.
fn heard(world: &World, router: &str) -> u64 {
    let igmp = kernel(world, router).find_protocol("igmp").unwrap();
    igmp.head().drops().of(&reason::NOT_MINE)
}

fn links(world: &World, host: &str) -> Vec<IgmpLink> {
    ask(world, host, "igmp", IgmpLinks::default()).links
}

#[test]
fn a_querier_is_answered_also_from_another_domain() {
    for igmp in ["igmp ip", "domain d1 {\n igmp ip\n}"] {
        let member = format!(
            "host member {{\n sim link=lan; eth sim; arp eth\n \
             ip arp {{ address \"10.0.0.2/24\"; group \"239.9.9.9\"; group \"239.8.8.8\"; }}\n \
             {igmp}\n}}\n"
        );
        let graph = checked(&(member + &router("router", "lan", "10.0.0.1", "")));
        let host = if igmp.starts_with("domain") { "member/d1" } else { "member" };
        for seed in 1..=5 {
            let mut world = started(&graph, seed);
            pass(&mut world, Duration::from_millis(100));
            let own = IgmpLink { host: [10, 0, 0, 2].into(), version: 3, groups: 2 };
            assert_eq!(links(&world, host), [own], "seed {seed}, {host}");
            assert!(heard(&world, "router") >= 1, "seed {seed}, {host}: the change at once");
            pass(&mut world, Duration::from_secs(21));
            // The change twice, and queries at 0, 1.25, 6.25, 11.25 and 16.25 s, or one later.
            let reports = heard(&world, "router");
            assert!((6..=8).contains(&reports), "seed {seed}, {host}: {reports}");
            assert_eq!(
                kernel(&world, "member").find_protocol("ip").unwrap().head().drops().total(),
                0
            );
        }
    }
}

#[test]
fn each_link_hears_of_its_own_groups_alone() {
    let member = "host member {\n sim link=one name=s1; sim link=two name=s2; eth s1 name=e1; \
                  eth s2 name=e2; arp e1 name=a1; arp e2 name=a2\n \
                  ip a1 a2 { address \"10.0.1.2/24\" on=a1; address \"10.0.2.2/24\" on=a2; }\n \
                  igmp ip\n}\n";
    let routers = router("first", "one", "10.0.1.1", "version=2")
        + &router("second", "two", "10.0.2.1", "version=3");
    let graph = checked(&(member.to_owned() + &routers));
    for seed in 1..=5 {
        let mut world = started(&graph, seed);
        pass(&mut world, Duration::from_secs(3));
        let versions = |world| links(world, "member").iter().map(|l| l.version).collect::<Vec<_>>();
        assert_eq!(versions(&world), [2, 3], "seed {seed}");
        assert_eq!((heard(&world, "first"), heard(&world, "second")), (0, 0));
        let group = HostAddr::from([239, 1, 2, 3]);
        let mut before = (0, 0);
        for (on, is_first) in [([10, 0, 1, 2], true), ([10, 0, 2, 2], false)] {
            let filter = Filter { excludes: false, sources: vec![[10, 0, 9, 9].into()] };
            let membership = Membership { group, on: on.into(), filter };
            ask(&world, "member", "ip", JoinHost { membership: membership.clone() });
            pass(&mut world, Duration::from_secs(12));
            ask(&world, "member", "ip", LeaveHost { membership });
            pass(&mut world, Duration::from_secs(2));
            let after = (heard(&world, "first"), heard(&world, "second"));
            // In version 2 reports go to the group, which the router has not joined: the leave.
            assert_eq!(after.0 > before.0, is_first, "seed {seed}");
            assert_eq!(after.1 > before.1, !is_first, "seed {seed}");
            before = after;
        }
        assert_eq!(links(&world, "member").iter().map(|l| l.groups).sum::<usize>(), 0);
    }
}

#[test]
fn the_graph_of_a_querier_and_its_members_runs() {
    let mut world = started(&example("igmp.kdl"), 1);
    pass(&mut world, Duration::from_secs(12));
    for (host, groups) in [("alice", 1), ("bob", 2), ("switch", 0)] {
        let own = &links(&world, host)[0];
        assert_eq!((own.version, own.groups), (3, groups), "{host}");
        let drops = kernel(&world, host).find_protocol("igmp").unwrap().head().drops().total();
        assert_eq!(drops, 0, "{host}");
    }
}
