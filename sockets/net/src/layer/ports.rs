//! Ports of the sockets, by the rules of bind(2).

use crate::address::Endpoint;
use rustix::io::Errno;
use std::cell::RefCell;
use std::collections::HashMap;
use xk_core::HostAddr;

/// Transport of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Transport {
    Tcp,
    Udp,
}

/// The other sockets that a socket may share its port with, as the options of socket(7) say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sharing {
    /// Shares with others that have this set (`SO_REUSEADDR`). The newest of them receives
    /// datagrams for a single host; of sockets for streams only one may listen.
    pub address: bool,
    /// Shares with others that have this set (`SO_REUSEPORT`): a hash of the peer's address selects
    /// the one that receives.
    pub port: bool,
}

impl Sharing {
    /// With any that share.
    pub(crate) const ANY: Self = Self { address: true, port: true };
}

/// A socket that has a port.
struct Kept {
    host: HostAddr,
    sharing: Sharing,
    listens: bool,
}

impl Kept {
    fn overlaps(&self, host: HostAddr) -> bool {
        host == self.host || host.is_unspecified() || self.host.is_unspecified()
    }

    fn is_shared(&self, sharing: Sharing) -> bool {
        self.sharing.address && sharing.address && !self.listens
            || self.sharing.port && sharing.port
    }
}

/// The bound ports: for each, the sockets that have it.
#[derive(Default)]
pub(crate) struct Ports(RefCell<HashMap<(Transport, u16), Vec<Kept>>>);

impl Ports {
    /// Takes a port for a host, or for any.
    ///
    /// # Errors
    /// `EADDRINUSE` if it is taken for the same host, or for any, unless both share it.
    pub(crate) fn bind(
        &self,
        transport: Transport,
        address: Endpoint,
        sharing: Sharing,
    ) -> Result<(), Errno> {
        let host = address.host;
        let mut ports = self.0.borrow_mut();
        let all = ports.entry((transport, address.port)).or_default();
        let is_in_the_way = |kept: &Kept| kept.overlaps(host) && !kept.is_shared(sharing);
        if all.iter().any(is_in_the_way) {
            return Err(Errno::ADDRINUSE);
        }
        all.push(Kept { host, sharing, listens: false });
        Ok(())
    }

    /// A socket listens at a port that it has, or no longer.
    ///
    /// # Errors
    /// `EADDRINUSE` if another does that does not share it.
    pub(crate) fn listen(
        &self,
        address: Endpoint,
        sharing: Sharing,
        on: bool,
    ) -> Result<(), Errno> {
        let host = address.host;
        let mut ports = self.0.borrow_mut();
        let all = ports.entry((Transport::Tcp, address.port)).or_default();
        let is_in_the_way =
            |kept: &Kept| kept.listens && kept.overlaps(host) && !kept.is_shared(sharing);
        if on && all.iter().any(is_in_the_way) {
            return Err(Errno::ADDRINUSE);
        }
        let is_it =
            |kept: &&mut Kept| (kept.host, kept.sharing, kept.listens) == (host, sharing, !on);
        if let Some(kept) = all.iter_mut().find(is_it) {
            kept.listens = on;
        }
        Ok(())
    }

    /// A socket that has a port shares it otherwise from now on.
    pub(crate) fn share(
        &self,
        transport: Transport,
        address: Endpoint,
        (before, now): (Sharing, Sharing),
    ) {
        let mut ports = self.0.borrow_mut();
        let all = ports.entry((transport, address.port)).or_default();
        let is_it = |kept: &&mut Kept| (kept.host, kept.sharing) == (address.host, before);
        if let Some(kept) = all.iter_mut().find(is_it) {
            kept.sharing = now;
        }
    }

    /// Gives it back; a socket that listened does not any more.
    pub(crate) fn unbind(&self, transport: Transport, address: Endpoint, sharing: Sharing) {
        let mut ports = self.0.borrow_mut();
        let key = (transport, address.port);
        if let Some(all) = ports.get_mut(&key) {
            let is_it = |kept: &Kept| {
                (kept.host, kept.sharing, kept.listens) == (address.host, sharing, false)
            };
            if let Some(place) = all.iter().position(is_it) {
                all.swap_remove(place);
            }
            if all.is_empty() {
                ports.remove(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;

    const ALONE: Sharing = Sharing { address: false, port: false };
    const ADDRESS: Sharing = Sharing { address: true, port: false };
    const PORT: Sharing = Sharing { address: false, port: true };

    #[test]
    fn one_port_may_be_bound_for_several_hosts_but_not_for_any_besides() {
        let ports = Ports::default();
        let at = |text: &str| Endpoint::from(text.parse::<SocketAddr>().unwrap());
        assert_eq!(ports.bind(Transport::Tcp, at("10.0.0.1:80"), ALONE), Ok(()));
        assert_eq!(ports.bind(Transport::Tcp, at("10.0.0.2:80"), ALONE), Ok(()));
        assert_eq!(ports.bind(Transport::Udp, at("0.0.0.0:80"), ALONE), Ok(()));
        let taken = Err(Errno::ADDRINUSE);
        assert_eq!(ports.bind(Transport::Tcp, at("10.0.0.1:80"), ALONE), taken);
        assert_eq!(ports.bind(Transport::Tcp, at("0.0.0.0:80"), ALONE), taken);
        ports.unbind(Transport::Tcp, at("10.0.0.1:80"), ALONE);
        ports.unbind(Transport::Tcp, at("10.0.0.2:80"), ALONE);
        assert_eq!(ports.bind(Transport::Tcp, at("0.0.0.0:80"), ALONE), Ok(()));
        assert_eq!(ports.bind(Transport::Tcp, at("10.0.0.1:80"), ALONE), taken);
    }

    #[test]
    fn those_who_share_a_port_have_it_together_until_one_listens() {
        let ports = Ports::default();
        let at = Endpoint::from(SocketAddr::from(([10, 0, 0, 1], 80)));
        let taken = Err(Errno::ADDRINUSE);
        assert_eq!(ports.bind(Transport::Tcp, at, ADDRESS), Ok(()));
        assert_eq!(ports.bind(Transport::Tcp, at, ADDRESS), Ok(()));
        assert_eq!(ports.bind(Transport::Tcp, at, ALONE), taken);
        assert_eq!(ports.listen(at, ADDRESS, true), Ok(()));
        assert_eq!(ports.listen(at, ADDRESS, true), taken);
        assert_eq!(ports.bind(Transport::Tcp, at, ADDRESS), taken);
        assert_eq!(ports.listen(at, ADDRESS, false), Ok(()));
        assert_eq!(ports.listen(at, ADDRESS, true), Ok(()));
        ports.unbind(Transport::Tcp, at, ADDRESS);
        assert_eq!(ports.listen(at, ADDRESS, false), Ok(()));
        ports.unbind(Transport::Tcp, at, ADDRESS);
        assert_eq!(ports.bind(Transport::Tcp, at, ALONE), Ok(()));
    }

    #[test]
    fn those_who_share_peers_listen_together() {
        let ports = Ports::default();
        let at = Endpoint::from(SocketAddr::from(([10, 0, 0, 1], 80)));
        let taken = Err(Errno::ADDRINUSE);
        assert_eq!(ports.bind(Transport::Tcp, at, PORT), Ok(()));
        assert_eq!(ports.listen(at, PORT, true), Ok(()));
        assert_eq!(ports.bind(Transport::Tcp, at, ADDRESS), taken);
        assert_eq!(ports.bind(Transport::Tcp, at, Sharing::ANY), Ok(()));
        assert_eq!(ports.listen(at, Sharing::ANY, true), Ok(()));
        assert_eq!(ports.bind(Transport::Tcp, at, ALONE), taken);
        ports.share(Transport::Tcp, at, (Sharing::ANY, ADDRESS));
        assert_eq!(ports.bind(Transport::Tcp, at, PORT), taken);
    }
}
