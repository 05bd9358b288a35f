//! Opening, closing, and the ioctls with their errors.

use crate::rig::{FORBIDDEN, Rig, SILENT, TURN};
use core::time::Duration;
use xk_streams::head::{Command, StrWait};
use xk_streams::{Bounds, Errno, Kind};

#[test]
fn streams_are_opened_and_closed() {
    let rig = Rig::new();
    let (cx, seen) = (&rig.cx, &rig.seen);
    assert_eq!(rig.streams.open(cx, "none").err(), Some(Errno::ENOENT));
    seen.refuses.set(true);
    assert_eq!(rig.streams.open(cx, "dev").err(), Some(Errno::EBUSY));
    seen.refuses.set(false);
    assert_eq!(rig.streams.opens(), (1, 1));
    rig.stream.reopen(cx).unwrap();
    rig.stream.close(cx);
    assert_eq!((seen.opens.get(), seen.reopens.get(), seen.closes.get()), (1, 1, 0));
    rig.stream.write(cx, b"x").unwrap();
    rig.stream.close(cx);
    rig.stream.close(cx);
    assert_eq!((seen.closes.get(), rig.streams.opens()), (1, (1, 0)));
    assert_eq!(rig.stream.write(cx, b"x"), Err(Errno::EBADF));
    assert_eq!(rig.read(1), Err(Errno::EBADF));
    assert_eq!(rig.stream.nread(), Err(Errno::EBADF));
    assert_eq!(rig.stream.push(cx, "pass"), Err(Errno::EBADF));
    assert_eq!(rig.stream.reopen(cx), Err(Errno::EBADF));
}

#[test]
fn streams_are_bounded() {
    let cx = xk_testkit::kernel::TestKernel::new(1);
    let bounds = Bounds { streams_max: 2, push_max: 2, ..Bounds::default() };
    let (streams, _) = xk_streams::add(&cx, "streams", bounds);
    crate::tic::add(&streams);
    streams.add_module("pass", std::rc::Rc::new(crate::rig::Pass("pass")));
    let one = streams.open(&cx, "ticlts").unwrap();
    let _two = streams.open(&cx, "ticlts").unwrap();
    assert_eq!(streams.open(&cx, "ticlts").err(), Some(Errno::ENOSR));
    assert_eq!((one.push(&cx, "pass"), one.push(&cx, "pass")), (Ok(()), Ok(())));
    assert_eq!(one.push(&cx, "pass"), Err(Errno::EINVAL));
    one.close(&cx);
    assert!(streams.open(&cx, "ticlts").is_ok());
}

#[test]
fn modules_are_pushed_popped_and_listed() {
    let rig = Rig::new();
    let (cx, stream) = (&rig.cx, &rig.stream);
    assert_eq!((stream.look(), stream.pop(cx)), (Err(Errno::EINVAL), Err(Errno::EINVAL)));
    assert_eq!(stream.push(cx, "none"), Err(Errno::EINVAL));
    assert_eq!(stream.push(cx, "bad"), Err(Errno::EPERM));
    stream.push(cx, "pass").unwrap();
    stream.push(cx, "other").unwrap();
    assert_eq!(stream.list().unwrap(), ["other", "pass", "dev"]);
    assert_eq!(stream.look().unwrap(), "other");
    assert_eq!((stream.find("pass"), stream.find("bad")), (Ok(true), Ok(false)));
    for name in ["", "none", "dev", "waytoolong"] {
        assert_eq!(stream.find(name), Err(Errno::EINVAL), "{name}");
    }
    // Both ways through the two.
    stream.write(cx, b"down").unwrap();
    rig.up(Kind::Data, b"up");
    assert_eq!(rig.got(), [(Kind::Data, b"down".to_vec())]);
    assert_eq!(rig.read(9).unwrap(), b"up");
    stream.pop(cx).unwrap();
    assert_eq!(stream.list().unwrap(), ["pass", "dev"]);
    stream.write(cx, b"down").unwrap();
    assert_eq!(rig.got().len(), 1);
}

#[test]
fn commands_go_to_the_driver() {
    let rig = Rig::new();
    let (cx, stream) = (&rig.cx, &rig.stream);
    let ask = |command, data: &[u8]| stream.str_ioctl(cx, command, data, StrWait::Usual);
    assert_eq!(ask(TURN, b"abc"), Ok((7, b"cba".to_vec())));
    assert_eq!(ask(TURN, b""), Ok((7, vec![])));
    assert_eq!(ask(FORBIDDEN, b"abc"), Err(Errno::EPERM));
    assert_eq!(ask(Command(9), b""), Err(Errno::EINVAL));
    assert_eq!(ask(TURN, &[0; 65_537]), Err(Errno::EINVAL));
    // An answer that none waits for is dropped.
    rig.up(Kind::IocAck, &[0; 20]);
    rig.up(Kind::IocNak, b"");
    assert_eq!(rig.streams.counts().lost, 2);
    assert_eq!(ask(TURN, b"abc"), Ok((7, b"cba".to_vec())));
}

#[test]
fn a_command_without_an_answer_ends_after_15_s() {
    let cx = xk_testkit::kernel::TestKernel::with_stacks(1);
    let (streams, _) = xk_streams::add(&cx, "streams", Bounds::default());
    let seen = std::rc::Rc::<crate::rig::Seen>::default();
    let packets = (0, u32::MAX);
    let driver = crate::rig::Driver { name: "dev", seen, is_multiplexor: false, packets };
    streams.add_driver("dev", std::rc::Rc::new(driver));
    let stream = streams.open(&cx, "dev").unwrap();
    let second = std::rc::Rc::clone(&stream);
    let tasks: Vec<xk_testkit::kernel::Task> = vec![
        Box::new(move |cx| {
            for (wait, seconds) in [(StrWait::Usual, 15), (StrWait::For(Duration::from_secs(3)), 3)]
            {
                let before = cx.now();
                assert_eq!(stream.str_ioctl(cx, SILENT, b"", wait), Err(Errno::ETIME));
                assert_eq!(cx.now().since(before), Duration::from_secs(seconds));
            }
        }),
        // One at a time: this one waits for the two to end.
        Box::new(move |cx| {
            let before = cx.now();
            let answer = second.str_ioctl(cx, TURN, b"ab", StrWait::Infinite);
            assert_eq!(answer, Ok((7, b"ba".to_vec())));
            assert_eq!(cx.now().since(before), Duration::from_secs(18));
        }),
    ];
    assert!(cx.run_tasks(Duration::from_secs(60), tasks, |_| 0));
}

#[test]
fn figures_are_told() {
    let rig = Rig::new();
    rig.up(Kind::Data, b"abc");
    rig.up(Kind::Data, b"de");
    assert_eq!(rig.stream.nread(), Ok((3, 2)));
    assert_eq!(rig.stream.at_mark(), Ok(false));
    let mut mp = rig.streams.blocks().copy(Kind::Data, 0, b"m").unwrap();
    mp.flag = xk_streams::block::MSGMARK;
    rig.read(9).unwrap();
    rig.up_message(mp);
    assert_eq!(rig.stream.at_mark(), Ok(true));
    let usual = Duration::from_secs(15);
    assert_eq!(rig.stream.set_close_wait(Duration::from_secs(1)), Ok(usual));
    rig.stream.push(&rig.cx, "pass").unwrap();
    let report = rig.streams.report();
    assert!(report.contains(&("stream".into(), "strhead pass dev".into())), "{report:?}");
    assert!(report.contains(&("streams".into(), "1 open, 1 opened".into())));
}

#[test]
fn another_stream_is_named_in_a_message() {
    let rig = Rig::new();
    let (cx, stream) = (&rig.cx, &rig.stream);
    let other = rig.streams.open(cx, "dev").unwrap();
    stream.fdinsert(cx, &[0; 8], 4, Some(b"d"), &other).unwrap();
    for offset in [1, 5, 8, usize::MAX] {
        assert_eq!(stream.fdinsert(cx, &[0; 8], offset, None, &other), Err(Errno::EINVAL));
    }
    let got = rig.got();
    assert_eq!(got[0].1[4..8], other.token().to_le_bytes());
    let found = rig.streams.stream_of(other.token()).unwrap();
    assert!(std::rc::Rc::ptr_eq(&found, &other));
    other.close(cx);
    assert!(rig.streams.stream_of(other.token()).is_none());
}
