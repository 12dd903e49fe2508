//! `cargo xtask counts`: counts with callgrind how many instructions each hot path of the library takes for a message,
//! and compares the counts with the committed baseline.
//!
//! The crate `toroni-counts` has the paths (`tests/counts/src/paths.rs`). A count is the same at each run of the same
//! program, except where the proactor runs. It checks its clock, and on a busy machine more of its timed work is due. So a
//! count that is worse is made again, and the least one counts.

mod baseline;
mod callgrind;
mod comparison;

use clap::Args;

use self::baseline::Counts;
use self::callgrind::Counter;
use self::comparison::{Comparison, Verdict, verdict};
use crate::command::Failure;

/// How often a count is made that is worse.
const ATTEMPTS: u32 = 8;

#[derive(Args)]
pub(crate) struct Options {
    /// Count only the paths whose names contain this
    filter: Option<String>,
    /// Write the counts of all paths to the baseline
    #[arg(long, conflicts_with = "filter")]
    bless: bool,
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let filter = options.filter.as_deref().unwrap_or_default();
    let counter = Counter::new()?;
    let mut names = counter.paths()?;
    names.retain(|name| name.contains(filter));
    if names.is_empty() {
        return Err(Failure(format!(
            "no path has `{filter}` in its name: see tests/counts/src/paths.rs"
        )));
    }

    let file = baseline::file();
    // --bless replaces a baseline that cannot be read.
    let before = match Counts::read(&file) {
        Err(_) if options.bless => Counts::default(),
        read => read?,
    };
    let mut now = Counts { made_with: callgrind::made_with()?, ..Counts::default() };
    for name in &names {
        let mut least = counter.instructions_per_message(name)?;
        for _ in 1..ATTEMPTS {
            let baseline = before.instructions_per_message.get(name);
            if baseline.is_none_or(|baseline| verdict(least, *baseline) != Verdict::Worse) {
                break;
            }
            least = least.min(counter.instructions_per_message(name)?);
        }
        now.instructions_per_message.insert(name.clone(), least);
    }

    let comparison = Comparison::new(&names, &now, &before, filter);
    println!("\n{comparison}");
    if options.bless {
        now.write(&file)?;
        println!(
            "wrote {}: commit it, and say in the message what the change costs or gains",
            baseline::shown(&file)
        );
        return Ok(());
    }
    if let Some(hint) = comparison.hint() {
        println!("{hint}");
    }
    match comparison.objection(&baseline::shown(&file), &baseline::shown(&counter.folder)) {
        Some(objection) => Err(Failure(objection)),
        None => Ok(()),
    }
}
