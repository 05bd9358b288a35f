//! Graphs with words left out, doubled and exchanged: whatever the file says, there is an answer
//! and no panic.

use std::fs;
use std::path::Path;
use xk_compose::{
    CheckedGraph, SimulationConfig, check, draw_svg, draw_text, simulate, start_world,
};
use xk_core::random::Random;

/// Number of variants of each file.
const ROUNDS: usize = 150;

fn sources() -> Vec<String> {
    let graphs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../graphs");
    let mut sources: Vec<_> = [graphs.clone(), graphs.join("broken")]
        .iter()
        .flat_map(|folder| fs::read_dir(folder).unwrap())
        .map(|file| file.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "kdl"))
        .collect();
    sources.sort();
    sources.iter().map(|path| fs::read_to_string(path).unwrap()).collect()
}

/// Leaves out, doubles or exchanges a few words.
fn mutate(source: &str, words: &[&str], random: &Random) -> String {
    let mut pieces: Vec<&str> = source.split_inclusive([' ', '\n', '=']).collect();
    for _ in 0..=random.below(3) {
        let at = random.below(pieces.len() as u64) as usize;
        match random.below(3) {
            0 if pieces.len() > 1 => {
                pieces.remove(at);
            }
            1 => pieces.insert(at, pieces[at]),
            _ => pieces[at] = words[random.below(words.len() as u64) as usize],
        }
    }
    pieces.concat()
}

/// Checks that a graph that passes the check starts, if all of it is simulated and writes no file.
fn starts(graph: &CheckedGraph, source: &str) {
    let mut nodes = graph.graph().hosts.iter().flat_map(|host| &host.nodes);
    if nodes.any(|node| *node.kind == *"pcap") {
        return;
    }
    if let Ok(mut world) = simulate(graph, SimulationConfig::default())
        && let Err(mistakes) = start_world(graph, &mut world)
    {
        panic!("{mistakes}{source}");
    }
}

#[test]
fn any_graph_gets_an_answer() {
    let catalog = xk_catalog::standard();
    let seed =
        std::env::var("XK_SEED").map_or(8, |seed| seed.parse().expect("XK_SEED is a number"));
    println!("seed {seed}");
    let random = Random::new(seed);
    let sources = sources();
    let words: Vec<&str> =
        sources.iter().flat_map(|source| source.split_inclusive([' ', '\n', '='])).collect();
    let mut sound = 0;
    for source in &sources {
        for _ in 0..ROUNDS {
            let mutant = mutate(source, &words, &random);
            match check(&mutant, "m", &catalog) {
                Ok(graph) => {
                    sound += 1;
                    assert!(draw_svg(&graph, None).ends_with("</svg>\n"));
                    draw_text(&graph, None, 80);
                    starts(&graph, &mutant);
                }
                Err(mistakes) => assert!(mistakes.has_errors(), "{mutant}"),
            }
        }
    }
    // Changed comments and titles alone see to that.
    assert!(sound > ROUNDS, "{sound}");
}
