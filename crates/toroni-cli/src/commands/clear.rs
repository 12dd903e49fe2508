//! `toroni clear`: ends the value of a retained topic.

use clap::Args;
use clap_complete::ArgValueCompleter;
use toroni::{FileError, Limit, RetainedError, Topic};
use toroni_shell::complete;
use toroni_shell::failure::Failure;
use toroni_shell::location::BusLocation;

#[derive(Args)]
#[command(after_help = "Example:
  toroni clear plant/setpoint

The topic stays retained: its next message is its value again. Subscribers that asked for values (`toroni sub --retained`) \
learn that it was cleared, at its place among the messages. Messages that are in the ring stay there.")]
pub(crate) struct Clear {
    /// The topic; not a pattern
    #[arg(add = ArgValueCompleter::new(complete::retained_topics))]
    topic: String,
}

/// Ends the value of the topic. Fails if it has none.
pub(crate) fn run(location: &BusLocation, arguments: &Clear) -> Result<(), Failure> {
    let name = &arguments.topic;
    Topic::new(name).map_err(|error| match error {
        _ if name.contains('*') => Failure::Usage(format!(
            "{name:?} is a pattern, and clear takes one topic: `toroni topics {name:?}` shows the topics that match"
        )),
        error => error.into(),
    })?;
    let bus = location.config().participant_name("toroni-clear").open_existing(&location.bus)?;
    match bus.retained(name) {
        // A topic that is declared stays so: not for a name that was mistyped.
        Ok(None) => {
            return Err(Failure::Failed(format!(
                "{name} has no value that could be cleared: `toroni topics` shows which topics have one"
            )));
        }
        Ok(Some(_)) | Err(RetainedError::Missing { .. } | RetainedError::Unstable { .. }) => {}
        // A user may have the right to publish, and not to subscribe.
        Err(RetainedError::File(FileError::PermissionDenied { .. })) => {}
        Err(error) => return Err(error.into()),
    }
    bus.publisher(name)?.retained()?.clear(Limit::Policy)?;
    Ok(())
}
