//! Socket addresses: sixteen octets that name an end.

use crate::errno::{Errno, Result};
use crate::mbuf::{Mbuf, Mbufs, Mt, Release};
use core::fmt;
use core::net::Ipv4Addr;

/// No family: of an address for an interface, the header of its link.
pub const AF_UNSPEC: u8 = 0;
/// The local domain: names of sockets of this kernel.
pub const AF_UNIX: u8 = 1;
/// The Internet.
pub const AF_INET: u8 = 2;
/// AppleTalk.
pub const AF_APPLETALK: u8 = 16;

/// Octets of an address.
pub const SOCKADDR_LEN: usize = 16;

/// `struct sockaddr`: in 4.4 a length and a family of one octet each, in 4.3 a family of two (here
/// as a big-endian machine has it, so that the family is the second octet in both), then what the
/// family says.
///
/// - `sockaddr_in`: port (2), address (4), zeros;
/// - `sockaddr_at`: socket (1), zero, network (2), node (1), zeros;
/// - of [`AF_UNSPEC`]: destination and source of the link, type.
#[derive(Clone, Copy, Default)]
pub struct Sockaddr(pub [u8; SOCKADDR_LEN]);

/// Two are the same end, whatever the release says of the length.
impl PartialEq for Sockaddr {
    fn eq(&self, other: &Self) -> bool {
        self.0[1..] == other.0[1..]
    }
}

impl Eq for Sockaddr {}

impl Sockaddr {
    fn new(release: Release, family: u8) -> Self {
        let mut octets = [0; SOCKADDR_LEN];
        if release == Release::Bsd44 {
            octets[0] = SOCKADDR_LEN as u8;
        }
        octets[1] = family;
        Self(octets)
    }

    /// `sockaddr_un`: a name of up to fourteen octets; none for a longer one.
    pub fn unix(release: Release, name: &[u8]) -> Option<Self> {
        let mut new = Self::new(release, AF_UNIX);
        new.0.get_mut(2..2 + name.len())?.copy_from_slice(name);
        Some(new)
    }

    /// `sockaddr_in`.
    pub fn inet(release: Release, address: Ipv4Addr, port: u16) -> Self {
        let mut new = Self::new(release, AF_INET);
        new.0[2..4].copy_from_slice(&port.to_be_bytes());
        new.0[4..8].copy_from_slice(&address.octets());
        new
    }

    /// `sockaddr_at`.
    pub fn appletalk(release: Release, net: u16, node: u8, socket: u8) -> Self {
        let mut new = Self::new(release, AF_APPLETALK);
        new.0[2] = socket;
        new.0[4..6].copy_from_slice(&net.to_be_bytes());
        new.0[6] = node;
        new
    }

    /// The header of a link's frame.
    pub fn unspec(release: Release, header: [u8; 14]) -> Self {
        let mut new = Self::new(release, AF_UNSPEC);
        new.0[2..].copy_from_slice(&header);
        new
    }

    /// `sa_family`.
    pub fn family(&self) -> u8 {
        self.0[1]
    }

    /// `sa_data`.
    pub fn data(&self) -> &[u8] {
        &self.0[2..]
    }

    /// `sun_path`, without the zeros behind it.
    pub fn path(&self) -> &[u8] {
        let data = self.data();
        let end = data.iter().rposition(|octet| *octet != 0).map_or(0, |last| last + 1);
        &data[..end]
    }

    /// `sin_port`.
    pub fn port(&self) -> u16 {
        u16::from_be_bytes([self.0[2], self.0[3]])
    }

    /// `sin_addr`.
    pub fn addr(&self) -> Ipv4Addr {
        Ipv4Addr::new(self.0[4], self.0[5], self.0[6], self.0[7])
    }

    /// `sat_port`.
    pub fn socket(&self) -> u8 {
        self.0[2]
    }

    /// `sat_addr.s_net`.
    pub fn net(&self) -> u16 {
        u16::from_be_bytes([self.0[4], self.0[5]])
    }

    /// `sat_addr.s_node`.
    pub fn node(&self) -> u8 {
        self.0[6]
    }

    /// This address in an mbuf of type [`Mt::Soname`].
    ///
    /// # Errors
    /// [`Errno::ENOBUFS`].
    pub fn to_mbuf(self, mbufs: &Mbufs) -> Result<Mbuf> {
        mbufs.m_copyin(Mt::Soname, &self.0)
    }

    /// The address in an mbuf.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] if it has not the octets of one.
    pub fn of(nam: &Mbuf) -> Result<Self> {
        nam.mtod().try_into().map(Self).map_err(|_| Errno::EINVAL)
    }

    /// The address in an mbuf, of this family.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] if it has not the octets of one, [`Errno::EAFNOSUPPORT`].
    pub fn of_family(nam: &Mbuf, family: u8) -> Result<Self> {
        let sa = Self::of(nam)?;
        if sa.family() == family { Ok(sa) } else { Err(Errno::EAFNOSUPPORT) }
    }

    /// Writes this address into an mbuf, in place of what it held: what `PRU_SOCKADDR` does.
    pub fn store(&self, nam: &mut Mbuf) {
        let n = nam.m_length();
        nam.m_adj(-(n as isize));
        // There is room for sixteen octets in every mbuf that is not lent.
        let _ = nam.put(&self.0);
    }
}

impl fmt::Debug for Sockaddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.family() {
            AF_UNIX => write!(f, "local {}", self.path().escape_ascii()),
            AF_INET => write!(f, "{}:{}", self.addr(), self.port()),
            AF_APPLETALK => write!(f, "{}.{}:{}", self.net(), self.node(), self.socket()),
            family => write!(f, "af{family} {:02x?}", self.data()),
        }
    }
}
