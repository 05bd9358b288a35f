//! The task of one of the two processes of a measurement, as it is handed over.

use crate::case::Trouble;
use crate::rpc::stacks::Stack;
use serde::{Deserialize, Serialize};
use std::io::Write as _;
use std::time::Duration;

/// The environment variable that makes a program one end of a measurement.
pub(super) const VARIABLE: &str = "XK_BENCH_PEER";
/// The word by which a child says that it can be sent to.
pub(super) const READY: &str = "ready";
/// Connections over a wire with faults: many, for chance to even out.
pub(crate) const FLOWS: u32 = 16;

/// The wire that carries frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Wire {
    Packet,
    Xdp,
    Tap,
    Shm,
    Host,
    /// The machine's own UDP, below what stands on UDP: the loopback device carries it.
    HostUdp,
}

impl Wire {
    /// The name in the catalog.
    pub(super) fn kind(self) -> &'static str {
        match self {
            Self::Packet => "packet",
            Self::Xdp => "xdp",
            Self::Tap => "tap",
            Self::Shm => "shm",
            Self::Host => "host-eth",
            Self::HostUdp => "host-udp",
        }
    }
}

/// A way between two ends that has faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Path {
    /// One that loses.
    Lossy,
    /// One of 100 Mbit/s and 200 ms there and back.
    LongFat,
    /// Such a one that loses.
    LongFatLossy,
}

impl Path {
    /// Faults that each frame suffers, once: as parameters of `fault`. The queue of a way with a
    /// rate has room for a window, beside what is held for its delay.
    pub(super) fn faults(self) -> &'static str {
        match self {
            Self::Lossy => "loss=\"1%\" delay=\"10ms\" queue=65536",
            Self::LongFat => "delay=\"100ms\" rate=\"100Mbit\" queue=2500",
            Self::LongFatLossy => "loss=\"1%\" delay=\"100ms\" rate=\"100Mbit\" queue=2500",
        }
    }

    fn flows(self) -> u32 {
        match self {
            Self::Lossy | Self::LongFatLossy => FLOWS,
            Self::LongFat => 1,
        }
    }
}

/// The congestion controls of xk that are measured over such a way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Congestion {
    Cubic,
    Bbr,
}

/// The system that exchanges messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum System {
    /// A graph of xk with UDP at its top, over a wire.
    Xk(Wire),
    /// A graph of xk with ETH at its top, over a packet socket.
    XkEth,
    /// A graph of xk with IP at its top, over a packet socket.
    XkIp,
    /// Raw IP sockets of Linux over the veth pair.
    LinuxIp,
    /// A user on the sockets of Linux, by way of a graph.
    XkHost,
    /// A user right on a wire of xk.
    XkFrames(Wire),
    /// The wire's rings or calls without any stack.
    Bare(Wire),
    /// UDP sockets of Linux over the veth pair.
    LinuxVeth,
    /// UDP sockets of Linux over the loopback device.
    LinuxLoopback,
    /// These two with segmentation offload: many messages a call.
    LinuxVethJoined,
    LinuxLoopbackJoined,
    /// smoltcp over a packet socket.
    Smoltcp,
    /// A graph of xk with TCP at its top, over a wire.
    XkTcp(Wire),
    /// Such a graph over shared memory whose frames bear 65,535 octets.
    XkTcpLarge,
    /// xk's TCP over a packet socket to a way with faults.
    XkTcpFaulty(Path, Congestion),
    /// Linux's with CUBIC, without offloads, to the same.
    LinuxTcpFaulty(Path),
    /// The way with faults between the two ends.
    Between(Path),
    /// xk's TCP over a packet socket with buffers of four kilobytes.
    XkTcpSmall,
    /// Linux's over the veth pair without offloads, with such buffers.
    LinuxTcpSmall,
    /// TCP sockets of Linux over the veth pair.
    LinuxTcpVeth,
    /// These without any offload: the devices get frames of 1514 octets with their checksums.
    LinuxTcpVethPlain,
    /// TCP sockets of Linux over the loopback device.
    LinuxTcpLoopback,
    /// A graph of xk with a configuration of RPC, over a wire.
    Rpc(Stack, Wire),
}

impl System {
    const ALL: [(System, &'static str); 32] = [
        (Self::XkEth, "xk packet eth"),
        (Self::XkIp, "xk packet ip"),
        (Self::LinuxIp, "Linux raw ip"),
        (Self::Xk(Wire::Shm), "xk shm"),
        (Self::Xk(Wire::Xdp), "xk xdp"),
        (Self::Xk(Wire::Packet), "xk packet"),
        (Self::Xk(Wire::Tap), "xk tap to Linux"),
        (Self::XkHost, "xk host-udp"),
        (Self::XkFrames(Wire::Shm), "xk shm wire"),
        (Self::XkFrames(Wire::Xdp), "xk xdp wire"),
        (Self::XkFrames(Wire::Packet), "xk packet wire"),
        (Self::XkFrames(Wire::Tap), "xk tap wire"),
        (Self::XkFrames(Wire::Host), "xk host-eth wire"),
        (Self::Bare(Wire::Shm), "bare shm"),
        (Self::Bare(Wire::Xdp), "bare xdp"),
        (Self::Bare(Wire::Packet), "bare packet"),
        (Self::Bare(Wire::Tap), "bare tap"),
        (Self::Bare(Wire::Host), "bare sockets"),
        (Self::LinuxVeth, "Linux veth"),
        (Self::LinuxLoopback, "Linux loopback"),
        (Self::LinuxVethJoined, "Linux veth, GSO"),
        (Self::LinuxLoopbackJoined, "Linux loopback, GSO"),
        (Self::Smoltcp, "smoltcp packet"),
        (Self::XkTcp(Wire::Shm), "xk tcp shm"),
        (Self::XkTcp(Wire::Xdp), "xk tcp xdp"),
        (Self::XkTcp(Wire::Packet), "xk tcp packet"),
        (Self::XkTcpLarge, "xk tcp shm, MTU 65535"),
        (Self::XkTcpSmall, "xk tcp packet, buffers of 4 KiB"),
        (Self::LinuxTcpSmall, "Linux tcp veth, buffers of 4 KiB"),
        (Self::LinuxTcpVeth, "Linux tcp veth"),
        (Self::LinuxTcpVethPlain, "Linux tcp veth, no offloads"),
        (Self::LinuxTcpLoopback, "Linux tcp loopback"),
    ];

    /// The wire that it stands on, if that is said.
    pub(super) fn wire(self) -> Option<Wire> {
        match self {
            Self::Xk(wire) | Self::XkFrames(wire) | Self::Bare(wire) => Some(wire),
            Self::XkTcp(wire) | Self::Rpc(_, wire) => Some(wire),
            Self::XkTcpLarge => Some(Wire::Shm),
            _ => None,
        }
    }

    /// The way with faults that it goes, if there is one.
    pub(super) fn path(self) -> Option<Path> {
        match self {
            Self::XkTcpFaulty(path, _) | Self::LinuxTcpFaulty(path) => Some(path),
            _ => None,
        }
    }

    /// Connections that send at once.
    pub(super) fn flows(self) -> u32 {
        self.path().map_or(1, Path::flows)
    }

    /// The name in tables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Rpc(_, Wire::Shm) => "xk shm",
            Self::Rpc(_, Wire::Xdp) => "xk xdp",
            Self::Rpc(_, Wire::HostUdp) => "xk host-udp",
            Self::Rpc(..) => "xk packet",
            Self::XkTcpFaulty(_, Congestion::Cubic) => "xk, cubic",
            Self::XkTcpFaulty(_, Congestion::Bbr) => "xk, bbr",
            Self::LinuxTcpFaulty(_) => "Linux, cubic",
            Self::Between(_) => "fault between",
            _ => {
                let found = Self::ALL.iter().find(|(system, _)| *system == self);
                found.map_or("?", |(_, name)| name)
            }
        }
    }
}

/// The task of an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Task {
    /// Sends a message, waits for the answer, and so on.
    Ask,
    /// Sends back what comes.
    Answer,
    /// Sends the first octet of what comes back.
    Acknowledge,
    /// Sends as fast as it can.
    Send,
    /// Counts what comes.
    Receive,
    /// Opens a connection, has one octet sent back, closes it, and so on.
    Connect,
    /// Takes connections and sends back what comes, until the peer closes.
    Accept,
    /// Calls, one call after the other.
    Call,
    /// Executes what is called.
    Execute,
}

impl Task {
    /// Whether it waits for the other side to begin.
    pub(super) fn is_passive(self) -> bool {
        matches!(
            self,
            Self::Answer | Self::Acknowledge | Self::Receive | Self::Accept | Self::Execute
        )
    }
}

/// One end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Endpoint {
    pub(super) system: System,
    pub(super) task: Task,
    /// End of the testbed: 0 or 1.
    pub(super) side: usize,
    /// Octets of a message, as the system's user sees it.
    pub(super) octets: usize,
    /// Whether it never sleeps.
    pub(super) spins: bool,
    /// The first of two ports: of the end that asks or sends. The other has the next.
    pub(super) port: u16,
    /// The core that it runs on; all if there is none.
    pub(super) core: Option<usize>,
    /// Time for which it measures.
    pub(super) time: Duration,
    /// The namespace to go to, if it is not the parent's.
    pub(super) space: Option<String>,
    /// The file by which both ends meet, if they do so by one.
    pub(super) meeting: Option<String>,
}

impl Endpoint {
    pub(super) fn to_text(&self) -> String {
        serde_json::to_string(self).expect("plain data")
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }
}

/// Writes a line to the parent.
pub(super) fn say(line: &str) {
    let mut output = std::io::stdout().lock();
    // A parent that has ended reads no more.
    let _ = writeln!(output, "{line}").and_then(|()| output.flush());
}

/// Tells the parent that messages may come.
pub(super) fn ready() {
    say(READY);
}

/// Anything that goes wrong at the system's hand.
pub(super) fn failed(what: &str) -> impl Fn(std::io::Error) -> Trouble {
    move |error| Trouble::Failed(format!("{what}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_survives_its_way_to_the_other_process() {
        for system in [System::Xk(Wire::Shm), System::Rpc(Stack::SunUdp, Wire::HostUdp)] {
            let end = Endpoint {
                system,
                task: Task::Acknowledge,
                side: 1,
                octets: 1400,
                spins: true,
                port: 20_000,
                core: Some(3),
                time: Duration::from_micros(12_345),
                space: Some("/proc/1/fd/3".into()),
                meeting: None,
            };
            assert_eq!(Endpoint::parse(&end.to_text()), Some(end));
        }
        assert_eq!(Endpoint::parse("{}"), None);
    }
}
