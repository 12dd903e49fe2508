//! Any bytes as the journal of a node: how far its streams were sent.

use crate::Directory;
use crate::input::Input;
use toroni_net::node::state::{Journal, State};
use toroni_proto::id::Stream;
use toroni_proto::time::{MILLISECOND, Monotonic, SECOND, Wall};

const PLACE_BYTES: usize = 32;
const PLACES: usize = 65;
const GENERATION_NS: u64 = SECOND;
const MAGIC: u64 = u64::from_le_bytes(*b"TORONI-J");
const BUS: u64 = 7;
const PATTERNS: u64 = 8;

/// The state of a node, in a directory that is used for all inputs.
pub struct Fixture {
    directory: Directory,
    state: State,
}

impl Default for Fixture {
    fn default() -> Self {
        Self::new()
    }
}

impl Fixture {
    #[must_use]
    pub fn new() -> Self {
        let directory = Directory::new();
        let state = State::open(directory.path()).unwrap();
        Self { directory, state }
    }

    /// A stream continues only where a whole checkpoint of this journal says so, and never after the newest one. What is
    /// written then is found again.
    pub fn fuzz(&self, bytes: &[u8]) {
        let mut input = Input::new(bytes);
        let kind = input.byte();
        if kind & 3 == 3 {
            return self.session(input.rest());
        }
        let file = if kind & 1 == 0 { input.rest().to_vec() } else { sealed(&mut input) };
        std::fs::write(self.directory.path().join("stream-1"), &file).unwrap();
        let checkpoints = checkpoints(&file);
        let newest = checkpoints.iter().max_by_key(|it| it[2]);
        let mut journal = self.journal();
        let resumed = journal.resume();
        if let Some(resumed) = resumed {
            let [newest, ..] = newest.expect("nothing says where to continue");
            assert!(resumed <= *newest, "{resumed} is after {newest}");
            assert!(checkpoints.iter().any(|it| it[0] == resumed), "no checkpoint says {resumed}");
        }
        assert_eq!(self.journal().resume(), resumed, "a journal that was only read");

        // The clock of another boot may be far from this one.
        let now = |ms| Monotonic::from_ns(1_000 * SECOND + ms * MILLISECOND);
        for number in 0..80 {
            assert!(journal.is_due(now(number * 40)));
            journal.note(now(number * 40), 1_000 + number).unwrap();
        }
        // The last is 1,079; 25 steps of 40 ms are the generation interval.
        assert_eq!(self.journal().resume(), Some(1_079 - 25));
        let length = std::fs::metadata(self.directory.path().join("stream-1")).unwrap().len();
        let most = file.len().max(PLACES * PLACE_BYTES) as u64;
        assert!(length <= most, "{length} bytes");
    }

    fn journal(&self) -> Journal {
        self.state.journal(Stream(1), BUS, PATTERNS, GENERATION_NS).unwrap()
    }

    /// A session is later than the last one, or there is none.
    fn session(&self, bytes: &[u8]) {
        std::fs::write(self.directory.path().join("session"), bytes).unwrap();
        let now = Wall::from_ns(1_800_000_000 * SECOND);
        let Ok(session) = self.state.begin_session(now) else { return };
        let last: u32 = std::str::from_utf8(bytes).unwrap().trim().parse().unwrap();
        assert!(session.0 > last, "{session} after {last}");
    }
}

/// Makes a file with right checksums, of which the other bytes are any.
fn sealed(input: &mut Input<'_>) -> Vec<u8> {
    let mut file = seal([MAGIC, BUS, PATTERNS]).to_vec();
    while !input.is_empty() && file.len() < PLACES * PLACE_BYTES {
        match input.byte() % 4 {
            0 => file.extend([0; PLACE_BYTES]),
            1 => file.extend(seal([input.u64(), input.u64(), input.u64()])),
            // As it would be written here.
            2 => {
                let place = (file.len() / PLACE_BYTES) as u64;
                let serial = u64::from(input.byte()) * 64 + place - 1;
                file.extend(seal([input.u16().into(), u64::from(input.u32()) << 10, serial]));
            }
            _ => {
                let mut place = [0xA5; PLACE_BYTES];
                let bytes = input.bytes(PLACE_BYTES);
                place[..bytes.len()].copy_from_slice(bytes);
                file.extend(place);
            }
        }
    }
    file
}

/// Returns the words of a place, with their checksum.
fn seal(words: [u64; 3]) -> [u8; PLACE_BYTES] {
    let mut bytes = [0; PLACE_BYTES];
    for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    let checksum = checksum(&bytes[..24]);
    bytes[24..].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

/// FNV-1a, 64 bits.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xCBF2_9CE4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01B3)
    })
}

/// Returns the whole checkpoints of a file, if it is a journal of this stream: sequence, time and serial number.
fn checkpoints(file: &[u8]) -> Vec<[u64; 3]> {
    if !file.starts_with(&seal([MAGIC, BUS, PATTERNS])) {
        return Vec::new();
    }
    let places = file.chunks_exact(PLACE_BYTES).take(PLACES).skip(1);
    let words = places.zip(0..).filter_map(|(place, number)| {
        let word = |at: usize| u64::from_le_bytes(place[at * 8..at * 8 + 8].try_into().unwrap());
        let words = [word(0), word(1), word(2)];
        // They take turns over the places.
        let is_in_its_place = words[2] % 64 == number && words[2] < 1 << 60;
        (seal(words) == place && is_in_its_place).then_some(words)
    });
    words.collect()
}
