//! Queues: the order of messages, the marks, enabling, and a model of the accounting.

use super::*;
use crate::block::{Blocks, Kind, Priority};
use crate::module::Services;
use proptest::prelude::*;
use xk_testkit::kernel::TestKernel;

/// Takes no message off its queue; it counts how often it is served.
struct Idle(ModuleInfo);

impl Module for Idle {
    fn info(&self) -> ModuleInfo {
        self.0
    }

    fn services(&self) -> Services {
        Services { read: true, write: true }
    }

    fn rsrv(&self, _: &Kernel, _: &Q) {}

    fn wsrv(&self, _: &Kernel, _: &Q) {}
}

struct Rig {
    cx: TestKernel,
    blocks: Blocks,
    /// The write queue behind, which is enabled when there is room again.
    behind: Q,
    /// The write queue under test.
    q: Q,
}

impl Rig {
    fn new(hiwat: u32, lowat: u32) -> Self {
        let cx = TestKernel::new(1);
        let (streams, _) = crate::add(&cx, "streams", crate::Bounds::default());
        let pair = || {
            let q = Q::pair(&streams.core);
            drop(q.place(Rc::new(Idle(ModuleInfo::new(1, "idle").marks(hiwat, lowat)))));
            q
        };
        let (above, below) = (pair(), pair());
        above.write_side().set_next(Some(below.write_side()));
        below.read_side().set_next(Some(above.read_side()));
        let blocks = streams.blocks().clone();
        Self { cx, blocks, behind: above.write_side(), q: below.write_side() }
    }

    fn message(&self, kind: Kind, band: u8, octets: usize) -> Mblk {
        let mut mp = self.blocks.allocb(octets, Priority::High).unwrap();
        assert!(mp.put(&alloc::vec![0; octets]));
        mp.band = band;
        mp.of_kind(kind)
    }

    /// Runs of the queue behind since the last call.
    fn served(&self) -> u64 {
        let before = self.behind.runs().1;
        self.cx.run_due();
        self.behind.runs().1 - before
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.q.take_down();
        self.behind.take_down();
    }
}

#[test]
fn a_queue_fills_at_its_high_mark_and_frees_below_its_low_one() {
    let rig = Rig::new(1024, 256);
    let (cx, q) = (&rig.cx, &rig.q);
    for n in 1..=5 {
        q.putq(cx, rig.message(Kind::Data, 0, 300));
        assert_eq!(q.flags() & QFULL != 0, n >= 4, "{n}");
        if n == 4 {
            assert!(!rig.behind.canputnext());
            assert_ne!(q.flags() & QWANTW, 0);
        }
    }
    assert_eq!(q.count(), 1500);
    rig.served();
    for left in [1200, 900, 600, 300] {
        assert!(q.getq(cx).is_some());
        assert_eq!((q.count(), rig.served()), (left, 0));
        assert_eq!(q.flags() & QFULL != 0, left >= 1024);
        assert_eq!(rig.q.flags() & QWANTW, QWANTW);
    }
    assert!(q.getq(cx).is_some());
    assert_eq!((q.count(), rig.served(), q.flags() & QWANTW), (0, 1, 0));
    assert!(rig.behind.canputnext());
}

#[test]
fn the_high_mark_is_reached_not_passed_and_the_low_one_passed() {
    let rig = Rig::new(100, 50);
    rig.q.putq(&rig.cx, rig.message(Kind::Data, 0, 50));
    rig.q.putq(&rig.cx, rig.message(Kind::Data, 0, 49));
    assert!(rig.behind.canputnext());
    rig.q.putq(&rig.cx, rig.message(Kind::Data, 0, 1));
    assert!(!rig.behind.canputnext());
    rig.served();
    drop(rig.q.getq(&rig.cx));
    // 50 octets are left, as many as the mark: not yet.
    assert_eq!(rig.served(), 0);
    drop(rig.q.getq(&rig.cx));
    assert_eq!(rig.served(), 1);
}

#[test]
fn with_a_low_mark_of_0_any_room_enables() {
    let rig = Rig::new(100, 0);
    for _ in 0..3 {
        rig.q.putq(&rig.cx, rig.message(Kind::Data, 0, 100));
    }
    assert!(!rig.behind.canputnext());
    rig.served();
    drop(rig.q.getq(&rig.cx));
    assert_eq!(rig.served(), 1);
}

#[test]
fn high_priority_goes_first_then_bands_downwards() {
    let rig = Rig::new(1000, 100);
    let (cx, q) = (&rig.cx, &rig.q);
    for (kind, band, octets) in [
        (Kind::Data, 0, 1),
        (Kind::Data, 3, 2),
        (Kind::PcProto, 0, 3),
        (Kind::Data, 7, 4),
        (Kind::Proto, 3, 5),
        (Kind::Flush, 0, 6),
        (Kind::Data, 0, 7),
    ] {
        q.putq(cx, rig.message(kind, band, octets));
    }
    q.putbq(cx, rig.message(Kind::Data, 3, 8));
    q.putbq(cx, rig.message(Kind::PcProto, 0, 9));
    q.putbq(cx, rig.message(Kind::Data, 0, 10));
    let order: Vec<usize> = core::iter::from_fn(|| q.getq(cx)).map(|mp| mp.size()).collect();
    assert_eq!(order, [9, 3, 6, 4, 8, 2, 5, 10, 1, 7]);
}

#[test]
fn insertion_keeps_the_order() {
    let rig = Rig::new(1000, 100);
    let (cx, q) = (&rig.cx, &rig.q);
    q.putq(cx, rig.message(Kind::PcProto, 0, 1));
    q.putq(cx, rig.message(Kind::Data, 0, 2));
    assert!(!q.insq(cx, 0, rig.message(Kind::Data, 0, 3)));
    assert!(!q.insq(cx, 2, rig.message(Kind::PcProto, 0, 3)));
    assert!(q.insq(cx, 1, rig.message(Kind::Data, 5, 4)));
    assert!(q.insq(cx, 9, rig.message(Kind::Data, 0, 5)));
    assert_eq!((q.qsize(), q.count(), q.band_count(5)), (4, 8, 4));
    assert_eq!(q.rmvq(cx, 1).map(|mp| mp.size()), Some(4));
    assert_eq!(q.band_count(5), 0);
}

#[test]
fn bands_have_marks_of_their_own() {
    let rig = Rig::new(100, 10);
    let (cx, q) = (&rig.cx, &rig.q);
    q.set_band_marks(2, Some(20), Some(5));
    q.putq(cx, rig.message(Kind::Data, 2, 20));
    assert!(rig.behind.canputnext() && rig.behind.bcanputnext(1) && !rig.behind.bcanputnext(2));
    q.putq(cx, rig.message(Kind::Data, 0, 100));
    assert!(!rig.behind.canputnext() && rig.behind.bcanputnext(1));
    rig.served();
    assert_eq!(q.getq(cx).map(|mp| mp.band), Some(2));
    assert_eq!(rig.served(), 1);
    assert!(rig.behind.bcanputnext(2) && !rig.behind.canputnext());
    assert_eq!(q.flushband(cx, 0, What::Data), 1);
    assert_eq!(rig.served(), 1);
}

#[test]
fn a_queue_is_enabled_when_a_reader_found_it_empty() {
    let rig = Rig::new(1000, 100);
    let (cx, q) = (&rig.cx, &rig.q);
    let served = || {
        let before = q.runs().1;
        cx.run_due();
        q.runs().1 - before
    };
    q.putq(cx, rig.message(Kind::Data, 0, 1));
    assert_eq!(served(), 1);
    // The service procedure has left the message there: no reader has found it empty.
    drop(q.getq(cx));
    q.putq(cx, rig.message(Kind::Data, 0, 1));
    assert_eq!(served(), 0);
    while q.getq(cx).is_some() {}
    q.noenable();
    q.putq(cx, rig.message(Kind::Data, 0, 1));
    assert_eq!(served(), 0);
    q.putq(cx, rig.message(Kind::PcProto, 0, 1));
    assert_eq!(served(), 1);
    q.enableok();
    q.qenable(cx);
    q.qenable(cx);
    assert_eq!(served(), 1);
}

#[test]
fn flushing_takes_what_it_names() {
    let rig = Rig::new(1000, 100);
    let (cx, q) = (&rig.cx, &rig.q);
    for kind in [Kind::Data, Kind::Ioctl, Kind::PcProto, Kind::Ctl, Kind::Delay] {
        q.putq(cx, rig.message(kind, 0, 10));
    }
    assert_eq!(q.flushq(cx, What::Data), 3);
    assert_eq!((q.qsize(), q.count()), (2, 20));
    assert_eq!(q.flushq(cx, What::All), 2);
    assert_eq!((q.qsize(), q.count(), rig.blocks.stats().messages), (0, 0, 0));
}

/// An act of a test on a queue.
#[derive(Clone, Debug)]
enum Act {
    Put(bool, u8, usize),
    PutBack(bool, u8, usize),
    Get,
    Remove(usize),
    Flush(bool),
    FlushBand(u8),
    CanPut(u8),
}

fn act() -> impl Strategy<Value = Act> {
    let message = || (any::<bool>(), 0..3_u8, 0..120_usize);
    prop_oneof![
        4 => message().prop_map(|(high, band, n)| Act::Put(high, band, n)),
        1 => message().prop_map(|(high, band, n)| Act::PutBack(high, band, n)),
        4 => Just(Act::Get),
        1 => (0..8_usize).prop_map(Act::Remove),
        1 => any::<bool>().prop_map(Act::Flush),
        1 => (0..3_u8).prop_map(Act::FlushBand),
        3 => (0..3_u8).prop_map(Act::CanPut),
    ]
}

/// The queue as a plain list, and what is to follow of it.
#[derive(Default)]
struct Model {
    messages: Vec<(bool, u8, usize)>,
    full: [bool; 3],
    wanted: [bool; 3],
}

impl Model {
    fn count(&self, band: u8) -> usize {
        let is_of = |m: &&(bool, u8, usize)| if m.0 { band == 0 } else { m.1 == band };
        self.messages.iter().filter(is_of).map(|m| m.2).sum()
    }

    fn insert(&mut self, message: (bool, u8, usize), back: bool) {
        let class = |m: &(bool, u8, usize)| if m.0 { 256 } else { u16::from(m.1) };
        let mine = class(&message);
        let before = |m: &(bool, u8, usize)| if back { class(m) > mine } else { class(m) >= mine };
        let at = self.messages.iter().take_while(|m| before(m)).count();
        self.messages.insert(at, message);
        let band = if message.0 { 0 } else { message.1 };
        self.full[usize::from(band)] |= self.count(band) >= HIWAT;
    }

    /// Messages went: answers whether the queue behind is to be enabled.
    fn went(&mut self) -> bool {
        let mut enables = false;
        for band in 0..3_u8 {
            let (at, count) = (usize::from(band), self.count(band));
            self.full[at] &= count >= HIWAT;
            if self.wanted[at] && count < LOWAT {
                self.wanted[at] = false;
                enables = true;
            }
        }
        enables
    }
}

const HIWAT: usize = 200;
const LOWAT: usize = 50;

proptest! {
    #[test]
    fn accounting_agrees_with_a_model(acts in prop::collection::vec(act(), 1..80)) {
        let rig = Rig::new(HIWAT as u32, LOWAT as u32);
        let (cx, q) = (&rig.cx, &rig.q);
        let mut model = Model::default();
        let kind = |high| if high { Kind::PcProto } else { Kind::Data };
        rig.served();
        for act in acts {
            let mut enables = false;
            match act {
                Act::Put(high, band, n) | Act::PutBack(high, band, n) => {
                    let back = matches!(act, Act::PutBack(..));
                    let mp = rig.message(kind(high), if high { 0 } else { band }, n);
                    if back { q.putbq(cx, mp) } else { q.putq(cx, mp) }
                    model.insert((high, if high { 0 } else { band }, n), back);
                }
                Act::Get => {
                    let got = q.getq(cx).map(|mp| (mp.kind().is_high(), mp.band, mp.size()));
                    let expected = (!model.messages.is_empty()).then(|| model.messages.remove(0));
                    prop_assert_eq!(got, expected);
                    enables = got.is_some() && model.went();
                }
                Act::Remove(at) => {
                    let got = q.rmvq(cx, at).map(|mp| (mp.kind().is_high(), mp.band, mp.size()));
                    let there = at < model.messages.len();
                    let expected = there.then(|| model.messages.remove(at));
                    prop_assert_eq!(got, expected);
                    enables = there && model.went();
                }
                Act::Flush(all) => {
                    let what = if all { What::All } else { What::Data };
                    prop_assert_eq!(q.flushq(cx, what), model.messages.len());
                    model.messages.clear();
                    enables = model.went();
                }
                Act::FlushBand(band) => {
                    let before = model.messages.len();
                    model.messages.retain(|m| m.0 || m.1 != band);
                    prop_assert_eq!(q.flushband(cx, band, What::All), before - model.messages.len());
                    enables = model.went();
                }
                Act::CanPut(band) => {
                    let may = rig.behind.bcanputnext(band);
                    prop_assert_eq!(may, !model.full[usize::from(band)]);
                    model.wanted[usize::from(band)] |= !may;
                }
            }
            for band in 0..3 {
                prop_assert_eq!(q.band_count(band), model.count(band));
            }
            prop_assert_eq!(q.qsize(), model.messages.len());
            prop_assert_eq!(q.flags() & QFULL != 0, model.full[0]);
            prop_assert_eq!(rig.served() > 0, enables);
        }
    }
}
