//! How long to poll, for subscribers and publishers: longer after polling has helped, else shorter.

/// The fewest checks that a thread makes before it yields; see [`adapted`].
pub(super) const FEWEST_SPINS: u32 = 4;

/// Returns how often to check the next time, `most` at the most, after `spins` checks found something or
/// did not. If what is polled for comes only after other threads have run, as with more processes than
/// cores, polling is given up sooner.
pub(super) fn adapted(spins: u32, most: u32, was_of_use: bool) -> u32 {
    if was_of_use { (spins * 2).min(most) } else { (spins / 2).max(FEWEST_SPINS) }
}
