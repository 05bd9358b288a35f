//! The configurations of protocols whose calls are measured, each as lines of a graph file and what
//! its user opens.

use crate::case::Trouble;
use serde::{Deserialize, Serialize};
use xk_catalog::PROTOCOLS;
use xk_core::{HostAddr, Part, Participant, Participants};
use xk_kit::rpc::call::{PROCEDURE, PROGRAM, VERSION};

/// The procedure that answers nothing; of a program of ONC RPC too, whose layers answer procedure 0
/// by themselves (RFC 5531, section 12.1).
const NULL: u64 = 1;
/// A program from those for any use (RFC 5531, section 14), and a port below those that Linux
/// gives by itself.
const SUN_PROGRAM: u64 = 0x2000_1991;
const SUN_VERSION: u64 = 1;
const SUN_PORT: u16 = 20_491;

/// A configuration, named as in the paper: "RPC in the x-Kernel: Evaluating New Design Techniques",
/// sections 3 and 4. Packets are the paper's, of 1500 octets, for both kinds: `mrpc` fills them as
/// `fragment` does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Stack {
    MonolithicEth,
    MonolithicIp,
    MonolithicVip,
    Vip,
    FragmentVip,
    ChannelFragmentVip,
    /// L.RPC-VIP: SELECT-CHANNEL-FRAGMENT-VIP.
    LayeredVip,
    /// SELECT-CHANNEL-VIPsize, with FRAGMENT beneath for what is large.
    LayeredVipSize,
    /// The monolithic and the layered one right on a wire between two.
    MonolithicLink,
    LayeredLink,
    /// CHANNEL alone, without SELECT.
    ChannelLink,
    /// Sun RPC in layers over UDP.
    SunUdp,
    /// Sun RPC in layers over the machine's UDP.
    SunHostUdp,
    /// Sun RPC in layers on CHANNEL and FRAGMENT.
    SunChannelVip,
    VmtpIp,
    VmtpVip,
}

impl Stack {
    /// All of them.
    pub(crate) const ALL: [Self; 16] = [
        Self::MonolithicEth,
        Self::MonolithicIp,
        Self::MonolithicVip,
        Self::Vip,
        Self::FragmentVip,
        Self::ChannelFragmentVip,
        Self::LayeredVip,
        Self::LayeredVipSize,
        Self::MonolithicLink,
        Self::LayeredLink,
        Self::ChannelLink,
        Self::SunUdp,
        Self::SunHostUdp,
        Self::SunChannelVip,
        Self::VmtpIp,
        Self::VmtpVip,
    ];

    /// The name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::MonolithicEth => "M.RPC-ETH",
            Self::MonolithicIp => "M.RPC-IP",
            Self::MonolithicVip => "M.RPC-VIP",
            Self::Vip => "VIP",
            Self::FragmentVip => "FRAGMENT-VIP",
            Self::ChannelFragmentVip => "CHANNEL-FRAGMENT-VIP",
            Self::LayeredVip => "SELECT-CHANNEL-FRAGMENT-VIP",
            Self::LayeredVipSize => "SELECT-CHANNEL-VIPsize",
            Self::MonolithicLink => "M.RPC on the wire",
            Self::LayeredLink => "SELECT-CHANNEL on the wire",
            Self::ChannelLink => "CHANNEL on the wire",
            Self::SunUdp => "SUN.SELECT-REQUEST.REPLY-UDP",
            Self::SunHostUdp => "SUN.SELECT-REQUEST.REPLY on the machine's UDP",
            Self::SunChannelVip => "SUN.SELECT-CHANNEL-FRAGMENT-VIP",
            Self::VmtpIp => "VMTP-IP",
            Self::VmtpVip => "VMTP-VIP",
        }
    }

    /// Lines of a graph above a node that carries frames and is called `wire`.
    pub(crate) fn lines(self, wire: &str, address: &str) -> String {
        let frames = format!("eth {wire}\narp eth\nip arp {{ address \"{address}/24\"; }}\n");
        let upper = self.upper_lines().replace("WIRE", wire);
        if self.upper_lines() == upper { frames + &upper } else { upper }
    }

    /// The lines on `arp` and `ip`, or all, on `WIRE`.
    fn upper_lines(self) -> &'static str {
        match self {
            Self::MonolithicLink => "mrpc WIRE fragment=0",
            Self::LayeredLink => "channel WIRE\nselect channel",
            Self::ChannelLink => "channel WIRE",
            Self::SunHostUdp => "reqrep WIRE\nsunselect reqrep\nsunprog sunselect",
            Self::MonolithicEth => "mrpc arp fragment=0",
            Self::MonolithicIp => "mrpc ip fragment=0",
            Self::MonolithicVip => "vip arp ip\nmrpc vip fragment=0",
            Self::Vip => "vip arp ip",
            Self::VmtpIp => "vmtp ip",
            Self::VmtpVip => "vip arp ip\nvmtp vip",
            Self::FragmentVip => "vip arp ip\nfragment vip",
            Self::ChannelFragmentVip => "vip arp ip\nfragment vip\nchannel fragment",
            Self::LayeredVip => "vip arp ip\nfragment vip\nchannel fragment\nselect channel",
            Self::LayeredVipSize => {
                "vipaddr arp ip\nfragment vipaddr\nvipsize vipaddr fragment\nchannel vipsize\nselect channel"
            }
            Self::SunUdp => "udp ip\nreqrep udp\nsunselect reqrep\nsunprog sunselect",
            Self::SunChannelVip => {
                "vip arp ip\nfragment vip\nchannel fragment\nsunselect channel\nsunprog sunselect"
            }
        }
    }

    /// The kinds of its upper lines, which are the nodes' names, too.
    fn kinds(self) -> impl DoubleEndedIterator<Item = &'static str> {
        self.upper_lines().lines().filter_map(|line| line.split(' ').next())
    }

    /// The node that the user stands on.
    pub(crate) fn top(self) -> &'static str {
        self.kinds().next_back().unwrap_or_default()
    }

    /// Whether its user calls; else it sends a message and has it sent back.
    pub(crate) fn has_calls(self) -> bool {
        !matches!(self, Self::Vip | Self::FragmentVip)
    }

    /// Checks that the catalog has all its protocols.
    ///
    /// # Errors
    /// [`Trouble::Skipped`] with what it lacks.
    pub(crate) fn is_known(self) -> Result<(), Trouble> {
        match self.kinds().find(|kind| PROTOCOLS.iter().all(|known| known.kind != *kind)) {
            Some(kind) => Err(Trouble::Skipped(format!("the catalog has no `{kind}`"))),
            None => Ok(()),
        }
    }

    /// Whether it stands on a wire that carries frames.
    pub(crate) fn takes_frames(self) -> bool {
        self != Self::SunHostUdp
    }

    /// Whether it cuts messages that are larger than a frame.
    pub(crate) fn has_fragments(self) -> bool {
        !matches!(self, Self::LayeredLink | Self::ChannelLink | Self::Vip)
    }

    /// Whether it stands on frames with addresses.
    fn has_hosts(self) -> bool {
        !matches!(self, Self::MonolithicLink | Self::LayeredLink | Self::ChannelLink)
    }

    /// A participant of this host, with the part above it that the stack needs.
    fn named(self, host: Part) -> Participant {
        // On a wire between two there is no host but the other.
        let host = match self.has_hosts() {
            true => Participant::of(host),
            false => Participant::new(),
        };
        match self {
            Self::Vip | Self::FragmentVip | Self::ChannelFragmentVip | Self::ChannelLink => host,
            Self::SunUdp | Self::SunHostUdp | Self::SunChannelVip => {
                let host = match self {
                    Self::SunUdp | Self::SunHostUdp => host.with(Part::port(SUN_PORT)),
                    _ => host,
                };
                host.with(Part::Number(PROGRAM, SUN_PROGRAM))
                    .with(Part::Number(VERSION, SUN_VERSION))
                    .with(Part::Number(PROCEDURE, NULL))
            }
            _ => host.with(Part::Number(PROCEDURE, NULL)),
        }
    }

    /// The participants that a caller opens, to call the host of this address.
    pub(crate) fn calls(self, address: &str) -> Participants {
        let host = Part::Host(address.parse().unwrap_or(HostAddr::UNSPECIFIED));
        let peer = self.named(host);
        let mut local = Participant::new();
        for _ in peer.parts() {
            local.push(Part::Any);
        }
        Participants::pair(local, peer)
    }

    /// The participants that a server enables.
    pub(crate) fn serves(self) -> Participants {
        Participants::local(self.named(Part::Any))
    }
}

/// The numbers of the users, which the catalog's protocols do not know: those for experiments (RFC
/// 3692, section 2.1), and the same on what carries IP's numbers; on Ethernet the one that `vip`
/// derives.
pub(crate) const USERS: [(&str, u32); 5] =
    [("eth", 0x3900 + 253), ("ip", 253), ("vip", 253), ("fragment", 253), ("channel", 253)];
