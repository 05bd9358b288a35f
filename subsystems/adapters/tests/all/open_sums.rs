//! Whatever leaves sums to others, and joins segments to runs, stands on any edge of a host of
//! three
//! frameworks: what does not know of it completes the one and cuts the other (invariant 12).

use crate::mixtures::{ALL, host, hosts, line, probe, run_with};
use std::cell::Cell;
use xk_core::control::Report;
use xk_core::graph::{Build, BuildError, Catalog};
use xk_core::object::{PushError, Refused};
use xk_core::{Answer, Ask, Entry, Kernel, Message, ProtocolRef};
use xk_kit::net::checksum::checksum;
use xk_kit::passthrough::{Filter, Hop, PassThrough};
use xk_kit::wire::offload::TransportChecksum;
use xk_kit::wire::segments::{NetworkHeader, Segments};

/// A layer for any edge that opens what is closed.
static OPENER: Entry = Entry::filter("opener", "//! # Synopsis\n//! `opener LOWER`", build)
    .summary("leaves checksums open, and makes runs of long segments");

/// Octets of each segment of a run.
const RUN_OCTETS: u16 = 400;

#[derive(Default)]
struct Opener {
    /// Sums that were opened, and packets that runs stand for, each way.
    opened: Cell<u64>,
    up: Cell<u64>,
    down: Cell<u64>,
}

fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    build.add(PassThrough::new(build.lower(0)?, Opener::default()))
}

/// Offset of a transport's header in a message that ends with its packet, and the transport's
/// number. The message may be a frame, a packet, or begin with the header.
fn transport(octets: &[u8]) -> Option<(usize, u8)> {
    let word = |at: usize| octets.get(at..at + 2).map(|two| u16::from_be_bytes([two[0], two[1]]));
    for at in [14, 0] {
        let is_packet = octets.get(at).is_some_and(|first| *first == 0x45)
            && word(at + 2).map(usize::from) == Some(octets.len() - at)
            && word(at + 6).is_some_and(|fragment| fragment & 0x3fff == 0)
            && (at == 0 || word(12) == Some(0x0800));
        if is_packet {
            return Some((at + 20, octets[at + 9]));
        }
    }
    (word(4).map(usize::from) == Some(octets.len())).then_some((0, 17))
}

impl Opener {
    fn open(&self, cx: &Kernel, packets: &Cell<u64>, message: Message) -> Message {
        let mut octets: Vec<u8> = message.octets().collect();
        let Some((start, number)) = transport(&octets) else { return message };
        let (field, header) = match number {
            17 => (6, 8),
            6 => (16, usize::from(octets[start + 12] >> 4) * 4),
            _ => return message,
        };
        let at = start + field;
        if octets[at..at + 2] == [0, 0] {
            return message;
        }
        // With its own sum in it a segment sums to all ones over the pseudo-header.
        let begun = checksum(&octets[start..]).to_be_bytes();
        octets[at..at + 2].copy_from_slice(&begun);
        let mut open = cx.pool().copy_from(64, &octets).expect("room");
        let segment = (octets.len() - start) as u32;
        let partial = TransportChecksum::Partial { segment, field: field as u16 };
        open.set_attribute(partial).expect("room");
        self.opened.set(self.opened.get() + 1);
        if number == 6 && segment as usize - header > usize::from(RUN_OCTETS) {
            let run = Segments {
                segment,
                header: header as u16,
                size: RUN_OCTETS,
                network: NetworkHeader::ipv4(20),
            };
            open.set_attribute(run).expect("room");
            packets.set(packets.get() + u64::from(run.packets()));
        }
        open
    }
}

impl Filter for Opener {
    fn down(&self, cx: &Kernel, hop: Hop<'_>, message: Message) -> Result<(), PushError> {
        hop.push(cx, self.open(cx, &self.down, message))
    }

    fn up(&self, cx: &Kernel, hop: Hop<'_>, message: Message) -> Result<(), Refused> {
        hop.deliver(cx, self.open(cx, &self.up, message))
    }

    fn control(
        &self,
        _: &Kernel,
        ask: &mut Ask<'_>,
        forward: &dyn Fn(&mut Ask<'_>) -> Answer,
    ) -> Answer {
        let Some(report) = ask.get::<Report>() else { return forward(ask) };
        let line = |name: &str, of: &Cell<u64>| (name.to_owned(), of.get().to_string());
        let ways = [line("up", &self.up), line("down", &self.down)];
        report.lines = ways.into_iter().chain([line("opened", &self.opened)]).collect();
        report.finished = true;
        Answer::Answered
    }
}

fn catalog() -> Catalog {
    let standard = xk_catalog::standard();
    let entries: Vec<_> = standard.entries().iter().copied().chain([&OPENER]).collect();
    Catalog::new(&entries).expect("entries that agree")
}

/// A line of a node's report in host `b`.
fn reported(world: &xk_sim::World, node: &str, names: &[&str]) -> u64 {
    let kernel = world.find("b").and_then(|id| world.kernel(id)).unwrap();
    let report = kernel.find_protocol(node).unwrap().ask(kernel, Report::default()).unwrap();
    let of = |(name, value): &(String, String)| {
        names.contains(&name.as_str()).then(|| value.parse::<u64>().unwrap())
    };
    report.lines.iter().filter_map(of).sum()
}

/// Host `b` is of these lines; a probe on TCP or UDP of host `a` asks its echo. Answers what is
/// wrong: something is lost, or the adapter `cuts` has passed on a run as one packet, this way.
fn wrong(lines: &str, transport: &str, cuts: Option<(&str, &str)>) -> String {
    let probes = format!("{transport} ip\nprobe {transport} to=\"port7@10.0.0.2\" count=20 size=");
    let probes = probes + if transport == "tcp" { "6000" } else { "1300" } + " start=\"1s\"";
    let a = host("a", &(hosts(None, 1) + &probes));
    let b = host("b", &format!("{lines}echo {transport} port=7"));
    let source = format!("{a}{b}link lan delay=\"1ms\"\n");
    let (mut world, all) = match run_with(&catalog(), &source, 60) {
        Ok(run) => run,
        Err(why) => return why,
    };
    let (results, opened) = (probe(&world, "probe"), reported(&world, "opener", &["opened"]));
    let mut wrong = String::new();
    if results.received != 20 || results.corrupt != 0 || opened == 0 {
        wrong += &format!("{results:?}, {opened} opened\n{all}");
    }
    if let Some((adapter, way)) = cuts {
        let packets = reported(&world, "opener", &[way]);
        let ways = [format!("{way}, lent"), format!("{way}, copied")];
        let passed = reported(&world, adapter, &ways.each_ref().map(String::as_str));
        if packets == 0 || passed < packets {
            wrong += &format!("{adapter}: {passed} of {packets} packets {way}\n{all}");
        }
    }
    world.stop();
    wrong
}

#[test]
fn below_every_ethernet() {
    let mut all = String::new();
    for of in ALL {
        let ether = match of {
            None => "eth opener name=ether\n".to_owned(),
            of => line(of, "ether opener"),
        };
        let ip = "arp ether\nip arp { address \"10.0.0.2/24\"; }\n";
        for transport in ["udp", "tcp"] {
            let cuts = of.filter(|_| transport == "tcp").map(|_| ("arp/ether", "up"));
            all += &wrong(&format!("opener sim\n{ether}{ip}{transport} ip\n"), transport, cuts);
        }
    }
    assert!(all.is_empty(), "{all}");
}

#[test]
fn between_every_ethernet_and_what_is_above() {
    let mut all = String::new();
    for of in ALL {
        let ether = match of {
            None => "eth sim name=ether\n".to_owned(),
            of => line(of, "ether sim"),
        };
        let ip = "opener ether\narp opener\nip arp { address \"10.0.0.2/24\"; }\n";
        for transport in ["udp", "tcp"] {
            let cuts = of.filter(|_| transport == "tcp").map(|_| ("opener/ether", "down"));
            all += &wrong(&format!("{ether}{ip}{transport} ip\n"), transport, cuts);
        }
    }
    assert!(all.is_empty(), "{all}");
}

#[test]
fn between_every_ip_and_every_udp() {
    let mut all = String::new();
    for udp in ALL {
        for ip in [None, Some("bsd")] {
            let bsd = "ether sim; ip ether { address \"10.0.0.2/24\"; }";
            let lines = match (udp, ip) {
                (Some("bsd"), Some("bsd")) => line(udp, &format!("{bsd}; udp opener")),
                (_, None) => hosts(None, 2) + &line(udp, "udp opener"),
                (_, of) => line(of, bsd) + &line(udp, "udp opener"),
            };
            let lines = lines + "opener ip\n";
            all += &wrong(&lines, "udp", None);
        }
    }
    assert!(all.is_empty(), "{all}");
}
