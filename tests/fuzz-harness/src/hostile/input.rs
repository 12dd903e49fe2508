//! Turns the bytes of a fuzzer into changes of a bus.

use super::expose_to;
use super::sites::{self, Change, Moment, Site};
use super::template::{FILES, Kind, Template};
use super::victim::Manner;
use crate::input::Input;
use std::path::Path;

/// More changes at once than this hide one another.
const MOST_CHANGES: usize = 12;

/// A bus of each kind, with the sites of it.
#[derive(Debug)]
pub struct Fixture(Vec<(Template, Vec<Site>)>);

/// What is done to a file.
enum Deed {
    Change(Change),
    /// At any offset, with the checksum made to fit.
    Write {
        file: &'static str,
        offset: u64,
        value: u64,
        width: usize,
    },
    /// Bytes that were there in another place.
    Copy {
        file: &'static str,
        from: u64,
        to: u64,
        length: u64,
    },
    Cut {
        file: &'static str,
        length: u64,
    },
}

impl Fixture {
    /// Makes the buses below `directory`.
    #[must_use]
    pub fn new(directory: &Path) -> Self {
        let kinds = [Kind::Lease, Kind::Robust, Kind::Full, Kind::Young];
        let with_sites = kinds.map(|kind| {
            let template = Template::new(directory, kind);
            let sites = sites::of(&template);
            (template, sites)
        });
        Self(with_sites.into())
    }

    /// Changes a bus as the bytes say, at the moment that they say, and lets all operations meet it.
    pub fn fuzz(&self, bytes: &[u8]) {
        let mut input = Input::new(bytes);
        let (template, sites) = &self.0[usize::from(input.byte()) % self.0.len()];
        let moment = [Moment::Before, Moment::Open, Moment::Locked][usize::from(input.byte() % 3)];
        let mut deeds = Vec::new();
        while !input.is_empty() && deeds.len() < MOST_CHANGES {
            deeds.extend(deed(&mut input, template, sites, moment));
        }
        template.restore();
        expose_to(template, moment, Manner::Limited, &|| {
            deeds.iter().for_each(|deed| perform(template, deed));
        });
    }
}

fn deed(
    input: &mut Input<'_>,
    template: &Template,
    sites: &[Site],
    moment: Moment,
) -> Option<Deed> {
    let file = FILES[usize::from(input.byte()) % FILES.len()];
    let length = template.length(file);
    match input.byte() % 8 {
        0..3 => {
            let site = input.pick(sites);
            let values = sites::changes(template, site);
            let value = input.byte();
            let change = values.get(usize::from(value) % values.len().max(1))?.clone();
            let fair = is_fair(change.site.file, change.site.offset, 8, moment);
            fair.then_some(Deed::Change(change))
        }
        3 | 4 => {
            let site = input.pick(sites).clone();
            let value = input.u64();
            let fair = is_fair(site.file, site.offset, 8, moment);
            fair.then_some(Deed::Change(Change { site, value }))
        }
        5 => {
            let width = 1 << (input.byte() % 4);
            let offset = u64::from(input.u32()) % (length - 8);
            let value = input.u64();
            let fair = is_fair(file, offset, 8, moment);
            fair.then_some(Deed::Write { file, offset, value, width })
        }
        6 => {
            let bytes = 8 * (1 + u64::from(input.byte()));
            let place = |offset: u32| u64::from(offset) % (length - bytes) / 8 * 8;
            let (from, to) = (place(input.u32()), place(input.u32()));
            let fair = is_fair(file, to, bytes, moment);
            fair.then_some(Deed::Copy { file, from, to, length: bytes })
        }
        // Only a publisher could truncate a file under the writer lock.
        _ if moment != Moment::Locked => {
            Some(Deed::Cut { file, length: u64::from(input.u32()) % length })
        }
        _ => None,
    }
}

/// While a publisher is at work, the C library's mutex is a part of a list in that process's memory: who
/// changes it then changes that.
fn is_fair(file: &str, offset: u64, length: u64, moment: Moment) -> bool {
    moment == Moment::Before || file != "ring" || !sites::touches_mutex(offset, length)
}

fn perform(template: &Template, deed: &Deed) {
    match deed {
        Deed::Change(change) => template.apply(change),
        Deed::Write { file, offset, value, width } => {
            template.write(file, *offset, &value.to_le_bytes()[..*width]);
        }
        Deed::Copy { file, from, to, length } => {
            let bytes = template.bytes(file, *from, *length).to_vec();
            template.write(file, *to, &bytes);
        }
        Deed::Cut { file, length } => template.cut(file, *length),
    }
}
