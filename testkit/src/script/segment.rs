//! The text form of segments.

use super::parse::{bound, number, split_word};
use super::spec::{Number, OptionSpec, OptionsSpec, SegmentSpec};
use super::wire::{FAST_OPEN, FLAGS, TcpOption};

/// In expected flags: ACK may be there or not.
pub(super) const ACK_OPEN: u16 = 0x8000;
/// In expected flags: PSH is not there.
pub(super) const NO_PSH: u16 = 0x4000;

/// Reads `FLAGS [SEQ[:END]] [ack N] [win N] [urg N] [<OPTIONS>] ...`.
///
/// # Errors
/// What makes no sense.
pub(super) fn parse(text: &str) -> Result<SegmentSpec, String> {
    // `<=` is a bound, not the beginning of the options.
    let begin = text.match_indices('<').find(|(at, _)| !text[at + 1..].starts_with('='));
    let (before, options, after) = match begin {
        Some((at, _)) => {
            let (options, after) = text[at + 1..].split_once('>').ok_or("`<` without its `>`")?;
            (&text[..at], Some(parse_options(options)?), after)
        }
        None => (text, None, ""),
    };
    let (letters, rest) = split_word(before.trim());
    let mut spec = SegmentSpec { flags: flags(letters)?, options, ..SegmentSpec::default() };
    if spec.flags.is_some() {
        spec.octets = Some(0);
    }
    let text = format!("{rest} {after}");
    let mut words = text.split_whitespace().peekable();
    if let Some(first) =
        words.next_if(|word| word.starts_with(|c: char| c == '*' || c.is_ascii_digit()))
    {
        sequence(&mut spec, first)?;
    }
    while let Some(word) = words.next() {
        if word == "corrupt" {
            spec.corrupt = true;
            continue;
        }
        let value = words.next().ok_or_else(|| format!("expected something behind `{word}`"))?;
        match word {
            "ack" => spec.ack = relative(value)?,
            "win" => spec.window = bound(value)?,
            "urg" => spec.urgent = Some(number(value)?),
            "ecn" => spec.ecn = Some(ecn(value)?),
            "hops" => spec.hops = Some(number(value)?),
            "class" => spec.class = Some(number(value)?),
            "fill" => {
                let octet = u8::from_str_radix(value, 16);
                spec.fill = Some(octet.map_err(|_| format!("`{value}` is no octet"))?);
            }
            "offset" => spec.offset = Some(number(value)?),
            "cut" => spec.cut = Some(number(value)?),
            "to" => spec.to = Some(number(value)?),
            "from" => spec.from = Some(number(value)?),
            _ => return Err(format!("`{word}` says nothing about a segment")),
        }
    }
    Ok(spec)
}

/// `0`, `1:1001`, `1:*` (any length), or `*` (any number and length).
fn sequence(spec: &mut SegmentSpec, text: &str) -> Result<(), String> {
    if text == "*" {
        spec.seq = Number::Any;
        spec.octets = None;
        return Ok(());
    }
    let (start, end) = text.split_once(':').unwrap_or((text, text));
    if end == "*" {
        spec.seq = Number::Is(number(start)?);
        spec.octets = None;
        return Ok(());
    }
    let (start, end): (u32, u32) = (number(start)?, number(end)?);
    spec.seq = Number::Is(start);
    spec.octets = Some(end.wrapping_sub(start));
    Ok(())
}

fn relative(text: &str) -> Result<Number, String> {
    Ok(match text {
        "*" => Number::Any,
        "all" => Number::Next,
        _ => Number::Is(number(text)?),
    })
}

fn ecn(text: &str) -> Result<u8, String> {
    Ok(match text {
        "no" => 0,
        "ect1" => 1,
        "ect0" => 2,
        "ce" => 3,
        _ => return Err(format!("`{text}` is neither `no`, `ect0`, `ect1` nor `ce`")),
    })
}

fn flags(letters: &str) -> Result<Option<u16>, String> {
    if letters == "*" {
        return Ok(None);
    }
    let mut flags = 0;
    if letters == "-" {
        return Ok(Some(flags));
    }
    for letter in letters.chars() {
        if let Some((_, bit)) = [('~', ACK_OPEN), ('p', NO_PSH)].iter().find(|l| l.0 == letter) {
            flags |= bit;
            continue;
        }
        let (bit, _) = FLAGS
            .iter()
            .find(|(_, name)| *name == letter)
            .ok_or_else(|| format!("`{letter}` is no flag: those are SFRPUEWA and `.` for ACK"))?;
        flags |= bit;
    }
    if letters.is_empty() {
        return Err("expected the segment's flags".to_owned());
    }
    Ok(Some(flags))
}

fn parse_options(text: &str) -> Result<OptionsSpec, String> {
    let mut options = OptionsSpec::default();
    for piece in text.split(',').map(str::trim) {
        match piece {
            "" => {}
            "..." => options.others = true,
            _ => options.list.push(option(piece)?),
        }
    }
    Ok(options)
}

/// The kind that an option's name stands for.
fn kind(name: &str) -> Result<u8, String> {
    Ok(match name {
        "mss" => 2,
        "ws" => 3,
        "sack_ok" => 4,
        "sack" => 5,
        "ts" => 8,
        "uto" => 28,
        "fastopen" => FAST_OPEN,
        "accecn0" => 172,
        "accecn1" => 174,
        _ => return Err(format!("`{name}` is no option")),
    })
}

fn option(text: &str) -> Result<OptionSpec, String> {
    if let Some(name) = text.strip_prefix('!') {
        return Ok(OptionSpec::Absent(kind(name)?));
    }
    let words: Vec<&str> = text.split_whitespace().collect();
    let open = |word: &str| match word {
        "*" => Ok(None),
        _ => number(word).map(Some),
    };
    Ok(OptionSpec::Is(match words[..] {
        ["nop"] => TcpOption::Nop,
        ["eol"] => TcpOption::End,
        ["sack_ok"] => TcpOption::SackOk,
        ["fastopen"] => TcpOption::Raw(vec![FAST_OPEN, 2]),
        ["fastopen", "last"] => return Ok(OptionSpec::LastCookie),
        ["ts", value, echo] => return Ok(OptionSpec::Times(open(value)?, open(echo)?)),
        [name, "*"] => return Ok(OptionSpec::Kind(kind(name)?)),
        ["mss", mss] => TcpOption::Mss(number(mss)?),
        ["ws", shift] => TcpOption::Scale(number(shift)?),
        ["uto", time] => TcpOption::UserTimeout(number(time)?),
        ["fastopen", cookie] => {
            let cookie = hexadecimal(cookie)?;
            TcpOption::Raw([&[FAST_OPEN, 2 + cookie.len() as u8], &cookie[..]].concat())
        }
        [name @ ("accecn0" | "accecn1"), ref fields @ ..] => {
            let mut raw = vec![kind(name)?, 2 + 3 * fields.len() as u8];
            for field in fields {
                raw.extend(&number::<u32>(field)?.to_be_bytes()[1..]);
            }
            TcpOption::Raw(raw)
        }
        ["raw", octets] => TcpOption::Raw(hexadecimal(octets)?),
        ["sack", ref blocks @ ..] if !blocks.is_empty() => {
            let block = |text: &&str| {
                let (start, end) = text.split_once(':').ok_or("expected `sack START:END`")?;
                Ok((number(start)?, number(end)?))
            };
            TcpOption::Sack(blocks.iter().map(block).collect::<Result<_, String>>()?)
        }
        _ => return Err(format!("`{text}` is no option")),
    }))
}

fn hexadecimal(text: &str) -> Result<Vec<u8>, String> {
    let pair = |at: usize| {
        text.get(at..at + 2)
            .and_then(|pair| u8::from_str_radix(pair, 16).ok())
            .ok_or_else(|| format!("`{text}` is not hexadecimal"))
    };
    (0..text.len()).step_by(2).map(pair).collect()
}
