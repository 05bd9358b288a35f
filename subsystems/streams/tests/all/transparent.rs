//! Transparent ioctls, with a driver that copies in and out.

use std::cell::Cell;
use std::rc::Rc;
use xk_core::Kernel;
use xk_streams::head::{
    self, Command, CopyReq, CopyResp, StrWait, TRANSPARENT, argument, copyin, copyout,
};
use xk_streams::{Bounds, Errno, Kind, Mblk, Module, ModuleInfo, Opening, Q, Stream, Streamtab};
use xk_testkit::kernel::TestKernel;

/// The driver turns round the octets of a record: the address and length of a string, four octets
/// each. It asks for the record, then for the string, and writes the string back.
const TURN: Command = Command(0x5501);
/// The command asks for an address that is nowhere.
const WILD: Command = Command(0x5502);
/// The command asks for nothing and is answered.
const PLAIN: Command = Command(0x5503);

#[derive(Default)]
struct Turner {
    record: Cell<(u32, u32)>,
    /// Questions that failed, of which the driver was told.
    failed: Cell<u32>,
}

struct Tab(Rc<Turner>);

impl Streamtab for Tab {
    fn info(&self) -> ModuleInfo {
        ModuleInfo::new(8, "turner")
    }

    fn open(&self, _: &Kernel, _: &Q, _: Opening) -> Result<Rc<dyn Module>, Errno> {
        Ok(Rc::<Turner>::clone(&self.0))
    }
}

impl Module for Turner {
    fn info(&self) -> ModuleInfo {
        ModuleInfo::new(8, "turner")
    }

    fn wput(&self, cx: &Kernel, q: &Q, mut mp: Mblk) {
        let command = head::Info::of(&mp).map(|info| info.command);
        let answer = match (mp.kind(), command) {
            (Kind::Ioctl, Some(PLAIN)) => head::acked(mp, 5),
            (Kind::Ioctl, Some(command)) => {
                // `I_STR` brings the data itself: this driver wants the other form.
                let at = argument(&mp).unwrap_or(0);
                let at = if command == WILD { u32::MAX - 3 } else { at };
                copyin(mp, (at, 8), 1)
            }
            (Kind::IocData, _) => {
                let resp = CopyResp::of(&mp).unwrap();
                let data = mp.unlinkb().map(|data| data.to_vec()).unwrap_or_default();
                let word = |at: usize| u32::from_le_bytes(*data[at..].first_chunk().unwrap());
                match (resp.error, resp.private) {
                    (Errno(0), 1) => {
                        self.record.set((word(0), word(4)));
                        copyin(mp, self.record.get(), 2)
                    }
                    (Errno(0), 2) => {
                        let turned: Vec<u8> = data.iter().rev().copied().collect();
                        let turned = q.blocks().copy(Kind::Data, 0, &turned).unwrap();
                        copyout(mp, self.record.get().0, turned, 3)
                    }
                    (Errno(0), _) => head::acked(mp, self.record.get().1),
                    _ => return self.failed.set(self.failed.get() + 1),
                }
            }
            _ => return drop(mp),
        };
        q.qreply(cx, answer);
    }
}

fn rig() -> (TestKernel, Rc<Turner>, Rc<Stream>) {
    let cx = TestKernel::new(1);
    let (streams, _) = xk_streams::add(&cx, "streams", Bounds::default());
    let turner = Rc::<Turner>::default();
    streams.add_driver("turner", Rc::new(Tab(Rc::clone(&turner))));
    let stream = streams.open(&cx, "turner").unwrap();
    (cx, turner, stream)
}

/// Memory with the record at 4, for a string at `at` of so many octets.
fn memory(at: u32, octets: u32) -> Vec<u8> {
    let mut memory = vec![0; 32];
    memory[4..8].copy_from_slice(&at.to_le_bytes());
    memory[8..12].copy_from_slice(&octets.to_le_bytes());
    memory[20..25].copy_from_slice(b"hello");
    memory
}

#[test]
fn a_driver_copies_in_and_out_of_what_the_call_lends() {
    let (cx, turner, stream) = rig();
    for is_nonblocking in [false, true] {
        stream.set_nonblocking(is_nonblocking);
        let mut octets = memory(20, 5);
        assert_eq!(stream.transparent(&cx, TURN, 4, &mut octets), Ok(5));
        assert_eq!(&octets[20..25], b"olleh");
    }
    let mut none = memory(20, 0);
    assert_eq!(stream.transparent(&cx, TURN, 4, &mut none), Ok(0));
    assert_eq!(stream.transparent(&cx, PLAIN, 0, &mut []), Ok(5));
    assert_eq!(turner.failed.get(), 0);
}

#[test]
fn what_is_not_lent_is_refused_and_the_driver_hears_of_it() {
    let (cx, turner, stream) = rig();
    for (command, argument, mut octets) in [
        (WILD, 4, memory(20, 5)),
        // The record lies outside, or its end does; the string does.
        (TURN, 32, memory(20, 5)),
        (TURN, 25, memory(20, 5)),
        (TURN, u32::MAX, memory(20, 5)),
        (TURN, 4, memory(20, 13)),
        (TURN, 4, memory(33, 1)),
        (TURN, 4, memory(u32::MAX, u32::MAX)),
        (TURN, 4, vec![]),
    ] {
        let before = (turner.failed.get(), octets.clone());
        let answer = stream.transparent(&cx, command, argument, &mut octets);
        assert_eq!(answer, Err(Errno::EFAULT), "{argument}");
        assert_eq!((turner.failed.get(), octets), (before.0 + 1, before.1));
    }
    // The next one is served.
    assert_eq!(stream.transparent(&cx, TURN, 4, &mut memory(20, 5)), Ok(5));
}

#[test]
fn questions_without_memory_to_answer_from_fail() {
    let (cx, turner, stream) = rig();
    // A request with data of its own has no memory behind it.
    let asked = stream.str_ioctl(&cx, TURN, b"01234567", StrWait::Usual);
    assert_eq!(asked, Err(Errno::EINVAL));
    // One that none waits for is answered, so that the driver releases it.
    let q = stream.head_q();
    for (kind, id) in [(Kind::CopyIn, 99), (Kind::CopyOut, 98)] {
        let mut octets = [0; 20];
        octets[4] = id;
        let before = turner.failed.get();
        q.put(&cx, stream.blocks().copy(kind, 0, &octets).unwrap());
        assert_eq!(turner.failed.get(), before + 1);
    }
    // And one of too few octets is dropped.
    q.put(&cx, stream.blocks().copy(Kind::CopyIn, 0, &[0; 19]).unwrap());
    let streams = stream.streams().unwrap();
    assert_eq!(streams.counts().lost, 1);
    assert_eq!(TRANSPARENT, u32::MAX);
    assert_eq!(CopyReq::of(&stream.blocks().copy(Kind::CopyIn, 0, &[1; 8]).unwrap()), None);
}
