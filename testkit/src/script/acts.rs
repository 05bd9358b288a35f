//! Acts of the application, and the events that it must see, line by line.

use super::flow::{OWN_PORT, own_octet};
use super::run::{PEER, Run, check};
use super::spec::{Act, Told};
use core::time::Duration;
use xk_core::{Part, Participant, Participants, SessionRef, Upper};
use xk_kit::control::{NetworkError, NetworkErrorKind, Start};
use xk_kit::net::stream::{
    StreamAbort, StreamConsumed, StreamEcn, StreamEndRecord, StreamInfo, StreamSet, StreamSetNext,
    StreamSetting, StreamShutdown, StreamSoftError, StreamSpace,
};

impl Run<'_> {
    pub(super) fn application(&mut self, act: &Act) -> Result<(), String> {
        match act {
            Act::Listen => {
                let port = Participants::local(Part::port(OWN_PORT));
                let upper = Upper::new(&self.app.protocol);
                let enable = self.under_test.open_enable(&self.cx, upper, port);
                self.enable = Some(enable.map_err(|error| format!("open_enable: {error}"))?);
                Ok(())
            }
            Act::Unlisten => {
                if let Some(enable) = self.enable.take() {
                    self.under_test.open_disable(&self.cx, enable);
                }
                Ok(())
            }
            Act::Room(room) => {
                self.app.set_room(*room);
                Ok(())
            }
            Act::Connect => {
                let peer = Participant::of(Part::host(PEER)).with(Part::port(self.flow().port));
                let participants = Participants::pair(Part::port(OWN_PORT), peer);
                let upper = Upper::new(&self.app.protocol);
                let session = self.under_test.open(&self.cx, upper, participants);
                self.flow().session = Some(session.map_err(|error| format!("open: {error}"))?);
                Ok(())
            }
            Act::Event(expected) => self.event(*expected),
            Act::Set(setting, taken) => self.set(*setting, *taken),
            Act::SetNext(setting) => self.set_next(*setting),
            Act::State(expected) => {
                let state = self.state();
                check(state == *expected, || format!("the state is {state}"))
            }
            _ => {
                let session = self.session()?;
                self.on_session(&session, act)
            }
        }
    }

    fn on_session(&mut self, session: &SessionRef, act: &Act) -> Result<(), String> {
        let unknown = || "the session does not know the question".to_owned();
        match act {
            Act::Write(count, fails) => return self.write(session, *count, *fails),
            Act::Read(count) => {
                self.collect()?;
                let flow = self.flow();
                let new = flow.delivered - flow.read;
                flow.read = flow.delivered;
                return check(new == *count, || format!("{new} octets have come up"));
            }
            Act::Consume(octets) => {
                let consumed = StreamConsumed { octets: *octets };
                session.ask(&self.cx, consumed).ok_or_else(unknown)?;
            }
            Act::EndRecord => {
                session.ask(&self.cx, StreamEndRecord).ok_or_else(unknown)?;
            }
            Act::Shutdown => {
                session.ask(&self.cx, StreamShutdown).ok_or_else(unknown)?;
            }
            Act::Close => {
                self.flow().released = true;
                session.close(&self.cx);
            }
            Act::Abort => {
                session.ask(&self.cx, StreamAbort).ok_or_else(unknown)?;
            }
            Act::Info(field, bound) => {
                let info = session.ask(&self.cx, StreamInfo::default()).ok_or_else(unknown)?;
                let figure = figure(&info, field)?;
                return check(bound.allows(figure), || format!("{field} is {figure}"));
            }
            Act::Soft(expected) => {
                let soft = session.ask(&self.cx, StreamSoftError::default()).ok_or_else(unknown)?;
                return check(soft.error == *expected, || {
                    format!("the soft error is {:?}", soft.error)
                });
            }
            Act::Space(bound) => {
                let space = session.ask(&self.cx, StreamSpace::default()).ok_or_else(unknown)?;
                let octets = space.octets;
                return check(bound.allows(u64::from(octets)), || {
                    format!("it takes {octets} octets")
                });
            }
            _ => {}
        }
        Ok(())
    }

    fn write(&mut self, session: &SessionRef, count: u32, fails: bool) -> Result<(), String> {
        let start = self.flow().pushed;
        let data: Vec<u8> = (start..start + u64::from(count)).map(own_octet).collect();
        let message = self.cx.message(&data);
        // Before the push: what it sends is compared with what was written.
        self.flow().pushed += u64::from(count);
        match (session.push(&self.cx, message), fails) {
            (Ok(()), false) => Ok(()),
            (Err(_), true) => {
                self.flow().pushed = start;
                Ok(())
            }
            (Ok(()), true) => Err("it was taken".to_owned()),
            (Err(error), false) => Err(format!("it was not taken: {error:?}")),
        }
    }

    fn set_next(&self, setting: StreamSetting) -> Result<(), String> {
        let taken = false;
        let question = StreamSetNext { set: StreamSet { setting, taken } };
        let answer = self.under_test.ask(&self.cx, question);
        check(answer.is_some_and(|answer| answer.set.taken), || "it is not taken".to_owned())
    }

    fn set(&mut self, setting: StreamSetting, taken: bool) -> Result<(), String> {
        let question = StreamSet { setting, taken: false };
        let answer = match self.flow().session.clone() {
            Some(session) => session.ask(&self.cx, question),
            None => self.under_test.ask(&self.cx, question),
        };
        let answer = answer.ok_or_else(|| "nobody knows the setting".to_owned())?;
        check(answer.taken == taken, || format!("taken is {}", answer.taken))
    }

    fn state(&mut self) -> String {
        let Some(session) = self.flow().session.clone() else {
            return "CLOSED".to_owned();
        };
        let info = session.ask(&self.cx, StreamInfo::default());
        info.map_or("CLOSED".to_owned(), |info| info.state.to_string())
    }

    fn event(&mut self, expected: Told) -> Result<(), String> {
        let session = self.session()?;
        match self.app.next_of(session.id()) {
            Some(told) if told == expected => Ok(()),
            Some(told) => Err(format!("the application was told {told:?}")),
            None => Err("the application was told nothing".to_owned()),
        }
    }

    pub(super) fn network_error(
        &mut self,
        kind: NetworkErrorKind,
        seq: Option<u32>,
    ) -> Result<(), String> {
        let flow = self.flow();
        let (session, mut start) = flow.last.clone().ok_or("nothing was sent yet")?;
        if let Some(seq) = seq {
            let seq = flow.own_isn.unwrap_or(0).wrapping_add(seq);
            start[4..8].copy_from_slice(&seq.to_be_bytes());
        }
        let start = Start::new(&start);
        let error = NetworkError { session: Some(session), start, ..NetworkError::new(kind) };
        let _ = self.under_test.ask(&self.cx, error);
        Ok(())
    }
}

fn figure(info: &StreamInfo, field: &str) -> Result<u64, String> {
    let ms = |time: Duration| time.as_millis() as u64;
    Ok(match field {
        "segment" => info.segment.into(),
        "srtt_ms" => info.round_trip.map_or(0, |(srtt, _)| ms(srtt)),
        "rttvar_ms" => info.round_trip.map_or(0, |(_, variation)| ms(variation)),
        "timeout_ms" => ms(info.timeout),
        "congestion_window" => info.congestion_window.into(),
        "threshold" => info.threshold.into(),
        "peer_window" => info.peer_window.into(),
        "in_flight" => info.in_flight.into(),
        "unsent" => info.unsent.into(),
        "retransmissions" => info.retransmissions,
        "acknowledged" => info.acknowledged,
        "delivered" => info.delivered,
        "recovery" => info.detail.recovery as u64,
        "timeouts" => info.detail.timeouts.into(),
        "probes" => info.detail.probes.into(),
        "outstanding" => info.detail.outstanding.into(),
        "sacked" => info.detail.sacked.into(),
        "lost" => info.detail.lost.into(),
        "resent" => info.detail.resent.into(),
        "since_sent_ms" => ms(info.detail.since_sent),
        "since_received_ms" => ms(info.detail.since_received),
        "since_heard_ms" => ms(info.detail.since_heard),
        "octets_resent" => info.detail.octets_resent,
        "duplicates" => info.detail.duplicates.into(),
        "reordered" => info.detail.reordered.into(),
        "out_of_order" => info.detail.out_of_order.into(),
        "window" => info.detail.window.into(),
        "marked" => info.marked,
        "marked_sent" => info.marked_sent,
        "octets_ect0" => info.detail.marks.capable_zero,
        "octets_ce" => info.detail.marks.experienced,
        "octets_ect1" => info.detail.marks.capable_one,
        "octets_ect0_sent" => info.detail.marks_sent.capable_zero,
        "octets_ce_sent" => info.detail.marks_sent.experienced,
        "octets_ect1_sent" => info.detail.marks_sent.capable_one,
        "accurate_ecn" => (info.ecn == StreamEcn::Accurate).into(),
        "fast_open" => info.fast_open.into(),
        _ => return Err(format!("there is no figure `{field}`")),
    })
}
