//! `xk help`: the manual of a protocol.

use crate::failure::Failure;
use crate::output::{heading, print};
use crate::protocols::{above, below, named};
use crate::table::Table;
use std::collections::BTreeMap;
use xk_core::Entry;
use xk_core::graph::Catalog;
use xk_core::graph::{BlockSpec, ParamKind, ParamSpec, Realm};
use xk_lang::nearest;

/// Show the manual of a protocol or wire, or how to use xk
#[derive(clap::Args)]
pub(crate) struct Args {
    /// `graph` for the language of graph files; `questions` for what objects can be asked; a kind,
    /// as `xk protocols` lists it, or `bsd/ddp` for one of a subsystem's; or a command
    #[arg(value_name = "TOPIC")]
    topic: Option<String>,
}

/// The page about the language of graph files.
const LANGUAGE: &str = include_str!("../../../docs/graph.md");

pub(crate) fn main(args: &Args, command: &mut clap::Command) -> Result<(), Failure> {
    let Some(topic) = &args.topic else {
        print(&command.render_long_help().to_string());
        return Ok(());
    };
    if topic == "graph" {
        print(&manual(LANGUAGE));
        return Ok(());
    }
    let catalog = xk_catalog::standard();
    if let Some(titles) = sections(topic) {
        print(&part(topic, titles, &catalog));
        return Ok(());
    }
    if topic == "questions" {
        print(&questions(&catalog));
        return Ok(());
    }
    command.build();
    let subcommand = command.find_subcommand_mut(topic);
    if let Some(entry) = catalog.find(topic) {
        if subcommand.is_some() {
            print(&format!("There is a command of this name too: xk {topic} --help\n\n"));
        }
        print(&text(entry, &catalog));
        return Ok(());
    }
    if let Some(subcommand) = subcommand {
        print(&subcommand.render_long_help().to_string());
        return Ok(());
    }
    let kinds: Vec<String> = catalog.entries().iter().map(|entry| named(entry)).collect();
    let failure = Failure::usage(format!("there is no protocol or command `{topic}`"));
    Err(failure.help(match nearest(topic, kinds.iter().map(String::as_str)) {
        Some(near) => format!("did you mean `{near}`?"),
        None => "`xk protocols` lists them".into(),
    }))
}

/// The sections of the language's page about a part of a graph file; `None` if it is none.
fn sections(topic: &str) -> Option<&'static [&'static str]> {
    Some(match topic {
        "host" => &["The form", "Hosts alike"],
        "link" | "title" => &["The form"],
        "domain" => &["Domains"],
        "subsystem" => &["Subsystems"],
        _ => return None,
    })
}

/// Returns the language's page on a part of a graph file, and the parameters of links.
fn part(topic: &str, titles: &[&str], catalog: &Catalog) -> String {
    let mut text = String::new();
    for title in titles {
        let (_, behind) = LANGUAGE.split_once(&format!("## {title}\n")).unwrap_or_default();
        let section = behind.split("\n## ").next().unwrap_or_default();
        text.push_str(&manual(&format!("## {title}\n{section}\n")));
    }
    if topic == "link" {
        for links in catalog.entries().iter().filter_map(|entry| entry.links) {
            specs(&mut text, links.parameters, links.blocks);
        }
    }
    text.push_str("\n`xk help graph` is the whole page.\n");
    text
}

/// Every question of the catalog, once: the kinds that answer it themselves, and what the answer
/// means at the first of them.
fn questions(catalog: &Catalog) -> String {
    let mut all: BTreeMap<&str, (Vec<&str>, &str)> = BTreeMap::new();
    for entry in catalog.entries() {
        for question in entry.all_questions() {
            all.entry(question.name).or_insert((Vec::new(), question.meaning)).0.push(entry.kind);
        }
    }
    let mut table = Table::new(&["question", "answered by", "answer"]);
    for (name, (kinds, meaning)) in all {
        let first = kinds.first().copied().unwrap_or_default();
        let by = match kinds.len() {
            0..=4 => kinds.join(", "),
            count => format!("{count} kinds"),
        };
        let meaning = if kinds.len() == 1 { meaning.into() } else { format!("{first}: {meaning}") };
        table.row([name.into(), by, meaning]);
    }
    format!(
        "Objects are asked by `control`; what one does not know it passes on to the layer below.\n\
         `xk help KIND` says what each answer means there.\n\n{}",
        table.render()
    )
}

fn text(entry: &Entry, catalog: &Catalog) -> String {
    let mut text = format!("{} - {}\n\n", heading(&named(entry)), entry.summary);
    text.push_str(&manual(&entry.manual_text()));
    text.push_str(&format!("\n{}\n{}\n", heading("REALM"), entry.realm));
    text.push_str(&format!("\n{}\n{}\n", heading("SHAPE"), entry.shape));
    text.push_str(&format!("\n{}\n{}\n", heading("ABOVE"), above(entry)));
    if entry.takes_peers {
        text.push_str("One session may have several peers.\n");
    }
    text.push_str(&format!("\n{}\n{}\n", heading("BELOW"), below(&entry.below)));
    if entry.below.max > 0 && !entry.below.realms.is_empty() {
        let realms: Vec<String> = entry.below.realms.iter().map(Realm::to_string).collect();
        text.push_str(&format!("Realm: {}.\n", realms.join(" or ")));
    }
    if !entry.joins.is_empty() {
        text.push_str(&format!("Kinds: {}.\n", entry.joins.join(", ")));
    }
    let parameters = parameters(entry);
    if !parameters.is_empty() {
        text.push_str(&format!("\n{}\n", heading("PARAMETERS")));
        text.push_str(&parameters);
    }
    let mut numbers = Table::new(&["protocol", "on", "type number"]);
    for number in catalog.numbers().kinds() {
        if number.upper == entry.kind || number.lower == entry.kind {
            let value = format!("{} ({:#06x})", number.number, number.number);
            numbers.row([number.upper.into(), number.lower.into(), value]);
        }
    }
    if !numbers.is_empty() {
        text.push_str(&format!("\n{}\n", heading("TYPE NUMBERS")));
        text.push_str(&numbers.render());
    }
    let mut questions = Table::new(&["question", "answer"]);
    for question in entry.all_questions() {
        questions.row([question.name.into(), question.meaning.into()]);
    }
    if !questions.is_empty() {
        text.push_str(&format!("\n{}\n", heading("CONTROL")));
        text.push_str(&questions.render());
    }
    text
}

/// The manual for a reader of graphs: headings in capitals, examples of programs left out, links
/// without their targets.
fn manual(source: &str) -> String {
    let mut text = String::new();
    let mut fence = None;
    for line in source.lines() {
        if let Some(language) = line.strip_prefix("```") {
            fence = match fence {
                None => Some(matches!(language, "kdl" | "text")),
                Some(_) => None,
            };
            continue;
        }
        match fence {
            Some(true) => text.push_str(&format!("    {line}\n")),
            Some(false) => {}
            None => match line.trim_start_matches('#').strip_prefix(' ') {
                Some(title) if line.starts_with('#') => {
                    text.push_str(&format!("{}\n", heading(&title.to_uppercase())))
                }
                _ => text.push_str(&format!("{}\n", without_links(line))),
            },
        }
    }
    text
}

fn without_links(line: &str) -> String {
    let mut text = line.replace("[`", "`");
    while let Some(at) = text.find("`]") {
        let target = text.get(at + 2..).unwrap_or_default();
        let target_octets = match target.strip_prefix('(').and_then(|t| t.find(')')) {
            Some(end) => end + 2,
            None => 0,
        };
        text.replace_range(at + 1..at + 2 + target_octets, "");
    }
    text
}

/// Octets of a line of a parameter's meaning, with what it is indented by.
const LINE: usize = 96;

/// The parameters as the entry has them; no manual says them again.
fn parameters(entry: &Entry) -> String {
    let mut text = String::new();
    specs(&mut text, entry.parameters, entry.blocks);
    text
}

fn specs(text: &mut String, parameters: &[ParamSpec], blocks: &[BlockSpec]) {
    for spec in parameters {
        parameter(text, "", spec.name, spec);
    }
    for block in blocks {
        let count = match (block.min, block.max) {
            (0, max) => format!("at most {max}"),
            (min, max) => format!("{min} to {max}"),
        };
        text.push_str(&format!("{} {{ ... }}: a block, {count}\n", block.name));
        meaning(text, "", block.doc);
        for spec in block.arguments {
            parameter(text, "    ", &format!("<{}>", spec.name), spec);
        }
        for spec in block.properties {
            parameter(text, "    ", &format!("{}=", spec.name), spec);
        }
    }
}

fn parameter(text: &mut String, indent: &str, name: &str, spec: &ParamSpec) {
    let default = match (spec.default, spec.required) {
        (Some(default), _) => format!("; default {default}"),
        (None, true) => "; required".to_owned(),
        (None, false) => String::new(),
    };
    let instead = match spec.instead_of {
        [] => String::new(),
        others => format!("; instead of {}", others.join(", ")),
    };
    text.push_str(&format!("{indent}{name}: {}{default}{instead}\n", kind(spec.kind)));
    meaning(text, indent, spec.doc);
}

fn meaning(text: &mut String, indent: &str, meaning: &str) {
    let mut line = format!("{indent}   ");
    for word in meaning.split(' ') {
        if line.len() + 1 + word.len() > LINE {
            text.push_str(&format!("{line}\n"));
            line = format!("{indent}   ");
        }
        line.push(' ');
        line.push_str(word);
    }
    text.push_str(&format!("{line}\n"));
}

fn kind(kind: ParamKind) -> String {
    match kind {
        ParamKind::Integer { min, max: i64::MAX } => format!("{min} or more"),
        ParamKind::Integer { min, max } => format!("{min} to {max}"),
        ParamKind::Duration { min } if min.is_zero() => "time, as 250ms".into(),
        ParamKind::Duration { .. } => "time above 0, as 250ms".into(),
        ParamKind::Rate => "rate, as 100Mbit".into(),
        ParamKind::Fraction => "share, as 5%".into(),
        ParamKind::Octets => "octets, as 1500 or 64KiB".into(),
        ParamKind::Bool => "#true or #false".into(),
        ParamKind::Text(form) => form.into(),
        ParamKind::Participant(such) => format!("participant, as {such}"),
        ParamKind::Peers(such) => format!("participants with commas between, as {such}"),
        ParamKind::Word(words) => words.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_lose_their_targets() {
        assert_eq!(without_links("see [`A`](b::A) and [`C`]."), "see `A` and `C`.");
    }

    #[test]
    fn programs_are_left_out() {
        let shown = manual("# Example\n```kdl\nudp ip\n```\n```\nuse x;\n```\nend\n");
        assert!(shown.ends_with("    udp ip\nend\n"), "{shown}");
    }
}
