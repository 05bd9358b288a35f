//! The state machines (RFC 1045, sections 4 and 5) as tables: a state and an event give the next
//! state and an action.

/// State of a client's transaction (section 4.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ClientState {
    /// The client processes: no transaction is under way.
    #[default]
    Processing,
    /// The request was sent, nothing of the response has come.
    Awaiting,
    /// A part of the response has come.
    Receiving,
}

/// Event of a client's transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientEvent {
    /// The user sends a request.
    Send,
    /// The timer goes off.
    Timeout,
    /// The timer goes off for the last time.
    Exhausted,
    /// The server has the request.
    Ok,
    /// The server lacks parts of the request.
    Retry,
    /// The server cannot take the request now.
    Busy,
    /// The server will not answer.
    Refused,
    /// A part of the response comes, and others are missing.
    Part,
    /// The last part of the response comes.
    Whole,
}

/// Action of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientAction {
    /// Nothing.
    Ignore,
    /// Send the request.
    Transmit,
    /// Send the request, or a question about it, again.
    Resend,
    /// Ask for the missing parts of the response.
    AskMissing,
    /// Fail: no sign of life.
    TimeOut,
    /// Wait from the beginning.
    Rest,
    /// Send the parts that are missing.
    SendMissing,
    /// Wait longer.
    BackOff,
    /// Fail, as the server says.
    Fail,
    /// Keep the part.
    Collect,
    /// Give the response to the user.
    Deliver,
    /// Tell the server, if it asks, that the response is not wanted any more.
    Discard,
}

/// The table of the client.
#[inline]
pub(crate) fn client(state: ClientState, event: ClientEvent) -> (ClientState, ClientAction) {
    use ClientAction::*;
    use ClientEvent as E;
    use ClientState::*;
    match (state, event) {
        (Processing, E::Send) => (Awaiting, Transmit),
        (Awaiting, E::Timeout) => (Awaiting, Resend),
        (Receiving, E::Timeout) => (Receiving, AskMissing),
        (Awaiting | Receiving, E::Exhausted) => (Processing, TimeOut),
        (Awaiting, E::Ok) => (Awaiting, Rest),
        (Awaiting, E::Retry) => (Awaiting, SendMissing),
        (Awaiting, E::Busy) => (Awaiting, BackOff),
        (Awaiting, E::Refused) => (Processing, Fail),
        (Awaiting | Receiving, E::Part) => (Receiving, Collect),
        (Awaiting | Receiving, E::Whole) => (Processing, Deliver),
        (Processing, E::Part | E::Whole) => (Processing, Discard),
        // Of a request that the server has answered already nothing more is to be said.
        (Receiving, E::Ok | E::Retry | E::Busy | E::Refused) => (Receiving, Ignore),
        (Processing, _) => (Processing, Ignore),
        (state, E::Send) => (state, Ignore),
    }
}

/// State of a record of a remote client (section 5.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ServerState {
    /// Nothing of the next request has come, and nothing is kept.
    #[default]
    Awaiting,
    /// Parts of a request are missing.
    Receiving,
    /// The request is whole; the client is asked whether it is its current one.
    Probing,
    /// The request is executed.
    Processing,
    /// The response is kept for the client.
    Responded,
    /// The response was acknowledged or given up.
    Discarded,
    /// Another server answers.
    Forwarded,
}

/// Event of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerEvent {
    /// A part of a newer request comes, and others are missing.
    NewPart,
    /// A newer request comes whole.
    NewWhole,
    /// A part of the current request comes.
    Part,
    /// The last missing part of the current request comes.
    Whole,
    /// The client says that the request is its current one.
    Verified,
    /// The client says that it is not.
    Denied,
    /// The request was executed, and its response is kept.
    Done,
    /// The request was executed, and its response is not kept.
    DoneDatagram,
    /// The request was passed on.
    Forward,
    /// The timer goes off.
    Timeout,
    /// The timer goes off for the last time.
    Exhausted,
    /// The client has the response, or the other server the request.
    Ok,
    /// Parts of the message are missing there.
    Retry,
    /// The message is not wanted there.
    Refused,
}

/// Action of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerAction {
    /// Nothing; the packet is dropped as one that came before.
    Ignore,
    /// Forget the request before, and keep the first part of this one.
    Begin,
    /// Forget the request before; have this one executed, if its client is known.
    BeginWhole,
    /// Keep the part.
    Collect,
    /// Have the request executed, if its client is known.
    Complete,
    /// Have the request executed.
    Execute,
    /// Forget the request.
    Forget,
    /// Send the response, and keep it.
    Respond,
    /// Send the response, and forget it.
    RespondOnce,
    /// Send the request to another server.
    PassOn,
    /// Send the request to the other server again.
    PassAgain,
    /// Send the response again.
    Resend,
    /// Send the parts of the response that are missing.
    SendMissing,
    /// Tell the client that its request is there.
    Acknowledge,
    /// Tell the client what is missing.
    AskMissing,
    /// Ask the client again whether the request is its current one.
    Probe,
    /// Drop the response.
    Discard,
    /// Tell the client that the response is gone.
    Gone,
}

/// The table of the server.
#[inline]
pub(crate) fn server(state: ServerState, event: ServerEvent) -> (ServerState, ServerAction) {
    use ServerAction::*;
    use ServerEvent as E;
    use ServerState::*;
    match (state, event) {
        (_, E::NewPart) => (Receiving, Begin),
        (_, E::NewWhole) => (Probing, BeginWhole),
        (Receiving, E::Part) => (Receiving, Collect),
        (Receiving, E::Whole) => (Probing, Complete),
        (Receiving, E::Timeout) => (Receiving, AskMissing),
        (Receiving | Probing, E::Exhausted) => (Awaiting, Forget),
        (Probing, E::Verified) => (Processing, Execute),
        (Probing, E::Denied) => (Awaiting, Forget),
        (Probing, E::Timeout) => (Probing, Probe),
        (Processing, E::Done) => (Responded, Respond),
        (Processing, E::DoneDatagram) => (Discarded, RespondOnce),
        (Processing, E::Forward) => (Forwarded, PassOn),
        (Processing | Forwarded, E::Part | E::Whole) => (state, Acknowledge),
        (Responded, E::Part | E::Whole | E::Timeout) => (Responded, Resend),
        (Responded, E::Retry) => (Responded, SendMissing),
        (Responded, E::Ok | E::Refused | E::Exhausted) => (Discarded, Discard),
        (Discarded, E::Part | E::Whole) => (Discarded, Gone),
        (Forwarded, E::Timeout) => (Forwarded, PassAgain),
        (Forwarded, E::Retry) => (Forwarded, SendMissing),
        (Forwarded, E::Refused | E::Exhausted) => (Discarded, Discard),
        _ => (state, Ignore),
    }
}

#[cfg(test)]
mod tests;
