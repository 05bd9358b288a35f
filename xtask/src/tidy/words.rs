//! Comments use the field's terms, and name what they speak of.

use super::{Rule, Tree, Violation};
use crate::scan::{has_word, scan};

static WORDS: Rule = Rule {
    name: "words",
    reason: "a stranger reads the field's terms faster than a dialect: the subject of a sentence is the thing's name, \
             and a doc comment begins with what the item is or returns",
};

/// Words for a person where a thing is meant, and words of our own for common ones. The system's
/// user `nobody` stands in a code span.
const WORDS_REFUSED: &[&str] =
    &["who", "whoever", "nobody", "somebody", "anybody", "he", "him", "his", "anew", "for ever"];

/// Names that meant too many things: each of these gets one of its own.
const NAMES_REFUSED: &[&str] = &["Taker", "Takers", "Talkers", "settle"];

/// How a doc comment may not begin: it sends the reader to another item.
const BEGINNING: &str = "The same";

pub(super) fn check(tree: &Tree, found: &mut Vec<Violation>) {
    for file in tree.files.iter().filter(|file| file.path.ends_with(".rs")) {
        let mut is_first = true;
        for (index, line) in scan(&file.text).into_iter().enumerate() {
            let text = line.comment.strip_prefix(['/', '!']).map(str::trim_start);
            let begins = is_first && text.is_some_and(|text| text.starts_with(BEGINNING));
            is_first = text.is_none();
            let comment: String = line.comment.to_lowercase().split('`').step_by(2).collect();
            let refused = WORDS_REFUSED.iter().filter(|word| has_word(&comment, word));
            for name in NAMES_REFUSED.iter().filter(|name| has_word(&line.code, name)) {
                let what = format!("`{name}` in code");
                found.push(file.violation(&WORDS, index + 1, what, "say what it is or does"));
            }
            for word in refused.copied().chain(begins.then_some(BEGINNING)) {
                let what = format!("`{word}` in a comment");
                found.push(file.violation(&WORDS, index + 1, what, "name the thing"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{found, tree};
    use super::*;

    #[test]
    fn words_are_refused_in_comments() {
        let text = "/// The same as [`x`],\n/// for whoever asks.\nfn f() { who(); }\n// nobody\n\
                    // the user `nobody`, whose\n";
        let named = tree(&[("a/x.rs", "struct Takers;\nfn settled() {}\nfn settle() {}\n")]);
        assert_eq!(found(check, &named), ["words a/x.rs:1", "words a/x.rs:3"]);
        let broken = [1, 2, 4].map(|line| format!("words a/x.rs:{line}"));
        assert_eq!(found(check, &tree(&[("a/x.rs", text)])), broken);
    }
}
