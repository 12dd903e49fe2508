//! Identifies the machine, the boot and the namespaces of this process.

use std::os::unix::fs::MetadataExt;

/// The boot and the namespaces in which a bus was created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KernelContext {
    /// Different after each boot; zeros if unknown.
    pub(crate) boot_id: [u8; 16],
    /// Inode of the PID namespace; 0 if unknown because /proc is missing.
    pub(crate) pid_namespace: u64,
    /// Inode of the network namespace; 0 if unknown.
    pub(crate) net_namespace: u64,
}

impl KernelContext {
    /// Returns those of this process. They are not cached, because `unshare` and `setns` change them.
    pub(crate) fn current() -> Self {
        Self {
            boot_id: boot_id().unwrap_or_default(),
            pid_namespace: namespace("/proc/self/ns/pid"),
            net_namespace: namespace("/proc/self/ns/net"),
        }
    }
}

/// The number of this architecture in the ELF format (elf.h, `EM_…`).
pub(crate) const ARCHITECTURE: u32 = if cfg!(target_arch = "x86_64") {
    62
} else if cfg!(target_arch = "aarch64") {
    183
} else if cfg!(target_arch = "riscv64") {
    243
} else if cfg!(target_arch = "powerpc64") {
    21
} else if cfg!(target_arch = "s390x") {
    22
} else if cfg!(target_arch = "loongarch64") {
    258
} else if cfg!(target_arch = "mips64") {
    8
} else {
    0
};

/// Returns the name of an architecture, for messages.
pub(crate) fn architecture_name(number: u32) -> String {
    match number {
        62 => "x86_64".to_owned(),
        183 => "aarch64".to_owned(),
        243 => "riscv64".to_owned(),
        21 => "powerpc64".to_owned(),
        22 => "s390x".to_owned(),
        258 => "loongarch64".to_owned(),
        8 => "mips64".to_owned(),
        number => format!("ELF machine {number}"),
    }
}

/// Returns the page size. Linux has none above 1 MiB.
pub(crate) fn page_bytes() -> u32 {
    u32::try_from(rustix::param::page_size()).unwrap_or(u32::MAX)
}

/// Returns the name of the C library, with its version if mutexes of different versions may differ.
pub(crate) fn libc_name() -> String {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: a static string of the library.
        let version = unsafe { std::ffi::CStr::from_ptr(libc::gnu_get_libc_version()) };
        format!("glibc {}", version.to_string_lossy())
    }
    #[cfg(not(target_env = "gnu"))]
    {
        if cfg!(target_env = "musl") { "musl".to_owned() } else { "other".to_owned() }
    }
}

/// Returns CLOCK_REALTIME in ns since 1970; 0 before that.
pub(crate) fn realtime_ns() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .ok()
        .and_then(|since| u64::try_from(since.as_nanos()).ok())
        .unwrap_or(0)
}

fn namespace(path: &str) -> u64 {
    std::fs::metadata(path).map_or(0, |metadata| metadata.ino())
}

fn boot_id() -> Option<[u8; 16]> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    Some(u128::from_str_radix(&digits, 16).ok()?.to_be_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_a_home() {
        let kernel_context = KernelContext::current();
        assert_ne!(kernel_context.boot_id, [0; 16]);
        assert_ne!(kernel_context.pid_namespace, 0);
        assert_ne!(kernel_context.net_namespace, 0);
        assert_eq!(kernel_context, KernelContext::current());
    }

    #[test]
    fn the_machine_is_known() {
        assert_ne!(ARCHITECTURE, 0);
        assert!(page_bytes().is_power_of_two());
        assert!(libc_name().len() <= 32, "{}", libc_name());
    }
}
