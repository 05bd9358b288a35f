//! A whole Linux in one process, inside a namespace of a test: Debian's `user-mode-linux`.
//!
//! A [`Machine`] is planned, [started](Machine::start), and is a [`Guest`] then: a kernel without
//! privileges outside of itself that sees the host's files read only, and whose devices are TAPs of
//! the namespace. It has what the host's kernel may lack: other protocols, queueing disciplines,
//! serial lines. Commands run in it by [`Guest::exec`]. Dropping it powers it off and removes its
//! TAPs; should the test hang, it ends by itself when its time is over.
//!
//! A test asks by [`needs_uml!`](crate::needs_uml) first, which also says what to install.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::needs;
use crate::netns::{NetError, Running, Space};

/// Folder of the modules in Debian: one folder in it for each release of the kernel.
const MODULES: &str = "/usr/lib/uml/modules";
/// The kernel.
const KERNEL: &str = "linux.uml";
/// Time that a guest may take to come up; it takes two seconds on a machine that is not busy.
const BOOT: Duration = Duration::from_secs(90);
/// Time that it may take to power off before it is killed.
const OFF: Duration = Duration::from_secs(5);
/// Prefix of the lines that the guest's shell writes for us.
const MARK: &str = "uml:";

/// The reason to skip for want of the kernel, or nothing. The macro
/// [`needs_uml!`](crate::needs_uml) is the usual way in.
#[must_use]
pub fn missing() -> Option<String> {
    needs::program_missing(KERNEL)
        .or_else(|| needs::program_missing("busybox"))
        .or_else(|| modules().is_none().then(|| format!("needs the modules below {MODULES}")))
}

/// The folder that holds the modules by their names in the kernel's tree.
#[must_use]
pub fn modules() -> Option<PathBuf> {
    let releases = fs::read_dir(MODULES).ok()?.flatten();
    let kernels = releases.map(|release| release.path().join("kernel"));
    kernels.filter(|kernel| kernel.is_dir()).max()
}

/// Returns from the test, counted as skipped, unless a guest can be started.
#[macro_export]
macro_rules! needs_uml {
    () => {
        if let Some(reason) = $crate::uml::missing() {
            $crate::needs::skip(&reason);
            return;
        }
    };
}

/// Description of a guest.
#[derive(Debug, Clone)]
pub struct Machine {
    name: String,
    folder: PathBuf,
    memory_mib: usize,
    taps: Vec<String>,
    terminal: Option<PathBuf>,
    modules: Vec<String>,
    script: String,
    lives: Duration,
}

impl Machine {
    /// A machine without devices. Its files go to `folder`, which no other guest of the same name
    /// uses.
    #[must_use]
    pub fn new(name: &str, folder: &Path) -> Self {
        Self {
            name: name.to_owned(),
            folder: folder.to_owned(),
            memory_mib: 64,
            taps: Vec::new(),
            terminal: None,
            modules: Vec::new(),
            script: String::new(),
            lives: Duration::from_secs(300),
        }
    }

    /// With so much memory, in mebioctets; 64 otherwise.
    #[must_use]
    pub fn memory_mib(mut self, memory_mib: usize) -> Self {
        self.memory_mib = memory_mib;
        self
    }

    /// With one more network device: the first is `vec0` in the guest. In the namespace it is the
    /// TAP device of this name, which is made, and up.
    #[must_use]
    pub fn tap(mut self, device: &str) -> Self {
        self.taps.push(device.to_owned());
        self
    }

    /// With a serial line, `/dev/ttyS0` in the guest, to this terminal: the far end of a
    /// [`Line`](crate::pty_unsafe::Line).
    #[must_use]
    pub fn serial(mut self, terminal: &Path) -> Self {
        self.terminal = Some(terminal.to_owned());
        self
    }

    /// With these modules, by their places in the kernel's tree, as `net/sched/sch_netem`; what
    /// one needs stands before it.
    #[must_use]
    pub fn modules(mut self, modules: &[&str]) -> Self {
        self.modules.extend(modules.iter().map(|&module| module.to_owned()));
        self
    }

    /// With these further lines of its first shell. They run as root, with the host's files, before
    /// any command.
    #[must_use]
    pub fn script(mut self, lines: &str) -> Self {
        self.script += lines;
        self.script.push('\n');
        self
    }

    /// Sets the age at which it powers off, whatever happens; five minutes otherwise.
    #[must_use]
    pub fn lives(mut self, at_most: Duration) -> Self {
        self.lives = at_most;
        self
    }

    /// The guest's first program.
    fn init(&self, busybox: &Path) -> String {
        let mut text = format!(
            "#!/bin/sh\n\
             # Of the test `{name}`.\n\
             export PATH=/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin\n\
             B={busybox}\n\
             stty -echo -onlcr < /dev/console\n\
             mount -t proc proc /proc\n\
             mount -t sysfs sys /sys\n\
             (sleep {lives}; $B poweroff -f) < /dev/null > /dev/null 2>&1 &\n\
             ip link set lo up\n",
            busybox = busybox.display(),
            name = self.name,
            lives = self.lives.as_secs(),
        );
        let folder = modules().unwrap_or_default();
        for module in &self.modules {
            // A String takes whatever is written.
            let file = folder.join(format!("{module}.ko"));
            let _ = writeln!(text, "$B insmod {} || $B poweroff -f", file.display());
        }
        text += &self.script;
        let _ = write!(
            text,
            "\necho '{MARK} ready'\n\
             n=0\n\
             while read -r line; do\n\
             [ \"$line\" = '{MARK} off' ] && break\n\
             n=$((n + 1))\n\
             (eval \"$line\") < /dev/null 2>&1\n\
             s=$?; echo; echo \"{MARK} $n status $s.\"\n\
             done\n\
             $B poweroff -f\n"
        );
        text
    }

    /// Starts it in `space` and waits until its script has run.
    ///
    /// # Errors
    /// A TAP cannot be made, or it does not come up; then the error says what it wrote.
    ///
    /// # Panics
    /// If its folder cannot be written to.
    pub fn start(self, space: &Space) -> Result<Guest, NetError> {
        let busybox = needs::program("busybox").unwrap_or_default();
        fs::create_dir_all(&self.folder).expect("the guest's folder");
        let init = self.folder.join(format!("{}.init", self.name));
        fs::write(&init, self.init(&busybox)).expect("the guest's script");
        make_executable(&init);
        let mut words: Vec<String> = vec![
            KERNEL.into(),
            format!("mem={}M", self.memory_mib),
            "rootfstype=hostfs".into(),
            "rootflags=/".into(),
            "ro".into(),
            format!("init={}", init.display()),
            "con=null".into(),
            "con0=fd:0,fd:1".into(),
            "quiet".into(),
            format!("uml_dir={}/", self.folder.display()),
            format!("umid={}", self.name),
        ];
        for (number, tap) in self.taps.iter().enumerate() {
            space.ip(&["tuntap", "add", "name", tap, "mode", "tap"])?;
            space.up(tap)?;
            words.push(format!("vec{number}:transport=tap,ifname={tap},depth=64,gro=0"));
        }
        words.extend(self.terminal.iter().map(|name| format!("ssl0=tty:{}", name.display())));
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let running = space.spawn(&words)?;
        let guest = Guest {
            running,
            space: space.clone(),
            taps: self.taps,
            mark: format!("uml_dir={}/", self.folder.display()),
            commands: Mutex::new(0),
        };
        guest.wait_for(0, &format!("{MARK} ready\n"), "", BOOT)?;
        Ok(guest)
    }
}

/// A file that is a program.
fn make_executable(file: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    let permissions = fs::Permissions::from_mode(0o755);
    fs::set_permissions(file, permissions).expect("the guest's script");
}

/// A guest that runs. It ends when this value is dropped.
#[derive(Debug)]
pub struct Guest {
    running: Running,
    space: Space,
    taps: Vec<String>,
    /// A word of its command line that no other's has.
    mark: String,
    /// Number of commands so far.
    commands: Mutex<usize>,
}

impl Guest {
    /// Output on its console so far.
    #[must_use]
    pub fn output(&self) -> String {
        self.running.output()
    }

    /// Runs a line of the shell in it and gives what that wrote and its status. Commands of several
    /// threads run one after another.
    ///
    /// # Errors
    /// It does not end within `limit`.
    ///
    /// # Panics
    /// If the command has several lines.
    pub fn run(&self, command: &str, limit: Duration) -> Result<(i32, String), NetError> {
        assert!(!command.contains('\n'), "one line: {command}");
        let mut count = lock(&self.commands);
        *count += 1;
        let before = self.running.output().len();
        // If it has powered off, what is awaited does not come.
        let _ended = self.running.write(format!("{command}\n").as_bytes());
        let end = format!("\n{MARK} {count} status ");
        self.wait_for(before, &end, ".\n", limit)?;
        let output = self.running.output();
        let said = output.get(before..).unwrap_or_default();
        let (said, status) = said.split_once(&end).unwrap_or((said, ""));
        let status = status.split_once('.').and_then(|(status, _)| status.parse().ok());
        Ok((status.unwrap_or(-1), said.to_owned()))
    }

    /// As [`Guest::run`], of a command that succeeds.
    ///
    /// # Errors
    /// It does not end within `limit`.
    ///
    /// # Panics
    /// If it fails.
    pub fn exec(&self, command: &str, limit: Duration) -> Result<String, NetError> {
        let (status, said) = self.run(command, limit)?;
        assert_eq!(status, 0, "`{command}` in the guest: {said}");
        Ok(said)
    }

    /// Whether it still runs.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.running.wait(Duration::ZERO).is_err()
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ended = self.running.write(format!("{MARK} off\n").as_bytes());
        if self.running.wait(OFF).is_err() {
            // Asked to end, it takes its helpers with it.
            self.signal(Signal::TERM);
            let _late = self.running.wait(OFF);
            self.signal(Signal::KILL);
        }
        for tap in &self.taps {
            let _gone = self.space.ip(&["link", "delete", tap]);
        }
    }
}

impl Guest {
    /// Waits until it has written, after its first `octets`, `text` and later `end`.
    fn wait_for(
        &self,
        octets: usize,
        text: &str,
        end: &str,
        limit: Duration,
    ) -> Result<(), NetError> {
        let begun = Instant::now();
        loop {
            let is_running = self.is_running();
            let left = limit.saturating_sub(begun.elapsed()).min(Duration::from_millis(50));
            match self.running.wait_for_after(octets, text, end, left) {
                Err(_) if is_running && begun.elapsed() < limit => {}
                result => return result,
            }
        }
    }

    /// Sends a signal to its process, and to those that this has made.
    fn signal(&self, signal: Signal) {
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let pid = entry.file_name().to_str().and_then(|name| name.parse().ok());
            let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let is_its = line.split(|octet| *octet == 0).any(|word| word == self.mark.as_bytes());
            if let Some(pid) = pid.and_then(Pid::from_raw).filter(|_| is_its) {
                let _ended_meanwhile = kill_process(pid, signal);
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_between_the_modules_and_the_commands() {
        let machine = Machine::new("example", Path::new("/nonexistent"))
            .modules(&["net/llc/llc", "net/802/psnap"])
            .script("echo of the test")
            .lives(Duration::from_secs(7));
        let init = machine.init(Path::new("/bin/busybox"));
        let at = |text: &str| init.find(text).unwrap_or_else(|| panic!("no {text} in {init}"));
        assert!(init.starts_with("#!/bin/sh\n"));
        assert!(at("sleep 7;") < at("net/llc/llc.ko"));
        assert!(at("net/llc/llc.ko") < at("net/802/psnap.ko"));
        assert!(at("net/802/psnap.ko") < at("\necho of the test\n"));
        assert!(at("\necho of the test\n") < at("echo 'uml: ready'"));
        assert!(at("echo 'uml: ready'") < at("(eval \"$line\")"));
    }
}
