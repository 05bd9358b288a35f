//! xk: a graph composed from its text and run by the poll loop, with a user at its top.

use super::call_user::CallUser;
use super::course::Top;
use super::endpoint::{Congestion, Endpoint, System, Wire};
use super::endpoint::{failed, ready};
use super::frames::{TAP, address_of, header};
use super::sockets::{IP_PROTOCOL, port};
use super::space::VETH;
use super::stream_user::StreamUser;
use super::user::User;
use crate::case::Trouble;
use crate::rpc::stacks::{Stack, USERS};
use serde_json::Value;
use std::io;
use std::rc::Rc;
use xk_catalog::PROTOCOLS;
use xk_compose::{HostSetup, OpenHost};
use xk_core::graph::Catalog;
use xk_core::numbers::Number;
use xk_core::{HostAddr, Kernel, Part, Participant, Participants, ProtocolRef};
use xk_kit::EthAddr;
use xk_lang::HostInstance;
use xk_run::Idle;

/// Memory for the messages of an end, in octets.
const POOL_OCTETS: usize = 64 << 20;

/// The wire's line of the graph.
fn wire_line(end: &Endpoint, wire: Wire) -> String {
    let meeting = end.meeting.as_deref().unwrap_or_default();
    match wire {
        Wire::Packet => format!("packet device={} name=wire", VETH[end.side]),
        // What is for its address is the wire's.
        Wire::Xdp => {
            let address = EthAddr(address_of(end.side));
            format!("xdp device={} address=\"{address}\" name=wire", VETH[end.side])
        }
        Wire::Tap => format!("tap device={TAP} host_address=\"{}/24\" name=wire", address(1)),
        Wire::Host => {
            let at = |side: usize| format!("127.0.0.1:{}", port(end, side == 1));
            let (mine, other) = (at(end.side), at(1 - end.side));
            format!("host-eth local=\"{mine}\" peer=\"{other}\" mtu=1500 name=wire")
        }
        Wire::Shm => format!("shm path=\"{meeting}\" name=wire"),
        Wire::HostUdp => "host-udp local=\"127.0.0.1\" name=wire".into(),
    }
}

/// The address of a side; over TAP, Linux has the second.
fn address(side: usize) -> &'static str {
    ["10.77.1.1", "10.77.1.2"][side]
}

/// Address of both ends on the machine's own loopback device.
const LOOPBACK: &str = "127.0.0.1";

/// A graph of IP, ARP and ETH over a wire with these properties, and a line above.
fn internet(end: &Endpoint, wire: Wire, properties: &str, above: &str) -> String {
    format!(
        "host end {{\n{}{properties}\neth wire\narp eth\nip arp {{ address \"{}/24\"; }}\n{above}\n}}\n",
        wire_line(end, wire),
        address(end.side),
    )
}

/// A host of these digits.
fn at_host(host: &str) -> Participant {
    Participant::of(Part::Host(host.parse().unwrap_or(HostAddr::UNSPECIFIED)))
}

/// The participants of a user: `mine` and `peer` to send, or those that it serves.
fn participants(end: &Endpoint, [mine, peer]: [Participant; 2], served: Part) -> Participants {
    match end.task.is_passive() {
        false => Participants::pair(mine, peer),
        true => Participants::local(served),
    }
}

/// [`participants`] on UDP, of these hosts.
fn with_ports(end: &Endpoint, [mine, peer]: [&str; 2]) -> Participants {
    let at = |answers, host| at_host(host).with(Part::port(port(end, answers)));
    participants(end, [at(false, mine), at(true, peer)], Part::port(port(end, true)))
}

/// UDP, IP, ARP and ETH over a wire, with a user that knows its peer's port and host.
pub(super) fn datagrams(end: &Endpoint, wire: Wire) -> Result<Value, Trouble> {
    if wire == Wire::Tap && end.side == 1 {
        return super::sockets::run(end);
    }
    let hosts = [end.side, 1 - end.side].map(address);
    run(end, wire.kind(), &internet(end, wire, "", "udp ip"), ("udp", with_ports(end, hosts)), &[])
}

/// The number of the user on ETH: the first EtherType for local experiments (IEEE 802-2014 section
/// 9.2.4).
const ETHER_TYPE: u32 = 0x88b5;
/// ETH over a packet socket, with a user that knows its peer's station.
pub(super) fn stations(end: &Endpoint) -> Result<Value, Trouble> {
    let text = format!(
        "host end {{\n{} address=\"02:00:00:00:77:0{}\"\neth wire\n}}\n",
        wire_line(end, Wire::Packet),
        end.side,
    );
    let peer = Participant::of(Part::Ether([2, 0, 0, 0, 0x77, 1 - end.side as u8]));
    let participants = participants(end, [Participant::of(Part::Any), peer], Part::Any);
    run(end, Wire::Packet.kind(), &text, ("eth", participants), &[])
}

/// IP, ARP and ETH over a packet socket, with a user that knows its peer's host.
pub(super) fn hosts(end: &Endpoint) -> Result<Value, Trouble> {
    let text = internet(end, Wire::Packet, "", "");
    let hosts = [end.side, 1 - end.side].map(|side| at_host(address(side)));
    run(end, Wire::Packet.kind(), &text, ("ip", participants(end, hosts, Part::Any)), &[])
}

/// The system's sockets as a lower layer, over its loopback device.
pub(super) fn host(end: &Endpoint) -> Result<Value, Trouble> {
    let participants = with_ports(end, [LOOPBACK; 2]);
    run(end, "host-udp", "host end {\nhost-udp name=udp\n}\n", ("udp", participants), &[])
}

/// A wire and a user that makes whole frames.
pub(super) fn frames(end: &Endpoint, wire: Wire) -> Result<Value, Trouble> {
    if wire == Wire::Tap && end.side == 1 {
        return super::frames::tap(end);
    }
    let text = format!("host end {{\n{}\n}}\n", wire_line(end, wire));
    run(end, wire.kind(), &text, ("wire", Participants::default()), &header(end.side))
}

/// TCP, IP, ARP and ETH over a wire, with a user that knows its peer's port and host.
pub(super) fn streams(end: &Endpoint, wire: Wire) -> Result<Value, Trouble> {
    let large = match end.system {
        System::XkTcpLarge => " mtu=65535",
        _ => "",
    };
    let settings = match end.system {
        System::XkTcpSmall => " receive_buffer=\"4KiB\" send_buffer=\"4KiB\"",
        System::XkTcpFaulty(_, Congestion::Cubic) => " congestion=cubic",
        System::XkTcpFaulty(_, Congestion::Bbr) => " congestion=bbr",
        _ => "",
    };
    let text = internet(end, wire, large, &format!("tcp ip no_delay=#true{settings}"));
    let host = |side| at_host(address(side));
    let is_server = end.task.is_passive();
    let ends = (host(end.side), host(1 - end.side).with(Part::port(port(end, !is_server))));
    run_under(end, wire.kind(), &text, "tcp", |lower| {
        StreamUser::new(end, ends, port(end, is_server), lower)
    })
}

/// Octets of arguments that go into Ethernet's frames.
const FRAME_OCTETS: usize = 1400;
/// Room for the headers of RPC where frames bear whole messages.
const HEADERS_OCTETS: usize = 4096;

/// A configuration of RPC over a wire, with a user that calls or executes.
pub(super) fn calls(end: &Endpoint, stack: Stack, wire: Wire) -> Result<Value, Trouble> {
    stack.is_known()?;
    let address = match wire {
        Wire::HostUdp => |_| LOOPBACK,
        _ => address,
    };
    let lines = stack.lines("wire", address(end.side));
    // A stack without fragments needs frames for whole messages.
    let frames = match end.octets > FRAME_OCTETS && !stack.has_fragments() {
        true => format!(" mtu={}", end.octets + HEADERS_OCTETS),
        false => String::new(),
    };
    let wire_line = wire_line(end, wire);
    let text = format!("host end {{\n{wire_line}{frames}\n{lines}\n}}\n");
    let participants = match end.task.is_passive() {
        false => stack.calls(address(1 - end.side)),
        true => stack.serves(),
    };
    if stack.has_calls() {
        return run_under(end, wire.kind(), &text, stack.top(), |lower| {
            CallUser::new(end, participants, lower)
        });
    }
    run(end, wire.kind(), &text, (stack.top(), participants), &[])
}

/// Runs a graph with a user on the node `lower`, that puts `header` before each message, if nothing
/// below does.
fn run(
    end: &Endpoint,
    kind: &str,
    text: &str,
    (lower, participants): (&'static str, Participants),
    header: &[u8],
) -> Result<Value, Trouble> {
    run_under(end, kind, text, lower, |lower| User::new(end, (lower, participants), header))
}

/// Runs a graph with what `make` makes on top of its node `lower`.
pub(super) fn run_under<T: Top + 'static>(
    end: &Endpoint,
    kind: &str,
    text: &str,
    lower: &'static str,
    make: impl FnOnce(ProtocolRef) -> T,
) -> Result<Value, Trouble> {
    if !PROTOCOLS.iter().any(|entry| entry.kind == kind) {
        return Err(Trouble::Skipped(format!("the catalog has no `{kind}`")));
    }
    let mut setup = HostSetup::from_text(text, PROTOCOLS);
    setup.idle = if end.spins { Idle::Spin } else { Idle::Sleep };
    setup.pool_octets_max = POOL_OCTETS;
    let stand = |kernel: &Kernel, _: &HostInstance<'_>, _: &Catalog| {
        let missing = || io::Error::other(format!("the graph has no {lower}"));
        let own = [("eth", ETHER_TYPE), ("ip", u32::from(IP_PROTOCOL))];
        let numbers = match end.system {
            System::Rpc(..) => &USERS[..],
            _ => &own,
        };
        for &(lower, number) in numbers {
            let upper = "user";
            let _ = kernel.numbers_mut().add(Number { upper, lower, number });
        }
        let user = make(kernel.find_protocol(lower).ok_or_else(missing)?);
        Ok((kernel.add_protocol("user", "user", user.clone()), user))
    };
    let opened = setup.open(stand, |_, _| Ok(())).map_err(|error| {
        // What is said first to a person; the rest shows the place in a file that there is none of.
        let text = error.to_string();
        let first = text.lines().next().unwrap_or_default().to_owned();
        match error.kind() {
            io::ErrorKind::Unsupported => Trouble::Skipped(first),
            _ => Trouble::Failed(first),
        }
    })?;
    let OpenHost { kernel, runner, top: (this, user) } = opened;
    ready();
    let found = user.clone();
    let turn = Rc::new(move |cx: &Kernel| {
        let is_over = user.course().is_over(cx.now());
        user.turn(cx, &this);
        is_over
    });
    let ended = runner.run(Some(found.course().limit), turn).map_err(failed("the poll loop ended"));
    drop(runner);
    kernel.stop();
    ended?;
    found.result()
}
