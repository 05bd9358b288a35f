//! Blocks: duplicates, copies, pulling up, cutting, lending, bounds.

use super::*;
use alloc::vec::Vec;
use xk_testkit::kernel::TestKernel;

fn blocks(cx: &TestKernel) -> Blocks {
    Blocks::of_pool(cx.pool(), 64, 1 << 20)
}

fn chain(blocks: &Blocks, parts: &[(Kind, &[u8])]) -> Mblk {
    let mut parts = parts.iter().rev().map(|(kind, octets)| blocks.copy(*kind, 0, octets).unwrap());
    let last = parts.next().unwrap();
    parts.fold(last, |behind, front| front.linked(behind))
}

#[test]
fn a_block_is_written_read_and_freed() {
    let cx = TestKernel::new(1);
    let blocks = blocks(&cx);
    let mut mp = blocks.allocb(10, Priority::Low).unwrap();
    assert_eq!((mp.len(), mp.room(), mp.kind()), (0, 10, Kind::Data));
    assert!(mp.put(b"hello") && !mp.put(b"worlds"));
    assert!(mp.skip(2) && !mp.skip(4));
    assert!(mp.put_front(b"u") && !mp.put_front(b"xy"));
    assert_eq!(mp.octets(), b"ullo");
    assert_eq!((blocks.stats().blocks, blocks.stats().octets), (1, 10));
    drop(mp);
    assert_eq!((blocks.stats().blocks, blocks.stats().octets, blocks.stats().messages), (0, 0, 0));
    assert_eq!(cx.live(), (0, 0));
}

#[test]
fn duplicates_share_octets_and_type_and_are_not_written() {
    let cx = TestKernel::new(1);
    let blocks = blocks(&cx);
    let mut mp = blocks.copy(Kind::Data, 4, b"shared").unwrap();
    let mut dup = mp.dupb().unwrap();
    assert_eq!(mp.references(), 2);
    assert!(dup.skip(2) && mp.octets_mut().is_none() && !mp.put_front(b"x"));
    dup.set_kind(Kind::Proto);
    assert_eq!(mp.kind(), Kind::Proto);
    let copy = mp.copyb().unwrap();
    drop(dup);
    assert!(mp.put_front(b"x"));
    assert_eq!((mp.octets(), copy.octets()), (&b"xshared"[..], &b"shared"[..]));
    assert_eq!((copy.kind(), copy.headroom()), (Kind::Proto, 4));
}

#[test]
fn the_bound_refuses_by_priority_and_counts() {
    let cx = TestKernel::new(1);
    let blocks = Blocks::of_pool(cx.pool(), 32, 1 << 20);
    let hold = |priority| {
        let all: Vec<_> = core::iter::from_fn(|| blocks.allocb(1, priority)).collect();
        all
    };
    let low = hold(Priority::Low);
    let medium = hold(Priority::Medium);
    let high = hold(Priority::High);
    assert_eq!((low.len(), medium.len(), high.len()), (28, 2, 2));
    assert!(!blocks.testb(1, Priority::High));
    assert_eq!(blocks.stats().failures, 3);
    drop((low, medium, high));
    assert!(blocks.testb(1, Priority::Low));
    let small = Blocks::of_pool(cx.pool(), 32, 1024);
    assert!(small.allocb(1025, Priority::High).is_none());
    assert!(small.allocb(1024, Priority::High).is_some());
    // No single buffer holds it.
    assert!(blocks.allocb(1 << 19, Priority::High).is_none());
}

#[test]
fn messages_are_pulled_up_within_one_type() {
    let cx = TestKernel::new(1);
    let blocks = blocks(&cx);
    let parts: [(Kind, &[u8]); 4] =
        [(Kind::Data, b"abc"), (Kind::Data, b""), (Kind::Data, b"defg"), (Kind::Proto, b"h")];
    for n in 0..=7 {
        let mut mp = chain(&blocks, &parts);
        assert!(mp.pullupmsg(Some(n)));
        assert!(mp.len() >= n, "{n}");
        assert_eq!(mp.to_vec(), b"abcdefgh");
    }
    let mut mp = chain(&blocks, &parts);
    assert!(!mp.pullupmsg(Some(8)));
    assert!(mp.pullupmsg(None));
    assert_eq!((mp.len(), mp.cont().map(Mblk::kind)), (7, Some(Kind::Proto)));
    drop(mp);
    assert_eq!(blocks.stats().blocks, 0);
}

#[test]
fn messages_are_cut_at_both_ends() {
    let cx = TestKernel::new(1);
    let blocks = blocks(&cx);
    let parts: [(Kind, &[u8]); 3] =
        [(Kind::Data, b"abc"), (Kind::Data, b"de"), (Kind::Data, b"fgh")];
    for n in 0..=8_isize {
        let mut mp = chain(&blocks, &parts);
        assert!(mp.adjmsg(n));
        assert_eq!(mp.to_vec(), b"abcdefgh"[n as usize..]);
        let mut mp = chain(&blocks, &parts);
        assert!(mp.adjmsg(-n));
        assert_eq!(mp.to_vec(), b"abcdefgh"[..8 - n as usize]);
    }
    let mut mp = chain(&blocks, &[(Kind::Proto, b"ab"), (Kind::Data, b"cd")]);
    assert!(!mp.adjmsg(3) && !mp.adjmsg(-3) && mp.adjmsg(-2) && mp.adjmsg(2));
    assert_eq!(mp.size(), 0);
}

#[test]
fn messages_are_split_without_a_copy() {
    let cx = TestKernel::new(1);
    let blocks = blocks(&cx);
    let parts: [(Kind, &[u8]); 3] =
        [(Kind::Data, b"abc"), (Kind::Data, b"de"), (Kind::Data, b"fgh")];
    for n in 0..=8 {
        let mut mp = chain(&blocks, &parts);
        let front = mp.split_front(n).unwrap();
        assert_eq!(
            (front.to_vec(), mp.to_vec()),
            (b"abcdefgh"[..n].into(), b"abcdefgh"[n..].into())
        );
        assert!(mp.split_front(9 - n).is_none());
    }
    assert_eq!(blocks.stats().messages, 0);
}

#[test]
fn kernel_messages_become_blocks_and_back_without_a_copy() {
    let cx = TestKernel::new(1);
    let blocks = blocks(&cx);
    let mut message = cx.message(b"front");
    message.join(cx.message(b"back"));
    let slices: Vec<usize> = message.slices().map(|slice| slice.offset).collect();
    let mut mp = blocks.lend_message(message).unwrap();
    assert_eq!(mp.blocks().map(Mblk::len).collect::<Vec<_>>(), [5, 4]);
    assert!(mp.is_in_kernel_pool());
    let dup = mp.dupmsg().unwrap();
    let clone = dup.into_message().unwrap();
    assert!(clone.eq_octets(b"frontback"));
    drop(clone);
    assert!(mp.skip(1));
    let message = mp.into_message().unwrap();
    assert!(message.eq_octets(b"rontback"));
    let now: Vec<usize> = message.slices().map(|slice| slice.offset).collect();
    assert_eq!(now, [slices[0] + 1, slices[1]]);
    // A header goes where the blocks in front lay.
    let mut mp = blocks.copy(Kind::Proto, 32, b"data").unwrap();
    mp.set_kind(Kind::Data);
    let mut message = mp.into_message().unwrap();
    assert!(message.push_in_place(&[1; 32]));
    drop(message);
    assert_eq!((blocks.stats().blocks, blocks.stats().messages), (0, 0));
}

#[test]
fn what_is_lent_is_given_back_once() {
    struct Cluster(Rc<Cell<u32>>);
    impl Lent for Cluster {
        fn octets(&self) -> &[u8] {
            b"of another"
        }
    }
    impl Drop for Cluster {
        fn drop(&mut self) {
            self.0.set(self.0.get() + 1);
        }
    }
    let cx = TestKernel::new(1);
    let blocks = Blocks::of_pool(cx.pool(), 8, 1 << 20);
    let freed = Rc::new(Cell::new(0));
    let lend = || blocks.esballoc(Box::new(Cluster(Rc::clone(&freed))), Priority::Low);
    let Ok(mut mp) = lend() else { panic!("room") };
    let dup = mp.dupb().unwrap();
    assert_eq!((mp.octets(), mp.room()), (&b"of another"[..], 0));
    assert!(mp.octets_mut().is_none());
    drop(mp);
    assert_eq!(freed.get(), 0);
    // The kernel cannot hold it: it is copied.
    assert!(dup.into_message().unwrap().eq_octets(b"of another"));
    assert_eq!(freed.get(), 1);
    let held: Vec<_> = core::iter::from_fn(|| lend().ok()).collect();
    assert_eq!((held.len(), freed.get()), (7, 2));
    drop(held);
    assert_eq!((freed.get(), blocks.stats().messages), (9, 0));
}

#[test]
fn a_long_chain_is_freed_without_recursion() {
    let cx = TestKernel::new(1);
    let blocks = Blocks::of_pool(cx.pool(), 1 << 16, 1 << 24);
    let mut mp = blocks.copy(Kind::Data, 0, b"x").unwrap();
    for _ in 0..30_000 {
        mp = blocks.copy(Kind::Data, 0, b"x").unwrap().linked(mp);
    }
    drop(mp);
    assert_eq!(blocks.stats().messages, 0);
}
