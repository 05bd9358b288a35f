//! Fields of the uniform interface itself: participants, and the results of an operation besides
//! success.

use super::{Field, Reader, Writer};
use crate::fields;
use crate::object::{
    CallCause, CallError, Enable, OpenError, ProtocolId, PushError, Rejection, SessionId,
};
use crate::participant::{
    AddressError, Label, PARTICIPANTS_MAX, PARTS_MAX, Part, Participant, Participants,
};

impl Field for Label {
    fn put(&self, out: &mut Writer<'_>) {
        out.put_text(self.as_str());
    }

    fn take(from: &mut Reader<'_>) -> Option<Self> {
        Self::parse(from.text(12)?)
    }
}

fields!(
    enum Part {
        Any = 0,
        Number(label, number) = 1,
        Ether(address) = 2,
        Host(host) = 3,
    }
);

/// The parts from the bottom up.
impl Field for Participant {
    fn put(&self, out: &mut Writer<'_>) {
        // More than `PARTS_MAX` were refused (`Participants::check`), or are by the reader.
        (self.len().min(PARTS_MAX + 1) as u8).put(out);
        let parts: smallvec::SmallVec<[&Part; 4]> = self.parts().collect();
        parts.iter().rev().for_each(|part| part.put(out));
    }

    fn take(from: &mut Reader<'_>) -> Option<Self> {
        let count = usize::from(u8::take(from)?);
        let mut participant = Self::new();
        for _ in 0..count {
            participant.push(Part::take(from)?);
        }
        (count <= PARTS_MAX).then_some(participant)
    }
}

impl Field for Participants {
    fn put(&self, out: &mut Writer<'_>) {
        (self.len().min(PARTICIPANTS_MAX + 1) as u8).put(out);
        self.iter().for_each(|participant| participant.put(out));
    }

    fn take(from: &mut Reader<'_>) -> Option<Self> {
        let count = usize::from(u8::take(from)?);
        let mut all = Self::default();
        for _ in 0..count {
            all.push(Participant::take(from)?);
        }
        (count <= PARTICIPANTS_MAX).then_some(all)
    }
}

fields!(Enable(number));
fields!(ProtocolId(number));
fields!(SessionId(number));

fields!(
    enum AddressError {
        Missing = 0,
        WrongFamily = 1,
        Wildcard = 2,
        OutOfRange = 3,
        Count = 4,
    }
);

fields!(
    enum OpenError {
        NotSupported = 0,
        Address(error) = 1,
        NoTypeNumber = 2,
        InUse = 3,
        NoRoute = 4,
        Full = 5,
        NoLower = 6,
        NoBuffers = 7,
        NotPermitted = 8,
        NoAnswer = 9,
    }
);

fields!(
    enum PushError {
        Closed = 0,
        TooBig = 1,
        NoBuffers = 2,
        QueueFull = 3,
        NoRoute = 4,
        Unreachable = 5,
        NotSupported = 6,
    }
);

fields!(Rejection { reason, versions });

fields!(enum CallCause {
    Closed = 0, Cancelled = 1, TimedOut { tries } = 2, Rebooted = 3, Rejected(rejection) = 4,
    BadReply = 5, NoShepherds = 6, Push(error) = 7, NobodyThere = 8, NotSupported = 9,
});

fields!(CallError { cause, layer });

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::field::tests::lone;
    use crate::reason::PROHIBITED;
    use alloc::vec;
    use alloc::vec::Vec;

    /// Checks that a written value is read again, and that no shorter or longer one is.
    fn crosses<T: Field + PartialEq + core::fmt::Debug>(value: T) {
        let handles = lone(true);
        let mut out = Writer::new(&handles);
        value.put(&mut out);
        let octets = out.finish().unwrap();
        let read = |octets: &[u8]| {
            let mut from = Reader::new(octets, &handles);
            T::take(&mut from).filter(|_| from.is_empty())
        };
        assert_eq!(read(&octets), Some(value));
        assert!((0..octets.len()).all(|end| read(&octets[..end]).is_none()));
        assert!(read(&[&octets, &[0][..]].concat()).is_none());
    }

    #[test]
    fn participants_and_errors_cross() {
        let local: Participants =
            "port7@10.0.0.1, *@02:00:00:00:00:01, [fe80::1%3]".parse().unwrap();
        crosses(local);
        crosses(Participants::default());
        crosses(Enable(u64::MAX));
        crosses(vec![OpenError::Full, OpenError::Address(AddressError::Wildcard)]);
        crosses(vec![PushError::TooBig, PushError::NotSupported]);
        let rejection = Rejection { reason: &PROHIBITED, versions: Some((2, 3)) };
        let layer = Some(ProtocolId(4));
        for cause in [
            CallCause::Rejected(rejection),
            CallCause::TimedOut { tries: 8 },
            CallCause::Push(PushError::NoRoute),
        ] {
            crosses(CallError { cause, layer });
        }
    }

    #[test]
    fn more_parts_than_there_are_layers_are_refused() {
        let mut octets: Vec<u8> = vec![1, PARTS_MAX as u8 + 1];
        octets.resize(2 + PARTS_MAX + 1, 0);
        let handles = lone(true);
        assert_eq!(Participants::take(&mut Reader::new(&octets, &handles)), None);
    }
}
