//! Graphs whose realms, addresses and numbers fit, and that could not run all the same: refused
//! with the place, the cause and the remedy.

/// Text of the check about a host with these lines; empty if it may run.
fn said(lines: &[&str]) -> String {
    let source = format!("host one {{\n{}\n}}\n", lines.join("\n"));
    crate::said::said(&source, &xk_catalog::standard())
}

/// Checks that one mistake is reported, at this line and column, in these words.
fn assert_refused(lines: &[&str], place: &str, cause: &str, remedy: &str) {
    let text = said(lines);
    let expected = format!("g:{place}: error: {cause}");
    assert!(text.contains(&expected), "{text}");
    assert!(text.contains(&format!("help: {remedy}")), "{text}");
    assert_eq!(text.matches("error").count(), 1, "{text}");
}

const LINK: [&str; 3] = ["tap device=\"tap0\"", "eth tap", "arp eth"];
const NET: &str = "ip arp { address \"10.0.0.1/24\"; }";

fn on_link<'a>(lines: &[&'a str]) -> Vec<&'a str> {
    [&LINK[..], lines].concat()
}

#[test]
fn tcp_on_ports_needs_one() {
    let cause = "`tcp` needs `local` on `host-udp`: peers find it there at a port of that layer, and nothing says which";
    let remedy = "name one: `local=\"port9000\"`";
    assert_refused(&["host-udp", "tcp host-udp", "echo tcp port=7"], "3:5", cause, remedy);
    let udp = on_link(&[NET, "udp ip", "tcp udp", "echo tcp port=7"]);
    assert!(said(&udp).contains("`tcp` needs `local` on `udp`"));
    let spied = ["host-udp", "tracer host-udp", "tcp tracer", "echo tcp port=7"];
    assert!(said(&spied).contains("`tcp` needs `local` on `tracer`"));
    assert_eq!(said(&["host-udp", "tcp host-udp local=\"port9000\"", "echo tcp port=7"]), "");
    assert_eq!(said(&on_link(&[NET, "tcp ip", "echo tcp port=7"])), "");
    assert_eq!(said(&["loopback", "tcp loopback", "echo tcp port=7"]), "");
}

#[test]
fn mrpc_right_on_a_link_needs_its_address() {
    let procedures = "procedures mrpc";
    let cause = "`mrpc` needs `address` on `arp`: nobody there says which host this one is, since no `ip` stands on it";
    let remedy = "say it: `address=\"10.0.0.1\"`";
    assert_refused(&on_link(&["mrpc arp", procedures]), "5:6", cause, remedy);
    assert!(said(&on_link(&["vipadv arp", "mrpc vipadv", procedures])).contains("needs `address`"));
    for fine in [
        &["mrpc arp address=\"10.0.0.1\"", procedures][..],
        &[NET, "mrpc arp", procedures],
        &[NET, "mrpc ip", procedures],
        &[NET, "vip arp ip", "mrpc vip", procedures],
        &[NET, "vipadv arp", "mrpc vipadv", procedures],
    ] {
        assert_eq!(said(&on_link(fine)), "", "{fine:?}");
    }
    assert_eq!(said(&["loopback", "mrpc loopback", procedures]), "");
}

#[test]
fn what_does_not_fit_on_arp_is_not_sent_to_a_wire_that_is_taken() {
    let cause = "`udp` cannot stand on `arp`: what comes up from it names no session that leads back to the sender";
    let udp = on_link(&[NET, "udp arp { number eth=0x3911; }", "echo udp port=7"]);
    assert_refused(&udp, "6:5", cause, "let it stand on `ip`");
}

#[test]
fn vipsize_goes_from_small_to_large() {
    let stack = |last| {
        let lines = [NET, "vipaddr arp ip", "fragment vipaddr", last, "channel vipsize"];
        [&LINK[..], &lines, &["select channel", "procedures select"]].concat()
    };
    let cause = "`vipsize` needs the layer for the smallest messages first: a message that `fragment` carries whole can go by `vipaddr` \
                 directly";
    assert_refused(
        &stack("vipsize fragment vipaddr"),
        "8:9",
        cause,
        "write `vipsize vipaddr fragment`",
    );
    assert_eq!(said(&stack("vipsize vipaddr fragment")), "");
    assert_eq!(said(&stack("vipsize fragment vipaddr { cutoff 100; }")), "");
}
