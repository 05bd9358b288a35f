//! The corpus passes, and the harness finds what it must find.

use xk_fuzz::runner::{self, Budget};
use xk_fuzz::{canary, targets};

#[test]
fn corpus_passes() {
    let mut replayed = 0;
    for target in targets() {
        let corpus = runner::corpus(target.name).expect("a readable corpus");
        assert!(!corpus.is_empty(), "{} has no seeds; cargo run -p xk-fuzz -- seeds", target.name);
        for (path, octets) in corpus {
            if let Err(failure) = runner::run_one(*target, &octets) {
                panic!("{}\n{}", failure.what, runner::command(target.name, &path));
            }
            replayed += 1;
        }
    }
    assert!(replayed > 50, "only {replayed} inputs");
}

#[test]
fn every_target_bears_some_mutations() {
    for target in targets() {
        let corpus = runner::corpus(target.name).expect("a readable corpus");
        let corpus: Vec<Vec<u8>> = corpus.into_iter().map(|(_, octets)| octets).collect();
        let outcome = runner::fuzz(*target, &corpus, Budget::Runs(200), 1);
        if let Some((input, failure)) = outcome.failed {
            panic!("{}: {}\n{}", target.name, failure.what, input.escape_ascii());
        }
    }
}

#[test]
fn canary_is_found_and_shortened() {
    let corpus = [canary::SEED.to_vec()];
    for seed in 1..4 {
        let outcome = runner::fuzz(canary::TARGET, &corpus, Budget::Runs(200_000), seed);
        let (input, failure) = outcome.failed.expect("the planted mistake is found");
        assert!(failure.what.contains("out of bounds"), "{}", failure.what);
        assert!(input.len() <= canary::SEED.len(), "it is shortened");
        assert_eq!(runner::run_one(canary::TARGET, &input), Err(failure));
    }
}

#[test]
fn the_closing_line_is_that_of_cargo() {
    let line = runner::closing_line(2, 1, std::time::Duration::from_millis(20));
    assert!(line.starts_with("test result: FAILED. 2 passed; 1 failed; 0 ignored;"));
}

#[test]
fn libfuzzer_has_the_same_targets() {
    let path = xk_fuzz::folder().join("libfuzzer/Cargo.toml");
    let manifest = std::fs::read_to_string(path).expect("the manifest");
    let names: Vec<&str> = manifest
        .split("[[bin]]\nname = \"")
        .skip(1)
        .filter_map(|rest| rest.split('"').next())
        .collect();
    let expected: Vec<&str> = targets().iter().map(|target| target.name).collect();
    assert_eq!(names, expected);
}
