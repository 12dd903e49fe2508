//! Applies any list of operations to the ring and to the model: writers, deaths, slow readers and
//! joins. The list is that of `tests/oracle/`. What only a whole bus has (topics, patterns,
//! policies) means something else here, or nothing.

use super::fixture::{Fixture, Reader, Reading, Work, at_step, never, scaled};
use proptest::prelude::*;
use toroni_oracle::{By, Operation, Scenario, Size, Start, record_bytes};

/// A ring with some readers.
struct System {
    fixture: Fixture,
    readers: Vec<Reader>,
}

impl System {
    fn new(capacity: u64) -> Self {
        let fixture = Fixture::new(capacity);
        let readers = vec![fixture.join_end(), fixture.join_oldest(), fixture.join_end()];
        Self { fixture, readers }
    }

    fn run(&mut self, operation: &Operation) {
        let fixture = &mut self.fixture;
        let number = |reader: u8| usize::from(reader) % 3;
        match *operation {
            Operation::Write { writer, topic, work, die_at } => {
                let work = work_of(work, topic, fixture);
                // The lock tells one writer in three that the previous owner died, true or not.
                fixture.perform(&work, writer % 3 == 2, at_step(die_at.into()));
            }
            Operation::Receive { reader, most, by, die_at: _ } => {
                let margin = if by == By::Copy { 0 } else { fixture.shape().capacity() / 4 };
                for _ in 0..most {
                    if fixture.read(&mut self.readers[number(reader)], margin) == Reading::Nothing {
                        break;
                    }
                }
            }
            Operation::Subscribe { reader, start, .. } => {
                let joined = match start {
                    Start::Latest => Some(fixture.join_end()),
                    Start::Oldest => Some(fixture.join_oldest()),
                    Start::Back(back) => {
                        let (capacity, end) = (fixture.shape().capacity(), fixture.model.end());
                        let position = Start::position(back, capacity, end);
                        // Each with the other's model: by position, and by the number of messages before it.
                        let before = fixture.model.first_from(position).sequence;
                        let by_sequence = fixture.join_at_sequence(before + u64::from(back == 0));
                        fixture.join_at(position).or(by_sequence)
                    }
                };
                if let Some(joined) = joined {
                    self.readers[number(reader)] = joined;
                }
            }
            Operation::Unsubscribe { .. }
            | Operation::Close { .. }
            | Operation::Look
            // Whose lock it is does not matter to the ring, nor where a message comes from.
            | Operation::BecomeExclusive { .. }
            | Operation::GiveUp { .. }
            | Operation::Bring { .. }
            | Operation::CloseInlet { .. }
            | Operation::Retain { .. }
            | Operation::ReadValues => {
                fixture.check();
            }
        }
    }

    /// Checks that everything that was committed and not lost can be read, whatever happened.
    fn finish(&mut self) {
        self.fixture.perform(&Work::One(1), true, never);
        for reader in &mut self.readers {
            while self.fixture.read(reader, 0) != Reading::Nothing {}
            assert_eq!(reader.cursor.sequence, self.fixture.model.count() as u64);
        }
    }
}

fn work_of(work: toroni_oracle::Work, topic: u8, fixture: &Fixture) -> Work {
    use toroni_oracle::Work as Wish;

    let length = |size: Size| u32::try_from(size.bytes(fixture.longest().into())).unwrap();
    let lengths = |count: u8, sizes: [Size; 3]| -> Vec<u32> {
        sizes.into_iter().cycle().take(count.into()).map(length).collect()
    };
    match work {
        Wish::One(size) | Wish::Try(size) => Work::One(length(size)),
        // Reserves space, then writes nothing.
        Wish::Timed(size) => Work::Reserve(8 + u64::from(length(size)) / 8 * 8),
        Wish::InPlace(size) => Work::InPlace(length(size), (topic % 32).into()),
        Wish::Abort(size) => Work::Unwind(length(size)),
        Wish::Batch(count, sizes) => {
            let mut lengths = lengths(count, sizes);
            while lengths.iter().copied().map(record_bytes).sum::<u64>()
                > fixture.shape().largest_record()
            {
                lengths.pop();
            }
            Work::Batch(lengths)
        }
        Wish::Burst(count, sizes) => Work::Burst(lengths(count, sizes)),
        Wish::TooLong => Work::Nothing,
        Wish::Clear => Work::One(0),
    }
}

fn operation() -> impl Strategy<Value = Operation> {
    any::<[u8; toroni_oracle::BYTES]>().prop_map(Operation::from_bytes)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 4 } else { 256 },
        // The failing input is printed, minimised. It is not saved to a file.
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_list_of_operations_does_what_the_model_does(
        capacity in prop::sample::select(vec![512_u64, 1024, 4096]),
        operations in prop::collection::vec(operation(), 0..if cfg!(miri) { 10 } else { 80 }),
    ) {
        let mut system = System::new(capacity);
        for operation in &operations {
            system.run(operation);
        }
        system.finish();
    }
}

/// Prints how to repeat the run if it fails.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("TORONI_SEED={} repeats this run", self.0);
        }
    }
}

/// Long enough for many laps. The seed may be given, for a longer search or to repeat a failure.
#[test]
fn a_long_run_does_what_the_model_does() {
    let given = std::env::var("TORONI_SEED").ok().map(|seed| seed.parse().unwrap());
    let seed = Seed(given.unwrap_or(20_260_101));
    for (capacity, count) in [(512, 8000), (1024, 8000), (8192, 4000), (64 << 10, 1000)] {
        let scenario = Scenario::from_seed(seed.0 ^ capacity, scaled(count));
        let mut system = System::new(capacity);
        for operation in &scenario.operations {
            system.run(operation);
        }
        system.finish();
        let laps = system.fixture.model.end() / capacity;
        assert!(cfg!(miri) || laps > 3, "{laps} laps of {capacity} bytes");
    }
}
