//! The scene of a test: namespaces, links between Linux and a stack of ours, and captures that
//! `tshark` judges.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use xk_testkit::netns::{Net, Running, Space};
use xk_testkit::{needs, tshark};

use crate::organisation::{self, Organisation};
use crate::stack::Stack;

/// Linux's address on the link of a [`Lan`].
pub const LINUX: &str = "10.9.0.1";
/// Address of xk's host on it.
pub const OURS: &str = "10.9.0.2";
/// Linux's device on every link.
pub const DEVICE: &str = "xk0";
/// Longest time for a program to begin or to end. A program on a busy machine takes far less.
pub const PROGRAM_TIME_MAX: Duration = Duration::from_secs(30);

/// Remarks on the order in which segments arrive.
const ORDER: [&str; 2] = ["revious segment(s) not captured", "out-of-order segment"];

/// Wire that joins a stack of xk to Linux.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wire {
    /// A TAP device: Linux is the other end. All checksums are complete.
    Tap,
    /// As above, and checksums stay open both ways, as by default.
    TapOffload,
    /// `packet` on one end of a veth pair, Linux on the other, which computes all checksums.
    Veth,
    /// As above, but Linux leaves checksums to the wire, as it does by default.
    VethOffload,
    /// `host-eth` and a VXLAN device of Linux, over a veth pair that carries their datagrams. Linux
    /// computes all checksums.
    Vxlan,
    /// As above, but Linux leaves checksums and cutting into segments to the wire, as it does by
    /// default.
    VxlanOffload,
    /// `xdp` in generic mode on one end of a veth pair, Linux on the other, which leaves checksums
    /// to the wire.
    XdpGeneric,
    /// As above, in native mode.
    XdpNative,
}

impl Wire {
    fn is_tap(self) -> bool {
        matches!(self, Self::Tap | Self::TapOffload)
    }

    fn is_vxlan(self) -> bool {
        matches!(self, Self::Vxlan | Self::VxlanOffload)
    }

    /// Whether our wire leaves checksums open, as a graph says it.
    fn offload(self) -> &'static str {
        if matches!(self, Self::TapOffload | Self::VethOffload) { "#true" } else { "#false" }
    }

    /// The wire of a graph, on the veth end `device`.
    fn on_veth(self, device: &str) -> String {
        match self {
            Self::XdpGeneric => format!("xdp device={device} mode=generic"),
            Self::XdpNative => format!("xdp device={device} mode=native"),
            _ => format!("packet device={device} offload={}", self.offload()),
        }
    }

    /// Describes what this machine lacks for a link of this kind, if anything.
    #[must_use]
    pub fn missing(self) -> Option<String> {
        let xdp = matches!(self, Self::XdpGeneric | Self::XdpNative);
        let (what, is_there): (_, fn() -> bool) = match self {
            _ if !needs::is_root() => return None,
            _ if self.is_tap() => ("TAP devices (load the module tun)", || {
                std::fs::File::open("/dev/net/tun").is_ok()
            }),
            _ if self.is_vxlan() => ("VXLAN devices (load the module vxlan)", || {
                can_link(&["vxlan", "id", "1", "dstport", "4789"])
            }),
            _ if xdp && xk_xdp::objects(xk_xdp::Object::Program).is_err() => {
                ("the right to load BPF programs", || false)
            }
            _ => ("veth pairs (load the module veth)", || can_link(&["veth"])),
        };
        (!is_there()).then(|| format!("needs {what}"))
    }

    fn name(self) -> &'static str {
        match self {
            Self::Tap => "tap",
            Self::TapOffload => "tap-offload",
            Self::Veth => "veth",
            Self::VethOffload => "veth-offload",
            Self::Vxlan => "vxlan",
            Self::VxlanOffload => "vxlan-offload",
            Self::XdpGeneric => "xdp-generic",
            Self::XdpNative => "xdp-native",
        }
    }
}

/// Whether a device of this kind can be made, in a namespace that goes at once.
fn can_link(kind: &[&str]) -> bool {
    let make = ["-n", "ip", "link", "add", "x", "type"];
    let mut unshare = std::process::Command::new("unshare");
    let output = unshare.args(make).args(kind).output();
    output.is_ok_and(|output| output.status.success())
}

/// Namespaces and captures of one test.
pub struct Testbed {
    /// The namespaces.
    pub net: Net,
    folder: PathBuf,
    captures: RefCell<Vec<(PathBuf, Option<Running>)>>,
}

impl Testbed {
    /// A testbed for the test called `test`.
    ///
    /// # Panics
    /// If its folder or namespaces cannot be made.
    #[must_use]
    pub fn new(test: &str) -> Self {
        let folder = Self::scratch(test);
        Self { net: Net::new(test).unwrap(), folder, captures: RefCell::default() }
    }

    /// An empty folder of this name, for captures or what else a test needs.
    ///
    /// # Panics
    /// If it cannot be made.
    #[must_use]
    pub fn scratch(name: &str) -> PathBuf {
        let folder = captures_folder().join(name);
        let _nothing_there = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).expect("a folder for captures");
        folder
    }

    /// A namespace of Linux's own stack, which tells of every error it may tell of.
    ///
    /// # Panics
    /// If it cannot be made.
    #[must_use]
    pub fn linux(&self) -> Space {
        let space = self.net.space().unwrap();
        space.sysctl("net/ipv4/icmp_ratelimit", "0").unwrap();
        space
    }

    /// Folder for captures and other files of this test.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The file for a capture made by a graph.
    #[must_use]
    pub fn capture_file(&self, name: &str) -> PathBuf {
        let file = self.folder.join(format!("{name}.pcapng"));
        self.captures.borrow_mut().push((file.clone(), None));
        file
    }

    /// Captures what passes `device` in `space`, by `tcpdump`, until [`Testbed::judge`].
    ///
    /// # Panics
    /// If the program does not begin.
    pub fn capture(&self, space: &Space, device: &str, name: &str) {
        let file = self.folder.join(format!("{name}.pcap"));
        let path = file.to_string_lossy();
        let command =
            ["tcpdump", "-i", device, "-U", "--immediate-mode", "-Z", "root", "-w", &path];
        let running = space.spawn(&command).unwrap();
        running.wait_for("listening on", PROGRAM_TIME_MAX).unwrap();
        self.captures.borrow_mut().push((file, Some(running)));
    }

    /// Ends all captures and lets `tshark` judge them. What the scenario intends is in `intended`:
    /// a part of the remark, and why it is meant to be there; besides, what the other end sent may
    /// come in another order. The graphs must have ended, so that their captures are whole.
    ///
    /// # Panics
    /// If a capture is empty, or `tshark` finds something else wrong with it.
    pub fn judge(&self, intended: &[(&str, &str)]) {
        self.judge_without(&[], intended);
    }

    /// As above, without the dissectors of these protocols; the test says why.
    ///
    /// # Panics
    /// As above.
    pub fn judge_without(&self, without: &[&str], intended: &[(&str, &str)]) {
        // What stands on a domain that has ended is reset; a crossing may take longer than a loss
        // probe waits.
        let of_cuts: &[&str] = match organisation::current() {
            Organisation::Whole => &[],
            _ => &["onnection reset", "D-SACK", "etransmission"],
        };
        let intended = intended.iter().map(|(remark, _)| *remark);
        let allow: Vec<&str> = intended.chain(of_cuts.iter().copied()).collect();
        for (file, running) in self.captures.borrow_mut().drain(..) {
            // What comes to where it is captured lay in a queue of each processor that sent it:
            // Linux may hand over last what was sent first.
            let far = if running.is_some() { OURS } else { LINUX };
            let is_order = |message: &str| ORDER.iter().any(|remark| message.contains(remark));
            if let Some(running) = running {
                end(&running);
            }
            let mut report = tshark::check_without(&file, &allow, without).unwrap();
            report.problems.retain(|found| found.source != far || !is_order(&found.message));
            assert!(report.frames > 0, "{}: no frames", file.display());
            assert!(report.is_clean(), "{}: {report}", file.display());
        }
    }

    /// Number of frames so far in the capture `name` that fit the display filter.
    ///
    /// # Panics
    /// If `tshark` fails.
    #[must_use]
    pub fn count(&self, name: &str, filter: &str) -> usize {
        let file = self.folder.join(name);
        let output = tshark::reader(&file)
            .args(["-Y", filter, "-T", "fields", "-e", "frame.number"])
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stdout).lines().count()
    }
}

/// Asks a program to end in order (a capture is then whole in its file), and gives its status.
///
/// # Panics
/// If it does not end.
pub fn end(running: &Running) -> ExitStatus {
    if let Some(pid) = i32::try_from(running.id()).ok().and_then(Pid::from_raw) {
        let _has_ended = kill_process(pid, Signal::TERM);
    }
    running.wait(PROGRAM_TIME_MAX).unwrap()
}

/// `target/tmp/peers`, found from where the test program is: `target/debug/deps`.
fn captures_folder() -> PathBuf {
    let program = std::env::current_exe().unwrap_or_default();
    let target = program.ancestors().nth(3).map(Path::to_owned);
    target.unwrap_or_else(std::env::temp_dir).join("tmp/peers")
}

/// One link between Linux, [`LINUX`], and a stack of ours, [`OURS`].
pub struct Lan {
    /// The namespaces and captures.
    pub testbed: Testbed,
    /// The space of Linux.
    pub linux: Space,
    /// The space of our end.
    pub ours: Space,
    wire: Wire,
}

impl Lan {
    /// A link for the test called `test`. With a TAP device Linux's end comes with [`Lan::start`].
    ///
    /// # Panics
    /// If it cannot be made.
    #[must_use]
    pub fn new(test: &str, wire: Wire) -> Self {
        let lan = Self::unjoined(test, wire);
        let (testbed, linux, ours) = (&lan.testbed, &lan.linux, &lan.ours);
        if wire.is_vxlan() {
            under_vxlan(&testbed.net, linux, ours);
            if wire == Wire::Vxlan {
                linux.offload_off(DEVICE).unwrap();
            }
            linux.address(DEVICE, &format!("{LINUX}/24")).unwrap();
        } else if !wire.is_tap() {
            testbed.net.veth(linux, DEVICE, ours, "x0").unwrap();
            linux.address(DEVICE, &format!("{LINUX}/24")).unwrap();
        }
        if wire == Wire::Veth {
            linux.offload_off(DEVICE).unwrap();
        }
        lan
    }

    /// Both ends without a link between them: what joins them is the test's, from our device `x0`
    /// to Linux's.
    ///
    /// # Panics
    /// If they cannot be made.
    #[must_use]
    pub fn unjoined(test: &str, wire: Wire) -> Self {
        let testbed = Testbed::new(&format!("{}-{test}", wire.name()));
        let linux = testbed.linux();
        let ours = match wire {
            Wire::Tap | Wire::TapOffload => linux.clone(),
            _ => testbed.net.space().unwrap(),
        };
        Self { testbed, linux, ours, wire }
    }

    /// Starts a host with `icmp`, `udp`, and `uppers` on them, lines of a graph. `ip` are further
    /// parameters of `ip`. What crosses the wire is captured on our side, and on Linux's if `both`.
    #[must_use]
    pub fn start(&self, ip: &str, uppers: &str) -> Stack {
        self.start_over("", "wire", ip, uppers)
    }

    /// As above, with further lines of a graph between wire and capture, of which `last` is the
    /// last node.
    #[must_use]
    pub fn start_over(&self, below: &str, last: &str, ip: &str, uppers: &str) -> Stack {
        let file = self.testbed.capture_file("ours");
        let wire = self.wire_line();
        let source = format!(
            "host xk {{\n{wire}\n{below}pcap {last} file=\"{}\"\neth pcap\narp eth\n\
             ip arp {ip} {{ address \"{OURS}/24\"; route default via=\"{LINUX}\"; }}\nicmp ip\nudp ip\n{uppers}\n}}\n",
            file.display()
        );
        Stack::start(&self.ours, &source)
    }

    /// Namespace of xk's end of the link: with a TAP device, that of Linux.
    #[must_use]
    pub fn ours(&self) -> &Space {
        &self.ours
    }

    /// The line of a graph for our end of the link, a wire called `wire`.
    #[must_use]
    pub fn wire_line(&self) -> String {
        match self.wire {
            Wire::Tap | Wire::TapOffload => format!(
                "tap device={DEVICE} host_address=\"{LINUX}/24\" name=wire offload={}",
                self.wire.offload()
            ),
            Wire::Vxlan | Wire::VxlanOffload => {
                "host-eth local=\"192.0.2.2:4789\" peer=\"192.0.2.1:4789\" vni=7 \
                            mtu=1500 name=wire"
                    .to_owned()
            }
            on_veth => format!("{} name=wire", on_veth.on_veth("x0")),
        }
    }

    /// Captures on Linux's side, too, from now on.
    pub fn capture(&self) {
        self.testbed.capture(&self.linux, DEVICE, "linux");
    }
}

/// Joins two namespaces by a link with room for frames of 1500 octets in datagrams, and gives the
/// first the end of a VXLAN network in them.
fn under_vxlan(net: &Net, linux: &Space, ours: &Space) {
    net.veth(linux, "u0", ours, "u1").unwrap();
    for (space, device, address) in [(linux, "u0", "192.0.2.1/24"), (ours, "u1", "192.0.2.2/24")] {
        space.mtu(device, 1600).unwrap();
        space.address(device, address).unwrap();
    }
    let remote = ["remote", "192.0.2.2", "local", "192.0.2.1", "dev", "u0"];
    let add = ["link", "add", DEVICE, "mtu", "1500", "type", "vxlan", "id", "7"];
    let add = [&add[..], &remote, &["dstport", "4789"]].concat();
    linux.ip(&add).unwrap();
    linux.up(DEVICE).unwrap();
}

/// Two hosts of Linux with a stack of ours between them as router: `10.9.1.1` -
/// `10.9.1.254 10.9.2.254` - `10.9.2.1`.
pub struct Routed {
    /// The namespaces and captures.
    pub testbed: Testbed,
    /// The host `10.9.1.1`.
    pub left: Space,
    /// The host `10.9.2.1`.
    pub right: Space,
    ours: Space,
    wire: Wire,
}

impl Routed {
    /// Both hosts, without the router.
    ///
    /// # Panics
    /// If they cannot be made.
    #[must_use]
    pub fn new(test: &str, wire: Wire) -> Self {
        let testbed = Testbed::new(&format!("{}-{test}", wire.name()));
        let [left, right] = [(); 2].map(|()| testbed.linux());
        let ours = testbed.net.space().unwrap();
        Self { testbed, left, right, ours, wire }
    }

    /// Starts the router, with an MTU of `right_mtu` octets on the right link, and joins both hosts
    /// to it.
    ///
    /// # Panics
    /// If a link cannot be made.
    #[must_use]
    pub fn start(&self, right_mtu: usize, uppers: &str) -> Stack {
        let sides = [(&self.left, 1, 1500), (&self.right, 2, right_mtu)];
        let mut source = String::from("host router {\n");
        for (space, side, mtu) in sides {
            let file = self.testbed.capture_file(&format!("link{side}"));
            let wire = match self.wire {
                Wire::Tap | Wire::TapOffload => format!(
                    "tap device=xkr{side} mtu={mtu} name=wire{side} offload={}",
                    self.wire.offload()
                ),
                Wire::Vxlan | Wire::VxlanOffload => panic!("no router stands on this wire here"),
                on_veth => {
                    let ours = format!("x{side}");
                    self.testbed.net.veth(space, DEVICE, &self.ours, &ours).unwrap();
                    self.ours.mtu(&ours, mtu).unwrap();
                    self.set_up(space, side, mtu);
                    format!("{} name=wire{side}", on_veth.on_veth(&ours))
                }
            };
            source += &format!(
                "{wire}\npcap wire{side} name=pcap{side} file=\"{}\"\neth pcap{side} name=eth{side}\n\
                 arp eth{side} name=arp{side}\n",
                file.display()
            );
        }
        source += &format!(
            "ip arp1 arp2 forward=#true {{\naddress \"10.9.1.254/24\" on=arp1\naddress \"10.9.2.254/24\" on=arp2\n}}\n\
             icmp ip\nudp ip\n{uppers}\n}}\n"
        );
        let stack = Stack::start(&self.ours, &source);
        if self.wire.is_tap() {
            for (space, side, mtu) in sides {
                // The device stays the graph's, whichever namespace its other end is in.
                let made = format!("xkr{side}");
                self.ours.ip(&["link", "set", &made, "netns", space.name()]).unwrap();
                space.ip(&["link", "set", &made, "name", DEVICE]).unwrap();
                space.up(DEVICE).unwrap();
                self.set_up(space, side, mtu);
            }
        }
        stack
    }

    fn set_up(&self, space: &Space, side: usize, mtu: usize) {
        space.mtu(DEVICE, mtu).unwrap();
        space.address(DEVICE, &format!("10.9.{side}.1/24")).unwrap();
        space.route("default", &format!("10.9.{side}.254")).unwrap();
        if self.wire == Wire::Veth {
            space.offload_off(DEVICE).unwrap();
        }
    }
}
