//! `--wire`: other wires in the place of a host's `sim`, so that a graph of a simulation runs on
//! devices.

use crate::failure::Failure;
use xk_lang::{Host, Node, parse};

/// The kind that is replaced.
const SIM: &str = "sim";

#[derive(clap::Args)]
pub(crate) struct WireArgs {
    /// Wire in place of `sim`, as in a graph file: --wire "tap device=xk0"; for a host on several
    /// links one for each link: --wire left="tap device=xk0"
    #[arg(long = "wire", value_name = "[LINK=]WIRE")]
    wires: Vec<String>,
}

impl WireArgs {
    /// The text of a graph with these wires on the host called `host`, or on the only one. What
    /// does not read is left as it is: the check tells more of it.
    pub(crate) fn put(
        &self,
        file: &str,
        source: String,
        host: Option<&str>,
    ) -> Result<String, Failure> {
        if self.wires.is_empty() {
            return Ok(source);
        }
        let (graph, diagnostics) = parse(file, &source);
        if diagnostics.has_errors() {
            return Ok(source);
        }
        let all = graph.expand();
        let found = match host {
            Some(name) => all.iter().find(|instance| instance.name == name),
            None => Some(all.first()).filter(|_| all.len() == 1).flatten(),
        };
        // A host that is not there is told of by `pick_host`.
        let Some(host) = found else { return Ok(source) };
        put(&self.wires, &source, host.template)
    }
}

/// A wire of the command line.
struct Wire<'a> {
    link: Option<&'a str>,
    /// As in a graph file.
    line: &'a str,
}

impl<'a> Wire<'a> {
    fn read(text: &'a str) -> Result<Self, Failure> {
        // The first `=` belongs to a property if there is space before it.
        let wire = match text.split_once('=') {
            Some((link, line)) if !link.trim().contains(char::is_whitespace) => {
                Self { link: Some(link.trim()), line: line.trim() }
            }
            _ => Self { link: None, line: text.trim() },
        };
        let (graph, diagnostics) = parse("--wire", &format!("host wire {{ {} }}", wire.line));
        if diagnostics.has_errors() {
            return Err(Failure::Mistakes(Box::new(diagnostics)));
        }
        let nodes = graph.hosts.first().map_or(&[][..], |host| &host.nodes);
        match nodes {
            [node] if node.lowers.is_empty() && *node.name == *node.kind => Ok(wire),
            _ => Err(Failure::usage(format!("--wire `{text}` is not one wire"))
                .help("a kind and its parameters without a name: --wire \"tap device=xk0\"")),
        }
    }
}

fn link_of<'a>(source: &'a str, sim: &'a Node) -> &'a str {
    let link = sim.param("link");
    link.map_or("", |link| link.value.span.of(source).trim_matches('"'))
}

fn put(wires: &[String], source: &str, host: &Host) -> Result<String, Failure> {
    let wires = wires.iter().map(|text| Wire::read(text)).collect::<Result<Vec<_>, _>>()?;
    let sims: Vec<&Node> = host.nodes.iter().filter(|node| *node.kind == SIM).collect();
    let links: Vec<&str> = sims.iter().map(|sim| link_of(source, sim)).collect();
    let example = |link: &str| format!("--wire {link}=\"tap device=xk0\"");
    let mut at = Vec::new();
    for wire in &wires {
        let place = match wire.link {
            Some(link) => links.iter().position(|known| *known == link),
            None if sims.len() == 1 => Some(0),
            None => None,
        };
        let place = place.ok_or_else(|| {
            let failure = Failure::usage(match (wire.link, sims.len()) {
                (_, 0) => format!("host `{}` has no `sim` for --wire to replace", host.name),
                (Some(link), _) => format!("host `{}` is not on a link `{link}`", host.name),
                (None, count) => format!("host `{}` is on {count} links", host.name),
            });
            match links.first() {
                Some(link) => {
                    failure.help(format!("its links are {}: {}", links.join(", "), example(link)))
                }
                None => failure,
            }
        })?;
        if at.contains(&place) {
            let link = links.get(place).unwrap_or(&"");
            return Err(Failure::usage(format!("two wires in the place of link `{link}`")));
        }
        at.push(place);
    }
    if let Some(link) = (0..sims.len()).find(|place| !at.contains(place)).and_then(|p| links.get(p))
    {
        let failure = format!("host `{}` is on the simulated link `{link}`, too", host.name);
        return Err(Failure::usage(failure).help(example(link)));
    }
    let mut text = source.to_owned();
    let mut changes: Vec<(&Node, &str)> =
        at.iter().zip(&wires).filter_map(|(at, wire)| Some((*sims.get(*at)?, wire.line))).collect();
    // From behind, so that the places before stay.
    changes.sort_by_key(|(sim, _)| std::cmp::Reverse(sim.span));
    for (sim, line) in changes {
        let name = format!(" name={:?}", sim.name.as_str());
        text.replace_range(sim.span.offset..sim.span.end(), &with_name(line, &name));
    }
    Ok(text)
}

/// The line of a wire with a property behind its kind, which is before any children.
fn with_name(line: &str, name: &str) -> String {
    let kind = line.find(char::is_whitespace).unwrap_or(line.len());
    format!("{}{name}{}", &line[..kind], &line[kind..])
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUTER: &str = "host router {\n sim link=left name=sim1; sim link=right name=sim2\n eth sim1\n}\nlink left\nlink right\n";

    fn said(wires: &[&str], source: &str) -> Result<String, String> {
        let args = WireArgs { wires: wires.iter().map(|wire| (*wire).to_owned()).collect() };
        args.put("graph", source.to_owned(), None).map_err(|failure| failure.text())
    }

    #[test]
    fn a_wire_takes_the_place_and_the_name_of_a_simulated_one() {
        let source = "host a {\n  sim link=lan // the cable\n  eth sim\n}\nlink lan\n";
        let text = said(&["tap device=xk0 host_address=\"10.0.0.9/24\""], source).unwrap();
        assert_eq!(
            text,
            "host a {\n  tap name=\"sim\" device=xk0 host_address=\"10.0.0.9/24\" // the cable\n  eth sim\n}\nlink lan\n"
        );
        let both = said(&["right=tap device=b", "left=loopback"], ROUTER).unwrap();
        assert!(both.contains("loopback name=\"sim1\"; tap name=\"sim2\" device=b"), "{both}");
        assert_eq!(said(&[], ROUTER).unwrap(), ROUTER);
    }

    #[test]
    fn what_fits_no_link_is_refused_with_a_reason() {
        for (wires, why) in [
            (&["loopback"][..], "on 2 links"),
            (&["left=loopback"], "link `right`, too"),
            (&["up=loopback"], "not on a link `up`"),
            (&["left=loopback", "left=loopback", "right=loopback"], "two wires"),
            (&["left=loopback; eth loopback"], "not one wire"),
            (&["left=loopback name=b"], "not one wire"),
            (&["left="], "not one wire"),
            (&["left=tap {"], "--wire"),
        ] {
            let text = said(wires, ROUTER).unwrap_err();
            assert!(text.contains(why), "{wires:?}: {text}");
        }
        let text = said(&["loopback"], "host a { loopback; }").unwrap_err();
        assert!(text.contains("no `sim`"), "{text}");
    }
}
