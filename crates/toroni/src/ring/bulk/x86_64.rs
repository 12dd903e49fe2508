//! Copies in x86-64 assembly, with registers of two or four words.

/// The number of words from which copies use a loop, with registers of four words if the processor
/// has AVX.
const WIDE_WORDS: usize = 16;

/// Copies `words` words.
///
/// # Safety
///
/// Both ranges must be mapped, the target must be writable, and they must not overlap. `words` must
/// be at least [`FEWEST_WORDS`](super::FEWEST_WORDS).
#[inline(always)]
pub(in crate::ring) unsafe fn copy(from: *const u64, to: *mut u64, words: usize) {
    // SAFETY: as the caller promises. Each callee accesses only words of the two ranges.
    unsafe {
        match words {
            ..4 => ends_of_two(from, to, words),
            4..8 => ends_of_four(from, to, words),
            8..WIDE_WORDS => ends_of_eight(from, to, words),
            _ => long(from, to, words),
        }
    }
}

/// Prefetches the cache line at `address` for writing. Any address is allowed.
#[inline(always)]
pub(in crate::ring) fn prefetch_to_write(address: *const u64) {
    // SAFETY: this is a hint. It does not fault and does not change anything that a program can
    // see.
    unsafe {
        core::arch::asm!("prefetchw [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
}

unsafe fn long(from: *const u64, to: *mut u64, words: usize) {
    // SAFETY: as the caller of `copy` promises. AVX is used only if the processor has it.
    unsafe {
        if std::arch::is_x86_feature_detected!("avx") {
            long_avx(from, to, words);
        } else {
            long_sse(from, to, words);
        }
    }
}

/// Copies the words at several offsets of the ranges. All loads precede all stores, and the offsets
/// may overlap.
macro_rules! copy_places {
    ($from:ident, $to:ident, $words:ident, $($register:ident $place:literal),+) => {
        core::arch::asm!(
            $(concat!("movups {", stringify!($register), "}, [{from}", $place, "]"),)+
            $(concat!("movups [{to}", $place, "], {", stringify!($register), "}"),)+
            from = in(reg) $from,
            to = in(reg) $to,
            words = in(reg) $words,
            $($register = out(xmm_reg) _,)+
            options(nostack, preserves_flags),
        )
    };
}

/// Copies the first and the last two words, which together are all of two to four words.
///
/// # Safety
///
/// As for [`copy`], with 2 to 4 words.
#[inline(always)]
unsafe fn ends_of_two(from: *const u64, to: *mut u64, words: usize) {
    // SAFETY: accesses only the two ranges that the caller promises and the named registers.
    // Without `readonly`, `pure` or `nomem`, the compiler keeps the assembly in order with fences
    // and atomics. The same holds below.
    unsafe { copy_places!(from, to, words, a "", b " + 8*{words} - 16") }
}

/// Copies the first and the last four words, which together are all of four to eight words.
///
/// # Safety
///
/// As for [`copy`], with 4 to 8 words.
#[inline(always)]
unsafe fn ends_of_four(from: *const u64, to: *mut u64, words: usize) {
    // SAFETY: see `ends_of_two`.
    unsafe {
        copy_places!(
            from, to, words,
            a "", b " + 16", c " + 8*{words} - 32", d " + 8*{words} - 16"
        );
    }
}

/// Copies the first and the last eight words, which together are all of eight to sixteen words.
///
/// # Safety
///
/// As for [`copy`], with 8 to 16 words.
#[inline(always)]
unsafe fn ends_of_eight(from: *const u64, to: *mut u64, words: usize) {
    // SAFETY: see `ends_of_two`.
    unsafe {
        copy_places!(
            from, to, words,
            a "", b " + 16", c " + 32", d " + 48",
            e " + 8*{words} - 64", f " + 8*{words} - 48", g " + 8*{words} - 32",
            h " + 8*{words} - 16"
        );
    }
}

/// Copies sixteen words per iteration. The last iteration copies the last sixteen words, even if
/// some of them were copied before. Then executes `$end`.
macro_rules! copy_turns {
    (
        $from:ident, $to:ident, $words:ident,
        $mov:literal $($register:literal $place:literal),+; $($end:literal)?
    ) => {
        core::arch::asm!(
            "3:",
            $(concat!($mov, " ", $register, ", [{from}", $place, "]"),)+
            $(concat!($mov, " [{to}", $place, "], ", $register),)+
            "cmp {from}, {last_from}",
            "je 4f",
            "add {from}, 128",
            "add {to}, 128",
            "cmp {from}, {last_from}",
            "jb 3b",
            "mov {from}, {last_from}",
            "mov {to}, {last_to}",
            "jmp 3b",
            "4:",
            $($end,)?
            from = inout(reg) $from => _,
            to = inout(reg) $to => _,
            last_from = in(reg) $from.add($words - WIDE_WORDS),
            last_to = in(reg) $to.add($words - WIDE_WORDS),
            out("xmm0") _,
            out("xmm1") _,
            out("xmm2") _,
            out("xmm3") _,
            out("xmm4") _,
            out("xmm5") _,
            out("xmm6") _,
            out("xmm7") _,
            options(nostack),
        )
    };
}

/// Copies with registers of two words, which every processor has.
///
/// # Safety
///
/// As for [`copy`], with at least 16 words.
unsafe fn long_sse(from: *const u64, to: *mut u64, words: usize) {
    // SAFETY: see `ends_of_two`. The loop ends with the last iteration.
    unsafe {
        copy_turns!(
            from, to, words,
            "movups" "xmm0" "", "xmm1" " + 16", "xmm2" " + 32", "xmm3" " + 48",
            "xmm4" " + 64", "xmm5" " + 80", "xmm6" " + 96", "xmm7" " + 112";
        );
    }
}

/// Copies with registers of four words.
///
/// # Safety
///
/// As for [`long_sse`], on a processor with AVX.
unsafe fn long_avx(from: *const u64, to: *mut u64, words: usize) {
    // SAFETY: see `long_sse`. The compiler only knows about the lower halves of these registers.
    // `vzeroupper` zeroes the upper halves, as compiled code expects.
    unsafe {
        copy_turns!(
            from, to, words,
            "vmovdqu" "ymm0" "", "ymm1" " + 32", "ymm2" " + 64", "ymm3" " + 96";
            "vzeroupper"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::FEWEST_WORDS;
    use super::*;

    #[test]
    fn each_kind_copies_all_words_and_no_more() {
        type Copy = unsafe fn(*const u64, *mut u64, usize);
        /// Calls `copy`, whose address cannot be taken because it is `inline(always)`.
        unsafe fn any(from: *const u64, to: *mut u64, words: usize) {
            // SAFETY: as the caller promises.
            unsafe { copy(from, to, words) }
        }
        let mut kinds: Vec<(Copy, usize)> = vec![(any, FEWEST_WORDS), (long_sse, WIDE_WORDS)];
        if std::arch::is_x86_feature_detected!("avx") {
            kinds.push((long_avx, WIDE_WORDS));
        }
        for (kind, fewest) in kinds {
            for words in fewest..=200 {
                let from: Vec<u64> = (1..=words as u64).collect();
                let mut to = vec![0; words + 8];
                // SAFETY: both are long enough, and AVX is used only if the processor has it.
                unsafe { kind(from.as_ptr(), to.as_mut_ptr().add(4), words) };
                assert_eq!(&to[4..words + 4], &from[..], "{words} words");
                assert!(to[..4].iter().chain(&to[words + 4..]).all(|word| *word == 0), "{words}");
            }
        }
    }
}
