//! # Synopsis
//! `tap` — a TAP device: the graph becomes a machine on an Ethernet whose other machine is the
//! host.
//!
//! # Participants
//! None: what is sent goes to the host.
//!
//! # Behaviour
//! If the device does not exist, it is made, and removed when the program ends. Its other end is an
//! interface of the host with a hardware address of its own. `host_address` gives that interface an
//! IPv4 address, and `host_routes` adds networks behind the graph, such as those of its other
//! links. Both are set when the graph is built, and vanish with a device that was made for it.
//!
//! Frames are Ethernet II without preamble, padding and check sequence. Only the host's memory lies
//! in between, so transport checksums are left unfinished in both directions (virtio-net header,
//! `TUN_F_CSUM`): UDP neither computes nor verifies them, and a capture on the host shows them
//! unfinished. Frames that leave by another wire get their checksum there. Runs of TCP segments
//! pass as one frame of up to 64 KiB in both directions (`TUN_F_TSO4`). With `offload=#false` all
//! checksums are complete and all segments single, in both directions.
//!
//! Frames are read directly into message memory and written directly from it. If the host has no
//! room, up to 256 frames wait, and more are dropped as "device full". Frames longer than the MTU
//! are counted as "lost in device", never truncated. Frames that the system refuses are counted as
//! "device error"; the wire goes on.
//!
//! Making or changing a device needs `CAP_NET_ADMIN`; opening one that was made for this user needs
//! no privilege. Settings that are already right are not set again. So `sudo ip tuntap add dev xk0
//! mode tap user $USER` and a few `ip` commands, done once, are enough for all later runs. Each
//! error names the command for its case.
//!
//! `fd=3` takes a descriptor that the program which starts this one has opened and left open, as
//! for containers and sandboxes: no privilege is needed, nor the device's network namespace. That
//! program makes the device (`TUNSETIFF` with `IFF_TAP | IFF_NO_PI`, and with `IFF_VNET_HDR` for
//! unfinished checksums), sets its addresses and routes, and brings it up. In place of a TAP device
//! it may be a connected Unix socket of datagrams, of which each is a frame, as QEMU's `-netdev
//! dgram` has; nothing is left unfinished then, and our hardware address depends on the socket
//! unless `address` is given. The descriptor becomes close-on-exec, and non-blocking for every
//! program that has it. It stays open until this program ends. A number that is not open, or stands
//! for something else, is refused.
//!
//! Programs may use the device without a graph, as [`TapDevice`]: [`TapDevice::receive`] takes a
//! frame that the host sent, [`TapDevice::transmit`] gives the host one, and neither blocks.
//!
//! ```no_run
//! use std::io::IoSlice;
//! use xk_tap::{Options, TapDevice};
//!
//! let host_address = Some(("10.0.5.1".parse()?, 24));
//! let options = Options { host_address, up: true, ..Options::create() };
//! let mut tap = TapDevice::open("xk0", &options)?;
//! let mut frame = vec![0; tap.frame_octets_max()];
//! while let Some(octets) = tap.receive(&mut frame)? {
//!     let received = frame.get(..octets).unwrap_or_default();
//!     tap.transmit(&[IoSlice::new(received)])?;
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! It has no room (`wire-room`) while its backlog is full.
//!
//! # Example
//! ```kdl
//! host machine {
//!     tap  device=xk0 host_address="10.9.0.1/24"
//!     eth  tap
//!     arp  eth
//!     ip   arp { address "10.9.0.2/24" }
//!     icmp ip
//! }
//! ```
//!
//! # Standard
//! Linux, `Documentation/networking/tuntap.rst`; netdevice(7) for the interface's settings. Virtio
//! 1.2, section 5.1.6, for the header in front of frames.

mod device;
mod device_unsafe;
mod error;
mod protocol;

pub use device::{Options, TapDevice, Transmitted};
pub use error::TapError;
pub use xk_kit::wire::virtio::{NOTE_OCTETS, Note, RUN_OCTETS_MAX};

use xk_core::Entry;
use xk_core::graph::{ParamKind, StackingRules, flag, optional, text};
use xk_kit::wire::entry::{address, ethernet};

/// The catalog entry.
#[rustfmt::skip]
pub static ENTRY: Entry = ethernet("tap", include_str!("lib.rs"), protocol::build)
    .replaceable()
    .summary("a TAP device: an Ethernet between the graph and the host")
    .stacking_rules(&StackingRules {
        own_address: Some("host_address"),
        sole: &["device", "fd"],
        ..StackingRules::NONE
    })
    .parameters(&[
        text("device", "a device's name, such as xk0", "xk0",
            "the device's name; it is made if there is none"),
        optional("fd", ParamKind::integer(0..=i32::MAX as i64),
            "the number of a descriptor that the program which starts this one leaves open: a TAP \
             device, or a Unix socket of datagrams that are frames")
            .instead_of(&["device", "host_address", "host_routes"]),
        optional("host_address", ParamKind::Text("an IPv4 address and prefix, such as 10.9.0.1/24"),
            "the host's IPv4 address on this Ethernet, with the length of its prefix"),
        optional("host_routes", ParamKind::Text(protocol::ROUTES),
            "networks that the host reaches by machines on this Ethernet, such as ours"),
        address("our hardware address; if not given, one that depends on the host's"),
        optional("mtu", ParamKind::Octets, "sets the device's MTU, 68 to 65521 octets; beside `fd` it is the MTU that the device has, \
             by default as the system says, or 1500"),
        flag("offload", true,
            "whether transport checksums stay open between the host and us, and runs of TCP \
             segments whole"),
    ])
    .probe(protocol::probe);
