//! `vipadv` where many hosts share a link: all learn of all, forget those that are gone, and keep
//! no more than they may.

use crate::sim::{checked, pass, started};
use std::net::Ipv4Addr;
use std::time::Duration;
use xk_sim::{HostId, World};
use xk_vip::vipadv::VipTable;

const HOSTS: usize = 200;
/// Interval of announcements; a broadcast may come a tenth later.
const INTERVAL_MS: u64 = 5_500;
const LIFETIME_MS: u64 = 15_000;

struct Crowd {
    world: World,
    hosts: Vec<HostId>,
}

impl Crowd {
    fn new(vipadv: &str, link: &str, seed: u64) -> Self {
        let source = format!(
            "host \"h{{n}}\" count={HOSTS} {{\n sim link=lan\n eth sim\n arp eth\n vipadv arp interval=\"5s\" lifetime=\"15s\" {vipadv}\n \
             ip arp {{ address \"10.0.0.{{n+1}}/24\"; }}\n vip vipadv ip\n}}\nlink lan {link}\n"
        );
        let graph = checked(&source);
        let world = started(&graph, seed);
        let names = graph.graph().expand().into_iter();
        let hosts = names.map(|h| world.find(&h.name).unwrap()).collect();
        Self { world, hosts }
    }

    fn pass_ms(&mut self, ms: u64) {
        pass(&mut self.world, Duration::from_millis(ms));
    }

    /// The hosts that each knows, by number.
    fn known(&mut self) -> Vec<Vec<usize>> {
        let mut all = Vec::new();
        for (at, id) in self.hosts.iter().enumerate() {
            let asked = self.world.enter(*id, |cx| {
                let asked = VipTable { max: usize::MAX, ..VipTable::default() };
                let vipadv = cx.find_protocol("vipadv").unwrap();
                let asked = vipadv.ask(cx, asked).unwrap();
                for known in &asked.hosts {
                    let age = cx.now().since(known.heard);
                    assert!(age.as_millis() <= u128::from(LIFETIME_MS), "{known:?}");
                }
                asked.hosts
            });
            let numbers = asked.unwrap().into_iter().map(|known| {
                let number = usize::from(known.host.octets()[3]) - 1;
                assert_eq!(known.host, Ipv4Addr::new(10, 0, 0, number as u8 + 1));
                assert_ne!(number, at, "nobody learns of itself");
                number
            });
            all.push(numbers.collect());
        }
        all
    }

    /// Share of all pairs that know each other, per thousand.
    fn share(&mut self) -> usize {
        let pairs: usize = self.known().iter().map(Vec::len).sum();
        pairs * 1000 / (HOSTS * (HOSTS - 1))
    }
}

#[test]
fn all_learn_within_one_interval() {
    let mut crowd = Crowd::new("", "delay=\"50us\" rate=\"100Mbit\"", 1);
    crowd.pass_ms(INTERVAL_MS);
    assert_eq!(crowd.share(), 1000);
    // It stays so.
    for _ in 0..4 {
        crowd.pass_ms(4_000);
        assert_eq!(crowd.share(), 1000);
    }
}

#[test]
fn who_is_cut_off_is_forgotten_and_learned_of_again() {
    let half: Vec<String> = (0..HOSTS / 2).map(|n| format!("h{n}")).collect();
    let link = format!(
        "delay=\"50us\" rate=\"100Mbit\" {{ partition from=\"10s\" until=\"40s\" between=\"{}\"; }}",
        half.join(",")
    );
    let mut crowd = Crowd::new("", &link, 2);
    crowd.pass_ms(9_900);
    assert_eq!(crowd.share(), 1000);
    crowd.pass_ms(LIFETIME_MS + 200);
    for (at, known) in crowd.known().iter().enumerate() {
        let is_left = |number: usize| number < HOSTS / 2;
        assert_eq!(known.len(), HOSTS / 2 - 1, "h{at}");
        assert!(known.iter().all(|n| is_left(*n) == is_left(at)), "h{at}");
    }
    crowd.pass_ms(14_900);
    // One interval after it has healed.
    crowd.pass_ms(INTERVAL_MS);
    assert_eq!(crowd.share(), 1000);
}

#[test]
fn under_loss_nearly_all_are_known_at_any_time() {
    for seed in 1..=3 {
        let mut crowd = Crowd::new("", "delay=\"50us\" rate=\"100Mbit\" loss=\"30%\"", seed);
        crowd.pass_ms(INTERVAL_MS);
        // One or two were sent by each: of a thousand pairs 700 to 910.
        let share = crowd.share();
        assert!((680..=930).contains(&share), "seed {seed}: {share}");
        crowd.pass_ms(2 * INTERVAL_MS);
        // Three in a row are lost to 27 of a thousand, and two to 90 where the third is late.
        for _ in 0..4 {
            crowd.pass_ms(3_000);
            let share = crowd.share();
            assert!(share >= 940, "seed {seed}: {share}");
        }
    }
}

#[test]
fn a_table_that_is_too_small_stays_as_it_is() {
    let mut crowd = Crowd::new("entries_max=64", "delay=\"50us\" rate=\"100Mbit\"", 4);
    for _ in 0..3 {
        crowd.pass_ms(INTERVAL_MS);
        for known in crowd.known() {
            assert_eq!(known.len(), 64);
        }
    }
}
