//! Frames that cross and frames that are refused, the end, and a peer that sends no frames.

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use std::io::IoSlice;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};
use xk_core::{Kernel, Message};
use xk_domains::messages::{Data, FRAMES_MAX, Messages, pair};
use xk_domains::{Arrival, Carrier, FRAME_OCTETS_MAX, SendError};
use xk_testkit::kernel::TestKernel;

const HEAD: [u8; 12] = [7; 12];
const BOTH: [Data; 2] = [Data::InBand, Data::Mapped];

fn octets(count: usize) -> Vec<u8> {
    (0..count).map(|at| at as u8).collect()
}

fn message(cx: &Kernel, count: usize) -> Message {
    cx.pool().copy_from(0, &octets(count)).unwrap()
}

fn frame(messages: &Messages, cx: &Kernel) -> Option<Vec<u8>> {
    match messages.receive(cx) {
        Arrival::Frame(frame) => Some(frame.octets().collect()),
        Arrival::Nothing => None,
        Arrival::NoBuffers => panic!("there are buffers"),
        Arrival::Lost => panic!("it is not lost"),
    }
}

#[test]
fn frames_cross_whole_and_in_order() {
    let kernel = TestKernel::new(1);
    let cx = &*kernel;
    for data in BOTH {
        let (one, two) = pair(data).unwrap();
        for count in [0, 1, 100, 1472, 8192, FRAME_OCTETS_MAX - HEAD.len()] {
            one.send(cx, &HEAD, &message(cx, count)).unwrap();
            // Of two slices.
            let mut joined = message(cx, count / 2);
            joined.join(message(cx, count - count / 2));
            one.send(cx, &HEAD, &joined).unwrap();
            assert_eq!(frame(&two, cx).unwrap(), [&HEAD[..], &octets(count)].concat());
            let halves = [octets(count / 2), octets(count - count / 2)].concat();
            assert_eq!(frame(&two, cx).unwrap(), [&HEAD[..], &halves].concat(), "{data:?}");
            assert_eq!(frame(&two, cx), None);
        }
        let long = message(cx, FRAME_OCTETS_MAX);
        assert_eq!(one.send(cx, &HEAD, &long), Err(SendError::TooLong));
        // A frame of a channel has no head.
        two.send(cx, &[], &message(cx, 60)).unwrap();
        assert_eq!(frame(&one, cx).unwrap(), octets(60));
    }
}

#[test]
fn what_finds_no_room_is_refused_and_goes_later() {
    let kernel = TestKernel::new(1);
    let cx = &*kernel;
    for data in BOTH {
        let (one, two) = pair(data).unwrap();
        let body = message(cx, 1000);
        let mut sent = 0;
        let refused = loop {
            match one.send(cx, &HEAD, &body) {
                Ok(()) => sent += 1,
                Err(error) => break error,
            }
            assert!(sent < 100_000, "bounded");
        };
        assert_eq!(refused, SendError::Full, "{data:?}");
        let mut received = 0;
        while frame(&two, cx).is_some() {
            received += 1;
        }
        assert_eq!(received, sent, "nothing is lost");
        two.flush();
        assert_eq!(frame(&one, cx), None, "what tells of room is no frame");
        one.send(cx, &HEAD, &body).unwrap();
        assert!(frame(&two, cx).is_some());
    }
}

#[test]
fn as_many_are_under_way_as_the_peer_has_room_for() {
    let kernel = TestKernel::new(1);
    let cx = &*kernel;
    for data in BOTH {
        let (one, two) = pair(data).unwrap();
        let send = || one.send(cx, &HEAD, &message(cx, 1)).is_ok();
        let sent = (0..2 * FRAMES_MAX).take_while(|_| send()).count();
        assert!((1..=FRAMES_MAX).contains(&sent), "{data:?}: {sent}");
        assert_eq!(one.room(), FRAMES_MAX - sent, "a queue beyond has been counted on");
        for _ in 0..sent {
            assert!(frame(&two, cx).is_some());
        }
        two.flush();
        assert_eq!(frame(&one, cx), None, "what tells of room is no frame");
        assert_eq!(one.room(), FRAMES_MAX, "{data:?}: what was taken has made room");
        // A peer that has taken more than was sent is none.
        let (peer, own) = socketpair();
        let own = Messages::new(own, data);
        forge(&peer, &[&1_u32.to_le_bytes()[..], &[0; 16]].concat(), &[]);
        assert!(matches!(own.receive(cx), Arrival::Lost));
    }
}

fn socketpair() -> (OwnedFd, OwnedFd) {
    let flags = rustix::net::SocketFlags::CLOEXEC;
    let (unix, kind) = (rustix::net::AddressFamily::UNIX, rustix::net::SocketType::SEQPACKET);
    rustix::net::socketpair(unix, kind, flags, None).unwrap()
}

#[test]
fn what_was_sent_before_the_end_is_taken() {
    let kernel = TestKernel::new(1);
    let cx = &*kernel;
    for closes in [true, false] {
        for data in BOTH {
            let (one, two) = pair(data).unwrap();
            // Unread by the one that goes.
            two.send(cx, &HEAD, &message(cx, 10)).unwrap();
            one.send(cx, &HEAD, &message(cx, 100)).unwrap();
            one.send(cx, &HEAD, &message(cx, 200)).unwrap();
            if closes {
                one.close();
                assert!(matches!(one.receive(cx), Arrival::Lost));
                assert_eq!(one.send(cx, &HEAD, &message(cx, 1)), Err(SendError::Lost));
            } else {
                drop(one);
            }
            assert_eq!(frame(&two, cx).unwrap().len(), 112);
            assert_eq!(frame(&two, cx).unwrap().len(), 212);
            assert!(matches!(two.receive(cx), Arrival::Lost));
            assert_eq!(two.send(cx, &HEAD, &message(cx, 1)), Err(SendError::Lost));
        }
    }
}

fn file(octets: u64, seals: SealFlags) -> OwnedFd {
    let file = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&file, octets).unwrap();
    fcntl_add_seals(&file, seals).unwrap();
    file
}

/// Sends any octets, and any descriptors.
fn forge(socket: &OwnedFd, octets: &[u8], files: &[&OwnedFd]) {
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let files: Vec<_> = files.iter().map(|file| file.as_fd()).collect();
    assert!(files.is_empty() || control.push(SendAncillaryMessage::ScmRights(&files)));
    let parts = [IoSlice::new(octets)];
    rustix::net::sendmsg(socket, &parts, &mut control, SendFlags::empty()).unwrap();
}

#[test]
fn what_is_no_frame_ends_it() {
    let kernel = TestKernel::new(1);
    let cx = &*kernel;
    let sealed = file(4096, SealFlags::SHRINK);
    let large = file(1 << 30, SealFlags::SHRINK);
    let unsealed = file(4096, SealFlags::GROW);
    let empty = file(0, SealFlags::SHRINK);
    let device = OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
    let long = octets(FRAME_OCTETS_MAX + 1);
    // In front that no frame was taken, and by a side that may run anywhere.
    let few = [0; 20];
    let forged: [(Data, &[u8], &[&OwnedFd]); 8] = [
        (Data::InBand, &long, &[]),
        (Data::Mapped, &long, &[]),
        (Data::InBand, &few, &[&sealed]),
        (Data::Mapped, &few, &[&large]),
        (Data::Mapped, &few, &[&unsealed]),
        (Data::Mapped, &few, &[&empty]),
        (Data::Mapped, &few, &[&device]),
        (Data::InBand, &[], &[]),
    ];
    for (at, (data, octets, files)) in forged.into_iter().enumerate() {
        let (peer, own) = socketpair();
        let own = Messages::new(own, data);
        forge(&peer, octets, files);
        assert!(matches!(own.receive(cx), Arrival::Lost), "case {at}");
        assert!(matches!(own.receive(cx), Arrival::Lost), "case {at}: for good");
    }
    // Tests beside this one have such files, too, but release them.
    let is_file = |entry: &std::fs::DirEntry| {
        let target = std::fs::read_link(entry.path());
        target.is_ok_and(|target| target.to_string_lossy().contains("memfd:xk-message"))
    };
    let count = || std::fs::read_dir("/proc/self/fd").unwrap().flatten().filter(is_file).count();
    let (one, two) = pair(Data::Mapped).unwrap();
    one.send(cx, &HEAD, &message(cx, 100)).unwrap();
    assert!(frame(&two, cx).is_some());
    let ends = Instant::now() + Duration::from_secs(10);
    while count() > 0 {
        assert!(Instant::now() < ends, "the file is closed on either side");
        std::thread::sleep(Duration::from_millis(1));
    }
}
