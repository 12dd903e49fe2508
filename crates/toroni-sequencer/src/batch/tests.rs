use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone)]
enum Owned {
    Publish(CommandId, bool, String, Vec<u8>),
    Open(Open<'static>, Option<Vec<[u8; 16]>>),
    Lost(Lost),
    Begin(u32),
    Release(u32),
    Remove(u32),
}

impl Owned {
    fn command(&self) -> Command<'_> {
        match self {
            Self::Publish(id, to_descendants, topic, payload) => Command::Publish(Publish {
                id: *id,
                to_descendants: *to_descendants,
                topic,
                payload,
            }),
            Self::Open(open, earlier) => {
                Command::Open(Open { earlier: earlier.as_deref(), ..*open })
            }
            Self::Lost(lost) => Command::Lost(*lost),
            Self::Begin(series) => Command::Begin { series: *series },
            Self::Release(source) => Command::Release { source: *source },
            Self::Remove(source) => Command::Remove { source: *source },
        }
    }
}

fn owned() -> impl Strategy<Value = Owned> {
    let number = 0..1_u64 << NUMBER_BITS;
    prop_oneof![
        (
            any::<(u32, u32)>(),
            number.clone(),
            any::<bool>(),
            "[a-zä/]{1,40}",
            vec(any::<u8>(), 0..200)
        )
            .prop_map(|((source, series), number, to_descendants, topic, payload)| {
                Owned::Publish(CommandId { source, series, number }, to_descendants, topic, payload)
            }),
        (any::<(u32, u32, u32, [u8; 16])>(), proptest::option::of(vec(any::<[u8; 16]>(), 0..=8)))
            .prop_map(|((source, series, session, bus), earlier)| Owned::Open(
                Open { source, series, session, bus, earlier: None },
                earlier
            )),
        (any::<(u32, u32)>(), number.clone(), number).prop_map(|((source, series), one, other)| {
            Owned::Lost(Lost { source, series, first: one.min(other), last: one.max(other) })
        }),
        any::<u32>().prop_map(Owned::Begin),
        any::<u32>().prop_map(Owned::Release),
        any::<u32>().prop_map(Owned::Remove),
    ]
}

fn encode(commands: &[Owned]) -> Vec<u8> {
    let mut builder = Builder::new();
    for command in commands {
        builder.push(&command.command()).expect("a small command fits");
    }
    builder.finish().expect("there is a command")
}

proptest! {
    #[test]
    fn what_is_decoded_is_what_was_encoded(commands in vec(owned(), 1..40)) {
        let bytes = encode(&commands);
        let batch = Batch::check(&bytes).expect("what was built is a batch");
        prop_assert_eq!(usize::from(batch.count()), commands.len());
        prop_assert!(batch.commands().map(|(command, _)| command).eq(commands.iter().map(Owned::command)));
        prop_assert_eq!(batch.commands().flat_map(|(_, bytes)| bytes).copied().collect::<Vec<_>>(), &bytes[4..]);
    }

    #[test]
    fn a_batch_has_one_encoding(mut bytes in vec(owned(), 1..4).prop_map(|all| encode(&all)), place: usize, bit in 0..8_u8) {
        let place = place % bytes.len();
        bytes[place] ^= 1_u8 << bit;
        if let Ok(batch) = Batch::check(&bytes) {
            let mut builder = Builder::new();
            for (command, _) in batch.commands() {
                builder.push(&command).expect("what was decoded can be encoded");
            }
            prop_assert_eq!(builder.finish().expect("there is a command"), bytes);
        }
    }

    #[test]
    fn a_batch_that_is_cut_is_none(commands in vec(owned(), 1..4), place: usize) {
        let bytes = encode(&commands);
        prop_assert!(Batch::check(&bytes[..place % bytes.len()]).is_err());
    }
}

fn publish(topic: &str, payload: &[u8]) -> Result<Vec<u8>, BatchError> {
    let mut builder = Builder::new();
    let id = CommandId { source: 1, series: 2, number: 3 };
    builder.push(&Command::Publish(Publish { id, to_descendants: false, topic, payload }))?;
    builder.finish()
}

#[test]
fn one_command_may_have_a_mebibyte_and_several_together_a_quarter() {
    let longest = vec![0; MAX_COMMAND_BYTES - 25];
    let bytes = publish("t", &longest).expect("as long as may be");
    assert!(Batch::check(&bytes).is_ok());
    assert_eq!(publish("t", &vec![0; longest.len() + 1]), Err(BatchError::CommandTooLong));

    let mut builder = Builder::new();
    let command = Command::Begin { series: 1 };
    builder.push(&command).expect("fits");
    let id = CommandId { source: 1, series: 2, number: 3 };
    let payload = vec![0; MAX_BATCH_BYTES - 16 - 25];
    let fits = Publish { id, to_descendants: false, topic: "t", payload: &payload };
    builder.push(&Command::Publish(fits)).expect("fits exactly");
    assert_eq!(builder.push(&command), Err(BatchError::BatchTooLong));
    let bytes = builder.finish().expect("there are commands");
    assert_eq!(bytes.len(), MAX_BATCH_BYTES);
    assert!(Batch::check(&bytes).is_ok());
}

#[test]
fn impossible_commands_are_refused() {
    assert_eq!(publish("", b""), Err(BatchError::Topic));
    assert_eq!(publish(&"t".repeat(256), b""), Err(BatchError::Topic));
    assert_eq!(Builder::new().finish(), Err(BatchError::Count));
    let mut builder = Builder::new();
    let lost = Lost { source: 1, series: 1, first: 2, last: 1 };
    assert_eq!(builder.push(&Command::Lost(lost)), Err(BatchError::Number));
    assert!(builder.is_empty());
    assert_eq!(Batch::check(&[2, 0, 1, 0]), Err(BatchError::Version(2)));
    assert_eq!(Batch::check(&[1, 0, 0, 0]), Err(BatchError::Count));
    assert_eq!(Batch::check(&[1, 0, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0]), Err(BatchError::Kind(9)));
}
