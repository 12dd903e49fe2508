//! Reads the value of one key.

use super::schema::{DESTINATIONS_MAX, Kind, PATTERNS_MAX};
use super::units::Quantity;
use crate::node::host_port::HostPort;
use std::fmt::Display;
use std::net::SocketAddr;
use std::ops::Range;
use std::time::Duration;
use toml::de::DeValue;
use toroni::{Pattern, Policy};

/// The longest text of a key, in bytes.
const LONGEST_TEXT: usize = 4096;

/// What a key contains.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Text(String),
    Number(u64),
    Flag(bool),
    Names(Vec<String>),
    Patterns(Vec<Pattern>),
    Address(SocketAddr),
    Addresses(Vec<SocketAddr>),
    Policy(Policy),
    Range(Range<u64>),
    Host(HostPort),
    Hosts(Vec<HostPort>),
    Members(Vec<(String, HostPort)>),
    /// Datagrams as large as the interface takes.
    Mtu,
    /// It is in the file and wrong, which is among the findings.
    Invalid,
}

/// Reads a value of a kind. An error says what is there and what to write.
pub(super) fn read_value(kind: Kind, value: &DeValue<'_>) -> Result<Value, String> {
    let wrong = || format!("is {}: write {}", shown(value), kind.expected());
    let text = || value.as_str().ok_or_else(wrong);
    match kind {
        Kind::Text | Kind::Path => match text()? {
            "" => Err(format!("is empty: write {}", kind.expected())),
            text if text.len() > LONGEST_TEXT || text.contains('\0') => Err(wrong()),
            text => Ok(Value::Text(text.to_owned())),
        },
        Kind::Segment | Kind::Bus => segment(text()?).map(Value::Text).ok_or_else(wrong),
        Kind::Prefix => match text()? {
            "" => Ok(Value::Text(String::new())),
            text => match Pattern::new(text) {
                Ok(_) if text.contains('*') => Err(wrong()),
                Ok(_) => Ok(Value::Text(text.to_owned())),
                Err(error) => Err(error.to_string()),
            },
        },
        Kind::Quantity(quantity, least, most) => {
            let number = match value {
                // Zero is the same in all units.
                DeValue::Integer(_) => whole(value).filter(|number| *number == 0),
                _ => quantity.parse(text()?),
            };
            limited(number.ok_or_else(wrong)?, least, most, |number| quantity.show(number))
        }
        Kind::Datagram(..) if value.as_str() == Some("mtu") => Ok(Value::Mtu),
        Kind::Datagram(least, most) => {
            let number = Quantity::Bytes.parse(text()?).ok_or_else(wrong)?;
            limited(number, least, most, |number| Quantity::Bytes.show(number))
        }
        Kind::Count(least, most) => match (whole(value), value) {
            (Some(number), _) => limited(number, least, most, |it| it),
            (None, DeValue::Integer(_)) => {
                Err(format!("is {}: choose {least} to {most}", shown(value)))
            }
            _ => Err(wrong()),
        },
        Kind::Flag => value.as_bool().map(Value::Flag).ok_or_else(wrong),
        Kind::Choice(words) => {
            let text = text()?;
            let hint = super::finding::suggestion(text, words.iter().copied());
            let problem = || format!("is {text:?}: choose one of {}{hint}", words.join(", "));
            words.contains(&text).then(|| Value::Text(text.to_owned())).ok_or_else(problem)
        }
        Kind::Join => match value {
            DeValue::Integer(_) => whole(value).map(Value::Number).ok_or_else(wrong),
            _ => match text()? {
                word @ ("live" | "window") => Ok(Value::Text(word.to_owned())),
                _ => Err(wrong()),
            },
        },
        Kind::TimeRange => {
            let (least, most) = text()?.split_once("..").ok_or_else(wrong)?;
            let [least, most] = [least, most].map(|text| Quantity::Time.parse(text));
            match (least.ok_or_else(wrong)?, most.ok_or_else(wrong)?) {
                (least, most) if least < most => Ok(Value::Range(least..most)),
                _ => Err(format!("is {}: the first must be shorter than the second", shown(value))),
            }
        }
        Kind::Address => text()?.parse().map(Value::Address).map_err(|_| wrong()),
        Kind::Group => {
            let text = text()?;
            // Without a port it has the usual one.
            let with_port =
                || Some(SocketAddr::new(text.parse().ok()?, crate::host::address::DEFAULT_PORT));
            text.parse().ok().or_else(with_port).map(Value::Address).ok_or_else(wrong)
        }
        Kind::BusPolicy => policy(text()?).map(Value::Policy).ok_or_else(wrong),
        Kind::Names => texts(value).map(Value::Names).ok_or_else(wrong),
        Kind::Patterns => {
            let texts = texts(value).ok_or_else(wrong)?;
            if texts.len() > PATTERNS_MAX {
                return Err(format!("has {} patterns: write at most {PATTERNS_MAX}", texts.len()));
            }
            let patterns: Result<_, _> = texts.iter().map(|text| Pattern::new(text)).collect();
            patterns.map(Value::Patterns).map_err(|error| error.to_string())
        }
        Kind::Addresses => {
            let texts = texts(value).ok_or_else(wrong)?;
            if texts.len() > DESTINATIONS_MAX {
                return Err(format!(
                    "has {} addresses: write at most {DESTINATIONS_MAX}",
                    texts.len()
                ));
            }
            let addresses: Option<_> = texts.iter().map(|text| text.parse().ok()).collect();
            addresses.map(Value::Addresses).ok_or_else(wrong)
        }
        Kind::Host => text()?.parse().map(Value::Host).map_err(|_| wrong()),
        Kind::Hosts => {
            let texts = texts(value).ok_or_else(wrong)?;
            let hosts: Option<_> = texts.iter().map(|text| text.parse().ok()).collect();
            hosts.map(Value::Hosts).ok_or_else(wrong)
        }
        Kind::Members => {
            let member = |text: &String| {
                let (name, address) = text.split_once('=')?;
                Some((segment(name)?, address.parse().ok()?))
            };
            let members: Option<Vec<_>> =
                texts(value).ok_or_else(wrong)?.iter().map(member).collect();
            members.map(Value::Members).ok_or_else(wrong)
        }
    }
}

fn limited<T: Display>(
    number: u64,
    least: u64,
    most: u64,
    show: impl Fn(u64) -> T,
) -> Result<Value, String> {
    if (least..=most).contains(&number) {
        return Ok(Value::Number(number));
    }
    Err(format!("is {}: choose {} to {}", show(number), show(least), show(most)))
}

fn whole(value: &DeValue<'_>) -> Option<u64> {
    let integer = value.as_integer()?;
    u64::from_str_radix(integer.as_str(), integer.radix()).ok()
}

/// Reads one segment of a topic, of at most 64 bytes: it travels in each session.
fn segment(text: &str) -> Option<String> {
    const LONGEST: usize = 64;
    let is_plain = Pattern::new(text).is_ok() && !text.contains(['/', '*']);
    (is_plain && text.len() <= LONGEST && text.trim() == text).then(|| text.to_owned())
}

fn texts(value: &DeValue<'_>) -> Option<Vec<String>> {
    let array = value.as_array()?;
    let text = |value: &toml::Spanned<DeValue<'_>>| value.get_ref().as_str().map(str::to_owned);
    array.iter().map(text).collect()
}

/// Reads a policy as the library prints it.
fn policy(text: &str) -> Option<Policy> {
    let time = |text| Quantity::Time.parse(text).map(Duration::from_nanos);
    match text.split_once(':') {
        None if text == "wait" => Some(Policy::default()),
        None if text == "overwrite" => Some(Policy::Overwrite),
        Some(("wait", "forever")) => Some(Policy::Wait { limit: None }),
        Some(("wait", limit)) => Some(Policy::Wait { limit: Some(time(limit)?) }),
        Some(("bounded", detail)) => {
            let (budget, per) = detail.split_once('/')?;
            Some(Policy::Bounded { budget: time(budget)?, per: time(per)? })
        }
        _ => None,
    }
}

/// Returns what stands in the file, shortened.
fn shown(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => {
            let short: String = text.chars().take(40).collect();
            let more = if short.len() < text.len() { "…" } else { "" };
            format!("{short:?}{more}")
        }
        DeValue::Integer(integer) => integer.to_string(),
        DeValue::Float(float) => float.to_string(),
        DeValue::Boolean(flag) => flag.to_string(),
        DeValue::Datetime(time) => time.to_string(),
        DeValue::Array(_) => "a list of other values".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    }
}

impl Value {
    /// Returns the value as TOML. A number needs its kind for the unit.
    pub(super) fn to_toml(&self, kind: Kind) -> Option<String> {
        let list = |texts: Vec<String>| {
            let quoted: Vec<String> = texts.iter().map(|text| quote(text)).collect();
            format!("[{}]", quoted.join(", "))
        };
        let shown = |all: &[SocketAddr]| all.iter().map(ToString::to_string).collect();
        Some(match (self, kind) {
            (Self::Invalid, _) => return None,
            (Self::Number(number), Kind::Quantity(quantity, ..)) => quote(&quantity.show(*number)),
            (Self::Number(number), Kind::Datagram(..)) => quote(&Quantity::Bytes.show(*number)),
            (Self::Number(number), _) => number.to_string(),
            (Self::Text(text), _) => quote(text),
            (Self::Flag(flag), _) => flag.to_string(),
            (Self::Names(names), _) => list(names.clone()),
            (Self::Patterns(patterns), _) => {
                list(patterns.iter().map(|pattern| pattern.as_str().to_owned()).collect())
            }
            (Self::Address(address), _) => quote(&address.to_string()),
            (Self::Addresses(all), _) => list(shown(all)),
            (Self::Host(host), _) => quote(&host.to_string()),
            (Self::Hosts(all), _) => list(all.iter().map(ToString::to_string).collect()),
            (Self::Policy(policy), _) => quote(&policy.to_string()),
            (Self::Range(range), _) => {
                let [least, most] = [range.start, range.end].map(|end| Quantity::Time.show(end));
                quote(&format!("{least}..{most}"))
            }
            (Self::Members(members), _) => {
                list(members.iter().map(|(name, address)| format!("{name}={address}")).collect())
            }
            (Self::Mtu, _) => quote("mtu"),
        })
    }
}

/// Writes a basic string of TOML.
fn quote(text: &str) -> String {
    let mut quoted = String::from('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            control if control.is_control() => {
                quoted.push_str(&format!("\\u{:04X}", u32::from(control)));
            }
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}
