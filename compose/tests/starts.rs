//! What passes the check starts: the hosts are started in its rehearsal.

use xk_catalog::Catalog;
use xk_compose::check;

/// One host, with these layers on top of IP.
fn host(above: &str) -> String {
    format!(
        "host a {{\nsim link=lan\neth sim\narp eth\n\
         ip arp {{ address \"10.0.0.1/24\"; }}\n{above}\n}}\nlink lan\n"
    )
}

#[test]
fn what_cannot_start_is_refused() {
    let catalog = Catalog::standard();
    for (above, why) in [
        ("icmp ip\necho icmp", "does not offer"),
        ("udp ip\n\"null\" udp", "a wildcard stands"),
        ("udp ip\necho udp port=7\necho udp name=e2 port=7", "in use"),
        (
            "mrpc ip\nprocedures mrpc\nprocedures mrpc name=p2",
            "in use",
        ),
        (
            "channel ip\nselect channel\nprocedures select\nprocedures select name=p2",
            "in use",
        ),
        (
            "udp ip\nreqrep udp\nsunselect reqrep\nsunprog sunselect\nsunprog sunselect name=s2",
            "the same type number",
        ),
        ("vip arp ip\nvipsize vip ip\necho vipsize", "in use"),
        (
            "vipaddr arp ip\nfragment ip\nvipsize vipaddr fragment ip\necho vipsize",
            "the smallest messages first",
        ),
    ] {
        let source = host(above);
        let Err(mistakes) = check(&source, "g", &catalog) else {
            panic!("accepted: {above}");
        };
        let text = mistakes.to_string();
        assert!(text.contains(why), "{above}: {text}");
    }
}
