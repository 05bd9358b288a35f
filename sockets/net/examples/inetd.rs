//! A server whose children own their connections, on a protocol library: one process accepts, and
//! gives each connection to a process of its own, which answers by its own TCP and its own channel.
//! `cargo run -p xk-net --features attach --example inetd -- SOCKET 10.9.0.2:7000`.

use std::io::{self, Read, Write};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use xk_net::{Here, Setup, Stack, TcpListener, TcpStream};

/// Time for which the stack is looked after between two looks at the children.
const LOOK: Duration = Duration::from_millis(20);

/// Accepts at `at`, and gives each connection to what `child` starts, by its standard input; until
/// `is_over` says so, which hears of each child.
pub(crate) fn serve(
    stack: &Stack<Here>,
    at: &str,
    child: impl Fn() -> Command,
    mut is_over: impl FnMut(Option<&Child>) -> bool,
) -> io::Result<()> {
    let listener = TcpListener::bind(stack, at)?;
    listener.set_nonblocking(true)?;
    let mut children: Vec<Child> = Vec::new();
    while !is_over(None) {
        stack.run_for(LOOK)?;
        // Those that have ended: whatever became of them is between them and their peers.
        children.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
        let Ok((stream, _)) = listener.accept() else {
            continue;
        };
        // A peer that has gone meanwhile leaves nothing to give.
        let Ok(state) = stream.into_state() else {
            continue;
        };
        let mut child = child().stdin(Stdio::piped()).spawn()?;
        if let Some(mut to) = child.stdin.take() {
            // One that has died already does not take it: the registry resets its peer.
            let _ = to.write_all(&state);
        }
        let _ = is_over(Some(&child));
        children.push(child);
    }
    children.iter_mut().try_for_each(|child| child.wait().map(drop))
}

/// A child: goes on with the connection whose state comes by `from`, and answers what its peer says
/// until that ends.
pub(crate) fn answer(setup: &Setup, mut from: impl Read) -> io::Result<()> {
    let mut state = Vec::new();
    from.read_to_end(&mut state)?;
    let stack = setup.here()?;
    let mut stream = TcpStream::from_state(&stack, &state)?;
    let mut buffer = [0; 1 << 14];
    while let octets @ 1.. = stream.read(&mut buffer)? {
        stream.write_all(&buffer[..octets])?;
    }
    Ok(())
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let setup = |path: &str| Setup::library(path, xk_catalog::PROTOCOLS);
    let done = match words[..] {
        [path, "child"] => answer(&setup(path), io::stdin()),
        [path, at] => setup(path).here().and_then(|stack| {
            let program = std::env::current_exe()?;
            let child = || {
                let mut command = Command::new(&program);
                command.args([path, "child"]);
                command
            };
            serve(&stack, at, child, |_| false)
        }),
        _ => {
            eprintln!("usage: inetd SOCKET ADDRESS:PORT");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("inetd: {error}");
            ExitCode::FAILURE
        }
    }
}
