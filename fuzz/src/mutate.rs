//! Changes of inputs: a few at random out of a handful of ways, all from one seed.

use crate::INPUT_OCTETS_MAX;
use xk_core::random::Random;

/// Most changes made to one input.
const CHANGES_MAX: u64 = 6;
/// Longest piece that is inserted, copied or removed, in octets.
const PIECE_MAX: usize = 128;

/// Values at which code often errs.
const INTERESTING: &[u32] = &[
    0,
    1,
    2,
    3,
    4,
    5,
    7,
    8,
    9,
    15,
    16,
    17,
    19,
    20,
    21,
    28,
    31,
    32,
    45,
    46,
    59,
    60,
    63,
    64,
    65,
    127,
    128,
    255,
    256,
    257,
    511,
    512,
    576,
    1023,
    1024,
    1480,
    1500,
    1501,
    1514,
    2048,
    0x0806,
    0x1fff,
    0x2000,
    0x3fff,
    0x4000,
    0x7fff,
    0x8000,
    0xfffe,
    0xffff,
    0x1_0000,
    0x7fff_ffff,
    0x8000_0000,
    0xe000_0001,
    0xffff_fffe,
    0xffff_ffff,
];

/// Pieces of text that graph files and participants are made of.
const WORDS: &[&str] = &[
    "host ",
    "link ",
    "{\n",
    "}\n",
    "eth ",
    "arp ",
    "ip ",
    "icmp ",
    "udp ",
    "probe ",
    "echo ",
    "sim ",
    "null ",
    "fault ",
    "tracer ",
    "count=3 ",
    "name=x ",
    "{n}",
    "{n+1}",
    "forward=#true ",
    "address \"10.0.0.1/24\"\n",
    "route default via=\"10.0.0.254\"\n",
    "on=",
    "\"",
    "\\",
    "/-",
    "/*",
    "*/",
    "//",
    "#true",
    "99999999999999999999",
    "-1",
    "\"64KiB\"",
    "\"10ms\"",
    "\"5%\"",
    "port7@",
    "*",
    "10.0.0.2",
    "02:00:00:00:00:01",
    "[fe80::1]",
    ",",
    "\u{feff}",
    "é",
    "\n",
];

/// Makes a new input of `of`, perhaps with a part of `other`, at most [`INPUT_OCTETS_MAX`] octets.
#[must_use]
pub fn mutate(random: &Random, of: &[u8], other: &[u8]) -> Vec<u8> {
    let mut data = of.to_vec();
    for _ in 0..=random.below(CHANGES_MAX) {
        change(random, &mut data, other);
    }
    data.truncate(INPUT_OCTETS_MAX);
    data
}

/// A number below `n`; 0 if there is none.
fn below(random: &Random, n: usize) -> usize {
    random.below(n.max(1) as u64) as usize
}

/// A place and a length within `len` octets; pieces are mostly short.
fn piece(random: &Random, len: usize) -> (usize, usize) {
    let at = below(random, len + 1);
    let max = [2, 8, PIECE_MAX][below(random, 3)];
    (at, (1 + below(random, max)).min(len - at))
}

fn change(random: &Random, data: &mut Vec<u8>, other: &[u8]) {
    let at = below(random, data.len());
    match random.below(14) {
        0 => {
            if let Some(octet) = data.get_mut(at) {
                *octet ^= 1 << random.below(8);
            }
        }
        1 => {
            if let Some(octet) = data.get_mut(at) {
                *octet = random.next_u32() as u8;
            }
        }
        2 => {
            if let Some(octet) = data.get_mut(at) {
                *octet = octet.wrapping_add([1, 255, 4, 252, 10, 246][below(random, 6)]);
            }
        }
        3 => interesting(random, data, at),
        4 => {
            let mut new = vec![0; 1 + below(random, 16)];
            random.fill(&mut new);
            data.splice(at..at, new);
        }
        5 => {
            let (from, len) = piece(random, data.len());
            data.drain(from..from + len);
        }
        6 => {
            let (from, len) = piece(random, data.len());
            let copy = data[from..from + len].to_vec();
            data.splice(at..at, copy);
        }
        7 => {
            let (from, len) = piece(random, other.len());
            let end = (at + below(random, 2) * len).min(data.len());
            data.splice(at..end, other[from..from + len].iter().copied());
        }
        8 => {
            data.truncate(at);
            data.extend(&other[below(random, other.len())..]);
        }
        9 => {
            let word = WORDS[below(random, WORDS.len())];
            data.splice(at..at, word.bytes());
        }
        10 => data.truncate(at),
        11 => steps(random, data),
        _ => records(random, data),
    }
}

/// Takes an input as steps of four octets, and doubles, removes or moves some.
fn steps(random: &Random, data: &mut Vec<u8>) {
    let at = 4 * below(random, data.len() / 4);
    let len = (4 * (1 + below(random, 4))).min(data.len() - at);
    rearrange(random, data, (at, len), |data| 4 * below(random, data.len() / 4 + 1));
}

/// Takes an input as records, each behind an octet of its length, and doubles, removes or moves
/// one.
fn records(random: &Random, data: &mut Vec<u8>) {
    let begins = |data: &[u8]| {
        let mut all = vec![0];
        while let Some(len) = data.get(all[all.len() - 1]) {
            all.push(all[all.len() - 1] + 1 + usize::from(*len));
        }
        all.retain(|at| *at <= data.len());
        all
    };
    let all = begins(data);
    let one = below(random, all.len().saturating_sub(1));
    let (at, end) = (all[one], all.get(one + 1).copied().unwrap_or(data.len()));
    rearrange(random, data, (at, end - at), |data| {
        let all = begins(data);
        all[below(random, all.len())]
    });
}

/// Doubles, removes or moves a piece; `to` says where to.
fn rearrange(
    random: &Random,
    data: &mut Vec<u8>,
    (at, len): (usize, usize),
    to: impl Fn(&[u8]) -> usize,
) {
    let piece = data[at..at + len].to_vec();
    let what = random.below(3);
    if what != 0 {
        data.drain(at..at + len);
    }
    if what != 1 {
        let to = to(data).min(data.len());
        data.splice(to..to, piece);
    }
}

/// Puts an interesting value over one, two or four octets, in either order.
fn interesting(random: &Random, data: &mut [u8], at: usize) {
    let value = INTERESTING[below(random, INTERESTING.len())];
    let octets = match random.below(5) {
        0 => &value.to_be_bytes()[3..],
        1 => &value.to_be_bytes()[2..],
        2 => &value.to_le_bytes()[..2],
        3 => &value.to_be_bytes()[..],
        _ => &value.to_le_bytes()[..],
    };
    for (to, from) in data.iter_mut().skip(at).zip(octets) {
        *to = *from;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_gives_one_sequence() {
        let run = || {
            let random = Random::new(7);
            let mut data = b"seed".to_vec();
            for _ in 0..2000 {
                data = mutate(&random, &data, b"other");
                assert!(data.len() <= INPUT_OCTETS_MAX);
            }
            data
        };
        assert_eq!(run(), run());
    }

    #[test]
    fn nothing_can_be_mutated() {
        let random = Random::new(1);
        for _ in 0..1000 {
            assert!(mutate(&random, b"", b"").len() <= INPUT_OCTETS_MAX);
        }
    }
}
