//! What the laws of composition share.

/// The seeds of a run: `XK_SEED` alone, fifty in the long form, or else these few.
pub(crate) fn seeds(few: u64) -> Vec<u64> {
    if let Some(seed) = std::env::var("XK_SEED").ok().and_then(|s| s.parse().ok()) {
        return vec![seed];
    }
    let count = if std::env::var_os("XK_LONG").is_some() { 50 } else { few };
    (1..=count).collect()
}
