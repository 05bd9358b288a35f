//! Graphs that pass the check start: the hosts are started in its rehearsal.

use crate::sim::{checked, report, started};
use std::io::ErrorKind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use xk_compose::{HostSetup, check};
use xk_core::graph::{BuildError, Look, Params};
use xk_core::{Entry, Time};
use xk_kit::wire::entry::environment;

/// One host, with these layers on top of IP.
fn host(above: &str) -> String {
    format!(
        "host a {{\nsim link=lan\neth sim\narp eth\n\
         ip arp {{ address \"10.0.0.1/24\"; }}\n{above}\n}}\nlink lan\n"
    )
}

const PADDED: &str = "octets behind them that were not sent";
const NO_REPLY: &str = "names no session that leads back to the sender";
const WAITS: &str = "waits for the peer, who may be waiting for us";

/// Stacks that once passed the check and did not work, with what is said of them.
const REFUSED: &[(&str, &str)] = &[
    ("icmp ip\necho icmp", "takes no enables"),
    ("udp ip\n\"null\" udp", "takes ports"),
    ("udp ip\necho udp port=7\necho udp name=e2 port=7", "in use"),
    ("mrpc ip\nprocedures mrpc\nprocedures mrpc name=p2", "in use"),
    ("channel ip\nselect channel\nprocedures select\nprocedures select name=p2", "in use"),
    // Behind filters as well, which have one server of what they look on.
    (
        "channel ip\ndeadline channel\nselect deadline\nfault deadline\ntracer fault\n\
         procedures tracer",
        "in use",
    ),
    (
        "udp ip\nreqrep udp\nsunselect reqrep\nsunprog sunselect\nsunprog sunselect name=s2",
        "the same type number",
    ),
    ("vip arp ip\nvipsize vip ip\ndiscard vipsize", "in use"),
    (
        "vipaddr arp ip\nfragment ip\nvipsize vipaddr fragment ip\ndiscard vipsize",
        "the smallest messages first",
    ),
    ("probe eth to=\"02:00:00:00:00:02\"", PADDED),
    ("\"null\" eth name=n\nprobe n to=\"02:00:00:00:00:02\"", PADDED),
    ("vip arp ip\nprobe vip to=\"10.0.0.2\"", PADDED),
    ("vip arp ip\n\"null\" vip name=n\nprobe n to=\"10.0.0.2\"", PADDED),
    ("reqrep eth", "no type number"),
    ("tcp arp { number eth=0x3906; }", PADDED),
    ("vip arp ip\n\"null\" vip name=n\ntcp n { number n=6; }", PADDED),
    ("channel ip\nrdgram channel\ntcp rdgram { number rdgram=6; }", WAITS),
    ("channel ip\nrdgram channel\nchannel rdgram name=c2 { number rdgram=102; }", WAITS),
    ("udp arp { number eth=0x3911; }", NO_REPLY),
    ("reqrep arp { number eth=0x3967; }", NO_REPLY),
    ("fragment arp { number eth=0x3965; }", NO_REPLY),
    ("\"null\" arp name=n\necho n", PADDED),
    ("vip arp ip\nvip arp vip name=v2", "it leads to hosts on its link alone"),
    (
        "ip ip name=inner { address \"10.1.0.1/24\"; number ip=4; }",
        "leads to hosts by its own routes",
    ),
    // Two selectors, of which the upper takes the lower's words for credentials.
    (
        "channel ip\nsunselect channel\nsunselect channel name=s2 { number channel=105; }\n\
         authshort sunselect s2\nsunprog authshort",
        "no credentials go with a call on it",
    ),
];

#[test]
fn what_cannot_work_is_refused() {
    let catalog = xk_catalog::standard();
    let mut wrong = String::new();
    for (above, why) in REFUSED {
        let said = crate::said::said(&host(above), &catalog);
        if !said.contains(why) {
            wrong += &format!("{above}\nsays {said}\nand not {why}\n\n");
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// Stacks that were refused once and work.
#[test]
fn what_works_is_accepted() {
    for above in [
        "channel ip\nsunselect channel\nrdgram channel",
        "vip arp ip\nreqrep vip\nprocedures reqrep",
        "reqrep eth { number eth=0x3967; }\nprocedures reqrep",
        "mrpc ip\nselect mrpc\nprocedures select",
        "channel ip\nselect channel\nselect select name=s2\nprocedures s2",
        "tcp ip\nfault tcp\nrm fault\ntracer rm\nreqrep tracer\nsunselect reqrep\nsunprog sunselect",
    ] {
        started(&checked(&host(above)), 1);
    }
}

/// Two hosts with so many layers one on another, of the kind that takes most of a stack. `fragment`
/// waits, so that messages pass on stacks of shepherds.
fn tower(layers: usize) -> String {
    let host = |name: &str, last: u8, top: &str| {
        let mut text = format!(
            "host {name} {{\nsim link=lan\neth sim\narp eth\n\
             ip arp {{ address \"10.0.0.{last}/24\"; }}\nfragment ip\n\
             discard fragment {{ number fragment=99; }}\nudp ip\n"
        );
        // Five are below, one is on top.
        let mut lower = "udp".to_owned();
        for n in 0..layers - 6 {
            text += &format!("fault {lower} name=f{n}\n");
            lower = format!("f{n}");
        }
        text + &top.replace("LOWER", &lower) + "\n}\n"
    };
    let probe = "probe LOWER to=\"port7@10.0.0.2\" count=3 size=300";
    host("a", 1, probe) + &host("b", 2, "echo LOWER port=7") + "link lan\n"
}

#[test]
fn the_highest_tower_is_carried_and_a_higher_one_refused() {
    let catalog = xk_catalog::standard();
    let Err(mistakes) = check(&tower(25), "g", &catalog) else {
        panic!("25 layers are accepted");
    };
    let text = mistakes.to_string();
    assert!(text.contains("is layer 25 of its host"), "{text}");
    assert!(text.contains("at most 24 layers"), "{text}");
    let mut world = started(&checked(&tower(24)), 1);
    world.run_until_finished(Time::ZERO + Duration::from_secs(5));
    let report = report(&world, "a", "probe");
    assert!(report.finished && !report.failed, "{:?}", report.lines);
}

/// Anything that a probe opens is held by each process that the program forks meanwhile, until that
/// one runs another program: the build would find it taken.
#[test]
fn a_host_that_opens_takes_each_thing_of_the_machine_once() {
    static LOOKED: AtomicUsize = AtomicUsize::new(0);
    fn fail(_: &Params, look: Look) -> Result<(), BuildError> {
        if look == Look::Parameters {
            return Ok(());
        }
        LOOKED.fetch_add(1, Ordering::Relaxed);
        Err(environment("queue", &"the device is gone"))
    }
    let entry = |kind| *xk_catalog::PROTOCOLS.iter().find(|entry| entry.kind == kind).unwrap();
    let wire: &'static Entry = Box::leak(Box::new(entry("loopback").clone().probe(fail)));
    let open = |text: &str| {
        let setup = HostSetup::from_text(text, &[wire, entry("host-udp")]);
        setup.open(|_, _, _| Ok(()), |_, _| Ok(())).err()
    };
    assert!(open("host a { loopback; }").is_none());
    assert_eq!(LOOKED.load(Ordering::Relaxed), 0, "looked for what it had");
    // A build that fails is explained, with all that is missing.
    let told = open("host a { loopback; \"host-udp\" local=\"192.0.2.99\"; }").unwrap();
    assert_eq!(told.kind(), ErrorKind::Unsupported);
    let told = told.to_string();
    assert!(told.contains("the device is gone") && told.contains("192.0.2.99"), "{told}");
}
