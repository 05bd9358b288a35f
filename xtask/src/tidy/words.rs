//! Comments use the field's terms, and name what they speak of.

use super::{File, Rule, Tree, Violation};
use crate::scan::has_word;
use std::path::Path;
use std::{fs, io};

static WORDS: Rule = Rule {
    name: "words",
    reason: "a stranger reads the field's terms faster than a dialect: the subject of a sentence is the thing's name, \
             and a doc comment begins with what the item is or returns",
};

/// Words for a person where a thing is meant, and words of our own for common ones. The system's
/// user `nobody` stands in a code span.
const WORDS_REFUSED: &[&str] = &[
    "who",
    "whoever",
    "nobody",
    "somebody",
    "anybody",
    "he",
    "him",
    "his",
    "anew",
    "for ever",
    "let go",
    "lets go",
    "letting go",
    "foretell",
    "farewell",
    "rests",
];

/// Names that meant too many things: each of these gets one of its own.
const NAMES_REFUSED: &[&str] = &["Taker", "Takers", "Talkers", "settle"];

/// The beginning that sends the reader of a doc comment to another item.
const BEGINNING: &str = "The same";

/// First words that a doc comment may not have: they speak of another thing before the item.
const OPENINGS: &[&str] = &[
    "What", "How", "When", "Where", "It", "Its", "They", "That", "Those", "Of", "Which", "Whose",
    "Whom",
];

/// The folders that still have doc comments with such a first word, one a line: path, count. A
/// count may only fall; in all other folders there is none.
const COUNTS: &str = "xtask/words.txt";

pub(super) fn check(tree: &Tree, found: &mut Vec<Violation>) {
    check_openings(tree, found);
    for file in tree.files.iter().filter(|file| file.path.ends_with(".rs")) {
        let mut is_first = true;
        for (index, line) in file.lines().iter().enumerate() {
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

/// Lines of the file where a doc comment begins with one of [`OPENINGS`], with that word.
fn openings(file: &File) -> impl Iterator<Item = (usize, &'static str)> + '_ {
    let mut is_first = true;
    file.lines().iter().enumerate().filter_map(move |(index, line)| {
        let text = line.comment.strip_prefix(['/', '!']);
        let word = text.and_then(|text| text.split_whitespace().next()).filter(|_| is_first);
        is_first = text.is_none();
        let refused = OPENINGS.iter().find(|refused| word == Some(**refused))?;
        Some((index + 1, *refused))
    })
}

/// A line of [`COUNTS`]: folder, count; `None` for a remark.
fn count_of(line: &str) -> Option<(&str, usize)> {
    let (folder, count) = line.split_once(' ').filter(|_| !line.starts_with('#'))?;
    Some((folder, count.parse().ok()?))
}

fn openings_under(tree: &Tree, folder: &str) -> usize {
    let files = tree.under(folder).filter(|file| file.path.ends_with(".rs"));
    files.map(|file| openings(file).count()).sum()
}

fn check_openings(tree: &Tree, found: &mut Vec<Violation>) {
    let mut listed = Vec::new();
    if let Some(list) = tree.file(COUNTS) {
        for (index, line) in list.text.lines().enumerate() {
            let Some((folder, allowed)) = count_of(line) else { continue };
            listed.push(format!("{folder}/"));
            let has = openings_under(tree, folder);
            if has == allowed && has > 0 {
                continue;
            }
            let what = format!("{has} doc comments in `{folder}` begin with What, How, It or such");
            let remedy = match has > allowed {
                true => format!("begin new ones with the thing or a verb: {allowed} are left"),
                false => "`cargo xtask words` lowers the count".into(),
            };
            found.push(list.violation(&WORDS, index + 1, what, remedy));
        }
    }
    let is_listed = |path: &str| listed.iter().any(|folder| path.starts_with(folder));
    let is_clean = |file: &&File| file.path.ends_with(".rs") && !is_listed(&file.path);
    for file in tree.files.iter().filter(is_clean) {
        for (line, word) in openings(file) {
            let what = format!("a doc comment begins with `{word}`");
            found.push(file.violation(&WORDS, line, what, "begin with the thing or a verb"));
        }
    }
}

/// `cargo xtask words`: lowers the counts to what there is.
pub(crate) fn run(root: &Path) -> io::Result<bool> {
    let tree = Tree::of_files(root)?;
    let lowered = |line: &str| match count_of(line) {
        None => Some(line.to_owned()),
        Some((folder, allowed)) => match openings_under(&tree, folder).min(allowed) {
            0 => None,
            has => Some(format!("{folder} {has}")),
        },
    };
    let lines = tree.file(COUNTS).map_or("", |list| &list.text).lines();
    let text: Vec<String> = lines.filter_map(lowered).collect();
    fs::write(root.join(COUNTS), text.join("\n") + "\n")?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{found, tree};
    use super::*;

    #[test]
    fn words_are_refused_in_comments() {
        let text = "/// The same as [`x`],\n/// for whoever asks.\nfn f() { who(); }\n// nobody\n\
                    // the user `nobody`, whose\n// lets go of it\n// lets it go on\n";
        let named = tree(&[("a/x.rs", "struct Takers;\nfn settled() {}\nfn settle() {}\n")]);
        assert_eq!(found(check, &named), ["words a/x.rs:1", "words a/x.rs:3"]);
        let broken = [1, 2, 4, 6].map(|line| format!("words a/x.rs:{line}"));
        assert_eq!(found(check, &tree(&[("a/x.rs", text)])), broken);
    }

    #[test]
    fn doc_comments_begin_with_the_thing() {
        let text = "//! What it is.\n//! How.\n\n/// Whose it is.\n/// What.\n#[x]\npub fn f() {}\n\
                    // It is no doc comment.\n/// Whatever a private one does.\nfn g() {}\n\
                    \x20   /// Its number.\n    pub n: u8,\n/// Return\n/// It.\npub fn h() {}\n\
                    /// When it ends.\nfn i() {}\n/// Place\n/// Where.\nfn j() {}\n\
                    /// Where it is.\nfn k() {}\n";
        let broken = [1, 4, 11, 16, 21].map(|line| format!("words a/x.rs:{line}"));
        assert_eq!(found(check, &tree(&[("a/x.rs", text)])), broken);
        let counted = |count| {
            found(check, &tree(&[("a/x.rs", text), (COUNTS, &format!("# a remark\n{count}\n"))]))
        };
        assert_eq!(counted("a 5"), <[String; 0]>::default());
        for wrong in ["a 4", "a 6"] {
            assert_eq!(counted(wrong), ["words xtask/words.txt:2"]);
        }
        assert_eq!(counted("b 0").len(), 6);
    }
}
