//! How many files the node may have open: each connection of a member is one.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// As many as the connections of a member and of an archive need, and whatever else a node has open. Programs that use `select`
/// are the reason why the usual limit is 1024; a node is none.
const WANTED: u64 = 4096;
/// What a node has open besides connections of members, about.
const OTHERS: u64 = 256;

/// Raises the limit as far as this process may. Returns why these connections, with what else is open, are more than it allows.
pub(super) fn raise_for(connections: usize) -> Option<String> {
    let limit = raised(getrlimit(Resource::Nofile));
    // Below the hard limit, which is never changed. What fails leaves what there is.
    let _ = setrlimit(Resource::Nofile, limit);
    let allowed = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let needed = u64::try_from(connections).unwrap_or(u64::MAX).saturating_add(OTHERS);
    (allowed < needed).then(|| {
        format!(
            "the node may have {allowed} files open, and its part of the sequencer takes up to {needed} for connections: raise \
             `LimitNOFILE` of the service, or `ulimit -Hn`"
        )
    })
}

fn raised(limit: Rlimit) -> Rlimit {
    let most = limit.maximum.map_or(WANTED, |maximum| maximum.min(WANTED));
    Rlimit { current: limit.current.map(|current| current.max(most)), ..limit }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_rises_as_far_as_it_may_and_never_falls() {
        let limit = |current, maximum| Rlimit { current, maximum };
        let after = |current, maximum| raised(limit(current, maximum)).current;
        assert_eq!(after(Some(1024), Some(524_288)), Some(4096));
        assert_eq!(after(Some(1024), Some(2000)), Some(2000));
        assert_eq!(after(Some(1024), None), Some(4096));
        assert_eq!(after(Some(20_000), Some(20_000)), Some(20_000));
        assert_eq!(after(None, None), None);
    }
}
