//! The context graph of a conversation of many, which its members keep: as JSON from a live kernel,
//! and as a picture.

use crate::failure::Failure;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use xk_core::{Kernel, SessionRef};
use xk_kit::group::{Context, MemberAt, MyMember, NodeId, PlaceOf};
use xk_show::figures;

/// The question that a protocol of conversations answers.
const QUESTION: &str = "context";
/// Messages of one conversation at most, and levels of a picture.
const NODES_MAX: usize = 4096;
const LEVELS_MAX: u32 = 400;

/// Returns the conversations of a kernel, each with its members and the messages that are kept.
pub(crate) fn of_kernel(kernel: &Kernel) -> Vec<Value> {
    let is_asked = |kind: &str| {
        let entry = xk_catalog::find(kind);
        entry.is_some_and(|entry| entry.questions.iter().any(|asked| asked.name == QUESTION))
    };
    let mut all = Vec::new();
    for protocol in kernel.protocols() {
        if !protocol.is_proxy() && is_asked(protocol.head().kind()) {
            let sessions = figures::sessions_of(kernel, &protocol);
            all.extend(sessions.here().filter_map(|session| of_session(kernel, session)));
        }
    }
    all
}

fn of_session(kernel: &Kernel, session: &SessionRef) -> Option<Value> {
    let my = session.ask(kernel, MyMember::default())?;
    let member = |index| {
        let at = session.ask(kernel, MemberAt { index, ..MemberAt::default() })?;
        let port = if at.port == 0 { String::new() } else { format!(":{}", at.port) };
        Some(format!("process {} at {}{port}", at.process, at.host))
    };
    let members: Option<Vec<String>> = (0..my.members).map(member).collect();
    let (mut nodes, mut from) = (Vec::new(), NodeId::default());
    while nodes.len() < NODES_MAX {
        let page = session.ask(kernel, Context { from, ..Context::default() })?.nodes;
        let Some((last, ..)) = page.last() else {
            break;
        };
        from = *last;
        for (id, depth, before) in page {
            let place = session.ask(kernel, PlaceOf { id, ..PlaceOf::default() });
            let after: Vec<[u32; 2]> = before.iter().map(|b| [b.sender.into(), b.seq]).collect();
            nodes.push(json!({
                "from": id.sender, "number": id.seq, "depth": depth, "after": after,
                "null": place.is_some_and(|place| place.is_null),
            }));
        }
    }
    Some(json!({"conversation": my.conversation, "members": members?, "nodes": nodes}))
}

/// Draws conversations, as one or several members have them, into an SVG file.
///
/// # Errors
/// If there is none, or the file cannot be written.
pub(crate) fn draw(all: &[Value], path: &Path) -> Result<(), Failure> {
    let whole = merged(all);
    if whole.is_empty() {
        return Err(Failure::new("there is no conversation of many to draw")
            .help("a host with `psync` has one while it runs: see `xk help psync`"));
    }
    crate::draw::write(&svg(&whole), path)
}

/// A message: its number, whether it is a null, and its immediate predecessors.
struct Node {
    number: u64,
    is_null: bool,
    after: Vec<(u64, u64)>,
}

/// One conversation: its members, and its messages by depth and sender.
struct Drawn {
    number: u64,
    members: Vec<String>,
    nodes: BTreeMap<(u64, u64), Node>,
}

/// Makes one conversation of the parts that its members keep.
fn merged(all: &[Value]) -> Vec<Drawn> {
    let mut whole: Vec<Drawn> = Vec::new();
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    for part in all {
        let its = number(&part["conversation"]);
        let at = whole.iter().position(|other| other.number == its).unwrap_or_else(|| {
            let members = list(&part["members"]);
            let members = members.iter().map(|m| m.as_str().unwrap_or_default().to_owned());
            whole.push(Drawn { number: its, members: members.collect(), nodes: BTreeMap::new() });
            whole.len() - 1
        });
        for node in list(&part["nodes"]) {
            let after = list(&node["after"]);
            let after = after.iter().map(|b| (number(&b[0]), number(&b[1]))).collect();
            let (key, is_null) =
                ((number(&node["depth"]), number(&node["from"])), node["null"] == true);
            whole[at].nodes.insert(key, Node { number: number(&node["number"]), is_null, after });
        }
    }
    whole.retain(|drawn| !drawn.nodes.is_empty());
    whole
}

// All lengths are in pixels.
const LANE: u64 = 150;
const LEVEL: u64 = 38;
const LEFT: u64 = 60;
const TOP: u64 = 116;
const RADIUS: u64 = 11;
/// Colours of senders, one after the other: of Okabe and Ito (2008), which differ for all eyes.
const COLOURS: [&str; 6] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00"];

fn svg(all: &[Drawn]) -> String {
    let (mut body, mut top, mut width) = (String::new(), 0, 560);
    for drawn in all {
        let last = drawn.nodes.last_key_value().map_or(0, |((depth, _), _)| *depth);
        let first = drawn.nodes.first_key_value().map_or(0, |((depth, _), _)| *depth);
        let first = first.max((last + 1).saturating_sub(LEVELS_MAX.into()));
        let height = TOP + (last - first + 1) * LEVEL;
        let _ = writeln!(body, "<g transform=\"translate(0 {top})\">");
        conversation(&mut body, drawn, first, last);
        body += "</g>\n";
        top += height;
        width = width.max(LEFT + drawn.members.len() as u64 * LANE);
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {top}\" width=\"{width}\" height=\"{top}\" \
         font-family=\"ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace\" font-size=\"12\">\n\
         <rect width=\"{width}\" height=\"{top}\" fill=\"#ffffff\"/>\n{body}</svg>\n"
    )
}

fn conversation(body: &mut String, drawn: &Drawn, first: u64, last: u64) {
    let x = |sender: u64| LEFT + sender * LANE + LANE / 2;
    let y = |depth: u64| TOP + (depth - first) * LEVEL + LEVEL / 2;
    let _ = writeln!(
        body,
        "<text x=\"20\" y=\"28\" font-size=\"17\" font-weight=\"bold\" fill=\"#1c2833\">Conversation {}</text>\n\
         <text x=\"20\" y=\"48\" fill=\"#5d6d7e\">Each circle is a message with its number; an empty one is a null.</text>\n\
         <text x=\"20\" y=\"64\" fill=\"#5d6d7e\">Lines lead up to the messages that it immediately follows.</text>\n\
         <text x=\"20\" y=\"{}\" fill=\"#5d6d7e\">depth</text>",
        drawn.number,
        TOP - 12
    );
    let right = LEFT + drawn.members.len() as u64 * LANE;
    for depth in (first..=last).step_by(2) {
        let at = y(depth) - LEVEL / 2;
        let _ = writeln!(
            body,
            "<rect x=\"0\" y=\"{at}\" width=\"{right}\" height=\"{LEVEL}\" fill=\"#f4f6f7\"/>"
        );
    }
    for depth in first..=last {
        let at = y(depth) + 4;
        let _ = writeln!(body, "<text x=\"20\" y=\"{at}\" fill=\"#5d6d7e\">{depth}</text>");
    }
    for (member, text) in drawn.members.iter().enumerate() {
        let (at, colour) = (x(member as u64), COLOURS[member % COLOURS.len()]);
        let (process, host) = text.split_once(" at ").unwrap_or((text, ""));
        let _ = writeln!(
            body,
            "<text x=\"{at}\" y=\"{}\" text-anchor=\"middle\" font-weight=\"bold\" fill=\"{colour}\">{process}</text>\n\
             <text x=\"{at}\" y=\"{}\" text-anchor=\"middle\" fill=\"{colour}\">{host}</text>",
            TOP - 24,
            TOP - 8
        );
    }
    let place: BTreeMap<(u64, u64), u64> =
        drawn.nodes.iter().map(|((depth, from), node)| ((*from, node.number), *depth)).collect();
    let shown = drawn.nodes.iter().filter(|((depth, _), _)| *depth >= first);
    for ((depth, from), node) in shown.clone() {
        for before in &node.after {
            // Of one that is no longer kept the place is not known.
            let Some(above) = place.get(before).filter(|above| **above >= first) else {
                continue;
            };
            let _ = writeln!(
                body,
                "<line x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\" stroke=\"{}\" stroke-width=\"1.3\" stroke-opacity=\"0.55\"/>",
                x(*from),
                y(*depth),
                x(before.0),
                y(*above),
                COLOURS[*from as usize % COLOURS.len()]
            );
        }
    }
    for ((depth, from), node) in shown {
        let (x, y, colour) = (x(*from), y(*depth), COLOURS[*from as usize % COLOURS.len()]);
        let (fill, ink) = if node.is_null { ("#ffffff", colour) } else { (colour, "#ffffff") };
        let _ = writeln!(
            body,
            "<circle cx=\"{x}\" cy=\"{y}\" r=\"{RADIUS}\" fill=\"{fill}\" stroke=\"{colour}\" stroke-width=\"1.5\"/>\n\
             <text x=\"{x}\" y=\"{}\" text-anchor=\"middle\" font-size=\"10\" fill=\"{ink}\">{}</text>",
            y + 4,
            node.number
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(nodes: &Value) -> Value {
        json!({"conversation": 7, "members": ["process 1 at 10.0.0.1", "process 2 at 10.0.0.2"], "nodes": nodes})
    }

    #[test]
    fn parts_of_two_members_are_one_picture() {
        let question = json!({"from": 0, "number": 1, "depth": 0, "after": [], "null": false});
        let answer = json!({"from": 1, "number": 1, "depth": 1, "after": [[0, 1]], "null": true});
        let parts = [part(&json!([question])), part(&json!([question, answer]))];
        let whole = merged(&parts);
        assert_eq!((whole.len(), whole[0].nodes.len()), (1, 2));
        let svg = svg(&whole);
        assert_eq!((svg.matches("<circle").count(), svg.matches("<line").count()), (2, 1));
        assert!(svg.contains("process 2") && svg.contains("10.0.0.2"));
    }

    #[test]
    fn without_a_conversation_nothing_is_drawn() {
        let error = draw(&[part(&json!([]))], Path::new("-")).unwrap_err();
        assert!(error.text().contains("no conversation"), "{}", error.text());
    }
}
