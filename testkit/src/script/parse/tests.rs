use super::*;
use crate::script::spec::{Number, OptionSpec};
use crate::script::wire::TcpOption;

fn one(body: &str) -> Result<Case, ParseError> {
    let text = format!("case RFC 9293 3.5, RFC 6298 2: it works\n{body}");
    let mut cases = parse(&text, &mut Definitions::new())?;
    assert_eq!(cases.len(), 1);
    Ok(cases.remove(0))
}

#[test]
fn a_case_names_what_it_covers() {
    let case = one("param delay 40ms\nmtu 1400\nisn 5\n  0 listen  # on the port\n").unwrap();
    assert_eq!(case.title, "it works");
    let covers: Vec<_> = case.covers.iter().map(|(d, s)| (&d[..], &s[..])).collect();
    assert_eq!(covers, [("RFC 9293", "3.5"), ("RFC 6298", "2")]);
    assert_eq!((case.mtu, case.isn, case.steps.len()), (1400, 5, 1));
    assert_eq!(case.params, [("delay".to_owned(), "40ms".to_owned())]);
    assert_eq!(case.steps[0].line, 5);
}

#[test]
fn times_are_absolute_relative_or_ranges() {
    let case = one("10 listen\nlisten\n+200..300 > . 1 ack 1\n+0.5 quiet").unwrap();
    let ms = |when: &When| (when.relative, when.from.as_micros(), when.to.as_micros());
    let times: Vec<_> = case.steps.iter().map(|step| ms(&step.when)).collect();
    assert_eq!(times[0], (false, 10_000, 10_000));
    assert_eq!(times[1], (true, 0, 0));
    assert_eq!(times[2], (true, 200_000, 300_000));
    assert_eq!(times[3], (true, 500, 500));
}

#[test]
fn segments_have_all_their_parts() {
    let case =
        one("> SE. 0 ack 1 win >=10 <mss 1460, !sack_ok, ts * 7, sack 1:9 11:12, ...> ecn ce")
            .unwrap();
    let Act::Expect(spec) = &case.steps[0].act else {
        panic!("{case:?}");
    };
    assert_eq!(spec.flags, Some(0x52));
    assert_eq!((spec.seq, spec.octets), (Number::Is(0), Some(0)));
    assert_eq!((spec.ack, spec.window), (Number::Is(1), Bound::AtLeast(10)));
    assert_eq!(spec.ecn, Some(3));
    let options = spec.options.as_ref().unwrap();
    let expected = [
        OptionSpec::Is(TcpOption::Mss(1460)),
        OptionSpec::Absent(4),
        OptionSpec::Times(None, Some(7)),
        OptionSpec::Is(TcpOption::Sack(vec![(1, 9), (11, 12)])),
    ];
    assert!(options.others && options.list == expected);
    let case = one("< . win <=9 <ws 3>\n> *\n< . *").unwrap();
    let Act::Inject(spec) = &case.steps[0].act else {
        panic!("{case:?}");
    };
    assert_eq!((spec.seq, spec.octets), (Number::Next, Some(0)));
    assert!(spec.options.is_some() && spec.window == Bound::AtMost(9));
}

#[test]
fn definitions_are_used() {
    let text =
        "define begin\n0 listen\n+5 close\ncase A 1: x\nuse begin\ncase A 2: y\nuse begin\nquiet\n";
    let cases = parse(text, &mut Definitions::new()).unwrap();
    assert_eq!((cases[0].steps.len(), cases[1].steps.len()), (2, 3));
    assert_eq!(cases[1].steps[1].line, 7, "a used line is where it is used");
}

#[test]
fn mistakes_name_their_line() {
    for (body, what) in [
        ("listen\n0 dance", "line 3: `dance` is neither"),
        ("< Z 0", "`Z` is no flag"),
        ("< S x:1", "behind `x:1`"),
        ("< S 0 <mss>", "`mss` is no option"),
        ("< S 0 <mss 1", "without its `>`"),
        ("< S 0 ack", "behind `ack`"),
        ("event born", "no event"),
        ("set speed fast", "no setting"),
        ("use nothing", "nothing is defined"),
        ("write much", "expected a number"),
        ("drops x", "expected `drops"),
        ("error strange", "no error"),
        ("+1..x quiet", "expected a number"),
    ] {
        let error = one(body).unwrap_err().to_string();
        assert!(error.contains(what), "{body:?}: {error}");
    }
    let error = parse("0 listen", &mut Definitions::new()).unwrap_err();
    assert_eq!(error.to_string(), "line 1: expected `case` or `define` first");
}
