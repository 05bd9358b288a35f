//! Network namespaces without names: they, their devices and addresses live as long as this process
//! holds them, and the system takes them back however it ends. So nothing is left behind by a
//! panic, Ctrl-C or `kill -9`.

use super::space_unsafe;
use crate::case::Trouble;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};
use std::process::{Command, Stdio};

/// One namespace.
pub(super) struct Space {
    link: File,
}

fn failed(what: impl std::fmt::Display) -> Trouble {
    Trouble::Failed(what.to_string())
}

/// Does `work` on a thread of its own and answers what it answers.
fn aside<T: Send>(work: impl FnOnce() -> Result<T, Trouble> + Send) -> Result<T, Trouble> {
    let joined = std::thread::scope(|scope| scope.spawn(work).join());
    joined.unwrap_or_else(|_| Err(failed("a thread panicked")))
}

impl Space {
    /// A namespace whose loopback device is up, with IPv6 off so that the benchmark alone
    /// sends.
    fn new() -> Result<Self, Trouble> {
        let link = aside(|| {
            space_unsafe::leave_for_a_fresh_one().map_err(|error| {
                Trouble::Skipped(format!("needs the right to make network namespaces ({error})"))
            })?;
            File::open("/proc/thread-self/ns/net").map_err(failed)
        })?;
        let space = Self { link };
        space.inside(|| {
            for place in ["all", "default"] {
                let path = format!("/proc/sys/net/ipv6/conf/{place}/disable_ipv6");
                // A system without IPv6 has no such file and needs none.
                let _ = std::fs::write(path, "1");
            }
            Ok(())
        })?;
        space.inside(|| {
            // Each connection finds out by itself what its way bears, in Linux as in its peers. A
            // system that does not have it for each namespace keeps what it has.
            let _ = std::fs::write("/proc/sys/net/ipv4/tcp_no_metrics_save", "1");
            // Connections come faster than their ports are given back; those below are for servers.
            std::fs::write("/proc/sys/net/ipv4/ip_local_port_range", "32768 65535").map_err(failed)
        })?;
        space.ip("link set lo up")?;
        Ok(space)
    }

    /// The path that another process of this user opens to enter it.
    pub(super) fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.link.as_raw_fd())
    }

    fn inside<T: Send>(
        &self,
        work: impl FnOnce() -> Result<T, Trouble> + Send,
    ) -> Result<T, Trouble> {
        aside(|| {
            enter(&self.link).map_err(failed)?;
            work()
        })
    }

    /// Runs `ip` inside with these words.
    fn ip(&self, words: &str) -> Result<(), Trouble> {
        self.program("ip", words, "iproute2")
    }

    /// Has Linux leave neither checksums nor cutting to a device, nor join what comes from it.
    fn leave_nothing_to(&self, device: &str) -> Result<(), Trouble> {
        let words = format!("-K {device} tx off rx off tso off gso off gro off");
        self.program("ethtool", &words, "ethtool")
    }

    /// Runs a program of a package inside with these words.
    fn program(&self, name: &str, words: &str, package: &str) -> Result<(), Trouble> {
        self.inside(|| {
            let output =
                Command::new(name).args(words.split(' ')).stdin(Stdio::null()).output().map_err(
                    |error| {
                        Trouble::Skipped(format!(
                            "needs the program {name}: {error} (apt install {package})"
                        ))
                    },
                )?;
            if output.status.success() {
                return Ok(());
            }
            let said = String::from_utf8_lossy(&output.stderr);
            Err(failed(format!("{name} {words}: {}", said.trim())))
        })
    }
}

/// Moves the calling thread into a namespace.
pub(super) fn enter(link: &File) -> rustix::io::Result<()> {
    move_into_link_name_space(link.as_fd(), Some(LinkNameSpaceType::Network))
}

/// Two namespaces with a veth pair between them.
pub(super) struct Spaces {
    spaces: [Space; 2],
    _between: Option<Space>,
}

/// The devices of the pair.
pub(super) const VETH: [&str; 2] = ["xkb0", "xkb1"];
/// Their other ends, if there is a space between.
pub(super) const BETWEEN: [&str; 2] = ["xkbm0", "xkbm1"];
/// Linux's addresses on the pair.
pub(super) const LINUX: [&str; 2] = ["10.77.0.1", "10.77.0.2"];

impl Spaces {
    /// Makes both.
    ///
    /// # Errors
    /// [`Trouble::Skipped`] without root or the program `ip`.
    pub(super) fn new(mtu_octets: Option<u16>) -> Result<Self, Trouble> {
        if !rustix::process::geteuid().is_root() {
            let words: Vec<String> = std::env::args().collect();
            return Err(Trouble::Skipped(format!("needs root (sudo {})", words.join(" "))));
        }
        let spaces = [Space::new()?, Space::new()?];
        let ([one, two], other) = (VETH, spaces[1].path());
        spaces[0].ip(&format!("link add {one} type veth peer name {two} netns {other}"))?;
        for (side, space) in spaces.iter().enumerate() {
            space.ip(&format!("addr add {}/24 dev {}", LINUX[side], VETH[side]))?;
            if let Some(mtu) = mtu_octets {
                space.ip(&format!("link set {} mtu {mtu}", VETH[side]))?;
            }
            space.ip(&format!("link set {} up", VETH[side]))?;
        }
        Ok(Self { spaces, _between: None })
    }

    /// Makes both with a third between them, which holds the other ends of their devices; answers
    /// its path as well. Nothing is left to devices.
    ///
    /// # Errors
    /// As for [`Spaces::new`].
    pub(super) fn with_space_between() -> Result<(Self, String), Trouble> {
        let spaces = [Space::new()?, Space::new()?];
        let between = Space::new()?;
        let path = between.path();
        for (side, space) in spaces.iter().enumerate() {
            let (mine, other) = (VETH[side], BETWEEN[side]);
            space.ip(&format!("link add {mine} type veth peer name {other} netns {path}"))?;
            space.ip(&format!("addr add {}/24 dev {mine}", LINUX[side]))?;
            for (place, device) in [(space, mine), (&between, other)] {
                place.leave_nothing_to(device)?;
                place.ip(&format!("link set {device} up"))?;
            }
        }
        let spaces = Self { spaces, _between: Some(between) };
        Ok((spaces, path))
    }

    /// Has Linux make frames of their real size with their checksums, and take each by itself.
    pub(super) fn leave_nothing_to_devices(&self) -> Result<(), Trouble> {
        for (side, space) in self.spaces.iter().enumerate() {
            space.leave_nothing_to(VETH[side])?;
        }
        Ok(())
    }

    /// The namespace of a side.
    pub(super) fn path(&self, side: usize) -> String {
        self.spaces[side].path()
    }
}

/// Namespaces whose devices hang on one bridge.
pub(super) struct Hub {
    spaces: Vec<Space>,
    _bridge: Space,
}

/// The device of each.
pub(super) const HUB: &str = "xkg0";

/// Linux's address of the one with this number.
pub(super) fn hub_address(number: usize) -> String {
    format!("10.78.0.{}", number + 1)
}

impl Hub {
    /// So many of them; groups go to all.
    ///
    /// # Errors
    /// [`Trouble::Skipped`] without root or the program `ip`.
    pub(super) fn new(count: usize) -> Result<Self, Trouble> {
        let bridge = Space::new()?;
        bridge.ip("link add br0 type bridge mcast_snooping 0")?;
        bridge.ip("link set br0 up")?;
        let other = bridge.path();
        let space = |number: usize| {
            let (space, port) = (Space::new()?, format!("p{number}"));
            space.ip(&format!("link add {HUB} type veth peer name {port} netns {other}"))?;
            bridge.ip(&format!("link set {port} master br0 up"))?;
            space.ip(&format!("addr add {}/24 dev {HUB}", hub_address(number)))?;
            space.ip(&format!("link set {HUB} up"))?;
            space.ip(&format!("route add 224.0.0.0/4 dev {HUB}"))?;
            Ok(space)
        };
        let spaces = (0..count).map(space).collect::<Result<_, Trouble>>()?;
        Ok(Self { spaces, _bridge: bridge })
    }

    /// The namespace with this number.
    pub(super) fn path(&self, number: usize) -> String {
        self.spaces[number].path()
    }
}
