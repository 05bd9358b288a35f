//! In what order the loop looks at wires and cuts, and sends what goes across.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use xk_core::shepherd::Semaphore;
use xk_core::wire::Wire;
use xk_core::{Kernel, Protocol, ProtocolRef};
use xk_run::{Idle, Runner, real_kernel};

/// What was done with a test's wires: `name` and how many arrivals it gave, `name!` when flushed.
type Log = Rc<RefCell<Vec<String>>>;

/// A wire that has so many arrivals at each look.
struct Source {
    name: &'static str,
    waiting: usize,
    is_cut: bool,
    /// Each arrival waits for something that does not come.
    waits: bool,
    log: Log,
}

impl Protocol for Source {
    fn wire(&self) -> Option<&dyn Wire> {
        Some(self)
    }
}

impl Wire for Source {
    fn poll(&self, cx: &Kernel, _: &ProtocolRef, budget: usize) -> usize {
        let taken = self.waiting.min(budget);
        self.log.borrow_mut().push(format!("{} {taken}", self.name));
        if self.waits {
            let _ = cx.wait(&Semaphore::new(0), None);
        }
        taken
    }

    fn flush(&self, _: &Kernel, _: &ProtocolRef) {
        self.log.borrow_mut().push(format!("{}!", self.name));
    }

    fn is_cut(&self) -> bool {
        self.is_cut
    }
}

/// A runner with these wires: names, arrivals at each look; those in capitals are cuts.
fn runner(wires: &[(&'static str, usize)], waits: &[&str]) -> (Runner, Log) {
    let kernel = Rc::new(real_kernel(1 << 20).expect("a kernel"));
    let log = Log::default();
    for (name, waiting) in wires.iter().copied() {
        let is_cut = name.chars().all(char::is_uppercase);
        let (waits, log) = (waits.contains(&name), Rc::clone(&log));
        let source = Source { name, waiting, is_cut, waits, log };
        kernel.add_protocol("source", name, source);
    }
    (Runner::new(kernel, Idle::Spin).expect("a runner"), log)
}

fn turn(wires: &[(&'static str, usize)]) -> Vec<String> {
    let (runner, log) = runner(wires, &[]);
    assert_eq!(runner.turn(), wires.iter().any(|(_, waiting)| *waiting > 0));
    log.take()
}

/// A message across a cut does not wait for the turn of every wire, nor what goes across for its
/// end.
#[test]
fn a_cut_is_looked_at_and_flushed_after_each_wire() {
    let done = turn(&[("a", 1), ("CUT", 0), ("b", 2), ("c", 0)]);
    assert_eq!(
        done,
        ["a 1", "CUT 0", "CUT!", "b 2", "CUT 0", "CUT!", "c 0", "CUT 0", "a!", "b!", "c!", "CUT!"]
    );
}

/// What a cut brings is looked for once more at each look, within the budget of each.
#[test]
fn every_cut_has_its_look() {
    let done = turn(&[("ONE", 100), ("OTHER", 1)]);
    assert_eq!(done, ["ONE 64", "OTHER 1", "ONE!", "OTHER!"]);
    assert_eq!(turn(&[("ONE", 0)]), ["ONE 0", "ONE!"]);
}

/// A long burst of a wire is interrupted, but is no longer and no shorter in all.
#[test]
fn a_cut_is_looked_at_within_a_burst() {
    let done = turn(&[("a", 1000), ("CUT", 1)]);
    let bursts = done.iter().filter(|act| act.starts_with("a ")).cloned().collect::<Vec<_>>();
    assert_eq!(bursts, ["a 16"; 4]);
    assert_eq!(done.iter().filter(|act| *act == "CUT 1").count(), 4);
    // Without a cut a burst stays whole.
    assert_eq!(turn(&[("a", 1000), ("b", 7)]), ["a 64", "b 7", "a!", "b!"]);
}

/// One whose every arrival is suspended keeps none of the others from being looked at.
#[test]
fn wires_that_suspend_take_turns() {
    for names in [["a", "b", "c"], ["A", "B", "C"]] {
        let (runner, log) = runner(&names.map(|name| (name, 1)), &names[..2]);
        let _ = runner.run(Some(Duration::from_micros(1)), Rc::new(|_| false));
        let looks = log.take();
        let looks: Vec<_> = looks.iter().filter(|act| !act.ends_with('!')).take(3).collect();
        assert_eq!(looks, names.map(|name| format!("{name} 1")).iter().collect::<Vec<_>>());
    }
}
