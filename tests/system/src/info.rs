//! What `toroni info --json` says.

use serde_json::Value;

/// One bus, seen from outside.
#[derive(Clone, Debug)]
pub struct Info(pub Value);

impl Info {
    /// Parses the one line that the program prints.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let value: Value =
            serde_json::from_str(text).unwrap_or_else(|error| panic!("{error} in {text:?}"));
        assert!(value.is_object(), "{text:?}");
        Self(value)
    }

    /// A number of the bus itself: `messages`, `bytes`, `capacity` …
    #[must_use]
    pub fn number(&self, name: &str) -> u64 {
        number(&self.0, name)
    }

    /// The publishing participants; each has `slot`, `pid`, `alive`, `messages` …
    #[must_use]
    pub fn publishers(&self) -> &[Value] {
        self.0["publishers"].as_array().expect("publishers that can be seen")
    }

    /// The subscribers; each has `slot`, `pid`, `alive`, `received`, `lost_messages` …
    #[must_use]
    pub fn subscribers(&self) -> &[Value] {
        self.0["subscribers"].as_array().expect("subscribers that can be seen")
    }

    /// The process id of the writer lock's owner, if it is taken and known.
    #[must_use]
    pub fn lock_owner_pid(&self) -> Option<u64> {
        self.0["lock_owner"]["pid"].as_u64()
    }

    /// Whether the writer lock's owner is stopped.
    #[must_use]
    pub fn lock_owner_is_stopped(&self) -> bool {
        self.0["lock_owner"]["stopped"] == true
    }

    /// Asserts that all slots are those of living participants, that every socket belongs to one, and, with `idle`,
    /// that the writer lock is free.
    pub fn assert_no_dead(&self, idle: bool) {
        for one in self.publishers().iter().chain(self.subscribers()) {
            assert_eq!(one["alive"], true, "a slot of the dead is left: {one}");
        }
        let slots: Vec<u64> = self.subscribers().iter().map(|one| number(one, "slot")).collect();
        for socket in self.0["sockets"].as_array().into_iter().flatten() {
            let name = socket.as_str().unwrap_or_default();
            let slot = name.split_once('.').and_then(|(slot, _)| slot.parse().ok());
            assert!(
                slot.is_some_and(|slot| slots.contains(&slot)),
                "socket {name} is left: {}",
                self.0
            );
        }
        assert!(!idle || self.0["lock_owner"].is_null(), "the lock is taken: {}", self.0);
    }
}

/// A number in an object.
#[must_use]
pub fn number(object: &Value, name: &str) -> u64 {
    object[name].as_u64().unwrap_or_else(|| panic!("no number {name:?} in {object}"))
}
