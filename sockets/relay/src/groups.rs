//! Options of groups, as programs have them: structures with the group, an interface, and a source
//! (ip(7), RFC 3678).

use rustix::io::Errno;
use std::net::Ipv4Addr;
use xk_kit::net::groups::Filter;
use xk_net::GroupChange;
use xk_request::Setting;

/// Options of RFC 3678 that take addresses of any family.
const JOIN_GROUP: i32 = 42;
const BLOCK_SOURCE: i32 = 43;
const UNBLOCK_SOURCE: i32 = 44;
const LEAVE_GROUP: i32 = 45;
const JOIN_SOURCE_GROUP: i32 = 46;
const LEAVE_SOURCE_GROUP: i32 = 47;

/// A wish of a program about groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    /// A change of its membership in a group, on the interface with this host.
    Change(Ipv4Addr, Ipv4Addr, GroupChange),
    /// Sends to groups by the interface with this host.
    From(Ipv4Addr),
}

/// Reads the wish of an option; `None` if it is none about groups, or one that is not done here.
///
/// An interface that is named by its number counts as none: the graph's have no numbers of Linux's.
///
/// # Errors
/// `EINVAL` for a value that is too short, or an address of another family.
pub(crate) fn wish(setting: &Setting) -> Option<Result<Wish, Errno>> {
    if setting.level != libc::IPPROTO_IP {
        return None;
    }
    let value = &setting.value[..];
    let change = |source: Result<Ipv4Addr, Errno>, how: fn(xk_net::HostAddr) -> GroupChange| {
        let (group, on) = (address(value, 0)?, address(value, 4)?);
        Ok(Wish::Change(group, on, how(source?.into())))
    };
    let change_any = |how: fn(xk_net::HostAddr) -> GroupChange| {
        let source = storage(value, 1)?;
        Ok(Wish::Change(storage(value, 0)?, Ipv4Addr::UNSPECIFIED, how(source.into())))
    };
    let all = |change| {
        let (group, on) = (address(value, 0)?, address(value, 4)?);
        Ok(Wish::Change(group, on, change))
    };
    let all_any = |change| Ok(Wish::Change(storage(value, 0)?, Ipv4Addr::UNSPECIFIED, change));
    Some(match setting.option {
        // An address alone, or the second field of a structure.
        libc::IP_MULTICAST_IF if value.len() < 8 => address(value, 0).map(Wish::From),
        libc::IP_MULTICAST_IF => address(value, 4).map(Wish::From),
        libc::IP_ADD_MEMBERSHIP => all(GroupChange::Join),
        libc::IP_DROP_MEMBERSHIP => all(GroupChange::Leave),
        libc::IP_ADD_SOURCE_MEMBERSHIP => change(address(value, 8), GroupChange::JoinSource),
        libc::IP_DROP_SOURCE_MEMBERSHIP => change(address(value, 8), GroupChange::LeaveSource),
        libc::IP_BLOCK_SOURCE => change(address(value, 8), GroupChange::Block),
        libc::IP_UNBLOCK_SOURCE => change(address(value, 8), GroupChange::Unblock),
        libc::IP_MSFILTER => filter(value),
        JOIN_GROUP => all_any(GroupChange::Join),
        LEAVE_GROUP => all_any(GroupChange::Leave),
        JOIN_SOURCE_GROUP => change_any(GroupChange::JoinSource),
        LEAVE_SOURCE_GROUP => change_any(GroupChange::LeaveSource),
        BLOCK_SOURCE => change_any(GroupChange::Block),
        UNBLOCK_SOURCE => change_any(GroupChange::Unblock),
        _ => return None,
    })
}

/// All sources of a group at once: group, interface, mode and count, and as many sources.
fn filter(value: &[u8]) -> Result<Wish, Errno> {
    let word = |at| address(value, at).map(|word| u32::from_ne_bytes(word.octets()));
    let (group, on, mode, count) = (address(value, 0)?, address(value, 4)?, word(8)?, word(12)?);
    // `MCAST_EXCLUDE` and `MCAST_INCLUDE`.
    let mut filter = Filter { excludes: mode == 0, sources: Vec::new() };
    let sources = value.get(16..).ok_or(Errno::INVAL)?.as_chunks().0;
    if mode > 1 || sources.len() < count as usize {
        return Err(Errno::INVAL);
    }
    filter.sources =
        sources[..count as usize].iter().map(|octets: &[u8; 4]| (*octets).into()).collect();
    filter.sources.sort();
    filter.sources.dedup();
    Ok(Wish::Change(group, on, GroupChange::Set(filter)))
}

/// The address at this place.
fn address(value: &[u8], at: usize) -> Result<Ipv4Addr, Errno> {
    let octets: Option<[u8; 4]> = value.get(at..at + 4).and_then(|octets| octets.try_into().ok());
    octets.map(Ipv4Addr::from).ok_or(Errno::INVAL)
}

/// The first or second `sockaddr_storage` behind the interface's number, each aligned to a word.
fn storage(value: &[u8], which: usize) -> Result<Ipv4Addr, Errno> {
    let at = size_of::<usize>() + which * size_of::<libc::sockaddr_storage>();
    let family = value.get(at..at + 2).and_then(|octets| octets.try_into().ok());
    match family.map(u16::from_ne_bytes) {
        Some(family) if i32::from(family) == libc::AF_INET => address(value, at + 4),
        _ => Err(Errno::INVAL),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);
    const HOST: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
    const PEER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

    fn of(option: i32, value: &[u8]) -> Option<Result<Wish, Errno>> {
        wish(&Setting { level: libc::IPPROTO_IP, option, value: value.into() })
    }

    #[test]
    fn each_structure_is_read_and_cut_at_every_length() {
        let any = Ipv4Addr::UNSPECIFIED;
        let short = [GROUP, HOST].map(|host| host.octets()).concat();
        let long = [&short[..], &PEER.octets()].concat();
        let numbered = [&GROUP.octets()[..], &any.octets(), &[3, 0, 0, 0]].concat();
        let name = |host: Ipv4Addr| {
            let mut name = vec![0; size_of::<libc::sockaddr_storage>()];
            name[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
            name[4..8].copy_from_slice(&host.octets());
            name
        };
        let word = [0; size_of::<usize>()];
        let one = [&word[..], &name(GROUP)].concat();
        let two = [&one[..], &name(PEER)].concat();
        let source = GroupChange::JoinSource(PEER.into());
        for (option, value, wish, least) in [
            (libc::IP_ADD_MEMBERSHIP, &short, Wish::Change(GROUP, HOST, GroupChange::Join), 8),
            (libc::IP_DROP_MEMBERSHIP, &numbered, Wish::Change(GROUP, any, GroupChange::Leave), 8),
            (libc::IP_ADD_SOURCE_MEMBERSHIP, &long, Wish::Change(GROUP, HOST, source.clone()), 12),
            (JOIN_GROUP, &one, Wish::Change(GROUP, any, GroupChange::Join), word.len() + 8),
            (JOIN_SOURCE_GROUP, &two, Wish::Change(GROUP, any, source), one.len() + 8),
            (libc::IP_MULTICAST_IF, &HOST.octets().to_vec(), Wish::From(HOST), 4),
        ] {
            assert_eq!(of(option, value), Some(Ok(wish)), "{option}");
            for cut in 0..least {
                assert_eq!(of(option, &value[..cut]), Some(Err(Errno::INVAL)), "{option} at {cut}");
            }
        }
        assert_eq!(of(libc::IP_MULTICAST_IF, &short), Some(Ok(Wish::From(HOST))));
        let mut list = [&short[..], &1u32.to_ne_bytes(), &2u32.to_ne_bytes()].concat();
        list.extend([PEER, HOST].map(|host| host.octets()).concat());
        let sources = vec![HOST.into(), PEER.into()];
        let set = |excludes| GroupChange::Set(Filter { excludes, sources: sources.clone() });
        let wish = |excludes| Some(Ok(Wish::Change(GROUP, HOST, set(excludes))));
        assert_eq!(of(libc::IP_MSFILTER, &list), wish(false));
        for cut in 0..list.len() {
            assert_eq!(of(libc::IP_MSFILTER, &list[..cut]), Some(Err(Errno::INVAL)), "at {cut}");
        }
        list[8..12].copy_from_slice(&0u32.to_ne_bytes());
        assert_eq!(of(libc::IP_MSFILTER, &list), wish(true));
        list[8..12].copy_from_slice(&2u32.to_ne_bytes());
        assert_eq!(of(libc::IP_MSFILTER, &list), Some(Err(Errno::INVAL)), "no mode");
        let mut six = one.clone();
        six[word.len()] = libc::AF_INET6 as u8;
        assert_eq!(of(JOIN_GROUP, &six), Some(Err(Errno::INVAL)));
    }
}
