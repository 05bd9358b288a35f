//! Costs of shepherds. Prints, and asserts nothing: `cargo test --release -p xk-run --test
//! shepherd_cost -- --ignored --nocapture`

use std::cell::Cell;
use std::hint::black_box;
use std::rc::Rc;
use std::time::Instant;

use xk_core::shepherd::{Flow, Limits, Semaphore, Shepherds};
use xk_run::switch::CoroutineSwitch;

/// The best of seven runs, in nanoseconds per turn.
fn best_ns(turns: u64, mut run: impl FnMut()) -> f64 {
    (0..7)
        .map(|_| {
            let start = Instant::now();
            run();
            start.elapsed().as_secs_f64() * 1e9 / turns as f64
        })
        .fold(f64::INFINITY, f64::min)
}

fn shepherds() -> Rc<Shepherds> {
    let switch = Box::new(CoroutineSwitch::new());
    Rc::new(Shepherds::new(switch, Limits::default()))
}

#[test]
#[ignore = "a measurement"]
fn dispatch_without_a_block() {
    const TURNS: u64 = 1_000_000;
    let shepherds = shepherds();
    let turns = Rc::new(Cell::new(0));
    let body: Rc<dyn Fn() -> Flow> = Rc::new(move || {
        turns.set(black_box(turns.get()) + 1);
        match turns.get() % TURNS {
            0 => Flow::Stop,
            _ => Flow::Continue,
        }
    });
    let ns = best_ns(TURNS, || shepherds.run(body.clone()).expect("runs"));
    println!("dispatch without a block: {ns:.1} ns");
}

#[test]
#[ignore = "a measurement"]
fn one_block_and_resume() {
    const TURNS: u64 = 1_000_000;
    let shepherds = shepherds();
    let turns = Rc::new(Cell::new(0_u64));
    let semaphore = Rc::new(Semaphore::new(0));
    // Odd turns wait, even ones signal: the wait blocks, the next turn makes
    // it ready, and the loop resumes it and gets it back.
    let body: Rc<dyn Fn() -> Flow> = {
        let (shepherds, turns) = (shepherds.clone(), turns.clone());
        Rc::new(move || {
            let turn = turns.get() + 1;
            turns.set(turn);
            match turn % 2 {
                1 if turn % (2 * TURNS) == 1 && turn > 1 => return Flow::Stop,
                1 => semaphore.wait(&shepherds).expect("signalled"),
                _ => {
                    semaphore.signal(&shepherds);
                }
            }
            Flow::Continue
        })
    };
    let ns = best_ns(TURNS, || {
        turns.set(0);
        shepherds.run(body.clone()).expect("runs");
    });
    let stats = shepherds.stats();
    println!("two dispatches with one block and resume: {ns:.1} ns ({stats:?})");
}

#[test]
#[ignore = "a measurement"]
fn a_fresh_shepherd() {
    const MANY: u64 = 500;
    let ns = best_ns(MANY, || {
        let shepherds = shepherds();
        let left = Cell::new(MANY);
        let semaphore = Rc::new(Semaphore::new(0));
        let body = {
            let (shepherds, semaphore) = (shepherds.clone(), semaphore.clone());
            move || {
                if left.replace(left.get().wrapping_sub(1)) == 0 {
                    return Flow::Stop;
                }
                let _ = semaphore.wait(&shepherds);
                Flow::Continue
            }
        };
        shepherds.run(Rc::new(body)).expect("runs");
        semaphore.interrupt_all(&shepherds);
        shepherds.run(Rc::new(|| Flow::Stop)).expect("runs");
    });
    println!("a shepherd made, touched, used once and freed: {ns:.0} ns");
}
