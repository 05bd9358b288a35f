//! Bounds of adapters: what they hold is bounded and released, with neighbours that take nothing,
//! that hang up, that are taken off, and with few buffers left.

use crate::rig::{Of, PAIRS, Rig, addr};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use xk_bsd::Bsd;
use xk_core::{Kernel, reason};
use xk_streams::module::Services;
use xk_streams::{
    Errno, Kind, Mblk, Module, ModuleInfo, Opening, Q, StreamModules, Streams, Streamtab,
};
use xk_testkit::kernel::TestKernel;

/// Octets that wait at most: those of the adapter, and those of the driver's queue.
const WAITING_MAX: usize = 2 * 65_536;
const SIZE: usize = 500;
/// Pairs whose lower end has queues.
const ON_STREAMS: [(Of, Of); 2] = [(Of::Xk, Of::Streams), (Of::Bsd, Of::Streams)];
/// Pairs whose upper end has queues.
const UNDER_STREAMS: [(Of, Of); 2] = [(Of::Streams, Of::Xk), (Of::Streams, Of::Bsd)];

fn numbered(n: usize) -> Vec<u8> {
    (0..SIZE).map(|at| (n * 31 + at) as u8).collect()
}

/// Sends until the adapter refuses; how many it took.
fn fill(rig: &Rig, pair: (Of, Of)) -> usize {
    let (from, to) = (addr(130, 3), addr(140, 4));
    let sent = (0..1000).map(|n| rig.send(from, to, &[&numbered(n)]));
    let taken: Vec<_> = sent.take_while(Result::is_ok).collect();
    let refused = rig.send(from, to, &[b"more"]);
    let expected = if pair.0 == Of::Xk { "QueueFull" } else { "ENOBUFS" };
    assert_eq!(refused, Err(expected.to_owned()), "{pair:?} after {}", taken.len());
    assert!(taken.len() * SIZE <= WAITING_MAX, "{pair:?}: {} wait", taken.len());
    assert!(taken.len() * SIZE >= 65_536, "{pair:?}: {} wait", taken.len());
    taken.len()
}

#[test]
fn what_finds_no_room_below_waits_and_goes_on_in_its_order() {
    for pair in ON_STREAMS {
        let rig = Rig::new(pair);
        rig.log.is_full_below.set(true);
        let taken = fill(&rig, pair);
        assert_eq!(rig.take(), [], "{pair:?}");
        rig.log.is_full_below.set(false);
        rig.act(&rig.log.enable_below);
        let arrived: Vec<_> = rig.take().into_iter().map(|(.., octets)| octets).collect();
        let expected: Vec<_> = (0..taken).map(numbered).collect();
        assert!(arrived == expected, "{pair:?}: {} of {taken}", arrived.len());
        assert_eq!(rig.in_use(), (0, 0, 0), "{pair:?}");
        // And it goes as before.
        assert_eq!(rig.send(addr(130, 3), addr(140, 4), &[b"after"]), Ok(()), "{pair:?}");
        assert_eq!(rig.take().len(), 1, "{pair:?}");
    }
}

#[test]
fn what_waits_is_let_go_when_the_graph_is_taken_down() {
    for pair in ON_STREAMS {
        let rig = Rig::new(pair);
        let (bsd, streams) = (Bsd::of(&rig.cx), Streams::of(&rig.cx).unwrap());
        rig.log.is_full_below.set(true);
        fill(&rig, pair);
        rig.stop();
        assert_eq!(rig.cx.live(), (0, 0), "{pair:?}");
        assert!(bsd.is_none_or(|bsd| bsd.mbufs().mbstat().in_use == 0), "{pair:?}");
        assert_eq!(streams.blocks().stats().messages, 0, "{pair:?}");
        assert_eq!(rig.cx.timers(), 0, "{pair:?}");
    }
}

#[test]
fn what_waits_is_lost_and_counted_when_the_line_below_hangs_up() {
    for pair in ON_STREAMS {
        let rig = Rig::new(pair);
        rig.log.is_full_below.set(true);
        let taken = fill(&rig, pair);
        let streams = Streams::of(&rig.cx).unwrap();
        let lost = streams.counts().lost;
        rig.act(&rig.log.hang_up);
        assert_eq!(streams.counts().lost - lost, taken as u64, "{pair:?}");
        assert_eq!(rig.in_use(), (0, 0, 0), "{pair:?}");
        rig.log.is_full_below.set(false);
        let sent = rig.send(addr(130, 3), addr(140, 4), &[b"after"]);
        match pair.0 {
            // A session that is opened then has a stream of its own.
            Of::Xk => assert_eq!((sent, rig.take().len()), (Ok(()), 1), "{pair:?}"),
            _ => assert_eq!(sent, Err("ENETDOWN".to_owned()), "{pair:?}"),
        }
        assert_eq!(rig.in_use(), (0, 0, 0), "{pair:?}");
    }
}

#[test]
fn what_finds_no_room_above_is_dropped_and_counted() {
    for pair in UNDER_STREAMS {
        for stops in [false, true] {
            let rig = Rig::new(pair);
            let streams = Streams::of(&rig.cx).unwrap();
            rig.log.is_full_above.set(true);
            let (from, to) = (addr(130, 3), addr(140, 4));
            for n in 0..300 {
                assert_eq!(rig.send(from, to, &[&numbered(n)]), Ok(()), "{pair:?}");
            }
            assert_eq!(rig.take(), [], "{pair:?}");
            let dropped = rig.adapter.head().drops().of(&reason::QUEUE_FULL);
            let waiting = 300 - dropped as usize;
            assert!((1..=130).contains(&waiting), "{pair:?}: {waiting} wait");
            assert_eq!(streams.blocks().stats().messages, 2 * waiting, "{pair:?}");
            if stops {
                rig.stop();
                assert_eq!(rig.cx.live(), (0, 0), "{pair:?}");
                assert_eq!(streams.blocks().stats().messages, 0, "{pair:?}");
                continue;
            }
            rig.log.is_full_above.set(false);
            rig.act(&rig.log.enable_above);
            let arrived: Vec<_> = rig.take().into_iter().map(|(.., octets)| octets).collect();
            let expected: Vec<_> = (0..waiting).map(numbered).collect();
            assert!(arrived == expected, "{pair:?}: {} of {waiting}", arrived.len());
            assert_eq!(rig.in_use(), (0, 0, 0), "{pair:?}");
        }
    }
}

/// Wherever on its way a message finds the last buffer gone, it is gone, too, and nothing else is.
#[test]
fn few_buffers_lose_messages_and_no_buffer() {
    for pair in PAIRS {
        for (of, bounds) in [(Of::Bsd, "mbufs=64"), (Of::Streams, "blocks_max=64")] {
            if pair.0 != of && pair.1 != of {
                continue;
            }
            let rig = Rig::with(pair, bounds, TestKernel::new(3));
            let (from, to) = (addr(130, 3), addr(140, 4));
            let mut arrived = [0; 24];
            for (left, arrived) in arrived.iter_mut().enumerate() {
                let (mut mbufs, mut blocks) = (Vec::new(), Vec::new());
                if let Some(bsd) = Bsd::of(&rig.cx).filter(|_| of == Of::Bsd) {
                    while let Ok(m) = bsd.mbufs().m_get(xk_bsd::Mt::Data) {
                        mbufs.push(m);
                    }
                    mbufs.truncate(mbufs.len() - left.min(mbufs.len()));
                }
                if let Some(streams) = Streams::of(&rig.cx).filter(|_| of == Of::Streams) {
                    while let Some(mp) = streams.blocks().copy(Kind::PcProto, 0, &[1; 4]) {
                        blocks.push(mp);
                    }
                    blocks.truncate(blocks.len() - left.min(blocks.len()));
                }
                let held = (mbufs.len() as u32, blocks.len());
                let sent = rig.send(from, to, &[&[7; 60], &[8; 400]]);
                let found = rig.take();
                *arrived = found.len();
                assert!(found.iter().all(|(.., octets)| octets.len() == 460), "{pair:?} {left}");
                let in_use = rig.in_use();
                assert_eq!((in_use.0, in_use.1), held, "{pair:?} {bounds}: {left} left, {sent:?}");
            }
            assert_eq!((arrived[0], arrived[23]), (0, 1), "{pair:?} {bounds}: {arrived:?}");
            assert!(arrived.is_sorted(), "{pair:?} {bounds}: {arrived:?}");
            rig.stop();
            assert_eq!(rig.cx.live(), (0, 0), "{pair:?}");
        }
    }
}

/// A module that keeps what goes down.
struct Hold(Rc<Cell<bool>>);

impl Streamtab for Hold {
    fn info(&self) -> ModuleInfo {
        ModuleInfo::new(5, "hold")
    }

    fn open(&self, _: &Kernel, _: &Q, _: Opening) -> Result<Rc<dyn Module>, Errno> {
        Ok(Rc::new(Hold(Rc::clone(&self.0))))
    }
}

impl Module for Hold {
    fn info(&self) -> ModuleInfo {
        ModuleInfo::new(5, "hold")
    }

    fn services(&self) -> Services {
        Services { read: false, write: true }
    }

    fn wput(&self, cx: &Kernel, q: &Q, mp: Mblk) {
        q.putq(cx, mp);
    }

    fn wsrv(&self, cx: &Kernel, q: &Q) {
        if !self.0.get() {
            q.serve_through(cx);
        }
    }
}

#[test]
fn a_module_is_popped_with_messages_in_it_and_behind_it() {
    for pair in ON_STREAMS {
        let rig = Rig::new(pair);
        let streams = Streams::of(&rig.cx).unwrap();
        let holds = Rc::new(Cell::new(true));
        streams.add_module("hold", Rc::new(Hold(Rc::clone(&holds))));
        let node = rig.cx.find_protocol("streams").unwrap();
        let change = |push: &str, pops: bool| {
            let (line, push) = ("ddp".to_owned(), push.to_owned());
            let asked = StreamModules { line, push, pops, ..StreamModules::default() };
            let error = node.ask(&rig.cx, asked).unwrap().error;
            rig.cx.advance(Duration::ZERO);
            error
        };
        // The x-kernel's door is opened by what it sends first.
        assert_eq!(rig.send(addr(130, 3), addr(140, 4), &[b"first"]), Ok(()), "{pair:?}");
        assert_eq!(rig.take().len(), 1, "{pair:?}");
        assert_eq!(change("hold", false), "", "{pair:?}");
        let taken = fill(&rig, pair);
        assert_eq!(rig.take(), [], "{pair:?}");
        let lost = streams.counts().lost;
        assert_eq!(change("", true), "", "{pair:?}");
        // What the module had is lost, and counted; what waited in the adapter goes on.
        let (lost, arrived) = ((streams.counts().lost - lost) as usize, rig.take());
        assert_eq!(lost + arrived.len(), taken, "{pair:?}");
        assert!(lost > 0 && arrived.len() > 100, "{pair:?}: {lost} lost");
        let expected: Vec<_> = (lost..taken).map(numbered).collect();
        let arrived: Vec<_> = arrived.into_iter().map(|(.., octets)| octets).collect();
        assert!(arrived == expected, "{pair:?}");
        assert_eq!(rig.in_use(), (0, 0, 0), "{pair:?}");
        rig.stop();
        assert_eq!(rig.cx.live(), (0, 0), "{pair:?}");
    }
}
