//! Merges what several kernels of one host show into one.

use serde_json::{Map, Value, json};

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// The dumps of the domains as one: the protocols in the order of the file, without what stands for
/// those of other domains, whose counters are shown with the edges; pools and the like as sums.
pub(super) fn dumps(
    parts: Vec<(usize, Value)>,
    order: &[String],
    name: impl Fn(usize) -> String,
) -> Value {
    let (mut protocols, mut edges, mut domains) = (Vec::new(), Vec::new(), Vec::new());
    let mut conversations = Vec::new();
    let mut whole = json!({"now_ns": 0, "timers": 0, "pool": {}, "shepherds": {}, "runner": {}});
    for (domain, part) in parts {
        let own = name(domain);
        conversations.extend_from_slice(list(&part["conversations"]));
        for protocol in list(&part["protocols"]) {
            let mut protocol = protocol.clone();
            protocol["domain"] = json!(own);
            match protocol["proxy"] == true || protocol["kind"] == "port" {
                true => edges.push(protocol),
                false => protocols.push(protocol),
            }
        }
        for field in ["now_ns", "timers"] {
            whole[field] = match field {
                "timers" => json!(number(&whole[field]) + number(&part[field])),
                _ => json!(number(&whole[field]).max(number(&part[field]))),
            };
        }
        for field in ["pool", "shepherds", "runner"] {
            if let (Some(sums), Some(own)) = (whole[field].as_object_mut(), part[field].as_object())
            {
                add(sums, own);
            }
        }
        domains.push(json!({"name": own, "about": part["about"], "runner": part["runner"]}));
    }
    let place = |p: &Value| order.iter().position(|name| p["name"] == name.as_str());
    protocols.sort_by_key(|p| place(p).unwrap_or(usize::MAX));
    forwarded(&mut protocols);
    whole["protocols"] = Value::Array(protocols);
    whole["conversations"] = Value::Array(conversations);
    whole["edges"] = Value::Array(edges);
    whole["domains"] = Value::Array(domains);
    whole
}

/// Drops the maps that a protocol shows as its own and that are of one below it in another domain,
/// which has answered for it.
fn forwarded(protocols: &mut [Value]) {
    let brief = |maps: &Value| -> Vec<(Value, Value)> {
        list(maps).iter().map(|map| (map["name"].clone(), map["entries"].clone())).collect()
    };
    for at in 0..protocols.len() {
        let own = brief(&protocols[at]["maps"]);
        let is_below = |lower: &&Value| list(&protocols[at]["on"]).contains(&lower["name"]);
        let mut lowers = protocols.iter().filter(is_below);
        let elsewhere = |lower: &Value| {
            lower["domain"] != protocols[at]["domain"]
                && [&lower["maps"], &lower["maps_below"]].map(brief).contains(&own)
        };
        if !own.is_empty() && lowers.any(elsewhere) {
            let maps = protocols[at]["maps"].take();
            protocols[at]["maps_below"] = maps;
        }
    }
}

/// The traces of the domains as one: where a message leaves a domain, what becomes of it in the
/// next one follows, with the time that it took to get there. Of the first `messages` messages.
pub(super) fn traces(parts: Vec<(String, Value)>, messages: u64) -> Value {
    let mut missed = 0;
    let mut roots: Vec<Option<Root>> = Vec::new();
    for (domain, part) in parts {
        let begun = number(&part["trace"]["begun_ns"]);
        missed += number(&part["trace"]["missed"]);
        for crossing in list(&part["trace"]["crossings"]) {
            let at = begun + number(&crossing["start_ns"]);
            let mut crossing = crossing.clone();
            crossing["domain"] = json!(domain);
            match roots.last_mut() {
                Some(Some(root)) if number(&crossing["depth"]) > 0 && root.domain == domain => {
                    root.crossings.push((at, crossing));
                }
                _ => roots
                    .push(Some(Root { domain: domain.clone(), crossings: vec![(at, crossing)] })),
            }
        }
    }
    roots.sort_by_key(|root| root.as_ref().map(Root::begins));
    let begins = roots.iter().flatten().map(Root::begins).min().unwrap_or(0);
    let mut crossings = Vec::new();
    let mut shown = 0;
    // Those whose beginning was before that of the trace come behind.
    for is_late in [false, true] {
        for at in 0..roots.len() {
            let is_it = |root: &Root| root.crossings[0].1["arrives"] == is_late;
            if shown < messages
                && roots[at].as_ref().is_some_and(is_it)
                && let Some(root) = roots[at].take()
            {
                shown += 1;
                follow(root, 0, None, &mut roots, &mut crossings);
            }
        }
    }
    for crossing in &mut crossings {
        crossing["start_ns"] = json!(number(&crossing["start_ns"]).saturating_sub(begins));
    }
    json!({"crossings": crossings, "missed": missed})
}

/// A message in one domain: its crossings, each with the time at which it began.
struct Root {
    domain: String,
    crossings: Vec<(u64, Value)>,
}

impl Root {
    fn begins(&self) -> u64 {
        self.crossings.first().map_or(0, |(at, _)| *at)
    }

    /// Whether it is what `left` becomes in another domain.
    fn continues(&self, left: &Value, after: u64) -> bool {
        let Some((at, first)) = self.crossings.first() else {
            return false;
        };
        let is_same = |field: &str| first[field] == left[field];
        *at >= after
            && first["domain"] != left["domain"]
            && ["down", "upper", "lower", "octets"].into_iter().all(is_same)
    }
}

/// Writes a message and what becomes of it in other domains, `depth` deep.
fn follow(
    root: Root,
    depth: u64,
    mut crossed_ns: Option<u64>,
    roots: &mut [Option<Root>],
    out: &mut Vec<Value>,
) {
    for (at, mut crossing) in root.crossings {
        let own = depth + number(&crossing["depth"]);
        (crossing["depth"], crossing["start_ns"]) = (json!(own), json!(at));
        if let Some(ns) = crossed_ns.take() {
            crossing["crossed_ns"] = json!(ns);
        }
        let leaves = crossing["leaves"] == true;
        let left = crossing.clone();
        out.push(crossing);
        if leaves {
            let is_next =
                |next: &Option<Root>| next.as_ref().is_some_and(|n| n.continues(&left, at));
            let next = roots.iter().position(is_next).and_then(|next| roots[next].take());
            if let Some(next) = next {
                let ns = next.begins() - at;
                follow(next, own + 1, Some(ns), roots, out);
            }
        }
    }
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

fn add(sums: &mut Map<String, Value>, own: &Map<String, Value>) {
    for (name, value) in own {
        if let Some(more) = value.as_u64() {
            let sum = sums.entry(name.clone()).or_insert(json!(0));
            *sum = json!(number(sum) + more);
        }
    }
}
