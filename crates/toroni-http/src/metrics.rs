//! `/metrics` and `/healthz`: which of two text formats a client gets.

use crate::{Request, Response, Status};

/// The media type of OpenMetrics.
pub const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// The media type of Prometheus' older text format.
pub const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";
/// The media type of all else.
pub(crate) const PLAIN: &str = "text/plain; charset=utf-8";

/// Makes the response of a program that serves `/metrics` and `/healthz`. `text` returns the metrics in the text format
/// of OpenMetrics. A client that accepts only text/plain gets Prometheus' older format.
pub fn answer(request: &Request<'_>, text: impl FnOnce() -> String) -> Response {
    match request.path {
        "/metrics" if request.accept.is_some_and(wants_older_format) => {
            Response::text(Status::Ok, PROMETHEUS, older_format(&text()))
        }
        "/metrics" => Response::text(Status::Ok, OPENMETRICS, text()),
        "/healthz" => Response::text(Status::Ok, PLAIN, "ok\n"),
        _ => Response::text(Status::NotFound, PLAIN, "there are /metrics and /healthz\n"),
    }
}

/// Whether a client names plain text, and neither OpenMetrics nor everything.
fn wants_older_format(accept: &str) -> bool {
    let mut accepted =
        accept.split(',').map(|range| range.split(';').next().unwrap_or_default().trim());
    let is_plain = |range: &str| ["text/plain", "text/*"].contains(&range);
    let is_open =
        |range: &str| ["application/openmetrics-text", "application/*", "*/*"].contains(&range);
    accepted.clone().any(is_plain) && !accepted.any(is_open)
}

/// Rewrites OpenMetrics as Prometheus' older text format. There, the head of a counter carries the name of its samples,
/// and units and the end have no lines of their own.
fn older_format(text: &str) -> String {
    // A text has few families: a list is searched as fast as a set.
    let counters: Vec<&str> = text.lines().filter_map(counter_of).collect();
    let mut older = String::with_capacity(text.len());
    for line in text.lines() {
        let Some(comment) = line.strip_prefix("# ") else {
            older += line;
            older += "\n";
            continue;
        };
        let mut words = comment.splitn(3, ' ');
        let (Some(kind @ ("HELP" | "TYPE")), Some(name), Some(rest)) =
            (words.next(), words.next(), words.next())
        else {
            continue;
        };
        let suffix = if counters.contains(&name) { "_total" } else { "" };
        older += &format!("# {kind} {name}{suffix} {rest}\n");
    }
    older
}

/// Returns the name of the counter whose type this line states.
fn counter_of(line: &str) -> Option<&str> {
    line.strip_prefix("# TYPE ")?.strip_suffix(" counter")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_choose_the_format() {
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.3,*/*;q=0.1";
        for open in ["", "*/*", prometheus, "text/html, application/*"] {
            assert!(!wants_older_format(open), "{open}");
        }
        for plain in ["text/plain", "text/plain;version=0.0.4", "text/html, text/*;q=0.5"] {
            assert!(wants_older_format(plain), "{plain}");
        }
    }

    #[test]
    fn the_older_format_names_counters_as_their_samples() {
        let open = "# HELP toroni_bytes Bytes.\n# TYPE toroni_bytes counter\n# UNIT toroni_bytes bytes\n\
            toroni_bytes_total{bus=\"a\"} 1\n# HELP toroni_topics Names.\n# TYPE toroni_topics gauge\n\
            toroni_topics{bus=\"# TYPE x\"} 2\n# EOF\n";
        let older = "# HELP toroni_bytes_total Bytes.\n# TYPE toroni_bytes_total counter\n\
            toroni_bytes_total{bus=\"a\"} 1\n# HELP toroni_topics Names.\n# TYPE toroni_topics gauge\n\
            toroni_topics{bus=\"# TYPE x\"} 2\n";
        assert_eq!(older_format(open), older);
    }
}
