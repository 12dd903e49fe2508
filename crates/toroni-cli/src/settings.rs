//! Parses settings of a bus in the form in which the library prints them: `wait:100ms`, `bounded:10ms/1s`,
//! `multicast:239.255.1.2:5000`.

use std::net::SocketAddrV4;
use toroni::{LockKind, NotifyKind, Policy};
use toroni_shell::human;

/// Parses `wait`, `wait:LIMIT`, `wait:forever`, `overwrite` or `bounded:BUDGET/PER`.
pub(crate) fn parse_policy(text: &str) -> Result<Policy, String> {
    let (kind, detail) = split(text);
    match (kind, detail) {
        ("wait", None) => Ok(Policy::default()),
        ("wait", Some("forever")) => Ok(Policy::Wait { limit: None }),
        ("wait", Some(limit)) => Ok(Policy::Wait { limit: Some(human::parse_duration(limit)?) }),
        ("overwrite", None) => Ok(Policy::Overwrite),
        ("bounded", Some(detail)) => {
            let (budget, per) = detail
                .split_once('/')
                .ok_or("write the budget and its interval, such as bounded:10ms/1s")?;
            Ok(Policy::Bounded {
                budget: human::parse_duration(budget)?,
                per: human::parse_duration(per)?,
            })
        }
        _ => Err("write wait, wait:100ms, wait:forever, overwrite or bounded:10ms/1s".to_owned()),
    }
}

/// Parses `lease` or `robust`.
pub(crate) fn parse_lock(text: &str) -> Result<LockKind, String> {
    match text {
        "lease" => Ok(LockKind::Lease),
        "robust" => Ok(LockKind::Robust),
        _ => Err("write lease or robust".to_owned()),
    }
}

/// Parses `futex`, `datagram`, `multicast` or `multicast:GROUP:PORT`.
pub(crate) fn parse_notify(text: &str) -> Result<NotifyKind, String> {
    match split(text) {
        ("futex", None) => Ok(NotifyKind::Futex),
        ("datagram", None) => Ok(NotifyKind::Datagram),
        ("multicast", None) => Ok(NotifyKind::Multicast { group: None }),
        ("multicast", Some(group)) => {
            let group: SocketAddrV4 = group.parse().map_err(|_| {
                format!("{group:?} is not a group and a port: write for example 239.255.1.2:5000")
            })?;
            Ok(NotifyKind::Multicast { group: Some(group) })
        }
        _ => Err("write futex, datagram, multicast or multicast:239.255.1.2:5000".to_owned()),
    }
}

fn split(text: &str) -> (&str, Option<&str>) {
    match text.split_once(':') {
        Some((kind, detail)) => (kind, Some(detail)),
        None => (text, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn policies_are_parsed_and_printed() {
        for (text, value) in [
            ("wait:100ms", Policy::default()),
            ("wait:2s", Policy::Wait { limit: Some(Duration::from_secs(2)) }),
            ("wait:forever", Policy::Wait { limit: None }),
            ("overwrite", Policy::Overwrite),
            (
                "bounded:10ms/1s",
                Policy::Bounded { budget: Duration::from_millis(10), per: Duration::from_secs(1) },
            ),
        ] {
            assert_eq!(parse_policy(text), Ok(value));
            assert_eq!(value.to_string(), text);
        }
        assert_eq!(parse_policy("wait"), Ok(Policy::default()));
        for text in ["", "waits", "wait:", "wait:5", "overwrite:1s", "bounded", "bounded:1s"] {
            assert!(parse_policy(text).is_err(), "{text}");
        }
    }

    #[test]
    fn locks_and_notifiers_are_parsed_and_printed() {
        for text in ["lease", "robust"] {
            assert_eq!(parse_lock(text).unwrap().to_string(), text);
        }
        for text in ["futex", "datagram", "multicast", "multicast:239.255.1.2:5000"] {
            assert_eq!(parse_notify(text).unwrap().to_string(), text);
        }
        assert!(parse_lock("mutex").is_err());
        for text in ["", "futex:1", "multicast:239.255.1.2", "multicast:[::1]:5"] {
            assert!(parse_notify(text).is_err(), "{text}");
        }
    }
}
