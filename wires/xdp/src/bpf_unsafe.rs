//! The calls of bpf(2) that programs at the entrance of an interface need, and a list of what there
//! is.
//!
//! Source: bpf(2); Linux `include/uapi/linux/bpf.h` (`union bpf_attr`).

use std::ffi::{c_int, c_long};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::assembler::Instruction;

/// Commands.
const MAP_CREATE: c_int = 0;
const MAP_FIND: c_int = 1;
const MAP_UPDATE: c_int = 2;
const MAP_DELETE: c_int = 3;
const PROGRAM_LOAD: c_int = 5;
const PROGRAM_RUN: c_int = 10;
const PROGRAM_NEXT: c_int = 11;
const MAP_NEXT: c_int = 12;
const PROGRAM_OPEN: c_int = 13;
const MAP_OPEN: c_int = 14;
const INFO: c_int = 15;
const LINK_CREATE: c_int = 28;
const LINK_UPDATE: c_int = 29;
const LINK_OPEN: c_int = 30;
const LINK_NEXT: c_int = 31;
const LINK_DETACH: c_int = 34;

/// A program at the entrance of an interface, and its attachment.
const PROGRAM_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;

/// Modes of attaching a program (`XDP_FLAGS_*` of `include/uapi/linux/if_link.h`).
const ATTACH_GENERIC: u32 = 1 << 1;
const ATTACH_NATIVE: u32 = 1 << 2;

/// Octets of an object's name, with the zero at the end.
const NAME_OCTETS: usize = 16;

/// Kinds of objects that the system numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Object {
    /// A loaded program.
    Program,
    /// A map.
    Map,
    /// An attachment of a program.
    Link,
}

/// A part of `union bpf_attr`.
///
/// # Safety
/// The type has the layout of the beginning of the command's part of the union, without padding;
/// its addresses are 0 or point to as much memory as the command reads or writes, which stays valid
/// during the call.
unsafe trait Attributes {}

/// Does one command. The answer is not negative.
fn bpf<A: Attributes>(command: c_int, attributes: &mut A) -> io::Result<c_long> {
    // SAFETY: by the trait's contract the system finds what the command needs and writes only where
    // it may.
    let answer = unsafe {
        libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(attributes), size_of::<A>())
    };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(answer) }
}

/// Does a command that answers a descriptor.
fn bpf_open<A: Attributes>(command: c_int, attributes: &mut A) -> io::Result<OwnedFd> {
    let number = c_int::try_from(bpf(command, attributes)?)
        .map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
    // SAFETY: the system has just given this descriptor to us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

fn address<T: ?Sized>(of: &T) -> u64 {
    std::ptr::from_ref(of).cast::<()>().expose_provenance() as u64
}

/// A name as the system keeps it: cut if it is too long.
fn named(name: &str) -> [u8; NAME_OCTETS] {
    let mut octets = [0; NAME_OCTETS];
    for (to, from) in octets[..NAME_OCTETS - 1].iter_mut().zip(name.bytes()) {
        *to = from;
    }
    octets
}

#[repr(C)]
struct MapCreate {
    kind: u32,
    key_octets: u32,
    value_octets: u32,
    entries_max: u32,
    flags: u32,
    inner_map: u32,
    numa_node: u32,
    name: [u8; NAME_OCTETS],
}

// SAFETY: laid out as the union's first part; without addresses.
unsafe impl Attributes for MapCreate {}

/// Kind of a map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MapKind {
    /// From octets to octets; memory is taken as values come.
    Hash,
    /// From places to octets, all of them there, zero at first.
    Array,
    /// From numbers to interfaces, of any network namespace: both have four octets. An interface
    /// is found by its number in the namespace of the thread that enters it.
    Devices,
    /// From queues to XDP sockets: the key and the descriptor have four octets each.
    Sockets,
}

impl MapKind {
    /// Number of the kind, and the flags (`BPF_F_NO_PREALLOC`).
    fn number(self) -> (u32, u32) {
        match self {
            Self::Hash => (1, 1),
            Self::Array => (2, 0),
            Self::Devices => (25, 0),
            Self::Sockets => (17, 0),
        }
    }
}

/// A map that programs and processes share, for as long as either has it.
#[derive(Debug)]
pub struct Map {
    fd: OwnedFd,
    key_octets: usize,
    value_octets: usize,
}

impl Map {
    /// A map of up to `entries_max` values, named after this process.
    ///
    /// # Errors
    /// No right (`CAP_BPF`), no memory, or sizes that the system does not take.
    pub fn new(
        kind: MapKind,
        key_octets: usize,
        value_octets: usize,
        entries_max: u32,
    ) -> io::Result<Self> {
        let size = |octets| u32::try_from(octets).map_err(|_| io::ErrorKind::InvalidInput);
        let (number, flags) = kind.number();
        let mut attributes = MapCreate {
            kind: number,
            key_octets: size(key_octets)?,
            value_octets: size(value_octets)?,
            entries_max,
            flags,
            inner_map: 0,
            numa_node: 0,
            name: named(&object_name()),
        };
        let fd = bpf_open(MAP_CREATE, &mut attributes)?;
        Ok(Self { fd, key_octets, value_octets })
    }

    /// The command with this key, and a value that the system reads or writes.
    fn entry(&self, command: c_int, key: &[u8], value: u64) -> io::Result<()> {
        if key.len() != self.key_octets {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let map = self.fd.as_raw_fd() as u32;
        let mut attributes = MapEntry { map, padding: 0, key: address(key), value, flags: 0 };
        bpf(command, &mut attributes).map(drop)
    }

    /// Enters a value, or replaces it.
    ///
    /// # Errors
    /// The sizes are not those of the map, or it is full.
    pub fn set(&self, key: &[u8], value: &[u8]) -> io::Result<()> {
        if value.len() != self.value_octets {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.entry(MAP_UPDATE, key, address(value))
    }

    /// Writes the value of a key to `value`.
    ///
    /// # Errors
    /// There is none, or the sizes are not those of the map.
    pub fn get(&self, key: &[u8], value: &mut [u8]) -> io::Result<()> {
        if value.len() != self.value_octets {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.entry(MAP_FIND, key, value.as_mut_ptr().expose_provenance() as u64)
    }

    /// Takes a key out.
    ///
    /// # Errors
    /// It is not there, or is not as long as the map's.
    pub fn remove(&self, key: &[u8]) -> io::Result<()> {
        self.entry(MAP_DELETE, key, 0)
    }

    /// Descriptor of the map.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The name of what this process loads.
fn object_name() -> String {
    format!("xk_{}", std::process::id())
}

#[repr(C)]
struct MapEntry {
    map: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

// SAFETY: laid out as the union's second part; `Map::entry` gives the address of a key of the map's
// length, `set` and `get` that of a value of its length, and deleting reads none.
unsafe impl Attributes for MapEntry {}

#[repr(C)]
struct ProgramLoad {
    kind: u32,
    count: u32,
    instructions: u64,
    licence: u64,
    log_level: u32,
    log_octets: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; NAME_OCTETS],
    interface: u32,
    attach_type: u32,
}

// SAFETY: laid out as the union's part for loading; `load` gives the instructions' address with
// their count, a string that ends with a zero, and a buffer with its length.
unsafe impl Attributes for ProgramLoad {}

/// A loaded program.
#[derive(Debug)]
pub struct Program(OwnedFd);

impl Program {
    /// Loads a program, named after this process.
    ///
    /// # Errors
    /// What the system answers, with what its verifier said, if anything.
    pub fn load(instructions: &[Instruction]) -> io::Result<Self> {
        load(instructions).map(Self)
    }

    /// Attaches it to an interface for as long as the answer is open.
    ///
    /// # Errors
    /// The interface has a program, or its driver takes none.
    pub fn attach(&self, interface: u32, native: bool) -> io::Result<Attachment> {
        let mut attributes = LinkCreate {
            program: self.0.as_raw_fd() as u32,
            interface,
            attach_type: ATTACH_XDP,
            flags: if native { ATTACH_NATIVE } else { ATTACH_GENERIC },
        };
        bpf_open(LINK_CREATE, &mut attributes).map(Attachment)
    }

    /// Runs it on a frame of at least 14 octets that arrives at queue 0, without any effect, and
    /// gives its verdict (`enum xdp_action`).
    ///
    /// # Errors
    /// What the system gives, as for a frame that is too short.
    pub fn run(&self, frame: &[u8]) -> io::Result<u32> {
        run(self.0.as_fd(), frame, 1).map(|(verdict, _)| verdict)
    }

    /// Nanoseconds that it takes on such a frame, by the system's clock around so many runs.
    ///
    /// # Errors
    /// As for [`run`](Self::run).
    pub fn time_ns(&self, frame: &[u8], runs: u32) -> io::Result<u32> {
        run(self.0.as_fd(), frame, runs).map(|(_, ns)| ns)
    }
}

/// A program at the entrance of an interface, until this is dropped.
#[derive(Debug)]
pub struct Attachment(OwnedFd);

impl Attachment {
    /// Has another program in the place of this one, from one frame to the next.
    ///
    /// # Errors
    /// The interface is gone.
    pub fn replace(&self, program: &Program) -> io::Result<()> {
        let mut attributes = LinkUpdate {
            link: self.0.as_raw_fd() as u32,
            program: program.0.as_raw_fd() as u32,
            flags: 0,
            old_program: 0,
        };
        bpf(LINK_UPDATE, &mut attributes).map(drop)
    }
}

/// Loads a program.
fn load(instructions: &[Instruction]) -> io::Result<OwnedFd> {
    let mut attributes = ProgramLoad {
        kind: PROGRAM_XDP,
        count: instructions.len() as u32,
        instructions: address(instructions),
        licence: address(c"Dual MIT/GPL".to_bytes_with_nul()),
        log_level: 0,
        log_octets: 0,
        log: 0,
        kernel_version: 0,
        flags: 0,
        name: named(&object_name()),
        interface: 0,
        attach_type: ATTACH_XDP,
    };
    let error = match bpf_open(PROGRAM_LOAD, &mut attributes) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => error,
        loaded_or_not_permitted => return loaded_or_not_permitted,
    };
    // Once more, for the verifier's words.
    let mut log = vec![0u8; 1 << 16];
    attributes.log_level = 1;
    attributes.log_octets = log.len() as u32;
    attributes.log = log.as_mut_ptr().expose_provenance() as u64;
    match bpf_open(PROGRAM_LOAD, &mut attributes) {
        Ok(program) => Ok(program),
        Err(_) => {
            let said = String::from_utf8_lossy(&log);
            let said = said.trim_end_matches('\0');
            Err(io::Error::new(error.kind(), format!("{error}: {said}")))
        }
    }
}

#[repr(C)]
struct LinkCreate {
    program: u32,
    interface: u32,
    attach_type: u32,
    flags: u32,
}

// SAFETY: laid out as the union's part for links; without addresses.
unsafe impl Attributes for LinkCreate {}

impl Drop for Attachment {
    /// Takes the program off at once; the end of the process does it some time later.
    fn drop(&mut self) {
        // It fails where the interface is gone.
        let _ = bpf(LINK_DETACH, &mut LinkDetach { link: self.0.as_raw_fd() as u32 });
    }
}

#[repr(C)]
struct LinkDetach {
    link: u32,
}

// SAFETY: laid out as the union's part for taking links off; without addresses.
unsafe impl Attributes for LinkDetach {}

#[repr(C)]
struct LinkUpdate {
    link: u32,
    program: u32,
    flags: u32,
    old_program: u32,
}

// SAFETY: laid out as the union's part for changing links; without addresses.
unsafe impl Attributes for LinkUpdate {}

#[repr(C)]
struct ProgramRun {
    program: u32,
    verdict: u32,
    octets_in: u32,
    octets_out: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    duration_ns: u32,
}

// SAFETY: laid out as the union's part for test runs; `run` gives the address of the frame with its
// length, and takes nothing back.
unsafe impl Attributes for ProgramRun {}

/// The verdict, and how many nanoseconds a run has taken.
fn run(program: BorrowedFd<'_>, frame: &[u8], repeat: u32) -> io::Result<(u32, u32)> {
    let mut attributes = ProgramRun {
        program: program.as_raw_fd() as u32,
        verdict: 0,
        octets_in: frame.len() as u32,
        octets_out: 0,
        data_in: address(frame),
        data_out: 0,
        repeat,
        duration_ns: 0,
    };
    bpf(PROGRAM_RUN, &mut attributes)?;
    Ok((attributes.verdict, attributes.duration_ns))
}

#[repr(C)]
struct NextId {
    id: u32,
    next: u32,
    flags: u32,
}

// SAFETY: laid out as the union's part for numbers; without addresses.
unsafe impl Attributes for NextId {}

#[repr(C)]
struct GetInfo {
    object: u32,
    octets: u32,
    info: u64,
}

// SAFETY: laid out as the union's part for information; `info` gives a buffer's address with its
// length.
unsafe impl Attributes for GetInfo {}

/// An object that the system has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Number among objects of its kind.
    pub id: u32,
    /// Name: `xk_` and the process number for ours. Links have none.
    pub name: String,
    /// The program that a link attaches.
    pub program: Option<u32>,
}

/// All objects of a kind on this machine, for finding what was left behind.
///
/// # Errors
/// No right to ask (`CAP_SYS_ADMIN`).
pub fn objects(kind: Object) -> io::Result<Vec<Found>> {
    let (command, open) = match kind {
        Object::Program => (PROGRAM_NEXT, PROGRAM_OPEN),
        Object::Map => (MAP_NEXT, MAP_OPEN),
        Object::Link => (LINK_NEXT, LINK_OPEN),
    };
    let mut found = Vec::new();
    let mut last = 0;
    loop {
        let asked = |id| NextId { id, next: 0, flags: 0 };
        let mut attributes = asked(last);
        match bpf(command, &mut attributes) {
            Ok(_) => last = attributes.next,
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(found),
            Err(error) => return Err(error),
        }
        // It may be gone by now.
        if let Ok(object) = bpf_open(open, &mut asked(last)) {
            found.push(describe(kind, last, &info(&object)?));
        }
    }
}

/// Facts of the system about an object, as octets.
fn info(object: &OwnedFd) -> io::Result<Vec<u8>> {
    let mut info = [0u64; 32];
    let mut attributes = GetInfo {
        object: object.as_raw_fd() as u32,
        octets: size_of_val(&info) as u32,
        info: info.as_mut_ptr().expose_provenance() as u64,
    };
    bpf(INFO, &mut attributes)?;
    Ok(info.iter().flat_map(|word| word.to_ne_bytes()).collect())
}

/// Reads the information on an object (`struct bpf_prog_info`, `bpf_map_info`, `bpf_link_info`).
fn describe(kind: Object, id: u32, info: &[u8]) -> Found {
    let name = |at: usize| {
        let octets = info.iter().skip(at).take(NAME_OCTETS);
        let name = octets.take_while(|octet| **octet != 0);
        name.map(|octet| char::from(*octet)).collect()
    };
    let number = |at: usize| Some(u32::from_ne_bytes(*info.get(at..)?.first_chunk()?));
    match kind {
        Object::Program => Found { id, name: name(64), program: None },
        Object::Map => Found { id, name: name(24), program: None },
        Object::Link => Found { id, name: String::new(), program: number(8) },
    }
}
