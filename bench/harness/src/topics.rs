//! What a channel with topics must offer to be measured beside subscribers that sleep. A [`Transport`](crate::transport::Transport)
//! is a flow without topics; here, a channel is used with its own filter of topics.

use crate::Failure;
use crate::run_directory::RunDirectory;
use crate::transport::About;
use std::ops::ControlFlow;
use std::time::Duration;

/// A kind of channel with topics: one publisher, and any number of subscribers.
pub trait Topics {
    /// Its name, in lower case; see [`Transport::NAME`](crate::transport::Transport::NAME).
    const NAME: &'static str;
    /// What a process of its own keeps during the run: a bus, a broker.
    type Host;
    /// The end that publishes.
    type Publisher: Publisher;
    /// An end that subscribes.
    type Subscriber: Subscriber;

    /// Returns its version, its guarantees, and the settings that matter.
    fn about(crowd: &Crowd) -> About;

    /// Creates what the ends need.
    ///
    /// # Errors
    /// If it cannot.
    fn host(directory: &RunDirectory, crowd: &Crowd) -> Result<Self::Host, Failure>;

    /// Opens the end that publishes on all of [`Crowd::published`]. Returns when what it publishes reaches all subscribers. All
    /// ends are opened at the same time; an end that needs another one waits for it.
    ///
    /// # Errors
    /// If it cannot.
    fn publisher(directory: &RunDirectory, crowd: &Crowd) -> Result<Self::Publisher, Failure>;

    /// Opens subscriber `index` with [`Crowd::topics_of`] as its topics.
    ///
    /// # Errors
    /// If it cannot.
    fn subscriber(
        directory: &RunDirectory,
        crowd: &Crowd,
        index: u16,
    ) -> Result<Self::Subscriber, Failure>;
}

/// The end that publishes.
pub trait Publisher {
    /// Publishes one message on [`Crowd::published`]`[topic]`.
    ///
    /// # Errors
    /// If it cannot be published.
    fn publish(&mut self, topic: usize, payload: &[u8]) -> Result<(), Failure>;

    /// Waits until a broker has passed on everything that was published.
    ///
    /// # Errors
    /// If it does not answer.
    fn settle(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    /// Returns the process id of a broker, whose processor time counts, too.
    fn broker(&self) -> Option<u32> {
        None
    }
}

/// An end that subscribes.
pub trait Subscriber {
    /// Calls `each` with every message, as the index of its topic in [`Crowd::topics_of`], until `each` breaks. Between messages it
    /// sleeps in the channel's own blocking call.
    ///
    /// # Errors
    /// If nothing comes for [`LONGEST_SILENCE`], or the channel fails.
    fn receive(self, each: impl FnMut(usize) -> ControlFlow<()>) -> Result<(), Failure>;
}

/// A subscriber that receives nothing for this long gives up.
pub const LONGEST_SILENCE: Duration = Duration::from_secs(60);

/// Returns the failure of a subscriber that gives up.
#[must_use]
pub fn silence() -> Failure {
    Failure::new(format!("nothing came for {LONGEST_SILENCE:?}"))
}

/// The subscribers of a run, and what they want.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crowd {
    /// Number of subscribers. The first one wants the messages; the others are bystanders.
    pub subscribers: u16,
    /// Whether bystanders want the messages, too. Otherwise each has a topic of its own, on which nothing is published.
    pub same: bool,
}

/// Index of the topic of the messages, in what is published and in what a subscriber wants.
pub const MESSAGES: usize = 0;
/// Index of the topic that ends each part of a run. All subscribers want it.
pub const PARTS: usize = 1;

impl Crowd {
    /// The topics of the publisher. No topic is the beginning of another one.
    #[must_use]
    pub fn published(&self) -> [String; 2] {
        ["wanted".to_owned(), "part".to_owned()]
    }

    /// Returns the topics of a subscriber: that of its messages, and that of the parts.
    #[must_use]
    pub fn topics_of(&self, index: u16) -> [String; 2] {
        let [wanted, part] = self.published();
        if self.wants_messages(index) { [wanted, part] } else { [format!("other/{index}"), part] }
    }

    /// Whether a subscriber wants the messages.
    #[must_use]
    pub fn wants_messages(&self, index: u16) -> bool {
        self.same || index == 0
    }

    /// Returns the number of subscribers that want the messages.
    #[must_use]
    pub fn wanting(&self) -> u16 {
        if self.same { self.subscribers } else { self.subscribers.min(1) }
    }
}

/// Returns a topic with an end, for a channel that filters by the first bytes of a message: no other topic begins with it.
#[must_use]
pub fn with_end(topic: String) -> String {
    topic + "\0"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bystanders_of_other_topics_have_one_of_their_own() {
        let others = Crowd { subscribers: 3, same: false };
        let same = Crowd { same: true, ..others };
        assert_eq!((others.wanting(), same.wanting()), (1, 3));
        for crowd in [others, same] {
            assert_eq!(crowd.topics_of(0), crowd.published());
        }
        assert_eq!(same.topics_of(2), same.published());
        assert_eq!(others.topics_of(2), ["other/2", "part"]);
        assert_ne!(others.topics_of(1), others.topics_of(2));
    }
}
