//! Random hosts from the whole catalog, as text.

use super::lines::{Hosts, Line};
use xk_core::graph::{Catalog, Entry, Family, Realm, Shape};
use xk_core::random::Random;

/// The fewest and the most layers between the wire and the applications.
const LAYERS: (u64, u64) = (1, 8);
/// Number of messages or calls that a client makes.
pub(crate) const COUNT: u64 = 24;
/// The largest message of a graph, in octets: where links pad, where a frame ends, where fragments
/// begin.
pub(crate) const SIZES: &[u64] = &[32, 1600, 16 << 10];

/// Kinds that no graph is drawn with, and why.
const LEFT_OUT: &[(&str, &str)] = &[
    ("host-tcp", "it asks the machine"),
    ("host-udp", "it asks the machine"),
    ("objmove", "it carries images of objects, and no requests"),
    ("portmap", "it serves one program of its own"),
];

/// A layer that is drawn: the line in the file without the addresses of a host.
#[derive(Clone)]
pub(crate) struct Layer {
    pub(crate) entry: &'static Entry,
    name: String,
    pub(crate) lowers: Vec<usize>,
}

/// A stack, the same on both hosts, and what is on top of it.
#[derive(Clone)]
pub(crate) struct Drawn {
    pub(crate) layers: Vec<Layer>,
    /// The layers on which there are a client and a server.
    pub(crate) tops: Vec<usize>,
    /// The largest message, in octets.
    pub(crate) octets_max: u64,
}

impl Drawn {
    pub(crate) fn draw(catalog: &Catalog, random: &Random) -> Self {
        let kinds: Vec<&'static Entry> =
            catalog.entries().iter().copied().filter(is_layer).collect();
        let wire = catalog.find("sim").expect("the simulator's wire");
        let mut drawn = Self {
            layers: vec![Layer { entry: wire, name: "sim".into(), lowers: Vec::new() }],
            tops: Vec::new(),
            octets_max: SIZES[random.below(SIZES.len() as u64) as usize],
        };
        // Many interesting layers need hosts below: half of the graphs begin with them.
        if random.below(2) == 0 {
            for kind in ["eth", "arp", "ip"] {
                let entry = catalog.find(kind).expect("hosts on Ethernet");
                drawn.stand(entry, vec![drawn.layers.len() - 1]);
            }
        }
        let count = drawn.layers.len() as u64 + LAYERS.0 + random.below(LAYERS.1 - LAYERS.0 + 1);
        while (drawn.layers.len() as u64) < count {
            let entry = kinds[random.below(kinds.len() as u64) as usize];
            // Now and then anything on anything; else what fits by realm, addresses and numbers.
            let wild = random.below(100) == 0;
            if let Some(lowers) = drawn.lowers(catalog, entry, random, wild) {
                drawn.stand(entry, lowers);
            }
        }
        drawn.tops.push(drawn.layers.len() - 1);
        if random.below(4) == 0 {
            let at = random.below(drawn.layers.len() as u64) as usize;
            if !drawn.tops.contains(&at) {
                drawn.tops.push(at);
            }
        }
        drawn
    }

    fn stand(&mut self, entry: &'static Entry, lowers: Vec<usize>) {
        let name = format!("n{}", self.layers.len());
        self.layers.push(Layer { entry, name, lowers });
    }

    /// Layers for one to stand on: of those that fit, more often the ones drawn last.
    fn lowers(
        &self,
        catalog: &Catalog,
        entry: &Entry,
        random: &Random,
        wild: bool,
    ) -> Option<Vec<usize>> {
        let (min, max) = (entry.below.min as u64, entry.below.max.min(3) as u64);
        let more = if random.below(4) == 0 { random.below(max - min + 1) } else { 0 };
        let mut fitting: Vec<usize> = (0..self.layers.len())
            .filter(|at| wild || self.fits(catalog, entry, *at) && self.has_room(*at))
            .collect();
        let mut lowers = Vec::new();
        for _ in 0..min + more {
            let len = fitting.len() as u64;
            let at = match random.below(3) {
                _ if len == 0 => return None,
                0 => random.below(len),
                _ => len - 1 - random.below(2.min(len)),
            };
            lowers.push(fitting.remove(at as usize));
        }
        lowers.sort_unstable();
        Some(lowers)
    }

    /// A wire carries one layer.
    fn has_room(&self, lower: usize) -> bool {
        let is_wire = self.layers[lower].entry.realm == Realm::Wire;
        !is_wire || self.layers.iter().all(|layer| !layer.lowers.contains(&lower))
    }

    fn fits(&self, catalog: &Catalog, entry: &Entry, lower: usize) -> bool {
        let below = self.layers[lower].entry;
        let family = self.family(lower);
        let takes =
            |wanted: &Family| matches!(wanted, Family::Inherit | Family::Any) || *wanted == family;
        // A layer that tells its uppers apart by number has one for each that may stand there.
        let numbers = catalog.numbers();
        let numbered = numbers.kinds().iter().any(|n| n.lower == below.kind);
        let known = !numbered || numbers.find_kinds(entry.kind, below.kind).is_some();
        known && entry.below.realms.contains(&below.realm) && entry.below.families.iter().any(takes)
    }

    /// The addresses that a layer takes, its own or those of what it stands on.
    fn family(&self, at: usize) -> Family {
        let layer = &self.layers[at];
        match (layer.entry.above, layer.lowers.first()) {
            (Family::Inherit, Some(lower)) => self.family(*lower),
            (family, _) => family,
        }
    }

    /// A layer and all below it, with a client and a server on top of that layer alone.
    pub(crate) fn closure(&self, top: usize) -> Self {
        let kept: Vec<usize> =
            (0..=top).filter(|at| *at == top || self.reaches(top, *at)).collect();
        let place = |at: &usize| kept.iter().position(|k| k == at).expect("it lies below");
        let layers = kept.iter().map(|at| {
            let lowers = self.layers[*at].lowers.iter().map(place).collect();
            Layer { lowers, ..self.layers[*at].clone() }
        });
        let layers: Vec<Layer> = layers.collect();
        Self { tops: vec![layers.len() - 1], layers, octets_max: self.octets_max }
    }

    /// The layer on top with each of its lowers alone, if it can stand on one.
    pub(crate) fn alone(&self) -> Vec<Self> {
        let top = self.layers.len() - 1;
        let Layer { entry, lowers, .. } = &self.layers[top];
        if entry.below.min > 1 || lowers.len() < 2 {
            return Vec::new();
        }
        let on = |lower: &usize| {
            let mut one = self.clone();
            one.layers[top].lowers = vec![*lower];
            one.closure(top)
        };
        lowers.iter().map(on).collect()
    }

    /// The kinds of the layers, each with the places of its lowers unless that is the one before.
    pub(crate) fn kinds(&self) -> String {
        let word = |(at, layer): (usize, &Layer)| match layer.lowers[..] {
            [] => layer.entry.kind.to_owned(),
            [lower] if lower + 1 == at => layer.entry.kind.to_owned(),
            _ => format!("{}{:?}", layer.entry.kind, layer.lowers),
        };
        self.layers.iter().enumerate().map(word).collect::<Vec<_>>().join(" ")
    }

    /// The participant of host `host` at this layer.
    fn participant(&self, at: usize, host: u64) -> String {
        let layer = &self.layers[at];
        // Of several lowers that which needs most says how the peer is found.
        let below = || {
            let all = layer.lowers.iter().map(|lower| self.participant(*lower, host));
            all.max_by_key(|part| part.matches('@').count()).unwrap_or_default()
        };
        let on = |part: &str| match below() {
            lower if lower.is_empty() => part.to_owned(),
            lower => format!("{part}@{lower}"),
        };
        match layer.entry.kind {
            "eth" => format!("02:00:00:00:00:{host:02x}"),
            "arp" | "vip" | "vipaddr" | "vipsize" => self.host(at, host),
            "ip" => format!("10.{at}.0.{host}"),
            // The socket that `asp` has, whatever participants say.
            "ddp" => format!("socket129@node{host}@net10"),
            "udp" => on("port7"),
            "tcp" if self.is_on_ports(at) => on("port7").replacen("@port7", "@port9", 1),
            "tcp" => on("port7"),
            "mrpc" | "select" | "forward" | "vmtp" | "groupcall" => on("procedure1"),
            "psync" => on("process7"),
            "objinv" => on("procedure1@eid7"),
            // Objects are at hosts, also where a port below needs none.
            "objloc" => match below() {
                part if part.is_empty() => self.host(at, host),
                part if part.split('@').all(|name| name.starts_with("port")) => {
                    format!("{part}@{}", self.host(at, host))
                }
                part => part,
            },
            "sr" if below().is_empty() => format!("procedure1@vm{host}@{}", self.host(at, host)),
            "sr" => on(&format!("procedure1@vm{host}")),
            "sunselect" | "sunprog" | "authnone" | "authsys" | "authshort" => {
                let has_program = below().contains("program");
                match has_program {
                    true => below(),
                    false => on("procedure1@version1@program536870913"),
                }
            }
            // A peer on a link without hosts may be called one all the same.
            _ => match below() {
                part if part.is_empty() && layer.entry.above == Family::Host && at % 2 == 1 => {
                    self.host(at, host)
                }
                part => part,
            },
        }
    }

    /// Whether the layer is found at a port of the one below.
    fn is_on_ports(&self, at: usize) -> bool {
        self.layers[at].lowers.iter().any(|lower| self.family(*lower) == Family::Port)
    }

    /// The host that an address resolver leads to: that of the first `ip` that stands on it, or by
    /// it.
    fn host(&self, at: usize, host: u64) -> String {
        let ip = |at: &usize| self.layers[*at].entry.kind == "ip";
        let above = (0..self.layers.len()).filter(ip).find(|up| self.reaches(*up, at));
        let below = || (0..at).filter(ip).find(|down| self.reaches(at, *down));
        let beside = || (0..self.layers.len()).find(ip);
        match above.or_else(below).or_else(beside) {
            Some(ip) => format!("10.{ip}.0.{host}"),
            None => format!("10.0.0.{host}"),
        }
    }

    /// Whether one layer stands on another, at whatever distance.
    fn reaches(&self, upper: usize, lower: usize) -> bool {
        let lowers = &self.layers[upper].lowers;
        lowers.iter().any(|at| *at == lower || self.reaches(*at, lower))
    }

    fn line(&self, at: usize, host: u64) -> Line {
        let layer = &self.layers[at];
        let rest = match layer.entry.kind {
            "sim" => "link=lan".to_owned(),
            "eth" => format!("address=\"02:00:00:00:00:{host:02x}\""),
            "tcp" if self.is_on_ports(at) => "local=\"port9\"".to_owned(),
            "objloc" if self.is_on_ports(at) => "at=port7".to_owned(),
            "sr" if self.is_on_ports(at) => format!("vm={host} at=port7"),
            "sr" => format!("vm={host}"),
            "ip" => format!("{{ address \"10.{at}.0.{host}/24\"; }}"),
            "ddp" => format!("net=\"10\" node={host}"),
            // One file under as many names as there are captures.
            "pcap" => format!("file=\"/dev/{}null\"", "./".repeat(at)),
            "authsys" => "machine=\"h\" user=1000 group=100".to_owned(),
            _ => String::new(),
        };
        let name = layer.name.clone();
        Line { name, lowers: layer.lowers.clone(), rest, ..Line::of(layer.entry.kind) }
    }

    /// Whether a layer takes calls: its own realm, or that of what it stands on.
    pub(crate) fn is_rpc(&self, at: usize) -> bool {
        let layer = &self.layers[at];
        match (layer.entry.above, layer.lowers.first()) {
            (Family::Inherit, Some(lower)) if layer.entry.shape == Shape::Filter => {
                self.is_rpc(*lower)
            }
            _ => layer.entry.realm == Realm::Rpc,
        }
    }

    fn is_stream(&self, at: usize) -> bool {
        let layer = &self.layers[at];
        let below = layer.lowers.first();
        layer.entry.kind == "tcp"
            || layer.entry.above == Family::Inherit && below.is_some_and(|at| self.is_stream(*at))
    }

    /// The protocol on top of a layer: the client on the first host, the server on the second.
    fn top(&self, at: usize, host: u64) -> Line {
        let server = self.participant(at, 2);
        let address = |key: &str, value: &str| match value {
            "" => String::new(),
            value => format!("{key}=\"{value}\""),
        };
        // A stream has no empty messages.
        let least = u64::from(self.is_stream(at));
        let work =
            format!("count={COUNT} interval=\"20ms\" size={least} size_max={}", self.octets_max);
        let (kind, rest) = match (self.is_rpc(at), host) {
            (true, 1) => ("caller", format!("{} {work}", address("to", &server))),
            (true, _) => (
                "procedures",
                format!("procedure=1 {}", address("at", &server.replace("procedure1", "*"))),
            ),
            (false, 1) => ("probe", format!("{} timeout=\"60s\" {work}", address("to", &server))),
            (false, _) => ("echo", address("local", &server)),
        };
        let name = format!("{}{at}", if host == 1 { "client" } else { "server" });
        Line { name, lowers: vec![at], rest, ..Line::of(kind) }
    }

    /// Both hosts, each with all of its lines.
    pub(crate) fn hosts(&self) -> Hosts {
        let lines = |host: u64| {
            let layers = (0..self.layers.len()).map(|at| self.line(at, host));
            layers.chain(self.tops.iter().map(|at| self.top(*at, host))).collect()
        };
        let link = "kind=pointtopoint delay=\"100us\" rate=\"1Gbit\"".into();
        Hosts { hosts: [lines(1), lines(2)], link }
    }

    pub(crate) fn source(&self) -> String {
        self.hosts().source()
    }
}

/// Whether graphs are drawn with a kind: not with wires and applications, which have their places.
fn is_layer(entry: &&'static Entry) -> bool {
    // Those of other frameworks stand in blocks of their own.
    let is_own = entry.subsystem.is_none() && entry.shape != Shape::Adapter;
    is_own
        && matches!(entry.realm, Realm::Async | Realm::Rpc)
        && LEFT_OUT.iter().all(|(kind, _)| *kind != entry.kind)
}
