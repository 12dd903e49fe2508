//! Stores any bytes as a subscriber's patterns, and compares what the library reads with the definition.

use crate::input::Input;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Mutex;
use toroni::{Bus, BusConfig, Pattern, Subscriber};
use toroni_oracle::topics;

/// Where slot 0 is in `readers`, after the rows of 4,096 topics: see `crates/toroni/src/ring/layout.rs`.
const SLOT_OFFSET: u64 = (4096 + 2 * 8 + 4096 * 8_u64).next_multiple_of(4096);
/// Where its patterns are, after the two slots.
const PATTERNS_OFFSET: u64 = SLOT_OFFSET + 2 * 128;
const TEXT_BYTES: usize = 496;
const TOPICS: [&str; 4] = ["plant", "plant/pump", "plant/pump/speed", "a"];

/// A bus with one subscriber, whose patterns are written over.
#[derive(Debug)]
pub struct Fixture {
    bus: Bus,
    readers: File,
    generation: u32,
    _subscriber: Mutex<Subscriber>,
}

/// What the bytes say: the words of the area, and its text.
struct Written {
    version: u32,
    generation: u32,
    length: u32,
    flags: u32,
    text: [u8; TEXT_BYTES],
}

impl Fixture {
    /// Makes the bus below `directory`.
    #[must_use]
    pub fn new(directory: &Path) -> Self {
        let config = BusConfig::new().directory(directory).capacity(64 << 10).max_subscribers(2);
        let bus = config.create("b").unwrap();
        let subscriber = bus.subscribe("**").unwrap();
        let readers = directory.join("b/readers");
        let readers = File::options().read(true).write(true).open(readers).unwrap();
        let mut generation = [0; 4];
        readers.read_exact_at(&mut generation, SLOT_OFFSET).unwrap();
        let generation = u32::from_ne_bytes(generation);
        Self { bus, readers, generation, _subscriber: Mutex::new(subscriber) }
    }

    /// Writes over the patterns and looks at the subscriber. The low bits of the first byte say which of the
    /// words are taken from the bytes; the others are as a subscriber would write them, truncated or not as
    /// the highest bit says. What is left of the bytes is the text.
    pub fn fuzz(&self, bytes: &[u8]) {
        let written = self.written(bytes);
        let mut area = Vec::new();
        for word in [written.version, written.generation, written.length, written.flags] {
            area.extend(word.to_ne_bytes());
        }
        area.extend(written.text);
        self.readers.write_all_at(&area, PATTERNS_OFFSET).unwrap();

        let stats = self.bus.stats().unwrap();
        let [shown] = &stats.subscribers.unwrap()[..] else { panic!("there is one subscriber") };
        let patterns = shown.patterns.as_ref();
        let patterns = patterns.map(|all| all.iter().map(Pattern::as_str).collect::<Vec<_>>());
        let expected = self.expected(&written);
        assert_eq!(patterns, expected, "{}", String::from_utf8_lossy(&written.text));
        let is_truncated = expected.is_some() && written.flags == 1;
        assert_eq!(shown.patterns_truncated, is_truncated);
        let expected = expected.unwrap_or_default();
        for topic in TOPICS {
            let answer = |is_match: bool| (is_match || !is_truncated).then_some(is_match);
            let itself = expected.iter().any(|pattern| topics::matches(pattern, topic));
            assert_eq!(shown.matches(topic), answer(itself), "{topic}");
            let below = expected.iter().any(|pattern| topics::matches_descendants(pattern, topic));
            assert_eq!(shown.matches_descendants(topic), answer(below), "{topic} and below");
        }
    }

    fn written(&self, bytes: &[u8]) -> Written {
        let mut input = Input::new(bytes);
        let fair = input.byte();
        let mut unless_fair = |bit: u32| (fair >> bit & 1 != 0).then(|| input.u32());
        let [version, generation, flags, length] = [0, 1, 2, 3].map(&mut unless_fair);
        let version = version.unwrap_or(2);
        let generation = generation.unwrap_or(self.generation);
        let flags = flags.unwrap_or(u32::from(fair >> 7));
        let mut text = [0; TEXT_BYTES];
        let rest = input.rest();
        let used = rest.len().min(TEXT_BYTES);
        text[..used].copy_from_slice(&rest[..used]);
        let length = length.unwrap_or(u32::try_from(used).unwrap());
        Written { version, generation, length, flags, text }
    }

    /// The patterns that a subscriber that wrote this has, if one can have written it.
    fn expected<'t>(&self, written: &'t Written) -> Option<Vec<&'t str>> {
        let is_its_own = written.generation == self.generation && written.version.is_multiple_of(2);
        let text = written.text.get(..usize::try_from(written.length).ok()?)?;
        let text = std::str::from_utf8(text).ok()?;
        let patterns: Vec<&str> = if text.is_empty() { vec![] } else { text.split('\n').collect() };
        let first_is_missing = patterns.is_empty() && written.flags == 1;
        (is_its_own
            && written.flags < 2
            && !first_is_missing
            && patterns.iter().all(|pattern| topics::is_pattern(pattern)))
        .then_some(patterns)
    }
}
