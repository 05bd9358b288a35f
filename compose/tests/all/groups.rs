//! Members tell routers of groups, on the link where they are, also from another domain than IP's.

use crate::sim::{ask, checked, example, kernel, pass, source, started};
use std::time::Duration;
use xk_core::{HostAddr, Part, Participants, Time, reason};
use xk_igmp::{IgmpLink, IgmpLinks};
use xk_kit::net::checksum::checksum;
use xk_kit::net::groups::{Filter, JoinHost, LeaveHost, Membership};
use xk_sim::{Ended, World};
use xk_testkit::kernel::Top;

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

/// A station that sends what it likes as IGMP.
const FORGER: &str =
    "host forger {\n sim link=lan; eth sim; arp eth\n ip arp { address \"10.0.0.66/24\"; }\n}\n";

/// Has the forger send these messages to a group.
fn forge(world: &mut World, to: [u8; 4], messages: Vec<Vec<u8>>) {
    let host = world.find("forger").expect("it is there");
    world.spawn(host, move |cx| {
        let (ip, top) = (cx.find_protocol("ip").unwrap(), Top::add(cx, "forger"));
        cx.numbers_mut().override_pair(top.id(), ip.id(), 2);
        let ends = Participants::pair(Part::Any, Part::Host(to.into()));
        let session = top.open(cx, &ip, ends).unwrap();
        for mut octets in messages {
            let sum = checksum(&octets);
            octets[2..4].copy_from_slice(&sum.to_be_bytes());
            session.push(cx, cx.pool().copy_from(128, &octets).unwrap()).unwrap();
        }
    });
}

/// Leaves in the name of a member, and reports that end its membership, are for routers: the member
/// keeps its group, and answers the next query.
#[test]
fn forged_leaves_take_no_member_out() {
    const GROUP: [u8; 4] = [239, 9, 9, 9];
    for version in [2, 3] {
        let member = "host member {\n sim link=lan; eth sim; arp eth\n \
                      ip arp { address \"10.0.0.2/24\"; group \"239.9.9.9\"; group \"224.0.0.2\"; \
                      group \"224.0.0.22\"; }\n igmp ip\n}\n";
        let router = router("router", "lan", "10.0.0.1", &format!("version={version}"));
        let graph = checked(&(member.to_owned() + FORGER + &router));
        for seed in 1..=3 {
            let mut world = started(&graph, seed);
            pass(&mut world, Duration::from_secs(3));
            let before = links(&world, "member");
            assert_eq!((before[0].version, before[0].groups), (version, 3), "seed {seed}");
            let not_mine = heard(&world, "member");
            let leave = [&[0x17, 0, 0, 0][..], &GROUP].concat();
            // Of version 3: from now on of no sources.
            let ends = [&[0x22, 0, 0, 0, 0, 0, 0, 1, 3, 0, 0, 0][..], &GROUP].concat();
            forge(&mut world, [224, 0, 0, 2], vec![leave; 500]);
            forge(&mut world, [224, 0, 0, 22], vec![ends; 500]);
            pass(&mut world, Duration::from_secs(1));
            assert_eq!(links(&world, "member"), before, "seed {seed}");
            assert_eq!(heard(&world, "member"), not_mine + 1000, "seed {seed}: all are counted");
            let reports = heard(&world, "router");
            pass(&mut world, Duration::from_secs(8));
            assert_eq!(links(&world, "member"), before, "seed {seed}");
            // In version 2 reports go to groups that the router is not in.
            assert_eq!(heard(&world, "router") > reports, version == 3, "seed {seed}");
        }
    }
}

/// Ten thousand groups on a whole host: each is joined and told of, one more is refused, queries
/// are answered in packets that are full, and all are left again.
#[test]
fn ten_thousand_groups_are_joined_and_left() {
    const GROUPS: u32 = 10_000;
    let member = format!(
        "host member {{\n sim link=lan; eth sim; arp eth\n \
         ip arp memberships_max={GROUPS} {{ address \"10.0.0.2/24\"; }}\n igmp ip\n}}\n"
    );
    let graph = checked(&(member + &router("router", "lan", "10.0.0.1", "")));
    let mut world = started(&graph, 1);
    pass(&mut world, Duration::from_secs(3));
    let membership = |n: u32| {
        let group = (0xef00_0000 + n).to_be_bytes().into();
        Membership { group, on: HostAddr::UNSPECIFIED, filter: Filter::ALL }
    };
    for n in 0..GROUPS {
        ask(&world, "member", "ip", JoinHost { membership: membership(n) });
    }
    let one_more = JoinHost { membership: membership(GROUPS) };
    let ip = kernel(&world, "member").find_protocol("ip").unwrap();
    assert!(ip.ask(kernel(&world, "member"), one_more).is_none(), "as many as may be");
    pass(&mut world, Duration::from_secs(10));
    assert_eq!(links(&world, "member")[0].groups, GROUPS as usize);
    let before = heard(&world, "router");
    pass(&mut world, Duration::from_secs(50));
    let queries = 10;
    let reports = heard(&world, "router") - before;
    // A packet of 1,500 octets has 182 of them.
    let each = u64::from(GROUPS.div_ceil(182));
    assert!((9 * each..=(queries + 1) * each).contains(&reports), "{reports} of {each} a query");
    for n in 0..GROUPS {
        ask(&world, "member", "ip", LeaveHost { membership: membership(n) });
    }
    pass(&mut world, Duration::from_secs(10));
    assert_eq!(links(&world, "member")[0].groups, 0);
    ask(&world, "member", "ip", JoinHost { membership: membership(GROUPS) });
}

/// Frames that conversations of three cost at most: twice those that their messages, answers and
/// replies need, and those that were lost.
#[test]
fn frames_stay_within_twice_the_needed_and_those_lost() {
    const LINK: &str = "link lan delay=\"1ms\" jitter=\"3ms\" loss=\"10%\"";
    // In an order of all each other member answers a message to all; a call has replies besides.
    for (name, needed) in
        [("psync", 300 * 2), ("order", 300 * 6), ("membership", 3000 * 6), ("groupcall", 50 * 8)]
    {
        let text = source(&format!("{name}.kdl"));
        assert!(text.contains(LINK), "{name}");
        for loss in [0, 10, 30] {
            let link =
                format!("link lan kind=switch delay=\"1ms\" jitter=\"3ms\" loss=\"{loss}%\"");
            let graph = checked(&text.replace(LINK, &link));
            for seed in 1..=3 {
                let mut world = started(&graph, seed);
                let ended = world.run_until_finished(Time::ZERO + Duration::from_secs(600));
                assert_eq!(ended, Ended::Finished, "{name}, {loss} %, seed {seed}");
                let lan = world.network().link("lan").expect("the link");
                let stats = world.network().stats(lan).unwrap();
                println!("{name}, {loss} %: {} of {needed}, {} lost", stats.sent, stats.lost);
                assert!(stats.sent <= 2 * needed + stats.lost, "{name}, {loss} %, seed {seed}");
            }
        }
    }
}
