//! The Rust that the compiler makes of its own test file compiles, agrees with its run-time model,
//! and carries calls.

// Not `kinds.rs`: it is generated, so it may be long.
// It stands as the compiler prints it, which rustfmt would break elsewhere.
#[path = "kinds.txt"]
#[rustfmt::skip]
mod kinds;

// Compiled, which is all that is asked of it.
#[path = "names.txt"]
#[rustfmt::skip]
mod names;

use kinds::*;
use std::path::Path;
use xk_rpc::xdr::{self, Xdr};
use xk_rpc::{Call, CallCause, Refusal, Stack};
use xk_rpcgen::{Options, compile, to_rust};

const FILE: &str = include_str!("../../../../../sockets/rpcgen/tests/x/kinds.x");
const NAMES: &str = include_str!("../../../../../sockets/rpcgen/tests/x/names.x");

/// `XK_BLESS=1` writes them again.
#[test]
fn the_sources_are_what_the_compiler_makes() {
    for (name, file) in [("kinds", FILE), ("names", NAMES)] {
        let options = Options { file: format!("{name}.x"), types_only: false, included: false };
        let compiled = compile(&options.file, file).expect("no mistakes");
        let made = to_rust(&compiled.model, &options);
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/all/generated");
        let path = folder.join(format!("{name}.txt"));
        if std::env::var_os("XK_BLESS").is_some() {
            std::fs::write(&path, &made).expect("written");
        }
        let kept = std::fs::read_to_string(&path).expect("read");
        assert!(kept == made, "{name}: run it with XK_BLESS=1");
    }
}

fn numbers() -> Numbers {
    Numbers {
        a: -1,
        b: 2,
        c: 3,
        d: i64::MIN,
        e: u64::MAX,
        f: 1.5,
        g: -0.1,
        h: xdr::Quadruple([7; 16]),
        i: true,
        j: -4,
        k: 5,
        l: 1 << 53,
    }
}

fn everything() -> Everything {
    let tree = Tree {
        label: "root".into(),
        children: vec![Tree { label: "leaf".into(), children: xdr::Array::default(), twin: None }]
            .into(),
        twin: Some(Box::new(Tree {
            label: "twin".into(),
            children: xdr::Array::default(),
            twin: None,
        })),
    };
    let second = Link { value: 2, next: None };
    let item = |value, label: &str| Item { value, label: label.into() };
    Everything {
        h: *b"abcdefgh",
        p: Box::new([0xa5; 4096]),
        n: Name::from(&[0xff, 0xfe]),
        w: vec![1, 2, 3].into(),
        g: [-1, 1],
        colors: vec![Color::Red, Color::Dark].into(),
        nums: numbers(),
        s: Shape::Blue(numbers()),
        c: Choice::Default(99, true),
        f: Flag::True(-9),
        z: Size::Case4294967295,
        m: Most::Default(Color::Green),
        items: vec![item(1, "one"), item(2, "two")].into(),
        first: Link { value: 1, next: Some(Box::new(second)) },
        root: tree,
        inside: Nested {
            way: NestedWay::Down,
            point: NestedPoint { x: 1, y: 2 },
            maybe: NestedMaybe::Case1(NestedMaybeInner { deep: 3 }),
            self_: 4,
            r#type: 5,
            crate_: "6".into(),
        },
        perhaps: Some(Box::new(8)),
        twice: Some(Box::new(None)),
        several: [numbers(), numbers()],
        pair: [Color::Blue, Color::Red],
        odd: [1, 2, 3],
        wide: Box::new([0.5; 50]),
        lines: "ab\"\n".into(),
    }
}

/// From Rust to octets, to JSON, and all the way back.
#[test]
fn rust_octets_and_json_say_the_same() {
    let model = compile("kinds.x", FILE).expect("no mistakes").model;
    let echo = model.procedure("echo", None).expect("it is there").procedure;
    let value = everything();
    let octets = xdr::to_vec(&value).expect("octets");
    let json = model.decode_result(echo, &octets).expect("json");
    let parsed = serde_json::from_str(&json).expect("it is JSON");
    let again = model.encode_arguments(echo, Some(&parsed));
    assert_eq!(again.as_ref(), Ok(&octets));
    let mut decoder = xdr::Decoder::new(&octets).strict();
    assert_eq!(Everything::decode(&mut decoder), Ok(value));
    assert_eq!(decoder.finish(), Ok(()));
    for part in [
        r#""n": {"hex": "fffe"}"#,
        r#""e": "18446744073709551615""#,
        r#""colors": ["RED", "DARK"]"#,
        r#""s": {"case": "BLUE", "all": {"a": -1"#,
        r#""c": {"case": 99, "other": true}"#,
        r#""z": {"case": 4294967295}"#,
        r#""items": [{"value": 1, "label": "one"}, {"value": 2, "label": "two"}]"#,
        r#""twice": [null]"#,
    ] {
        assert!(json.contains(part), "{part} is not in {json}");
    }
    for len in 0..octets.len() {
        assert!(xdr::from_slice::<Everything>(&octets[..len]).is_err());
        assert!(model.decode_result(echo, &octets[..len]).is_err());
    }
}

#[test]
fn a_default_arm_does_not_stand_for_another() {
    let value = Most::Default(Color::Red);
    let error = xdr::EncodeError::BadDiscriminant(0);
    assert_eq!(xdr::to_vec(&value), Err(error));
    let unknown = 77i32.to_be_bytes();
    let error = xdr::DecodeError::BadEnum(77);
    assert_eq!(xdr::from_slice::<Color>(&unknown), Err(error));
    let error = xdr::DecodeError::BadDiscriminant(2);
    assert_eq!(xdr::from_slice::<Size>(&2u32.to_be_bytes()), Err(error));
}

struct Kinds;

impl KindsVersion for Kinds {
    fn kinds_echo(&self, _: &Call<'_>, argument: Everything) -> Result<Everything, Refusal> {
        Ok(argument)
    }

    fn kinds_put(&self, _: &Call<'_>, name: Name, count: i32, _: Color) -> Result<(), Refusal> {
        match name == "good" && count == 3 {
            true => Ok(()),
            false => Err(Refusal::BadArguments),
        }
    }

    fn kinds_get(&self, _: &Call<'_>, argument: xdr::Text) -> Result<xdr::Text, Refusal> {
        Ok(argument.to_str_lossy().to_uppercase().into())
    }

    fn kinds_list(&self, _: &Call<'_>, count: u32) -> Result<xdr::List<Item>, Refusal> {
        let item = |value| Item { value, label: "i".into() };
        Ok((0..count.cast_signed()).map(item).collect())
    }

    #[allow(clippy::too_many_arguments, reason = "they are the file's")]
    fn kinds_many(
        &self,
        _: &Call<'_>,
        a: i32,
        b: i32,
        c: i32,
        d: i32,
        e: i32,
        f: i32,
        g: i32,
        h: i32,
        i: i32,
        j: i32,
    ) -> Result<i32, Refusal> {
        Ok([a, b, c, d, e, f, g, h, i, j].iter().fold(0, |all, digit| all * 10 + digit))
    }

    fn kinds_with_a_very_long_name_that_goes_over_the_line(
        &self,
        _: &Call<'_>,
        first: Everything,
        _: Everything,
        _: Everything,
    ) -> Result<Numbers, Refusal> {
        Ok(first.nums)
    }

    fn r#move(&self, _: &Call<'_>, r#type: i32) -> Result<i32, Refusal> {
        Ok(-r#type)
    }
}

#[test]
fn calls_by_generated_code() {
    let stack = Stack::from_text(
        r#"host alone {
            loopback; ip loopback { address "10.0.0.1/24"; }; icmp ip; udp ip
            reqrep udp; sunselect reqrep; sunprog sunselect
        }"#,
        xk_catalog::PROTOCOLS,
    )
    .expect("a stack");
    let server = KindsVersionServer(Kinds);
    let server = stack.serve_at("port2050", server).expect("a server");
    let client = stack.client("port2050@10.0.0.1").expect("a client");
    let kinds = KindsVersionClient::new(&client);
    kinds.kinds_null().expect("it is there");
    assert_eq!(kinds.kinds_echo(everything()), Ok(everything()));
    assert_eq!(kinds.kinds_put("good".into(), 3, Color::Red), Ok(()));
    let error = kinds.kinds_put("bad".into(), 3, Color::Red).unwrap_err();
    assert_eq!(error.to_string(), "sunprog: the peer refused the call: garbage arguments");
    assert_eq!(kinds.kinds_get("hey".into()), Ok("HEY".into()));
    assert_eq!(kinds.kinds_list(300).expect("a list").len(), 300);
    assert_eq!(kinds.kinds_many(1, 2, 3, 4, 5, 6, 7, 8, 9, 0), Ok(1_234_567_890));
    assert_eq!(kinds.r#move(5), Ok(-5));

    let other = KindsVersion2Client::new(&client);
    let cause = other.kinds_count().unwrap_err().cause();
    let Some(CallCause::Rejected(rejection)) = cause else {
        panic!("{cause:?}");
    };
    assert_eq!(rejection.versions, Some((1, 1)));
    drop(server);
}
