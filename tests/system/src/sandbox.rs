//! Takes a system call away from a process, as the sandbox of a container may do.

/// Makes membarrier(2) fail in this thread, and in threads that it starts.
///
/// # Panics
/// If the kernel refuses the filter.
pub fn refuse_membarrier() {
    let statement = |code: u32, yes, no, value| libc::sock_filter {
        code: u16::try_from(code).expect("16 bits"),
        jt: yes,
        jf: no,
        k: value,
    };
    let give = libc::BPF_RET | libc::BPF_K;
    let refused = libc::SECCOMP_RET_ERRNO | libc::EPERM.unsigned_abs();
    let number = u32::try_from(libc::SYS_membarrier).expect("32 bits");
    let mut filter = [
        // The number of the call.
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, 0, number),
        statement(give, 0, 0, libc::SECCOMP_RET_ALLOW),
        statement(give, 0, 0, refused),
    ];
    let len = u16::try_from(filter.len()).expect("four");
    let program = libc::sock_fprog { len, filter: filter.as_mut_ptr() };
    // SAFETY: the program is of valid statements that live through the call, which copies them.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let mode = libc::SECCOMP_MODE_FILTER;
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program), 0);
        assert_eq!(libc::syscall(libc::SYS_membarrier, 0, 0, 0), -1, "it is refused");
    }
}
