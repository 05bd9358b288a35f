//! The AppleTalk cable of a run: one guest with Linux's AppleTalk and netatalk's programs, and the
//! hosts of all tests that want to meet them, on one bridge.
//!
//! netatalk's router takes half a minute to come up, so one guest serves all. [`cable`] starts it
//! the first time; [`end`] ends it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use xk_testkit::needs;
use xk_testkit::netns::{Net, Space};
use xk_testkit::uml::{Guest, Machine};

use crate::stack::Stack;
use crate::testbed::Testbed;

/// The guest's node on the cable, whose networks are 10 to 19 and whose zone is `XK`.
pub const GUEST: u8 = 17;
/// The longest that any of its programs takes to come up.
const UP: Duration = Duration::from_secs(150);
/// Longest time of a command in the guest.
const COMMAND_TIME_MAX: Duration = Duration::from_secs(40);
/// Text in front of the lines that say which stage has been reached.
const STAGE: &str = "stage: ";
/// The bridge that is the cable, in [`Cable::space`].
pub const BRIDGE: &str = "br0";
/// AppleTalk's modules, each behind what it needs.
const MODULES: &[&str] = &["net/llc/llc", "net/802/psnap", "net/appletalk/appletalk"];
/// Drops of a host that are due to others on the cable.
pub const OF_OTHERS: [&str; 8] = [
    "eth: not mine",
    "aarp: not mine",
    "ddp: no port",
    "rtmp: not mine",
    "zip: not mine",
    // The answers to a question that went twice.
    "zip: unsolicited",
    "atp: no such transaction",
    "nbp: not mine",
];
/// The age at which it ends by itself.
const LIVES: Duration = Duration::from_secs(900);

/// Stage of the guest's start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// The node has an address: AARP, DDP, AEP.
    Node,
    /// The router: RTMP, ZIP, NBP.
    Router,
    /// The printer `TestPrinter:LaserWriter` and the server `AFPServer`.
    Servers,
}

/// The reason to skip for want of netatalk, or nothing.
#[must_use]
pub fn missing() -> Option<String> {
    let is_there = root().join("usr/sbin/atalkd").is_file();
    let unless =
        || "needs netatalk of Debian trixie below target (run: cargo xtask setup)".to_owned();
    needs::root_missing()
        .or_else(|| {
            ["ip", "tcpdump", "tshark", "python3"].into_iter().find_map(needs::program_missing)
        })
        .or_else(xk_testkit::uml::missing)
        .or_else(|| (!is_there).then(unless))
}

/// The reason to skip what needs volumes of afpd, whose daemon for the numbers of files needs a
/// library of the host's that is not unpacked with netatalk, or nothing.
#[must_use]
pub fn volumes_missing() -> Option<String> {
    let folders = fs::read_dir("/usr/lib").into_iter().flatten().flatten();
    let mut found = folders.map(|folder| folder.path().join("libdb-5.3.so"));
    let is_there = found.any(|library| library.is_file());
    (!is_there).then(|| "needs libdb-5.3.so (Debian: libdb5.3)".to_owned())
}

/// netatalk's root, which `cargo xtask setup` makes below `target`.
fn root() -> PathBuf {
    let program = std::env::current_exe().unwrap_or_default();
    program.ancestors().nth(3).map(|target| target.join("netatalk")).unwrap_or_default()
}

/// The cable, and the guest on it.
pub struct Cable {
    guest: Guest,
    space: Space,
    /// Numbers the bridge's devices.
    joined: AtomicUsize,
    // Goes last: the guest's process is in one of its namespaces.
    _net: Mutex<Net>,
}

static CABLE: Mutex<Option<Arc<Cable>>> = Mutex::new(None);

/// The cable of this run.
///
/// # Panics
/// If it cannot be made.
#[must_use]
pub fn cable() -> Arc<Cable> {
    let mut cable = CABLE.lock().unwrap_or_else(PoisonError::into_inner);
    Arc::clone(cable.get_or_insert_with(|| Arc::new(Cable::start())))
}

/// Powers the guest off, if there is one.
pub fn end() {
    drop(CABLE.lock().unwrap_or_else(PoisonError::into_inner).take());
}

/// Script that the guest runs first. Its files are written to memory.
fn script(root: &Path) -> String {
    format!(
        "R={root}\n\
         for d in run tmp var; do mount -t tmpfs tmpfs $R/$d; done\n\
         mkdir -p $R/var/lock $R/var/log $R/var/lib/netatalk/CNID $R/var/spool/netatalk $R/tmp/vol\n\
         chmod 777 $R/tmp/vol; cp /usr/lib/*/libdb-5.3.so $R/tmp\n\
         ln -s ../run $R/var/run\n\
         mount --bind /dev $R/dev; mount -t proc proc $R/proc\n\
         at() {{ chroot $R \"$@\"; }}\n\
         ip link set vec0 up; ip link set lo up\n\
         echo 'vec0 -router -phase 2 -net 10-19 -addr 10.{GUEST} -zone \"XK\"' > $R/tmp/atalkd.conf\n\
         echo 'TestPrinter:pr=|/bin/busybox cat > /tmp/printed:op=root:' > $R/tmp/papd.conf\n\
         printf '%s\\n' '[Global]' 'appletalk = yes' 'zeroconf = no' 'cnid scheme = dbd' \
         'cnid listen = 127.0.0.1:4700' 'cnid server = 127.0.0.1:4700' \
         'uam list = uams_guest.so' 'log file = /tmp/afpd.log' '[vol]' 'path = /tmp/vol' \
         > $R/tmp/afp.conf\n\
         say() {{ echo \"$1\" > /dev/console; }}\n\
         (until grep -q '^vec0.* 0 *$' /proc/net/atalk/interface; do sleep 0.3; done; \
         say '{STAGE}Node') < /dev/null > /dev/null 2>&1 &\n\
         (at atalkd -f /tmp/atalkd.conf -P /tmp/atalkd.pid && say '{STAGE}Router' && \
         at papd -f /tmp/papd.conf && \
         (LD_LIBRARY_PATH=/tmp at cnid_metad -F /tmp/afp.conf; true) && at afpd -F /tmp/afp.conf && \
         until at nbprgstr 'guest:XKernel@XK'; do sleep 1; done; \
         until at nbplkup =:AFPServer | grep AFP && at nbplkup =:LaserWriter | grep Laser; \
         do sleep 1; done; say '{STAGE}Servers') < /dev/null > $R/tmp/log 2>&1 &\n",
        root = root.display()
    )
}

impl Cable {
    fn start() -> Self {
        let folder = Testbed::scratch("appletalk-guest");
        let net = Net::new("appletalk").unwrap();
        let space = net.space().unwrap();
        space.ip(&["link", "add", BRIDGE, "type", "bridge", "mcast_snooping", "0"]).unwrap();
        space.up(BRIDGE).unwrap();
        let guest = Machine::new("appletalk", &folder)
            .memory_mib(128)
            .lives(LIVES)
            .tap("t0")
            .modules(MODULES)
            .script(&script(&root()))
            .start(&space)
            .unwrap();
        space.ip(&["link", "set", "t0", "master", BRIDGE]).unwrap();
        Self { guest, space, joined: AtomicUsize::new(0), _net: Mutex::new(net) }
    }

    /// Waits until so much of the guest is up.
    ///
    /// # Panics
    /// If it does not come up.
    pub fn wait(&self, stage: Stage) {
        let sign = format!("{STAGE}{stage:?}\n");
        let begun = Instant::now();
        // What is asked of the guest takes its time.
        while !self.guest.output().contains(&sign) {
            let said = || self.guest.run("cat $R/tmp/log; ps", COMMAND_TIME_MAX);
            assert!(begun.elapsed() < UP, "no {stage:?}: {:?}", said());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Runs one of netatalk's programs in the guest, and gives its status and what it said.
    ///
    /// # Panics
    /// If it does not end.
    pub fn run(&self, command: &str) -> (i32, String) {
        let (status, said) = self.guest.run(&format!("at {command}"), COMMAND_TIME_MAX).unwrap();
        let own = said.lines().filter(|line| !line.starts_with(STAGE));
        (status, own.map(|line| format!("{line}\n")).collect())
    }

    /// As above, of one that succeeds.
    ///
    /// # Panics
    /// If it does not.
    pub fn exec(&self, command: &str) -> String {
        let (status, said) = self.run(command);
        assert_eq!(status, 0, "{command}: {said}");
        said
    }

    /// Runs a line of its shell.
    ///
    /// # Panics
    /// If it fails.
    pub fn shell(&self, command: &str) -> String {
        self.guest.exec(command, COMMAND_TIME_MAX).unwrap()
    }

    /// A namespace of its own for a test, with a device `x0` on the cable.
    ///
    /// # Panics
    /// If it cannot be made.
    #[must_use]
    pub fn join(self: &Arc<Self>, test: &str) -> Host {
        let testbed = Testbed::new(&format!("appletalk-{test}"));
        let space = testbed.net.space().unwrap();
        let number = self.joined.fetch_add(1, Ordering::Relaxed);
        let port = format!("{BRIDGE}-{number}");
        testbed.net.veth(&self.space, &port, &space, "x0").unwrap();
        self.space.ip(&["link", "set", &port, "master", BRIDGE]).unwrap();
        // What is for a host that has gone is not for the others.
        self.space.ip(&["link", "set", &port, "type", "bridge_slave", "flood", "off"]).unwrap();
        let [high, low] = (number as u16).to_be_bytes();
        Host { testbed, space, hw: [2, b'x', b'k', 0, high, low], cable: Arc::clone(self) }
    }

    /// The space of the guest and the bridge.
    #[must_use]
    pub fn space(&self) -> &Space {
        &self.space
    }
}

/// A test's place on the cable.
pub struct Host {
    /// Captures, and namespaces.
    pub testbed: Testbed,
    /// The space of the device `x0`.
    pub space: Space,
    /// The hardware address of the stacks there.
    pub hw: [u8; 6],
    /// The cable.
    pub cable: Arc<Cable>,
}

impl Host {
    /// Starts a host on `x0` with AARP and these parameters of `ddp`; `uppers` are lines of a graph
    /// above. What crosses the wire is captured.
    #[must_use]
    pub fn start(&self, ddp: &str, uppers: &str) -> Stack {
        self.start_on("x0", "ours", ddp, uppers)
    }

    /// As above, on another device of the namespace, captured in the file `name`.
    #[must_use]
    pub fn start_on(&self, device: &str, name: &str, ddp: &str, uppers: &str) -> Stack {
        let file = self.testbed.capture_file(name);
        let hw = self.hw.map(|octet| format!("{octet:02x}")).join(":");
        let source = format!(
            "host xk {{\npacket device={device} address=\"{hw}\" name=wire offload=#false\npcap wire file=\"{}\"\n\
             eth pcap\naarp eth\nddp aarp {ddp}\naep ddp\n{uppers}\n}}\n",
            file.display()
        );
        Stack::start(&self.space, &source)
    }

    /// Starts a router on `x0`, node 85 of the cable's network 10, with network 30 behind it, which
    /// has no other node, and the zones `XK` and `Ours`; `uppers` are lines of a graph above.
    #[must_use]
    pub fn start_router(&self, uppers: &str) -> Stack {
        let file = self.testbed.capture_file("router");
        let hw = self.hw.map(|octet| format!("{octet:02x}")).join(":");
        let source = format!(
            "host xk {{\npacket device=x0 address=\"{hw}\" name=wire offload=#false\n\
             pcap wire file=\"{}\"\neth pcap\naarp eth\nloopback\n\
             ddp aarp loopback {{\nport net=\"10-19\" node=85 zone=\"XK\"\n\
             port net=\"30\" node=85 zone=\"Ours\"\n}}\naep ddp\n{uppers}\n}}\n",
            file.display()
        );
        Stack::start(&self.space, &source)
    }

    /// Contents of a file in the guest's memory.
    ///
    /// # Panics
    /// If there is no such file.
    #[must_use]
    pub fn file(&self, name: &str) -> String {
        self.cable.shell(&format!("cat $R/tmp/{name}"))
    }

    /// A second guest, beside the test's hosts, on a cable of its own: it has Linux's AppleTalk and
    /// no address, and its device is `x1` here. `echoes` in it sends three echo requests to a node.
    ///
    /// # Panics
    /// If it cannot be made.
    #[must_use]
    pub fn bare_guest(&self) -> Guest {
        let script = format!(
            "ip link set vec0 up\nechoes() {{ chroot {} aecho -c 3 $1; }}",
            root().display()
        );
        let machine = Machine::new("bare", self.testbed.folder()).tap("x1").modules(MODULES);
        machine.script(&script).start(&self.space).unwrap()
    }

    /// A folder of the host's for a test's own files.
    ///
    /// # Panics
    /// If it cannot be made.
    #[must_use]
    pub fn folder(&self) -> PathBuf {
        let folder = self.testbed.folder().join("files");
        fs::create_dir_all(&folder).expect("a folder");
        folder
    }
}
