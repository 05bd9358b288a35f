//! The cost of a layer: stacks of 1 to 10 `null` layers.
//!
//! The bottom passes what is pushed up again at once, so a message crosses every layer twice: once
//! by `push`, once by `demux` and `pop`. A crossing is the slope of the whole over the number of
//! layers, divided by two, which leaves allocation and both ends out.

use crate::case::{Case, Goal};
use crate::record::Record;
use crate::stack::{Bottom, BottomWire, kernel};
use crate::uppers::Each;
use std::rc::Rc;
use xk_core::numbers::Number;
use xk_core::{Kernel, Participants, SessionRef, Upper};

const LAYERS: [usize; 10] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10];
/// Octets of the messages sent.
const OCTETS: usize = 40;
/// Room for the headers of ten layers.
const HEADROOM: usize = 64;

/// A stack of null layers over `what`, and the session at its top.
fn stack(layers: usize, what: Bottom) -> (Rc<Kernel>, SessionRef) {
    let cx = kernel();
    for number in xk_null::ENTRY.type_numbers() {
        let _ = cx.numbers_mut().add(number);
    }
    let _ = cx.numbers_mut().add(Number { upper: "count", lower: "null", number: 7 });
    let mut below = cx.add_protocol("bottom", "bottom", BottomWire::new(what, [2, 0, 0, 0, 0, 1]));
    for layer in 0..layers {
        below = xk_null::add(&cx, &format!("null{layer}"), below, 64);
    }
    let top = cx.add_protocol("count", "top", Each(drop));
    cx.start().expect("null layers start on anything");
    let session =
        below.open(&cx, Upper::new(&top), Participants::default()).expect("null layers open");
    (cx, session)
}

fn case(row: String, layers: usize, what: Bottom) -> Case {
    Case::new(row, 200_000, move || {
        let (cx, session) = stack(layers, what);
        move |operations| {
            for _ in 0..operations {
                if let Ok(message) = cx.pool().alloc(HEADROOM, OCTETS) {
                    session.push(&cx, message).expect("the bottom takes everything");
                }
            }
        }
    })
}

pub(crate) fn cases() -> Vec<Case> {
    let down = LAYERS.map(|n| case(format!("{n} layers, push"), n, Bottom::Sink));
    let both = LAYERS.map(|n| case(format!("{n} layers, push and demux + pop"), n, Bottom::Mirror));
    down.into_iter().chain(both).collect()
}

/// The slope and the correlation of a straight line through the points.
fn line(points: &[(f64, f64)]) -> (f64, f64) {
    let n = points.len() as f64;
    let mean = |f: fn(&(f64, f64)) -> f64| points.iter().map(f).sum::<f64>() / n;
    let (mx, my) = (mean(|p| p.0), mean(|p| p.1));
    let sum =
        |f: &dyn Fn(f64, f64) -> f64| points.iter().map(|p| f(p.0 - mx, p.1 - my)).sum::<f64>();
    let (xy, xx, yy) = (sum(&|x, y| x * y), sum(&|x, _| x * x), sum(&|_, y| y * y));
    (xy / xx, xy / (xx * yy).sqrt())
}

pub(crate) fn derived(records: &[Record]) -> Vec<Record> {
    let Some(first) = records.first() else {
        return Vec::new();
    };
    let points = |both: bool, pick: fn(&Record) -> f64| -> Vec<(f64, f64)> {
        let rows = &records[if both { LAYERS.len() } else { 0 }..];
        LAYERS.iter().zip(rows).map(|(n, r)| (*n as f64, pick(r))).collect()
    };
    let row = |name: &str, figures: [f64; 3], goal: Option<Goal>| Record {
        goal,
        ..first.computed(name, first.unit, figures)
    };
    let slope = |both, divisor: f64| {
        [|r: &Record| r.min, |r: &Record| r.median, |r: &Record| r.max]
            .map(|pick| line(&points(both, pick)).0 / divisor)
    };
    let median = points(true, |r| r.median);
    let (each, straight) = line(&median);
    let predicted = median[0].1 + each * (LAYERS.len() - 1) as f64;
    let error = (predicted / median[LAYERS.len() - 1].1 - 1.0).abs() * 100.0;
    let mut crossing = row("one crossing (slope / 2)", slope(true, 2.0), Some(Goal::AtMost(4.5)));
    if records.iter().all(|r| r.instructions.is_some()) {
        let counts = points(true, |r| r.instructions.unwrap_or(0.0));
        crossing.instructions = Some(line(&counts).0 / 2.0);
    }
    vec![
        row("one push (slope)", slope(false, 1.0), None),
        crossing,
        row("correlation with a straight line", [straight; 3], None),
        row("ten layers from one and the slope, error in %", [error; 3], Some(Goal::AtMost(10.0))),
    ]
}
