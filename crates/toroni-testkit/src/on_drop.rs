//! Work for the end of a scope, however it is left.

/// Does something when it is dropped, also by a panic: for example, tells threads to end that would be waited for otherwise.
#[derive(Debug)]
#[must_use = "it does its work when it is dropped"]
pub struct OnDrop<F: FnMut()>(pub F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn threads_of_a_scope_end_although_it_panics() {
        let ends = AtomicBool::new(false);
        let panicked = std::panic::catch_unwind(|| {
            std::thread::scope(|scope| {
                let _end = OnDrop(|| ends.store(true, Ordering::Relaxed));
                scope.spawn(|| {
                    while !ends.load(Ordering::Relaxed) {
                        std::thread::yield_now();
                    }
                });
                panic!("a test that fails");
            });
        });
        assert!(panicked.is_err());
    }
}
