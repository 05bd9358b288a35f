use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use xk_kit::rpc::call::BUSY;

#[test]
fn the_first_that_is_no_refusal_is_that_of_the_call() {
    let mut all = Replies::new(Want::All, 0b1110);
    assert_eq!(all.take(2, Err(&BUSY)), Ok(()));
    assert_eq!(all.take(0, Ok('x')), Err(Ok('x')), "not asked");
    assert_eq!(all.take(200, Ok('x')), Err(Ok('x')), "no member");
    assert_eq!(all.take(1, Ok('a')), Ok(()));
    assert_eq!(all.take(1, Ok('b')), Err(Ok('b')), "twice");
    assert_eq!((all.verdict(), all.missing()), (Verdict::Waits, 0b1000));
    assert_eq!(all.take(3, Ok('c')), Ok(()));
    assert_eq!(all.verdict(), Verdict::Enough);
    assert_eq!(all.first(), Some((1, Ok('a'))));
    assert_eq!(all.take_next(), Some((2, Err(&BUSY))));
    assert_eq!((all.take_next(), all.take_next()), (Some((3, Ok('c'))), None));
}

#[test]
fn masked_members_are_not_waited_for_but_count_in_a_majority() {
    let mut all: Replies<()> = Replies::new(Want::All, 0b110);
    all.set_gone(0b110);
    assert_eq!(all.verdict(), Verdict::TooFew, "none is left to execute it");
    all.set_gone(0b100);
    assert_eq!((all.verdict(), all.take(1, Ok(()))), (Verdict::Waits, Ok(())));
    assert_eq!(all.verdict(), Verdict::Enough);
    let mut most: Replies<()> = Replies::new(Want::Majority, 0b11110);
    most.set_gone(0b11000);
    assert_eq!(most.verdict(), Verdict::TooFew, "three of four");
    most.set_gone(0b10000);
    (1..4).for_each(|at| assert_eq!(most.take(at, Ok(())), Ok(())));
    assert_eq!(most.verdict(), Verdict::Enough);
    assert_eq!(Replies::<()>::new(Want::Count(3), 0b110).verdict(), Verdict::TooFew);
}

fn wants() -> impl Strategy<Value = Want> {
    prop_oneof![Just(Want::All), Just(Want::Majority), (0_u8..5).prop_map(Want::Count)]
}

proptest! {
    /// A model that counts members one by one agrees after each event.
    #[test]
    fn agrees_with_a_model(
        want in wants(),
        members in 2_u8..9,
        events in prop::collection::vec((0_u8..10, 0_u8..4), 0..40),
    ) {
        let asked = (1_u64 << members) - 2;
        let mut replies = Replies::new(want, asked);
        let (mut replied, mut gone) = (BTreeMap::new(), 0_u64);
        for (member, what) in events {
            if what == 3 {
                gone ^= 1 << member;
                replies.set_gone(gone);
            } else {
                let outcome = if what == 0 { Err(&BUSY) } else { Ok(member) };
                let fits = (1..members).contains(&member) && !replied.contains_key(&member);
                prop_assert_eq!(replies.take(member, outcome).is_ok(), fits);
                if fits {
                    replied.insert(member, outcome);
                }
            }
            let is_here = |at: &u8| gone >> at & 1 == 0;
            let left = (1..members).filter(|at| is_here(at) && !replied.contains_key(at)).count();
            prop_assert_eq!(replies.missing().count_ones() as usize, left);
            let most = replied.len() + left;
            let verdict = match want {
                Want::All if left > 0 => Verdict::Waits,
                Want::All if replied.is_empty() => Verdict::TooFew,
                Want::All => Verdict::Enough,
                _ => {
                    let need = match want {
                        Want::Count(count) => usize::from(count).max(1),
                        _ => usize::from(members - 1) / 2 + 1,
                    };
                    match () {
                        () if replied.len() >= need => Verdict::Enough,
                        () if most < need => Verdict::TooFew,
                        () => Verdict::Waits,
                    }
                }
            };
            prop_assert_eq!(replies.verdict(), verdict);
        }
        let mut taken = BTreeMap::new();
        if let Some((member, outcome)) = replies.first() {
            prop_assert_eq!(outcome.is_ok(), replied.values().any(Result::is_ok));
            taken.insert(member, outcome);
        }
        while let Some((member, outcome)) = replies.take_next() {
            taken.insert(member, outcome);
        }
        prop_assert_eq!(taken, replied);
    }
}
