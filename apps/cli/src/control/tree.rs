//! A trace as a tree of crossings, with the time that each layer took.

use serde_json::{Value, json};
use xk_core::Kernel;
use xk_core::object::ProtocolId;
use xk_core::trace::Operation;
use xk_run::{Recorder, Span};

/// The crossings that a recorder saw, in their order, each with its depth and its own time.
pub(super) fn of(kernel: &Kernel, recorder: &Recorder) -> Value {
    let spans = recorder.spans();
    let own = own_ns(&spans);
    let name = |id: ProtocolId| kernel.name_of(id).unwrap_or_else(|| "?".to_owned());
    let is_proxy = |id| kernel.protocol(id).is_some_and(|protocol| protocol.is_proxy());
    let arrives =
        |span: &Span| is_proxy(if span.operation.is_down() { span.upper } else { span.lower });
    let leaves = |span: &Span| {
        if matches!(span.operation, Operation::Pop | Operation::CallPop) {
            return false;
        }
        is_proxy(if span.operation.is_down() { span.lower } else { span.upper })
    };
    let dropped = recorder.dropped();
    let drops = |at: usize| -> Value {
        let own = dropped.iter().filter(|dropped| dropped.span == at);
        let said = own.map(|dropped| {
            let (by, reason) = (name(dropped.protocol), dropped.reason.name);
            json!({"by": by, "reason": reason, "count": dropped.count})
        });
        said.collect()
    };
    let crossings: Vec<Value> = spans
        .iter()
        .zip(own)
        .enumerate()
        .map(|(at, (span, own_ns))| {
            json!({
                "operation": span.operation.name(),
                "down": span.operation.is_down(),
                "upper": name(span.upper),
                "lower": name(span.lower),
                "session": span.session.0,
                "octets": span.octets,
                "depth": span.depth,
                "start_ns": span.start_ns,
                "total_ns": total_ns(span),
                "own_ns": own_ns,
                "arrives": arrives(span),
                "leaves": leaves(span),
                "drops": drops(at),
            })
        })
        .collect();
    let begun_ns = recorder.begun_ns();
    json!({"crossings": crossings, "missed": recorder.missed(), "begun_ns": begun_ns})
}

fn total_ns(span: &Span) -> u64 {
    span.end_ns.saturating_sub(span.start_ns)
}

/// The time of each operation without that of the operations within it.
fn own_ns(spans: &[Span]) -> Vec<u64> {
    let mut own: Vec<u64> = spans.iter().map(total_ns).collect();
    let mut path: Vec<usize> = Vec::new();
    for (at, span) in spans.iter().enumerate() {
        path.truncate(span.depth as usize);
        if let Some(outer) = path.last().and_then(|outer| own.get_mut(*outer)) {
            *outer = outer.saturating_sub(total_ns(span));
        }
        path.push(at);
    }
    own
}

/// The tree as text, for a person.
pub(super) fn text(trace: &Value) -> String {
    let mut out = String::new();
    let crossings = trace["crossings"].as_array().map_or(&[][..], Vec::as_slice);
    for (at, crossing) in crossings.iter().enumerate() {
        let depth = crossing["depth"].as_u64().unwrap_or(0);
        if depth == 0 {
            let gap = if at > 0 { "\n" } else { "" };
            out.push_str(&format!("{gap}     total       own\n"));
        }
        let text = |field: &str| crossing[field].as_str().unwrap_or_default().to_owned();
        let arrow = if crossing["down"] == true { "v" } else { "^" };
        if let Some(ns) = crossing["crossed_ns"].as_u64() {
            let domain = crossing["domain"].as_str().unwrap_or_default();
            let indent = "  ".repeat(usize::try_from(depth).unwrap_or(0).min(60));
            out.push_str(&format!("{ns:>7} ns            {indent}~ into domain {domain}\n"));
        }
        let indent = "  ".repeat(usize::try_from(depth).unwrap_or(0).min(60));
        let (who, edge) = match text("operation").as_str() {
            operation @ ("demux" | "call_demux") => {
                (format!("{}.{operation}", text("upper")), format!("from {}", text("lower")))
            }
            operation => (
                format!("{}.{operation}", text("lower")),
                format!("session s{} of {}", crossing["session"], text("upper")),
            ),
        };
        out.push_str(&format!(
            "{:>7} ns {:>6} ns  {indent}{arrow} {who} {} octets ({edge})\n",
            crossing["total_ns"].as_u64().unwrap_or(0),
            crossing["own_ns"].as_u64().unwrap_or(0),
            crossing["octets"],
        ));
        for drop in crossing["drops"].as_array().into_iter().flatten() {
            let by = drop["by"].as_str().unwrap_or_default();
            let (count, reason) = (&drop["count"], drop["reason"].as_str().unwrap_or_default());
            out.push_str(&format!("{:22}{indent}  x {by} drops {count}: {reason}\n", ""));
        }
    }
    out.push_str(&crate::view::silent(trace));
    let missed = trace["missed"].as_u64().unwrap_or(0);
    if missed > 0 {
        out.push_str(&format!("... and {missed} crossings more\n"));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use xk_core::object::SessionId;

    #[test]
    fn own_time_is_what_is_left() {
        let span = |depth, start_ns, end_ns| Span {
            operation: Operation::Pop,
            upper: ProtocolId(1),
            lower: ProtocolId(0),
            session: SessionId(1),
            octets: 60,
            depth,
            start_ns,
            end_ns,
        };
        let spans =
            [span(0, 0, 100), span(1, 10, 40), span(2, 20, 30), span(1, 50, 90), span(0, 200, 210)];
        assert_eq!(own_ns(&spans), [30, 20, 10, 40, 10]);
    }
}
