//! The scene of the tests.

use xk_testkit::netns::{Net, Space};
use xk_xdp::{Mode, Options, XdpError, XdpSocket};

/// The ways that work on a veth pair.
pub(crate) const MODES: [Mode; 2] = [Mode::Generic, Mode::Native];

/// Two spaces joined by a veth pair, `v0` and `v1`.
#[derive(Debug)]
pub(crate) struct Pair {
    _net: Net,
    pub(crate) left: Space,
    pub(crate) right: Space,
}

pub(crate) fn pair(label: &str) -> Pair {
    let net = Net::new(label).unwrap();
    let (left, right) = (net.space().unwrap(), net.space().unwrap());
    net.veth(&left, "v0", &right, "v1").unwrap();
    Pair { _net: net, left, right }
}

pub(crate) fn try_open(
    space: &Space,
    name: &str,
    options: &Options,
) -> Result<XdpSocket, XdpError> {
    space.enter(|| XdpSocket::open(name, options)).unwrap()
}

pub(crate) fn open(space: &Space, name: &str, mode: Mode) -> XdpSocket {
    let options = Options { mode, ..Options::default() };
    try_open(space, name, &options).unwrap_or_else(|error| panic!("{error}"))
}
