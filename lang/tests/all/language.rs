//! Tests of the meaning of correct files, word by word and place by place.

use xk_lang::{DomainKind, Graph, Span, Value, parse};

#[track_caller]
fn right(source: &str) -> Graph {
    let (graph, found) = parse("net.kdl", source);
    assert!(found.is_empty(), "{found}");
    graph
}

const NET: &str = r##"// a comment with a brace {
title "Two LANs and a router"
host alice {
    sim   name=wire link=lan1 /* in /* the */ middle */
    eth   wire address="02:00:00:00:00:01"
    arp   eth
    ip    arp \  // goes on
          eth {
        address "10.0.1.2/24"
        route "default" via="10.0.1.1"
        /- route "gone" { deep { deeper; }; }
    }
    icmp  ip
    udp   ip { number ip=17 eth=0x0800; }
    /- tcp ip
    "my echo" udp port=7 greeting=#"a "raw" \ {string}"# /-old=1 on=#true x=-1.5e1
}
link lan1 kind=switch delay="1ms" rate="100Mbit" mtu=1500 {
    partition from="10s" until="20s" { hosts alice; }
}
/- link lan2
"##;

#[test]
fn everything_once() {
    let graph = right(NET);
    assert_eq!(graph.title.as_ref().unwrap().as_str(), "Two LANs and a router");
    let alice = graph.host("alice").unwrap();
    let names: Vec<&str> = alice.nodes.iter().map(|node| node.name.as_str()).collect();
    assert_eq!(names, ["wire", "eth", "arp", "ip", "icmp", "udp", "my echo"]);
    let ip = alice.node("ip").unwrap();
    let lowers: Vec<&str> = ip.lowers.iter().map(|lower| lower.as_str()).collect();
    assert_eq!(lowers, ["arp", "eth"]);
    assert_eq!(ip.children.len(), 2);
    let route = ip.blocks("route").next().unwrap();
    assert_eq!(route.args[0].value, Value::from("default"));
    assert_eq!(route.param("via").unwrap().value.value, Value::from("10.0.1.1"));
    let mut found = parse("net.kdl", NET).1;
    let numbers = alice.node("udp").unwrap().numbers(&mut found);
    let numbers: Vec<_> =
        numbers.iter().map(|(lower, number)| (lower.as_str(), number.value)).collect();
    assert_eq!(numbers, [("ip", 17), ("eth", 2048)]);
    let echo = alice.node("my echo").unwrap();
    let params: Vec<_> =
        echo.params.iter().map(|param| (param.name.as_str(), param.value.value.clone())).collect();
    assert_eq!(
        params,
        [
            ("port", Value::Integer(7)),
            ("greeting", Value::from("a \"raw\" \\ {string}")),
            ("on", Value::Bool(true)),
            ("x", Value::Float(-15.0)),
        ]
    );
    let link = graph.link("lan1").unwrap();
    assert_eq!(link.param("mtu").unwrap().value.integer(&mut found, 68..=65535_u32), Some(1500));
    assert_eq!(link.blocks("partition").next().unwrap().blocks("hosts").count(), 1);
    assert_eq!(graph.links.len(), 1);
    assert!(found.is_empty());
}

#[test]
fn places_are_exact() {
    let graph = right(NET);
    let at = |span: Span| span.of(NET);
    let alice = graph.host("alice").unwrap();
    assert!(at(alice.span).starts_with("host alice {") && at(alice.span).ends_with("\n}"));
    let eth = alice.node("eth").unwrap();
    assert_eq!(at(eth.span), "eth   wire address=\"02:00:00:00:00:01\"");
    let address = eth.param("address").unwrap();
    assert_eq!(
        (at(address.name.span), at(address.value.span)),
        ("address", "\"02:00:00:00:00:01\"")
    );
    assert_eq!(at(address.span()), "address=\"02:00:00:00:00:01\"");
    let wire = alice.node("wire").unwrap();
    assert_eq!((at(wire.kind.span), at(wire.name.span)), ("sim", "wire"));
    assert_eq!(at(wire.span), "sim   name=wire link=lan1");
    let ip = alice.node("ip").unwrap();
    assert!(at(ip.span).starts_with("ip ") && at(ip.span).ends_with('}'));
    assert_eq!(at(ip.children[0].args[0].span), "\"10.0.1.2/24\"");
    let echo = alice.node("my echo").unwrap();
    assert_eq!(at(echo.kind.span), "\"my echo\"");
    assert_eq!(at(echo.param("x").unwrap().value.span), "-1.5e1");
}

fn is_empty(graph: &Graph) -> bool {
    graph.title.is_none() && graph.hosts.is_empty() && graph.links.is_empty()
}

#[test]
fn small_oddities_of_the_syntax() {
    let graph = right(
        "\u{feff}host a { eth;arp eth;}\r\nhost\tb/* c */{}\r\nlink \"l 1\" \"loss\" = 0.5 ; link l2",
    );
    assert_eq!((graph.hosts.len(), graph.links.len()), (2, 2));
    assert_eq!(graph.hosts[0].nodes.len(), 2);
    assert_eq!(graph.link("l 1").unwrap().param("loss").unwrap().value.value, Value::Float(0.5));
    assert!(is_empty(&right("")));
    assert!(is_empty(&right("// nothing")));
    assert!(is_empty(&right("/-\nhost a { b }\n/* x */ /- title \"y\"\n\n")));
    let escapes = right(r#"title "\u{e9}\n\t\\ \"\s\   x""#);
    assert_eq!(escapes.title.unwrap().as_str(), "é\n\t\\ \" x");
    let stars =
        format!("/*{}*/ title x", "*/*".repeat(3).replace("*/", "**") + &"*".repeat(500_000));
    let _ = parse("net.kdl", &stars);
}

#[test]
fn counted_hosts() {
    let source = r#"host "h-{n:03}" count=10000 area="{n/100}" {
    sim name="w{n}" link="lan{n%10}"
    eth "w{n}" { address "02::{n%256:02x}" }
}
host z
"#;
    let graph = right(source);
    let hosts = graph.expand();
    assert_eq!(hosts.len(), 10001);
    assert_eq!(hosts[7].name, "h-007");
    assert_eq!(hosts[10000].name, "z");
    assert_eq!(hosts[9999].params()[0].value.value, Value::from("99"));
    let nodes = hosts[9999].nodes();
    assert_eq!(nodes[0].name.as_str(), "w9999");
    assert_eq!(nodes[1].lowers[0].as_str(), "w9999");
    assert_eq!(nodes[1].children[0].args[0].value, Value::from("02::0f"));
    assert_eq!(nodes[1].span.of(source), "eth \"w{n}\" { address \"02::{n%256:02x}\" }");
}

#[test]
fn subsystems() {
    let text = r#"host h count=2 {
    sim
    subsystem bsd release="{n}" { ether sim; ddp ether name="ddp{n}"; }
    domain apps { subsystem streams { atp "ddp{n}"; }; printer atp; }
}
"#;
    let (graph, diagnostics) = parse("net.kdl", text);
    assert_eq!(diagnostics.to_text(), "");
    let host = &graph.hosts[0];
    let nodes = graph.expand()[1].nodes().into_owned();
    let qualified = nodes.iter().map(|node| host.qualified(node).into_owned());
    let of: Vec<_> = qualified.zip(nodes.iter().map(|node| node.domain)).collect();
    let expected = [
        ("sim", None),
        ("bsd", None),
        ("bsd/ether", None),
        ("bsd/ddp", None),
        ("streams", Some(0)),
        ("streams/atp", Some(0)),
        ("printer", Some(0)),
    ];
    assert_eq!(of, expected.map(|(kind, domain)| (kind.to_owned(), domain)));
    assert_eq!((nodes[3].name.as_str(), nodes[5].lowers[0].as_str()), ("ddp1", "ddp1"));
    let bsd = &host.subsystems[0];
    assert_eq!(nodes[bsd.node].param("release").unwrap().value.value, Value::from("1"));
    assert!(bsd.span.of(text).ends_with('}'));
    assert_eq!(host.subsystem(&nodes[1]), None);
}

#[test]
fn domains() {
    let text = r#"
host one count=2 {
    sim link=lan
    domain net thread core="{n}" {
        eth sim
        ip eth { address "10.0.0.{n+1}/24"; }
    }
    domain server user=nobody { udp ip; }
    domain apps open { grant udp port="5000..5999" uid=1000; }
    echo udp port=7
}
link lan
"#;
    let graph = right(text);
    let host = &graph.expand()[1];
    let domains = host.domains();
    let of: Vec<_> = domains.iter().map(|domain| (domain.name.as_str(), domain.kind)).collect();
    let kinds = [DomainKind::Thread, DomainKind::Process, DomainKind::Open];
    assert_eq!(of, [("net", kinds[0]), ("server", kinds[1]), ("apps", kinds[2])]);
    assert_eq!(domains[0].param("core").unwrap().value.value, Value::from("1"));
    assert_eq!(domains[2].grants[0].args[0].value, Value::from("udp"));
    let lies: Vec<_> = host.nodes().iter().map(|node| node.domain).collect();
    assert_eq!(lies, [None, Some(0), Some(0), Some(1), None], "in the order of the file");
    assert!(domains[0].span.of(text).ends_with('}'));
}
