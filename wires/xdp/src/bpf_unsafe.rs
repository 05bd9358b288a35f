//! The calls of bpf(2) that the redirect program needs, and a list of what there is.
//!
//! Source: bpf(2); Linux `include/uapi/linux/bpf.h` (`union bpf_attr`).

use std::ffi::{c_int, c_long};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::program::Instruction;

/// Commands.
const MAP_CREATE: c_int = 0;
const MAP_UPDATE: c_int = 2;
const PROGRAM_LOAD: c_int = 5;
const PROGRAM_RUN: c_int = 10;
const PROGRAM_NEXT: c_int = 11;
const MAP_NEXT: c_int = 12;
const PROGRAM_OPEN: c_int = 13;
const MAP_OPEN: c_int = 14;
const INFO: c_int = 15;
const LINK_CREATE: c_int = 28;
const LINK_OPEN: c_int = 30;
const LINK_NEXT: c_int = 31;

/// A map from queues to sockets; a program at the entrance of an interface, and its attachment.
const MAP_SOCKETS: u32 = 17;
const PROGRAM_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;

/// How a program is attached (`XDP_FLAGS_*` of `include/uapi/linux/if_link.h`).
pub(crate) const ATTACH_GENERIC: u32 = 1 << 1;
pub(crate) const ATTACH_NATIVE: u32 = 1 << 2;

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

/// Makes a map for the sockets of queues 0 to `queues - 1`.
pub(crate) fn create_map(name: &str, queues: u32) -> io::Result<OwnedFd> {
    let mut attributes = MapCreate {
        kind: MAP_SOCKETS,
        key_octets: 4,
        value_octets: 4,
        entries_max: queues,
        flags: 0,
        inner_map: 0,
        numa_node: 0,
        name: named(name),
    };
    bpf_open(MAP_CREATE, &mut attributes)
}

#[repr(C)]
struct MapUpdate {
    map: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

// SAFETY: laid out as the union's second part; `set_socket` gives addresses of four octets each, as
// the map was made.
unsafe impl Attributes for MapUpdate {}

/// Enters the socket of a queue.
pub(crate) fn set_socket(
    map: BorrowedFd<'_>,
    queue: u32,
    socket: BorrowedFd<'_>,
) -> io::Result<()> {
    let socket = socket.as_raw_fd();
    let mut attributes = MapUpdate {
        map: map.as_raw_fd() as u32,
        padding: 0,
        key: address(&queue),
        value: address(&socket),
        flags: 0,
    };
    bpf(MAP_UPDATE, &mut attributes).map(drop)
}

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

/// Loads a program.
///
/// # Errors
/// What the system answers, with what its verifier said, if anything.
pub(crate) fn load(name: &str, instructions: &[Instruction]) -> io::Result<OwnedFd> {
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
        name: named(name),
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

/// Attaches a program to an interface for as long as the answer is open.
pub(crate) fn attach(program: BorrowedFd<'_>, interface: u32, flags: u32) -> io::Result<OwnedFd> {
    let mut attributes = LinkCreate {
        program: program.as_raw_fd() as u32,
        interface,
        attach_type: ATTACH_XDP,
        flags,
    };
    bpf_open(LINK_CREATE, &mut attributes)
}

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

/// Runs a program on a frame that arrives at queue 0, without any effect, and gives its verdict
/// (`enum xdp_action`).
pub(crate) fn run(program: BorrowedFd<'_>, frame: &[u8]) -> io::Result<u32> {
    let mut attributes = ProgramRun {
        program: program.as_raw_fd() as u32,
        verdict: 0,
        octets_in: frame.len() as u32,
        octets_out: 0,
        data_in: address(frame),
        data_out: 0,
        repeat: 1,
        duration_ns: 0,
    };
    bpf(PROGRAM_RUN, &mut attributes)?;
    Ok(attributes.verdict)
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
    /// Its number among those of its kind.
    pub id: u32,
    /// Its name: `xk_` and the process number for ours. Links have none.
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

/// What the system tells of an object, as octets.
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
