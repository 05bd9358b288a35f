//! Changes of a graph file's text that leave everything else as it was written.

use crate::diagnostics::nearest;
use crate::graph::{Graph, Host, Param};
use crate::span::{Span, Spanned};
use crate::value::Value;
use crate::{Diagnostics, parse};

/// Sets a parameter in the text of a graph file: `LINK.PARAMETER`, `HOST.NODE.PARAMETER`, or
/// `HOST.count` and its like, which stand behind a host's name. A value that is written there is
/// replaced, otherwise the parameter is added. Whether the protocol knows it, and the value does,
/// is for the check of the new text to say.
///
/// # Errors
/// What the path does not name, with what there is. A text that does not parse is left as it is:
/// the check tells of it.
pub fn set(source: &str, path: &str, value: &str) -> Result<String, String> {
    let (graph, diagnostics) = parse("", source);
    if diagnostics.has_errors() {
        return Ok(source.into());
    }
    let place = find(&graph, path)?;
    let (at, written) = match place {
        Place::Written(span) => (span, written(value)),
        Place::Behind(end, name) => (Span::new(end, 0), format!(" {name}={}", written(value))),
    };
    Ok(replaced(source, at, &written))
}

/// The text without what stands at these places, which lie apart.
pub fn without(source: &str, places: &[Span]) -> String {
    let mut places = places.to_vec();
    places.sort();
    places.iter().rev().fold(source.to_owned(), |text, span| replaced(&text, *span, ""))
}

fn replaced(source: &str, at: Span, by: &str) -> String {
    let (before, behind) = (source.get(..at.offset), source.get(at.end()..));
    [before.unwrap_or(source), by, behind.unwrap_or_default()].concat()
}

/// A value as a graph file has it. One in quotes may be anything that parameters are but a yes or a
/// no.
fn written(value: &str) -> String {
    match value.trim_start_matches('#') {
        word @ ("true" | "false") => format!("#{word}"),
        _ => {
            let mut text = String::from("\"");
            for c in value.chars() {
                if matches!(c, '"' | '\\') {
                    text.push('\\');
                }
                text.push(c);
            }
            text + "\""
        }
    }
}

/// The place at which a parameter stands, or is to.
enum Place<'a> {
    Written(Span),
    /// Behind this octet, under this name.
    Behind(usize, &'a str),
}

impl<'a> Place<'a> {
    fn of(params: &[Param], name: &'a str, behind: Span) -> Self {
        match params.iter().find(|param| *param.name == name) {
            Some(param) => Self::Written(param.value.span),
            None => Self::Behind(behind.end(), name),
        }
    }
}

fn find<'a>(graph: &Graph, path: &'a str) -> Result<Place<'a>, String> {
    let form = "expected LINK.PARAMETER, HOST.NODE.PARAMETER or HOST.count";
    let (rest, name) =
        path.rsplit_once('.').ok_or_else(|| format!("`{path}` names no parameter: {form}"))?;
    if let Some(link) = graph.link(rest) {
        return Ok(Place::of(&link.params, name, link.name.span));
    }
    if let Some(host) = graph.host(rest) {
        return match (&host.count, name) {
            (Some(count), "count") => Ok(Place::Written(count.span)),
            _ => Ok(Place::of(&host.params, name, host.name.span)),
        };
    }
    // Names may have points: the longest host that the path begins with is meant.
    let begins = |host: &&Host| {
        rest.strip_prefix(host.name.as_str()).is_some_and(|rest| rest.starts_with('.'))
    };
    let host = graph.hosts.iter().filter(begins).max_by_key(|host| host.name.len());
    let Some(host) = host else {
        let names = graph.hosts.iter().map(|host| host.name.as_str());
        let names: Vec<&str> =
            names.chain(graph.links.iter().map(|link| link.name.as_str())).collect();
        let first = rest.split('.').next().unwrap_or(rest);
        let near = nearest(first, names.iter().copied());
        let help = near.map_or_else(
            || format!("there are {}", names.join(", ")),
            |near| format!("did you mean `{near}`?"),
        );
        return Err(format!("no host or link is called `{first}`; {help}"));
    };
    let node_name = rest.get(host.name.len() + 1..).unwrap_or_default();
    let Some(node) = host.node(node_name) else {
        let names: Vec<&str> = host.nodes.iter().map(|node| node.name.as_str()).collect();
        let near = nearest(node_name, names.iter().copied());
        let help = near.map_or_else(
            || format!("it has {}", names.join(", ")),
            |near| format!("did you mean `{near}`?"),
        );
        return Err(format!("host `{}` has no node `{node_name}`; {help}", host.name.as_str()));
    };
    if let Some(block) = node.blocks(name).next() {
        return match &block.args[..] {
            [value] if block.params.is_empty() && block.children.is_empty() => {
                Ok(Place::Written(value.span))
            }
            _ => Err(format!("`{name}` of `{rest}` is a list: write it in the file")),
        };
    }
    let behind = node.lowers.last().map_or(node.kind.span, |lower: &Spanned<String>| lower.span);
    Ok(Place::of(&node.params, name, behind))
}

/// The value of a parameter as the text has it; `None` if it has none there.
pub fn get(source: &str, path: &str) -> Option<String> {
    let (graph, _) = parse("", source);
    let Ok(Place::Written(span)) = find(&graph, path) else { return None };
    let mut diagnostics = Diagnostics::new("", "");
    let value = |text: &str| {
        let (found, _) = parse("", &format!("host x a={text}"));
        found.hosts.first()?.params.first().map(|param| param.value.clone())
    };
    match value(span.of(source))? {
        text @ Spanned { value: Value::Text(_), .. } => text.text(&mut diagnostics).map(Into::into),
        other => Some(other.value.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"// A comment, with lan loss="9%".
host client count=2 {
    sim link="lan"
    probe "sim" name=ask to="a" count=5 { address "10.0.0.1"; list 1 2; }
}
host "a.b" { sim link=lan; }
link lan loss="5%"
"#;

    #[test]
    fn what_is_written_is_replaced_and_the_rest_stays() {
        for (path, value, old, new) in [
            ("lan.loss", "1%", r#"link lan loss="5%""#, r#"link lan loss="1%""#),
            ("lan.delay", "1ms", "link lan loss", r#"link lan delay="1ms" loss"#),
            ("client.count", "30", "client count=2", r#"client count="30""#),
            ("client.ask.count", "7", "count=5", r#"count="7""#),
            ("client.ask.size", "9", r#"probe "sim""#, r#"probe "sim" size="9""#),
            ("client.ask.address", "10.0.0.9", "\"10.0.0.1\"", "\"10.0.0.9\""),
            ("client.sim.mtu", "#true", "    sim link", "    sim mtu=#true link"),
            ("a.b.sim.mtu", r#"a"b"#, "{ sim link", r#"{ sim mtu="a\"b" link"#),
            ("a.b.count", "3", r#"host "a.b""#, r#"host "a.b" count="3""#),
        ] {
            assert!(TEXT.contains(old), "{old}");
            let found = set(TEXT, path, value).unwrap();
            assert_eq!(found, TEXT.replacen(old, new, 1), "{path}");
            assert_eq!(get(&found, path).as_deref(), Some(value), "{path}");
            assert!(!parse("", &found).1.has_errors(), "{path}");
        }
        assert_eq!(get(TEXT, "client.count").as_deref(), Some("2"));
        assert_eq!(get(TEXT, "lan.delay"), None);
    }

    #[test]
    fn what_there_is_not_is_told_with_what_there_is() {
        for (path, told) in [
            ("loss", "LINK.PARAMETER"),
            ("lam.loss", "`lan`"),
            ("client.asc.count", "`ask`"),
            ("client.ask.list", "is a list"),
            ("zzzzz.count", "client, a.b, lan"),
        ] {
            let why = set(TEXT, path, "1").unwrap_err();
            assert!(why.contains(told), "{path}: {why}");
        }
        assert_eq!(set("host {", "a.b", "1").as_deref(), Ok("host {"), "the check tells of it");
    }

    #[test]
    fn places_are_taken_out_together() {
        let (graph, _) = parse("", TEXT);
        let spans: Vec<Span> = graph.hosts.iter().rev().map(|host| host.span).collect();
        let left = without(TEXT, &spans);
        assert_eq!(parse("", &left).0.hosts.len(), 0);
        assert!(left.starts_with("// A comment") && left.ends_with("link lan loss=\"5%\"\n"));
    }
}
