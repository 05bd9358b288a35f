//! The plan of a sweep: a file's `sweep`, and what the command line says in its place.

use super::RunArgs;
use crate::failure::Failure;
use crate::file;
use std::path::Path;
use std::time::Duration;
use xk_compose::CheckedGraph;
use xk_core::graph::{Params, Value};
use xk_lang::{Diagnostic, Diagnostics, ParamBlock, Severity, Span};
use xk_sweep::{Axis, Draw, Plan, Scale, figure, parse_seeds};

/// Virtual time of a run, if nothing is said.
const UNTIL: Duration = Duration::from_secs(60);
/// The seeds, if nothing is said.
const SEEDS: (u64, u64) = (0, 100);
/// The most combinations of values.
const COMBINATIONS_MAX: u64 = 10_000;
/// The most runs: each has some octets in memory.
const RUNS_MAX: u64 = 100_000_000;

/// The words of the options that a run depends on, as `xk sim` takes them.
const UNTIL_OPTION: &str = "--until";
const CRASH_OPTION: &str = "--crash-every";

/// The plan of a file, after a check of the text with the values of every combination.
pub(super) fn of(path: &Path, args: &RunArgs) -> Result<Plan, Failure> {
    if path.as_os_str() == "-" {
        return Err(Failure::usage(
            "a sweep reads its graph from a file, because it may be continued later",
        ));
    }
    let text = file::source(path)?;
    let name = path.display().to_string();
    let graph = xk_compose::check(&text, &name, &xk_catalog::standard())?;
    let lines = |kind: &'static str| {
        graph.sweep().iter().filter(move |(of, _)| *of == kind).map(|(_, params)| params)
    };
    let said = |params: &Params, name: &str| params.text(name).unwrap_or_default().to_owned();
    let seeds = lines("seeds").next().map(|line| parse_seeds(&said(line, "range")));
    let lines_of = Lines { text: &text, name: &name };
    let seeds = seeds.transpose().map_err(|why| lines_of.failure("seeds", None, mistake(why)))?;
    let until = lines("until").next().and_then(|line| match line.get("time") {
        Some(Value::Duration(time)) => Some(*time),
        _ => None,
    });
    let wrong = |kind: &'static str, line: &Params, why: String| {
        lines_of.failure(kind, line.text("path"), mistake(why))
    };
    let of = |line| axis(line).map_err(|why| wrong("set", line, why));
    let mut axes = lines("set").map(of).collect::<Result<Vec<Axis>, _>>()?;
    let of = |line| draw(line).map_err(|why| wrong("draw", line, why));
    let draws = lines("draw").map(of).collect::<Result<Vec<Draw>, _>>()?;
    for axis in &args.set {
        match axes.iter_mut().find(|known| known.name == axis.name) {
            Some(known) => *known = axis.clone(),
            None => axes.push(axis.clone()),
        }
    }
    if let Some(twice) = draws.iter().find(|draw| axes.iter().any(|axis| axis.name == draw.name)) {
        let why = format!("`{}` is both set and drawn", twice.name);
        return Err(lines_of.failure("draw", Some(&twice.name), mistake(why)));
    }
    let time = |time: Duration| Value::<&str>::Duration(time).to_string();
    let until = args.until.or(until).unwrap_or(UNTIL);
    let mut options = vec![format!("{UNTIL_OPTION} {}", time(until))];
    options.extend(args.crash_every.map(|apart| format!("{CRASH_OPTION} {}", time(apart))));
    let seeds = args.seeds.or(seeds).unwrap_or(SEEDS);
    let plan = Plan { what: text, options, axes, draws, seeds };
    if plan.combinations() > COMBINATIONS_MAX || plan.runs() > RUNS_MAX {
        return Err(Failure::usage(format!("{} runs are too many", plan.runs()))
            .help(format!("{COMBINATIONS_MAX} combinations and {RUNS_MAX} runs at most")));
    }
    check_all(&plan, &name, &args.set)?;
    Ok(plan)
}

/// Checks the graph with the values of every combination, so that none fails for that later. A
/// mistake is one of the line that sets the value: the text with it is nowhere to be seen.
fn check_all(plan: &Plan, name: &str, typed: &[Axis]) -> Result<(), Failure> {
    let seeds = plan.seeds.1 - plan.seeds.0;
    for combination in 0..plan.combinations() {
        let set = plan.job(combination * seeds).set;
        let Err(failure) = graph(plan, name, &set) else { continue };
        let alone = |one: &(String, String)| graph(plan, name, std::slice::from_ref(one)).err();
        let Some((one, why)) = set.iter().find_map(|one| Some((one, alone(one)?))) else {
            return Err(failure);
        };
        let (path, value) = one;
        let mut why = match why {
            Failure::Mistakes(found) => match found.sorted().first() {
                Some(first) => (*first).clone(),
                None => return Err(failure),
            },
            Failure::Other(what, help, _) => {
                let what = what.strip_prefix(&format!("{path}={value}: ")).unwrap_or(&what);
                Diagnostic { help, ..mistake(what) }
            }
            _ => return Err(failure),
        };
        why.what = format!("`{path}={value}`: {}", why.what);
        if typed.iter().any(|axis| axis.name == *path) {
            let failure = Failure::usage(format!("--set {}", why.what));
            let help = why.help.or(why.expected.map(|expected| format!("expected {expected}")));
            return Err(help.into_iter().fold(failure, Failure::help));
        }
        let kind = if plan.draws.iter().any(|draw| draw.name == *path) { "draw" } else { "set" };
        return Err(Lines { text: &plan.what, name }.failure(kind, Some(path), why));
    }
    Ok(())
}

/// The lines of a file's `sweep`.
struct Lines<'a> {
    text: &'a str,
    name: &'a str,
}

impl Lines<'_> {
    /// A mistake of the line of this kind, and of this path if it has one.
    fn failure(&self, kind: &str, path: Option<&str>, mut why: Diagnostic) -> Failure {
        let (graph, _) = xk_lang::parse(self.name, self.text);
        let has = |line: &ParamBlock, path: &str| {
            line.args.iter().any(|arg| matches!(&arg.value, xk_lang::Value::Text(of) if of == path))
        };
        let mut lines = graph.sweep.iter().flat_map(|sweep| &sweep.children);
        let line =
            lines.find(|line| *line.name == *kind && path.is_none_or(|path| has(line, path)));
        why.span = line.map_or(Span::default(), |line| line.span);
        // Those are places of another text.
        (why.label, why.others) = (None, Vec::new());
        let mut mistakes = Diagnostics::new(self.name, self.text);
        mistakes.push(why);
        Failure::Mistakes(Box::new(mistakes))
    }
}

/// A mistake in words.
fn mistake(what: impl Into<String>) -> Diagnostic {
    Diagnostic::new(Severity::Error, Span::default(), what)
}

/// The graph with these values.
pub(super) fn graph(
    plan: &Plan,
    name: &str,
    set: &[(String, String)],
) -> Result<CheckedGraph, Failure> {
    let text = file::set(plan.what.clone(), set)?;
    Ok(xk_compose::check(&text, name, &xk_catalog::standard())?)
}

/// A time that an option of the plan has.
fn option(plan: &Plan, name: &str) -> Option<Duration> {
    let found = plan.options.iter().find_map(|option| option.strip_prefix(name));
    xk_lang::parse_duration(found?.trim())
}

/// Whether a folder's runs are of a graph, and not of a test of programs.
pub(super) fn is_of_graph(plan: &Plan) -> bool {
    option(plan, UNTIL_OPTION).is_some()
}

/// Time at which a run ends.
pub(super) fn until(plan: &Plan) -> Duration {
    option(plan, UNTIL_OPTION).unwrap_or(UNTIL)
}

/// Returns the average time between crashes that the command line asks for.
pub(super) fn crash_every(plan: &Plan) -> Option<Duration> {
    option(plan, CRASH_OPTION)
}

/// A line `set`.
fn axis(line: &Params) -> Result<Axis, String> {
    let name = line.text("path").unwrap_or_default();
    let values = line.text("values").unwrap_or_default();
    let ends = (line.text("from"), line.text("to"));
    match ends {
        (None, None) => Axis::parse(&format!("{name}={values}")),
        (Some(from), Some(to)) if values.is_empty() => {
            let steps = line.number("steps", 2_u32);
            let ends = ends_of(name, from, to, scale(line))?;
            let part = |at: u32| f64::from(at) / f64::from(steps.saturating_sub(1).max(1));
            let values = (0..steps).map(|at| ends.value(part(at))).collect();
            Ok(Axis { name: name.into(), values })
        }
        _ => Err(format!("`set {name}` has values, or `from` and `to`")),
    }
}

/// A line `draw`.
fn draw(line: &Params) -> Result<Draw, String> {
    let name = line.text("path").unwrap_or_default();
    let (from, to) = (line.text("from").unwrap_or_default(), line.text("to").unwrap_or_default());
    let Ends { from, to, scale, is_whole, unit } = ends_of(name, from, to, scale(line))?;
    Ok(Draw { name: name.into(), from, to, scale, is_whole, unit })
}

fn scale(line: &Params) -> Scale {
    match line.text("scale") {
        Some("log") => Scale::Log,
        _ => Scale::Linear,
    }
}

/// Two ends of a range in one unit.
struct Ends {
    from: f64,
    to: f64,
    scale: Scale,
    is_whole: bool,
    unit: String,
}

impl Ends {
    fn value(&self, part: f64) -> String {
        let value = self.scale.at(self.from, self.to, part);
        if self.is_whole {
            return format!("{}{}", value.round(), self.unit);
        }
        // No value says more than was meant: nine places, zeros at the end left out.
        let text = format!("{value:.9}");
        format!("{}{}", text.trim_end_matches('0').trim_end_matches('.'), self.unit)
    }
}

fn ends_of(name: &str, from: &str, to: &str, scale: Scale) -> Result<Ends, String> {
    let parted = |text: &str| {
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(end);
        Some((number.parse::<f64>().ok()?, number.contains('.'), unit.to_owned()))
    };
    let wrong = |why: &str| format!("`{name}` from {from:?} to {to:?}: {why}");
    let low = parted(from).ok_or_else(|| wrong("expected numbers, such as 1ms"))?;
    let high = parted(to).ok_or_else(|| wrong("expected numbers, such as 1ms"))?;
    let is_whole = !low.1 && !high.1;
    // Both ends in the smaller of two units of time.
    let (from_value, to_value, unit, is_whole) = if low.2 == high.2 {
        // A range of a few shares has more than whole ones in it.
        let is_whole = is_whole && low.2 != "%";
        (low.0, high.0, low.2, is_whole)
    } else {
        let seconds = |text: &str| figure(text).filter(|_| xk_lang::parse_duration(text).is_some());
        let both = seconds(from).zip(seconds(to));
        let (low, high) = both.ok_or_else(|| wrong("the units differ"))?;
        (low * 1e9, high * 1e9, "ns".into(), true)
    };
    if from_value >= to_value {
        return Err(wrong("the second is not greater"));
    } else if scale == Scale::Log && from_value <= 0.0 {
        return Err(wrong("proportions begin above zero"));
    }
    Ok(Ends { from: from_value, to: to_value, scale, is_whole, unit })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_have_their_ends_and_what_lies_between() {
        let values = |from, to, scale, steps: u32| {
            let ends = ends_of("x", from, to, scale).unwrap();
            (0..steps)
                .map(|at| ends.value(f64::from(at) / f64::from(steps - 1)))
                .collect::<Vec<_>>()
        };
        assert_eq!(values("1ms", "100ms", Scale::Log, 3), ["1ms", "10ms", "100ms"]);
        assert_eq!(values("0%", "5%", Scale::Linear, 3), ["0%", "2.5%", "5%"]);
        assert_eq!(values("1", "4", Scale::Linear, 4), ["1", "2", "3", "4"]);
        assert_eq!(values("1us", "1ms", Scale::Log, 2), ["1000ns", "1000000ns"]);
        for (from, to) in [("1ms", "1"), ("5", "5"), ("a", "b"), ("2", "1"), ("1kB", "1MB")] {
            assert!(ends_of("x", from, to, Scale::Linear).is_err(), "{from} {to}");
        }
        assert!(ends_of("x", "0", "5", Scale::Log).is_err());
    }
}
