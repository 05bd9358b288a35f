//! Many mistakes in one file, all shown at once, in the plain form that must not change.

use std::time::Duration;
use xk_lang::{DEPTH_MAX, Diagnostics, Severity, Value, parse};

const HOUR: Duration = Duration::from_secs(3600);

fn text_of(source: &str) -> String {
    parse("net.kdl", source).1.to_text()
}

/// Compares with `tests/NAME.txt`; with `XK_BLESS=1` in the environment it writes that file
/// instead.
#[track_caller]
fn same(found: &str, name: &str) {
    let path = format!("{}/tests/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("XK_BLESS").is_some() {
        std::fs::write(&path, found).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap();
    assert!(found == expected, "{path} differs; found:\n{found}");
}

#[track_caller]
fn expect(source: &str, name: &str) {
    same(&text_of(source), name);
}

#[test]
fn names_and_shapes() {
    expect(
        r#"titel "x"
hots alice {
}
host {
    sim name=wire
}
host bob bill {
    sim name=wire link=lan1 link=lan2
    eth wier 5
    arp arp
    ip eht; ip eth
    udp eth name=eth
    icmp sim
}
host bob count=0
link lan1
link lan1
"#,
        "names_and_shapes",
    );
}

#[test]
fn domains() {
    expect(
        r#"host one {
    domain { sim name=a; }
    domain net thraed { sim name=b; }
    domain net process open { sim name=c; domain inner { sim name=d; } }
    domain 5 core=1 core=2 { sim name=c; }
    domain "" { }
    eth e
}
"#,
        "domains",
    );
}

#[test]
fn subsystems() {
    expect(
        r#"host one {
    subsystem { sim name=a; }
    subsystem bsd release="4.3" release="4.4" { ether a; domain d { sim name=b; } }
    subsystem bsd mbufs=7 { ddp ehter; ether a name=ether; }
    subsystem streams more { subsystem bsd { x a; } }
    subsystem empty
    subsystem 5 { sim name=c; }
    domain d { subsystem inner { sim name=f; }; udp f; }
}
"#,
        "subsystems",
    );
}

#[test]
fn words_without_quotes() {
    expect(
        "title \"never closed\nhost alice {\n\teth wire address=02:00:01 up=true\n    ip eth { address 10.0.1.2/24; ttl 0x }\n    sim name=wire loss=5% x=(u8)7 y=\"\\q\" z=#yes\n}\nlink lan delay=1ms }\n/* open",
        "words_without_quotes",
    );
}

#[test]
fn a_broken_host_hides_no_mistake_in_the_next() {
    expect(
        "host a {\n    sim name=\n    = eth\n    { x }\n}\nhost b {\n    eth wire\n}\nlink l {\n    partition from=\"1s\" {\n",
        "broken_host",
    );
}

#[test]
fn templates() {
    expect(
        r#"host a count=3 {
    sim name=wire mac="{m}" x="{n" y="{n%0}"
}
host a1
host "b{n%2}" count=3 { sim name="{n}"; }
host c { sim name="{n}"; }
"#,
        "templates",
    );
}

#[test]
fn values() {
    let source = r#"host a {
    sim a=1 b="x" c=#true d=70000 e="5 m" f="1Mb" g="120%" h="9 KB" i="10.0.0.256" j=swich k=1.5
}
"#;
    let (graph, mut found) = parse("net.kdl", source);
    assert!(found.is_empty(), "{found}");
    let node = &graph.hosts[0].nodes[0];
    let value = |name: &str| &node.param(name).unwrap().value;
    assert_eq!(value("a").text(&mut found), None);
    assert_eq!(value("b").boolean(&mut found), None);
    assert_eq!(value("c").integer(&mut found, 0..=9_u8), None);
    assert_eq!(value("d").integer(&mut found, 1..=65535_u16), None);
    assert_eq!(value("e").duration(&mut found, Duration::ZERO..=HOUR), None);
    assert_eq!(value("f").rate(&mut found), None);
    assert_eq!(value("g").fraction(&mut found), None);
    assert_eq!(value("h").octets(&mut found), None);
    assert_eq!(
        value("i").parse::<std::net::Ipv4Addr>(&mut found, "an IPv4 address like \"10.0.1.2\""),
        None
    );
    assert_eq!(value("j").choice(&mut found, &[("switch", 1), ("hub", 2)]), None);
    assert_eq!(value("k").fraction(&mut found), None);
    let text = found.to_text();
    same(&text, "values");
    assert!(value("a").integer(&mut found, 0..=9_u8).is_some());
}

#[test]
fn limits() {
    let deep = format!("host a {{ b {}", "{ c ".repeat(DEPTH_MAX));
    assert!(text_of(&deep).contains("blocks nest too deep here"), "{}", text_of(&deep));
    let large = " ".repeat((1 << 20) + 1);
    assert!(text_of(&large).contains("at most 1048576 octets"));
    assert!(text_of("host a count=100001").contains("from 1 to 100000"));
    let many = "host a count=100000 { ".to_string() + &"x;".repeat(11) + "}";
    assert!(text_of(&many).contains("at most 1000000"), "{}", text_of(&many));
}

#[test]
fn long_lines_are_cut_and_nothing_steers_the_terminal() {
    let source =
        format!("/* {} */ hots \"\\u{{1b}}[31m\" /* {} */\n", "é".repeat(300), "x".repeat(300));
    let text = text_of(&source);
    assert!(text.lines().all(|line| line.chars().count() < 140), "{text}");
    assert!(text.contains("`hots`") && text.contains("^^^^"), "{text}");
    let text = text_of("host \"a\u{1b}[31m\"\nhost \"\\u{1b}[1m\" { eth \"\\u{1b}[2m\" }");
    assert!(!text.contains('\u{1b}'), "{text}");
    let (_, found) = parse("net\u{1b}.kdl", "host \"\u{1b}\"\nhots");
    assert!(!found.to_fancy(80, false).contains('\u{1b}'));
}

#[test]
fn the_drawing_for_terminals_holds_all_of_them() {
    let (_, found) = parse("net.kdl", "hots a\nhost b { eth wire }\n");
    assert_eq!(found.len(), 2);
    let drawn = found.to_fancy(100, false);
    assert!(drawn.contains("did you mean `host`?"), "{drawn}");
    assert!(drawn.contains("net.kdl:2:14") && drawn.contains("no node called"), "{drawn}");
    assert!(found.to_fancy(100, true).contains('\u{1b}'));
}

#[test]
fn warnings_are_no_errors() {
    let text = "host c { sim name=\"{n}\"; }";
    let (_, found) = parse("net.kdl", text);
    assert!(!found.has_errors());
    assert_eq!(found.sorted()[0].severity, Severity::Warning);
    let mut all = Diagnostics::new("net.kdl", text);
    all.extend(found);
    assert_eq!(all.len(), 1);
}

#[test]
fn an_unreadable_value_is_reported_once() {
    let (graph, mut found) = parse("net.kdl", "link l delay=1ms");
    let delay = &graph.links[0].param("delay").unwrap().value;
    assert_eq!((found.len(), &delay.value), (1, &Value::Bad));
    assert_eq!(delay.duration(&mut found, Duration::ZERO..=HOUR), None);
    assert_eq!(found.len(), 1);
}

#[test]
fn nodes_that_touch() {
    expect(
        "host a { eth } host b {\n    { x }\n    5 eth\n    ip 5=7 a=1=2 b==3\n    udp {} tcp\n}\nhost c { arp wire }\n",
        "nodes_that_touch",
    );
}
