//! What the pages beside the guide say is so: of messages, of programs without a graph file, of the
//! glossary. Their fragments are compared with the sources in `guide.rs`.

use std::fs;
use std::path::Path;
use xk_core::Pool;
use xk_core::message::PoolConfig;

#[allow(unused_imports, dead_code)]
#[path = "../examples/embed.rs"]
mod embed;

/// A file of the tree.
fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)).unwrap()
}

#[test]
fn a_program_has_protocols_without_a_graph_file() {
    assert_eq!(embed::run().unwrap(), b"hello");
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
