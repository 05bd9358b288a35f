//! Checks that what the pages beside the guide say is so: of messages, of programs without a graph
//! file, of the glossary. Their fragments are compared with the sources in `guide.rs`.

use std::path::Path;
use std::rc::Rc;
use std::sync::mpsc;
use std::time::Duration;
use std::{fs, thread};
use xk_compose::HostSetup;
use xk_core::message::PoolConfig;
use xk_core::{Kernel, Pool};
use xk_lang::HostInstance;

#[allow(unused_imports, dead_code)]
#[path = "../examples/embed.rs"]
mod embed;

#[allow(unused_imports, dead_code)]
#[path = "../examples/attach.rs"]
mod attach;

/// A file of the tree.
fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)).unwrap()
}

#[test]
fn a_program_has_protocols_without_a_graph_file() {
    assert_eq!(embed::run().unwrap(), b"hello");
}

/// Chapter 11: two programs above the stack of a third, here a thread.
#[test]
fn programs_put_the_layer_above_a_stack_that_runs_elsewhere() {
    let path = std::env::temp_dir().join(format!("xk-guide-{}.sock", std::process::id()));
    let graph = read("docs/guide/open.kdl");
    let graph = graph.replace("xk-lab.sock", &path.display().to_string()).replace(" uid=1000", "");
    let (ready, is_ready) = mpsc::channel();
    let (end, ends) = mpsc::channel();
    let host = thread::spawn(move || {
        let catalog = xk_catalog::standard();
        let checked = xk_compose::check(&graph, "open.kdl", &catalog).expect("it is sound");
        let doors = |kernel: &Kernel, host: &HostInstance<'_>, _: &_| {
            let nodes = host.nodes();
            let nodes: Vec<_> = nodes.iter().map(|node| kernel.find_protocol(&node.name)).collect();
            let host = checked.host("lab").expect("it is there");
            Ok(xk_compose::open_doors(&checked, &host, 0, kernel, &nodes).expect("it opens"))
        };
        let setup = HostSetup::from_text(graph.clone(), xk_catalog::PROTOCOLS);
        let host = setup.open(doors, |_, _| Ok(())).expect("it runs");
        ready.send(()).unwrap();
        while ends.try_recv().is_err() {
            let a_while = Some(Duration::from_millis(5));
            host.runner.run(a_while, Rc::new(|_| false)).expect("it turns");
        }
        host.kernel.stop();
    });
    is_ready.recv().unwrap();
    let at = path.clone();
    let takes = thread::spawn(move || {
        attach::run(&at, None, Duration::from_secs(60)).map_err(|error| error.to_string())
    });
    // Before the other has enabled its port what is given is refused: it is given again.
    while !takes.is_finished() {
        attach::run(&path, Some("hello".into()), Duration::ZERO).expect("it is let in");
        thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(takes.join().unwrap(), Ok(vec!["hello".to_owned()]));
    end.send(()).unwrap();
    host.join().unwrap();
}

#[test]
fn messages_do_what_their_page_says() {
    let pool = Pool::new(&PoolConfig::with_octets_max(1 << 20)).unwrap();
    let mut message = pool.copy_from(4, b"payload").unwrap();
    message.push_array(&[1, 2, 3, 4]).unwrap();
    assert!(message.eq_octets(b"\x01\x02\x03\x04payload"));
    assert_eq!(message.peek::<2>(), Some(&[1, 2]));
    assert_eq!(message.pop_array::<4>(), Some(&[1, 2, 3, 4]));

    let kept = message.try_clone().unwrap();
    let tail = message.split_off(3).unwrap();
    assert!(message.eq_octets(b"pay") && tail.eq_octets(b"load"));
    message.join(tail);
    assert!(message.eq_octets(b"payload") && kept.eq_octets(b"payload"));
    message.truncate(3);
    assert!(kept.eq_octets(b"payload"), "a copy keeps what it has");
}

#[test]
fn the_page_of_messages_names_all_methods() {
    let page = read("docs/message.md");
    let files = ["message_unsafe", "chain", "view"];
    let sources: String = files.map(|f| read(&format!("core/src/message/{f}.rs"))).concat();
    let names = sources.lines().filter_map(|line| line.trim().strip_prefix("pub fn "));
    let names: Vec<_> = names.map(|rest| rest.split(['(', '<']).next().unwrap()).collect();
    assert!(names.len() > 30, "{names:?}");
    for name in names {
        let calls = [format!("`{name}"), format!(".{name}(")];
        assert!(calls.iter().any(|c| page.contains(c)), "docs/message.md does not name `{name}`");
    }
}

#[test]
fn the_glossary_knows_where_its_terms_are() {
    let mut terms = 0;
    for row in read("docs/glossary.md").lines().filter_map(|line| line.strip_prefix("| ")) {
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        let [names, _, _, place, _] = cells[..] else { continue };
        let Some(path) = place.strip_prefix('`').and_then(|path| path.strip_suffix('`')) else {
            continue;
        };
        let text = read(path).to_lowercase();
        for name in names.split(", ").map(|name| name.trim_matches('`').to_lowercase()) {
            assert!(text.contains(&name), "{path} does not say `{name}`: mend docs/glossary.md");
            terms += 1;
        }
    }
    assert!(terms > 40, "only {terms} terms were found");
}
