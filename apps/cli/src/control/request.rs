//! Requests of a client, one line of JSON each.

use serde_json::Value;

/// Largest number of messages of one trace.
pub(crate) const TRACES_MAX: u64 = 1000;

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// Asks a domain to start what begins by itself: all domains of the host have started.
    Begin,
    /// Asks for the host and its file.
    About,
    /// Everything there is to see.
    Dump,
    /// Whether something is still to be finished.
    Unfinished,
    /// Records all messages from now on.
    Watch,
    /// The number of messages recorded and, at the last look, the records.
    Watched {
        /// The end of it.
        is_last: bool,
    },
    /// The crossings of the next messages through the layers.
    Trace {
        /// Number of messages.
        messages: u64,
    },
    /// The messages that cross an edge from now on.
    Capture {
        /// `UPPER>LOWER`, or `LOWER`.
        edge: String,
    },
    /// The modules of the streams of a line.
    Stream {
        /// The line's name in the graph.
        line: String,
        /// The module to push; empty for none.
        push: String,
        /// Whether the topmost module is popped.
        pops: bool,
    },
    /// The devices, ports and states that another process needs to go on in this one's place.
    Upgrade,
    /// The descriptor of a device.
    Device {
        /// The name of the protocol that has it; without one it is the control socket.
        name: Option<String>,
    },
    /// The states of all sessions, which stop.
    HandOver,
    /// The states have been taken: the other process goes on.
    Taken,
}

impl Request {
    /// Reads a line.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub(crate) fn parse(line: &str) -> Result<Self, String> {
        let request = serde_json::from_str::<Value>(line)
            .map_err(|_| "a request is one line of JSON of at most 4096 octets")?;
        match request["ask"].as_str() {
            Some("begin") => Ok(Self::Begin),
            Some("about") => Ok(Self::About),
            Some("dump") => Ok(Self::Dump),
            Some("unfinished") => Ok(Self::Unfinished),
            Some("watch") => Ok(Self::Watch),
            Some("watched") => Ok(Self::Watched { is_last: request["last"] == true }),
            Some("upgrade") => Ok(Self::Upgrade),
            Some("device") => Ok(Self::Device { name: request["name"].as_str().map(Into::into) }),
            Some("hand-over") => Ok(Self::HandOver),
            Some("taken") => Ok(Self::Taken),
            Some("trace") => {
                let messages = match &request["messages"] {
                    Value::Null => Some(1),
                    number => number.as_u64(),
                };
                let messages = messages.filter(|count| (1..=TRACES_MAX).contains(count));
                let messages =
                    messages.ok_or_else(|| format!("a trace has 1 to {TRACES_MAX} messages"))?;
                Ok(Self::Trace { messages })
            }
            Some("stream") => {
                let text = |name: &str| request[name].as_str().unwrap_or_default().to_owned();
                let pops = request["pops"] == true;
                Ok(Self::Stream { line: text("line"), push: text("push"), pops })
            }
            Some("capture") => {
                let edge = request["edge"].as_str().unwrap_or_default();
                Ok(Self::Capture { edge: edge.into() })
            }
            Some(other) => Err(format!("no request `{other}`; there are dump, trace, capture")),
            None => Err("a request has a field `ask`: dump, trace or capture".into()),
        }
    }
}
