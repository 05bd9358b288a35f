use super::*;
use alloc::format;
use alloc::string::String;

/// A table as text: a line for each pair that does something.
fn text<S: Copy + PartialEq + core::fmt::Debug, E: Copy + core::fmt::Debug, A>(
    states: &[S],
    events: &[E],
    table: impl Fn(S, E) -> (S, A),
    is_nothing: impl Fn(&A) -> bool,
) -> String
where
    A: core::fmt::Debug,
{
    let mut text = String::new();
    for &state in states {
        for &event in events {
            let (next, action) = table(state, event);
            if next == state && is_nothing(&action) {
                continue;
            }
            text += &format!("{state:?} {event:?} -> {next:?} {action:?}\n");
        }
    }
    text
}

#[test]
fn the_client_cell_by_cell() {
    use ClientEvent as E;
    use ClientState as S;
    let states = [S::Processing, S::Awaiting, S::Receiving];
    let events = [
        E::Send,
        E::Timeout,
        E::Exhausted,
        E::Ok,
        E::Retry,
        E::Busy,
        E::Refused,
        E::Part,
        E::Whole,
    ];
    let text = text(&states, &events, client, |a| *a == ClientAction::Ignore);
    assert_eq!(
        text,
        "\
Processing Send -> Awaiting Transmit
Processing Part -> Processing Discard
Processing Whole -> Processing Discard
Awaiting Timeout -> Awaiting Resend
Awaiting Exhausted -> Processing TimeOut
Awaiting Ok -> Awaiting Rest
Awaiting Retry -> Awaiting SendMissing
Awaiting Busy -> Awaiting BackOff
Awaiting Refused -> Processing Fail
Awaiting Part -> Receiving Collect
Awaiting Whole -> Processing Deliver
Receiving Timeout -> Receiving AskMissing
Receiving Exhausted -> Processing TimeOut
Receiving Part -> Receiving Collect
Receiving Whole -> Processing Deliver
"
    );
}

#[test]
fn the_server_cell_by_cell() {
    use ServerEvent as E;
    use ServerState as S;
    let states = [
        S::Awaiting,
        S::Receiving,
        S::Probing,
        S::Processing,
        S::Responded,
        S::Discarded,
        S::Forwarded,
    ];
    let events = [
        E::NewPart,
        E::NewWhole,
        E::Part,
        E::Whole,
        E::Verified,
        E::Denied,
        E::Done,
        E::DoneDatagram,
        E::Forward,
        E::Timeout,
        E::Exhausted,
        E::Ok,
        E::Retry,
        E::Refused,
    ];
    // A newer request begins anywhere.
    for state in states {
        assert_eq!(server(state, E::NewPart), (S::Receiving, ServerAction::Begin));
        assert_eq!(server(state, E::NewWhole), (S::Probing, ServerAction::BeginWhole));
    }
    let text = text(&states, &events[2..], server, |a| *a == ServerAction::Ignore);
    assert_eq!(
        text,
        "\
Receiving Part -> Receiving Collect
Receiving Whole -> Probing Complete
Receiving Timeout -> Receiving AskMissing
Receiving Exhausted -> Awaiting Forget
Probing Verified -> Processing Execute
Probing Denied -> Awaiting Forget
Probing Timeout -> Probing Probe
Probing Exhausted -> Awaiting Forget
Processing Part -> Processing Acknowledge
Processing Whole -> Processing Acknowledge
Processing Done -> Responded Respond
Processing DoneDatagram -> Discarded RespondOnce
Processing Forward -> Forwarded PassOn
Responded Part -> Responded Resend
Responded Whole -> Responded Resend
Responded Timeout -> Responded Resend
Responded Exhausted -> Discarded Discard
Responded Ok -> Discarded Discard
Responded Retry -> Responded SendMissing
Responded Refused -> Discarded Discard
Discarded Part -> Discarded Gone
Discarded Whole -> Discarded Gone
Forwarded Part -> Forwarded Acknowledge
Forwarded Whole -> Forwarded Acknowledge
Forwarded Timeout -> Forwarded PassAgain
Forwarded Exhausted -> Discarded Discard
Forwarded Retry -> Forwarded SendMissing
Forwarded Refused -> Discarded Discard
"
    );
}
