//! Groups that a socket for datagrams is a member of, and how it sends to groups (ip(7)).

use super::{Datagrams, Layer};
use rustix::io::Errno;
use std::cell::{Cell, RefCell};
use xk_core::{HostAddr, Kernel};
use xk_kit::control::IsLocalHost;
use xk_kit::net::attribute::Sending;
use xk_kit::net::groups::{Filter, JoinHost, LeaveHost, MEMBERSHIPS_MAX, Membership, SOURCES_MAX};

/// A change of a socket's membership in a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupChange {
    /// Receives what anyone sends to the group (`IP_ADD_MEMBERSHIP`).
    Join,
    /// Receives nothing of the group any more (`IP_DROP_MEMBERSHIP`).
    Leave,
    /// Receives what this source sends, too (`IP_ADD_SOURCE_MEMBERSHIP`).
    JoinSource(HostAddr),
    /// Receives from this source no more (`IP_DROP_SOURCE_MEMBERSHIP`).
    LeaveSource(HostAddr),
    /// Receives from all but this source, too (`IP_BLOCK_SOURCE`).
    Block(HostAddr),
    /// Receives from this source again (`IP_UNBLOCK_SOURCE`).
    Unblock(HostAddr),
    /// Receives what this filter admits, of a group that was joined (`IP_MSFILTER`).
    Set(Filter),
}

impl GroupChange {
    /// The filter after this change; `None` if the socket is no member then.
    ///
    /// # Errors
    /// Linux's (`ip_mc_join_group`, `ip_mc_source`, `ip_mc_msfilter`).
    fn of(self, now: Option<Filter>) -> Result<Option<Filter>, Errno> {
        let is_full = now.as_ref().is_some_and(|now| now.sources.len() >= SOURCES_MAX);
        let adds = matches!(self, Self::JoinSource(_) | Self::Block(_));
        let mut next = match (&self, now) {
            (Self::Join, None) => return Ok(Some(Filter::ALL)),
            (Self::Join, Some(_)) => return Err(Errno::ADDRINUSE),
            (Self::Set(filter), Some(_)) if *filter != Filter::NONE => {
                let is_long = filter.sources.len() > SOURCES_MAX;
                return if is_long { Err(Errno::NOBUFS) } else { Ok(Some(filter.clone())) };
            }
            (Self::Set(filter), None) if *filter != Filter::NONE => return Err(Errno::INVAL),
            (Self::Leave | Self::Set(_), Some(_)) => return Ok(None),
            (Self::Leave | Self::Set(_), None) => return Err(Errno::ADDRNOTAVAIL),
            _ if adds && is_full => return Err(Errno::NOBUFS),
            (Self::JoinSource(_), None) => Filter::NONE,
            (Self::JoinSource(_) | Self::LeaveSource(_), Some(now)) if !now.excludes => now,
            (Self::Block(_) | Self::Unblock(_), Some(now)) if now.excludes => now,
            _ => return Err(Errno::INVAL),
        };
        let done = match self {
            Self::JoinSource(source) | Self::Block(source) => next.insert(source),
            Self::LeaveSource(source) | Self::Unblock(source) => next.remove(source),
            Self::Join | Self::Leave | Self::Set(_) => true,
        };
        match done {
            true => Ok((next != Filter::NONE).then_some(next)),
            false => Err(Errno::ADDRNOTAVAIL),
        }
    }
}

/// A socket's part in groups.
#[derive(Default)]
pub(crate) struct Groups {
    joined: RefCell<Vec<Membership>>,
    /// Header fields of what is sent to groups, where the sender of a datagram says nothing else.
    sending: Cell<Sending>,
    /// Whether these are not the usual ones.
    pub(super) has_fields: Cell<bool>,
}

impl Groups {
    /// Number of groups, each counted once for each interface.
    pub(super) fn len(&self) -> usize {
        self.joined.borrow().len()
    }

    /// Whether datagrams of `source` to a group are taken. A socket that has not joined the group
    /// takes what the host does (`IP_MULTICAST_ALL`).
    pub(super) fn admits(&self, group: HostAddr, source: HostAddr) -> bool {
        let joined = self.joined.borrow();
        let mut own = joined.iter().filter(|own| own.group == group).peekable();
        own.peek().is_none() || own.any(|own| own.filter.admits(source))
    }

    /// Sets header fields of datagrams to groups.
    pub(crate) fn set(&self, change: impl FnOnce(&mut Sending)) {
        let mut sending = self.sending.get();
        change(&mut sending);
        self.sending.set(sending);
        self.has_fields.set(sending != Sending::default());
    }

    /// Header fields of a datagram to a group.
    pub(super) fn fill(&self, asked: Sending) -> Sending {
        let usual = self.sending.get();
        Sending {
            from: if asked.from.is_unspecified() { usual.from } else { asked.from },
            hops: if asked.hops == 0 { usual.hops } else { asked.hops },
            class: asked.class,
            stays_out: asked.stays_out || usual.stays_out,
            stays_in: usual.stays_in && asked.hops == 0,
        }
    }
}

/// Whether this is a group, which the broadcast address is not.
pub(super) fn is_multicast(host: HostAddr) -> bool {
    host.is_group() && host != HostAddr::BROADCAST
}

impl Layer {
    /// Changes a socket's membership in a group, on the interface that has the host `on` or the one
    /// that leads to the group.
    pub(crate) fn change_group(
        &self,
        cx: &Kernel,
        datagrams: &Datagrams,
        group: HostAddr,
        on: HostAddr,
        change: GroupChange,
    ) -> Result<(), Errno> {
        if !is_multicast(group) {
            return Err(Errno::INVAL);
        }
        self.check_interface(cx, on)?;
        let session = datagrams.session();
        let joined = &datagrams.groups.joined;
        let is_it = |own: &&Membership| (own.group, own.on) == (group, on);
        let now = joined.borrow().iter().find(is_it).cloned();
        let next = change.of(now.as_ref().map(|now| now.filter.clone()))?;
        if let Some(filter) = next {
            if joined.borrow().len() >= MEMBERSHIPS_MAX {
                return Err(Errno::NOBUFS);
            }
            let membership = Membership { group, on, filter };
            let asked = JoinHost { membership: membership.clone() };
            session.ask(cx, asked).ok_or(Errno::NOBUFS)?;
            joined.borrow_mut().push(membership);
        }
        // Behind the join, so that nothing is missed in between.
        if let Some(membership) = now {
            joined.borrow_mut().retain(|own| *own != membership);
            let _ = session.ask(cx, LeaveHost { membership });
        }
        datagrams.update();
        Ok(())
    }

    /// Has a socket send to groups from this host of ours; from the usual one if it is unspecified.
    pub(crate) fn send_from(
        &self,
        cx: &Kernel,
        datagrams: &Datagrams,
        from: HostAddr,
    ) -> Result<(), Errno> {
        self.check_interface(cx, from)?;
        datagrams.groups.set(|sending| sending.from = from);
        Ok(())
    }

    /// # Errors
    /// `ENODEV` if no interface has this host.
    fn check_interface(&self, cx: &Kernel, on: HostAddr) -> Result<(), Errno> {
        if on.is_group() || on.is_loopback() {
            // Hosts of ours, and of no interface.
            return Err(Errno::NODEV);
        }
        let udp = self.udp()?;
        let asked =
            (!on.is_unspecified()).then(|| udp.ask(cx, IsLocalHost { host: on, local: true }));
        let is_known = asked.flatten().is_none_or(|answer| answer.local);
        if is_known { Ok(()) } else { Err(Errno::NODEV) }
    }

    /// A socket that is being closed leaves all its groups.
    pub(super) fn leave_groups(&self, cx: &Kernel, datagrams: &Datagrams) {
        for membership in datagrams.groups.joined.take() {
            let _ = datagrams.session().ask(cx, LeaveHost { membership });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_have_the_order_and_the_errors_of_linux() {
        let [a, b] = [1, 2].map(|last| HostAddr::from([10, 0, 0, last]));
        let list = |excludes, sources: &[HostAddr]| Filter { excludes, sources: sources.into() };
        let set = |excludes, sources: &[_]| GroupChange::Set(list(excludes, sources));
        let invalid = || Err(Errno::INVAL);
        for (change, now, then) in [
            (GroupChange::Join, None, Ok(Some(Filter::ALL))),
            (GroupChange::Join, Some(Filter::ALL), Err(Errno::ADDRINUSE)),
            (GroupChange::Leave, Some(list(false, &[a])), Ok(None)),
            (GroupChange::Leave, None, Err(Errno::ADDRNOTAVAIL)),
            (GroupChange::JoinSource(a), None, Ok(Some(list(false, &[a])))),
            (GroupChange::JoinSource(a), Some(list(false, &[b])), Ok(Some(list(false, &[a, b])))),
            (GroupChange::JoinSource(a), Some(list(false, &[a])), Err(Errno::ADDRNOTAVAIL)),
            (GroupChange::JoinSource(a), Some(Filter::ALL), invalid()),
            (GroupChange::LeaveSource(a), Some(list(false, &[a, b])), Ok(Some(list(false, &[b])))),
            (GroupChange::LeaveSource(b), Some(list(false, &[b])), Ok(None)),
            (GroupChange::LeaveSource(b), Some(list(false, &[a])), Err(Errno::ADDRNOTAVAIL)),
            (GroupChange::LeaveSource(b), None, invalid()),
            (GroupChange::Block(b), Some(Filter::ALL), Ok(Some(list(true, &[b])))),
            (GroupChange::Block(b), Some(list(true, &[b])), Err(Errno::ADDRNOTAVAIL)),
            (GroupChange::Block(b), Some(list(false, &[a])), invalid()),
            (GroupChange::Block(b), None, invalid()),
            (GroupChange::Unblock(b), Some(list(true, &[b])), Ok(Some(Filter::ALL))),
            (GroupChange::Unblock(b), Some(Filter::ALL), Err(Errno::ADDRNOTAVAIL)),
            (set(false, &[b]), Some(Filter::ALL), Ok(Some(list(false, &[b])))),
            (set(false, &[]), Some(Filter::ALL), Ok(None)),
            (set(false, &[]), None, Err(Errno::ADDRNOTAVAIL)),
            (set(true, &[a]), None, invalid()),
        ] {
            assert_eq!(change.clone().of(now.clone()), then, "{change:?} of {now:?}");
        }
        let full: Vec<_> = (0..64).map(|n| HostAddr::from([10, 0, 1, n])).collect();
        assert_eq!(GroupChange::Block(a).of(Some(list(true, &full))), Err(Errno::NOBUFS));
    }
}
