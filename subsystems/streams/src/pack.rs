//! Two forms of octets that take fewer than they stand for, and the modules of streams that send
//! messages in them.
//!
//! A packed message begins with an octet that says its form: 0 is the message as it is, 1 runs, 2
//! repeats. What would not become shorter goes as it is, so that a message grows by one octet at
//! most.
//!
//! *Runs* (`squeeze`) is PackBits: a control octet `n` of 0 to 127 stands before `n + 1` octets as
//! they are, one of 129 to 255 before an octet that comes `257 - n` times; 128 is not used.
//!
//! *Repeats* (`crunch`) copies what has come before: a control octet of 0 to 127 stands before
//! octets as they are, as above; one of 128 to 255 before two octets, the most significant first,
//! that say how far back (1 to 65,535) as many octets as `n - 124` begin, which may reach into
//! themselves.

use alloc::vec;
use alloc::vec::Vec;

/// Longest message that is packed or unpacked, in octets.
pub const OCTETS_MAX: usize = 65_535;
/// Octets that one control octet announces as they are, at most.
const PLAIN_MAX: usize = 128;
/// Least and most octets of a repeat.
const REPEAT: (usize, usize) = (4, 131);
/// Places of the table that finds repeats.
const TABLE: usize = 4096;

/// A form of packed octets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Runs of one octet: `squeeze`.
    Runs = 1,
    /// Repeats of what came before: `crunch`.
    Repeats = 2,
}

/// Why octets are no packed message of the form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The message is of another form, or of none.
    #[error("the message is of another form")]
    Form,
    /// The message ends within an item.
    #[error("the message ends within an item")]
    Truncated,
    /// An item is none that the form has.
    #[error("no such item")]
    Item,
    /// The message stands for more octets than one may have.
    #[error("more octets than a message may have")]
    TooBig,
}

/// Packs a message. One that is too long goes as it is.
pub fn pack(form: Form, octets: &[u8]) -> Vec<u8> {
    let mut packed = Vec::with_capacity(octets.len() + 1);
    packed.push(form as u8);
    if octets.len() <= OCTETS_MAX {
        match form {
            Form::Runs => pack_runs(octets, &mut packed),
            Form::Repeats => pack_repeats(octets, &mut packed),
        }
    }
    if packed.len() > octets.len() || octets.len() > OCTETS_MAX {
        packed.clear();
        packed.push(0);
        packed.extend_from_slice(octets);
    }
    packed
}

/// Unpacks a message that [`pack`] has made.
///
/// # Errors
/// [`Malformed`].
pub fn unpack(form: Form, packed: &[u8]) -> Result<Vec<u8>, Malformed> {
    match packed.split_first() {
        Some((0, octets)) => Ok(octets.into()),
        Some((is, items)) if *is == form as u8 => unpack_items(form, items),
        _ => Err(Malformed::Form),
    }
}

/// Appends octets as they are.
fn plain(octets: &[u8], packed: &mut Vec<u8>) {
    for part in octets.chunks(PLAIN_MAX) {
        packed.push(part.len() as u8 - 1);
        packed.extend_from_slice(part);
    }
}

fn pack_runs(octets: &[u8], packed: &mut Vec<u8>) {
    let (mut at, mut begin) = (0, 0);
    while let Some(octet) = octets.get(at) {
        let run = octets[at..].iter().take(PLAIN_MAX).take_while(|other| *other == octet).count();
        // A run of two saves nothing, and would end the octets before it.
        if run > 2 {
            plain(&octets[begin..at], packed);
            packed.extend([(257 - run) as u8, *octet]);
            begin = at + run;
        }
        at += run;
    }
    plain(&octets[begin..], packed);
}

fn pack_repeats(octets: &[u8], packed: &mut Vec<u8>) {
    // Where four octets of this hash stood last, and one.
    let mut table = vec![0_u16; TABLE];
    let (mut at, mut begin) = (0, 0);
    while let Some(four) = octets.get(at..).and_then(|rest| rest.first_chunk::<4>()) {
        let hash = u32::from_le_bytes(*four).wrapping_mul(0x9e37_79b1) as usize >> 20;
        let place = &mut table[hash % TABLE];
        let before = usize::from(*place).checked_sub(1);
        *place = (at + 1).min(OCTETS_MAX) as u16;
        let same = before.filter(|before| *before < at).map_or(0, |before| {
            let pairs = octets[before..].iter().zip(&octets[at..]).take(REPEAT.1);
            pairs.take_while(|(one, other)| one == other).count()
        });
        let Some(before) = before.filter(|_| same >= REPEAT.0) else {
            at += 1;
            continue;
        };
        plain(&octets[begin..at], packed);
        packed.push((same + 124) as u8);
        packed.extend(((at - before) as u16).to_be_bytes());
        at += same;
        begin = at;
    }
    plain(&octets[begin..], packed);
}

fn unpack_items(form: Form, mut items: &[u8]) -> Result<Vec<u8>, Malformed> {
    let mut octets = Vec::new();
    while let Some((&control, rest)) = items.split_first() {
        let count = usize::from(control);
        items = if count < PLAIN_MAX {
            let (plain, rest) = rest.split_at_checked(count + 1).ok_or(Malformed::Truncated)?;
            octets.extend_from_slice(plain);
            rest
        } else if form == Form::Runs {
            let (&octet, rest) = rest.split_first().ok_or(Malformed::Truncated)?;
            if count == PLAIN_MAX {
                return Err(Malformed::Item);
            }
            octets.resize(octets.len() + 257 - count, octet);
            rest
        } else {
            let (back, rest) = rest.split_first_chunk().ok_or(Malformed::Truncated)?;
            let back = usize::from(u16::from_be_bytes(*back));
            let from = octets.len().checked_sub(back).filter(|_| back > 0);
            let from = from.ok_or(Malformed::Item)?;
            for at in from..from + count - 124 {
                octets.push(octets[at]);
            }
            rest
        };
        if octets.len() > OCTETS_MAX {
            return Err(Malformed::TooBig);
        }
    }
    Ok(octets)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FORMS: [Form; 2] = [Form::Runs, Form::Repeats];

    #[test]
    fn known_messages_have_known_forms() {
        let runs = |octets: &[u8]| pack(Form::Runs, octets);
        assert_eq!(runs(b""), [0]);
        assert_eq!(runs(b"abc"), [0, b'a', b'b', b'c']);
        assert_eq!(runs(b"aaaaaaaa"), [1, 249, b'a']);
        assert_eq!(runs(b"xyaaaaaz"), [1, 1, b'x', b'y', 252, b'a', 0, b'z']);
        let repeats = |octets: &[u8]| pack(Form::Repeats, octets);
        assert_eq!(repeats(b"abcdabcdabcd"), [2, 3, b'a', b'b', b'c', b'd', 132, 0, 4]);
        assert_eq!(repeats(b"abcd"), [0, b'a', b'b', b'c', b'd']);
    }

    #[test]
    fn malformed_messages_are_refused() {
        for (form, packed, why) in [
            (Form::Runs, &[][..], Malformed::Form),
            (Form::Runs, &[2, 0, 1], Malformed::Form),
            (Form::Runs, &[1, 1, 1], Malformed::Truncated),
            (Form::Runs, &[1, 200], Malformed::Truncated),
            (Form::Runs, &[1, 128, 1], Malformed::Item),
            (Form::Repeats, &[2, 0, 7, 128, 0], Malformed::Truncated),
            (Form::Repeats, &[2, 0, 7, 128, 0, 2], Malformed::Item),
            (Form::Repeats, &[2, 0, 7, 128, 0, 0], Malformed::Item),
        ] {
            assert_eq!(unpack(form, packed), Err(why), "{form:?} {packed:?}");
        }
        let bomb: Vec<u8> = [1].into_iter().chain([129, 0].repeat(600)).collect();
        assert_eq!(unpack(Form::Runs, &bomb), Err(Malformed::TooBig));
    }

    /// Octets with runs and repeats.
    fn octets() -> impl Strategy<Value = Vec<u8>> {
        let part = (prop::collection::vec(0_u8..4, 1..20), 1_usize..40);
        prop::collection::vec(part, 0..40)
            .prop_map(|parts| parts.into_iter().flat_map(|(part, n)| part.repeat(n)).collect())
    }

    proptest! {
        #[test]
        fn what_is_packed_comes_out_again(
            octets in prop_oneof![octets(), prop::collection::vec(any::<u8>(), 0..2000)],
        ) {
            for form in FORMS {
                let packed = pack(form, &octets);
                prop_assert!(packed.len() <= octets.len() + 1);
                prop_assert_eq!(unpack(form, &packed), Ok(octets.clone()));
            }
        }

        #[test]
        fn anything_is_unpacked_or_refused(packed in prop::collection::vec(any::<u8>(), 0..400)) {
            for form in FORMS {
                let taken = unpack(form, &packed);
                prop_assert!(taken.is_err() || taken.is_ok_and(|octets| octets.len() <= OCTETS_MAX));
            }
        }
    }
}
