//! `xk call` and `xk rpcgen` as a user has them.

use std::path::Path;
use std::process::{Command, Output};

/// A host that calls its own procedures.
const GRAPH: &str = r#"host alone {
    loopback; ip loopback { address "10.0.0.1/24"; }; icmp ip; udp ip
    reqrep udp; sunselect reqrep; sunprog sunselect
    procedures sunprog at="version1@program536870913@port2049"
}"#;
const TO: [&str; 2] = ["--to", "port2049@10.0.0.1"];

fn xk(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_xk"))
        .args(arguments)
        .output()
        .expect("xk can be started")
}

fn file(name: &str) -> String {
    let graphs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../graphs");
    graphs.join(name).display().to_string()
}

/// The nodes of the host, for `--over`.
fn nodes() -> &'static str {
    let body = GRAPH.split_once('{').map_or("", |(_, body)| body);
    body.trim_end().trim_end_matches('}')
}

/// What a call prints, what it says besides, and how it ends.
fn call(words: &[&str], options: &[&str]) -> (String, String, Option<i32>) {
    let mut all = vec!["call", "--over", nodes()];
    all.extend(words);
    all.extend(TO);
    all.extend(options);
    let output = xk(&all);
    let text = |octets: &[u8]| String::from_utf8_lossy(octets).into_owned();
    let (out, told) = (text(&output.stdout), text(&output.stderr));
    (out, told, output.status.code())
}

fn by_file(words: &[&str], options: &[&str]) -> (String, String, Option<i32>) {
    let x = file("procedures.x");
    let options: Vec<&str> = ["--x", &x].iter().chain(options).copied().collect();
    call(words, &options)
}

#[test]
fn calls_by_name_with_json() {
    let good = |words: &[&str]| {
        let (out, told, code) = by_file(words, &[]);
        assert_eq!(code, Some(0), "{words:?}: {told}");
        out
    };
    assert_eq!(good(&["null"]), "null\n");
    assert_eq!(good(&["PROC_ECHO", "\"00ffa5\""]), "\"00ffa5\"\n");
    assert_eq!(good(&["echo", r#"{"text": "hi"}"#]), "\"6869\"\n");
    assert_eq!(good(&["PROCEDURES", "source", "3"]), "\"000102\"\n");
    assert_eq!(good(&["procedures", "null"]), "null\n");
}

#[test]
fn calls_by_number_with_digits() {
    let words = ["536870913", "1", "0000000161000000"];
    let (out, told, code) = call(&words, &["--raw", "--repeat", "3"]);
    assert_eq!(
        (out.as_str(), code),
        ("0000000161000000\n", Some(0)),
        "{told}"
    );
    assert!(told.starts_with("3 calls: min "), "{told}");
}

#[test]
fn mistakes_are_told_and_numbered() {
    let (_, told, code) = by_file(&["ecko", "\"00\""], &[]);
    assert_eq!(code, Some(2), "{told}");
    let (_, told, code) = by_file(&["echo", "\"0\""], &[]);
    assert_eq!(code, Some(2), "{told}");
    assert!(told.contains("hexadecimal digits"), "{told}");
    assert!(told.contains("octets PROC_ECHO(octets)"), "{told}");
    let (_, told, code) = by_file(&["echo", "hello"], &[]);
    assert_eq!(code, Some(2), "{told}");
    assert!(told.contains("not JSON"), "{told}");
    let (_, told, code) = by_file(&["relay", "\"00\""], &[]);
    assert_eq!(code, Some(3), "{told}");
    assert!(
        told.contains("sunprog: the peer refused the call"),
        "{told}"
    );
    let (_, told, code) = by_file(&["sleep", "5000"], &["--deadline", "100ms"]);
    assert_eq!(code, Some(4), "{told}");
    assert!(told.contains("reqrep: timed out"), "{told}");
}

#[test]
fn rust_from_a_file() {
    let x = file("procedures.x");
    let output = xk(&["rpcgen", &x]);
    let rust = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success());
    assert!(rust.contains("pub trait Procedures1 {"), "{rust}");
    assert!(
        rust.contains("pub const PROCEDURES: u32 = 536870913;"),
        "{rust}"
    );
    let output = xk(&["rpcgen", "--check", &x]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        said.contains("ok, 1 types, 0 constants, 1 programs in 1 versions"),
        "{said}"
    );
    let output = xk(&["rpcgen", &file("loopback.kdl")]);
    assert_eq!(output.status.code(), Some(1));
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        told.contains("loopback.kdl:") && told.contains("error: "),
        "{told}"
    );
}
