//! Lines as rustfmt breaks them.

/// Columns of a line.
const WIDTH_MAX: usize = 100;
/// Columns of the arguments of a call that stand on one line.
const CALL_MAX: usize = 60;
/// Columns of arguments that are so short that several stand on each line.
const SHORT_MAX: usize = 10;

/// A function's head: `front(parameters) -> result end`, on one line or with a line for each
/// parameter.
pub(super) fn head(indent: usize, front: &str, parameters: &[String], end: &str) -> String {
    let pad = " ".repeat(indent);
    let one = format!("{pad}{front}({}){end}", parameters.join(", "));
    // What rustfmt does to a head without a body that fills the line to its end.
    if one.len() == WIDTH_MAX && end.ends_with(';') {
        let (parameters, result) = (parameters.join(", "), end.trim_start());
        return format!("{pad}{front}({parameters})\n{pad}{result}");
    }
    if one.len() <= WIDTH_MAX {
        return one;
    }
    one_each(&pad, front, parameters, end)
}

fn one_each(pad: &str, front: &str, items: &[String], end: &str) -> String {
    let lines: String = items.iter().map(|i| format!("{pad}    {i},\n")).collect();
    format!("{pad}{front}(\n{lines}{pad}){end}")
}

/// A call: `front(arguments)end`, on one line or with a line for each argument.
pub(super) fn call(indent: usize, front: &str, arguments: &[String], end: &str) -> String {
    let pad = " ".repeat(indent);
    let inside = arguments.join(", ");
    let one = format!("{pad}{front}({inside}){end}");
    if inside.len() <= CALL_MAX && one.len() <= WIDTH_MAX {
        return one;
    }
    if arguments.iter().all(|a| a.len() <= SHORT_MAX) {
        return filled(&pad, front, arguments, end);
    }
    one_each(&pad, front, arguments, end)
}

/// As many on each line as it holds.
fn filled(pad: &str, front: &str, items: &[String], end: &str) -> String {
    let mut lines = vec![String::new()];
    for item in items {
        let last = lines.last().map_or(0, String::len);
        // A blank before it and a comma behind it, and one column that rustfmt keeps free.
        if last > 0 && pad.len() + 4 + last + 1 + item.len() + 1 >= WIDTH_MAX {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(item);
            line.push(',');
        }
    }
    let lines: String = lines.iter().map(|l| format!("{pad}    {l}\n")).collect();
    format!("{pad}{front}(\n{lines}{pad}){end}")
}

/// An arm of a `match`: on one line, or with a block.
pub(super) fn arm(indent: usize, pattern: &str, value: &str) -> String {
    let pad = " ".repeat(indent);
    let one = format!("{pad}{pattern} => {value},");
    if one.len() <= WIDTH_MAX {
        return one;
    }
    format!("{pad}{pattern} => {{\n{pad}    {value}\n{pad}}}")
}

/// A definition: `front = value;`, on one line or on two.
pub(super) fn definition(front: &str, value: &str) -> String {
    let one = format!("{front} = {value};");
    if one.len() <= WIDTH_MAX {
        return one;
    }
    format!("{front} =\n    {value};")
}
