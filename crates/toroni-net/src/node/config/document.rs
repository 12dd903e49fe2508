//! Reads a file by the schema: all its mistakes at once, each with its place.

use super::finding::{Findings, Lines, MOST, Place, suggestion};
use super::schema::{Default, Key, Section, sections};
use super::value::{Value, read_value};
use std::collections::BTreeMap;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A file that is longer is refused before it is read.
pub const LONGEST: usize = 1 << 20;

/// How many sections of one kind there may be. It bounds the work of comparing each with each.
pub const MOST_SECTIONS: usize = 256;

/// What a file says, with defaults for what it does not say.
#[derive(Clone, Debug)]
pub(super) struct Document {
    sections: BTreeMap<&'static str, Vec<Values>>,
}

/// The values of one section.
#[derive(Clone, Debug)]
pub(super) struct Values {
    /// How messages call it, such as `[[send]] 2`.
    pub(super) name: String,
    /// Where it begins, if it is in the file.
    pub(super) place: Option<Place>,
    entries: BTreeMap<&'static str, Entry>,
}

/// A value, and where it stands; defaults stand nowhere.
#[derive(Clone, Debug)]
struct Entry {
    value: Value,
    place: Option<Place>,
}

impl Values {
    /// Returns a value that is in the file, or is the default.
    pub(super) fn get(&self, key: &str) -> Option<&Value> {
        self.entries.get(key).map(|entry| &entry.value)
    }

    /// Whether the file has this key.
    pub(super) fn has(&self, key: &str) -> bool {
        self.entries.get(key).is_some_and(|entry| entry.place.is_some())
    }

    /// Returns where a key stands, or else its section.
    pub(super) fn place_of(&self, key: &str) -> Option<Place> {
        self.entries.get(key).and_then(|entry| entry.place).or(self.place)
    }

    /// Returns how messages call a key.
    pub(super) fn name_of(&self, key: &str) -> String {
        format!("{}: {key}", self.name)
    }

    /// Adds what holds without the file.
    fn fill(&mut self, section: &Section, findings: &mut Findings) {
        for Key { name, kind, default, about } in &section.keys {
            if self.entries.contains_key(name) {
                continue;
            }
            match default {
                Default::None(_) => {}
                Default::Required => {
                    findings.refuse(self.place, self.name_of(name), format!("is missing: {about}"));
                }
                Default::Value(text) => {
                    let value = DeValue::parse(text).expect("a default is TOML");
                    let value = read_value(*kind, value.get_ref()).expect("a default is valid");
                    self.entries.insert(name, Entry { value, place: None });
                }
            }
        }
    }
}

impl Document {
    /// Reads a text. What cannot be read is missing, and among the findings.
    pub(super) fn read(text: &str, findings: &mut Findings) -> Self {
        let mut document = Self { sections: BTreeMap::new() };
        if text.len() > LONGEST {
            findings.refuse(None, "", format!("the file is longer than {LONGEST} bytes"));
            return document;
        }
        let lines = Lines::new(text);
        let (table, errors) = DeTable::parse_recoverable(text);
        if !errors.is_empty() {
            for error in errors.into_iter().take(MOST + 1) {
                let place = error.span().map(|span| lines.place(span.start));
                findings.refuse(place, "", error.message().trim_end().replace('\n', " "));
            }
            // What was recovered is a guess.
            return document;
        }
        let mut reader = Reader { lines, sections: sections(), findings };
        reader.table(table.get_ref(), &mut document);
        document
    }

    /// Returns all sections of a name.
    pub(super) fn all(&self, section: &str) -> &[Values] {
        self.sections.get(section).map_or(&[], Vec::as_slice)
    }

    /// Returns the only section of a name.
    pub(super) fn one(&self, section: &str) -> Option<&Values> {
        self.all(section).first()
    }
}

struct Reader<'a> {
    lines: Lines<'a>,
    sections: Vec<Section>,
    findings: &'a mut Findings,
}

type Name<'i> = Spanned<toml::de::DeString<'i>>;

impl Reader<'_> {
    fn place(&self, byte: usize) -> Place {
        self.lines.place(byte)
    }

    fn table(&mut self, table: &DeTable<'_>, document: &mut Document) {
        for (name, value) in table {
            if self.findings.are_full() {
                return;
            }
            // Names with a point are those of tables within sections.
            let is_meant =
                |section: &&Section| section.name == name.get_ref() && !section.name.contains('.');
            let found = self.sections.iter().find(is_meant);
            match found.cloned() {
                Some(section) => self.section(&section, name, value, document),
                None => self.unknown_section(name),
            }
        }
        // Only this section has something that is required.
        if !table.contains_key("node") {
            self.findings.refuse(None, "[node]", "is missing: it names at least the realm");
        }
    }

    fn unknown_section(&mut self, name: &Name<'_>) {
        let place = self.place(name.span().start);
        let top = self.sections.iter().map(|section| section.name).filter(|it| !it.contains('.'));
        let mut hint = suggestion(name.get_ref(), top);
        let owner = self.sections.iter().find(|section| section.key(name.get_ref()).is_some());
        if let (true, Some(section)) = (hint.is_empty(), owner) {
            hint = format!(": it belongs into {}", section.header());
        }
        let problem = format!("there is no such section{hint}");
        self.findings.refuse(Some(place), name.get_ref().to_string(), problem);
    }

    fn section(
        &mut self,
        section: &Section,
        name: &Name<'_>,
        value: &Spanned<DeValue<'_>>,
        document: &mut Document,
    ) {
        let place = self.place(name.span().start);
        let header = section.header();
        let tables: Vec<&Spanned<DeValue<'_>>> = match value.get_ref() {
            DeValue::Table(_) if !section.is_list => vec![value],
            DeValue::Array(array)
                if section.is_list && array.iter().all(|it| it.get_ref().is_table()) =>
            {
                array.iter().collect()
            }
            _ => {
                let problem = format!("write it as {header}");
                return self.findings.refuse(Some(place), name.get_ref().to_string(), problem);
            }
        };
        if tables.len() > MOST_SECTIONS {
            let problem = format!("there are {}, and may be {MOST_SECTIONS}", tables.len());
            return self.findings.refuse(Some(place), header, problem);
        }
        let mut all = Vec::new();
        for (index, table) in tables.into_iter().enumerate() {
            let shown =
                if section.is_list { format!("{header} {}", index + 1) } else { header.clone() };
            let begin = Some(self.place(table.span().start));
            let mut values = Values { name: shown, place: begin, entries: BTreeMap::new() };
            if let DeValue::Table(table) = table.get_ref() {
                self.keys(section, table, &mut values, document);
            }
            values.fill(section, self.findings);
            all.push(values);
        }
        document.sections.insert(section.name, all);
    }

    fn keys(
        &mut self,
        section: &Section,
        table: &DeTable<'_>,
        values: &mut Values,
        document: &mut Document,
    ) {
        for (name, value) in table {
            if self.findings.are_full() {
                return;
            }
            let place = Some(self.place(name.span().start));
            let Some(key) = section.key(name.get_ref()) else {
                let hint = suggestion(name.get_ref(), section.keys.iter().map(|key| key.name));
                let problem = format!("{} has no such key{hint}", section.header());
                self.findings.refuse(place, values.name_of(name.get_ref()), problem);
                continue;
            };
            let nested = format!("{}.{}", section.name, key.name);
            let nested = self.sections.iter().find(|section| section.name == nested).cloned();
            if let (DeValue::Table(_), Some(nested)) = (value.get_ref(), nested) {
                self.section(&nested, name, value, document);
                continue;
            }
            match read_value(key.kind, value.get_ref()) {
                Ok(value) => drop(values.entries.insert(key.name, Entry { value, place })),
                Err(problem) => {
                    let place = Some(self.place(value.span().start));
                    self.findings.refuse(place, values.name_of(key.name), problem);
                    // It is not missing, and has no default: one mistake is one finding.
                    values.entries.insert(key.name, Entry { value: Value::Invalid, place });
                }
            }
        }
    }
}
