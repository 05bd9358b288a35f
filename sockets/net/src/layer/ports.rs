//! Which ports are bound by whom, as bind(2) has it.

use rustix::io::Errno;
use std::cell::RefCell;
use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddrV4};

/// Which transport a port is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Transport {
    Tcp,
    Udp,
}

/// One who has a port.
struct Kept {
    host: Ipv4Addr,
    /// Others may have it, too, who do (`SO_REUSEADDR`), as long as nobody listens.
    shares: bool,
    listens: bool,
}

impl Kept {
    fn overlaps(&self, host: Ipv4Addr) -> bool {
        host == self.host || host.is_unspecified() || self.host.is_unspecified()
    }
}

/// The bound ports: for each, those who have it.
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
        address: SocketAddrV4,
        shares: bool,
    ) -> Result<(), Errno> {
        let host = *address.ip();
        let mut ports = self.0.borrow_mut();
        let all = ports.entry((transport, address.port())).or_default();
        let is_in_the_way =
            |kept: &Kept| kept.overlaps(host) && !(shares && kept.shares && !kept.listens);
        if all.iter().any(is_in_the_way) {
            return Err(Errno::ADDRINUSE);
        }
        all.push(Kept {
            host,
            shares,
            listens: false,
        });
        Ok(())
    }

    /// Somebody listens at a port that he has, or no longer.
    ///
    /// # Errors
    /// `EADDRINUSE` if another does.
    pub(crate) fn listen(&self, address: SocketAddrV4, on: bool) -> Result<(), Errno> {
        let host = *address.ip();
        let mut ports = self.0.borrow_mut();
        let all = ports.entry((Transport::Tcp, address.port())).or_default();
        if on && all.iter().any(|kept| kept.listens && kept.overlaps(host)) {
            return Err(Errno::ADDRINUSE);
        }
        let mut those = all.iter_mut();
        if let Some(kept) = those.find(|kept| kept.host == host && kept.listens != on) {
            kept.listens = on;
        }
        Ok(())
    }

    /// Gives it back; who listened does not any more.
    pub(crate) fn unbind(&self, transport: Transport, address: SocketAddrV4) {
        let mut ports = self.0.borrow_mut();
        let key = (transport, address.port());
        if let Some(all) = ports.get_mut(&key) {
            let is_it = |kept: &Kept| kept.host == *address.ip() && !kept.listens;
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

    #[test]
    fn one_port_may_be_bound_for_several_hosts_but_not_for_any_besides() {
        let ports = Ports::default();
        let at = |text: &str| text.parse::<SocketAddrV4>().unwrap();
        assert_eq!(ports.bind(Transport::Tcp, at("10.0.0.1:80"), false), Ok(()));
        assert_eq!(ports.bind(Transport::Tcp, at("10.0.0.2:80"), false), Ok(()));
        assert_eq!(ports.bind(Transport::Udp, at("0.0.0.0:80"), false), Ok(()));
        let taken = Err(Errno::ADDRINUSE);
        assert_eq!(ports.bind(Transport::Tcp, at("10.0.0.1:80"), false), taken);
        assert_eq!(ports.bind(Transport::Tcp, at("0.0.0.0:80"), false), taken);
        ports.unbind(Transport::Tcp, at("10.0.0.1:80"));
        ports.unbind(Transport::Tcp, at("10.0.0.2:80"));
        assert_eq!(ports.bind(Transport::Tcp, at("0.0.0.0:80"), false), Ok(()));
        assert_eq!(ports.bind(Transport::Tcp, at("10.0.0.1:80"), false), taken);
    }

    #[test]
    fn those_who_share_a_port_have_it_together_until_one_listens() {
        let ports = Ports::default();
        let at: SocketAddrV4 = "10.0.0.1:80".parse().unwrap();
        let taken = Err(Errno::ADDRINUSE);
        assert_eq!(ports.bind(Transport::Tcp, at, true), Ok(()));
        assert_eq!(ports.bind(Transport::Tcp, at, true), Ok(()));
        assert_eq!(ports.bind(Transport::Tcp, at, false), taken);
        assert_eq!(ports.listen(at, true), Ok(()));
        assert_eq!(ports.listen(at, true), taken);
        assert_eq!(ports.bind(Transport::Tcp, at, true), taken);
        assert_eq!(ports.listen(at, false), Ok(()));
        assert_eq!(ports.listen(at, true), Ok(()));
        ports.unbind(Transport::Tcp, at);
        assert_eq!(ports.listen(at, false), Ok(()));
        ports.unbind(Transport::Tcp, at);
        assert_eq!(ports.bind(Transport::Tcp, at, false), Ok(()));
    }
}
