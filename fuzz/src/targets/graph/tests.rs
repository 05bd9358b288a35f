//! No input panics, whatever it is.

use super::read;
use proptest::prelude::*;

const NET: &str = r##"title "Two LANs"
host alice {
    sim name=wire link=lan1 /* c */
    eth wire address="02:00:00:00:00:01"
    ip eth { address "10.0.1.2/24"; route "default" via="10.0.1.1"; /- x { y } }
    udp ip { number ip=17 }
    echo udp port=7 on=#true raw=#"a"# x=-1.5e1 \
        more=1
}
host "s{n}" count=12 { sim name="w{n%3:02x}" link=lan1; /- eth }
/- link gone { a }
link lan1 kind=switch delay="1ms" { partition from="10s" { hosts alice } }
"##;

/// Pieces that a grammar stumbles over.
fn piece() -> impl Strategy<Value = String> {
    let pieces = [
        "{", "}", "/-", "/*", "*/", "//", "\"", "\"\"\"", "#\"", "\"#", "\\", "\n", "\r", ";", "=",
        " ", "(", ")", "#true", "host a", "link", "x", "5", "-", ".", "1e", "\u{feff}", "\u{7f}",
        "é", "\u{2028}", "{n}", "count=2", "name=", "\\u{",
    ];
    prop_oneof![
        8 => proptest::sample::select(pieces.to_vec()).prop_map(str::to_string),
        1 => any::<char>().prop_map(|c| c.to_string()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn octets(data in proptest::collection::vec(any::<u8>(), 0..300)) {
        read(&data);
    }

    #[test]
    fn pieces(pieces in proptest::collection::vec(piece(), 0..60)) {
        read(pieces.concat().as_bytes());
    }

    #[test]
    fn mutations(edits in proptest::collection::vec((0..NET.len(), 0..12_usize, piece()), 1..6)) {
        let mut text: Vec<u8> = NET.into();
        for (at, removed, piece) in edits {
            let at = at.min(text.len());
            let end = (at + removed).min(text.len());
            text.splice(at..end, piece.bytes());
        }
        read(&text);
    }
}

/// The grammar's parser recurses and starts over on many of these when it gets them as they are:
/// each must end, soon.
#[test]
fn repetitions() {
    let units = [
        "{",
        "}",
        "a{",
        "/-{",
        "/- a {",
        "/-a ",
        "/*",
        "*",
        "/**/",
        "\"",
        "#",
        "(",
        "\\\n",
        ";",
        "= ",
        "a=",
        "a ",
        "a\n",
        "\n",
        "host a {}",
        "host a { b { c; }; }\n",
        "}{",
        "{}",
        "a{}",
        "a {};",
        "\"}",
        "x\"",
        "\u{85}",
        "1",
        "host a\n",
        "title x\n",
        "/*}*/",
        "//\n",
        "/-\n",
        "/-/-",
        "\"\\q}\" ",
        "a \"{",
        "#\"",
        "{n}",
        "link \"{n}\" x=1\n",
        "a/",
        "host a count=9\n",
        "1\n",
        "1 ",
        "#true\n",
        "a {} /-b ",
        "} a",
        "5\"x\" ",
        "a {} /-{} ",
        "a /-{} {} ",
        "/- {}",
        "5=1 ",
        "a {}\n/-b\n",
        "x;}",
    ];
    for unit in units {
        let times = 8_000 / unit.len();
        for text in [
            unit.repeat(times),
            format!("host a {{ b {{\n{} }}\n}}", unit.repeat(times)),
            format!("/* {}", unit.repeat(times)),
        ] {
            read(text.as_bytes());
        }
    }
}
