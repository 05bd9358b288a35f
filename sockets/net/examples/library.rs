//! An echo server and its client on a protocol library: a registry begins their connections, their
//! own TCP carries them on.
//! `cargo run -p xk-net --features attach --example library -- SOCKET serve 10.9.0.2:7000`, and
//! `cargo run -p xk-net --features attach --example library -- SOCKET ask 10.9.0.1:7000 TEXT`.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::process::ExitCode;

use xk_net::{Setup, TcpListener, TcpStream};

/// Answers each peer with what it says, one behind the other.
pub(crate) fn serve(setup: &Setup, at: &str) -> io::Result<()> {
    let stack = setup.here()?;
    let listener = TcpListener::bind(&stack, at)?;
    for stream in listener.incoming() {
        let mut stream = stream?;
        let mut buffer = [0; 1 << 14];
        // A peer that breaks off ends its own stream alone.
        while let Ok(octets @ 1..) = stream.read(&mut buffer) {
            if stream.write_all(&buffer[..octets]).is_err() {
                break;
            }
        }
    }
    Ok(())
}

/// Sends a text to the server at `to`, and returns its answer.
pub(crate) fn ask(setup: &Setup, to: &str, text: &str) -> io::Result<String> {
    let stack = setup.here()?;
    let mut stream = TcpStream::connect(&stack, to)?;
    stream.write_all(text.as_bytes())?;
    stream.shutdown(Shutdown::Write)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words[..] {
        [path, "serve", at] => serve(&Setup::library(path, xk_catalog::PROTOCOLS), at),
        [path, "ask", to, text] => {
            let answer = ask(&Setup::library(path, xk_catalog::PROTOCOLS), to, text);
            answer.map(|answer| println!("{answer}"))
        }
        _ => {
            eprintln!("usage: library SOCKET serve ADDRESS:PORT | SOCKET ask ADDRESS:PORT TEXT");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("library: {error}");
            ExitCode::FAILURE
        }
    }
}
