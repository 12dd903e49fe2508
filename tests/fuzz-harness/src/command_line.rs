//! Feeds any bytes to the program: as its arguments, as input of `toroni pub`, and as messages that `toroni sub` prints.

use crate::input::Input;
use rustix::fs::{MemfdFlags, memfd_create};
use serde_json::Value;
use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::sync::Mutex;
use toroni::{Bus, BusConfig, Policy, Publisher, Subscriber};
use toroni_cli::fuzz_entry::{self, Way};
use toroni_shell::exchange::{self, Entry};
use toroni_shell::human;
use toroni_shell::output::{Output, printable};
use toroni_shell::printer::{Format, Printer, Style};

const TOPIC: &str = "plant/boiler";

/// A bus for the messages.
#[derive(Debug)]
pub struct Fixture {
    _bus: Bus,
    publisher: Publisher,
    subscriber: Mutex<Subscriber>,
}

impl Fixture {
    /// Makes it below `directory`.
    #[must_use]
    pub fn new(directory: &Path) -> Self {
        let config = BusConfig::new().directory(directory).policy(Policy::Overwrite);
        let bus = config.create("b").unwrap();
        let publisher = bus.publisher(TOPIC).unwrap();
        let subscriber = Mutex::new(bus.subscribe("**").unwrap());
        Self { _bus: bus, publisher, subscriber }
    }

    /// The first byte says what the others are: arguments, one a line, or input.
    pub fn fuzz(&self, bytes: &[u8]) {
        let mut input = Input::new(bytes);
        match input.byte() % 3 {
            0 => {
                let bytes = input.rest();
                arguments(bytes);
                // Any line: an error, never a panic.
                let _ = exchange::read(bytes);
            }
            1 => {
                let ways =
                    [Way::Lines(b'\n'), Way::Whole, Way::Chunks(1 + u64::from(input.byte() % 40))];
                let way = ways[usize::from(input.byte() % 3)];
                let buffer = 1 + usize::from(input.byte());
                let limit = u64::from(input.byte());
                take_apart(input.rest(), way, buffer, limit);
            }
            _ => self.through_the_bus(&mut input),
        }
    }

    /// What is published is printed, in any format, so that it can be read again.
    fn through_the_bus(&self, input: &mut Input<'_>) {
        let flags = input.byte();
        let payload_only = flags & 1 == 1;
        let payload = input.rest();
        self.publisher.publish(payload).unwrap();
        let mut subscriber = self.subscriber.lock().unwrap();
        let message = subscriber.try_receive().unwrap().unwrap();
        let topic = if payload_only { String::new() } else { format!("{TOPIC}\t") };
        let printed = |format: Format| {
            let mut file = memory(&[]);
            let output = Output::to(file.try_clone().unwrap());
            let mut printer = Printer::new(output, Style::Format { format, payload_only }, b'\n');
            printer.print(&(&message).into()).unwrap();
            printer.output.flush().unwrap();
            let mut printed = Vec::new();
            file.rewind().unwrap();
            file.read_to_end(&mut printed).unwrap();
            printed
        };
        assert_eq!(printed(Format::Raw), payload);
        assert_eq!(printed(Format::Text), [topic.as_bytes(), payload, b"\n"].concat());
        let digits: String = payload.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(printed(Format::Hex), format!("{topic}{digits}\n").as_bytes());

        let json = printed(Format::Json);
        let line = json.strip_suffix(b"\n").unwrap();
        assert!(!line.contains(&b'\n'), "one object a line");
        let object: Value = serde_json::from_slice(line).unwrap();
        assert_eq!(object["length"], payload.len());
        assert_eq!(object["position"], message.position().to_string());
        assert_eq!(object["sequence"], message.sequence().to_string());
        assert_eq!(object.get("topic").is_none(), payload_only);
        match std::str::from_utf8(payload) {
            Ok(text) => assert_eq!(object["payload"], text),
            Err(_) => assert_eq!(object["encoding"], "base64"),
        }
        // And `toroni pub --json` reads the same message.
        let (topic, payload) = (TOPIC.to_owned(), payload.to_vec());
        match exchange::read(line) {
            Ok(read) => {
                assert_eq!(read, Entry::Message { topic, to_descendants: false, payload });
            }
            Err(said) => assert!(payload_only && said.contains("topic"), "{said}"),
        }
    }
}

fn arguments(bytes: &[u8]) {
    let words: Vec<OsString> =
        bytes.split(|byte| *byte == b'\n').map(|word| OsString::from_vec(word.to_vec())).collect();
    if let Err((code, said)) = fuzz_entry::arguments(&words) {
        assert!([0, 2].contains(&code) && !said.is_empty(), "{words:?}: {code} {said}");
    }
    for word in words.iter().filter_map(|word| word.to_str()) {
        if let Ok(count) = human::parse_bytes(word) {
            // Shown with three digits; the very largest may be rounded up beyond what there is.
            let shown = human::bytes(count);
            let again = human::parse_bytes(&shown).unwrap_or(u64::MAX);
            assert!(again.abs_diff(count) <= count / 99, "{word:?}: {count}, {shown}, {again}");
            assert!(
                word.parse().is_ok_and(|number: u64| number == count)
                    || word.parse::<u64>().is_err()
            );
        }
        assert!(!printable(word).contains(char::is_control));
    }
}

/// Against the obvious way.
fn take_apart(bytes: &[u8], way: Way, buffer: usize, limit: u64) {
    let (found, said) = fuzz_entry::messages(memory(bytes), way, buffer, limit);
    let fits = |message: &&[u8]| message.len() as u64 <= limit;
    let (expected, fails): (Vec<&[u8]>, bool) = match way {
        Way::Chunks(chunk) => (bytes.chunks(usize::try_from(chunk).unwrap()).collect(), false),
        Way::Whole => {
            let whole = Some(bytes).filter(fits);
            (whole.into_iter().collect(), whole.is_none())
        }
        Way::Lines(end) => {
            let mut lines: Vec<&[u8]> = bytes.split(|byte| *byte == end).collect();
            // Behind the last line feed there is a line only if there is something.
            lines.pop_if(|last| last.is_empty());
            let count = lines.len();
            let fitting: Vec<&[u8]> = lines.into_iter().take_while(fits).collect();
            let fails = fitting.len() < count;
            (fitting, fails)
        }
    };
    assert_eq!(found, expected, "{way:?}, buffer {buffer}, limit {limit}");
    assert_eq!(said.is_some(), fails, "{said:?}");
}

fn memory(bytes: &[u8]) -> File {
    let mut file = File::from(memfd_create("fuzz", MemfdFlags::CLOEXEC).unwrap());
    file.write_all(bytes).unwrap();
    file.rewind().unwrap();
    file
}
