//! The past of a stream: whether its sender remembers all that receivers may have of it.
//!
//! The numbers of a series only grow, as long as the sender remembers which it has used. One that was restored from a backup has
//! forgotten some, and uses them again for other messages. Receivers that have the first ones would take the second ones for
//! duplicates. So each session states what the sender remembers of the ones before, and a receiver compares that with
//! the session in which it last received something.

use crate::id::{Number, Session};

/// What a session states of those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Past {
    /// The number of the next message of the sender's bus when the session began: all messages from this number on were
    /// published since then.
    pub head: Number,
    /// The session before, in which the series was sent last.
    pub prior: Session,
}

impl Past {
    /// That of a series whose numbers are not kept longer than what they number, so that none can be used twice.
    pub const NONE: Self = Self { head: Number::MAX, prior: Session(u32::MAX) };

    /// Returns whether the sender of a session has forgotten another one, of which a receiver has something: it has everything
    /// below `next`, and has reached that in the session `reached`, which is 0 if it does not know that.
    #[must_use]
    pub const fn has_forgotten(&self, session: Session, reached: Session, next: Number) -> bool {
        let is_known = reached.0 != 0 && reached.0 != session.0;
        is_known && (reached.0 > self.prior.0 || next.get() > self.head.get())
    }

    /// Returns where a receiver continues that notices it. `taken` is the number up to which the session has come.
    ///
    /// What was published since the session began is all new. Unless the receiver has something of a later session: then it may have
    /// received this one before, and continues where it is now.
    #[must_use]
    pub fn continues_at(&self, session: Session, reached: Session, taken: Number) -> Number {
        if reached < session { self.head } else { self.head.max(taken) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(number: u64) -> Number {
        Number::new(number).unwrap()
    }

    #[test]
    fn a_session_of_which_it_knows_nothing_or_numbers_that_were_not_used_are_forgotten() {
        let past = Past { head: number(50), prior: Session(10) };
        let has_forgotten = |past: Past, reached, next| {
            past.has_forgotten(Session(12), Session(reached), number(next))
        };
        assert!(!has_forgotten(past, 10, 50), "the one before, up to where it ended");
        assert!(!has_forgotten(past, 9, 20));
        assert!(!has_forgotten(past, 0, 51), "it is not known in which it was reached");
        assert!(has_forgotten(past, 11, 20), "one that it does not remember");
        assert!(has_forgotten(past, 10, 51), "numbers that it uses again");
        assert!(!has_forgotten(past, 12, 70), "its own");
        assert!(!has_forgotten(Past::NONE, 11, 51));
    }

    #[test]
    fn what_was_published_since_the_session_began_is_new_unless_a_later_one_came_between() {
        let past = Past { head: number(50), prior: Session(10) };
        let continues_at = |reached| past.continues_at(Session(12), Session(reached), number(60));
        assert_eq!((continues_at(11), continues_at(13)), (number(50), number(60)));
    }
}
