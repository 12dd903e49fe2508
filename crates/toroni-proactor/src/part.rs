//! What one shard is made of.

use crate::config::{Config, Effective, ProcessorType, create_engine};
use crate::core::Core;
use crate::error::SetupError;
use crate::operation::{OperationMask, Pool, Request};
use crate::processor::{Limit, Processor, Slots};
use crate::provider::Attempt;
use crate::shards::Group;
use std::sync::Arc;

/// What one processor supports, and which part of it needs no lock.
pub(crate) struct Route {
    pub(crate) effective: OperationMask,
    pub(crate) eager: Option<Attempt>,
    pub(crate) attempt: Attempt,
    pub(crate) speculates: fn(&Request) -> bool,
    /// Whether threads may collect starts in their local runs.
    pub(crate) collects: bool,
}

/// A new shard, and what does not change.
pub(crate) struct Part {
    pub(crate) core: Core,
    pub(crate) routes: Vec<Route>,
    pub(crate) effective: Vec<Effective>,
}

impl Part {
    /// Creates the engines of one shard.
    pub(crate) fn new(
        config: &Config,
        group: &Arc<Group>,
        slots: &[Option<Arc<Slots>>],
    ) -> Result<Self, SetupError> {
        let mut pool = Pool::new();
        let (mut processors, mut routes, mut effective) = (Vec::new(), Vec::new(), Vec::new());
        for (number, wanted) in config.processors().iter().enumerate() {
            let (engine, chosen) = create_engine(wanted)?;
            let is_dedicated = chosen.config.processor_type == ProcessorType::Dedicated;
            routes.push(Route {
                effective: chosen.operations,
                eager: engine.provider.eager(),
                attempt: engine.provider.attempt(),
                speculates: engine.provider.speculates(),
                collects: engine.provider.can_start_in_any_thread() && !is_dedicated,
            });
            let most = chosen.config.max_operations.unwrap_or(usize::MAX);
            let limit = Limit::new(most, slots[number].clone());
            processors.push(Processor::new(number, is_dedicated, limit, engine, &mut pool));
            effective.push(chosen);
        }
        Ok(Self { core: Core::new(pool, processors, Arc::clone(group)), routes, effective })
    }
}
