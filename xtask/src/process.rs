//! Running a program so that its progress is seen and its closing lines are counted.

use std::io::{self, BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use crate::report::{Counts, Outcome};

/// Words with which cargo starts a line for every crate; one such line now and then shows that it
/// is alive.
const CHATTER: &[&str] = &[
    "Compiling",
    "Checking",
    "Downloading",
    "Downloaded",
    "Documenting",
    "Updating",
    "Locking",
    "Adding",
    "Fresh",
    "Installing",
    "Blocking",
];

const CHATTER_EVERY: Duration = Duration::from_secs(10);

/// Time to wait for a line before looking whether the program still runs.
const LINE_TIME_MAX: Duration = Duration::from_secs(1);

/// Runs `command`, printing what matters of its output: the runners' closing lines, warnings and
/// failures.
pub(crate) fn run(command: &mut Command) -> io::Result<Outcome> {
    println!("    $ {}", shown(command));
    io::stdout().flush()?;
    let (reader, writer) = io::pipe()?;
    command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
    let mut child = command.spawn()?;
    // Our own copies of the writing end live in `command`; while they are open, the reading end
    // sees no end of file.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let lines = lines_of(reader);
    let mut counts = Counts::default();
    let mut filter = Filter { last_chatter: Instant::now() };
    let mut ended = None;
    loop {
        match lines.recv_timeout(LINE_TIME_MAX) {
            Ok(line) => {
                if let Some(closing) = Counts::from_closing_line(&line) {
                    counts.add(closing);
                }
                filter.show(&line);
            }
            Err(RecvTimeoutError::Disconnected) => break,
            // A process that outlives the program may hold its output open without end; the step
            // `leftovers` names it.
            Err(RecvTimeoutError::Timeout) if ended.is_some() => break,
            Err(RecvTimeoutError::Timeout) => ended = child.try_wait()?,
        }
    }
    let status = child.wait()?;
    if status.success() {
        return Ok(Outcome::Passed(counts));
    }
    Ok(Outcome::Failed(counts, status.to_string()))
}

/// Reads lines on a thread of its own, so that waiting for them can end.
fn lines_of(reader: io::PipeReader) -> Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(reader).split(b'\n').map_while(Result::ok) {
            if sender.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                return;
            }
        }
    });
    receiver
}

struct Filter {
    last_chatter: Instant,
}

impl Filter {
    fn show(&mut self, line: &str) {
        let chatter = line.split_whitespace().next().is_some_and(|word| CHATTER.contains(&word));
        if chatter && self.last_chatter.elapsed() >= CHATTER_EVERY {
            self.last_chatter = Instant::now();
            println!("    ... {}", line.trim());
        } else if !chatter && !is_noise(line) {
            println!("    {line}");
        }
    }
}

/// Lines of a test runner that say that all is well.
fn is_noise(line: &str) -> bool {
    let line = line.trim();
    let one_test = line.starts_with("test ")
        && [" ... ok", " ... ignored"].iter().any(|end| line.ends_with(end));
    one_test || line.is_empty() || (line.starts_with("running ") && line.contains(" test"))
}

/// The command as one would type it.
fn shown(command: &Command) -> String {
    let mut text = String::new();
    for (name, value) in command.get_envs() {
        if let Some(value) = value.filter(|_| name != crate::leftovers::MARK) {
            text += &format!("{}={} ", name.display(), quoted(&value.to_string_lossy()));
        }
    }
    let program = command.get_program().to_string_lossy();
    text += program.rsplit('/').next().unwrap_or(&program);
    for argument in command.get_args() {
        text.push(' ');
        text += &quoted(&argument.to_string_lossy());
    }
    text
}

fn quoted(word: &str) -> String {
    if word.contains([' ', '*', '"']) { format!("'{word}'") } else { word.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_lines_are_summed() {
        let script = "echo 'test result: ok. 2 passed; 0 failed; 1 ignored'; echo 'test result: ok. 3 passed' >&2";
        let outcome = run(Command::new("sh").args(["-c", script])).unwrap();
        assert_eq!(outcome, Outcome::Passed(Counts { passed: 5, failed: 0, skipped: 1 }));
    }

    #[test]
    fn a_failure_says_how() {
        let outcome = run(Command::new("sh").args(["-c", "exit 3"])).unwrap();
        assert_eq!(outcome, Outcome::Failed(Counts::default(), "exit status: 3".into()));
    }

    #[test]
    fn a_survivor_does_not_hold_us_up() {
        let start = Instant::now();
        let outcome = run(Command::new("sh").args(["-c", "sleep 8 & exit 0"])).unwrap();
        assert_eq!(outcome, Outcome::Passed(Counts::default()));
        assert!(start.elapsed() < Duration::from_secs(8));
    }

    #[test]
    fn what_is_well_is_not_shown() {
        assert!(is_noise("test a::b ... ok"));
        assert!(is_noise("running 3 tests"));
        assert!(!is_noise("test a::b ... FAILED"));
        assert!(!is_noise("test result: ok. 1 passed"));
    }

    #[test]
    fn commands_are_shown_as_typed() {
        let mut command = Command::new("/usr/bin/cargo");
        command.env("RUSTDOCFLAGS", "-D warnings").args(["doc", "--no-deps"]);
        assert_eq!(shown(&command), "RUSTDOCFLAGS='-D warnings' cargo doc --no-deps");
    }
}
