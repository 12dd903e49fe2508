//! A directory of buses for one test.

use crate::info::Info;
use crate::program;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use toroni::BusConfig;
use toroni_testkit::{Directory, Program, directory};

/// A fresh directory: `buses/` for buses, `files/` for whatever else a test writes. Removed with everything in it when
/// dropped, also when the test fails.
#[derive(Debug)]
pub struct TempRoot(Directory);

impl TempRoot {
    /// Makes it in memory.
    #[must_use]
    pub fn new() -> Self {
        Self::below(Path::new(directory::IN_MEMORY))
    }

    /// Makes it below another directory.
    #[must_use]
    pub fn below(parent: &Path) -> Self {
        let directory = Directory::below(parent);
        for folder in ["buses", "files"] {
            std::fs::create_dir(directory.join(folder)).expect("a directory for the test");
        }
        Self(directory)
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// The directory of buses: what `--dir` and `TORONI_DIR` name.
    #[must_use]
    pub fn buses(&self) -> PathBuf {
        self.0.join("buses")
    }

    /// A file of the test, outside of the directory of buses.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join("files").join(name)
    }

    /// Writes the key of a realm to the file `key`, which only its owner may read.
    ///
    /// # Panics
    /// If it cannot be written.
    pub fn write_key(&self, key: [u8; 32]) {
        let path = self.file("key");
        std::fs::write(&path, key).expect("the key");
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("its mode");
    }

    /// A configuration of the library for buses in it.
    #[must_use]
    pub fn config(&self) -> BusConfig {
        BusConfig::new().directory(self.buses())
    }

    /// `toroni --dir <buses> ARGUMENTS`, not yet started.
    #[must_use]
    pub fn toroni(&self, arguments: &[&str]) -> Command {
        program::toroni(&self.buses(), arguments)
    }

    /// Runs `toroni` to its end, which must be a success; what it printed.
    #[must_use]
    pub fn succeed(&self, arguments: &[&str]) -> String {
        Program::start(self.toroni(arguments)).succeed()
    }

    /// `toroni info BUS --json`.
    #[must_use]
    pub fn info(&self, bus: &str) -> Info {
        Info::parse(&self.succeed(&["info", bus, "--json"]))
    }

    /// Names in the directory of buses, hidden ones included, sorted.
    #[must_use]
    pub fn entries(&self) -> Vec<String> {
        directory::entries(&self.buses())
    }

    /// Runs `toroni clean --all` when every process has ended, and asserts that nothing is left.
    pub fn assert_clean_leaves_nothing(&self) {
        let said = self.succeed(&["clean", "--all", "--yes", "--json"]);
        assert_eq!(
            self.entries(),
            [""; 0],
            "left behind after `toroni clean --all`, which said:\n{said}"
        );
    }
}

impl Default for TempRoot {
    fn default() -> Self {
        Self::new()
    }
}
