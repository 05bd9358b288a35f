//! A second opinion on a capture, from the program `tshark`.
//!
//! Three things count as problems: packets the dissectors call malformed, wrong IPv4, UDP, TCP or
//! ICMP checksums, and expert remarks above *note* (warnings and errors). A scenario that means to
//! provoke one names it in its allow-list.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Expert severities of Wireshark (`epan/proto.h`, `PI_WARN` and `PI_ERROR`); notes are below.
const WARN: u32 = 0x0060_0000;
const ERROR: u32 = 0x0080_0000;

/// Separates several remarks on one frame in the program's answer: an octet that no remark holds.
const BETWEEN: char = '\u{1f}';

/// Severity of a remark, least grave first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Unusual and suspect, such as a segment out of order.
    Warning,
    /// Wrong, such as a bad checksum.
    Error,
    /// The dissector could not read the packet to its end.
    Malformed,
}

/// One remark on one frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The frame's number in the file, from 1.
    pub frame: u64,
    /// Severity.
    pub severity: Severity,
    /// The protocols of the frame, as `eth:ethertype:ip:udp:data`.
    pub protocols: String,
    /// The IPv4 address of its sender, or nothing.
    pub source: String,
    /// The remark.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "frame {} ({}): {:?}: {}",
            self.frame, self.protocols, self.severity, self.message
        )
    }
}

/// Verdict of `tshark` on a capture.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Number of frames that it read.
    pub frames: u64,
    /// Remarks, without those that the allow-list names.
    pub problems: Vec<Problem>,
    /// Number of remarks that the allow-list covered.
    pub allowed: usize,
}

impl Report {
    /// Whether nothing is left to complain about.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.problems.is_empty()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} frames, {} problems, {} allowed",
            self.frames,
            self.problems.len(),
            self.allowed
        )?;
        self.problems.iter().try_for_each(|problem| write!(f, "\n  {problem}"))
    }
}

/// Why a capture could not be checked.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The program cannot be started.
    #[error("cannot run tshark: {0} (install it, for example: sudo apt install tshark)")]
    Start(#[from] io::Error),
    /// The program refuses the file, wholly or from some place on.
    #[error("tshark complains about {}: {complaint}", .file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// Message of the program.
        complaint: String,
    },
    /// The answer has another form than expected: another version of the program, perhaps.
    #[error("tshark answered in an unexpected form: {0:?}")]
    Form(String),
}

/// Protocols that are read although they may stand above UDP or TCP, too: calls, Ethernet in UDP,
/// and frames that have a length in place of a type on Ethernet.
const READ: &[&str] = &["rpc", "vxlan", "llc"];

/// The protocols that `tshark` finds in the text of a datagram or stream because its octets look
/// like theirs, or because one of its ports has been given to them. Octets without meaning
/// sometimes do look so, and a port is whatever the system chose: 639 is MSDP's.
fn guesses() -> &'static BTreeSet<String> {
    static GUESSES: OnceLock<BTreeSet<String>> = OnceLock::new();
    GUESSES.get_or_init(|| {
        let list = |what| {
            let mut tshark = Command::new("tshark");
            tshark.env("WIRESHARK_CONFIG_DIR", "/nonexistent");
            let list = tshark.args(["-G", what]).output();
            list.map_or(String::new(), |list| String::from_utf8_lossy(&list.stdout).into_owned())
        };
        let (by_look, by_port) = (list("heuristic-decodes"), list("decodes"));
        let by_look = by_look.lines().filter_map(|line| {
            let (parent, rest) = line.split_once('\t')?;
            let name = rest.split('\t').next()?;
            matches!(parent, "tcp" | "udp").then_some(name)
        });
        let by_port = by_port.lines().filter_map(|line| {
            let (table, rest) = line.split_once('\t')?;
            let name = rest.split('\t').nth(1)?;
            matches!(table, "tcp.port" | "udp.port").then_some(name)
        });
        let all = by_look.chain(by_port).filter(|name| !READ.contains(name));
        all.map(str::to_owned).collect()
    })
}

/// `tshark` that reads `file` without regard to the user's settings, to the ports and to what
/// octets look like, and judges checksums.
pub fn reader(file: &Path) -> Command {
    let mut command = Command::new("tshark");
    command.env("WIRESHARK_CONFIG_DIR", "/nonexistent");
    command.arg("-r").arg(file).arg("-n");
    for protocol in ["ip", "udp", "tcp"] {
        command.arg("-o").arg(format!("{protocol}.check_checksum:TRUE"));
    }
    for name in guesses() {
        command.args(["--disable-protocol", name]);
    }
    // Calls of programs that it has never heard of are read all the same, and so are the replies.
    command.args(["-o", "rpc.dissect_unknown_programs:TRUE"]);
    command
}

/// Lets `tshark` read `file` and lists what it complains about. A remark that contains one of the
/// texts of `allow` is counted and left out.
///
/// # Errors
/// The program is missing, refuses the file, or answers in an unexpected form.
pub fn check(file: impl AsRef<Path>, allow: &[&str]) -> Result<Report, CheckError> {
    check_without(file, allow, &[])
}

/// As [`check`], without the dissectors of these protocols: those that take what is another's, or
/// what is younger than they are, for malformed.
///
/// # Errors
/// As [`check`].
pub fn check_without(
    file: impl AsRef<Path>,
    allow: &[&str],
    without: &[&str],
) -> Result<Report, CheckError> {
    let file = file.as_ref();
    let mut command = reader(file);
    without.iter().for_each(|name| _ = command.args(["--disable-protocol", name]));
    command.args(["-T", "fields", "-E", "separator=/t", "-E", "occurrence=a"]);
    command.arg("-E").arg(format!("aggregator={BETWEEN}"));
    // Octets without a known form are no fault of the capture's writer.
    command.args(["-o", r#"uat:user_dlts:"User 0 (DLT=147)","data","0","","0","""#]);
    for field in [
        "frame.number",
        "frame.protocols",
        "ip.src",
        "_ws.malformed",
        "_ws.expert.severity",
        "_ws.expert.message",
    ] {
        command.args(["-e", field]);
    }
    let output = command.output()?;
    let complaint: Vec<String> = String::from_utf8_lossy(&output.stderr)
        .lines()
        .filter(|line| !line.starts_with("Running as user") && !line.trim().is_empty())
        .map(str::to_owned)
        .collect();
    if !output.status.success() || !complaint.is_empty() {
        return Err(CheckError::File { file: file.to_owned(), complaint: complaint.join("\n") });
    }
    let mut report = Report::default();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        report.frames += 1;
        for problem in problems(line).ok_or_else(|| CheckError::Form(line.to_owned()))? {
            if allow.iter().any(|text| problem.message.contains(text)) {
                report.allowed += 1;
            } else {
                report.problems.push(problem);
            }
        }
    }
    Ok(report)
}

/// The problems in one line of the program's answer, or nothing when the line has another form.
fn problems(line: &str) -> Option<Vec<Problem>> {
    let mut fields = line.splitn(6, '\t');
    let frame: u64 = fields.next()?.parse().ok()?;
    let protocols = fields.next()?;
    // Behind the outer one are those of tunnels and of what errors quote.
    let source = fields.next()?.split(BETWEEN).next()?;
    let malformed = fields.next()?;
    let severities = fields.next()?;
    let messages = fields.next()?;
    let problem = |severity, message: &str| Problem {
        frame,
        severity,
        protocols: protocols.to_owned(),
        source: source.to_owned(),
        message: message.to_owned(),
    };
    let mut found = Vec::new();
    let mut messages = messages.split(BETWEEN);
    for severity in severities.split(BETWEEN).filter(|severity| !severity.is_empty()) {
        let message = messages.next()?;
        match severity.parse::<u32>().ok()? {
            ERROR.. => found.push(problem(Severity::Error, message)),
            WARN.. => found.push(problem(Severity::Warning, message)),
            // Notes, chats and comments.
            _ => {}
        }
    }
    if !malformed.is_empty() {
        found.push(problem(
            Severity::Malformed,
            &format!("malformed packet ({})", malformed.replace(BETWEEN, ", ")),
        ));
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remarks_above_note_are_problems() {
        let note = 0x0040_0000;
        let line = format!(
            "7\teth:ip:udp\t10.0.0.1{BETWEEN}10.0.0.2\t\t{note}{BETWEEN}{WARN}{BETWEEN}{ERROR}\ta, b{BETWEEN}c{BETWEEN}d"
        );
        let found = problems(&line).unwrap();
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].to_string(), "frame 7 (eth:ip:udp): Warning: c");
        assert_eq!((found[1].severity, found[1].message.as_str()), (Severity::Error, "d"));
        assert_eq!(found[1].source, "10.0.0.1");
    }

    #[test]
    fn a_malformed_packet_is_a_problem() {
        let found = problems("1\teth\t\tMalformed Packet\t\t").unwrap();
        assert_eq!(found[0].severity, Severity::Malformed);
        assert!(problems("1\teth\t\t\t\t").unwrap().is_empty());
        assert!(problems("nothing like it").is_none());
    }
}
