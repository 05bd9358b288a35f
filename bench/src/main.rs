//! Runs the benchmarks named on the command line, or all: `cargo run --release -p xk-bench -- layer`.
//! The command `xk bench` offers the same with options.

fn main() {
    if xk_bench::instructions::run_if_asked() {
        return;
    }
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    for benchmark in xk_bench::benchmarks() {
        if wanted.is_empty() || wanted.iter().any(|name| name == benchmark.name) {
            xk_bench::run(&benchmark, xk_bench::Options::default());
        }
    }
}
