//! Programs that run as throw-away users: their numbers belong to no account, so that nothing has to be written to
//! `/etc/passwd`.

use std::path::Path;
use std::process::Command;

/// A user, by numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct User {
    id: u32,
    /// Beside its main group, which no other user has.
    groups: &'static [u32],
}

/// The group that may publish.
pub(crate) const WRITERS: u32 = 61_801;
/// The group that may subscribe.
pub(crate) const READERS: u32 = 61_802;

pub(crate) const PUBLISHER: User = User { id: 61_811, groups: &[WRITERS] };
pub(crate) const OTHER_PUBLISHER: User = User { id: 61_812, groups: &[WRITERS] };
pub(crate) const SUBSCRIBER: User = User { id: 61_813, groups: &[READERS] };
pub(crate) const OTHER_SUBSCRIBER: User = User { id: 61_814, groups: &[READERS] };
pub(crate) const BOTH: User = User { id: 61_815, groups: &[WRITERS, READERS] };
pub(crate) const STRANGER: User = User { id: 61_816, groups: &[] };

impl User {
    /// Its number, and that of its main group.
    pub(crate) const fn id(self) -> u32 {
        self.id
    }

    /// A member of another group by its main group.
    pub(crate) const fn with_id(id: u32) -> Self {
        Self { id, groups: &[] }
    }

    /// `program`, run by this user. It dies with the thread that starts it.
    pub(crate) fn runs(self, program: &Path) -> Command {
        let mut command = Command::new("setpriv");
        command.arg(format!("--reuid={}", self.id)).arg(format!("--regid={}", self.id));
        if self.groups.is_empty() {
            command.arg("--clear-groups");
        } else {
            let groups: Vec<String> = self.groups.iter().map(u32::to_string).collect();
            command.arg(format!("--groups={}", groups.join(",")));
        }
        // The kernel forgets the death signal when the user changes.
        command.args(["--pdeathsig", "KILL", "--no-new-privs", "--"]).arg(program);
        command.env_remove("TORONI_BUS").env_remove("TORONI_DIR").env_remove("TORONI_CRASH");
        command
    }

    /// A shell script with positional arguments, run by this user.
    pub(crate) fn script(self, script: &str, argument: &Path) -> Command {
        let mut command = self.runs(Path::new("sh"));
        command.args(["-c", script, "sh"]).arg(argument);
        command
    }
}
