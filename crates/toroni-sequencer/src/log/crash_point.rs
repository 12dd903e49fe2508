//! The steps of the log at which a process can die. In an ordinary build they compile to nothing.

macro_rules! crash_points {
    ($($variant:ident = $name:literal, $what:literal;)*) => {
        /// A step at which a process can die.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum CrashPoint { $(#[doc = $what] $variant,)* }

        #[cfg(test)]
        impl CrashPoint {
            /// All steps, in the order of their declaration.
            pub(super) const ALL: &[CrashPoint] = &[$(CrashPoint::$variant,)*];

            /// Returns the name by which `TORONI_CRASH` selects the step.
            pub(super) const fn name(self) -> &'static str {
                match self { $(CrashPoint::$variant => $name,)* }
            }
        }
    };
}

crash_points! {
    BeforeWrite = "log-before-write", "Entries are encoded; no byte is written.";
    MidWrite = "log-mid-write", "Half of the bytes of an append are written.";
    BeforeSync = "log-before-sync", "Entries are written, but not synced.";
    BeforeAnswer = "log-before-answer", "Entries are synced, and no caller knows it.";
    MidSegment = "log-mid-segment", "A segment has its size, but no header.";
    BeforeSegmentName = "log-before-segment-name", "A segment has its header, but not its name.";
    AfterSegmentName = "log-after-segment-name", "A segment has its name, and no entry.";
    BetweenCopies = "log-between-copies", "The first copy of the state is synced; the second is old.";
    AfterCopies = "log-after-copies", "Both copies of the state are synced, and no caller knows it.";
    BeforeCut = "log-before-cut", "The cut is noted; no entry is removed.";
    MidCut = "log-mid-cut", "Some entries after the cut are removed.";
    AfterCut = "log-after-cut", "All entries after the cut are removed; the note stands.";
    PurgeNoted = "log-purge-noted", "What is purged is noted; no segment is removed.";
    MidPurge = "log-mid-purge", "Some purged segments are removed.";
    BeforeSnapshotName = "log-before-snapshot-name", "A snapshot is written, but not in place of the last one.";
    AfterSnapshotName = "log-after-snapshot-name", "The snapshot is in place, and no caller knows it.";
}

/// Kills the process here, if `TORONI_CRASH=NAME:N` asks for the N-th time.
#[inline(always)]
pub(super) fn point(here: CrashPoint) {
    let _ = here;
    #[cfg(test)]
    toroni_testkit::crash::point(here.name());
}
