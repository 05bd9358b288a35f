//! Settings of ATP from the graph.

xk_appletalk::atp_settings! {
    /// Options of requests that bring none, and bounds.
    #[derive(Clone, Copy, Debug)]
    pub struct Settings {
        requests_max: usize = int(1..=16_384, 1024, "transactions of its own under way at most"),
        remembered_max: usize = int(1..=65_536, 1024, "transactions of others that it remembers"),
    }
}
