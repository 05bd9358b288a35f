//! Parts of the tree, and those that each may depend on.

use super::{Rule, Tree, Violation};
use crate::workspace::{Crate, Dependency};

static DIRECTION: Rule = Rule {
    name: "layers",
    reason: "apps > catalog, sockets > compose > kit > core, and catalog > protocols, wires > kit; what points upward \
             makes the lower part unusable alone, a protocol that names a sibling can no longer stand on another, and \
             sockets that name the catalog link every protocol into every program",
};

static EMBED: Rule = Rule {
    name: "embed",
    reason: "a program that embeds one stack pays for what it names: each further crate is one more to build, to \
             audit and to keep",
};

/// Crates that a program with one stack may link, ours and others'.
const EMBEDDED_MAX: usize = 40;

static PURE: Rule = Rule {
    name: "pure-dependencies",
    reason: "core, kit and protocols get time, I/O and random bits through the Kernel, so that one seed replays a \
             run to the bit; a crate that asks the system breaks that from below",
};

/// The parts of the house; the folder decides which part a crate is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layer {
    Core,
    Kit,
    Protocol,
    Wire,
    /// The operating system's interfaces for wires.
    System,
    Run,
    /// Both sides of a cut between two domains, and the carriers of frames across it.
    Domains,
    /// Another protocol framework within a kernel, its protocols, and the adapters between them.
    Subsystem,
    Lang,
    /// Compilers of other languages: their mistakes are shown as those of graphs are, and what they
    /// make is of the codecs.
    Generator,
    Catalog,
    Compose,
    Sockets,
    Testkit,
    /// Programs, benchmarks, the fuzz harness, the guide's examples, this crate: nothing of ours
    /// stands on them.
    Top,
}

use Layer::{
    Catalog, Compose, Core, Domains, Generator, Kit, Lang, Protocol, Run, Sockets, Subsystem,
    System, Testkit, Top, Wire,
};

/// Crates of others that bring a clock, threads, I/O or randomness with them.
const WORLDLY: &[&str] = &[
    "rand",
    "rand_core",
    "fastrand",
    "getrandom",
    "libc",
    "rustix",
    "nix",
    "mio",
    "tokio",
    "chrono",
    "time",
    "corosensei",
    "crossbeam-channel",
    "parking_lot",
];

impl Layer {
    fn of(dir: &str) -> Option<Self> {
        Some(match dir.split('/').next()? {
            "core" => Core,
            "kit" => Kit,
            // Octets and machines of a family, for its protocols and those of other frameworks.
            "protocols" if dir == "protocols/appletalk" => Kit,
            "protocols" | "tools" => Protocol,
            "wires" if dir == "wires/linux" => System,
            "wires" | "filters" => Wire,
            "run" => Run,
            "domains" => Domains,
            "subsystems" => Subsystem,
            "lang" => Lang,
            "catalog" => Catalog,
            "compose" => Compose,
            "sockets" if dir == "sockets/rpcgen" => Generator,
            "sockets" => Sockets,
            "testkit" => Testkit,
            "apps" | "bench" | "fuzz" | "docs" | "tests" | "xtask" => Top,
            _ => return None,
        })
    }

    /// The layers that a crate of this layer may build upon.
    fn below(self) -> &'static [Self] {
        match self {
            Core | Lang | System => &[],
            Kit => &[Core],
            Generator => &[Core, Kit, Lang],
            Wire => &[Core, Kit, System],
            Protocol | Run => &[Core, Kit],
            Domains => &[Core, Kit, Wire, System, Run, Domains],
            Subsystem => &[Core, Kit, Subsystem],
            Catalog => &[Core, Kit, Protocol, Wire, Domains, Subsystem],
            Compose => &[Core, Kit, Protocol, Wire, Run, Domains, Subsystem, Lang],
            // One crate there holds the sockets; the others bring them to tokio and to unmodified
            // programs.
            Sockets => {
                &[Core, Kit, Protocol, Wire, Run, Domains, Subsystem, Lang, Compose, Sockets]
            }
            Testkit => &[
                Core, Kit, Protocol, Wire, Run, Domains, Subsystem, Lang, Catalog, Compose,
                Sockets, Testkit,
            ],
            Top => &[
                Core, Kit, Protocol, Wire, Run, Domains, Subsystem, Lang, Generator, Catalog,
                Compose, Sockets, Testkit, Top,
            ],
        }
    }

    /// Layers that its tests may use besides: anything that is not a program, but still no sibling
    /// of a protocol.
    fn tests_may_use(self, other: Self) -> bool {
        other != Top && !(self == Protocol && other == Protocol)
    }
}

/// Whether the crate of a folder has protocols, each with its manual and its line in the catalog.
pub(super) fn is_of_protocols(dir: &str) -> bool {
    Layer::of(dir) == Some(Protocol)
}

pub(super) fn check(tree: &Tree, found: &mut Vec<Violation>) {
    for member in &tree.crates {
        let path = format!("{}/Cargo.toml", member.dir);
        let text = tree.file(&path).map_or("", |f| f.text.as_str());
        let Some(layer) = Layer::of(&member.dir) else {
            found.push(Violation {
                rule: &DIRECTION,
                path,
                line: 0,
                what: format!("`{}` lies in a folder that no layer owns", member.name),
                remedy:
                    "move it under a layer's folder, or add the layer to xtask/src/tidy/layers.rs"
                        .into(),
            });
            continue;
        };
        for dependency in &member.dependencies {
            if let Some((rule, what, remedy)) = judge(tree, member, layer, dependency) {
                let line = line_of(text, &dependency.name);
                found.push(Violation { rule, path: path.clone(), line, what, remedy });
            }
        }
    }
}

/// Checks that the example of a program with one stack links few crates.
pub(super) fn check_embedded(tree: &Tree, found: &mut Vec<Violation>) {
    let count = tree.embedded.len();
    if count > EMBEDDED_MAX {
        found.push(Violation {
            rule: &EMBED,
            path: "docs/embed/Cargo.toml".into(),
            line: 0,
            what: format!("xk-embed links {count} crates: {}", tree.embedded.join(", ")),
            remedy: format!(
                "at most {EMBEDDED_MAX}: put what only some programs need behind a feature, or into a crate above"
            ),
        });
    }
}

fn judge(
    tree: &Tree,
    member: &Crate,
    layer: Layer,
    dependency: &Dependency,
) -> Option<(&'static Rule, String, String)> {
    let name = &dependency.name;
    let Some(other) = tree.crates.iter().find(|c| c.name == *name) else {
        let pure = matches!(layer, Core | Kit | Protocol) && !dependency.dev;
        return (pure && WORLDLY.contains(&name.as_str())).then(|| {
            (
                &PURE,
                format!("`{}` depends on `{name}`", member.name),
                "take what it gives from the Kernel that every operation is handed".into(),
            )
        });
    };
    if other.name == member.name {
        return None;
    }
    let target = Layer::of(&other.dir)?;
    let allowed =
        layer.below().contains(&target) || (dependency.dev && layer.tests_may_use(target));
    (!allowed).then(|| {
        let remedy = if layer == Protocol && target == Protocol {
            "ask the lower object by control, or put what both need into kit; a test composes both through testkit"
        } else if target == Testkit {
            "testkit is for tests: name it under [dev-dependencies]"
        } else {
            "move what is needed to the lower layer, or hand it in from above as a trait"
        };
        (
            &DIRECTION,
            format!("`{}` ({layer:?}) may not depend on `{name}` ({target:?})", member.name),
            remedy.into(),
        )
    })
}

/// The line of a manifest that names the dependency, or zero.
fn line_of(manifest: &str, dependency: &str) -> usize {
    let names = |line: &str| {
        line.trim_start()
            .strip_prefix(dependency)
            .is_some_and(|rest| rest.starts_with(['.', ' ', '=']))
    };
    manifest.lines().position(names).map_or(0, |index| index + 1)
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{found, krate, tree};
    use super::*;

    fn judged(members: Vec<Crate>) -> Vec<String> {
        let mut tree = tree(&[(
            "protocols/tcp/Cargo.toml",
            "[dependencies]\nxk-core.workspace = true\nxk-ip = {}\n",
        )]);
        tree.crates = members;
        found(check, &tree)
    }

    #[test]
    fn downward_is_fine() {
        let members = vec![
            krate("xk-core", "core", &["hashbrown"]),
            krate("xk-kit", "kit", &["xk-core", "dev:xk-testkit"]),
            krate(
                "xk-ip",
                "protocols/ip",
                &["xk-core", "xk-kit", "dev:xk-testkit", "dev:xk-catalog"],
            ),
            krate("xk-catalog", "catalog", &["xk-ip"]),
            krate("xk-testkit", "testkit", &["xk-catalog"]),
            krate("xk-cli", "apps/cli", &["xk-testkit", "libc"]),
        ];
        assert!(judged(members).is_empty());
    }

    #[test]
    fn a_sibling_is_refused_even_in_tests() {
        let ip = krate("xk-ip", "protocols/ip", &[]);
        let expected = ["layers protocols/tcp/Cargo.toml:3"];
        assert_eq!(
            judged(vec![krate("xk-tcp", "protocols/tcp", &["xk-ip"]), ip.clone()]),
            expected
        );
        assert_eq!(judged(vec![krate("xk-tcp", "protocols/tcp", &["dev:xk-ip"]), ip]), expected);
    }

    #[test]
    fn upward_is_refused() {
        let members =
            vec![krate("xk-core", "core", &["xk-kit"]), krate("xk-kit", "kit", &["xk-core"])];
        assert_eq!(judged(members), ["layers core/Cargo.toml:0"]);
        let members = vec![krate("xk-lang", "lang", &["xk-core"]), krate("xk-core", "core", &[])];
        assert_eq!(judged(members), ["layers lang/Cargo.toml:0"]);
    }

    #[test]
    fn sockets_link_what_a_program_names() {
        let catalog = krate("xk-catalog", "catalog", &[]);
        let members = vec![krate("xk-net", "sockets/net", &["xk-catalog"]), catalog.clone()];
        assert_eq!(judged(members), ["layers sockets/net/Cargo.toml:0"]);
        assert!(
            judged(vec![krate("xk-net", "sockets/net", &["dev:xk-catalog"]), catalog]).is_empty()
        );
        let mut tree = tree(&[]);
        tree.embedded = vec![String::new(); EMBEDDED_MAX];
        assert!(found(check_embedded, &tree).is_empty());
        tree.embedded.push("xk-tcp v0.1.0".into());
        assert_eq!(found(check_embedded, &tree), ["embed docs/embed/Cargo.toml:0"]);
    }

    #[test]
    fn testkit_is_for_tests() {
        let members =
            vec![krate("xk-run", "run", &["xk-testkit"]), krate("xk-testkit", "testkit", &[])];
        assert_eq!(judged(members), ["layers run/Cargo.toml:0"]);
    }

    #[test]
    fn the_world_stays_outside() {
        let members = vec![krate("xk-kit", "kit", &["rand", "dev:rand"])];
        assert_eq!(judged(members), ["pure-dependencies kit/Cargo.toml:0"]);
        assert_eq!(judged(vec![krate("x", "elsewhere", &[])]), ["layers elsewhere/Cargo.toml:0"]);
    }
}
