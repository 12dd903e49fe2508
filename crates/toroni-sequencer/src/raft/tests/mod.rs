//! openraft's own suite for storage, on our log.

mod cluster;
mod pair;

use openraft::testing::{StoreBuilder, Suite};
use toroni_testkit::Directory;

use super::applied::{Applied, Events};
use super::storage::LogStore;
use super::types::{StorageError, Types};
use crate::log::{Log, Options, Sync};
use crate::machine::Event;

struct Ignored;

impl Events for Ignored {
    fn event(&mut self, _: Event<'_>) {}
    fn skipped(&mut self, _: u64) {}
}

struct OnDisk;

impl StoreBuilder<Types, LogStore, Applied, Directory> for OnDisk {
    async fn build(&self) -> Result<(Directory, LogStore, Applied), StorageError> {
        let directory = Directory::below("/dev/shm");
        let options = Options { segment_bytes: 4096, sync: Sync::Always };
        let log = Log::open(directory.path(), options).expect("an empty directory");
        let applied = Applied::open(log.clone(), Box::new(Ignored)).expect("an empty log");
        Ok((directory, LogStore::of(log), applied))
    }
}

#[test]
fn the_storage_passes_the_suite_of_openraft() {
    Suite::test_all(OnDisk).unwrap_or_else(|error| panic!("{error}"));
}
