//! Edits keep what they need not change.

use xk_lang::{Document, EditError, Value};

const NET: &str = "// head\nhost  a  { // opens\n\tsim   name=wire   link=lan1 // the wire\n\n\teth wire  mtu = 1500 ; // stays\n\tip eth { address \"10.0.0.1/8\" /* x */ }\n} // ends\nhost b\nhost c { sim }\nlink lan1   kind=switch // l\n";

fn document() -> Document {
    Document::parse("net.kdl", NET).unwrap()
}

#[test]
fn parameters() {
    let mut net = document();
    net.set_param("a", "eth", "mtu", &Value::Integer(9000)).unwrap();
    net.set_param("a", "eth", "address", &Value::from("02:00:00:00:00:01")).unwrap();
    net.set_param("a", "ip", "ttl", &Value::Integer(9)).unwrap();
    net.set_link_param("lan1", "loss", &Value::from("5%")).unwrap();
    net.set_link_param("lan1", "kind", &Value::from("hub")).unwrap();
    let wanted = NET
        .replace("mtu = 1500", "mtu = 9000 address=\"02:00:00:00:00:01\"")
        .replace("ip eth {", "ip eth ttl=9 {")
        .replace("kind=switch", "kind=hub loss=\"5%\"");
    assert_eq!(net.to_text(), wanted);
    net.remove_param("a", "eth", "address").unwrap();
    net.remove_param("a", "ip", "ttl").unwrap();
    net.set_param("a", "eth", "mtu", &Value::Integer(1500)).unwrap();
    assert_eq!(net.to_text(), NET.replace("kind=switch", "kind=hub loss=\"5%\""));
}

#[test]
fn nodes() {
    let mut net = document();
    net.add_node("a", "udp", "udp", &["ip"], &[("checksum", Value::Bool(true))]).unwrap();
    net.add_node("b", "sim", "wire", &[], &[]).unwrap();
    net.add_node("c", "eth", "eth", &["sim"], &[]).unwrap();
    let wanted = NET
        .replace("/* x */ }\n", "/* x */ }\n\tudp ip checksum=#true\n")
        .replace("host b", "host b {\n    sim name=wire\n}")
        .replace("{ sim }", "{ sim\neth sim\n}");
    assert_eq!(net.to_text(), wanted);
    net.remove_node("a", "udp").unwrap();
    net.remove_node("b", "wire").unwrap();
    assert!(net.to_text().contains("host b {\n}\n"));
    net.set_param("a", "wire", "name", &Value::from("cable")).unwrap();
    assert!(net.to_text().contains("\teth cable  mtu = 1500 ; // stays"));
    net.set_param("a", "eth", "name", &Value::from("lan card")).unwrap();
    assert!(net.to_text().contains("\teth cable  mtu = 1500 name=\"lan card\" ; // stays"));
    assert!(net.to_text().contains("\tip \"lan card\" {"));
}

#[test]
fn refused_edits_change_nothing() {
    let mut net = document();
    let spoiled = net.remove_node("a", "eth");
    let Err(EditError::Spoils(why)) = spoiled else { panic!("{spoiled:?}") };
    assert!(why.to_text().contains("no node called `eth`"));
    assert!(matches!(net.add_node("a", "eth", "eth", &["wire"], &[]), Err(EditError::Spoils(_))));
    assert!(matches!(net.add_node("x", "eth", "eth", &[], &[]), Err(EditError::NoHost(_))));
    assert!(matches!(net.set_param("a", "x", "y", &Value::Null), Err(EditError::NoNode(_))));
    assert!(matches!(net.remove_param("a", "eth", "x"), Err(EditError::NoParam(_))));
    assert_eq!(net.to_text(), NET);
}
