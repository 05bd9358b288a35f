//! A look at a live kernel, as JSON, and JSON as text.

use crate::conversation;
use crate::output::{grouped, heading};
use crate::table::Table;
use serde_json::{Map, Value, json};
use xk_core::control::{ListMaps, ListSessions, Listed, Report};
use xk_core::{Kernel, ProtocolRef};
use xk_kit::net::drop_sources::{DroppedFrom, ListDropSources};
use xk_show::figures;

/// Sources of drops of one protocol that are shown as text.
const TALKERS_SHOWN_MAX: usize = 5;

/// Names of the lowers of each protocol of a kernel.
pub(crate) type Lowers = Vec<(String, Vec<String>)>;

/// Everything there is to see of a kernel; `sessions_max` sessions of each protocol are described.
pub(crate) fn of_kernel(kernel: &Kernel, lowers: &Lowers, sessions_max: usize) -> Value {
    let pool = kernel.pool().stats();
    let shepherds = kernel.shepherds().stats();
    let classes: Vec<Value> = pool
        .classes
        .iter()
        .map(|c| json!({"octets": c.octets, "live": c.live, "high_water": c.high_water}))
        .collect();
    // A proxy would be asked in the other address space; the port knows its sessions here.
    let all = kernel.protocols();
    let ports = all.iter().filter(|protocol| protocol.head().kind() == "port");
    let crossing: Vec<ListSessions> =
        ports.map(|port| figures::sessions_at(kernel, port)).collect();
    let mut protocols: Vec<Value> = Vec::new();
    for protocol in all {
        let below = lowers
            .iter()
            .find(|(name, _)| name == protocol.name())
            .map_or(&[][..], |(_, below)| below);
        let sessions = match protocol.is_proxy() {
            true => stand_ins(&crossing, &protocol),
            false => figures::sessions_of(kernel, &protocol),
        };
        let seen = of_protocol(kernel, &protocol, below, sessions, sessions_max, &protocols);
        protocols.push(seen);
    }
    json!({
        "now_ns": kernel.now().as_ns(),
        "protocols": protocols,
        "conversations": conversation::of_kernel(kernel),
        "timers": kernel.timers(),
        "pool": {
            "buffers_live": pool.buffers_live,
            "descriptors_live": pool.descriptors_live,
            "descriptors_high_water": pool.descriptors_high_water,
            "octets_used": pool.octets_used,
            "failures": pool.failures,
            "classes": classes,
        },
        "shepherds": {
            "made": shepherds.made,
            "suspended": shepherds.suspended,
            "high_water": shepherds.in_use_high_water,
            "dispatches": shepherds.dispatches,
            "blocks": shepherds.blocks,
        },
    })
}

fn of_protocol(
    kernel: &Kernel,
    protocol: &ProtocolRef,
    below: &[String],
    sessions: ListSessions,
    sessions_max: usize,
    before: &[Value],
) -> Value {
    let head = protocol.head();
    let is_proxy = protocol.is_proxy();
    // What a stand-in has to say of itself lies in the other address space.
    let sessions_max = if is_proxy { 0 } else { sessions_max };
    let (sent, received) = figures::crossed(protocol, &sessions);
    let drops: Vec<Value> = head
        .drops()
        .list()
        .into_iter()
        .map(|(reason, count)| json!({"reason": reason.name, "count": count}))
        .collect();
    let described = sessions.sessions.iter().take(sessions_max);
    let described: Vec<Value> = described.map(|session| of_session(kernel, session)).collect();
    let mut seen = json!({
        "name": protocol.name(),
        "kind": head.kind(),
        "on": below,
        "sent": sent,
        "received": received,
        "demultiplexed": head.received(),
        "dropped": head.drops().total(),
        "drops": drops,
        "sessions_total": sessions.total,
        "sessions": described,
    });
    if is_proxy {
        seen["proxy"] = json!(true);
        return seen;
    }
    if let Some(maps) = maps_of(kernel, protocol) {
        // A question that a protocol does not answer goes to the one below: those are not its own
        // maps.
        let forwarded = |lower: &Value| {
            below.iter().any(|name| lower["name"] == name.as_str())
                && (lower["maps"] == maps || lower["maps_below"] == maps)
        };
        let key = if before.iter().any(forwarded) { "maps_below" } else { "maps" };
        seen[key] = maps;
    }
    if let Some(drop_sources) = protocol.ask(kernel, ListDropSources::default())
        && drop_sources.by == Some(protocol.id())
    {
        seen["dropped_from"] = drop_sources.sources.iter().map(of_drop_source).collect();
    }
    if let Some(report) = figures::report(kernel, protocol) {
        seen["report"] = of_report(&report);
    }
    seen
}

/// Sessions of the ports that stand for sessions of this proxy's protocol.
fn stand_ins(crossing: &[ListSessions], proxy: &ProtocolRef) -> ListSessions {
    let mut own = figures::no_sessions();
    let all = crossing.iter().flat_map(ListSessions::here);
    all.filter(|session| session.head().protocol() == proxy.id()).for_each(|s| own.push(s));
    own
}

fn of_session(kernel: &Kernel, session: &Listed) -> Value {
    let info = session.info(kernel);
    json!({
        "id": info.id.0,
        "upper": kernel.name_of(info.upper).unwrap_or_default(),
        "holders": info.holders,
        "sent": info.sent,
        "received": info.received,
        "text": info.text,
    })
}

fn maps_of(kernel: &Kernel, protocol: &ProtocolRef) -> Option<Value> {
    let list = protocol.ask(kernel, ListMaps::default())?;
    let maps = list.maps.into_iter().map(|(name, stats)| {
        json!({"name": &*name, "entries": stats.entries, "lookups": stats.lookups, "cache_hits": stats.cache_hits})
    });
    Some(Value::Array(maps.collect()))
}

fn of_drop_source(from: &DroppedFrom) -> Value {
    let reasons = from.reasons.iter();
    let reasons: Vec<Value> =
        reasons.map(|(reason, count)| json!({"reason": reason.name, "count": count})).collect();
    json!({
        "source": from.source.to_string(),
        "count": from.count,
        "count_max": from.count_max,
        "reasons": reasons,
    })
}

/// An anchor's report.
fn of_report(report: &Report) -> Value {
    let lines: Map<String, Value> = report
        .lines
        .iter()
        .map(|(name, value)| (name.clone(), Value::String(value.clone())))
        .collect();
    let order: Vec<&String> = report.lines.iter().map(|(name, _)| name).collect();
    json!({"finished": report.finished, "failed": report.failed, "order": order, "lines": lines})
}

fn number(value: &Value) -> String {
    grouped(value.as_u64().unwrap_or(0))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// The fields of these names as cells of a table.
fn cells<'a>(value: &'a Value, names: &'a [&str]) -> impl Iterator<Item = String> + 'a {
    names.iter().map(|name| match &value[*name] {
        Value::String(text) => text.clone(),
        other => number(other),
    })
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// A line for each domain that is missing in what is shown.
pub(crate) fn silent(view: &Value) -> String {
    let line = |one: &Value| {
        let why = if one["stopped"] == true { "is stopped" } else { "does not answer" };
        format!("domain {} {why}: it is missing here\n", text(&one["domain"]))
    };
    list(&view["silent"]).iter().map(line).collect()
}

/// The counters of all protocols, the topmost first, and why they dropped.
pub(crate) fn counters(view: &Value) -> String {
    let columns = ["protocol", "kind", "on", "sessions", "sent", "received", "demuxed", "dropped"];
    let mut table = Table::new(&columns);
    for p in list(&view["protocols"]).iter().rev() {
        let on: Vec<String> = list(&p["on"]).iter().map(text).collect();
        let counts = ["sessions_total", "sent", "received", "demultiplexed", "dropped"];
        table.row(cells(p, &["name", "kind"]).chain([on.join(" ")]).chain(cells(p, &counts)));
    }
    let mut out = table.render();
    out.push_str(&silent(view));
    let mut drops = Table::new(&["dropped by", "reason", "count"]);
    for p in list(&view["protocols"]) {
        for drop in list(&p["drops"]) {
            drops.row([text(&p["name"]), text(&drop["reason"]), number(&drop["count"])]);
        }
    }
    if !drops.is_empty() {
        out.push('\n');
        out.push_str(&drops.render());
    }
    out
}

/// Table of the counters of each cut edge between domains.
fn edges(view: &Value) -> String {
    let columns = ["cut edge", "from domain", "to", "sessions", "down", "up", "dropped"];
    let mut table = Table::new(&columns);
    let protocols = list(&view["protocols"]);
    for edge in list(&view["edges"]) {
        let stands_on =
            |p: &&Value| p["domain"] == edge["domain"] && list(&p["on"]).contains(&edge["name"]);
        let uppers: Vec<String> =
            protocols.iter().filter(stands_on).map(|p| text(&p["name"])).collect();
        let lower = protocols.iter().find(|p| p["name"] == edge["name"]);
        // What stands for an upper protocol counts what did not reach it in the lower domain.
        let refused = |upper: &&Value| {
            let is_upper = uppers.contains(&text(&upper["name"]));
            is_upper && lower.is_some_and(|lower| upper["domain"] == lower["domain"])
        };
        let (Some(lower), false) = (lower, uppers.is_empty()) else {
            continue;
        };
        let refused = list(&view["edges"]).iter().filter(refused);
        let dropped = refused.chain([edge]).filter_map(|part| part["dropped"].as_u64());
        let (name, dropped) =
            (format!("{}>{}", uppers.join(" "), text(&edge["name"])), dropped.sum());
        let ends = [name, text(&edge["domain"]), text(&lower["domain"])].into_iter();
        let counts = ["sessions_total", "sent", "received"];
        table.row(ends.chain(cells(edge, &counts)).chain([grouped(dropped)]));
    }
    if table.is_empty() { String::new() } else { table.render() }
}

/// Sources of the messages that each protocol dropped, a line for each of the worst.
fn drop_sources(view: &Value) -> String {
    let mut out = String::new();
    for p in list(&view["protocols"]) {
        for from in list(&p["dropped_from"]).iter().take(TALKERS_SHOWN_MAX) {
            let reasons: Vec<String> = list(&from["reasons"])
                .iter()
                .map(|r| format!("{} {}", text(&r["reason"]), number(&r["count"])))
                .collect();
            let (least, most) = (number(&from["count"]), number(&from["count_max"]));
            let count = match least == most {
                true => least,
                false => format!("{least} to {most}"),
            };
            out.push_str(&format!(
                "{}: dropped from {}: {count} ({})\n",
                text(&p["name"]),
                text(&from["source"]),
                reasons.join(", ")
            ));
        }
    }
    out
}

/// Reports of the anchors of a kernel, a line each.
pub(crate) fn reports(view: &Value) -> String {
    let mut out = String::new();
    for p in list(&view["protocols"]) {
        if p.get("report").is_some() {
            out.push_str(&format!("{}: {}\n", text(&p["name"]), report_line(&p["report"])));
        }
    }
    out
}

/// The names of the anchors that have failed.
pub(crate) fn failures(view: &Value) -> Vec<String> {
    let failed = list(&view["protocols"]).iter().filter(|p| p["report"]["failed"] == true);
    failed.map(|p| text(&p["name"])).collect()
}

/// A report in one line.
fn report_line(report: &Value) -> String {
    let names = list(&report["order"]).iter().map(text);
    let lines = names.map(|name| {
        let value = text(&report["lines"][&name]);
        (name, value)
    });
    figures::report_line(&Report {
        lines: lines.collect(),
        finished: report["finished"] == true,
        failed: report["failed"] == true,
    })
}

/// Everything, for a person.
pub(crate) fn whole(view: &Value) -> String {
    let mut out = counters(view);
    let edges = edges(view);
    if !edges.is_empty() {
        out.push_str(&format!("\n{edges}"));
    }
    let drop_sources = drop_sources(view);
    if !drop_sources.is_empty() {
        out.push_str(&format!("\n{drop_sources}"));
    }
    let reports = reports(view);
    if !reports.is_empty() {
        out.push_str(&format!("\n{}\n{reports}", heading("reports")));
    }
    let mut sessions =
        Table::new(&["session", "of", "for", "holders", "sent", "received", "state"]);
    let mut maps = Table::new(&["map", "of", "entries", "lookups", "from cache"]);
    for p in list(&view["protocols"]) {
        for s in list(&p["sessions"]) {
            let rest = cells(s, &["upper", "holders", "sent", "received", "text"]);
            sessions.row([format!("s{}", s["id"]), text(&p["name"])].into_iter().chain(rest));
        }
        for m in list(&p["maps"]) {
            let counts = cells(m, &["entries", "lookups", "cache_hits"]);
            maps.row([text(&m["name"]), text(&p["name"])].into_iter().chain(counts));
        }
    }
    for table in [sessions, maps] {
        if !table.is_empty() {
            out.push('\n');
            out.push_str(&table.render());
        }
    }
    out.push('\n');
    out.push_str(&machinery(view));
    out
}

fn machinery(view: &Value) -> String {
    let n = |part: &str, name: &str| number(&view[part][name]);
    let mut out = format!(
        "pool: {} buffers and {} descriptors in use (at most {} so far), {} octets claimed, {} requests refused\n\
         shepherds: {} made, {} suspended, {} at most at one time, {} waits\ntimers: {} pending\n",
        n("pool", "buffers_live"),
        n("pool", "descriptors_live"),
        n("pool", "descriptors_high_water"),
        n("pool", "octets_used"),
        n("pool", "failures"),
        n("shepherds", "made"),
        n("shepherds", "suspended"),
        n("shepherds", "high_water"),
        n("shepherds", "blocks"),
        number(&view["timers"]),
    );
    if view["runner"].is_object() {
        let [turns, arrivals, timers, sleeps] =
            ["turns", "arrivals", "timers", "sleeps"].map(|name| n("runner", name));
        out.push_str(&format!(
            "runner: {turns} turns, {arrivals} arrivals, {timers} timers went off, {sleeps} sleeps\n"
        ));
    }
    out
}
