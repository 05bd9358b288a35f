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
/// How long a command in it may take.
const PATIENCE: Duration = Duration::from_secs(40);
/// What a host drops because others are on the cable.
pub const OF_OTHERS: [&str; 3] = ["eth: not mine", "aarp: not mine", "ddp: no port"];
/// The age at which it ends by itself.
const LIVES: Duration = Duration::from_secs(900);

/// What of the guest is up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Its node has an address: AARP, DDP, AEP.
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

/// What the guest does first. Its files are written to memory.
fn script(root: &Path) -> String {
    format!(
        "R={root}\n\
         for d in run tmp var; do mount -t tmpfs tmpfs $R/$d; done\n\
         mkdir -p $R/var/lock $R/var/log $R/var/lib/netatalk/CNID $R/var/spool/netatalk $R/tmp/vol\n\
         ln -s ../run $R/var/run\n\
         mount --bind /dev $R/dev; mount -t proc proc $R/proc\n\
         at() {{ chroot $R \"$@\"; }}\n\
         ip link set vec0 up\n\
         echo 'vec0 -router -phase 2 -net 10-19 -addr 10.{GUEST} -zone \"XK\"' > $R/tmp/atalkd.conf\n\
         echo 'TestPrinter:pr=|/bin/busybox cat > /tmp/printed:op=root:' > $R/tmp/papd.conf\n\
         printf '%s\\n' '[Global]' 'appletalk = yes' 'zeroconf = no' 'cnid scheme = last' \
         'uam list = uams_guest.so' 'log file = /tmp/afpd.log' '[vol]' 'path = /tmp/vol' \
         > $R/tmp/afp.conf\n\
         (at atalkd -f /tmp/atalkd.conf -P /tmp/atalkd.pid && touch $R/tmp/Router && \
         at nbprgstr 'guest:XKernel@XK' && at papd -f /tmp/papd.conf && \
         at afpd -F /tmp/afp.conf && sleep 2; \
         until at nbplkup =:AFPServer | grep -q AFP && at nbplkup =:LaserWriter | grep -q Laser; \
         do sleep 1; done; touch $R/tmp/Servers) < /dev/null > $R/tmp/log 2>&1 &\n",
        root = root.display()
    )
}

impl Cable {
    fn start() -> Self {
        let folder = Testbed::scratch("appletalk-guest");
        let net = Net::new("appletalk").unwrap();
        let space = net.space().unwrap();
        space.ip(&["link", "add", "br0", "type", "bridge", "mcast_snooping", "0"]).unwrap();
        space.up("br0").unwrap();
        let guest = Machine::new("appletalk", &folder)
            .memory_mib(128)
            .lives(LIVES)
            .tap("t0")
            .tap("t1")
            .modules(&["net/llc/llc", "net/802/psnap", "net/appletalk/appletalk"])
            .script(&script(&root()))
            .start(&space)
            .unwrap();
        space.ip(&["link", "set", "t0", "master", "br0"]).unwrap();
        Self { guest, space, joined: AtomicUsize::new(0), _net: Mutex::new(net) }
    }

    /// Waits until so much of the guest is up.
    ///
    /// # Panics
    /// If it does not come up.
    pub fn wait(&self, stage: Stage) {
        let sign = match stage {
            Stage::Node => "grep -q '^vec0.* 0 *$' /proc/net/atalk/interface".to_owned(),
            Stage::Router | Stage::Servers => format!("[ -e $R/tmp/{stage:?} ]"),
        };
        let begun = Instant::now();
        while self.guest.run(&sign, PATIENCE).unwrap().0 != 0 {
            let asked = "cat $R/tmp/log /proc/net/atalk/interface; ps";
            let said = || self.guest.run(asked, PATIENCE);
            assert!(begun.elapsed() < UP, "no {stage:?}: {:?}", said());
            std::thread::sleep(Duration::from_millis(250));
        }
    }

    /// Runs one of netatalk's programs in the guest, and gives its status and what it said.
    ///
    /// # Panics
    /// If it does not end.
    pub fn run(&self, command: &str) -> (i32, String) {
        self.guest.run(&format!("at {command}"), PATIENCE).unwrap()
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
        self.guest.exec(command, PATIENCE).unwrap()
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
        let port = format!("p{number}");
        testbed.net.veth(&self.space, &port, &space, "x0").unwrap();
        self.space.ip(&["link", "set", &port, "master", "br0"]).unwrap();
        let [high, low] = (number as u16).to_be_bytes();
        Host { testbed, space, hw: [2, b'x', b'k', 0, high, low], cable: Arc::clone(self) }
    }

    /// Joins the guest's second device to a namespace, where it is `name`.
    ///
    /// # Panics
    /// If it is not here.
    pub fn second(&self, space: &Space, name: &str) {
        // The guest opens it when it is up, where it is then.
        self.shell("ip link set vec1 up");
        self.space.ip(&["link", "set", "t1", "netns", space.name()]).unwrap();
        space.ip(&["link", "set", "t1", "name", name]).unwrap();
        space.up(name).unwrap();
    }

    /// What the guest's first device sends and hears goes to the file, for later reading.
    #[must_use]
    pub fn space(&self) -> &Space {
        &self.space
    }
}

/// A test's place on the cable.
pub struct Host {
    /// Captures, and namespaces.
    pub testbed: Testbed,
    /// Where the device `x0` is.
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

    /// What the guest has written to a file of its memory.
    ///
    /// # Panics
    /// If there is no such file.
    #[must_use]
    pub fn file(&self, name: &str) -> String {
        self.cable.shell(&format!("cat $R/tmp/{name}"))
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
