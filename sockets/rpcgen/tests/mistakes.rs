//! Mistakes in a file are reported at their places; and no file takes longer to compile than to
//! read.

use xk_rpcgen::compile;

/// A text with one mistake, and the start of what is said of it, behind the file's name.
const MISTAKES: &[(&str, &str)] = &[
    ("const A = 99999999999999999999;", "1:11: error: `99999999999999999999` is no number"),
    ("const A = 0x1ffffffffffffffff;", "1:11: error: `0x1ffffffffffffffff` is no number"),
    ("const A = 08;", "1:11: error: `08` is no number"),
    ("const A = -;", "1:11: error: `-` is no number"),
    (
        "const A = 4294967296;\ntypedef int big[A];",
        "2:17: error: 4294967296 is no number of elements",
    ),
    ("typedef opaque x[-1];", "1:18: error: -1 is no length"),
    ("enum e { X = 2147483647, Y };", "1:26: error: 2147483648 does not fit an enumeration"),
    ("enum e { X = -2147483649 };", "1:10: error: -2147483649 does not fit an enumeration"),
    ("struct s { s inner; };", "1:8: error: `s` contains itself, without an end"),
    ("struct s { s inner[3]; };", "1:8: error: `s` contains itself, without an end"),
    ("typedef a b; typedef b a;", "1:"),
    ("union u switch (hyper h) { case 1: int x; };", "1:17: error: `hyper` cannot decide a union"),
    ("union u switch (int h) { case 1: int x; case 1: int y; };", "1:46: error: a second case 1"),
    (
        "enum e { A = 1 }; union u switch (e h) { case 2: int x; };",
        "1:47: error: `2` is no value of `e`",
    ),
    ("struct s { int a; int a; };", "1:23: error: a second component `a`"),
    ("struct s { void; };", "1:12: error: `void` is no component of a structure"),
    ("struct s { int a };", "1:18: error: `}` does not fit here"),
    ("struct s { string *a; };", "1:12: error: no `string` is declared so"),
    ("struct int { int a; };", "1:8: error: the keyword `int` is no name"),
    ("struct s { integr a; };", "1:12: error: no type `integr` is defined"),
    ("typedef int a; const a = 1;", "1:22: error: `a` is defined twice"),
    ("/* no end", "1:1: error: this comment has no end"),
    ("#ifdef X\n", "1:1: error: this condition has no end"),
    (
        "program P { version V { int p(void) = 1; int q(void) = 1; } = 1; } = 1;",
        "1:46: error: a second procedure with the number 1",
    ),
    (
        "program P { version V { int p(void) = 1; } = 1; version W { int p(void) = 1; } = 1; } = 1;",
        "1:57: error: a second version with the number 1",
    ),
    (
        "program P { version V { int p(void) = 1; } = 1; } = 0x100000000;",
        "1:53: error: 4294967296 is no program number",
    ),
    (
        "typedef opaque none[0]; typedef none many[4294967295];",
        "1:38: error: no message holds a value of `many`",
    ),
];

#[test]
fn mistakes_have_a_place() {
    for (text, said) in MISTAKES {
        let found = match compile("a.x", text) {
            Err(found) => found.to_text(),
            Ok(_) => panic!("{text} is taken"),
        };
        assert!(found.starts_with(&format!("a.x:{said}")), "{text}: {found}");
        // The line, with a caret below.
        assert!(found.contains(" | ") && found.contains('^'), "{found}");
    }
}

/// Each structure has twice what the one before it has: more values than can be counted.
#[test]
fn a_few_lines_that_mean_too_much() {
    for leaf in ["int x;", "opaque x[0];", "opaque x[4294967295];"] {
        let mut text = format!("struct a0 {{ {leaf} }};\n");
        for n in 1..=100 {
            let before = n - 1;
            text += &format!("struct a{n} {{ a{before} p; a{before} q; }};\n");
        }
        let Err(found) = compile("a.x", &text) else {
            panic!("{leaf} is taken");
        };
        let found = found.to_text();
        assert!(found.contains("no message holds a value of `a"), "{found}");
    }
    let shared = "struct a { int x<>; }; struct b { a p[1000]; a q; }; struct c { b p; b q; };";
    let model = compile("a.x", shared).expect("no mistakes").model;
    let octets = model.types.iter().map(|def| {
        let at = model.types.iter().position(|d| d.name == def.name);
        model.octets_min(&xk_rpcgen::Type::Named(at.expect("it is there")))
    });
    assert_eq!(octets.collect::<Vec<_>>(), [4, 4004, 8008]);
}

/// Real files have such lines, and what they lack is told once, not at each use.
#[test]
fn lines_that_are_left_out_are_told_once() {
    let head = "#include <rpc/types.h>\n%#include \"other.h\"\n#include \"sizes.x\"\n";
    let good = compile("g.x", &format!("{head}typedef int number;")).ok().unwrap();
    let warnings = good.warnings.to_text();
    assert_eq!(warnings.matches("warning").count(), 1, "{warnings}");
    assert!(warnings.starts_with("g.x:1:1: warning: this line and 2 like it"), "{warnings}");
    let body = "struct s { other_t a; other_t b<SIZE>; more_t c; };\ntypedef other_t list<>;";
    let bad = compile("b.x", &format!("{head}{body}")).err().unwrap().to_text();
    assert_eq!(bad.matches("error").count(), 1, "{bad}");
    assert!(!bad.contains("warning"), "{bad}");
    assert!(bad.starts_with("b.x:1:1: error: "), "{bad}");
    assert!(bad.contains("nothing else defines `other_t`, `SIZE`, `more_t`"), "{bad}");
    assert!(bad.contains("help: put their definitions into this file"), "{bad}");
}
