//! One graph of a test, cut into domains in other ways.

use std::cell::Cell;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::program::Program;

/// Way in which the stacks of a test are cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Organisation {
    /// All of it in one kernel.
    #[default]
    Whole,
    /// One server with device and protocols, and the applications in another domain.
    Server,
    /// A network I/O module with the device, one server on it, and the applications.
    Module,
    /// A server for ETH, IP, UDP and TCP each, and a domain for each of those above.
    PerProtocol,
    /// A network I/O module with the device, a registry beside one server on it, and programs with
    /// a library of protocols: one for each `echo`, and one for all else above the transports.
    Library,
}

/// A graph of one host with domains.
#[derive(Debug, Clone)]
pub struct Cut {
    /// Text of the graph.
    pub text: String,
    /// Path at which programs attach, and the programs.
    pub programs: Option<(PathBuf, Vec<Program>)>,
    /// Names of the nodes that one more program has, on a library.
    pub own: Vec<String>,
}

/// The path of a new socket for what `of` names.
fn socket(of: &str) -> PathBuf {
    static LAST: AtomicU32 = AtomicU32::new(0);
    let number = LAST.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("xk-peers-{of}-{}-{number}", std::process::id()))
}

thread_local! {
    static CURRENT: Cell<Organisation> = const { Cell::new(Organisation::Whole) };
}

/// The organisation of the stacks that this thread starts.
#[must_use]
pub fn current() -> Organisation {
    CURRENT.get()
}

impl Organisation {
    /// Does `work`, in which all stacks that this thread starts are cut so.
    pub fn within<T>(self, work: impl FnOnce() -> T) -> T {
        let before = CURRENT.replace(self);
        let result = work();
        CURRENT.set(before);
        result
    }

    /// The domain of a node of this kind and name.
    fn domain<'t>(self, kind: &'t str, name: &'t str) -> &'t str {
        let of_protocol = match kind {
            "tap" | "packet" | "xdp" | "host-eth" | "pcap" | "fault" | "netio"
                if matches!(self, Self::Module | Self::Library) =>
            {
                return "device";
            }
            "tap" | "packet" | "xdp" | "host-eth" | "pcap" | "fault" | "eth" | "arp" => Some("eth"),
            "ip" | "icmp" => Some("ip"),
            "udp" | "tcp" | "registry" => Some(kind),
            _ => None,
        };
        match (self, of_protocol) {
            (Self::PerProtocol, Some(server)) => server,
            (Self::PerProtocol, None) => name,
            (_, Some(_)) => "server",
            (_, None) => "applications",
        }
    }

    /// A line, and the module on which what it says stands in place of a wire.
    fn on_modules(self, line: &str) -> Vec<String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["eth", lower, ..] if matches!(self, Self::Module | Self::Library) => {
                let rest = words[2..].join(" ");
                let module = format!("module-{lower}");
                let door = match self {
                    Self::Library => format!(" door={:?}", socket("door")),
                    _ => String::new(),
                };
                vec![format!("netio {lower} name={module}{door}"), format!("eth {module} {rest}")]
            }
            _ => vec![line.to_owned()],
        }
    }

    /// The text of a graph of one host with these domains, each line of which is a node; `None` if
    /// it stays whole.
    ///
    /// # Panics
    /// If a node has more than a line.
    #[must_use]
    pub fn cut(self, source: &str) -> Option<Cut> {
        if self == Self::Whole {
            return None;
        }
        let mut lines = source.lines().map(str::trim).filter(|line| !line.is_empty());
        let host = lines.next()?;
        let mut lines: Vec<String> =
            lines.filter(|line| *line != "}").flat_map(|line| self.on_modules(line)).collect();
        let (mut programs, mut own) = (None, Vec::new());
        if self == Self::Library {
            let echoes = lines.iter().filter_map(|line| Program::of(line)).collect();
            lines.retain(|line| Program::of(line).is_none());
            lines.retain(|line| {
                let (kind, name) = kind_and_name(line);
                let is_own = self.domain(kind, name) == "applications";
                own.extend(is_own.then(|| name.to_owned()));
                !is_own
            });
            // What begins conversations for programs stands on one that moves them.
            if !lines.iter().any(|line| line.starts_with("tcp ")) {
                lines.push("tcp ip".into());
            }
            lines.push("registry module-pcap tcp".into());
            programs = Some((socket("programs"), echoes));
        }
        let mut domains: Vec<(&str, String)> = Vec::new();
        for line in &lines {
            let braces = |brace| line.matches(brace).count();
            assert_eq!(braces('{'), braces('}'), "a node is a line: {line}");
            let (kind, name) = kind_and_name(line);
            let domain = self.domain(kind, name);
            let at = domains.iter().position(|(name, _)| *name == domain).unwrap_or_else(|| {
                domains.push((domain, String::new()));
                domains.len() - 1
            });
            domains[at].1 += &format!("{line}\n");
        }
        let domain =
            |(name, nodes): &(&str, String)| format!("domain {name} thread {{\n{nodes}}}\n");
        let domains: String = domains.iter().map(domain).collect();
        Some(Cut { text: format!("{host}\n{domains}}}\n"), programs, own })
    }
}

/// Kind and name of the node on a line.
fn kind_and_name(line: &str) -> (&str, &str) {
    let kind = line.split_whitespace().next().unwrap_or_default();
    let named = line.split_whitespace().find_map(|word| word.strip_prefix("name="));
    (kind, named.unwrap_or(kind))
}
