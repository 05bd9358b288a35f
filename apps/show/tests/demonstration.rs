//! The demonstration is one, whichever program shows it.

use xk_compose::{check, draw_svg, draw_text};
use xk_core::Time;
use xk_core::graph::Catalog;
use xk_show::demo::{GRAPH, PROTOCOLS};
use xk_show::simulation::Simulation;

/// Returns all that a catalog's protocols show: the drawings, the table of hosts, the summary,
/// and the captures.
fn shown(catalog: &Catalog) -> ([String; 4], Vec<Vec<u8>>) {
    let graph = check(GRAPH, "internet.kdl", catalog).unwrap_or_else(|m| panic!("{m}"));
    let folder = tempfile::tempdir().expect("a folder");
    let mut simulation = Simulation::new(&graph, 1, Some(folder.path())).expect("it starts");
    assert!(simulation.run(Time::from_s(60)).expect("it runs"), "it comes to its end");
    let captures = simulation.finish().expect("captures are written");
    let texts = [
        draw_text(&graph, None, 100),
        draw_svg(&graph, None),
        simulation.live(),
        simulation.summary(),
    ];
    (texts, captures.iter().map(|path| std::fs::read(path).expect("a capture")).collect())
}

#[test]
fn few_protocols_show_what_all_show() {
    let few = shown(&Catalog::new(PROTOCOLS).expect("a list without contradictions"));
    let all = shown(&xk_catalog::standard());
    assert_eq!(few.0, all.0);
    assert!(few.1 == all.1, "captures differ");
    assert!(few.0[3].contains("alice/ping: ok"), "{}", few.0[3]);
}
