//! The command `xk`: one subcommand per file.
//!
//! Exit codes: 0 done, 1 something is wrong with the graph, the run or the machine, 2 the command
//! line makes no sense; `xk call` has two more.

mod bench;
mod call;
mod check;
mod control;
mod conversation;
mod descendants_unsafe;
mod domains;
mod draw;
mod exec;
mod file;
mod files;
mod generate;
mod help;
mod host;
mod linkage;
mod log;
mod member;
mod ping;
mod protocols;
mod rpcgen;
mod run;
mod signals_unsafe;
mod sim;
mod stream;
mod sweep;
mod switch;
mod top;
mod udp;
mod upgrade;
mod user;
mod user_unsafe;
mod view;
mod wires;

use clap::{CommandFactory, Parser, Subcommand};
use control::client;
use std::process::ExitCode;
use xk_show::{demo, failure, live, output, simulation, table};

/// Protocol graphs: check, draw, run, simulate, look into.
#[derive(Parser)]
#[command(
    name = "xk",
    version,
    disable_help_subcommand = true,
    after_help = "xk help graph: the language of graph files; xk protocols: what they are made of; \
                  xk help PROTOCOL: the manual of one"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Demo(demo::Args),
    Check(check::Args),
    Draw(draw::Args),
    Run(run::Args),
    Upgrade(upgrade::Args),
    Sim(sim::Args),
    Sweep(sweep::Args),
    Ping(ping::Args),
    Udp(udp::Args),
    Exec(exec::Args),
    Switch(switch::Args),
    Call(call::Args),
    Rpcgen(rpcgen::Args),
    Dump(client::DumpArgs),
    Trace(client::TraceArgs),
    Capture(client::CaptureArgs),
    Stream(stream::Args),
    Bench(bench::Args),
    Protocols(protocols::Args),
    Help(help::Args),
    Generate(generate::Args),
    #[command(hide = true)]
    Domain(domains::process::Args),
    #[command(hide = true)]
    SweepWorker(sweep::worker::Args),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Demo(args) => demo::main(&args, &xk_catalog::standard()),
        Command::Check(args) => check::main(&args),
        Command::Draw(args) => draw::main(&args),
        Command::Run(args) => run::main(&args),
        Command::Upgrade(args) => upgrade::main(&args),
        Command::Sim(args) => sim::main(&args),
        Command::Sweep(args) => sweep::main(&args),
        Command::Ping(args) => ping::main(&args),
        Command::Udp(args) => udp::main(&args),
        Command::Exec(args) => exec::main(&args),
        Command::Switch(args) => switch::main(&args),
        Command::Call(args) => call::main(&args),
        Command::Rpcgen(args) => rpcgen::main(&args),
        Command::Dump(args) => client::dump(&args),
        Command::Trace(args) => client::trace(&args),
        Command::Capture(args) => client::capture(&args),
        Command::Stream(args) => stream::main(&args),
        Command::Bench(args) => bench::main(&args),
        Command::Protocols(args) => protocols::main(&args),
        Command::Help(args) => help::main(&args, &mut Cli::command()),
        Command::Generate(args) => generate::main(&args, Cli::command()),
        Command::Domain(args) => domains::process::main(&args),
        Command::SweepWorker(args) => sweep::worker::main(&args),
    };
    output::exit_code(result)
}
