//! What a bridge has counted: each event once, by its reason.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// What a bridge has counted since it started.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Counters {
            $($(#[doc = $doc])+ pub $name: u64,)+
        }

        impl Counters {
            /// Returns each counter: its name, what it counts, and its value.
            #[must_use]
            pub fn all(&self) -> Vec<(&'static str, &'static str, u64)> {
                vec![$((stringify!($name), concat!($($doc),+).trim_ascii(), self.$name),)+]
            }
        }

        /// The counters of a running bridge.
        #[derive(Debug, Default)]
        pub(crate) struct Counting {
            $(pub(crate) $name: Count,)+
        }

        impl Counting {
            pub(crate) fn now(&self) -> Counters {
                Counters { $($name: self.$name.get(),)+ }
            }
        }
    };
}

counters! {
    /// Messages that were given to Zenoh.
    exported_messages,
    /// Bytes of their payloads.
    exported_bytes,
    /// Messages that were sent as samples of their own.
    exported_samples,
    /// Batches that were given to Zenoh. Their messages count as exported, too.
    exported_batches,
    /// Messages that Zenoh did not take: an error of Zenoh, which the log shows.
    export_failed,
    /// Messages that were too long to be sent. Importers were told.
    export_too_long,
    /// Messages on topics that cannot be keys, because they have the segment `@bridge`. Importers were told.
    export_no_key,
    /// Topics with a segment that begins with `@`, which no wildcard of Zenoh matches.
    export_verbatim,
    /// Messages that local publishers overwrote before they were sent. Importers were told.
    export_overtaken,
    /// Messages of elsewhere that were relayed.
    relayed_messages,
    /// Losses of elsewhere that were relayed.
    relayed_losses,
    /// Heartbeats that were sent.
    heartbeats_sent,
    /// Queries that were answered.
    history_queries,
    /// Queries that were refused, because too many waited.
    history_refused,
    /// Messages that were sent as answers.
    history_messages,
    /// Messages that were published on the bus.
    imported_messages,
    /// Bytes of their payloads.
    imported_bytes,
    /// Batches that came from Zenoh.
    imported_batches,
    /// Messages of programs that are no bridges. Whether some of those were lost is unknown.
    unnumbered,
    /// Messages that had arrived before.
    duplicates,
    /// Messages of this very bus that came back.
    own_source,
    /// Messages that have passed too many bridges.
    too_many_hops,
    /// Messages that came after they had been reported as lost.
    late,
    /// Messages that waited for an earlier one.
    reordered,
    /// Messages that were reported on the bus as lost.
    lost_messages,
    /// Loss reports that were written on the bus.
    loss_reports,
    /// Samples that found no room between Zenoh and the bus. They are part of the losses that follow.
    queue_full,
    /// Samples whose attachment has the mark of a bridge, and is invalid. They count as unnumbered.
    bad_attachment,
    /// Samples whose attachment is not that of a bridge. They count as unnumbered.
    foreign_attachment,
    /// Batches that could not be read, or not to their end. What is missing counts as lost.
    bad_batch,
    /// Samples whose key is no topic.
    not_a_topic,
    /// Messages that are too long for this bus. They were reported as lost.
    import_too_long,
    /// Topics of imports with `retain` that could not be retained.
    unretained,
    /// Deletions.
    deletes,
    /// How often the bridge began to stand by for a stream, because another program brings it to this bus.
    taken,
    /// Messages that the bus refused for another reason, which the log shows.
    import_failed,
    /// Messages and heartbeats that were not believed: too far ahead of what came before, or of an unknown source. Their senders were asked.
    doubted,
    /// Heartbeats, losses and answers of other bridges that could not be read.
    bad_control,
    /// Heartbeats that were received.
    heartbeats_received,
    /// Topics whose order was forgotten, because there are too many.
    topics_forgotten,
    /// Other buses that have the name of this one; see the setting `source`.
    source_collisions,
    /// How often the bridge took over from another one of its bus.
    takeovers,
    /// How often it made way for another one of its bus.
    standbys,
    /// How often it continued the numbers of its predecessor.
    resumed,
    /// How often it opened another session of Zenoh, because its process was stopped for long.
    renewals,
}

/// A counter.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn one(&self) {
        self.add(1);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_counter_has_a_name_and_says_what_it_counts() {
        let counting = Counting::default();
        counting.late.add(3);
        let all = counting.now().all();
        assert!(all.contains(&(
            "late",
            "Messages that came after they had been reported as lost.",
            3
        )));
        assert!(all.iter().all(|(_, doc, _)| doc.ends_with('.')));
    }
}
