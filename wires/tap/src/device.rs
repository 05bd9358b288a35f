//! The device: opened, set up, read and written.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::net::{AddressFamily, SocketType, netdevice, sockopt};
use smallvec::SmallVec;

use xk_kit::wire::virtio::{NOTE_OCTETS, Note, RUN_OCTETS_MAX};

use crate::device_unsafe;
use crate::error::TapError;

/// The driver's device file.
const DRIVER: &str = "/dev/net/tun";
/// Octets of an Ethernet header with one VLAN tag (IEEE 802.3, 802.1Q).
const HEADER_OCTETS_MAX: usize = 18;
/// The smallest and largest MTU that Linux gives a TAP device (`ETH_MIN_MTU`, and `MAX_MTU` of
/// `drivers/net/tun.c`).
pub(crate) const MTU_MIN: usize = 68;
pub(crate) const MTU_MAX: usize = 65_521;
/// MTU of a device that cannot be asked for it: that of Ethernet (IEEE 802.3).
const MTU_USUAL: usize = 1500;
/// Parts into which a frame is read without an allocation, with the header in front and the octet
/// that shows that it is too long.
const PARTS: usize = 16;
/// Frames too long for the caller that are passed over in one call, so that a flood of them cannot
/// hold it.
const OVERSIZED_AT_ONCE: usize = 64;

/// Time for which a device that this process has just closed may stay in use: where another thread
/// starts a program meanwhile, its process has a copy of the descriptor until its `exec`.
const FREED_WITHIN: Duration = Duration::from_millis(250);

/// Options for opening and setting up a device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// Make the device if there is none; otherwise that is an error.
    pub create: bool,
    /// Let a device outlive this process. Without it, a device that this process made goes with it.
    pub persist: bool,
    /// The host's own IPv4 address on this Ethernet and the length of its prefix in bits.
    pub host_address: Option<(Ipv4Addr, u8)>,
    /// Networks that the host reaches by this Ethernet: address, length of the prefix in bits, and
    /// the machine here that they lie behind. They go with the device.
    pub host_routes: Vec<(Ipv4Addr, u8, Ipv4Addr)>,
    /// The MTU, in octets without the Ethernet header: 68 to 65,521.
    pub mtu: Option<usize>,
    /// Bring the host's end up. A device that is down carries nothing.
    pub up: bool,
    /// Leave transport checksums open where the receiver knows: frames from the host may have them
    /// open, and those given to it may. See [`TapDevice::receive_noted`] and
    /// [`TapDevice::transmit_noted`].
    pub offload: bool,
    /// With `offload`: the host may give frames that stand for runs of TCP segments
    /// ([`Note::Run`]), of up to [`RUN_OCTETS_MAX`] octets. Given to it they may be all the same.
    pub runs: bool,
}

impl Options {
    /// Make the device if there is none, and bring it up.
    #[must_use]
    pub fn create() -> Self {
        Self { create: true, up: true, ..Self::default() }
    }
}

/// Fate of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Transmitted {
    /// The host has it.
    Sent,
    /// There is no room now; it may be offered again when the device is writable.
    WouldBlock,
}

/// An open TAP device, or a Unix socket of datagrams that are frames.
#[derive(Debug)]
pub struct TapDevice {
    tun: OwnedFd,
    name: String,
    mtu: usize,
    host_hardware_address: [u8; 6],
    oversized: u64,
    /// Each frame has a header in front.
    noted: bool,
    /// Transport checksums may be left open.
    offload: bool,
}

impl TapDevice {
    /// Opens the device `name` and sets it up. An empty name, together with [`Options::create`],
    /// lets the system choose one.
    ///
    /// # Errors
    /// [`TapError`], each with a remedy in its text.
    pub fn open(name: &str, options: &Options) -> Result<Self, TapError> {
        check_name(name, options)?;
        let socket = socket(name)?;
        if !options.create && netdevice::name_to_index(&socket, name).is_err() {
            return Err(TapError::NoDevice {
                name: name.to_owned(),
                existing: xk_linux::existing(),
            });
        }
        let tun = open_driver()?;
        let name = attach(tun.as_fd(), name, options.offload)
            .map_err(|error| attach_error(name, error))?;
        Self::opened(tun, name, &socket, options)
    }

    /// Goes on with the device `name` that another process has opened with such options. That needs
    /// no privilege where the device is as they say.
    ///
    /// # Errors
    /// [`TapError`]; also if it is another device, or was opened otherwise.
    pub fn go_on(tun: OwnedFd, name: &str, options: &Options) -> Result<Self, TapError> {
        let failed = |what: String| TapError::Setting { name: name.to_owned(), what };
        let found = device_unsafe::attached(tun.as_fd())
            .map_err(|error| failed(format!("what was handed over is no TAP device: {error}")))?;
        if found != (name.to_owned(), options.offload) {
            return Err(failed(format!("{} was handed over, opened otherwise", found.0)));
        }
        Self::opened(tun, found.0, &socket(name)?, options)
    }

    /// Takes the descriptor `number`, which the program that started this one has left open: a TAP
    /// device, or a Unix socket of datagrams that are frames with nothing in front. That program
    /// has set the device up; of `options` the MTU counts, as what it is, and whether to agree on
    /// open checksums, where frames have a header. No privilege is needed. The descriptor stays
    /// open, so it may be taken once more.
    ///
    /// # Errors
    /// [`TapError::Descriptor`] if it is not open, or is something else.
    pub fn inherited(number: RawFd, options: &Options) -> Result<Self, TapError> {
        let device = Self::given(number, inherited(number)?, options)?;
        xk_linux::claim(number, &device.tun).map_err(|error| descriptor_error(number, &error))?;
        Ok(device)
    }

    /// Looks at such a descriptor, and changes nothing that other programs with it would see.
    ///
    /// # Errors
    /// As of [`inherited`](Self::inherited).
    pub(crate) fn look_at(number: RawFd, options: &Options) -> Result<(), TapError> {
        Self::found(number, inherited(number)?, options, |_, _, _| Ok(())).map(drop)
    }

    /// The device of an open descriptor that the graph calls `number`.
    pub(crate) fn given(number: RawFd, tun: OwnedFd, options: &Options) -> Result<Self, TapError> {
        Self::found(number, tun, options, |tun, noted, offload| {
            if noted {
                device_unsafe::set_header_octets(tun)?;
            }
            device_unsafe::set_offloads(tun, offload, offload && options.runs)
        })
    }

    /// The device of an open descriptor. `set` sets up one of TAP, whether frames have a header and
    /// whether checksums are left open.
    fn found(
        number: RawFd,
        tun: OwnedFd,
        options: &Options,
        set: impl FnOnce(BorrowedFd<'_>, bool, bool) -> io::Result<()>,
    ) -> Result<Self, TapError> {
        let fails = |error| descriptor_error(number, &error);
        if let Ok((name, noted)) = device_unsafe::attached(tun.as_fd()) {
            let offload = noted && options.offload;
            set(tun.as_fd(), noted, offload).map_err(fails)?;
            return Self::of_tap(tun, name, noted, options).map_err(fails);
        }
        let is_ours = sockopt::socket_domain(&tun) == Ok(AddressFamily::UNIX)
            && sockopt::socket_type(&tun) == Ok(SocketType::DGRAM);
        if !is_ours {
            let path = format!("/proc/self/fd/{}", tun.as_raw_fd());
            let path = std::fs::read_link(path).unwrap_or_default();
            let what = format!("is neither a TAP device nor such a socket, but {}", path.display());
            return Err(TapError::Descriptor { number, what });
        }
        let number = rustix::fs::fstat(&tun).map_err(|errno| fails(errno.into()))?.st_ino;
        // The other end's address is not known, but each socket has a number of its own.
        let [.., a, b, c, d] = number.to_be_bytes();
        Ok(Self {
            tun,
            name: "socket".into(),
            mtu: options.mtu.unwrap_or(MTU_USUAL),
            host_hardware_address: [2, 0, a, b, c, d],
            oversized: 0,
            noted: false,
            offload: false,
        })
    }

    fn of_tap(tun: OwnedFd, name: String, noted: bool, options: &Options) -> io::Result<Self> {
        let offload = noted && options.offload;
        let host_hardware_address = xk_linux::hardware_address(&tun, &name)?;
        // Its interface may be in another network namespace, and one of its name in this.
        let socket = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None)?;
        let here = xk_linux::hardware_address(&socket, &name).ok();
        let here = here.filter(|address| *address == host_hardware_address);
        let mtu = here.and_then(|_| xk_linux::mtu(&socket, &name).ok());
        let mtu = options.mtu.or(mtu).unwrap_or(MTU_USUAL);
        Ok(Self { tun, name, mtu, host_hardware_address, oversized: 0, noted, offload })
    }

    fn opened(
        tun: OwnedFd,
        name: String,
        socket: &OwnedFd,
        options: &Options,
    ) -> Result<Self, TapError> {
        let device = Self {
            tun,
            mtu: 0,
            host_hardware_address: [0; 6],
            oversized: 0,
            noted: options.offload,
            offload: options.offload,
            name,
        };
        device.set_up(socket.as_fd(), options)?;
        let read = |error| device.refused("read its settings", String::new(), error);
        let mtu = xk_linux::mtu(socket, &device.name).map_err(read)?;
        let host_hardware_address =
            xk_linux::hardware_address(socket, &device.name).map_err(read)?;
        Ok(Self { mtu, host_hardware_address, ..device })
    }

    /// The device's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The MTU at the time of opening, in octets without the Ethernet header.
    pub fn mtu(&self) -> usize {
        self.mtu
    }

    /// The most octets of a frame, with Ethernet header and one VLAN tag.
    pub fn frame_octets_max(&self) -> usize {
        self.mtu + HEADER_OCTETS_MAX
    }

    /// The hardware address of the host's end.
    pub fn host_hardware_address(&self) -> [u8; 6] {
        self.host_hardware_address
    }

    /// A hardware address for the graph's end: the host's with its last bit turned over, marked as
    /// locally administered and as no group (IEEE 802, section 8.2). The same device gives the same
    /// address.
    pub fn hardware_address(&self) -> [u8; 6] {
        let [first, b, c, d, e, last] = self.host_hardware_address;
        [(first | 2) & !1, b, c, d, e, last ^ 1]
    }

    /// Number of frames that were passed over because they were longer than the caller's buffer.
    pub fn oversized(&self) -> u64 {
        self.oversized
    }

    /// Whether transport checksums may be left open ([`Options::offload`]).
    pub fn takes_open_checksums(&self) -> bool {
        self.offload
    }

    /// Takes the next frame that the host sent; `None` when there is none now. With
    /// [`Options::offload`] its checksum may be open: [`TapDevice::receive_noted`] tells.
    ///
    /// # Errors
    /// The device is gone or failed.
    pub fn receive(&mut self, frame: &mut [u8]) -> io::Result<Option<usize>> {
        Ok(self.receive_noted(frame)?.map(|(octets, _)| octets))
    }

    /// As `receive`, with what is known of the checksum.
    ///
    /// # Errors
    /// The device is gone or failed.
    pub fn receive_noted(&mut self, frame: &mut [u8]) -> io::Result<Option<(usize, Note)>> {
        self.receive_parts(&mut [frame])
    }

    /// As `receive`, into several parts, one behind the other, of which there may be 1022.
    ///
    /// # Errors
    /// The device is gone or failed.
    pub fn receive_parts(&mut self, frame: &mut [&mut [u8]]) -> io::Result<Option<(usize, Note)>> {
        // The driver cuts a long frame without a word; one octet behind the caller's buffer shows
        // it.
        let room = frame.iter().map(|part| part.len()).sum::<usize>();
        let mut spill = [0];
        for _ in 0..OVERSIZED_AT_ONCE {
            let mut header = [0; NOTE_OCTETS];
            let noted = if self.noted { NOTE_OCTETS } else { 0 };
            let (first, last) = (&mut header[..noted], &mut spill[..]);
            let all = [first].into_iter().chain(frame.iter_mut().map(|part| &mut **part));
            let mut parts: SmallVec<[IoSliceMut<'_>; PARTS]> =
                all.chain([last]).map(IoSliceMut::new).collect();
            let read = rustix::io::readv(&self.tun, &mut parts);
            drop(parts);
            match read {
                Ok(octets) => match (octets.checked_sub(noted), Note::parse(header)) {
                    (Some(octets), Some(note)) if octets <= room => {
                        return Ok(Some((octets, note)));
                    }
                    _ => self.oversized += 1,
                },
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => return Ok(None),
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(None)
    }

    /// Gives the host a frame, whose octets are those of the parts in order: at least 14, at most
    /// [`Self::frame_octets_max`], in at most 1024 parts.
    ///
    /// # Errors
    /// The frame is too short, too long or in too many parts (`InvalidInput`), or the host's end is
    /// down (`EIO`), or the device is gone.
    pub fn transmit(&mut self, parts: &[IoSlice<'_>]) -> io::Result<Transmitted> {
        let octets_max = self.frame_octets_max();
        if !self.noted {
            return self.write(parts, octets_max);
        }
        let header = Note::Nothing.emit();
        let mut all = vec![IoSlice::new(&header)];
        all.extend_from_slice(parts);
        self.write(&all, NOTE_OCTETS + octets_max)
    }

    /// As `transmit`, with [`Options::offload`]: `note` tells what is left open, and the first of
    /// the parts is empty, for the header that says so. Without, [`Note::Nothing`] alone is
    /// possible.
    ///
    /// # Errors
    /// As for [`TapDevice::transmit`]; also if something is left open that the host is not told of
    /// (`InvalidInput`).
    pub fn transmit_noted<'a>(
        &mut self,
        parts: &mut [IoSlice<'a>],
        (note, header): (Note, &'a mut [u8; NOTE_OCTETS]),
    ) -> io::Result<Transmitted> {
        match (parts.first_mut(), self.noted) {
            (Some(first), true) => {
                *header = note.emit();
                *first = IoSlice::new(header);
                let octets_max = match note {
                    Note::Run { .. } => RUN_OCTETS_MAX,
                    _ => self.frame_octets_max(),
                };
                self.write(parts, NOTE_OCTETS + octets_max)
            }
            (_, false) if note == Note::Nothing => self.write(parts, self.frame_octets_max()),
            _ => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    /// Writes a frame, with the header in front at most so many octets.
    fn write(&self, parts: &[IoSlice<'_>], octets_max: usize) -> io::Result<Transmitted> {
        let octets: usize = parts.iter().map(|part| part.len()).sum();
        // The driver takes more than the MTU, but the host's stack need not.
        if octets > octets_max {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a frame longer than the device's MTU allows",
            ));
        }
        loop {
            return match rustix::io::writev(&self.tun, parts) {
                Ok(_) => Ok(Transmitted::Sent),
                Err(rustix::io::Errno::INTR) => continue,
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::NOBUFS) => {
                    Ok(Transmitted::WouldBlock)
                }
                Err(errno) => Err(errno.into()),
            };
        }
    }

    /// The descriptor, to wait for readiness on.
    pub fn fd(&self) -> &OwnedFd {
        &self.tun
    }

    /// Brings the device into the state asked for. What is so already is left alone: that needs no
    /// privilege.
    fn set_up(&self, socket: BorrowedFd<'_>, options: &Options) -> Result<(), TapError> {
        let name = &self.name;
        if options.offload {
            device_unsafe::set_header_octets(self.tun.as_fd())
                .and_then(|()| device_unsafe::set_offloads(self.tun.as_fd(), true, options.runs))
                .map_err(|error| self.refused("agree on open checksums", String::new(), error))?;
        } else {
            // One that outlived its maker may have agreed on them then.
            let _ = device_unsafe::set_offloads(self.tun.as_fd(), false, false);
        }
        if options.persist {
            let remedy = format!("sudo ip tuntap add dev {name} mode tap user $USER");
            device_unsafe::set_persistent(self.tun.as_fd(), true)
                .map_err(|error| self.refused("make it persistent", remedy, error))?;
        }
        if let Some(mtu) = options.mtu {
            if !(MTU_MIN..=MTU_MAX).contains(&mtu) {
                let what = format!("an MTU of {mtu} octets is outside {MTU_MIN} to {MTU_MAX}");
                return Err(TapError::Setting { name: name.clone(), what });
            }
            if xk_linux::mtu(socket, name).ok() != Some(mtu) {
                let remedy = format!("sudo ip link set {name} mtu {mtu}");
                xk_linux::set_mtu(socket, name, mtu).map_err(|error| {
                    self.refused(&format!("set its MTU to {mtu}"), remedy, error)
                })?;
            }
        }
        if let Some((address, prefix)) = options.host_address {
            self.set_host_address(socket, address, prefix)?;
        }
        if options.up {
            let remedy = format!("sudo ip link set {name} up");
            xk_linux::set_up(socket, name)
                .map_err(|error| self.refused("bring it up", remedy, error))?;
        }
        // Of an interface that is down the system takes none.
        options.host_routes.iter().try_for_each(|route| self.set_host_route(socket, *route))
    }

    fn mask(&self, prefix: u8) -> Result<Ipv4Addr, TapError> {
        let zeroes = 32u32.checked_sub(prefix.into());
        let mask = zeroes.map(|zeroes| u32::MAX.checked_shl(zeroes).unwrap_or(0));
        mask.map(Ipv4Addr::from_bits).ok_or_else(|| {
            let what = format!("a prefix of {prefix} bits is longer than an IPv4 address");
            TapError::Setting { name: self.name.clone(), what }
        })
    }

    fn set_host_route(
        &self,
        socket: BorrowedFd<'_>,
        (network, prefix, via): (Ipv4Addr, u8, Ipv4Addr),
    ) -> Result<(), TapError> {
        let name = &self.name;
        let mask = self.mask(prefix)?;
        let remedy = format!("sudo ip route add {network}/{prefix} via {via} dev {name}");
        xk_linux::add_route(socket, name, (network, mask), via).map_err(|error| {
            self.refused(&format!("route {network}/{prefix} via {via}"), remedy, error)
        })
    }

    fn set_host_address(
        &self,
        socket: BorrowedFd<'_>,
        address: Ipv4Addr,
        prefix: u8,
    ) -> Result<(), TapError> {
        let name = &self.name;
        let mask = self.mask(prefix)?;
        if xk_linux::address(socket, name).ok().flatten() == Some((address, mask)) {
            return Ok(());
        }
        let remedy = format!("sudo ip addr add {address}/{prefix} dev {name}");
        xk_linux::set_address(socket, name, address, mask).map_err(|error| {
            self.refused(&format!("give it the address {address}/{prefix}"), remedy, error)
        })
    }

    fn refused(&self, action: &str, remedy: String, source: io::Error) -> TapError {
        TapError::from_system(
            &self.name,
            format!("open {} and {action}", self.name),
            remedy,
            source,
        )
    }
}

/// Refuses what the system would misunderstand: it takes `%d` in a name as a wish for a number.
fn check_name(name: &str, options: &Options) -> Result<(), TapError> {
    let strange = |octet: u8| octet <= b' ' || matches!(octet, b'/' | b':' | b'%' | 0x7f);
    let chosen_by_system = name.is_empty() && options.create;
    if !chosen_by_system
        && (name.is_empty()
            || name.len() > 15
            || matches!(name, "." | "..")
            || name.bytes().any(strange))
    {
        return Err(TapError::Name { name: name.to_owned() });
    }
    Ok(())
}

fn inherited(number: RawFd) -> Result<OwnedFd, TapError> {
    xk_linux::inherited(number).map_err(|error| match error.raw_os_error() {
        Some(libc::EBADF) => TapError::Descriptor { number, what: "is not open".into() },
        _ => descriptor_error(number, &error),
    })
}

fn descriptor_error(number: RawFd, error: &io::Error) -> TapError {
    TapError::Descriptor { number, what: format!("cannot be used: {error}") }
}

/// A socket, to ask for settings of devices.
fn socket(name: &str) -> Result<OwnedFd, TapError> {
    rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None).map_err(|errno| {
        TapError::System {
            name: name.to_owned(),
            action: "open a socket".to_owned(),
            source: errno.into(),
        }
    })
}

/// Opens the driver.
fn open_driver() -> Result<OwnedFd, TapError> {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    rustix::fs::open(DRIVER, flags, Mode::empty()).map_err(|errno| match errno {
        rustix::io::Errno::ACCESS | rustix::io::Errno::PERM => TapError::NotPermitted {
            action: format!("open {DRIVER}"),
            remedy: format!("sudo chmod 0666 {DRIVER}"),
            source: errno.into(),
        },
        _ => TapError::NoDriver { source: errno.into() },
    })
}

/// Attaches the descriptor to the device; one that is in use is tried again for a while.
fn attach(tun: BorrowedFd<'_>, name: &str, headers: bool) -> io::Result<String> {
    let begun = Instant::now();
    loop {
        match device_unsafe::attach(tun, name, headers) {
            Err(error)
                if error.kind() == io::ErrorKind::ResourceBusy
                    && begun.elapsed() < FREED_WITHIN =>
            {
                std::thread::sleep(FREED_WITHIN / 50);
            }
            result => return result,
        }
    }
}

/// Sorts a failure of attaching.
fn attach_error(name: &str, source: io::Error) -> TapError {
    let name = name.to_owned();
    match source.kind() {
        io::ErrorKind::ResourceBusy => TapError::Busy { name, source },
        // The name is valid, so it is taken by an interface of another kind, or by a device of this
        // kind with other flags.
        io::ErrorKind::InvalidInput => TapError::NotTap { name, source },
        _ => {
            let remedy = format!("sudo ip tuntap add dev {name} mode tap user $USER");
            TapError::from_system(
                &name,
                format!("make or open the TAP device {name}"),
                remedy,
                source,
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strange_names_are_refused_before_anything_happens() {
        for name in ["", ".", "..", "a b", "a/b", "tap%d", "sixteen-octets--", "a:1", "tab\t"] {
            let error = TapDevice::open(name, &Options::default()).unwrap_err();
            assert!(matches!(error, TapError::Name { .. }), "{name:?}: {error}");
        }
    }

    #[test]
    fn a_missing_device_tells_what_there_is() {
        let error = TapDevice::open("xk-none", &Options::default()).unwrap_err();
        let told = error.to_string();
        assert!(matches!(error, TapError::NoDevice { .. }), "{told}");
        assert!(told.contains("lo") && told.contains("sudo ip tuntap add dev xk-none"), "{told}");
    }

    #[test]
    fn a_refusal_names_the_commands() {
        let told = attach_error("xk0", io::ErrorKind::PermissionDenied.into()).to_string();
        for part in
            ["make or open the TAP device xk0", "sudo ip tuntap add dev xk0 mode tap user $USER"]
        {
            assert!(told.contains(part), "{told}");
        }
        assert!(
            told.contains("sudo setcap cap_net_admin+ep $(which xk)") && told.contains("`sim`"),
            "{told}"
        );
    }
}
