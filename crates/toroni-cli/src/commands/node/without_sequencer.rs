//! Stands for `sequencer.rs` in a program that was built without the feature `sequencer`.

use toroni_net::node::{Settings, config};
use toroni_shell::notice;

/// There is none.
pub(super) enum Sequencer {}

impl Sequencer {
    pub(super) fn start(config: &config::Node, _: &Settings) -> Result<Option<Self>, String> {
        match config.sequencer {
            None => Ok(None),
            Some(_) => Err("this program was built without the feature `sequencer`".to_owned()),
        }
    }

    pub(super) fn description(&self) -> String {
        match *self {}
    }

    pub(super) fn problem(&mut self) -> Option<String> {
        match *self {}
    }

    pub(super) fn report(&mut self) -> notice::Sequencer {
        match *self {}
    }

    pub(super) fn end(self) -> Result<(), String> {
        match self {}
    }
}
