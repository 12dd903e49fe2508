//! History of a stream that also comes from a group: fetched over TCP, where its names have other numbers.
//!
//! What is fetched goes through the same stage as what comes from the group, so it is published in the order in which it
//! is handed over.

use super::Inlet;
use super::known::Known;
use toroni_proto::arrivals::Flow;
use toroni_proto::id::{Source, Stream};
use toroni_proto::reassembly::Message;
use toroni_proto::wire::{TableName, TopicNumber};

impl Inlet {
    /// Returns whether it brings a stream, and no other way does so instead.
    pub(crate) fn brings(&self, source: Source, stream: Stream) -> bool {
        self.streams.contains_key(&(source, stream))
    }

    /// Publishes what is staged, as far as there is room, before the bus is asked how far a stream has arrived.
    pub(crate) fn flush(&mut self) {
        self.publish_staged();
    }

    /// Begins to bring history of a stream. The names of its topics follow.
    pub(crate) fn begin_history(&mut self, flow: Flow) {
        let stream = (flow.source, flow.stream);
        let Some(live) = self.streams.get(&stream) else { return };
        let lane = self.known[*live].lane;
        self.end_history(flow.source, flow.stream);
        let place = self.add(Known::new(flow, lane, 0));
        self.histories.insert(stream, place);
    }

    /// Takes the name of a topic of the history.
    pub(crate) fn history_topic(&mut self, flow: Flow, number: TopicNumber, name: TableName<'_>) {
        let place = self.histories.get(&(flow.source, flow.stream)).copied();
        self.topic_at(place, number, name);
    }

    /// Brings a message of the history.
    pub(crate) fn history_message(&mut self, flow: Flow, message: Message<'_>) {
        if let Some(place) = self.histories.get(&(flow.source, flow.stream)) {
            self.message_at(*place, flow, message);
        }
    }

    /// Forgets the names of the history of a stream, once all of it is published.
    pub(crate) fn end_history(&mut self, source: Source, stream: Stream) {
        self.retired.extend(self.histories.remove(&(source, stream)));
    }
}
