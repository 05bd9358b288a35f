//! Two hosts as lines, and what may be done to them that changes nothing: filters at edges, lines
//! in domains.

use std::fmt::Write as _;
use xk_core::random::Random;

/// A line of a host.
#[derive(Clone, Default)]
pub(crate) struct Line {
    pub(crate) kind: String,
    pub(crate) name: String,
    /// The places of those that it stands on.
    pub(crate) lowers: Vec<usize>,
    /// Parameters and blocks.
    pub(crate) rest: String,
    /// Subsystem of the line; by default the x-kernel.
    pub(crate) subsystem: Option<&'static str>,
    /// The place of its domain; the first is that without a name.
    pub(crate) domain: usize,
}

impl Line {
    pub(crate) fn of(kind: &str) -> Self {
        Self { kind: kind.into(), name: kind.into(), ..Self::default() }
    }

    fn is_filter(&self) -> bool {
        FILTERS.contains(&self.kind.as_str())
    }
}

/// The filters that are put at edges.
const FILTERS: [&str; 3] = ["tracer", "fault", "pcap"];
/// The most domains of a host.
const DOMAINS_MAX: u64 = 4;

/// A client's host and a server's, each line after those that it stands on, and the link between.
#[derive(Clone)]
pub(crate) struct Hosts {
    pub(crate) hosts: [Vec<Line>; 2],
    pub(crate) link: String,
}

impl Hosts {
    pub(crate) fn source(&self) -> String {
        let mut text = String::new();
        for (at, lines) in self.hosts.iter().enumerate() {
            let _ = writeln!(text, "host h{} {{", at + 1);
            let last = lines.iter().map(|line| line.domain).max().unwrap_or(0);
            for domain in 0..=last {
                let inside = domain_text(lines, domain);
                match domain {
                    _ if inside.is_empty() => {}
                    0 => text += &inside,
                    _ => text += &format!("    domain d{domain} {{\n{inside}    }}\n"),
                }
            }
            text += "}\n";
        }
        text + "link lan " + &self.link + "\n"
    }

    /// With filters at some of the edges; of those on faults, with this of them.
    pub(crate) fn filtered(&self, random: &Random, faults: &str) -> Self {
        let mut hosts = self.clone();
        for lines in &mut hosts.hosts {
            for upper in 0..lines.len() {
                for place in 0..lines[upper].lowers.len() {
                    if random.below(5) == 0 {
                        let kind = FILTERS[random.below(FILTERS.len() as u64) as usize];
                        put_filter(lines, (upper, place), (kind, faults));
                    }
                }
            }
        }
        hosts
    }

    /// With lines in domains of their own.
    pub(crate) fn cut(&self, random: &Random) -> Self {
        let mut hosts = self.clone();
        for lines in &mut hosts.hosts {
            let count = random.below(DOMAINS_MAX);
            let order = bottom_up(lines);
            // Anywhere, as far as the check lets them; or one wholly above the other.
            let anywhere = random.below(3) == 0;
            let bounds: Vec<u64> = (0..count).map(|_| random.below(lines.len() as u64)).collect();
            for (depth, &at) in order.iter().enumerate() {
                let above = bounds.iter().filter(|bound| **bound <= depth as u64).count();
                let random = random.below(count + 1) as usize;
                lines[at].domain = if anywhere { random } else { above };
            }
            together(lines);
            begin_later(lines);
        }
        hosts
    }

    /// All that has one filter less, or one domain.
    pub(crate) fn smaller(&self) -> Vec<Self> {
        let mut all = Vec::new();
        for host in 0..2 {
            let lines = &self.hosts[host];
            let mut add = |lines: Vec<Line>| {
                let mut smaller = self.clone();
                smaller.hosts[host] = lines;
                all.push(smaller);
            };
            for at in (0..lines.len()).filter(|at| lines[*at].is_filter()) {
                add(without(lines, at));
            }
            for domain in 1..=DOMAINS_MAX as usize {
                for other in 0..domain {
                    if lines.iter().any(|line| line.domain == domain) {
                        let mut lines = lines.clone();
                        let own = lines.iter_mut().filter(|line| line.domain == domain);
                        own.for_each(|line| line.domain = other);
                        add(lines);
                    }
                }
            }
        }
        all
    }
}

/// The lines of a domain, those of subsystems in their blocks.
fn domain_text(lines: &[Line], domain: usize) -> String {
    let mut text = String::new();
    for of in [None, Some("bsd"), Some("streams")] {
        let own = lines.iter().filter(|line| line.domain == domain && line.subsystem == of);
        let own = own.map(|line| {
            let lowers = line.lowers.iter().map(|at| lines[*at].name.as_str());
            let lowers = lowers.collect::<Vec<_>>().join(" ");
            format!("        \"{}\" {lowers} name={} {}\n", line.kind, line.name, line.rest)
        });
        let own: String = own.collect();
        match of {
            _ if own.is_empty() => {}
            None => text += &own,
            Some(name) => text += &format!("        subsystem {name} {{\n{own}        }}\n"),
        }
    }
    text
}

fn put_filter(lines: &mut Vec<Line>, (upper, place): (usize, usize), (kind, faults): (&str, &str)) {
    let at = lines.len();
    let rest = match kind {
        // What is lost of a stream may be a part of a message, or several.
        "fault" if is_stream(lines, lines[upper].lowers[place]) => String::new(),
        "fault" => faults.to_owned(),
        // One file under as many names as there are captures.
        "pcap" => format!("file=\"/dev/{}null\"", "./".repeat(at)),
        _ => String::new(),
    };
    let lower = std::mem::replace(&mut lines[upper].lowers[place], at);
    let name = format!("{kind}{at}");
    lines.push(Line { name, lowers: vec![lower], rest, ..Line::of(kind) });
}

fn is_stream(lines: &[Line], at: usize) -> bool {
    let line = &lines[at];
    line.kind == "tcp" || line.is_filter() && is_stream(lines, line.lowers[0])
}

/// Without one that passes everything on.
fn without(lines: &[Line], gone: usize) -> Vec<Line> {
    let mut left = lines.to_vec();
    let below = left.remove(gone).lowers[0];
    let place = |at: usize| if at == gone { below } else { at };
    for line in &mut left {
        let lowers = line.lowers.iter().map(|at| place(*at));
        line.lowers = lowers.map(|at| at - usize::from(at > gone)).collect();
    }
    left
}

/// The places of all lines, each after those that it stands on.
fn bottom_up(lines: &[Line]) -> Vec<usize> {
    let mut order: Vec<usize> = Vec::new();
    while order.len() < lines.len() {
        for (at, line) in lines.iter().enumerate() {
            if !order.contains(&at) && line.lowers.iter().all(|lower| order.contains(lower)) {
                order.push(at);
            }
        }
    }
    order
}

/// A client begins when all domains of its host and of its server's have started, as what names the
/// host to the layers below may lie in one above.
fn begin_later(lines: &mut [Line]) {
    let clients = lines.iter_mut().filter(|line| matches!(&*line.kind, "probe" | "caller"));
    for client in clients.filter(|client| !client.rest.contains("start=")) {
        client.rest += " start=\"1s\"";
    }
}

/// Lines of one block, and blocks that stand on each other, lie in one domain.
fn together(lines: &mut [Line]) {
    let mut domains = [None; 2];
    for at in 0..lines.len() {
        let Some(own) = lines[at].subsystem else { continue };
        let slot = usize::from(own == "streams");
        let mut below = lines[at].lowers.clone();
        while let Some(lower) = below.pop() {
            if let Some(other) = lines[lower].subsystem.filter(|other| *other != own) {
                let of = usize::from(other == "streams");
                domains[slot] = domains[slot].or(domains[of]);
            }
            if lines[lower].is_filter() {
                below.extend(&lines[lower].lowers);
            }
        }
        let domain = *domains[slot].get_or_insert(lines[at].domain);
        lines[at].domain = domain;
    }
}
