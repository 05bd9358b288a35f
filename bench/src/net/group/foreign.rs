//! Conversations of others, each member a process in a namespace of its own: JGroups, whose
//! members stay and are stopped between two rounds, and corosync, which is started in each.

use super::super::space::{Hub, hub_address};
use super::member::Phase;
use super::{MEMBERS, Ordering, Process, Said};
use crate::built::{Built, Files};
use crate::case::{Shared, Trouble, shared};
use crate::child::Running;
use rustix::process::Signal;
use std::cell::Cell;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

static JAVA: Files = &[
    ("Member.java", include_str!("../../../peers/jgroups/Member.java")),
    ("SHA256SUMS", include_str!("../../../peers/jgroups/SHA256SUMS")),
];
static C: Files = &[("member.c", include_str!("../../../peers/corosync/member.c"))];
/// The version whose checksum is known.
const JGROUPS: &str = "5.4.5.Final";
/// Messages by which a conversation of JGroups is warm, for each member less of them.
const WARM: u32 = 20_000;
/// Longest time for a daemon to end when told to.
const FAREWELL: Duration = Duration::from_secs(3);

/// Namespaces, and the programs in them.
#[derive(Default)]
pub(super) struct Foreign {
    hub: Shared<Result<Hub, Trouble>>,
    jgroups: Shared<Result<Jgroups, Trouble>>,
    corosync: Shared<Result<Built, Trouble>>,
}

impl Foreign {
    /// A namespace for each member.
    ///
    /// # Errors
    /// [`Trouble::Skipped`] without the right to any.
    pub(super) fn hub(&self) -> Result<&Hub, Trouble> {
        let most = MEMBERS.into_iter().max().unwrap_or(0);
        shared(&self.hub, || Hub::new(most))
    }

    /// Has a conversation of JGroups send what the phases say.
    ///
    /// # Errors
    /// [`Trouble`].
    pub(super) fn jgroups(
        &self,
        order: Ordering,
        members: usize,
        phases: &[Phase],
    ) -> Result<Vec<Said>, Trouble> {
        let hub = self.hub()?;
        let all = shared(&self.jgroups, || Jgroups::new(hub))?;
        let place = MEMBERS.iter().position(|count| *count == members).unwrap_or(0);
        let conversation = 2 * place + usize::from(order == Ordering::Total);
        all.goes_on(Signal::CONT);
        let found = all.run(conversation, members, phases);
        all.goes_on(Signal::STOP);
        found
    }

    /// Has a group of corosync send what the phases say.
    ///
    /// # Errors
    /// [`Trouble`].
    pub(super) fn corosync(&self, members: usize, phases: &[Phase]) -> Result<Vec<Said>, Trouble> {
        let hub = self.hub()?;
        let built = shared(&self.corosync, build_corosync)?;
        let file = built.path(format!("corosync-{members}.conf"));
        std::fs::write(&file, settings(members))?;
        // What it keeps goes with it.
        let script = "for i in /run /var/lib/corosync /var/log/corosync; do \
                      mount -t tmpfs none $i; done; exec corosync -f -c \"$0\"";
        let mut daemons = Vec::new();
        for number in 0..members {
            let mut command = inside(hub, number);
            command.args(["unshare", "--mount", "sh", "-c", script]).arg(&file);
            command.stdout(Stdio::null());
            daemons.push(Running::start(&mut command, (Signal::TERM, FAREWELL))?);
        }
        let mut list = Vec::new();
        for number in 0..members {
            let mut command = inside(hub, number);
            list.push(started(command.arg(built.path("member")).arg(members.to_string()))?);
        }
        list.iter().try_for_each(|process| process.line().map(drop))?;
        let found = talk(&mut list, 0, &mut 0, phases, 0);
        drop(list);
        daemons.iter().for_each(Running::signal);
        found
    }
}

/// A program in a namespace, which ends with this one.
fn inside(hub: &Hub, number: usize) -> Command {
    let mut command = Command::new("nsenter");
    command.arg(format!("--net={}", hub.path(number)));
    command.args(["setpriv", "--pdeathsig", "KILL"]).stderr(Stdio::null());
    command
}

fn started(command: &mut Command) -> Result<Process, Trouble> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    Ok(Process::new(Running::start_with_input(command, (Signal::KILL, FAREWELL))?))
}

/// Tells members to send what the phases say; `first` is the one that sends if one does.
fn talk(
    list: &mut [Process],
    conversation: usize,
    round: &mut u32,
    phases: &[Phase],
    first: usize,
) -> Result<Vec<Said>, Trouble> {
    let mut all = Vec::new();
    for phase in phases {
        *round += 1;
        for (number, process) in list.iter_mut().enumerate() {
            let sends = phase.senders > 1 || number == first;
            let mine = if sends { phase.each } else { 0 };
            let (octets, us) = (phase.octets, phase.gap.as_micros());
            let input = process.running.child.stdin.as_mut();
            let input = input.ok_or_else(|| Trouble::Failed("a member without input".into()))?;
            writeln!(input, "{conversation} {round} {mine} {} {octets} {us}", phase.all())?;
        }
        all.push(list.iter().map(Process::numbers).collect::<Result<_, _>>()?);
    }
    Ok(all)
}

/// Members of JGroups, each in all conversations that are large enough for it.
struct Jgroups {
    list: std::cell::RefCell<Vec<Process>>,
    round: Cell<u32>,
    _built: Built,
}

impl Jgroups {
    fn new(hub: &Hub) -> Result<Self, Trouble> {
        let (built, library) = build_jgroups()?;
        let classes = format!("{}:{}", library.display(), built.path("").display());
        let most = MEMBERS.into_iter().max().unwrap_or(0);
        let mut list = Vec::new();
        for number in 0..most {
            let mut command = inside(hub, number);
            command.args(["java", "-Xmx256m", "-Djava.net.preferIPv4Stack=true", "-cp"]);
            command.args([&classes, "Member", &hub_address(number), &number.to_string()]);
            list.push(started(command.args(MEMBERS.map(|count| count.to_string())))?);
            if number == 0 {
                // The first in is the coordinator.
                list[0].line()?;
            }
        }
        for process in &list[1..] {
            process.line()?;
        }
        list.iter().try_for_each(|process| process.line().map(drop))?;
        let this = Self { list: list.into(), round: Cell::new(0), _built: built };
        for (at, members) in MEMBERS.into_iter().enumerate() {
            let each = WARM / members as u32 / members as u32;
            let warm = Phase { senders: members, each, octets: 64, gap: Duration::ZERO };
            let single = Phase { senders: 1, each: 200, gap: super::GAP, ..warm };
            for conversation in [2 * at, 2 * at + 1] {
                this.run(conversation, members, &[warm, single])?;
            }
        }
        Ok(this)
    }

    fn run(
        &self,
        conversation: usize,
        members: usize,
        phases: &[Phase],
    ) -> Result<Vec<Said>, Trouble> {
        let mut round = self.round.get();
        let mut list = self.list.borrow_mut();
        let found = talk(&mut list[..members], conversation, &mut round, phases, members - 1);
        self.round.set(round);
        found
    }

    /// Stops all, or has them go on.
    fn goes_on(&self, signal: Signal) {
        self.list.borrow().iter().for_each(|process| process.running.send(signal));
    }
}

fn build_jgroups() -> Result<(Built, PathBuf), Trouble> {
    let home = std::env::var_os("HOME").unwrap_or_default();
    let folder = Path::new(&home).join(".m2/repository/org/jgroups/jgroups").join(JGROUPS);
    let library = folder.join(format!("jgroups-{JGROUPS}.jar"));
    if !library.exists() {
        return Err(Trouble::Skipped(format!(
            "needs JGroups (mvn dependency:get -Dartifact=org.jgroups:jgroups:{JGROUPS})"
        )));
    }
    let built = Built::new(JAVA)?;
    let mut sums = Command::new("sha256sum");
    sums.current_dir(&folder).arg("--check").arg("--status").arg(built.path("SHA256SUMS"));
    if !sums.status().is_ok_and(|status| status.success()) {
        return Err(Trouble::Failed(format!("{} is not what it was", library.display())));
    }
    let mut javac = Command::new("javac");
    javac.arg("-cp").arg(&library).args(["-d", ".", "Member.java"]);
    built.build(&mut javac, "a Java compiler (apt install openjdk-17-jdk-headless)")?;
    Ok((built, library))
}

fn build_corosync() -> Result<Built, Trouble> {
    let needed = ["/usr/include/corosync/cpg.h", "/usr/sbin/corosync"];
    if !needed.iter().all(|path| Path::new(path).exists()) {
        return Err(Trouble::Skipped("needs corosync (apt install corosync libcpg-dev)".into()));
    }
    let built = Built::new(C)?;
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-o", "member", "member.c", "-lcpg"]);
    built.build(&mut cc, "a C compiler (apt install gcc)")?;
    Ok(built)
}

/// Settings of corosync for so many members: multicast without encryption, and the larger windows
/// that its manual (`corosync.conf`) has for fast networks.
fn settings(members: usize) -> String {
    let mut text = String::from(
        "totem {\n version: 2\n cluster_name: xk\n transport: udp\n crypto_cipher: none\n \
         crypto_hash: none\n token: 3000\n window_size: 300\n max_messages: 20\n interface {\n  \
         ringnumber: 0\n  bindnetaddr: 10.78.0.0\n  mcastaddr: 239.255.1.1\n  mcastport: 5405\n  \
         ttl: 1\n }\n}\nlogging {\n to_stderr: no\n to_syslog: no\n to_logfile: no\n}\nnodelist {\n",
    );
    for number in 0..members {
        let (address, id) = (hub_address(number), number + 1);
        let _ = write!(text, " node {{\n  ring0_addr: {address}\n  nodeid: {id}\n }}\n");
    }
    text + "}\n"
}
