//! The file in which a host notes which command buses it has had. The order takes commands of another bus of a source only from
//! who names the bus that it knows: otherwise, any host with the same name could take the source.
//!
//! ```text
//!  opened <32 hexadecimal digits>     the bus that the order is known to have
//!  noted <32 hexadecimal digits>      one that the order may have, the oldest first, at most seven
//! ```

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::PathBuf;

use crate::batch::MAX_EARLIER;

type Bus = [u8; 16];

/// The command buses that this host has had.
#[derive(Debug, Default)]
pub(super) struct Buses {
    path: Option<PathBuf>,
    opened: Option<Bus>,
    noted: Vec<Bus>,
}

impl Buses {
    /// Reads the file. Without one, there was no bus.
    pub(super) fn load(path: PathBuf) -> io::Result<Self> {
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            Err(error) => return Err(error),
        };
        let (mut opened, mut noted) = (None, vec![]);
        for line in text.lines() {
            let bus =
                |digits: &str| u128::from_str_radix(digits, 16).ok().filter(|_| digits.len() == 32);
            let found = line.split_once(' ').and_then(|(word, digits)| Some((word, bus(digits)?)));
            match found {
                Some(("opened", bus)) if opened.is_none() => opened = Some(bus.to_be_bytes()),
                Some(("noted", bus)) if noted.len() < MAX_EARLIER - 1 => {
                    noted.push(bus.to_be_bytes());
                }
                _ => {
                    let why = format!(
                        "{line:?} is not a line of it. Remove the file; if the order then takes no commands of this host, use toroni \
                         sequencer sources release"
                    );
                    return Err(io::Error::new(ErrorKind::InvalidData, why));
                }
            }
        }
        Ok(Self { path: Some(path), opened, noted })
    }

    /// Notes a bus. It is on the disk when this returns.
    pub(super) fn note(&mut self, bus: Bus) -> io::Result<()> {
        if self.opened == Some(bus) || self.noted.contains(&bus) {
            return Ok(());
        }
        // The one that the order is known to have stays, however often a new bus finds no leader. So does the first one after it: the
        // order may have it, if its answer was lost.
        if self.noted.len() >= MAX_EARLIER - 1 {
            self.noted.remove(1);
        }
        self.noted.push(bus);
        let saved = self.save();
        if saved.is_err() {
            self.noted.pop();
        }
        saved
    }

    /// Notes that the order has this bus. The others are of no use any more.
    pub(super) fn opened(&mut self, bus: Bus) {
        if self.opened != Some(bus) || !self.noted.is_empty() {
            (self.opened, self.noted) = (Some(bus), vec![]);
            // What the file has instead names this bus, too.
            let _ = self.save();
        }
    }

    /// Returns the buses before this one.
    pub(super) fn earlier(&self, bus: Bus) -> Vec<Bus> {
        let all = self.opened.iter().chain(&self.noted);
        all.copied().filter(|other| *other != bus).collect()
    }

    fn save(&self) -> io::Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        let line = |word: &str, bus: &Bus| format!("{word} {:032x}\n", u128::from_be_bytes(*bus));
        let opened = self.opened.iter().map(|bus| line("opened", bus));
        let text: String = opened.chain(self.noted.iter().map(|bus| line("noted", bus))).collect();
        // A name that no feed's file has.
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let temporary = path.with_file_name(format!("unfinished-{name}"));
        let mut file = File::create(&temporary)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&temporary, path)?;
        match path.parent() {
            Some(folder) => File::open(folder)?.sync_all(),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toroni_testkit::Directory;

    const fn bus(number: u8) -> Bus {
        [number; 16]
    }

    #[test]
    fn the_bus_that_the_order_has_is_never_forgotten() {
        let directory = Directory::new();
        let path = directory.join("commands-orders");
        let load = || Buses::load(path.clone()).expect("readable");
        let mut buses = load();
        assert_eq!(buses.earlier(bus(1)), [[0; 16]; 0]);
        buses.note(bus(1)).expect("written");
        buses.opened(bus(1));
        assert_eq!(load().earlier(bus(2)), [bus(1)]);
        // No leader answers for any of these.
        for number in 2..20 {
            let mut buses = load();
            buses.note(bus(number)).expect("written");
            buses.note(bus(number)).expect("written");
            let earlier = load().earlier(bus(number));
            assert!(earlier.contains(&bus(1)) && !earlier.contains(&bus(number)), "{earlier:?}");
            assert!(number == 2 || earlier.contains(&bus(2)), "{earlier:?}");
            assert_eq!(earlier.last(), Some(&bus(if number == 2 { 1 } else { number - 1 })));
            assert!(earlier.len() < MAX_EARLIER);
        }
        let mut buses = load();
        buses.opened(bus(19));
        assert_eq!(load().earlier(bus(20)), [bus(19)]);
    }

    #[test]
    fn a_file_with_something_else_is_refused() {
        let directory = Directory::new();
        let path = directory.join("commands-orders");
        let line = "noted 00000000000000000000000000000001\n";
        for text in
            ["what", "noted 12", &line.replace("noted", "opened").repeat(2), &line.repeat(8)]
        {
            fs::write(&path, text).expect("written");
            let error = Buses::load(path.clone()).expect_err("not one");
            assert!(error.to_string().contains("Remove the file"), "{error}");
        }
    }
}
