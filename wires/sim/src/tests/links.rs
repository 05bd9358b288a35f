//! Effects of links on frames.

use super::*;
use xk_kit::EthAddr;

#[test]
fn a_line_takes_a_frames_time_and_then_its_delay() {
    let rated = LinkConfig { rate_bit_s: Some(10_000_000), ..link(LinkKind::PointToPoint) };
    let mut net = Net::of(1, rated, 2, &Manner::default());
    for _ in 0..3 {
        net.send(0, |cx| frame(cx, 2, 1, 0)).unwrap();
    }
    net.send(1, |cx| frame(cx, 1, 2, 0)).unwrap();
    assert_eq!(net.world.run_until_idle(Time::MAX), Ended::Idle);
    // 60 octets at 10 Mbit/s are 48 microseconds; the other way has its own line.
    assert_eq!(net.times(1), [58_000, 106_000, 154_000]);
    assert_eq!(net.times(0), [58_000]);
}

#[test]
fn a_hub_is_one_medium_and_a_switch_stores_each_frame() {
    let rated = |kind| LinkConfig { rate_bit_s: Some(10_000_000), ..link(kind) };
    let mut hub = Net::of(1, rated(LinkKind::Hub), 3, &Manner::default());
    hub.send(0, |cx| frame(cx, ALL, 1, 0)).unwrap();
    hub.send(1, |cx| frame(cx, 3, 2, 0)).unwrap();
    hub.world.run_until_idle(Time::MAX);
    assert_eq!((hub.times(0), hub.times(1)), (vec![106_000], vec![58_000]));
    assert_eq!(hub.times(2), [58_000, 106_000]);

    let mut switch = Net::of(1, rated(LinkKind::Switch), 3, &Manner::default());
    switch.send(0, |cx| frame(cx, ALL, 1, 0)).unwrap();
    switch.send(1, |cx| frame(cx, ALL, 2, 0)).unwrap();
    switch.world.run_until_idle(Time::MAX);
    // Both arrive at the switch at the same time; the second waits at the third host's port.
    assert_eq!((switch.times(0), switch.times(1)), (vec![106_000], vec![106_000]));
    assert_eq!(switch.times(2), [106_000, 154_000]);
}

#[test]
fn a_queue_is_bounded() {
    let slow = LinkConfig {
        rate_bit_s: Some(1_000_000),
        queue_frames_max: 4,
        ..link(LinkKind::PointToPoint)
    };
    let mut net = Net::of(1, slow, 2, &Manner::default());
    let results: Vec<_> = (0..7).map(|_| net.send(0, |cx| frame(cx, 2, 1, 0))).collect();
    assert_eq!(results.iter().filter(|r| r.is_ok()).count(), 5);
    assert_eq!(results[5], Err(PushError::QueueFull));
    assert_eq!(net.stats().queue_full, 2);
    let kernel = net.world.kernel(HostId(0)).unwrap();
    let drops = kernel.find_protocol("sim").unwrap().head().drops().total();
    assert_eq!(drops, 2);
    // One place is free again once the first frame has left.
    net.world.run_until(Time::from_us(480));
    net.send(0, |cx| frame(cx, 2, 1, 0)).unwrap();
    net.world.network().set_in_flight_max(5);
    assert_eq!(net.send(0, |cx| frame(cx, 2, 1, 0)), Err(PushError::QueueFull));
    assert_eq!(net.stats().in_flight_full, 1);
}

#[test]
fn a_full_port_says_when_it_has_room() {
    for kind in [LinkKind::PointToPoint, LinkKind::Hub, LinkKind::Switch] {
        for rate_bit_s in [None, Some(1_000_000), Some(7_777_777)] {
            let slow = LinkConfig { rate_bit_s, queue_frames_max: 4, ..link(kind) };
            let mut net = Net::of(1, slow, 2, &Manner::default());
            // Within the host: one that is called from outside may have an older time.
            let room = |net: &mut Net| {
                let asked = net.world.enter(HostId(0), |cx| {
                    cx.find_protocol("sim").unwrap().ask(cx, WireRoom::default())
                });
                asked.unwrap().unwrap().after
            };
            let mut waits = 0;
            for _ in 0..40 {
                let after = room(&mut net);
                let sent = net.send(0, |cx| frame(cx, 2, 1, 0));
                assert_eq!(sent.is_ok(), after.is_zero(), "{kind:?} at {rate_bit_s:?}");
                if after.is_zero() {
                    continue;
                }
                waits += 1;
                // Not sooner than it says, and no later.
                let (now, instant) = (net.world.now(), Duration::from_nanos(1));
                net.world.run_until(now.after(after - instant));
                assert_eq!(room(&mut net), instant);
                net.world.run_until(now.after(after));
                assert_eq!(room(&mut net), Duration::ZERO);
            }
            assert_eq!(waits > 0, rate_bit_s.is_some(), "{kind:?} at {rate_bit_s:?}");
        }
    }
}

#[test]
fn frames_too_large_are_refused() {
    let mut net = Net::of(1, link(LinkKind::Switch), 2, &Manner::default());
    let sent = net.send(0, |cx| cx.pool().alloc(0, 1515).unwrap());
    assert_eq!(sent, Err(PushError::TooBig));
    assert_eq!(net.send(0, |cx| cx.pool().copy_from(0, &[0; 1514]).unwrap()), Ok(()));
    let kernel = net.world.kernel(HostId(1)).unwrap();
    let sim = kernel.find_protocol("sim").unwrap();
    assert_eq!(sim.ask(kernel, MaxPacket::default()).unwrap().octets, 1514);
    assert_eq!(sim.ask(kernel, MyEther::default()).unwrap().address, [2, 0, 0, 0, 0, 2]);
}

#[test]
fn a_switch_learns_and_forgets() {
    let switch = LinkConfig { ageing: Duration::from_secs(10), ..link(LinkKind::Switch) };
    let mut net = Net::of(1, switch, 3, &Manner::default());
    net.send(0, |cx| frame(cx, 2, 1, 0)).unwrap();
    net.world.run_until(Time::from_s(1));
    net.send(1, |cx| frame(cx, 1, 2, 0)).unwrap();
    net.world.run_until(Time::from_s(2));
    net.send(0, |cx| frame(cx, 2, 1, 0)).unwrap();
    net.world.run_until(Time::from_s(3));
    let seen = |net: &Net| [0, 1, 2].map(|host| net.times(host).len());
    assert_eq!(seen(&net), [1, 2, 1]);
    assert_eq!(net.stats().flooded, 1);
    // The station was heard last in second 1, so in second 12 it is no longer known.
    net.world.run_until(Time::from_s(12));
    net.send(0, |cx| frame(cx, 2, 1, 0)).unwrap();
    net.world.run_until(Time::from_s(13));
    assert_eq!(seen(&net), [1, 3, 2]);
}

#[test]
fn a_switch_counts_what_it_sends_nowhere() {
    let mut net = Net::of(1, link(LinkKind::Switch), 2, &Manner::default());
    net.send(0, |cx| frame(cx, 1, 1, 0)).unwrap();
    net.world.run_until(Time::from_s(1));
    assert_eq!((net.stats().filtered, net.stats().delivered), (1, 0));
}

#[test]
fn no_interface_makes_up_an_address_that_another_is_given() {
    let net = Net::of(1, link(LinkKind::Switch), 1, &Manner::default());
    let (network, first) = (net.world.network(), EthAddr([2, 0, 0, 0, 0, 2]));
    assert_eq!(network.address(HostId(1), 0), first);
    network.keep(first);
    assert_eq!(network.address(HostId(1), 0), EthAddr([2, 1, 0, 0, 0, 2]));
    assert_eq!(network.address(HostId(1), 1), EthAddr([6, 0, 0, 0, 0, 2]));
}

#[test]
fn a_switchs_table_is_bounded() {
    let switch = LinkConfig { addresses_max: 1, ..link(LinkKind::Switch) };
    let mut net = Net::of(1, switch, 3, &Manner::default());
    net.send(0, |cx| frame(cx, ALL, 1, 0)).unwrap();
    net.world.run_until(Time::from_s(1));
    net.send(1, |cx| frame(cx, 1, 2, 0)).unwrap();
    net.world.run_until(Time::from_s(2));
    net.send(0, |cx| frame(cx, 2, 1, 0)).unwrap();
    net.world.run_until(Time::from_s(3));
    assert_eq!((net.stats().not_learned, net.stats().flooded), (1, 1));
    assert_eq!([0, 1, 2].map(|host| net.times(host).len()), [1, 2, 2]);
    // Long after, the old entry makes room.
    net.world.run_until(Time::from_s(400));
    net.send(1, |cx| frame(cx, ALL, 2, 0)).unwrap();
    net.world.run_until(Time::from_s(401));
    assert_eq!(net.stats().not_learned, 1);
}

#[test]
fn a_partition_cuts_and_heals() {
    let cut = Partition {
        from: Time::from_s(1),
        until: Time::from_s(2),
        between: vec!["h1".into()],
        and: vec!["h2".into()],
    };
    let hub = LinkConfig { partitions: vec![cut], ..link(LinkKind::Hub) };
    let mut net = Net::of(1, hub, 3, &Manner::default());
    for half_second in 0..5 {
        net.world.run_until(Time::from_ms(half_second * 500));
        net.send(0, |cx| frame(cx, ALL, 1, 0)).unwrap();
    }
    net.world.run_until_idle(Time::MAX);
    assert_eq!(net.stats().partitioned, 2);
    assert_eq!((net.times(1).len(), net.times(2).len()), (3, 5));
    let one_against_all = Partition { and: vec![], ..link_partition("h1") };
    assert_eq!(["h1", "h2"].map(|host| one_against_all.side(host)), [1, 2]);
    assert_eq!(["h2", "h3"].map(|host| link_partition("h2").side(host)), [1, 0]);
}

/// Changes while the world runs: two hosts are cut off from each other, and a link loses everything
/// for a while and is slower from then on.
#[test]
fn links_change_while_a_world_runs() {
    let mut net = Net::of(1, link(LinkKind::Hub), 3, &Manner::default());
    let network = Rc::clone(net.world.network());
    let lan = network.link("lan").unwrap();
    let mut heard = Vec::new();
    let mut say = |net: &mut Net| {
        net.send(0, |cx| frame(cx, ALL, 1, 0)).unwrap();
        net.world.run_until_idle(Time::MAX);
        heard.push((net.times(1).len(), net.times(2).len()));
    };
    say(&mut net);
    network.partition(HostId(0), HostId(1));
    say(&mut net);
    network.repair(HostId(1), HostId(0));
    say(&mut net);
    assert!(network.change_link(lan, |link| link.loss = 1.0));
    say(&mut net);
    let slower = |link: &mut LinkConfig| {
        (link.loss, link.delay) = (0.0, Duration::from_millis(7));
        (link.name, link.mtu_octets) = ("other".into(), 1);
    };
    assert!(network.change_link(lan, slower));
    assert!(!network.change_link(LinkId(1), slower));
    let before = net.world.now();
    say(&mut net);
    assert_eq!(heard, [(1, 1), (1, 2), (2, 3), (2, 3), (3, 4)]);
    assert_eq!(net.world.now().since(before), Duration::from_millis(7));
    assert_eq!((net.stats().partitioned, net.stats().lost), (1, 2));
    // What interfaces and ports have taken over stays.
    assert_eq!((network.link("lan"), network.link("other")), (Some(lan), None));
    assert_eq!(network.frame_octets_max(lan), 1514);
}

fn link_partition(host: &str) -> Partition {
    let (from, until) = (Time::ZERO, Time::MAX);
    Partition { from, until, between: vec![host.into()], and: vec!["other".into()] }
}

#[test]
fn chance_hits_about_as_often_as_asked_for() {
    let rough = LinkConfig {
        loss: 0.1,
        duplicate: 0.05,
        reorder: 0.02,
        corrupt: 0.03,
        jitter: Duration::from_micros(100),
        ..link(LinkKind::PointToPoint)
    };
    let mut net = Net::of(7, rough, 2, &Manner::default());
    for _ in 0..20_000 {
        net.send(0, |cx| frame(cx, 2, 1, 0)).unwrap();
        net.world.run_until_idle(Time::MAX);
    }
    let stats = net.stats();
    let near = |count: u64, expected: u64| {
        assert!(count.abs_diff(expected) < 40 + expected / 10, "{count} instead of {expected}");
    };
    near(stats.lost, 2_000);
    near(stats.corrupted, 540);
    near(stats.duplicated, 900);
    near(stats.reordered, 378);
    assert_eq!(stats.delivered, stats.sent - stats.lost + stats.duplicated);
    assert_eq!(net.times(1).len() as u64, stats.delivered);
}

#[test]
fn damage_is_seen_by_its_receiver_alone() {
    let rough = LinkConfig { corrupt: 0.5, ..link(LinkKind::Hub) };
    let mut net = Net::of(3, rough, 40, &Manner::default());
    let whole = Rc::new(RefCell::new(None));
    let kept = Rc::clone(&whole);
    net.send(0, move |cx| {
        let message = frame(cx, ALL, 1, 0);
        *kept.borrow_mut() = Some(message.try_clone().unwrap());
        message
    })
    .unwrap();
    net.world.run_until_idle(Time::MAX);
    let mut original: Vec<u8> = vec![0xff, 0, 0, 0, 0, ALL, 2, 0, 0, 0, 0, 1];
    original.resize(16, 0);
    let differ = net.logs.iter().filter(|l| l.borrow().iter().any(|(_, o)| *o != original)).count();
    let corrupted = net.stats().corrupted as usize;
    assert!((10..30).contains(&corrupted) && differ <= corrupted && differ > 0);
    let whole = whole.take().unwrap();
    assert!(whole.octets().take(16).eq(original));
}

#[test]
fn a_link_is_read_from_its_parameters() {
    let mut params = Params::default();
    assert_eq!(
        LinkConfig::from_params("lan", &params).unwrap(),
        LinkConfig::new("lan", LinkKind::Switch)
    );
    params.set("kind", Value::Text("hub".into()));
    params.set("delay", Value::Duration(Duration::from_millis(3)));
    params.set("rate", Value::Rate(10_000_000));
    params.set("loss", Value::Fraction(0.25));
    params.set("queue", Value::Integer(7));
    let mut cut = Params::default();
    cut.set("from", Value::Duration(Duration::from_secs(1)));
    cut.set("between", Value::Text("a, b".into()));
    params.add_block("partition", cut.clone());
    let config = LinkConfig::from_params("lan", &params).unwrap();
    assert_eq!(
        (config.kind, config.rate_bit_s, config.loss),
        (LinkKind::Hub, Some(10_000_000), 0.25)
    );
    assert_eq!((config.delay, config.queue_frames_max), (Duration::from_millis(3), 7));
    let cut_config = &config.partitions[0];
    assert_eq!((cut_config.from, cut_config.until), (Time::from_s(1), Time::MAX));
    assert_eq!((cut_config.between.len(), cut_config.and.len()), (2, 0));
    cut.set("until", Value::Duration(Duration::from_secs(1)));
    params.add_block("partition", cut);
    let wrong = LinkConfig::from_params("lan", &params);
    assert!(matches!(wrong, Err(BuildError::Param { name: "partition", index: 1, .. })));
}

/// A frame with an IPv4 packet from a station to a group.
fn to_group(cx: &Kernel, from: u8, group: [u8; 4], protocol: u8, data: &[u8]) -> Message {
    let mut octets = vec![0x01, 0x00, 0x5e, group[1] & 0x7f, group[2], group[3]];
    octets.extend([2, 0, 0, 0, 0, from, 8, 0, 0x45, 0]);
    octets.extend((20 + data.len() as u16).to_be_bytes());
    octets.extend([0, 0, 0, 0, 1, protocol, 0, 0, 10, 0, 0, from]);
    octets.extend(group);
    octets.extend(data);
    octets.resize(octets.len().max(60), 0);
    cx.pool().copy_from(0, &octets).unwrap()
}

/// An IGMP message with its checksum.
fn igmp(mut octets: Vec<u8>) -> Vec<u8> {
    let sum = xk_kit::net::checksum::checksum(&octets);
    octets[2..4].copy_from_slice(&sum.to_be_bytes());
    octets
}

const GROUP: [u8; 4] = [239, 1, 2, 3];

fn about(kind: u8, group: [u8; 4]) -> Vec<u8> {
    igmp([&[kind, 10, 0, 0][..], &group].concat())
}

/// Frames that each station has heard since the last look, in a net of stations as many.
struct Heard {
    net: Net,
    before: Vec<usize>,
}

impl Heard {
    /// Sends a packet, and returns the number that each station hears of it.
    fn of(&mut self, from: u8, group: [u8; 4], protocol: u8, data: &[u8]) -> Vec<usize> {
        self.net.send(u32::from(from) - 1, |cx| to_group(cx, from, group, protocol, data)).unwrap();
        let until = self.net.world.now().after(Duration::from_millis(1));
        self.net.world.run_until(until);
        let hosts = 0..self.before.len();
        let now: Vec<_> = hosts.map(|host| self.net.times(host).len()).collect();
        let before = std::mem::replace(&mut self.before, now.clone());
        now.iter().zip(before).map(|(now, before)| now - before).collect()
    }

    fn wait(&mut self, seconds: u64) {
        let until = self.net.world.now().after(Duration::from_secs(seconds));
        self.net.world.run_until(until);
    }
}

fn snoops(addresses_max: usize) -> Heard {
    let switch = LinkConfig { snooping: true, addresses_max, ..link(LinkKind::Switch) };
    Heard { net: Net::of(1, switch, 4, &Manner::default()), before: vec![0; 4] }
}

#[test]
fn a_switch_that_snoops_sends_groups_to_members_and_routers() {
    let mut lan = snoops(100);
    // While no router asks, members are silent, and groups go to all.
    assert_eq!(lan.of(4, GROUP, 17, b"x"), [1, 1, 1, 0]);
    assert_eq!(lan.of(1, [224, 0, 0, 1], 2, &about(0x11, [0; 4])), [0, 1, 1, 1]);
    // No member, but the router hears it.
    assert_eq!(lan.of(4, GROUP, 17, b"x"), [1, 0, 0, 0]);
    // Reports go to the router alone.
    assert_eq!(lan.of(2, GROUP, 2, &about(0x16, GROUP)), [1, 0, 0, 0]);
    let one_source = [&[0x22, 0, 0, 0, 0, 0, 0, 2, 5, 0, 0, 1][..], &GROUP, &[192, 0, 2, 1]];
    let of_none = [3, 0, 0, 0, 239, 9, 9, 9];
    let records = igmp([&one_source.concat()[..], &of_none].concat());
    assert_eq!(lan.of(3, [224, 0, 0, 22], 2, &records), [1, 0, 0, 0]);
    assert_eq!(lan.of(4, GROUP, 17, b"x"), [1, 1, 1, 0]);
    assert_eq!(lan.of(2, GROUP, 17, b"x"), [1, 0, 1, 0], "not back to where it came from");
    assert_eq!(lan.of(4, [239, 9, 9, 9], 17, b"x"), [1, 0, 0, 0]);
    assert_eq!(lan.of(4, [224, 0, 0, 251], 17, b"x"), [1, 1, 1, 0]);
    // The second station leaves; the router asks whether another is there, and the third is.
    assert_eq!(lan.of(2, [224, 0, 0, 2], 2, &about(0x17, GROUP)), [1, 0, 0, 0]);
    assert_eq!(lan.of(1, GROUP, 2, &about(0x11, GROUP)), [0, 1, 1, 1]);
    assert_eq!(lan.of(3, GROUP, 2, &about(0x16, GROUP)), [1, 0, 0, 0]);
    assert_eq!(lan.of(4, GROUP, 17, b"x"), [1, 1, 1, 0]);
    lan.wait(2);
    assert_eq!(lan.of(4, GROUP, 17, b"x"), [1, 0, 1, 0]);
    assert!(lan.net.stats().snooped > 5);
    // Without a router that asks, nothing is known after a while.
    lan.wait(260);
    assert_eq!(lan.of(4, GROUP, 17, b"x"), [1, 1, 1, 0]);
}

#[test]
fn a_switch_that_snoops_believes_no_damaged_report_and_misses_no_member_for_want_of_room() {
    let mut lan = snoops(1);
    lan.of(1, [224, 0, 0, 1], 2, &about(0x11, [0; 4]));
    let mut damaged = about(0x16, GROUP);
    damaged[7] ^= 1;
    lan.of(2, GROUP, 2, &damaged);
    for length in 0..8 {
        lan.of(2, GROUP, 2, &about(0x16, GROUP)[..length]);
    }
    assert_eq!(lan.of(4, GROUP, 17, b"x"), [1, 0, 0, 0]);
    lan.of(2, GROUP, 2, &about(0x16, GROUP));
    assert_eq!(lan.of(4, GROUP, 17, b"x"), [1, 1, 0, 0]);
    // The table is full: the third one's group is not known to have a member, so all have.
    lan.of(3, GROUP, 2, &about(0x16, [239, 4, 5, 6]));
    assert_eq!(lan.of(4, [239, 4, 5, 6], 17, b"x"), [1, 1, 1, 0]);
}
