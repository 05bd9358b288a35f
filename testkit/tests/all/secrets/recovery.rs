//! The attack on a linear generator: from what it puts out to its state, and so to all that it will
//! put out.
//!
//! xoshiro256** (Blackman and Vigna, ACM TOMS 47/4, 2021) has a linear state under a nonlinear
//! output. The sixteen upper bits of an output are made of 21 bits of the state by two
//! multiplications, and for some values of the sixteen certain sums of those 21 are known for sure:
//! one linear equation each about the 256 bits at the beginning.

/// The bits of the state that sixteen bits of an output depend on: those of its second word from
/// here on, and how many.
const SEEN_FROM: usize = 36;
const SEEN: u32 = 21;

/// A sum of bits of the state: which ones, and what they sum to.
#[derive(Clone, Copy, Default)]
struct Sum {
    bits: [u64; 4],
    is_odd: bool,
}

impl Sum {
    fn add(&mut self, other: &Sum) {
        for (bits, more) in self.bits.iter_mut().zip(other.bits) {
            *bits ^= more;
        }
        self.is_odd ^= other.is_odd;
    }

    /// The highest of its bits.
    fn leader(&self) -> Option<usize> {
        let word = self.bits.iter().rposition(|bits| *bits != 0)?;
        Some(64 * word + self.bits[word].ilog2() as usize)
    }
}

/// For each value of the sixteen bits, which sums of the 21 it settles, as a mask and whether the
/// sum is odd.
pub(crate) struct Relations(Vec<Vec<(u32, bool)>>);

impl Relations {
    pub(crate) fn new() -> Self {
        let mut preimages = vec![Vec::new(); 1 << 16];
        for bits in 0u32..1 << SEEN {
            for (carry, more) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
                // Times five, then times nine, with what may be carried into the bits looked at.
                let five = ((bits >> 2) + (bits & 0x7_ffff) + carry) & 0x7_ffff;
                let nine = ((five >> 3) + (five & 0xffff) + more) & 0xffff;
                preimages[nine as usize].push(bits);
            }
        }
        Self(preimages.iter().map(|all| settled(all)).collect())
    }

    /// The state before the first of these outputs, of each of which the sixteen upper bits were
    /// seen; `None` if no state of the generator gives them, or they do not settle it.
    pub(crate) fn state(&self, seen: &[u16]) -> Option<[u64; 4]> {
        let mut state: [[Sum; 64]; 4] = core::array::from_fn(|word| {
            core::array::from_fn(|bit| {
                let mut sum = Sum::default();
                sum.bits[word] = 1 << bit;
                sum
            })
        });
        let mut equations: Vec<Option<Sum>> = vec![None; 256];
        for value in seen {
            for (mask, is_odd) in &self.0[usize::from(*value)] {
                let mut sum = Sum::default();
                for bit in (0..SEEN as usize).filter(|bit| mask >> bit & 1 == 1) {
                    sum.add(&state[1][SEEN_FROM + bit]);
                }
                sum.is_odd ^= is_odd;
                while let Some(leader) = sum.leader() {
                    match &equations[leader] {
                        Some(known) => sum.add(&known.clone()),
                        None => {
                            equations[leader] = Some(sum);
                            break;
                        }
                    }
                }
                if sum.leader().is_none() && sum.is_odd {
                    return None;
                }
            }
            step_sums(&mut state);
        }
        let mut solved = [0u64; 4];
        for (leader, equation) in equations.iter().enumerate() {
            let equation = equation.as_ref()?;
            let ones = |(bits, solved): (&u64, &u64)| (bits & solved).count_ones();
            let others: u32 = equation.bits.iter().zip(&solved).map(ones).sum();
            if (others % 2 == 1) != equation.is_odd {
                solved[leader / 64] |= 1 << (leader % 64);
            }
        }
        Some(solved)
    }
}

/// The sums that are the same for all of these values.
fn settled(all: &[u32]) -> Vec<(u32, bool)> {
    let Some(first) = all.first() else {
        return Vec::new();
    };
    // A basis of the differences, each with a leading bit that no other has.
    let mut basis = [0u32; SEEN as usize];
    for value in all {
        let mut rest = value ^ first;
        while rest != 0 {
            let leader = rest.ilog2() as usize;
            if basis[leader] == 0 {
                basis[leader] = rest;
                break;
            }
            rest ^= basis[leader];
        }
    }
    for leader in 0..basis.len() {
        for other in leader + 1..basis.len() {
            if basis[leader] != 0 && basis[other] >> leader & 1 == 1 {
                basis[other] ^= basis[leader];
            }
        }
    }
    let free = (0..basis.len()).filter(|bit| basis[*bit] == 0);
    let sums = free.map(|free| {
        let bound = (0..basis.len()).filter(|leader| basis[*leader] >> free & 1 == 1);
        let mask = bound.fold(1 << free, |mask, leader| mask | 1 << leader);
        (mask, (mask & first).count_ones() % 2 == 1)
    });
    sums.collect()
}

/// One step of the generator, of sums.
fn step_sums(state: &mut [[Sum; 64]; 4]) {
    fn add(to: &mut [Sum; 64], from: &[Sum; 64]) {
        to.iter_mut().zip(from).for_each(|(to, from)| to.add(from));
    }
    let [a, b, c, d] = state;
    let mut shifted = [Sum::default(); 64];
    shifted[17..].copy_from_slice(&b[..64 - 17]);
    add(c, a);
    add(d, b);
    add(b, c);
    add(a, d);
    add(c, &shifted);
    d.rotate_right(45);
}

/// The generator itself, to predict with what was recovered.
pub(crate) struct Xoshiro(pub(crate) [u64; 4]);

impl Xoshiro {
    pub(crate) fn next(&mut self) -> u64 {
        let state = &mut self.0;
        let result = state[1].wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let shifted = state[1] << 17;
        state[2] ^= state[0];
        state[3] ^= state[1];
        state[1] ^= state[2];
        state[0] ^= state[3];
        state[2] ^= shifted;
        state[3] = state[3].rotate_left(45);
        result
    }
}
