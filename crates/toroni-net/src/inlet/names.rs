//! Names of topics: what those of a stream are on the bus.

use super::Inlet;
use super::known::{Known, Name};
use super::stage::{Item, Staged};
use toroni::{InletTopic, Pattern, Topic};
use toroni_proto::wire::{TableName, TopicNumber};

/// How many names of topics an inlet knows, of all streams together, and each stream at most half of what the others leave. Messages on
/// other topics are reported as lost.
pub(super) const MAX_NAMES: usize = 1 << 18;

impl Inlet {
    /// Returns what a name of a stream is on this bus.
    fn resolve(&mut self, name: TableName<'_>) -> Name {
        if name.has_wildcard() {
            return Name::Filtered;
        }
        let text = name.as_str();
        let accept = &self.selection.accept;
        let is_accepted = self.is_selected || accept.iter().any(|it| it.matches(text));
        if !is_accepted && !accept.iter().any(|it| it.matches_descendants(text)) {
            return Name::Filtered;
        }
        let topic = self.local(text);
        if Topic::new(&topic).is_err() {
            return Name::Invalid;
        }
        match self.bus.topic(&topic) {
            Ok(topic) if is_accepted => Name::Accepted(topic),
            Ok(topic) => Name::Above(topic),
            Err(error) => {
                self.failed = Some(error.into());
                Name::Unknown
            }
        }
    }

    /// Returns the topic on this bus of one of a stream.
    fn local(&self, topic: &str) -> String {
        let prefix = &self.selection.prefix;
        if prefix.is_empty() { topic.to_owned() } else { format!("{prefix}/{topic}") }
    }

    /// Notes a name of the stream at this place.
    pub(super) fn topic_at(
        &mut self,
        place: Option<usize>,
        number: TopicNumber,
        name: TableName<'_>,
    ) {
        let at = number.get() as usize;
        let Some(place) = place else { return };
        let resolved = self.resolve(name);
        let known = &mut self.known[place];
        if let Some(scope) = known.scope.get_mut(at) {
            *scope = Pattern::new(name.as_str()).ok();
        }
        if at < known.names.len() {
            known.names[at] = resolved;
        } else if self.has_names(place, at + 1) {
            let known = &mut self.known[place];
            self.names += at + 1 - known.names.len();
            known.names.resize_with(at, || Name::Unknown);
            known.names.push(resolved);
        }
        if self.retaining.is_wanted {
            // If a publisher is exclusive, this is tried again before a message is published.
            let _ = self.retain((place, at), self.local(name.as_str()));
        }
    }

    /// Whether the stream at this place may have that many names. What is left of its session before does not count.
    fn has_names(&self, place: usize, wanted: usize) -> bool {
        let stream = self.known[place].stream;
        let fits = |of_others: usize| wanted <= MAX_NAMES.saturating_sub(of_others) / 2;
        let others = self.known.iter().filter(|known| known.stream != stream);
        fits(self.names) || fits(others.map(|known| known.names.len()).sum())
    }
}

/// Returns the topic of a staged message on the bus.
pub(super) fn topic_of<'a>(known: &'a [Known], staged: &Staged) -> Option<&'a InletTopic> {
    let Item::Message { topic, .. } = &staged.item else { return None };
    match known.get(staged.stream)?.names.get(topic.get() as usize)? {
        Name::Accepted(topic) | Name::Above(topic) => Some(topic),
        _ => None,
    }
}
