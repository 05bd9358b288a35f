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

/// The bound ports: for each, the hosts that it is bound for.
#[derive(Default)]
pub(crate) struct Ports(RefCell<HashMap<(Transport, u16), Vec<Ipv4Addr>>>);

impl Ports {
    /// Takes a port for a host, or for any.
    ///
    /// # Errors
    /// `EADDRINUSE` if it is taken for the same host, or for any.
    pub(crate) fn bind(&self, transport: Transport, address: SocketAddrV4) -> Result<(), Errno> {
        let host = *address.ip();
        let mut ports = self.0.borrow_mut();
        let hosts = ports.entry((transport, address.port())).or_default();
        let overlaps =
            |other: &Ipv4Addr| host == *other || host.is_unspecified() || other.is_unspecified();
        if hosts.iter().any(overlaps) {
            return Err(Errno::ADDRINUSE);
        }
        hosts.push(host);
        Ok(())
    }

    /// Gives it back.
    pub(crate) fn unbind(&self, transport: Transport, address: SocketAddrV4) {
        let mut ports = self.0.borrow_mut();
        let key = (transport, address.port());
        if let Some(hosts) = ports.get_mut(&key) {
            hosts.retain(|host| host != address.ip());
            if hosts.is_empty() {
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
        assert_eq!(ports.bind(Transport::Tcp, at("10.0.0.1:80")), Ok(()));
        assert_eq!(ports.bind(Transport::Tcp, at("10.0.0.2:80")), Ok(()));
        assert_eq!(ports.bind(Transport::Udp, at("0.0.0.0:80")), Ok(()));
        let taken = Err(Errno::ADDRINUSE);
        assert_eq!(ports.bind(Transport::Tcp, at("10.0.0.1:80")), taken);
        assert_eq!(ports.bind(Transport::Tcp, at("0.0.0.0:80")), taken);
        ports.unbind(Transport::Tcp, at("10.0.0.1:80"));
        ports.unbind(Transport::Tcp, at("10.0.0.2:80"));
        assert_eq!(ports.bind(Transport::Tcp, at("0.0.0.0:80")), Ok(()));
        assert_eq!(ports.bind(Transport::Tcp, at("10.0.0.1:80")), taken);
    }
}
