//! Representations against the standard's text, and against any octets.

use proptest::prelude::*;
use xk_core::Message;
use xk_core::message::{Pool, PoolConfig};
use xk_xdr::*;

fn pool() -> Pool {
    Pool::new(&PoolConfig::with_octets_max(8 << 20)).expect("a pool")
}

/// The octets in slices of at most `each` octets.
fn in_pieces(pool: &Pool, octets: &[u8], each: usize) -> Message {
    let mut message = pool.empty(64).expect("a message");
    for piece in octets.chunks(each.max(1)) {
        // Of a buffer of its own each, so that they do not become one again.
        message.join(pool.copy_from(16, piece).expect("a piece"));
    }
    message
}

fn octets(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(pair).collect()
}

/// One value has these octets, in both directions, in whatever pieces, and no prefix of them is a
/// value.
fn is<T: Xdr + PartialEq + std::fmt::Debug>(value: &T, text: &str) {
    let expected = octets(text);
    round(value, &expected);
}

fn round<T: Xdr + PartialEq + std::fmt::Debug>(value: &T, expected: &[u8]) {
    let pool = pool();
    assert_eq!(to_vec(value).as_deref(), Ok(expected));
    assert_eq!(encoded_len(value), Ok(expected.len()));
    assert!(expected.len() >= T::OCTETS_MIN && expected.len().is_multiple_of(4));
    let message = to_message(value, &pool, 32).expect("a message");
    assert!(message.eq_octets(expected));
    let mut decoder = Decoder::new(expected).strict();
    assert_eq!(T::decode(&mut decoder).as_ref(), Ok(value));
    assert_eq!(decoder.finish(), Ok(()));
    for each in [1, 3, 4, 7] {
        let message = in_pieces(&pool, expected, each);
        assert_eq!(from_message::<T>(&message).as_ref(), Ok(value));
    }
    for len in 0..expected.len() {
        assert_eq!(from_slice::<T>(&expected[..len]), Err(DecodeError::Truncated));
        let mut room = vec![0; len];
        assert_eq!(value.encode(&mut Filler::new(&mut room)), Err(EncodeError::NoRoom));
    }
}

#[test]
fn the_standards_types() {
    is(&-2i32, "fffffffe");
    is(&0x0102_0304u32, "01020304");
    is(&-2i64, "fffffffffffffffe");
    is(&0x0102_0304_0506_0708u64, "0102030405060708");
    is(&true, "00000001");
    is(&false, "00000000");
    is(&-1.5f32, "bfc00000");
    is(&1.0f64, "3ff0000000000000");
    is(&Quadruple(*b"0123456789abcdef"), "30313233343536373839616263646566");
    is(&(), "");
    is(b"abcde", "6162636465000000");
    is(&Box::new(*b"abcde"), "6162636465000000");
    is(&Opaque::<8>::from(b"abc"), "0000000361626300");
    is(&Text::<4>::from("abcd"), "0000000461626364");
    is(&[1i32, -1], "00000001ffffffff");
    is(&Box::new([1i32, -1]), "00000001ffffffff");
    is(&Array::<u32, 3>::from(vec![7, 8]), "000000020000000700000008");
    is(&Some(Box::new(5u32)), "0000000100000005");
    is(&None::<Box<u32>>, "00000000");
    is(&List::from(vec![1u32, 2]), "00000001 00000001 00000001 00000002 00000000");
    is(&(1u32, true, 2u64), "00000001 00000001 0000000000000002");
}

/// The file of RFC 4506, section 7.
#[test]
fn the_standards_example() {
    type File = (Text<255>, i32, Text<255>, Text<32>, Opaque<65535>);
    let file: File = ("sillyprog".into(), 2, "lisp".into(), "john".into(), b"(quit)".into());
    is(
        &file,
        "00000009 73696c6c 7970726f 67000000 00000002 00000004 6c697370 00000004 6a6f686e
         00000006 28717569 74290000",
    );
}

#[test]
fn what_is_refused() {
    assert_eq!(from_slice::<bool>(&octets("00000002")), Err(DecodeError::BadBool(2)));
    assert_eq!(
        from_slice::<Option<Box<u32>>>(&octets("ffffffff00000001")),
        Err(DecodeError::BadBool(u32::MAX))
    );
    let dirty = octets("0000000361626301");
    assert_eq!(from_slice::<Text>(&dirty), Ok("abc".into()));
    assert_eq!(Text::<8>::decode(&mut Decoder::new(&dirty).strict()), Err(DecodeError::BadPadding));
    assert_eq!(
        <[u8; 3]>::decode(&mut Decoder::new(&dirty[4..]).strict()),
        Err(DecodeError::BadPadding)
    );
    assert_eq!(Decoder::new(&dirty).finish(), Err(DecodeError::Trailing { octets: 8 }));
    assert_eq!(from_slice::<Text<2>>(&dirty), Err(DecodeError::TooLong { len: 3, max: 2 }));
    assert_eq!(to_vec(&Text::<2>::from("abc")), Err(EncodeError::TooLong { len: 3, max: 2 }));
    assert_eq!(
        to_vec(&Array::<u32, 1>::from(vec![1, 2])),
        Err(EncodeError::TooLong { len: 2, max: 1 })
    );
}

/// A length that nothing stands behind is refused before room is made for it.
#[test]
fn lengths_are_held_against_what_is_there() {
    let huge = octets("ffffffff 00000000");
    assert_eq!(from_slice::<Opaque>(&huge), Err(DecodeError::Truncated));
    assert_eq!(from_slice::<Array<u32>>(&huge), Err(DecodeError::Truncated));
    assert_eq!(
        from_slice::<Array<()>>(&huge),
        Err(DecodeError::TooLong { len: u32::MAX, max: EMPTY_ELEMENTS_MAX })
    );
    assert_eq!(from_slice::<Box<[u64; 1 << 24]>>(&huge), Err(DecodeError::Truncated));
}

/// `struct tree { tree branches<>; unsigned leaf; }`
#[derive(Debug, PartialEq)]
struct Tree(Array<Tree>, u32);

impl Xdr for Tree {
    const OCTETS_MIN: usize = 8;

    fn encode<S: Sink>(&self, sink: &mut S) -> Result<(), EncodeError> {
        self.0.encode(sink)?;
        self.1.encode(sink)
    }

    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        Ok(Self(Xdr::decode(decoder)?, Xdr::decode(decoder)?))
    }
}

/// `struct chain { unsigned value; chain *next; }`, read by recursion.
#[derive(Debug, PartialEq)]
struct Chain(u32, Option<Box<Chain>>);

impl Xdr for Chain {
    const OCTETS_MIN: usize = 8;

    fn encode<S: Sink>(&self, sink: &mut S) -> Result<(), EncodeError> {
        self.0.encode(sink)?;
        self.1.encode(sink)
    }

    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        Ok(Self(Xdr::decode(decoder)?, Xdr::decode(decoder)?))
    }
}

#[test]
fn depth_is_bounded() {
    let nested = |depth: usize| {
        let mut octets = 1u32.to_be_bytes().repeat(depth);
        octets.extend([0; 4]);
        octets.extend(9u32.to_be_bytes().repeat(depth + 1));
        octets
    };
    // The innermost has an array, too, if an empty one.
    let most = DEPTH_MAX as usize - 1;
    assert!(from_slice::<Tree>(&nested(most)).is_ok());
    assert_eq!(from_slice::<Tree>(&nested(most + 1)), Err(DecodeError::TooDeep));
    assert_eq!(from_slice::<Tree>(&nested(100_000)), Err(DecodeError::TooDeep));
    let tree = Tree::decode(&mut Decoder::new(&nested(99)).depth_max(100));
    assert!(tree.is_ok());

    let chain = [1u32, 1].map(u32::to_be_bytes).concat().repeat(100_000);
    assert_eq!(from_slice::<Chain>(&chain), Err(DecodeError::TooDeep));
    let mut list = chain.clone();
    list.extend([0; 4]);
    let items = from_slice::<List<u32>>(&list).expect("as long as its octets");
    assert_eq!(items.len(), 100_000);
    round(&List::from(vec![1u32; 3]), &list_of(3));
}

fn list_of(count: usize) -> Vec<u8> {
    let mut octets = [1u32, 1].map(u32::to_be_bytes).concat().repeat(count);
    octets.extend([0; 4]);
    octets
}

/// A value larger than any buffer goes over several.
#[test]
fn large_values_go_over_several_buffers() {
    let pool = pool();
    let value = (7u32, Opaque::<1_000_000>::from(vec![0xa5; 300_001]), 8u32);
    let message = to_message(&value, &pool, 128).expect("a message");
    assert!(message.single_slice().is_none());
    assert_eq!(message.len(), 4 + 4 + 300_004 + 4);
    assert_eq!(from_message(&message), Ok(value));
}

type Everything = (
    i32,
    (u64, bool, f64),
    (Text<40>, Opaque),
    Array<(u32, Option<Box<Text>>), 9>,
    List<[u8; 5]>,
    [i64; 3],
);

fn everything() -> impl Strategy<Value = Everything> {
    let optional = proptest::option::of("[a-z]{0,5}").prop_map(|o| o.map(|t| Box::new(t.into())));
    let items = proptest::collection::vec((any::<u32>(), optional), 0..9);
    let octets = proptest::collection::vec(any::<u8>(), 0..40);
    (
        any::<i32>(),
        (any::<u64>(), any::<bool>(), -1e9..1e9),
        (octets.clone().prop_map(Text), octets.prop_map(Opaque)),
        items.prop_map(Array),
        proptest::collection::vec(any::<[u8; 5]>(), 0..5).prop_map(List),
        any::<[i64; 3]>(),
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn what_is_written_is_read(value in everything(), each in 1usize..40) {
        let octets = to_vec(&value).expect("octets");
        let mut decoder = Decoder::new(&octets).strict();
        prop_assert_eq!(&Everything::decode(&mut decoder).expect("a value"), &value);
        prop_assert_eq!(decoder.finish(), Ok(()));
        let pool = pool();
        let message = in_pieces(&pool, &octets, each);
        prop_assert_eq!(from_message::<Everything>(&message).expect("a value"), value);
    }

    /// Whatever the octets, strict reading gives what is written as the same octets, or an error.
    #[test]
    fn any_octets(octets in proptest::collection::vec(prop_oneof![Just(0), Just(1), any::<u8>()], 0..200)) {
        let mut decoder = Decoder::new(&octets).strict();
        if let Ok(value) = Everything::decode(&mut decoder) {
            let read = octets.len() - decoder.left();
            prop_assert_eq!(&to_vec(&value).expect("octets")[..], &octets[..read]);
        }
        let mut decoder = Decoder::new(&octets).strict();
        if let Ok(tree) = Tree::decode(&mut decoder) {
            let read = octets.len() - decoder.left();
            prop_assert_eq!(&to_vec(&tree).expect("octets")[..], &octets[..read]);
        }
    }
}

/// A structure with much in it, and another one of its kind.
#[derive(Clone, Debug, PartialEq)]
struct Heavy([u8; 248], [u8; 248], [u8; 248], [u8; 248], Option<Box<Heavy>>);

impl Xdr for Heavy {
    const OCTETS_MIN: usize = 4 * 248 + 4;

    fn encode<S: Sink>(&self, sink: &mut S) -> Result<(), EncodeError> {
        self.0.encode(sink)?;
        self.1.encode(sink)?;
        self.2.encode(sink)?;
        self.3.encode(sink)?;
        self.4.encode(sink)
    }

    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        Ok(Self(
            Xdr::decode(decoder)?,
            Xdr::decode(decoder)?,
            Xdr::decode(decoder)?,
            Xdr::decode(decoder)?,
            Xdr::decode(decoder)?,
        ))
    }
}

/// As deep as octets from outside can make it, on a stack as a shepherd has.
#[test]
fn large_values_lie_less_deep() {
    let mut octets = Vec::new();
    for _ in 0..200 {
        octets.extend([0; 4 * 248]);
        octets.extend([0, 0, 0, 1]);
    }
    let decode = move || {
        let deep = from_slice::<Heavy>(&octets).map(drop);
        assert_eq!(deep, Err(DecodeError::TooDeep));
        octets.truncate(3 * 996);
        octets.extend([0; 996]);
        let some = from_slice::<Heavy>(&octets).map(drop);
        assert_eq!(some, Ok(()), "three within each other");
    };
    let thread = std::thread::Builder::new().stack_size(64 << 10);
    thread.spawn(decode).expect("a thread").join().expect("it fits");
}

/// A value of few octets whose reading takes much of the stack, as any does without optimisation.
struct Wasteful(Option<Box<Wasteful>>);

impl Xdr for Wasteful {
    const OCTETS_MIN: usize = 4;

    fn encode<S: Sink>(&self, sink: &mut S) -> Result<(), EncodeError> {
        self.0.encode(sink)
    }

    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let room = std::hint::black_box([0u8; 5000]);
        let value = Xdr::decode(decoder).map(Self);
        std::hint::black_box(&room);
        value
    }
}

/// Whatever the code of a build takes of the stack, what is too deep for it is refused.
#[test]
fn what_the_stack_does_not_hold_is_refused() {
    let decode = || {
        for depth in [10, 31, 1000] {
            let deep = 1u32.to_be_bytes().repeat(depth);
            let deep = from_slice::<Wasteful>(&deep).map(drop);
            assert_eq!(deep, Err(DecodeError::TooDeep), "{depth}");
        }
        let octets = [[0, 0, 0, 1].repeat(2), vec![0; 4]].concat();
        assert!(from_slice::<Wasteful>(&octets).is_ok());
        // One that was refused is forgotten.
        let mut decoder = Decoder::new(&octets);
        assert!(Wasteful::decode(&mut decoder).is_ok());
    };
    let thread = std::thread::Builder::new().stack_size(48 << 10);
    thread.spawn(decode).expect("a thread").join().expect("it fits");
}
