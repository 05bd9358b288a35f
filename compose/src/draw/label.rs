//! Labels of boxes, hosts and links.

use xk_lang::{Domain, Host, Link, Node, Param, ParamBlock, Value};

/// The most characters of a line in a box.
const CHARS_MAX: usize = 34;
/// The most lines of detail in a box.
const DETAILS_MAX: usize = 3;

/// A node's lines: its name, with its kind if that is another, then what tells it from others.
pub(super) fn of_node(node: &Node) -> Vec<String> {
    let name = if *node.name == *node.kind {
        node.name.value.clone()
    } else {
        format!("{}: {}", node.name, node.kind)
    };
    let mut lines = vec![short(&name)];
    let texts = |name: &str| {
        node.blocks(name)
            .filter_map(|block| block.args.first())
            .map(|value| shown(&value.value))
            .collect::<Vec<_>>()
    };
    lines.extend(texts("address"));
    for (param, words) in [
        ("address", ""),
        ("link", ""),
        ("device", ""),
        ("to", "to "),
        ("port", "port "),
        ("file", ""),
        ("loss", "loss "),
    ] {
        if let Some(param) = node.param(param) {
            lines.push(short(&format!("{words}{}", shown(&param.value.value))));
        }
    }
    if lines.len() > 1 + DETAILS_MAX {
        lines.truncate(DETAILS_MAX);
        lines.push("...".into());
    }
    lines
}

/// A domain's title: "net: process, core 1, crossing messages".
pub(super) fn of_domain(domain: &Domain) -> String {
    let said = |name: &str| {
        let value = shown(&domain.param(name)?.value.value);
        Some(format!(", {name} {value}"))
    };
    let said: String = ["user", "core", "crossing"].into_iter().filter_map(said).collect();
    format!("{}: {}{said}", short(&domain.name), domain.kind.word())
}

/// A subsystem's title: "subsystem bsd, mbufs 4096".
pub(super) fn of_subsystem(node: &Node) -> String {
    let said = |param: &Param| format!(", {} {}", param.name, shown(&param.value.value));
    let said: String = node.params.iter().map(said).collect();
    format!("subsystem {}{said}", short(&node.name))
}

/// Label of a grant: "udp, port 5000..5999, uid 1000".
pub(super) fn of_grant(grant: &ParamBlock) -> String {
    let node = grant.args.first().map_or(String::new(), |node| shown(&node.value));
    let said = |param: &Param| format!(", {} {}", param.name, shown(&param.value.value));
    format!("{node}{}", grant.params.iter().map(said).collect::<String>())
}

/// A host's title.
pub(super) fn of_host(host: &Host) -> String {
    match &host.count {
        Some(count) => format!("{} ({} alike)", host.name, count.value),
        None => host.name.value.clone(),
    }
}

/// A link's name and what it is like: "lan1: switch, delay 1ms".
pub(super) fn of_link(link: &Link) -> String {
    let mut parts = Vec::new();
    for param in &link.params {
        let value = shown(&param.value.value);
        parts.push(match param.name.as_str() {
            "kind" => value,
            name => format!("{name} {value}"),
        });
    }
    if link.param("kind").is_none() {
        parts.insert(0, "switch".into());
    }
    let partitions = link.blocks("partition").count();
    if partitions > 0 {
        parts.push(format!("partitions: {partitions}"));
    }
    format!("{}: {}", link.name, parts.join(", "))
}

fn shown(value: &Value) -> String {
    match value {
        Value::Text(text) => short(text),
        other => short(&other.to_string()),
    }
}

fn short(text: &str) -> String {
    let clean = |c: char| if c.is_control() { '?' } else { c };
    if text.chars().count() <= CHARS_MAX {
        return text.chars().map(clean).collect();
    }
    let mut short: String = text.chars().take(CHARS_MAX - 3).map(clean).collect();
    short.push_str("...");
    short
}
