//! A publisher that has committed wakes the sleepers: `notify/eventcount.rs`, `notify/rows.rs`, `bus/publish/wake.rs`.
//!
//! A row is loaded in one step, although it may have several words. Each slot is in one of them.

use crate::mistakes::Mistake;
use crate::publisher::{Doing, Turn};

impl Turn<'_> {
    pub(crate) fn wake(&mut self, way: u8) -> bool {
        match self.state.publishers[self.me].doing {
            Doing::LoadSleeps { wait } => {
                let me = &self.state.publishers[self.me];
                match (me.noted, me.asleep) {
                    (true, 0) => self.after_wake(wait),
                    (true, _) if self.is_for_all(wait) => self.choose(wait),
                    (true, _) => self.go(Doing::LoadRow { wait }),
                    // The round loads the same word again.
                    (false, _) => self.begin_round(wait),
                }
            }
            Doing::LoadRow { wait } => {
                let row = self.row();
                if self.mine().asleep & !row == 0 {
                    return self.after_wake(wait);
                }
                self.go(Doing::CountSleeps { wait })
            }
            Doing::CountSleeps { wait } => self.begin_round(wait),
            Doing::Look { wait, left } => self.look(way, wait, left),
            Doing::ChooseSleepers { wait } => {
                let left = self.mine().asleep & !self.row();
                self.wake_those(wait, left)
            }
            Doing::RaiseWord { wait, left } => {
                let one = 1 << way;
                if left & one == 0 {
                    return false;
                }
                self.state.subscribers[usize::from(way)].token = false;
                self.go(Doing::WakeOne { wait, left: left & !one, one })
            }
            Doing::WakeOne { wait, left, one } => {
                self.state.subscribers[one.ilog2() as usize].wake_up();
                let newer = self.has(Mistake::NotifiedUpToANewerCount);
                let me = self.mine();
                if me.seen & one != 0 || newer {
                    me.armed &= !one;
                }
                me.asleep &= !one;
                me.seen &= !one;
                self.wake_those(wait, left)
            }
            _ => unreachable!("the other steps are in publisher.rs"),
        }
    }

    fn look(&mut self, way: u8, wait: bool, left: u8) -> bool {
        let one = 1 << way;
        if left & one == 0 {
            return false;
        }
        let me = self.mine();
        me.asleep |= one & me.armed;
        me.seen |= one & me.armed;
        let left = left & !one;
        if left != 0 {
            return self.go(Doing::Look { wait, left });
        }
        me.noted = std::mem::take(&mut me.counted);
        self.choose(wait)
    }

    fn begin_round(&mut self, wait: bool) -> bool {
        let left = self.setup.all_slots();
        let me = self.mine();
        if me.noted || left == 0 {
            return self.choose(wait);
        }
        me.counted = true;
        self.go(Doing::Look { wait, left })
    }

    fn choose(&mut self, wait: bool) -> bool {
        if self.is_for_all(wait) {
            let left = self.mine().asleep;
            return self.wake_those(wait, left);
        }
        self.go(Doing::ChooseSleepers { wait })
    }

    fn wake_those(&mut self, wait: bool, left: u8) -> bool {
        if left != 0 {
            return self.go(Doing::RaiseWord { wait, left });
        }
        if self.has(Mistake::BystandersForgotten) {
            let me = self.mine();
            (me.asleep, me.seen) = (0, 0);
        }
        self.after_wake(wait)
    }

    /// One that waits for space wakes all that sleep: it may have to wait for each of them. If there is one topic, its row is
    /// always 0.
    fn is_for_all(&self, wait: bool) -> bool {
        wait && !self.has(Mistake::WaitsForBystanders) || !self.setup.has_topics()
    }

    /// The slots that want nothing of what it has published.
    fn row(&self) -> u8 {
        let me = &self.state.publishers[self.me];
        if self.has(Mistake::RowBeforeCommit) { me.early_row } else { self.state.row(me.owes) }
    }
}
