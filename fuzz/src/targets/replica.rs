//! Replicas: requests, replies, messages among them, and snapshots of their state.

use xk_replica::store::{SNAPSHOT_MAX, Store};
use xk_replica::wire::{Reply, Request, Told};

/// Reads `data` as each of them, writes it again and compares.
pub(crate) fn wire(data: &[u8]) {
    if let Ok(request) = Request::parse(data) {
        assert_eq!(request.emit(), data, "the request changed");
        // A client that is not known begins with a get.
        let mut store = Store::default();
        let first = store.execute(&request);
        assert_eq!(store.execute(&request), first, "executed twice");
        assert_eq!(Store::restore(&store.snapshot()), Ok(store));
    }
    if let Ok(reply) = Reply::parse(data) {
        assert_eq!(reply.emit(), data, "the reply changed");
    }
    if let Ok(told) = Told::parse(data) {
        assert_eq!(told.emit(), data, "the message changed");
    }
    if let Ok(store) = Store::restore(data) {
        let snapshot = store.snapshot();
        assert_eq!(snapshot, data, "the snapshot changed");
        assert!(snapshot.len() <= SNAPSHOT_MAX);
    }
}
