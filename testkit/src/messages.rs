//! The suite that every [`Arena`] must pass, called by the tests of each implementation.
//!
//! Part of it is [`run_script`], which compares messages with plain vectors of octets under any
//! sequence of operations; property tests and fuzzers drive it with scripts of their own.

mod loans_unsafe;

use xk_core::message::{
    ATTRIBUTE_OCTETS, Arena, Attribute, BUFFER_ALIGN, Crossing, Message, NoBuffers,
    PULL_UP_OCTETS_MAX, Pool, PoolConfig, PullUpError, SizeClass, SplitError,
};

pub use loans_unsafe::run_loans_script;

/// Most messages that a script keeps alive at one time.
const MESSAGES_MAX: usize = 12;

/// Longest content, in octets, that a script makes.
const OCTETS_MAX: usize = 1500;

/// The whole suite. `make` makes an arena of at least as many octets as asked for.
///
/// # Panics
/// Where the arena, or the pool in it, does not do what it must.
pub fn arena<A: Arena + 'static>(make: impl Fn(usize) -> A) {
    is_aligned_and_zeroed(&make(10_000));
    is_used_up_and_given_back(make(1 << 16));
    drops_in_any_order(&make);
    for seed in 0..40 {
        let pool = small_pool(Box::new(make(1 << 16)));
        run_script(&pool, &random_octets(seed, 600));
    }
    two_pools_join(&make);
}

fn small_config() -> PoolConfig {
    PoolConfig {
        octets_max: 1 << 16,
        descriptors_max: 100,
        classes: vec![
            SizeClass { octets: 128, octets_max: 1 << 13 },
            SizeClass { octets: 512, octets_max: 1 << 14 },
            SizeClass { octets: 1024, octets_max: 1 << 15 },
        ],
    }
}

/// A pool in `arena` with small buffers and tight bounds, so that scripts reach them.
///
/// # Panics
/// If there is no memory.
pub fn small_pool(arena: Box<dyn Arena>) -> Pool {
    Pool::with_arena(arena, &small_config()).expect("memory for a small pool")
}

fn is_aligned_and_zeroed(arena: &impl Arena) {
    assert!(arena.len() >= 10_000, "at least as long as asked for");
    assert!(!arena.is_empty());
    assert_eq!(arena.base().addr().get() % BUFFER_ALIGN, 0, "aligned");
    assert_eq!(arena.base(), arena.base(), "stays where it is");
}

/// Takes all there is, finds every buffer zeroed and its octets its own, and gets all of it back.
fn is_used_up_and_given_back(arena: impl Arena + 'static) {
    let pool = small_pool(Box::new(arena));
    for round in 0..3_u8 {
        let mut messages = Vec::new();
        while let Ok(mut message) = pool.alloc(0, 1024) {
            let front = message.front_mut().expect("a new message is unshared");
            assert_eq!(front.as_ptr().addr() % BUFFER_ALIGN, 0, "buffers are aligned");
            if round == 0 {
                assert!(front.iter().all(|octet| *octet == 0), "an arena begins with zeros");
            }
            front.fill(messages.len() as u8);
            messages.push(message);
        }
        assert_eq!(messages.len(), 32, "the class takes its whole share and no more");
        for (at, message) in messages.iter().enumerate() {
            assert!(message.octets().all(|octet| octet == at as u8), "no two buffers overlap");
            let slice = message.slices().next().expect("it has octets");
            assert!(
                slice.offset + slice.octets.len() <= 1 << 16 && slice.offset % BUFFER_ALIGN == 0
            );
        }
        assert_eq!(pool.stats().failures, u64::from(round) + 1, "a refusal is counted");
    }
    let stats = pool.stats();
    assert_eq!((stats.descriptors_live, stats.buffers_live), (0, 0));
    assert_eq!(stats.classes[2].high_water, 32);
}

fn drops_in_any_order<A: Arena + 'static>(make: &impl Fn(usize) -> A) {
    let pool = small_pool(Box::new(make(1 << 16)));
    let other = pool.clone();
    let mut first = other.copy_from(32, b"first").expect("room");
    let second = other.copy_from(32, b"second").expect("room");
    drop(pool);
    drop(other);
    first.join(second);
    let clone = first.try_clone().expect("room");
    drop(first);
    assert!(clone.eq_octets(b"firstsecond"), "messages outlive the handles of their pool");
}

fn two_pools_join<A: Arena + 'static>(make: &impl Fn(usize) -> A) {
    let (one, two) = (small_pool(Box::new(make(1 << 16))), small_pool(Box::new(make(1 << 16))));
    let mut message = one.copy_from(0, b"one ").expect("room");
    message.join(two.copy_from(0, b"two").expect("room"));
    assert!(!message.lies_in(&one) && !message.lies_in(&two));
    drop(two);
    assert!(message.strip(5));
    assert!(message.eq_octets(b"wo"), "a pool lives while one of its buffers does");
    drop(message);
    let stats = one.stats();
    assert_eq!((stats.descriptors_live, stats.buffers_live), (0, 0));
}

/// Messages of `octets` in all the ways that they may lie in slices: cut or not behind each octet,
/// and each with an empty slice in front, too. No way takes longer than another; there are two to
/// the power of the number of octets.
///
/// # Panics
/// If there is no octet, or no buffer.
pub fn chopped(pool: &Pool, octets: &[u8]) -> impl Iterator<Item = Message> {
    let part = |octets: &[u8]| pool.copy_from(0, octets).expect("room");
    (0..1_u32 << octets.len()).map(move |cuts| {
        let is_cut = |at: &usize| cuts & 1 << at != 0;
        let (mut message, mut from) = (part(&octets[..1]), 1);
        if is_cut(&0) {
            let mut empty = part(b"-");
            empty.join(message);
            assert!(empty.strip(1));
            message = empty;
        }
        for at in (1..octets.len()).filter(is_cut).chain([octets.len()]) {
            message.join(part(&octets[from..at]));
            from = at;
        }
        message
    })
}

/// Octets from a small generator (xorshift64*), the same for the same seed.
pub fn random_octets(seed: u64, count: usize) -> Vec<u8> {
    let mut state = (seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut next = || {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 56) as u8
    };
    (0..count).map(|_| next()).collect()
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Mark(u32);

impl Attribute for Mark {
    const KEY: u32 = xk_core::name_key("xk.conformance.mark");
    const CROSSES: Crossing = Crossing::BOTH;

    fn encode(self) -> [u8; ATTRIBUTE_OCTETS] {
        let mut octets = [0; ATTRIBUTE_OCTETS];
        octets[4..8].copy_from_slice(&self.0.to_be_bytes());
        octets
    }

    fn decode(octets: [u8; ATTRIBUTE_OCTETS]) -> Self {
        let [_, _, _, _, a, b, c, d, ..] = octets;
        Self(u32::from_be_bytes([a, b, c, d]))
    }
}

/// A message and what it must be.
struct Pair {
    message: Message,
    octets: Vec<u8>,
    /// Octets known to lie in front: taken off, and not written over.
    front: Vec<u8>,
    mark: Option<Mark>,
}

impl Pair {
    fn new(message: Message, octets: Vec<u8>, mark: Option<Mark>) -> Self {
        Self { message, octets, front: Vec::new(), mark }
    }

    /// The first `n` octets have been taken off.
    fn taken_off(&mut self, n: usize, first_slice: usize) {
        let off = self.octets.drain(..n);
        match n < first_slice {
            true => self.front.extend(off),
            // Where the slice is gone nothing is known; where it is empty now it may go.
            false => self.front.clear(),
        }
    }

    fn first_slice(&self) -> usize {
        self.message.slices().next().map_or(0, |slice| slice.octets.len())
    }
}

struct Script<'a> {
    octets: &'a [u8],
    pool: &'a Pool,
    pairs: Vec<Pair>,
    stamp: u8,
}

/// Reads `script` as a sequence of operations on several messages of `pool`, does each on the
/// messages and on plain vectors, and compares all of them after each. In the end everything must
/// be back in the pool.
///
/// # Panics
/// At the first difference.
pub fn run_script(pool: &Pool, script: &[u8]) {
    let before = pool.stats();
    let mut script = Script::new(pool, script);
    while !script.octets.is_empty() {
        script.step();
        script.compare();
    }
    drop(script);
    let after = pool.stats();
    assert_eq!(after.descriptors_live, before.descriptors_live, "descriptors leak");
    assert_eq!(after.buffers_live, before.buffers_live, "buffers leak");
}

impl<'a> Script<'a> {
    fn new(pool: &'a Pool, octets: &'a [u8]) -> Self {
        Self { octets, pool, pairs: Vec::new(), stamp: 0 }
    }

    fn next(&mut self) -> usize {
        let Some((first, behind)) = self.octets.split_first() else {
            return 0;
        };
        self.octets = behind;
        usize::from(*first)
    }

    /// A number from 0 to `max`, often one of the ends.
    fn up_to(&mut self, max: usize) -> usize {
        match self.next() {
            0..24 => 0,
            24..48 => max,
            small @ 48..128 => (small - 48).min(max),
            _ => (self.next() * 256 + self.next()) % (max + 1),
        }
    }

    /// Octets that differ from those of the step before.
    fn fill(&mut self, octets: &mut [u8]) {
        self.stamp = self.stamp.wrapping_add(1);
        for (at, octet) in octets.iter_mut().enumerate() {
            *octet = self.stamp.wrapping_mul(31).wrapping_add(at as u8);
        }
    }

    fn take(&mut self) -> Option<Pair> {
        let at = self.next();
        let count = self.pairs.len();
        (count != 0).then(|| self.pairs.swap_remove(at % count))
    }

    fn compare(&self) {
        for pair in &self.pairs {
            assert_eq!(pair.message.len(), pair.octets.len(), "length");
            assert!(pair.message.eq_octets(&pair.octets), "octets of {:?}", pair.message);
            assert_eq!(pair.message.attribute::<Mark>(), pair.mark, "attribute");
            let len: usize = pair.message.slices().map(|slice| slice.octets.len()).sum();
            assert_eq!(len, pair.octets.len(), "slices");
        }
    }

    fn step(&mut self) {
        let what = self.next() % 18;
        if what == 0 {
            return self.make();
        }
        let Some(mut pair) = self.take() else {
            return self.make();
        };
        let pair = match what {
            1 => return,
            2..=4 => self.push(pair),
            5 | 6 => self.pop(pair),
            7 => self.strip(pair),
            8 => self.truncate(pair),
            9 => self.split(pair),
            10 => self.split_and_rejoin(pair),
            11 | 12 => self.join(pair),
            13 => self.clone_one(pair),
            14 => self.pull_up(pair),
            15 => self.pad(pair),
            16 => self.uncover(pair),
            _ => {
                self.write(&mut pair);
                pair
            }
        };
        self.pairs.push(pair);
    }

    fn make(&mut self) {
        if self.pairs.len() >= MESSAGES_MAX {
            return;
        }
        let (headroom, len) = (self.up_to(200), self.up_to(OCTETS_MAX));
        let mut octets = vec![0; len];
        self.fill(&mut octets);
        if let Ok(message) = self.pool.copy_from(headroom, &octets) {
            assert!(message.headroom() >= headroom, "the headroom asked for");
            self.pairs.push(Pair::new(message, octets, None));
        }
    }

    fn push(&mut self, mut pair: Pair) -> Pair {
        let n = self.up_to(150);
        let fits = n <= pair.message.headroom();
        let mut header = vec![0; n];
        self.fill(&mut header);
        match pair.message.push_header(n) {
            Ok(room) => {
                room.copy_from_slice(&header);
                let kept = if fits { pair.front.len().saturating_sub(n) } else { 0 };
                pair.front.truncate(kept);
                pair.octets.splice(0..0, header);
            }
            Err(NoBuffers) => assert!(!fits, "what fits into the headroom needs no buffer"),
        }
        pair
    }

    fn pad(&mut self, mut pair: Pair) -> Pair {
        let len = self.up_to(OCTETS_MAX);
        let (is_padded, len) = match self.next() % 3 {
            0 => (pair.message.pad(len).is_ok(), len),
            1 => (pair.octets.len() < 46 && pair.message.pad_in_place::<46>(), 46),
            _ => (pair.octets.len() < 300 && pair.message.pad_in_place::<300>(), 300),
        };
        if is_padded {
            pair.octets.resize(pair.octets.len().max(len), 0);
        }
        pair
    }

    fn pop(&mut self, mut pair: Pair) -> Pair {
        let n = self.up_to(60);
        let first_slice = pair.first_slice();
        let peeked = pair.message.peek_slice(n).map(<[u8]>::to_vec);
        let popped = pair.message.pop_header(n).map(<[u8]>::to_vec);
        assert_eq!(peeked, popped);
        match popped {
            Some(header) => {
                assert_eq!(pair.octets.get(..n), Some(&header[..]), "the header popped");
                pair.taken_off(n, first_slice);
            }
            None => assert!(n > 0),
        }
        pair
    }

    fn strip(&mut self, mut pair: Pair) -> Pair {
        let len = pair.octets.len();
        let n = self.up_to(len + 1);
        let first_slice = pair.first_slice();
        assert_eq!(pair.message.strip(n), n <= len);
        if n <= len {
            pair.taken_off(n, first_slice);
        }
        pair
    }

    fn uncover(&mut self, mut pair: Pair) -> Pair {
        assert!(!pair.message.uncover(usize::MAX));
        let kept = self.up_to(pair.front.len());
        if pair.message.uncover(pair.front.len() - kept) {
            let found = pair.front.split_off(kept);
            pair.octets.splice(0..0, found);
        }
        pair
    }

    fn truncate(&mut self, mut pair: Pair) -> Pair {
        let len = pair.octets.len();
        let n = self.up_to(len + 1);
        pair.message.truncate(n);
        pair.octets.truncate(n);
        pair
    }

    fn split(&mut self, mut pair: Pair) -> Pair {
        let len = pair.octets.len();
        let at = self.up_to(len + 1);
        let takes_front = self.next().is_multiple_of(2);
        let split =
            if takes_front { pair.message.split_front(at) } else { pair.message.split_off(at) };
        match split {
            Ok(message) => {
                let mut octets = pair.octets.split_off(at);
                if takes_front {
                    core::mem::swap(&mut octets, &mut pair.octets);
                }
                let mut other = Pair::new(message, octets, pair.mark);
                if takes_front {
                    core::mem::swap(&mut other.front, &mut pair.front);
                }
                self.pairs.push(other);
            }
            Err(SplitError::TooShort) => assert!(at > len),
            Err(SplitError::NoBuffers) => assert!(at <= len),
        }
        pair
    }

    /// Splits, keeps a clone of one part, and joins the parts again: one slice, part of which
    /// another message sees.
    fn split_and_rejoin(&mut self, mut pair: Pair) -> Pair {
        let at = self.up_to(pair.octets.len());
        let Ok(message) = pair.message.split_off(at) else {
            return pair;
        };
        let back = Pair::new(message, pair.octets.split_off(at), pair.mark);
        let (mut pair, back) = if self.next().is_multiple_of(2) {
            (pair, self.clone_one(back))
        } else {
            (self.clone_one(pair), back)
        };
        Self::join_to(&mut pair, back);
        pair
    }

    fn join(&mut self, mut pair: Pair) -> Pair {
        if let Some(other) = self.take() {
            Self::join_to(&mut pair, other);
        }
        pair
    }

    fn join_to(pair: &mut Pair, other: Pair) {
        if pair.octets.is_empty() {
            pair.front.clear();
        }
        pair.message.join(other.message);
        pair.octets.extend(other.octets);
    }

    fn clone_one(&mut self, pair: Pair) -> Pair {
        if self.next().is_multiple_of(4) {
            return self.clone_part(pair);
        }
        if self.pairs.len() + 1 < MESSAGES_MAX
            && let Ok(message) = pair.message.try_clone()
        {
            self.pairs.push(Pair::new(message, pair.octets.clone(), pair.mark));
        }
        pair
    }

    fn clone_part(&mut self, pair: Pair) -> Pair {
        let whole = pair.octets.len();
        let at = self.up_to(whole + 1);
        let len = self.up_to(whole + 1);
        if self.pairs.len() + 1 >= MESSAGES_MAX {
            return pair;
        }
        match pair.message.try_clone_part(at, len) {
            Ok(message) => {
                let octets = pair.octets[at..at + len].to_vec();
                self.pairs.push(Pair::new(message, octets, None));
            }
            Err(SplitError::TooShort) => assert!(at + len > whole),
            Err(SplitError::NoBuffers) => assert!(at + len <= whole),
        }
        pair
    }

    fn pull_up(&mut self, mut pair: Pair) -> Pair {
        let n = self.up_to(300);
        if n > pair.first_slice() {
            pair.front.clear();
        }
        match pair.message.pull_up(n) {
            Ok(()) => assert_eq!(pair.message.peek_slice(n), pair.octets.get(..n), "pulled up"),
            Err(PullUpError::TooShort) => assert!(n > pair.octets.len()),
            Err(PullUpError::TooLong) => assert!(n > PULL_UP_OCTETS_MAX),
            Err(PullUpError::NoBuffers) => {}
        }
        pair
    }

    /// Overwrites some octets where that is allowed, copies some out, and changes the attribute.
    fn write(&mut self, pair: &mut Pair) {
        let len = pair.octets.len();
        let offset = self.up_to(len);
        let mut octets = vec![0; self.up_to(100)];
        self.fill(&mut octets);
        let done = pair.message.copy_in(offset, &octets);
        pair.octets[offset..offset + done].copy_from_slice(&octets[..done]);

        let mut copy = vec![0; octets.len()];
        let done = pair.message.copy_to(offset, &mut copy);
        assert_eq!(done, octets.len().min(len - offset));
        assert_eq!(copy[..done], pair.octets[offset..offset + done], "copied out");

        if self.next().is_multiple_of(3) {
            assert_eq!(pair.message.remove_attribute::<Mark>(), pair.mark.take());
        } else {
            pair.mark = Some(Mark(self.next() as u32));
            pair.message
                .set_attribute(Mark(pair.mark.map_or(0, |mark| mark.0)))
                .expect("only one attribute");
        }
    }
}
