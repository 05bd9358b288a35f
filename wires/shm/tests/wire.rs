//! The wire between a kernel and another program's link: the laws of wires, and peers that come, go
//! and misbehave.

use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, RecvFlags, SocketAddrUnix, SocketFlags, SocketType};
use xk_core::control::Describe;
use xk_core::graph::{BuildError, Look, Params, Value};
use xk_core::object::PushError;
use xk_core::{Kernel, Participants, ProtocolRef, Time};
use xk_kit::control::{LinkType, MaxPacket, MyEther};
use xk_run::real_kernel;
use xk_shm::{
    Broken, ENTRY, Geometry, LINK_BROKEN, LINK_DOWN, LINK_LOST, Link, Meeting, Options, Refusal,
    ShmError,
};
use xk_testkit::conformance::wire::{WireFixture, all};
use xk_testkit::kernel::Top;

/// More than any of these tests needs, even on a busy machine.
const STEP_TIME_MAX: Duration = Duration::from_secs(20);

/// A path of its own for each test, removed with it.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static LAST: AtomicU32 = AtomicU32::new(0);
        let number = LAST.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("xk-shm-{}-{number}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        Self(folder)
    }

    fn socket(&self) -> PathBuf {
        self.0.join("lab.sock")
    }

    fn files(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).unwrap();
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn params(place: &Folder) -> Params {
    let mut params = Params::default();
    params.set("path", Value::Text(place.socket().to_string_lossy().into_owned()));
    params.set("mtu", Value::Octets(1500));
    params.set("slots", Value::Integer(64));
    params
}

fn built(cx: &Kernel, params: &Params) -> Result<ProtocolRef, BuildError> {
    ENTRY.add(cx, "shm", &[], params)
}

/// A kernel with the wire, and the program at the other end.
struct Scene {
    cx: Rc<Kernel>,
    wire: ProtocolRef,
    peer: std::cell::RefCell<Option<Link>>,
    begun: Instant,
    place: Folder,
}

impl Scene {
    fn alone() -> Self {
        let cx = Rc::new(real_kernel(1 << 22).unwrap());
        let place = Folder::new();
        let wire = built(&cx, &params(&place)).unwrap();
        Self { cx, wire, peer: std::cell::RefCell::new(None), begun: Instant::now(), place }
    }

    fn linked() -> Self {
        let scene = Self::alone();
        scene.turn();
        scene.meet();
        scene
    }

    fn turn(&self) -> usize {
        let now = u64::try_from(self.begun.elapsed().as_nanos()).unwrap();
        self.cx.set_now(Time::from_ns(now));
        let wire = self.wire.wire().unwrap();
        let count = wire.poll(&self.cx, &self.wire, 64);
        wire.flush(&self.cx, &self.wire);
        count
    }

    /// Turns until `done`.
    fn until(&self, what: &str, mut done: impl FnMut() -> bool) {
        let begun = Instant::now();
        while !done() {
            assert!(begun.elapsed() < STEP_TIME_MAX, "{what}: {}", self.describe());
            self.turn();
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Brings the other program to the wire, in turn with it.
    fn meet(&self) {
        let mut meeting = Meeting::new(&self.place.socket(), &Options::default()).unwrap();
        self.until("a link", || {
            let link = meeting.step(Instant::now());
            let found = link.is_some();
            if found {
                *self.peer.borrow_mut() = link;
            }
            found
        });
        self.until("a link on this side", || self.describe().contains("linked"));
    }

    fn describe(&self) -> String {
        self.wire.ask(&self.cx, Describe::default()).unwrap().text
    }

    fn drops(&self, reason: &xk_core::Reason) -> u64 {
        self.wire.head().drops().of(reason)
    }

    fn send(&self, octets: &[u8]) {
        let mut peer = self.peer.borrow_mut();
        let peer = peer.as_mut().unwrap();
        peer.send(octets).unwrap();
        peer.flush();
    }

    fn open(&self, top: &Top) -> xk_core::SessionRef {
        top.open(&self.cx, &self.wire, Participants::default()).unwrap()
    }
}

impl WireFixture for Scene {
    fn cx(&self) -> &Kernel {
        &self.cx
    }

    fn wire(&self) -> &ProtocolRef {
        &self.wire
    }

    fn arrive(&self, octets: &[u8]) {
        self.send(octets);
        assert_eq!(self.turn(), 1);
    }
}

#[test]
fn keeps_the_laws_of_wires() {
    all(Scene::linked);
}

#[test]
fn frames_pass_both_ways_in_order() {
    let scene = Scene::linked();
    let top = Top::add(&scene.cx, "top");
    let session = scene.open(&top);
    let sent: Vec<Vec<u8>> = [0, 1, 60, 119, 120, 121, 1514]
        .iter()
        .map(|octets| (0..*octets).map(|at| (at % 251) as u8).collect())
        .collect();
    for frame in &sent {
        scene.send(frame);
        let mut message = scene.cx.pool().copy_from(128, &frame[frame.len() / 2..]).unwrap();
        // A header in front and in another slice.
        let front = scene.cx.pool().copy_from(0, &frame[..frame.len() / 2]).unwrap();
        let mut whole = front;
        std::mem::swap(&mut whole, &mut message);
        message.join(whole);
        session.push(&scene.cx, message).unwrap();
    }
    assert_eq!(scene.turn(), sent.len());
    let received = top.take_received();
    let mut peer = scene.peer.borrow_mut();
    for (frame, arrival) in sent.iter().zip(&received) {
        assert!(arrival.message.eq_octets(frame), "{} octets", frame.len());
        let mut room = [0; 1514];
        let octets = peer.as_mut().unwrap().receive(&mut room).unwrap();
        assert_eq!(octets.map(|octets| &room[..octets]), Some(&frame[..]));
    }
    assert_eq!(received.len(), sent.len());
}

#[test]
fn answers_its_questions() {
    let scene = Scene::linked();
    let (cx, wire) = (&scene.cx, &scene.wire);
    assert_eq!(wire.ask(cx, MaxPacket::default()).unwrap().octets, 1514);
    assert_eq!(wire.ask(cx, LinkType::default()).unwrap().number, 1);
    let address = wire.ask(cx, MyEther::default()).unwrap().address;
    assert_eq!(address[0] & 3, 2, "of local administration, and one station's");
    assert!(scene.describe().contains(&format!("process {}", std::process::id())));
}

#[test]
fn what_is_sent_without_a_peer_or_room_is_counted() {
    let scene = Scene::alone();
    scene.turn();
    let session = scene.open(&Top::add(&scene.cx, "top"));
    let message = || scene.cx.pool().copy_from(128, &[0; 60]).unwrap();
    assert_eq!(session.push(&scene.cx, message()), Err(PushError::Unreachable));
    assert_eq!(scene.drops(&LINK_DOWN), 1);
    scene.meet();
    for _ in 0..64 {
        session.push(&scene.cx, message()).unwrap();
    }
    assert_eq!(session.push(&scene.cx, message()), Err(PushError::QueueFull));
    assert_eq!(scene.drops(&xk_core::reason::QUEUE_FULL), 1);
}

#[test]
fn a_peer_comes_and_goes_and_its_last_frames_are_taken() {
    let scene = Scene::linked();
    let top = Top::add(&scene.cx, "top");
    let _session = scene.open(&top);
    let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let mut before = None;
    for round in 1..9 {
        for _ in 0..5 {
            scene.send(&[7; 100]);
        }
        drop(scene.peer.take());
        scene.until("the loss", || scene.drops(&LINK_LOST) == round);
        assert_eq!(top.received(), 5 * round);
        scene.meet();
        // Other tests run in this process at the same time: the least of several looks counts.
        let now = (0..20).map(|_| {
            std::thread::sleep(Duration::from_millis(1));
            descriptors()
        });
        let now = now.min().unwrap();
        assert!(now <= before.unwrap_or(now) + 40, "descriptors leak: {now}");
        before = before.or(Some(now));
    }
    scene.cx.stop();
    assert_eq!(scene.place.files(), Vec::<String>::new());
}

#[test]
fn a_peer_that_writes_what_cannot_be_loses_its_link_only() {
    let scene = Scene::linked();
    let session = scene.open(&Top::add(&scene.cx, "top"));
    // The slots of what the peer, which came second, sends lie behind ours.
    let first_slot = 4096 + 64 * 128;
    scene.peer.borrow_mut().as_mut().unwrap().end().poke(first_slot, 1 << 32 | 60_000);
    scene.until("the drop", || scene.drops(&LINK_BROKEN) == 1);
    scene.meet();
    let message = || scene.cx.pool().copy_from(128, &[0; 60]).unwrap();
    scene.peer.borrow_mut().as_mut().unwrap().end().poke(256 + 128, 1 << 20);
    let mut pushed = (0..65).map(|_| session.push(&scene.cx, message()));
    assert!(pushed.by_ref().take(64).all(|pushed| pushed.is_ok()));
    assert_eq!(pushed.next(), Some(Err(PushError::Unreachable)));
    assert_eq!(scene.drops(&LINK_BROKEN), 2);
    // A word where silence is due.
    scene.meet();
    let socket = scene.peer.borrow().as_ref().unwrap().socket().try_clone_to_owned().unwrap();
    rustix::io::write(&socket, b"hello?").unwrap();
    scene.until("the drop", || scene.drops(&LINK_BROKEN) == 3);
    scene.meet();
    scene.send(&[1; 60]);
    assert_eq!(scene.turn(), 1);
}

#[test]
fn a_third_party_is_sent_away_and_comes_in_later() {
    let scene = Scene::linked();
    let mut third = Meeting::new(&scene.place.socket(), &Options::default()).unwrap();
    let mut refused = false;
    scene.until("a refusal", || {
        assert!(third.step(Instant::now()).is_none());
        refused |= matches!(third.take_error(), Some(ShmError::Refused(Refusal::Busy)));
        refused
    });
    drop(scene.peer.take());
    scene.until("its turn", || third.step(Instant::now()).is_some());
}

/// A socket connected to the wire, which has not said anything yet.
fn stranger(scene: &Scene) -> OwnedFd {
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
    let socket = socket.unwrap();
    let address = SocketAddrUnix::new(scene.place.socket()).unwrap();
    rustix::net::connect(&socket, &address).unwrap();
    socket
}

/// The wire's answer to a hello; empty if it hangs up.
fn answer(scene: &Scene, socket: &OwnedFd) -> Vec<u8> {
    let mut octets = vec![0; 64];
    let mut answer = None;
    scene.until("an answer", || {
        let flags = RecvFlags::DONTWAIT;
        match rustix::net::recv(socket, &mut octets[..], flags) {
            Ok((count, _)) => answer = Some(count),
            Err(rustix::io::Errno::AGAIN) => {}
            Err(_) => answer = Some(0),
        }
        answer.is_some()
    });
    octets.truncate(answer.unwrap());
    octets
}

fn say(socket: &OwnedFd, octets: &[u8], files: &[&dyn AsFd]) {
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
    let files: Vec<_> = files.iter().map(|file| file.as_fd()).collect();
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(&files)));
    }
    let parts = [std::io::IoSlice::new(octets)];
    rustix::net::sendmsg(socket, &parts, &mut control, SendFlags::NOSIGNAL).unwrap();
}

const REQUEST: &[u8; 32] =
    b"xksm\x02\0\x01\0\0\x02\0\0\xea\x05\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";

#[test]
fn hellos_that_will_not_do_are_refused() {
    let scene = Scene::alone();
    scene.turn();
    let (bell, _kept) = std::io::pipe().unwrap();
    let file = std::fs::File::open("/dev/null").unwrap();
    let other = |at: usize, value: u8| {
        let mut hello = *REQUEST;
        hello[at] = value;
        hello.to_vec()
    };
    let whole = REQUEST.to_vec();
    let cases: [(Vec<u8>, Vec<&dyn AsFd>, u8); 10] = [
        (whole[..31].to_vec(), vec![&bell], 4),
        ([&whole[..], &[0]].concat(), vec![&bell], 4),
        (b"x".to_vec(), vec![], 4),
        (other(0, b'y'), vec![&bell], 4),
        (other(4, 9), vec![&bell], 2),
        (other(6, 2), vec![&bell], 4),
        (other(12, 0xeb), vec![&bell], 3),
        (whole.clone(), vec![], 4),
        (whole.clone(), vec![&file], 4),
        (whole.clone(), vec![&bell, &bell, &bell], 4),
    ];
    for (at, (octets, files, why)) in cases.iter().enumerate() {
        let socket = stranger(&scene);
        say(&socket, octets, files);
        let refusal = answer(&scene, &socket);
        assert_eq!(refusal.len(), 32, "case {at}");
        assert_eq!((refusal[6], refusal[16]), (3, *why), "case {at}");
        assert!(answer(&scene, &socket).is_empty(), "case {at}: it hangs up");
    }
    // Silent peers do not keep others out.
    let _silent = [(); 20].map(|()| {
        // Long enough that it looks: it keeps a few connections waiting, no more.
        std::thread::sleep(Duration::from_millis(11));
        scene.turn();
        stranger(&scene)
    });
    scene.meet();
}

/// A listener that grants what it likes.
fn granted(grant: impl FnOnce(&OwnedFd)) -> Option<ShmError> {
    let place = Folder::new();
    let flags = SocketFlags::CLOEXEC;
    let listener =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
    let listener = listener.unwrap();
    let address = SocketAddrUnix::new(place.socket()).unwrap();
    rustix::net::bind(&listener, &address).unwrap();
    rustix::net::listen(&listener, 4).unwrap();
    let geometry = Geometry::new(8, 60).unwrap();
    let options = Options { geometry, ..Options::default() };
    let mut meeting = Meeting::new(&place.socket(), &options).unwrap();
    assert!(meeting.step(Instant::now()).is_none());
    let socket = rustix::net::accept(&listener).unwrap();
    grant(&socket);
    assert!(meeting.step(Instant::now()).is_none(), "no link of this");
    meeting.take_error()
}

fn grant() -> [u8; 32] {
    let mut hello = *REQUEST;
    hello[6] = 2;
    hello[8..16].copy_from_slice(&[8, 0, 0, 0, 60, 0, 0, 0]);
    hello
}

#[test]
fn memory_that_could_hurt_is_not_taken() {
    use rustix::fs::{MemfdFlags, SealFlags};
    let octets = Geometry::new(8, 60).unwrap().octets() as u64;
    let (bell, _kept) = std::io::pipe().unwrap();
    let file = |octets, seals| {
        let file = rustix::fs::memfd_create("test", MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&file, octets).unwrap();
        rustix::fs::fcntl_add_seals(&file, seals).unwrap();
        file
    };
    let all = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    let memory = |error: Option<ShmError>| {
        assert!(matches!(error, Some(ShmError::Memory(_))), "{error:?}");
        error.unwrap().to_string()
    };
    for seals in [
        SealFlags::empty(),
        SealFlags::SHRINK | SealFlags::GROW,
        SealFlags::SHRINK | SealFlags::SEAL,
        SealFlags::GROW | SealFlags::SEAL,
        all | SealFlags::FUTURE_WRITE,
    ] {
        let file = file(octets, seals);
        let told = memory(granted(|to| say(to, &grant(), &[&file, &bell])));
        assert!(told.contains("not sealed"), "{seals:?}: {told}");
    }
    for wrong in [0, octets - 1, octets + 1, 4096, 1 << 40] {
        let file = file(wrong, all);
        let told = memory(granted(|to| say(to, &grant(), &[&file, &bell])));
        assert!(told.contains(&format!("{wrong} octets")), "{told}");
    }
    let null = std::fs::File::open("/dev/null").unwrap();
    memory(granted(|to| say(to, &grant(), &[&null, &bell])));
    // The rest of the grant.
    let good = file(octets, all);
    let hello = |error: Option<ShmError>| {
        assert!(matches!(error, Some(ShmError::Hello(_))), "{error:?}");
    };
    hello(granted(|to| say(to, &grant(), &[&good, &null])));
    hello(granted(|to| say(to, &grant(), &[&good])));
    hello(granted(|to| say(to, &grant(), &[])));
    hello(granted(|to| say(to, &grant(), &[&good, &bell, &bell])));
    hello(granted(|to| say(to, &grant()[..30], &[&good, &bell])));
    let mut more = grant();
    more[8] = 16;
    hello(granted(|to| say(to, &more, &[&good, &bell])));
    assert!(granted(|_| {}).is_none(), "silence is waited for");
}

#[test]
fn paths_that_cannot_be_are_told_with_a_remedy() {
    let place = Folder::new();
    let cx = real_kernel(1 << 20).unwrap();
    let told = |path: String| {
        let mut params = params(&place);
        params.set("path", Value::Text(path));
        let probe = ENTRY.probe.unwrap()(&params, Look::Machine);
        let error = built(&cx, &params).err();
        assert_eq!(probe.err(), error, "the check says what the run would");
        error.map(|error| error.to_string()).unwrap_or_default()
    };
    std::fs::write(place.socket(), "mine").unwrap();
    let at = |name: &str| place.0.join(name).to_string_lossy().into_owned();
    assert!(told(at("lab.sock")).contains("is no socket"));
    assert_eq!(std::fs::read(place.socket()).unwrap(), b"mine");
    assert!(told(at("nowhere/lab.sock")).contains("there is no folder"));
    assert!(told(at(&"a".repeat(120))).contains("is the most"));
    assert!(told(String::new()).contains("names no file"));
    assert_eq!(told(at("fine.sock")), "");
}

#[test]
fn a_stale_socket_is_taken_over() {
    let place = Folder::new();
    drop(std::os::unix::net::UnixListener::bind(place.socket()).unwrap());
    std::fs::write(place.0.join("lab.sock.lock"), "").unwrap();
    let options = Options::default();
    let path = place.socket();
    let other = {
        let (path, options) = (path.clone(), options.clone());
        std::thread::spawn(move || Link::meet(&path, &options, Some(STEP_TIME_MAX)).map(drop))
    };
    let mut link = Link::meet(&path, &options, Some(STEP_TIME_MAX)).unwrap();
    other.join().unwrap().unwrap();
    let begun = Instant::now();
    while link.check().is_ok() {
        let _ = link.wait(Some(Duration::from_millis(100)));
        assert!(begun.elapsed() < STEP_TIME_MAX);
    }
    let mut room = [0; 8];
    assert_eq!(link.receive(&mut room), Ok::<_, Broken>(None));
    assert_eq!(place.files(), Vec::<String>::new());
}

#[test]
fn two_programs_take_turns_asleep() {
    let (mut a, mut b) = Link::pair(&Geometry::default()).unwrap();
    let rounds = 3000;
    let wait = |link: &mut Link, room: &mut [u8]| {
        loop {
            if let Some(octets) = link.receive(room).unwrap() {
                return octets;
            }
            link.wait(Some(STEP_TIME_MAX)).unwrap();
        }
    };
    let echo = std::thread::spawn(move || {
        let mut room = [0; 1514];
        for _ in 0..rounds {
            let octets = wait(&mut b, &mut room);
            b.send(&room[..octets]).unwrap();
            b.flush();
        }
        b
    });
    let mut room = [0; 1514];
    for round in 0..rounds {
        let sent = vec![round as u8; round % 1515];
        a.send(&sent).unwrap();
        a.flush();
        let octets = wait(&mut a, &mut room);
        assert_eq!(room[..octets], sent);
    }
    drop(echo.join().unwrap());
    assert!(a.wait(None).is_err(), "the other end is gone");
}

/// A connected socket of TCP that to close takes an hour, and what keeps it so.
fn lingers() -> (std::net::TcpStream, std::net::TcpStream) {
    use rustix::net::sockopt;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut sender = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (reader, _) = listener.accept().unwrap();
    sender.set_nonblocking(true).unwrap();
    // It is never read.
    while std::io::Write::write(&mut sender, &[0; 1 << 16]).is_ok() {}
    sockopt::set_socket_linger(&sender, Some(Duration::from_secs(3600))).unwrap();
    (sender, reader)
}

/// Sends words and a descriptor, and closes both.
fn hand_over(path: &std::path::Path, hellos: &[&[u8]]) -> Vec<std::net::TcpStream> {
    use rustix::net::{
        AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
        SocketType,
    };
    use std::os::fd::AsFd;
    let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
    rustix::net::connect(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
    let mut readers = Vec::new();
    for hello in hellos {
        let (sender, reader) = lingers();
        let descriptors = [sender.as_fd(); 5];
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(5))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)));
        let words = [std::io::IoSlice::new(hello)];
        rustix::net::sendmsg(&socket, &words, &mut control, SendFlags::NOSIGNAL).unwrap();
        readers.push(reader);
    }
    readers
}

#[test]
fn descriptors_that_take_an_hour_to_close_hang_nobody() {
    let place = Folder::new();
    let path = place.socket();
    let options = Options::default();
    let mut meeting = Meeting::new(&path, &options).unwrap();
    let begun = Instant::now();
    while !meeting.is_listening() {
        assert!(begun.elapsed() < STEP_TIME_MAX);
        meeting.step(Instant::now());
    }
    // Taken and refused; and a second one, which is never looked at.
    let _readers = [
        hand_over(&path, &[b"nonsense"]),
        hand_over(&path, &[b"nonsense", b"more"]),
        hand_over(&path, &[b""]),
    ];
    let honest = std::thread::spawn({
        let (path, options) = (path.clone(), options.clone());
        move || Link::meet(&path, &options, Some(STEP_TIME_MAX)).map(|_| ())
    });
    let begun = Instant::now();
    let _link = loop {
        if let Some(link) = meeting.step(Instant::now()) {
            break link;
        }
        assert!(begun.elapsed() < STEP_TIME_MAX);
    };
    honest.join().unwrap().unwrap();
}
