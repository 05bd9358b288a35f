use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

const A: (u8, u16) = (1, 1);

fn at(ms: u64) -> Time {
    Time::from_ms(ms)
}

#[test]
fn a_reply_is_sent_again_until_the_caller_has_it() {
    let mut served = Served::default();
    assert!(served.begin(A, u32::MAX, u32::MAX) && !served.begin(A, u32::MAX, u32::MAX));
    assert_eq!(served.again(1, u32::MAX, u32::MAX, at(100)), Asked::Nothing, "not executed");
    served.end(1, u32::MAX, "reply", 5, at(100));
    assert_eq!(served.again(1, u32::MAX, u32::MAX, at(110)), Asked::Nothing, "just sent");
    assert_eq!(served.again(2, u32::MAX, u32::MAX, at(200)), Asked::Nothing, "another's");
    assert_eq!(served.again(1, u32::MAX, u32::MAX, at(200)), Asked::Reply(&"reply"));
    // The next call, whose number has wrapped, says that this one is over.
    assert!(served.begin(A, 0, 0));
    assert_eq!(served.again(1, u32::MAX, 0, at(300)), Asked::Nothing);
    served.end(1, 0, "next", 4, at(300));
    assert_eq!(served.kept(), (1, 4));
    // A caller that was started again counts from elsewhere.
    assert!(served.begin((1, 2), 0, 0));
    assert_eq!(served.again(1, 0, 0, at(400)), Asked::Nothing);
}

#[test]
fn a_caller_that_takes_nothing_keeps_no_more_than_its_share() {
    let mut served = Served::default();
    for number in 0..10_000 {
        assert!(served.begin(A, number, 0));
        served.end(1, number, (), 16 << 10, at(1));
        let (calls, octets) = served.kept();
        assert!(calls <= CALLS_KEPT && octets <= OCTETS_KEPT, "{calls}, {octets}");
    }
    assert!(served.begin((2, 1), 0, 0));
    served.end(2, 0, (), 2 * OCTETS_KEPT, at(1));
    assert_eq!(served.again(2, 0, 0, at(100)), Asked::Reply(&()), "the last is kept");
}

proptest! {
    /// Each call begins once as long as it is kept, and a reply is that of its call.
    #[test]
    fn no_call_is_executed_twice(events in prop::collection::vec((0_u8..4, 0_u32..40, 0_u8..3), 0..200)) {
        let mut served = Served::default();
        let (mut begun, mut ended) = (BTreeSet::new(), BTreeSet::new());
        for (now, (what, number, member)) in (1_u64..).zip(events) {
            let key = (member, number);
            match what {
                0 => prop_assert_eq!(served.begin((member, 1), number, 0), begun.insert(key)),
                1 if begun.contains(&key) && ended.insert(key) => {
                    served.end(member, number, key, 1, at(now));
                }
                2 => {
                    let found = served.again(member, number, 0, at(now + 1000 * now));
                    let expected = ended.get(&key).map_or(Asked::Nothing, Asked::Reply);
                    prop_assert_eq!(found, expected);
                }
                _ => {}
            }
        }
    }
}
