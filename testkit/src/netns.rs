//! Network namespaces that live as long as the value that made them.
//!
//! A [`Net`] owns [`Space`]s: namespaces named `xkt-<pid>-<n>-<pids>-<run>`, joined by veth pairs.
//! Dropping the net stops the programs it started and whatever else runs in its namespaces, such as
//! their children, and removes the namespaces, and with them every device inside. Namespaces that a
//! killed test left behind are removed by the next `Net::new`: their name holds the process that
//! made them.
//!
//! IPv6 is off in every space, so that no router solicitation disturbs a capture. Everything here
//! needs root and the program `ip`; a test says so first, by `needs_root!()` and
//! `needs_program!("ip")`.

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Folder in which `ip netns` keeps the names of namespaces.
const NAMES: &str = "/run/netns";
/// Prefix of our namespaces' names.
const PREFIX: &str = "xkt-";
/// Octets of a running program's output that are kept; the rest is read and discarded.
const OUTPUT_OCTETS_MAX: usize = 1 << 20;
/// The longest that an ended program's output is waited for.
const DRAIN: Duration = Duration::from_secs(1);
/// Bounds the searches for processes of a namespace, until there are none.
const STOPS_MAX: usize = 200;
/// Numbers namespaces within this process.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// Why a namespace could not be made or used. `Debug` prints the same as `Display`, so that
/// `unwrap` in a test reads well.
#[derive(thiserror::Error)]
pub enum NetError {
    /// A program could not be started at all.
    #[error("{net}: cannot run `{command}`: {source}")]
    Start {
        /// The net's label.
        net: String,
        /// The command line.
        command: String,
        /// The system's error.
        source: io::Error,
    },
    /// A program ran and failed.
    #[error("{net}: `{command}` failed with {status}\n{output}")]
    Failed {
        /// The net's label.
        net: String,
        /// The command line.
        command: String,
        /// Exit status of the program.
        status: ExitStatus,
        /// Output of the program, standard output first.
        output: String,
    },
    /// A namespace or device refused something asked through a system call.
    #[error("{net}: {action}: {source}")]
    System {
        /// The net's label.
        net: String,
        /// The request.
        action: String,
        /// The system's error.
        source: io::Error,
    },
    /// A program did not end, or did not say what was awaited, in time.
    #[error("{net}: `{command}` did not {what} within {seconds:.1} s; it wrote:\n{output}")]
    Late {
        /// The net's label.
        net: String,
        /// The command line.
        command: String,
        /// The awaited text or end.
        what: String,
        /// Time waited, in seconds.
        seconds: f64,
        /// Output so far, of both streams.
        output: String,
    },
}

impl std::fmt::Debug for NetError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

/// A set of namespaces, removed when this value is dropped.
#[derive(Debug)]
pub struct Net {
    label: String,
    names: RefCell<Vec<String>>,
    children: Arc<Mutex<Vec<Arc<Mutex<Child>>>>>,
}

impl Net {
    /// An empty net. `label` stands in its errors. Namespaces of dead processes are removed on the
    /// way.
    ///
    /// # Errors
    /// The program `ip` cannot be run.
    pub fn new(label: &str) -> Result<Self, NetError> {
        let net =
            Self { label: label.to_owned(), names: RefCell::default(), children: Arc::default() };
        net.ip(&["-Version"])?;
        for name in stale_names(Path::new(NAMES), Path::new("/proc")) {
            // Another test process may remove the same one: losing that race is no failure.
            let _lost = net.ip(&["netns", "del", &name]);
        }
        Ok(net)
    }

    /// A new namespace with its loopback device up and IPv6 off.
    ///
    /// # Errors
    /// `ip` or `sysctl`'s files refuse, usually for want of root.
    pub fn space(&self) -> Result<Space, NetError> {
        let name = format!(
            "{PREFIX}{}-{}-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed),
            numbering(),
            run_mark()
        );
        self.ip(&["netns", "add", &name])?;
        self.names.borrow_mut().push(name.clone());
        let space = Space { label: self.label.clone(), name, children: Arc::clone(&self.children) };
        // Where the whole machine has none there is nothing to switch off.
        if Path::new("/proc/sys/net/ipv6").exists() {
            space.sysctl("net/ipv6/conf/all/disable_ipv6", "1")?;
            space.sysctl("net/ipv6/conf/default/disable_ipv6", "1")?;
        }
        space.up("lo")?;
        Ok(space)
    }

    /// Joins two spaces by a veth pair, `one` in the first and `two` in the second, both up.
    ///
    /// Checksum and segmentation offloads stay as the system sets them (on): see
    /// [`Space::offload_off`].
    ///
    /// # Errors
    /// A name is taken or longer than 15 octets.
    pub fn veth(
        &self,
        first: &Space,
        one: &str,
        second: &Space,
        two: &str,
    ) -> Result<(), NetError> {
        let add = [
            "link",
            "add",
            one,
            "netns",
            &first.name,
            "type",
            "veth",
            "peer",
            "name",
            two,
            "netns",
            &second.name,
        ];
        self.ip(&add)?;
        first.up(one)?;
        second.up(two)
    }

    /// Runs `ip` in the test's own namespace.
    fn ip(&self, arguments: &[&str]) -> Result<String, NetError> {
        let mut command = Command::new("ip");
        command.args(arguments);
        run(&self.label, command)
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for child in lock(&self.children).drain(..) {
            stop(&mut lock(&child));
        }
        for name in self.names.get_mut().drain(..) {
            stop_inside(&name);
            // A failure here leaves a namespace that the next net removes once this process is
            // dead.
            let _left =
                Command::new("ip").args(["netns", "del", &name]).stderr(Stdio::null()).status();
            remove_files(&name);
        }
    }
}

/// Removes the temporary files that are named after a namespace: programs that are killed leave
/// their sockets.
fn remove_files(space: &str) {
    for entry in std::fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let end = name.to_str().and_then(|name| name.strip_prefix(space));
        if end.is_some_and(|end| end.starts_with(['.', '-'])) {
            let _is_a_folder = std::fs::remove_file(entry.path());
        }
    }
}

/// One network namespace. It is removed with its [`Net`], not with this handle.
#[derive(Debug, Clone)]
pub struct Space {
    label: String,
    name: String,
    children: Arc<Mutex<Vec<Arc<Mutex<Child>>>>>,
}

impl Space {
    /// The namespace's name, as `ip netns` knows it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Gives `device` an IPv4 address, as `10.0.0.1/24`.
    ///
    /// # Errors
    /// No such device, or a malformed address.
    pub fn address(&self, device: &str, address: &str) -> Result<(), NetError> {
        self.ip(&["addr", "add", address, "dev", device])
    }

    /// Sets the MTU of `device`, in octets without the Ethernet header.
    ///
    /// # Errors
    /// No such device, or an MTU it cannot have.
    pub fn mtu(&self, device: &str, octets: usize) -> Result<(), NetError> {
        self.ip(&["link", "set", device, "mtu", &octets.to_string()])
    }

    /// Brings `device` up.
    ///
    /// # Errors
    /// No such device.
    pub fn up(&self, device: &str) -> Result<(), NetError> {
        self.ip(&["link", "set", device, "up"])
    }

    /// Adds a route to `destination` (`10.1.0.0/16`, or `default`) through the host `via`.
    ///
    /// # Errors
    /// `via` is not reachable, or the route exists.
    pub fn route(&self, destination: &str, via: &str) -> Result<(), NetError> {
        self.ip(&["route", "add", destination, "via", via])
    }

    /// Adds a fixed entry to the neighbour table of `device`: `address` lives at the hardware
    /// address `mac`.
    ///
    /// # Errors
    /// No such device, or a malformed address.
    pub fn neighbour(&self, device: &str, address: &str, mac: [u8; 6]) -> Result<(), NetError> {
        let mac = mac.map(|octet| format!("{octet:02x}")).join(":");
        self.ip(&["neigh", "replace", address, "lladdr", &mac, "dev", device, "nud", "permanent"])
    }

    /// Runs `ip` with these arguments inside, for what this type has no method for.
    ///
    /// # Errors
    /// `ip` fails.
    pub fn ip(&self, arguments: &[&str]) -> Result<(), NetError> {
        let mut command = Command::new("ip");
        command.args(["-n", &self.name]).args(arguments);
        run(&self.label, command).map(drop)
    }

    /// Sets a value below `/proc/sys/net` as seen inside, for example `net/ipv4/ip_forward` to `1`.
    ///
    /// # Errors
    /// No such file, or a refused value.
    pub fn sysctl(&self, path: &str, value: &str) -> Result<(), NetError> {
        // `/proc/sys/net` shows the namespace of the thread that opens it.
        self.enter(|| std::fs::write(Path::new("/proc/sys").join(path), value))?
            .map_err(|source| self.system(format!("set {path} to {value}"), source))
    }

    /// Switches checksum, segmentation and merging offloads of `device` off.
    ///
    /// A veth pair otherwise hands frames across whose checksums are not computed and which may
    /// exceed the MTU.
    ///
    /// # Errors
    /// No such device, or no root.
    pub fn offload_off(&self, device: &str) -> Result<(), NetError> {
        self.enter(|| crate::offload_unsafe::offload_off(device))?
            .map_err(|source| self.system(format!("switch offloads of {device} off"), source))
    }

    /// Runs a program inside until it ends and gives its standard output.
    ///
    /// # Errors
    /// It cannot be started, or it ends with another status than 0; the error holds both its
    /// outputs.
    pub fn exec(&self, command: &[&str]) -> Result<String, NetError> {
        run(&self.label, self.command(command))
    }

    /// Starts a program inside and goes on. It is killed when the handle or the net is dropped.
    ///
    /// # Errors
    /// It cannot be started. A name that is no program shows as a program that ends at once.
    pub fn spawn(&self, command: &[&str]) -> Result<Running, NetError> {
        let running = Running::start(&self.label, command.join(" "), self.command(command))?;
        lock(&self.children).push(Arc::clone(&running.child));
        Ok(running)
    }

    /// Runs `work` on a fresh thread inside this namespace: sockets and devices it opens belong
    /// here and keep belonging here. A panic of `work` goes on in the caller.
    ///
    /// # Errors
    /// The namespace cannot be entered.
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, NetError> {
        let inside = || -> io::Result<T> {
            let link = File::open(self.path())?;
            move_into_link_name_space(link.as_fd(), Some(LinkNameSpaceType::Network))?;
            Ok(work())
        };
        match std::thread::scope(|scope| scope.spawn(inside).join()) {
            Ok(result) => {
                result.map_err(|source| self.system("enter the namespace".to_owned(), source))
            }
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }

    /// The file that stands for the namespace.
    fn path(&self) -> PathBuf {
        Path::new(NAMES).join(&self.name)
    }

    /// A command line that runs inside.
    fn command(&self, command: &[&str]) -> Command {
        let mut line = Command::new("ip");
        line.args(["netns", "exec", &self.name]).args(command);
        line
    }

    fn system(&self, action: String, source: io::Error) -> NetError {
        NetError::System {
            net: self.label.clone(),
            action: format!("{}: {action}", self.name),
            source,
        }
    }
}

/// A program running in a [`Space`], killed when this handle is dropped.
#[derive(Debug)]
pub struct Running {
    label: String,
    command: String,
    child: Arc<Mutex<Child>>,
    written: Arc<Mutex<Vec<u8>>>,
}

impl Running {
    /// Starts `line`, with its input and both its outputs in pipes.
    fn start(label: &str, command: String, mut line: Command) -> Result<Self, NetError> {
        line.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = line.spawn().map_err(|source| NetError::Start {
            net: label.to_owned(),
            command: command.clone(),
            source,
        })?;
        let written = Arc::new(Mutex::new(Vec::new()));
        collect(child.stdout.take(), &written);
        collect(child.stderr.take(), &written);
        Ok(Self { label: label.to_owned(), command, child: Arc::new(Mutex::new(child)), written })
    }

    /// The program's process number.
    #[must_use]
    pub fn id(&self) -> u32 {
        lock(&self.child).id()
    }

    /// Output so far, of both streams, up to the first mebioctet.
    #[must_use]
    pub fn output(&self) -> String {
        String::from_utf8_lossy(&lock(&self.written)).into_owned()
    }

    /// Writes to its standard input.
    ///
    /// # Errors
    /// It has ended or closed its input.
    pub fn write(&self, octets: &[u8]) -> io::Result<()> {
        match lock(&self.child).stdin.as_mut() {
            Some(input) => io::Write::write_all(input, octets),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    /// Closes its standard input.
    pub fn close_input(&self) {
        drop(lock(&self.child).stdin.take());
    }

    /// Waits until its output holds `text`.
    ///
    /// # Errors
    /// It did not within `limit`.
    pub fn wait_for(&self, text: &str, limit: Duration) -> Result<(), NetError> {
        self.poll(limit, &format!("write {text:?}"), || self.output().contains(text).then_some(()))
    }

    /// Waits until its output holds, beyond the first `octets`, `text` and later `end`.
    ///
    /// # Errors
    /// It did not within `limit`.
    pub fn wait_for_after(
        &self,
        octets: usize,
        text: &str,
        end: &str,
        limit: Duration,
    ) -> Result<(), NetError> {
        self.poll(limit, &format!("write {text:?}"), || {
            let output = self.output();
            let (_, rest) = output.get(octets..)?.split_once(text)?;
            rest.contains(end).then_some(())
        })
    }

    /// Waits until it ends; [`Running::output`] is all that it wrote then.
    ///
    /// # Errors
    /// It did not within `limit`; it goes on running until this handle is dropped.
    pub fn wait(&self, limit: Duration) -> Result<ExitStatus, NetError> {
        let ended = self.poll(limit, "end", || lock(&self.child).try_wait().ok().flatten())?;
        self.drain();
        Ok(ended)
    }

    /// Kills it and gives what it wrote.
    #[must_use]
    pub fn stop(self) -> String {
        stop(&mut lock(&self.child));
        self.drain();
        self.output()
    }

    /// Waits until what an ended program left in the pipes is gathered: the threads that read them
    /// hold `written` until then. A child that it left behind may hold its pipes without end, so it
    /// ends after [`DRAIN`] in any case.
    fn drain(&self) {
        let begun = Instant::now();
        while Arc::strong_count(&self.written) > 1 && begun.elapsed() < DRAIN {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Asks again every few milliseconds until there is an answer.
    fn poll<T>(
        &self,
        limit: Duration,
        what: &str,
        mut ask: impl FnMut() -> Option<T>,
    ) -> Result<T, NetError> {
        let begun = Instant::now();
        loop {
            if let Some(answer) = ask() {
                return Ok(answer);
            }
            if begun.elapsed() > limit {
                return Err(NetError::Late {
                    net: self.label.clone(),
                    command: self.command.clone(),
                    what: what.to_owned(),
                    seconds: limit.as_secs_f64(),
                    output: self.output(),
                });
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        stop(&mut lock(&self.child));
    }
}

/// The names below `names` that are ours and whose process is not below `processes`.
fn stale_names(names: &Path, processes: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(names) else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| {
            owner(name, numbering()).is_some_and(|pid| !processes.join(pid.to_string()).exists())
        })
        .collect()
}

/// The process whose namespace this is: the first number of `xkt-<pid>-<n>-<pids>-<run>`. `None` if
/// its processes are numbered by another than `pids`: then it is not seen here whether it lives.
fn owner(name: &str, pids: u64) -> Option<u32> {
    let mut numbers = name.strip_prefix(PREFIX)?.splitn(4, '-');
    let pid = numbers.next()?.parse().ok()?;
    let _number: u32 = numbers.next()?.parse().ok()?;
    let numbering: u64 = numbers.next()?.parse().ok()?;
    let _run: u32 = numbers.next()?.parse().ok()?;
    (numbering == pids).then_some(pid)
}

/// Identity of the numbering of processes here: the inode of the namespace of process ids
/// (pid_namespaces(7)).
fn numbering() -> u64 {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self/ns/pid").map_or(0, |file| file.ino())
}

/// The run of all tests that this one is of, as `cargo xtask test` numbers them; 0 for a test
/// alone.
fn run_mark() -> u32 {
    let mark = std::env::var("XK_TEST_RUN").ok();
    mark.and_then(|mark| mark.parse().ok()).unwrap_or(0)
}

/// Runs a command to its end and gives its standard output.
fn run(label: &str, mut command: Command) -> Result<String, NetError> {
    let shown = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| word.to_string_lossy())
        .collect::<Vec<_>>()
        .join(" ");
    let Output { status, stdout, stderr } =
        command.stdin(Stdio::null()).output().map_err(|source| NetError::Start {
            net: label.to_owned(),
            command: shown.clone(),
            source,
        })?;
    let mut output = String::from_utf8_lossy(&stdout).into_owned();
    if status.success() {
        return Ok(output);
    }
    output.push_str(&String::from_utf8_lossy(&stderr));
    Err(NetError::Failed { net: label.to_owned(), command: shown, status, output })
}

/// Gathers what a program writes, on a thread that ends with the program's output.
fn collect(from: Option<impl io::Read + Send + 'static>, into: &Arc<Mutex<Vec<u8>>>) {
    let Some(mut from) = from else { return };
    let into = Arc::clone(into);
    std::thread::spawn(move || {
        let mut some = [0; 4096];
        loop {
            let octets = match from.read(&mut some) {
                Ok(0) => break,
                Ok(octets) => octets,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => break,
            };
            let mut into = lock(&into);
            let room = OUTPUT_OCTETS_MAX.saturating_sub(into.len());
            into.extend_from_slice(some.get(..octets.min(room)).unwrap_or_default());
        }
    });
}

/// Kills a child unless it has ended, and collects it.
fn stop(child: &mut Child) {
    if matches!(child.try_wait(), Ok(None)) {
        let _ended_meanwhile = child.kill();
    }
    let _collected = child.wait();
}

/// Kills what still runs in a namespace of ours: the children of programs that we started there,
/// and those that these start meanwhile.
fn stop_inside(name: &str) {
    for _ in 0..STOPS_MAX {
        let found = Command::new("ip").args(["netns", "pids", name]).output();
        let found = found.map(|output| output.stdout).unwrap_or_default();
        let inside = String::from_utf8_lossy(&found);
        let pids = inside.split_whitespace().filter_map(|word| Pid::from_raw(word.parse().ok()?));
        let pids: Vec<Pid> = pids.filter(|pid| *pid != rustix::process::getpid()).collect();
        if pids.is_empty() {
            return;
        }
        for pid in pids {
            let _ended_meanwhile = kill_process(pid, Signal::KILL);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Locks, even after another thread panicked with the lock held: a failed test must still clean up.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_go_with_their_space() {
        let name = format!("{PREFIX}files-{}", std::process::id());
        let [one, two, other] = [".sock", "-two.sock", "0.sock"]
            .map(|end| std::env::temp_dir().join(format!("{name}{end}")));
        for file in [&one, &two, &other] {
            std::fs::write(file, "").unwrap();
        }
        remove_files(&name);
        assert_eq!([&one, &two, &other].map(|file| file.exists()), [false, false, true]);
        std::fs::remove_file(other).unwrap();
    }

    #[test]
    fn names_tell_their_owner() {
        assert_eq!(owner("xkt-123-4-5-6", 5), Some(123));
        for other in [
            "xkt-",
            "xkt-a-1-5-0",
            "xkt-1",
            "xkt-1-",
            "xkt-1-2",
            "xkt-1-2-4-0",
            "xk-1-2-5-0",
            "mine",
        ] {
            assert_eq!(owner(other, 5), None, "{other}");
        }
    }

    #[test]
    fn an_ended_program_has_told_all() {
        for _ in 0..50 {
            let mut line = Command::new("seq");
            line.arg("12000");
            let running = Running::start("here", "seq".to_owned(), line).unwrap();
            assert!(running.wait(Duration::from_secs(10)).unwrap().success());
            assert!(running.output().ends_with("\n12000\n"));
        }
    }

    #[test]
    fn nothing_is_stale_where_there_are_no_names() {
        assert!(stale_names(Path::new("/nonexistent"), Path::new("/proc")).is_empty());
    }
}
