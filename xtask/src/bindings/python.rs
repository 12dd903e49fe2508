//! The Python module: its wheel, its types, its tests. Needs Python (on Debian with the package `python3-venv`). All
//! other tools come from PyPI, in the versions that `bindings/python/requirements.txt` pins, into an environment below
//! the target folder. The module is built in that folder, too, so that what it and the workspace depend on is compiled once.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::licences::Shipped;
use crate::command::{Failure, Steps, of_workspace, run as run_command};
use crate::metadata::{self, root};

pub(crate) struct Environment {
    folder: PathBuf,
}

const REQUIREMENTS: &str = "requirements.txt";

pub(super) const LICENCES: Shipped = Shipped {
    package: "toroni-python",
    workspace: "bindings/python",
    file: "bindings/python/licenses/third-party.txt",
};

pub(crate) fn steps(steps: &mut Steps) -> Result<(), Failure> {
    let environment = Environment { folder: metadata::members()?.target_directory.join("python") };
    let python = environment.program("python");
    steps.step("python: environment", || environment.make(REQUIREMENTS));
    steps.step("python: format and lints of its Rust", || {
        run(environment.cargo(&["fmt", "--check"])?)?;
        run(environment.cargo(&["clippy", "--locked", "--", "-D", "warnings"])?)
    });
    steps.step("python: licences of what is linked in", || LICENCES.check());
    steps.step("python: wheel", || environment.install(&environment, "dev"));
    steps.step("python: format and lints", || {
        run(environment.tool("ruff").args(["format", "--check"]))?;
        run(environment.tool("ruff").arg("check"))
    });
    steps.step("python: types", || {
        // One by one, because two folders have programs of the same names.
        for programs in ["python", "tests", "conformance", "examples", "bench"] {
            run(environment.tool("mypy").arg(programs))?;
        }
        run(environment.tool("stubtest").args([
            "toroni",
            "--allowlist",
            "stubtest.txt",
            "--ignore-unused-allowlist",
        ]))
    });
    steps.step("python: tests", || {
        run(of_workspace("build", &["--lib", "--example", "telemetry"]))?;
        let built = metadata::members()?.target_directory.join("debug");
        let daemon = built.join("examples/telemetry");
        // Several at a time, because most of them wait: for timeouts, and for processes that they start.
        let pytest = ["-m", "pytest", "--numprocesses", "3"];
        let mut tests = in_folder(&python);
        tests.args(pytest).env("TORONI_TELEMETRY", daemon);
        // The tests of toroni.net.Direct compile programs in C with it.
        run(tests.env("TORONI_NET_C", built.join("libtoroni_net_c.a")))
    });
    Ok(())
}

/// Installs the module for the programs that the test across languages runs, and says where they find it.
pub(super) fn conformance(command: &mut Command) -> Result<(), Failure> {
    let environment = Environment { folder: metadata::members()?.target_directory.join("python") };
    environment.make(REQUIREMENTS)?;
    environment.install(&environment, "dev")?;
    command.env("TORONI_CONFORMANCE_PYTHON", environment.program("python"));
    Ok(())
}

/// Returns the comparison with other libraries. It has a release build of the wheel and an environment of its own.
pub(super) fn measure() -> Result<Vec<Command>, Failure> {
    let folder = metadata::members()?.target_directory.join("python/measure");
    let environment = Environment { folder };
    environment.make("bench/requirements.txt")?;
    // maturin is in the environment of the tests.
    let tests = Environment { folder: metadata::members()?.target_directory.join("python") };
    tests.make(REQUIREMENTS)?;
    environment.install(&tests, "release")?;
    let mut compare = in_folder(&environment.program("python"));
    compare.arg("bench/compare.py");
    Ok(vec![compare])
}

impl Environment {
    /// Makes the environment, unless it exists with these requirements.
    fn make(&self, requirements: &str) -> Result<String, Failure> {
        let wanted = std::fs::read(folder().join(requirements))
            .map_err(|error| Failure(format!("cannot read {requirements}: {error}")))?;
        let stamp = self.folder.join("requirements.txt");
        if std::fs::read(&stamp).is_ok_and(|found| found == wanted) {
            return Ok("exists".to_owned());
        }
        run(Command::new("python3").args(["-m", "venv"]).arg(self.venv()))?;
        let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
        run(in_folder(&self.program("python")).args(install).args(["-r", requirements]))?;
        std::fs::write(&stamp, wanted)
            .map(|()| String::new())
            .map_err(|error| Failure(format!("cannot write {}: {error}", stamp.display())))
    }

    /// Builds the wheel with the maturin of `tools`, and installs it here.
    fn install(&self, tools: &Self, profile: &str) -> Result<String, Failure> {
        let wheels = self.folder.join("wheels");
        // Else pip might install an older one.
        let _ = std::fs::remove_dir_all(&wheels);
        let mut build = tools.tool("maturin");
        build.args(["build", "--locked", "--profile", profile, "--out"]).arg(&wheels);
        run(build.env("CARGO_TARGET_DIR", metadata::members()?.target_directory))?;
        let mut install = in_folder(&self.program("python"));
        install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
        install.args(["--no-index", "--no-deps", "--force-reinstall", "toroni", "--find-links"]);
        run(install.arg(&wheels))
    }

    fn venv(&self) -> PathBuf {
        self.folder.join("venv")
    }

    fn program(&self, name: &str) -> PathBuf {
        self.venv().join("bin").join(name)
    }

    fn tool(&self, name: &str) -> Command {
        in_folder(&self.program(name))
    }

    /// Runs in the module's own workspace.
    fn cargo(&self, arguments: &[&str]) -> Result<Command, Failure> {
        let mut command =
            in_folder(Path::new(&std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())));
        command.args(arguments);
        command.env("CARGO_TARGET_DIR", metadata::members()?.target_directory);
        command.env("PYO3_PYTHON", self.program("python"));
        Ok(command)
    }
}

fn run(command: impl std::borrow::BorrowMut<Command>) -> Result<String, Failure> {
    let mut command = command;
    run_command(command.borrow_mut()).map(|()| String::new())
}

fn folder() -> PathBuf {
    root().join("bindings/python")
}

fn in_folder(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(folder());
    command
}
