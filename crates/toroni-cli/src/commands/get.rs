//! `toroni get`: prints the values of retained topics.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use super::subscribe::options::Form;
use crate::opening;
use clap::Args;
use clap_complete::ArgValueCompleter;
use toroni::{RetainedError, RetainedMessage};
use toroni_shell::exchange::{Loss, MissingValue};
use toroni_shell::failure::Failure;
use toroni_shell::location::BusLocation;
use toroni_shell::output::Output;
use toroni_shell::{complete, human};

#[derive(Args)]
#[command(after_help = "Examples:
  toroni get plant/setpoint --payload-only           the value of one topic
  toroni get 'plant/**' --json | jq '{topic, payload}'
  toroni -b a get --json | toroni -b b pub --json --retain    copy all values to bus b

The value of a retained topic is its newest message. `toroni pub --retain` retains a topic, `toroni sub --retained` prints \
values and then new messages, and `toroni topics` shows which topics have a value.

get prints values in the order of the bus, as sub prints messages. It takes no slot of the bus, and waits for no \
publisher. A value for which the bus had no room is reported on standard error; with --json, as an object with the field lost.")]
pub(crate) struct Get {
    /// Topics whose values to print, such as plant/** [default: **]
    #[arg(value_name = "PATTERN", hide_default_value = true, default_value = "**", add = ArgValueCompleter::new(complete::retained_topics))]
    patterns: Vec<String>,
    #[command(flatten)]
    form: Form,
}

/// Prints the value of each topic that matches a pattern.
pub(crate) fn run(location: &BusLocation, arguments: &Get) -> Result<(), Failure> {
    arguments.form.check()?;
    let patterns = toroni_shell::location::patterns(&arguments.patterns)?;
    let bus = location.open_existing(None)?;
    let values = bus.retained_matching(match &patterns[..] {
        [pattern] => pattern.as_str(),
        _ => "**",
    })?;
    let is_wanted = |value: &Result<RetainedMessage, RetainedError>| {
        topic(value).is_none_or(|topic| patterns.iter().any(|pattern| pattern.matches(topic)))
    };
    let (mut printed, mut missing) = (0_u64, 0_u64);
    let mut failed = None;
    let mut printer = arguments.form.printer(Output::new()?);
    for value in values.into_iter().filter(is_wanted) {
        match value {
            Ok(value) => {
                printed = printed.saturating_add(1);
                printer.print(&(&value).into())?;
            }
            Err(error) => match &error {
                RetainedError::Missing { topic, sequence, length } => {
                    missing = missing.saturating_add(1);
                    let loss = Loss::Value(MissingValue::new(topic, Some(*sequence), *length));
                    printer.loss(&loss, &format!("{error} (option --retained-bytes)"), false)?;
                }
                _ => failed = failed.or(Some(error)),
            },
        }
    }
    printer.output.flush()?;
    if let Some(error) = failed {
        return Err(error.into());
    }
    match (printed, missing) {
        (0, 0) => {
            opening::remark_on_bus_as_pattern(location, &patterns, "get");
            Err(Failure::Failed(format!(
                "no topic that matches {} has a value: `toroni topics` shows which have one",
                arguments.patterns.join(", ")
            )))
        }
        (_, 0) => Ok(()),
        _ => Err(Failure::Lost(format!(
            "printed {printed} of {}",
            human::counted(missing.saturating_add(printed), "value")
        ))),
    }
}

/// Returns the topic of a value, as far as an error names it.
fn topic(value: &Result<RetainedMessage, RetainedError>) -> Option<&str> {
    match value {
        Ok(value) => Some(value.topic()),
        Err(RetainedError::Missing { topic, .. } | RetainedError::Unstable { topic }) => {
            Some(topic)
        }
        Err(_) => None,
    }
}
