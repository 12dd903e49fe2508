//! Waits until something can be read or written.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// Up to this many descriptors need no memory from the allocator: enough for a node with a few groups.
const FEW: usize = 32;

/// Waits until one of the descriptors can be read, or, if its flag is set, written; or until this time is over, or a signal
/// comes. A descriptor that cannot be had is an error.
pub(crate) fn wait<'a, E: From<io::Error>>(
    mut descriptors: impl Iterator<Item = Result<(BorrowedFd<'a>, bool), E>>,
    longest: Duration,
) -> Result<(), E> {
    let time = Timespec {
        tv_sec: longest.as_secs().cast_signed(),
        tv_nsec: longest.subsec_nanos().into(),
    };
    let Some(first) = descriptors.next().transpose()? else { return sleep(&mut [], &time) };
    // All places need a descriptor, and only the first `count` are passed on.
    let mut few: [PollFd<'a>; FEW] = std::array::from_fn(|_| watched(first));
    let mut count = 1;
    while let Some(next) = descriptors.next().transpose()? {
        let Some(place) = few.get_mut(count) else {
            let mut many: Vec<PollFd<'a>> = few.into();
            many.push(watched(next));
            for further in descriptors {
                many.push(watched(further?));
            }
            return sleep(&mut many, &time);
        };
        *place = watched(next);
        count += 1;
    }
    sleep(&mut few[..count], &time)
}

fn watched((descriptor, waits_for_room): (BorrowedFd<'_>, bool)) -> PollFd<'_> {
    let room = if waits_for_room { PollFlags::OUT } else { PollFlags::empty() };
    PollFd::from_borrowed_fd(descriptor, PollFlags::IN | room)
}

fn sleep<E: From<io::Error>>(watched: &mut [PollFd<'_>], time: &Timespec) -> Result<(), E> {
    match poll(watched, Some(time)) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(io::Error::from(error).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fd::AsFd;
    use std::time::Instant;

    /// A node with many groups has more descriptors than usual.
    #[test]
    fn any_number_of_descriptors_is_watched() {
        for count in [1, FEW, FEW + 1, 3 * FEW] {
            let pipes: Vec<_> = (0..count).map(|_| std::io::pipe().unwrap()).collect();
            let all =
                || pipes.iter().map(|(reader, _)| Ok::<_, io::Error>((reader.as_fd(), false)));
            wait(all(), Duration::from_millis(1)).unwrap();
            // The last of them has something.
            std::io::Write::write_all(&mut &pipes[count - 1].1, b"x").unwrap();
            let begun = Instant::now();
            wait(all(), Duration::from_secs(100)).unwrap();
            assert!(begun.elapsed() < Duration::from_secs(50), "{count}");
        }
        wait(std::iter::empty::<io::Result<_>>(), Duration::from_millis(1)).unwrap();
        let broken = || Err(io::Error::from(io::ErrorKind::BrokenPipe));
        let pipe = std::io::pipe().unwrap();
        let all = [Ok((pipe.0.as_fd(), false)), broken()].into_iter();
        let error = wait(all, Duration::from_secs(100)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }
}
