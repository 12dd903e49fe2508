//! The contenders: a transport, and the manner in which messages are handed to it.

use toroni_bench_harness::transport::{Transport as _, Wait};
use toroni_bench_harness::transports::{
    NamedPipes, TcpStreams, Toroni, ToroniBatch, ToroniExclusive, ToroniExclusiveInPlace,
    ToroniInPlace, ToroniPlain, UnixSeqpacket, UnixStreams,
};

use crate::cli::Workload;

/// A row of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Contender {
    /// Name of the transport in jobs.
    pub(super) transport: &'static str,
    /// Name of the peer; `toroni` has several transports.
    pub(super) peer: &'static str,
    pub(super) manner: Manner,
}

/// How messages are handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    /// One call per message.
    Single,
    /// [`SEVERAL`] messages per call.
    Several,
    /// One call per message, which is made where the transport keeps it.
    InPlace,
}

/// Name of the transport with Toroni's topics that are not retained.
pub(super) const PLAIN: &str = <ToroniPlain as toroni_bench_harness::values::Values>::NAME;

/// Messages of a burst or batch.
pub(super) const SEVERAL: usize = 64;

/// The transports that need no foreign library, without Toroni's own, in the order of the tables.
pub(super) const OWN: [&str; 4] =
    [UnixSeqpacket::NAME, UnixStreams::NAME, TcpStreams::NAME, NamedPipes::NAME];

/// The foreign peers. Each is the package `toroni-peer-NAME` in bench/peers.
pub(super) const FOREIGN: [&str; 5] = ["aeron", "iceoryx2", "zeromq", "nng", "zenoh"];

/// The foreign peers that keep values.
pub(super) const KEEPERS: [&str; 4] = ["iceoryx2", "zenoh", "nats", "mosquitto"];

/// Returns the peers that can take part in a workload, in the order of its tables, without Toroni.
pub(super) fn peers_of(workload: Workload) -> Vec<&'static str> {
    let all = if workload == Workload::Values { keepers() } else { singles() };
    let peers = all.iter().filter(|contender| !contender.is_toroni());
    peers.map(|contender| contender.peer).collect()
}

impl Contender {
    pub(super) fn is_toroni(&self) -> bool {
        self.peer == Toroni::NAME
    }

    /// Returns the label of its row.
    pub(super) fn label(&self) -> String {
        let mut label = self.peer.to_owned();
        if [ToroniExclusive::NAME, ToroniExclusiveInPlace::NAME].contains(&self.transport) {
            label.push_str(", exclusive");
        }
        if self.transport == PLAIN {
            label.push_str(", not retained");
        }
        match self.manner {
            Manner::Several if self.transport == ToroniBatch::NAME => {
                label.push_str(&format!(", batches of {SEVERAL}"));
            }
            Manner::Several => label.push_str(&format!(", {SEVERAL} a call")),
            Manner::InPlace => label.push_str(", in place"),
            Manner::Single => {}
        }
        if self.manner != Manner::InPlace
            && [ToroniInPlace::NAME, ToroniExclusiveInPlace::NAME].contains(&self.transport)
        {
            label.push_str(", read in place");
        }
        label
    }
}

/// Returns all transports with one call per message, which all of them can do.
pub(super) fn singles() -> Vec<Contender> {
    let toroni = Contender { transport: Toroni::NAME, peer: Toroni::NAME, manner: Manner::Single };
    let others = FOREIGN.into_iter().chain(OWN);
    let others =
        others.map(|name| Contender { transport: name, peer: name, manner: Manner::Single });
    std::iter::once(toroni).chain(others).collect()
}

/// Returns all that keep values, and Toroni with topics that are not retained.
pub(super) fn keepers() -> Vec<Contender> {
    let single = |transport, peer| Contender { transport, peer, manner: Manner::Single };
    let own = [Toroni::NAME, PLAIN].map(|transport| single(transport, Toroni::NAME));
    own.into_iter().chain(KEEPERS.map(|name| single(name, name))).collect()
}

/// Returns all transports in every manner that they offer. A manner is left out if the transport's call for it is the same
/// loop that a caller would write.
pub(super) fn all(wait: Wait) -> Vec<Contender> {
    let mut all = Vec::new();
    for single in singles() {
        let name = single.transport;
        let manner = |manner| Contender { manner, ..single.clone() };
        all.push(single.clone());
        // iceoryx2 notifies once for several messages, which matters only to receivers that wait for notifications.
        let has_several = name == Toroni::NAME
            || OWN.contains(&name)
            || (name == "iceoryx2" && wait == Wait::Blocking);
        if has_several {
            all.push(manner(Manner::Several));
        }
        if name == Toroni::NAME {
            all.push(Contender { transport: ToroniBatch::NAME, ..manner(Manner::Several) });
            // Other transports that can read in place always do.
            for how in [Manner::Single, Manner::Several, Manner::InPlace] {
                all.push(Contender { transport: ToroniInPlace::NAME, ..manner(how) });
            }
            all.push(Contender { transport: ToroniExclusive::NAME, ..manner(Manner::Single) });
            for how in [Manner::Single, Manner::InPlace] {
                all.push(Contender { transport: ToroniExclusiveInPlace::NAME, ..manner(how) });
            }
        }
        if ["aeron", "iceoryx2"].contains(&name) {
            all.push(manner(Manner::InPlace));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_a_label_of_its_own() {
        for wait in [Wait::Busy, Wait::Blocking] {
            let labels: Vec<String> = all(wait).iter().map(Contender::label).collect();
            for label in &labels {
                assert_eq!(labels.iter().filter(|other| *other == label).count(), 1, "{label}");
            }
            assert!(singles().iter().all(|single| labels.contains(&single.label())));
        }
        let labels: Vec<String> = keepers().iter().map(Contender::label).collect();
        assert_eq!(labels[..3], ["toroni", "toroni, not retained", "iceoryx2"]);
    }
}
