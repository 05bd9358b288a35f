//! No host is made to send much to one that has not asked: whatever a stranger sends, with a forged
//! source, brings that source at most three times as many octets, all repetitions included, or only
//! as many as an allowance lets; and hosts that serve do not go on without end about one forged
//! message.
//!
//! The strangers' messages are those of honest clients, recorded in one world and sent in another
//! of the same graph, in which only the host that they go to lives. Its keys are others there, so
//! that no recorded proof holds.

mod forgery;

use forgery::{Forgery, Frame, Scene};

/// As RFC 9000, section 8, has it, and as `xk_kit::answers` has.
const TIMES_MAX: usize = 3;
/// Number of frames of each client that are tried, from the first on.
const FRAMES_MAX: usize = if cfg!(debug_assertions) { 12 } else { 24 };

/// The runnable graphs whose hosts meet on simulated Ethernets: not the one that has links of
/// another kind, nor the one whose hosts are only many, nor the one that writes a file.
fn graphs() -> Vec<(String, String)> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../graphs");
    let entries = std::fs::read_dir(folder).unwrap();
    let mut found: Vec<_> = entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ext| ext == "kdl"))
        .filter(|path| {
            let others = ["thousand.kdl", "null.kdl", "faults.kdl"];
            !others.iter().any(|name| path.ends_with(name))
        })
        .map(|path| {
            let text = std::fs::read_to_string(&path).unwrap();
            (path.file_name().unwrap().to_string_lossy().into(), text)
        })
        .filter(|(_, text): &(String, String)| text.contains("  eth ") && text.contains("\nlink "))
        .collect();
    found.sort();
    assert!(found.len() > 15);
    found
}

/// Two hosts of the same layers: `{layers}` below, and above them a client on one and a server on
/// the other.
fn pair(layers: &str, client: &str, server: &str) -> String {
    let host = |n: u32, app: &str| {
        let layers = layers.replace("{n}", &n.to_string());
        format!(
            "host h{n} {{\n sim link=lan address=\"02:00:00:00:00:0{n}\"\n{layers}\n {app}\n}}\n"
        )
    };
    format!("{}{}link lan kind=hub delay=\"50us\"\n", host(1, server), host(2, client))
}

const IP: &str = " eth sim\n arp eth\n ip arp { address \"10.0.0.{n}/24\"; }\n icmp ip\n";

/// Servers that answer by themselves: the layers, and the lines of a client and of a server on
/// them.
const SERVERS: &[(&str, &str, &str, &str)] = &[
    ("echo on udp", " udp ip\n", "probe udp to=\"port7@10.0.0.1\" count=3", "echo udp port=7"),
    (
        "echo on udp, another port",
        " udp ip\n",
        "probe udp to=\"port7007@10.0.0.1\" count=3",
        "echo udp port=7007",
    ),
    ("echo on ip", "", "probe ip to=\"10.0.0.1\" count=3", "echo ip"),
    (
        "echo on fragment",
        " fragment ip\n",
        "probe fragment to=\"10.0.0.1\" count=3 size=500",
        "echo fragment",
    ),
    (
        "echo on vip",
        " vip arp ip\n fragment vip\n",
        "probe fragment to=\"10.0.0.1\" count=3",
        "echo fragment",
    ),
    (
        "echo on rdgram",
        " fragment ip\n channel fragment\n rdgram channel\n",
        "probe rdgram to=\"10.0.0.1\" count=3",
        "echo rdgram",
    ),
    ("echo on tcp", " tcp ip\n", "probe tcp to=\"port7@10.0.0.1\" count=3", "echo tcp port=7"),
    (
        "procedures on udp",
        " udp ip\n reqrep udp\n sunselect reqrep\n sunprog sunselect\n",
        "caller sunprog to=\"procedure1@version1@program536870913@port2049@10.0.0.1\" count=3",
        "procedures sunprog at=\"*@version1@program536870913@port2049\"",
    ),
    (
        "port mapper",
        " udp ip\n reqrep udp\n sunselect reqrep\n sunprog sunselect\n",
        "caller sunprog to=\"procedure4@version2@program100000@port111@10.0.0.1\" count=3",
        "portmap sunprog",
    ),
    (
        "procedures on mrpc",
        " mrpc ip\n",
        "caller mrpc to=\"procedure1@10.0.0.1\" count=3 size=5000",
        "procedures mrpc",
    ),
    (
        "procedures on vmtp",
        " vmtp ip\n",
        "caller vmtp to=\"procedure1@10.0.0.1\" count=3 size=5000",
        "procedures vmtp",
    ),
    (
        "procedures on select",
        " fragment ip\n channel fragment\n select channel\n",
        "caller select procedure=1 to=\"10.0.0.1\" count=3 size=5000",
        "procedures select",
    ),
    (
        "machines of sr on udp",
        " udp ip\n reqrep udp\n sr reqrep vm={n} at=port2006\n",
        "caller sr to=\"procedure1@vm1@10.0.0.1\" count=3",
        "procedures sr",
    ),
    ("ping", "", "probe icmp to=\"10.0.0.1\" count=3", ""),
    ("closed port", " udp ip\n", "probe udp to=\"port9@10.0.0.1\" count=3", ""),
    ("closed port of tcp", " tcp ip\n", "probe tcp to=\"port9@10.0.0.1\" count=1", ""),
];

/// Clients and servers.
fn servers() -> Vec<(String, String)> {
    scenes(|client, _| client)
}

/// Servers of this name on both hosts, and a third that only sends.
fn served_twice(name: &str) -> String {
    let mut all = scenes(|_, server| server).into_iter();
    let (_, text) = all.find(|(other, _)| other == name).unwrap();
    format!("{text}host h3 {{\n sim link=lan\n}}\n")
}

/// Graphs of two hosts each: the server on one, and on the other a node that `other` makes of
/// client and server.
fn scenes(other: fn(&'static str, &'static str) -> &'static str) -> Vec<(String, String)> {
    let scene = |(name, layers, client, server): &(&str, &str, &'static str, &'static str)| {
        let layers = format!("{IP}{layers}");
        let text = pair(&layers, other(client, server), server);
        ((*name).to_owned(), text)
    };
    SERVERS.iter().map(scene).collect()
}

/// Octets of frames, those of Ethernet and its padding aside.
fn octets(frames: &[Frame]) -> usize {
    frames.iter().filter(|f| !f.is_arp()).map(Frame::octets).sum()
}

/// Number of times that a message with longer answers comes, at most a hundred in a second.
const TIMES: usize = 4000;
/// Octets that may go to one host beyond three times the request's: at once, and in a second; by
/// calls, and by repetitions of TCP.
const CALLS: (usize, usize) = (128 << 10, 64 << 10);
const SYNS: (usize, usize) = (8 << 10, 1 << 10);
/// Time for which there are answers: while requests come, or until TCP gives up.
const CALLS_S: usize = TIMES / 100;
const SYNS_S: usize = CALLS_S + 255;

/// Results of all forgeries.
#[derive(Default)]
struct Judged {
    count: usize,
    worst: (f64, String),
    beyond: Vec<String>,
}

impl Judged {
    /// Judges forgeries of what goes to hosts that only serve: one that sends by itself is a
    /// client, and has asked.
    fn add<'a>(
        &mut self,
        scene: &Scene,
        name: &str,
        forgeries: impl IntoIterator<Item = &'a Forgery>,
    ) {
        for forgery in forgeries {
            if octets(&scene.answers(forgery, 0)) == 0 {
                self.count += 1;
                self.judge(scene, &format!("{name}: {forgery}"), forgery);
            }
        }
    }

    /// Judges how many octets a forgery brings if it comes once, and if those are too many, often.
    fn judge(&mut self, scene: &Scene, name: &str, forgery: &Forgery) {
        let asked = octets(std::slice::from_ref(&forgery.frame));
        let once = octets(&scene.answers(forgery, 1));
        let times = once as f64 / asked as f64;
        if times > self.worst.0 {
            self.worst = (times, name.to_owned());
        }
        if once <= TIMES_MAX * asked {
            return;
        }
        let ((burst, rate), seconds) = match forgery.frame.is_udp() {
            true => (CALLS, CALLS_S),
            false => (SYNS, SYNS_S),
        };
        let often = octets(&scene.answers(forgery, TIMES));
        if often > TIMES_MAX * asked * TIMES + burst + rate * seconds {
            let what = format!("{name}: {asked} octets bring {once}, {TIMES} times {often}");
            self.beyond.push(what);
        }
    }

    fn check(self, count_min: usize) {
        println!("{} forgeries; the worst: {:?}", self.count, self.worst);
        assert!(self.count >= count_min, "only {}", self.count);
        assert!(self.beyond.is_empty(), "{}", self.beyond.join("\n"));
    }
}

#[test]
fn a_forged_source_gets_three_times_the_octets_or_an_allowance() {
    let mut judged = Judged::default();
    for (name, text) in graphs().into_iter().chain(servers()) {
        let scene = Scene::new(&name, &text);
        judged.add(&scene, &name, &scene.forgeries(FRAMES_MAX));
    }
    judged.check(200);
}

/// A call of ONC RPC without credentials (RFC 5531, section 9).
fn call(program: u32, version: u32, procedure: u32, argument: &[u32]) -> Vec<u8> {
    let words = [1, 0, 2, program, version, procedure, 0, 0, 0, 0];
    let words = words.iter().chain(argument);
    words.flat_map(|word| word.to_be_bytes()).collect()
}

#[test]
fn calls_with_long_replies_are_no_amplifiers() {
    let mut all = servers().into_iter();
    let (_, text) = all.find(|(name, _)| name == "port mapper").unwrap();
    let text = text.replace(
        "portmap sunprog\n",
        "portmap sunprog\n procedures portmap at=\"*@version1@program536870913@port2049\"\n",
    );
    let scene = Scene::new("calls", &text);
    let recorded = scene.forgeries(1).swap_remove(0);
    let calls = [
        (2049, call(536_870_913, 1, 3, &[60_000])),
        (2049, call(536_870_913, 1, 3, &[1000])),
        (111, call(100_000, 2, 4, &[])),
        (111, call(100_000, 4, 4, &[])),
        (111, call(100_000, 4, 12, &[])),
    ];
    let forged: Vec<Forgery> = calls
        .iter()
        .map(|(port, content)| recorded.with(recorded.frame.with_content(*port, content)))
        .collect();
    let mut judged = Judged::default();
    judged.add(&scene, "calls", &forged);
    // The first of them has an answer, or nothing was tried.
    assert!(judged.worst.0 > 100.0, "{:?}", judged.worst);
    judged.check(calls.len());
}

#[test]
fn hosts_that_serve_come_to_rest_after_a_forged_message() {
    let mut tried = 0;
    let mut restless = Vec::new();
    for (name, text) in servers() {
        let recorded = Scene::new(&name, &text).forgeries(3);
        let scene = Scene::new(&name, &served_twice(&name));
        for forgery in recorded.iter().filter(|forgery| forgery.is_to("h1")) {
            let frame = &forgery.frame;
            let own = frame.port().map(|port| frame.sent_from(port));
            let others = [7, 19].map(|port| frame.sent_from(port));
            let frames = [frame.clone()].into_iter().chain(own).chain(others);
            let frames: Vec<Frame> = frames.collect();
            tried += frames.len();
            let rest = scene.rest("h3", &frames);
            if octets(&rest) > 0 {
                let count = rest.len();
                restless.push(format!("{name}: {forgery}: {count} frames in a second"));
            }
        }
    }
    assert!(tried > 50, "only {tried}");
    assert!(restless.is_empty(), "{}", restless.join("\n"));
}

#[test]
fn who_serves_one_does_not_answer_what_is_sent_to_many() {
    let mut tried = 0;
    for (name, text) in servers() {
        // The port mapper's calls are made for it (RFC 1833, section 2.2.1), and so are ONC RPC's
        // in general.
        if name.starts_with("port mapper") || name.starts_with("procedures on udp") {
            continue;
        }
        let scene = Scene::new(&name, &text);
        let recorded = scene.forgeries(3);
        for forgery in recorded.iter().filter(|f| f.is_to("h1") && f.frame.is_ip()) {
            let hosts = [[10, 0, 0, 255], [255, 255, 255, 255], [224, 0, 0, 1]];
            for (host, by_all) in hosts.into_iter().flat_map(|h| [(h, true), (h, false)]) {
                let forged = forgery.with(forgery.frame.sent_to(host, by_all));
                let answers = scene.answers(&forged, 1);
                assert_eq!(octets(&answers), 0, "{name}: {forgery} to {host:?}");
                tried += 1;
            }
        }
    }
    assert!(tried > 50, "only {tried}");
}

/// Number of messages that another host has sent before, as many as any limit of a second allows,
/// and of the host's own that follow.
const OTHERS: usize = 1200;
const OWN: usize = 20;

#[test]
fn what_one_is_answered_does_not_tell_what_others_are() {
    let mut tried = 0;
    let mut told = Vec::new();
    for (name, text) in servers() {
        let scene = Scene::new(&name, &text);
        let recorded = scene.forgeries(2);
        for forgery in recorded.iter().filter(|f| f.is_to("h1") && f.frame.is_ip()) {
            // Forged: the answers go elsewhere.
            let other = forgery.frame.in_name_of([10, 0, 77, 9]);
            let others = (0..OTHERS).map(|n| other.sent_from(30_000 + n as u16));
            let others: Vec<Frame> = others.collect();
            let alone = scene.answers_after(forgery, &[], OWN);
            let after = scene.answers_after(forgery, &others, OWN);
            tried += usize::from(!alone.is_empty());
            if alone != after {
                let (before, now) = (alone.len(), after.len());
                told.push(format!("{name}: {forgery}: {before} answers, {now} after others"));
            }
        }
    }
    assert!(tried > 10, "only {tried}");
    assert!(told.is_empty(), "{}", told.join("\n"));
}
