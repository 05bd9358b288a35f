//! Comments use the field's terms, and name what they speak of.

use super::{File, Rule, Tree, Violation};
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

/// How the doc comment of a public item may not begin in these rooms: it speaks of another thing
/// before the item.
const OPENINGS: &[&str] = &["What", "How", "That", "Those", "It", "Of"];
const ROOMS: &[&str] = &["share/", "wires/shm/"];

pub(super) fn check(tree: &Tree, found: &mut Vec<Violation>) {
    for file in tree.files.iter().filter(|file| file.path.ends_with(".rs")) {
        if ROOMS.iter().any(|room| file.path.starts_with(room)) {
            openings(file, found);
        }
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

/// Public items, and files, whose doc comment does not begin with the thing or a verb.
fn openings(file: &File, found: &mut Vec<Violation>) {
    let (mut is_first, mut opening) = (true, None);
    for (index, line) in scan(&file.text).into_iter().enumerate() {
        let code = line.code.trim_start();
        let (is_doc, is_of_file) = (line.comment.starts_with('/'), line.comment.starts_with('!'));
        if (is_doc || is_of_file) && is_first {
            let word = line.comment[1..].split_whitespace().next().unwrap_or_default();
            opening = OPENINGS.iter().find(|refused| **refused == word).map(|word| (index, *word));
        }
        is_first = !is_doc && !is_of_file;
        let is_public = code.starts_with("pub ");
        if let Some((index, word)) = opening.filter(|_| is_of_file || is_public) {
            let what = format!("a doc comment begins with `{word}`");
            found.push(file.violation(&WORDS, index + 1, what, "begin with the thing or a verb"));
        }
        if is_of_file || !(code.is_empty() || code.starts_with("#[")) {
            opening = None;
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

    #[test]
    fn doc_comments_of_public_items_begin_with_the_thing() {
        let text = "//! What it is.\n//! How.\n\n/// How many.\n/// What.\n#[x]\npub fn f() {}\n\
                    /// What a private one does.\nfn g() {}\n    /// Its number.\n    pub n: u8,\n\
                    /// Return\n/// It.\npub fn h() {}\n";
        let broken = [1, 4].map(|line| format!("words share/x.rs:{line}"));
        assert_eq!(found(check, &tree(&[("share/x.rs", text)])), broken);
        assert_eq!(found(check, &tree(&[("a/x.rs", text)])), <[String; 0]>::default());
    }
}
