//! A numbered line for each behaviour of sockets, on Linux's and on those of a graph: the lines
//! that differ are those that `docs/exec.md` lists with the reason.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use xk_peers::testbed::{Testbed, Wire};
use xk_testkit::netns::Net;
use xk_testkit::{needs, needs_program, needs_root};

use super::script;
use crate::program::command;

/// The least number of behaviours, and the most that may differ.
const BEHAVIOURS_MIN: usize = 300;
const DIFFERENT_MAX: usize = 15;

/// Two addresses of the program's host, and one that no host has.
const HOSTS: [&str; 3] = ["10.9.1.2", "10.9.1.3", "10.9.1.77"];

/// Returns the lines that a program prints, by number: name and result.
fn lines(said: &str) -> BTreeMap<u32, &str> {
    let numbered = said.lines().filter_map(|line| line.split_once(' '));
    numbered.map(|(number, rest)| (number.parse().unwrap(), rest)).collect()
}

/// The behaviours that the documentation says to differ, by number: their names.
fn documented() -> BTreeMap<u32, String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/exec.md");
    let text = fs::read_to_string(path).unwrap();
    let (_, section) = text.split_once("\n## Behaviours that differ\n").unwrap();
    let section = section.split("\n## ").next().unwrap_or_default();
    let cells = section.lines().filter_map(|row| row.strip_prefix("| ")?.split_once(" | "));
    let row = |(number, rest): (&str, &str)| {
        let name = rest.split(" | ").next()?;
        Some((number.parse().ok()?, name.to_owned()))
    };
    cells.filter_map(row).collect()
}

/// On Linux the host's addresses are an interface's, under `xk exec` the graph's alone.
pub(crate) fn behaviours_are_those_of_linux(_: Wire) {
    needs_exec!();
    needs_program!("ip", "python3");
    let net = Net::new("exec-behaviours").unwrap();
    let (linux, far, ours) = (net.space().unwrap(), net.space().unwrap(), net.space().unwrap());
    for space in [&linux, &ours] {
        // Linux's own sockets of version 6 are among them.
        space.sysctl("net/ipv6/conf/lo/disable_ipv6", "0").unwrap();
    }
    net.veth(&linux, "d0", &far, "d1").unwrap();
    for host in &HOSTS[..2] {
        linux.address("d0", &format!("{host}/24")).unwrap();
    }
    linux.neighbour("d0", HOSTS[2], [2, 0, 0, 0, 0, 0x77]).unwrap();
    let graph = Testbed::scratch("exec-behaviours").join("exec.kdl");
    let addresses = HOSTS[..2].iter().map(|host| format!("address \"{host}/24\"; "));
    let addresses: String = addresses.collect();
    let text =
        format!("host xk {{ loopback; ip loopback {{ {addresses} }}; icmp ip; udp ip; tcp ip }}\n");
    fs::write(&graph, text).unwrap();
    let main = script("behaviours/main.py");
    let program = [&["python3", "-B", &main], &HOSTS[..]].concat();
    let (xk, graph) = (command().display().to_string(), graph.display().to_string());
    let under = [&xk, "exec", "--no-control", "--graph", &graph, "--"];
    let on_linux = linux.exec(&program).unwrap();
    let on_graph = ours.exec(&[&under[..], &program].concat()).unwrap();
    let (on_linux, on_graph) = (lines(&on_linux), lines(&on_graph));
    assert!(on_linux.len() >= BEHAVIOURS_MIN, "{} behaviours", on_linux.len());
    assert_eq!(on_linux.len(), on_graph.len());
    let mut listed = documented();
    assert!(listed.len() <= DIFFERENT_MAX, "{} behaviours are listed", listed.len());
    let mut wrong = Vec::new();
    for (number, expected) in &on_linux {
        let found = on_graph[number];
        match listed.remove(number) {
            Some(name) if !expected.starts_with(&format!("{name}: ")) => {
                wrong.push(format!("{number} is listed as {name}: {expected}"));
            }
            Some(_) if found == *expected => {
                wrong.push(format!("{number} differs no longer: {found}"))
            }
            None if found != *expected => {
                wrong.push(format!("{number}\n  Linux {expected}\n  graph {found}"));
            }
            _ => {}
        }
    }
    wrong.extend(listed.keys().map(|number| format!("{number} is listed, and there is none")));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
