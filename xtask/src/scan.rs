//! A Rust file cut into what the compiler reads and what people read.
//!
//! Rules about tokens (`unsafe`, `todo!`) must not stumble over the same word in a comment or a
//! string, and the rule about safety comments must see comments alone. A full parser would cost a
//! dependency; this scanner knows just enough of the lexical grammar: nested block comments,
//! strings, raw strings, characters and lifetimes.

/// One line of a Rust file, its two halves padded with spaces so that columns stay.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Line {
    /// The line without comments and without the contents of literals.
    pub(crate) code: String,
    /// The text of the comments on this line.
    pub(crate) comment: String,
    /// Whether the line begins inside a string.
    pub(crate) is_text: bool,
}

enum ScanState {
    Code,
    LineComment,
    BlockComment { depth: usize },
    Text { hashes: Option<usize> },
}

/// Cuts `source` into lines; the n-th line of the file is the n-th of the result.
pub(crate) fn scan(source: &str) -> Vec<Line> {
    let chars: Vec<char> = source.chars().collect();
    let mut lines = Vec::new();
    let mut line = Line::default();
    let mut state = ScanState::Code;
    let mut at = 0;
    while let Some(&c) = chars.get(at) {
        if c == '\n' {
            if matches!(state, ScanState::LineComment) {
                state = ScanState::Code;
            }
            let is_text = matches!(state, ScanState::Text { .. });
            lines.push(std::mem::replace(&mut line, Line { is_text, ..Line::default() }));
            at += 1;
            continue;
        }
        let rest = &chars[at..];
        let taken;
        (state, taken) =
            step(state, rest, at.checked_sub(1).and_then(|i| chars.get(i)).copied(), &mut line);
        at += taken;
    }
    if !line.code.is_empty() || !line.comment.is_empty() {
        lines.push(line);
    }
    lines
}

/// The attribute of what is compiled for tests only.
const TESTS_ONLY: &str = "#[cfg(test)]";

/// For each line, whether it belongs to an item that is compiled for tests only.
pub(crate) fn test_lines(lines: &[Line]) -> Vec<bool> {
    let mut inside = vec![false; lines.len()];
    let (mut is_item, mut depth) = (false, 0_usize);
    for (line, inside) in lines.iter().zip(&mut inside) {
        let code = line.code.trim();
        let code = match code.strip_prefix(TESTS_ONLY) {
            Some(rest) if !is_item => {
                is_item = true;
                rest.trim()
            }
            _ => code,
        };
        *inside = is_item;
        if !is_item || depth == 0 && (code.is_empty() || code.starts_with("#[")) {
            continue;
        }
        depth += code.matches(['{', '(', '[']).count();
        depth = depth.saturating_sub(code.matches(['}', ')', ']']).count());
        is_item = depth > 0 || !code.ends_with(['}', ';', ',']);
    }
    inside
}

/// The modules that a file declares for tests only, by the paths of their files, without `.rs`.
pub(crate) fn test_modules(path: &str, lines: &[Line]) -> Vec<String> {
    let (folder, file) = path.rsplit_once('/').unwrap_or(("", path));
    let stem = file.trim_end_matches(".rs");
    let below = match stem {
        "lib" | "main" | "mod" => folder.to_owned(),
        _ => format!("{folder}/{stem}"),
    };
    let in_tests = lines.iter().zip(test_lines(lines)).filter(|(_, is_test)| *is_test);
    let names =
        in_tests.filter_map(|(line, _)| line.code.trim().strip_suffix(';')?.split_once("mod "));
    names.map(|(_, name)| format!("{below}/{name}")).collect()
}

/// Consumes the next characters of `rest` (never past a line's end, except for a two-character
/// token).
fn step(
    state: ScanState,
    rest: &[char],
    before: Option<char>,
    line: &mut Line,
) -> (ScanState, usize) {
    let two = |a, b| rest[0] == a && rest.get(1) == Some(&b);
    match state {
        ScanState::LineComment => {
            line.comment.push(rest[0]);
            (state, 1)
        }
        ScanState::BlockComment { depth } if two('*', '/') => match depth {
            1 => (ScanState::Code, 2),
            _ => (ScanState::BlockComment { depth: depth - 1 }, 2),
        },
        ScanState::BlockComment { depth } if two('/', '*') => {
            (ScanState::BlockComment { depth: depth + 1 }, 2)
        }
        ScanState::BlockComment { .. } => {
            line.comment.push(rest[0]);
            (state, 1)
        }
        ScanState::Text { hashes: None } => match rest[0] {
            '\\' if rest.get(1).is_some_and(|&c| c != '\n') => (state, 2),
            '"' => close(line, 1),
            _ => (state, 1),
        },
        ScanState::Text { hashes: Some(n) } => {
            let closes = rest[0] == '"' && rest.len() > n && rest[1..=n].iter().all(|&c| c == '#');
            if closes { close(line, n + 1) } else { (state, 1) }
        }
        ScanState::Code if two('/', '/') => (ScanState::LineComment, 2),
        ScanState::Code if two('/', '*') => (ScanState::BlockComment { depth: 1 }, 2),
        ScanState::Code => code(rest, before, line),
    }
}

fn close(line: &mut Line, taken: usize) -> (ScanState, usize) {
    line.code.push('"');
    (ScanState::Code, taken)
}

fn code(rest: &[char], before: Option<char>, line: &mut Line) -> (ScanState, usize) {
    if rest[0] == '"' {
        line.code.push('"');
        return (ScanState::Text { hashes: None }, 1);
    }
    let starts_word = !before.is_some_and(is_word);
    if starts_word && let Some(hashes) = raw_string(rest) {
        line.code.push('"');
        let prefix = rest.iter().take_while(|&&c| c != '"').count();
        return (ScanState::Text { hashes: Some(hashes) }, prefix + 1);
    }
    if rest[0] == '\''
        && let Some(taken) = character(rest)
    {
        line.code.push_str("' '");
        return (ScanState::Code, taken);
    }
    line.code.push(rest[0]);
    (ScanState::Code, 1)
}

/// The number of hashes, when `rest` opens a raw string (`r"`, `r#"`, `br##"`, `cr"`).
fn raw_string(rest: &[char]) -> Option<usize> {
    let skip = match (rest[0], rest.get(1)) {
        ('r', _) => 1,
        ('b' | 'c', Some('r')) => 2,
        _ => return None,
    };
    let hashes = rest[skip..].iter().take_while(|&&c| c == '#').count();
    (rest.get(skip + hashes) == Some(&'"')).then_some(hashes)
}

/// The length of a character literal; a lifetime gives `None`.
fn character(rest: &[char]) -> Option<usize> {
    match rest.get(1)? {
        '\\' => {
            let end = rest.iter().skip(3).take(12).position(|&c| c == '\'')?;
            Some(3 + end + 1)
        }
        _ if rest.get(2) == Some(&'\'') => Some(3),
        _ => None,
    }
}

/// Whether `c` may stand inside an identifier.
pub(crate) fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Whether `word` stands in `code` on its own, not as a part of a longer identifier.
pub(crate) fn has_word(code: &str, word: &str) -> bool {
    find_word(code, word).is_some()
}

/// The octet offset of the first stand-alone `word` in `code`.
pub(crate) fn find_word(code: &str, word: &str) -> Option<usize> {
    code.match_indices(word).map(|(at, _)| at).find(|&at| {
        let before = code[..at].chars().next_back();
        let after = code[at + word.len()..].chars().next();
        let (first, last) = (word.chars().next(), word.chars().next_back());
        let joined = |edge: Option<char>, neighbour: Option<char>| {
            edge.is_some_and(is_word) && neighbour.is_some_and(is_word)
        };
        !joined(first, before) && !joined(last, after)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code_of(source: &str) -> String {
        scan(source).iter().map(|l| l.code.as_str()).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn comments_leave_the_code() {
        let lines = scan("let a = 1; // unsafe\n/* todo!() /* deep */ still */ b");
        assert_eq!(lines[0].code, "let a = 1; ");
        assert_eq!(lines[0].comment, " unsafe");
        assert_eq!(lines[1].code, " b");
    }

    #[test]
    fn literals_are_emptied() {
        assert_eq!(code_of(r#"f("unsafe \" // x", 'u', '\'', b"x")"#), r#"f("", ' ', ' ', b"")"#);
        assert_eq!(code_of("f(r#\"a \" unsafe\"#, br\"y\")"), "f(\"\", \"\")");
        assert_eq!(code_of("for_r(\"x\")"), "for_r(\"\")");
    }

    #[test]
    fn a_lifetime_is_no_character() {
        assert_eq!(code_of("fn f<'a>(x: &'a str) {}"), "fn f<'a>(x: &'a str) {}");
        assert_eq!(code_of("'\\u{1F600}' + '\\n'"), "' ' + ' '");
    }

    #[test]
    fn strings_run_over_lines() {
        let lines = scan("let s = \"one\nunsafe\n\"; done");
        assert_eq!(lines[1].code, "");
        assert_eq!(lines[2].code, "\"; done");
    }

    #[test]
    fn items_of_tests_are_found_to_their_end() {
        let source = "#[cfg(test)]\nextern crate std;\n#[cfg(test)]\npub(crate) fn f(\n    a: A,\n) -> B \
                      {\n    a\n}\nfn g() {}\n#[cfg(test)]\n#[path = \"b.rs\"]\nmod b;\nstruct S {\n    \
                      #[cfg(test)]\n    steps: u64,\n    other: u64,\n}\n";
        let found = test_lines(&scan(source));
        let own: Vec<_> = source.lines().zip(found).filter(|(_, is)| !is).map(|(l, _)| l).collect();
        assert_eq!(own, ["fn g() {}", "struct S {", "    other: u64,", "}"]);
    }

    #[test]
    fn modules_of_tests_are_found_by_their_files() {
        let lines =
            scan("mod a;\n#[cfg(test)]\npub(crate) mod b;\n#[cfg(test)]\nmod c {\n}\nmod d;\n");
        assert_eq!(test_modules("x/src/lib.rs", &lines), ["x/src/b"]);
        assert_eq!(test_modules("x/src/y.rs", &lines), ["x/src/y/b"]);
        assert_eq!(test_modules("x/src/y/mod.rs", &lines), ["x/src/y/b"]);
    }

    #[test]
    fn lines_inside_a_string_are_told() {
        let inside: Vec<bool> =
            scan("let a = \"x\n// y\n\";\nb").iter().map(|l| l.is_text).collect();
        assert_eq!(inside, [false, true, true, false]);
    }

    #[test]
    fn words_stand_alone() {
        assert!(has_word("x = unsafe {", "unsafe"));
        assert!(!has_word("forbid(unsafe_code)", "unsafe"));
        assert!(!has_word("Instantly", "Instant"));
        assert!(has_word("todo!()", "todo!"));
        assert!(!has_word("strand::x", "rand::"));
        assert!(has_word("use rand::x", "rand::"));
    }
}
