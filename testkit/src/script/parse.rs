//! Reading scripts. See the module above for the language.

use super::segment;
use super::spec::{Act, Bound, Case, Step, Told, When};
use core::fmt;
use core::str::FromStr;
use core::time::Duration;
use std::collections::BTreeMap;
use xk_kit::control::NetworkErrorKind;
use xk_kit::net::stream::{KeepAlive, StreamError, StreamSetting};

/// Text that is no script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// The line, from 1.
    pub line: usize,
    /// The mistake.
    pub what: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

impl std::error::Error for ParseError {}

/// Names of runs of lines that several scripts begin with.
pub type Definitions = BTreeMap<String, Vec<(usize, String)>>;

/// Reads all scripts of a file; its definitions are added to `definitions`, which holds those of
/// files read before.
///
/// # Errors
/// The first line that makes no sense.
pub fn parse(text: &str, definitions: &mut Definitions) -> Result<Vec<Case>, ParseError> {
    let mut cases: Vec<Case> = Vec::new();
    let mut defining: Option<String> = None;
    for (index, raw) in text.lines().enumerate() {
        let line = index + 1;
        let fail = |what: String| ParseError { line, what };
        let content = raw.split('#').next().unwrap_or_default().trim();
        let (word, rest) = split_word(content);
        match word {
            "" => {}
            "define" => {
                defining = Some(rest.to_owned());
                definitions.insert(rest.to_owned(), Vec::new());
            }
            "case" => {
                defining = None;
                cases.push(header(line, rest).map_err(fail)?);
            }
            _ => {
                if let Some(name) = &defining {
                    let lines = definitions.entry(name.clone()).or_default();
                    lines.push((line, content.to_owned()));
                    continue;
                }
                let case = cases
                    .last_mut()
                    .ok_or_else(|| fail("expected `case` or `define` first".to_owned()))?;
                if word != "use" {
                    body(case, line, content).map_err(fail)?;
                    continue;
                }
                let used = definitions
                    .get(rest)
                    .ok_or_else(|| fail(format!("nothing is defined as `{rest}`")))?;
                for (_, content) in used.clone() {
                    body(case, line, &content).map_err(fail)?;
                }
            }
        }
    }
    Ok(cases)
}

pub(super) fn split_word(text: &str) -> (&str, &str) {
    let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    (word, rest.trim())
}

/// `RFC 9293 3.5, RFC 5961 3.2: what it shows`.
fn header(line: usize, text: &str) -> Result<Case, String> {
    let (documents, title) =
        text.split_once(": ").ok_or("expected `case DOCUMENT SECTION, ...: WHAT IT SHOWS`")?;
    let covers = documents.split(',').map(|document| {
        let (name, section) =
            document.trim().rsplit_once(' ').ok_or("expected a document and its section")?;
        Ok((name.to_owned(), section.to_owned()))
    });
    Ok(Case {
        line,
        title: title.trim().to_owned(),
        covers: covers.collect::<Result<_, String>>()?,
        params: Vec::new(),
        mtu: 1500,
        isn: 1_000_000,
        tolerance: Duration::from_millis(1),
        steps: Vec::new(),
    })
}

fn body(case: &mut Case, line: usize, content: &str) -> Result<(), String> {
    let (word, rest) = split_word(content);
    match word {
        "param" => {
            let (name, value) = split_word(rest);
            case.params.push((name.to_owned(), value.to_owned()));
        }
        "isn" => case.isn = number(rest)?,
        "tolerance" => case.tolerance = milliseconds(rest)?,
        "mtu" if case.steps.is_empty() => case.mtu = number(rest)?,
        _ => {
            let (when, rest) = when(content)?;
            case.steps.push(Step { line, text: content.to_owned(), when, act: act(rest)? });
        }
    }
    Ok(())
}

/// `250`, `+250` or `+200..300` at the beginning of a line, in milliseconds; without it, at once.
fn when(content: &str) -> Result<(When, &str), String> {
    let (word, rest) = split_word(content);
    let relative = word.starts_with('+');
    let digits = word.strip_prefix('+').unwrap_or(word);
    if !digits.starts_with(|c: char| c.is_ascii_digit()) {
        let now = When { relative: true, from: Duration::ZERO, to: Duration::ZERO };
        return Ok((now, content));
    }
    let (from, to) = digits.split_once("..").unwrap_or((digits, digits));
    let when = When { relative, from: milliseconds(from)?, to: milliseconds(to)? };
    Ok((when, rest))
}

fn milliseconds(text: &str) -> Result<Duration, String> {
    let ms: f64 = number(text)?;
    Duration::try_from_secs_f64(ms / 1000.0).map_err(|error| format!("`{text}`: {error}"))
}

pub(super) fn number<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("expected a number, not `{text}`"))
}

/// `5`, `>=5`, `<=5`, `5..9` or `*`.
pub(super) fn bound(text: &str) -> Result<Bound, String> {
    Ok(if text == "*" {
        Bound::Any
    } else if let Some(least) = text.strip_prefix(">=") {
        Bound::AtLeast(number(least.trim())?)
    } else if let Some(most) = text.strip_prefix("<=") {
        Bound::AtMost(number(most.trim())?)
    } else if let Some((from, to)) = text.split_once("..") {
        Bound::Between(number(from)?, number(to)?)
    } else {
        Bound::Is(number(text)?)
    })
}

fn act(text: &str) -> Result<Act, String> {
    let (word, rest) = split_word(text);
    Ok(match word {
        "<" => Act::Inject(segment::parse(rest)?),
        ">" => Act::Expect(segment::parse(rest)?),
        "quiet" => Act::Quiet,
        "skip" => Act::Skip,
        "listen" => Act::Listen,
        "unlisten" => Act::Unlisten,
        "room" => match rest {
            "on" => Act::Room(Some((u16::MAX, u32::MAX))),
            "off" => Act::Room(None),
            octets => {
                let (segment, buffer) = split_word(octets);
                let buffer = if buffer.is_empty() { u32::MAX } else { number(buffer)? };
                Act::Room(Some((number(segment)?, buffer)))
            }
        },
        "connect" => Act::Connect,
        "write" => {
            let (octets, fails) = split_word(rest);
            Act::Write(number(octets)?, fails == "fails")
        }
        "read" => Act::Read(number(rest)?),
        "consume" => Act::Consume(number(rest)?),
        "record" => Act::EndRecord,
        "shutdown" => Act::Shutdown,
        "close" => Act::Close,
        "abort" => Act::Abort,
        "set" => {
            let setting = rest.strip_suffix(" fails");
            Act::Set(set(setting.unwrap_or(rest))?, setting.is_none())
        }
        "next" => Act::SetNext(set(rest)?),
        "event" => Act::Event(event(rest)?),
        "state" => Act::State(rest.to_owned()),
        "info" => {
            let (field, figure) = split_word(rest);
            Act::Info(field.to_owned(), bound(figure)?)
        }
        "soft" => Act::Soft(match rest {
            "none" => None,
            _ => Some(stream_error(rest)?),
        }),
        "space" => Act::Space(bound(rest)?),
        "drops" => {
            let (reason, count) = rest.rsplit_once(' ').ok_or("expected `drops REASON COUNT`")?;
            Act::Drops(reason.trim().to_owned(), bound(count)?)
        }
        "flow" => Act::Flow(number(rest)?),
        "new" => Act::New(if rest.is_empty() { 0 } else { number(rest)? }),
        "mtu" => Act::Mtu(number(rest)?),
        "error" => error(rest)?,
        _ => return Err(format!("`{word}` is neither an act nor an expectation")),
    })
}

fn event(text: &str) -> Result<Told, String> {
    Ok(match text {
        "accepted" => Told::Accepted,
        "connected" => Told::Connected,
        "writable" => Told::Writable,
        "eof" => Told::EndOfStream,
        "closed" => Told::Closed,
        _ => match text.strip_prefix("failed ") {
            Some(error) => Told::Failed(stream_error(error)?),
            None => return Err(format!("`{text}` is no event of a stream")),
        },
    })
}

fn stream_error(text: &str) -> Result<StreamError, String> {
    Ok(match text {
        "refused" => StreamError::Refused,
        "reset" => StreamError::Reset,
        "timeout" => StreamError::TimedOut,
        "aborted" => StreamError::Aborted,
        "no buffers" => StreamError::NoBuffers,
        _ => StreamError::Network(
            network_error(text, 0).ok_or_else(|| format!("`{text}` is no error of a stream"))?,
        ),
    })
}

fn set(text: &str) -> Result<StreamSetting, String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let flag = |word: &str| match word {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(format!("expected `on` or `off`, not `{word}`")),
    };
    Ok(match words[..] {
        ["nodelay", word] => StreamSetting::NoDelay(flag(word)?),
        ["cork", word] => StreamSetting::Cork(flag(word)?),
        ["manual_window", word] => StreamSetting::ManualWindow(flag(word)?),
        ["keepalive", "off"] => StreamSetting::KeepAlive(None),
        ["keepalive", idle, interval, probes] => StreamSetting::KeepAlive(Some(KeepAlive {
            idle: milliseconds(idle)?,
            interval: milliseconds(interval)?,
            probes_max: number(probes)?,
        })),
        ["hops", hops] => StreamSetting::Hops(number(hops)?),
        ["class", class] => StreamSetting::Class(Some(number(class)?)),
        ["orphan_timeout", time] => StreamSetting::OrphanTimeout(milliseconds(time)?),
        ["fast_open", word] => StreamSetting::FastOpen(flag(word)?),
        ["fast_open_max", peers] => StreamSetting::FastOpenMax(number(peers)?),
        ["announce_user_timeout", word] => StreamSetting::AnnounceUserTimeout(flag(word)?),
        ["user_timeout", "off"] => StreamSetting::UserTimeout(None),
        ["user_timeout", time] => StreamSetting::UserTimeout(Some(milliseconds(time)?)),
        ["receive_buffer", octets] => StreamSetting::ReceiveBuffer(number(octets)?),
        ["send_buffer", octets] => StreamSetting::SendBuffer(number(octets)?),
        ["unsent_max", octets] => StreamSetting::UnsentMax(number(octets)?),
        ["quick_acks", word] => StreamSetting::QuickAcks(flag(word)?),
        ["segment_max", octets] => StreamSetting::SegmentMax(number(octets)?),
        ["congestion", "newreno"] => StreamSetting::Congestion("newreno".into()),
        ["congestion", "cubic"] => StreamSetting::Congestion("cubic".into()),
        ["congestion", "bbr"] => StreamSetting::Congestion("bbr".into()),
        ["congestion", "nonsense"] => StreamSetting::Congestion("nonsense".into()),
        _ => return Err(format!("`{text}` is no setting of a stream")),
    })
}

/// A report of the network by its name; that a packet is too big, with the octets that would go.
fn network_error(name: &str, mtu: u32) -> Option<NetworkErrorKind> {
    use NetworkErrorKind as Kind;
    let others = [
        Kind::PacketTooBig { mtu },
        Kind::TimeExceeded,
        Kind::ReassemblyTimeExceeded,
        Kind::ParameterProblem,
    ];
    (0..=u8::MAX)
        .map_while(|code| Kind::of_unreachable(code, mtu))
        .chain(others)
        .find(|kind| kind.name().split(' ').eq(name.split('_')))
}

/// `error KIND [MTU] [seq N]`, the kind as [`NetworkErrorKind::name`] with underscores.
fn error(text: &str) -> Result<Act, String> {
    let mut words = text.split_whitespace();
    let name = words.next().unwrap_or_default();
    let mtu = match name {
        "packet_too_big" => number(words.next().unwrap_or_default())?,
        _ => 0,
    };
    let kind =
        network_error(name, mtu).ok_or_else(|| format!("`{name}` is no error of the network"))?;
    let seq = match (words.next(), words.next()) {
        (None, _) => None,
        (Some("seq"), Some(seq)) => Some(number(seq)?),
        _ => return Err("expected `seq NUMBER`".to_owned()),
    };
    Ok(Act::Error(kind, seq))
}

#[cfg(test)]
mod tests;
