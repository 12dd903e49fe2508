//! Any list of writers, deaths, laggards and joiners, against the model.

use super::resume::SplitMix;
use super::world::{Reader, Reading, Work, World, at_step, never, scaled};
use proptest::prelude::*;

/// A step of the whole system. Numbers are brought into range when it is done, so that any list of
/// steps makes sense in any ring.
#[derive(Clone, Debug)]
enum Step {
    Write {
        work: Wish,
        /// Dies at this step of its work, if it has so many; 0 lives.
        die_at: usize,
        /// The lock tells the writer that its predecessor died, true or not.
        owner_died: bool,
    },
    Read {
        reader: usize,
        most: u8,
        quarter: bool,
    },
    JoinEnd(usize),
    JoinOldest(usize),
    /// So many parts in 256 of a ring and a half before the end.
    JoinAt(usize, u8),
}

/// What to write, by sizes relative to the ring.
#[derive(Clone, Debug)]
enum Wish {
    Nothing,
    Reserve(Size),
    One(Size),
    InPlace(Size, u8),
    Unwind(Size),
    Batch(Vec<Size>),
}

#[derive(Clone, Copy, Debug)]
enum Size {
    Bytes(u8),
    /// Parts in 256 of the largest.
    Part(u8),
}

impl Size {
    fn length(self, world: &World) -> u32 {
        match self {
            Self::Bytes(bytes) => u32::from(bytes).min(world.longest()),
            Self::Part(part) => {
                let longest = u64::from(world.longest());
                u32::try_from(longest * u64::from(part) / 255).unwrap()
            }
        }
    }
}

impl Wish {
    fn work(&self, world: &World) -> Work {
        match self {
            Self::Nothing => Work::Nothing,
            Self::Reserve(size) => Work::Reserve(8 + u64::from(size.length(world)) / 8 * 8),
            Self::One(size) => Work::One(size.length(world)),
            Self::InPlace(size, extensions) => {
                Work::InPlace(size.length(world), usize::from(*extensions))
            }
            Self::Unwind(size) => Work::Unwind(size.length(world)),
            Self::Batch(sizes) => {
                let mut lengths: Vec<u32> = sizes.iter().map(|size| size.length(world)).collect();
                while Work::Batch(lengths.clone()).bytes() > world.shape().largest_record() {
                    lengths.pop();
                }
                Work::Batch(lengths)
            }
        }
    }
}

/// A ring with some readers.
struct System {
    world: World,
    readers: Vec<Reader>,
}

impl System {
    fn new(capacity: u64) -> Self {
        let world = World::new(capacity);
        let readers = vec![world.join_end(), world.join_oldest(), world.join_end()];
        Self { world, readers }
    }

    fn run(&mut self, step: &Step) {
        let world = &mut self.world;
        let number = |reader: usize| reader % 3;
        match step {
            Step::Write { work, die_at, owner_died } => {
                let work = work.work(world);
                world.perform(&work, *owner_died, at_step(*die_at));
            }
            Step::Read { reader, most, quarter } => {
                let margin = if *quarter { world.shape().capacity() / 4 } else { 0 };
                for _ in 0..*most {
                    if world.read(&mut self.readers[number(*reader)], margin) == Reading::Nothing {
                        break;
                    }
                }
            }
            Step::JoinEnd(reader) => self.readers[number(*reader)] = world.join_end(),
            Step::JoinOldest(reader) => self.readers[number(*reader)] = world.join_oldest(),
            Step::JoinAt(reader, part) => {
                let back = world.shape().capacity() * 3 / 2 * u64::from(*part) / 255;
                // One in eight is no multiple of 8.
                let back = if part % 8 == 7 { back } else { back / 8 * 8 };
                let position = (world.model.end() + 16).saturating_sub(back);
                if let Some(reader_there) = world.join_at(position) {
                    self.readers[number(*reader)] = reader_there;
                }
            }
        }
    }

    /// Whatever happened, all that was committed and not lost can be read.
    fn finish(&mut self) {
        self.world.perform(&Work::One(1), true, never);
        for reader in &mut self.readers {
            while self.world.read(reader, 0) != Reading::Nothing {}
            assert_eq!(reader.cursor.sequence, self.world.model.count() as u64);
        }
    }
}

fn size() -> impl Strategy<Value = Size> {
    prop_oneof![3 => (0..=64_u8).prop_map(Size::Bytes), 1 => any::<u8>().prop_map(Size::Part)]
}

fn wish() -> impl Strategy<Value = Wish> {
    prop_oneof![
        1 => Just(Wish::Nothing),
        1 => size().prop_map(Wish::Reserve),
        8 => size().prop_map(Wish::One),
        3 => (size(), 0..32_u8).prop_map(|(size, extensions)| Wish::InPlace(size, extensions)),
        1 => size().prop_map(Wish::Unwind),
        4 => prop::collection::vec(size(), 0..6).prop_map(Wish::Batch),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let die_at = prop_oneof![3 => Just(0), 1 => 1..12_usize];
    let write = (wish(), die_at, prop::bool::weighted(0.3))
        .prop_map(|(work, die_at, owner_died)| Step::Write { work, die_at, owner_died });
    let reader = || 0..3_usize;
    prop_oneof![
        8 => write,
        3 => (reader(), 0..20_u8, any::<bool>())
            .prop_map(|(reader, most, quarter)| Step::Read { reader, most, quarter }),
        1 => reader().prop_map(Step::JoinEnd),
        1 => reader().prop_map(Step::JoinOldest),
        2 => (reader(), any::<u8>()).prop_map(|(reader, part)| Step::JoinAt(reader, part)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 4 } else { 256 },
        // The failing input is printed, as small as it gets; a broken protocol leaves no files.
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_list_of_steps_does_what_the_model_does(
        capacity in prop::sample::select(vec![512_u64, 1024, 4096]),
        steps in prop::collection::vec(step(), 0..if cfg!(miri) { 10 } else { 80 }),
    ) {
        let mut system = System::new(capacity);
        for step in &steps {
            system.run(step);
        }
        system.finish();
    }
}

/// Says how to repeat the run, when it fails.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("TORONI_SEED={} repeats this run", self.0);
        }
    }
}

fn random_size(random: &mut SplitMix) -> Size {
    let byte = random.next().to_le_bytes()[0];
    if random.below(8) == 0 { Size::Part(byte) } else { Size::Bytes(byte % 65) }
}

fn random_step(random: &mut SplitMix) -> Step {
    let byte = random.next().to_le_bytes()[0];
    let reader = usize::from(byte) % 3;
    match random.below(16) {
        0..8 => {
            let size = random_size(random);
            let work = match random.below(16) {
                0 => Wish::Nothing,
                1 => Wish::Reserve(size),
                2 => Wish::Unwind(size),
                3..6 => Wish::InPlace(size, byte % 32),
                6..9 => Wish::Batch((0..byte % 6).map(|_| random_size(random)).collect()),
                _ => Wish::One(size),
            };
            let die_at = if random.below(4) == 0 { 1 + usize::from(byte) % 12 } else { 0 };
            Step::Write { work, die_at, owner_died: random.below(3) == 0 }
        }
        8..13 => Step::Read { reader, most: byte % 30, quarter: random.below(2) == 0 },
        13 => Step::JoinEnd(reader),
        14 => Step::JoinOldest(reader),
        _ => Step::JoinAt(reader, byte),
    }
}

/// Long enough for many laps; the seed may be given, for a longer search or to repeat a failure.
#[test]
fn a_long_run_does_what_the_model_does() {
    let given = std::env::var("TORONI_SEED").ok().map(|seed| seed.parse().unwrap());
    let seed = Seed(given.unwrap_or(20_260_101));
    let mut random = SplitMix(seed.0);
    for capacity in [512, 1024, 8192, 64 << 10] {
        let mut system = System::new(capacity);
        for _ in 0..scaled(8000) {
            system.run(&random_step(&mut random));
        }
        system.finish();
        let laps = system.world.model.end() / capacity;
        assert!(cfg!(miri) || laps > 3, "{laps} laps of {capacity} bytes");
    }
}
