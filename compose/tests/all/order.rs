//! Stacks cut at every edge: messages of a session arrive in the order in which they were pushed.

use crate::sim::{built, checked, config, start};
use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use xk_core::Time;
use xk_sim::{HostId, Sighting, Tap};
use xk_testkit::seeds;

/// Two hosts, each of whose layers is a domain of its own, on a link that loses nothing.
const GRAPH: &str = r#"
host client {
    domain link { sim link=lan; eth sim; }
    domain net { arp eth; ip arp { address "10.0.0.1/24"; } }
    domain udp { udp ip; }
    domain tcp { tcp ip; }
    domain app {
        probe udp name=datagrams to="port7@10.0.0.2" count=2000 interval="50us"
        probe tcp name=stream to="port7@10.0.0.2" count=500 interval="500us" size=9000 timeout="20s"
    }
}
host server {
    domain link { sim link=lan; eth sim; }
    domain net { arp eth; ip arp { address "10.0.0.2/24"; } }
    domain udp { udp ip; }
    domain tcp { tcp ip; }
    domain app { echo udp name=datagrams port=7; echo tcp name=stream port=7; }
}
link lan delay="50us" rate="1Gbit"
"#;

/// Octets of an Ethernet header, and of an IPv4 header without options.
const ETH: usize = 14;
const IP: usize = 20;

/// The last segment of a sender: the end of its sequence numbers, and its time stamp.
type Last = (u32, u32);

/// Looks at the order of everything on the link.
#[derive(Default)]
struct Order {
    /// Datagrams that are to come back.
    datagrams: RefCell<VecDeque<Vec<u8>>>,
    segments: RefCell<HashMap<HostId, Last>>,
    faults: RefCell<Vec<String>>,
    seen: RefCell<[usize; 2]>,
}

fn word(octets: &[u8]) -> u32 {
    u32::from_be_bytes(octets[..4].try_into().unwrap())
}

impl Order {
    fn datagram(&self, is_client: bool, payload: Vec<u8>) -> Result<(), &'static str> {
        self.seen.borrow_mut()[0] += 1;
        let mut under_way = self.datagrams.borrow_mut();
        if is_client {
            under_way.push_back(payload);
            return Ok(());
        }
        let next = under_way.pop_front();
        if next == Some(payload) { Ok(()) } else { Err("a datagram comes back out of order") }
    }

    fn segment(&self, from: HostId, segment: &[u8]) -> Result<(), &'static str> {
        self.seen.borrow_mut()[1] += 1;
        let header = usize::from(segment[12] >> 4) * 4;
        let (mut options, mut stamp) = (&segment[20..header], None);
        while let [kind, rest @ ..] = options {
            match (kind, rest) {
                (0, _) => break,
                (1, _) => options = rest,
                (5, _) => return Err("a segment has arrived before another"),
                (_, [len, ..]) => {
                    stamp = (*kind == 8).then(|| word(&options[2..])).or(stamp);
                    options = &options[usize::from(*len)..];
                }
                _ => return Err("an option has no length"),
            }
        }
        let begin = word(&segment[4..]);
        let flags = u32::from(segment[13] & 1) + u32::from(segment[13] >> 1 & 1);
        let end = begin.wrapping_add((segment.len() - header) as u32 + flags);
        let stamp = stamp.ok_or("a segment has no time stamp")?;
        let before = self.segments.borrow_mut().insert(from, (end, stamp));
        match before {
            Some((_, last)) if (stamp.wrapping_sub(last) as i32) < 0 => Err("an older time stamp"),
            Some((last, _)) if (begin.wrapping_sub(last) as i32) < 0 => Err("an older segment"),
            _ => Ok(()),
        }
    }
}

impl Tap for Order {
    fn frame(&self, sighting: Sighting<'_>) {
        let octets: Vec<u8> = sighting.frame.octets().collect();
        if octets[12..ETH] != [8, 0] {
            return;
        }
        let packet = &octets[ETH..][..usize::from(u16::from_be_bytes([octets[16], octets[17]]))];
        let found = match packet[9] {
            6 => self.segment(sighting.host, &packet[IP..]),
            17 => {
                let is_client = sighting.host_name.starts_with("client");
                self.datagram(is_client, packet[IP + 8..].to_vec())
            }
            _ => Ok(()),
        };
        if let Err(fault) = found {
            let (at, name) = (sighting.time, sighting.host_name);
            self.faults.borrow_mut().push(format!("{at:?} {name}: {fault}"));
        }
    }
}

#[test]
fn messages_keep_their_order_across_cuts() {
    let graph = checked(GRAPH);
    seeds::of(75).run(|seed| {
        let mut world = built(&graph, config(seed));
        let order = Rc::new(Order::default());
        world.network().set_tap(Some(Rc::clone(&order) as Rc<_>));
        start(&graph, &mut world, "order");
        world.run_until_finished(Time::ZERO + Duration::from_secs(20));
        let (faults, seen) = (order.faults.take(), order.seen.take());
        assert_eq!(faults, [""; 0], "XK_SEED={seed}");
        assert!(seen[0] >= 4000 && seen[1] >= 3000, "XK_SEED={seed}: {seen:?} are seen");
    });
}
