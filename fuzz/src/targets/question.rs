//! Questions from another address space: any octets in, no panic, and what can be read is written
//! as a value that is read as the same again.

use xk_catalog::PROTOCOLS;
use xk_core::control::{Handles, QuestionType};
use xk_core::message::{Pool, PoolConfig};
use xk_core::object::ProtocolId;
use xk_core::{ProtocolRef, Reason, SessionRef};

/// The other address space has no objects.
struct Nothing(Pool);

impl Handles for Nothing {
    fn number(&self, _session: &SessionRef) -> Option<u64> {
        None
    }

    fn session(&self, _number: u64) -> Option<SessionRef> {
        None
    }

    fn protocol(&self, _id: ProtocolId) -> Option<ProtocolRef> {
        None
    }

    fn reason(&self, _key: u32) -> Option<&'static Reason> {
        None
    }

    fn pool(&self) -> &Pool {
        &self.0
    }
}

fn nothing() -> Nothing {
    Nothing(Pool::new(&PoolConfig::with_octets_max(1 << 20)).expect("a pool"))
}

fn questions() -> Vec<&'static QuestionType> {
    let own = PROTOCOLS.iter().flat_map(|entry| entry.questions).filter_map(|listed| listed.own);
    let of_domains = xk_netio::QUESTIONS.iter().chain(&xk_registry::QUESTIONS);
    xk_kit::questions::SHARED.iter().chain(own).chain(of_domains).collect()
}

/// For each question whose fields may all be zero: its number and so many zeros.
pub(crate) fn all_zeros() -> Vec<Vec<u8>> {
    let nothing = nothing();
    let zeros = |what: &'static QuestionType| {
        (0..200)
            .map(|len| vec![0; len])
            .find(|zeros| what.read(zeros, &nothing, Vec::new(), |_| ()).is_some())
    };
    let numbered = questions().into_iter().map(zeros).zip(0u8..);
    numbered.filter_map(|(zeros, number)| Some([vec![number], zeros?].concat())).collect()
}

/// Reads `data` as the question whose number, among all that there are, is its first octet.
///
/// # Panics
/// When the law is broken.
pub(crate) fn question(data: &[u8]) {
    let Some((number, octets)) = data.split_first() else {
        return;
    };
    let all = questions();
    let what = all[usize::from(*number) % all.len()];
    let nothing = nothing();
    let written = |octets: &[u8]| {
        what.read(octets, &nothing, Vec::new(), |ask| {
            ask.write(&nothing).expect("what was read holds no objects")
        })
    };
    let Some(first) = written(octets) else {
        return;
    };
    assert!(first.len() <= octets.len(), "{what:?}: longer than what it was read from");
    assert_eq!(written(&first).as_ref(), Some(&first), "{what:?}");
}
