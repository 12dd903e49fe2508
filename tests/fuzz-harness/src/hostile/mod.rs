//! Hostile bytes in the files of a bus. Whatever the bytes are, users of the bus get messages or errors. They do not
//! panic, hang, or touch memory that is not theirs.
//!
//! - `sites`: the words of a bus that are worth changing, and the values to change them to.
//! - `template`: a bus with a history, restored before each case.
//! - `victim`: everything that a process does with a bus.
//! - `input`: turns the bytes of a fuzzer into changes.

mod input;
pub mod sites;
pub mod template;
pub mod victim;

pub use input::Fixture;

use sites::{Change, Moment};
use template::Template;
use victim::{Manner, User};

/// Makes the changes at the moment, and lets all operations meet them.
pub fn expose(template: &Template, moment: Moment, manner: Manner, changes: &[Change]) {
    expose_to(template, moment, manner, &|| {
        changes.iter().for_each(|change| template.apply(change));
    });
}

fn expose_to(template: &Template, moment: Moment, manner: Manner, apply: &dyn Fn()) {
    match moment {
        Moment::Before => apply(),
        Moment::Open => {
            let mut user = User::open(template);
            apply();
            user.work(manner);
        }
        Moment::Locked => {
            let mut user = User::open(template);
            user.publish_while(apply);
            user.work(manner);
        }
    }
    victim::visit(template, manner);
}
