//! Pairs of virtual interfaces, by rtnetlink(7).

use std::io;
use std::os::fd::OwnedFd;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage,
    NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{
    InfoData, InfoKind, InfoVeth, LinkAttribute, LinkInfo, LinkMessage,
};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType, netlink};

/// Octets of an answer at most: an error with the request's beginning.
const ANSWER_OCTETS: usize = 4096;

/// One end of a pair.
fn end(name: &str, mtu: usize) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.attributes = vec![
        LinkAttribute::IfName(name.to_owned()),
        LinkAttribute::Mtu(u32::try_from(mtu).unwrap_or(u32::MAX)),
    ];
    message
}

/// Makes a pair of these names, in this thread's network namespace, and brings both ends up.
///
/// # Errors
/// What the system answers: no right (`CAP_NET_ADMIN`), a name that is taken.
pub(crate) fn make([one, other]: [&str; 2], mtu: usize) -> io::Result<()> {
    let mut message = end(one, mtu);
    message.attributes.push(LinkAttribute::LinkInfo(vec![
        LinkInfo::Kind(InfoKind::Veth),
        LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(end(other, mtu)))),
    ]));
    ask(RouteNetlinkMessage::NewLink(message), NLM_F_CREATE | NLM_F_EXCL)?;
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    xk_linux::set_up(&socket, one)?;
    xk_linux::set_up(&socket, other)
}

/// Removes a pair by the number of one of its ends.
///
/// # Errors
/// There is none.
pub(crate) fn remove(index: u32) -> io::Result<()> {
    let mut message = LinkMessage::default();
    message.header.index = index;
    ask(RouteNetlinkMessage::DelLink(message), 0)
}

/// Has the system do what is asked.
fn ask(message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | NLM_F_ACK | flags;
    let mut request = NetlinkMessage::new(header, NetlinkPayload::from(message));
    request.finalize();
    let mut octets = vec![0; request.buffer_len()];
    request.serialize(&mut octets);
    // No protocol is that of routes and links, NETLINK_ROUTE.
    let socket: OwnedFd = rustix::net::socket(AddressFamily::NETLINK, SocketType::RAW, None)?;
    let system = netlink::SocketAddrNetlink::new(0, 0);
    rustix::net::sendto(&socket, &octets, SendFlags::empty(), &system)?;
    let mut answer = [0; ANSWER_OCTETS];
    let (octets, _) = rustix::net::recv(&socket, &mut answer[..], RecvFlags::empty())?;
    let answer = answer.get(..octets).unwrap_or_default();
    match NetlinkMessage::<RouteNetlinkMessage>::deserialize(answer).map(|said| said.payload) {
        Ok(NetlinkPayload::Error(said)) if said.code.is_none() => Ok(()),
        Ok(NetlinkPayload::Error(said)) => Err(said.to_io()),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}
