//! Random hosts that speak Internet or AppleTalk, each layer of the x-kernel, of BSD or of STREAMS
//! by itself on each host.

use super::lines::{Hosts, Line};
use xk_core::random::Random;

/// Work of a client: it begins when every host has its address, and apart from another client's,
/// since BSD keeps one packet for an address that it does not know yet.
fn work(lower: usize) -> String {
    format!("start=\"{}ms\" count=12 interval=\"20ms\"", 3000 + 400 * lower)
}

/// The subsystems, the x-kernel as none.
const ALL: [Option<&str>; 3] = [None, Some("bsd"), Some("streams")];

/// Lines on top, on both hosts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Top {
    Udp,
    Tcp,
    Icmp,
    Channel,
    Sun,
    Ddp,
    Atp,
    Aep,
}

/// Lines that both hosts have.
struct Plan {
    tops: Vec<Top>,
    is_apple: bool,
    /// IP stands on the link itself.
    is_raw: bool,
    /// A layer with a header between the network and what is above.
    has_null: bool,
    has_fragment: bool,
    has_deadline: bool,
    octets_max: u64,
}

impl Plan {
    fn draw(random: &Random) -> Self {
        let coin = |of: u64| random.below(of) == 0;
        let is_apple = random.below(5) < 2;
        let of: &[Top] = match is_apple {
            true => &[Top::Ddp, Top::Atp, Top::Aep],
            false => &[Top::Udp, Top::Tcp, Top::Icmp, Top::Channel, Top::Sun],
        };
        let mut tops = vec![of[random.below(of.len() as u64) as usize]];
        let other = of[random.below(of.len() as u64) as usize];
        // Both would want `udp`, or socket and number of one layer.
        let is_apart = |a, b| (tops[0], other) != (a, b) && (other, tops[0]) != (a, b);
        if coin(3) && tops[0] != other && is_apart(Top::Udp, Top::Sun) {
            tops.push(other);
        }
        Self {
            tops,
            is_apple,
            is_raw: !is_apple && coin(4),
            has_null: !is_apple && coin(6),
            has_fragment: coin(2),
            has_deadline: coin(3),
            octets_max: [40, 500, 1400, 4000][random.below(4) as usize],
        }
    }
}

/// A host as it grows.
struct Host<'a> {
    lines: Vec<Line>,
    random: &'a Random,
    is_client: bool,
}

impl Host<'_> {
    fn add(&mut self, of: Option<&'static str>, kind: &str, lower: usize, rest: &str) -> usize {
        let line = Line { subsystem: of, rest: rest.into(), ..Line::of(kind) };
        self.lines.push(Line { lowers: vec![lower], ..line });
        self.lines.len() - 1
    }

    fn any(&self) -> Option<&'static str> {
        ALL[self.random.below(3) as usize]
    }

    /// An Ethernet, and whose it is.
    fn ethernet(&mut self, node: u64) -> (Option<&'static str>, usize) {
        match self.any() {
            None => {
                // None that a wire of the simulator makes up.
                let rest = format!("address=\"02:00:00:00:aa:{node:02x}\"");
                (None, self.add(None, "eth", 0, &rest))
            }
            of => (of, self.add(of, "ether", 0, "")),
        }
    }

    fn ip(&mut self, plan: &Plan, node: u64) -> usize {
        let rest = format!("{{ address \"10.0.0.{node}/24\"; }}");
        if plan.is_raw {
            return self.add(None, "ip", 0, &rest);
        }
        let (of, ether) = self.ethernet(node);
        if of == Some("bsd") && self.random.below(2) == 0 {
            return self.add(of, "ip", ether, &rest);
        }
        let arp = self.add(None, "arp", ether, "");
        self.add(None, "ip", arp, &rest)
    }

    fn ddp(&mut self, node: u64) -> usize {
        let rest = format!("net=\"10-19\" node={}", 16 + node);
        let (of, ether) = self.ethernet(node);
        let on_frames = match of {
            Some("bsd") => [None, Some("bsd"), Some("streams")],
            Some(_) => [None, Some("streams"), Some("streams")],
            None => [None; 3],
        };
        match on_frames[self.random.below(3) as usize] {
            None => {
                let aarp = self.add(None, "aarp", ether, "");
                self.add(None, "ddp", aarp, &rest)
            }
            of => self.add(of, "ddp", ether, &rest),
        }
    }

    fn top(&mut self, kinds: [&str; 2], lower: usize, rests: [&str; 2]) {
        let at = usize::from(!self.is_client);
        if kinds[at].is_empty() {
            return;
        }
        let line = self.add(None, kinds[at], lower, rests[at]);
        self.lines[line].name = format!("{}{line}", ["client", "server"][at]);
    }

    fn messages(&mut self, lower: usize, (to, local): (&str, &str), size: &str) {
        let client = format!("to=\"{to}\" {} timeout=\"60s\" {size}", work(lower));
        self.top(["probe", "echo"], lower, [&client, &format!("local=\"{local}\"")]);
    }

    fn calls(&mut self, lower: usize, (to, at): (&str, &str), size: &str) {
        let client = format!("to=\"{to}\" {} {size}", work(lower));
        let server = format!("procedure=1 {at}");
        self.top(["caller", "procedures"], lower, [&client, &server]);
    }

    fn on_ip(&mut self, plan: &Plan, ip: usize, top: Top) {
        let size = format!("size={0} size_max={0}", plan.octets_max);
        let number = |n: u64| match plan.has_null {
            true => format!("{{ number null={n}; }}"),
            false => String::new(),
        };
        match top {
            Top::Udp => {
                let of = self.any();
                let udp = self.add(of, "udp", ip, &number(17));
                self.messages(udp, ("port7@10.0.0.2", "port7"), &size);
            }
            Top::Tcp => {
                let tcp = self.add(None, "tcp", ip, &number(6));
                self.messages(tcp, ("port7@10.0.0.2", "port7"), &size);
            }
            Top::Icmp => {
                let icmp = self.add(None, "icmp", ip, &number(198));
                let client = format!("to=\"10.0.0.2\" {} timeout=\"60s\" {size}", work(icmp));
                self.top(["probe", ""], icmp, [&client, ""]);
            }
            Top::Channel => {
                let below = match plan.has_fragment {
                    true => self.add(None, "fragment", ip, &number(101)),
                    false => ip,
                };
                let rest = if below == ip { number(102) } else { String::new() };
                let mut at = self.add(None, "channel", below, &rest);
                at = self.add(None, "select", at, "");
                if plan.has_deadline {
                    at = self.add(None, "deadline", at, "");
                }
                self.calls(at, ("procedure1@10.0.0.2", ""), &size);
            }
            Top::Sun => {
                let of = self.any();
                let udp = self.add(of, "udp", ip, &number(17));
                let mut at = self.add(None, "reqrep", udp, "");
                at = self.add(None, "sunselect", at, "");
                at = self.add(None, "sunprog", at, "");
                let program = "version1@program536870913@port7";
                let to = format!("procedure1@{program}@10.0.0.2");
                self.calls(at, (&to, &format!("at=\"*@{program}\"")), &size);
            }
            Top::Ddp | Top::Atp | Top::Aep => {}
        }
    }

    fn on_ddp(&mut self, plan: &Plan, ddp: usize, top: Top) {
        let size = format!("size={0} size_max={0}", plan.octets_max.min(500));
        match top {
            Top::Atp => {
                let of = self.any();
                let atp = self.add(of, "atp", ddp, "");
                self.calls(atp, ("socket140@node18@net10", "at=socket140"), &size);
            }
            Top::Aep => {
                let aep = self.add(None, "aep", ddp, "");
                let client = format!("to=\"node18@net10\" {} timeout=\"60s\" {size}", work(aep));
                self.top(["probe", ""], aep, [&client, ""]);
            }
            _ => self.messages(ddp, ("socket129@node18@net10", "socket129"), &size),
        }
    }
}

/// Two hosts that understand each other.
pub(crate) fn draw(random: &Random) -> Hosts {
    let plan = Plan::draw(random);
    let hosts = [1, 2].map(|node| {
        let wire = Line { name: "sim".into(), rest: "link=lan".into(), ..Line::of("sim") };
        let mut host = Host { lines: vec![wire], random, is_client: node == 1 };
        let mut at = if plan.is_apple { host.ddp(node) } else { host.ip(&plan, node) };
        if plan.has_null {
            at = host.add(None, "null", at, "");
        }
        for &top in &plan.tops {
            match plan.is_apple {
                true => host.on_ddp(&plan, at, top),
                false => host.on_ip(&plan, at, top),
            }
        }
        host.lines
    });
    Hosts { hosts, link: "delay=\"100us\"".into() }
}
