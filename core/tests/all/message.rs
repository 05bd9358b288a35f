use proptest::prelude::*;
use xk_core::message::*;
use xk_testkit::messages::{self as laws, small_pool};

fn pool() -> Pool {
    Pool::new(&PoolConfig::with_octets_max(4 << 20)).unwrap()
}

fn live(pool: &Pool) -> (u32, u32) {
    let stats = pool.stats();
    (stats.descriptors_live, stats.buffers_live)
}

macro_rules! attribute {
    ($name:ident, $key:literal) => {
        #[derive(Clone, Copy, Debug, PartialEq)]
        struct $name(u64);
        impl Attribute for $name {
            const KEY: u32 = xk_core::name_key($key);
            const CROSSES: Crossing = Crossing::BOTH;
            fn encode(self) -> [u8; ATTRIBUTE_OCTETS] {
                let mut octets = [0; ATTRIBUTE_OCTETS];
                octets[16..].copy_from_slice(&self.0.to_le_bytes());
                octets
            }
            fn decode(octets: [u8; ATTRIBUTE_OCTETS]) -> Self {
                Self(u64::from_le_bytes(*octets.last_chunk().unwrap()))
            }
        }
    };
}

attribute!(A, "a");
attribute!(B, "b");
attribute!(C, "c");
attribute!(D, "d");
attribute!(E, "e");

#[test]
fn heap_arena_conforms() {
    laws::arena(|octets| HeapArena::new(octets).unwrap());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn does_what_a_vector_does(script in proptest::collection::vec(any::<u8>(), 0..1200)) {
        let pool = small_pool(Box::new(HeapArena::new(1 << 16).unwrap()));
        laws::run_script(&pool, &script);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn what_is_lent_does_what_a_vector_does(
        script in proptest::collection::vec(any::<u8>(), 0..1200),
    ) {
        laws::run_loans_script(&script);
    }
}

#[test]
fn what_is_lent_is_read_and_given_back() {
    let seeds = if cfg!(miri) { 3 } else { 40 };
    (0..seeds).for_each(|seed| laws::run_loans_script(&laws::random_octets(seed, 300)));
}

#[test]
fn headers_go_into_the_headroom() {
    let pool = pool();
    let mut message = pool.copy_from(100, b"data").unwrap();
    assert_eq!(message.headroom(), 128);
    message.push_array(b"tcp").unwrap();
    message.push_header(2).unwrap().copy_from_slice(b"ip");
    assert!(message.eq_octets(b"iptcpdata"));
    assert_eq!(live(&pool), (1, 1));
    assert_eq!(message.peek(), Some(b"ip"));
    assert_eq!(message.pop_array(), Some(b"ip"));
    assert_eq!(message.pop_header(3), Some(&b"tcp"[..]));
    assert_eq!(message.pop_header(5), None);
    assert_eq!(message.headroom(), 128);
    drop(message);
    assert_eq!(live(&pool), (0, 0));
}

#[test]
fn zeros_go_behind_in_the_same_buffer_unless_another_message_sees_it() {
    let pool = pool();
    let mut message = pool.copy_from(16, b"data").unwrap();
    assert!(message.pad_in_place::<6>());
    assert!(message.eq_octets(b"data\0\0"));
    assert!(message.pad_in_place::<2>(), "it is as long already");
    assert_eq!(message.len(), 6);
    assert_eq!(live(&pool), (1, 1));
    let clone = message.try_clone().unwrap();
    assert!(!message.pad_in_place::<7>(), "the clone sees the buffer");
    drop(clone);
    assert!(message.pad_in_place::<7>());
    assert!(!message.pad_in_place::<500>(), "the buffer is not so large");
    message.pad(500).unwrap();
    assert_eq!((message.len(), live(&pool)), (500, (2, 2)));
    message.truncate(7);
    assert_eq!(live(&pool), (1, 1));
    message.join(pool.copy_from(0, b"more").unwrap());
    assert!(!message.pad_in_place::<12>(), "it has two slices");
    message.pad(11).unwrap();
    assert_eq!(live(&pool), (2, 2));
    assert!(message.eq_octets(b"data\0\0\0more"));
    message.pad(13).unwrap();
    assert!(message.eq_octets(b"data\0\0\0more\0\0"));
    assert_eq!(message.pad(1 << 20), Err(NoBuffers), "no buffer is so large");
}

#[test]
fn a_header_that_does_not_fit_gets_a_buffer_of_its_own() {
    let pool = pool();
    let mut message = pool.copy_from(0, b"data").unwrap();
    message.push_array(b"head").unwrap();
    message.push_array(b"er").unwrap();
    assert_eq!(live(&pool), (2, 2));
    assert!(message.eq_octets(b"erheaddata"));
    assert_eq!(message.peek::<8>(), None);
    assert_eq!(message.header(), Ok(*b"erheadda"));
    assert_eq!(message.peek(), Some(b"erheadda"));
    assert_eq!(message.header::<11>(), Err(PullUpError::TooShort));
    assert!(message.eq_octets(b"erheaddata"));
    assert_eq!(message.pull_up(11), Err(PullUpError::TooShort));
    drop(message);
    assert_eq!(live(&pool), (0, 0));
}

/// The first `N` octets are the same whatever slices they lie in, and so is what is behind them.
fn reads_and_strips<const N: usize>(pool: &Pool, octets: &[u8]) {
    for (mut message, mut same) in laws::chopped(pool, octets).zip(laws::chopped(pool, octets)) {
        assert!(message.eq_octets(octets));
        let is_long = N > octets.len();
        assert_eq!(message.header::<N>().ok().as_ref(), octets.first_chunk());
        assert!(message.eq_octets(octets), "the header stays: {message:?}");
        // In place is all or nothing.
        let is_in_place = message.peek_in_place::<N>().is_some();
        assert_eq!(message.strip_in_place(N), is_in_place, "{message:?}");
        assert_eq!(is_in_place || message.strip(N), !is_long);
        let behind = if is_long { octets } else { &octets[N..] };
        assert!(message.eq_octets(behind), "{N} of {message:?}");
        match same.peek::<N>().copied() {
            Some(header) => {
                assert_eq!(same.pop_array(), Some(&header));
                assert!(same.eq_octets(behind));
            }
            None => assert!(same.pop_array::<N>().is_none() && same.eq_octets(octets)),
        }
    }
}

#[test]
fn headers_are_read_whatever_slices_they_lie_in() {
    let octets: &[u8] = if cfg!(miri) { b"oct" } else { b"octets" };
    let pool = pool();
    reads_and_strips::<0>(&pool, octets);
    reads_and_strips::<1>(&pool, octets);
    reads_and_strips::<2>(&pool, octets);
    reads_and_strips::<3>(&pool, octets);
    reads_and_strips::<4>(&pool, octets);
    reads_and_strips::<5>(&pool, octets);
    reads_and_strips::<6>(&pool, octets);
    reads_and_strips::<7>(&pool, octets);
    assert_eq!(live(&pool), (0, 0));
}

#[test]
fn an_empty_message_keeps_its_headroom_when_joined() {
    let pool = pool();
    let mut message = pool.empty(64).unwrap();
    message.join(pool.copy_from(0, b"data").unwrap());
    assert_eq!(message.peek(), Some(b"data"));
    message.push_array(b"header").unwrap();
    assert_eq!(live(&pool), (2, 2));
    assert_eq!(message.pop_array(), Some(b"header"));
    assert_eq!(message.pop_array(), Some(b"data"));
    assert!(message.is_empty());
}

#[test]
fn the_original_keeps_the_headroom_of_a_clone() {
    let pool = pool();
    let mut message = pool.copy_from(64, b"data").unwrap();
    let mut kept = message.try_clone().unwrap();
    assert_eq!((message.headroom(), kept.headroom()), (64, 0));
    message.push_array(b"one").unwrap();
    kept.push_array(b"two").unwrap();
    assert!(message.eq_octets(b"onedata") && kept.eq_octets(b"twodata"));
    assert_eq!(live(&pool), (3, 2));
    assert!(message.front_mut().is_none());
    drop(kept);
    assert!(message.front_mut().is_some());

    let mut again = message.try_clone().unwrap();
    drop(message);
    assert_eq!(again.headroom(), 61);
    again.push_array(b"x").unwrap();
    assert!(again.eq_octets(b"xonedata"));
}

#[test]
fn what_was_taken_off_is_found_again() {
    let pool = pool();
    let mut message = pool.copy_from(0, b"linkipudpdata").unwrap();
    // A filter keeps a clone, now at the buffer's front and later behind a header.
    let kept = message.try_clone().unwrap();
    assert_eq!(message.pop_array(), Some(b"link"));
    let later = message.try_clone().unwrap();
    assert!(message.strip(5) && message.uncover(5) && message.eq_octets(b"ipudpdata"));
    assert!(!message.uncover(5), "there were only four octets more");
    assert!(message.uncover(4) && message.eq_octets(b"linkipudpdata"));
    assert!(kept.eq_octets(b"linkipudpdata"));
    let mut back = message.split_off(9).unwrap();
    assert!(message.strip(9) && message.uncover(9) && message.eq_octets(b"linkipudp"));
    drop((message, kept));

    let mut other = later.try_clone().unwrap();
    assert!(other.strip(2));
    assert!(!other.uncover(2) && !back.uncover(1), "others may own what lies in front");
    let mut front = pool.copy_from(0, b"front").unwrap();
    front.join(pool.copy_from(64, b"back").unwrap());
    assert!(front.strip(5) && front.uncover(5) && front.strip(6));
    assert!(!front.uncover(1), "another buffer holds what was in front of this one");
    assert!(front.headroom() >= 64 && front.eq_octets(b"ack"));
    front.join(pool.copy_from(0, b"more").unwrap());
    front.pull_up(7).unwrap();
    assert!(front.strip(7) && front.uncover(7) && !front.uncover(1));
    assert!(front.eq_octets(b"ackmore"));
}

#[test]
fn a_part_is_cloned_out_of_the_midst() {
    let pool = pool();
    let mut message = pool.copy_from(64, b"front").unwrap();
    message.join(pool.copy_from(0, b"back").unwrap());
    for at in 0..=9 {
        for len in 0..=9 - at {
            let mut part = message.try_clone_part(at, len).unwrap();
            assert!(part.eq_octets(&b"frontback"[at..at + len]), "{at} {len}");
            part.push_array(b"x").unwrap();
            assert!(message.eq_octets(b"frontback"));
        }
        assert_eq!(message.try_clone_part(at, 10 - at).unwrap_err(), SplitError::TooShort);
    }
    assert_eq!(message.try_clone_part(usize::MAX, 2).unwrap_err(), SplitError::TooShort);
    assert_eq!(live(&pool), (2, 2));
    message.push_array(b"header").unwrap();
    assert_eq!(live(&pool), (2, 2));
}

#[test]
fn a_popped_header_that_a_clone_sees_is_not_overwritten() {
    let pool = pool();
    let mut message = pool.copy_from(64, b"headerdata").unwrap();
    let kept = message.try_clone().unwrap();
    assert!(message.strip(6));
    message.push_array(b"HEADER").unwrap();
    assert!(kept.eq_octets(b"headerdata") && message.eq_octets(b"HEADERdata"));
}

#[test]
fn parts_joined_again_do_not_own_what_a_clone_of_one_sees() {
    let pool = pool();
    let mut message = pool.copy_from(64, b"frontback").unwrap();
    let back = message.split_off(5).unwrap();
    let kept = back.try_clone().unwrap();
    message.join(back);
    assert_eq!(message.slices().count(), 1);
    assert!(message.strip(8));
    assert_eq!(message.headroom(), 0);
    message.push_array(b"BAC").unwrap();
    assert!(kept.eq_octets(b"back") && message.eq_octets(b"BACk"));
}

#[test]
fn twelve_parts_join_to_one_slice_again() {
    let pool = pool();
    let octets = laws::random_octets(1, 16 * 1024);
    let mut rest = pool.copy_from(128, &octets).unwrap();
    let mut parts = Vec::new();
    while rest.len() > 1480 {
        parts.push(rest.split_front(1480).unwrap());
    }
    parts.push(rest);
    assert_eq!((parts.len(), live(&pool)), (12, (12, 1)));
    let mut parts = parts.into_iter();
    let mut whole = parts.next().unwrap();
    parts.for_each(|part| whole.join(part));
    assert!(whole.eq_octets(&octets));
    assert_eq!((whole.slices().count(), live(&pool)), (1, (1, 1)));
    assert!(whole.headroom() >= 128);
}

#[test]
fn long_contents_take_several_buffers() {
    let pool = pool();
    let octets = laws::random_octets(2, 200_000);
    let message = pool.copy_from(100, &octets).unwrap();
    assert!(message.eq_octets(&octets) && message.headroom() >= 100);
    assert_eq!(message.slices().count(), 4);
    assert!(message.octets().eq(octets.iter().copied()));
    assert!(pool.alloc(usize::MAX, 1).is_err() && pool.alloc(1, usize::MAX).is_err());
    drop(message);
    assert_eq!(live(&pool), (0, 0));
}

#[test]
fn exhaustion_is_counted_and_changes_nothing() {
    let config = PoolConfig {
        octets_max: 512,
        descriptors_max: 2,
        classes: vec![SizeClass { octets: 256, octets_max: 512 }],
    };
    let pool = Pool::new(&config).unwrap();
    let mut message = pool.copy_from(0, b"headerdata").unwrap();
    let other = pool.copy_from(0, b"other").unwrap();
    assert_eq!(message.push_header(1).unwrap_err(), NoBuffers);
    assert_eq!(message.split_off(3).unwrap_err(), SplitError::NoBuffers);
    assert_eq!(message.split_off(11).unwrap_err(), SplitError::TooShort);
    assert_eq!(message.try_clone().unwrap_err(), NoBuffers);
    assert_eq!(pool.empty(0).unwrap_err(), NoBuffers);
    message.join(other);
    assert_eq!(message.pull_up(12), Err(PullUpError::NoBuffers));
    assert!(message.eq_octets(b"headerdataother"));
    assert_eq!(pool.stats().failures, 5);
    drop(message);
    let stats = pool.stats();
    assert_eq!((stats.descriptors_live, stats.buffers_live, stats.octets_used), (0, 0, 512));
    assert_eq!((stats.descriptors_high_water, stats.classes[0].high_water), (2, 2));
}

#[test]
fn a_full_class_falls_back_on_a_larger_one() {
    let config = PoolConfig {
        octets_max: 4096,
        descriptors_max: 16,
        classes: vec![
            SizeClass { octets: 64, octets_max: 64 },
            SizeClass { octets: 128, octets_max: 256 },
        ],
    };
    let pool = Pool::new(&config).unwrap();
    let messages: Vec<_> = core::iter::from_fn(|| pool.alloc(0, 64).ok()).collect();
    assert_eq!(messages.len(), 3);
    assert_eq!(pool.stats().classes[1].live, 2);
}

#[test]
fn bad_classes_are_refused() {
    let refused = |classes: &[usize]| {
        let classes =
            classes.iter().map(|octets| SizeClass { octets: *octets, octets_max: 4096 }).collect();
        let config = PoolConfig { octets_max: 4096, descriptors_max: 1, classes };
        Pool::new(&config).err() == Some(PoolError::BadClasses)
    };
    assert!(
        refused(&[])
            && refused(&[0])
            && refused(&[100])
            && refused(&[128, 64])
            && refused(&[64; 2])
    );
    assert!(refused(&[64, 128, 192, 256, 320, 384, 448, 512, 576]));
    assert!(!refused(&[64, 4096]));
}

#[test]
fn attributes_follow_the_head() {
    let pool = pool();
    let mut message = pool.copy_from(0, b"frontback").unwrap();
    message.set_attribute(A(1)).unwrap();
    message.set_attribute(B(2)).unwrap();
    message.set_attribute(A(3)).unwrap();
    message.set_attribute(C(4)).unwrap();
    message.set_attribute(D(5)).unwrap();
    assert_eq!(message.set_attribute(E(6)), Err(AttributesFull));
    assert_eq!(message.remove_attribute(), Some(D(5)));
    assert_eq!(message.remove_attribute::<D>(), None);

    let mut back = message.split_off(5).unwrap();
    assert_eq!((back.attribute(), back.attribute::<B>()), (Some(A(3)), Some(B(2))));
    assert_eq!(back.try_clone().unwrap().attribute(), Some(C(4)));
    let mut copy = pool.empty(0).unwrap();
    for (key, value) in back.attributes_encoded() {
        copy.set_attribute_encoded(key, value).unwrap();
    }
    assert_eq!((copy.attribute(), copy.attribute::<C>()), (Some(A(3)), Some(C(4))));
    back.set_attribute(A(9)).unwrap();
    message.push_array(b"header").unwrap();
    assert_eq!(message.attribute(), Some(A(3)));
    message.join(back);
    assert_eq!(message.attribute(), Some(A(3)));
    drop(message);
    assert_eq!(pool.empty(0).unwrap().attribute::<A>(), None);
}

#[test]
fn what_is_done_in_place_is_done_whole_or_not_at_all() {
    let pool = Pool::new(&PoolConfig::default()).unwrap();
    let mut message = pool.copy_from(64, b"payload").unwrap();
    assert_eq!(message.single_slice(), Some(&b"payload"[..]));
    assert!(message.push_in_place(b"head"));
    assert!(message.fill_in_place(|room: &mut [u8; 2]| *room = *b"->"));
    assert_eq!(message.peek_in_place(), Some(b"->head"));
    assert_eq!(message.peek_in_place::<14>(), None);
    assert!(!message.strip_in_place(14));
    assert!(message.strip_in_place(2));
    assert!(message.eq_octets(b"headpayload"));

    // A clone owns no room; the message itself keeps what lies in front of both.
    let mut clone = message.try_clone().unwrap();
    assert!(!clone.push_in_place(b"x"));
    assert!(!clone.fill_in_place(|_: &mut [u8; 1]| panic!("there is no room")));
    assert!(message.push_in_place(b"x"));
    assert!(clone.eq_octets(b"headpayload"));

    clone.push_array(b"y").unwrap();
    assert_eq!(clone.single_slice(), None);
    assert_eq!(clone.peek_in_place::<2>(), None);
    assert!(!clone.strip_in_place(2));
    assert!(clone.strip(2) && clone.eq_octets(b"eadpayload"));
    assert!(!clone.has_attributes());
}

#[test]
fn buffers_of_a_power_of_two_lie_on_its_multiples() {
    let pool = pool();
    let (base, octets) = pool.region();
    assert_eq!((base.as_ptr().addr() % 4096, octets), (0, 4 << 20));
    let mut kept = Vec::new();
    // A size in between leaves an odd place behind; each class comes to a second piece of the
    // arena.
    const ROUNDS: usize = if cfg!(miri) { 70 } else { 300 };
    for round in 0..ROUNDS {
        for (len, align) in [(256, 256), (16_000, 64), (2048, 2048)] {
            if len == 16_000 && round >= 32 {
                continue;
            }
            let message = pool.alloc(0, len).unwrap();
            let offset = message.slices().next().unwrap().offset;
            assert!(offset.is_multiple_of(align) && offset + len <= octets);
            kept.push(message);
        }
    }
}
