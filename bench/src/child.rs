//! Measurements in a process of their own: what one needs whose memory is its own from the start.

use crate::case::{Case, Goal, Sample, Trouble};
use rustix::process::{Pid, Signal, kill_process};
use std::cell::RefCell;
use std::io::{BufRead as _, BufReader};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// The environment variable that makes a program run one measurement and end: `NAME|ARGUMENT`.
pub(crate) const VARIABLE: &str = "XK_BENCH_CHILD";
/// Text in front of the answer on the child's standard output.
const ANSWER: &str = "xk-bench-answer ";

/// Something to measure: takes its argument, answers numbers, or why it cannot.
pub(crate) type Work = fn(&str) -> Result<Vec<f64>, String>;

/// The rows of one measurement, each with its unit and goal, in the order of its answer: the first
/// row measures, the others tell what was found besides. Two figures more are what half and 99 of
/// 100 of the first row's single operations did not exceed.
pub(crate) fn rows(
    rows: impl IntoIterator<Item = (String, &'static str, Option<Goal>)>,
    measure: impl Fn(f64) -> Result<Vec<f64>, Trouble> + 'static,
) -> Vec<Case> {
    let (found, measure) = (Rc::new(RefCell::new(None)), Rc::new(measure));
    let rows: Vec<_> = rows.into_iter().collect();
    let count = rows.len();
    let case = |(at, (row, unit, goal)): (usize, (String, _, _))| {
        let (found, measure) = (Rc::clone(&found), Rc::clone(&measure));
        let case = Case::measured(row, move |effort| {
            let mut found = found.borrow_mut();
            if at == 0 || found.is_none() {
                *found = Some(measure(effort));
            }
            match &*found {
                Some(Ok(figures)) => {
                    let of = |at| figures.get(at).copied();
                    let single = |place| (at == 0).then(|| of(count + place)).flatten();
                    let value = of(at).unwrap_or(f64::NAN);
                    Ok(Sample { value, p50: single(0), p99: single(1), also: Vec::new() })
                }
                Some(Err(trouble)) => Err(trouble.clone()),
                None => Err(Trouble::Failed("nothing ran".into())),
            }
        });
        let case = case.unit(unit);
        match goal {
            Some(goal) => case.goal(goal),
            None => case,
        }
    };
    rows.into_iter().enumerate().map(case).collect()
}

/// Runs one of the works in a fresh process of this program and waits for its answer.
///
/// # Errors
/// [`Trouble::Failed`], with what went wrong there.
pub(crate) fn ask(name: &str, argument: &str) -> Result<Vec<f64>, Trouble> {
    answer_of(&mut again(name, argument)?)
}

/// Asks for it under valgrind's callgrind, which writes what it counts to `path`.
///
/// # Errors
/// [`Trouble::Skipped`] without valgrind.
pub(crate) fn ask_under_callgrind(name: &str, argument: &str, path: &Path) -> Result<(), Trouble> {
    let mut command = Command::new("valgrind");
    command
        .arg("--tool=callgrind")
        .arg(format!("--callgrind-out-file={}", path.display()))
        .arg(program()?);
    command.stderr(Stdio::null());
    if Command::new("valgrind").arg("--version").output().is_err() {
        return Err(Trouble::Skipped("needs valgrind (apt install valgrind)".into()));
    }
    answer_of(command.env(VARIABLE, format!("{name}|{argument}"))).map(drop)
}

/// Asks for it in a network namespace of its own.
///
/// # Errors
/// [`Trouble::Skipped`] without root, or without the program `unshare`.
pub(crate) fn ask_alone(name: &str, argument: &str) -> Result<Vec<f64>, Trouble> {
    if !rustix::process::geteuid().is_root() {
        return Err(Trouble::Skipped(
            "needs root, for a network namespace and a TAP device".into(),
        ));
    }
    let mut command = Command::new("unshare");
    command.arg("--net").arg(program()?);
    if Command::new("unshare").arg("--version").output().is_err() {
        return Err(Trouble::Skipped("needs unshare (apt install util-linux)".into()));
    }
    answer_of(command.env(VARIABLE, format!("{name}|{argument}")))
}

/// Starts one of the works in a fresh process, which has `input` as its standard input and ends
/// when that does.
///
/// # Errors
/// [`Trouble`].
pub(crate) fn start(name: &str, input: OwnedFd) -> Result<(), Trouble> {
    let mut command = again(name, "")?;
    command.stdin(Stdio::from(input)).stdout(Stdio::null());
    let started = command.spawn().map(drop);
    started.map_err(|e| Trouble::Failed(format!("cannot start this program again: {e}")))
}

/// This program, to be started once more.
fn program() -> Result<PathBuf, Trouble> {
    if cfg!(test) {
        // It would run every test again.
        return Err(Trouble::Skipped("a program of tests measures no processes".into()));
    }
    std::env::current_exe().map_err(|e| Trouble::Failed(format!("no path to this program: {e}")))
}

/// The command that runs graphs, which lies beside this program or, beside a test, one above.
///
/// # Errors
/// [`Trouble::Skipped`] if it is not there.
pub(crate) fn command() -> Result<PathBuf, Trouble> {
    let own = std::env::current_exe()?;
    let mut places = own.ancestors().skip(1).take(2).map(|folder| folder.join("xk"));
    places.find(|path| path.is_file()).ok_or_else(|| {
        Trouble::Skipped("needs the program xk beside it (cargo build --release -p xk)".into())
    })
}

/// This program once more, to do one of the works.
///
/// # Errors
/// [`Trouble::Failed`] if its path is not known.
pub(crate) fn again(name: &str, argument: &str) -> Result<Command, Trouble> {
    let mut command = Command::new(program()?);
    command.env(VARIABLE, format!("{name}|{argument}"));
    Ok(command)
}

/// Bounds the time of one work.
const LIMIT: Duration = Duration::from_secs(120);

fn answer_of(command: &mut Command) -> Result<Vec<f64>, Trouble> {
    let command = command.stdout(Stdio::piped()).stderr(Stdio::null());
    let mut running = Running::start(command, (Signal::KILL, Duration::ZERO))
        .map_err(|e| Trouble::Failed(format!("cannot start this program again: {e}")))?;
    let text = lines_within(&running.lines(), LIMIT)?;
    let none = || Trouble::Failed("the process that measures ended without an answer".into());
    let answer = text.iter().find_map(|l| l.strip_prefix(ANSWER));
    let answer = answer.ok_or_else(none)?;
    if let Some(why) = answer.strip_prefix("error ") {
        return Err(Trouble::Failed(why.to_owned()));
    }
    let numbers: Result<Vec<f64>, _> = answer.split_whitespace().map(str::parse).collect();
    numbers.map_err(|_| none())
}

/// All lines, up to their end.
///
/// # Errors
/// [`Trouble::Failed`] if that is too late.
pub(crate) fn lines_within(
    lines: &Receiver<String>,
    limit: Duration,
) -> Result<Vec<String>, Trouble> {
    let (mut text, ends) = (Vec::new(), Instant::now() + limit);
    loop {
        match lines.recv_timeout(ends.saturating_duration_since(Instant::now())) {
            Ok(line) => text.push(line),
            Err(RecvTimeoutError::Disconnected) => return Ok(text),
            Err(RecvTimeoutError::Timeout) => {
                let what = format!("the process that measures did not end within {limit:?}");
                return Err(Trouble::Failed(what));
            }
        }
    }
}

/// If the environment asks for one of these works, runs it, prints its answer, and says true.
pub(crate) fn run_if_asked(works: &[(&str, Work)]) -> bool {
    let Ok(wanted) = std::env::var(VARIABLE) else {
        return false;
    };
    let (name, argument) = wanted.split_once('|').unwrap_or((&wanted, ""));
    let found = works.iter().find(|(known, _)| *known == name);
    let answer = match found {
        Some((_, work)) => work(argument),
        None => Err(format!("nobody measures {name}")),
    };
    match answer {
        Ok(list) => {
            let list: Vec<String> = list.iter().map(f64::to_string).collect();
            println!("{ANSWER}{}", list.join(" "));
        }
        Err(why) => println!("{ANSWER}error {why}"),
    }
    true
}

/// A process that is ended with this: by a signal, and if it does not end in time, by another.
pub(crate) struct Running {
    pub(crate) child: Child,
    signal: Signal,
    grace: Duration,
}

impl Running {
    /// Starts a program without an input.
    ///
    /// # Errors
    /// It does not start.
    pub(crate) fn start(
        command: &mut Command,
        (signal, grace): (Signal, Duration),
    ) -> std::io::Result<Self> {
        Self::start_with_input(command.stdin(Stdio::null()), (signal, grace))
    }

    /// Starts a program whose input the command says.
    ///
    /// # Errors
    /// It does not start.
    pub(crate) fn start_with_input(
        command: &mut Command,
        (signal, grace): (Signal, Duration),
    ) -> std::io::Result<Self> {
        Ok(Self { child: command.spawn()?, signal, grace })
    }

    /// Tells it to end.
    pub(crate) fn signal(&self) {
        self.send(self.signal);
    }

    /// Sends it a signal.
    pub(crate) fn send(&self, signal: Signal) {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, signal);
        }
    }

    /// The lines that it writes, if its output is a pipe.
    pub(crate) fn lines(&mut self) -> Receiver<String> {
        let (sender, lines) = channel();
        if let Some(output) = self.child.stdout.take() {
            std::thread::spawn(move || {
                let lines = BufReader::new(output).lines().map_while(Result::ok);
                // Until no side takes them any more.
                let _ = lines.map(|line| sender.send(line)).find(Result::is_err);
            });
        }
        lines
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(None)) {
            return;
        }
        // The grace lets it give back by itself what it holds of the system.
        self.signal();
        let begun = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) {
            if begun.elapsed() > self.grace {
                let _ = self.child.kill();
                let _ = self.child.wait();
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// The memory of this process that is resident, in octets.
pub(crate) fn resident() -> Result<f64, String> {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    octets_of(&text, "VmRSS").ok_or_else(|| "no /proc to read memory from".into())
}

/// The figure of a line such as `VmRSS:  1234 kB`, in octets.
pub(crate) fn octets_of(text: &str, key: &str) -> Option<f64> {
    let line = text.lines().find_map(|l| l.strip_prefix(key)?.strip_prefix(':'))?;
    let kib: f64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib * 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_does_not_end_is_given_up() {
        let lines = |words: [&str; 2]| {
            let mut command = Command::new(words[0]);
            let command = command.arg(words[1]).stdout(Stdio::piped());
            let mut running = Running::start(command, (Signal::KILL, Duration::ZERO)).unwrap();
            lines_within(&running.lines(), Duration::from_millis(200))
        };
        assert_eq!(lines(["echo", "1 2"]), Ok(vec!["1 2".to_owned()]));
        let Err(Trouble::Failed(what)) = lines(["sleep", "60"]) else { panic!("it slept") };
        assert!(what.contains(" within "), "{what}");
    }

    #[test]
    fn figures_beyond_the_rows_are_of_single_operations() {
        let names = ["whole", "part"].map(|name| (name.to_owned(), "us", None));
        let mut cases = rows(names, |_| Ok(vec![3.0, 1.0, 2.0, 9.0]));
        let samples: Vec<_> = cases.iter_mut().map(|case| case.measure(1.0).unwrap()).collect();
        assert_eq!((samples[0].value, samples[0].p50, samples[0].p99), (3.0, Some(2.0), Some(9.0)));
        assert_eq!((samples[1].value, samples[1].p50), (1.0, None));
    }
}
