//! Comments use the field's terms, and name what they speak of.

use super::{File, Rule, Tree, Violation};
use crate::scan::{is_word, scan};

static WORDS: Rule = Rule {
    name: "words",
    reason: "a stranger reads the field's terms faster than a dialect: the subject of a sentence is the thing's name, \
             and a doc comment begins with what the item is or returns",
};

/// Words for a person where a thing is meant, and words of our own for common ones.
const WORDS_COUNTED: &[&str] =
    &["who", "whoever", "nobody", "somebody", "anybody", "he", "him", "his", "anew", "for ever"];

/// How a doc comment may not begin: it sends the reader to another item.
const BEGINNING: &str = "The same";

/// How many of them each folder still has. The numbers only fall.
const LIST: &str = "xtask/words.txt";

pub(super) fn check(tree: &Tree, found: &mut Vec<Violation>) {
    let mut rooms: Vec<(&str, usize, usize)> = Vec::new();
    if let Some(list) = tree.file(LIST) {
        for (index, line) in list.text.lines().enumerate().filter(|(_, l)| !l.starts_with('#')) {
            match line.split_once(' ').map(|(room, count)| (room, count.parse())) {
                Some((room, Ok(count))) => rooms.push((room, count, index + 1)),
                _ => found.push(list.violation(&WORDS, index + 1, "no count", "write `folder n`")),
            }
        }
    }
    let mut counts: Vec<(&str, Vec<Place<'_>>)> =
        rooms.iter().map(|(room, ..)| (*room, Vec::new())).collect();
    for file in tree.files.iter().filter(|file| file.path.ends_with(".rs")) {
        let room = file.path.split('/').next().unwrap_or_default();
        let at = counts.iter().position(|(name, _)| *name == room).unwrap_or_else(|| {
            counts.push((room, Vec::new()));
            counts.len() - 1
        });
        counts[at].1.extend(places(file));
    }
    for (room, places) in counts {
        let listed = rooms.iter().find(|(name, ..)| *name == room);
        let (allowed, line) = listed.map_or((0, 0), |(_, allowed, line)| (*allowed, *line));
        let count = places.len();
        if count > allowed {
            // Which of them is new is not known here; the author knows the ones just written.
            let what = format!("{count} words of dialect in comments, allowed are {allowed}");
            let last = places.last().map_or(String::new(), |(file, line, word)| {
                format!("name the thing; such as `{word}` in {}:{line}", file.path)
            });
            found.push(Violation { rule: &WORDS, path: room.into(), line: 0, what, remedy: last });
        } else if count + 5 + allowed / 10 < allowed {
            found.push(Violation {
                rule: &WORDS,
                path: LIST.into(),
                line,
                what: format!("`{room}` has {count} such words, {allowed} are allowed"),
                remedy: format!("write {count}: the numbers only fall"),
            });
        }
    }
}

/// A file, a line of it and the word there.
type Place<'a> = (&'a File, usize, String);

/// The places of such words in the comments of a file.
fn places(file: &File) -> impl Iterator<Item = Place<'_>> {
    let mut is_first = true;
    scan(&file.text).into_iter().enumerate().flat_map(move |(index, line)| {
        let text = line.comment.strip_prefix(['/', '!']).map(str::trim_start);
        let begins = is_first && text.is_some_and(|text| text.starts_with(BEGINNING));
        is_first = text.is_none();
        let comment = line.comment.to_lowercase();
        let counted = WORDS_COUNTED.iter().flat_map(|word| {
            let times = comment.match_indices(word).filter(|(at, _)| {
                let before = comment[..*at].chars().next_back();
                let after = comment[at + word.len()..].chars().next();
                !before.is_some_and(is_word) && !after.is_some_and(is_word)
            });
            vec![(*word).to_owned(); times.count()]
        });
        let mut words: Vec<String> = counted.collect();
        words.extend(begins.then(|| BEGINNING.to_owned()));
        words.into_iter().map(move |word| (file, index + 1, word))
    })
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{found, tree};
    use super::*;

    const TEXT: &str =
        "/// The same as [`x`],\n/// for whoever asks.\nfn f() { who(); }\n// nobody\n";

    #[test]
    fn words_are_counted_in_comments() {
        let file = File { path: "a/x.rs".into(), text: TEXT.into() };
        let words: Vec<_> = places(&file).map(|(_, line, word)| format!("{line} {word}")).collect();
        assert_eq!(words, ["1 The same", "2 whoever", "4 nobody"]);
    }

    #[test]
    fn the_numbers_only_fall() {
        let at = |count: usize| {
            found(check, &tree(&[("a/x.rs", TEXT), (LIST, &format!("# why\na {count}\n"))]))
        };
        assert_eq!(at(2), ["words a:0"]);
        assert!(at(3).is_empty() && at(8).is_empty());
        assert_eq!(at(20), ["words xtask/words.txt:2"]);
        assert_eq!(found(check, &tree(&[("a/x.rs", TEXT)])), ["words a:0"]);
    }
}
