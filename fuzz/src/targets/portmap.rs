//! The port mapper: the codec.

use core::fmt::Debug;
use xk_portmap::universal::Universal;
use xk_portmap::wire::{
    Binding, CallArguments, CallResult, Entry, Mapping, Name, NetBuf, RemoteCallResult, Statistics,
};
use xk_xdr::{Decoder, List, Xdr};

fn keeps<T: Xdr + PartialEq + Debug>(octets: &[u8]) {
    let mut decoder = Decoder::new(octets).strict();
    let Ok(value) = T::decode(&mut decoder) else {
        return;
    };
    let read = octets.len() - decoder.left();
    let written = xk_xdr::to_vec(&value).unwrap_or_default();
    assert_eq!(Some(&*written), octets.get(..read), "{value:?}");
}

/// Reads `data` as everything that a port mapper is sent or sends: what is read is written as the
/// same octets again.
pub(crate) fn wire(data: &[u8]) {
    keeps::<Mapping>(data);
    keeps::<List<Mapping>>(data);
    keeps::<CallArguments>(data);
    keeps::<CallResult>(data);
    keeps::<RemoteCallResult>(data);
    keeps::<Binding>(data);
    keeps::<List<Binding>>(data);
    keeps::<List<Entry>>(data);
    keeps::<NetBuf>(data);
    keeps::<[Statistics; 3]>(data);
    keeps::<Name>(data);
    if let Some(address) = Universal::parse(data) {
        let text = address.emit();
        assert_eq!(Universal::parse(text.as_bytes()), Some(address));
        assert_eq!(Universal::of_socket(&address.to_socket()), Some(address));
    }
}
